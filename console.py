"""Words -> flags; errors -> one sentence and an exit status: what all programs here have in common.

    if __name__ == "__main__":
        sys.exit(console.run(main))

The parameters of `main` are the command line: those without a default, and those before a "/", are
positional, the others are flags.  A flag's value has the type of its default; a list is written with commas.
Its help is a line in the docstring's "Args:".  `main` returns its exit status, or None for 0.

    exit status 2       ValueError, OSError, MemoryError: one sentence on standard error
    exit status 130     Ctrl-C
    exit status 0       the reader of the output went away (| head)

But: Ctrl-C in the first half second, while Python loads NumPy, leaves Python's own traceback (main.py's
leaves none).  An error in the code of this project keeps its traceback.  One in a user's file, loaded by
`function_in`, is reported with its file and line.
"""
import errno
import importlib.util
import inspect
import os
import shutil
import sys
import traceback
from contextlib import suppress
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent, fill

LOADED = {}         # {a file that function_in has loaded, absolute: as it was typed}
MODULES = {}        # {(the file, its bytes): module}, so that two functions of one file share its globals


def run(program, words=None):
    """Run `program`, a function, with the words of the command line.  Returns the exit status."""
    words = sys.argv[1:] if words is None else words
    return status_of(lambda: print(usage(program)) if {"--help", "-h"} & {*words} else call(program, words))


def status_of(program):
    """Call `program`, without arguments.  Returns the exit status."""
    for name in "stdout", "stderr":
        if getattr(sys, name) is None:                          # closed by the caller (>&-)
            setattr(sys, name, open(os.devnull, "w"))
        getattr(sys, name).reconfigure(errors="replace")        # what a terminal cannot show becomes "?"
    status = 0
    try:
        status = program() or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        pass
    except KeyboardInterrupt:
        status = say("interrupted", 130)
    except (Exception, SystemExit) as error:
        sentence = sentence_of(error)
        if not sentence:
            raise
        status = say(f"error: {sentence}")
    try:
        sys.stdout.flush()
    except OSError:                         # nobody reads it, or the disk is full: do not try again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def sentence_of(error):
    """What is said of an error; None if it is a mistake of this project."""
    if isinstance(error.__cause__, StopIteration):              # which generators turn into a RuntimeError
        error = error.__cause__
    place = place_in_loaded(error)
    if place:
        name = "" if isinstance(error, ValueError) else type(error).__name__
        return ": ".join(filter(None, [place, name, str(error)]))
    if isinstance(error, ValueError):
        return str(error)
    if isinstance(error, OSError):
        return told(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory for this: use smaller models"
    return None


def say(sentence, status=2):
    with suppress(OSError):                 # nobody can read it: the status remains
        print(sentence, file=sys.stderr)
    return status


# Words -> flags ---------------------------------------------------------------------------------------------

def call(program, words):
    """program(**flags), with each flag's value parsed after all words have been checked."""
    parameters = inspect.signature(program).parameters
    placed, flagged = in_order(parameters, words)
    places = [p for p in parameters.values() if has_place(p)]
    return program(*(value_of(p.name, p.default, word) for p, word in zip(places, placed)),
                   **{name: value_of(name, parameters[name].default, word) for name, word in flagged.items()})


def in_order(parameters, words):
    """(the words that have a place, {flag: its word}):  --json notes.txt -K 3  ->  ["notes.txt"], {"json":
    "True", "K": "3"}.  Raises ValueError.
    """
    flags = {name: p.default for name, p in parameters.items() if not has_place(p)}
    places = [p for p in parameters.values() if has_place(p)]
    placed, flagged, words = [], {}, iter(words)
    for word in words:
        if not word.startswith("-") and len(placed) < len(places):
            placed.append(word)
            continue
        typed, equals, value = word.partition("=")
        name = flag_meant(typed, flags)
        if isinstance(flags[name], bool):
            if equals:
                raise ValueError(f"{typed} takes no value: leave out {equals + value!r}")
            value = "True"
        elif not equals:
            value = next(words, "--")
            if value.startswith("--"):
                raise ValueError(f"{typed} needs a value (one that begins with -- is written {typed}=--...)")
        flagged[name] = value
    for p in places[len(placed):]:
        if p.default is p.empty:
            raise ValueError(f"{p.name.upper()} is missing: see --help")
    return placed, flagged


def has_place(parameter):
    return parameter.kind is parameter.POSITIONAL_ONLY or parameter.default is parameter.empty


def flag_meant(typed, flags):
    """The name of the flag: --draft-model-size is draft_model_size, and -K is --K.  Raises ValueError."""
    name = typed.lstrip("-").replace("-", "_")
    if typed.startswith("--") and name in flags:
        return name
    short = [flag for flag in flags if typed == f"-{flag[0]}"]
    if len(short) == 1:
        return short[0]
    if not typed.startswith("-"):
        hint = f"did you mean --prompt {typed!r}?" if "prompt" in flags else "see --help"
    else:
        lower = {flag.lower(): flag for flag in flags}
        near = get_close_matches(name.lower(), lower, n=1)
        hint = f"did you mean --{lower[near[0]]}?" if near else "see --help"
    raise ValueError(f"{typed!r} is not a flag of this program: {hint}")


def value_of(name, default, word):
    """The word as a value of the default's type; raises ValueError."""
    kind = type(default[0]) if isinstance(default, list) else type(default)
    if default is inspect.Parameter.empty:
        kind = str
    try:
        values = [kind(part) for part in (word.split(",") if isinstance(default, list) else [word])]
        if kind is float and not all(map(isfinite, values)):
            raise ValueError
    except ValueError:
        what = {int: "a whole number", float: "a number"}.get(kind, "something else")
        raise ValueError(f"--{name} {word}: give {what}, as in --{name} {written(default)}") from None
    return values if isinstance(default, list) else values[0]


def written(value):
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def usage(program):
    """What --help prints: the docstring of the program, its flags with their defaults."""
    about, _, helps = dedent("    " + (program.__doc__ or "")).partition("\nArgs:\n")
    helps = dict(line.strip().partition(": ")[::2] for line in helps.splitlines())
    lines, width = [about.strip(), ""][not about.strip():], shutil.get_terminal_size().columns
    for name, parameter in inspect.signature(program).parameters.items():
        text = helps.get(name, "")
        if parameter.default not in (parameter.empty, "") and parameter.default is not False:
            text += f" (default {written(parameter.default)})"
        name = name.upper() if has_place(parameter) else f"--{name}"
        lines.append(fill(f"  {name:24}{text}", width, subsequent_indent=" " * 26, break_on_hyphens=False))
    return "\n".join(lines)


# Files ------------------------------------------------------------------------------------------------------

def read_text(path, advice):
    """A text file in UTF-8.  Raises ValueError, with the advice, if it cannot be read."""
    try:
        if Path(path).exists() and not Path(path).is_file():    # reading a pipe would wait
            raise ValueError(f"cannot read {path} (a folder, a pipe or a device): {advice}")
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"cannot read {path} ({error.strerror}): {advice}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text in UTF-8: {advice}") from None


def rewrite(path, content, check=lambda: None):
    """Write a text, or bytes, beside the file and then in its place: if it fails, the old file is as it was.

    check   called just before the rename; raises an error if the old file should stay
    """
    real = Path(os.path.realpath(path))
    with TemporaryDirectory(dir=real.parent, prefix=".new.") as work:
        new = Path(work) / real.name
        new.write_bytes(content.encode() if isinstance(content, str) else content)
        if real.exists():
            shutil.copymode(real, new)
        check()
        os.replace(new, real)


def told(error, path=None):
    """An OSError as a sentence that says what to do.  (It has no number if NumPy could not write all.)

    >>> told(OSError(errno.ENOSPC, "No space left on device"), "run.html")
    'cannot write run.html (No space left on device): free some space, or write to another disk'
    """
    what = f"{path or error.filename or 'the output'} ({error.strerror or error})"
    if error.errno in (None, errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        return f"cannot write {what}: free some space, or write to another disk"
    return f"cannot use {what}: is the path right, and are you allowed to?"


def function_in(path, name, like=None):
    """The function `name` of somebody's Python file.  Raises ValueError if it cannot be loaded.

    like    a function that takes the same arguments
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(str(path.resolve()), path)    # no other has this name
    if spec is None:
        raise ValueError(f"{path} is not a Python file: its name must end in .py")
    key = spec.origin, path.read_bytes()
    module, LOADED[spec.origin] = MODULES.get(key) or importlib.util.module_from_spec(spec), path
    try:
        sys.modules[module.__name__] = module                           # where dataclasses look
        if key not in MODULES:      # not the loader's exec_module: its cache misses an edit within a second
            exec(compile(key[1], spec.origin, "exec"), vars(module))
        MODULES[key] = module
    except (Exception, SystemExit) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        place = f"{path}, line {line}" if line else place_in_loaded(error) or path
        raise ValueError(f"{place}: {type(error).__name__}: {error}") from None
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"{path} has no function {name}")
    try:
        arguments = inspect.signature(like or function).parameters
        inspect.signature(function).bind(*arguments)
    except TypeError:
        raise ValueError(f"{path}: {name} must take the arguments ({', '.join(arguments)})") from None
    return function


def place_in_loaded(error):
    """'my_drafter.py, line 7': the last line of a loaded file in the error's traceback, or None."""
    lines = [f"{LOADED[frame.filename]}, line {frame.lineno}"
             for frame in traceback.extract_tb(error.__traceback__) if frame.filename in LOADED]
    return lines[-1] if lines else None
