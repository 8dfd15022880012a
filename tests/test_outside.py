"""Against other libraries: folders that transformers saves, and the code of docs/your_own_models.md.

    pip install -e ".[outside]"         # torch and transformers, some gigabytes
"""
import json
import re
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT

from engine.loading.export import main as export
from utils import load_model

CODE = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "your_own_models.md").read_text("utf-8"), re.S)
TEXTS = ["Once upon a time", " it's [PAD]two\n\n  spaces, 1234 café 日本", "[PAD][PAD]2", "",
         "Hi.<|endoftext|>\n<|endoftext|><|endoftext|> No</s>"]
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def hf():
    pytest.importorskip("torch", reason='torch is missing: pip install -e ".[outside]"')
    return pytest.importorskip("transformers", reason='transformers is missing: pip install -e ".[outside]"')


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """The bundled pair's vocab.json and merges.txt."""
    folder = tmp_path_factory.mktemp("vocabulary")
    export("demo-draft", folder / "new")
    return folder / "new"


MODELS = {          # how transformers makes the model, how it makes the tokenizer, how both are saved
    "plain": ({}, {}, {}),
    "wide": ({"n_inner": 48}, {}, {}), "untied": ({"tie_word_embeddings": False}, {}, {}),
    "rounded up": ({"vocab_size": 4160}, {}, {}),
    "another gelu": ({"activation_function": "gelu_pytorch_tanh"}, {}, {}),
    "in shards": ({}, {}, {"max_shard_size": "200KB"}), "half": ({"dtype": "bfloat16"}, {}, {}),
    "a space and a BOS": ({}, {"add_prefix_space": True, "add_bos_token": True}, {}),
    "another end": ({"vocab_size": 4160}, {"eos_token": "</s>"}, {}),
    "no end of ours": ({"vocab_size": 4160}, dict(bos_token="</s>", eos_token="</s>", unk_token="</s>"), {}),
    "more tokens": ({"vocab_size": 4160},
                    {"pad_token": "[PAD]", "extra_special_tokens": ["[PAD]2", "日本"]}, {}),
}


@pytest.mark.parametrize("sizes, settings, how", MODELS.values(), ids=MODELS)
def test_what_transformers_saves_has_its_ids_and_logits(hf, vocabulary, tmp_path, sizes, settings, how):
    import torch
    torch.manual_seed(0)
    dtype = getattr(torch, sizes.get("dtype", "float32"))
    config = dict(vocab_size=4096, n_embd=32, n_layer=2, n_head=2, n_positions=64) | sizes
    network = hf.GPT2LMHeadModel(hf.GPT2Config(**config)).to(dtype)
    network.save_pretrained(tmp_path, **how)
    hf.GPT2Tokenizer.from_pretrained(vocabulary, **settings).save_pretrained(tmp_path)
    model, encoder = load_model(tmp_path)
    network = network.float().eval()
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        tokens = tokenizer(text)["input_ids"]
        assert encoder.encode(text) == tokens and encoder.decode(tokens) == tokenizer.decode(tokens)
        if tokens:
            with torch.no_grad():
                logits = network(torch.tensor([tokens])).logits[0, :, :model.n_vocab].numpy()
            assert np.abs(model(tokens, len(tokens)) - logits).max() < 1e-5


@pytest.mark.parametrize("i, package", [*enumerate(["transformers", "transformers", "numpy", "numpy"])])
def test_the_code_for_your_own_models_runs(i, package, tmp_path, monkeypatch, capsys):
    """Its target has the logits of the same model here."""
    pytest.importorskip(package, reason=f'{package} is missing: pip install -e ".[outside]"')
    monkeypatch.chdir(tmp_path)
    assert len(CODE) == 4 and len([line for line in CODE[i].splitlines() if line]) <= 15
    if i == 3:
        export("demo-draft", "music")
        Path("music", "vocab.json").unlink()
    if package == "transformers":
        export("demo-target", "gpt2")
        export("demo-draft", "distilgpt2")
    capsys.readouterr()
    exec(CODE[0] + CODE[1] if i == 1 else CODE[i], names := {})
    printed = capsys.readouterr().out
    if package == "numpy":
        assert printed.count("[") >= 2 or printed == "(2, 4096)\n"
        return
    model, encoder = load_model("demo-target")
    prompt = encoder.encode("Once upon a time")
    assert names["prompt"] == prompt
    target = names["wrap_with_cache"]("gpt2") if i else names["target"]
    for tokens, n in (prompt, 3), (prompt * 3, 2), (prompt + [1, 2], 2), (prompt + [1, 3], 1), ([5], 1):
        assert np.abs(target(tokens, n) - model(tokens, n)).max() < 1e-4
    assert printed


def test_both_programs_write_the_same_greedy_texts_in_as_many_passes(hf, tmp_path, monkeypatch):
    """As `python -m benchmarks peers` does, but two texts of twelve tokens, timed once."""
    from benchmarks import peers
    for name, few in dict(TURNS=1, CALLS=1, N_TEXTS=2, N_TOKENS=12).items():
        monkeypatch.setattr(peers, name, few)
    peers.measure_all(tmp_path / "peers.json")
    found = json.loads((tmp_path / "peers.json").read_text(encoding="utf-8"))["peers"]
    for K in 0, 2, 4:
        here, there = (found[f"{name} K={K} T=0"] for name in ("here", "transformers"))
        assert here["same"] == there["same"] == [2] and here["tokens"] == there["tokens"]
