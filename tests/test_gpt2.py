"""The forward pass agrees with transformers' GPT-2, and the cache changes nothing but the cost."""


import numpy as np
import pytest
from helpers import error_of_cache, error_of_logits, tiny_gpt2
from hypothesis import given, settings
from hypothesis import strategies as st

import gpt2
from methods.samplers.tree_model import with_tree

TOKENS = [int(token) for token in np.random.default_rng(0).integers(13, size=80)]  # fills the context


def test_logits_equal_those_of_transformers():
    assert error_of_logits(dtype=np.float32) < 1e-4
    assert error_of_logits(dtype=np.float64) < 1e-6  # apart from rounding, the formulas are the same


# The cache -----------------------------------------------------------------------------------------

ids = st.integers(0, 12)
calls = st.lists(st.tuples(st.integers(-8, 80), st.lists(ids, max_size=30), st.integers(1, 8)), max_size=12)


@given(calls)
@settings(max_examples=40)
def test_logits_do_not_depend_on_earlier_calls(calls):
    assert error_of_cache(calls) < 1e-11


class Counted(gpt2.GPT2):
    def layers(self, x, *rest):
        rows.append(len(x))
        return super().layers(x, *rest)


rows = []                                                       # the rows of each pass of a Counted


@pytest.mark.parametrize("limit, first, second", [(16, [16, 1], [28, 5]), (np.inf, [17], [33])])
def test_only_tokens_that_are_new_are_run(limit, first, second):
    """In one pass, unless there are more rows than are batch-invariant, or than a chunk has: then the prompt
    runs first, and the rows that are asked for after it."""
    model = Counted(tiny_gpt2(n_layer=1).params, 2)
    model.exact_rows = limit
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
