"""Greedy drafts: Hu et al. 2025 (arXiv 2502.18779), with the best rule for k drafts of this kind.

    tree_sampling(draft, target, tokens, n_tokens, (3, 2, 1), rng, rule=GREEDY)

Of the k children of a node, k - 1 are chosen, the draft's likeliest tokens, and the last is drawn from the
rest.  Only the last is tested, as in Algorithm 2 of Chen et al.  If it is rejected, a token is drawn from the
residual, and if this token is one of the chosen children, that child is accepted.

The notation is Chen's, as in speculative.py: q the target, p the draft (the paper swaps them).  S is the set
of chosen tokens, X the one that is drawn, and p' is what X is drawn from: p outside S, normalized.

Why it is lossless.  Algorithm 2 gives a token y with the distribution q whatever its draft was drawn from, so
also from p'.  If some child is y, that child is accepted.

Why no rule for these drafts accepts more.  A token is accepted with probability at most q.  One outside S can
be accepted only if it is X, hence with probability at most min(q, p').  Here both bounds are attained: a y in
S is always a child, and Algorithm 2 draws and accepts any other token with probability min(q, p').

Not here: the best rule for independent drafts, a linear program over all k-tuples of tokens.

Limitations: whether it accepts more than SEQUOIA (tree_rules.py) depends on p and q.
"""
import numpy as np

from methods.samplers.tree import tree_verifier
from methods.samplers.tree_rules import exclude, top_tokens
from sampling import sample


def draw(p, width, rng):
    """The `width` - 1 likeliest tokens, then one that is drawn; fewer if fewer have any probability.

    >>> draw(np.array([.2, .5, .3, 0]), 3, np.random.default_rng(0))
    [1, 2, 0]
    """
    chosen = top_tokens(p, min(width, np.count_nonzero(p)) - 1)
    return [*chosen, sample(exclude(p, chosen), rng)]           # from p'


def select(q, p, tokens, rng):
    """Returns (index of the accepted child or None, the token).

    >>> q, p = np.array([.9, .1, 0]), np.array([.5, .3, .2])            # S = {0}, X = 2: the correction is 0
    >>> select(q, p, [0, 2], np.random.default_rng(0))
    (0, 0)
    """
    *chosen, x = tokens
    p = exclude(p, chosen)                                      # p'
    if rng.random() * p[x] < q[x]:                              # u < min(1, q / p')
        return len(chosen), x
    residual = np.maximum(q - p, 0)
    y = sample(residual if residual.any() else q, rng)          # empty: q = p' up to rounding
    return (tokens.index(y) if y in tokens else None), y


GREEDY = draw, select
VERIFIER = tree_verifier("methods/samplers/multi_draft.py", rule=GREEDY)
