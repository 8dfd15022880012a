"""benchmarks/pictures.py: every point and bar is a value of the files, in its place, and can be seen."""
import json

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install -e '.[benchmark]'")
from matplotlib.figure import Figure

from benchmarks import pictures, tables
from benchmarks.__main__ import main
from benchmarks.figures import RESULTS, value
from benchmarks.tables import known
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


@pytest.fixture(scope="module")
def speed():
    """{name: figure} of python -m benchmarks speed, the pictures and pages not saved."""
    drawn, figures = [], {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda figure, file, **_: drawn.append(figure))
        patch.setattr(pictures, "rewrite", lambda path, _: figures.update({path.name: drawn[-1]}))
        patch.setattr(tables, "PAGES", [])
        main("speed")
    for figure in figures.values():
        figure.draw_without_rendering()
    return figures


@pytest.mark.skipif(not known(), reason="nothing was measured: python -m benchmarks costs")
def test_the_pictures_are_of_the_committed_size(speed):
    titles = {name: [axes.get_title() for axes in figure.axes] for name, figure in speed.items()}
    cold, warm = "temperature 0", "temperature 1"
    assert titles == {"tokens.png": [cold, warm, warm, warm], "passes.png": [""], "speed.png": [cold, warm]}
    for name, figure in speed.items():
        size = int.from_bytes((RESULTS / name).read_bytes()[16:20], "big"), int.from_bytes(
            (RESULTS / name).read_bytes()[20:24], "big")        # of a PNG
        assert tuple(100 * figure.get_size_inches()) == size
