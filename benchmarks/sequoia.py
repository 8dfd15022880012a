"""The best tree: Sequoia, Chen et al. 2024 (arXiv 2402.12374).

    accepted = rate_by_rank(rounds)                     # engine/reporting/stats.py, of a run with a wide tree
    _, shape = best_tree(accepted, 15, 6)               # 15 nodes, at most 6 levels
    tree_sampling(draft, target, tokens, n_tokens, shape, rng)

As in the paper, child b (counted from 0) is assumed to be accepted with the same probability accepted[b] at
every node.  The worth of a node is the probability that its whole path is accepted, the product of these
along the path, and the expected number of tokens per pass is the sum of the worths, plus 1 for the target's
own token.  The paper finds the best tree of n nodes by dynamic programming.  But since no node is worth more
than its parent or its elder sibling, the best tree is simply the n nodes of most worth.

Limitations: the paper also chooses n and the depth by the cost of passes; here both are given.  The
probabilities are those of one draft, target, rule and temperature, on a few texts.  A child that was accepted
more often than an elder sibling is treated as equal to it.
"""
from heapq import heappop, heappush

import numpy as np

from methods.samplers.tree import shape_of


def best_tree(accepted, n, depth):
    """The tree of n nodes and at most `depth` levels with the most tokens per pass -> (tokens, parents); with
    fewer nodes if no tree has n.

    >>> best_tree((.5, .25), 3, 3)                  # two children, and one below the first
    (2.0, [-1, -1, 0])
    """
    accepted = np.minimum.accumulate(accepted)
    tokens, parents, heap = 1.0, [], [(-accepted[0], 0, 1, -1, 1.0)]
    while heap and len(parents) < n:
        worth, rank, level, parent, above = heappop(heap)       # negative, so the largest comes first
        tokens, node = tokens - worth, len(parents)
        parents.append(parent)
        if rank + 1 < len(accepted):
            heappush(heap, (-above * accepted[rank + 1], rank + 1, level, parent, above))
        if level < depth:
            heappush(heap, (worth * accepted[0], 0, level + 1, node, -worth))
    return float(tokens), shape_of(parents)
