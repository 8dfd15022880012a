"""machine.html, which method on my machine: the page and Python compute the same, as worked out by hand."""
import json

import numpy as np
import pytest

from benchmarks import cost_model
from benchmarks.cost_model import ASSUMED, PLACES, assumed, bars, presets, speedup
from pages.site import machine_page


def clocked(drafting, target=5.0):
    return {"drafting": [0, drafting, 9, 50], "pass": [0, target, 9, 50]}


COSTS = {
    "rounds": {"alone T=1": clocked(.01), "model token K=4 T=1": clocked(2.4),
               "eagle token K=4 T=1": clocked(1.6), "lookup token K=4 T=1": clocked(.04),
               "early_exit:3 token K=4 T=1": clocked(6.0), "model tree:3,2,1 T=0": clocked(1.8),
               "medusa token K=8 T=1": clocked(.8), "medusa token K=4 T=1": clocked(.7)},
    "passes": {"124M": {"rows": {str(n): [0, 20 + n, 99, 50] for n in PLACES}}},
    "machine": {"CPU": "abacus", "cores": 2},
}
COUNTS = {name: dict(tokens=tokens, se=.03, drafts=drafts) for name, tokens, drafts in [
    ("model token K=4 T=1", 3.0, 4.0), ("model block K=8 T=1", 3.5, 8.0), ("model tree:3,2,1 T=1", 3.2, 15.0),
    ("eagle token K=2 T=0.5", 2.4, 2.0), ("lookup token K=4 T=0", 1.9, 2.5),
    ("medusa token K=8 T=1", 2.0, 8.0), ("early_exit:3 token K=4 T=1", 2.5, 4.0),
    ("model lenient K=4 T=1", 4.0, 4.0), ("model tree:2,2 T=0", 2.9, 40.0),
    ("jacobi token K=4 T=1", 1.5, 4.0), ("lookup token K=4 places:0-20 T=0", 1.6, 2.5)]}


def test_a_round_costs_its_drafting_and_a_pass_over_its_rows():
    c, h, v = .12, .08, [1, 1.1, 1.5, 2, 3, 5]
    all_rows = bars(COUNTS, COSTS)
    found = {(row["method"], row["option"], row["T"], row["K"]): speedup(row, c, h, v) for row in all_rows}
    by_hand = {("model", "", 1, 4): 3.0 / (4 * c + 1.5), ("model, block", "", 1, 8): 3.5 / (8 * c + 2),
               ("model, tree", "3,2,1", 1, None): 3.2 / (3 * c + 2 + (16 - 9) / 8),     # not timed
               ("model, tree", "2,2", 0, None): 2.9 / (1.8 / .6 * 2 / 3 * c + 5 + 2 * 8 / 16),
               ("eagle", "", .5, 2): 2.4 / (2 * h + 1.1 + .4 / 3), ("medusa", "", 1, 8): 2.0 / (2 * h + 2),
               ("lookup", "", 0, 4): 1.9 / (.01 * 2.5 / 5 + 1.1 + .4 * 1.5 / 3),
               ("early_exit", "3", 1, 4): 2.5 / (6 / 5 + 1.5),
               ("model, lenient", "", 1, 4): 4.0 / (4 * c + 1.5)}
    assert found == pytest.approx(by_hand)                      # jacobi was not timed
    kinds = {row["method"]: (row["lossless"], row["needs"]) for row in all_rows}
    assert kinds["model, lenient"] == (False, "draft") and kinds["lookup"] == (True, "own")
    assert kinds["medusa"] == (True, "head") and kinds["early_exit"] == (True, "own")
    first_places = [row for row in bars(COUNTS, COSTS, "0-20") if row["T"] == 0]
    assert [(row["method"], row["tokens"]) for row in first_places] == [("lookup", 1.6)]


def test_a_preset_is_what_was_measured():
    preset = presets(COSTS, "AVX2")["GPT-2 124M, AVX2"]
    assert preset["v"] == pytest.approx([(20 + n) / 21 for n in PLACES], abs=5e-4)
    assert (preset["c"], preset["h"]) == pytest.approx((2.4 / 4 / 5, 1.6 / 4 / 5))
    assert all("(assumed)" in name for name in ASSUMED) and {*map(len, assumed().values())} == {3}
    assert assumed()["a GPU, 16 texts at once (assumed)"]["v"] == [1, 1, 1, 9 / 8, 17 / 8, 33 / 8]


@pytest.fixture
def page(browser, tmp_path, monkeypatch):
    monkeypatch.setattr(cost_model, "counts", lambda: COUNTS)
    monkeypatch.setattr(cost_model, "costs", lambda kernels: COSTS)
    html = machine_page()
    (tmp_path / "machine.html").write_text(html, encoding="utf-8")
    browser.open(tmp_path / "machine.html")
    yield browser
    assert browser.complaints() == []


@pytest.mark.browser
def test_in_a_browser_the_sliders_say_what_python_says(page):
    rng, found = np.random.default_rng(0), bars(COUNTS, COSTS, "0-20")
    settings = [dict(c=rng.random(), h=rng.random(), v=[1, *rng.uniform(.5, PLACES[1:])]) for _ in range(200)]
    settings = [{key: np.round(value, 3).tolist() for key, value in some.items()} for some in settings]
    shown = page.run(f"""return {json.dumps(settings)}.map(({{c, h, v}}) => {{
        [c, h, ...v.slice(1)].forEach((value, i) => {{
            sliders[i].input.value = value; sliders[i].input.oninput() }});
        return rows.map(row => speedup(row, settings)) }})""")
    python = [[speedup(row, **some) for row in found] for some in settings]
    assert np.array(shown) == pytest.approx(np.array(python), abs=1e-9)


@pytest.mark.browser
def test_in_a_browser_the_best_comes_first_and_none_is_none(page):
    def names():
        return page.texts("#bars .name")

    def choose(**values):
        for key, value in values.items():
            page.run(f"$('{key}').value = '{value}'; $('{key}').onchange()")

    choose(T=1)
    method, option = names()[0].split(" ", 1)
    assert page.texts("#verdict")[0].startswith(f"Best here: {method} ({option}), ")
    speeds = [float(text.rstrip("×")) for text in page.texts("#bars b")]
    assert speeds == sorted(speeds, reverse=True) and len(names()) == 5
    assert "lenient" not in " ".join(names())
    for slider in page.run("return sliders.length - 1"), 0:
        page.run(f"sliders[{slider}].input.value = 99; sliders[{slider}].input.oninput()")
    assert page.run("return [settings.c, settings.v.at(-1), $('preset').value]") == [1, 33, "own"]
    choose(preset="a GPU, 128 texts at once (assumed)")
    assert "Do not speculate" in page.texts("#verdict")[0]
    choose(preset="a GPU, one text (assumed)")
    assert "Best here" in page.texts("#verdict")[0]
