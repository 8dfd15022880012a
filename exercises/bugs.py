"""Mistakes as edits, and one of them to find:   python -m exercises --bug 7

bugs.txt has Algorithm 2 as a plain program, then edits of it: a name, lines of the program, and after -- what
stands there instead.  Most have the names of rules in lossless/verdicts/museum.py.  The name of a bug to find
is shown when the judge calls the mended file lossless.
"""
import hashlib
from pathlib import Path

import numpy as np

from engine.loading.files import rewrite
from lossless.toys import memoryless
from lossless.verdicts import CASES
from lossless.verdicts.museum import RULES

RIGHT, *PARTS = Path(__file__).with_name("bugs.txt").read_text(encoding="utf-8").split("\n== ")
EDITS = {head: lines.strip("\n").split("\n--\n") for head, lines in (part.split("\n", 1) for part in PARTS)}
# To be found are those of the museum.  Their numbers are dealt by chance, once and for all.
NAMES = sorted(EDITS.keys() & RULES.keys(), key=lambda name: hashlib.sha256(name.encode()).digest())


def source(name):
    """The program with this mistake."""
    return RIGHT.replace(*EDITS[name], 1)


def load(program):
    """The function speculative_sampling of the program, which has its verify as an attribute."""
    exec(program, names := {})
    names["speculative_sampling"].verify = names["verify"]
    return names["speculative_sampling"]


def find_bug(n, path):
    """Writes bug n to this file; if the file exists, judges it, and says what the bug was if it is mended.
    Returns the exit status."""
    from lossless.__main__ import main as judge
    from lossless.__main__ import own_functions
    if not 1 <= n <= len(NAMES):
        raise ValueError(f"there is no bug {n}: give a number from 1 to {len(NAMES)}, as in --bug 1")
    name = NAMES[n - 1]
    if not path.exists():
        rewrite(path, source(name))
        return print(f"{path} has a mistake: mend it, then give this command again. The judge decides.")
    if status := judge(str(path)):
        print(f"python -m lossless {path} --explain shows how the text comes about.")
        return status
    model, rng = memoryless([.4, .3, .2, .1]), np.random.default_rng(0)
    if len(next(own_functions(path)["speculative_sampling"](model, model, [0], 5, 4, rng)).tokens) < 5:
        print("But a perfect draft is not accepted whole: mend the mistake instead of going round it.")
        return 1
    threads = [f"Seen in {case.link} ({case.date}, {case.status})" for case in CASES if case.rule == name]
    print(f"\nMended.  It was {name}.  {' '.join(RULES[name].__doc__.split())}", *threads[:3],
          "These lines", EDITS[name][1], "stood in place of", EDITS[name][0], sep="\n")
