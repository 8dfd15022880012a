"""The README is true: its commands run and print what it shows, and the files contain what it quotes."""

import difflib
import re
import shlex
from functools import wraps
from pathlib import Path

import pytest

from loading import command_line
from loading.download import MODELS
from lossless.verdicts import CASES
from main import main as program
from methods.__main__ import main as laboratory

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", README, re.S) for line in block.splitlines()]
RUNS = [line for line in COMMANDS if re.match(r"python (main.py|-m methods) -", line)]


def test_it_has_one_line_that_runs_the_program_and_one_that_runs_the_tests():
    for end in "&& python main.py", "&& pytest -q":
        assert sum(line.startswith("python3 -m venv") and line.endswith(end) for line in COMMANDS) == 1


@pytest.mark.parametrize("line", RUNS)
def test_each_command_runs(line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main = laboratory if line.startswith("python -m methods") else program
    arguments = shlex.split(line.removeprefix("python main.py").removeprefix("python -m methods"))
    if not set(arguments) & set(MODELS):
        assert command_line.run(main, [*arguments, "--n_tokens_to_generate", "9"]) == 0
        assert capsys.readouterr().out
    else:  # these would first download gigabytes, so only their flags are checked
        assert command_line.run(wraps(main)(lambda *values, **flags: None), arguments) == 0


def test_the_output_shown_is_what_the_program_prints(capsys):
    """All of it after the first text, except the times and how many pairs of runs fit into a second."""
    def without_times(text):
        text = re.sub(r" \((median|one pair) of .*?\)", "", text)
        return re.sub(r"[\d.]+(?=x| s,| tokens per second)", "N", text).strip()

    shown = re.search(r"```text\n(Speculative.*?)```", README, re.S).group(1)
    assert command_line.run(program, []) == 0
    out, err = capsys.readouterr()
    assert without_times(shown) == without_times(out[out.index("Speculative"):]) and err == ""


def test_every_quoted_line_of_code_is_in_speculative_py():
    code = re.sub(r"\s+", " ", (ROOT / "speculative.py").read_text(encoding="utf-8"))
    table = README.split("[`speculative.py`](speculative.py) |\n|---|---|\n")[1].split("\n\n")[0]
    quoted = [line for row in table.splitlines() for line in re.findall(r"`([^`]+)`", row.split(" | ")[-1])]
    assert len(quoted) > 6
    for line in quoted:
        assert line.removesuffix(" continue") in code, line  # a comment may stand before the `continue`


def test_the_diff_shown_is_that_of_the_two_files():
    """The diff of the two loops, up to `x += new`, without comments and blank lines."""

    def loop(file):
        code = (ROOT / file).read_text(encoding="utf-8")
        code = code[code.index("    while len(x) < T:") : code.index("x += new")] + "x += new"
        return [line for line in re.sub(r" +#.*", "", code).splitlines() if line]

    files = loop("autoregressive.py"), loop("speculative.py")
    diff = list(difflib.unified_diff(*files, n=99, lineterm=""))[3:]
    assert re.search(r"```diff\n(.*?)```", README, re.S).group(1).splitlines() == diff


def test_the_drafter_of_ones_own_prints_what_is_shown(capsys):
    code = re.search(r"```python\n(.*?)```", README, re.S).group(1)
    exec(code, {})
    shown = re.search(r"```text\n(\d of .*?)```", README, re.S).group(1)
    assert capsys.readouterr().out.strip() == shown.strip()


def test_the_verdicts_it_names_are_as_many_as_there_are():
    said = re.search(r"(\d+) public threads, papers and files, .*; (\d+) are wrong", README)
    assert [*map(int, said.groups())] == [len(CASES), sum(case.verdict == "wrong" for case in CASES)]
