"""benchmarks/pictures.py: every point and bar is a value of the files, in its place, and can be seen."""
import itertools
import json
import math

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install -e '.[benchmark]'")
from matplotlib.figure import Figure

from benchmarks import pictures, tables
from benchmarks.__main__ import main
from benchmarks.figures import RESULTS, costs, value
from benchmarks.tables import NAMES, known
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


@pytest.mark.skipif(not known(), reason="nothing was measured: python -m benchmarks costs")
def test_passes_over_rows_with_the_middle_half():
    axes = drawn(pictures.by_rows)
    lines = {line.get_label(): dict(line.get_xydata()) for line in axes.lines}
    pairs = [(kernels, model) for kernels in known() for model in ("demo-target", "124M", "355M")]
    for (kernels, model), band in zip(pairs, axes.collections, strict=True):
        rows = costs(kernels)["passes"][model]["rows"]
        assert lines[f"{model}, {NAMES[kernels]}"] == pytest.approx(
            {int(n): value(f"{kernels} passes {model}: v {n}") for n in rows})
        edges = {tuple(edge) for path in band.get_paths() for edge in path.vertices.round(9)}
        one = rows["1"][1]
        assert edges == {(int(n), round(times[i] / one, 9)) for n, times in rows.items() for i in (0, 2)}


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


def bars_of(axes):
    return [(bar.get_y(), bar.get_y() + bar.get_height()) for bars in axes.containers
            for bar in getattr(bars, "patches", ())]


@pytest.mark.skipif(not known(), reason="nothing was measured: python -m benchmarks costs")
def test_the_pictures_are_of_the_committed_size(speed):
    titles = {name: [axes.get_title() for axes in figure.axes] for name, figure in speed.items()}
    cold, warm = "temperature 0", "temperature 1"
    assert titles == {"tokens.png": [cold, warm, warm, warm], "passes.png": [""], "speed.png": [cold, warm]}
    for name, figure in speed.items():
        size = int.from_bytes((RESULTS / name).read_bytes()[16:20], "big"), int.from_bytes(
            (RESULTS / name).read_bytes()[20:24], "big")        # of a PNG
        assert tuple(100 * figure.get_size_inches()) == size


@pytest.mark.skipif(not known(), reason="nothing was measured: python -m benchmarks costs")
def test_all_that_is_drawn_can_be_seen_and_read(speed):
    """Each axis has its name, numbers stand at their places, nothing is cut off or lies on something else."""
    panels = [axes for figure in speed.values() for axes in figure.axes]
    panels += [drawn(pictures.by_exit), drawn(pictures.by_K, 1, ("eagle token",), "rate")]
    for axes in panels:
        bars, what = bars_of(axes), (axes.get_xlabel(), axes.get_ylabel())
        assert what[0] and (what[1] or bars) and len(axes.get_legend_handles_labels()[0]) > 0
        ticks = [(place, text.get_text()) for place, text in zip(axes.get_xticks(), axes.get_xticklabels())]
        assert all(float(text) == pytest.approx(place) for place, text in ticks if text.isdigit()), what
        if what[1] == "accepted of tested":
            assert axes.get_ylim() == (0, 1)
        (left, right), (low, high) = axes.get_xlim(), sorted(axes.get_ylim())
        rows = what[0] == "rows of a pass"                      # there more rows were timed than are shown
        points = [(x, y) for line in axes.lines for x, y in line.get_xydata() if not np.isnan(y)]
        if not bars:
            shown = [left <= x <= right and low <= y <= high for x, y in points if not rows or x <= 33]
            assert all(shown), what
            continue
        assert [1, 1] in [[*line.get_xdata()] for line in axes.lines], "where nothing is gained"
        assert all(low <= begin < end <= high for begin, end in bars)
        assert all(end <= begin + 1e-9 for (_, end), (begin, _) in itertools.pairwise(sorted(bars)))
        names = [text.get_text() for text in axes.get_yticklabels()]
        assert [*axes.get_yticks()] == [*range(len(names))] and len({*names}) == len(names)


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
