"""What is made of a run's numbers: the best K, the advice, the path through a tree."""

import numpy as np
import pytest

from reporting import stats
from reporting.stats import advice, best_K, by_rank, expected_tokens, predicted_speedup
from sampling import Round


@pytest.mark.parametrize("alpha, K, c, v", [
    (.8, 12, .1, 2.5), (.5, 4, .05, 1.1), (.95, 4, .02, 1.2), (.2, 3, .5, 2)])
def test_the_best_k_promises_more_than_every_other(alpha, K, c, v):
    """Leviathan et al., theorem 3.8, with v of k drafts on a straight line from v(0) = 1 to v(K) = v."""
    best, v_best = best_K(alpha, K, c, v)
    gain = expected_tokens(alpha, best) / (best * c + v_best)
    assert v_best == pytest.approx(1 + (v - 1) / K * best)
    assert all(gain >= expected_tokens(alpha, k) / (k * c + 1 + (v - 1) / K * k) for k in range(1, 2 * K + 1))


def test_a_v_below_1_is_chance_and_promises_no_wonders():
    best, v_best = best_K(0.85, 4, 0.03, 0.66)
    assert (best, v_best) == (8, 1) and predicted_speedup(0.85, best, 0.03, v_best) < 4.2


def test_too_large_a_k_is_told_the_better_one_and_its_gain():
    sentence = advice(0.75, 12, 0.11, 2.6)
    best, v_best = best_K(0.75, 12, 0.11, 2.6)
    assert best < 6 and f"K = {best} is best" in sentence
    assert f"{predicted_speedup(0.75, best, 0.11, v_best):.2f}x" in sentence and "evenly" in sentence


def test_where_no_k_pays_the_advice_says_why():
    sentence = advice(0.1, 12, 0.3, 3)
    assert "gains little" in sentence and "too few drafts" in sentence
    assert "a draft step is too expensive (1.10" in advice(0.9, 4, 1.1, 1.1)
    assert "gains little" not in advice(0.75, 12, 0.11, 2.6)  # K = 12 does not pay, but K = 4 does


def test_a_k_that_is_as_good_as_the_best_needs_no_advice():
    best, v_best = best_K(0.8, 4, 0.1, 1.25)
    for k in (best - 1, best, best + 1):
        assert advice(0.8, k, 0.1, 1 + 0.25 / 4 * k) is None


# What else Leviathan et al. compute -------------------------------------------------------------------------


@pytest.mark.parametrize("alpha, K, operations, speed", [
    (.6, 2, 1.53, 1.96), (.7, 3, 1.58, 2.53), (.8, 2, 1.23, 2.44), (.8, 5, 1.63, 3.69), (.9, 2, 1.11, 2.71),
    (.9, 10, 1.60, 6.86)])
def test_table_1_of_leviathan_and_theorem_3_11(alpha, K, operations, speed):
    assert round(stats.operations(alpha, K), 2) == operations
    assert round(predicted_speedup(alpha, K, c=0), 2) == speed
    printed = (1 - alpha) * (K * 0.1 + K + 1) / (1 - alpha ** (K + 1))
    assert stats.operations(alpha, K, 0.1) == pytest.approx(printed)


@pytest.mark.parametrize("alpha, c, K, speed", [
    (.5, .01, 5, 1.88), (.9, .01, 24, 7.49), (.7, .05, 6, 2.35), (.8, .1, 6, 2.47), (.9, .2, 7, 2.37),
    (.5, .4, 1, 1.07)])
def test_the_best_k_is_the_first_that_one_more_draft_does_not_help(alpha, c, K, speed):
    assert stats.best_K(alpha, 20, c, 1) == (K, 1) and round(predicted_speedup(alpha, K, c), 2) == speed

    def helps(k):  # from K = k to k + 1
        return alpha ** (k + 1) * (1 + c * k) > c * expected_tokens(alpha, k) * (1 + 1e-12)

    assert all(helps(k) for k in range(K)) and not helps(K)


def test_the_distance_of_leviathan_is_what_is_not_accepted():
    p, q = np.random.default_rng(0).dirichlet(np.ones(5), size=(2, 4))
    assert stats.d_lk(p, q) == pytest.approx(1 - np.minimum(p, q).sum(axis=-1))
    assert (stats.d_lk(p, q) == stats.d_lk(q, p)).all() and stats.d_lk(q, q).max() == 0
    assert stats.d_lk(np.eye(2)[0], np.eye(2)[1]) == 1


def test_children_are_counted_by_rank_over_the_nodes_that_were_reached():
    parents = [-1, -1, 0, 0, 2]
    taken_second = Round([5, 9], [4, 5, 6, 7, 8], 1, [], [], parents)    # a leaf: nothing was tested
    all_the_way = Round([4, 6, 8, 1], [4, 5, 6, 7, 8], 3, [], [], parents)
    ended = Round([4], [4, 5, 6, 7, 8], 1, [], [], parents)        # by an EOS: no test below
    assert by_rank([taken_second, all_the_way, ended]) == [4 / 5, 1 / 4]
