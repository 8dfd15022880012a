"""Many prompts from a file: the texts are those of single runs, in order, and no finished text is lost."""

import json
import re

import pytest

import console
from main import main
from reporting import many

LINES = ['"I want nothing," cried he.', "", "The old man\r", "\u2028It was a cold, grey morning", "He"]
PROMPTS = [line.rstrip("\r") for line in LINES if line]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_bytes(b"\xef\xbb\xbf" + "\n".join(LINES).encode())  # with a byte order mark, as on Windows
    return path


def objects(out):
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("temperature", ["1", pytest.param("0", marks=pytest.mark.long)])
def test_every_text_is_the_one_of_a_single_run(temperature, file, capsys, monkeypatch):
    monkeypatch.setattr(many, "BATCH", 3)  # two batches, the last of one prompt
    flags = ["-n", "6", "--K", "2", "--temperature", temperature, "--seed", "5", "--json"]
    assert console.run(many.main, [str(file), *flags]) == 0
    found = objects(capsys.readouterr().out)
    assert [one["prompt"] for one in found] == PROMPTS and [one["batch"] for one in found] == [3, 3, 3, 1]
    for one in found:
        assert console.run(main, [f"--prompt={one['prompt']}", *flags]) == 0
        alone = json.loads(capsys.readouterr().out)
        assert alone.keys() - {"rows", "same_by_seed", "speedups"} <= one.keys()
        for way in "autoregressive", "speculative":
            assert alone[way].keys() - {"accepted", "tested"} <= one[way].keys()
            if one["same_bits"]:
                assert all(one[way][key] == alone[way][key] for key in ("text", "tokens"))


def test_the_autoregressive_text_depends_on_no_drafter_or_rule(file, tmp_path, capsys):
    own = tmp_path / "own.py"
    own.write_text("def propose(draft, x, k, to_probs, rng):\n    return [int(rng.integers(9))][:k], None\n"
                   "def verify(q, p, drafts, rng):\n    return 0, 7\n")
    texts = []
    for more in [], ["--drafter", str(own)], ["--verifier", str(own)]:
        assert console.run(many.main, [str(file), "-n", "4", "--temperature", "1", "--json", *more]) == 0
        texts.append([one["autoregressive"]["text"] for one in objects(capsys.readouterr().out)])
    assert texts[0] == texts[1] == texts[2]


def test_the_texts_are_printed_in_order_with_the_speed(file, capsys):
    assert console.run(many.main, [str(file), "--n_tokens_to_generate", "3"]) == 0
    out, _ = capsys.readouterr()
    places = [out.index(prompt) for prompt in PROMPTS]
    assert places == sorted(places)
    assert re.search("4 prompts, up to 16 at once: [1-9].* autoregressively, [1-9].* speculatively", out)


def test_an_interruption_loses_no_finished_batch(file, capsys, monkeypatch):
    """The second of two batches is interrupted before its speculative run."""
    monkeypatch.setattr(many, "BATCH", 3)
    run, calls = many.run, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return run(*arguments)

    monkeypatch.setattr(many, "run", interrupted)
    assert console.run(many.main, [str(file), "--n_tokens_to_generate", "9", "--json"]) == 130
    found = objects(capsys.readouterr().out)
    assert [one["prompt"] for one in found] == PROMPTS[:3] and all(one["same_text"] for one in found)


@pytest.mark.parametrize("content, says", [
    (b"", "holds no prompt"), (b" \n\r\n", "holds no prompt"), (b"\xff\xfe", "not UTF-8 text")])
def test_a_file_without_prompts_is_refused(content, says, tmp_path, capsys):
    path = tmp_path / "prompts.txt"
    path.write_bytes(content)
    assert console.run(many.main, [str(path)]) == 2
    assert says in capsys.readouterr().err
    for path, why in (tmp_path / "none", "No such file"), (tmp_path, "cannot read"):
        assert console.run(many.main, [str(path)]) == 2
        assert why in capsys.readouterr().err


def test_a_prompt_that_is_too_long_is_told_by_its_number(file, capsys):
    assert console.run(many.main, [str(file), "--n_tokens_to_generate", "505"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: prompt 1: ") and err.count("\n") == 1


@pytest.mark.parametrize("flags", ["--drafter eagle", "--drafter schedule", "--verifier tree"])
def test_what_is_for_one_text_is_refused(flags, file, capsys):
    assert console.run(many.main, [str(file), *flags.split()]) == 2
    assert "is for one text at a time" in capsys.readouterr().err
