"""Staged drafting: the drafts are the draft model's own."""
import numpy as np
import pytest

import speculative
from autoregressive import autoregressive_sampling
from drafters import cascade
from drafters.ngram import NGram
from lossless import exact_distribution, table
from sampling import prepare
from speculative import speculative_sampling
from utils import load_model


def test_the_drafts_are_distributed_as_those_of_the_draft_alone():
    draft, x = table(1, n_vocab=3), [2, 0]
    to_probs = prepare([], x, 0, 0.8, 0, 1.0, None)[1]
    guesses = cascade.cascade(speculative.propose, table(5, n_vocab=3))

    def drafts(propose):
        return exact_distribution(lambda rng: tuple(map(int, propose(draft, x, 3, to_probs, rng)[0])))
    found, expected = drafts(guesses), drafts(speculative.propose)
    assert found.keys() == expected.keys() and len(found) == 27
    assert all(abs(found[text] - expected[text]) < 1e-12 for text in expected)
    rng = np.random.default_rng(0)
    for _ in range(20):
        tokens, p = guesses(draft, x, 3, to_probs, rng)
        for j, row in enumerate(p):                             # p is the draft's, at that very place
            assert row == pytest.approx(to_probs(draft(x + tokens[:j]), 1)[0], abs=1e-12)


@pytest.mark.long
def test_at_temperature_0_drafts_and_text_are_those_without_it_and_the_draft_is_asked_less():
    (draft, encoder), (target, _) = load_model("demo-draft"), load_model("demo-target")
    run, calls = (encoder.encode("There was a long silence."), 60), []

    def counted(tokens, n_last=1):
        calls.append(n_last)
        return draft(tokens, n_last)

    rounds = {}
    for name, propose in ("alone", speculative.propose), ("staged", cascade.cascade(speculative.propose,
                                                                                  NGram(draft.n_vocab))):
        calls.clear()
        found = speculative_sampling(counted, target, *run, 4, np.random.default_rng(0), temperature=0,
                                     propose=propose)
        rounds[name] = [(r.tokens, r.drafts) for r in found], len(calls)
    assert rounds["staged"][0] == rounds["alone"][0] and rounds["staged"][1] < 0.9 * rounds["alone"][1]
    baseline = autoregressive_sampling(target, *run, np.random.default_rng(0), temperature=0)
    assert [token for new, _ in rounds["staged"][0] for token in new] == [r.tokens[0] for r in baseline]
