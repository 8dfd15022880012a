"""What is made of a run's numbers: the best K, the advice, the path through a tree."""
import pytest

from reporting.stats import advice, best_K, expected_tokens, predicted_speedup


@pytest.mark.parametrize("alpha, K, c, v", [(.8, 12, .1, 2.5), (.5, 4, .05, 1.1), (.95, 4, .02, 1.2), (.2, 3, .5, 2)])
def test_the_best_k_promises_more_than_every_other(alpha, K, c, v):
    """Leviathan et al., theorem 3.8, with the v of k drafts on the straight line from v(0) = 1 to v(K) = v."""
    best, v_best = best_K(alpha, K, c, v)
    gain = expected_tokens(alpha, best) / (best * c + v_best)
    assert v_best == pytest.approx(1 + (v - 1) / K * best)
    assert all(gain >= expected_tokens(alpha, k) / (k * c + 1 + (v - 1) / K * k) for k in range(1, 2 * K + 1))


def test_a_v_below_1_is_chance_and_promises_no_wonders():
    best, v_best = best_K(.85, 4, .03, .66)
    assert (best, v_best) == (8, 1) and predicted_speedup(.85, best, .03, v_best) < 4.2


def test_too_large_a_k_is_told_the_better_one_and_its_gain():
    sentence = advice(.75, 12, .11, 2.6)
    best, v_best = best_K(.75, 12, .11, 2.6)
    assert best < 6 and f"K = {best} is best" in sentence
    assert f"{predicted_speedup(.75, best, .11, v_best):.2f}x" in sentence and "evenly" in sentence


def test_where_no_k_pays_the_advice_says_why():
    assert "gains little or nothing" in advice(.1, 12, .3, 3) and "too few drafts" in advice(.1, 12, .3, 3)
    assert "a draft step is too dear (1.10" in advice(.9, 4, 1.1, 1.1)
    assert "gains little" not in advice(.75, 12, .11, 2.6)              # K = 12 does not pay, but K = 4 does


def test_a_k_that_is_as_good_as_the_best_needs_no_advice():
    best, v_best = best_K(.8, 4, .1, 1.25)
    for k in (best - 1, best, best + 1):
        assert advice(.8, k, .1, 1 + .25 / 4 * k) is None
