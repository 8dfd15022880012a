"""Lossy rules: a drafted token has the distribution that the rule's formula gives."""
import numpy as np
import pytest
from helpers import PAIRS

from lossless import exact_distribution
from lossless.toys import memoryless
from methods.samplers.lossy import ensemble, ensemble_probs, lenient, lenient_probs, typical, typical_probs
from sampling import probabilities
from speculative import speculative_sampling

RULES = {"lenient .5": (lenient(.5), lambda q, p: lenient_probs(q, p, .5)),
         "lenient .1": (lenient(.1), lambda q, p: lenient_probs(q, p, .1)),
         "ensemble .7": (ensemble(.7), lambda q, p: ensemble_probs(q, p, .7)),
         "ensemble .1": (ensemble(.1), lambda q, p: ensemble_probs(q, p, .1)),
         "typical": (typical(), typical_probs),
         "typical .3": (typical(.3, .55), lambda q, p: typical_probs(q, p, .3, .55))}


def first_token(draft, target, verify, **settings):
    """The exact distribution of the first of two tokens, the one that was drafted."""
    found = exact_distribution(lambda rng: next(speculative_sampling(
        draft, target, [2, 0], 2, 1, rng, verify=verify, **settings)).tokens[0])
    return np.array([found.get(token, 0) for token in range(3)])


@pytest.mark.parametrize("verify, formula", RULES.values(), ids=RULES)
def test_a_drafted_place_holds_what_the_formula_says(verify, formula):
    for name, pair in PAIRS.items():
        p, q = (np.exp(model([2, 0])[0]) / np.exp(model([2, 0])[0]).sum() for model in pair)
        assert first_token(*pair, verify) == pytest.approx(formula(q, p), abs=1e-12), name


def first_round(draft, target, n_tokens, K, verify):
    """The exact distribution of (tokens, how many of them are accepted drafts) of the first round."""
    def run(rng):
        r = next(speculative_sampling(draft, target, [2, 0], n_tokens, K, rng, verify=verify))
        return tuple(r.tokens), r.n_accepted
    return exact_distribution(run)


def test_a_tested_position_follows_the_mixture_and_any_other_the_target():
    """Position by position in rounds of two drafts, given the accepted drafts before it."""
    for name, (draft, target) in PAIRS.items():
        found = first_round(draft, target, 3, 2, ensemble(.7))
        for before in {tokens[:n] for tokens, n_accepted in found for n in range(n_accepted + 1)}:
            n, law = len(before), np.zeros(3)
            for (tokens, n_accepted), probability in found.items():
                if tokens[:n] == before and n_accepted >= n:
                    law[tokens[n]] += probability
            q, p = (probabilities(model([2, 0, *before])[0]) for model in (target, draft))
            expected = ensemble_probs(q, p, .7) if n < 2 else q
            assert law / law.sum() == pytest.approx(expected, abs=1e-12), (name, before)


def test_the_worked_example_of_the_ensemble():
    draft, target = memoryless([.2, .7, .1]), memoryless([.5, .3, .2])
    assert first_token(draft, target, ensemble(.7)) == pytest.approx([.41, .42, .17])
    found = first_round(draft, target, 2, 1, ensemble(.7))
    assert sum(chance for (_, n_accepted), chance in found.items() if n_accepted) == pytest.approx(.72)


@pytest.mark.parametrize("wrong", [lambda: lenient(0), lambda: lenient(1.5), lambda: typical(0, .3),
                                   lambda: typical(.3, 1), lambda: lenient(float("nan")),
                                   lambda: ensemble(0), lambda: ensemble(1.1)])
def test_numbers_that_mean_nothing_get_a_clear_sentence(wrong):
    with pytest.raises(ValueError, match="must be above 0"):
        wrong()
