"""utils.py: folders that load, folders that say why they do not, and files that change meanwhile."""
import json
import math
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from encoder import EOS, bytes_to_unicode
from loading.checkpoint import mapping_of, read_tensorflow, write_tensorflow
from loading.folder import check_sizes
from utils import check_files, load_model

HUGGINGFACE = Path(__file__).parent / "fixtures" / "huggingface"
DATA = "model.ckpt.data-00000-of-00001"
HPARAMS = {"n_vocab": 257, "n_ctx": 8, "n_embd": 4, "n_head": 2, "n_layer": 2}


def weights(n_vocab=257, n_ctx=8, n=4, n_layer=2, dtype=np.float32):
    """{OpenAI's name: array in OpenAI's shape} at random."""
    shapes = {"wte": [n_vocab, n], "wpe": [n_ctx, n], "ln_f/g": [n], "ln_f/b": [n]}
    for i in range(n_layer):
        shapes |= {f"h{i}/{name}": shape for name, shape in {
            "ln_1/g": [n], "ln_1/b": [n], "attn/c_attn/w": [1, n, 3 * n], "attn/c_attn/b": [3 * n],
            "attn/c_proj/w": [1, n, n], "attn/c_proj/b": [n], "ln_2/g": [n], "ln_2/b": [n],
            "mlp/c_fc/w": [1, n, 4 * n], "mlp/c_fc/b": [4 * n], "mlp/c_proj/w": [1, 4 * n, n],
            "mlp/c_proj/b": [n]}.items()}
    rng = np.random.default_rng(0)
    return {f"model/{name}": rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}


def folder(path, arrays=None, hparams=HPARAMS, n_tokens=257):
    """A model's folder in OpenAI's layout; the tokens are the bytes, <|endoftext|>, and more like it."""
    path.mkdir(exist_ok=True)
    write_tensorflow(path / "model.ckpt", weights() if arrays is None else arrays)
    (path / "hparams.json").write_text(hparams if isinstance(hparams, str) else json.dumps(hparams))
    tokens = [*bytes_to_unicode().values(), EOS, *(f"<{i}>" for i in range(99))][:n_tokens]
    (path / "encoder.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (path / "vocab.bpe").write_text("#version: 0.2\n")
    return path


def refused(path, reason):
    """One sentence that names the folder (or a file of it) and the reason."""
    with pytest.raises(ValueError, match=f"(?s)^{re.escape(str(path))}.*{reason}") as error:
        load_model(path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 1000


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
    assert model.params["head"].ndim == second["mlp"]["c_fc"]["w"].ndim == 5  # all in tiles


def test_the_models_of_the_repository_are_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, encoder = load_model("demo-draft")
    assert model.n_vocab == encoder.n_vocab and list(tmp_path.iterdir()) == []


def test_an_unknown_name_is_told_what_there_is():
    with pytest.raises(ValueError, match="no model or folder '125M': use one of 124M, .*, demo-target, or"):
        load_model("125M")


def test_a_known_name_is_downloaded_to_where_models_are_kept(tmp_path, monkeypatch):
    def download(name, models_dir):
        assert (name, models_dir) == ("355M", "somewhere")
        return folder(tmp_path)
    monkeypatch.setattr("loading.download.download", download)
    assert load_model("355M", "somewhere")[0].n_ctx == 8


def test_a_folder_without_any_model_is_told_what_it_lacks(tmp_path):
    refused(tmp_path, "neither hparams.json .* nor config.json")


@pytest.mark.parametrize("n_tokens", [256, 258])
def test_a_vocabulary_of_another_size_than_the_models_is_refused(tmp_path, n_tokens):
    refused(folder(tmp_path, n_tokens=n_tokens), f"vocabulary has {n_tokens} tokens and the model 257")


def test_a_transposed_matrix_is_refused_though_its_size_is_right(tmp_path):
    for name in "model/h1/mlp/c_proj/w", "model/wpe":
        arrays = weights()
        arrays[name] = arrays[name].swapaxes(-1, -2)
        refused(folder(tmp_path, arrays), f"{name} has the shape")


def test_a_tensor_that_is_missing_is_named(tmp_path):
    arrays = weights()
    del arrays["model/h0/ln_2/b"]
    refused(folder(tmp_path, arrays), "model/h0/ln_2/b is missing")


@pytest.mark.parametrize("value", [True, False, 0, -1, 2.0, "2", None, [2], math.nan])
@pytest.mark.parametrize("size", HPARAMS)
def test_a_size_that_is_none_is_refused(size, value):
    with pytest.raises(ValueError, match=f"^{size} is {re.escape(repr(value))}, which is not a size"):
        check_sizes(dict.fromkeys(HPARAMS, 1) | {size: value}, {"model/h0/ln_1/g": None})


def test_true_is_no_number_of_layers(tmp_path):
    refused(folder(tmp_path, weights(n_layer=1), HPARAMS | {"n_layer": True}),
            "n_layer is True, which is not a size")


@pytest.mark.parametrize("n_layer", [1, 3, 10**9, 10**18])
def test_another_number_of_layers_than_in_the_file_is_refused_before_lists_are_built(tmp_path, n_layer):
    refused(folder(tmp_path, hparams=HPARAMS | {"n_layer": n_layer}),
            f"n_layer is {n_layer}, .* has 2 layers")


@pytest.mark.parametrize("size, reason", [("n_vocab", "wte|vocabulary"), ("n_ctx", "wpe"), ("n_embd", "wte"),
                                          ("n_head", "heads")])
def test_a_huge_size_is_refused_before_memory_is_asked_for(tmp_path, size, reason):
    refused(folder(tmp_path, hparams=HPARAMS | {size: 10**9}), reason)


def test_heads_that_do_not_divide_the_width_are_refused(tmp_path):
    refused(folder(tmp_path, hparams=HPARAMS | {"n_head": 3}), "n_embd 4 does not divide into 3 heads")


DAMAGED = {"empty": "", "cut": '{"n_vocab": 257,', "a page": "<html>404</html>", "a list": "[257]",
           "a number": "257", "deep": "[" * 200_000, "deep objects": '{"a":' * 200_000,
           "a long number": '{"n_vocab": ' + "9" * 5000 + "}"}


@pytest.mark.parametrize("file", ["hparams.json", "config.json"])
@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_json_is_told_with_the_files_name(tmp_path, file, damage):
    (tmp_path / file).write_text(DAMAGED[damage])
    refused(tmp_path, f"{file} is damaged .*: get it again")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("file", ["hparams.json", "config.json", "model.ckpt.index", DATA, "encoder.json",
                                  "vocab.bpe"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path, file):
    folder(tmp_path)
    if file == "config.json":
        (tmp_path / "hparams.json").unlink()
    (tmp_path / file).unlink(missing_ok=True)
    os.mkfifo(tmp_path / file)
    with pytest.raises(ValueError, match=f"{re.escape(str(tmp_path))}.*(no file|not a file|a device)"):
        load_model(tmp_path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["model/wte", "model/h1/mlp/c_fc/w", "model/ln_f/g"])
def test_weights_that_are_no_numbers_are_told_with_the_models_and_the_tensors_name(tmp_path, name, value):
    arrays = weights()
    arrays[name].flat[-1] = value
    refused(folder(tmp_path, arrays), f": {name} holds NaN or infinity")


def test_a_layout_of_hugging_face_without_a_size_is_refused(tmp_path):
    for file in HUGGINGFACE.iterdir():
        shutil.copy(file, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for key, size in ("vocab_size", "n_vocab"), ("n_positions", "n_ctx"), ("n_embd", "n_embd"), ("n_layer",
                                                                                                 "n_layer"):
        (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k != key}))
        refused(tmp_path, f"{size} is None, which is not a size")


@pytest.mark.parametrize("key, value", [("activation_function", "relu"), ("layer_norm_epsilon", 1e-6)])
def test_a_model_that_computes_otherwise_is_refused_and_what_is_not_said_is_as_usual(tmp_path, key, value):
    for file in HUGGINGFACE.iterdir():
        shutil.copy(file, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {key: value}))
    refused(tmp_path, f"{key} is {value!r} there")
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k != key}))
    assert load_model(tmp_path)[0].n_ctx == 8


# Memory, and files that change meanwhile --------------------------------------------------------------------

def resident(path):
    """Bytes of the mapped file that are in memory; 0 where it is not mapped."""
    found = re.search(rf"{re.escape(str(path))}.*\n(?:.*\n)*?Rss: *(\d+) kB",
                      Path("/proc/self/smaps").read_text())
    return 1024 * int(found[1]) if found else 0


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="asks Linux for the memory in use")
def test_of_a_model_that_was_loaded_the_file_takes_no_memory(tmp_path):
    """Its matrices were copied into another layout; the rest comes from the file when asked for."""
    arrays = weights(n=128)
    folder(tmp_path, arrays, HPARAMS | {"n_embd": 128})
    model, _ = load_model(tmp_path)
    assert os.path.getsize(tmp_path / DATA) > 1_500_000 and mapping_of(model.params["wte"]) is not None
    assert resident(tmp_path / DATA) < 150_000                  # what shares a page with a neighbour stays
    assert np.array_equal(model.params["wte"], arrays["model/wte"])


def test_a_file_that_is_written_to_while_the_model_is_in_use_is_told(tmp_path):
    folder(tmp_path)
    model, _ = load_model(tmp_path)
    model([1, 2, 3])
    check_files(model)                                          # nothing happened
    data = (tmp_path / DATA).read_bytes()
    with open(tmp_path / DATA, "r+b") as file:                  # in place, as a careless program does
        file.write(data[:-8] + b"careless")
    # a file system may tell the time in steps of seconds
    os.utime(tmp_path / DATA, ns=(1, 1))
    with pytest.raises(ValueError, match=f"{DATA} was written to while .*start again"):
        check_files(model)


def test_a_file_that_grows_is_told_whatever_the_time_says(tmp_path):
    model, _ = load_model(folder(tmp_path))
    before = (tmp_path / DATA).stat()
    with open(tmp_path / DATA, "ab") as file:
        file.write(b"more")
    os.utime(tmp_path / DATA, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ValueError, match="was written to"):
        check_files(model)


@pytest.mark.skipif(os.name == "nt", reason="Windows does not replace a file that is in use")
def test_a_file_that_is_replaced_or_deleted_is_still_ours(tmp_path):
    model, _ = load_model(folder(tmp_path))
    before = model([1, 2, 3])
    write_tensorflow(tmp_path / "model.ckpt", weights(n_ctx=9))
    check_files(model)
    (tmp_path / DATA).unlink()
    check_files(model)
    model.reset()
    assert np.array_equal(model([1, 2, 3]), before)


def test_a_file_that_is_written_to_while_it_is_read_is_told(tmp_path, monkeypatch):
    def read(prefix):
        os.utime(tmp_path / DATA, ns=(1, 1))
        return read_tensorflow(prefix)
    monkeypatch.setattr("loading.folder.read_tensorflow", read)
    with pytest.raises(ValueError, match="was written to"):
        load_model(folder(tmp_path))


def test_a_model_that_was_copied_as_a_whole_does_not_care_for_its_files(tmp_path):
    arrays = weights()
    model, _ = load_model(folder(tmp_path, weights(dtype=np.float16)))
    wte = model.params["wte"]
    assert np.abs(wte - arrays["model/wte"]).max() < 0.01 and mapping_of(wte) is None
    os.utime(tmp_path / DATA, ns=(1, 1))
    check_files(model)
    check_files(object())                                       # nor does a model without files


def test_hugging_faces_file_is_watched_too(tmp_path):
    for file in HUGGINGFACE.iterdir():
        shutil.copy(file, tmp_path)
    model, _ = load_model(tmp_path)
    os.utime(tmp_path / "model.safetensors", ns=(1, 1))
    with pytest.raises(ValueError, match="model.safetensors was written to"):
        check_files(model)


def test_the_command_line_says_that_a_file_changed_while_it_ran(tmp_path, monkeypatch, capsys):
    """Not that the two texts differ, which must not happen: they differ because the weights do."""
    import main
    folder(tmp_path)

    class Watch(main.Timed):                                    # while it runs, somebody writes to the file
        def __call__(self, *args):
            os.utime(tmp_path / DATA, ns=(1, 1))
            return super().__call__(*args)
    monkeypatch.setattr(main, "Timed", Watch)
    status = main.main(["--prompt", "a", "-n", "3", f"--draft_model_size={tmp_path}",
                        f"--target_model_size={tmp_path}"])
    out, err = capsys.readouterr()
    assert status == 2 and err.startswith("error: ") and "was written to" in err and err.count("\n") == 1
    assert "Speed-up" not in out and "report it" not in out
