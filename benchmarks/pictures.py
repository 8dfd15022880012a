"""Pictures of the costs, for `python -m benchmarks speed`: how long a pass takes, what each method gains.
(Those of the counts are in notebook 7.)"""
from functools import partial
from io import BytesIO

import numpy as np

from benchmarks.figures import costs, value
from benchmarks.tables import NAMES, methods
from loading.files import rewrite


def by_method(axes, T):
    """The speed-up of every method, with its error: at K = 4, or with the tree 3,2,1."""
    rows = methods((2, T, ""), (None, T, ""))           # with K = 4 there are options of these methods, too
    names = {label: f"{name} T={T}".replace("K=2", "K=4") for label, name in rows.items()}
    speed = {label: value(f"avx512 {name}: speedup") for label, name in names.items()
             if name in costs("avx512")["rounds"]}
    labels = sorted(speed, key=speed.get)
    for i, kernels in enumerate(NAMES):
        speeds, errors = ([value(f"{kernels} {names[label]}: {what}") for label in labels]
                          for what in ("speedup", "error"))
        axes.barh(np.arange(len(labels)) - .4 * i, speeds, .4, xerr=errors, label=NAMES[kernels])
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.set_axisbelow(True)
    axes.axvline(1, color="black", linewidth=.8)
    axes.set(xlabel="speed-up", title=f"temperature {T}")


def by_rows(axes):
    """v: the time of a pass over several rows, relative to one row, with the middle half of the times."""
    for kernels, style in zip(NAMES, ("-", "--")):
        for model, colour in zip(("demo-target", "124M", "355M"), ("#0072B2", "#E69F00", "#009E73")):
            rows = costs(kernels)["passes"][model]["rows"]
            low, middle, high = np.array([times[:3] for times in rows.values()]).T / rows["1"][1]
            axes.fill_between([int(n) for n in rows], low, high, color=colour, alpha=.2, linewidth=0)
            axes.plot([int(n) for n in rows], middle, style, color=colour, label=f"{model}, {NAMES[kernels]}")
    axes.set(xlabel="rows of a pass", ylabel="time over that of one row", xlim=(0, 34), ylim=(0, 6))


def save(path, *panels, height=3.6):
    """Write a picture of panels side by side.  A panel is a function that draws on axes."""
    from matplotlib.figure import Figure  # here: the doctests of a plain installation lack matplotlib
    figure = Figure(figsize=(5 * len(panels), height), layout="constrained")
    for axes, draw in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels):
        draw(axes)
        axes.grid(alpha=.3)
        axes.legend(fontsize=7)
    figure.savefig(picture := BytesIO(), dpi=100)
    rewrite(path, picture.getvalue())


def draw_all(out):
    save(out / "passes.png", by_rows)
    save(out / "speed.png", partial(by_method, T=0), partial(by_method, T=1), height=6)
