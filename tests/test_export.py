"""loading/export.py writes what other programs expect; test_outside.py runs two of them on it."""
import numpy as np
import pytest
from helpers import full_disk, write_folder

from benchmarks.synthetic import SIZES, random_arrays
from loading import export
from loading.command_line import run
from loading.export import main
from utils import load_model


@pytest.fixture(scope="module")
def gguf():
    return pytest.importorskip("gguf", reason='the gguf package is missing: pip install -e ".[test]"')


def create_tensors(n_vocab, n_ctx, n_embd, n_layer, **_):
    """The names and sizes that llama.cpp asks for, in its order of dimensions (src/models/gpt2.cpp)."""
    yield from [("token_embd.weight", [n_embd, n_vocab]), ("position_embd.weight", [n_embd, n_ctx])]
    yield from [("output_norm.weight", [n_embd]), ("output_norm.bias", [n_embd])]
    for i in range(n_layer):
        for name, n_in, n_out in [("attn_qkv", n_embd, 3 * n_embd), ("attn_output", n_embd, n_embd),
                                  ("ffn_up", n_embd, 4 * n_embd), ("ffn_down", 4 * n_embd, n_embd)]:
            yield from [(f"blk.{i}.{name}.weight", [n_in, n_out]), (f"blk.{i}.{name}.bias", [n_out])]
        for name in ("attn_norm", "ffn_norm"):
            yield from [(f"blk.{i}.{name}.weight", [n_embd]), (f"blk.{i}.{name}.bias", [n_embd])]


@pytest.fixture(scope="module")
def written(tmp_path_factory, gguf):
    """(the model's folder, the contents of its GGUF file)."""
    folder = tmp_path_factory.mktemp("tiny")
    write_folder(folder / "tiny", "tiny")
    main(folder / "tiny", folder / "served", "gguf")
    return folder / "tiny", gguf.GGUFReader(folder / "served" / "tiny.gguf")


def test_nothing_is_overwritten(tmp_path, capsys):
    write_folder(tmp_path / "tiny", "tiny")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "empty").mkdir()
    (tmp_path / "new.part").write_text("somebody else's")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    for place in "tiny", "link", "empty", "new", "tiny/hparams.json", "none/new", "/":
        for to in export.FORMATS:
            assert run(main, [str(tmp_path / "tiny"), str(tmp_path / place), "--to", to]) == 2
            out, err = capsys.readouterr()
            assert err.startswith("error: cannot write") and err.count("\n") == 1 and not out
    assert run(main, [str(tmp_path / "tiny"), str(tmp_path / "other"), "--to", "onnx"]) == 2
    assert "huggingface or gguf" in capsys.readouterr().err
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("to", export.FORMATS)
def test_an_export_that_lacks_its_last_bytes_leaves_no_folder(to, tmp_path, gguf):
    """NumPy's tofile does not notice if its last bytes were not written."""
    write_folder(tmp_path / "tiny", "tiny")
    main(tmp_path / "tiny", tmp_path / "whole", to)
    largest = max(path.stat().st_size for path in (tmp_path / "whole").iterdir())
    for missing in 1, 4, 100, 768, 5000:
        with full_disk(largest - missing):
            assert run(main, [str(tmp_path / "tiny"), str(tmp_path / "new"), "--to", to]) == 2
        assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny", "whole"]


def test_hugging_faces_layout_is_read_back_with_the_same_bits(tmp_path):
    main("demo-draft", tmp_path / "new")
    ours, theirs = load_model("demo-draft"), load_model(tmp_path / "new")
    text = "\u201cCaf\u00e9\u201d at 10 o'clock, said he."
    tokens = ours[1].encode(text)
    assert theirs[1].encode(text) == tokens and theirs[1].eos == ours[1].eos
    assert (ours[0](tokens, 5) == theirs[0](tokens, 5)).all()


def test_every_tensor_that_llama_cpp_asks_for_is_there_in_its_shape_and_no_other(written):
    found = {tensor.name: tensor.shape.tolist() for tensor in written[1].tensors}
    assert found == dict(create_tensors(**SIZES["tiny"]))


def test_the_values_are_those_of_the_model(written):
    found, arrays = {tensor.name: tensor.data for tensor in written[1].tensors}, random_arrays("tiny")
    assert (found["token_embd.weight"] == arrays["model/wte"]).all()
    assert (found["blk.3.ffn_up.weight"].T == arrays["model/h3/mlp/c_fc/w"]).all()
    assert (found["blk.0.attn_qkv.weight"].T == arrays["model/h0/attn/c_attn/w"]).all()
    assert (found["output_norm.weight"] == arrays["model/ln_f/g"]).all()


def test_the_tokenizer_is_byte_level_bpe_with_this_vocabulary_and_these_merges(written, gguf):
    folder, file = written
    encoder = load_model(folder)[1]
    values = {name: field.contents() for name, field in file.fields.items()}
    assert values["tokenizer.ggml.tokens"] == [encoder.tokens[i] for i in range(encoder.n_vocab)]
    assert values["tokenizer.ggml.merges"] == [" ".join(pair) for pair in encoder.ranks]
    kinds = values["tokenizer.ggml.token_type"]
    assert [i for i, kind in enumerate(kinds) if kind == gguf.TokenType.CONTROL] == [encoder.eos]
    sizes = SIZES["tiny"]
    few = {name: value for name, value in values.items() if np.isscalar(value) and "GGUF" not in name}
    assert few == {
        "general.architecture": "gpt2", "general.file_type": gguf.LlamaFileType.ALL_F32,
        "gpt2.context_length": sizes["n_ctx"], "gpt2.embedding_length": sizes["n_embd"],
        "gpt2.feed_forward_length": 4 * sizes["n_embd"], "gpt2.block_count": sizes["n_layer"],
        "gpt2.attention.head_count": sizes["n_head"],
        "gpt2.attention.layer_norm_epsilon": pytest.approx(1e-5),
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.bos_token_id": encoder.eos, "tokenizer.ggml.eos_token_id": encoder.eos}
