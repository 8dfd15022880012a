"""A model's name or folder -> a ready model and its encoder.

A checkpoint is a flat dict of names such as "model/h0/attn/c_attn/w".  The forward pass needs it nested, and
passes each part on with `**`:

    {"wte": .., "wpe": .., "ln_f": {"g": .., "b": ..},
     "blocks": [{"ln_1": {"g", "b"}, "attn": {"c_attn": {"w", "b"}, "c_proj": {"w", "b"}},
                 "ln_2": .., "mlp": ..}, ..]}

Limitations: the token embeddings are in memory twice, as rows to look up and in the output head.  So a model
takes more memory than its file: a third more for 124M, a twentieth more for 1558M.
"""
from math import prod

from compute.backend import xp
from compute.linear import lay_out
from compute.threads import Arena
from encoder import load_encoder
from gpt2 import GPT2
from loading.folder import checked, folder_of, read_folder, shapes


def load_model(name_or_folder, models_dir="models"):
    """Returns (model, encoder).

    name_or_folder  "124M" "355M" "774M" "1558M" "distilgpt2", kept in models_dir and downloaded if they are
                    not there; "demo-draft" "demo-target"; or a folder in OpenAI's or Hugging Face's layout
    Raises ValueError, with one sentence, for an unknown model, or for files that are missing or damaged, or
    do not fit together.
    """
    folder = folder_of(str(name_or_folder), models_dir)
    hparams, arrays = read_folder(folder)
    encoder = load_encoder(folder, hparams["n_vocab"])
    return GPT2(nested(arrays, hparams, folder), hparams["n_head"]), encoder


def nested(arrays, hparams, folder, wanted=None):
    """Flat arrays -> nested float32 parameters.  Raises ValueError for a wrong shape, NaN or infinity.

    arrays      emptied on the way, to save memory
    wanted      the shapes by name; those of a GPT-2 by default
    """
    params = {"blocks": [{} for _ in range(hparams["n_layer"])]}
    wanted = wanted or shapes(**hparams)
    n_weights, arena = sum(prod(shape) for shape in wanted.values()), Arena()
    for name, shape in wanted.items():
        array = xp.asarray(checked(arrays.pop(name, None), name, shape, folder))
        *path, last = name.removeprefix("model/").split("/")
        place = params
        for part in path:
            place = params["blocks"][int(part[1:])] if part[0] == "h" else place.setdefault(part, {})
        place[last] = lay_out(array, n_weights, arena) if last == "w" else array
        if last == "wte":
            params["head"] = lay_out(array.T, n_weights, arena)    # the output head: wte, transposed
    return params
