"""Block verification judges the drafts together: Sun et al. 2024 (arXiv 2403.10444).

    speculative_sampling(draft, target, tokens, n_tokens, K, rng, verify=block.verify)

Algorithm 2 of Chen et al. judges each draft by itself, and the first rejection ends the round.  But a draft
that the target likes much more than the drafter does (q / p above 1) could make up for one that it likes
less.  Here whole prefixes are judged.  A round costs the same, the distribution is the same, and the expected
number of accepted drafts is never smaller: the first j drafts are accepted with probability P_j = min(1,
P_{j-1} q / p), where P_0 = 1.  This is at least the product of Algorithm 2's min(1, q / p), since min(1, P r)
>= P min(1, r) for P <= 1.  The paper shows that no lossless rule accepts more on average, if the next round
must aim at q itself again.  (Its greedy variant accepts more in one round, but then the next rounds have to
aim at other distributions.)  With the q and p of the example below, Algorithm 2 accepts 10/9 drafts on
average, block verification 11/9.  Two tokens of the target that are drawn jointly with the two drafts, in
any way whatever, agree with them in the first 12/9 places on average, at most.

The letters are Chen's, as in speculative.py: q the target (the paper's M_b), p the draft (M_s), K the number
of drafts (gamma).  P_j, h_j and tau, the number of drafts that are kept, are the paper's.

How it decides.  For each of the k drafts of a round a coin is thrown, which passes with probability h_j.  tau
is the last j whose coin passes, or 0 if none does.  So a draft whose own coin fails is still kept if a later
coin passes.

Why it is lossless.  Claim: given the first j drafts, tau >= j has probability P_j.  It holds for the last
draft (h_k = P_k), and for the others by induction from the right.  The next draft is kept (tau > j) with
probability sum p min(1, P_j q / p) = sum min(p, P_j q) = P_j - z_j, where z_j = sum max(0, P_j q - p), and
h_j is chosen so that h_j + (1 - h_j) (P_j - z_j) = P_j.  So tau = j has probability z_j.  Given the first j
drafts, the next token is x in one of two ways: as a draft that is kept, with probability min(p(x), P_j q(x)),
or as the correction, with probability max(0, P_j q(x) - p(x)).  Together that is P_j q(x).

Limitations: at temperature 0, and if the drafts are point masses, it accepts no more than Algorithm 2.
"""
import numpy as np

from sampling import sample


def verify(target_probs, draft_probs, drafts, rng):
    """How many drafts are kept, and the token that follows them.  Returns (n_accepted, next_token).

    The arguments are those of speculative.verify.  One random number is drawn for each draft, from left to
    right, and one for the token that follows, unless that is certain.  In the example h_1 = 0 and
    P_2 = min(1, 1/2 * 2) = 1: both drafts are kept; Algorithm 2 rejects the first of them half the time.

    >>> q, p = np.array([[1 / 3, 2 / 3]] * 3), np.array([[2 / 3, 1 / 3]] * 2)
    >>> verify(q, p, [0, 1], np.random.default_rng(0))
    (2, 0)
    """
    q = target_probs                                            # [k + 1, n_vocab]
    p = [*draft_probs, np.zeros_like(q[-1])]                    # [k + 1, n_vocab]  no draft comes after x̃_k
    weight, tau = 1.0, 0                                        # weight is P_j;  P_0 = 1
    residual = np.maximum(q[0] - p[0], 0)                       # if no draft is kept; q if none was made
    for j, token in enumerate(drafts, 1):
        q_x, p_x = q[j - 1][token], p[j - 1][token]
        weight = min(weight * q_x, p_x) / p_x                   # P_j = min(1, P_{j-1} q / p)
        rest = np.maximum(weight * q[j] - p[j], 0)              # P_j q - p after j drafts; at the end P_k q
        z = rest.sum()
        # 0 / 0 (P_j = 1, and q = p at the next place) counts as 0: the next draft is sure to stay anyway.
        if rng.random() * (z + 1 - weight) < z:                 # u < h_j = z_j / (z_j + 1 - P_j);  h_k = P_k
            tau, residual = j, rest                             # the last coin that passes counts: go on
    return tau, sample(residual if residual.any() else q[tau], rng)       # nothing left: p = q up to rounding
