"""The parts of tree sampling: rules for a node, and ways to grow a tree (the loop is in tree.py).

A rule is a pair of functions:

    draw(p, width, rng) -> tokens                           the children of a node
    select(q, p, tokens, rng) -> (index or None, token)     the accepted child and its token, or a new token

The notation is Chen's: q the target (P in SpecInfer and Sequoia), p the draft (Q in Sequoia).

Not here: SpecInfer's several small models and merged trees; Sequoia's uniform draw once the draft has run out
of tokens (here the node gets fewer children).
"""
from functools import partial

import numpy as np

from engine.compute.backend import to_host
from methods.samplers.tree_model import depths
from sampling import probabilities, sample


def draw_with_replacement(p, width, rng):
    return [sample(p, rng) for _ in range(width)]


def draw_without_replacement(p, width, rng):
    """Returns fewer than `width` tokens if fewer have any probability."""
    p, tokens = p.copy(), []
    while len(tokens) < width and p.any():
        tokens.append(sample(p, rng))
        p[tokens[-1]] = 0                                       # `sample` needs no division by the sum
    return tokens


def normalize(weights):
    return weights / weights.sum() if weights.any() else weights


def exclude(p, tokens):
    """p without these tokens, normalized: [n_vocab] -> [n_vocab]."""
    rest = p.copy()
    rest[tokens] = 0
    return normalize(rest)


def select_drawn(q, p, tokens, rng, replacement=False):
    """Try the children one by one with Algorithm 2's test; after a rejection the residual is the new q.

    q, p        [n_vocab]    the target's distribution, and the one the first child was drawn from
    tokens      the children, in the order they were drawn
    Returns (index of the accepted child or None, the token).

    Lossless: the residual is what is still missing from q, and each child is a draft for it.  With
    replacement each child was drawn from the same p; without, p loses each rejected token.  (SpecInfer tries
    its children in random order; independent draws already are.)

    >>> q, p = np.array([1., 0]), np.array([.5, .5])
    >>> select_drawn(q, p, [1, 0], np.random.default_rng(0))        # the second is certain to be accepted
    (1, 0)
    """
    for i, token in enumerate(tokens):
        if rng.random() * p[token] < q[token]:                  # r < min(1, q / p)
            return i, token
        residual = np.maximum(q - p, 0)
        # normalized, because it is compared with p again; an empty residual means p = q up to rounding
        q = normalize(residual) if residual.any() else q
        if not replacement:
            p = exclude(p, token)
    return None, sample(q, rng)


def select_chosen(q, p, tokens, rng):
    """For children that were chosen, not drawn: draw x ~ q, and accept the child that is x, if there is one.

    The distribution is the same as if they were tried in turn as point masses.
    """
    token = sample(q, rng)
    return (tokens.index(token) if token in tokens else None), token


select_with_replacement = partial(select_drawn, replacement=True)
SPECINFER = draw_with_replacement, select_with_replacement
SEQUOIA = draw_without_replacement, select_drawn


# Growing the tree -------------------------------------------------------------------------------------------

def grow_drawn(draft, x, shape, rule, to_probs, rng):
    """A tree whose children are drawn from the draft.  Returns (nodes, parents, draft_probs).

    draft           a model with `tree` (see `with_tree`)
    shape           the parent of each node of the largest tree allowed, level by level; -1: the root

    nodes           [n]    the drafted tokens, parents before their children
    parents         [n]    the index of each node's parent in `nodes`, -1 for the root, x_n
    draft_probs     [n, n_vocab]    the draft's distribution after each node's parent, which the parent's
                    first child was drawn from, or None if the children were chosen, not drawn
    """
    draw, _ = rule
    p = []

    def children(logits, width):
        probs = to_probs(logits[None])[0]                       # [n_vocab]
        tokens = draw(probs, width, rng)
        p.extend([probs] * len(tokens))
        return tokens

    return *grow_by_level(draft, x, shape, children), p


def grow_likeliest(draft, x, shape, rule, to_probs, rng):
    """A tree of the draft's likeliest tokens.  Nothing is drawn, so there is no p."""
    return *grow_by_level(draft, x, shape, top_tokens), None


def grow_surest(draft, x, shape, rule, to_probs, rng):
    """EAGLE-2's tree, which grows where the draft is most confident, within the shape's nodes and levels.

    A node's worth is the product of the draft's probabilities (at temperature 1) along its path.  On each
    level but the last, the k nodes of most worth get their k likeliest tokens as children, where k is the
    number of the root's children in the shape.  In the end the nodes of most worth are kept.
    """
    k, nodes, parents, worth = shape.count(-1), [], [], []
    seen, level = [], [-1]                                      # nodes the draft sees; those to expand next
    for _ in range(max(depths(shape), default=0)):
        place = {-1: -1} | {node: i for i, node in enumerate(seen)}
        logits = draft.tree(x, [nodes[i] for i in seen], [place[parents[i]] for i in seen], len(level))
        first = len(nodes)
        for node, row in zip(level, logits):                    # row [n_vocab]
            probs = probabilities(to_host(row))
            for token in top_tokens(row, k):
                nodes.append(token)
                parents.append(node)
                worth.append(probs[token] * (worth[node] if node >= 0 else 1.0))
        level = sorted(range(first, len(nodes)), key=lambda i: -worth[i])[:k]
        seen += level
    # A parent is worth no less than its child and precedes it, so it is kept if the child is.
    best = sorted(sorted(range(len(nodes)), key=lambda i: -worth[i])[:len(shape)])
    place = {-1: -1} | {node: i for i, node in enumerate(best)}
    return [nodes[i] for i in best], [place[parents[i]] for i in best], None


def top_tokens(logits, width):
    """The tokens with the `width` largest of logits [n_vocab], the largest first.

    >>> top_tokens(np.array([.1, .7, .2]), 2)
    [1, 2]
    """
    logits = to_host(logits)
    tokens = np.argpartition(-logits, width - 1)[:width] if width < len(logits) else np.arange(len(logits))
    return tokens[np.argsort(-logits[tokens], kind="stable")].tolist()


def grow_by_level(draft, x, shape, children):
    """Grow a tree of at most this shape, with one draft pass per level.  Returns (nodes, parents).

    children    (logits [n_vocab], width) -> at most `width` tokens
    """
    # level: (index in the shape, index in nodes).  The two differ after a draw of fewer tokens than wanted.
    nodes, parents, level = [], [], [(-1, -1)]
    while any(parent == place for place, _ in level for parent in shape):
        logits = draft.tree(x, nodes, parents, len(level))      # [nodes of the last level, n_vocab]
        above, level = level, []
        for (place, node), row in zip(above, logits):
            places = [i for i, parent in enumerate(shape) if parent == place]
            for i, token in zip(places, children(row, len(places)) if places else []):
                level.append((i, len(nodes)))
                nodes.append(token)
                parents.append(node)
    return nodes, parents
