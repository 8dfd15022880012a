"""Find the bug:   python -m exercises --bug 7

bugs.txt has Algorithm 2 as one flat loop, and after it, under the names of rules in
lossless/verdicts/museum.py, lines of it (above --) and what to write instead (below).  The name stays hidden
until the judge finds the file lossless.
"""
import hashlib
import inspect
from pathlib import Path

from engine.loading.files import rewrite
from lossless.__main__ import main as judge
from lossless.verdicts import CASES
from lossless.verdicts.museum import RULES

RIGHT, *PARTS = Path(__file__).with_name("bugs.txt").read_text(encoding="utf-8").split("\n== ")
BUGS = {name: lines.strip("\n").split("\n--\n") for name, lines in (part.split("\n", 1) for part in PARTS)}
# Numbers are dealt by chance, but are always the same.
NAMES = dict(enumerate(sorted(BUGS, key=lambda name: hashlib.sha256(name.encode()).digest()), 1))


def source(name):
    """The loop with this bug in it."""
    return RIGHT.replace(*BUGS[name], 1)


def find_bug(n, path):
    """Writes bug n to this file; if the file exists, judges it, and says what the bug was if it is mended.
    Returns the exit status."""
    if n not in NAMES:
        raise ValueError(f"there is no bug {n}: give a number from 1 to {len(NAMES)}, as in --bug 1")
    name, again = NAMES[n], f"python -m exercises --bug {n}" + f" {path}" * (path.name != f"bug_{n}.py")
    if not path.exists():
        rewrite(path, source(name))
        print(f"{path} has a mistake.  Find it, mend it, and ask the judge: {again}\n"
              f"(python -m lossless {path} --explain shows how a wrong text comes about.)")
        return 0
    if status := judge(str(path)):
        return status
    threads = [f"{case.link} ({case.date}, {case.status})" for case in CASES if case.rule == name]
    old, new = BUGS[name]
    print(f"\nMended.  The mistake is known as {name}.  {inspect.getdoc(RULES[name])}",
          *(f"It happened here: {thread}" for thread in threads[:3]),
          f"It said\n{new}\ninstead of\n{old}", sep="\n")
    return 0
