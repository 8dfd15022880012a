"""Random models of GPT-2's shapes, to time full sizes without a download: what weights say takes no time.

    random_model("355M")                a model that computes as long as the real one
    synthetic_pair("355M", 2, 0.3)      a draft that is the first 2 layers of its target, and a dial: how much
                                        the other layers add
    write_folder(folder, "124M")        such a model in OpenAI's layout, to time loading

With the pair speed-ups can be measured at full size for every acceptance rate.  Each layer adds something
to the residual stream, so a factor on what the later ones add decides how far the target moves away from
its draft: at 0 they agree about every token, at 1 hardly ever.  Draft and target share their arrays.

But: the text is noise, and its acceptance rate says nothing about any real pair.  Whatever shows these
models calls them synthetic.
"""
import json
from pathlib import Path

import numpy as np

from encoder import EOS, Encoder, bytes_to_unicode
from gpt2 import GPT2
from loading.checkpoint import write_tensorflow
from loading.folder import shapes
from utils import nested

SIZES = {"tiny": dict(n_vocab=300, n_ctx=128, n_embd=32, n_head=2, n_layer=4),          # for the tests
         "124M": dict(n_vocab=50257, n_ctx=1024, n_embd=768, n_head=12, n_layer=12),
         "355M": dict(n_vocab=50257, n_ctx=1024, n_embd=1024, n_head=16, n_layer=24),
         "774M": dict(n_vocab=50257, n_ctx=1024, n_embd=1280, n_head=20, n_layer=36),
         "1558M": dict(n_vocab=50257, n_ctx=1024, n_embd=1600, n_head=25, n_layer=48)}
EMBEDDING = 0.02        # standard deviation; far below a layer's 1, or each token would follow itself
LOGITS = 4.0            # standard deviation; a few of 50,257 tokens hold most of the probability


def random_arrays(size, n_first=0, dial=1.0):
    """{OpenAI's name: array}, float32; what layers from n_first on add to the residual is times `dial`."""
    hparams, rng, arrays = SIZES[size], np.random.default_rng(0), {}
    for name, shape in shapes(**hparams).items():
        part, last = name.split("/")[1], name.split("/")[-1]    # "model/h11/attn/c_proj/w" -> "h11", "w"
        if last == "b":
            arrays[name] = np.zeros(shape, dtype=np.float32)
        elif last == "g":
            # a logit sums n_embd products of ln_f and wte
            g = LOGITS / (EMBEDDING * hparams["n_embd"] ** 0.5) if part == "ln_f" else 1.0
            arrays[name] = np.full(shape, g, dtype=np.float32)
        else:
            std = shape[0] ** -0.5 if last == "w" else EMBEDDING
            if name.endswith("c_proj/w") and int(part[1:]) >= n_first:
                std *= dial
            array = arrays[name] = rng.random(shape, dtype=np.float32)      # uniform: normal takes longer
            array -= 0.5
            array *= 12 ** 0.5 * std
    return arrays


def random_model(size, n_first=0, dial=1.0):
    hparams = SIZES[size]
    params = nested(random_arrays(size, n_first, dial), hparams, Path(f"a random {size}"))
    return GPT2(params, hparams["n_head"])


def synthetic_pair(size, n_first, dial):
    """(draft, target): the draft is the first n_first layers of the target, with its ln_f and output head."""
    target = random_model(size, n_first, dial)
    first = {**target.params, "blocks": target.params["blocks"][:n_first]}
    return GPT2(first, SIZES[size]["n_head"]), target


def vocabulary(n_vocab):
    """An Encoder of n_vocab tokens: the bytes, pairs of bytes, and the end of the text."""
    signs = list(bytes_to_unicode().values())
    merges = [(a, b) for a in signs for b in signs][:n_vocab - len(signs) - 1]
    tokens = [*signs, *map("".join, merges), EOS]
    return Encoder({token: i for i, token in enumerate(tokens)}, merges)


def write_folder(folder, size):
    """A random model with such a vocabulary."""
    hparams, encoder, folder = SIZES[size], vocabulary(SIZES[size]["n_vocab"]), Path(folder)
    merges = "\n".join(["#version: 0.2", *map(" ".join, encoder.ranks), ""])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hparams.json").write_text(json.dumps(hparams), encoding="utf-8")
    (folder / "encoder.json").write_text(json.dumps(encoder.ids), encoding="utf-8")
    (folder / "vocab.bpe").write_text(merges, encoding="utf-8")
    write_tensorflow(folder / "model.ckpt", random_arrays(size))
