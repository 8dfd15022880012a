"""What speculation gains, and why: counts, which hold on every machine, and costs, which hold on one."""
import sys
from importlib.util import find_spec

from benchmarks import costs, counts, mine, tables
from benchmarks.figures import RESULTS
from engine.loading import command_line
from methods.table import DRAFTERS, VERIFIERS

# These programs, in this order, rerun every measurement of the repository.  {command: the time it takes}
STEPS = {
    "-m benchmarks counts": "hours; can be stopped and resumed",
    "-m benchmarks costs": "eight minutes, on an otherwise idle machine",
    "-m benchmarks speed": "seconds: the numbers in the pages",
    "notebooks/run.py": "minutes, on an otherwise idle machine",
    "tests/tools/take_pictures.py": "a minute: the README's picture; needs Chromium",
}


def main(what, name="", *, K=4, yes=False):
    """Count tokens, measure costs, and put both into tables.

    counts takes hours, measures no time, and can be stopped and resumed.  costs takes eight minutes, on an
    otherwise idle machine.  speed writes the numbers in the pages, in seconds.  all reruns these, the
    notebooks and the README's picture.  peers measures transformers, too, in four minutes.  mine compares
    your own drafter with the draft model, in a minute or two of processor time.

    Args:
        what: mine, counts, costs, peers, speed or all
        name: with mine, your file; with counts, a method in docs/methods.md, to count only that, in minutes
        K: with mine, the most drafts in a round
        yes: with all, that its hours are meant
    """
    if what not in ("mine", "counts", "costs", "peers", "speed", "all"):
        raise ValueError(f"there is no {what!r}: use mine, counts, costs, peers, speed or all")
    if what == "peers" and not (find_spec("torch") and find_spec("transformers")):
        raise ValueError('peers needs torch and transformers: pip install -e ".[outside]"')
    if what == "mine":
        if not name:
            raise ValueError("mine needs your file: python -m benchmarks mine my_drafter.py")
        for line in mine.measure_drafter(name, K):
            print(line, flush=True)
        return
    if name and (what != "counts" or name not in DRAFTERS | VERIFIERS):
        raise ValueError(f"{what} {name}: a name goes with counts, and is one of "
                         f"{', '.join(DRAFTERS | VERIFIERS)}")
    if what == "all":
        if not yes:
            raise ValueError("all takes hours and replaces every number here: python -m benchmarks all --yes")
        return make_all()
    if what == "counts":
        cells = counts.count(name)
        for cell, found in cells.items() if name else ():
            print(f"{cell:40} {found['tokens']:.2f} ± {found['se']:.2f} tokens per pass")
    elif what in ("costs", "peers"):
        costs.write_costs(RESULTS, what)
    tables.write_pages()


def make_all():
    """Run the programs of STEPS.  Raises ValueError if one fails."""
    for words, takes in STEPS.items():
        print(f"python {words}    # {takes}", flush=True)
        costs.run_python(*words.split())


if __name__ == "__main__":
    sys.exit(command_line.run(main))
