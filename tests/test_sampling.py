"""From logits to a distribution, and from a distribution to a token, up to the limits of floating point."""

from functools import partial

import numpy as np
import pytest
from helpers import Says
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lossless.toys import distribution_of_token
from sampling import probabilities, sample

SMALLEST = np.finfo(float).tiny  # normal number: 2.2e-308
LARGEST_UNIFORM = 1 - 2.0**-53  # the largest number that Generator.random() returns
V = 50257

finite = st.floats(-50, 50)
rows = st.lists(st.one_of(finite, st.just(-np.inf), st.sampled_from([0.0, 1.0, 2.0])), min_size=1, max_size=7)
rows = rows.filter(lambda row: max(row) > -np.inf)  # at least one token must be possible
extremes = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=7)
temperatures = st.floats(0.05, 20)


# The distribution from its definition -----------------------------------------------------------------------


@given(rows, st.one_of(st.just(0), temperatures), st.integers(0, 8))
@settings(max_examples=80)
def test_temperature_and_top_k_follow_their_definition(row, temperature, top_k):
    expected = distribution_of_token(row, temperature, top_k)
    assert probabilities(row, temperature, top_k) == pytest.approx(expected, abs=1e-12)


@given(rows, temperatures, st.integers(0, 8), st.floats(0.01, 0.99))
@settings(max_examples=80)
def test_the_nucleus_is_the_smallest_set_that_reaches_top_p(row, temperature, top_k, top_p):
    """Up to rounding: it reaches top_p, would not without its least likely token, and leaves out no likelier
    one."""
    whole, found = probabilities(row, temperature, top_k), probabilities(row, temperature, top_k, top_p)
    kept, dropped = whole[found > 0], whole[found == 0]
    assert kept.sum() > top_p - 1e-12
    assert kept.sum() - kept.min() < top_p + 1e-12
    assert dropped.size == 0 or dropped.max() <= kept.min()
    assert found[found > 0] == pytest.approx(kept / kept.sum(), abs=1e-12)


def test_the_nucleus_is_holtzmans_and_not_openais():
    """OpenAI's code keeps the largest set with mass <= .6: one token.  The paper keeps the smallest with mass
    >= .6: two."""
    assert probabilities(np.log([0.1, 0.5, 0.15, 0.25]), top_p=0.6) == pytest.approx([0, 2 / 3, 0, 1 / 3])


def test_a_set_of_just_top_p_is_large_enough():
    assert probabilities([0.0, 0.0, 0.0, 0.0], top_p=0.5).tolist() == [0.5, 0.5, 0, 0]


def kept(*run, **settings):
    return np.flatnonzero(probabilities(*run, **settings)).tolist()


def test_ties_at_the_edge_of_the_nucleus_go_to_the_lower_index():
    found = kept(np.tile([0.0, 0.5], 400), top_p=0.8)           # all the likelier ones, then some others
    others = [i for i in found if i % 2 == 0]
    assert len(found) == 400 + len(others) and others == list(range(0, 2 * len(others), 2))
    assert 0 < len(others) < 400


def test_a_top_p_of_1_keeps_all():
    assert probabilities([0.0, -40.0, -700.0], top_p=1).all()   # although the first alone has 1 - 4e-18


@given(rows, st.sampled_from([0, .5, 1., 3.]), st.sampled_from([0, 1, 2]), st.sampled_from([.3, .9, 1.]))
def test_each_row_is_treated_by_itself(row, temperature, top_k, top_p):
    logits = np.array([[row, row[::-1]], [row, row]])           # [2, 2, n_vocab]
    found = probabilities(logits, temperature, top_k, top_p)
    other_order = probabilities(logits.swapaxes(0, 1), temperature, top_k, top_p)
    assert found.shape == logits.shape and np.array_equal(other_order, found.swapaxes(0, 1))
    for i in np.ndindex(2, 2):
        assert np.array_equal(found[i], probabilities(logits[i], temperature, top_k, top_p))


# Extremes, and what is refused ------------------------------------------------------------------------------

positive = partial(st.floats, 0, exclude_min=True)


@given(extremes, st.one_of(st.just(0), positive(1e300)), st.integers(0, 8), positive(1))
@settings(max_examples=80)
def test_every_distribution_sums_to_1_whatever_the_logits(row, temperature, top_k, top_p):
    with np.errstate(all="raise", under="ignore"):
        found = probabilities(np.array(row, dtype=np.float32), temperature, top_k, top_p)
    assert found.dtype == np.float64 and (found >= 0).all() and abs(found.sum() - 1) < 1e-12


def test_a_tiny_temperature_is_greedy_and_warns_of_nothing():
    with np.errstate(all="raise", under="ignore"):
        for temperature in 5e-324, 1e-300, 1e-10:
            assert probabilities([1.0, -np.inf, 3.0, 2.9], temperature).tolist() == [0, 0, 1, 0]
            assert probabilities([-1.7e308, 1.7e308], temperature).tolist() == [0, 1]


def test_a_top_p_near_its_ends_is_no_trap():
    for row in [0.0] * 49, np.linspace(0, 1e-15, 49):
        assert [len(kept(row, top_p=top_p)) for top_p in (1e-320, 1e-9, 1 - 2**-53)] == [1, 1, 49]


BAD = [[np.nan, 1.0], [1.0, np.inf], [-np.inf, -np.inf], [[1.0, 2.0], [1.0, np.nan]]]


@pytest.mark.parametrize("settings", [dict(), dict(temperature=0), dict(top_k=1), dict(top_p=0.5)], ids=str)
def test_nan_and_infinity_are_refused(settings):
    for bad in BAD:
        with pytest.raises(ValueError, match="NaN or infinity"):
            probabilities(bad, **settings)


@pytest.mark.parametrize("settings", [dict(), dict(temperature=0), dict(top_k=2), dict(top_p=0.5)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_callers_logits_are_not_changed(settings, dtype):
    logits = np.array([[1, 2, 3], [3, 1, 2]], dtype=dtype)
    logits.flags.writeable = False
    found = probabilities(logits, **settings)
    found[:] = 0  # the distribution does not share their memory
    assert logits.tolist() == [[1, 2, 3], [3, 1, 2]]


# Drawing ----------------------------------------------------------------------------------------------------


@given(st.lists(st.one_of(st.just(0.0), st.floats(SMALLEST, 1)), min_size=1, max_size=9).filter(any),
       st.sampled_from([0.0, 5e-324, 0.25, 0.5, LARGEST_UNIFORM]))
@example([SMALLEST, SMALLEST, 0.0], LARGEST_UNIFORM)
@settings(max_examples=100)
def test_a_token_without_mass_is_never_drawn(probs, u):
    assert probs[sample(np.array(probs), Says(u))] > 0


def test_a_draw_inverts_the_cumulative_sum_and_changes_nothing():
    probs = np.array([0, 0.25, 0, 0.5, 0.25, 0])
    probs.flags.writeable = False
    numbers = 0, 0.2, 0.25, 0.5, 0.75, 0.9, LARGEST_UNIFORM
    assert [sample(probs, Says(u)) for u in numbers] == [1, 1, 3, 3, 4, 4, 4]


@given(st.floats(1e-300, 1e300), st.floats(0, LARGEST_UNIFORM))
def test_weights_need_not_sum_to_1(scale, u):
    assert sample(scale * np.array([0.25, 0.5, 0.25]), Says(u)) == (0 if u < 0.25 else 1 if u < 0.75 else 2)


@pytest.mark.parametrize("scale, n", [(0, V), (3, V), (10, V), (10, 40)])
def test_the_ends_of_a_large_float32_distribution_are_safe(scale, n):
    """Only the first n tokens are possible.  The cumulative sum in float32 would end below 1."""
    logits = np.random.default_rng(0).normal(scale=scale, size=V)
    weights = np.exp(logits).astype(np.float32) * (np.arange(V) < n)
    probs = weights / weights.sum()
    for u in (0.0, 5e-324, 0.99993, 0.99997, LARGEST_UNIFORM):
        assert probs[sample(probs, Says(u))] > 0
    assert sample(probs, Says(LARGEST_UNIFORM)) >= np.flatnonzero(probs)[-1] - 50
