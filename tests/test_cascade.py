"""Staged drafting: the drafts have the distribution of the draft model's own drafts."""
from functools import partial

import speculative
from lossless import exact_distribution
from lossless.toys import table
from methods.drafters import cascade
from sampling import probabilities


def test_the_drafts_are_distributed_as_those_of_the_draft_alone():
    draft, x = table(1, n_vocab=3), [2, 0]
    to_probs = partial(probabilities, temperature=0.8)
    guesses = cascade.cascade(speculative.propose, table(5, n_vocab=3))

    def drafts(propose):
        return exact_distribution(lambda rng: tuple(map(int, propose(draft, x, 3, to_probs, rng)[0])))
    found, expected = drafts(guesses), drafts(speculative.propose)
    assert found.keys() == expected.keys() and len(found) == 27
    assert all(abs(found[text] - expected[text]) < 1e-12 for text in expected)
