"""Tables and pictures, made of counts.json and the costs: one page for each question, both kernels side by side.

    python -m benchmarks speed      writes them to benchmarks/results; takes seconds, measures nothing
"""
import json
from pathlib import Path

from benchmarks.figures import best, costs, counts, filled, of_counts, of_passes, of_rounds
from benchmarks.machines import MACHINES, C, speedup
from methods import choose

KERNELS = {"avx512": "AVX-512", "avx2": "AVX2"}
KS, ALL_KS = (2, 4, 8), (1, 2, 3, 4, 6, 8)
TEMPLATES = Path(__file__).resolve().parent / "templates"
AT = {0: "Temperature 0", 1: "Temperature 1", 0.5: "Temperature 0.5"}


def markdown(rows):
    """Rows, each {column: text} -> a table."""
    if not rows:
        return "(nothing was counted or measured yet)\n"
    cells = [list(rows[0]), ["---"] * len(rows[0]), *(map(str, row.values()) for row in rows)]
    return "\n".join("| " + " | ".join(row) + " |" for row in cells) + "\n"


def known():
    """Kernels that were measured."""
    return [kernels for kernels in KERNELS if costs(kernels)]


def pairs_of(names):
    """{(drafter, verifier): None} of cells, a tree's verifier with its shape."""
    return list(dict.fromkeys(tuple(name.split()[:2]) for name in names))


def label(drafter, verifier):
    return {"token": drafter}.get(verifier, verifier if drafter == "model" else f"{drafter}, {verifier}")


def title(drafter, verifier):
    lossy = "" if choose(drafter, verifier.split(":best")[0]).lossless else " (lossy)"
    return label(drafter.split(":a")[0], verifier) + lossy


# Counts -----------------------------------------------------------------------------------------------------

def with_error(name):
    cell = counts().get(name)
    return f"{cell['tokens']:.2f} ± {cell['se']:.2f}" if cell else "-"


def lines_of(T):
    """Tokens a pass at K = 2, 4 and 8 of every line of drafts."""
    rows = []
    for drafter, verifier in pairs_of(name for name in counts() if "K=" in name and name.endswith(f" T={T:g}")):
        names = {K: f"{drafter} {verifier} K={K} T={T:g}" for K in KS}
        if any(name in counts() for name in names.values()) and not drafter.startswith("early_exit:"):
            four = counts().get(names[4])
            rate = f"{of_counts(names[4], 'rate'):.2f}" if four and sum(four["tested"]) else "-"
            rows.append({"method": title(drafter, verifier), **{f"K = {K}": with_error(names[K]) for K in KS},
                         "accepted of tested": rate, "rows, K = 4": f"{four['drafts'] + 1:.1f}" if four else "-"})
    return sorted(rows, key=lambda row: row["K = 4"], reverse=True)


def trees_of(T, shapes=("1,1,1", "3,2,1", "2,2,2", "4,1,1,1", "8,1,1,1")):
    """Tokens a pass of every rule, for the same trees."""
    rules = dict.fromkeys((name.split()[0], name.split()[1].split(":")[0]) for name in counts()
                          if ":3,2,1 " in name and name.endswith(f" T={T:g}"))
    return [{"rule": label(*rule), **{shape: with_error(f"{rule[0]} {rule[1]}:{shape} T={T:g}") for shape in shapes}}
            for rule in rules]


# Speed ------------------------------------------------------------------------------------------------------

def speed_of(T):
    """The speed-up at K = 4 and at the best K or tree that was measured."""
    rows = []
    names = [name for kernels in known() for name in costs(kernels)["rounds"]
             if name in counts() and name.endswith(f" T={T:g}")]
    for drafter, verifier in dict.fromkeys((name.split()[0], name.split()[1].split(":")[0]) for name in names):
        row = {"method": title(drafter, verifier if "K=" in str(names) else verifier)}
        for kernels in known():
            four, fastest = f"{drafter} {verifier} K=4 T={T:g}", best(drafter, verifier, f"{T:g}", kernels)
            row[f"{KERNELS[kernels]}, K = 4"] = speed_text(kernels, four)
            row["best"] = speed_text(kernels, fastest) + f" ({fastest.split()[-2].split(':')[-1]})"
            row[f"{KERNELS[kernels]}, best"] = row.pop("best")
        rows.append(row)
    return sorted(rows, key=lambda row: list(row.values())[2], reverse=True)


def speed_text(kernels, name):
    if name not in costs(kernels)["rounds"] or name not in counts():
        return "-"
    return f"{of_rounds(kernels, name, 'speedup'):.2f} ± {of_rounds(kernels, name, 'error'):.2f}"


def checks(kernels):
    """[(name, measured over quotient)]: whole runs, and the same with the medians of their parts."""
    names = [name for name in costs(kernels)["rounds"] if name in counts()]
    return [(name, of_rounds(kernels, name, "measured") / of_rounds(kernels, name, "quotient")) for name in names]


def check_table():
    rows = []
    for kernels in known():
        found = checks(kernels)
        off = [(name, ratio) for name, ratio in found if abs(ratio - 1) > .1]
        rows.append({"kernels": KERNELS[kernels], "rows measured": len(found),
                     "within 10 %": len(found) - len(off), "the others": ", ".join(f"{n} {r:.2f}" for n, r in off)})
    return rows


def pass_table():
    rows = []
    for model in costs(known()[0])["passes"] if known() else []:
        for kernels in known():
            found = costs(kernels)["passes"][model]["rows"]
            low, ms, high, _ = found["1"]
            rows.append({"model": model, "kernels": KERNELS[kernels], "1 row, ms": f"{ms:.2f} ({low:.2f} to {high:.2f})",
                         "share of the bandwidth": f"{of_passes(kernels, model, 'mbu'):.2f}",
                         **{f"v of {n}": f"{of_passes(kernels, model, f'v {n}'):.2f}" for n in (5, 9)}})
    return rows


# Other machines ---------------------------------------------------------------------------------------------

def machines():
    """{name: {"v": .., "batch": .., "assumed": ..}}: those that are assumed, and this one."""
    measured = {}
    for kernels in known():
        for model, what in (("demo-target", "in the cache"), ("355M", "355M")):
            rows = costs(kernels)["passes"][model]["rows"]
            v = [[int(n), round(times[1] / rows["1"][1], 3)] for n, times in rows.items()]
            measured[f"here, {KERNELS[kernels]}, {what}"] = dict(assumed=False, batch=1, v=v)
    return MACHINES | measured


def on_machines(T):
    """[{"method", "tokens", "rows", "steps", "c", "speedup": {machine: ..}}], each method at its best K there."""
    rows = []
    for drafter, c in C.items():
        found = {}
        for K in ALL_KS:
            cell = counts().get(f"{drafter} token K={K} T={T:g}")
            for name, machine in machines().items() if cell else []:
                steps = 1 if drafter == "medusa" else cell["drafts"]
                gain = speedup(cell["tokens"], steps, cell["drafts"] + 1, c, machine["v"], machine["batch"])
                found[name] = max(found.get(name, (0, 0)), (round(gain, 3), K))
        rows += [{"method": drafter, "c": c, "speedup": found}] if found else []
    return rows


def machine_table(T):
    return [{"machine": name + (" (assumed)" if machine["assumed"] else ""),
             **{row["method"]: "{:.2f} at {}".format(*row["speedup"][name]) for row in on_machines(T)
                if row["method"] in ("model", "eagle", "lookup", "early_exit", "medusa")}}
            for name, machine in machines().items()]


# Pages ------------------------------------------------------------------------------------------------------

TABLES = {"lines": lines_of, "trees": trees_of, "speed": speed_of, "check": check_table, "passes": pass_table,
          "machines": machine_table}


def page(template):
    """A page of Markdown: {{a quantity}} is its value, and [[lines 0]] a table."""
    lines = []
    for line in filled(template).splitlines():
        if line.startswith("[[") and line.endswith("]]"):
            name, *arguments = line.strip("[]").split()
            line = markdown(TABLES[name](*map(float, arguments))).rstrip()
        lines.append(line)
    return "\n".join(lines) + "\n"


def write_all(out):
    """All pages and pictures, and machines.json."""
    out = Path(out)
    for template in sorted(TEMPLATES.glob("*.md")):
        (out / template.name).write_text(page(template.read_text(encoding="utf-8")), encoding="utf-8")
    about = dict(machines=machines(), c=C, temperatures={f"{T:g}": on_machines(T) for T in (0, 1)})
    (out / "machines.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    try:
        from benchmarks.pictures import draw_all
    except ImportError:
        return
    draw_all(out)
