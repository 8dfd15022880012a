"""What this gains, and why: counts, which hold for every machine, apart from costs, which are of one."""
import sys

import console
from benchmarks import costs, counts, tables


def main(what, quick=False):
    """Counts, costs, and the tables that are made of them.

    WHAT is counts (no clock; hours, but it goes on where it stopped), costs (nothing but a clock; eight
    minutes, on a machine that has nothing else to do), speed (pages and pictures of the two, seconds) or film
    (the moving picture of README, drawn from a recorded run).

    Args:
        what: counts, costs, speed or film
        quick: a few cells in seconds, to see that it works; they are written nowhere
    """
    if what not in ("counts", "costs", "speed", "film"):
        raise ValueError(f"there is no {what!r}: use counts, costs, speed or film")
    if quick and what in ("speed", "film"):
        raise ValueError(f"--quick is for counts and costs: {what} takes seconds anyway, and writes files")
    if what == "counts":
        cells = counts.count(None if quick else counts.FILE, quick)
        for name, cell in cells.items() if quick else ():
            print(f"{name:30} {cell['tokens']:.2f} ± {cell['se']:.2f} tokens a pass")
    elif what == "costs":
        costs.costs("" if quick else counts.FILE.parent, quick)
    elif what == "film":
        from benchmarks import film  # here: counts and costs can do without matplotlib

        film.write_film()
    else:
        tables.write_all(counts.FILE.parent)


if __name__ == "__main__":
    sys.exit(console.run(main))
