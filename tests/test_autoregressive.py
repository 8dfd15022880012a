"""autoregressive.py: its promises.  (Which arguments both samplers refuse: test_speculative.py.)"""
import numpy as np
import pytest

from autoregressive import autoregressive_sampling
from lossless import distribution_of_text, exact_distribution
from lossless.cases import SETTINGS
from lossless.judge import distance, text_of
from lossless.toys import scripted, table

PROMPT = [1, 2]


def baseline(target, n_tokens, seed=0, prompt=PROMPT, **settings):
    rng = seed if hasattr(seed, "random") else np.random.default_rng(seed)
    return list(autoregressive_sampling(target, prompt, n_tokens, rng, **settings))


@pytest.mark.parametrize("settings", [{}, dict(temperature=0), dict(eos=[1, 0]), *SETTINGS], ids=str)
def test_the_text_has_exactly_the_targets_distribution(settings):
    target = table(4, zeros=.4)
    texts = exact_distribution(lambda rng: text_of(baseline(target, 3, rng, **settings)))
    assert distance(texts, distribution_of_text(target, PROMPT, 3, **settings)) < 1e-12


@pytest.mark.parametrize("n_tokens", [0, 1, 20])
def test_a_token_takes_one_pass_and_the_text_has_n_tokens(n_tokens):
    asked = []

    def target(tokens, n_last=1):
        asked.append((tokens, n_last))
        return table(2)(tokens, n_last)

    text = [*text_of(baseline(target, n_tokens))]
    assert asked == [(PROMPT + text[:i], 1) for i in range(n_tokens)]   # lists of its own: none changed later


def test_an_EOS_is_the_last_token_and_one_in_the_prompt_ends_nothing():
    for says, eos, text in ([1, 8, 2, 9, 3], [9, 8], (1, 8)), ([1] * 5, 2, (1,) * 4), ([1, 0, 2], 0, (1, 0)):
        assert text_of(baseline(scripted(PROMPT + says), 4, eos=eos)) == text


def test_the_seed_alone_fixes_the_text():
    texts = [text_of(baseline(table(2), 30, seed)) for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_the_callers_prompt_is_not_changed(kind):
    prompt = kind(PROMPT)
    assert len(text_of(baseline(table(2), 9, prompt=prompt))) == 9 and list(prompt) == PROMPT


def test_the_context_can_be_filled_and_never_be_exceeded():
    model = table(2)
    model.n_ctx = 12
    assert len(baseline(model, 10)) == 10
    with pytest.raises(ValueError, match="context of 12"):
        autoregressive_sampling(model, PROMPT, 11, np.random.default_rng(0))
