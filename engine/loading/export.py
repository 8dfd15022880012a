"""Export a model, trained or downloaded here, for programs that serve many users.

    pip install safetensors
    python -m engine.loading.export demo-target served         # for transformers, vLLM, SGLang, TGI

Hugging Face's layout is a config.json, the weights in safetensors and the tokenizer's files; this project can
read such a folder, too.  How to serve it: docs/production.md.

Limitations: float32 only, and the weights are in memory twice.  Those programs read "<|endoftext|>" in a
prompt as the end of a text; here it is ordinary text, unless the exported folder is read.
"""
import json
import os
import shutil
import sys
from pathlib import Path

from engine.loading import command_line
from engine.loading.folder import read_folder
from engine.loading.names import find_folder

NAMES = {       # parts of OpenAI's names: what they are in Hugging Face's
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


def write_huggingface(folder, sizes, arrays, tokenizer):
    """config.json, model.safetensors, tokenizer_config.json, vocab.json, merges.txt."""
    from safetensors.numpy import save  # here: it is needed for nothing else
    same = {size: sizes[size] for size in ("n_embd", "n_head", "n_layer", "n_inner")}
    eos = tokenizer.eos_ids
    special = dict(bos_token_id=min(eos, default=None),         # null, not 50256, if there is none
                   eos_token_id=eos if len(eos) > 1 else min(eos, default=None))
    config = dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], vocab_size=sizes["n_vocab"],
                  n_positions=sizes["n_ctx"], **same, activation_function="gelu_new", layer_norm_epsilon=1e-5,
                  tie_word_embeddings=sizes["tied"], dtype="float32", **special)
    texts = {"config.json": json.dumps(config, indent=2), "vocab.json": json.dumps(tokenizer.ids),
             "added_tokens.json": json.dumps({token: tokenizer.ids[token] for token in tokenizer.added}),
             "tokenizer_config.json": json.dumps(dict(tokenizer_class="GPT2Tokenizer")),
             "merges.txt": "\n".join(["#version: 0.2", *map(" ".join, tokenizer.merges), ""])}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    data = save({to_huggingface(name): array for name, array in arrays.items()}, metadata={"format": "pt"})
    (folder / "model.safetensors").write_bytes(data)


def main(model, folder, models_dir="models"):
    """Write a model for other programs into a new folder: a complete folder, or none.

    Args:
        model: demo-target, 124M .. as in main.py, or a model's folder
        folder: the new folder; until it is complete it is called FOLDER.part
        models_dir: where downloaded models are kept
    """
    folder, part = Path(folder), Path(f"{folder}.part")
    for place in folder, part:
        if os.path.lexists(place) or not place.parent.is_dir():
            raise ValueError(f"cannot write {place}: name a new folder, in one that exists")
    source = find_folder(str(model), models_dir)                # may download the model
    sizes, arrays, tokenizer = read_folder(source)
    if tokenizer.space or any(tokenizer.around):
        raise ValueError(f"{source} adds to each text, which is not exported")
    part.mkdir()
    try:
        write_huggingface(part, sizes, arrays, tokenizer)
        os.replace(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    print(f"{folder}: {sum(path.stat().st_size for path in folder.iterdir()) / 1e6:.0f} MB")


if __name__ == "__main__":
    sys.exit(command_line.run(main))
