"""A model's name or folder -> a ready model and its encoder.

A checkpoint is a flat dict with names such as "model/h0/attn/c_attn/w".  The forward pass needs it nested,
so that each part can be passed on with `**`:

    {"wte": .., "wpe": .., "ln_f": {"g": .., "b": ..},
     "blocks": [{"ln_1": {"g", "b"}, "attn": {"c_attn": {"w", "b"}, "c_proj": {"w", "b"}},
                 "ln_2": .., "mlp": ..}, ..]}

Limitations: the token embeddings are in memory twice, as rows to look up and in the output head, so a model
takes more memory than its file: a third more for 124M, a twentieth more for 1558M.
"""
from encoder import Tokenizer
from engine.checks import check_same_vocabulary
from engine.compute.backend import xp
from engine.compute.linear import lay_out
from engine.compute.threads import Arena
from engine.loading.folder import read_folder
from engine.loading.names import find_folder
from engine.loading.tokenizer import read_tokenizer
from gpt2 import GPT2


def load_model(name_or_folder, models_dir="models"):
    """Returns (model, encoder).

    name_or_folder  "124M" "355M" "774M" "1558M" "distilgpt2", or their names on Hugging Face's hub, such as
                    "gpt2-medium", found in models_dir or the hub's cache, or else downloaded to models_dir;
                    another name in the cache; "demo-draft" "demo-target"; or a folder in OpenAI's or Hugging
                    Face's layout
    Raises ValueError, with one sentence, for an unknown model, or for files that are missing or damaged, do
    not fit together, or ask for something that is not supported.
    """
    sizes, arrays, tokenizer = read_folder(find_folder(str(name_or_folder), models_dir))
    return GPT2(nest(arrays, sizes["n_layer"]), sizes["n_head"]), Tokenizer(*tokenizer)


def load_encoder(name_or_folder, models_dir="models"):
    """The encoder alone, of a model that is already here: nothing is downloaded.

    Raises ValueError for a name that is neither in models_dir nor in the hub's cache, or for vocabulary files
    that are missing or damaged.
    """
    return Tokenizer(*read_tokenizer(find_folder(str(name_or_folder), models_dir, fetch=False)))


def load_pair(draft, target, models_dir="models"):
    """Two names or folders -> (draft model, target model, their encoder).

    Raises ValueError as load_model does, and if the two have different vocabularies.
    """
    draft_model, draft_encoder = load_model(draft, models_dir)
    target_model, encoder = load_model(target, models_dir)
    check_same_vocabulary(draft, draft_encoder, target, encoder)
    return draft_model, target_model, encoder


def nest(arrays, n_layer):
    """Flat arrays -> nested parameters, with matrices in tiles.  Empties `arrays` as it goes, to save memory.
    """
    params = {"blocks": [{} for _ in range(n_layer)]}
    n_weights, arena = sum(array.size for array in arrays.values()), Arena()
    lm_head = "model/lm_head" if "model/lm_head" in arrays else "model/wte"
    for name in [*arrays]:
        array = xp.asarray(arrays.pop(name))
        *path, last = name.removeprefix("model/").split("/")
        place = params
        for part in path:
            place = params["blocks"][int(part[1:])] if part[0] == "h" else place.setdefault(part, {})
        if last != "lm_head":
            place[last] = lay_out(array, n_weights, arena) if last == "w" else array
        if name == lm_head:
            params["lm_head"] = lay_out(array.T, n_weights, arena)     # usually wte, transposed
    return params
