"""python -m exercises.child my_speculative.py 60: checks the steps in order, and prints a line of JSON for
each: a list of sentences, empty if the step is right.

__main__.py starts this in a process of its own, and reads it up to the first step that is not right.  A step
that takes longer than that many seconds ends the process; the last lines then say where it was.
"""
import faulthandler
import inspect
import json
import os
import reprlib
import sys
import traceback
from contextlib import suppress
from itertools import islice

import numpy as np

from engine.loading.files import read_text
from engine.loading.user_file import load_module
from exercises.calls import name_call, name_drafter
from exercises.mistakes import name_rule
from exercises.steps import STEPS, step_4, step_5, step_8

HINTS = {               # part of an error: its likely reason
    "non-negative": "(is the residual max(0, q - p)? q - p alone has negative entries.)",
    "contain NaN": "(is the residual max(0, q - p)? The sum of q - p alone is 0.)",
    "NoneType": "(does one of your functions return nothing? A sampler returns the new tokens.  In step 8 "
                "None for p is a point mass.)",
    "0-dimensional": "(None for p, from a drafter, is a point mass.)",
    "0 tokens do not fit": "(is the text an array? Array + list adds numbers: keep lists of tokens.)",
    "truth value of an array":
        "(is a [0] missing, as in model(x)[0]? Is there an `if eos`, where eos is an array?)"}


def check_steps(path):
    """Yields a list of sentences for each step, empty if it is right."""
    try:
        mine = load_module(path, source := read_text(path, "name a Python file"))
    except ValueError as error:
        return (yield [str(error)])
    for step in STEPS:
        yield find_mistakes(step, mine, source)


def find_mistakes(step, mine, source=""):
    """Up to five sentences.  If your code raises an error, the last one says so."""
    missing = [name for name in STEPS[step] if not callable(getattr(mine, name, None))]
    if missing:
        return [f"there is no function {name} yet" for name in missing]
    found = []
    try:
        found.extend(islice(step(mine), 4))
    except BaseException as error:                      # your code may raise SystemExit, too
        found.append(describe_error(error, mine.__name__))
    if found:
        with suppress(Exception):                       # whatever your code does now
            found[0] += (name_drafter(mine) if step is step_8 else "" if step not in (step_4, step_5) else
                         name_call(mine) or name_rule(mine.speculative_sampling))
        found[0] += "\n    (np.random is used: draw from rng, which is given)" * ("np.random" in source)
    return found


def describe_error(error, file):
    """The error that was raised, the line of your file where it was raised, the function that it is in with
    the values of its arguments, and the line that called it."""
    def show(value):
        return "=" + ("rng" if isinstance(value, np.random.Generator) else "model" if callable(value) else
                      reprlib.repr(value.tolist() if isinstance(value, np.ndarray) else value))

    trace, notes = error.__traceback__, []
    own = [(frame, place) for (frame, _), place in zip(traceback.walk_tb(trace), traceback.extract_tb(trace))
           if place.filename == file]
    if own:
        notes = [f"line {own[-1][1].lineno}: {own[-1][1].line}"]
        *callers, (called, _) = [one for one in own if one[1].name[0] != "<"] or own    # not <listcomp>
        arguments = inspect.formatargvalues(*inspect.getargvalues(called), formatvalue=show)
        notes += [f"in {called.f_code.co_name}{arguments}",
                  *(f"called in line {place.lineno}: {place.line}" for _, place in callers[-1:])]
    notes += [hint for words, hint in HINTS.items() if words in str(error)]
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return "\n    ".join([f"{kind}{error}", *notes])


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)                                   # what your code prints goes to standard error
        faulthandler.dump_traceback_later(float(sys.argv[2]), exit=True, file=out)
        for answer in check_steps(sys.argv[1]):
            sys.stdout.flush()
            print(json.dumps(answer), file=out, flush=True)
            faulthandler.dump_traceback_later(float(sys.argv[2]), exit=True, file=out)    # restarts the clock
