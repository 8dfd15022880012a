"""Pictures of the counts and costs: functions that draw on axes, used by `python -m benchmarks speed` and by
notebook 7.  What was not counted or measured is left out, not drawn as 0."""
from io import BytesIO

import numpy as np
from matplotlib.figure import Figure

from benchmarks.figures import costs, counts, of_counts, of_rounds
from benchmarks.tables import NAMES, known
from console import rewrite
from methods import VERIFIERS

KS = 1, 2, 3, 4, 6, 8

COLOURS = {"model": "#0072B2", "block": "#D55E00", "eagle": "#E69F00", "lookup": "#009E73",
           "ngram": "#56B4E9", "medusa": "#CC79A7", "early_exit": "#999999", "suffix": "#5D8A00"}


def label(drafter, verifier="token"):
    return {"token": drafter}.get(verifier, verifier if drafter == "model" else f"{drafter}, {verifier}")


def curve(axes, places, names, field="tokens", **style):
    """A field of the counts over places, with its standard error if it is that of the tokens."""
    there = [(place, name) for place, name in zip(places, names) if name in counts()]
    if there:
        errors = [counts()[name]["se"] for _, name in there] if field == "tokens" else None
        axes.errorbar([place for place, _ in there], [of_counts(name, field) for _, name in there], errors,
                      marker="o", markersize=4, capsize=2, **style)


def by_K(axes, T, methods=("model token", "model block", "eagle token", "lookup token", "medusa token"),
         field="tokens"):
    """Chen et al.'s figure 1, Leviathan et al.'s figure 2: over the number of drafts."""
    for method in methods:
        names, mine = [f"{method} K={K} T={T:g}" for K in KS], label(*method.split())
        curve(axes, KS, names, field, label=mine, color=COLOURS.get(mine))
    what = {"tokens": "tokens per pass"}.get(field, field)
    axes.set(xlabel="K, drafts per round", ylabel=what, title=f"temperature {T:g}")


def by_position(axes, T, K=8, methods=("model token", "eagle token", "early_exit token", "medusa token")):
    """EAGLE's and Medusa's: how often a round's first draft is accepted, the second, .., of those tested."""
    for method in methods:
        cell = counts().get(f"{method} K={K} T={T:g}")
        if cell:
            tested = np.array(cell["tested"])
            rates = np.where(tested > .005, np.array(cell["kept"]) / np.maximum(tested, 1e-9), np.nan)
            mine = label(*method.split())
            axes.plot(range(1, K + 1), rates, "o-", markersize=4, label=mine, color=COLOURS.get(mine))
    axes.set(xlabel="draft of a round", ylabel="accepted of tested", ylim=(0, 1), title=f"temperature {T:g}")


def by_nodes(axes, T):
    """Sequoia's: over the size of the tree; one line, several lines of four, the best tree."""
    sizes = [4, 8, 16, 32, 64, 128, 256, 512]
    lines = [f"model token K={K} T={T:g}" for K in KS]
    curve(axes, KS, lines, label="one line", color="#0072B2")
    for rule, colour in (("k_seq", "#56B4E9"), ("specinfer", "#CC79A7"), ("tree", "#999999")):
        names = [f"model {rule}:{k},1,1,1 T={T:g}" for k in (2, 4, 8, 16, 32)]
        curve(axes, [4 * k for k in (2, 4, 8, 16, 32)], names, label=f"lines of four, {rule}", color=colour)
    curve(axes, sizes, [f"model tree:best{n} T={T:g}" for n in sizes], label="best tree", color="#D55E00")
    axes.set(xscale="log", xlabel="drafts per round", ylabel="tokens per pass",
             title=f"temperature {T:g}")
    axes.set_xticks([1, 4, 16, 64, 256], [1, 4, 16, 64, 256])


def by_exit(axes):
    """LayerSkip's: over the layer of the exit."""
    for T in (0, 1):
        names = [f"early_exit:{n} token K=4 T={T}" for n in range(1, 17)]
        curve(axes, range(1, 17), names, "rate", label=f"T = {T}")
    axes.set(xlabel="layers of the draft, of 16", ylabel="accepted of tested", ylim=(0, 1))


def by_method(axes, T):
    """The speed-up of every method, with its error: K = 4, trees of 3,2,1."""
    names = [name for name in costs(known()[0])["rounds"] if name in counts()
             and name.endswith((f"K=4 T={T:g}", f":3,2,1 T={T:g}"))]
    names.sort(key=lambda name: of_rounds(known()[0], name, "speedup"))
    for i, kernels in enumerate(known()):
        speeds, errors = ([of_rounds(kernels, name, what) for name in names] for what in ("speedup", "error"))
        axes.barh(np.arange(len(names)) - .4 * i, speeds, .4, xerr=errors, label=NAMES[kernels])
    words = [[word.split(":")[0] for word in name.split()[:2]] for name in names]
    lossy = [" (lossy)" * (VERIFIERS[verifier].lossless is False) for _, verifier in words]
    axes.set_yticks(range(len(names)), [label(*both) + note for both, note in zip(words, lossy)], fontsize=8)
    axes.set_axisbelow(True)
    axes.axvline(1, color="black", linewidth=.8)
    axes.set(xlabel="speed-up", title=f"temperature {T:g}")


def by_rows(axes):
    """v: a pass over several rows over a pass over one, with the middle half."""
    for kernels, style in zip(known(), ("-", "--")):
        for model, colour in zip(("demo-target", "124M", "355M"), ("#0072B2", "#E69F00", "#009E73")):
            rows = costs(kernels)["passes"][model]["rows"]
            low, middle, high = np.array([times[:3] for times in rows.values()]).T / rows["1"][1]
            axes.fill_between([int(n) for n in rows], low, high, color=colour, alpha=.2, linewidth=0)
            axes.plot([int(n) for n in rows], middle, style, color=colour, label=f"{model}, {NAMES[kernels]}")
    axes.set(xlabel="rows of a pass", ylabel="time over that of one row", xlim=(0, 34), ylim=(0, 10))


def save(path, draw, shape, height=3.6):
    """A picture of panels: draw [(function, *arguments)]."""
    figure = Figure(figsize=(5 * shape[1], height * shape[0]), layout="constrained")
    panels = figure.subplots(*shape, squeeze=False).flat
    for axes, (function, *arguments) in zip(panels, draw):
        function(axes, *arguments)
        axes.grid(alpha=.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7)
    figure.savefig(picture := BytesIO(), dpi=100)
    rewrite(path, picture.getvalue())


def draw_all(out):
    save(out / "tokens.png", [(by_K, 0), (by_K, 1), (by_position, 1), (by_nodes, 1)], (2, 2))
    if known():
        save(out / "passes.png", [(by_rows,)], (1, 1))
        save(out / "speed.png", [(by_method, 0), (by_method, 1)], (1, 2), height=6)
