"""benchmarks/pictures.py: what is drawn is what the files say, and the pictures are those that are shown."""
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install -e '.[benchmark]'")
from matplotlib.figure import Figure

from benchmarks import pictures, tables
from benchmarks.__main__ import main
from benchmarks.figures import RESULTS, counts, value
from benchmarks.tables import known


@pytest.mark.parametrize("T", [0, 1])
def test_curves_go_through_what_was_counted(T):
    by_K, by_nodes = Figure().subplots(1, 2)
    pictures.by_K(by_K, T)
    pictures.by_nodes(by_nodes, T)
    drawn = {tuple(point) for axes in (by_K, by_nodes) for line in axes.lines for point in line.get_xydata()}
    places = [(K, f"{name} token K={K} T={T}") for name in ("model", "eagle") for K in (1, 2, 3, 4, 6, 8)]
    places += [(2 ** i, f"model tree:best{2 ** i} T={T}") for i in range(2, 10)]
    assert drawn >= {(x, value(f"{name}: tokens")) for x, name in places if name in counts()} != set()


@pytest.mark.skipif(not known(), reason="nothing was measured: python -m benchmarks costs")
def test_the_program_draws_the_pictures_that_are_shown(monkeypatch):
    drawn = {}
    monkeypatch.setattr(pictures, "rewrite", lambda path, picture: drawn.update({path.name: picture}))
    monkeypatch.setattr(tables, "PAGES", [])
    main("speed")
    assert drawn.keys() == {"tokens.png", "passes.png", "speed.png"}
    for name, picture in drawn.items():
        assert picture[:24] == (RESULTS / name).read_bytes()[:24]       # with the size
