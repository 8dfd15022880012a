"""Compare a drafter of your own with `model`.

    python -m benchmarks mine my_drafter.py [--K 4]     a minute or two of processor time, on an idle machine

Both draft K tokens per round, verified by Algorithm 2.  Tokens and costs are measured separately, as in
counts.py and costs.py but on fewer texts, so the numbers are near those of docs/methods.md, with larger
errors.

Limitations: the bundled pair, and openings of children's stories.  Whether the drafter is lossless is not
checked here, but by python -m lossless my_drafter.py; one that is not may only seem to gain.
"""
from pathlib import Path

from tqdm import tqdm

from benchmarks.costs import measure_rounds
from benchmarks.counts import N_TOKENS, count_texts, figures, load_choice, name_of
from benchmarks.figures import speed
from benchmarks.measure import caption
from engine.reporting.stats import ratio

N_TEXTS, N_TIMED = 30, 6                                        # N_TEXTS are counted, N_TIMED timed
HEAD = f"{'':24}  tokens per pass  acceptance     c     v     speed-up"


def measure_drafter(drafter, K=4):
    """Yields the machine, then the lines of a table and a sentence for each temperature.

    drafter     a file that defines propose, or a drafter of methods/table.py
    Raises ValueError if there is no such file or drafter.
    """
    load_choice(drafter, "token", 1)
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
    if drafter.endswith(".py"):
        yield f"\nNot checked: is it lossless? If not, no gain counts: python -m lossless {drafter}"


def conclude(name, mine, model, my_speed, its_speed):
    """Compares it with `model`, in tokens and in speed, each with its standard error and a verdict."""
    tokens, error = mine["tokens"] - model["tokens"], (mine["se"]**2 + model["se"]**2) ** .5
    quotient = my_speed["speedup"] / its_speed["speedup"]
    of_quotient = quotient * sum((one["error"] / one["speedup"])**2 for one in (my_speed, its_speed)) ** .5
    return (f"{name}, compared with model: {tokens:+.2f} ± {error:.2f} tokens per pass "
            f"({verdict(tokens, error, 'more', 'fewer')}); {quotient - 1:+.0%} ± {of_quotient:.0%} speed "
            f"({verdict(quotient - 1, of_quotient, 'faster', 'slower')}).")


def verdict(difference, error, more, less):
    return "no clear difference" if abs(difference) <= 2 * error else more if difference > 0 else less
