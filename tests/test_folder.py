"""loading/folder.py: folders in both layouts are read; for one that cannot be used, the error says why."""
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from encoder import EOS, bytes_to_unicode
from loading.checkpoint import read_safetensors, read_tensorflow, write_tensorflow
from loading.folder import check_sizes, openai_names, read_folder, shapes

FIXTURES = Path(__file__).parent / "fixtures"
HUGGINGFACE = FIXTURES / "huggingface"
HPARAMS = {"n_vocab": 257, "n_ctx": 8, "n_embd": 4, "n_head": 2, "n_layer": 2}


def weights(dtype=np.float32, **sizes):
    """{OpenAI's name: random array in OpenAI's shape}; a layer's matrices are stored as convolutions."""
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((1, *shape) if name.endswith("/w") else shape).astype(dtype)
            for name, shape in shapes(**HPARAMS | sizes).items()}


def folder(path, arrays=None, hparams=HPARAMS, n_tokens=257):
    """A model's folder in OpenAI's layout.  The tokens are the bytes, <|endoftext|>, and further ones."""
    path.mkdir(exist_ok=True)
    write_tensorflow(path / "model.ckpt", weights() if arrays is None else arrays)
    (path / "hparams.json").write_text(json.dumps(hparams))
    tokens = [*bytes_to_unicode().values(), EOS, *(f"<{i}>" for i in range(99))][:n_tokens]
    (path / "encoder.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (path / "vocab.bpe").write_text("#version: 0.2\n")
    return path


def refused(path, reason, read=read_folder):
    """Reading raises a ValueError: one sentence that names the folder (or a file in it) and the reason."""
    with pytest.raises(ValueError, match=f"(?s)^{re.escape(str(path))}.*{reason}") as error:
        read(path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 1000


def test_both_layouts_hold_every_parameter_under_openais_name(tmp_path):
    arrays = weights()
    hparams, read = read_folder(folder(tmp_path, arrays))
    assert hparams == HPARAMS and read.keys() == arrays.keys() == shapes(**HPARAMS).keys()
    assert all(np.array_equal(read[name], arrays[name]) for name in arrays)
    hparams, read = read_folder(HUGGINGFACE)
    assert {name: array.shape for name, array in read.items()} == shapes(**hparams)


def test_a_folder_without_any_model_is_told_what_it_lacks(tmp_path):
    refused(tmp_path, "neither hparams.json .* nor config.json")


@pytest.mark.parametrize("size", HPARAMS)
def test_a_size_that_cannot_be_is_refused(size):
    for value in True, 0, -1, 2.0, "2", None, [2], math.nan:
        with pytest.raises(ValueError, match=f"^{size} is {re.escape(repr(value))}, which is not a size"):
            check_sizes(dict.fromkeys(HPARAMS, 1) | {size: value}, {"model/h0/ln_1/g": None})


@pytest.mark.parametrize("n_layer", [1, 3, 10**18])
def test_another_number_of_layers_than_in_the_file_is_refused_before_lists_are_built(tmp_path, n_layer):
    refused(folder(tmp_path, hparams=HPARAMS | {"n_layer": n_layer}),
            f"n_layer is {n_layer}, .* has 2 layers")


def test_heads_that_do_not_divide_the_width_are_refused(tmp_path):
    refused(folder(tmp_path, hparams=HPARAMS | {"n_head": 3}), "n_embd 4 does not divide into 3 heads")


DAMAGED = {"empty": "", "cut": '{"n_vocab": 257,', "a page": "<html>404</html>", "a list": "[257]",
           "deep": "[" * 200_000, "a long number": '{"n_vocab": ' + "9" * 5000 + "}"}


@pytest.mark.parametrize("file", ["hparams.json", "config.json"])
def test_damaged_json_is_reported_with_the_files_name(tmp_path, file):
    for text in DAMAGED.values():
        (tmp_path / file).write_text(text)
        refused(tmp_path, f"{file} is damaged .*: get it again")


@pytest.mark.parametrize("key, size", [("vocab_size", "n_vocab"), ("n_positions", "n_ctx"),
                                       ("n_layer", "n_layer")])
def test_a_layout_of_hugging_face_without_a_size_is_refused(tmp_path, key, size):
    shutil.copytree(HUGGINGFACE, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k != key}))
    refused(tmp_path, f"{size} is None, which is not a size")


@pytest.mark.parametrize("key, value", [
    ("activation_function", "relu"), ("layer_norm_epsilon", 1e-6), ("scale_attn_by_inverse_layer_idx", True),
    ("scale_attn_weights", False), ("add_cross_attention", True), ("model_type", "gpt_neo")])
def test_a_model_that_computes_otherwise_is_refused_and_what_is_not_said_is_as_usual(tmp_path, key, value):
    shutil.copytree(HUGGINGFACE, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {key: value}))
    refused(tmp_path, f"{key} is {value!r} there")
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k != key}))
    assert read_folder(tmp_path)[0]["n_ctx"] > 0


# Hugging Face's names ---------------------------------------------------------------------------------------

def test_names_of_hugging_face_to_names_of_openai():
    arrays = read_safetensors(HUGGINGFACE / "old.safetensors")          # with mask buffers and lm_head
    renamed = openai_names(arrays)
    small = {name for name in read_tensorflow(FIXTURES / "tensorflow" / "small") if name.startswith("model/")}
    assert set(renamed) == small                                                # both models have two layers
    assert renamed["model/h1/attn/c_attn/b"] is arrays["h.1.attn.c_attn.bias"]
    assert renamed["model/h0/ln_2/g"] is arrays["h.0.ln_2.weight"]
    assert openai_names({"h.10.mlp.c_fc.weight": 1, "transformer.h.47.ln_1.bias": 2,
                         "transformer.ln_f.weight": 3}) == {
        "model/h10/mlp/c_fc/w": 1, "model/h47/ln_1/b": 2, "model/ln_f/g": 3}


@pytest.mark.parametrize("names, reason", [
    (["lm_head.weight"], "differs from wte"),
    *(([name], "not one of GPT-2's") for name in
      ("score.weight", "h.0.crossattention.c_attn.weight", "wte.bias", "h.x.ln_1.bias", "model/wte", "",
       "transformer.transformer.wte.weight", "h.0.mlp.c_fc.weight\n"))])
def test_names_that_are_not_gpt2s_are_refused(names, reason):
    with pytest.raises(ValueError, match=reason):
        openai_names({name: np.zeros((2, 2)) for name in names})


def test_an_lm_head_of_its_own_is_refused():
    wte = np.ones((3, 2), np.float32)
    assert set(openai_names({"lm_head.weight": wte.copy(), "wte.weight": wte})) == {"model/wte"}
    for other in wte + np.eye(3, 2), wte[:2], np.ones((3, 2, 1)):
        with pytest.raises(ValueError, match="differs from wte"):
            openai_names({"lm_head.weight": other, "transformer.wte.weight": wte})
