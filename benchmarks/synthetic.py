"""Models of GPT-2's shapes with random weights, to time full sizes without a download.

    random_model("355M")                a pass takes as long as the real model's

Limitations: they write noise.
"""

import numpy as np

from encoder import EOS, Encoder, bytes_to_unicode
from gpt2 import GPT2
from loading.folder import list_shapes
from utils import nest

SIZES = {"tiny": dict(n_vocab=300, n_ctx=256, n_embd=32, n_head=2, n_layer=4),          # for the tests
         "124M": dict(n_vocab=50257, n_ctx=1024, n_embd=768, n_head=12, n_layer=12),
         "355M": dict(n_vocab=50257, n_ctx=1024, n_embd=1024, n_head=16, n_layer=24)}
EMBEDDING = 0.02        # standard deviation; if it were 1, tokens would predict themselves
LOGITS = 4.0            # standard deviation; a few of 50,257 tokens hold most of the probability


def random_arrays(size):
    """{OpenAI's name: array}, float32."""
    hparams, rng, arrays = SIZES[size], np.random.default_rng(0), {}
    for name, shape in list_shapes(**hparams).items():
        part, last = name.split("/")[1], name.split("/")[-1]    # "model/h11/attn/c_proj/w" -> "h11", "w"
        if last == "b":
            arrays[name] = np.zeros(shape, dtype=np.float32)
        elif last == "g":
            # a logit sums n_embd products of ln_f and wte
            g = LOGITS / (EMBEDDING * hparams["n_embd"] ** 0.5) if part == "ln_f" else 1.0
            arrays[name] = np.full(shape, g, dtype=np.float32)
        else:
            std = shape[0] ** -0.5 if last == "w" else EMBEDDING
            array = arrays[name] = rng.random(shape, dtype=np.float32)      # uniform: normal takes longer
            array -= 0.5
            array *= 12 ** 0.5 * std
    return arrays


def random_model(size):
    return GPT2(nest(random_arrays(size), SIZES[size]["n_layer"]), SIZES[size]["n_head"])


def vocabulary(n_vocab):
    """An Encoder of n_vocab tokens: the bytes, pairs of bytes, and the end of the text."""
    signs = list(bytes_to_unicode().values())
    merges = [(a, b) for a in signs for b in signs][:n_vocab - len(signs) - 1]
    tokens = [*signs, *map("".join, merges), EOS]
    return Encoder({token: i for i, token in enumerate(tokens)}, merges)
