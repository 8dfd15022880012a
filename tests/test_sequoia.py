"""The best tree: no tree of its size has more tokens."""
import itertools

import pytest

from benchmarks.sequoia import best_tree
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
