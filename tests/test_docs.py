"""The README is true: its commands run and print what it shows, and the files contain what it quotes.  Every
link in Markdown leads somewhere; in docs/ exercises have solutions, commands and code run."""
import difflib
import io
import json
import re
import shlex
from contextlib import redirect_stdout
from functools import wraps

import pytest
from helpers import ROOT

from engine.loading import command_line
from engine.loading.download import MODELS
from exercises.mistakes import KNOWN
from lossless.verdicts import CASES
from main import main as program
from methods import table
from methods.__main__ import main as laboratory

# The README -------------------------------------------------------------------------------------------------

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
        text = re.sub(r" \((median|one pair) of .*?\)|\n  The .* busy.*", "", text)
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


# docs/ ------------------------------------------------------------------------------------------------------

PAGES = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
LESSON = re.findall(r"^    python (?:main.py|-m methods)(.*)", PAGES["lesson"], re.M)


def anchors(path):
    """What a link into a page of Markdown may name: an id, or a heading as GitHub writes it."""
    text = path.read_text(encoding="utf-8")
    headings = re.sub(r"\]\([^)]*\)", "]", "\n".join(re.findall(r"^#+ (.*)", text, re.M)))
    return {*re.findall('id="([^"]+)"', text),
            *re.sub(r"[^\w\- \n]", "", headings.lower()).replace(" ", "-").split("\n")}


WHERE = "*.md docs/*.md exercises/*.md lossless/*/*.md benchmarks/*/*.md models/*/*.md"


@pytest.mark.parametrize("pages", WHERE.split())
def test_links_lead_somewhere(pages):
    for page in (page for page in ROOT.glob(pages) if page.suffixes == [".md"]):    # not a template
        for link in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
            file, _, anchor = link.partition("#")
            target = page.parent / file if file else page
            known = re.fullmatch(r"L\d+", anchor) or anchor in anchors(target) if anchor else True
            assert target.exists() and known, (page, link)


def test_the_methods_of_the_lesson_and_of_the_cheat_sheet_are_in_the_table():
    names = [*table.DRAFTERS, *table.VERIFIERS]
    assert {*re.findall(r"--(?:drafter|verifier) (\w+)", PAGES["lesson"])} <= {*names}
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", PAGES["cheat_sheet"], re.M)
    assert {*(on_the_sheet := re.findall(r"\w+", " ".join(rows)))} <= {*names} and len(on_the_sheet) > 25


def test_the_votes_of_the_lesson_and_the_mistakes_that_are_named_exist():
    votes = re.findall(r"python -m lossless exercises/votes/(\w+).py", PAGES["lesson"])
    assert sorted(votes) == sorted(path.stem for path in (ROOT / "exercises" / "votes").glob("*.py"))
    names = re.findall(r'"([A-Z][a-z]+[A-Z]\w+)"', PAGES["mistakes"])
    assert len(names) > 9 and {*names} - {"ZeroDivisionError"} <= {name.partition(".")[0] for name in KNOWN}


@pytest.mark.long
@pytest.mark.parametrize("words", LESSON)
def test_the_lessons_commands_run(words, tmp_path, monkeypatch, capsys):
    """They run, and what is drafted there is accepted; the number that the text gives is the counted one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").symlink_to(ROOT / "models")
    words, _, said = words.partition("# ")                  # tokens per target pass
    words = [word for word in shlex.split(words) if word != "--show_rounds"]
    assert command_line.run(laboratory, [*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    run, counted = found["speculative"], f"{found['speculative']['tokens_per_target_pass']:.2f}"
    assert 0 < run["accepted"] and found["lossless"] and (found["same_text"] or found["temperature"])
    assert said in ("", counted) and (words or f"a round yields {counted} tokens" in PAGES["lesson"])
    if "--temperature" in words:
        assert run["accepted"] < run["tested"]                          # a round with a rejected draft


def test_every_exercise_and_every_try_of_the_notebooks_has_a_solution():
    for n in range(1, 9):
        path, = (ROOT / "notebooks").glob(f"{n}_*.ipynb")
        last = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][-1]["source"])
        assert "\nNext: " in last, path
        tries = len(re.findall(r"^- ", last.split("## To try")[1], re.M))
        section = PAGES["solutions"].split(f"## Notebook {n}")[1].split("\n## ")[0]
        assert section.count("<details>") == section.count("</details>") == tries


@pytest.mark.long
@pytest.mark.parametrize("n", [1, 2, 5, 6, 7, 8])
def test_the_code_of_the_solutions_runs_below_the_cells_of_its_notebook(n, monkeypatch):
    """All cells, also those that plot (into nothing) or measure."""
    pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install -e '.[notebooks]'")
    monkeypatch.setenv("MPLBACKEND", "agg")
    path, = (ROOT / "notebooks").glob(f"{n}_*.ipynb")
    monkeypatch.chdir(ROOT / "notebooks")
    cells = ["".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
             if cell["cell_type"] == "code"]
    section = PAGES["solutions"].split(f"## Notebook {n}")[1].split("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.S)
    with redirect_stdout(io.StringIO()):
        names = {}
        for code in cells + blocks:
            exec(code, names)
    assert blocks
