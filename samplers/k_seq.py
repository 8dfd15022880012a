"""K-SEQ: SpecTr, Sun et al. 2023 (arXiv 2310.15141).  A rule for a node of a tree (tree.py).

    tree_sampling(draft, target, tokens, n_tokens, (4, 1, 1), rng, rule=K_SEQ)  # 4 drafts of 3 tokens

The k children of a node are drawn from p independently, so two may be equal.  Each is accepted with
probability min(1, q / (rho p)), the same for all: q is divided by rho because one acceptance is enough, and a
token has k chances.  The smaller rho is, the more is accepted, but rho must leave something for the draw
after k rejections: no token may be accepted more often than q says.

    beta(rho)   = sum min(p, q / rho)           the probability that a given child is accepted
    accepted    = 1 - (1 - beta)^k              the probability that any child is

A token is accepted with probability min(p, q / rho) accepted / beta, and if no child is, a draw from the rest
of q makes up what is missing: together q.  No token gets too much if accepted <= rho beta.

K independent drafts are a tree of K lines.  If several drafts begin with the token that was accepted, all of
them go on (tree.py does this), since what follows it is independent in each: the paper's recursion.

The letters are Chen's and the paper's: q the target, p the draft, rho the division factor.  At the best rho
K-SEQ accepts at least 1 - (1 - 1/k)^k > 1 - 1/e times as often as the best rule for k independent drafts.

Limitations: a repeated draft is wasted.  If few tokens are likely, drafts without replacement (SEQUOIA in
tree_rules.py) are accepted more often; if many are, K-SEQ may do better.
"""
import numpy as np

from samplers.tree_rules import draw_with_replacement
from sampling import sample

HALVINGS = 30


def division_factor(q, p, k):
    """The smallest rho in 1 .. k that is allowed, approached from above: [n_vocab], [n_vocab] -> rho.

    accepted - rho beta falls as rho grows, and is not positive at k (Bernoulli's inequality): bisection.

    >>> round(division_factor(np.array([1., 0]), np.array([.5, .5]), 2), 4)
    1.5
    """
    drawn = p > 0
    q, p = q[drawn], p[drawn]
    low, high = 1.0, float(k)
    for _ in range(HALVINGS if k > 1 else 0):
        rho = (low + high) / 2
        beta = np.minimum(p, q / rho).sum()
        if 1 - (1 - beta) ** k <= rho * beta:
            high = rho
        else:
            low = rho
    return high                                                 # allowed, and close to the smallest


def select(q, p, tokens, rng):
    """The first child that is accepted, or a draw from the rest.  Returns (which child or None, the token).

    q, p        [n_vocab]    the target's, and what each of the children was drawn from
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
    return None, sample(q if q.any() else shared, rng)          # nothing left: q = p up to rounding


K_SEQ = draw_with_replacement, select
