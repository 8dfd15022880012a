"""One value for each quantity; the committed pages hold those of the committed files; the claims."""
import json
import re

import pytest

from benchmarks import costs, counts, figures, tables
from benchmarks.__main__ import main
from benchmarks.counts import FILE, name_of, plan
from benchmarks.figures import RESULTS, filled, value

CELLS = json.loads(FILE.read_text(encoding="utf-8"))["cells"]


@pytest.fixture
def files(monkeypatch):
    """Counts and costs that are made up."""
    def cell(tokens, drafts, kept, tested):
        return dict(tokens=tokens, se=.02 * tokens, drafts=drafts, kept=kept, tested=tested)

    def one(ms, tokens, speedup, drafting=0, settling=0, drafts=0, slope=0):
        return {"drafting": [drafting] * 3 + [200], "pass": [ms * .9, ms, ms * 1.1, 400],
                "settling": [settling] * 3 + [200], "typical": ms + drafting + settling, "tokens": tokens,
                "speedup": speedup, "drafts": drafts, "slope": slope}
    cells = {"model token K=4 T=1": cell(3.0, 4, [.8, .6, .4, .2], [1, .8, .6, .4]),
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
    ("avx2 model token K=4 T=1: measured", 1.4), ("avx2 model token K=4 T=1: round", 2.25),
    ("avx2 model token K=4 T=1: c", .1), ("avx2 model token K=4 T=1: v", 1.4),
    ("avx2 best model token T=1: K", 2), ("avx2 best model token T=1: speedup", 2.3 * 2 / 3),
    ("avx2 passes demo-target: v 5", 1.5), ("avx2 passes demo-target: mbu 1", .5),
    ("model token K=4 T=1: tokens over model token K=2 T=1: tokens", 3 / 2.3),
])
def test_a_quantity_is_read_from_the_files(files, what, due):
    assert value(what) == pytest.approx(due)


def test_the_error_is_that_of_the_tokens_and_of_both_medians(files):
    median = 1.2533 * .2 / 1.349 / 20   # of a normal distribution with these quartiles
    assert value("avx2 model token K=4 T=1: error") == pytest.approx(
        3 * 2 / 4.5 * (.02**2 + 2 * median**2) ** .5)


def test_what_is_not_there_is_a_dash_and_raises(files):
    assert filled("{{model token K=4 T=1: tokens}}, {{avx512 model token K=4 T=1: speedup}}") == "3, -"
    with pytest.raises(KeyError):
        value("model token K=5 T=1: tokens")


def test_whole_runs_are_compared_with_the_sum_of_their_parts(files):
    assert figures.checked("avx2") == pytest.approx(
        {"model token K=4 T=1": 1.4 / 1.45, "model token K=2 T=1": 1.5 / (2.2 * 2 / 3)})


def test_a_row_is_there_once_for_each_method_that_has_values(files):
    line = ("| METHOD | {{METHOD K=4 T=1: text}} | {{avx2 best METHOD T=1: text}} "
            "(K = {{avx2 best METHOD T=1: K}}) |")
    assert [*tables.rows(line)] == ["| model token | 3.00 ± 0.06 | 1.53 ± 0.04 (K = 2) |"]
    files[0]["model lenient K=4 T=1"] = files[0]["model token K=4 T=1"]
    assert "| model lenient (lossy) | 3.00 ± 0.06 | - (K = -) |" in tables.rows(line)
    assert [*tables.rows("no METHOD here")] == ["no METHOD here"]


# The committed pages ----------------------------------------------------------------------------------------

def test_the_pages_hold_the_values_of_the_files():
    """If this fails: python -m benchmarks speed."""
    for template in tables.TEMPLATES.glob("*.md"):
        made = tables.page(template.read_text(encoding="utf-8"))
        assert (RESULTS / template.name).read_text(encoding="utf-8") == made, template.name


def test_a_number_with_its_quantity_behind_it_is_that_of_the_files():
    """In any page: 0.76<!-- model token K=4 T=1: rate -->, to the digits that are written."""
    root = FILE.parents[2]
    for path in [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("models/*/*.md")]:
        for written, what in re.findall(r"(-?\d+\.?\d*)\D?<!-- (.+?) -->", path.read_text(encoding="utf-8")):
            digits = len(written.partition(".")[2])
            assert round(value(what), digits) == float(written), (path.name, what)


def test_all_that_is_asked_for_can_be_known():
    """Each quantity on a page is one that is counted, or will be."""
    known = {name_of(*cell) for cell in plan()}
    for template in tables.TEMPLATES.glob("*.md"):
        for what in re.findall(r"\{\{(.*?)\}\}", template.read_text(encoding="utf-8")):
            for name in (part.rsplit(": ", 1)[0] for part in what.split(" over ")):
                name = re.sub("^(avx512|avx2) ", "", name)
                each = re.match("METHOD|RULE|best |passes ", name)
                assert name in known or each, (template.name, what)


def test_the_claims_are_many_and_of_many_papers():
    rows = [line.split(" | ") for line in (RESULTS / "claims.md").read_text(encoding="utf-8").splitlines()
            if re.match(r"\| \d+ \|", line)]
    papers = {re.split(r"[ ,(]", row[1].strip())[0] for row in rows}
    assert len(rows) >= 25 and len(papers) >= 10 and all(len(row) == 5 for row in rows)


def test_all_pages_together_are_short():
    pages = [path.read_text(encoding="utf-8") for path in RESULTS.glob("*.md") if path.name != "mutations.md"]
    assert sum(len(re.findall(r"\S*\w\S*", page)) for page in pages) < 5000


def test_the_program_writes_beside_the_committed_files_and_a_quick_look_nowhere(monkeypatch):
    asked = []
    monkeypatch.setattr(counts, "count", lambda *how: asked.append(how) or {"a cell": dict(tokens=2, se=.1)})
    for module, name in (costs, "costs"), (tables, "write_all"):
        monkeypatch.setattr(module, name, lambda *how: asked.append(how))
    for what in "counts", "costs", "speed":
        for quick in [False, True][:1 + (what != "speed")]:
            main(what, quick)
    assert asked == [(FILE, False), (None, True), (RESULTS, False), ("", True), (RESULTS,)]


def test_a_program_that_is_not_there_is_one_sentence():
    with pytest.raises(ValueError, match="use counts, costs or speed"):
        main("pairs")
