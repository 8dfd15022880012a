"""Lossless, exactly: the distribution of the text is the target's, to 1e-12; and lossless.check sees what
is not.

Nothing is sampled here.  lossless.exact_distribution runs the production code through every branch that
chance could take and adds up the probabilities; lossless.distribution_of_text multiplies the target's own
distributions, written from their definition."""

import runpy

import numpy as np
import pytest

import lossless
from autoregressive import autoregressive_sampling
from lossless import (
    PAIRS,
    PROMPT,
    SETTINGS,
    case_deviation,
    cases,
    check,
    distance,
    distribution_of_text,
    exact_distribution,
    memoryless,
    table,
    text_of,
)
from speculative import propose, speculative_sampling, verify

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

CASES = list(cases(None, (1, 2, 3, 4), 4, {}))
DEAR = [case for case in CASES if case[3:5] in [(4, 3), (4, 4)] and not case[5]]


def name_of(case):
    name, _, _, n_tokens, K, settings = case
    return f"{name}, {n_tokens} tokens, K = {K}, {settings}"


@pytest.mark.parametrize("case", [case for case in CASES if case not in DEAR], ids=name_of)
def test_the_text_has_the_targets_distribution(case):
    assert case_deviation(speculative_sampling, *case) < 1e-12


@pytest.mark.long
@pytest.mark.parametrize("case", [*DEAR, ("zeros in both", *PAIRS["zeros in both"], 5, 4, {})], ids=name_of)
def test_the_text_has_the_targets_distribution_also_with_long_rounds(case):
    assert case_deviation(speculative_sampling, *case) < 1e-12


def test_four_drafts_and_a_bonus_have_the_targets_distribution():
    assert case_deviation(speculative_sampling, "", *PAIRS["disjoint supports"], 5, 4, {}) < 1e-12
    assert case_deviation(speculative_sampling, "", *PAIRS["draft is certain"], 5, 4, {}) < 1e-12


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


@pytest.mark.parametrize("settings", [{}, *SETTINGS], ids=str)
def test_the_baseline_has_the_targets_distribution(settings):
    target = table(4, zeros=0.4)
    found = exact_distribution(
        lambda rng: text_of(autoregressive_sampling(target, PROMPT, 3, rng, **settings))
    )
    assert distance(found, distribution_of_text(target, PROMPT, 3, **settings)) < 1e-12


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


# What the check says ----------------------------------------------------------------------------------------


def test_check_prints_the_first_wrong_text_with_both_probabilities(capsys):
    def always(q, p, drafts, rng):  # accepts every draft
        return len(drafts), verify(q[-1:], p[:0], [], rng)[1]

    def sampler(*run, **settings):
        return speculative_sampling(*run, verify=always, **settings)

    pair = memoryless([0.5, 0.3, 0.2]), memoryless([0.1, 0.6, 0.3])
    assert check(sampler, [pair], Ks=[1, 2], n_tokens=2, temperature=1) == pytest.approx(0.4 * 0.6)  # [0, 1]
    assert capsys.readouterr().out == (
        "Not lossless (pair 0; K = 1, 2 tokens, temperature = 1): after [2, 0] the text [0, 0] "
        "has probability 0.050000, and should have 0.010000.\n"
    )


def test_check_takes_settings_pairs_and_shapes():
    seen = []

    def sampler(draft, target, tokens, n_tokens, K, rng, **settings):
        seen.append((n_tokens, K, tuple(settings)))
        return autoregressive_sampling(target, tokens, n_tokens, rng, **settings)

    assert check(sampler, [(None, table(2))], Ks=[(3, 2), (1, 1)], n_tokens=2, temperature=0.5) < 1e-12
    assert set(seen) == {(2, (3, 2), ("temperature",)), (2, (1, 1), ("temperature",))}
    seen.clear()
    assert check(sampler, [(None, table(2))], Ks=[(3, 2), (1, 1)], n_tokens=2) < 1e-12
    assert {("eos",), ("temperature", "top_k", "top_p"), ()} <= {settings for _, _, settings in seen}
    assert {n for n, _, _ in seen} == {0, 1, 2}


def test_a_sampler_that_never_ends_is_told_so_and_not_waited_for():
    def endless(draft, target, tokens, n_tokens, K, rng, **settings):
        while True:
            rng.random()

    with pytest.raises(ValueError, match="never ends"):
        check(endless)


def test_a_sampler_that_gives_tokens_without_end_is_told_so():
    def babbling(draft, target, tokens, n_tokens, K, rng, **settings):
        while True:
            yield 0

    with pytest.raises(ValueError, match="never ends"):
        check(babbling)


def test_multiples_of_one_number_are_one_number():
    found = exact_distribution(lambda rng: (lambda u: (u * 1.0 < 0.5, u * 2.0 < 1.0, u < 0.75))(rng.random()))
    assert found == {(True, True, True): 0.5, (False, False, True): 0.25, (False, False, False): 0.25}


@pytest.mark.parametrize("scale", [-1, np.nan])
def test_a_number_times_less_than_0_is_refused(scale):
    with pytest.raises(ValueError, match="multiplied by"):
        exact_distribution(lambda rng: rng.random() * scale < 1)


def test_a_sampler_that_remembers_is_told_so():
    seen = []

    def run(rng):
        seen.append(1)
        return rng.random() < 0.5 and len(seen) < 2 and rng.random() < 0.5

    with pytest.raises(ValueError, match="remembers"):
        exact_distribution(run)


def test_help_tells_what_it_does(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["lossless.py", "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(lossless.__file__, run_name="__main__")
    assert not end.value.code and "is checked in three lines" in capsys.readouterr().out


def test_nan_is_told():
    with pytest.raises(ValueError, match="NaN"):
        exact_distribution(lambda rng: rng.random() * 0 < np.nan)
    with pytest.raises(ValueError, match="NaN"):
        exact_distribution(lambda rng: rng.random() < np.nan)


def test_too_many_branches_are_told(monkeypatch):
    monkeypatch.setattr(lossless, "BRANCHES", 7)
    assert len(exact_distribution(lambda rng: [rng.random() < 0.5 for _ in range(2)].count(True))) == 3
    with pytest.raises(ValueError, match="more than 7 branches"):
        exact_distribution(lambda rng: [rng.random() < 0.5 for _ in range(3)].count(True))
