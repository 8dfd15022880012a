"""The README is true: its commands run, its output is what they print, what it quotes stands in the files."""

import difflib
import inspect
import json
import re
import shlex
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import console
from loading.download import MODELS
from main import main

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", README, re.S) for line in block.splitlines()]
RUNS = [shlex.split(line.split("&& ")[-1])[2:] for line in COMMANDS if "python main.py" in line]


def test_it_has_one_line_that_runs_the_program_and_one_that_runs_the_tests():
    assert (
        sum(line.startswith("python3 -m venv") and line.endswith("&& python main.py") for line in COMMANDS)
        == 1
    )
    assert sum(line.startswith("python3 -m venv") and line.endswith("&& pytest -q") for line in COMMANDS) == 1


@pytest.mark.parametrize("arguments", RUNS, ids=" ".join)
def test_each_command_runs(arguments, capsys):
    if not set(arguments) & set(MODELS):
        assert console.run(main, arguments) == 0
        assert capsys.readouterr().out
    else:  # these download gigabytes first: their flags at least are right
        assert console.in_order(inspect.signature(main).parameters, arguments)


def test_the_output_shown_is_what_the_program_prints(capsys):
    """All but the times, which no two runs share, and what depends on them: on a busy machine a pair may not
    pay."""

    def without_times(text):
        text = re.split("This pair gains|By the numbers of this run", text)[0]
        return re.sub(r"[\d.]+(?=x| s,| tokens per second)|(?<=[cv] = )[\d.]+", "N", text).strip()

    shown = re.search(r"```text\n(Autoregressive.*?)```", README, re.S).group(1)
    assert console.run(main, []) == 0
    assert without_times(shown) == without_times(capsys.readouterr().out)


def test_every_link_to_a_file_leads_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_every_quoted_line_of_code_is_in_speculative_py():
    code = re.sub(r"\s+", " ", (ROOT / "speculative.py").read_text(encoding="utf-8"))
    table = README.split("[`speculative.py`](speculative.py) |\n|---|---|\n")[1].split("\n\n")[0]
    quoted = [line for row in table.splitlines() for line in re.findall(r"`([^`]+)`", row.split(" | ")[-1])]
    assert len(quoted) > 6
    for line in quoted:
        assert line.removesuffix(" continue") in code, line  # a comment may stand before the `continue`


def test_the_diff_shown_is_that_of_the_two_files():
    """Of their loops, up to `x += new`, without the comments."""

    def loop(file):
        code = (ROOT / file).read_text(encoding="utf-8")
        code = code[code.index(8 * " " + "while len(x) < T:") : code.index("x += new")] + "x += new"
        return re.sub(r" +#.*", "", code).splitlines()

    files = loop("autoregressive.py"), loop("speculative.py")
    diff = list(difflib.unified_diff(*files, n=99, lineterm=""))[3:]
    assert re.search(r"```diff\n(.*?)```", README, re.S).group(1).splitlines() == diff


def test_the_lines_of_python_go_through_the_rounds_of_a_pair_and_of_ones_own_drafter(capsys):
    names = {}
    exec(re.findall(r"```python\n(.*?)```", README, re.S)[0], names)
    lines = re.findall(r"^(\d) of (\d) drafts: ", capsys.readouterr().out, re.M)
    assert sum(1 + int(accepted) for accepted, _ in lines) == 80  # twice 40 tokens
    assert names["mine"](None, [1, 2, 3, 4, 5], 3, None, None) == ([2, 3, 4], None)


def test_the_three_lines_that_check_a_drafter_do():
    _, block = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(block.splitlines()) == 3
    *imports, call = block.splitlines()

    def ones(draft, x, k, to_probs, rng):
        return [1] * k, None

    def ones_that_pass_for_even(draft, x, k, to_probs, rng):
        return [1] * k, [np.ones(3) / 3] * k

    for mine, right in (ones, True), (ones_that_pass_for_even, False):
        names = {"mine": mine}
        exec("\n".join(imports), names)
        names["check"] = partial(names["check"], Ks=[2], n_tokens=2)  # the whole takes seconds
        assert (eval(call.split("   #")[0], names) < 1e-12) == right


def test_lines_are_within_110_columns():
    """Tables, pictures, commands and what the program printed excepted."""
    text = re.sub(r"```.*?```", "", README, flags=re.S)
    assert not [line for line in text.splitlines() if len(line) > 110 and not line.startswith(("|", "!"))]


def test_the_workflow_runs_the_lines_for_windows():
    """The other systems' lines it takes from the README itself."""
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    lines = re.search(r"```bat\n(.*?)```", README, re.S).group(1).splitlines()
    assert len(lines) == 4
    assert "\n".join(" " * 10 + line for line in lines) in workflow


def test_the_numbers_in_beyond_are_those_that_were_measured():
    rows = json.loads((ROOT / "benchmarks/results/avx512/methods.json").read_text(encoding="utf-8"))["rows"]
    measured = {}                                       # (file, method): its tokens a pass, and its speed-ups
    for row in rows:
        tokens, speed = measured.setdefault((row["file"], row["method"]), ([], []))
        tokens.append(f"{row['tokens per pass']:.2f} at {row['shape'].strip('()').replace(', ', '-')}")
        speed.append(f"{row['measured']:.2f}")
    table = README.split("## Beyond")[1].split("\n\n")[2].splitlines()[2:]
    shown = [re.search(r"\]\((\S+?\.py)\).*\| ([\d., at-]+) \| ([\d., ]+) \|$", line) for line in table]
    assert sum(match is not None for match in shown) == 11
    for file, tokens, speed in (match.groups() for match in shown if match):
        assert (tokens.split(", "), speed.split(", ")) in [
            cells for (name, _), cells in measured.items() if name == file], file


def test_it_is_read_in_ten_minutes():
    assert len(re.findall(r"\S*\w\S*", README)) < 2300
