"""The judge's own test: it finds every mistake of the museum and lets pass what is only unusual.

Each mistake is judged here in the one standard case that sees it best, as museum.md says, so that
`lossless.report`, which judges all cases up to the first that is wrong, finds it, too.  What is right is
judged in two cases here, and in the long tests in all."""
import json
from pathlib import Path

import numpy as np
import pytest

import lossless
import speculative
from lossless import CASES, exact_distribution, report
from samplers import tree, tree_rules
from verdicts import mistakes, museum
from verdicts.museum import RIGHT, WRONG, changed, deviation

CASE = {str(case): case for case in CASES}
TABLE = [line.strip("| \n").split(" | ") for line in museum.TABLE.read_text(encoding="utf-8").splitlines()
         if line.startswith("| ")][1:]
FEW = [CASE["'sb.', another prompt; K = 2, 3 tokens"],
       CASE["'ff', settings; K = 1, 2 tokens, temperature = 0.7, top_k = 3, top_p = 0.8"]]


def test_the_table_has_every_mistake_and_every_case_it_names():
    assert [row[0] for row in TABLE] == list(WRONG)
    assert {row[3] for row in TABLE} <= CASE.keys()
    assert len(WRONG) >= 100 and len(RIGHT) >= 30


@pytest.mark.parametrize("name, expected, _, case", TABLE, ids=[row[0] for row in TABLE])
def test_a_mistake_is_found_and_is_as_large_as_the_table_says(name, expected, _, case):
    assert deviation(WRONG[name], CASE[case]) == pytest.approx(float(expected), rel=0.06)
    assert float(expected) > 1e-8


def test_the_row_of_one_mistake_is_written_anew_and_no_other(tmp_path, monkeypatch, capsys):
    old, (name, expected, _, case) = museum.TABLE.read_text(encoding="utf-8"), TABLE[4]
    monkeypatch.setattr(museum, "TABLE", tmp_path / "museum.md")
    monkeypatch.setattr(museum, "CASES", [*FEW, CASE[case]])
    museum.TABLE.write_text(old, encoding="utf-8")
    museum.main(name)
    row, = set(museum.TABLE.read_text(encoding="utf-8").splitlines()) - set(old.splitlines())
    n = sum(deviation(WRONG[name], one) > 1e-9 for one in museum.CASES)
    assert row == f"| {name} | {expected} | {n} | {case} |" == capsys.readouterr().out.strip()
    assert museum.TABLE.read_text(encoding="utf-8").replace(row, f"| {' | '.join(TABLE[4])} |") == old


def test_no_mistake_is_seen_by_one_case_alone():
    """But for those that the list of cases names."""
    assert {name for name, _, n, _ in TABLE if int(n) == 1} <= ALONE


ALONE = {       # long texts, of which there is one for each: see the end of lossless.CASES' first part
    "nothing is tested from the fifteenth new token on", "the eighth round is not tested",
    "a round after a refusal of the fourth draft is not tested",
    "EOS is looked for in the first two tokens of a round"}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_only_unusual_passes(name):
    assert max(deviation(RIGHT[name], case) for case in FEW) < 1e-12


@pytest.mark.long
@pytest.mark.parametrize("name", RIGHT)
def test_the_short_check_lets_it_pass(name, monkeypatch):
    """In all standard cases; of those with many branches the first 5,000 steps, in which no text may already
    be too likely."""
    monkeypatch.setattr(lossless, "ENOUGH", 5_000)
    found = report(RIGHT[name])
    assert found.lossless and found.deviation < 1e-11 and found.n_cases == len(CASES)


def test_a_change_must_fit_the_source():
    with pytest.raises(ValueError, match="speculative holds 'while True' 0 times: adapt the change"):
        changed(speculative, ("while True", "while False"))


# One token by hand: target (.1, .6, .3), draft (.5, .3, .2) -------------------------------------------------


@pytest.mark.parametrize("change, drawn_from, expected", [
    ([], [0.5, 0.3, 0.2], [0.1, 0.6, 0.3]),
    ([(mistakes.RESIDUAL, "residual = q")], [0.5, 0.3, 0.2], [0.14, 0.54, 0.32]),
    ([], [1, 0, 0], [0.2, 0.6, 0.2]),
], ids=["right", "target instead of residual", "draft is the argmax"])
def test_wrong_distributions_of_one_token_are_as_computed_by_hand(change, drawn_from, expected):
    q, p = np.array([[0.1, 0.6, 0.3], [0, 0, 1]]), np.array([[0.5, 0.3, 0.2]])
    verify, found = changed(speculative, *change).verify, np.zeros(3)
    for draft in range(3):
        for (n_accepted, token), chance in exact_distribution(lambda rng: verify(q, p, [draft], rng)).items():
            found[draft if n_accepted else token] += drawn_from[draft] * chance
    assert found == pytest.approx(expected)


def test_notebook_6_shows_that_the_forgetful_tree_is_not_lossless(capsys):
    """What is stored is what its cell prints."""
    path = Path(__file__).parent.parent / "notebooks" / "6_beyond_one_draft.ipynb"
    cell = next(cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
                if cell["cell_type"] == "code" and "forgetful" in "".join(cell["source"]))
    exec("".join(cell["source"]), vars(lossless) | vars(tree) | vars(tree_rules))
    stored = "".join(cell["outputs"][0]["text"])
    assert capsys.readouterr().out == stored
    assert [line.split(":")[:2] for line in stored.splitlines()] == [
        ["SpecInfer", " lossless"], ["Sequoia", " lossless"], ["forgetful", " not lossless"]]
