"""Every link in Markdown leads somewhere; in docs/ exercises have solutions, commands and code run."""
import io
import json
import re
import shlex
from contextlib import redirect_stdout

import pytest
from helpers import ROOT

from exercises.mistakes import KNOWN
from loading import command_line
from methods import table
from methods.__main__ import main

PAGES = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
COMMANDS = re.findall(r"^    python (?:main.py|-m methods)(.*)", PAGES["lesson"], re.M)


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


def test_the_lessons_methods_are_in_the_table_and_those_of_the_cheat_sheet_are_all():
    names = [*table.DRAFTERS, *table.VERIFIERS]
    assert {*re.findall(r"--(?:drafter|verifier) (\w+)", PAGES["lesson"])} <= {*names}
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", PAGES["cheat_sheet"], re.M)
    assert sorted(re.findall(r"\w+", " ".join(rows))) == sorted(names)


def test_the_votes_of_the_lesson_and_the_mistakes_that_are_named_exist():
    votes = re.findall(r"python -m lossless exercises/votes/(\w+).py", PAGES["lesson"])
    assert sorted(votes) == sorted(path.stem for path in (ROOT / "exercises" / "votes").glob("*.py"))
    names = re.findall(r'"([A-Z][a-z]+[A-Z]\w+)"', PAGES["mistakes"])
    assert len(names) > 9 and {*names} - {"ZeroDivisionError"} <= {name.partition(".")[0] for name in KNOWN}


@pytest.mark.long
@pytest.mark.parametrize("words", COMMANDS)
def test_the_lessons_commands_run(words, tmp_path, monkeypatch, capsys):
    """They run, and what is drafted there is accepted; the number that the text gives is the counted one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").symlink_to(ROOT / "models")
    words = [word for word in shlex.split(words) if word != "--show_rounds"]
    assert command_line.run(main, [*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    run, said = found["speculative"], re.search(r"a round yields ([\d.]+) tokens", PAGES["lesson"])[1]
    assert 0 < run["accepted"] and found["lossless"] and (found["same_text"] or found["temperature"])
    assert words or said == f"{run['tokens_per_target_pass']:.2f}"
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
