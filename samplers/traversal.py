"""Traversal verification: Weng et al. 2025 (arXiv 2505.12398), block verification for a tree of drafts.

    tree_sampling(draft, target, tokens, n_tokens, (3, 2, 1), rng, walk=traversal.walk)

The walk of tree.py goes from the root down: if a child is rejected, everything below it is lost.  Here leaves
are judged first, and a node only after everything below it has been rejected; rejecting a leaf does not lose
its ancestors.  On a line of drafts this is block verification.

The letters are Chen's, as in speculative.py: q the target (the paper's M_b), p the draft (M_s).  P is the
weight of a node (as in the paper); t and d are what is left of q and of p there after some of its children
have been rejected.

Why it is lossless.  Claim: a node that is visited with the weight P is kept with probability P, by itself or
through what is below it.  Its first child is x with probability d(x) and is then kept with probability min(1,
P t(x) / d(x)), by the claim for smaller trees.  So x is the kept child with probability min(d(x), P t(x)),
which is P - S over all x, where S is the sum of what is missing, r = (P t - d)+.  The child is rejected with
probability 1 - P + S.  Of this, S is still wanted, distributed like r: the same task again, with the weight
S / (S + 1 - P), t = r / S, and as d the distribution of the next child.  When there are no more children, the
node is kept with what is left of the weight, and the token that follows is drawn from what is left of t.  The
root has weight 1.

Without replacement it accepted no fewer drafts than the walk from the root down on any of 35 small trees,
computed exactly, and .02 more on average.

Limitations: with replacement it may accept fewer, because equal siblings are not merged here.  Children have
to be drawn with or without replacement, or chosen.  At temperature 0 it accepts what any walk does.  `visit`
recurses once per level.
"""
import numpy as np

from samplers.tree_model import children_of
from samplers.tree_rules import draw_with_replacement, draw_without_replacement, normalized
from sampling import sample


def walk(q, p, nodes, parents, rule, rng):
    """Leaves first.  Returns (the places of the nodes that are taken, the token that follows them).

    The arguments are those of tree.walk; of the rule only the way of drawing matters.  In the example
    the nodes of a line have the weights min(1, 1/2) and min(1, 1/2 * 2): both stay.  tree.walk rejects the
    first of them half the time.

    >>> from samplers.tree_rules import SEQUOIA
    >>> q, p = np.array([[1 / 3, 2 / 3]] * 3), np.array([[2 / 3, 1 / 3]] * 2)
    >>> walk(q, p, [0, 1], [-1, 0], SEQUOIA, np.random.default_rng(0))
    ([0, 1], 0)
    """
    draw, _ = rule
    if p is not None and draw not in (draw_with_replacement, draw_without_replacement):
        raise ValueError("traversal judges children that were drawn with or without replacement, or chosen: "
                         "take the rule SPECINFER or SEQUOIA")

    def visit(node, weight):
        """(path below the node, next token), or None if the node is rejected: with probability 1 - weight."""
        t, below = q[node + 1], children_of([node], parents)            # [n_vocab]
        d = p[below[0]] if below and p is not None else None            # [n_vocab]
        for child in below:
            x = nodes[child]
            if p is None:
                d = np.zeros(len(t))                                    # chosen: x with probability 1
                d[x] = 1
            found = visit(child, min(1, weight * t[x] / d[x]))
            if found:
                path, token = found
                return [child, *path], token
            r = np.maximum(weight * t - d, 0)
            S = r.sum()
            if S == 0:                      # P t <= d everywhere: nothing more is wanted of the node
                weight = 0.0
                break
            weight, t = S / (S + (1 - weight)), r / S          # in this order: S may be tiny
            if draw is draw_without_replacement:
                d = normalized(np.where(np.arange(len(d)) == x, 0, d))
        if node == -1 or rng.random() < weight:
            return [], sample(t, rng)
        return None

    return visit(-1, 1.0)
