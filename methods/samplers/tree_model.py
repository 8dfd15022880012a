"""A model that scores a tree of drafts in one pass.

    with_tree(model).tree(tokens, nodes, parents) -> logits [1 + n, n_vocab]

    nodes       [n]    the drafted tokens
    parents     [n]    the index of each node's parent, which comes before it; -1: the last token

A node attends to the text, its ancestors and itself.  Its position is the last token's plus its depth.
"""
import functools
from operator import index

import numpy as np

from engine.checks import StandIn, check_ids
from engine.compute.backend import on_gpu, xp
from engine.compute.linear import row_products
from engine.compute.probe import DEPTHS, SUM, TILE
from gpt2 import BLOCK, GPT2, common_prefix, whole_blocks


def depths(parents):
    """How far below the root each node is: 1 for the root's children.
    Raises ValueError for a parent that does not come before its node.

    >>> depths([-1, -1, 0, 2])
    [1, 1, 2, 3]
    """
    depth = {-1: 0}
    for node, parent in enumerate(parents):
        if parent not in depth:
            raise ValueError(f"the parents of the nodes are {[*parents]}: each must come before its node, or "
                             "be -1, the root")
        depth[node] = depth[parent] + 1
    return [depth[node] for node in range(len(parents))]


def children_of(here, parents):
    return [i for i, parent in enumerate(parents) if parent in here]


def check_nodes(n, nodes, parents, n_vocab, n_ctx):
    """Raises ValueError for ids outside the vocabulary, or a path too long for the context after n tokens."""
    levels = max(depths(parents), default=0)
    if n + levels > n_ctx:
        raise ValueError(f"{n} tokens and a tree of {levels} levels do not fit into the context of {n_ctx}")
    check_ids(nodes, n_vocab)


def with_tree(model):
    """The model if it has a method `tree`, else another with the same weights that has.  None stays None."""
    if model is None or hasattr(model, "tree"):
        return model
    if type(model) is GPT2:                                     # a subclass may differ
        return TreeGPT2(model.params, model.n_head)
    return CallByCall(model)


class CallByCall(StandIn):
    """`tree` for any model, with one call for each row of logits."""

    def __init__(self, model):
        self.model = model

    def __call__(self, tokens, n_last=1):
        return self.model(tokens, n_last)

    def tree(self, tokens, nodes, parents, n_last=None):
        texts = [list(tokens)]
        for token, parent in zip(nodes, parents):
            texts.append([*texts[parent + 1], token])
        # Copies: the model may reuse its array.
        return xp.stack([xp.array(self.model(text)[-1]) for text in texts[-(n_last or len(texts)):]])


class TreeGPT2(GPT2):
    """A GPT2 that also scores a tree of drafts, in one pass.  It has its own cache.

    In the cache the nodes come after the tokens.  If the tokens of the next call follow a path of the tree,
    the path's keys and values are moved next to those of the text.
    """

    @property
    def exact_paths(self):
        """True if a node's logits are the same as in a decode step, to the last bit, in passes of at most
        `exact_rows` rows that leave at most 1,280 tokens and nodes in the cache."""
        return keeps_paths(self.cache.shape[-1])

    def reset(self):
        self.nodes, self.parents = [], []                       # the tree after self.past
        super().reset()

    def forward(self, tokens, n_past):
        self.nodes, self.parents = [], []                       # they are overwritten
        return super().forward(tokens, n_past)

    def __call__(self, tokens, n_last=1):
        tokens = [*map(index, tokens)]
        self.follow(tokens)
        return super().__call__(tokens, n_last)

    def tree(self, tokens, nodes, parents, n_last=None):
        """Logits after `tokens`, and after `tokens` and the path to each node: [1 + n, n_vocab], or the last
        n_last rows of these.

        The arguments are explained at the top of the file; the logits depend only on them.
        Raises ValueError for ids outside the vocabulary, or a path too long for the context.
        """
        tokens, nodes, parents = [*map(index, tokens)], [*map(index, nodes)], list(parents)
        n, total = len(tokens), len(tokens) + len(nodes)
        n_last = int(n_last or 1 + len(nodes))
        check_nodes(n, nodes, parents, self.n_vocab, self.n_ctx)
        positions = [*range(n), *(n - 1 + depth for depth in depths(parents))]
        self.follow(tokens)
        n_past = self.prefill(tokens, 1)                        # the last token runs with the nodes
        if tokens == self.past:                                 # then nodes may be reused, too
            n_past = n + common_prefix([*zip(nodes, parents)], [*zip(self.nodes, self.parents)])
        n_past = min(n_past, total - n_last)
        self.make_room(total)
        n_valid = max(n_past - n, 0)                            # after an interruption only these are valid
        self.past, self.nodes, self.parents = tokens[:n_past], nodes[:n_valid], parents[:n_valid]
        x = self.params["wte"][(tokens + nodes)[n_past:]] + self.params["wpe"][positions[n_past:]]
        x = self.layers(x, n_past, tree_mask(n_past, n, parents))           # [total - n_past, n_embd]
        self.past, self.nodes, self.parents = tokens, nodes, parents
        return self.logits(x[-n_last:])

    def follow(self, tokens):
        """If the tokens follow a path of the tree, move its keys, values and states next to the text's."""
        n, here, path = len(self.past), [-1], []
        if not self.nodes or len(tokens) <= n or tokens[:n] != self.past:
            return
        for token in tokens[n:]:
            here = [i for i in children_of(here, self.parents) if self.nodes[i] == token]
            if not here:
                break
            path.append(here[0])                                # equal siblings have equal keys and values
        accepted, places = [self.nodes[i] for i in path], [n + i for i in path]
        self.nodes = []                                         # after an interruption none is valid
        self.cache[:, :, :, n:n + len(path)] = self.cache[:, :, :, places]
        self.states[:, n:n + len(path)] = self.states[:, places]
        self.past = self.past + accepted

    def make_room(self, n):
        """Make room for n tokens and nodes in all, which may exceed the context."""
        n = whole_blocks(n)
        if n > self.cache.shape[3]:                             # separately: an interrupt may come between
            self.cache = xp.pad(self.cache, [(0, 0)] * 3 + [(0, n - self.cache.shape[3]), (0, 0)])
        if n > self.states.shape[1]:
            self.states = xp.pad(self.states, [(0, 0), (0, n - self.states.shape[1]), (0, 0)])


def tree_mask(n_past, n, parents):
    """[total - n_past, s]: as gpt2.causal_mask, but a node attends to the n tokens, its ancestors and itself.
    """
    total = n + len(parents)
    sees = np.tri(total - n_past, whole_blocks(total), n_past, dtype=bool)      # as a line of tokens would
    own = np.eye(len(parents), dtype=bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            own[node] |= own[parent]
    sees[max(n - n_past, 0):, n:total] = own[max(n_past - n, 0):]
    return xp.asarray(np.where(sees, 0, -1e38), dtype=xp.float32)


@functools.cache
def keeps_paths(d_head):
    """True if gaps between the keys that a node attends to do not change the bits.

    This is tried with about four in five keys, chosen at random; the others have weight 0.  A product must be
    the same as when the chosen keys come first, without gaps.
    """
    if on_gpu() or d_head % TILE == 1:                          # a last tile of one column: `gemv`
        return False
    rng = np.random.default_rng(0)
    for s in range(BLOCK, DEPTHS[0] + BLOCK, BLOCK):
        seen = rng.random(s) < .8
        first = np.arange(s) < seen.sum()
        for rows, width in (1, SUM), (1, d_head), (16, SUM), (16, d_head):
            x, w = (rng.random(shape, dtype=np.float32) for shape in [(1, rows, s), (1, s, width)])
            together, w_together = np.zeros_like(x), w.copy()
            together[:, :, first], w_together[:, first] = x[:, :, seen], w[:, seen]
            if not (row_products(x * seen, w) == row_products(together, w_together)).all():
                return False
    return True
