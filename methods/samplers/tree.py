"""A tree of drafts, verified in one pass of the target: several guesses at each position instead of one.

    tree_sampling(draft, target, tokens, n_tokens, (3, 2, 1), rng)

    SpecInfer   Miao et al. 2023 (arXiv 2305.09781)     children drawn with replacement
    Sequoia     Chen et al. 2024 (arXiv 2402.12374)     children drawn without replacement
    SpecTr      Sun et al. 2023 (arXiv 2310.15141)      children drawn with replacement: k_seq.py
    Medusa      Cai et al. 2024 (arXiv 2401.10774)      the likeliest tokens; none is drawn
    EAGLE-2     Li et al. 2024 (arXiv 2406.16858)       the same, where the draft is most confident

The loop is that of speculative.py.  A *rule* (tree_rules.py) says how the children of a node are drawn and
which of them is accepted.  The *walk* starts at the root, the last token of the text, and continues from the
accepted child.  If no child is accepted, the rule has drawn the token that ends the round; after a leaf, that
token is drawn from q.  The token after a node has the distribution q, so the text has the target's, by the
same induction as for a line of drafts.

tree_rules.py also has the ways to grow a tree, tree_model.py a GPT2 that scores a tree in one pass.

The notation is Chen's, as in speculative.py: q the target (P in SpecInfer and Sequoia), p the draft
(Q in Sequoia).

At temperature 0 children are chosen, not drawn, and the rule's accept test never runs: the target's argmax
picks the child (tree_rules.select_chosen).  The text is the baseline's, token for token, if the logits along
a path are the same as in decode steps, to the last bit (tested by `TreeGPT2.exact_paths`; true with OpenBLAS
on AVX-512).  Otherwise the texts may differ at a near-tie of two logits.

Limitations: one sequence, and one draft model.
"""
from functools import partial
from itertools import accumulate
from operator import index, mul

from engine.checks import checked, checked_drafts, checked_probs, token_list
from methods.entries import OWN_TREE, TREE, Verifier
from methods.samplers import tree_rules
from methods.samplers.tree_model import children_of, depths, with_tree
from sampling import Round, cut_after, probabilities, sample

MOST_NODES = 1000


def walk(Q, P, nodes, parents, rule, rng):
    """From the root down.  Returns (the indices of the accepted nodes, the token that follows them).

    Q   [1 + n, n_vocab]    the target's distributions after the root and each node
    P   [n, n_vocab]        the draft's after each node's parent; None: the nodes were chosen
    """
    # The nodes were chosen if P is None, as always at temperature 0: then the rule is not used.
    select = tree_rules.select_chosen if P is None else rule[1]
    path, here = [], [-1]
    while True:
        below = children_of(here, parents)
        if not below:                                           # a leaf
            return path, sample(Q[here[0] + 1], rng)
        i, token = select(Q[here[0] + 1], None if P is None else P[below[0]], [nodes[i] for i in below], rng)
        if i is None:
            return path, token
        here = [i for i in below if nodes[i] == token]          # all equal siblings stay
        path.append(here[0])


@checked(draft=with_tree, target=with_tree, widths=lambda widths: shape_of(widths))
def tree_sampling(draft, target, tokens, n_tokens, widths, rng, *, temperature=1.0, top_k=0, top_p=1.0,
                  eos=None, rule=tree_rules.SEQUOIA, grow=None, walk=walk):
    """Generate `n_tokens` tokens after `tokens`, at most the tree's depth plus one per target pass.
    Returns a generator of rounds (sampling.Round).

    draft, target   as in speculative_sampling.  A GPT2 scores a tree in one pass, as does anything with a
                    method `tree` (tree_model.py); any other target is called 1 + n times for n nodes
    widths          children per node, by level: (3, 2, 1) is 3 + 6 + 6 nodes, and (1, 1, 1) is K = 3.  Or the
                    parent of each node, for any tree: in [-1, -1, 0] the root has two children, and the
                    first of them has one.  Near the end of the text the lowest levels are left out
    rule            for drawn children: SPECINFER, SEQUOIA, k_seq.K_SEQ or another (draw, select).  Chosen
                    children are always judged by select_chosen
    grow            grow_drawn, grow_likeliest, grow_surest or another.  None: grow_drawn, or grow_likeliest
                    at temperature 0
    walk            how the tree is verified: from the root down, as above, or another way (traversal.walk)
    The rest        as in speculative_sampling
    Raises ValueError for bad arguments at the call rather than in the first round, and for a bad tree from
    `grow` in its round.
    """
    to_probs = partial(probabilities, temperature=temperature, top_k=top_k, top_p=top_p)
    grow = grow or (tree_rules.grow_likeliest if temperature == 0 else tree_rules.grow_drawn)
    x, T = list(tokens), len(tokens) + n_tokens
    while len(x) < T:
        left = T - len(x) - 1                            # the last token is the target's
        nodes, parents, P = grow(draft, x[:], cut(widths, left), rule, to_probs, rng)
        nodes, parents = check_tree(nodes, parents, left, target)
        Q = to_probs(target.tree(x[:], nodes, parents))             # [1 + n, n_vocab]
        P = P if P is None else checked_probs(P, nodes, target)                 # [n, n_vocab]
        path, next_token = walk(Q, P, nodes, parents, rule, rng)
        new = cut_after([nodes[i] for i in path] + [next_token], eos)
        x += new
        yield Round(new, nodes, min(len(path), len(new)), Q, P, parents)
        if x[-1] in eos:
            return


# Shapes -----------------------------------------------------------------------------------------------------

def shape_of(widths):
    """Widths, or parents in any order that has a node after its parent -> parents, level by level.

    >>> shape_of((2, 1)), shape_of([-1, 0, 1, -1, 3])
    ([-1, -1, 0, 1], [-1, -1, 0, 1, 2])
    """
    widths = token_list(widths, f"the shape of a tree is {widths!r}: give the children per node by level, "
                        "such as (3, 2, 1), or the parent of each node, such as [-1, -1, 0]")
    n_nodes = len(widths) if widths[:1] == [-1] else sum(accumulate(widths, mul))
    if n_nodes > MOST_NODES:
        raise ValueError(f"the tree has {n_nodes} nodes: at most {MOST_NODES} are scored in one pass")
    if widths[:1] != [-1]:
        return shape_of_widths(widths)
    parents, depth = widths, depths(widths)
    order = sorted(range(len(parents)), key=depth.__getitem__)  # stable
    place = {-1: -1} | {node: i for i, node in enumerate(order)}
    return [place[parents[node]] for node in order]


def parse_shape(option):
    """"3,2,1" or "3-2-1" -> the parents of the nodes; "" means "3,2,1"."""
    try:
        widths = [int(width) for width in (option or "3,2,1").replace("-", ",").split(",")]
    except ValueError:
        raise ValueError("give the children per node by level, as in tree:3,2,1") from None
    return shape_of(widths)


def shape_of_widths(widths):
    if min(widths, default=1) < 1:
        raise ValueError(f"the widths of the tree are {tuple(widths)}: on each level a node must have at "
                         "least one child")
    shape, level = [], [-1]
    for width in widths:
        first = len(shape)
        shape += [parent for parent in level for _ in range(width)]
        level = range(first, len(shape))
    return shape


def cut(shape, depth):
    """The first `depth` levels."""
    return [parent for parent, d in zip(shape, depths(shape)) if d <= depth]


def check_tree(nodes, parents, depth, target):
    """(nodes, parents) as lists of ints.  Raises ValueError if they are not a tree of at most this depth."""
    nodes, parents = checked_drafts(nodes, MOST_NODES, target), list(map(index, parents))
    if len(parents) != len(nodes) or max(depths(parents), default=0) > depth:
        raise ValueError(f"the tree that was grown has {len(nodes)} nodes and the parents {parents}: each "
                         f"node needs one, and there may be at most {depth} levels")
    return nodes, parents


# Entries ----------------------------------------------------------------------------------------------------

def tree_verifier(file, verifies=(TREE,), **how):
    """An entry: tree_sampling with these arguments.

    rule    for drawn children; not used if they are chosen, as all are at temperature 0
    grow    most entries have none: the drafter's `grow` is used or, if it has none, tree_sampling's default
    """
    def make(drafted, shape):
        # K is not used, because the shape determines the depth of the tree.
        return lambda draft, target, tokens, n_tokens, K, rng, **settings: tree_sampling(
            draft, target, tokens, n_tokens, shape, rng, **{"grow": drafted.grow} | how, **settings)
    return Verifier(file, make, parse_shape, verifies)


VERIFIER = tree_verifier("methods/samplers/tree.py", (TREE, OWN_TREE), rule=tree_rules.SEQUOIA)
WITH_REPLACEMENT = tree_verifier("methods/samplers/tree_rules.py", rule=tree_rules.SPECINFER)
LIKELIEST = tree_verifier("methods/samplers/tree_rules.py", grow=tree_rules.grow_likeliest)
SUREST = tree_verifier("methods/samplers/tree_rules.py", grow=tree_rules.grow_surest)
