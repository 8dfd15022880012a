"""Counts: rounds are added up right; counting resumes where it stopped; and the committed counts have the
order that theory demands."""
import json
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import counts
from benchmarks.counts import FILE, figures, name_of
from sampling import Round

CELLS = json.loads(FILE.read_text(encoding="utf-8"))["cells"]


def test_a_run_is_tallied_round_by_round(monkeypatch):
    """Of two drafts, 2, 1 and 0 are accepted; the last round has none."""
    rounds = [Round([0] * (n + 1), [0] * k, n, None, None) for k, n in ((2, 2), (2, 1), (2, 0), (0, 0))]
    monkeypatch.setattr(counts, "prepare_fixed", lambda *_: SimpleNamespace(K=2))
    monkeypatch.setattr(counts, "rounds_of", lambda *_: rounds)
    found = counts.tally_run(None, None, 2, 1, [], 0, (0, 60))
    assert found.tolist() == [1, 4, 7, 6, 16, 49, 28, 2, 1, 3, 2]           # .., accepted, tested


def test_the_error_is_that_of_a_ratio():
    rng = np.random.default_rng(0)
    rounds, tokens = rng.integers(15, 30, 40), rng.integers(60, 66, 40)
    cell = figures(sum(counts.tally(r, t, 0, [0], [0]) for r, t in zip(rounds, tokens)))
    drawn = [tokens[i].sum() / rounds[i].sum() for i in rng.integers(0, 40, (4000, 40))]       # the bootstrap
    assert cell["tokens"] == round(tokens.sum() / rounds.sum(), 4)
    assert cell["se"] == pytest.approx(np.std(drawn), rel=.1)


@pytest.mark.parametrize("cell, counted_as", [
    (("tli", "token", 4, 1), ("model", "token", 4, 1)), (("cascade", "token", 4, 1),) * 2,
    (("cascade", "token", 4, 0), ("model", "token", 4, 0)), (("ngram", "lenient:0.5", 4, 1),) * 2,
    (("ngram", "lenient:0.5", 4, 0), ("ngram", "token", 4, 0)), (("model", "block", 4, 0),) * 2,
    (("model", "k_seq:3,2,1", None, 0), ("model", "tree:3,2,1", None, 0))])
def test_what_is_the_same_by_theory_is_counted_once(cell, counted_as):
    assert counts.counted_as(*cell) == counted_as


def test_a_cell_goes_on_where_it_stopped_but_not_with_other_weights(monkeypatch, tmp_path):
    """The file gets the cell and keeps what was there."""
    asked, cell, file = [], ("model", "coupled", 4, 1, ""), tmp_path / "counts.json"
    name = name_of(*cell)

    def some(cell, first, n):
        asked.append(first)
        return sum(counts.tally(r, 60, 0, [0], [0]) for r in (18 + (first + i) % 9 for i in range(n)))

    monkeypatch.setattr(counts, "count_texts", some)
    monkeypatch.setattr(counts, "plan", lambda: [cell])
    monkeypatch.setattr(counts, "wanted_error", lambda _: .03)
    counts.write(file, {"another": {"tokens": 2}})
    coarse = counts.count(file=file)
    monkeypatch.setattr(counts, "wanted_error", lambda _: .01)
    fine = counts.count(file=file)
    assert asked == list(range(0, 46 * len(asked), 46)) and fine[name]["texts"] > coarse[name]["texts"]
    assert fine[name]["se"] <= .01 * fine[name]["tokens"] and counts.count(file=file) == fine
    assert counts.read(file) == {"another": {"tokens": 2}} | fine
    monkeypatch.setattr(counts, "weights", lambda: {"demo-target": "others"})
    with pytest.raises(ValueError, match="counted with weights other than"):
        counts.count(file=file)


# The committed counts ---------------------------------------------------------------------------------------

def test_the_committed_cells_were_counted_on_these_weights():
    assert counts.read(FILE) == CELLS and len(counts.weights()) == 6


def test_every_cell_keeps_its_bounds():
    for name, cell in CELLS.items():
        accepted, tested = np.array(cell["accepted"]), np.array(cell["tested"])
        assert 1 <= cell["tokens"] <= len(accepted) + 1 and (np.diff(accepted) <= 1e-9).all(), name
        assert (accepted <= tested + 1e-9).all() and (tested[1:] <= accepted[:-1] + 1e-9).all(), name
        assert cell["tokens"] == pytest.approx(1 + accepted.sum(), abs=1e-3), name
        assert cell["se"] < .04 * cell["tokens"], name


def no_fewer(more, less, slack=3):
    """The first cell has at least the tokens per pass of the second, within `slack` standard errors."""
    a, b = CELLS[more], CELLS[less]
    assert a["tokens"] >= b["tokens"] - slack * (a["se"] ** 2 + b["se"] ** 2) ** .5, (more, less)


def test_the_order_that_theory_demands_of_two_methods_holds():
    Ks = 1, 2, 3, 4, 6, 8
    for T in "0", "0.5", "1":
        for K, more in zip(Ks, Ks[1:]):
            no_fewer(f"model block K={more} T={T}", f"model block K={K} T={T}")
        for K in Ks:
            no_fewer(f"model block K={K} T={T}", f"model token K={K} T={T}")
            if T != "0":
                no_fewer(f"model token K={K} T={T}", f"model coupled K={K} T={T}")
    for rule in "lenient:0.8", "lenient:0.5", "lenient", "lenient:0.1":
        no_fewer(f"model {rule} K=4 T=1", "model token K=4 T=1")
    for shape, T in product(("3,2,1", "2,2,2", "4,1,1,1", "8,1,1,1"), ("0.5", "1")):
        no_fewer(f"model tree:{shape} T={T}", f"model specinfer:{shape} T={T}")
        no_fewer(f"model traversal:{shape} T={T}", f"model tree:{shape} T={T}")
        no_fewer(f"model k_seq:{shape} T={T}", f"model specinfer:{shape} T={T}", slack=4)
        no_fewer(f"model tree:{shape} T={T}", f"model token K={shape.count(',') + 1} T={T}")
    for rule, T in product(("tree", "specinfer", "k_seq"), ("0.5", "1")):              # no branches
        no_fewer(f"model {rule}:1,1,1 T={T}", f"model token K=3 T={T}")
        no_fewer(f"model token K=3 T={T}", f"model {rule}:1,1,1 T={T}")
    for n in (4, 8, 16, 32, 64):
        no_fewer(f"model tree:best{2 * n} T=1", f"model tree:best{n} T=1")


def test_what_copies_gains_as_a_greedy_text_goes_on():
    """As docs/methods.md says: the more the text repeats itself."""
    def gain(method):
        early, late = (CELLS[f"{method} token K=4 places:{places} T=0"] for places in ("0-20", "40-60"))
        return late["tokens"] - early["tokens"]
    assert min(map(gain, ("lookup", "suffix", "jacobi"))) > gain("model") + .2
