"""Models with GPT-2's shapes and random weights, to time full sizes without a download.

    random_model("355M")                a pass takes as long as the real model's

Limitations: their text is noise.
"""
import numpy as np

from engine.loading.folder import list_shapes
from gpt2 import GPT2
from utils import nest

SIZES = {"tiny": dict(n_vocab=300, n_ctx=256, n_embd=32, n_head=2, n_layer=4),          # for the tests
         "124M": dict(n_vocab=50257, n_ctx=1024, n_embd=768, n_head=12, n_layer=12),
         "355M": dict(n_vocab=50257, n_ctx=1024, n_embd=1024, n_head=16, n_layer=24)}


def random_arrays(size):
    """{OpenAI's name: array}, float32, similar to an initialization: gains near 1, all else near 0."""
    rng = np.random.default_rng(0)
    # uniform, because normal takes longer
    return {name: (rng.random(shape, dtype=np.float32) - 0.5) / 16 + name.endswith("/g")
            for name, shape in list_shapes(**SIZES[size]).items()}


def random_model(size):
    return GPT2(nest(random_arrays(size), SIZES[size]["n_layer"]), SIZES[size]["n_head"])
