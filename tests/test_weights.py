"""GPT-2 itself: results that other projects published about its weights, and speculation between two sizes.

    python -m engine.loading.download 124M     or 355M, distilgpt2: tests of models not in models/ are skipped
    python -m pytest -n 0 -rs -s tests/test_weights.py

On a machine with a GPU and CuPy, the last test compares the two backends.
"""
import json
from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest
from helpers import ROOT, python

from autoregressive import autoregressive_sampling
from engine.loading.download import MODELS, missing
from lossless.judge import text_of
from utils import load_model

HERE = [name for name in MODELS if not missing(name, ROOT / "models" / name)]


def needs(*names):
    absent = [name for name in names if name not in HERE]
    download = " and ".join(f"python -m engine.loading.download {name}" for name in absent)
    return pytest.mark.skipif(bool(absent), reason=f"the weights are not in models/: {download}")


@cache
def loaded(name):
    return load_model(name, ROOT / "models")


def printed(*flags):
    """The object that python -m methods --json prints at temperature 0."""
    done = python("-m", "methods", "--json", "--temperature", "0", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name, prompt, text", [
    pytest.param("124M", [464, 3290], [
        373, 1043, 287, 257, 2214, 1474, 262, 16246, 286, 2688, 290, 2688, 27262, 13, 198, 198, 464, 3290],
        marks=needs("124M"), id="124M"),
    pytest.param("distilgpt2", [464, 1893], [
        286, 262, 1578, 1829, 11, 290, 262, 1893, 286, 262, 1578, 7526, 11, 423, 587, 287, 262, 2635],
        marks=needs("distilgpt2"), id="distilgpt2")])
def test_greedy_texts_are_those_of_transformers(name, prompt, text):
    """huggingface/transformers, test_lm_generate_gpt2 and (older) test_lm_generate_distilgpt2."""
    model, encoder = loaded(name)
    rounds = autoregressive_sampling(model, prompt, len(text), np.random.default_rng(0), temperature=0)
    assert list(text_of(rounds)) == text
    assert encoder.encode(encoder.decode(prompt + text)) == prompt + text


@needs("124M")
@pytest.mark.parametrize("prompt, best, word, logit, p", [
    ([6601, 32704, 795, 30132, 2985, 284], 38350, " visualize", -135.9132, .1578),
    ([8001, 9542, 9345, 318, 25449, 262], 835, " way", -100.8785, .2457),
    ([1722, 262, 40663, 373, 13885, 262], 5440, " planet", -92.8636, .1293),
    ([2202, 262, 36043, 5440, 484, 5071, 257], 6283, " strange", -89.0186, .0347),
    ([40, 31909, 50035, 4495, 11330, 262], 6817, " importance", -93.2510, .0501)])
def test_last_logits_are_those_of_transformer_explainer(prompt, best, word, logit, p):
    """poloclub/transformer-explainer @ 6e2ec37, src/constants/examples/ex0..4.js."""
    model, encoder = loaded("124M")
    logits = np.asarray(model(prompt)[0], np.float64)
    assert int(logits.argmax()) == best and encoder.decode([best]) == word
    assert logits[best] == pytest.approx(logit, abs=.02)
    assert 1 / np.exp(logits - logits[best]).sum() == pytest.approx(p, abs=1e-3)


@needs("124M", "355M")
def test_speculation_between_two_sizes_keeps_the_greedy_text():
    found = printed("--draft_model_size", "124M", "--target_model_size", "355M")
    assert found["same_text"] and found["speculative"]["tokens_per_target_pass"] > 1


@pytest.mark.skipif(not find_spec("cupy"), reason="CuPy and a GPU are not here: pip install -e '.[gpu]'")
@pytest.mark.parametrize("draft, target", [
    ("demo-draft", "demo-target"), pytest.param("124M", "355M", marks=needs("124M", "355M"))])
def test_on_a_gpu_the_greedy_text_is_that_of_the_cpu(draft, target):
    models = "--draft_model_size", draft, "--target_model_size", target
    found = [printed("--backend", backend, *models) for backend in ("numpy", "cupy")]
    texts = {run[kind]["text"] for run in found for kind in ("autoregressive", "speculative")}
    assert len(texts) == 1, found                               # the speeds are in the report of a failure
