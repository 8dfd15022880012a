"""Batches: each sequence is exactly what it would be alone with its generator, and costs no more."""

import numpy as np
import pytest
from helpers import mutant, tiny_gpt2

from autoregressive import autoregressive_sampling
from drafters import lookup
from gpt2 import GPT2
from lossless import PAIRS, PROMPT, check, distribution_of_text, exact_distribution, scripted, table, text_of
from samplers import batch, block
from samplers.batch import Slots, batch_sampling
from speculative import speculative_sampling
from utils import load_model


def texts_of(rounds, n):
    """The text of each sequence."""
    texts = [[] for _ in range(n)]
    for one in rounds:
        for text, r in zip(texts, one, strict=True):
            text += r.tokens if r else []
    return texts


def together(draft, target, prompts, n_tokens, K, sampler=batch_sampling, **settings):
    rngs = [np.random.default_rng(i) for i in range(len(prompts))]
    return texts_of(sampler(draft, target, prompts, n_tokens, K, rngs, **settings), len(prompts))


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


MODELS = {
    "tables": lambda: (table(1), table(2)),
    "tiny GPT-2s": lambda: (tiny_gpt2(1, np.float64, n_vocab=5), tiny_gpt2(2, np.float64, n_vocab=5)),
}
SETTINGS = [dict(), dict(temperature=0), dict(temperature=0.7, top_k=2), dict(top_p=0.8, eos=[1])]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("K", [0, 1, 3])
@pytest.mark.parametrize("models", MODELS)
def test_a_sequence_in_a_batch_is_what_it_is_alone(models, K, settings):
    for n in 1, 2, 5:
        assert_as_alone(*MODELS[models](), random_prompts(n, 9, 3, seed=n), 9, K, **settings)


@pytest.mark.parametrize("lengths", [(3, 3, 3), (1, 63, 60), (62, 1, 61, 2), (64, 20, 65, 40)], ids=str)
def test_prompts_of_very_different_lengths(lengths):
    draft, target = (tiny_gpt2(seed, np.float64, n_ctx=100, n_vocab=5) for seed in (1, 2))
    assert_as_alone(draft, target, [[i % 5] * n for i, n in enumerate(lengths)], 8, 2)


def test_the_same_prompt_twice_with_the_same_generator_is_the_same_text_twice():
    rngs = [np.random.default_rng(3), np.random.default_rng(3)]
    first, second = texts_of(batch_sampling(*MODELS["tiny GPT-2s"](), [[1, 2]] * 2, 20, 2, rngs), 2)
    assert first == second and len(first) == 20


def test_another_verify_and_another_proposer():
    prompts = random_prompts(4, 9, 3)
    for models in MODELS:
        assert_as_alone(*MODELS[models](), prompts, 9, 3, verify=block.verify)
        assert_as_alone(None, MODELS[models]()[1], prompts, 9, 3, propose=lookup.propose)


def test_a_sequence_in_a_batch_has_the_targets_distribution():
    """Beside another sequence, whose chance is its own."""

    def first_of_two(draft, target, tokens, n_tokens, K, rng, **settings):
        rngs = [rng, np.random.default_rng(0)]
        rounds = batch_sampling(draft, target, [tokens, [1]], n_tokens, K, rngs, **settings)
        return [token for both in rounds if both[0] for token in both[0].tokens]

    assert check(first_of_two, Ks=[1, 2], n_tokens=3) < 1e-12


def test_two_sequences_of_a_batch_are_independent():
    draft, target = PAIRS["zeros in both"]
    found = exact_distribution(
        lambda rng: tuple(
            map(tuple, texts_of(batch_sampling(draft, target, [PROMPT, [1]], 2, 1, [rng, rng]), 2))
        )
    )
    one, other = (distribution_of_text(target, prompt, 2) for prompt in (PROMPT, [1]))
    assert found == pytest.approx({(a, b): one[a] * other[b] for a in one for b in other}, abs=1e-12)


# Bits and the embedded pair ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def embedded():
    (draft, encoder), (target, _) = load_model("demo-draft"), load_model("demo-target")
    return draft, target, encoder


def assert_same_bits(draft, target, prompts, n_tokens, K, temperature):
    rngs = [np.random.default_rng(i) for i in range(len(prompts))]
    batches = list(batch_sampling(draft, target, prompts, n_tokens, K, rngs, temperature=temperature))
    for i, prompt in enumerate(prompts):
        rng = np.random.default_rng(i)
        rounds = list(speculative_sampling(draft, target, prompt, n_tokens, K, rng, temperature=temperature))
        mine = [both[i] for both in batches if both[i]]
        assert [r.tokens for r in mine] == [r.tokens for r in rounds]
        assert all(np.array_equal(a.target_probs, b.target_probs) for a, b in zip(mine, rounds, strict=True))


def test_the_embedded_pair_has_the_same_bits_in_company(embedded):
    draft, target, encoder = embedded
    n = 3 if target.exact_rows == np.inf else 1  # 3 * 5 rows, or as many as keep their bits
    prompts = [encoder.encode(text) for text in ("The old man", "It was a cold, grey morning", "He said")][:n]
    assert_same_bits(draft, target, prompts, 12, 4, temperature=1)


@pytest.mark.long
@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("K", [1, 4])
def test_the_embedded_pair_has_the_same_bits_in_large_and_ragged_batches(embedded, K, temperature):
    draft, target, _ = embedded
    if target.exact_rows < np.inf:
        pytest.skip(f"only {target.exact_rows} rows at once keep their bits on this machine")
    assert_same_bits(draft, target, random_prompts(12, 200, target.n_vocab), 60, K, temperature)


@pytest.mark.long
def test_greedy_texts_of_a_batch_are_those_of_the_baseline(embedded):
    """Where rows do not keep their bits in a batch of this size, the texts may part at near-ties only."""
    draft, target, encoder = embedded
    prompts = [
        encoder.encode(text) for text in ("The old man", "It was a cold, grey morning", "He said", "A")
    ]
    for prompt, text in zip(prompts, together(draft, target, prompts, 200, 3, temperature=0), strict=True):
        expected = alone(None, target, prompt, 200, 0, 0, temperature=0)
        n = next((n for n in range(200) if text[n] != expected[n]), 200)
        if n < 200:
            assert target.exact_rows < np.inf
            second, first = np.sort(target(prompt + text[:n])[0])[-2:]
            assert first - second < 1e-4


# What it costs ----------------------------------------------------------------------------------------------


class Counted:
    """A model that notes how many rows it was asked for."""

    def __init__(self, model):
        self.model, self.rows = model, []

    def __call__(self, tokens, n_last=1):
        self.rows.append(n_last)
        return self.model(tokens, n_last)


def test_a_sequence_that_has_ended_costs_nothing_more():
    target = Counted(scripted([0, 0, 1, 2, 9, 3, 4, 5, 6, 7, 8, 1, 1, 1]))
    rngs = [np.random.default_rng(0)] * 2
    rounds = list(batch_sampling(None, target, [[0, 0], [0] * 6], 6, 0, rngs, eos=9))
    assert texts_of(rounds, 2) == [[1, 2, 9], [4, 5, 6, 7, 8, 1]]
    assert [[r is not None for r in both] for both in rounds] == [[True, True]] * 3 + [[False, True]] * 3
    assert len(target.rows) == 3 * 2 + 3


def test_the_rows_of_all_sequences_meet_the_weights_at_once(monkeypatch):
    passes, transformer_block = [], batch.transformer_block
    monkeypatch.setattr(
        batch, "transformer_block", lambda x, **rest: passes.append(len(x)) or transformer_block(x, **rest)
    )
    model = tiny_gpt2(1, np.float64, n_layer=1, n_vocab=5)
    together(None, model, [[1], [1, 2, 3], [2, 2]], 4, 0)
    assert passes == [6, 3, 3, 3]  # the prompts, then a row a sequence


def test_memory_is_that_of_the_tokens_in_use_not_of_the_context():
    model = tiny_gpt2(n_ctx=1000)
    slots = Slots(model, [10, 70, 20, 130])
    sizes = [slots[i].cache.shape[3] for i in range(4)]
    assert sizes == [64, 128, 64, 192] and model.cache.shape[3] == 1024
    assert sum({id(caches): caches.size for caches, _ in slots.place.values()}.values()) * 1024 == (
        model.cache.size * sum(sizes)
    )


def test_the_model_itself_stays_as_it_is():
    model = tiny_gpt2(2, n_vocab=5)
    model([1, 2, 3])
    cache, states = model.cache.copy(), model.states.copy()
    together(None, model, [[4, 4], [1]], 5, 0)
    assert model.cached == [1, 2, 3]
    assert np.array_equal(model.cache, cache) and np.array_equal(model.states, states)


# Arguments --------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_told_by_its_number():
    model, rngs = tiny_gpt2(n_ctx=20), [np.random.default_rng(0)] * 3
    with pytest.raises(ValueError, match="^prompt 2: .*context of 20"):
        batch_sampling(None, model, [[1], [1] * 16, [2]], 5, 0, rngs)
    with pytest.raises(ValueError, match="^prompt 3: the prompt is empty"):
        batch_sampling(None, model, [[1], [1], []], 5, 0, rngs)


@pytest.mark.parametrize("K", [-1, 1.5, "4"])
def test_k_must_be_a_number_of_drafts(K):
    with pytest.raises(ValueError, match="^K is .* 0 .auto-regressive. or more"):
        batch_sampling(table(1), table(2), [[1]], 5, K, [np.random.default_rng(0)])


def test_there_must_be_a_generator_for_each_prompt():
    with pytest.raises(ValueError, match="2 prompts and 1 random generators"):
        batch_sampling(table(1), table(2), [[1], [2]], 5, 2, [np.random.default_rng(0)])


@pytest.mark.parametrize("n_tokens, prompts", [(0, [[1], [2]]), (5, [])])
def test_nothing_to_do_is_done_at_once(n_tokens, prompts):
    rngs = [np.random.default_rng(0) for _ in prompts]
    assert list(batch_sampling(table(1), table(2), prompts, n_tokens, 2, rngs)) == []


# Wrong versions ---------------------------------------------------------------------------------------------

WRONG = {
    "all sequences look at the first one's cache": [("caches[:, :, row:row + g]", "caches[:, :, 0:g]")],
    "positions are counted by the batch": [
        ("for position in new[i]]])", "for position in range(len(new[i]))]])")
    ],
    "a neighbour's mask": [
        ("causal_mask(new[i].start, n) for i", "causal_mask(new[members[0]].start, n) for i")
    ],
    "the rows of one sequence go to another": [
        ("return dict(zip(order, xp.split(logits", "return dict(zip(order[::-1], xp.split(logits")
    ],
    "drafts are drawn with another's generator": [("sample(p[i][-1], rngs[i])", "sample(p[i][-1], rngs[0])")],
    "verified with another's generator": [
        ("verify(q, p_i, drafts[i], rngs[i])", "verify(q, p_i, drafts[i], rngs[-1])")
    ],
    "keys are written one too late": [
        ("keys[which, :, positions], values", "keys[which, :, positions + 1], values")
    ],
    "a sequence that is longer stops with the others": [
        ("for i in going if len(x[i]) < T[i]", "for i in going if len(x[i]) < min(T)")
    ],
}


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG)
def test_a_wrong_batch_is_caught(changes):
    draft, target = (tiny_gpt2(seed, np.float64, n_vocab=5) for seed in (1, 2))
    prompts, wrong = [[1, 2, 3], [4], [2, 2], [3] * 6], mutant(batch, *changes).batch_sampling
    K = 0 if "logits" in changes[0][0] else 2
    expected = [alone(draft, target, prompt, 12, K, i) for i, prompt in enumerate(prompts)]
    assert together(draft, target, prompts, 12, K) == expected
    assert together(draft, target, prompts, 12, K, sampler=wrong) != expected


def test_slots_are_gpt2s_that_can_be_asked_alone():
    model = tiny_gpt2(2, np.float64, n_vocab=5)
    slots = Slots(model, [10, 12])
    assert type(slots[1]) is GPT2 and slots[1].params is model.params
    both = slots({0: [1, 2], 1: [3]}, {0: 1, 1: 1})
    assert np.abs(both[0] - model([1, 2])).max() < 1e-12
    assert np.abs(slots[1]([3, 4], 2) - model([3, 4], 2)).max() < 1e-12  # goes on from the batch's keys
