"""The command line of every program here: words -> flags (parsed by the package fire), and for each error one
sentence and an exit status.

    if __name__ == "__main__":
        sys.exit(command_line.run(main))

The parameters of `main` are the command line, and its docstring is the help.  A value has the type of its
default, so a prompt stays as typed.  `main` returns its exit status, or None for 0.

    exit status 2       ValueError, OSError, MemoryError, a missing package: one sentence on standard error
    exit status 130     Ctrl-C
    exit status 0       also if the reader of the output went away (| head)

Limitations: Ctrl-C while Python loads NumPy prints a traceback, and so does a bug in this project.  A bug in
a user's file, loaded by user_file.py, is reported with its file and line.
"""
import functools
import inspect
import io
import os
import sys
from contextlib import redirect_stderr, suppress
from difflib import get_close_matches
from math import isfinite
from pathlib import Path

from loading.files import told
from loading.user_file import place_in_loaded


def run(program, words=None):
    """Run `program`, a function, with the words of the command line.  Returns the exit status."""
    words = sys.argv[1:] if words is None else words
    return status_of(lambda: call(program, words))


def status_of(program):
    """Call `program`, without arguments.  Returns the exit status."""
    for stream in sys.stdout, sys.stderr:
        stream.reconfigure(errors="replace")                    # what a terminal cannot show becomes "?"
    status = 0
    try:
        status = program() or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        pass
    except KeyboardInterrupt:
        status = 130
        print("interrupted", file=sys.stderr)
    except (Exception, SystemExit) as error:                    # a user's file may call sys.exit
        status = 2
        print("error:", sentence_of(error), file=sys.stderr)
    with suppress(OSError):
        sys.stdout.flush()
        return status
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())      # else the flush at exit fails, too
    return status


def sentence_of(error):
    """The sentence for an error; a bug in this project is raised again."""
    if place := place_in_loaded(error):
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        return f"{place}: {kind}{error}"
    if isinstance(error, OSError):
        return told(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory for this: use smaller models"
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed: pip install {error.name}"
    if isinstance(error, ValueError):
        return str(error)
    raise error


# Words -> flags ---------------------------------------------------------------------------------------------



def call(program, words):
    """Calls the program with the values that fire finds in the words.

    By itself, fire runs a program before it notices a misspelt flag, and reads "1,2" as a tuple.  So here
    it calls a function that only notes the values, and `typed` decides their types.
    """
    import fire  # here: not every importer of this file has flags
    if {"--help", "-h"} & {*words}:
        name = Path(sys.argv[0]).name
        return print(fire.helptext.HelpText(program, fire.trace.FireTrace(program, name=name)))
    parameters, noted = inspect.signature(program).parameters, []

    @fire.decorators.SetParseFns(**{name: typed(name, p.default) for name, p in parameters.items()})
    @functools.wraps(program)
    def note(*places, **flags):
        noted[:] = places, flags

    words = with_values(words, {name: p.default for name, p in parameters.items()})
    try:
        with redirect_stderr(io.StringIO()):                    # fire prints two pages about an unknown word
            fire.Fire(note, words)
    except fire.core.FireExit as error:
        said = error.trace.elements[-1].ErrorAsStr()
        said = said.replace("Could not consume arg", "one word too many (several need quotes around them)")
        said = said.replace("The function received no value for the required argument", "missing")
        raise ValueError(f"{said}: see --help") from None
    places, flags = noted
    return program(*places, **flags)


def with_values(words, defaults):
    """Joins each flag and its value into one word, so that fire need not guess.  Raises ValueError.

    >>> with_values(["a.txt", "-K", "3", "--json", "--prompt", "-5"], {"prompt": "", "K": 4, "json": False})
    ['a.txt', '--K=3', '--json=True', '--prompt=-5']
    """
    result, words = [], iter(words)
    for word in words:
        if not word.startswith("-"):
            result.append(word)
            continue
        typed, equals, value = word.partition("=")
        name = flag_meant(typed, defaults)
        if isinstance(defaults[name], bool):
            value = value if equals else "True"
        elif not equals:
            value = next(words, "--")
            if value.startswith("--"):
                raise ValueError(f"{typed} needs a value (one that begins with -- is written {typed}=--...)")
        result.append(f"--{name}={value}")
    return result


def flag_meant(typed, flags):
    """The name of the flag: --draft-model-size is draft_model_size, and -K is --K.  Raises ValueError."""
    name = typed.lstrip("-").replace("-", "_")
    meant = [flag for flag in flags if flag == name or typed == f"-{flag[0]}"]
    if len(meant) == 1:
        return meant[0]
    near = get_close_matches(name.lower(), {flag.lower(): flag for flag in flags}, n=1)
    hint = f"did you mean --{next(flag for flag in flags if flag.lower() in near)}?" if near else "see --help"
    raise ValueError(f"{typed!r} is not a flag of this program: {hint}")


def typed(name, default):
    """A parser of values of the default's type, which raises ValueError."""
    kind = {int: int, float: float, bool: {"True": True, "False": False}.__getitem__}.get(type(default), str)

    def parse(word):
        try:
            value = kind(word)
            if kind is str or isfinite(value):
                return value
        except (KeyError, ValueError):
            pass
        wanted = {int: "a whole number", float: "a number"}.get(kind, "no value")
        raise ValueError(f"--{name} {word}: give {wanted}")
    return parse
