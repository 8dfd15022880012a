"""K-SEQ: how it accepts drafts on worked examples, and its rho is the smallest that is allowed."""

import numpy as np
import pytest
from nodes import acceptance

from methods.samplers.k_seq import K_SEQ, division_factor
from methods.samplers.tree import walk


def test_equal_drafts_are_both_candidates_for_the_next_place():
    """Drafts (0, 1) and (0, 2): the target says 0 and then 2, which only the second draft holds."""
    q = np.array([[1., 0, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0], [0, 1, 0]])
    p = np.array([[1., 0, 0]] * 2 + [[0, .5, .5]] * 2)
    path, token = walk(q, p, [0, 0, 1, 2], [-1, -1, 0, 1], K_SEQ, np.random.default_rng(0))
    assert len(path) == 2 and path[1] == 3 and token == 1


def test_by_hand():
    """q = (1, 0), p = (1/2, 1/2): rho is 1.5, and one of two drafts is accepted with probability 3/4."""
    q, p = np.array([1., 0]), np.array([.5, .5])
    assert division_factor(q, p, 2) == pytest.approx(1.5) and acceptance(K_SEQ, q, p, 2) == pytest.approx(.75)
    assert division_factor(q, p, 1) == 1 and acceptance(K_SEQ, q, p, 1) == pytest.approx(.5)
    assert acceptance(K_SEQ, p, p, 3) == pytest.approx(1)
    assert acceptance(K_SEQ, q, q[::-1], 3) == 0                                 # disjoint supports


def test_the_smallest_rho_is_found_and_is_allowed():
    rng = np.random.default_rng(0)
    for k in (2, 3, 8):
        q, p = rng.dirichlet(np.ones(50), size=2)
        rho = division_factor(q, p, k)

        def room(rho):
            beta = np.minimum(p, q / rho).sum()
            return rho * beta - (1 - (1 - beta) ** k)
        assert 1 < rho < k and room(rho) >= 0 > room(rho - 1e-6)
