"""A model's name or folder -> a ready model and its encoder.

A checkpoint is a flat dict of names such as "model/h0/attn/c_attn/w"; the forward pass wants it nested and
applies each part with `**`:

    {"wte": .., "wpe": .., "ln_f": {"g": .., "b": ..},
     "blocks": [{"ln_1": {"g", "b"}, "attn": {"c_attn": {"w", "b"}, "c_proj": {"w", "b"}},
                 "ln_2": .., "mlp": ..}, ..]}

But: float32 weights that need no copy (wte, the biases) stay in the file and come from there when they are
asked for.  Who writes to the file while the program runs changes them: `check_files` notices, afterwards.
"""
import json
from math import prod
from pathlib import Path

from tqdm import tqdm

from compute.backend import xp
from compute.linear import Arena, lay_out
from encoder import load_encoder
from gpt2 import GPT2
from loading.checkpoint import mapping_of, openai_names, read_safetensors, read_tensorflow, release

EMBEDDED = ("demo-draft", "demo-target")                        # they lie in models/ beside this file
SIZES = ("n_vocab", "n_ctx", "n_embd", "n_head", "n_layer")


def load_model(name_or_folder, models_dir="models"):
    """Returns (model, encoder).

    name_or_folder  "124M" "355M" "774M" "1558M" "distilgpt2", kept in models_dir and downloaded when they are
                    not there; "demo-draft" "demo-target"; or a folder in OpenAI's or Hugging Face's layout
    Raises ValueError in one sentence for an unknown model, or for files that are missing, damaged or do not
    fit together.
    """
    folder = folder_of(str(name_or_folder), models_dir)
    files = stamps(folder)
    hparams, arrays = read_folder(folder)
    encoder = load_encoder(folder)
    if encoder.n_vocab != hparams["n_vocab"]:
        raise ValueError(f"{folder}: the vocabulary has {encoder.n_vocab} tokens and the model "
                         f"{hparams['n_vocab']}: these files do not belong together")
    model = GPT2(nested(arrays, hparams, folder), hparams["n_head"])
    model.files = files
    check_files(model)                                          # nobody wrote to them while they were read
    if mapping_of(model.params["wte"]) is None:
        model.files = {}                                        # all was copied: the files no longer matter
    return model, encoder


def folder_of(name, models_dir):
    """The folder of a model, downloaded if need be.  ValueError where there is none."""
    if name in EMBEDDED:
        return Path(__file__).resolve().parent / "models" / name
    # Here, because `requests` takes longer to load than the embedded pair.
    from loading.download import MODELS, download
    if name in MODELS:
        return download(name, models_dir)
    if not name or not Path(name).is_dir():
        raise ValueError(f"there is no model or folder {name!r}: use one of "
                         f"{', '.join([*MODELS, *EMBEDDED])}, or a folder with a GPT-2 checkpoint")
    return Path(name)


def stamps(folder):
    """{path: (which file it is, its bytes, when it was last written to)} of the files that hold weights."""
    found = {path: path.stat() for path in folder.glob("model.*") if path.is_file()}
    return {path: (at.st_ino, at.st_size, at.st_mtime_ns) for path, at in found.items()}


def check_files(model):
    """ValueError if a file from which the model still reads its weights was written to since it was loaded.

    A file that was deleted or replaced by another (as `mv` and a careful program do) is still whole for us.
    """
    for path, before in getattr(model, "files", {}).items():
        now = stamps(path.parent).get(path, before)
        if now[0] == before[0] and now != before:
            raise ValueError(f"{path} was written to while the model was in use, so what the model said is "
                             "worthless: start again, and leave the file alone meanwhile")


def read_json(path):
    """The JSON object in a small file.  ValueError, with the file's name, where there is none."""
    if not path.is_file():                                      # a pipe would be waited for
        raise ValueError(f"{path.name} is no file")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is damaged ({error}): get it again") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} is damaged (it holds no JSON object): get it again")
    return found


def read_folder(folder):
    """(hparams, arrays under OpenAI's names) of a folder in OpenAI's or Hugging Face's layout."""
    try:
        if (folder / "hparams.json").exists():
            hparams = read_json(folder / "hparams.json")
            arrays = read_tensorflow(folder / "model.ckpt")
        elif (folder / "config.json").exists():
            config = read_json(folder / "config.json")
            names = {"n_vocab": "vocab_size", "n_ctx": "n_positions"}
            hparams = {size: config.get(names.get(size, size)) for size in SIZES}
            for key, ours in ("activation_function", "gelu_new"), ("layer_norm_epsilon", 1e-5):
                if config.get(key, ours) != ours:
                    raise ValueError(f"{key} is {config[key]!r} there and {ours!r} here: take a plain GPT-2")
            arrays = openai_names(read_safetensors(folder / "model.safetensors"))
        else:
            raise ValueError("there is neither hparams.json (OpenAI) nor config.json (Hugging Face)")
        check_sizes(hparams, arrays)
    except (ValueError, OSError) as error:
        raise ValueError(f"{folder} is not a usable GPT-2 folder: {error}") from None
    return hparams, arrays


def check_sizes(hparams, arrays):
    """ValueError for sizes that are none, or another number of layers than in the checkpoint."""
    for size in SIZES:
        if type(hparams.get(size)) is not int or hparams[size] < 1:
            raise ValueError(f"{size} is {hparams.get(size)!r}, which is no size")
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


def nested(arrays, hparams, folder, wanted=None):
    """Flat arrays -> nested float32 parameters, after a check of every shape and for NaN.

    wanted      the shapes by name; those of a GPT-2 by default
    """
    params = {"blocks": [{} for _ in range(hparams["n_layer"])]}
    wanted = wanted or shapes(**hparams)
    n_weights, arena = sum(prod(shape) for shape in wanted.values()), Arena()
    todo = tqdm(wanted.items(), desc=f"Loading {folder.name}", leave=False, disable=None)
    for name, shape in todo:
        if name not in arrays:
            raise ValueError(f"{folder}: {name} is missing from the checkpoint")
        mapped = arrays[name]
        if mapped.shape not in (shape, (1, *shape)):            # OpenAI's convolutions: [1, n_in, n_out]
            raise ValueError(f"{folder}: {name} has the shape {mapped.shape}, and hparams say {shape}")
        array = xp.asarray(mapped.reshape(shape), dtype=xp.float32)
        if not xp.isfinite(array).all():
            raise ValueError(f"{folder}: {name} holds NaN or infinity: the file is damaged, get it again")
        *path, last = name.removeprefix("model/").split("/")
        place = params
        for part in path:
            place = params["blocks"][int(part[1:])] if part[0] == "h" else place.setdefault(part, {})
        place[last] = lay_out(array, n_weights, arena) if last == "w" else array
        if last == "wte":
            params["head"] = lay_out(array.T, n_weights, arena)    # the output head: wte, transposed
        release(mapped)                                         # read; wte's rows come back when asked for
    return params
