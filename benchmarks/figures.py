"""One value for each quantity, read from the two kinds of files; README, notebooks and tables take it from here.

    value("model token K=4 T=1: tokens")            a pass of the target; also se, rows, rate, kept 1, ..
    value("avx2 model token K=4 T=1: speedup")      counts over costs; also error, measured, c, v, round
    value("avx512 passes 124M: v 5")                a pass over 5 rows, in passes over one; also ms 5, mbu 5
    value("avx2 best model token T=1: K")           of the K or trees that were measured the fastest
    value("A over B")                               of two of these
    filled("at {{model token K=4 T=1: tokens}} tokens a pass")      a text with values, three digits each

The speed-up is what a round makes over what it takes:

    tokens a pass / ((drafting + the target's pass + settling) / (a round of the target alone))

each of the three at the median of the rounds with as many drafts.  Its error is that of the tokens and of the
medians together.
"""
import json
import re
from functools import cache
from pathlib import Path

from reporting.stats import expected_tokens, ratio

RESULTS = Path(__file__).resolve().parent / "results"


@cache
def counts(folder=RESULTS):
    return json.loads((folder / "counts.json").read_text(encoding="utf-8"))["cells"]


@cache
def costs(kernels, folder=RESULTS):
    """What was measured with these kernels ("avx512", "avx2"), or None."""
    path = folder / f"costs_{kernels}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def of_counts(name, field):
    cell = counts()[name]
    field, _, number = field.partition(" ")
    if field == "rows":
        return cell["drafts"] + 1
    if field == "rate":                                         # accepted over tested
        return ratio(sum(cell["kept"]), sum(cell["tested"]))
    if field == "filled":                                       # Chen et al.'s figure 1: of the K + 1 places
        return cell["tokens"] / (len(cell["kept"]) + 1)
    if field == "predicted":                                    # Leviathan et al., equation 1
        return expected_tokens(of_counts(name, "rate"), len(cell["kept"]))
    if field == "position":                                     # of the draft of this number, among those tested
        return ratio(cell["kept"][int(number) - 1], cell["tested"][int(number) - 1])
    return cell[field][int(number) - 1] if number else cell[field]


def baseline(name):
    return f"alone T={name.split('T=')[-1]}"


def of_rounds(kernels, name, field):
    rounds = costs(kernels)["rounds"]
    mine, alone = rounds[name], rounds[baseline(name)]
    step = alone["typical"]
    if field == "speedup":
        return of_counts(name, "tokens") * step / mine["typical"]
    if field == "error":
        parts = [of_counts(name, "se") / of_counts(name, "tokens"), spread(mine["pass"]), spread(alone["pass"])]
        return of_rounds(kernels, name, "speedup") * sum(part**2 for part in parts) ** .5
    if field == "quotient":                                     # with the tokens of the very runs that were clocked
        return mine["tokens"] * step / mine["typical"]
    if field == "measured":
        return mine["speedup"]
    if field == "round":                                        # in steps of the target alone
        return mine["typical"] / step
    if field == "c":                                            # drafting, a draft, in passes over one row
        return ratio(mine["drafting"][1] / alone["pass"][1], of_counts(name, "drafts"))
    if field == "v":
        return mine["pass"][1] / alone["pass"][1]
    return mine[field]


def spread(quartiles):
    """The relative standard error of a median, from the quartiles and the number of calls (of a normal one)."""
    low, median, high, n = quartiles
    return 1.2533 * (high - low) / 1.349 / median / n ** .5


def of_passes(kernels, model, field):
    found = costs(kernels)["passes"][model]
    field, _, rows = field.partition(" ")
    ms = found["rows"][rows or "1"][1]
    if field == "v":
        return ms / found["rows"]["1"][1]
    if field == "mbu":                                          # bytes of weights / time, as a share of the bandwidth
        return found["bytes"] / ms / 1e6 / costs(kernels)["bandwidth"][model][1]
    return ms


def value(what):
    """A number from the files: see above.  Raises KeyError if it was not counted or measured."""
    if " over " in what:
        return ratio(*map(value, what.split(" over ")))
    name, field = what.rsplit(": ", 1)
    kernels, _, rest = name.partition(" ")
    if not costs(kernels):
        return of_counts(name, field)
    if rest.startswith("best "):
        _, drafter, verifier, T = rest.split()
        rest = best(drafter, verifier, T.removeprefix("T="), kernels)
        if field == "K":
            return int(rest.split("K=")[1].split()[0])
    if rest.startswith("passes "):
        return of_passes(kernels, rest.removeprefix("passes "), field)
    return of_rounds(kernels, rest, field)


def filled(text):
    """A text in which each {{quantity}} is its value; "-" if it was not counted or measured."""
    def written(match):
        try:
            return f"{value(match[1]):.3g}"
        except (KeyError, IndexError, TypeError, ValueError):
            return "-"
    return re.sub(r"\{\{(.*?)\}\}", written, text)


def best(drafter, verifier, T, kernels):
    """The name of the cell that is fastest, of the K or the tree that were measured."""
    names = [name for name in costs(kernels)["rounds"] if name in counts() and name.endswith(f" T={T}")
             and name.split()[0] == drafter and name.split()[1].split(":")[0] == verifier]
    return max(names, key=lambda name: of_rounds(kernels, name, "speedup"))
