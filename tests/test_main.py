"""The command line, as a person and as a program meets it."""

import errno
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from encoder import Encoder
from main import TYPES, check_place, figures, main, summary
from sampling import Round
from utils import load_model

ROOT = Path(__file__).resolve().parent.parent


def run(capsys, *arguments):
    status = main(list(arguments))
    out, err = capsys.readouterr()
    return status, out, err


def result(capsys, *arguments):
    status, out, _ = run(capsys, "--json", *arguments)
    assert status == 0
    return json.loads(out)


def test_without_flags_it_shows_both_samplers_and_compares_them():
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=ROOT, capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0 and done.stderr == ""
    one, two = done.stdout.split("Speculative sampling")
    assert one.startswith("Autoregressive sampling")
    assert (
        "60 tokens" in one
        and "60 tokens" in two
        and "tokens per second" in one
        and "tokens per second" in two
    )
    for word in ("Speed-up", "predicted", "acceptance rate", "tokens per target pass"):
        assert word in two.split("\n", 4)[-1]


@pytest.mark.parametrize(
    "prompt", ["The old man", "He said", "2017-10-10", "\u201cCaf\u00e9\u201d \U0001f600\n", "x"]
)
@pytest.mark.parametrize("K", range(1, 9))
def test_at_temperature_0_both_texts_are_the_same(capsys, prompt, K):
    r = result(capsys, "--prompt", prompt, "--K", str(K), "-n", "40")
    assert (
        r["autoregressive"]["tokens"] == r["speculative"]["tokens"] and len(r["speculative"]["tokens"]) == 40
    )
    assert r["autoregressive"]["text"] == r["speculative"]["text"] != ""


@pytest.mark.parametrize(
    "typed",
    [
        "2017-10-10",
        "1.10",
        "a,b",
        "{x}",
        "5",
        "-",
        "True",
        "None",
        "'quoted\"",
        "[1, 2]",
        "a\\nb",
        "a\nb",
        " x ",
    ],
)
def test_the_prompt_arrives_as_typed(capsys, typed):
    assert result(capsys, "--prompt", typed, "-n", "1")["prompt"] == typed
    assert result(capsys, f"--prompt={typed}", "-n", "1")["prompt"] == typed


def test_a_prompt_that_looks_like_a_flag_is_written_after_an_equals_sign(capsys):
    assert result(capsys, "--prompt=--x", "-n", "1")["prompt"] == "--x"


def test_json_holds_every_promised_key_and_the_numbers_fit_together(capsys):
    r = result(capsys, "--K", "3", "--temperature", "0.7", "--top_k", "50", "--top_p", "0.9", "--seed", "7")
    assert {
        k: r[k] for k in ("draft", "target", "backend", "K", "temperature", "top_k", "top_p", "seed")
    } == dict(
        draft="demo-draft",
        target="demo-target",
        backend="numpy",
        K=3,
        temperature=0.7,
        top_k=50,
        top_p=0.9,
        seed=7,
    )
    ar, spec = r["autoregressive"], r["speculative"]
    assert len(ar["tokens"]) == len(spec["tokens"]) == 60
    assert ar["tokens_per_second"] == pytest.approx(60 / ar["seconds"])
    assert r["speedup"] == pytest.approx(ar["seconds"] / spec["seconds"])
    assert spec["tokens_per_target_pass"] == pytest.approx(60 / spec["rounds"]) and 15 <= spec["rounds"] <= 60
    assert 0 < spec["acceptance_rate"] < 1
    tokens = sum(spec["acceptance_rate"] ** i for i in range(4))  # theorem 3.8, written out again
    assert r["predicted_speedup"] == pytest.approx(tokens / (3 * r["cost_ratio"] + r["verify_ratio"]))


def test_blocks_are_judged_with_the_same_drafts_and_the_prediction_counts_their_tokens(capsys):
    typed = ("--temperature", "1", "-n", "30", "--K", "3")
    r, single = (result(capsys, *typed, "--verifier", verifier) for verifier in ("block", "token"))
    assert r["speculative"]["tokens"] != single["speculative"]["tokens"] and r["verifier"] == "block"
    assert 0 < r["speculative"]["acceptance_rate"] < 1
    cost = 3 * r["cost_ratio"] + r["verify_ratio"]
    assert r["predicted_speedup"] == pytest.approx(r["speculative"]["tokens_per_target_pass"] / cost)
    greedy = result(capsys, "-n", "30", "--verifier", "block")
    assert greedy["same_text"] and greedy["speculative"]["tokens_per_target_pass"] > 1
    _, out, _ = run(capsys, *typed, "--verifier", "block", "--show_rounds")
    lines = [line for line in out.splitlines() if "-" in line and "=" in line and "/3" in line]
    assert lines and not any(" ." in line for line in lines)  # of a block no draft goes untested


@pytest.mark.parametrize(
    "typed",
    [
        "--drafter lookup",
        "--drafter early_exit --exit_layer 3 --K 2",
        "--K auto",
        "--drafter ngram --ngram_file README.md --K 2",
        "--drafter layer_skip --K 2",
        "--drafter lookup --K auto --verifier block",
        "--drafter medusa --K 8",
        "--drafter eagle",
        "--drafter eagle --K auto",
        "--drafter early_exit",
    ],
)
def test_each_drafter_gives_the_baselines_text_and_its_figures(capsys, typed, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("main.layer_skip.search", lambda *arguments, **more: ((5,), (6,)))  # it takes seconds
    r = result(capsys, *typed.split(), "-n", "30", "--prompt", "rain, rain, rain,")
    assert r["same_text"] and len(r["speculative"]["tokens"]) == 30
    assert r["draft"] == ("demo-draft" if r["drafter"] == "model" else r["drafter"])
    assert r["cost_ratio"] > 0 and r["predicted_speedup"] > 0
    if "auto" in typed:
        assert r["K"] == 8 and r["auto"]["c"] >= 0 and r["auto"]["v"] > 0
    else:
        assert r["auto"] is None


def test_k_auto_says_what_it_measured(capsys):
    status, out, _ = run(capsys, "--drafter", "lookup", "--K", "auto", "-n", "9", "--show_rounds")
    assert status == 0 and "Speed-up" in out
    assert re.match(r"K = auto: in target steps a draft costs [\d.e-]+, a pass over 9 tokens [\d.]+\n", out)


def test_a_drafter_without_a_model_loads_none(capsys, monkeypatch):
    loaded = []
    monkeypatch.setattr(
        "utils.load_model", lambda name, models_dir: loaded.append(name) or load_model(name, models_dir)
    )
    assert result(capsys, "--drafter", "lookup", "-n", "5")["draft"] == "lookup" and loaded == ["demo-target"]


def test_the_prediction_for_rounds_of_any_length_adds_up_their_costs():
    """Four rounds with 0, 2, 2 and 1 drafts, 8 tokens; a step takes 10 ms, a row more 1 ms, a draft 2."""

    def timed(calls):
        return types.SimpleNamespace(seconds=dict(calls).get)

    rounds = [Round([0] * n, [0] * k, n - 1, None, None) for k, n in ((0, 1), (2, 3), (2, 2), (1, 2))]
    target, proposer = timed({1: 0.010, 2: 0.011, 3: 0.012}), timed({1: 0.002})
    proposer.propose = None
    numbers = figures(
        dict(tokens_per_second=100),
        [timed({1: 0.010})],
        dict(tokens=[0] * 8, tokens_per_second=200),
        [None, target, proposer],
        rounds,
        2,
        "token",
    )
    assert numbers["predicted_speedup"] == pytest.approx(8 / (1.0 + 2 * (0.4 + 1.2) + (0.2 + 1.1)))
    assert numbers["cost_ratio"] == pytest.approx(0.2) and numbers["verify_ratio"] == pytest.approx(1.2)


def test_a_tree_is_drafted_judged_and_predicted(capsys, tmp_path):
    typed = ("-n", "30", "--verifier", "tree", "--widths", "2,1")
    r = result(capsys, *typed, "--trace", str(tmp_path / "run.html"))
    spec = r["speculative"]
    assert r["same_text"] and len(spec["tokens"]) == 30 and (r["widths"], r["K"]) == ("2,1", 2)
    assert 1 < spec["tokens_per_target_pass"] <= 3 and 0 < spec["acceptance_rate"] <= 1
    cost = 2 * r["cost_ratio"] + r["verify_ratio"]
    assert r["predicted_speedup"] == pytest.approx(spec["tokens_per_target_pass"] / cost)
    assert "parent" in (tmp_path / "run.html").read_text(encoding="utf-8")
    _, out, _ = run(capsys, *typed, "--temperature", "1", "--show_rounds")
    assert "/4 +" in out and " ." in out


def test_the_seed_fixes_the_text(capsys):
    runs = [result(capsys, "--temperature", "1", "--seed", seed, "-n", "20") for seed in ("0", "0", "1")]
    assert (
        runs[0]["speculative"]["tokens"]
        == runs[1]["speculative"]["tokens"]
        != runs[2]["speculative"]["tokens"]
    )
    assert runs[0]["same_text"] is False  # nor is it the baseline's


def test_what_cannot_be_measured_is_null(capsys):
    r = result(capsys, "-n", "0")
    assert (
        r["speculative"]["tokens"] == []
        and r["speculative"]["acceptance_rate"] is None
        and r["predicted_speedup"] is None
    )
    assert run(capsys, "-n", "0")[0] == 0  # and the report can say so, too


BAD = {
    "--drafter eagle --target_model_size demo-draft": "demo-eagle is not a head for this target",
    "--drafter medusa --prompts_file README.md": "reads the states of one text",
    "--exit_layer 3": "--exit_layer is for --drafter early_exit",
    "--ngram_file README.md": "is for --drafter ngram",
    "--drafter ngram --ngram_file nope.txt": "cannot read nope.txt",
    "--drafter nope": "there is no drafter 'nope'",
    "--drafter ngram --ngram_file models/demo-draft/model.ckpt.index": "is no text in UTF-8",
    "--drafter early_exit --exit_layer 17": "take 0 .. 16",
    "--K autos": "no whole number",
    "--prompt": "needs a value",
    "--prompt=": "prompt is empty",
    "--promt hi": "mean --prompt?",
    "--tempreture 1": "mean --temperature?",
    "hello": "hello",
    "--prompt a b": "'b'",
    "--K 0": "K is 0",
    "--K x": "--K x",
    "--K 2.5": "--K 2.5",
    "--K": "--K needs",
    "--temperature -1": "temperature is -1",
    "--temperature nan": "nan",
    "--temperature hot": "hot",
    "--top_p 0": "top_p is 0",
    "--top_p 1.5": "top_p is 1.5",
    "--top_k -1": "top_k is -1",
    "-n 600": "do not fit into the context of 512",
    "-n -1": "-1",
    "--seed -1": "seed is -1",
    "--draft_model_size nope": "'nope'",
    "--target_model_size tests": "tests is not a usable GPT-2 folder",
    "--backend x": "'x'",
    "--json 3": "'3'",
    "--verifier tree --widths 3,0": "1 child or more",
    "--verifier tree --widths 3,x": "--widths 3,x: give the children",
    "--verifier tree --K auto": "the tree's --widths",
    "--verifier tree --drafter lookup": "leave out",
    "--json=3": "--json takes no value",
    "--prompt \udcff": "surrogate",
    "-- x": "'--'",
    "-t 1": "-t",
}


@pytest.mark.parametrize("typed", BAD)
def test_bad_input_ends_in_one_sentence_and_status_2(capsys, typed, monkeypatch):
    monkeypatch.chdir(ROOT)
    status, out, err = run(capsys, *typed.split(" "))
    assert status == 2 and out == ""
    assert (
        err.startswith("error: ")
        and err.count("\n") == 1
        and BAD[typed].encode("ascii", "replace").decode() in err
    )


def test_without_cupy_the_backend_says_what_is_missing(capsys):
    try:
        import cupy

        cupy.zeros(1)
    except Exception:
        status, out, err = run(capsys, "--backend", "cupy")
        assert status == 2 and "cupy" in err and "--backend numpy" in err and err.count("\n") == 1
    else:
        pytest.skip("CuPy works here")


def test_help_comes_whatever_stands_before_it_on_standard_output_alone(capsys):
    for arguments in (["--help"], ["-h"], ["--K", "3", "--help"], ["--json", "--help"]):
        status, out, err = run(capsys, *arguments)
        assert status == 0 and err == "" and "INFO" not in out and "JSON=" not in out
        assert all(f"--{flag} " in out for flag in TYPES) and "(default 60)" in out and "(default 0.0)" in out


def test_at_a_temperature_above_0_it_says_that_different_texts_are_expected(capsys):
    assert "Different texts are expected" in run(capsys, "--temperature", "1", "-n", "8")[1]
    assert "Different texts" not in run(capsys, "-n", "8")[1]


def test_the_prediction_stands_beside_the_numbers_it_was_made_of(capsys):
    numbers = re.search(
        r"predicted ([\d.]+)x: c = ([\d.]+), v = ([\d.]+)\), acceptance rate ([\d.]+)",
        run(capsys, "-n", "40")[1],
    )
    predicted, c, v, alpha = map(float, numbers.groups())
    assert predicted == pytest.approx(sum(alpha**i for i in range(5)) / (4 * c + v), rel=0.05)


@pytest.mark.parametrize("n", ["0", "1", "2"])
def test_a_run_too_short_to_measure_says_no_number_that_is_none(capsys, n):
    out = run(capsys, "-n", n)[1]
    assert "-x" not in out and "None" not in out and "- tokens per second" not in out and "rate -" not in out


def test_a_better_k_is_told_by_the_numbers_of_the_run():
    r = dict(
        K=12,
        temperature=0,
        same_text=True,
        same_bits=True,
        verifier="token",
        drafter="model",
        auto=False,
        cost_ratio=0.11,
        verify_ratio=2.6,
        predicted_speedup=0.99,
        speedup=1.0,
        speculative=dict(tokens=[1], acceptance_rate=0.75, tokens_per_target_pass=3.9),
    )
    told = " ".join(summary(r))
    assert re.search(r"K = [2-5] is best", told) and "too few drafts" not in told
    assert "is best" not in " ".join(summary(r | dict(verifier="block")))  # the formula is Algorithm 2's


def test_a_page_is_told_to_have_been_written(capsys, tmp_path):
    assert f"in {tmp_path / 'run.html'}:" in run(capsys, "--trace", str(tmp_path / "run.html"), "-n", "8")[1]


def test_a_place_that_can_be_written_is_left_as_it_was_until_then(tmp_path):
    check_place(tmp_path / "new.html")
    (tmp_path / "old.html").write_text("<!doctype html>\nkept")
    check_place(tmp_path / "old.html")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["<!doctype html>\nkept"]


def test_a_place_that_cannot_be_written_is_told_before_a_model_is_loaded(capsys, tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("utils.load_model", None)
    monkeypatch.setattr("pathlib.Path.open", refused)  # whoever runs the tests may be allowed all
    status, out, err = run(capsys, "--trace", str(tmp_path / "run.html"))
    assert (status, out, err.count("\n")) == (2, "", 1) and "run.html (Permission denied)" in err


class Counts:
    """A model that says 1, 2, 3 .. and then EOS (4); it notes its calls and its resets."""

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
    encoder.eos = 4
    models = {name: Counts() for name in ("demo-draft", "demo-target")}
    monkeypatch.setattr("utils.load_model", lambda name, _: (models[name], encoder))
    return models


def test_eos_ends_both_texts_and_stands_in_neither(capsys, counting):
    r = result(capsys, "--prompt", "a", "-n", "9")
    assert r["autoregressive"]["tokens"] == r["speculative"]["tokens"] == [1, 2, 3, 4]
    assert r["autoregressive"]["text"] == r["speculative"]["text"] == "bcd"


@pytest.mark.parametrize("K, promised", [(2, True), (3, False)])
def test_equal_bits_are_promised_only_for_as_many_rows_as_the_target_keeps(capsys, counting, K, promised):
    r = result(capsys, "--prompt", "a", "-n", "3", "--K", str(K))
    assert r["same_bits"] == promised and r["same_text"]


def test_each_run_is_warmed_up_and_then_begins_with_empty_caches(capsys, counting):
    result(capsys, "--prompt", "a", "-n", "3", "--K", "1")
    for model in counting.values():
        ready = [i for i, event in enumerate(model.events) if event == "reset"]
        assert ready and all(model.events[i - 1] == 1 and i + 1 < len(model.events) for i in ready)
    assert counting["demo-target"].events.count("reset") == 2  # one for each run


def test_a_reader_who_goes_away_is_no_error(monkeypatch, capfd):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as pipe, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", pipe)
        assert main(["-n", "1"]) == 0
        pipe.write("more")  # at the end Python writes what is left: to nobody now
    assert capfd.readouterr().err == ""


def test_without_standard_output_it_ends_in_peace(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["-n", "1", "--trace", str(tmp_path / "run.html")]) == 0 and (tmp_path / "run.html").exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to one process alone")
@pytest.mark.parametrize(
    "when, status, told",
    [("", -2, ""), ("def Fire(*_, **__): ", 130, "interrupted\n")],
    ids=["while the libraries load", "later"],
)
def test_ctrl_c_leaves_no_traceback(tmp_path, when, status, told):
    """In the place of `fire` lies a module that presses the keys: when it is imported, or called."""
    (tmp_path / "fire.py").write_text(f"import os, signal\n{when}os.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run(
        [sys.executable, ROOT / "main.py"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert (done.returncode, done.stderr, done.stdout) == (status, told, "")


def test_two_merge_tables_are_refused(capsys, tmp_path):
    """The same ids, but another order of the merges: other tokens for the same text."""
    for file in (ROOT / "models" / "demo-draft").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    head, one, two, *rest = (tmp_path / "vocab.bpe").read_text(encoding="utf-8").split("\n")
    (tmp_path / "vocab.bpe").write_text("\n".join([head, two, one, *rest]), encoding="utf-8")
    status, _, err = run(capsys, "--draft_model_size", str(tmp_path), "-n", "1")
    assert status == 2 and "vocabular" in err


def test_two_vocabularies_are_refused(capsys, tmp_path):
    folder = tmp_path / "other"
    folder.mkdir()
    for file in (ROOT / "models" / "demo-draft").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    ids = json.loads((folder / "encoder.json").read_text(encoding="utf-8"))
    ids["!"], ids['"'] = ids['"'], ids["!"]
    (folder / "encoder.json").write_text(json.dumps(ids), encoding="utf-8")
    status, _, err = run(capsys, "--draft_model_size", str(folder))
    assert status == 2 and "vocabular" in err


@pytest.mark.parametrize(
    "name",
    ["hparams.json", "encoder.json", "vocab.bpe", "model.ckpt.index", "model.ckpt.data-00000-of-00001"],
)
@pytest.mark.parametrize("damage", ["missing", "empty", "half", "a web page"])
def test_a_damaged_folder_is_named_in_one_sentence(capsys, tmp_path, name, damage):
    for file in (ROOT / "models" / "demo-draft").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    whole = (tmp_path / name).read_bytes()
    if damage == "missing":
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(
            {"empty": b"", "half": whole[: len(whole) // 2], "a web page": b"<html>404</html>\n"}[damage]
        )
    status, out, err = run(capsys, "--draft_model_size", str(tmp_path), "-n", "1")
    assert status == 2 and out == "" and str(tmp_path) in err and err.count("\n") == 1


def test_interrupted_it_says_so_without_a_traceback(capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("utils.load_model", interrupted)
    assert run(capsys) == (130, "", "interrupted\n")


@pytest.mark.parametrize(
    "flags, says",
    [
        ("--K 100000000000000000000", "no context holds so many drafts"),
        ("--verifier tree --K 7", "the tree's --widths"),
        ("--verifier tree --widths=-1", "1 child or more"),
        ("--verifier tree --widths=3,0", "1 child or more"),
        ("--widths 2,2", "--widths is for --verifier tree"),
        ("--exit_layer 3", "--exit_layer is for --drafter early_exit"),
        ("--drafter lookup --draft_model_size nope", "--draft_model_size is for --drafter model"),
        ("--prompts_file x --prompt y", "--prompt is for a run without --prompts_file"),
        ("--draft_model_size=", "there is no model or folder ''"),
    ],
)
def test_flags_that_do_not_go_together_are_refused_in_one_sentence(flags, says, capsys):
    assert main(flags.split()) == 2
    out, err = capsys.readouterr()
    assert says in err and err.startswith("error: ") and err.count("\n") == 1 and not out


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such pipes")
@pytest.mark.parametrize("flags", [["--drafter", "ngram", "--ngram_file"], ["--prompts_file"]], ids=str)
def test_a_pipe_is_not_waited_for(flags, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    assert main([*flags, str(tmp_path / "pipe")]) == 2
    out, err = capsys.readouterr()
    assert "pipe (a folder, a pipe or a device): name a" in err and err.count("\n") == 1 and not out


def test_a_full_disk_is_told_when_the_page_is_written(tmp_path, monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    assert main(["-n", "1", "--json", "--trace", str(tmp_path / "run.html")]) == 2
    out, err = capsys.readouterr()
    assert f"cannot write {tmp_path / 'run.html'} (No space left on device): free some space" in err
    assert err.count("\n") == 1 and not out


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["text", "json"])
def test_a_full_disk_is_told_when_standard_output_goes_there(flags, monkeypatch, capfd):
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert main(["-n", "1", *flags]) == 2
        full.write("more")  # at the end Python writes what is left: to nobody now
    err = capfd.readouterr().err
    assert "cannot write the output (No space left on device): free some" in err and err.count("\n") == 1


def test_a_trace_is_written_over_a_page_and_over_nothing_else(tmp_path, capsys):
    mine, page = tmp_path / "mine.txt", tmp_path / "run.html"
    mine.write_text("my own notes")
    assert main(["--trace", str(mine), "-n", "2"]) == 2
    assert "no web page" in capsys.readouterr().err and mine.read_text() == "my own notes"
    assert main(["--trace", str(page), "-n", "2"]) == main(["--trace", str(page), "-n", "2"]) == 0


def test_k_auto_asks_whoever_decides_in_each_round(monkeypatch, capsys):
    def optimum(c, v, K, propose):
        assert K == 8 and min(c, v) >= 0
        return lambda draft, x, k, to_probs, rng: propose(draft, x, min(k, 1), to_probs, rng)

    monkeypatch.setattr("main.Optimum", optimum)
    spec = result(capsys, "--K", "auto", "-n", "9")["speculative"]
    assert len(spec["tokens"]) == 9 and spec["rounds"] >= 5             # at most two tokens each
