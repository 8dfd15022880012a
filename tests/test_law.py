"""Lossless, exactly: the law of the text is the target's, to 1e-12.

Nothing is sampled here.  helpers.exact_law runs the production code through every branch that chance could take and adds up
the probabilities; helpers.law_of_text multiplies the target's own laws, written from their definition.
"""
import numpy as np
import pytest
from helpers import as_model, distance, exact_law, law_of_text, memoryless, scripted, table, text_of

from autoregressive import autoregressive_sampling
from speculative import speculative_sampling, verify

PROMPT = [2, 0]

PAIRS = {                                                           # name: (draft, target)
    "law after every prefix": (table(1), table(2)),
    "zeros in both": (table(3, zeros=.4), table(4, zeros=.4)),
    "zeros in the draft": (table(5, zeros=.5), table(6)),
    "zeros in the target": (table(7), table(8, zeros=.5)),
    "draft is the target": (table(9, zeros=.2), table(9, zeros=.2)),
    "disjoint supports": (as_model(lambda prefix: np.where(np.arange(3) == sum(prefix) % 3, 0, -np.inf)),
                          as_model(lambda prefix: np.where(np.arange(3) == sum(prefix) % 3, -np.inf, np.arange(3)))),
    "draft is certain": (scripted([1, 2, 0, 1, 1, 0], n_vocab=3), table(10)),
    "target is certain": (table(11), scripted([1, 2, 0, 1, 1, 0], n_vocab=3)),
    "draft knows nothing": (memoryless([1 / 3, 1 / 3, 1 / 3]), table(12)),
}

SETTINGS = [dict(temperature=.5), dict(temperature=2.), dict(temperature=0), dict(top_k=1), dict(top_k=2), dict(top_p=.5),
            dict(top_p=.8), dict(temperature=.7, top_k=2, top_p=.9)]


def check(draft, target, n_tokens, K, **settings):
    law = exact_law(lambda rng: text_of(speculative_sampling(draft, target, PROMPT, n_tokens, K, rng, **settings)))
    expected = law_of_text(target, PROMPT, n_tokens, **settings)
    assert law.keys() == expected.keys()                            # what the target cannot say is never said
    assert law == pytest.approx(expected, abs=1e-12, rel=0)


# One step (T1) -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("draft, target", PAIRS.values(), ids=PAIRS)
def test_verify_turns_one_draft_into_a_token_of_the_targets_law(draft, target):
    for prefix in ([0], [1], [2], [0, 1], [2, 1], [1, 1], [0, 2, 2]):
        p, q = (np.exp(model(prefix)) / np.exp(model(prefix)).sum() for model in (draft, target))
        law = np.zeros(3)
        for guess in np.flatnonzero(p[0]):
            outcomes = exact_law(lambda rng: verify(np.concatenate([q, q]), p, [guess], rng))
            for (n_accepted, token), chance in outcomes.items():
                law[guess if n_accepted else token] += p[0, guess] * chance
        assert law == pytest.approx(q[0], abs=1e-12)


def test_verify_keeps_the_mass_that_both_laws_share():
    """By hand: accepted mass (.1, .3, .2), so acceptance .6; residual (0, .3, .1) / .4 = (0, .75, .25)."""
    q, p, bonus = [.1, .6, .3], [.5, .3, .2], [1, 0, 0]
    laws = [exact_law(lambda rng: verify(np.array([q, bonus]), np.array([p]), [guess], rng)) for guess in range(3)]
    assert [law.get((1, 0), 0) for law in laws] == pytest.approx([.2, 1, 1])
    assert laws[0] == pytest.approx({(1, 0): .2, (0, 1): .8 * .75, (0, 2): .8 * .25})
    assert [chance * law[1, 0] for chance, law in zip(p, laws)] == pytest.approx(np.minimum(p, q)) == [.1, .3, .2]


def test_verify_without_drafts_draws_from_the_target():
    law = exact_law(lambda rng: verify(np.array([[.1, .6, .3]]), [], [], rng))
    assert law == pytest.approx({(0, 0): .1, (0, 1): .6, (0, 2): .3})


def test_accepted_tokens_follow_the_capped_geometric():
    """Acceptance .6 at K = 2: P(1, 2, 3 tokens) = .4, .24, .36."""
    draft, target = memoryless([.5, .3, .2]), memoryless([.1, .6, .3])
    law = exact_law(lambda rng: len(next(speculative_sampling(draft, target, PROMPT, 9, 2, rng)).tokens))
    assert law == pytest.approx({1: .4, 2: .24, 3: .36})
    assert sum(n * chance for n, chance in law.items()) == pytest.approx(1.96)


# The joint law of several tokens (T2, T13 to T15) --------------------------------------------------------------------------

@pytest.mark.parametrize("K", [1, 2, 3, 4])
@pytest.mark.parametrize("draft, target", PAIRS.values(), ids=PAIRS)
def test_four_tokens_have_the_targets_law(draft, target, K):
    check(draft, target, 4, K)


def test_a_round_of_four_drafts_and_a_bonus_keeps_the_targets_law():
    check(*PAIRS["zeros in both"], 5, 4)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("pair", ["law after every prefix", "zeros in both"])
def test_temperature_top_k_and_top_p_keep_the_targets_law(pair, settings):
    check(*PAIRS[pair], 3, 2, **settings)


@pytest.mark.parametrize("eos", [(0,), (1,), [2], {0, 2}, {0, 1, 2}], ids=str)
@pytest.mark.parametrize("K", [1, 2, 3])
def test_eos_keeps_the_targets_law(eos, K):
    check(*PAIRS["law after every prefix"], 4, K, eos=eos)


@pytest.mark.parametrize("n_tokens", [0, 1, 2, 3])
def test_a_length_limit_keeps_the_targets_law(n_tokens):
    check(*PAIRS["law after every prefix"], n_tokens, 4)


def test_a_draft_equal_to_the_target_is_always_accepted():
    draft, target = PAIRS["draft is the target"]
    law = exact_law(lambda rng: tuple(r.n_accepted for r in speculative_sampling(draft, target, PROMPT, 5, 2, rng)))
    assert law == pytest.approx({(2, 1): 1})                        # rounds of 3 and 2 tokens, and nothing else


@pytest.mark.parametrize("settings", [{}, *SETTINGS], ids=str)
def test_the_baseline_has_the_targets_law(settings):
    target = table(4, zeros=.4)
    law = exact_law(lambda rng: text_of(autoregressive_sampling(target, PROMPT, 3, rng, **settings)))
    assert distance(law, law_of_text(target, PROMPT, 3, **settings)) < 1e-12
