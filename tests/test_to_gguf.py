"""What loading/to_gguf.py writes is what llama.cpp expects: names and shapes of its source, our values."""
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from helpers import write_folder

from autoregressive import autoregressive_sampling
from benchmarks.synthetic import SIZES, random_arrays
from console import run
from loading.to_gguf import main
from utils import load_model

gguf = pytest.importorskip("gguf", reason='the gguf package is missing: pip install -e ".[test]"')


def create_tensors(n_vocab, n_ctx, n_embd, n_layer, **_):
    """The names and sizes that llama.cpp asks for, in its order of dimensions (its src/models/gpt2.cpp)."""
    yield from [("token_embd.weight", [n_embd, n_vocab]), ("position_embd.weight", [n_embd, n_ctx])]
    yield from [("output_norm.weight", [n_embd]), ("output_norm.bias", [n_embd])]
    for i in range(n_layer):
        for name, n_in, n_out in [("attn_qkv", n_embd, 3 * n_embd), ("attn_output", n_embd, n_embd),
                                  ("ffn_up", n_embd, 4 * n_embd), ("ffn_down", 4 * n_embd, n_embd)]:
            yield from [(f"blk.{i}.{name}.weight", [n_in, n_out]), (f"blk.{i}.{name}.bias", [n_out])]
        for name in ("attn_norm", "ffn_norm"):
            yield from [(f"blk.{i}.{name}.weight", [n_embd]), (f"blk.{i}.{name}.bias", [n_embd])]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """(model's folder, what is in its GGUF file)."""
    folder = tmp_path_factory.mktemp("tiny")
    write_folder(folder, "tiny")
    main(folder, folder / "tiny.gguf")
    return folder, gguf.GGUFReader(folder / "tiny.gguf")


def test_nothing_is_written_over(tmp_path, capsys):
    write_folder(tmp_path / "tiny", "tiny")
    (tmp_path / "other.gguf").write_bytes(b"GGUF, but not ours")
    (tmp_path / "link.gguf").symlink_to("nowhere")
    (tmp_path / "half.gguf.part").write_bytes(b"of another program")
    (tmp_path / "README.md").write_text("mine")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for place in "other.gguf", "half.gguf", "link.gguf", "README.md", "tiny/model.ckpt.index", "none/x.gguf":
        assert run(main, [str(tmp_path / "tiny"), str(tmp_path / place)]) == 2
        out, err = capsys.readouterr()
        assert err.startswith("error: ") and err.count("\n") == 1 and not out
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("reason", [KeyboardInterrupt, OSError])
def test_a_file_is_there_whole_or_not_at_all(reason, tmp_path, monkeypatch):
    write_folder(tmp_path / "tiny", "tiny")

    def stopped(self):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny", "tiny.gguf.part"]
        raise reason

    monkeypatch.setattr(gguf.GGUFWriter, "write_tensors_to_file", stopped)
    with pytest.raises(reason):
        main(tmp_path / "tiny", tmp_path / "tiny.gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def test_a_file_that_appears_meanwhile_is_kept(tmp_path, monkeypatch):
    write_folder(tmp_path / "tiny", "tiny")
    monkeypatch.setattr(gguf.GGUFWriter, "close", lambda self: (tmp_path / "tiny.gguf").write_text("mine"))
    with pytest.raises(ValueError, match="tiny.gguf exists"):
        main(tmp_path / "tiny", tmp_path / "tiny.gguf")
    assert (tmp_path / "tiny.gguf").read_text() == "mine" and len(list(tmp_path.iterdir())) == 2


def test_every_tensor_that_llama_cpp_asks_for_is_there_in_its_shape_and_no_other(written):
    found = {tensor.name: tensor.shape.tolist() for tensor in written[1].tensors}
    assert found == dict(create_tensors(**SIZES["tiny"]))


def test_the_values_are_those_of_the_model(written):
    found, arrays = {tensor.name: tensor.data for tensor in written[1].tensors}, random_arrays("tiny")
    assert (found["token_embd.weight"] == arrays["model/wte"]).all()
    assert (found["blk.3.ffn_up.weight"].T == arrays["model/h3/mlp/c_fc/w"]).all()
    assert (found["blk.0.attn_qkv.weight"].T == arrays["model/h0/attn/c_attn/w"]).all()
    assert (found["output_norm.weight"] == arrays["model/ln_f/g"]).all()


def test_the_tokenizer_is_byte_level_bpe_with_this_vocabulary_and_these_merges(written):
    folder, file = written
    encoder = load_model(folder)[1]
    values = {name: field.contents() for name, field in file.fields.items()}
    assert values["tokenizer.ggml.tokens"] == [encoder.tokens[i] for i in range(encoder.n_vocab)]
    assert values["tokenizer.ggml.merges"] == [" ".join(pair) for pair in encoder.ranks]
    kinds = values["tokenizer.ggml.token_type"]
    assert [i for i, kind in enumerate(kinds) if kind == gguf.TokenType.CONTROL] == [encoder.eos]
    assert values["gpt2.attention.head_count"] == SIZES["tiny"]["n_head"]
    assert values["general.file_type"] == gguf.LlamaFileType.ALL_F32
    assert values["gpt2.context_length"] == SIZES["tiny"]["n_ctx"]


def test_llama_cpp_itself_continues_a_prompt_as_we_do(tmp_path):
    binary = Path(os.environ.get("LLAMA_CPP", "nowhere")) / "llama-completion"
    if not binary.exists():
        pytest.skip("no llama.cpp: set LLAMA_CPP to the folder that holds llama-completion")
    model, encoder = load_model("demo-target")
    main("models/demo-target", tmp_path / "demo.gguf")
    prompt = "There was a long silence."
    tokens, rng = encoder.encode(prompt), np.random.default_rng(0)
    rounds = autoregressive_sampling(model, tokens, 60, rng, temperature=0)
    words = ["-p", prompt, "-n", "60", "--temp", "0", "-no-cnv", "--no-display-prompt"]
    command = [binary, "-m", tmp_path / "demo.gguf", *words]
    theirs = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert theirs.strip() == encoder.decode([token for r in rounds for token in r.tokens]).strip()
