"""benchmarks/pictures.py: it draws the pictures that are shown, and the bars have the values of the files."""
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install -e '.[benchmark]'")
from matplotlib.figure import Figure

from benchmarks import pictures, tables
from benchmarks.__main__ import main
from benchmarks.figures import RESULTS, value


@pytest.mark.parametrize("T", [0, 1])
def test_bars_are_as_long_as_the_speed_ups(T):
    axes = Figure().subplots()
    pictures.by_method(axes, T)
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    lengths = [bar.get_width() for bar in axes.patches]
    for kernels, bars in ("avx512", lengths[:len(names)]), ("avx2", lengths[len(names):]):
        for name in "model", "lookup", "eagle":
            assert bars[names.index(f"{name} token")] == value(f"{kernels} {name} token K=4 T={T}: speedup")


def test_the_program_draws_the_pictures_that_are_shown(monkeypatch):
    drawn = {}
    monkeypatch.setattr(pictures, "rewrite", lambda path, picture: drawn.update({path.name: picture}))
    monkeypatch.setattr(tables, "PAGES", [])
    main("speed")
    assert drawn.keys() == {"passes.png", "speed.png"}
    for name, picture in drawn.items():
        assert picture[:24] == (RESULTS / name).read_bytes()[:24]       # the header: same format and size
