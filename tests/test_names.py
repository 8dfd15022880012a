"""names.py: a name is looked up in --models_dir, then in Hugging Face's cache, then downloaded."""
import json
import shutil

import pytest
from helpers import HUGGINGFACE

from engine.loading import command_line, download, names
from engine.loading.names import find_folder
from methods.__main__ import main
from methods.drafters.heads import load_head
from utils import load_model

LAYOUT = "config.json", "model.safetensors", "vocab.json", "merges.txt"


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """An empty cache, no network, and a download that gives up at once."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    for model in download.MODELS.values():
        monkeypatch.setitem(model, "urls", ["http://127.0.0.1:1/none"])


def cache(hub, name, source=HUGGINGFACE, without=()):
    """A model in Hugging Face's cache, as its libraries lay it out -> the snapshot of its branch main."""
    repository = hub / f"models--{name.replace('/', '--')}"
    snapshot = repository / "snapshots" / "607a30d7"
    for place in snapshot, repository / "blobs", repository / "refs", repository / "snapshots" / "older":
        place.mkdir(parents=True)
    (repository / "refs" / "main").write_text(snapshot.name)
    for i, file in enumerate(name for name in LAYOUT if name not in without):
        shutil.copyfile(source / file, repository / "blobs" / f"{i:040d}")
        (snapshot / file).symlink_to(f"../../blobs/{i:040d}")
    return snapshot


def run(*words):
    return command_line.run(main, ["-n", "3", "--prompt", "a", "--models_dir", "models", "--json", *words])


def test_two_models_in_the_cache_run_by_name_and_it_says_where_they_were(tmp_path, capsys):
    names = "gpt2-medium", "distilgpt2"
    places = cache(tmp_path / "hub", "openai-community/gpt2-medium"), cache(tmp_path / "hub", "distilgpt2")
    assert run("--target_model_size", names[0], "--draft_model_size", names[1]) == 0
    out, err = capsys.readouterr()
    assert err == "".join(f"note: {name} was read from {place}\n" for name, place in zip(names, places))
    assert json.loads(out)["target"] == "gpt2-medium" and json.loads(out)["same_text"]


def test_a_model_that_is_missing_is_named_in_one_sentence(tmp_path, capsys):
    cache(tmp_path / "hub", "gpt2-medium")
    assert run("--target_model_size", "gpt2-medium", "--draft_model_size", "gpt2-xl") == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: gpt2-xl is neither in models nor, as safetensors, in "
                          f"{tmp_path / 'hub'}, and hparams.json ")
    assert err.count("\n") == 1 and not out and not (tmp_path / "models" / "1558M" / "hparams.json").exists()


@pytest.mark.parametrize("name", ["355M", "355m", "345M", "gpt2-medium", "openai-community/gpt2-medium"])
def test_the_names_of_a_model_are_one_and_its_folder_goes_before_the_cache(tmp_path, name):
    snapshot = cache(tmp_path / "hub", "gpt2-medium")
    assert find_folder(name, "models") == snapshot
    mine = tmp_path / "models" / "355M"
    mine.mkdir(parents=True)
    (mine / "hparams.json").write_bytes(b"x" * 91)              # an unfinished download
    assert find_folder(name, "models") == snapshot
    shutil.rmtree(mine)
    shutil.copytree(HUGGINGFACE, mine)             # the user's own
    assert find_folder(name, tmp_path / "models") == mine


def test_other_names_in_the_cache_work_and_what_is_incomplete_there_is_downloaded(tmp_path, monkeypatch):
    assert load_model(str(cache(tmp_path / "hub", "someone/gpt2-stories")))[0].n_ctx == 8
    assert find_folder("someone/gpt2-stories", "models").name == "607a30d7"
    old = cache(tmp_path / "hub", "gpt2", without=["model.safetensors"])
    (old / "pytorch_model.bin").write_bytes(b"")
    monkeypatch.setattr(download, "download", lambda *words: words)
    assert find_folder("gpt2", "models") == ("124M", "models")


@pytest.mark.parametrize("variables, place", [
    ({"HF_HUB_CACHE": "a", "HF_HOME": "b"}, "a"), ({"HF_HOME": "b"}, "b/hub"),
    ({"HUGGINGFACE_HUB_CACHE": "a", "HF_HOME": "b"}, "a"),
    ({"XDG_CACHE_HOME": "c"}, "c/huggingface/hub"), ({}, "home/.cache/huggingface/hub")])
def test_the_cache_is_where_the_environment_says(tmp_path, monkeypatch, variables, place):
    for name in "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME":
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "home", "USERPROFILE": "home", **variables}.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    snapshot = cache(tmp_path / place, "gpt2")
    assert find_folder("gpt2", "models") == snapshot


def test_a_file_and_a_head_are_not_models_and_what_pip_left_behind_is_named(tmp_path, monkeypatch):
    for name in "model.safetensors", "ckpt.pt":
        (tmp_path / name).write_bytes(b"x")
    for name, says in [("model.safetensors", "is a file: name the folder"),
                       ("ckpt.pt", "is a file: name the folder"),
                       (names.find_embedded("demo-eagle"), "eagle.* it is a head: name the model")]:
        with pytest.raises(ValueError, match=says):
            load_model(name)
    monkeypatch.setattr(names, "__file__", str(tmp_path / "loading" / "names.py"))
    for load in lambda: find_folder("demo-draft", "models"), lambda: load_head("eagle", "demo-eagle", None):
        with pytest.raises(ValueError, match="is not in this installation: .* pip install -e ."):
            load()


def test_the_error_for_an_unknown_name_lists_the_known_ones_and_the_nearest(tmp_path):
    (tmp_path / "models" / "training").mkdir(parents=True)
    for name in "125M", "training", "":
        said = f"no model or folder '{name}'.*: use one of 124M, .*, demo-target"
        with pytest.raises(ValueError, match=said):
            load_model(name)
    with pytest.raises(ValueError, match="did you mean gpt2-medium?"):
        load_model("gpt2-medum")
