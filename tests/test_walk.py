"""lossless.exact_distribution walks every branch that chance could take.  Whatever a program does with its
random numbers, each outcome gets the probability that arithmetic, or a grid of numbers, gives it.  A program
that cannot be walked gets a sentence that says why."""
import itertools
import operator
from collections import defaultdict
from copy import copy, deepcopy
from types import SimpleNamespace

import numpy as np
import pytest

from lossless import exact_distribution, walk
from lossless.judge import text_of
from lossless.toys import memoryless
from lossless.verdicts.museum import RIGHT, WRONG
from speculative import speculative_sampling

# What a sampler may do with chance --------------------------------------------------------------------------

COIN = {  # each returns True with probability .3
    "c > u": lambda rng: np.float64(0.3) > rng.random(),
    "u * p < q": lambda rng: rng.random() * np.float32(0.5) < 0.15,
    "1 - u > c": lambda rng: 1 - rng.random() > 0.7,
    "u - c < 0": lambda rng: rng.random() - 0.3 < 0,
    "log u < log c": lambda rng: np.log(rng.random()) < np.log(0.3),
    "clipped": lambda rng: np.clip(rng.random(), 1e-12, 1) < .3,
    "not 0": lambda rng: np.log(np.maximum(rng.random(), 1e-12)) < np.log(.3),
    "np.floor(10 u) < 3": lambda rng: np.floor(rng.random() * 10) < 3,
    "a float": lambda rng: isinstance(u := rng.random(), float) and u < .3,
    "choice of rows": lambda rng: rng.choice([[1, 2], [3, 4], [5, 6]], p=[.7, 0, .3])[1] == 6,
    "default_rng(rng)": lambda rng: np.random.default_rng(rng).random() < .3,
    "until it is below .6": lambda rng: next(u for u in iter(rng.random, None) if u < .6) < .18,
    "int(10 u) < 3": lambda rng: int(rng.random() * 10) < 3,
    "an array of cuts": lambda rng: (np.array([0.1, 0.3, np.nan, 0.9]) > rng.random())[1],
    "the log of several": lambda rng: (np.log(rng.random(size=(2, 1))) < np.log(0.3))[1, 0],
    "uniform between": lambda rng: rng.uniform(-1, 1) < -0.4,
    "integers between, end included": lambda rng: rng.integers(11, 20, endpoint=True) in (12, 15, 20),
    "binomial": lambda rng: rng.binomial(1, [.9, .3])[1] == 1,
    "multinomial, two of two": lambda rng: rng.multinomial(2, [.2, 1 - .3 ** .5, .3 ** .5 - .2])[1] == 0,
    "in place": lambda rng: operator.isub(rng.random(), .3) < 0,
    "searchsorted": lambda rng: np.searchsorted([0.2, 0.5, 1.0], rng.random(), side="right") == 1,
}


@pytest.mark.parametrize("coin", COIN.values(), ids=COIN)
def test_a_coin_may_be_written_in_many_ways(coin):
    found = exact_distribution(lambda rng: bool(coin(rng)))
    assert found == pytest.approx({True: 0.3, False: 0.7})
    rng = np.random.default_rng(0)  # a NumPy generator agrees
    with np.errstate(divide="ignore"):
        assert np.mean([coin(rng) for _ in range(1000)]) == pytest.approx(0.3, abs=0.06)


def test_one_number_answers_all_questions_about_it_alike():
    """Comparisons of the same number never contradict each other."""
    def run(rng):
        u = rng.random()
        return bool(u < 0.5), bool(1 - u > 0.5), bool(u * 2.0 < 1), bool(u < 0.75)
    found = exact_distribution(run)
    assert found == {(True,) * 4: 0.5, (False, False, False, True): 0.25, (False,) * 4: 0.25}


def test_what_is_drawn_without_replacement_by_hand():
    found = exact_distribution(lambda rng: tuple(rng.choice(3, size=2, replace=False, p=[0.5, 0.3, 0.2])))
    by_hand = {(a, b): p[a] * p[b] / (1 - p[a]) for p in [(0.5, 0.3, 0.2)] for a in range(3)
               for b in range(3) if a != b}
    assert found == pytest.approx(by_hand)


def test_a_random_number_times_zero_is_zero():
    for zero in lambda u: u * 0.0, lambda u: -(u * 0.0) + 0.0:
        for asked in lambda x: x <= 0, lambda x: not x > 0, lambda x: x == 0:
            assert exact_distribution(lambda rng: bool(asked(zero(rng.random())))) == {True: 1.0}


def test_a_random_number_compares_with_itself_none_and_nan_as_in_numpy():
    def run(rng):
        u = rng.random()
        return (u == u, u <= u, u >= u, u - u == 0, u / u == 1, u != None,  # noqa: E711
                u != u, u < u, u > u, u == None, u < np.nan, u >= np.nan, u * np.nan < 1,  # noqa: E711
                np.nan > -u, bool((u < np.array([np.nan]))[0]))
    assert exact_distribution(run) == {(True,) * 6 + (False,) * 9: 1.0} == {run(np.random.default_rng()): 1.0}


def torch_like(values):
    """Fails as torch.tensor does."""
    if values.dtype == object:
        raise TypeError("can't convert np.ndarray of type numpy.object_. The only supported types are: ..")


CANNOT = {
    "plain numbers": [lambda rng: np.isnan(rng.random(2)), lambda rng: torch_like(rng.random(2))],
    "with itself": [lambda rng: (lambda u: u * u < .5)(rng.random())],
    "copy of rng": [lambda rng: copy(rng).random() < .5, lambda rng: deepcopy([rng])[0].random() < .5],
    r"another.*rng.choice\(len": [lambda r: r.random() < r.random(), lambda r: r.random() * r.random() < 0.5,
                                  lambda rng: int(np.argmin(-np.log(rng.random(3)) / [0.5, 0.3, 0.2]))],
    "drawn between": [lambda rng: rng.integers(0, [3, 4]), lambda rng: rng.integers(2 ** 53)],
    "np.less with out": [lambda rng: np.less(rng.random(), .5, out=np.zeros((), bool))],
    "np.sin": [lambda rng: np.sin(rng.random()) < 0.5],
    "np.divide": [lambda rng: 0.15 / rng.random() > 0.5],
    "a plain number": [lambda rng: float(rng.random())],
    "5,000 integers": [lambda rng: int(rng.random() * 2**53)],
    r"rng.gumbel.*write rng.choice\(len": [lambda rng: rng.gumbel(size=3).argmax()],
    "[Pp]robabilities": [lambda rng: rng.choice(3, p=[0.5, 0.3, 0.3])],
    "Fewer non-zero": [lambda rng: rng.choice(3, size=2, replace=False, p=[1, 0, 0])],
}


@pytest.mark.parametrize("says, run", [(says, run) for says, runs in CANNOT.items() for run in runs])
def test_what_cannot_be_walked_gets_a_sentence(says, run):
    with pytest.raises(ValueError, match=says):
        exact_distribution(run)


def test_branches_of_hardly_any_chance_are_left_out():
    found = exact_distribution(lambda rng: rng.random() < 1e-14 or rng.random() < .5)
    assert found == pytest.approx({True: .5, False: .5}) and 0 < 1 - sum(found.values()) < 2e-14
    until = exact_distribution(lambda rng: next((n for n in range(99) if rng.random() < .5), None))
    assert until == {n: .5 ** (n + 1) for n in range(44)}


def test_a_loop_that_only_chance_ends_is_walked_as_far_as_chance_goes():
    def by_rejection(rng):
        return next(i for i in iter(lambda: rng.integers(2), None) if rng.random() < [.5, 1][i])
    assert exact_distribution(by_rejection) == pytest.approx({0: 1 / 3, 1: 2 / 3})
    hard = exact_distribution(lambda rng: next(i for i in iter(lambda: rng.integers(9), -1) if i == 4), 9999)
    assert .2 < hard.pop(4) < 1 and not hard
    late = exact_distribution(lambda rng: rng.random() < .9999 or [rng.random() < .1 for _ in range(9999)], 9)
    assert late == {True: .9999}


@pytest.mark.parametrize("run", [
    lambda rng: rng.random(8192)[0] < .5,
    lambda rng: all(rng.random() < 2 for _ in itertools.count()),
    lambda rng: [bool(rng.random() < .5) for _ in itertools.count()]])
def test_a_loop_that_chance_does_not_end_never_ends(run):
    with pytest.raises(ValueError, match="5,000 steps .* never ends"):
        exact_distribution(run)


# Chance in equal parts --------------------------------------------------------------------------------------


def on_a_grid(run, n):
    """The distribution of run(rng) if rng.random() returns the middles of n equal parts, each as often."""
    found, places = defaultdict(float), []
    while True:
        used = []

        def random():
            used.append(places[len(used)] if len(used) < len(places) else 0)
            return (used[-1] + 0.5) / n

        found[run(SimpleNamespace(random=random))] += n ** -len(used)
        while used and used[-1] == n - 1:
            used.pop()
        if not used:
            return found
        places = [*used[:-1], used[-1] + 1]


EIGHTHS = memoryless([0.5, 0.25, 0.125, 0.125]), memoryless([0.125, 0.125, 0.375, 0.375])    # cuts: eighths
QUARTERS = memoryless([0.5, 0.5]), memoryless([0.25, 0.75])
GRIDS = {  # (sampler, pair, n_tokens, K, parts)
    "one draft": (speculative_sampling, EIGHTHS, 2, 1, 8),
    "two drafts": (speculative_sampling, QUARTERS, 3, 2, 4),
    "a draft that is thrown away": (WRONG["UnlikelyThrownAway"], EIGHTHS, 2, 1, 8),
    "the coin draws, too": (WRONG["CoinDrawsTheCorrection"], EIGHTHS, 2, 1, 8),
    "a tree": (RIGHT["Tree"], QUARTERS, 2, 1, 4),
}


@pytest.mark.parametrize("sampler, pair, n_tokens, K, parts", GRIDS.values(), ids=GRIDS)
def test_brute_force_on_a_grid_of_uniforms_gives_the_same(sampler, pair, n_tokens, K, parts):
    def run(rng):
        return text_of(sampler(*pair, [1, 0], n_tokens, K, rng))

    assert exact_distribution(run) == pytest.approx(on_a_grid(run, parts), abs=1e-12)


@pytest.mark.parametrize("run", [
    lambda rng, n: rng.random() < .5 and n < 2 and rng.random() < .5,           # fewer numbers
    lambda rng, n: rng.random() < 1 / (1 + n) and rng.random() < .5])           # other chances
def test_a_sampler_that_does_not_repeat_itself_is_told_so(run):
    """It remembers earlier runs (it counts them), so the same random numbers lead to other branches."""
    runs = itertools.count(1)
    with pytest.raises(ValueError, match="did not repeat itself"):
        exact_distribution(lambda rng: run(rng, next(runs)))


def test_too_many_branches_are_told(monkeypatch):
    monkeypatch.setattr(walk, "MAX_BRANCHES", 7)
    assert len(exact_distribution(lambda rng: [rng.random() < 0.5 for _ in range(2)].count(True))) == 3
    with pytest.raises(ValueError, match="more than 7 branches"):
        exact_distribution(lambda rng: [rng.random() < 0.5 for _ in range(3)].count(True))
