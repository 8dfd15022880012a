"""Which method on my machine?  Tokens per round, counted once, divided by costs, which the reader sets.

    speedup(row, c, h, v)       of one bar of the page: tokens per round over what the round costs
    rows(counts, costs)         benchmarks/results/counts.json and one costs_*.json -> the bars of the page
    presets(costs, kernels)     what was measured, as settings of the page's sliders

A step of a model is a pass over one row (a token).  All costs are in steps of the target.  A round costs its
drafting and a target pass over one row more than it has drafts.  Drafting with the draft model is counted in
steps of that model: drafting that takes twice as long as a step counts as two.  Drafting with a head is
counted in steps of the EAGLE head.  All other drafting (copying, layers of the target) keeps its measured
time, in target steps.

Limitations: the counts are those of the embedded pair and its heads; another pair accepts more or less.  The
settings marked "assumed" were not measured.
"""
import json
import re
from pathlib import Path

from methods import DRAFTERS, VERIFIERS

TITLE = "Which method on my machine?"
RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results"
PLACES = 1, 2, 5, 9, 17, 33                                     # rows of a pass; in between, v is linear
UNITS = {"draft": "model token K=4 T=1", "head": "eagle token K=4 T=1"}         # rounds of four such steps
KERNELS = {"avx512": "AVX-512", "avx2": "AVX2"}                 # in file names: in words
ASSUMED = {     # (texts at once, how many rows, of all texts together, cost as much as one row)
    "a laptop, one text (assumed)": (1, 5),
    "a GPU, one text (assumed)": (1, 128),
    "a GPU, 16 texts at once (assumed)": (16, 128),
    "a GPU, 128 texts at once (assumed)": (128, 128),
}


def speedup(row, c, h, v):
    """Tokens per round over the cost of a round.

    row     a bar: dict(tokens, rows (of its pass), steps: {"draft": .., "head": .., "own": ..})
    c, h    the cost of a step of the draft model, and of the head, in steps of the target
    v       the costs of passes over PLACES rows; linear between two places

    >>> row = dict(tokens=3, rows=5, steps={"draft": 4, "head": 0, "own": 0})
    >>> round(speedup(row, c=.1, h=0, v=[1, 1, 1.6, 2, 3, 5]), 9)
    1.5
    """
    steps = row["steps"]
    return row["tokens"] / (steps["draft"] * c + steps["head"] * h + steps["own"] + cost_of(row["rows"], v))


def cost_of(n_rows, v):
    """The cost of a pass over so many rows (a mean, so not always a whole number)."""
    for i in range(1, len(PLACES)):
        if n_rows <= PLACES[i] or i == len(PLACES) - 1:
            left, right = PLACES[i - 1:i + 1]
            return v[i - 1] + (v[i] - v[i - 1]) * (n_rows - left) / (right - left)


# What was counted and measured ------------------------------------------------------------------------------

def rows(counts, costs):
    """A bar of the page for each cell of the counts whose drafter was timed."""
    found = []
    for name, cell in counts["cells"].items():
        drafter, verifier, *rest = name.split()
        if ":best" in verifier or re.search(" (places|prompts):", name):   # made for counting alone
            continue
        settings = dict(part.split("=") for part in rest)
        kind, _, option = verifier.partition(":")
        n_drafts = len(option.split(",")) if VERIFIERS[kind].tree else cell["drafts"]      # a tree: levels
        source, amount = drafting(name, drafter, n_drafts, costs)
        if amount is None:
            continue
        plain, _, own = drafter.partition(":")
        found.append(dict(
            method=plain if kind == "token" else f"{plain}, {kind}", option=own or option,
            T=float(settings["T"]),
            K=int(settings["K"]) if "K" in settings else None, tokens=cell["tokens"], error=cell["se"],
            rows=cell["drafts"] + 1, lossless=VERIFIERS[kind].lossless is not False, needs=needs(drafter),
            steps=dict(draft=0.0, head=0.0, own=0.0) | {source: amount}))
    return found


def needs(drafter):
    """What has to be trained for this drafter: "draft" (a model), "head", or "own" (nothing)."""
    name, _, option = drafter.partition(":")
    return "own" if name == "early_exit" and option else DRAFTERS[name].trained or "own"


def drafting(name, drafter, n_drafts, costs):
    """(the unit, how many units a round's drafting takes).  If this cell was not timed, the time per
    level of the tree 3,2,1 is taken, or the time per draft at K = 4."""
    source = "own" if drafter.startswith("early_exit") else needs(drafter)      # layers of the target itself
    unit = median(costs, "alone T=1", "pass") if source == "own" else \
        median(costs, UNITS[source], "drafting") / 4
    near = [(name, n_drafts), (re.sub(r" (\w+):\S+", r" \1:3,2,1", name), 3)]
    near += [(cell, 4) for cell in costs["rounds"] if cell.startswith(f"{drafter} token K=4 ")]
    amounts = [median(costs, cell, "drafting") / unit * (n_drafts / n) for cell, n in near
               if cell in costs["rounds"]]
    return source, amounts[0] if amounts else None


def median(costs, cell, part):
    return costs["rounds"][cell][part][1]


def presets(costs, kernels):
    """{name: the sliders}: c and h of the embedded pair, v of each measured model."""
    alone = median(costs, "alone T=1", "pass")
    c, h = (round(median(costs, cell, "drafting") / 4 / alone, 3) for cell in UNITS.values())
    found = {}
    for model, measured in costs["passes"].items():
        times = [measured["rows"][str(n)][1] for n in PLACES]
        name = "the embedded pair" if model == "demo-target" else f"GPT-2 {model}"
        if model != "demo-draft":
            found[f"{name}, {kernels}"] = dict(c=c, h=h, v=[round(time / times[0], 3) for time in times])
    return found


def assumed():
    return {name: dict(c=.12, h=.1, v=[max(1, n * texts / free) for n in PLACES])
            for name, (texts, free) in ASSUMED.items()}


def data():
    """The data in machine.html."""
    def read(name):
        return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    counts, costs = read("counts"), {words: read(f"costs_{name}") for name, words in KERNELS.items()}
    first = next(iter(costs.values()))
    known = {name: preset for words, some in costs.items() for name, preset in presets(some, words).items()}
    return dict(places=PLACES, rows=rows(counts, first), presets=known | assumed(),
                measured="{CPU}, {cores} cores".format(**first["machine"]))
