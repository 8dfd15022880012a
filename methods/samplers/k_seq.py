"""K-SEQ: SpecTr, Sun et al. 2023 (arXiv 2310.15141).  A rule for a node of a tree (tree.py).

    tree_sampling(draft, target, tokens, n_tokens, (4, 1, 1), rng, rule=K_SEQ)  # 4 paths of 3 drafts

The k children of a node are drawn from p independently, so some may be equal.  They are tried in turn with
the same test: x is accepted with probability min(1, q(x) / (rho p(x))), where the factor rho makes up for the
k chances that a token has.

    beta        = sum min(p, q / rho)           the probability that a tried child is accepted
    accepted    = 1 - (1 - beta)^k              the probability that one of the k is

So x is the accepted child with probability accepted * min(p(x), q(x) / rho) / beta.  If that is at most q(x)
for every x, a draw after k rejections can make up the difference, and x has probability q(x) in all.  This
holds if accepted <= rho beta, and the smallest such rho accepts the most.

If several children equal the accepted token, the walk continues below all of them (tree.py), as in the paper.

The notation is Chen's and the paper's: q the target, p the draft, rho the division factor.  At the best rho
K-SEQ accepts at least 1 - (1 - 1/k)^k > 1 - 1/e times as often as the best rule for k independent drafts.

Limitations: equal children waste chances.  If few tokens are likely, SEQUOIA (tree_rules.py), which draws
children without replacement, usually accepts more often; if many are, K-SEQ may do better.
"""
import numpy as np

from methods.samplers.tree import tree_verifier
from methods.samplers.tree_rules import draw_with_replacement
from sampling import sample

HALVINGS = 30


def division_factor(q, p, k):
    """The smallest rho from 1 to k with accepted <= rho beta, or slightly more: [n_vocab], [n_vocab] -> rho.

    Bisection works because accepted - rho beta decreases in rho, and is <= 0 at k (Bernoulli's inequality).

    >>> round(division_factor(np.array([1., 0]), np.array([.5, .5]), 2), 4)
    1.5
    """
    possible = p > 0
    q, p = q[possible], p[possible]
    low, high = 1.0, float(k)
    for _ in range(HALVINGS if k > 1 else 0):
        rho = (low + high) / 2
        beta = np.minimum(p, q / rho).sum()
        if 1 - (1 - beta) ** k <= rho * beta:
            high = rho
        else:
            low = rho
    return high


def select(q, p, tokens, rng):
    """Returns (index of the accepted child or None, the token).

    q, p        [n_vocab]    the target's distribution, and the one each child was drawn from
    """
    k = len(tokens)
    rho = division_factor(q, p, k)
    for i, token in enumerate(tokens):
        if rng.random() * p[token] * rho < q[token]:            # u < q / (rho p)
            return i, token
    shared = np.minimum(p, q / rho)                             # sums to beta
    beta = min(shared.sum(), 1.0)
    if beta > 0:
        q = np.maximum(q - shared * ((1 - (1 - beta) ** k) / beta), 0)      # sums to 1 - accepted
    return None, sample(q if q.any() else shared, rng)          # empty: q = p up to rounding


K_SEQ = draw_with_replacement, select
VERIFIER = tree_verifier("methods/samplers/k_seq.py", rule=K_SEQ)
