"""Greedy drafts reach the highest possible acceptance; no rule accepts more than its ceiling."""

import numpy as np
import pytest
from nodes import LIKELIEST, RULES, acceptance, ceiling, pairs

from lossless import exact_distribution
from methods.samplers.k_seq import K_SEQ
from methods.samplers.multi_draft import GREEDY, draw
from methods.samplers.tree_rules import SEQUOIA, SPECINFER


def test_the_chosen_are_the_likeliest_and_the_last_is_drawn_from_the_rest():
    p = np.array([.1, .4, .2, .3, 0])
    assert exact_distribution(lambda rng: tuple(draw(p, 3, rng))) == pytest.approx(
        {(1, 3, 2): 2 / 3, (1, 3, 0): 1 / 3})
    for width in (4, 5, 9):                                     # only possible tokens, and none twice
        assert exact_distribution(lambda rng: tuple(draw(p, width, rng))) == {(1, 3, 2, 0): 1}
    assert list(p) == [.1, .4, .2, .3, 0]


# What a node accepts ----------------------------------------------------------------------------------------

def ceiling_by_linear_programme(rule, q, p, k):
    """Optimal transport: the mass of each set of drafts goes to tokens in that set, and no token gets more
    than its q."""
    from scipy.optimize import linprog
    draws = exact_distribution(lambda rng: frozenset(rule[0](p, k, rng)))
    flows = [(i, y) for i, drafts in enumerate(draws) for y in drafts]
    upper = np.zeros((len(draws) + len(q), len(flows)))
    for column, (i, y) in enumerate(flows):
        upper[i, column] = upper[len(draws) + y, column] = 1
    return -linprog(-np.ones(len(flows)), A_ub=upper, b_ub=[*draws.values(), *q]).fun


@pytest.mark.parametrize("n", [20, pytest.param(300, marks=pytest.mark.long)])
def test_greedy_drafts_accept_the_optimum_of_the_linear_programme(n):
    pytest.importorskip("scipy", reason="scipy solves the linear programme: pip install -e .[test]")
    for i, (q, p) in enumerate(pairs(n)):
        k = 2 + i % 2
        best = ceiling_by_linear_programme(GREEDY, q, p, k)
        assert acceptance(GREEDY, q, p, k) == pytest.approx(best, abs=1e-9)
        assert ceiling(GREEDY, q, p, k) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("name", RULES)
def test_no_rule_accepts_more_than_its_ceiling_and_the_ceiling_is_the_linear_programmes(name):
    pytest.importorskip("scipy", reason="scipy solves the linear programme: pip install -e .[test]")
    for q, p in pairs(2, n_vocab=4, seed=1):
        for k in (1, 2, 3):
            found, best = acceptance(RULES[name], q, p, k), ceiling(RULES[name], q, p, k)
            assert found <= best + 1e-9
            assert best == pytest.approx(ceiling_by_linear_programme(RULES[name], q, p, k), abs=1e-9)


def test_acceptance_by_hand():
    """Two worked examples; with a single draft all rules accept the mass that p and q share."""
    q, p = np.array([1., 0]), np.array([.5, .5])
    assert [acceptance(rule, q, p, 2) for rule in (SPECINFER, K_SEQ, SEQUOIA, GREEDY)] == pytest.approx(
        [.75, .75, 1, 1])
    assert acceptance(LIKELIEST, np.array([.2, .3, .5]), np.array([.3, .2, .5]), 2) == pytest.approx(.7)
    q, p = pairs(1)[0]
    assert [acceptance(RULES[name], q, p, 1) for name in RULES if name != "likeliest"] == pytest.approx(
        [np.minimum(p, q).sum()] * 4)
