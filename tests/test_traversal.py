"""Traversal verification: on a line it is block verification; on a tree it accepts no fewer drafts than the
walk from the root."""
import numpy as np
import pytest
from helpers import mean_accepted

from lossless import exact_distribution
from lossless.judge import distance
from lossless.toys import table
from methods.samplers import block, traversal, tree
from methods.samplers.multi_draft import GREEDY
from methods.samplers.tree import tree_sampling
from methods.samplers.tree_rules import SEQUOIA


def random_rows(rng, n, zeros):
    rows = rng.dirichlet(np.ones(4), size=n) * (rng.random((n, 4)) >= zeros)
    rows[rows.sum(axis=1) == 0, 0] = 1
    return rows / rows.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("zeros", [0, .4])
@pytest.mark.parametrize("K", [1, 2, 3, 4])
def test_on_a_line_it_is_block_verification(K, zeros):
    """For given drafts, each (number kept, next token) has the same probability."""
    rng = np.random.default_rng(K)
    for _ in range(10):
        q, p = random_rows(rng, K + 1, zeros), random_rows(rng, K, zeros)
        drafts = [int(rng.choice(4, p=row)) for row in p]

        def by_traversal(walk):
            path, token = traversal.walk(q, p, drafts, list(range(-1, K - 1)), SEQUOIA, walk)
            return len(path), token
        blocks = exact_distribution(lambda walk: block.verify(q, p, drafts, walk))
        assert distance(exact_distribution(by_traversal), blocks) < 1e-12


@pytest.mark.parametrize("widths", [(1, 1), [-1, -1, 0]])
def test_without_replacement_it_accepts_no_fewer_drafts(widths):
    """The mean of the first round is at least that of the walk from the root down."""
    gains = []
    for seed in 1, 3, 5:
        pair = table(seed), table(seed + 1)
        ours, usual = (mean_accepted(lambda rng: tree_sampling(*pair, [2, 0], 3, widths, rng, walk=walk))
                       for walk in (traversal.walk, tree.walk))
        gains.append(ours - usual)
    assert min(gains) > -1e-12 and max(gains) > .01


def test_children_that_were_drawn_in_another_way_are_refused():
    """Traversal takes children drawn with or without replacement, but not GREEDY ones."""
    with pytest.raises(ValueError, match="take the rule SPECINFER or SEQUOIA"):
        list(tree_sampling(table(1), table(2), [0], 3, (2,), np.random.default_rng(0), rule=GREEDY,
                           walk=traversal.walk))
