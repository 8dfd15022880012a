"""Each quantity has one value; the committed pages show the values of the committed files."""
import re
import shutil
import subprocess
import sys

import pytest

from benchmarks import figures
from benchmarks.__main__ import main
from benchmarks.counts import FIXED, counted_as, name_of, plan
from benchmarks.figures import RESULTS, costs, value
from benchmarks.tables import NAMES, NUMBER, PAGES, filled
from methods import DRAFTERS, VERIFIERS

METHODS = (RESULTS.parents[1] / "docs" / "methods.md").read_text(encoding="utf-8")


@pytest.fixture
def files(monkeypatch):
    """Made-up counts and costs."""
    def cell(tokens, drafts, kept, tested):
        return dict(tokens=tokens, se=.02 * tokens, drafts=drafts, kept=kept, tested=tested)

    def one(ms, tokens, speedup, drafting=0, settling=0, drafts=0, slope=0):
        return {"drafting": [drafting] * 3 + [200], "pass": [ms * .9, ms, ms * 1.1, 400],
                "settling": [settling] * 3 + [200], "typical": ms + drafting + settling, "tokens": tokens,
                "speedup": speedup, "drafts": drafts, "slope": slope}
    cells = {"model token K=4 T=1": cell(3.0, 4, [.8, .6, .4, .2], [1, .8, .6, .4]),
             "model token K=4 places:0-20 T=1": cell(2.0, 3, [.5, .3, .1, .1], [1, .5, .3, .1]),
             "model token K=2 T=1": cell(2.3, 2, [.8, .5], [1, .8])}
    rounds = {"alone T=1": one(2.0, 1, 1),
              "model token K=4 T=1": one(2.8, 2.9, 1.4, drafting=.8, settling=.4, drafts=3, slope=.5),
              "model token K=2 T=1": one(2.2, 2.2, 1.5, drafting=.4, settling=.4, drafts=2, slope=.5)}
    passes = {"demo-target": dict(bytes=32e6, rows={"1": [1, 2, 3, 200], "5": [2, 3, 4, 200]})}
    found = dict(rounds=rounds, passes=passes, bandwidth={"demo-target": [30, 32, 34, 200]})
    monkeypatch.setattr(figures, "counts", lambda: cells)
    monkeypatch.setattr(figures, "costs", lambda kernels: found if kernels == "avx2" else None)
    return cells, found


@pytest.mark.parametrize("what, due", [
    ("model token K=4 T=1: tokens", 3.0), ("model token K=4 T=1: rows", 5),
    ("model token K=4 T=1: rate", 2 / 2.8), ("model token K=4 T=1: position 2", .75),
    ("model token K=4 T=1: kept 3", .4), ("model token K=2 T=1: filled", 2.3 / 3),
    ("model token K=2 T=1: predicted", 1 + 1.3 / 1.8 + (1.3 / 1.8) ** 2),
    ("avx2 model token K=4 T=1: speedup", 3.0 * 2 / 4.5), ("avx2 model token K=4 T=1: quotient", 2.9 * 2 / 4),
    ("model token K=4 places:0-20 T=1: tokens", 2.0),
    ("avx2 model token K=4 places:0-20 T=1: speedup", 2.0 * 2 / 4.0),
    ("avx2 model token K=4 T=1: measured", 1.4), ("avx2 model token K=4 T=1: round", 2.25),
    ("avx2 model token K=4 T=1: c", .1), ("avx2 model token K=4 T=1: v", 1.4),
    ("avx2 best model token T=1: K", 2), ("avx2 best model token T=1: speedup", 2.3 * 2 / 3),
    ("avx2 passes demo-target: v 5", 1.5), ("avx2 passes demo-target: mbu 1", .5),
    ("model token K=4 T=1: tokens over model token K=2 T=1: tokens", 3 / 2.3),
])
def test_a_quantity_is_read_from_the_files(files, what, due):
    assert value(what) == pytest.approx(due)


def test_the_error_is_that_of_the_tokens_and_of_both_medians(files):
    median = 1.2533 * .2 / 1.349 / 20   # if times are normal, with these quartiles
    assert value("avx2 model token K=4 T=1: error") == pytest.approx(
        3 * 2 / 4.5 * (.02**2 + 2 * median**2) ** .5)


def test_a_number_is_rewritten_with_its_digits_and_what_is_not_there_is_a_dash(files):
    name = "model token K=4 T=1"
    assert filled(f"so 9.9<!-- {name}: tokens --> and -<!-- {name}: tokens -->") == (
        f"so 3.0<!-- {name}: tokens --> and 3.00<!-- {name}: tokens -->")
    assert filled(f"| 1.00 ± 0.10<!-- {name}: text --> | 1<!-- nothing K=4 T=1: tokens -->") == (
        f"| 3.00 ± 0.06<!-- {name}: text --> | -<!-- nothing K=4 T=1: tokens -->")
    with pytest.raises(KeyError):
        value("model token K=5 T=1: tokens")


# The committed pages ----------------------------------------------------------------------------------------

def test_the_pages_hold_the_values_of_the_files():
    """If this fails: python -m benchmarks speed."""
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        assert filled(text) == text, path
        assert len(NUMBER.findall(text)) == text.count("<!-- "), f"{path}: a comment that follows no number"


def test_all_that_is_asked_for_can_be_known():
    """Each quantity on a page is counted already, or is in the plan."""
    known = {name_of(*cell) for cell in plan()}
    for path in PAGES:
        for _, what in NUMBER.findall(path.read_text(encoding="utf-8")):
            for name in (part.rsplit(": ", 1)[0] for part in what.split(" over ")):
                drafter, verifier, *rest = re.sub("^(avx512|avx2) ", "", name).split(" ")
                if drafter not in ("best", "passes") and " on " not in name:
                    same = counted_as(drafter, verifier, None, float(rest[-1][2:]))[:2]
                    assert " ".join([*same, *rest]) in known, (path.name, what)


def test_whole_runs_took_what_their_parts_took():
    """The speed-up of the whole run and that from the times of its parts agree within ten per cent, as the
    pages say."""
    page = (RESULTS / "speed.md").read_text(encoding="utf-8")
    for kernels, words in NAMES.items():
        names = [name for name in costs(kernels)["rounds"] if not name.startswith("alone")]
        assert f"| {words} | {len(names)} of {len(names)} | none |" in page
        for name in names:
            both = (value(f"{kernels} {name}: {what}") for what in ("measured", "quotient"))
            assert next(both) == pytest.approx(next(both), rel=.1), (kernels, name)
            assert f"<!-- {kernels} {name}: text -->" in page or "K=2" in name or "K=8" in name, name


# The table of the methods -----------------------------------------------------------------------------------

def test_every_method_has_its_row_and_every_row_an_entry():
    rows = re.findall(r"^\| \[`(\w+)`\]\(\.\./([\w/.]+)\)", METHODS, re.M)
    entries = [(name, entry.file) for table in (DRAFTERS, VERIFIERS) for name, entry in table.items()]
    assert sorted(rows) == sorted(entries)


def test_the_numbers_of_a_row_are_those_of_its_method():
    """A row shows tokens and speed-ups, of lines with four drafts or trees of 3,2,1.  At T = 0 it counts the
    places before most loops."""
    wheres = "T=1", "places:0-20 T=0", "prompts:copying T=0"
    for name, row in re.findall(r"^\| \[`(\w+)`\](.*)$", METHODS, re.M):
        cell = f"{FIXED.get(name, name)} token K=4" if name in DRAFTERS else f"model {name}:3,2,1"
        if name in VERIFIERS and not VERIFIERS[name].tree:
            cell = f"model {name} K=4"
        due = [f"{kind}{cell} {where}: {what}" for where in wheres
               for kind, what in (("", "tokens"), ("avx512 ", "speedup"))]
        assert [what for _, what in NUMBER.findall(row)] == due, name


@pytest.mark.long
def test_a_method_is_added_by_the_steps_that_are_written_there(tmp_path):
    """Follows docs/methods.md in a copy of the repository, with a drafter from tests/fixtures.  Its row first
    has "-" for numbers, then counted ones."""
    root, copy = RESULTS.parents[1], tmp_path / "copy"
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns(".git", ".venv", "models", "__pycache__"))
    (copy / "models").symlink_to(root / "models")

    def run(*words):
        return subprocess.run([sys.executable, *words], cwd=copy, capture_output=True, text=True)

    def edit(file, old, new):
        text = (copy / file).read_text(encoding="utf-8")
        assert old in text
        (copy / file).write_text(text.replace(old, new, 1), encoding="utf-8")

    shutil.copy(root / "tests/fixtures/mine.py", copy / "drafters/mine.py")
    entry = re.search(r'`("mine": .*)`\.', METHODS)[1]
    edit("methods.py", "DRAFTERS = {", f"from drafters import mine\nDRAFTERS = {{\n    {entry}")
    row = re.sub(r"[\d.]+<!--", "-<!--", re.search(r"^\| \[`lookup`\].*\n", METHODS, re.M)[0])
    edit("docs/methods.md", "| [`lookup`]", row.replace("lookup", "mine") + "| [`lookup`]")
    tests = run("-m", "pytest", "-n", "0", "-q", *(f"tests/test_{name}.py" for name in (
        "figures", "counts", "costs", "docs")))
    assert tests.returncode == 0, tests.stdout[-3000:]
    few = "from benchmarks import counts, __main__ as b; counts.UNITS = 3; counts.wanted = lambda cell: 9; "
    counted = run("-c", few + "b.main('counts', 'mine')")
    assert counted.returncode == 0 and counted.stdout.count("tokens per pass") == 3, counted.stderr
    row = re.search(r"^\| \[`mine`\].*", (copy / "docs/methods.md").read_text(encoding="utf-8"), re.M)[0]
    assert [number == "-" for number, _ in NUMBER.findall(row)] == [False, True] * 3


# The program ------------------------------------------------------------------------------------------------

def test_what_the_program_does_not_know_is_one_sentence():
    with pytest.raises(ValueError, match="use counts, costs, speed or film"):
        main("pairs")
    with pytest.raises(ValueError, match="counts nothing: a name .* is one of .*model, lookup"):
        main("counts", "nothing")
