"""What this gains, and why: counts, which hold for every machine, apart from costs, which are this machine's."""
import sys

import console
from benchmarks import costs, counts
from benchmarks.counts import HERE


def main(what, quick=False, out="", backend="numpy"):
    """Counts, costs, and the tables that are made of them.

    WHAT is counts (no clock, hours, goes on where it stopped), costs (nothing but a clock, eight minutes on a
    quiet machine), or speed (tables and pictures from the files of the two, seconds).

    Args:
        what: counts, costs or speed
        quick: a few cells in seconds, to see that it works
        out: the folder of the files; of the committed ones by default
        backend: numpy, or cupy for a GPU; of costs
    """
    out = out or str(HERE / "results")
    if what == "costs":
        costs.costs(out, quick, backend)
    else:
        counts.count()


if __name__ == "__main__":
    sys.exit(console.run(main))
