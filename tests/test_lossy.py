"""Lossy rules: a drafted token has the distribution that the rule's formula gives."""
import numpy as np
import pytest
from helpers import PAIRS

from lossless import exact_distribution
from lossless.toys import memoryless
from methods.samplers.lossy import lenient, lenient_probs, typical, typical_probs
from speculative import speculative_sampling

RULES = {"lenient .5": (lenient(.5), lambda q, p: lenient_probs(q, p, .5)),
         "lenient .1": (lenient(.1), lambda q, p: lenient_probs(q, p, .1)),
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


def test_the_worked_example_of_lenience():
    """The accepted mass is (.2, .3, .2).  The other .3 is spread as the residual (0, .75, .25): (.2, .525,
    .275) in all."""
    draft, target = memoryless([.5, .3, .2]), memoryless([.1, .6, .3])
    assert first_token(draft, target, lenient(.5)) == pytest.approx([.2, .525, .275])
    assert first_token(draft, target, lenient(1)) == pytest.approx([.1, .6, .3])


@pytest.mark.parametrize("wrong", [lambda: lenient(0), lambda: lenient(1.5), lambda: typical(0, .3),
                                   lambda: typical(.3, 1), lambda: lenient(float("nan"))])
def test_numbers_that_mean_nothing_get_a_clear_sentence(wrong):
    with pytest.raises(ValueError, match="must be above 0"):
        wrong()
