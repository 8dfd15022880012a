"""How far has your own speculative sampling come?   python -m exercises [my_speculative.py]

README.md in this folder describes the steps; steps.py checks them.  Your file runs in a process of its own,
which is killed if it does not answer in time.
"""
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from exercises.steps import SHOWN, STEPS
from loading import command_line
from reporting.terminal import harmless

SECONDS = 60            # allowed for a step; the slowest takes two


def main(path="my_speculative.py"):
    """Says how far your own speculative sampling has come: checks the steps of exercises/README.md.

    Args:
        path: your file
    """
    if not Path(path).exists():
        raise ValueError(f"there is no {path} yet: make an empty file of that name and begin with step 1 of "
                         "exercises/README.md")
    if not Path(path).is_file():
        raise ValueError(f"{path} is a folder or a pipe: name a Python file")
    return 0 if check(path) == len(STEPS) else 1


def check(path, seconds=SECONDS):
    """Prints which steps are right, and what is wrong with the first that is not.  Returns how many steps,
    counted from the first, are right.  Raises ValueError if the file cannot be imported."""
    told = answers(path, seconds)
    if wrong := next(told):
        raise ValueError(f"{path} cannot be imported: {harmless(wrong[0])}")
    for n, step in enumerate(STEPS, 1):
        if wrong := next(told):
            print(f"Step {n}, {step.__doc__}: not yet.")
            print(*(f"  {harmless(mistake)}" for mistake in wrong[:SHOWN]), sep="\n")
            if len(wrong) > SHOWN:
                print("  .. and more")
            return n - 1
        print(f"Step {n}, {step.__doc__}: right.", flush=True)
    print(*next(told))
    return len(STEPS)


def answers(path, seconds):
    """Runs steps.py on a file in another process and yields its lists of sentences.  If that process ends, or
    does not answer within so many seconds, the last list says so."""
    folders = os.pathsep.join(sys.path)                 # where this process found its modules
    words = [sys.executable, "-m", "exercises.steps", path, f"{seconds + 9:.0f}"]
    with subprocess.Popen(words, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          env={**os.environ, "PYTHONPATH": folders}) as child:
        try:
            late, line = reply(child, seconds)
            while line:
                yield json.loads(line)
                late, line = reply(child, seconds)
            yield [f"after {seconds:g} seconds it has not finished: a loop never ends, or waits" if late
                   else f"your code ended Python itself (exit status {child.wait()})"]
        finally:
            child.kill()                                # after Ctrl-C, too


def reply(child, seconds):
    """Returns (False, the child's next line), or (True, "") if it had to be killed.  The line is empty if the
    child has ended."""
    alarm = threading.Timer(seconds, child.kill)
    alarm.start()
    try:
        line = child.stdout.readline()
        return not alarm.is_alive(), line
    finally:
        alarm.cancel()


if __name__ == "__main__":
    sys.exit(command_line.run(main))
