"""A tree of drafts, judged in one pass of the target: several guesses at each place instead of one.

    tree_sampling(draft, target, tokens, n_tokens, (3, 2, 1), rng)

    SpecInfer   Miao et al. 2023 (arXiv 2305.09781)     children drawn with replacement
    Sequoia     Chen et al. 2024 (arXiv 2402.12374)     children drawn without replacement
    SpecTr      Sun et al. 2023 (arXiv 2310.15141)      samplers/k_seq.py; its K drafts are a tree, too
    Medusa      Cai et al. 2024 (arXiv 2401.10774)      the likeliest tokens, none is drawn
    EAGLE-2     Li et al. 2024 (arXiv 2406.16858)       likewise, where the draft is surest

The loop is that of speculative.py.  At a node of the tree the target's q is known (the pass gave it), and so
is the p that the children were drawn from.  A *rule* says how children are drawn and which of them is taken;
from the one that is taken the walk goes on, and where none is, the rule has drawn the token that ends the
round.  Each rule gives a token of the distribution q, so the text has the target's distribution, by the same
induction as for a line of drafts.

The letters are Chen's, as in speculative.py: q the target (P in SpecInfer and Sequoia), p the draft (Q).

At temperature 0 the text is the baseline's, token for token, where a path has the bits of single steps
(`keeps_paths` finds out): the keys that a node sees have gaps between them, and only kernels that add in
order (OpenBLAS on AVX-512) do not mind.  Elsewhere the texts may part at a near-tie.

But: one sequence, and one draft model.  SpecInfer's several small models and its merged trees are left out,
as is Sequoia's last resort, a uniform draw where the draft has no more tokens: a node then has fewer
children.
"""
import functools
from operator import index

import numpy as np

from checks import checked_drafts, checked_probs
from compute.backend import on_gpu, to_host, xp
from compute.linear import DEPTH, SUM, row_products
from gpt2 import BLOCK, GPT2, common_prefix, whole_blocks
from sampling import Round, cut_after, prepare, probabilities, sample

MOST_NODES = 1000


# Rules for a node: (draw(p, width, rng) -> tokens, select(q, p, tokens, rng) -> (index or None, token)) ----

def draw_with_replacement(p, width, rng):
    return [sample(p, rng) for _ in range(width)]


def draw_without_replacement(p, width, rng):
    """Fewer than `width` where fewer tokens are possible."""
    p, tokens = p.copy(), []
    while len(tokens) < width and p.any():
        tokens.append(sample(p, rng))
        p[tokens[-1]] = 0                                       # `sample` needs no division by the sum
    return tokens


def normalized(weights):
    return weights / weights.sum() if weights.any() else weights


def select_drawn(q, p, tokens, rng, replacement=False):
    """Try the children one by one: Algorithm 2's coin, and after a refusal its residual as the new q.

    q, p        [n_vocab]    of the target, and what the first child was drawn from
    tokens      the children's, in the order in which they were drawn
    Returns (which child is taken or None, the token).

    Lossless: the residual is what is still missing of q, and each child is a draft for it, drawn from the p
    of its turn.  Which p that is decides the rule: with replacement it stays p, without it p loses the token
    that was refused.  (SpecInfer tries its children in random order; of independent draws any order is.)

    >>> q, p = np.array([1., 0]), np.array([.5, .5])
    >>> select_drawn(q, p, [1, 0], np.random.default_rng(0))        # the second is sure to come and to stay
    (1, 0)
    """
    for i, token in enumerate(tokens):
        if rng.random() * p[token] < q[token]:                  # r < min(1, q / p)
            return i, token
        residual = np.maximum(q - p, 0)
        # normalized, for it is compared with p again; nothing left: p = q up to rounding
        q = normalized(residual) if residual.any() else q
        if not replacement:
            p = normalized(np.where(np.arange(len(p)) == token, 0, p))
    return None, sample(q, rng)


def select_with_replacement(q, p, tokens, rng):
    return select_drawn(q, p, tokens, rng, replacement=True)


def select_chosen(q, p, tokens, rng):
    """Children that were chosen, not drawn: draw x ~ q, and go to the child that is x, if there is one.

    The same as trying them in turn as point masses: the first stays with probability q(x), and so on.
    """
    token = sample(q, rng)
    return (tokens.index(token) if token in tokens else None), token


SPECINFER = draw_with_replacement, select_with_replacement
SEQUOIA = draw_without_replacement, select_drawn


# Growing the tree -------------------------------------------------------------------------------------------

def drawn(draft, x, shape, rule, to_probs, rng):
    """A tree whose children are drawn from the draft.  Returns (nodes, parents, draft_probs).

    draft           a model with `tree` (see `with_tree`)
    shape           the parent of each node, level by level, -1 the root: the most that may be drafted

    nodes           [n]    the drafted tokens, parents before their children
    parents         [n]    the place of each one's parent among the nodes, -1 for the root, x_n
    draft_probs     [n, n_vocab]    the draft's distribution at each one's parent: what the first child was
                    drawn from.  None stands for children that were chosen, not drawn
    """
    draw, _ = rule
    p = []

    def children(logits, width):
        probs = to_probs(logits[None], 1)[0]                    # [n_vocab]
        tokens = draw(probs, width, rng)
        p.extend([probs] * len(tokens))
        return tokens

    return *by_level(draft, x, shape, children), p


def likeliest(draft, x, shape, rule, to_probs, rng):
    """A tree of the draft's likeliest tokens; nothing is drawn, so there is no p."""
    return *by_level(draft, x, shape, most), None


def surest(draft, x, shape, rule, to_probs, rng):
    """EAGLE-2's tree: at most as many nodes and levels as the shape has, where the draft is surest.

    A node is worth the product of the draft's probabilities (at temperature 1) on its path.  On each level
    the best k nodes are expanded by their k likeliest tokens, where k is the number of the root's children;
    in the end the best of all nodes stay.
    The draft never sees the leaves.
    """
    k, nodes, parents, worth = shape.count(-1), [], [], []
    seen, level = [], [-1]                                      # by the draft; what it sees next
    for _ in range(max(depths(shape), default=0)):
        place = {-1: -1} | {node: i for i, node in enumerate(seen)}
        logits = draft.tree(x, [nodes[i] for i in seen], [place[parents[i]] for i in seen], len(level))
        first = len(nodes)
        for node, row in zip(level, logits):                    # row [n_vocab]
            sure = probabilities(to_host(row))
            for token in most(row, k):
                nodes.append(token)
                parents.append(node)
                worth.append(sure[token] * (worth[node] if node >= 0 else 1.0))
        level = sorted(range(first, len(nodes)), key=lambda i: -worth[i])[:k]
        seen += level
    # A parent is worth no less than its child and comes before it, so it stays if the child does.
    best = sorted(sorted(range(len(nodes)), key=lambda i: -worth[i])[:len(shape)])
    place = {-1: -1} | {node: i for i, node in enumerate(best)}
    return [nodes[i] for i in best], [place[parents[i]] for i in best], None


def most(logits, width):
    """The `width` largest of logits [n_vocab], the largest first.

    >>> most(np.array([.1, .7, .2]), 2)
    [1, 2]
    """
    logits = to_host(logits)
    tokens = np.argpartition(-logits, width - 1)[:width] if width < len(logits) else np.arange(len(logits))
    return tokens[np.argsort(-logits[tokens], kind="stable")].tolist()


def by_level(draft, x, shape, children):
    """Grow a tree of at most this shape, one pass of the draft a level.  Returns (nodes, parents).

    children    (logits [n_vocab], width) -> at most `width` tokens
    """
    # level: (place in the shape, node) of each.  They part where a draw gave fewer tokens than places.
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


# The loop ---------------------------------------------------------------------------------------------------

def tree_sampling(draft, target, tokens, n_tokens, widths, rng, *, temperature=1.0, top_k=0, top_p=1.0,
                  eos=None, rule=SEQUOIA, grow=None):
    """Generate `n_tokens` tokens after `tokens`, up to the depth of the tree and one more a target pass.
    Returns a generator of rounds (sampling.Round).

    draft, target   as in speculative_sampling.  A GPT2 scores a tree in one pass, as does whatever has a
                    method `tree` (see TreeGPT2.tree); any other model is called once a node
    widths          children a node, by level: (3, 2, 1) is 3 + 6 + 6 nodes, and (1, 1, 1) is K = 3.  Or the
                    parent of each node, which says any tree: [-1, -1, 0] is two children, and the first has
                    one of its own.  Near the end of the text the lowest levels are left out
    rule            for a node whose children were drawn: SPECINFER, SEQUOIA, k_seq.K_SEQ or another (draw,
                    select); of chosen children it is select_chosen
    grow            drawn, likeliest, surest or another.  None: drawn; at temperature 0, where the draft
                    can draw but one token, the likeliest
    The rest        as in speculative_sampling
    Raises ValueError for bad arguments at the call, not at the first round; and for what `grow` may not do.
    """
    shape = shape_of(widths)
    tokens, to_probs, ends = prepare([draft, target], tokens, n_tokens, temperature, top_k, top_p, eos)
    grow = grow or (likeliest if temperature == 0 else drawn)
    draft, target = with_tree(draft), with_tree(target)

    def rounds():
        x, T = list(tokens), len(tokens) + n_tokens
        while len(x) < T:
            left = T - len(x) - 1                        # the last token that is wanted comes from the target
            nodes, parents, p = grow(draft, x, cut(shape, left), rule, to_probs, rng)
            nodes, parents = checked_tree(nodes, parents, left, target)
            q = to_probs(target.tree(x, nodes, parents), 1 + len(nodes))        # [1 + n, n_vocab]
            p = p if p is None else checked_probs(p, nodes, q)                  # [n, n_vocab]
            path, next_token = walk(q, p, nodes, parents, rule, rng)
            new = cut_after([nodes[i] for i in path] + [next_token], ends)
            x += new
            yield Round(new, nodes, min(len(path), len(new)), q, p, parents)
            if x[-1] in ends:
                return

    return rounds()


def walk(q, p, nodes, parents, rule, rng):
    """From the root down.  Returns (the places of the nodes that are taken, the token that follows them).

    q   [1 + n, n_vocab]    of the target, after the root and after each node
    p   [n, n_vocab]        of the draft, at each node's parent; None: they were chosen
    """
    select = select_chosen if p is None else rule[1]
    path, here = [], [-1]
    while True:
        below = children_of(here, parents)
        if not below:                                           # a leaf: all was accepted, one more
            return path, sample(q[here[0] + 1], rng)
        i, token = select(q[here[0] + 1], None if p is None else p[below[0]], [nodes[i] for i in below], rng)
        if i is None:
            return path, token
        here = [i for i in below if nodes[i] == token]          # of equal siblings all go on
        path.append(here[0])


def children_of(here, parents):
    return [i for i, parent in enumerate(parents) if parent in here]


# Shapes -----------------------------------------------------------------------------------------------------

def shape_of(widths):
    """Widths, or parents in any order that has them before their children -> parents, level by level.

    >>> shape_of((2, 1)), shape_of([-1, 0, -1])
    ([-1, -1, 0, 1], [-1, -1, 0])
    """
    try:
        widths = [index(width) for width in widths]
    except TypeError:
        raise ValueError(f"the shape of a tree is {widths!r}: give the children a node by level, as "
                         "(3, 2, 1), or the parent of each node, as [-1, -1, 0]") from None
    if not widths or widths[0] != -1:
        return shape_of_widths(widths)
    parents = widths
    if len(parents) > MOST_NODES:
        raise ValueError(f"the tree has {len(parents)} nodes: at most {MOST_NODES} are scored in one pass")
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            raise ValueError(f"the parent of node {node} is {parent}: it must come before the node, 0 .. "
                             f"{node - 1}, or be -1, the root")
    depth = depths(parents)
    order = sorted(range(len(parents)), key=depth.__getitem__)  # stable
    place = {-1: -1} | {node: i for i, node in enumerate(order)}
    return [place[parents[node]] for node in order]


def shape_of_widths(widths):
    shape, level = [], [-1]
    for width in widths:
        if width < 1:
            raise ValueError(f"the widths of the tree are {tuple(widths)}: on each level a node must have at "
                             "least one child")
        if len(shape) + len(level) * width > MOST_NODES:
            raise ValueError(f"a tree of the widths {tuple(widths)} has more than {MOST_NODES} nodes: take "
                             "smaller widths, or fewer")
        first = len(shape)
        shape += [parent for parent in level for _ in range(width)]
        level = range(first, len(shape))
    if not shape:
        raise ValueError("the tree has no nodes: give the children a node by level, as (3, 2, 1)")
    return shape


def depths(parents):
    """How far below the root each node is: its children are at 1.

    >>> depths([-1, -1, 0, 2])
    [1, 1, 2, 3]
    """
    depth = {-1: 0}
    for node, parent in enumerate(parents):
        depth[node] = depth[parent] + 1
    return [depth[node] for node in range(len(parents))]


def cut(shape, depth):
    """The first `depth` levels."""
    return [parent for parent, d in zip(shape, depths(shape)) if d <= depth]


def checked_tree(nodes, parents, depth, target):
    """(nodes, parents) as lists of ints.  Raises ValueError where they are no tree of at most this depth."""
    nodes, parents = checked_drafts(nodes, MOST_NODES, target), list(map(index, parents))
    if len(parents) != len(nodes) or any(not -1 <= parent < node for node, parent in enumerate(parents)):
        raise ValueError(f"the tree that was grown has {len(nodes)} nodes and the parents {parents}: each "
                         "node needs one, which comes before it, or -1, the root")
    if max(depths(parents), default=0) > depth:
        raise ValueError(f"the tree that was grown has {max(depths(parents))} levels where at most {depth} "
                         "were wanted")
    return nodes, parents


# A model that scores a tree in one pass ---------------------------------------------------------------------

def with_tree(model):
    """The model, or another with the same weights, that has the method `tree`.  None stays None."""
    if model is None or hasattr(model, "tree"):
        return model
    if type(model) is GPT2:                                     # what inherits from it may run in another way
        return TreeGPT2(model.params, model.cache.shape[2])
    return CallByCall(model)


class CallByCall:
    """`tree` for any model: one call a node."""

    def __init__(self, model):
        self.model, self.n_vocab = model, getattr(model, "n_vocab", float("inf"))

    def tree(self, tokens, nodes, parents, n_last=None):
        texts = [list(tokens)]
        for token, parent in zip(nodes, parents):
            texts.append([*texts[parent + 1], token])
        return xp.stack([self.model(text)[-1] for text in texts[-(n_last or len(texts)):]])


class TreeGPT2(GPT2):
    """A GPT2 that also scores a tree of drafts, in one pass.  It has a cache of its own.

    The nodes lie in the cache behind the tokens, one after the other.  When it is next asked, about tokens
    that follow a path of this tree, the keys and values of the path move up, so that they are contiguous.

    But: for one thread; those that share it do not take turns, as they do with a GPT2.
    """

    @property
    def exact_paths(self):
        """Whether the row of a node has the bits of a single step, if the rows in a pass are few enough."""
        return keeps_paths(self.cache.shape[-1], self.n_ctx)

    def reset(self):
        super().reset()
        self.nodes, self.parents = [], []                       # the tree behind self.cached

    def forward(self, tokens, n_past):
        self.nodes, self.parents = [], []                       # it is written over
        return super().forward(tokens, n_past)

    def __call__(self, tokens, n_last=1):
        self.follow(list(tokens))
        return super().__call__(tokens, n_last)

    def tree(self, tokens, nodes, parents, n_last=None):
        """Logits after the last of the tokens and after each node: [1 + n, n_vocab]; with n_last the last of
        these rows alone.  The row of a node is that of `tokens` and the path to the node.

        tokens      as in a call of the model: a pure function of its arguments, as that is
        nodes       [n]    tokens
        parents     [n]    the place of each one's parent among the nodes, before it, or -1 for tokens[-1]
        Raises ValueError for ids outside the vocabulary, or a path that does not fit into the context.
        """
        tokens, nodes, parents = list(tokens), list(nodes), list(parents)
        n, total = len(tokens), len(tokens) + len(nodes)
        n_last = n_last or 1 + len(nodes)
        positions = [*range(n), *(n - 1 + depth for depth in depths(parents))]
        if max(positions, default=0) >= self.n_ctx:
            raise ValueError(f"{n} tokens and a tree of {max(depths(parents), default=0)} levels do not fit "
                             f"into the context of {self.n_ctx}")
        for token in nodes:
            if not 0 <= index(token) < self.n_vocab:
                raise ValueError(f"token id {token} in the tree is not in 0 .. {self.n_vocab - 1}")
        self.follow(tokens)
        n_past = self.prefill(tokens, 1)                        # the last token is run with the nodes
        if tokens == self.cached:                               # as last time: nodes that are the same stay
            n_past = n + common_prefix([*zip(nodes, parents)], [*zip(self.nodes, self.parents)])
        n_past = min(n_past, total - n_last)
        self.make_room(total)
        kept = max(n_past - n, 0)                               # if we are interrupted, only these are sure
        self.cached, self.nodes, self.parents = tokens[:n_past], nodes[:kept], parents[:kept]
        x = self.params["wte"][(tokens + nodes)[n_past:]] + self.params["wpe"][positions[n_past:]]
        x = self.layers(x, n_past, tree_mask(n_past, n, parents))           # [total - n_past, n_embd]
        if not xp.isfinite(x).all():                            # as in a call: leave nothing of it
            self.cache[:] = 0
            self.reset()
        else:
            self.states[n_past:total] = x
            self.cached, self.nodes, self.parents = tokens, nodes, parents
        return self.logits(x[-n_last:])

    def follow(self, tokens):
        """Where the tokens go on along a path of the tree, move what was computed for it behind the rest."""
        n, here, path = len(self.cached), [-1], []
        if not self.nodes or len(tokens) <= n or tokens[:n] != self.cached:
            return
        for token in tokens[n:]:
            here = [i for i in children_of(here, self.parents) if self.nodes[i] == token]
            if not here:
                break
            path.append(here[0])                                # equal siblings have equal keys and values
        taken, places = [self.nodes[i] for i in path], [n + i for i in path]
        self.nodes = []                                         # if we are interrupted, none of it is sure
        self.cache[:, :, :, n:n + len(path)] = self.cache[:, :, :, places]
        self.states[n:n + len(path)] = self.states[places]
        self.cached = self.cached + taken

    def make_room(self, n):
        """Slots for n tokens and nodes: they may be more than the context, a path may not."""
        n = whole_blocks(n)
        if n > len(self.states):
            self.cache = xp.pad(self.cache, [(0, 0)] * 3 + [(0, n - self.cache.shape[3]), (0, 0)])
            self.states = xp.pad(self.states, [(0, n - len(self.states)), (0, 0)])


def tree_mask(n_past, n, parents):
    """[total - n_past, s]: as gpt2.causal_mask, but a node sees the n tokens, its ancestors and itself."""
    total = n + len(parents)
    sees = np.tri(total - n_past, whole_blocks(total), n_past, dtype=bool)      # as a line of tokens would
    own = np.eye(len(parents), dtype=bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            own[node] |= own[parent]
    sees[max(n - n_past, 0):, n:total] = own[max(n_past - n, 0):]
    return xp.asarray(np.where(sees, 0, -1e10), dtype=xp.float32)


@functools.cache
def keeps_paths(d_head, n_ctx):
    """True if zeros between the inputs of attention's products leave the bits as they are.

    Tried, not believed: with four keys of five, scattered, and with the same keys one after the other.
    """
    if on_gpu():
        return False
    rng = np.random.default_rng(0)
    for s in range(BLOCK, min(n_ctx, DEPTH) + BLOCK, BLOCK):
        seen = rng.random(s) < .8
        first = np.arange(s) < seen.sum()
        for rows, width in (1, SUM), (1, d_head), (7, SUM), (7, d_head):
            x, w = (rng.random(shape, dtype=np.float32) for shape in [(1, rows, s), (1, s, width)])
            together, w_together = np.zeros_like(x), w.copy()
            together[:, :, first], w_together[:, first] = x[:, :, seen], w[:, seen]
            if not (row_products(x * seen, w) == row_products(together, w_together)).all():
                return False
    return True
