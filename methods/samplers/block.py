"""Block verification, which judges the drafts jointly: Sun et al. 2024 (arXiv 2403.10444).

    speculative_sampling(draft, target, tokens, n_tokens, K, rng, verify=block.verify)

Algorithm 2 of Chen et al. judges each draft by itself, and the first rejection ends the round.  But a draft
the target likes much more than the drafter does (q / p above 1) could make up for an earlier one with q / p
below 1.  Block verification judges prefixes: given the first j drafts, all of them are accepted with
probability

    P_j = min(1, P_{j-1} q / p),    P_0 = 1         (q and p at the j-th draft)

On average no fewer drafts are accepted: P_j is at least the product of Algorithm 2's min(1, q / p), since
min(1, P r) >= P min(1, r) for P <= 1.  With the q and p of the example below, Algorithm 2 accepts 10/9 drafts
on average, block verification 11/9.  The paper proves that no rule accepts more on average if every round
has to be lossless by itself; Thomas and Pal (arXiv 2602.16961) state it for rules that also look at tokens
that were not drafted.  Hierarchical speculative decoding (Zhou et al., arXiv 2601.05724) is this method:
its capped ratio r_j / max(1, r_1, .., r_j), with r_j the product of the first j q / p, is P_j, and it tests
the same h_j from back to front.

The notation is Chen's, as in speculative.py: q the target (the paper's M_b), p the draft (M_s), K the number
of drafts (gamma).  P_j, h_j and tau are the paper's.

How it decides.  Let k be the number of drafts in the round.  For each j from 1 to k a coin is tossed, which
comes up heads with probability

    h_j = z_j / (z_j + 1 - P_j),    z_j = sum max(0, P_j q - p)

where q and p are the distributions after the first j drafts (p = 0 after the last).  tau, the number of
accepted drafts, is the last j with heads, or 0, so a draft whose own coin shows tails is still accepted if a
later coin shows heads.  The token after the accepted drafts is drawn from max(0, P_tau q - p).

Why it is lossless.  Claim: given the first j drafts, tau >= j has probability P_j.  It holds for j = k, since
h_k = P_k.  Let it hold for j + 1.  Then the next draft is x and accepted (tau > j) with probability p(x)
min(1, P_j q(x) / p(x)) = min(p(x), P_j q(x)).  Summed over x this is P_j - z_j, so all later coins show tails
with probability 1 - P_j + z_j.  If coin j then shows heads, tau = j: this has probability (1 - P_j + z_j) h_j
= z_j, which proves the claim.  That tau = j and the correction is x has probability max(0, P_j q(x) - p(x)).
As draft or as correction, x has probability P_j q(x) in all, that is, q(x) given tau >= j.

Limitations: at temperature 0, and if the drafts are point masses, it accepts no more than Algorithm 2.
"""
import numpy as np

from methods.entries import Verifier, line_sampler
from sampling import sample


def verify(target_probs, draft_probs, drafts, rng):
    """Returns (n_accepted, next_token).  Arguments as in speculative.verify.

    In the example P_2 = min(1, 1/2 * 2) = 1, so both drafts are accepted.

    >>> q, p = np.array([[1 / 3, 2 / 3]] * 3), np.array([[2 / 3, 1 / 3]] * 2)
    >>> verify(q, p, [0, 1], np.random.default_rng(0))
    (2, 0)
    """
    q = target_probs                                            # [k + 1, n_vocab]
    p = [*draft_probs, np.zeros_like(q[-1])]                    # [k + 1, n_vocab]  no draft comes after x̃_k
    weight, tau = 1.0, 0                                        # weight is P_j;  P_0 = 1
    residual = np.maximum(q[0] - p[0], 0)                       # for tau = 0; q if there are no drafts
    for j, token in enumerate(drafts, 1):
        q_x, p_x = q[j - 1][token], p[j - 1][token]
        weight = min(weight * q_x, p_x) / p_x                   # P_j = min(1, P_{j-1} q / p)
        rest = np.maximum(weight * q[j] - p[j], 0)              # P_j q - p after j drafts
        z = rest.sum()
        # h_j = 0 / 0 (P_j = 1, and q = p after j drafts) counts as 0: the next draft is bound to be accepted.
        if rng.random() * (z + 1 - weight) < z:                 # u < h_j;  h_k = P_k
            tau, residual = j, rest                             # tau is the last j with heads
    return tau, sample(residual if residual.any() else q[tau], rng)       # nothing left: p = q up to rounding


VERIFIER = Verifier("methods/samplers/block.py", line_sampler(lambda _: verify), tests_all=True)
