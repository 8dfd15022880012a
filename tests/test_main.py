"""The command line, as people and programs use it."""
import json
from pathlib import Path

import numpy as np
import pytest
from helpers import full_disk

from encoder import Encoder
from loading import command_line
from methods import table
from methods.__main__ import main
from utils import load_model

ROOT = Path(__file__).resolve().parent.parent


def run(capsys, *words):
    status = command_line.run(main, words)
    return status, *capsys.readouterr()


def result(capsys, *words):
    status, out, _ = run(capsys, "--json", *words)
    assert status == 0
    return json.loads(out)


def test_the_help_of_each_flag_names_every_method(capsys):
    words = " ".join(run(capsys, "--help")[1].split())
    for names in table.DRAFTERS, table.VERIFIERS:
        assert f" {' '.join(names)}, or a file" in words
    assert "{" not in words


@pytest.mark.parametrize("prompt, K", [
    ("The old man", 1), ("\u201cCaf\u00e9\u201d \U0001f600 2017-10-10\n", 8)])
def test_at_temperature_0_both_texts_are_the_same(capsys, prompt, K):
    r = result(capsys, "--prompt", prompt, "--K", str(K), "-n", "25")
    assert r["autoregressive"]["tokens"] == r["speculative"]["tokens"] and r["prompt"] == prompt
    assert r["autoregressive"]["text"] == r["speculative"]["text"] != "" and r["same_text"]
    assert len(r["speculative"]["tokens"]) == 25


def test_json_holds_every_promised_key_and_the_numbers_fit_together(capsys):
    r = result(capsys, "--K", "3", "--temperature", "0.7", "--top_k", "50", "--top_p", "0.9", "--seed", "7")
    promised = dict(draft="demo-draft", target="demo-target", backend="numpy", drafter="model",
                    verifier="token", K=3, temperature=0.7, top_k=50, top_p=0.9, seed=7, lossless=True)
    assert promised.items() <= r.items() and r.keys() >= {"prompt", "same_text", "same_bits"}
    ar, spec = r["autoregressive"], r["speculative"]
    assert len(ar["tokens"]) == len(spec["tokens"]) == 40 and ar["text"] != spec["text"]
    assert ar["tokens_per_second"] == pytest.approx(40 / ar["seconds"])
    assert r["speedup"] == pytest.approx(ar["seconds"] / spec["seconds"])
    assert spec["tokens_per_target_pass"] == pytest.approx(40 / spec["rounds"]) and 10 <= spec["rounds"] <= 40
    model, encoder = load_model("demo-target")                  # log-probabilities: no temperature, no top-k
    logits = model(encoder.encode(r["prompt"]) + spec["tokens"][:-1], 40).astype(float)
    wanted = logits[range(40), spec["tokens"]] - np.logaddexp.reduce(logits, axis=1)
    assert spec["logprobs"] == pytest.approx(wanted, abs=1e-4)
    tokens = sum(spec["acceptance_rate"] ** i for i in range(4))    # theorem 3.8, written out again
    assert r["predicted_speedup"] == pytest.approx(tokens / (3 * r["cost_ratio"] + r["verify_ratio"]))


def test_the_seed_fixes_the_text(capsys):
    typed = "--temperature", "1", "-n", "9", "--seed"
    one, same, other = (result(capsys, *typed, seed)["speculative"]["tokens"] for seed in "001")
    assert one == same != other


def test_drafters_and_verifiers_are_named_and_the_draft_is_loaded_only_if_it_is_used(
        capsys, monkeypatch):
    loaded = []
    monkeypatch.setattr(table, "load_model", lambda *name: loaded.append(name[0]) or load_model(*name))
    r = result(capsys, "--drafter", "lookup", "-n", "5")
    assert r["draft"] == "lookup" and loaded == ["demo-target"] and r["same_text"]
    assert result(capsys, "--verifier", "tree:2,1", "-n", "5")["K"] == 2 and loaded[1:] == ["demo-target",
                                                                                         "demo-draft"]


def test_a_drafter_of_ones_own_is_timed_and_shown(capsys, tmp_path):
    mine, page = tmp_path / "my_drafter.py", tmp_path / "run.html"
    mine.write_text("def propose(draft, x, k, to_probs, rng):\n    return x[-4:][:k], None\n")
    status, out, err = run(capsys, "--drafter", str(mine), "--show_rounds", "--trace", str(page), "-n", "12")
    assert status == 0 and err == "" and page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "Speed-up" in out and f"python -m lossless {mine}" in out and f"in {page}:" in out
    mine.write_text("def propose(draft, x, k, to_probs, rng):\n    return [1] * k\n")
    status, _, err = run(capsys, "--drafter", str(mine))
    assert status == 2 and "return (drafts, p)" in err and err.count("\n") == 1


def test_flags_without_effect_are_named_on_standard_error(capsys):
    _, out, err = run(capsys, "--top_k", "5", "--show_rounds", "--json", "-n", "3")
    assert err == "note: --top_k has no effect at temperature 0, which is greedy\n" + (
        "note: --show_rounds has no effect with --json\n") and json.loads(out)


BAD = {
    "--drafter eagle --target_model_size demo-draft": "demo-eagle is not a head for this target",
    "--drafter nope": "there is no drafter 'nope'", "--drafter early_exit:17": "take 0 .. 16",
    "--verifier tree --drafter lookup": "--drafter lookup drafts a line",
    "The old man": "one word too many (a text of several words needs quotes)",
    "--prompt=": "prompt is empty", "--K 0": "K is 0", "--k 3": "did you mean --K?",
    "-n 600": "do not fit into the context of 512",
    "--draft_model_size nope": "'nope'", "--draft_model_size=": "there is no model or folder ''",
    "--target_model_size tests": "tests is not a usable GPT-2 folder", "--backend x": "'x'",
    "--prompt \udcff": "surrogate", "--trace /": "cannot write",
}


@pytest.mark.parametrize("typed", BAD)
def test_bad_input_ends_in_one_sentence_and_status_2(capsys, typed, monkeypatch):
    monkeypatch.chdir(ROOT)
    status, out, err = run(capsys, *typed.split(" "))
    assert status == 2 and out == "" and err.startswith("error: ") and err.count("\n") == 1
    assert BAD[typed].encode("ascii", "replace").decode() in err


def test_a_place_that_cannot_be_written_is_told_before_a_model_is_loaded(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(table, "load_model", None)
    status, out, err = run(capsys, "--trace", str(tmp_path / "none" / "run.html"))
    assert (status, out, err.count("\n")) == (2, "", 1) and "cannot write" in err


class Counts:
    """A model that says 1, 2, 3 and then EOS (4).  It notes its calls and its resets."""
    n_ctx, n_vocab, exact_rows = 20, 5, 3

    def __init__(self):
        self.events = []

    def __call__(self, tokens, n_last=1):
        self.events.append(len(tokens))
        return np.log(np.eye(5)[[(token + 1) % 5 for token in tokens[-n_last:]]] + 1e-9)

    def reset(self):
        self.events.append("reset")


@pytest.fixture
def counting(monkeypatch):
    encoder = Encoder({char: i for i, char in enumerate("abcd")} | {"<|endoftext|>": 4}, [])
    found = {name: Counts() for name in ("demo-draft", "demo-target")}
    monkeypatch.setattr(table, "load_model", lambda name, _: (found[name], encoder))
    return found


def test_eos_ends_both_texts_and_stands_in_neither(capsys, counting):
    r = result(capsys, "--prompt", "a", "-n", "9")
    assert r["autoregressive"]["tokens"] == r["speculative"]["tokens"] == [1, 2, 3, 4]
    assert r["autoregressive"]["text"] == r["speculative"]["text"] == "bcd"


def test_a_draft_with_a_short_context_is_refused_before_anything_runs(capsys, counting):
    counting["demo-draft"].n_ctx = 5
    status, out, err = run(capsys, "--prompt", "a", "-n", "9")
    assert (status, out) == (2, "") and "demo-draft's context of 5: python -m methods --drafter tli and slem" in err
    assert counting["demo-target"].events == []


@pytest.mark.parametrize("n, K, promised", [(9, 2, True), (9, 3, False), (3, 3, True)])
def test_equal_bits_are_promised_only_for_as_many_rows_as_the_target_keeps(capsys, counting, n, K, promised):
    """A round drafts no more than what is still wanted, less one."""
    r = result(capsys, "--prompt", "a", "-n", str(n), "--K", str(K))
    assert r["same_bits"] == promised and r["same_text"]


def test_models_of_different_vocabularies_are_refused(capsys, tmp_path):
    """The two have the same ids, but encode the same text as different tokens."""
    for file in (ROOT / "models" / "demo-draft").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    head, one, two, *rest = (tmp_path / "vocab.bpe").read_text(encoding="utf-8").split("\n")
    (tmp_path / "vocab.bpe").write_text("\n".join([head, two, one, *rest]), encoding="utf-8")
    status, _, err = run(capsys, "--draft_model_size", str(tmp_path), "-n", "1")
    assert status == 2 and "different vocabularies" in err


def test_a_page_that_cannot_be_written_does_not_take_the_numbers_with_it(tmp_path, capsys):
    with full_disk(1000):
        status, out, err = run(capsys, "--json", "-n", "3", "--trace", str(tmp_path / "run.html"))
    assert status == 2 and "run.html (File too large): free some space" in err
    assert len(json.loads(out)["speculative"]["tokens"]) == 3
