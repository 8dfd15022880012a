"""What speculation gains, and why: counts, which hold on every machine, and costs, which hold on one."""
import sys

from benchmarks import costs, counts, tables
from benchmarks.figures import RESULTS
from loading import command_line
from methods.table import DRAFTERS, VERIFIERS


def main(what, name=""):
    """Count tokens, measure costs, and put both into tables and pictures.

    counts takes hours and measures no time.  After a stop, it goes on from there.  costs takes eight minutes,
    on a machine that has nothing else to do.  speed makes the tables in the pages, and the pictures, in
    seconds.

    Args:
        what: counts, costs or speed
        name: with counts, a method in docs/methods.md: only it is counted, in minutes
    """
    if what not in ("counts", "costs", "speed"):
        raise ValueError(f"there is no {what!r}: use counts, costs or speed")
    if name and (what != "counts" or name not in DRAFTERS | VERIFIERS):
        raise ValueError(f"{what} {name}: a name goes with counts, and is one of "
                         f"{', '.join(DRAFTERS | VERIFIERS)}")
    if what == "counts":
        cells = counts.count(name)
        for cell, found in cells.items() if name else ():
            print(f"{cell:40} {found['tokens']:.2f} ± {found['se']:.2f} tokens per pass")
    elif what == "costs":
        return costs.costs(RESULTS)
    tables.write_pages()
    if what == "speed":
        from benchmarks.pictures import draw_all
        draw_all(RESULTS)


if __name__ == "__main__":
    sys.exit(command_line.run(main))
