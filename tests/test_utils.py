"""utils.py: a name or a folder gives a model, or its encoder alone, or a pair that shares a vocabulary."""
import shutil

import numpy as np
import pytest
from helpers import HUGGINGFACE, ROOT

from engine.loading import download
from utils import load_encoder, load_model, load_pair

DEMO = ROOT / "models" / "demo-draft"


def test_a_name_and_a_folder_give_the_same_model_whose_encoder_reads_back_what_it_writes():
    (by_name, encoder), (by_folder, _) = load_model("demo-draft"), load_model(DEMO)
    tokens = encoder.encode("The fox looked at the hen.")
    assert encoder.decode(tokens) == "The fox looked at the hen."
    assert np.array_equal(by_name(tokens, 3), by_folder(tokens, 3)) and by_name(tokens).dtype == np.float32


def test_an_encoder_needs_no_weights_and_downloads_none(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(download, "download", lambda *_: pytest.fail("it downloads"))
    for name in "encoder.json", "vocab.bpe":
        shutil.copy(DEMO / name, tmp_path)
    text = "It's a hen, isn't it?"
    assert load_encoder(tmp_path).encode(text) == load_model("demo-draft")[1].encode(text)
    with pytest.raises(ValueError, match="124M is neither in .* nor in .*: load_model downloads it"):
        load_encoder("124M", tmp_path / "models")


def test_a_pair_shares_the_targets_encoder_and_two_vocabularies_are_refused():
    draft, target, encoder = load_pair("demo-draft", "demo-target")
    assert draft.n_vocab == target.n_vocab and encoder.eos == load_encoder("demo-target").eos
    with pytest.raises(ValueError, match="vocabular"):
        load_pair(HUGGINGFACE, "demo-target")
