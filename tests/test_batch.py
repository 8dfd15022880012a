"""Batches: each sequence is exactly what it would be alone with its own generator, and costs no more."""
from itertools import product

import numpy as np
import pytest
from helpers import PAIRS, tiny_gpt2

import gpt2
from autoregressive import autoregressive_sampling
from lossless import distribution_of_text, exact_distribution
from lossless.cases import PROMPT
from lossless.judge import text_of
from lossless.toys import scripted, table
from methods.drafters import lookup
from methods.drafters.early_exit import EarlyExit
from methods.samplers import batch, block
from methods.samplers.batch import batch_sampling
from methods.samplers.constraints import constrained, penalty
from speculative import propose, speculative_sampling
from utils import load_model


def rngs(n):
    return [np.random.default_rng(i) for i in range(n)]


def texts_of(rounds, n):
    """The text of each sequence."""
    texts = [[] for _ in range(n)]
    for one in rounds:
        for text, r in zip(texts, one, strict=True):
            text += r.tokens if r else []
    return texts


def together(draft, target, prompts, n_tokens, K, **settings):
    rounds = batch_sampling(draft, target, prompts, n_tokens, K, rngs(len(prompts)), **settings)
    return texts_of(rounds, len(prompts))


def alone(draft, target, prompt, n_tokens, K, seed, **settings):
    rng = np.random.default_rng(seed)
    if K == 0:
        return list(text_of(autoregressive_sampling(target, prompt, n_tokens, rng, **settings)))
    return list(text_of(speculative_sampling(draft, target, prompt, n_tokens, K, rng, **settings)))


def assert_as_alone(draft, target, prompts, n_tokens, K, **settings):
    expected = [alone(draft, target, prompt, n_tokens, K, i, **settings) for i, prompt in enumerate(prompts)]
    assert together(draft, target, prompts, n_tokens, K, **settings) == expected


def random_prompts(n, longest, n_vocab, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(n_vocab, size=length).tolist() for length in rng.integers(1, longest + 1, size=n)]


def tiny_pair(**size):
    return tuple(tiny_gpt2(seed, np.float64, n_vocab=5, **size) for seed in (1, 2))


def halves_of_one():
    halves = EarlyExit(tiny_gpt2(2, np.float64, n_vocab=5), 1)
    return halves.draft, halves.target


MODELS = {"tables": lambda: (table(1), table(2)), "tiny GPT-2s": tiny_pair, "halves": halves_of_one,
          "one GPT-2, twice": lambda: (tiny_gpt2(2, np.float64, n_vocab=5),) * 2}
SETTINGS = [dict(), dict(temperature=0), dict(temperature=.7, top_k=2), dict(top_p=.8, eos=[1])]


@pytest.mark.parametrize("K", [0, 1, 3])
@pytest.mark.parametrize("models", MODELS)
def test_a_sequence_in_a_batch_is_what_it_is_alone(models, K):
    for n, settings in product((1, 2, 5), SETTINGS):
        assert_as_alone(*MODELS[models](), random_prompts(n, 9, 3, seed=n), 9, K, **settings)


@pytest.mark.parametrize("lengths", [(3, 3, 3), (62, 1, 61, 2), (64, 20, 65, 40)], ids=str)
def test_prompts_of_very_different_lengths(lengths):
    assert_as_alone(*tiny_pair(n_ctx=100), [[i % 5] * n for i, n in enumerate(lengths)], 8, 2)


@pytest.mark.parametrize("models", MODELS)
def test_another_verify_and_another_drafter(models):
    prompts = random_prompts(4, 9, 3)
    assert_as_alone(*MODELS[models](), prompts, 9, 3, verify=block.verify)
    assert_as_alone(None, MODELS[models]()[1], prompts, 9, 3, propose=lookup.propose)
    assert_as_alone(*MODELS[models](), prompts, 9, 3, propose=lambda *asked: propose(*asked))


def test_two_sequences_of_a_batch_are_independent():
    draft, target = PAIRS["zeros in both"]
    found = exact_distribution(lambda rng: tuple(
        map(tuple, texts_of(batch_sampling(draft, target, [PROMPT, [1]], 2, 1, [rng, rng]), 2))))
    one, other = (distribution_of_text(target, prompt, 2) for prompt in (PROMPT, [1]))
    assert found == pytest.approx({(a, b): one[a] * other[b] for a in one for b in other}, abs=1e-12)


# Bits and the bundled pair ---------------------------------------------------------------------------------

@pytest.mark.parametrize("n, longest, n_tokens, K, temperature", [
    (3, 9, 12, 4, 1), *(pytest.param(12, 200, 60, K, temperature, marks=pytest.mark.long)
                        for K in (1, 4) for temperature in (0, 1))])
def test_the_bundled_pair_has_the_same_bits_in_company(n, longest, n_tokens, K, temperature):
    draft, target = (load_model(name)[0] for name in ("demo-draft", "demo-target"))
    n = n if target.exact_rows == np.inf else 1         # otherwise few enough rows to be batch-invariant
    prompts = random_prompts(n, longest, target.n_vocab)
    batches = [*batch_sampling(draft, target, prompts, n_tokens, K, rngs(n), temperature=temperature)]
    for i, (prompt, rng) in enumerate(zip(prompts, rngs(n))):
        rounds = speculative_sampling(draft, target, prompt, n_tokens, K, rng, temperature=temperature)
        mine = [one[i] for one in batches if one[i]]
        for a, b in zip(mine, rounds, strict=True):
            assert a.tokens == b.tokens and np.array_equal(a.target_probs, b.target_probs)


# What it costs ----------------------------------------------------------------------------------------------

def test_a_sequence_that_has_ended_costs_nothing_more():
    def counted(tokens, n_last=1):
        rows.append(n_last)
        return target(tokens, n_last)
    rows, target = [], scripted([0, 0, 1, 2, 9, 3, 4, 5, 6, 7, 8, 1, 1, 1])
    rounds = list(batch_sampling(None, counted, [[0, 0], [0] * 6], 6, 0, rngs(2), eos=9))
    assert texts_of(rounds, 2) == [[1, 2, 9], [4, 5, 6, 7, 8, 1]]
    assert [[r is not None for r in both] for both in rounds] == [[True, True]] * 3 + [[False, True]] * 3
    assert len(rows) == 3 * 2 + 3


@pytest.mark.parametrize("models", ["halves", "constrained"])
def test_as_many_rows_are_computed_as_alone_and_those_of_all_sequences_at_once(models, monkeypatch):
    def counted(x, *given, right=gpt2.transformer_block, **block):
        rows.append(len(x))
        return right(x, *given, **block)
    for module in gpt2, batch:
        monkeypatch.setattr(module, "transformer_block", counted)
    draft, target = tiny_pair()
    pair = halves_of_one() if models == "halves" else (draft, constrained(target, penalty(2)))
    prompts, rows = random_prompts(4, 9, 5), []
    for i, prompt in enumerate(prompts):
        pair[1].reset(), pair[0].reset()
        alone(*pair, prompt, 9, 3, i)
    n_rows = sum(rows)
    rows.clear()
    together(*pair, prompts, 9, 3)
    assert sum(rows) == n_rows > 0
    rows.clear()
    together(None, tiny_gpt2(n_layer=1), [[1], [1, 2, 3], [2, 2]], 4, 0)
    assert rows == [6, 3, 3, 3]                         # the prompts, then one row for each sequence


# Arguments --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("wrong, says", [
    (dict(prompts=[[1], [1] * 16, [2]]), "^prompt 2: .*context of 20"),
    (dict(prompts=[[1], [1], []]), "^prompt 3: the prompt is empty"),
    (dict(prompts=[[1], [2]]), "2 prompts and 3 random generators"),
    (dict(K=-1), "^K is -1: it must be a whole number"), (dict(K=1.5), "^K is"), (dict(K="4"), "^K is"),
], ids=str)
def test_what_does_not_fit_is_told_at_the_call(wrong, says):
    arguments = dict(prompts=[[1]] * 3, K=0) | wrong
    with pytest.raises(ValueError, match=says):
        batch_sampling(None, tiny_gpt2(n_ctx=20), n_tokens=5, rngs=rngs(3), **arguments)


@pytest.mark.parametrize("n_tokens, prompts", [(0, [[1], [2]]), (5, [])])
def test_nothing_to_do_is_done_at_once(n_tokens, prompts):
    assert list(batch_sampling(table(1), table(2), prompts, n_tokens, 2, rngs(len(prompts)))) == []
