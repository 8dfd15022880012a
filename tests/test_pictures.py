"""benchmarks/pictures.py: every point and bar is a value of the files, in its place."""
import json
import math

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install -e '.[benchmark]'")
from matplotlib.figure import Figure

from benchmarks import pictures
from benchmarks.figures import RESULTS, value
from benchmarks.tables import NAMES, known, on_machines
from samplers.tree import shape_of

COUNTS = json.loads((RESULTS / "counts.json").read_text(encoding="utf-8"))["cells"]


def drawn(function, *arguments):
    axes = Figure().subplots()
    function(axes, *arguments)
    return axes


def curves(axes):
    """{label: {x: (y, half of its error bar)}}"""
    found = {}
    for container in axes.containers:
        line, _, bars = container.lines
        halves = [(high - low) / 2 for (_, low), (_, high) in bars[0].get_segments()] if bars else None
        found[container.get_label()] = {x: (y, halves and pytest.approx(halves[i], abs=1e-9))
                                        for i, (x, y) in enumerate(line.get_xydata())}
    return found


def points(places, field="tokens"):
    """{place: the counts of this name}, those that are there."""
    return {x: (value(f"{name}: {field}"), COUNTS[name]["se"] if field == "tokens" else None)
            for x, name in places.items() if name in COUNTS}


@pytest.mark.parametrize("T", [0, 1])
def test_curves_over_the_drafts_and_over_the_nodes_of_trees(T):
    over_K = curves(drawn(pictures.by_K, T))
    for mine, method in [("model", "model token"), ("block", "model block"), ("eagle", "eagle token"),
                         ("lookup", "lookup token"), ("medusa", "medusa token")]:
        wanted = points({K: f"{method} K={K} T={T}" for K in (1, 2, 3, 4, 6, 8)})
        assert over_K.get(mine, {}) == wanted and (wanted or method == "model block")
    rates = curves(drawn(pictures.by_K, T, ("eagle token",), "rate"))
    assert [*rates.values()] == [points({K: f"eagle token K={K} T={T}" for K in (1, 2, 3, 4, 6, 8)}, "rate")]
    by_nodes = curves(drawn(pictures.by_nodes, T))
    assert by_nodes["one line"] == over_K["model"]
    best = {2 ** i: f"model tree:best{2 ** i} T={T}" for i in range(2, 10)}
    assert by_nodes.get("best tree", {}) == points(best)
    for rule in "k_seq", "specinfer", "tree":
        wide = {len(shape_of((k, 1, 1, 1))): f"model {rule}:{k},1,1,1 T={T}" for k in (2, 4, 8, 16, 32)}
        assert by_nodes.get(f"lines of four, {rule}", {}) == points(wide)


def test_curves_over_exits_and_positions():
    by_exit = curves(drawn(pictures.by_exit))
    for T in 0, 1:
        wanted = points({n: f"early_exit:{n} token K=4 T={T}" for n in range(17)}, "rate")
        assert by_exit.get(f"T = {T}", {}) == wanted
    lines = {line.get_label(): line.get_xydata() for line in drawn(pictures.by_position, 1).lines}
    assert len(lines) == 4
    cell = COUNTS["medusa token K=8 T=1"]
    for place, (x, y) in enumerate(lines["medusa"]):
        kept, tested = cell["kept"][place], cell["tested"][place]
        assert x == place + 1 and (y == kept / tested if tested > .005 else math.isnan(y))


@pytest.mark.skipif(not known(), reason="nothing was measured: python -m benchmarks costs")
@pytest.mark.parametrize("T", [0, 1])
def test_bars_of_methods_and_machines(T):
    axes = drawn(pictures.by_method, T)
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert {"model", "tree", "lookup"} <= {*labels} and ("typical (lossy)" in labels) == (T == 1)
    assert pictures.label("medusa", "tree") == "medusa, tree"
    for kernels, bars in zip(known(), axes.containers[1::2]):
        for one, drafter, verifier in [("eagle", "eagle", "token K=4"), ("tree", "model", "tree:3,2,1"),
                                       ("model", "model", "token K=4")]:
            bar = bars[labels.index(one)]
            assert bar.get_width() == value(f"{kernels} {drafter} {verifier} T={T}: speedup")
            assert abs(bar.get_y() + bar.get_height() / 2 - labels.index(one)) < .41
        if kernels == known()[0]:
            assert [bar.get_width() for bar in bars] == sorted(bar.get_width() for bar in bars)
    found, axes = on_machines(T), drawn(pictures.by_machine, T)
    for bars in axes.containers:
        widths = [here.get(bars.get_label(), (0, 0))[0] for here in found.values()]
        assert [bar.get_width() for bar in bars] == widths
        assert [round(bar.get_y() + bar.get_height() / 2) for bar in bars] == [*range(len(found))]


@pytest.mark.skipif(not known(), reason="nothing was measured: python -m benchmarks costs")
def test_passes_over_rows():
    lines = {line.get_label(): dict(line.get_xydata()) for line in drawn(pictures.by_rows).lines}
    for kernels in known():
        mine = lines[f"demo-target, {NAMES[kernels]}"]
        assert mine[1] == 1 and mine[5] == pytest.approx(value(f"{kernels} passes demo-target: v 5"))


def test_a_picture_has_a_panel_for_each_and_a_legend_if_there_is_something_to_name(tmp_path):
    panels = []

    def draw(axes, *names):
        panels.append(axes)
        for i, name in enumerate(names):
            axes.plot([0, 1], [i, i], label=name)
    pictures.save(tmp_path / "a.png", [(draw, "one", "two"), (draw,), (draw, "three")], (2, 2))
    assert (tmp_path / "a.png").stat().st_size > 5000
    assert [axes.get_legend() is not None for axes in panels] == [True, False, True]
    assert np.allclose(panels[0].figure.get_size_inches(), [10, 7.2])
