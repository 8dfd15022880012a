"""A model's name -> its folder -> its sizes and its weights under OpenAI's names, checked against each other.

    folder_of(name)         the folder of "demo-target", "124M" .., downloaded if necessary
    read_folder(folder)     (hparams, arrays) of a folder in OpenAI's or Hugging Face's layout
    shapes(**hparams)       the shape of every parameter of such a GPT-2
    checked(array, ..)      the array in float32, if its shape is right and all numbers are finite
    openai_names(arrays)    Hugging Face's names -> OpenAI's: "h.0.ln_1.weight" -> "model/h0/ln_1/g"

Limitations: plain GPT-2 only: another activation, epsilon, scale of attention or a separate output head is
refused.  Not checked: whether the number of heads and the weights are the right ones.
"""
import json
import re
from pathlib import Path

import numpy as np

from loading.checkpoint import read_safetensors, read_tensorflow

EMBEDDED = ("demo-draft", "demo-target")                        # in models/
SIZES = ("n_vocab", "n_ctx", "n_embd", "n_head", "n_layer")
PLAIN = {"model_type": "gpt2", "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
         "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False,
         "add_cross_attention": False}              # of a plain GPT-2, in Hugging Face's config.json


def folder_of(name, models_dir):
    """The folder of a model, downloaded if necessary.  Raises ValueError if there is none."""
    if name in EMBEDDED:
        return Path(__file__).resolve().parent.parent / "models" / name
    # Imported here, because `requests` takes almost as long to load as the embedded pair.
    from loading.download import MODELS, download
    if name in MODELS:
        return download(name, models_dir)
    if not name or not Path(name).is_dir():
        raise ValueError(f"there is no model or folder {name!r}: use one of "
                         f"{', '.join([*MODELS, *EMBEDDED])}, or a folder with a GPT-2 checkpoint")
    return Path(name)


def read_folder(folder):
    """(hparams, arrays under OpenAI's names) of a folder in OpenAI's or Hugging Face's layout.

    Raises ValueError, with one sentence, if a file is missing or damaged, or is not a plain GPT-2's.
    """
    try:
        if (folder / "hparams.json").exists():
            hparams = read_json(folder / "hparams.json")
            arrays = read_tensorflow(folder / "model.ckpt")
        elif (folder / "config.json").exists():
            config = read_json(folder / "config.json")
            names = {"n_vocab": "vocab_size", "n_ctx": "n_positions"}
            hparams = {size: config.get(names.get(size, size)) for size in SIZES}
            for key, ours in PLAIN.items():
                if config.get(key, ours) != ours:
                    raise ValueError(f"{key} is {config[key]!r} there and {ours!r} here: take a plain GPT-2")
            arrays = openai_names(read_safetensors(folder / "model.safetensors"))
        else:
            raise ValueError("there is neither hparams.json (OpenAI) nor config.json (Hugging Face)")
        check_sizes(hparams, arrays)
    except (ValueError, OSError) as error:
        raise ValueError(f"{folder} is not a usable GPT-2 folder: {error}") from None
    return hparams, arrays


def read_json(path):
    """The JSON object in a small file.  Raises ValueError, with the file's name, if it holds none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is damaged ({error}): get it again") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} is damaged (it does not hold a JSON object): get it again")
    return found


def check_sizes(hparams, arrays):
    """Raises ValueError for impossible sizes, or if the checkpoint has a different number of layers."""
    for size in SIZES:
        if type(hparams.get(size)) is not int or hparams[size] < 1:
            raise ValueError(f"{size} is {hparams.get(size)!r}, which is not a size")
    if hparams["n_embd"] % hparams["n_head"]:
        raise ValueError(f"n_embd {hparams['n_embd']} does not divide into {hparams['n_head']} heads")
    n_layer = len({name.split("/")[1] for name in arrays if name.startswith("model/h")})
    if hparams["n_layer"] != n_layer:
        raise ValueError(f"n_layer is {hparams['n_layer']}, and the checkpoint has {n_layer} layers")


def shapes(n_vocab, n_ctx, n_embd, n_layer, **_):
    """The shape of every parameter, by OpenAI's name."""
    n = n_embd
    block = {"ln_1/g": (n,), "ln_1/b": (n,),
             "attn/c_attn/w": (n, 3 * n), "attn/c_attn/b": (3 * n,),
             "attn/c_proj/w": (n, n), "attn/c_proj/b": (n,),
             "ln_2/g": (n,), "ln_2/b": (n,),
             "mlp/c_fc/w": (n, 4 * n), "mlp/c_fc/b": (4 * n,),
             "mlp/c_proj/w": (4 * n, n), "mlp/c_proj/b": (n,)}
    return {"model/wte": (n_vocab, n), "model/wpe": (n_ctx, n), "model/ln_f/g": (n,), "model/ln_f/b": (n,),
            **{f"model/h{i}/{name}": shape for i in range(n_layer) for name, shape in block.items()}}


def checked(array, name, shape, folder):
    """The array in float32.  Raises ValueError if it is missing (None), of another shape, or not finite."""
    if array is None:
        raise ValueError(f"{folder}: {name} is missing from the checkpoint")
    if array.shape not in (shape, (1, *shape)):                 # OpenAI's convolutions: [1, n_in, n_out]
        raise ValueError(f"{folder}: {name} has the shape {array.shape}, and should have {shape}")
    array = np.asarray(array, dtype=np.float32).reshape(shape)
    if not np.isfinite(array).all():
        raise ValueError(f"{folder}: {name} holds NaN or infinity: the file is damaged, get it again")
    return array


def openai_names(arrays):
    """Hugging Face's names, with or without the prefix "transformer.", -> OpenAI's; the arrays are the same.

    >>> openai_names({"transformer.h.0.attn.c_attn.weight": 1, "wte.weight": 2, "h.0.attn.bias": 3})
    {'model/h0/attn/c_attn/w': 1, 'model/wte': 2}
    """
    renamed, arrays = {}, {name.removeprefix("transformer."): array for name, array in arrays.items()}
    for name, array in arrays.items():
        if name.endswith((".attn.bias", ".attn.masked_bias")):      # the causal mask, not .attn.c_attn.bias
            continue
        if name == "lm_head.weight":
            if not np.array_equal(array, arrays.get("wte.weight")):
                raise ValueError("lm_head.weight differs from wte.weight: take a plain GPT-2 language model")
            continue
        if not re.fullmatch(r"w[tp]e\.weight|(ln_f|h\.[0-9]+\.(ln_[12]|(attn|mlp)\.c_[a-z]+))\.(weight|bias)",
                            name):
            raise ValueError(f"tensor {name!r} is not one of GPT-2's: take a plain GPT-2 language model")
        name = re.sub(r"(w[tp]e)\.weight", r"\1", name)
        name = re.sub(r"(ln_.)\.weight", r"\1/g", name).replace(".weight", "/w").replace(".bias", "/b")
        renamed["model/" + name.replace("h.", "h", 1).replace(".", "/")] = array
    return renamed
