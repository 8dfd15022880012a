"""Which tree is best: Sequoia, Chen et al. 2024 (arXiv 2402.12374), its dynamic programme.

    accepted = by_rank(rounds)                          # reporting/stats.py, of a run with a wide tree
    shape = fastest(accepted, seconds(target, tokens, 33), seconds(draft, tokens, 33))
    tree_sampling(draft, target, tokens, n_tokens, shape, rng)      # 33 rows: the root and up to 32 nodes

Assumed, as in the paper: wherever a node is, its child b (the first is 0) is the one that is taken with the
same probability accepted[b].  Then a node is reached with the product of these along its path, and the
expected number of tokens a pass is the sum of these products, the root's 1 included (it stands for the
target's own token).  The best tree of n nodes is put together from best trees of fewer nodes.  Which n and
which depth: those with most tokens a second, by this machine's own seconds of a pass over so many rows.

But: the acceptances are those of one draft, target, rule and temperature; measured on one text.
"""
import functools
from statistics import median

import numpy as np

from compute.backend import clock
from samplers.tree import shape_of
from samplers.tree_model import depths, with_tree


def best_tree(accepted, n, depth):
    """The tree of n nodes and at most `depth` levels with most tokens a pass.  Returns (tokens, parents), or
    (-inf, None) where there is none.

    >>> best_tree((.5, .25), 3, 3)                  # two children, and one below the first
    (2.0, [-1, -1, 0])
    """
    @functools.cache
    def children(n, depth, rank):
        """(T, nodes below each) of n nodes as the children `rank`, `rank` + 1, .. of a node and below these:

        T(n, depth, rank) = max of accepted[rank] (1 + T(m, depth - 1, 0)) + T(n - 1 - m, depth, rank + 1)

        over m, the nodes below the child `rank`; -inf where n nodes do not fit."""
        if n == 0:
            return 0.0, ()
        best = -np.inf, ()
        if depth == 0 or rank == len(accepted):
            return best
        for below in range(n):                                  # m
            inner, _ = children(below, depth - 1, 0)
            if inner == -np.inf:
                continue
            tokens = accepted[rank] * (1 + inner)
            more, others = children(n - 1 - below, depth, rank + 1)
            best = max(best, (tokens + more, (below, *others)))
        return best

    def parents(n, depth, parent, shape):
        for below in children(n, depth, 0)[1]:
            shape.append(parent)
            parents(below, depth - 1, len(shape) - 1, shape)
        return shape

    tokens, _ = children(n, depth, 0)
    return (1 + tokens, shape_of(parents(n, depth, -1, []))) if np.isfinite(tokens) else (-np.inf, None)


def fastest(accepted, target_seconds, draft_seconds, depth=6):
    """The parents of the tree with most tokens a second.

    target_seconds, draft_seconds   [n]    of a pass over 1, 2 .. n rows
    """
    most = len(target_seconds) - 1
    trees = [best_tree(tuple(accepted), n, d) for n in range(1, most + 1) for d in range(1, depth + 1)]

    def speed(tree):
        tokens, parents = tree
        if parents is None:
            return 0.0
        rows = np.bincount([0, *depths(parents)])[:-1]          # of each pass of the draft
        # [len(parents)]: with the root that is one row more
        return tokens / (target_seconds[len(parents)] + sum(draft_seconds[n - 1] for n in rows))

    return max(trees, key=speed)[1]


def seconds(model, tokens, most, repetitions=5):
    """Median seconds of a pass over 1, 2 .. `most` rows behind these tokens, on this machine: [most]."""
    model = with_tree(model)
    times = [[] for _ in range(most)]
    for _ in range(repetitions + 1):                            # the first is the warm-up
        for n, mine in enumerate(times, 1):
            start = clock()
            model.tree(tokens, tokens[:1] * (n - 1), [-1] * (n - 1))
            mine.append(clock() - start)
    return [median(mine[1:]) for mine in times]
