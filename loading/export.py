"""Export a model, trained or downloaded here, to programs that serve many users.

    python -m loading.export demo-target served                 # transformers, vLLM, SGLang, TGI
    python -m loading.export demo-target served --to gguf       # llama.cpp: served/demo-target.gguf

Hugging Face's layout is a config.json, the weights (safetensors: a JSON header, then the bytes) and the
files of the tokenizer; this project reads such a folder, too.  GGUF is one file with all of that.  It is
written with the package gguf (pip install -e ".[gguf]").  How to serve the result: docs/production.md.

Limitations: float32 only (llama-quantize makes smaller files); GGUF is written, not read.  Those programs
read "<|endoftext|>" in a prompt as the end of a text; here it is ordinary text.
"""
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np

from loading import command_line
from loading.folder import read_folder
from loading.names import find_folder
from loading.tokenizer import BYTES

NAMES = {       # what parts of OpenAI's names are in Hugging Face's
    "model/wte": "transformer.wte.weight", "model/wpe": "transformer.wpe.weight",
    "model/lm_head": "lm_head.weight", "model/h": "transformer.h.", "model/": "transformer.",
    "/w": ".weight", "/g": ".weight", "/b": ".bias", "/": "."}


def to_huggingface(name):
    """OpenAI's name of a parameter -> Hugging Face's.

    >>> to_huggingface("model/h11/attn/c_attn/w")
    'transformer.h.11.attn.c_attn.weight'
    """
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    return name


def write_huggingface(folder, _, sizes, arrays, tokenizer):
    """config.json, model.safetensors, tokenizer_config.json, vocab.json, merges.txt."""
    same = {size: sizes[size] for size in ("n_embd", "n_head", "n_layer", "n_inner")}
    ends = tokenizer.ends
    ends = dict(bos_token_id=min(ends, default=None),           # null, not 50256, if there is none
                eos_token_id=ends if len(ends) > 1 else min(ends, default=None))
    config = dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], vocab_size=sizes["n_vocab"],
                  n_positions=sizes["n_ctx"], **same, activation_function="gelu_new", layer_norm_epsilon=1e-5,
                  tie_word_embeddings=sizes["tied"], dtype="float32", **ends)
    texts = {"config.json": json.dumps(config, indent=2), "vocab.json": json.dumps(tokenizer.ids),
             "added_tokens.json": json.dumps({token: tokenizer.ids[token] for token in tokenizer.added}),
             "tokenizer_config.json": json.dumps(dict(tokenizer_class="GPT2Tokenizer")),
             "merges.txt": "\n".join(["#version: 0.2", *map(" ".join, tokenizer.merges), ""])}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, array in arrays.items():
        header[to_huggingface(name)] = dict(dtype="F32", shape=array.shape,
                                            data_offsets=[end, end := end + array.nbytes])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)                             # so that the numbers after it are aligned
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array))             # tofile does not notice that a disk is full


def write_gguf(folder, name, sizes, arrays, tokenizer):
    """One file, NAME.gguf: hyperparameters, tokenizer and weights."""
    import gguf  # only here: it is not one of the packages that this project needs
    writer = gguf.GGUFWriter(folder / f"{name}.gguf", "gpt2")
    writer.add_context_length(sizes["n_ctx"])
    writer.add_embedding_length(sizes["n_embd"])
    writer.add_feed_forward_length(sizes.get("n_inner") or 4 * sizes["n_embd"])
    writer.add_block_count(sizes["n_layer"])
    writer.add_head_count(sizes["n_head"])
    writer.add_layer_norm_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    add_tokenizer(writer, tokenizer, gguf.TokenType)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPT2, sizes["n_layer"])
    # llama.cpp keeps the weights of one output together: [n_in, n_out] -> [n_out, n_in]
    for ours, array in arrays.items():
        array = array.T if ours.endswith("/w") else array
        theirs = names.get_name(to_huggingface(ours), (".weight", ".bias"))
        writer.add_tensor(theirs, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    gguf.GGUFReader(folder / f"{name}.gguf")                    # ValueError if a full disk cut it short


def add_tokenizer(writer, tokenizer, types):
    """Byte-level BPE as llama.cpp knows it: the tokens in order and their types, and the merges."""
    tokens = sorted(tokenizer.ids, key=tokenizer.ids.get)
    merged = {*BYTES, *map("".join, tokenizer.merges)}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")               # the regular expression that splits the text into chunks
    writer.add_token_list(tokens)
    writer.add_token_types([types.NORMAL if token in merged else types.CONTROL for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer.merges])
    writer.add_add_bos_token(False)
    if tokenizer.ends:
        writer.add_bos_token_id(min(tokenizer.ends))
        writer.add_eos_token_id(min(tokenizer.ends))


FORMATS = {"huggingface": write_huggingface, "gguf": write_gguf}


def main(model, folder, to="huggingface", models_dir="models"):
    """Write a model for other programs into a new folder: a complete folder, or none.

    Args:
        model: demo-target, 124M .. as in main.py, or a model's folder
        folder: the new folder; until it is complete it is called FOLDER.part
        to: huggingface (transformers, vLLM, SGLang, TGI), or gguf (llama.cpp)
        models_dir: where downloaded models are kept
    """
    folder, part = Path(folder), Path(f"{folder}.part")
    if to not in FORMATS:
        raise ValueError(f"there is no format {to!r}: use {' or '.join(FORMATS)}")
    for place in folder, part:
        if os.path.lexists(place) or not place.parent.is_dir():
            raise ValueError(f"cannot write {place}: name a new folder, in one that exists")
    source = find_folder(str(model), models_dir)                # the model may have to be downloaded
    sizes, arrays, tokenizer = read_folder(source)
    if tokenizer.space or any(tokenizer.around) or to == "gguf" and len(tokenizer.ends) > 1:
        raise ValueError(f"{source} adds to each text, or ends it in several ways, which is not exported")
    part.mkdir()
    try:
        FORMATS[to](part, source.resolve().name, sizes, arrays, tokenizer)
        os.replace(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    print(f"{folder}: {sum(path.stat().st_size for path in folder.iterdir()) / 1e6:.0f} MB")


if __name__ == "__main__":
    sys.exit(command_line.run(main))
