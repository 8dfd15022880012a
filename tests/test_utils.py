"""utils.py: names and folders become models; for those that cannot, the error says why."""
import shutil

import numpy as np
import pytest
from test_folder import HPARAMS, HUGGINGFACE, folder, refused, weights

from utils import load_model


def test_a_folder_loads_with_every_weight_in_its_place(tmp_path):
    arrays = weights()
    model, encoder = load_model(folder(tmp_path, arrays))
    assert (model.n_vocab, model.n_ctx, encoder.n_vocab, encoder.eos) == (257, 8, 257, 256)
    assert np.array_equal(model.params["wte"], arrays["model/wte"])
    second = model.params["blocks"][1]
    assert np.array_equal(second["mlp"]["c_fc"]["b"], arrays["model/h1/mlp/c_fc/b"])
    assert np.array_equal(second["ln_2"]["g"], arrays["model/h1/ln_2/g"])
    assert np.array_equal(model.params["ln_f"]["b"], arrays["model/ln_f/b"])
    assert model.cache.shape[:3] == (2, 2, 2)                   # layers; keys and values; heads
    assert model.params["head"].ndim == second["mlp"]["c_fc"]["w"].ndim == 5  # stored in tiles


def test_half_precision_becomes_float32(tmp_path):
    wte = load_model(folder(tmp_path, weights(dtype=np.float16)))[0].params["wte"]
    assert wte.dtype == np.float32 and 0 < np.abs(wte - weights()["model/wte"]).max() < 0.01


@pytest.mark.parametrize("file", ["model", "old"])
def test_logits_of_a_hugging_face_folder_are_those_of_transformers(tmp_path, file):
    """From the file to the logits, for names with the prefix "transformer." and for the old ones without it,
    with mask buffers and lm_head."""
    for name in "config.json", "vocab.json", "merges.txt":
        shutil.copy(HUGGINGFACE / name, tmp_path)
    shutil.copy(HUGGINGFACE / f"{file}.safetensors", tmp_path / "model.safetensors")
    values = np.load(HUGGINGFACE / "values.npz")
    model, _ = load_model(tmp_path)
    logits = model(values["tokens"].tolist(), len(values["tokens"]))
    assert logits.shape == (8, 257) and np.abs(logits - values["logits"]).max() < 1e-5


@pytest.mark.parametrize("n_tokens", [256, 258])
def test_a_vocabulary_of_another_size_than_the_models_is_refused(tmp_path, n_tokens):
    path = folder(tmp_path, n_tokens=n_tokens)
    with pytest.raises(ValueError, match=f"it has {n_tokens} tokens, and the model .* 257"):
        load_model(path)


def test_a_transposed_matrix_is_refused_though_its_size_is_right(tmp_path):
    for name in "model/h1/mlp/c_proj/w", "model/wpe":
        arrays = weights()
        arrays[name] = arrays[name].swapaxes(-1, -2)
        refused(folder(tmp_path, arrays), f"{name} has the shape", load_model)


def test_a_tensor_that_is_missing_is_named(tmp_path):
    arrays = weights()
    del arrays["model/h0/ln_2/b"]
    refused(folder(tmp_path, arrays), "model/h0/ln_2/b is missing", load_model)


@pytest.mark.parametrize("size, reason", [("n_vocab", "wte|vocabulary"), ("n_ctx", "wpe"), ("n_embd", "wte"),
                                          ("n_head", "heads")])
def test_a_huge_size_is_refused_before_memory_is_asked_for(tmp_path, size, reason):
    refused(folder(tmp_path, hparams=HPARAMS | {size: 10**9}), reason, load_model)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["model/wte", "model/h1/mlp/c_fc/w", "model/ln_f/g"])
def test_weights_that_are_not_numbers_are_reported_with_the_tensors_name(tmp_path, name, value):
    arrays = weights()
    arrays[name].flat[-1] = value
    refused(folder(tmp_path, arrays), f": {name} holds NaN or infinity", load_model)
