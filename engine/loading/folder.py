"""A model's folder -> its sizes, its weights under OpenAI's names, and its tokenizer, which fit together.

    read_folder(folder)         (sizes, arrays, tokenizer) of a folder in OpenAI's or Hugging Face's layout
    read_weights(folder)        (sizes, arrays) alone
    list_shapes(**sizes)        {name: shape} of the parameters of such a GPT-2
    check_weights(arrays, ..)   the arrays in float32, if they have these shapes and all numbers are finite
    rename(arrays)              Hugging Face's names -> OpenAI's: "h.0.ln_1.weight" -> "model/h0/ln_1/g"

Whatever a file says about the logits, the token ids or the end of a text is applied, or else the folder is
rejected.  So is a folder with two models.

Limitations: other epsilons and scales of attention, and quantized weights, are rejected; for the exact gelu
the tanh form is computed, with a note.  Whether the number of heads and the weights are the right ones cannot
be checked.
"""
import fnmatch
import os
import re
import warnings

import numpy as np

from engine.loading.checkpoint import need, read_safetensors, read_tensorflow
from engine.loading.files import expected_structure, one_sentence
from engine.loading.tokenizer import check_keys, read_json, read_tokenizer

SIZES = "n_vocab", "n_ctx", "n_embd", "n_head", "n_layer"      # in hparams.json
DEFAULTS = {"n_vocab": 50257, "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_inner": None,
            "tied": True}                       # for config.json, which may omit them
KEYS = {"vocab_size": "n_vocab", "n_positions": "n_ctx", "max_position_embeddings": "n_ctx",
        "n_embd": "n_embd", "hidden_size": "n_embd", "n_head": "n_head", "num_attention_heads": "n_head",
        "n_layer": "n_layer", "num_hidden_layers": "n_layer", "n_inner": "n_inner",
        "tie_word_embeddings": "tied"}          # their names there
EXACT_GELU = "gelu", "gelu_python"
# The values in config.json with which a model computes what gpt2.py computes; the first is the default.
PLAIN = {
    "model_type": ("gpt2",), "layer_norm_epsilon": (1e-5,), "scale_attn_weights": (True,),
    "activation_function": ("gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python_tanh", *EXACT_GELU),
    "scale_attn_by_inverse_layer_idx": (False,), "add_cross_attention": (False,), "pruned_heads": (None, {}),
    "quantization_config": (None,), "tie_word_embeddings": (True, False)}
# The values in generation_config.json, or config.json, that change neither the logits nor the end of a text.
NEUTRAL = dict.fromkeys(
    "encoder_repetition_penalty guidance_scale num_beams repetition_penalty typical_p".split(), (None, 1))
NEUTRAL |= dict.fromkeys((
    "bad_words_ids begin_suppress_tokens constraints dola_layers epsilon_cutoff eta_cutoff "
    "exponential_decay_length_penalty force_words_ids forced_bos_token_id forced_eos_token_id min_length "
    "min_new_tokens min_p no_repeat_ngram_size penalty_alpha sequence_bias stop_strings suppress_tokens "
    "token_healing top_h watermarking_config").split(), (None, 0, [], {}))

DELETE = "delete that line to generate without it"
NO_WEIGHTS = r"(optimizer|scheduler|training_args|rng_state|scaler|random_states).*"      # a Trainer's
HEADS = r"(v_head|multiple_choice_head|score|classifier|qa_outputs)\."     # beside the language model
GELU = ("the exact gelu, and the tanh form, which GPT-2 was trained with, is computed here: of a small model "
        "trained with the exact one, this changed no probability by more than 0.001")


def read_folder(folder):
    """(sizes, {OpenAI's name: float32 array}, tokenizer.Files) of a model's folder.

    sizes       n_vocab, n_ctx, n_embd, n_head, n_layer; n_inner, of the feed-forward layers, None for
                4 * n_embd; tied, False if the model has a separate output head, model/lm_head
    Raises ValueError, with one sentence, if a file is missing or damaged, or not that of a plain GPT-2.
    """
    sizes, arrays = read_weights(folder)
    tokenizer = read_tokenizer(folder, sizes["n_vocab"])
    n_vocab = len(tokenizer.ids)
    for name in arrays.keys() & {"model/wte", "model/lm_head"}:
        arrays[name] = arrays[name][:n_vocab]                   # without the rows that have no token
    return sizes | {"n_vocab": n_vocab}, arrays, tokenizer


def read_weights(folder):
    """(sizes, arrays) as read_folder returns them, of a folder that may have no tokenizer."""
    with one_sentence(f"{folder} is not a usable GPT-2 folder"):
        weights = find_weights(folder)
        if weights.with_name(f"{weights.name}.index").exists():
            arrays, sizes = read_tensorflow(weights), read_sizes(folder, "hparams.json")
        else:
            arrays, sizes = read_shards(weights)
            sizes = sizes or read_sizes(folder, "config.json")
            arrays = add_biases(tie(rename(arrays), sizes["tied"]))
        check_sizes(sizes, arrays)
        return sizes, check_weights(arrays, list_shapes(**sizes))


def find_weights(folder):
    """The folder's weights: a safetensors file, the index of several, or else the prefix of TensorFlow's
    files, or else a file that torch.save wrote, or the index of several.

    Raises ValueError if there are none, if there are those of two models, or if a file is a Git LFS pointer.
    """
    names = sorted(path.name for path in folder.iterdir() if not re.fullmatch(NO_WEIGHTS, path.name))
    prefixes = [name.removesuffix(".index") for name in fnmatch.filter(names, "*.index")]
    whole = [prefix for prefix in prefixes if fnmatch.filter(names, f"{prefix}.data-*")]
    if len(whole) > 1 and "checkpoint" in names:                # where TensorFlow says which is the latest
        latest = re.search(r'path: "(?:.*[/\\])?(.+)"', (folder / "checkpoint").read_text(encoding="utf-8"))
        whole = [prefix for prefix in whole if latest and prefix == latest[1]] or whole
    found = [name for name in names if re.fullmatch(r"model\.safetensors(\.index\.json)?", name)] or whole
    if not found:
        from engine.loading.pickles import find_pickles  # here, as below, because most folders need neither
        found = find_pickles(folder, names) or prefixes
    for name in names:
        needed = name in found or re.search(r"\.(json|txt|bpe|safetensors|index|data-.*)$", name)
        if needed and is_pointer(folder / name):
            raise ValueError(f"{name} is a Git LFS pointer, not the file itself: run git lfs pull")
    if not found or "adapter_config.json" in names:
        from engine.loading.advice import instead_of_weights
        raise ValueError(instead_of_weights(folder, names))
    need(len(found) == 1, f"there are {' and '.join(found)}: keep the files of one model")
    return folder / found[0]


def is_pointer(path):
    return (path.is_file() and path.stat().st_size < 999
            and path.read_bytes().startswith(b"version https://git-lfs."))


@expected_structure()
def read_sizes(folder, needed):
    """The sizes as in read_folder.  Raises ValueError if two files differ, or one is not supported, or if the
    one that is needed is missing.
    """
    need((folder / needed).exists(),
         f"{needed} is missing (it has the sizes): copy it from where the model came from")
    hparams, config, generation = (read_json(folder / f"{name}.json", optional=True)
                                   for name in ("hparams", "config", "generation_config"))
    check_keys("hparams.json", hparams, {"kind": (None,)}, "it is a head: name the model that it drafts for")
    check_keys("config.json", config, PLAIN)
    check_keys("config.json", config, NEUTRAL, DELETE)
    check_keys("generation_config.json", generation, NEUTRAL, DELETE)
    if config.get("activation_function") in EXACT_GELU:
        warnings.warn(f"{folder}: config.json asks for {GELU}", stacklevel=2)
    ours = DEFAULTS | {size: hparams.get(size) for size in SIZES}
    theirs = DEFAULTS | {KEYS[key]: value for key, value in config.items() if key in KEYS}
    if hparams and config and ours != theirs:
        raise ValueError("hparams.json and config.json have different sizes: keep the files of one model")
    return theirs if config else ours


def check_sizes(sizes, arrays):
    """Raises ValueError for impossible sizes, or if the checkpoint has a different number of layers."""
    for size, value in sizes.items():
        if size != "tied" and (size, value) != ("n_inner", None) and (type(value) is not int or value < 1):
            raise ValueError(f"{size} is {value!r}, which is not a size")
    if sizes["n_embd"] % sizes["n_head"]:
        raise ValueError(f"n_embd {sizes['n_embd']} does not divide into {sizes['n_head']} heads")
    n_layer = len({name.split("/")[1] for name in arrays if name.startswith("model/h")})
    if sizes["n_layer"] != n_layer:
        raise ValueError(f"n_layer is {sizes['n_layer']}, and the checkpoint has {n_layer} layers")


def list_shapes(n_vocab, n_ctx, n_embd, n_layer, n_inner=None, tied=True, **_):
    """The shape of every parameter, by OpenAI's name."""
    n, m = n_embd, n_inner or 4 * n_embd
    block = {"ln_1/g": (n,), "ln_1/b": (n,),
             "attn/c_attn/w": (n, 3 * n), "attn/c_attn/b": (3 * n,),
             "attn/c_proj/w": (n, n), "attn/c_proj/b": (n,),
             "ln_2/g": (n,), "ln_2/b": (n,),
             "mlp/c_fc/w": (n, m), "mlp/c_fc/b": (m,),
             "mlp/c_proj/w": (m, n), "mlp/c_proj/b": (n,)}
    return {"model/wte": (n_vocab, n), "model/wpe": (n_ctx, n), "model/ln_f/g": (n,), "model/ln_f/b": (n,),
            **({} if tied else {"model/lm_head": (n_vocab, n)}),
            **{f"model/h{i}/{name}": shape for i in range(n_layer) for name, shape in block.items()}}


def check_weights(arrays, shapes):
    """{name: array in float32} for all names in `shapes`.  Empties `arrays` as it goes, to save memory.

    Raises ValueError if one is missing, has another shape, holds integers, or is not finite.
    """
    checked = {}
    for name, shape in shapes.items():
        array = arrays.pop(name, None)
        need(array is not None, f"{name} is missing from the checkpoint")
        need(array.shape in (shape, (1, *shape)),               # OpenAI's convolutions: [1, n_in, n_out]
             f"{name} has the shape {array.shape}, and should have {shape}")
        need(array.dtype.kind == "f", f"{name} is quantized ({array.dtype}): get the unquantized model")
        checked[name] = np.asarray(array, dtype=np.float32).reshape(shape)
        need(np.isfinite(checked[name]).all(),
             f"{name} holds NaN or infinity: get the file again, or another model")
    return checked


# Hugging Face's weights -------------------------------------------------------------------------------------

def read_shards(path):
    """(all tensors of a file or of those listed in an index, the sizes in it if it is nanoGPT's).  Raises
    ValueError.
    """
    if path.suffix != ".json":
        if path.suffix == ".safetensors":
            return read_safetensors(path), None
        from engine.loading.pickles import read_pytorch
        return read_pytorch(path)
    with expected_structure():
        files, arrays = {**read_json(path)["weight_map"]}, {}   # {tensor: file}
        paths = sorted(path.with_name(file) for file in {*files.values()})
    for path_of_part in paths:
        arrays |= read_shards(path_of_part)[0]
    if arrays.keys() != files.keys():
        raise ValueError(f"{path.name} and its files name different tensors: fetch all of them again")
    return arrays, None


def tie(arrays, tied):
    """The arrays; if `tied`, without lm_head, which is the same as wte.  Raises ValueError if it differs."""
    if tied and "model/lm_head" in arrays:
        head = arrays.pop("model/lm_head")
        if not np.array_equal(head, arrays.setdefault("model/wte", head)):
            raise ValueError("lm_head.weight differs from wte.weight: if the model has a head of its own, "
                             'write "tie_word_embeddings": false into config.json')
    return arrays


def rename(arrays):
    """Hugging Face's names, with or without the prefix "transformer.", -> OpenAI's, for the same arrays.  Any
    other prefix that all names share is dropped: torch.compile, DataParallel and Lightning add one.  Heads
    beside the language model's are left out, with a warning.

    >>> rename({"module.transformer.h.0.attn.c_attn.bias": 1, "module.lm_head.weight": 2})
    {'model/h0/attn/c_attn/b': 1, 'model/lm_head': 2}
    """
    heads = [name for name in arrays if re.match(HEADS, name)]
    if heads:
        warnings.warn(f"{', '.join(heads):.200} left out: not part of the language model", stacklevel=2)
    names = [name for name in arrays if name not in heads]
    renamed, shared = {}, os.path.commonprefix(names).rpartition(".")
    for name in names:
        short = name.removeprefix("".join(shared[:2])).removeprefix("transformer.")
        if short.endswith((".attn.bias", ".attn.masked_bias")):     # the causal mask, not .attn.c_attn.bias
            continue
        if not re.fullmatch(r"(w[tp]e|lm_head)\.weight"
                            r"|(ln_f|h\.[0-9]+\.(ln_[12]|(attn|mlp)\.c_[a-z]+))\.(weight|bias)", short):
            raise ValueError(f"tensor {name!r} is not one of GPT-2's: take a plain GPT-2 language model, not "
                             "a quantized one")
        short = re.sub(r"(w[tp]e|lm_head)\.weight", r"\1", short)
        short = re.sub(r"(ln_.)\.weight", r"\1/g", short).replace(".weight", "/w").replace(".bias", "/b")
        ours = "model/" + short.replace("h.", "h", 1).replace(".", "/")
        twin = renamed.setdefault(ours, arrays[name])
        need(twin is arrays[name] or np.array_equal(twin, arrays[name]),
             f"{name} is there twice, with and without a prefix, and the two differ: keep one")
    return renamed


def add_biases(arrays):
    """The arrays, with biases of zeros if there are none at all, as after nanoGPT's bias=False."""
    if not any(name.endswith("/b") for name in arrays):
        arrays |= {f"{name[:-1]}b": np.zeros(array.shape[-1:], np.float32) for name, array in arrays.items()
                   if name.endswith(("/w", "/g"))}
    return arrays
