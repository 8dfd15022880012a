"""In pages a number is followed by a comment that names its quantity.

    3.12<!-- model token K=4 T=1: tokens -->                            a value of figures.py
    1.53 at K = 2<!-- eagle T=0 on a GPU, one text (assumed) -->        by cost_model.py

    python -m benchmarks speed      rewrites these numbers, and the pictures, in seconds

A number keeps as many decimals as it has in the page; "-" means not counted or not measured.
"""
import re
from functools import cache
from pathlib import Path

from benchmarks import cost_model
from benchmarks.figures import value
from loading.files import rewrite

ROOT = Path(__file__).resolve().parent.parent
PAGES = [path for places in ("*.md", "docs/*.md", "models/*/README.md", "benchmarks/results/*.md")
         for path in sorted(ROOT.glob(places))]
NUMBER = re.compile(r"(-|\d+\.?\d*(?: ± [\d.]+)?(?: \([\d.]+ to [\d.]+\)| at K = \d+)?)<!-- (.+?) -->")
NAMES = cost_model.KERNELS


@cache
def on_machines(T):
    """{machine: {method: (speed-up, K)}}, at the K that is best on this machine."""
    data, found = cost_model.data(), {}
    for row in data["rows"]:
        if row["T"] == T and row["K"] and row["lossless"]:
            for name, settings in data["presets"].items():
                here, gain = found.setdefault(name, {}), (cost_model.speedup(row, **settings), row["K"])
                here[row["method"]] = max(here.get(row["method"], gain), gain)
    return found


def quantity(what):
    """A number or words.  Raises KeyError if it was not counted or measured."""
    if " on " not in what:
        return value(what)
    method, name = what.split(" on ", 1)
    method, T = method.split(" T=")
    return "{:.2f} at K = {}".format(*on_machines(float(T))[name][method])


def filled(text):
    """
    >>> filled("9.99<!-- model token K=4 T=1: tokens --> and 9<!-- nothing K=4 T=1: tokens -->")
    '3.12<!-- model token K=4 T=1: tokens --> and -<!-- nothing K=4 T=1: tokens -->'
    """
    def written(match):
        digits = 2 if match[1] == "-" else len(match[1].partition(".")[2])
        try:
            found = quantity(match[2])
        except KeyError:
            found = None
        if not isinstance(found, str):
            found = "-" if found is None else f"{found:.{digits}f}"
        return f"{found}<!-- {match[2]} -->"
    return NUMBER.sub(written, text)


def write_numbers():
    """Rewrite the numbers in all pages."""
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        if filled(text) != text:
            rewrite(path, filled(text))
