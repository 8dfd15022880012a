"""Traversal verification: Weng et al. 2025 (arXiv 2505.12398), for a tree of drafts.

    tree_sampling(draft, target, tokens, n_tokens, (3, 2, 1), rng, walk=traversal.walk)

The walk of tree.py goes from the root down: if a child is rejected, everything below it is lost.  Here leaves
are judged first, and a node only after everything below it has been rejected.  On a line of drafts this is
block verification (block.py).

The notation is Chen's, as in speculative.py: q the target (the paper's M_b), p the draft (M_s).  A node is
visited with a weight P (as in the paper).  The token after it remains to be drawn from a distribution t, at
first q, and its next child was drawn from d.

Why it is lossless.  Claim: a node visited with weight P is accepted with probability P, alone or with a path
below it, and then the token after it has the distribution q.  By induction from the leaves: its first child
is x with probability d(x), and is visited with weight min(1, P t(x) / d(x)).  So, by the claim for the child,
it is x and accepted with probability min(d(x), P t(x)), which leaves r(x) = max(0, P t(x) - d(x)) of P t(x).
Let S be the sum of r.  The child is rejected with probability S + 1 - P.  In a fraction S / (S + 1 - P) of
these cases the node must still be accepted, with the token after it drawn from r / S.  This is the same task
again, with this fraction as P, r / S as t, and the next child's distribution as d.  After the last child, the
node alone is accepted with probability P, and the token after it is drawn from t.  The root has weight 1.

Without replacement, traversal accepts on average no fewer drafts than the walk from the root down, on the
small trees of tests/test_rules.py (computed exactly).

Limitations: with replacement it may accept fewer, because the children of equal siblings are judged
separately (in tree.py together).  At temperature 0 it accepts the same nodes as any walk.  `visit` recurses
once per level.
"""
import numpy as np

from methods.samplers.tree import tree_verifier
from methods.samplers.tree_model import children_of
from methods.samplers.tree_rules import SEQUOIA, draw_with_replacement, draw_without_replacement, exclude
from sampling import point_masses, sample


def walk(Q, P, nodes, parents, rule, rng):
    """Returns (the indices of the accepted nodes, the token that follows them).  Raises ValueError unless the
    children were drawn with or without replacement, or chosen.

    Arguments as in tree.walk; of the rule only `draw` matters.  In the example the second node has weight
    min(1, 1/2 * 2) = 1, so both nodes are accepted.

    >>> from methods.samplers.tree_rules import SEQUOIA
    >>> Q, P = np.array([[1 / 3, 2 / 3]] * 3), np.array([[2 / 3, 1 / 3]] * 2)
    >>> walk(Q, P, [0, 1], [-1, 0], SEQUOIA, np.random.default_rng(0))
    ([0, 1], 0)
    """
    draw, _ = rule
    if P is not None and draw not in (draw_with_replacement, draw_without_replacement):
        raise ValueError("traversal judges children that were drawn with or without replacement, or chosen: "
                         "take the rule SPECINFER or SEQUOIA")

    def visit(node, weight):
        """(path below the node, next token); None if the node is rejected, with probability 1 - weight."""
        t, below = Q[node + 1], children_of([node], parents)            # [n_vocab]
        d = P[below[0]] if below and P is not None else None            # [n_vocab]
        for child in below:
            x = nodes[child]
            if P is None:
                d = point_masses([x], len(t))[0]                        # chosen: x with probability 1
            result = visit(child, min(1, weight * t[x] / d[x]))
            if result:
                path, token = result
                return [child, *path], token
            r = np.maximum(weight * t - d, 0)
            S = r.sum()
            if S == 0:                      # nothing of P t is left
                weight = 0.0
                break
            weight, t = S / (S + (1 - weight)), r / S          # not S + 1 - weight: S may be tiny
            if draw is draw_without_replacement:
                d = exclude(d, x)
        if node == -1 or rng.random() < weight:
            return [], sample(t, rng)
        return None

    return visit(-1, 1.0)


VERIFIER = tree_verifier("methods/samplers/traversal.py", rule=SEQUOIA, walk=walk)
