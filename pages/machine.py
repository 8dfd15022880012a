"""Which method on my machine?  Counts, which hold everywhere, over costs, which the reader sets.

    speedup(row, c, h, v)       of one row of the page: tokens a round over what the round costs
    rows(counts, costs)         benchmarks/results/counts.json and costs_*.json -> the rows of the page
    presets(costs)              what was measured, as settings of the page's sliders

All costs are in steps of the target alone.  A round of a method costs its drafting and a pass over as many
rows as it has drafts, and one more.  Drafting is measured beside that of the draft model: what takes twice
its time a draft counts as two of its steps; a head's time is counted in steps of the EAGLE head, and what
needs neither (copying, layers of the target) keeps its measured share of a target step.

But: the counts are those of the embedded pair and its heads; another pair accepts more or less.
"""
import json
from pathlib import Path

from methods import DRAFTERS, VERIFIERS
from samplers.tree import shape_of
from samplers.tree_model import depths

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results"
PLACES = 1, 2, 5, 9, 17, 33                                     # rows of a pass at which v can be set
UNITS = {"draft": "model token K=4 T=1", "head": "eagle token K=4 T=1"}         # what drafting is measured by
ASSUMED = {     # nobody measured these here: up to 128 rows cost what one does, and 512 twice as much
    "a GPU, one text (assumed)": dict(c=.12, h=.1, v=[1, 1, 1, 1, 1, 1]),
    "a GPU, sixteen texts at once (assumed)": dict(c=.12, h=.1, v=[1, 1, 1, 1.04, 1.38, 2.04]),
}


def speedup(row, c, h, v):
    """Tokens a round over its cost.

    row     dict(tokens, rows, steps: {"draft": .., "head": .., "own": ..})
    c, h    a step of the draft model, and of the head, in steps of the target
    v       of passes over PLACES rows; between two places evenly

    >>> row = dict(tokens=3, rows=5, steps={"draft": 4, "head": 0, "own": 0})
    >>> round(speedup(row, c=.1, h=0, v=[1, 1, 1.6, 2, 3, 5]), 9)
    1.5
    """
    steps = row["steps"]
    return row["tokens"] / (steps["draft"] * c + steps["head"] * h + steps["own"] + cost_of(row["rows"], v))


def cost_of(n_rows, v):
    """A pass over so many rows (a mean, hence not always whole)."""
    for i in range(1, len(PLACES)):
        if n_rows <= PLACES[i] or i == len(PLACES) - 1:
            left, right = PLACES[i - 1:i + 1]
            return v[i - 1] + (v[i] - v[i - 1]) * (n_rows - left) / (right - left)


# What was counted and measured ------------------------------------------------------------------------------

def rows(counts, costs):
    """Of every cell of the counts whose drafter was clocked."""
    found = []
    for name, cell in counts["cells"].items():
        drafter, verifier, *rest = name.split()
        if ":best" in verifier:                                 # of a tree that no option can write
            continue
        settings = dict(part.split("=") for part in rest)
        kind, _, option = verifier.partition(":")
        n_drafts = depth_of(option) if VERIFIERS[kind].tree else cell["drafts"]
        source, amount = drafting(name, drafter, n_drafts, costs)
        if amount is None:
            continue
        found.append(dict(
            method=drafter if verifier == "token" else f"{drafter}, {verifier}", T=float(settings["T"]),
            K=int(settings["K"]) if "K" in settings else None, tokens=cell["tokens"], error=cell["se"],
            rows=cell["drafts"] + 1, lossless=VERIFIERS[kind].lossless is not False, needs=needs(drafter),
            steps=dict(draft=0.0, head=0.0, own=0.0) | {source: amount}))
    return found


def needs(drafter):
    """What has to be trained for it: "draft", "head" or "own", nothing."""
    name, _, option = drafter.partition(":")
    return "own" if name == "early_exit" and option else DRAFTERS[name].trained or "own"


def depth_of(option):
    """The levels of a tree."""
    widths = [int(width) for width in option.split(",")]
    return max(depths(shape_of(widths)))


def drafting(name, drafter, n_drafts, costs):
    """(what a round's drafting is counted in, how much): as it was clocked in this cell, or else, for as many
    drafts, at K = 4."""
    source = "own" if drafter.startswith("early_exit") else needs(drafter)      # layers of the target itself
    unit = median(costs, "alone T=1", "pass") if source == "own" else \
        median(costs, UNITS[source], "drafting") / 4
    if name in costs["rounds"]:
        return source, median(costs, name, "drafting") / unit
    near = [cell for cell in costs["rounds"] if cell.split()[:3] == [drafter, "token", "K=4"]]
    return source, median(costs, near[0], "drafting") / 4 * n_drafts / unit if near else None


def median(costs, cell, part):
    return costs["rounds"][cell][part][1]


def presets(costs):
    """{name: the sliders}: c and h of the embedded pair, v of each model that was measured."""
    alone = median(costs, "alone T=1", "pass")
    c, h = (median(costs, cell, "drafting") / 4 / alone for cell in UNITS.values())
    found = {}
    for model, measured in costs["passes"].items():
        if model == "demo-draft":
            continue
        one = measured["rows"]["1"][1]
        v = [round(measured["rows"][str(n)][1] / one, 3) for n in PLACES]
        found[model] = dict(c=round(c, 3), h=round(h, 3), v=v)
    return found


def data():
    """What machine.html holds, or None before anything was counted and measured."""
    files = {path.stem.removeprefix("costs_"): path for path in sorted(RESULTS.glob("costs_*.json"))}
    if not files or not (RESULTS / "counts.json").exists():
        return None
    costs = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in files.items()}
    counts = json.loads((RESULTS / "counts.json").read_text(encoding="utf-8"))
    first = next(iter(costs.values()))
    known = {f"{model}, {name}": preset for name, some in costs.items()
             for model, preset in presets(some).items()}
    return dict(places=PLACES, rows=rows(counts, first), presets=known | ASSUMED)
