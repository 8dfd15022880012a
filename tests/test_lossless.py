"""Lossless, exactly: the distribution of the text is the target's, to 1e-12; and lossless.check sees what
is not.

Nothing is sampled here.  lossless.exact_distribution runs the production code through every branch that
chance could take and adds up the probabilities; lossless.distribution_of_text multiplies the target's own
distributions, written from their definition."""

import itertools
from collections import defaultdict
from copy import copy, deepcopy
from types import SimpleNamespace

import numpy as np
import pytest

import console
import lossless
from autoregressive import autoregressive_sampling
from lossless import (
    CASES,
    EOS,
    PAIRS,
    PROMPT,
    SETTINGS,
    branches,
    check,
    distance,
    distribution_of_text,
    exact_distribution,
    judge,
    memoryless,
    more_cases,
    report,
    table,
    text_of,
)
from sampling import Round
from speculative import propose, speculative_sampling, verify
from verdicts.museum import RIGHT, WRONG

# One step ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("draft, target", PAIRS.values(), ids=PAIRS)
def test_verify_turns_one_draft_into_a_token_of_the_targets_distribution(draft, target):
    for prefix in ([0], [1], [2], [0, 1], [2, 1], [1, 1], [0, 2, 2]):
        p, q = (np.exp(model(prefix)) / np.exp(model(prefix)).sum() for model in (draft, target))
        found = np.zeros(3)
        for guess in np.flatnonzero(p[0]):
            outcomes = exact_distribution(lambda rng: verify(np.concatenate([q, q]), p, [guess], rng))
            for (n_accepted, token), chance in outcomes.items():
                found[guess if n_accepted else token] += p[0, guess] * chance
        assert found == pytest.approx(q[0], abs=1e-12)


def test_verify_keeps_the_mass_that_both_distributions_share():
    """By hand: accepted mass (.1, .3, .2), so acceptance .6; residual (0, .3, .1) / .4 = (0, .75, .25)."""
    q, p, bonus = [0.1, 0.6, 0.3], [0.5, 0.3, 0.2], [1, 0, 0]
    each = [
        exact_distribution(lambda rng: verify(np.array([q, bonus]), np.array([p]), [guess], rng))
        for guess in range(3)
    ]
    assert [found.get((1, 0), 0) for found in each] == pytest.approx([0.2, 1, 1])
    assert each[0] == pytest.approx({(1, 0): 0.2, (0, 1): 0.8 * 0.75, (0, 2): 0.8 * 0.25})
    kept = [chance * found[1, 0] for chance, found in zip(p, each)]
    assert kept == pytest.approx(np.minimum(p, q)) == [0.1, 0.3, 0.2]


def test_verify_without_drafts_draws_from_the_target():
    found = exact_distribution(lambda rng: verify(np.array([[0.1, 0.6, 0.3]]), [], [], rng))
    assert found == pytest.approx({(0, 0): 0.1, (0, 1): 0.6, (0, 2): 0.3})


def test_accepted_tokens_follow_the_capped_geometric():
    """Acceptance .6 at K = 2: P(1, 2, 3 tokens) = .4, .24, .36."""
    draft, target = memoryless([0.5, 0.3, 0.2]), memoryless([0.1, 0.6, 0.3])
    found = exact_distribution(
        lambda rng: len(next(speculative_sampling(draft, target, PROMPT, 9, 2, rng)).tokens)
    )
    assert found == pytest.approx({1: 0.4, 2: 0.24, 3: 0.36})
    assert sum(n * chance for n, chance in found.items()) == pytest.approx(1.96)


# The joint distribution of several tokens -------------------------------------------------------------------

@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_text_has_the_targets_distribution(case):
    assert judge(speculative_sampling, *case).deviation < 1e-12


@pytest.mark.long
def test_the_text_has_the_targets_distribution_thoroughly():
    assert check(speculative_sampling, thorough=True) < 1e-12


def test_what_the_target_cannot_say_is_never_said():
    draft, target = PAIRS["zeros in the target"]
    found = exact_distribution(lambda rng: text_of(speculative_sampling(draft, target, PROMPT, 3, 2, rng)))
    assert found.keys() == distribution_of_text(target, PROMPT, 3).keys() and len(found) < 27


def test_a_draft_equal_to_the_target_is_always_accepted():
    draft, target = PAIRS["draft is the target"]
    found = exact_distribution(
        lambda rng: tuple(r.n_accepted for r in speculative_sampling(draft, target, PROMPT, 5, 2, rng))
    )
    assert found == pytest.approx({(2, 1): 1})  # rounds of 3 and 2 tokens, and nothing else


@pytest.mark.parametrize("settings", [{}, dict(temperature=0), *SETTINGS], ids=str)
def test_the_baseline_has_the_targets_distribution(settings):
    target = table(4, zeros=0.4)
    found = exact_distribution(
        lambda rng: text_of(autoregressive_sampling(target, PROMPT, 3, rng, **settings))
    )
    assert distance(found, distribution_of_text(target, PROMPT, 3, **settings)) < 1e-12


def test_a_thorough_check_has_every_two_positions_and_every_setting():
    """For K up to 6 two positions that matter, wherever a text of 2 K + 3 tokens may have them."""
    more = [*more_cases()]
    words = defaultdict(list)
    for case in more:
        word, _, about = case.name.strip("'").partition("', ")
        words[about].append((case.K, word, case.n_tokens))
    two = [(K, word) for K, word, n in words["two positions"] if len(word) == n == 2 * K + 3]
    assert len({*two}) == len(two) == len(words["two positions"])
    apart = {(K, *(i for i, letter in enumerate(word) if letter != ".")) for K, word in two}
    assert apart == {(K, i, j) for K in range(1, 7) for j in range(2 * K + 3) for i in range(j)}
    kinds = {word.replace(".", "") for _, word in two}
    assert kinds == {"ss", "xb", "bs", "fx", "=m"} and len(two) == 5 * len(apart)
    assert sorted(words["five positions"]) == sorted(
        (K, "".join(word), 5) for K in range(1, 5) for word in itertools.product(".sx", repeat=5))
    settings = [(case.K, str(case.settings)) for case in more if case.name.endswith("', settings")]
    assert {*settings} == {(K, str(setting)) for K in range(1, 5) for setting in SETTINGS + EOS}
    assert len(settings) == 4 * len(SETTINGS + EOS) * 4 and not words["settings"][0][1].strip(".f")
    plain = [case for case in more if case.name in PAIRS and not case.settings]
    whole = [case.K for case in plain if case.n_tokens == case.K + 1]
    assert whole == [K for K in range(1, 5) for _ in PAIRS]


def test_the_distance_is_the_mass_that_lies_elsewhere():
    assert distance({"a": 0.5, "b": 0.5}, {"b": 0.25, "c": 0.75}) == 0.75
    assert distance({"a": 1.0}, {"a": 1.0}) == 0


# Drafters of one's own --------------------------------------------------------------------------------------


def some(draft, x, k, to_probs, rng):
    """Fewer drafts than wanted, also none: how many depends on the prefix and on the drafts themselves."""
    drafts, p = propose(draft, x, min(k, len(x) % 3), to_probs, rng)
    return (drafts[:1], p[:1]) if drafts[:1] == [0] else (drafts, p)


def chosen(draft, x, k, to_probs, rng):
    """Point masses: the likeliest token, k times."""
    return [int(draft(x)[0].argmax())] * k, None


def chosen_said_to_be_drawn(draft, x, k, to_probs, rng):
    """Wrong: the likeliest token, with a softmax it was not drawn from."""
    drafts, p = [], []
    for _ in range(k):
        p.append(to_probs(draft(x + drafts), 1)[0])
        drafts.append(int(p[-1].argmax()))
    return drafts, p


def with_propose(propose):
    return lambda *run, **settings: speculative_sampling(*run, propose=propose, **settings)


@pytest.mark.parametrize("propose", [some, chosen])
def test_another_proposer_is_lossless(propose):
    assert check(with_propose(propose), Ks=[1, 3], n_tokens=3) < 1e-12


def test_a_drafter_that_proposes_nothing_makes_the_baseline():
    target = table(2)
    rounds = list(
        speculative_sampling(
            None, target, PROMPT, 9, 3, np.random.default_rng(5), propose=lambda *_: ([], None)
        )
    )
    assert [r.drafts for r in rounds] == [[]] * 9
    assert text_of(rounds) == text_of(autoregressive_sampling(target, PROMPT, 9, np.random.default_rng(5)))


def test_a_softmax_in_the_place_of_a_point_mass_is_found():
    assert check(with_propose(chosen_said_to_be_drawn), Ks=[1], n_tokens=2) > 0.02


# What a sampler may do with chance --------------------------------------------------------------------------

def below_zero(u, weight):
    u *= 2.0
    u /= 2.0
    u -= weight
    return u < 0


COIN = {  # each is True with probability .3
    "u < c": lambda rng: rng.random() < 0.3,
    "c > u": lambda rng: np.float64(0.3) > rng.random(),
    "u * p < q": lambda rng: rng.random() * 0.5 < 0.15,
    "p * u < q, float32": lambda rng: np.float32(0.5) * rng.random() < 0.15,
    "u / q < 1 / p": lambda rng: rng.random() / 0.15 < 1 / 0.5,
    "q / p > u": lambda rng: np.divide(0.15, 0.5) > rng.random(),
    "q / u > p": lambda rng: 0.15 / rng.random() > 0.5,
    "1 - u > c": lambda rng: 1 - rng.random() > 0.7,
    "1 - u <= c": lambda rng: 1 - rng.random() <= 0.3,
    "u - c < 0": lambda rng: rng.random() - 0.3 < 0,
    "-u > -c": lambda rng: -rng.random() > -0.3,
    "not u > c": lambda rng: not rng.random() > 0.3,
    "log u < log c": lambda rng: np.log(rng.random()) < np.log(0.3),
    "log1p(-u) > log c": lambda rng: np.log1p(-rng.random()) > np.log(0.7),
    "exp(-u) > exp(-c)": lambda rng: np.exp(-rng.random()) > np.exp(-0.3),
    "int(10 u) < 3": lambda rng: int(rng.random() * 10) < 3,
    "an array of cuts": lambda rng: (np.array([0.1, 0.3, np.nan, 0.9]) > rng.random())[1],
    "multiples in an array": lambda rng: (rng.random() * np.array([0.1, 0.5]) < np.array([0.2, 0.15]))[1],
    "NaN where nobody looks": lambda rng: (rng.random() < np.array([np.nan, 0.3]))[1],
    "several at once": lambda rng: (rng.random(2) < [0.5, 0.3])[1],
    "the log of several": lambda rng: (np.log(rng.random(size=(2, 1))) < np.log(0.3))[1, 0],
    "uniform": lambda rng: rng.uniform() < 0.3,
    "uniform between": lambda rng: rng.uniform(-1, 1) < -0.4,
    "uniform, several": lambda rng: rng.uniform(0, 2, size=3)[2] < 0.6,
    "integers": lambda rng: rng.integers(10) < 3,
    "integers between, end included": lambda rng: rng.integers(11, 20, endpoint=True) in (12, 15, 20),
    "integers, several": lambda rng: rng.integers(0, 10, size=2)[1] < 3,
    "choice": lambda rng: rng.choice(3, p=[0.5, 0.3, 0.2]) == 1,
    "choice of values": lambda rng: rng.choice([7, 8, 9], p=np.array([0, 0.7, 0.3])) == 9,
    "choice, each as likely": lambda rng: rng.choice(10) in (0, 4, 9),
    "choice, several": lambda rng: rng.choice(2, size=3, p=[0.7, 0.3])[2] == 1,
    "in place": lambda rng: below_zero(rng.random(), .3),
    "uniform, between bounds that are arrays": lambda rng: (rng.uniform(0, [1, 2]) < [.5, 1.2]).tolist() == [
        True, True],
    "searchsorted": lambda rng: np.searchsorted([0.2, 0.5, 1.0], rng.random(), side="right") == 1,
    "argmax of a comparison": lambda rng: (np.cumsum([0.2, 0.3, 0.5]) > rng.random()).argmax() == 1,
}


@pytest.mark.parametrize("coin", COIN.values(), ids=COIN)
def test_a_coin_may_be_written_in_many_ways(coin):
    found = exact_distribution(lambda rng: bool(coin(rng)))
    assert found == pytest.approx({True: 0.3, False: 0.7})
    rng = np.random.default_rng(0)  # and a generator of NumPy's agrees
    with np.errstate(divide="ignore"):
        assert np.mean([coin(rng) for _ in range(4000)]) == pytest.approx(0.3, abs=0.03)


def test_one_number_answers_all_questions_about_it_alike():
    def run(rng):
        u = rng.random()
        return bool(u < 0.5), bool(1 - u > 0.5), bool(u * 2.0 < 1), bool(u < 0.75)
    found = exact_distribution(run)
    assert found == {(True,) * 4: 0.5, (False, False, False, True): 0.25, (False,) * 4: 0.25}


def test_what_is_drawn_without_replacement_is_as_numpy_draws_it():
    found = exact_distribution(lambda rng: tuple(rng.choice(3, size=2, replace=False, p=[0.5, 0.3, 0.2])))
    by_hand = {(a, b): p[a] * p[b] / (1 - p[a]) for p in [(0.5, 0.3, 0.2)] for a in range(3)
               for b in range(3) if a != b}
    assert found == pytest.approx(by_hand)
    rng = np.random.default_rng(0)
    drawn = [tuple(rng.choice(3, size=2, replace=False, p=[0.5, 0.3, 0.2])) for _ in range(4000)]
    assert max(abs(drawn.count(pair) / 4000 - chance) for pair, chance in by_hand.items()) < 0.03


def test_a_random_number_times_zero_is_zero():
    for zero in lambda u: u * 0.0, lambda u: 0.0 / u, lambda u: -(u * 0.0) + 0.0:
        for asked in lambda x: x <= 0, lambda x: not x > 0, lambda x: x == 0:
            assert exact_distribution(lambda rng: bool(asked(zero(rng.random())))) == {True: 1.0}


def test_a_random_number_compares_with_itself_and_with_none_as_any_number():
    def run(rng):
        u = rng.random()
        return u == u, u <= u, u >= u, u - u == 0, u / u == 1, u != None, u != u, u < u, u > u, u == None  # noqa
    assert exact_distribution(run) == {(True,) * 6 + (False,) * 4: 1.0} == {run(np.random.default_rng()): 1.0}


def test_a_sampler_that_changes_its_settings_is_judged_by_those_it_was_given():
    def endless(*run, eos=None, **settings):
        if isinstance(eos, (list, set)):
            eos.clear()
        return speculative_sampling(*run, eos=None if isinstance(eos, (list, set)) else eos, **settings)
    before = [str(case) for case in lossless.CASES]
    assert "eos" in lossless.report(endless).case and [str(case) for case in lossless.CASES] == before


def test_models_in_single_precision_are_judged_in_double():
    single = [lambda tokens, n=1, model=model: model(tokens, n).astype(np.float32)
              for model in (table(1), table(2))]
    assert lossless.report(speculative_sampling, [single], Ks=[2], n_tokens=3).deviation < 1e-14


def test_choice_takes_the_sums_that_numpy_takes():
    p = np.array([.1] * 10, np.float32) * np.float32(1 + 1e-5)
    np.random.default_rng(0).choice(10, p=p)
    assert len(exact_distribution(lambda rng: rng.choice(10, p=p))) == 10
    for off in p * np.float32(1.01), p.astype(float):
        for rng in np.random.default_rng(0), lossless.Walk([]):
            with pytest.raises(ValueError):
                rng.choice(10, p=off)


CANNOT = {
    "with itself": [lambda rng: (lambda u: u * u < .5)(rng.random()),
                    lambda rng: (lambda u: u ** u < .75)(rng.random())],
    "copy of rng": [lambda rng: copy(rng).random() < .5, lambda rng: deepcopy([rng])[0].random() < .5],
    "with another": [lambda rng: rng.random() < rng.random(), lambda rng: rng.random() * rng.random() < 0.5,
                     lambda rng: int(np.argmin(-np.log(rng.random(3)) / [0.5, 0.3, 0.2]))],
    "between bounds": [lambda rng: rng.integers(0, [3, 4])],
    "np.less with out": [lambda rng: np.less(rng.random(), .5, out=np.zeros((), bool))],
    "np.sin": [lambda rng: np.sin(rng.random()) < 0.5],
    "np.log": [lambda rng: np.log(rng.random() - 0.5) < 0.5],
    "a plain number": [lambda rng: float(rng.random())],
    "5,000 integers": [lambda rng: int(rng.random() * 2**53), lambda rng: int(1 / rng.random())],
    "rng.gumbel": [lambda rng: rng.gumbel(size=3).argmax()],
    "sum be 1": [lambda rng: rng.choice(3, p=[0.5, 0.3, 0.3]), lambda rng: rng.choice(2, p=[0.5, 0.3, 0.2]),
                 lambda rng: rng.choice(2, p=[np.nan, 0.3])],
    "without replacement": [lambda rng: rng.choice(3, size=2, replace=False, p=[1, 0, 0])],
    "NaN": [lambda rng: rng.random() < np.nan, lambda rng: rng.random() * np.nan < 1],
}


@pytest.mark.parametrize("says, run", [(says, run) for says, runs in CANNOT.items() for run in runs])
def test_what_cannot_be_walked_gets_a_sentence(says, run):
    with pytest.raises(ValueError, match=says):
        exact_distribution(run)


# Chance in equal parts --------------------------------------------------------------------------------------


def on_a_grid(run, n):
    """The distribution of run(rng) if rng.random() gives the middles of n equal parts, each as often."""
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


EIGHTHS = memoryless([0.5, 0.25, 0.125, 0.125]), memoryless([0.125, 0.125, 0.375, 0.375])    # all cuts are
QUARTERS = memoryless([0.5, 0.5]), memoryless([0.25, 0.75])
GRIDS = {  # (sampler, pair, n_tokens, K, parts)
    "one draft": (speculative_sampling, EIGHTHS, 2, 1, 8),
    "two drafts": (speculative_sampling, QUARTERS, 3, 2, 4),
    "a round after a round": (speculative_sampling, QUARTERS, 3, 1, 4),
    "a draft that is thrown away": (WRONG["UnlikelyThrownAway"], QUARTERS, 3, 2, 4),
    "q after a refusal": (WRONG["TargetAfterRefusal"], EIGHTHS, 2, 1, 8),
    "one coin for two": (WRONG["OneCoinForAll"], QUARTERS, 3, 2, 4),
    "the coin draws, too": (WRONG["CoinDrawsTheCorrection"], EIGHTHS, 2, 1, 8),
    "a tree": (RIGHT["Tree"], QUARTERS, 2, 1, 4),
}


@pytest.mark.parametrize("sampler, pair, n_tokens, K, parts", GRIDS.values(), ids=GRIDS)
def test_brute_force_on_a_grid_of_uniforms_gives_the_same(sampler, pair, n_tokens, K, parts):
    def run(rng):
        return text_of(sampler(*pair, PROMPT, n_tokens, K, rng))

    assert exact_distribution(run) == pytest.approx(on_a_grid(run, parts), abs=1e-12)


def test_a_tree_of_chance_by_hand():
    """One coin of .5, then one of .2 on the left and a draw of three on the right."""

    def run(rng):
        if rng.random() < 0.5:
            return "a" if rng.random() < 0.2 else "b"
        return "bcd"[np.searchsorted([0.25, 0.75, 1.0], rng.random(), side="right")]

    by_hand = {"a": 0.5 * 0.2, "b": 0.5 * 0.8 + 0.5 * 0.25, "c": 0.5 * 0.5, "d": 0.5 * 0.25}
    assert exact_distribution(run) == pytest.approx(by_hand)
    assert len(list(branches(run))) == 5


def test_the_targets_distribution_by_hand():
    """q = (.5, .25, .25) everywhere; token 1 ends the text."""
    model = memoryless([0.5, 0.25, 0.25])
    assert distribution_of_text(model, PROMPT, 2, eos=1) == {
        (1,): 0.25, (0, 0): 0.25, (0, 1): 0.125, (0, 2): 0.125, (2, 0): 0.125, (2, 1): 0.0625, (2, 2): 0.0625}
    colder = distribution_of_text(model, PROMPT, 1, temperature=0.5)            # .25, .0625, .0625
    assert colder == pytest.approx({(0,): 2 / 3, (1,): 1 / 6, (2,): 1 / 6})
    assert len(distribution_of_text(model, PROMPT, 1, top_k=2)) == 3            # a tie: all are kept
    assert distribution_of_text(model, PROMPT, 1, top_p=0.5) == {(0,): 1}
    assert distribution_of_text(model, PROMPT, 3, temperature=0) == {(0, 0, 0): 1}


# The standard cases -----------------------------------------------------------------------------------------


def test_the_words_mean_what_the_table_of_kinds_says():
    for kind, (by_draft, by_target) in lossless.KINDS.items():
        draft, target = lossless.pair(f".{kind}")
        p, q = (np.exp(model([2, 0, 1])[0]) for model in (draft, target))
        assert (p > 0).sum() == len(by_draft) and (q > 0).sum() == len(by_target)
        assert ((p > 0) & (q > 0)).sum() == len({*by_draft} & {*by_target})
        if kind == "s":
            p, q = p / p.sum(), q / q.sum()
            residual = np.maximum(q - p, 0)
            assert (residual > 0).sum() == 2 and 0 < np.minimum(p, q).sum() < 1


def test_a_round_of_two_drafts_or_more_follows_every_kind_of_round():
    """And a text of ten tokens is among them."""
    seen = set()

    def sampler(*run, **settings):
        rounds = list(speculative_sampling(*run, **settings))
        seen.update((len(a.drafts), a.n_accepted) for a, b in zip(rounds, rounds[1:]) if len(b.drafts) > 1)
        return rounds

    for case in CASES:
        if "a round after" in case.name:
            judge(sampler, *case)
    assert seen >= {(k, n) for k in range(2, 5) for n in range(k + 1)}
    assert max(case.n_tokens for case in CASES) >= 10 and {case.K for case in CASES} >= {1, 2, 3, 4, 8}


def test_a_case_of_too_many_branches_is_walked_in_part(monkeypatch):
    monkeypatch.setattr(lossless, "CASES", [case for case in CASES if case.name.startswith("'ff.'")][:1])
    monkeypatch.setattr(lossless, "ENOUGH", 500)
    found = report(speculative_sampling)
    assert found.lossless and (found.n_cases, found.n_unfinished) == (1, 1) and found.n_branches < 100
    assert str(found).endswith("branches of 1 case, 1 of them not to the end)")
    found = report(WRONG["AbsoluteResidual"])
    assert not found.lossless and found.n_unfinished and found.probability > found.wanted


# What the judge says ----------------------------------------------------------------------------------------


def always(q, p, drafts, rng):
    """Accepts every draft."""
    return len(drafts), verify(q[-1:], p[:0], [], rng)[1]


def with_verify(verify):
    return lambda *run, **settings: speculative_sampling(*run, verify=verify, **settings)


def test_the_report_is_of_the_first_wrong_text(capsys):
    pair = memoryless([0.5, 0.3, 0.2]), memoryless([0.1, 0.6, 0.3])
    run = with_verify(always), [pair], [1, 2], 2
    found = report(*run, temperature=1)
    assert not found.lossless and found.deviation == pytest.approx(0.4 * 0.6)        # of [0, 1]
    assert found.case == "pair 0; K = 1, 2 tokens, temperature = 1"
    assert (found.settings, found.prompt, found.text) == (dict(temperature=1), [0, 0], [0, 0])
    assert (found.probability, found.wanted) == pytest.approx((0.05, 0.01))
    assert (found.n_cases, found.n_branches) == (1, 9)
    assert check(*run, temperature=1) == found.deviation
    assert capsys.readouterr().out == str(found) + "\n" == (
        "not lossless: after [0, 0] the text [0, 0] has probability 0.050000, and should have 0.010000.  "
        "(pair 0; K = 1, 2 tokens, temperature = 1; 9 branches of 1 case)\n"
    )


def test_a_sampler_that_is_lossless_gets_no_text():
    found = report(autoregressive, [(None, table(2))], [1], 2, temperature=0.5)
    assert found.lossless and found.deviation < 1e-12 and found.n_branches == 9 and found.text is None
    assert str(found).startswith("lossless: no probability is off by more than ")


def autoregressive(draft, target, tokens, n_tokens, K, rng, **settings):
    return autoregressive_sampling(target, tokens, n_tokens, rng, **settings)


def test_check_takes_settings_pairs_and_shapes():
    seen = []

    def sampler(*run, **settings):
        seen.append((*run[3:5], tuple(settings)))
        return autoregressive(*run, **settings)

    assert check(sampler, [(None, table(2))], Ks=[(3, 2), (1, 1)], n_tokens=2, temperature=0.5) < 1e-12
    assert set(seen) == {(2, (3, 2), ("temperature",)), (2, (1, 1), ("temperature",))}


@pytest.mark.parametrize("settings", [
    dict(temperature=1000.), dict(temperature=1e-320), dict(temperature=1e308), dict(top_p=1 - 2 ** -53),
    dict(eos=np.array(1)), dict(eos=np.int8(1)), dict(eos=range(1, 3)), dict(eos=[99])], ids=str)
def test_the_definition_holds_for_extreme_settings_too(settings):
    far_apart = lossless.as_model(lambda prefix: np.array([0, -1000, -500, -1e-3]))
    pairs = [(table(1, n_vocab=4), far_apart), *PAIRS.values()]
    assert report(speculative_sampling, pairs, [2], 3, **settings).lossless


@pytest.mark.parametrize("n_vocab", [1, 2])
def test_models_of_one_token_and_of_two(n_vocab):
    def model(tokens, n_last=1):
        return np.arange(n_vocab * n_vocab, dtype=float).reshape(n_vocab, n_vocab)[tokens[-n_last:]] / 2
    assert report(speculative_sampling, [(model, model)], n_tokens=3).lossless
    wrong = report(WRONG["TargetAfterRefusal"], [(model, lambda x, n=1: -model(x, n))], n_tokens=2)
    assert wrong.lossless == (n_vocab == 1)
    with pytest.raises(ValueError, match="no pairs"):
        report(speculative_sampling, [])


def endless(draft, target, tokens, n_tokens, K, rng, **settings):
    while True:
        rng.random()


def babbling(draft, target, tokens, n_tokens, K, rng, **settings):
    while True:
        yield 0


def empty(draft, target, tokens, n_tokens, K, rng, **settings):
    while True:
        yield Round([], [], 0, None, None)


def asking(draft, target, tokens, n_tokens, K, rng, **settings):
    while True:
        target(tokens)


def test_a_thorough_look_sees_each_draft_that_is_not_tested():
    def untested(n, i):
        def rule(q, p, drafts, rng):
            if len(drafts) != n:
                return verify(q, p, drafts, rng)
            kept, token = verify(q, p, drafts[:i], rng)
            rest = verify(q[i + 1:], p[i + 1:], drafts[i + 1:], rng) if kept == i else None
            return (kept, token) if rest is None else (i + 1 + rest[0], rest[1])
        return with_verify(rule)
    each = list(itertools.islice(more_cases(), 36))
    for n in range(1, 9):
        for i in range(n):
            assert any(not judge(untested(n, i), *case).lossless for case in each), (n, i)


@pytest.mark.parametrize("sampler", [endless, babbling, empty, asking])
def test_a_sampler_that_never_ends_is_told_so_and_not_waited_for(sampler):
    with pytest.raises(ValueError, match="never ends"):
        check(sampler)


def test_a_sampler_that_remembers_or_has_chance_of_its_own_is_told_so():
    seen = []

    def remembers(rng):
        seen.append(1)
        return rng.random() < 0.5 and len(seen) < 2 and rng.random() < 0.5

    def grows(rng):
        seen.append(1)
        return rng.random() < 1 / (1 + len(seen)) and rng.random() < 0.5

    for run in remembers, grows:
        seen.clear()
        with pytest.raises(ValueError, match="did not repeat itself"):
            exact_distribution(run)


def test_a_drafter_and_a_rule_with_a_generator_of_their_own_are_told_so():
    own = np.random.default_rng(0)

    def drafter(draft, x, k, to_probs, rng):
        return propose(draft, x, k, to_probs, own)

    def rule(q, p, drafts, rng):
        return verify(q, p, drafts, own)

    for sampler in with_propose(drafter), with_verify(rule):
        with pytest.raises(ValueError, match="a random generator of its own"):
            report(sampler)


def test_too_many_branches_are_told(monkeypatch):
    monkeypatch.setattr(lossless, "BRANCHES", 7)
    assert len(exact_distribution(lambda rng: [rng.random() < 0.5 for _ in range(2)].count(True))) == 3
    with pytest.raises(ValueError, match="more than 7 branches"):
        exact_distribution(lambda rng: [rng.random() < 0.5 for _ in range(3)].count(True))


# The program ------------------------------------------------------------------------------------------------

OWN = {  # a file: (exit status, the beginning of what is printed)
    "def propose(draft, x, k, to_probs, rng):\n    return [1] * k, None": (0, "lossless: no probability"),
    "def verify(q, p, drafts, rng):\n    return len(drafts), 0": (1, "not lossless: after "),
    "def verify(q, p, drafts, rng):\n    return rng.gumbel()": (2, "error: PATH, line 2: the judge cannot"),
    "def verify(q, p, drafts, rng):\n    return 1 / 0": (2, "error: PATH, line 2: ZeroDivisionError"),
    "def propose(draft, x, k, to_probs, rng): return [], None": (2, "error: PATH drafts nothing in these"),
    "def propose(*_): return [], None\ndef verify(q, p, drafts, rng): return 0, 0": (1, "not lossless: "),
    "def sampler(): pass": (2, "error: PATH has neither a function propose nor a function verify"),
    "verify = ": (2, "error: PATH, line 1: SyntaxError"),
}


@pytest.mark.parametrize("source", OWN)
def test_the_program_judges_a_file_of_ones_own(source, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(lossless, "CASES", CASES[:9])
    path = tmp_path / "mine.py"
    path.write_text(source)
    status, says = OWN[source]
    assert console.run(lossless.main, [str(path)]) == status
    assert "".join(capsys.readouterr()).replace(str(path), "PATH").startswith(says)
