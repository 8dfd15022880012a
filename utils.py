"""A model's name or folder -> a ready model and its encoder.

A checkpoint is a flat dict of names such as "model/h0/attn/c_attn/w"; the forward pass wants it nested and applies each part with `**`:

    {"wte": .., "wpe": .., "ln_f": {"g": .., "b": ..},
     "blocks": [{"ln_1": {"g", "b"}, "attn": {"c_attn": {"w", "b"}, "c_proj": {"w", "b"}}, "ln_2": .., "mlp": ..}, ..]}
"""
import json
from pathlib import Path

import numpy as np
from tqdm import tqdm

from compute.backend import xp
from loading.checkpoint import openai_names, read_safetensors, read_tensorflow, release
from loading.download import MODELS, download
from encoder import load_encoder
from gpt2 import GPT2
from compute.linear import lay_out

EMBEDDED = ("demo-draft", "demo-target")                        # they come with the repository, in models/ beside this file


def load_model(name_or_folder, models_dir="models"):
    """Returns (model, encoder).

    name_or_folder  "124M" "355M" "774M" "1558M" "distilgpt2", kept in models_dir and downloaded when they are not there;
                    "demo-draft" "demo-target"; or a folder in OpenAI's or Hugging Face's layout
    Raises ValueError in one sentence for an unknown model, or for files that are missing, damaged or do not fit together.
    """
    name = str(name_or_folder)
    if name in EMBEDDED:
        folder = Path(__file__).resolve().parent / "models" / name
    elif name in MODELS:
        folder = download(name, models_dir)
    else:
        folder = Path(name)
        if not folder.is_dir():
            raise ValueError(f"there is no model or folder {name!r}: use one of {', '.join([*MODELS, *EMBEDDED])}, "
                             "or a folder with a GPT-2 checkpoint")
    hparams, arrays = read_folder(folder)
    encoder = load_encoder(folder)
    if encoder.n_vocab != hparams["n_vocab"]:
        raise ValueError(f"{folder}: the vocabulary has {encoder.n_vocab} tokens and the model {hparams['n_vocab']}: "
                         "these files do not belong together")
    return GPT2(nested(arrays, hparams, folder), hparams["n_head"]), encoder


def read_folder(folder):
    """(hparams, arrays under OpenAI's names) of a folder in OpenAI's or Hugging Face's layout."""
    try:
        if (folder / "hparams.json").exists():
            hparams = json.loads((folder / "hparams.json").read_text(encoding="utf-8"))
            arrays = read_tensorflow(folder / "model.ckpt")
        elif (folder / "config.json").exists():
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            hparams = {"n_vocab": config.get("vocab_size"), "n_ctx": config.get("n_positions"),
                       **{key: config.get(key) for key in ("n_embd", "n_head", "n_layer")}}
            arrays = openai_names(read_safetensors(folder / "model.safetensors"))
        else:
            raise ValueError("there is neither hparams.json (OpenAI) nor config.json (Hugging Face)")
        for key in ("n_vocab", "n_ctx", "n_embd", "n_head", "n_layer"):
            if type(hparams.get(key)) is not int or hparams[key] < 1:
                raise ValueError(f"{key} is {hparams.get(key)!r}, which is no size")
        if hparams["n_embd"] % hparams["n_head"]:
            raise ValueError(f"n_embd {hparams['n_embd']} does not divide into {hparams['n_head']} heads")
    except (ValueError, AttributeError, OSError) as error:
        raise ValueError(f"{folder} is not a usable GPT-2 folder: {error}") from None
    return hparams, arrays


def shapes(n_vocab, n_ctx, n_embd, n_layer, **_):
    """The shape of every parameter, by OpenAI's name."""
    n = n_embd
    block = {"ln_1/g": (n,), "ln_1/b": (n,), "attn/c_attn/w": (n, 3 * n), "attn/c_attn/b": (3 * n,), "attn/c_proj/w": (n, n),
             "attn/c_proj/b": (n,), "ln_2/g": (n,), "ln_2/b": (n,), "mlp/c_fc/w": (n, 4 * n), "mlp/c_fc/b": (4 * n,),
             "mlp/c_proj/w": (4 * n, n), "mlp/c_proj/b": (n,)}
    return {"model/wte": (n_vocab, n), "model/wpe": (n_ctx, n), "model/ln_f/g": (n,), "model/ln_f/b": (n,),
            **{f"model/h{i}/{name}": shape for i in range(n_layer) for name, shape in block.items()}}


def nested(arrays, hparams, folder):
    """Flat arrays -> nested float32 parameters, after a check of every shape."""
    params = {"blocks": [{} for _ in range(hparams["n_layer"])]}
    for name, shape in tqdm(shapes(**hparams).items(), desc=f"Loading {folder.name}", leave=False, disable=None):
        if name not in arrays:
            raise ValueError(f"{folder}: {name} is missing from the checkpoint")
        mapped = arrays[name]
        if mapped.shape not in (shape, (1, *shape)):            # OpenAI keeps its matrices as convolutions, [1, n_in, n_out]
            raise ValueError(f"{folder}: {name} has the shape {mapped.shape}, and hparams say {shape}")
        *path, last = name.removeprefix("model/").split("/")
        place = params
        for part in path:
            place = params["blocks"][int(part[1:])] if part[0] == "h" else place.setdefault(part, {})
        array = xp.asarray(mapped.reshape(shape), dtype=xp.float32)
        place[last] = lay_out(array) if last == "w" else array
        if last == "wte":
            params["head"] = lay_out(array.T)                   # the output head: the same weights, transposed
        release(mapped)                                         # what was read; wte's rows come back from the file when they are asked for
    return params
