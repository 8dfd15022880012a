"""Compare a drafter of your own with `model`.

    python -m benchmarks mine my_drafter.py         half a minute, on an otherwise idle machine

Both draft K tokens per round, verified by Algorithm 2.  Tokens and costs are measured separately, as in
counts.py and costs.py but on fewer texts, so the numbers are near those of docs/methods.md, with larger
errors.

Limitations: the bundled pair, and openings of children's stories.  Whether the drafter is lossless is not
checked here, but by python -m lossless my_drafter.py.
"""
from pathlib import Path

from tqdm import tqdm

from benchmarks.costs import measure_rounds
from benchmarks.counts import N_TOKENS, count_texts, figures, name_of
from benchmarks.figures import speed
from benchmarks.measure import caption
from engine.reporting.stats import ratio

K, N_TEXTS, N_TIMED = 4, 30, 6                                  # N_TEXTS are counted, N_TIMED timed
HEAD = f"{'':24}  tokens per pass  acceptance     c     v     speed-up"


def measure_drafter(drafter):
    """Yields the machine, then the lines of a table and a sentence for each temperature.

    drafter     a file that defines propose, or a drafter of methods/table.py
    """
    yield caption()
    for T, where in (1, ""), (0, "places:0-20"):                # as in docs/methods.md
        yield f"\nT = {T}, K = {K}, {N_TEXTS} texts{where and ', their first 20 tokens'}\n{HEAD}"
        cells = [(name, "token", K, T) for name in (drafter, "model")]
        counted = [figures(sum(count_texts((*cell, where), n, 1) for n in tqdm(
            range(N_TEXTS), unit=" texts", leave=False, disable=None))) for cell in cells]
        timed = measure_rounds(cells, float("inf"), N_TIMED, N_TOKENS)
        speeds = [speed(found, timed[name_of(*cell)], timed[f"alone T={T}"])
                  for cell, found in zip(cells, counted)]
        for (name, *_), found, cost in zip(cells, counted, speeds):
            rate, c = (f"{number:.2f}" if number is not None else "-" for number in
                       (ratio(sum(found["accepted"]), sum(found["tested"])), cost["c"]))
            yield (f"{Path(name).name:24}  {found['tokens']:8.2f} ± {found['se']:.2f}  {rate:>10}  {c:>4}  "
                   f"{cost['v']:.2f}  {cost['text']}")
        yield conclude(Path(drafter).name, *counted, *speeds)


def conclude(name, mine, model, my_speed, its_speed):
    """Says whether it is better or worse than `model`, and by how much, with standard errors."""
    tokens, error = mine["tokens"] - model["tokens"], (mine["se"]**2 + model["se"]**2) ** .5
    faster = my_speed["speedup"] - its_speed["speedup"]
    sure = abs(faster) > 2 * (my_speed["error"]**2 + its_speed["error"]**2) ** .5
    word = ("better" if faster > 0 else "worse") if sure else "neither better nor worse (within two errors)"
    return (f"{name} is {word}: {tokens:+.2f} ± {error:.2f} tokens per pass, and "
            f"{my_speed['speedup'] / its_speed['speedup'] - 1:+.0%} speed, compared with model.")
