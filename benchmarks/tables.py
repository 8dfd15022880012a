"""The pages of results, made of counts.json and the costs: one for each question, both kernels side by side.

    python -m benchmarks speed      writes them, and the pictures; takes seconds, measures nothing

A template is Markdown.  {{a quantity}} is its value (figures.py), and a row of a table that holds one of
these words is there once for each:

    METHOD      a drafter and a verifier of the table: model token, lookup token, .., model block, ..
    RULE        a drafter and a verifier of trees
    MODEL       whose passes were timed
    MACHINE     of the cost model of pages/machine.py; [[model T=1]] is the method's speed-up there
    KERNELS     that were measured

Rows of nothing but dashes are left out.
"""
import re
from functools import cache
from pathlib import Path

from benchmarks.counts import FIXED, counted_as
from benchmarks.figures import checked, costs, filled
from console import rewrite
from methods import DRAFTERS, VERIFIERS
from pages import machine

TEMPLATES = Path(__file__).resolve().parent / "templates"
NAMES = machine.KERNELS


def known():
    """Kernels that were measured."""
    return [kernels for kernels in NAMES if costs(kernels)]


def methods_of(tree):
    """["eagle token", ..]: every drafter with `token`, or with a tree of its own, and every verifier."""
    found = [("model", name) for name, entry in VERIFIERS.items()
             if bool(entry.tree) == tree and name != "token"]
    if tree:
        found += [(name, "tree") for name, entry in DRAFTERS.items() if entry.grows == "own"]
        found += [("eagle", rule) for rule in ("tree", "traversal", "surest")]
        return [*map(" ".join, found)]
    return [*(f"{FIXED.get(name, name)} token" for name in DRAFTERS), *map(" ".join, found)]


def lossy(method):
    return method + " (lossy)" * (VERIFIERS[method.split()[1]].lossless is False)


@cache
def on_machines(T):
    """{machine: {method: (speed-up, K)}}, each at its best K there."""
    data, found = machine.data() or dict(rows=[], presets={}), {}
    for row in data["rows"]:
        if row["T"] == T and row["K"] and row["lossless"]:
            for name, settings in data["presets"].items():
                here, gain = found.setdefault(name, {}), (machine.speedup(row, **settings), row["K"])
                here[row["method"]] = max(here.get(row["method"], gain), gain)
    return found


def check(kernels):
    """How many whole runs are within 10 % of the quotient, and the others."""
    ratios = checked(kernels)
    off = [f"{name} {ratio:.2f}" for name, ratio in ratios.items() if abs(ratio - 1) > .1]
    return f"{len(ratios) - len(off)} of {len(ratios)} | {', '.join(off) or 'none'}"


def rows(line):
    """A line of a template -> the lines that it stands for."""
    for word, names in (("METHOD", methods_of(tree=False)), ("RULE", methods_of(tree=True)),
                        ("MODEL", costs(known()[0])["passes"] if known() else []), ("KERNELS", known()),
                        ("MACHINE", on_machines(1))):
        if line.startswith("|") and re.search(rf"\b{word}\b", line):
            T = re.search(r"T=([\d.]+)", line)
            for name in names:
                if word in ("METHOD", "RULE") and T and stands_for_another(name, float(T[1])):
                    continue
                row = re.sub(rf"\b{word}\b", name, line)
                row = re.sub(r"\[\[(.*?) T=(.*?)\]\]", lambda m: on_machine(name, m[1], float(m[2])), row)
                first, rest = filled(row)[2:].split(" | ", 1)
                first = lossy(first) if word == "METHOD" else NAMES.get(first, first)
                first = re.sub(r":a\S+", "", first)                # the sublayers to skip, FIXED: a long list
                if word == "KERNELS":
                    said = costs(name)["machine"]["caption"].replace("\n", " ")
                    rest = rest.replace("CHECK", check(name)).replace("CAPTION", said)
                if set(rest) - set("-| ()K="):
                    yield f"| {first} | {rest}"
            return
    yield filled(line)


def stands_for_another(name, T):
    """Is it counted as another method at this temperature?  Then it has no row of its own."""
    drafter, verifier = name.split()
    other = counted_as(drafter, verifier, None, T)
    return (drafter, verifier.split(":")[0]) != (other[0], other[1].split(":")[0])


def on_machine(name, method, T):
    gain, K = on_machines(T)[name].get(method, (0, 0))
    return f"{gain:.2f} at K = {K}" if gain else "-"


def page(template):
    return "\n".join(row for line in template.splitlines() for row in rows(line)) + "\n"


def write_all(out):
    """All pages and pictures."""
    from benchmarks.pictures import draw_all
    for template in sorted(TEMPLATES.glob("*.md")):
        rewrite(Path(out) / template.name, page(template.read_text(encoding="utf-8")))
    draw_all(Path(out))
