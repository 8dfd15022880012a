"""Greedy equality by construction: a position has the same bits alone (a decode step) and in company (a verification, a prompt).

Elsewhere one row goes through `gemv` and K + 1 rows through `gemm`, whose last bits differ.  linear.py has two ways round that; the second
one, for machines without the kernel of the first, is tested everywhere.
"""
import numpy as np
import pytest

import linear as linear_module
from autoregressive import autoregressive_sampling
from linear import DEPTH, FEW, ROWS, TILE, lay_out, linear, row_products
from speculative import speculative_sampling
from synthetic import synthetic_pair
from utils import load_model


def same_bits(a, b):
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def decode_and_verify(model, tokens, n_prompt, n_rows):
    """The logits after the prompt, one by one, and n_rows at a time."""
    model.reset()
    steps = [model(tokens[:n])[0] for n in range(n_prompt, len(tokens) + 1)]
    model.reset()
    model(tokens[: n_prompt + n_rows - 1], n_rows)
    verified = []
    for start in range(n_prompt, len(tokens) - n_rows + 2, n_rows):
        verified.extend(model(tokens[: start + n_rows - 1], n_rows))
    return np.array(steps[: len(verified)]), np.array(verified)


@pytest.mark.parametrize("n_rows", [2, 3, 5, 9, 16])
@pytest.mark.parametrize("n_prompt", [1, 2, 12, 15, 16, 17, 18, 33, 60, 64, 65, 200])
def test_logits_of_a_verification_are_those_of_single_steps_bit_for_bit(n_prompt, n_rows):
    model, _ = load_model("demo-target")
    tokens = np.random.default_rng(n_prompt).integers(0, 4096, n_prompt + 35).tolist()
    steps, verified = decode_and_verify(model, tokens, n_prompt, n_rows)
    assert len(verified) >= 30 and same_bits(steps, verified)


@pytest.fixture(params=["blocks of rows", "row by row"])
def most_rows(request, monkeypatch):
    """Both ways of linear.py -> how many rows keep their bits."""
    if request.param == "row by row":
        monkeypatch.setattr(linear_module, "exact", lambda: False)
    elif not linear_module.exact():
        pytest.skip("this BLAS has no kernel for small products whose rows keep their bits")
    return 40 if request.param == "blocks of rows" else FEW


@pytest.mark.parametrize("n_in, n_out", [(192, 576), (192, 4096), (768, 2304), (768, 768), (3072, 768), (768, 50257), (1600, 4800), (96, 97)])
def test_rows_of_a_product_do_not_depend_on_their_company(n_in, n_out, most_rows):
    rng = np.random.default_rng(0)
    w = rng.standard_normal((n_in, n_out), dtype=np.float32)
    b = rng.standard_normal(n_out, dtype=np.float32)
    x = rng.standard_normal((most_rows, n_in), dtype=np.float32)
    tiles = lay_out(w)
    alone = np.concatenate([linear(row[None], tiles, b) for row in x])
    assert np.allclose(alone, x.astype(np.float64) @ w + b, atol=1e-3)
    for n in range(2, most_rows + 1):
        assert same_bits(linear(x[:n], tiles, b), alone[:n]), n


def test_the_shapes_above_cover_every_way_to_cut():
    assert 768 < DEPTH < 1600 and 3072 > 2 * DEPTH and 576 % TILE == 0 and 50257 % TILE and 97 % TILE and 40 > 3 * ROWS
    small, large = lay_out(np.zeros((192, 576), np.float32)), lay_out(np.zeros((768, 2304), np.float32))
    assert small.size < linear_module.SHARE < large.size


@pytest.mark.parametrize("n_tokens", [1, 63, 64, 65, 500])
def test_rows_of_attention_do_not_depend_on_their_company(n_tokens, most_rows):
    rng = np.random.default_rng(n_tokens)
    q, k = rng.standard_normal((3, most_rows, 64), dtype=np.float32), rng.standard_normal((3, 64, TILE), dtype=np.float32)
    p, v = rng.random((3, most_rows, n_tokens), dtype=np.float32), rng.standard_normal((3, n_tokens, 64), dtype=np.float32)
    k = k.transpose(0, 2, 1)
    for a, b in ((q, k), (p, v)):
        alone = np.concatenate([row_products(a[:, i:i + 1], b) for i in range(most_rows)], axis=1)
        assert np.allclose(alone, a.astype(np.float64) @ b, atol=1e-3)
        for n in range(2, most_rows + 1):
            assert same_bits(row_products(a[:, :n], b), alone[:, :n]), n


def test_plain_products_would_not_do():
    """The wrong version: `x @ w + b`, where one row is a `gemv` and five are a `gemm`."""
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((768, 2304), dtype=np.float32), rng.standard_normal((5, 768), dtype=np.float32)
    b = np.zeros(2304, np.float32)
    if same_bits(x @ w, np.concatenate([row[None] @ w for row in x])):
        pytest.skip("this BLAS gives the same bits for one row and for five")
    assert not same_bits(linear(x, w, b), np.concatenate([linear(row[None], w, b) for row in x]))
    assert same_bits(linear(x, lay_out(w), b), np.concatenate([linear(row[None], lay_out(w), b) for row in x]))


@pytest.mark.parametrize("K", range(1, 9))
def test_greedy_texts_are_the_same_token_for_token(K):
    draft, _ = load_model("demo-draft")
    target, encoder = load_model("demo-target")
    for n_prompt in (1, 5, 14, 17, 40):
        tokens = np.random.default_rng([K, n_prompt]).integers(0, 4096, n_prompt).tolist()
        one = autoregressive_sampling(target, tokens, 60, np.random.default_rng(0), temperature=0)
        one = [token for r in one for token in r.tokens]
        target.reset()
        two = speculative_sampling(draft, target, tokens, 60, K, np.random.default_rng(0), temperature=0)
        assert [token for r in two for token in r.tokens] == one


@pytest.mark.slow
@pytest.mark.parametrize("K", range(1, 9))
def test_20000_greedy_tokens_on_the_embedded_pair_are_the_same(K):
    draft, _ = load_model("demo-draft")
    target, _ = load_model("demo-target")
    for seed in range(6):                                       # 8 K x 6 prompts x 420 tokens
        tokens = np.random.default_rng([K, seed]).integers(0, 4096, 8 + 12 * seed).tolist()
        target.reset()
        one = [t for r in autoregressive_sampling(target, tokens, 420, np.random.default_rng(0), temperature=0) for t in r.tokens]
        target.reset(), draft.reset()
        two = [t for r in speculative_sampling(draft, target, tokens, 420, K, np.random.default_rng(0), temperature=0) for t in r.tokens]
        assert one == two


@pytest.mark.slow
def test_1000_greedy_tokens_on_a_random_124M_shaped_pair_are_the_same():
    draft, target = synthetic_pair("124M", 2, .3)
    for K in range(1, 9):
        tokens = np.random.default_rng(K).integers(0, 50257, 10 + 5 * K).tolist()
        target.reset(), draft.reset()
        one = [t for r in autoregressive_sampling(target, tokens, 125, np.random.default_rng(0), temperature=0) for t in r.tokens]
        target.reset()
        two = [t for r in speculative_sampling(draft, target, tokens, 125, K, np.random.default_rng(0), temperature=0) for t in r.tokens]
        assert one == two
