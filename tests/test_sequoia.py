"""The best tree: no tree of its size has more tokens; the costs of passes decide which tree is fastest."""
import itertools
from functools import partial

import pytest

from benchmarks.sequoia import best_tree, fastest
from methods.samplers.tree import shape_of
from methods.samplers.tree_model import depths


def tokens_of(parents, accepted):
    """Expected tokens per pass, from the definition: 1 plus, for each node, the product along its path."""
    reached, children, total = {-1: 1.0}, {}, 1.0
    for node, parent in enumerate(parents):
        rank = children[parent] = children.get(parent, -1) + 1
        reached[node] = reached[parent] * (accepted[rank] if rank < len(accepted) else 0)
        total += reached[node]
    return total


def all_trees(n):
    return [list(p) for p in itertools.product(*(range(-1, i) for i in range(n)))]


@pytest.mark.parametrize("accepted", [(.7, .2, .05), (.4, .3, .2), (.6, .6), (.9,), (.5, 0.)], ids=str)
def test_no_tree_has_more_tokens(accepted):
    for n, depth in itertools.product((1, 2, 4, 5), (1, 2, 3, 5)):
        found = [tokens_of(p, accepted) for p in all_trees(n) if max(depths(p)) <= depth
                 and max(p.count(i) for i in set(p)) <= len(accepted)]
        tokens, parents = best_tree(accepted, n, depth)
        if not found:
            assert parents is None
            continue
        assert tokens == pytest.approx(max(found)) == pytest.approx(tokens_of(parents, accepted))
        assert len(parents) == n and max(depths(parents)) <= depth and shape_of(parents) == parents


def test_what_a_row_costs_decides_how_large_the_tree_is():
    """If rows are free, the tree is as large as allowed; if drafting is expensive, it is flat."""
    accepted, free = (.6, .2, .1), [1.] * 13
    tree = partial(fastest, accepted)
    assert len(tree(free, [0.] * 13)) == 12
    assert max(depths(tree(free, [1.] * 13))) == 1
    assert len(tree([1. + n for n in range(13)], [0.] * 13)) == 1            # each row costs a step
    assert max(depths(tree(free, [.01] * 13))) > 2
