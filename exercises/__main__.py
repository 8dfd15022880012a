"""Checks your own speculative sampling, step by step:   python -m exercises [my_speculative.py]

README.md in this folder describes the steps; steps.py checks them.  Your file runs in a process of its own
(child.py), which is killed if it does not answer in time.  Afterwards: --bug 1 (bugs.py).
"""
import re
import subprocess
import sys
from glob import glob
from json import dumps, loads
from pathlib import Path

from engine.loading import command_line
from engine.loading.files import read_text, rewrite
from engine.reporting.terminal import escape_controls
from exercises.bugs import find_bug
from exercises.steps import STEPS

SECONDS = 60            # allowed for a step; the slowest takes a few
STEPS_IN_WORDS = Path(__file__).with_name("README.md").read_text(encoding="utf-8")


def main(*paths, json=False, start=False, hint=False, bug=0):
    """Check your own speculative sampling against the steps of exercises/README.md.

    Args:
        paths: your file, or several; my_speculative.py if none is named
        json: print one line of JSON for each file: how many steps are right, and the mistakes in the next
        start: create the file instead, with the signature of every function
        hint: show the next hint for the step that is not right yet; the last says where the solution is
        bug: number of a sampler with a bug to find: written to bug_1.py, .., and judged once it is there
    """
    if bug:
        return find_bug(bug, Path(paths[0] if paths else f"bug_{bug}.py"))
    paths, n_right = paths or ("my_speculative.py",), 0
    paths = [one for path in paths for one in sorted(glob(str(path))) or [path]]    # PowerShell leaves *.py
    if start:
        return [write_starter(Path(path)) for path in paths][-1]
    for path in paths:
        try:
            read_text(path, f"python -m exercises --start {path} writes one to begin with")
            right, wrong = check(path, show=(lambda *_, **__: None) if json else print)
        except ValueError as error:
            if not json:
                raise
            right, wrong = 0, [str(error)]
        n_right += right
        if json:
            name = re.search(r"known mistake: ([^.)]+)", "".join(wrong))
            print(dumps(dict(file=path, right=right, steps=len(STEPS), step=min(right + 1, len(STEPS)),
                             name=name and name[1], mistakes=wrong)), flush=True)
        elif right == len(STEPS):
            print("\nAll steps are right. Where to go on:\n\n" + STEPS_IN_WORDS.split("\n## Then\n\n")[1])
        elif hint:
            show_hint(right + 1, Path(path).with_suffix(".hints"))
    return 0 if n_right == len(STEPS) * len(paths) else 1


def write_starter(path):
    """Writes a file with the signature of every function, as README.md has it."""
    if path.exists():
        raise ValueError(f"{path} already exists: name another file")
    heads = re.findall(r"^def \w+\([^:]*\):.*\n(?:    #.*\n)*", STEPS_IN_WORDS, re.M)
    empty = [f'\n\n{head}    raise NotImplementedError("not written yet")\n' for head in heads]
    rewrite(path, "import numpy as np\n" + "".join(empty))
    print(f"{path} has {len(heads)} functions to write: begin with step 1 of exercises/README.md")


def show_hint(step, seen):
    """Prints the next hint for a step in README.md.  `seen` is a file with those shown before."""
    hints = re.findall(r"^\d\. (.*?)\n(?=\d\. |\n</details>)",
                       STEPS_IN_WORDS.split(f"\n## Step {step}: ")[1].split("\n## ")[0], re.S | re.M)
    before = seen.read_text(encoding="utf-8") if seen.exists() else ""
    n = min(before.count(f"Step {step}, hint ") + 1, len(hints))
    hint = f"Step {step}, hint {n} of {len(hints)}: {hints[n - 1]}\n"
    rewrite(seen, before.replace(hint, "") + hint)
    print(hint)


def check(path, seconds=SECONDS, show=print):
    """Shows which steps are right, and what is wrong with the first that is not.  Returns how many steps,
    counted from the first, are right, and the mistakes in the next."""
    replies = run_child(path, seconds)
    for n, step in enumerate(STEPS):
        if wrong := next(replies):
            show(f"Step {n + 1}, {step.__doc__}: not yet.")
            show(*(f"  {escape_controls(mistake)}" for mistake in wrong), sep="\n")
            return n, wrong
        show(f"Step {n + 1}, {step.__doc__}: right.", flush=True)
    return len(STEPS), []


def run_child(path, seconds):
    """Runs child.py on a file in another process and yields its lists of sentences.  If that process ends, or
    does not answer in time, the last list says so."""
    words = [sys.executable, "-m", "exercises.child", path, str(seconds)]
    with subprocess.Popen(words, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          text=True) as child:
        try:
            for line in child.stdout:
                if line.startswith("Timeout"):
                    place = re.search(rf'{re.escape(Path(path).name)}", (line \d+)', child.stdout.read())
                    yield [f"after {seconds:g} seconds it has not finished: a loop never ends, or waits"
                           + (f" ({place[1]})" if place else "")]
                yield loads(line)
            yield [f"your code ended Python itself (exit status {child.wait()})"]
        finally:
            child.kill()                                # after Ctrl-C, too


if __name__ == "__main__":
    sys.exit(command_line.run(main))
