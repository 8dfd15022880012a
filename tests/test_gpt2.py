"""The forward pass against transformers' GPT-2, and the cache against no cache."""

import copy
import pickle

import numpy as np
import pytest
from helpers import error_of_cache, error_of_logits, mutant, tiny_gpt2, without_cache
from hypothesis import given, settings
from hypothesis import strategies as st

import compute.threads
import gpt2
from drafters.layer_skip import LayerSkip
from samplers.tree_model import with_tree

TOKENS = [int(token) for token in np.random.default_rng(0).integers(13, size=80)]  # as many as fit


def every_array(x):
    """The arrays in nested arguments or results."""
    if isinstance(x, np.ndarray):
        yield x
    elif isinstance(x, (tuple, list, dict)):
        for part in x.values() if isinstance(x, dict) else x:
            yield from every_array(part)


def test_logits_equal_those_of_transformers():
    assert error_of_logits(dtype=np.float32) < 1e-4
    assert error_of_logits(dtype=np.float64) < 1e-6  # without the rounding, the formulas are the same


def test_a_softmax_of_large_scores_does_not_overflow():
    assert gpt2.softmax(np.float32([[300, 300, -1e10]])).tolist() == [[0.5, 0.5, 0]]


# The cache (T7, T8) -----------------------------------------------------------------------------------------

ids = st.integers(0, 12)
calls = st.lists(st.tuples(st.integers(-8, 80), st.lists(ids, max_size=30), st.integers(1, 8)), max_size=12)


@given(calls)
@settings(max_examples=40)
def test_logits_do_not_depend_on_earlier_calls(calls):
    assert error_of_cache(calls) < 1e-11


@given(calls)
@settings(max_examples=20)
def test_float32_logits_do_not_depend_on_earlier_calls_but_for_rounding(calls):
    assert error_of_cache(calls, dtype=np.float32) < 2e-5


@pytest.mark.parametrize("n", [2, 5, 17, 18, 40, 80])
def test_a_text_may_be_split_anywhere(n):
    whole = tiny_gpt2(dtype=np.float64)(TOKENS[:n], n)
    for split in range(1, n):
        model = tiny_gpt2(dtype=np.float64)
        halves = np.concatenate([model(TOKENS[:split], split), model(TOKENS[:n], n - split)])
        assert np.abs(halves - whole).max() < 1e-12


def test_the_draft_has_no_hole_after_full_acceptance_and_full_rejection():
    """Drafts d, e, f of x: the draft model never saw f.  All are accepted, then three others all refused."""
    x, d, e, f, bonus, correction = TOKENS[:5], 1, 2, 3, 4, 5
    y = x + [d, e, f, bonus]
    prompts = [x, x + [d], x + [d, e], y, y + [d], y + [d, e], y + [correction], y + [correction, d]]
    draft, uncached = tiny_gpt2(dtype=np.float64), without_cache(tiny_gpt2(dtype=np.float64))
    for tokens in prompts:
        assert np.abs(draft(tokens) - uncached(tokens)).max() < 1e-12


@pytest.mark.parametrize("limit, first, second", [(16, [16, 1], [28, 5]), (np.inf, [17], [33])])
def test_only_tokens_that_are_new_are_run(limit, first, second, monkeypatch):
    """In one pass, but for a prompt and what is asked after it if they are more rows than keep their bits, or
    more than a chunk."""
    monkeypatch.setattr(gpt2, "exact_rows", lambda *sizes: limit)
    rows = []
    block = gpt2.transformer_block
    monkeypatch.setattr(gpt2, "transformer_block", lambda x, **rest: rows.append(len(x)) or block(x, **rest))
    model = tiny_gpt2(n_layer=1)
    for name, tokens, n_last, expected in [
            ("prompt", TOKENS[:6], 1, [6]), ("step", TOKENS[:7], 1, [1]),
            ("verification", TOKENS[:11], 5, [5]), ("rejection", TOKENS[:9] + [12], 1, [1]),
            ("the same again", TOKENS[:9] + [12], 1, [1]), ("a shorter text", TOKENS[:8], 1, [1]),
            ("another text", TOKENS[:3] + TOKENS[:3], 1, [3]),
            ("16 more", TOKENS[:3] + TOKENS[:19], 1, [16]), ("two more", TOKENS[:3] + TOKENS[:21], 1, [2]),
            ("long prompt", TOKENS[5:22], 1, first), ("and drafts", TOKENS[40:73], 5, second)]:
        rows.clear()
        model(tokens, n_last)
        assert rows == expected, name


@pytest.mark.parametrize("n_past, n, s", [(0, 1, 64), (63, 1, 64), (63, 2, 128), (128, 5, 192)])
def test_attention_looks_at_the_blocks_of_keys_that_are_in_use(n_past, n, s):
    visible = gpt2.causal_mask(n_past, n) == 0
    assert visible.shape == (n, s) and visible.sum(axis=1).tolist() == list(range(n_past + 1, n_past + n + 1))


@pytest.mark.parametrize("kept, tokens", [
    ([], TOKENS[:30]), (TOKENS[:9], TOKENS[:9] + [1, 2]), (TOKENS[:9], TOKENS[:4] + [1, 2])],
    ids=["prompt", "step", "rollback"])
@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("again", [lambda kept, tokens: tokens, lambda kept, tokens: kept + [3],
                                   lambda kept, tokens: tokens[:5]], ids=["the same", "another", "fewer"])
def test_a_call_that_is_interrupted_leaves_a_model_that_works(monkeypatch, kept, tokens, layer, again):
    model, uncached = tiny_gpt2(dtype=np.float64), without_cache(tiny_gpt2(dtype=np.float64))
    if kept:
        model(kept)
    block, blocks_run = gpt2.transformer_block, []

    def interrupted(x, **rest):
        if len(blocks_run) == layer:
            raise KeyboardInterrupt
        blocks_run.append(1)
        return block(x, **rest)

    monkeypatch.setattr(gpt2, "transformer_block", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model(tokens)
    monkeypatch.undo()
    assert np.abs(model(again(kept, tokens)) - uncached(again(kept, tokens))).max() < 1e-12


def test_ids_are_numbers_whatever_they_come_as():
    token, expected = np.array(3), tiny_gpt2()([1, 5, 2])
    for model in tiny_gpt2(), with_tree(tiny_gpt2()):
        for first in [1, token], [True, token], iter([1, token]):
            model.reset()
            model(first)
            token[...] = 5                                      # the cache knows it as 3
            assert np.allclose(model([1, 5, 2]), expected, atol=1e-5)
            token[...] = 3


def test_what_is_behind_the_mask_adds_nothing_however_large_the_scores():
    for model in tiny_gpt2(), with_tree(tiny_gpt2()):
        for block in model.params["blocks"]:
            block["attn"]["c_attn"]["w"] *= np.float32(1e6)
        expected = model(TOKENS[:3])
        model(TOKENS)
        assert np.allclose(model(TOKENS[:3]), expected, atol=1e-5)
    model(TOKENS)                                               # and of a tree
    assert np.allclose(model.tree(TOKENS[:3], [], []), expected, atol=1e-5)


@pytest.mark.parametrize("how", ["copy", "deepcopy", "pickle"])
@pytest.mark.parametrize("model", [tiny_gpt2(dtype=np.float64), with_tree(tiny_gpt2(dtype=np.float64))])
def test_a_copy_of_a_model_has_a_cache_of_its_own(how, model):
    """It is empty: while an array is copied, another thread may change the next."""
    expected = model(TOKENS[:9])
    if hasattr(model, "tree"):
        model.tree(TOKENS[:9], [1], [-1])
    twin = pickle.loads(pickle.dumps(model)) if how == "pickle" else getattr(copy, how)(model)
    assert (twin.params is model.params) == (how == "copy")
    assert twin.cached == getattr(twin, "nodes", []) == [] and len(model.cached) == 9
    model(TOKENS[:8] + [1]), twin(TOKENS[20:40])
    for one in model, twin:
        assert np.abs(one(TOKENS[:9]) - expected).max() < 1e-12


# A long prompt: chunks in a wave of threads -----------------------------------------------------------------

@pytest.fixture
def wave_of(monkeypatch):
    """Long prompts go in chunks of at most so many tokens, by so many threads."""
    def use(chunk, n_threads):
        monkeypatch.setattr(gpt2, "CHUNK", chunk)
        monkeypatch.setattr(compute.threads, "THREADS", n_threads)
    return use


def skipping(model):
    return LayerSkip(model, attn=[1], mlp=[2]).draft


# The contract (T10, T18) ------------------------------------------------------------------------------------


def test_every_intermediate_is_float32(monkeypatch):
    seen = set()

    def watched(name, function):
        def call(*args, **kwargs):
            result = function(*args, **kwargs)
            seen.update((name, array.dtype) for array in every_array([args, kwargs, result]))
            return result

        return call

    names = ("gelu softmax layer_norm feed_forward attention causal_mask transformer_block linear "
             "row_products").split()
    for name in names:
        monkeypatch.setattr(gpt2, name, watched(name, getattr(gpt2, name)))
    model = tiny_gpt2()
    for tokens, n_last in [(TOKENS[:30], 1), (TOKENS[:31], 1), (TOKENS[:35], 4)]:
        assert model(tokens, n_last).dtype == np.float32
    assert seen == {(name, np.dtype(np.float32)) for name in names}


@pytest.mark.parametrize("n_last", [1, 2, 20, 40, np.uint8(3)])
def test_n_last_gives_the_last_rows(n_last):
    rows = tiny_gpt2(dtype=np.float64)(TOKENS[:40], 40)
    logits = tiny_gpt2(dtype=np.float64)(TOKENS[:40], n_last)
    assert logits.shape == (n_last, 13)
    assert np.abs(logits - rows[40 - n_last:]).max() < 1e-12


@pytest.mark.parametrize("tokens, n_last", [
    ([13], 1), ([0, 1, -5], 1), (TOKENS + [0], 1), ([], 1), ([], 0), ([1, 2], 0), ([1, 2], -1), ([1, 2], 3)],
    ids=str)
def test_bad_calls_are_value_errors_and_harm_nothing(tokens, n_last):
    model = tiny_gpt2()
    before = model([0, 1, 2])
    with pytest.raises(ValueError, match="token"):
        model(tokens, n_last)
    assert np.abs(model([0, 1, 2]) - before).max() < 1e-5


def test_ids_may_be_numpy_integers_and_not_floats():
    assert np.array_equal(tiny_gpt2()(np.array(TOKENS[:5])), tiny_gpt2()(TOKENS[:5]))
    with pytest.raises(TypeError):
        tiny_gpt2()([1.0])


def test_the_callers_tokens_and_earlier_logits_are_not_changed():
    model, tokens = tiny_gpt2(), TOKENS[:8]
    first = model(tokens, 3)
    copy = first.copy()
    model(tokens + [5], 3)
    model([1, 2, 3], 3)
    assert tokens == TOKENS[:8] and np.array_equal(first, copy)


def test_the_cache_keeps_a_list_of_its_own():
    model, tokens = tiny_gpt2(), TOKENS[:8]
    model(tokens)
    tokens[2] = (tokens[2] + 1) % 13
    assert np.abs(model(tokens) - tiny_gpt2()(tokens)).max() < 1e-5


# Mistakes ---------------------------------------------------------------------------------------------------

N_PAST = "n_past = min(common_prefix(tokens, self.cached), n_prompt)"
NO_ASSERT = ("assert tokens[:n_past] == self.cached[:n_past]", "pass")

VISIBLE = "xp.arange(n_past, n_past + n)[:, None]"

WRONG_CACHE = {
    "rejected keys and values stay in the cache": [
        (N_PAST, "n_past = min(len(self.cached), n_prompt)"), NO_ASSERT],
    "an accepted draft that was never fed is skipped": [
        (N_PAST, "n_past = n_prompt if self.cached else 0"), NO_ASSERT],
    "the cache is believed to be one longer": [
        ("common_prefix(tokens, self.cached),", "common_prefix(tokens, self.cached) + 1,"), NO_ASSERT],
    "positions are counted from the first new token": [('["wpe"][n_past:len(tokens)]', '["wpe"][:len(new)]')],
    "the mask is counted from the first new token": [(VISIBLE, "xp.arange(n)[:, None]")],
}

WRONG_FORWARD = {
    "GELU by the error function": ("(1 + xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))",
                                   "(1 + xp.vectorize(math.erf)(x * math.sqrt(.5)))"),
    "scores are not divided by sqrt(d_head)": ("q = q * (1 / math.sqrt(d_head))", "pass"),
    "scores are divided by sqrt(n_embd)": ("math.sqrt(d_head)", "math.sqrt(n_head * d_head)"),
    "queries and keys are swapped": ("q, k, v = qkv", "k, q, v = qkv"),
    "keys and values are swapped": ("q, k, v = qkv", "q, v, k = qkv"),
    "heads are cut before q, k, v": ("qkv.reshape(n, 3, n_head, d_head)",
                                     "qkv.reshape(n, n_head, 3, d_head).transpose(0, 2, 1, 3)"),
    "a token does not see itself": (VISIBLE, VISIBLE + " - 1"),
    "a token sees the next one": (VISIBLE, VISIBLE + " + 1"),
    "a bias is missing": ("attend(qkv), **c_proj)", "attend(qkv), c_proj['w'], 0 * c_proj['b'])"),
    "the variance is the unbiased one": ("[..., None] / x.shape[-1]", "[..., None] / (x.shape[-1] - 1)"),
    "the layer norm has no bias": ("* g + b", "* g"),
    "the last layer norm is missing": ('linear(layer_norm(x, **self.params["ln_f"]), ', "linear(x, "),
    "the attention's residual is missing": ("x = x + attention(", "x = attention("),
    "the feed-forward's residual is missing": ("return x + feed_forward(", "return feed_forward("),
}


def random_calls():
    rng = np.random.default_rng(0)
    return [(rng.integers(12), rng.integers(13, size=rng.integers(1, 6)).tolist(), rng.integers(1, 4))
            for _ in range(50)]


@pytest.mark.parametrize("changes", WRONG_CACHE.values(), ids=WRONG_CACHE)
def test_a_wrong_cache_is_caught(changes):
    assert error_of_cache(random_calls(), mutant(gpt2, *changes)) > 0.1


@pytest.mark.parametrize("change", WRONG_FORWARD.values(), ids=WRONG_FORWARD)
def test_a_wrong_forward_pass_is_caught(change):
    assert error_of_logits(mutant(gpt2, change)) > 1e-3


def test_the_unchanged_model_passes():
    assert error_of_cache(random_calls(), mutant(gpt2)) < 1e-12
    assert error_of_logits(mutant(gpt2)) < 1e-6
