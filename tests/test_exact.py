"""Greedy equality by construction: the logits of a position have the same bits whether it is computed alone
(a decode step) or together with others (a verification, a prompt).

Elsewhere one row goes through `gemv` and K + 1 rows through `gemm`, whose last bits differ.  There are two
ways round that in linear.py.  The second is for machines without the kernel that the first needs, but
it is tested everywhere.
"""
import inspect
import math
import os
from pathlib import Path

import numpy as np
import pytest
from helpers import python

from autoregressive import autoregressive_sampling
from engine.compute import probe
from engine.compute.linear import LARGE, lay_out, row_products
from engine.compute.probe import FEW, TILE, exact_rows
from gpt2 import linear
from lossless.judge import text_of
from speculative import speculative_sampling
from utils import load_model


def same_bits(a, b):
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def decode_and_verify(model, tokens, n_prompt, n_rows):
    """The logits of the text after the prompt, computed one row at a time, and n_rows at a time."""
    model.reset()
    steps = [model(tokens[:n])[0] for n in range(n_prompt, len(tokens) + 1)]
    model.reset()
    model(tokens[: n_prompt + n_rows - 1], n_rows)
    verified = []
    for start in range(n_prompt, len(tokens) - n_rows + 2, n_rows):
        verified.extend(model(tokens[: start + n_rows - 1], n_rows))
    return np.array(steps[: len(verified)]), np.array(verified)


def long(*values):
    """Tuples of parameters, marked as long tests."""
    return [pytest.param(*value, marks=pytest.mark.long) for value in values]


@pytest.mark.parametrize("n_prompt, n_rows", [(1, 2), (16, 5), (17, 16), (200, 5), *long(*(
    (n, k) for n in (2, 15, 33, 64) for k in (3, 9, 16)))])
def test_logits_of_a_verification_are_those_of_single_steps_bit_for_bit(n_prompt, n_rows):
    model, _ = load_model("demo-target")
    tokens = np.random.default_rng(n_prompt).integers(0, 4096, n_prompt + 35).tolist()
    steps, verified = decode_and_verify(model, tokens, n_prompt, n_rows)
    assert len(verified) >= 30 and same_bits(steps, verified)


@pytest.fixture
def exact_if(monkeypatch):
    """Replaces `batch_invariant`, so that it answers as on another machine."""
    def answers(batch_invariant):
        monkeypatch.setattr(probe, "batch_invariant", batch_invariant)
        monkeypatch.setattr(probe, "deepest", inspect.unwrap(probe.deepest))
    return answers


@pytest.fixture(params=["blocks of rows", "as on MKL", "row by row"])
def most_rows(request, exact_if):
    """For each way of linear.py, a function: how many rows are batch-invariant in these products."""
    exact = probe.batch_invariant
    if request.param == "row by row":
        exact_if(lambda *shape: False)
    elif not exact(768, TILE):
        pytest.skip("this BLAS has no kernel for small products whose rows keep their bits")
    elif request.param == "as on MKL":
        exact_if(lambda depth, *rest: depth <= 768 and exact(depth, *rest))
    return lambda *shapes: 40 if all(probe.batch_invariant(*shape) for shape in shapes) else FEW


@pytest.mark.parametrize("n_in, n_out, n_weights", [
    (192, 576, 0), (192, 4096, 0), (96, 97, 0), (768, 2304, LARGE), (768, 2304, LARGE + 1),
    (1600, 96, LARGE + 1), (3072, 768, LARGE + 1), *long((768, 50257, LARGE + 1), (1600, 4800, LARGE + 1))])
def test_rows_of_a_product_do_not_depend_on_their_company(n_in, n_out, n_weights, most_rows):
    rng = np.random.default_rng(0)
    w = rng.standard_normal((n_in, n_out), dtype=np.float32)
    b = rng.standard_normal(n_out, dtype=np.float32)
    tiles = lay_out(w, n_weights)
    most = most_rows(tiles.tiles.shape[-2:])
    x = rng.standard_normal((most, n_in), dtype=np.float32)
    alone = np.concatenate([linear(row[None], tiles, b) for row in x])
    assert np.allclose(alone, x.astype(np.float64) @ w + b, atol=1e-3)
    for n in range(2, most + 1):
        assert same_bits(linear(x[:n], tiles, b), alone[:n]), n


@pytest.mark.parametrize("n_tokens, d_head", [(1, 64), (63, 64), (64, 64), (65, 8), (500, 64), (684, 64),
                                              (1000, 128), (1500, 64)])
def test_rows_of_attention_do_not_depend_on_their_company(n_tokens, d_head, most_rows):
    rng = np.random.default_rng(n_tokens)
    # products with the keys, with the values, and with the rest of the values if there are too many
    width = min(d_head, TILE)
    deepest = probe.deepest(width)
    most = most_rows((d_head, TILE, True), (min(n_tokens, deepest), width), (n_tokens % deepest, width))
    q = rng.standard_normal((3, most, d_head), dtype=np.float32)
    k = rng.standard_normal((3, TILE, d_head), dtype=np.float32).transpose(0, 2, 1)
    p = rng.random((3, most, n_tokens), dtype=np.float32)
    v = rng.standard_normal((3, n_tokens, d_head), dtype=np.float32)
    for a, b in ((q, k), (p, v)):
        alone = np.concatenate([row_products(a[:, i:i + 1], b) for i in range(most)], axis=1)
        assert np.allclose(alone, a.astype(np.float64) @ b, atol=1e-3)
        for n in range(2, most + 1):
            assert same_bits(row_products(a[:, :n], b), alone[:, :n]), n


@pytest.mark.parametrize("fast", [True, False])
def test_bits_are_given_up_only_if_asked(fast, exact_if, monkeypatch):
    exact_if(lambda *shape: False)
    monkeypatch.setattr(probe, "FAST", fast)
    assert exact_rows(192, 64, 512) == (1 if fast else FEW)


@pytest.mark.long
@pytest.mark.parametrize("kernels", ["", "Haswell", "Zen", "Sandybridge", "Nehalem", "SkylakeX"])
def test_rows_do_not_depend_on_their_company_with_other_kernels(kernels):
    """In another process, with these kernels of OpenBLAS and two threads."""
    cpu = Path("/proc/cpuinfo")
    if kernels == "SkylakeX" and cpu.exists() and "avx512f" not in cpu.read_text():
        pytest.skip("this CPU has no AVX-512")
    environment = {**os.environ, "OPENBLAS_CORETYPE": kernels, "OPENBLAS_NUM_THREADS": "2"}
    run = python("-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k",
                 "test_rows_of and do_not_depend_on_their_company", env=environment)
    assert run.returncode == 0 and " passed" in run.stdout, run.stdout


@pytest.mark.parametrize("lost, rows", [
    ([], math.inf), ([(800, 64)], math.inf), ([(1280, 64), (1280, 32)], math.inf),      # others will do
    ([(depth, 32) for depth in (800, 400, 320)], FEW), ([(80, 64, True)], FEW), ([(64, 64)], FEW),
    ([(64, 16)], FEW), ([(960, 64)], FEW), ([(1024, 16)], FEW)])
def test_one_product_that_loses_the_bits_ends_the_promise_for_its_model(lost, rows, exact_if):
    asked = []
    exact_if(lambda *shape: asked.append(shape) or shape not in lost)
    assert exact_rows(1600, 80, 1000) == rows and set(lost) <= set(asked)


@pytest.mark.parametrize("K, n_prompt", [(4, 14), (8, 1)])
def test_greedy_texts_are_the_same_token_for_token(K, n_prompt):
    """For 2,000 tokens of every method: the long test in test_table.py."""
    draft, target = (load_model(name)[0] for name in ("demo-draft", "demo-target"))
    tokens, rng = np.random.default_rng(K).integers(0, 4096, n_prompt).tolist(), np.random.default_rng(0)
    baseline = text_of(autoregressive_sampling(target, tokens, 60, rng, temperature=0))
    target.reset()
    assert text_of(speculative_sampling(draft, target, tokens, 60, K, rng, temperature=0)) == baseline
