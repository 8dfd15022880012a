"""Rows -> Markdown and pictures.

    as_markdown(title, about, rows)     a heading, what the figures depend on, and the rows {column: value}
    plot(table, rows, folder)           the pictures of a table, where matplotlib is installed
"""
from collections import Counter
from pathlib import Path

LABELS = {"K": "K, drafts a round", "measured": "measured speed-up", "predicted": "predicted speed-up",
          "acceptance": "acceptance rate", "rows": "rows of a pass", "share": "share of the time of a pass",
          "over one row": "time over that of one row", "batch": "sequences at once",
          "over one alone": "tokens a second, over one sequence alone",
          "tokens per pass": "tokens a target pass",
          "distance": "distance of a token from the target's distribution",
          "cost": "cost of a round, in steps of the target alone"}
KINDS = {"a draft model": "tab:blue", "a trained head": "tab:orange", "nothing but the target": "tab:green",
         "not lossless": "tab:red"}
HEADS = "drafters/eagle.py", "drafters/medusa.py", "drafters/early_exit.py"
# At temperature 0 a draw knows one token only: there they are "tree of the likeliest", and Algorithm 2.
SAME_AT_0 = "tree, SpecInfer", "tree, Sequoia", "tree, K-SEQ", "lenience 0.3", "typical acceptance"
CURVES = {  # table: (x, y, what makes a curve)
    "pairs": [("K", "measured", ("pair", "T")), ("predicted", "measured", ("pair", "T"))],
    "synthetic": [("acceptance", "measured", ("K", "N")), ("predicted", "measured", ("K", "N"))],
    "forward": [("rows", "over one row", ("model",))],
    "batch": [("batch", "over one alone", ("pair", "K"))],
}


def shown(value):
    """
    >>> [shown(value) for value in (0.123456, 1234.5, 60, None, [0.5, None], "tiny", True, 4e-16)]
    ['0.123', '1234', '60', '-', '0.50 -', 'tiny', 'yes', '4e-16']
    """
    if isinstance(value, list):
        return " ".join("-" if v is None else f"{v:.2f}" for v in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if 0 < abs(value) < 0.0005:
            return f"{value:.0e}"
        return f"{value:.3f}" if abs(value) < 100 else f"{value:.0f}"
    return "-" if value is None else str(value)


def visible(rows):
    """Without a column that is too long for a table; the JSON file has it."""
    return [{key: value for key, value in row.items() if key != "kept"} for row in rows]


def as_markdown(title, about, rows):
    rows = visible(rows)
    cells = [list(rows[0]), *([shown(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    depends_on = "; ".join(f"{key} {value}" for key, value in about.items())
    return "\n".join([f"## {title}", "", depends_on, "", *lines, ""])


def plot(table, rows, folder):
    try:
        import matplotlib.figure
    except ImportError:
        return
    for x, y, by in CURVES.get(table, []):
        figure = matplotlib.figure.Figure(figsize=(7, 4), layout="constrained")
        draw_curves(figure.subplots(), rows, x, y, by)
        figure.legend(loc="outside lower center", ncols=2 if table == "batch" else 3, fontsize="small")
        figure.savefig(Path(folder) / f"{table}_{x}.png", dpi=100)
    pictures = {"parts": (7, stack_parts), "methods": (14, draw_methods), "heads": (9, draw_positions),
                "trees": (14, draw_trees), "lossy": (7, draw_lossy)}
    if table in pictures:
        width, draw = pictures[table]
        figure = matplotlib.figure.Figure(figsize=(width, 4.5 if width < 14 else 6.5), layout="constrained")
        draw(figure, rows)
        figure.savefig(Path(folder) / f"{table}.png", dpi=100)


def draw_curves(axes, rows, x, y, by):
    """A curve of y over x for each combination of what stands in the columns `by`."""
    for group in dict.fromkeys(tuple(row[key] for key in by) for row in rows):
        points = sorted((row[x], row[y]) for row in rows
                        if row[x] is not None and tuple(row[key] for key in by) == group)
        axes.plot(*zip(*points), "o" if x == "predicted" else "o-",
                  label=", ".join(f"{key} {value}" for key, value in zip(by, group)))
    # no gain; or just as predicted
    axes.axline((1, 1), slope=x == "predicted", color="grey", linewidth=0.5)
    axes.set(xlabel=LABELS[x], ylabel=LABELS[y], ylim=(0, None))
    if x == "predicted":
        axes.set(xlim=(0, None), aspect="equal")


def stack_parts(figure, rows):
    """A bar for each model and number of rows, its parts as shares."""
    axes = figure.subplots()
    totals = Counter()
    for row in rows:
        totals[row["model"], row["rows"]] += row["ms"]
    bars = list(totals)
    left = dict.fromkeys(bars, 0.0)
    for part in dict.fromkeys(row["part"] for row in rows):
        shares = dict.fromkeys(bars, 0.0)
        for row in rows:
            bar = row["model"], row["rows"]
            shares[bar] += row["ms"] / totals[bar] if row["part"] == part else 0.0
        names = [f"{model}\n{n} {'row' if n == 1 else 'rows'}" for model, n in bars]
        axes.barh(names, shares.values(), left=left.values(), label=part)
        left = {bar: left[bar] + shares[bar] for bar in bars}
    axes.set(xlabel=LABELS["share"])
    figure.legend(loc="outside lower center", ncols=3, fontsize="small")


def draw_methods(figure, rows):
    """Tokens a target pass over the cost of a round: on a line through the origin speed-ups are the same."""
    temperatures = list(dict.fromkeys(row["T"] for row in rows))
    for axes, temperature in zip(figure.subplots(1, len(temperatures), squeeze=False)[0], temperatures):
        here = [row for row in rows if row["T"] == temperature and row["cost"]
                and not (temperature == 0 and row["method"] in SAME_AT_0)]
        right, top = (1.1 * max(row[key] for row in here) for key in ("cost", "tokens per pass"))
        for speed_up in (0.5, 1, 1.5, 2, 3, 4):
            x = min(right, top / speed_up)
            axes.plot([0, x], [0, speed_up * x], color="lightgrey", linewidth=2 if speed_up == 1 else 0.7,
                      zorder=0)
            axes.annotate(f"{speed_up:g}x", (x, speed_up * x), color="grey", ha="right", va="top",
                          fontsize="small")
        here.sort(key=lambda row: row["tokens per pass"])
        places = spread([row["tokens per pass"] for row in here], top / 25, 0.97 * top)
        for row, place in zip(here, places):
            colour = KINDS[kind_of(row)]
            axes.plot(row["cost"], row["tokens per pass"], "o", color=colour)
            axes.annotate(f"{row['method']}  {row['measured']:.2f}x", (row["cost"], row["tokens per pass"]),
                          xytext=(1.03, place), textcoords=("axes fraction", "data"), va="center",
                          color=colour, fontsize="small",
                          arrowprops=dict(arrowstyle="-", color="lightgrey", linewidth=0.6, relpos=(0, 0.5)))
        axes.set(xlabel=LABELS["cost"], ylabel=LABELS["tokens per pass"], xlim=(0, right), ylim=(0, top),
                 title=f"temperature {temperature:g}, with measured speed-ups")
    kinds = [kind for kind in KINDS if kind in map(kind_of, rows)]
    if len(kinds) == 1:
        return
    for kind in kinds:
        axes.plot([], [], "o", color=KINDS[kind], label=kind)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize="small")


def kind_of(row):
    """What a method of the table needs, in words of KINDS."""
    if not row["lossless"]:
        return "not lossless"
    if not row["trained"]:
        return "nothing but the target"
    return "a trained head" if row.get("file") in HEADS else "a draft model"


def spread(places, gap, top):
    """Sorted numbers up to `top`, moved until neighbours are at least `gap` apart.

    >>> spread([2, 2, 5], 1.5, 5)
    [1.5, 3.0, 4.5]
    """
    moved = []
    for place in places:
        moved.append(max(place, moved[-1] + gap) if moved else place)
    down = min(sum(moved) - sum(places), len(places) * moved[0]) / len(places)      # as many go up as down
    for i in reversed(range(len(moved))):
        moved[i] = min(moved[i] - down, top - gap * (len(moved) - 1 - i))
    return moved


def draw_trees(figure, rows):
    """As draw_methods; all are lossless and drafted by a model, and their shapes are named."""
    names = [row["method"].removeprefix("tree, ").replace("best for this machine", "best here")
             for row in rows]
    draw_methods(figure, [row | {"method": f"{name} {row['shape']}", "lossless": True, "trained": True}
                          for name, row in zip(names, rows)])


def draw_lossy(figure, rows):
    """Tokens a target pass over the distance: what is given for what is gained."""
    axes = figure.subplots()
    for row in rows:
        axes.plot(row["distance"], row["tokens per pass"], "o",
                  color="tab:red" if row["distance"] else "tab:blue")
        axes.annotate(row["rule"], (row["distance"], row["tokens per pass"]), textcoords="offset points",
                      xytext=(5, 4), fontsize="small")
    axes.set(xlabel=LABELS["distance"], ylabel=LABELS["tokens per pass"],
             xlim=(-0.01, 1.25 * max(row["distance"] for row in rows) + 0.01))


def draw_positions(figure, rows):
    """The acceptance of a round's first draft, its second, .."""
    temperatures = list(dict.fromkeys(row["T"] for row in rows))
    panels = figure.subplots(1, len(temperatures), squeeze=False, sharey=True)[0]
    for axes, temperature in zip(panels, temperatures):
        for row in rows:
            if row["T"] == temperature and row["acceptance, by position"]:
                shares = row["acceptance, by position"]
                axes.plot(range(1, len(shares) + 1), shares, "o-", label=row["method"])
        axes.set(xlabel="draft of a round", xticks=range(1, 6), ylim=(0, 1),
                 title=f"temperature {temperature:g}")
    panels[0].set_ylabel(LABELS["acceptance"])
    curves = panels[0].get_legend_handles_labels()
    figure.legend(*curves, loc="outside lower center", ncols=5, fontsize="small")
