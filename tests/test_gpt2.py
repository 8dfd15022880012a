"""The forward pass agrees with transformers' GPT-2, and the cache changes nothing but the cost."""
import numpy as np
import pytest
from helpers import HUGGINGFACE, counted, tiny_gpt2, without_cache
from hypothesis import given, settings
from hypothesis import strategies as st

import gpt2
from engine.loading.folder import read_folder
from methods.samplers.tree_model import with_tree
from utils import nest

TOKENS = [int(token) for token in np.random.default_rng(0).integers(13, size=80)]  # fills the context


@pytest.mark.parametrize("dtype, error", [(np.float32, 1e-4), (np.float64, 1e-6)])
def test_logits_equal_those_of_transformers(dtype, error):
    """Apart from rounding, the formulas are the same (fixtures/README.md)."""
    values, arrays = np.load(HUGGINGFACE / "values.npz"), read_folder(HUGGINGFACE)[1]
    params = nest({name: array.astype(dtype) for name, array in arrays.items()}, n_layer=2)
    logits = gpt2.GPT2(params, n_head=2)(values["tokens"].tolist(), n_last=8)
    assert np.abs(logits - values["logits"]).max() < error


# The cache -----------------------------------------------------------------------------------------

ids = st.integers(0, 12)
calls = st.lists(st.tuples(st.integers(-8, 80), st.lists(ids, max_size=30), st.integers(1, 8)), max_size=12)


@given(calls)
@settings(max_examples=40)
def test_logits_do_not_depend_on_earlier_calls(calls):
    """A call (keep, new, n_last) asks for the logits of tokens[:keep] + new, with the last call's tokens."""
    model, uncached = tiny_gpt2(dtype=np.float64), without_cache(tiny_gpt2(dtype=np.float64))
    tokens = [0]
    for keep, new, n_last in calls:
        tokens = ((tokens[:keep] + list(new)) or [0])[: model.n_ctx]
        n_last = min(n_last, len(tokens))
        assert np.abs(model(tokens, n_last) - uncached(tokens, n_last)).max() < 1e-11


@pytest.mark.parametrize("limit, first, second", [(16, [16, 1], [28, 5]), (np.inf, [17], [33])])
def test_only_tokens_that_are_new_are_run(limit, first, second):
    """In one pass, unless there are more rows than are batch-invariant, or than a chunk has: then the prompt
    runs first, and the rows that are asked for after it."""
    model = counted(tiny_gpt2(n_layer=1))
    model.exact_rows = limit
    for name, tokens, n_last, expected in [
            ("prompt", TOKENS[:6], 1, [6]), ("step", TOKENS[:7], 1, [1]),
            ("verification", TOKENS[:11], 5, [5]), ("rejection", TOKENS[:9] + [12], 1, [1]),
            ("the same again", TOKENS[:9] + [12], 1, [1]), ("a shorter text", TOKENS[:8], 1, [1]),
            ("another text", TOKENS[:3] + TOKENS[:3], 1, [3]),
            ("16 more", TOKENS[:3] + TOKENS[:19], 1, [16]), ("two more", TOKENS[:3] + TOKENS[:21], 1, [2]),
            ("long prompt", TOKENS[5:22], 1, first), ("and drafts", TOKENS[40:73], 5, second)]:
        model.rows.clear()
        model(tokens, n_last)
        assert model.rows == expected, name


def test_what_is_behind_the_mask_adds_nothing_however_large_the_scores():
    for model in tiny_gpt2(), with_tree(tiny_gpt2()):
        for block in model.params["blocks"]:
            block["attn"]["c_attn"]["w"].tiles *= np.float32(1e6)
        expected = model(TOKENS[:3])
        model(TOKENS)
        assert np.allclose(model(TOKENS[:3]), expected, atol=1e-5)
    model(TOKENS)                                               # the same for a tree
    assert np.allclose(model.tree(TOKENS[:3], [], []), expected, atol=1e-5)


# The contract -----------------------------------------------------------------------------------------------


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
