"""A model's folder -> one GGUF file, llama.cpp's format: what was trained or downloaded here runs there.

    pip install -e ".[gguf]"
    python -m loading.to_gguf models/demo-target demo-target.gguf
    llama-completion -m demo-target.gguf -p "There was a" -n 60 --temp 0

The file holds the float32 weights under llama.cpp's names, the hyperparameters, and the tokenizer: tokens
and merges.  The gguf package, which llama.cpp's authors maintain, knows the format; this file
translates between the two.

But: float32 only (llama-quantize makes smaller files from it), and writing only.
"""
import os
import re
import sys
from pathlib import Path

import numpy as np

import console
from encoder import load_encoder
from loading.folder import read_folder, shapes

NAMES = {"wte": "token_embd.weight", "wpe": "position_embd.weight", "ln_f": "output_norm",
         "ln_1": "attn_norm", "attn/c_attn": "attn_qkv", "attn/c_proj": "attn_output",
         "ln_2": "ffn_norm", "mlp/c_fc": "ffn_up", "mlp/c_proj": "ffn_down",
         "w": "weight", "g": "weight", "b": "bias"}


def gguf_name(name):
    """OpenAI's name of a parameter -> llama.cpp's.

    >>> [gguf_name(name) for name in ("model/wte", "model/h11/attn/c_attn/w", "model/ln_f/b")]
    ['token_embd.weight', 'blk.11.attn_qkv.weight', 'output_norm.bias']
    """
    layer, part, last = re.fullmatch(r"model/(?:h(\d+)/)?(\w+|\w+/\w+?)(?:/([wgb]))?", name).groups()
    return ".".join([*(["blk", layer] if layer else []), NAMES[part], *([NAMES[last]] if last else [])])


def write_gguf(path, hparams, arrays, encoder):
    """Write the file at `path`, complete or not at all; until then it is NAME.part.  Neither may exist before.

    arrays      {OpenAI's name: array}, matrices [n_in, n_out] or [1, n_in, n_out]
    Raises ValueError if the gguf package is not installed, an array is missing, or the vocabulary does not
    fit.
    """
    if encoder.n_vocab != hparams["n_vocab"]:
        raise ValueError(f"the vocabulary has {encoder.n_vocab} tokens and the model {hparams['n_vocab']}: "
                         "these files do not belong together")
    try:
        import gguf
    except ImportError:
        raise ValueError('the package gguf is not installed: pip install -e ".[gguf]"') from None
    part = path.with_name(path.name + ".part")
    check_free(part)
    try:
        write_all(gguf.GGUFWriter(part, "gpt2"), gguf, hparams, arrays, encoder)
        check_free(path)                                        # much may have happened meanwhile
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def check_free(path):
    if os.path.lexists(path):
        raise ValueError(f"{path} exists: delete it, or take another name")


def write_all(writer, gguf, hparams, arrays, encoder):
    """Hyperparameters, tokenizer and weights."""
    writer.add_context_length(hparams["n_ctx"])
    writer.add_embedding_length(hparams["n_embd"])
    writer.add_feed_forward_length(4 * hparams["n_embd"])
    writer.add_block_count(hparams["n_layer"])
    writer.add_head_count(hparams["n_head"])
    writer.add_layer_norm_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    add_tokenizer(writer, encoder, gguf.TokenType)
    for name, shape in shapes(**hparams).items():
        if name not in arrays:
            raise ValueError(f"{name} is missing from the checkpoint")
        array = np.asarray(arrays[name], dtype=np.float32).reshape(shape)
        # llama.cpp keeps the weights of one output together: [n_in, n_out] -> [n_out, n_in]
        writer.add_tensor(gguf_name(name), np.ascontiguousarray(array.T) if name.endswith("/w") else array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer, encoder, types):
    """Byte-level BPE as llama.cpp knows it: the tokens in order, which are special, and the merges."""
    tokens = [encoder.tokens[i] for i in range(encoder.n_vocab)]
    merged = set(encoder.char_of.values()) | {"".join(pair) for pair in encoder.ranks}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")               # the regular expression that splits the text into chunks
    writer.add_token_list(tokens)
    writer.add_token_types([types.NORMAL if token in merged else types.CONTROL for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in encoder.ranks])
    writer.add_add_bos_token(False)
    if encoder.eos is not None:
        writer.add_bos_token_id(encoder.eos)
        writer.add_eos_token_id(encoder.eos)


def main(folder, path):
    """Write a model as a GGUF file, for llama.cpp.  Nothing is overwritten.

    Args:
        folder: a model's folder, such as models/demo-target
        path: the new file, such as demo-target.gguf
    """
    folder, path = Path(folder), Path(path)
    if path.suffix != ".gguf" or not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: name a file that ends in .gguf, in a folder that exists")
    check_free(path)
    write_gguf(path, *read_folder(folder), load_encoder(folder))
    print(f"{path}: {path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    sys.exit(console.run(main))
