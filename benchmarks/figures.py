"""The value of every quantity in the README, notebooks and pages, from counts and costs.

    value("model token K=4 T=1: tokens")            per target pass; other fields: of_counts
    value("avx2 model token K=4 T=1: speedup")      counts over costs; other fields: of_rounds
    value("avx512 passes 124M: v 5")                the time of a pass over 5 rows, in passes over one row;
                                                    other fields: of_passes
    value("avx2 peers here K=4 T=1: speedup")       beside transformers; other fields: peers.py
    value("model token K=4 places:0-20 T=0: tokens")        of rounds that begin there (counts.py)
    value("A over B")                               the quotient of two of these

The speed-up is the tokens of a round divided by its cost:

    tokens per pass / ((drafting + the target's pass + settling) / (a round of the target alone))

Settling is the time from the target's logits to the new tokens.

The times come from medians of timed rounds (costs.py), adjusted to the mean number of drafts in the counts.
The error combines the errors of the tokens, of the method's median pass, and of that of the target alone.
"""
import json
import re
from functools import cache
from pathlib import Path

from benchmarks.counts import counted_as
from engine.reporting.stats import expected_tokens, ratio

RESULTS = Path(__file__).resolve().parent / "results"


@cache
def counts():
    return json.loads((RESULTS / "counts.json").read_text(encoding="utf-8"))["cells"]


@cache
def costs(kernels, program="costs"):
    """What this program measured with these kernels: "avx512" or "avx2"."""
    return json.loads((RESULTS / f"{program}_{kernels}.json").read_text(encoding="utf-8"))


def of_counts(name, field):
    """A field of the cell `name` of the counts, as in the examples above."""
    drafter, verifier, *rest = name.split()
    name = " ".join([*counted_as(drafter, verifier, None, float(rest[-1][2:]))[:2], *rest])
    cell, (field, _, number) = counts()[name], field.partition(" ")
    K, rate = len(cell["accepted"]), ratio(sum(cell["accepted"]), sum(cell["tested"]))
    found = (cell | {
        "rows": cell["drafts"] + 1, "rate": rate, "text": f"{cell['tokens']:.2f} ± {cell['se']:.2f}",
        "position": [*map(ratio, cell["accepted"], cell["tested"])],            # the rate of each draft
        "filled": cell["tokens"] / (K + 1),                                     # Chen et al., figure 1
        "predicted": expected_tokens(rate or 0, K)})[field]                     # Leviathan et al. (1)
    return found[int(number) - 1] if number else found


def of_rounds(kernels, name, field):
    """A field of the cell's speed-up: its counts over the costs of its rounds."""
    counted = {key: of_counts(name, key) for key in ("tokens", "se", "drafts")}
    rounds = costs(kernels)["rounds"]
    mine, alone = rounds[re.sub(r" places:\S+", "", name)], rounds[f"alone T={name.split('T=')[-1]}"]
    return speed(counted, mine, alone)[field]


def speed(counted, mine, alone):
    """{field: value} of a cell of the counts, from the costs of its rounds and the target's alone."""
    tokens, more = counted["tokens"], counted["drafts"] - mine["drafts"]    # drafts, beyond those timed
    cost = (mine["typical"] + mine["slope"] * more) / alone["typical"]      # in rounds of the target alone
    parts = counted["se"] / tokens, spread(mine["pass"]), spread(alone["pass"])
    speedup, error = tokens / cost, tokens / cost * sum(part**2 for part in parts) ** .5
    return {"speedup": speedup, "error": error, "text": f"{speedup:.2f} ± {error:.2f}",
            "measured": mine["speedup"],
            "quotient": mine["tokens"] / mine["typical"] * alone["typical"],   # with the timed runs' tokens
            "c": ratio(mine["drafting"][1] / alone["pass"][1], counted["drafts"]),
            "v": mine["pass"][1] / alone["pass"][1]}


def spread(quartiles):
    """The relative standard error of a median, from the quartiles and the number of calls, assuming a normal
    distribution."""
    low, median, high, n = quartiles
    return 1.2533 * (high - low) / 1.349 / median / n ** .5


def of_passes(kernels, model, field):
    """A field of the times of a model's passes."""
    found, (field, _, rows) = costs(kernels)["passes"][model], field.partition(" ")
    one, (low, ms, high, _) = found["rows"]["1"][1], found["rows"][rows or "1"]
    return {"ms": ms, "v": ms / one, "text": f"{ms:.2f} ({low:.2f} to {high:.2f})",
            # bytes of the weights over the time, as a share of the bandwidth
            "mbu": found["bytes"] / ms / 1e6 / costs(kernels)["machine"]["GB/s"]}[field]


def value(what):
    """The value of a quantity (see above).  Raises KeyError if it was not counted or measured."""
    if " over " in what:
        return ratio(*map(value, what.split(" over ")))
    name, field = what.rsplit(": ", 1)
    kernels, _, rest = name.partition(" ")
    if kernels not in ("avx512", "avx2"):
        return of_counts(name, field)
    if rest.startswith("peers "):
        field, _, text = field.partition(" ")
        low, middle, high = costs(kernels, "peers")["peers"][rest.removeprefix("peers ")][field]
        return f"{middle:.3g} ({low:.3g} to {high:.3g})" if text else middle
    if rest.startswith("passes "):
        return of_passes(kernels, rest.removeprefix("passes "), field)
    return of_rounds(kernels, rest, field)
