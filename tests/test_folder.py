"""folder.py loads the folders people have, with transformers' logits, or a sentence says why not.
engine/loading/export.py writes what other programs expect; test_outside.py runs one of them on it.

The folders are changes to fixtures/huggingface, whose logits transformers computed.
"""
import json
import math
import re
import shutil

import numpy as np
import pytest
from helpers import FIXTURES, HUGGINGFACE, full_disk, refused, swap_pickle, write_folder

from encoder import EOS, bytes_to_unicode
from engine.loading.checkpoint import read_safetensors, write_tensorflow
from engine.loading.command_line import run
from engine.loading.export import main
from engine.loading.folder import check_sizes, list_shapes, read_folder, rename
from sampling import probabilities
from utils import load_model

VALUES = np.load(HUGGINGFACE / "values.npz")
HPARAMS = {"n_vocab": 257, "n_ctx": 8, "n_embd": 4, "n_head": 2, "n_layer": 2}
LETTERS = [*bytes_to_unicode().values(), EOS]


# Folders in OpenAI's layout ---------------------------------------------------------------------------------

def weights(dtype=np.float32, **sizes):
    """{OpenAI's name: random array in OpenAI's shape}; a layer's matrices are stored as convolutions."""
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((1, *shape) if name.endswith("/w") else shape).astype(dtype)
            for name, shape in list_shapes(**HPARAMS | sizes).items()}


def folder(path, arrays=None, hparams=HPARAMS, n_tokens=257):
    return write_folder(path, hparams, weights() if arrays is None else arrays, n_tokens)


# Changes to a folder in Hugging Face's layout ---------------------------------------------------------------

def edit(name, *without, **values):
    """Removes these keys from a JSON file, which may be new, and sets others."""
    def change(path):
        found = json.loads((path / name).read_text()) if (path / name).exists() else {}
        found = {key: value for key, value in found.items() if key not in without}
        (path / name).write_text(json.dumps(found | values))
    return change


def save(path, arrays):
    save_file = pytest.importorskip("safetensors.numpy", reason="safetensors is missing").save_file
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)


def rewrite(change):
    """change: arrays -> arrays of model.safetensors, under its names without "transformer."."""
    def rewritten(path):
        arrays = read_safetensors(path / "model.safetensors")
        save(path / "model.safetensors", change({name[12:]: array for name, array in arrays.items()}))
    return rewritten


def add(*names, content=b"x"):
    return lambda path: [(path / name).write_bytes(content) for name in names]


def rename_weights(name):
    return lambda path: (path / "model.safetensors").rename(path / name)


def cut_into_shards(path):
    arrays = read_safetensors(path / "model.safetensors")
    files = {name: f"model-{i % 2 + 1:05d}-of-00002.safetensors" for i, name in enumerate(arrays)}
    for file in {*files.values()}:
        save(path / file, {name: array for name, array in arrays.items() if files[name] == file})
    (path / "model.safetensors").unlink()
    edit("model.safetensors.index.json", metadata={}, weight_map=files)(path)


def widen(arrays, n_inner=24):
    """Wider feed-forward layers that compute the same, because the additional weights are 0."""
    more = n_inner - 16
    pads = {"mlp.c_fc.weight": [(0, 0), (0, more)], "mlp.c_fc.bias": [(0, more)],
            "mlp.c_proj.weight": [(0, more), (0, 0)]}
    return {name: np.pad(array, pads.get(name[4:], 0)) for name, array in arrays.items()}


def mark(path):
    """Adds a byte order mark to every text file, as Windows' editor does."""
    for file in [*path.glob("*.json"), *path.glob("*.txt")]:
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())


def one_tokenizer(**parts):
    """tokenizer.json in place of the two files."""
    def change(path):
        (path / "vocab.json").unlink()
        (path / "merges.txt").unlink()
        edit("tokenizer.json", **tokenizer(**parts))(path)
    return change


def tokenizer(tokens=LETTERS, merges=(), prefix=False, **parts):
    return dict(added_tokens=[], normalizer=None, post_processor=None, pre_tokenizer=dict(
        type="ByteLevel", add_prefix_space=prefix, use_regex=True), model=dict(
        type="BPE", vocab={token: i for i, token in enumerate(tokens)}, merges=[*merges])) | parts


def in_place_of_safetensors(file):
    """What torch.save wrote (fixtures/README.md) instead of model.safetensors; nanoGPT has no config.json."""
    def change(path):
        (path / "model.safetensors").unlink()
        (path / "config.json").unlink() if file == "ckpt.pt" else None
        shutil.copy(HUGGINGFACE / file, path / file)
    return change


def together(*changes):
    return lambda path: [change(path) for change in changes]


def pad_rows(n):
    return together(edit("config.json", vocab_size=257 + n), rewrite(
        lambda a: a | {"wte.weight": np.pad(a["wte.weight"], [(0, n), (0, 0)], constant_values=9)}))


def gpt_2_simple(path):
    """From gpt-2-simple: two checkpoints named after their steps; the file `checkpoint` names the later."""
    hparams, arrays, _ = read_folder(path)
    for file in path.iterdir():
        file.unlink()
    folder(path, hparams={size: hparams[size] for size in HPARAMS})
    (path / "model.ckpt.index").rename(path / "model-500.index")
    (path / "model.ckpt.data-00000-of-00001").rename(path / "model-500.data-00000-of-00001")
    write_tensorflow(path / "model-1000", arrays)
    (path / "checkpoint").write_text('model_checkpoint_path: "/content/run1/model-1000"\n'
                                     'all_model_checkpoint_paths: "/content/run1/model-500"\n')


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


def openai(change=lambda arrays: None, n_tokens=257, **sizes):
    """A folder in OpenAI's layout in its place, with changed weights, tokens or sizes."""
    def replace(path):
        for file in path.iterdir():
            file.unlink()
        change(arrays := weights())
        folder(path, arrays, HPARAMS | sizes, n_tokens)
    return replace


def turn(name):
    return openai(lambda arrays: arrays.update({name: arrays[name].swapaxes(-1, -2)}))


def spoil(name, value):
    return openai(lambda arrays: arrays[name].put(-1, value))


LOADS = {           # what is changed in a folder whose logits stay the same
    "as saved": together(),
    "tokenizer.json alone": one_tokenizer(),
    "both, which agree": edit("tokenizer.json", **tokenizer()),
    "shards": cut_into_shards,
    **{file: in_place_of_safetensors(file) for file in ("pytorch_model.bin", "legacy.bin", "ckpt.pt")},
    "OpenAI's files, too": lambda path: folder(path, hparams=dict(HPARAMS)),
    **{f"{head}, left out": rewrite(lambda a, head=head: {head: np.ones((2, 4), "f4"), **{
        f"pretrained_model.transformer.{name}": array for name, array in a.items()}}) for head in (
            "v_head.summary.weight", "score.weight", "multiple_choice_head.summary.weight")},
    "another format beside": add("pytorch_model.bin", "tf_model.h5", "optimizer.pt", "training_args.bin"),
    "a Git LFS pointer that is not needed": add("pytorch_model.bin", content=POINTER),
    "a byte order mark": mark,
    "lm_head, but no wte": rewrite(lambda a: {"lm_head.weight": a.pop("wte.weight"), **a}),
    "lm_head and wte": rewrite(lambda a: a | {"lm_head.weight": a["wte.weight"].copy()}),
    "as the first versions saved it": lambda path: shutil.copy(HUGGINGFACE / "old.safetensors",
                                                               path / "model.safetensors"),
    **{f"all names begin with {prefix}": rewrite(
        lambda a, prefix=prefix: {prefix + name: array for name, array in a.items()}) for prefix in (
            "_orig_mod.", "module.transformer.", "model._orig_mod.")},
    "an output head beside such names": rewrite(lambda a: {
        "model.lm_head.weight": a["wte.weight"].copy(),
        **{f"model.transformer.{name}": array for name, array in a.items()}}),
    "an index of something else": add("docs.index", "faiss.index"),
    "masks": rewrite(lambda a: a | {"h.0.attn.bias": np.ones((1, 1, 8, 8), np.uint8)}),
    "float64": rewrite(lambda a: {name: array.astype(float) for name, array in a.items()}),
    **{f"{n} rows more": pad_rows(n) for n in (1, 63)},
    "a wider feed-forward layer": together(edit("config.json", n_inner=24), rewrite(widen)),
    **{name: edit("config.json", activation_function=name) for name in ("gelu_pytorch_tanh", "gelu_fast")},
    "defaults left out": edit("config.json", "activation_function", "layer_norm_epsilon", "model_type",
                              "scale_attn_weights", "tie_word_embeddings", "n_inner"),
    "other names of sizes": edit("config.json", "n_embd", "n_head", hidden_size=4, num_attention_heads=2),
    "sampling flags": edit("generation_config.json", do_sample=True, temperature=.7, repetition_penalty=1.0,
                           typical_p=1.0, num_beams=1, min_p=None, eta_cutoff=0.0),
    "gpt-2-simple": gpt_2_simple,
}


@pytest.fixture
def copied(tmp_path):
    for name in "config.json", "model.safetensors", "vocab.json", "merges.txt":
        shutil.copyfile(HUGGINGFACE / name, tmp_path / name)
    return tmp_path


def logits_of(path):
    model, _ = load_model(path)
    return model(VALUES["tokens"].tolist(), 8)                  # [8, 257]


@pytest.mark.parametrize("change", LOADS.values(), ids=LOADS)
def test_a_folder_as_people_have_it_loads_with_the_same_logits(copied, change):
    change(copied)
    assert np.abs(logits_of(copied) - VALUES["logits"]).max() < 1e-5


def test_an_output_head_of_its_own_is_used(copied):
    edit("config.json", tie_word_embeddings=False)(copied)
    refused(load_model, copied, "model/lm_head is missing")
    rewrite(lambda a: a | {"lm_head.weight": -2 * a["wte.weight"]})(copied)
    assert np.abs(logits_of(copied) + 2 * VALUES["logits"]).max() < 1e-5


def test_biases_that_are_left_out_are_zeros(copied):
    rewrite(lambda a: {f"transformer.{name}": array * (not name.endswith(".bias"))
                       for name, array in a.items()})(copied)
    expected = logits_of(copied)
    rewrite(lambda a: {name: array for name, array in a.items() if not name.endswith(".bias")})(copied)
    assert np.array_equal(logits_of(copied), expected)


CONFIG = {"relu": dict(activation_function="relu"), "gelu_10": dict(activation_function="gelu_10"),
          "epsilon": dict(layer_norm_epsilon=1e-6), "scale": dict(scale_attn_by_inverse_layer_idx=True),
          "no scale": dict(scale_attn_weights=False), "crossed": dict(add_cross_attention=True),
          "gpt_neo": dict(model_type="gpt_neo"), "quantized": dict(quantization_config={"bits": 8})}
REFUSED = {         # what is changed, and what the sentence says
    **{name: (edit("config.json", **change), f"config.json has {[*change][0]}: .* only .* is supported: use")
       for name, change in CONFIG.items()},
    "a penalty": (edit("generation_config.json", repetition_penalty=1.2), "repetition_penalty: 1.2.*delete"),
    **{key: (edit("generation_config.json", **{key: value}), f"{key}: {value}.*delete") for key, value in {
        "min_p": .05, "typical_p": .9, "num_beams": 4, "eta_cutoff": .001, "penalty_alpha": .6}.items()},
    "forbidden words": (edit("config.json", bad_words_ids=[[5]]), r"bad_words_ids: \[\[5\]\].*delete"),
    "an EOS in letters": (edit("config.json", eos_token_id="5"), "eos_token_id is .*must be an id"),
    "no size fits": (edit("config.json", n_positions="8"), "n_ctx is '8', which is not a size"),
    "a size left out that is not 768": (edit("config.json", "n_embd"), "should have .257, 768"),
    "Keras": (rename_weights("tf_model.h5"), "from_tf=True.*writes model.safetensors"),
    "something else": (rename_weights("rust_model.ot"), "holds rust_model.ot, config.json"),
    **{name: (rename_weights(name), f"{re.escape(name)} is .*{says}") for name, says in {
        "gpt2_124M.bin": "llm.c's: python .*export_hf.py", "model.bin": "an export: name the folder",
        "flax_model.msgpack": "Flax's: .*from_flax=True", "model.onnx": "an export: name the folder",
        "weights.npz": "NumPy's: .*save_file", "model.weights.h5": "Keras's: .*export_to_t",
        "model.safetensors.incomplete": "not finished: wait", "model.ckpt.data-0-of-1": "fetch its .index",
        "model (1).safetensors": "rename it to model.safetensors"}.items()},
    "an optimizer alone": (rename_weights("optimizer.pt"), "it holds config.json, .* and no model"),
    "a Trainer's folder": (together(rename_weights("training_args.bin"), lambda path: [
        (path / f"checkpoint-{n}").mkdir() for n in (1000, 500)]), "newest checkpoint, .*checkpoint-1000$"),
    "tokens of another kind": (together(one_tokenizer(), lambda path: (path / "tokenizer.json").rename(
        path / "spiece.model")), "of another kind .spiece.model: SentencePiece"),
    "a fork of nanoGPT": (together(in_place_of_safetensors("ckpt.pt"), lambda path: swap_pickle(
        path / "ckpt.pt", lambda data: data.replace(b"dropout", b"rmsnorm"))), "model_args have rmsnorm"),
    "a shard": (rename_weights("model-00001-of-00002.safetensors"), "fetch model.safetensors.index.json"),
    "a shard is missing": (together(cut_into_shards, lambda path: next(path.glob("*-of-*")).unlink()),
                           "check that every file of the model is there"),
    "an adapter": (add("adapter_config.json", "adapter_model.safetensors"), "an adapter.*merge_and_unload"),
    "a Git LFS pointer": (add("model.safetensors", content=POINTER), "Git LFS pointer.*run git lfs pull"),
    "a pointer to the tokens": (add("vocab.json", content=POINTER), "vocab.json is a Git LFS pointer"),
    "int8": (rewrite(lambda a: a | {"h.0.mlp.c_fc.weight": np.ones((4, 16), "i1")}), "quantized .int8.: get"),
    "8 bits": (rewrite(lambda a: a | {"h.0.mlp.c_fc.SCB": np.ones(16)}), "not a quantized one"),
    "two heads, said to be one": (rewrite(lambda a: a | {"lm_head.weight": a["wte.weight"] + 1}),
                                  "lm_head.weight differs from wte.weight.*tie_word_embeddings"),
    "two that become one": (rewrite(lambda a: a | {"transformer.wpe.weight": -a["wpe.weight"]}),
                            "wpe.weight is there twice, .* differ: keep one"),
    "OpenAI's sizes, too": (edit("hparams.json", **HPARAMS | {"n_ctx": 9}), "have different sizes: keep"),
    "two checkpoints": (together(gpt_2_simple, lambda path: (path / "checkpoint").unlink()),
                        "there are model-1000 and model-500: keep"),
    "no sizes": (lambda path: (path / "config.json").unlink(), "config.json is missing"),
    "UTF-16": (lambda path: (path / "config.json").write_text("{}", encoding="utf-16"), "save it as UTF-8"),
    "2000 rows more": (pad_rows(2000), "has 257 tokens, and the model beside it 2257"),
    "a token without a row": (edit("vocab.json", **{"[PAD]": 257}), "258 tokens, .*resize_token_embeddings"),
    "one of two files": (lambda path: (path / "merges.txt").unlink(), "nor vocab.json with merges.txt"),
    "no tokens": (together(*(lambda path, name=name: (path / name).unlink() for name in (
        "vocab.json", "merges.txt"))), "neither tokenizer.json nor vocab.json.*its 257 tokens are not"),
    "two tokenizers": (edit("tokenizer.json", **tokenizer(LETTERS[::-1])), "vocab.json differ: keep"),
    "another structure": (edit("tokenizer.json", **tokenizer(model="BPE")), "the expected structure"),
    "an index of nothing": (together(rename_weights("1"), edit("model.safetensors.index.json", weight_map=1)),
                            "not have the expected structure.*fetch"),
    "a tensor is missing": (openai(lambda a: a.pop("model/h0/ln_2/b")), "model/h0/ln_2/b is missing"),
    **{f"{name} is turned": (turn(name), f"{name} has the shape")
       for name in ("model/h1/mlp/c_proj/w", "model/wpe")},
    **{f"{name} holds {value}": (spoil(name, value), f": {name} holds NaN or infinity")
       for name, value in (("model/wte", np.nan), ("model/h1/mlp/c_fc/w", np.inf), ("model/ln_f/g", np.nan))},
    "258 tokens": (openai(n_tokens=258), "it has 258 tokens, and the model .* 257"),
    # before memory is asked for, and before lists are built
    **{f"{size} is huge": (openai(**{size: 10**9}), says) for size, says in (
        ("n_vocab", "wte"), ("n_ctx", "wpe"), ("n_embd", "wte"), ("n_head", "heads"))},
    **{f"{n} layers": (openai(n_layer=n), f"n_layer is {n}, .* has 2 layers") for n in (1, 3, 10**18)},
    "three heads": (openai(n_head=3), "n_embd 4 does not divide into 3 heads"),
}


NOTED = {           # what is changed, and what the note says
    "rows without a token": (pad_rows(200), "200 rows of the model have no token: is this its tokenizer"),
    "exact gelu": (edit("config.json", activation_function="gelu"), "config.json asks for the exact gelu"),
    "nanoGPT": (in_place_of_safetensors("ckpt.pt"), "nanoGPT's models since June 2023 use the exact gelu"),
    "a head": (rewrite(lambda a: a | {"score.weight": a["wpe.weight"]}), "score.weight left out")}


@pytest.mark.parametrize("change, says", NOTED.values(), ids=NOTED)
def test_what_was_not_followed_is_noted_once(copied, change, says, capsys):
    change(copied)
    assert run(lambda: load_model(copied) and load_model(copied) and None, []) == 0
    assert re.fullmatch(f"note: .*{says}.*\n", capsys.readouterr().err)


@pytest.mark.long
def test_what_pytorch_writes_has_transformers_logits(copied):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    network = transformers.GPT2LMHeadModel.from_pretrained(copied).eval()
    for name, weights in network.named_parameters():
        weights.data = torch.randn(weights.shape) * (0 if name.endswith(".bias") else .5)
    state, tokens = network.state_dict(), VALUES["tokens"].tolist()
    logits = network(torch.tensor([tokens])).logits[0].detach().numpy()
    nano = {f"_orig_mod.{name}": array.T if ".c_" in name and array.ndim > 1 else array
            for name, array in state.items() if not name.endswith(".bias")}
    sizes = dict(n_layer=2, n_head=2, n_embd=4, block_size=8, bias=False, vocab_size=257, dropout=0.)
    (copied / "model.safetensors").unlink()
    for saved, name, zipped in [(state, "pytorch_model.bin", True), (state, "pytorch_model.bin", False),
                                (dict(model=nano, model_args=sizes), "ckpt.pt", True), (None, "a.bin", True)]:
        for file in copied.glob("*.*t") if name == "ckpt.pt" else []:
            file.name.startswith("merges") or file.unlink()
        torch.save(saved, copied / name, _use_new_zipfile_serialization=zipped)
        if saved is None:                                       # in two parts
            (copied / "ckpt.pt").unlink()
            files = {key: f"{i % 2}.bin" for i, key in enumerate(state)}
            for file in {*files.values()}:
                torch.save({key: state[key] for key in state if files[key] == file}, copied / file)
            edit("pytorch_model.bin.index.json", weight_map=files)(copied)
        assert np.abs(logits_of(copied) - logits).max() < 1e-5
        (copied / "pytorch_model.bin").unlink(missing_ok=True)


@pytest.mark.parametrize("change, says", REFUSED.values(), ids=REFUSED)
def test_a_folder_that_cannot_be_used_is_refused_with_advice_and_not_called_damaged(copied, change, says):
    change(copied)
    assert "damaged" not in refused(load_model, copied, says)


# Damage -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("size", HPARAMS)
def test_a_size_that_cannot_be_is_refused(size):
    for value in True, 0, -1, 2.0, "2", None, [2], math.nan:
        with pytest.raises(ValueError, match=f"^{size} is {re.escape(repr(value))}, which is not a size"):
            check_sizes(dict.fromkeys(HPARAMS, 1) | {size: value}, {"model/h0/ln_1/g": None})


@pytest.mark.parametrize("text", ["", '{"n_vocab": 257,', "<html>404</html>", "[257]", "[" * 200_000,
                                  '{"n_vocab": ' + "9" * 5000 + "}"])
def test_json_that_is_none_is_reported_with_the_files_name(copied, text):
    (copied / "config.json").write_text(text)
    refused(read_folder, copied, "config.json is damaged.*: fetch it again")


# Hugging Face's names ---------------------------------------------------------------------------------------

def test_a_layers_number_may_have_two_digits():
    assert rename({"h.10.mlp.c_fc.weight": 1, "transformer.h.47.ln_1.bias": 2}) == {
        "model/h10/mlp/c_fc/w": 1, "model/h47/ln_1/b": 2}


@pytest.mark.parametrize("name", [
    "scores.weight", "h.0.crossattention.c_attn.weight", "wte.bias", "h.x.ln_1.bias", "model/wte", "",
    "transformer.transformer.wte.weight", "h.0.mlp.c_fc.weight\n"])
def test_names_that_are_not_gpt2s_are_refused(name):
    with pytest.raises(ValueError, match="not one of GPT-2's"):
        rename({name: np.zeros((2, 2))})


# Export -----------------------------------------------------------------------------------------------------

def test_nothing_is_overwritten(tmp_path, capsys):
    write_folder(tmp_path / "tiny")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "empty").mkdir()
    (tmp_path / "new.part").write_text("somebody else's")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    for place in "tiny", "link", "empty", "new", "tiny/hparams.json", "none/new", "/":
        assert run(main, [str(tmp_path / "tiny"), str(tmp_path / place)]) == 2
        out, err = capsys.readouterr()
        assert err.startswith("error: cannot write") and err.count("\n") == 1 and not out
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before


def test_an_export_that_lacks_its_last_bytes_leaves_no_folder(tmp_path):
    write_folder(tmp_path / "tiny")
    main(tmp_path / "tiny", tmp_path / "whole")
    largest = max(path.stat().st_size for path in (tmp_path / "whole").iterdir())
    for missing in 1, 4, 100, 768, 5000:
        with full_disk(largest - missing):
            assert run(main, [str(tmp_path / "tiny"), str(tmp_path / "new")]) == 2
        assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny", "whole"]


def test_hugging_faces_layout_is_read_back_with_the_same_bits(tmp_path):
    main("demo-draft", tmp_path / "new")
    ours, theirs = load_model("demo-draft"), load_model(tmp_path / "new")
    text = "\u201cCaf\u00e9\u201d at 10 o'clock, said he."
    tokens = ours[1].encode(text)
    assert theirs[1].encode(text) == tokens and theirs[1].eos == ours[1].eos
    assert (ours[0](tokens, 5) == theirs[0](tokens, 5)).all()


@pytest.mark.long
def test_the_tanh_form_changes_a_model_trained_with_the_exact_gelu_as_little_as_its_note_says(tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    main("demo-draft", tmp_path / "new")
    edit("config.json", activation_function="gelu")(tmp_path / "new")
    network = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "new").train()
    with pytest.warns(UserWarning, match="no probability by more than ([0-9.]+)") as said:
        _, encoder = load_model(tmp_path / "new")
    text = torch.tensor(encoder.encode((FIXTURES / "book.txt").read_text("utf-8")))
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3)
    for _ in range(100):
        batch = torch.stack([text[i:i + 64] for i in torch.randint(len(text) - 64, (8,))])
        optimizer.zero_grad()
        network(batch, labels=batch).loss.backward()
        optimizer.step()
    network.eval().save_pretrained(tmp_path / "new")
    model, _ = load_model(tmp_path / "new")
    starts = range(0, len(text) - 64, 64)
    ours = np.concatenate([probabilities(model(text[i:i + 64].tolist(), 64)) for i in starts])
    theirs = [network(text[None, i:i + 64]).logits[0].double().softmax(-1).detach().numpy() for i in starts]
    most = float(re.search("more than ([0-9.]+[0-9])", str(said[0].message))[1])
    assert most / 100 < np.abs(ours - np.concatenate(theirs)).max() < most
