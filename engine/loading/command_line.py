"""The command line of every program here: words -> flags (the package fire prints the help), and one sentence
and an exit status for each error.

    if __name__ == "__main__":
        sys.exit(command_line.run(main))

The parameters of `main` are the flags, and its docstring is the help.  A value gets the type of its default,
so a prompt stays as typed.  `main` returns its exit status, or None for 0.

    exit status 2       ValueError, OSError, MemoryError, a missing package: one sentence on standard error
    exit status 130     Ctrl-C
    exit status 0       also if the reader of the output has gone (| head), or never existed (>&-)

This module handles what fire gets wrong: fire runs a program before it notices a word too many (`call`),
guesses types, so that the prompt "1,2" becomes a tuple (`parse`), takes the word after a switch for a prompt
and a value such as "-5" for a flag (`split_words`), and gives no hints (`find_flag`).

Limitations: Ctrl-C while Python loads NumPy prints a traceback, and so does a bug in this project.  A bug in
a user's file, loaded by user_file.py, is reported with file and line.
"""
import inspect
import io
import os
import re
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout, suppress
from difflib import get_close_matches
from math import inf
from pathlib import Path

from engine.loading.files import describe
from engine.loading.user_file import locate

SWITCH = {"true": True, "1": True, "false": False, "0": False}
# Flags that only python -m methods has.
ELSEWHERE = "drafter", "verifier", "show_rounds", "trace", "json", "fast", "prompt_file"
KINDS = {bool: (lambda word: SWITCH[word.lower()], "true or false"), int: (int, "a whole number"),
         float: (float, "a number")}
OTHER_NAMES = {                         # a flag's name in other programs: its name here
    **dict.fromkeys(("max_new_tokens", "max_tokens", "max_length"), "n_tokens_to_generate"),
    **dict.fromkeys(("gamma", "num_assistant_tokens", "num_speculative_tokens"), "K"),
    "assistant_model": "draft_model_size"}


def as_output(stream):
    """The stream.  Anything else with `write`, such as a notebook's output, becomes one; so does None (>&-).
    """
    if not hasattr(stream, "reconfigure"):
        output = io.TextIOBase()
        output.write = getattr(stream, "write", len)
        return output
    stream.reconfigure(errors="replace")                        # "?" for what a terminal cannot show
    return stream


def run(program, words=None):
    """Run `program`, a function, with the words of the command line.  Returns the exit status."""
    status = 0
    with (redirect_stdout(as_output(sys.stdout)), redirect_stderr(as_output(sys.stderr)),
          warnings.catch_warnings()):
        warnings.simplefilter("default", UserWarning)           # each sentence once
        warnings.showwarning = lambda sentence, *_: print("note:", sentence, file=sys.stderr)
        try:
            status = call(program, sys.argv[1:] if words is None else words) or 0
            sys.stdout.flush()
        except BrokenPipeError:
            pass
        except KeyboardInterrupt:
            status = 130
            print("interrupted", file=sys.stderr)
        except (Exception, SystemExit) as error:                # a user's file may call sys.exit
            status = 2
            print("error:", explain(error), file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:                                         # or the flush at exit would fail, too
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def explain(error):
    """The sentence for an error; a bug in this project is raised again."""
    if place := locate(error):
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        return f"{place}: {kind}{error}"
    if isinstance(error, OSError):
        return describe(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory for this: use smaller models"
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed: pip install {error.name}"
    if isinstance(error, ValueError):
        return str(error)
    raise error


# Words -> flags ---------------------------------------------------------------------------------------------

def call(program, words):
    """Call the program with the values of these words, or print its help."""
    if {"--help", "-h"} & {*words}:
        import fire  # here, because nothing else needs it
        path = Path(sys.argv[0])
        name = path.parent.name if path.stem == "__main__" else path.name
        return print(fire.helptext.HelpText(program, fire.trace.FireTrace(program, name=name)))
    signature = inspect.signature(program)
    defaults = {name: parameter.default for name, parameter in signature.parameters.items()}
    places, flags = split_words(words, defaults)
    try:
        bound = signature.bind(*places, **flags)
    except TypeError as error:
        said = str(error).replace("too many positional arguments",
                                  "one word too many (a text of several words needs quotes)")
        raise ValueError(f"{said}: see --help") from None
    for name, word in bound.arguments.items():
        bound.arguments[name] = parse(name, word, defaults[name])
    return program(*bound.args, **bound.kwargs)


def split_words(words, defaults):
    """Words -> ([those without a flag], {flag: value}), all as typed.  Raises ValueError.

    >>> split_words(["a.txt", "-K", "3", "--json", "--prompt", "-5"], {"prompt": "", "K": 4, "json": False})
    (['a.txt'], {'K': '3', 'json': 'true', 'prompt': '-5'})
    """
    places, flags, words = [], {}, [*words]
    n_needed = [*defaults.values()].count(inspect.Parameter.empty)
    while words:
        word, follows = words.pop(0), words[0] if words else "--"
        meant = re.sub(r"^[\u2013\u2014]-?", "--", word)         # a word processor's version of --
        if meant.lstrip("-").partition("=")[0].replace("-", "_") in defaults:
            word = meant
        if word == "--" or not word.startswith("-"):            # -- ends the flags
            places += words if word == "--" else [word]
            words = [] if word == "--" else words
            continue
        typed, equals, value = word.partition("=")
        name = find_flag(typed, defaults)
        if not equals and isinstance(defaults[name], bool):     # a word after a switch must be its value
            wanted = follows.lower() in SWITCH or len(places) >= n_needed and re.fullmatch(r"\w+", follows)
            value = words.pop(0) if wanted else "true"
        elif not equals:
            if follows.startswith("--"):
                raise ValueError(f"{typed} needs a value (one that begins with -- is written {typed}=--...)")
            value = words.pop(0)
        flags[name] = value
    return places, flags


def find_flag(typed, flags):
    """The name of the flag: --draft-model-size is draft_model_size; -n and --n are the only flag that begins
    with n, or the one that is a prefix of all that do.  Raises ValueError, with a hint, if there is none.
    """
    name = typed.lstrip("-").replace("-", "_")
    meant = [flag for flag in flags if flag == name or flag[0] == name]
    if meant and all(flag.startswith(min(meant, key=len)) for flag in meant):
        return min(meant, key=len)
    near = [flag for flag in flags if name and flag.startswith(name) or flag == OTHER_NAMES.get(name)]
    near += [flag for flag in flags if flag.lower() in get_close_matches(name.lower(), map(str.lower, flags))]
    hint = f"did you mean --{near[0]}?" if near else "see --help"
    hint = "python -m methods has it" if name in ELSEWHERE else hint
    raise ValueError(f"{typed!r} is not a flag of this program: {hint}")


def parse(name, word, default):
    """A word as a value of the default's type.  Raises ValueError."""
    if name == "prompt" or isinstance(word, tuple):             # not paths; *paths: expanded by the shell
        return word
    if type(default) not in KINDS:                              # a path, ngram:PATH, or a name
        return re.sub("(^|:)(~.*)", lambda found: found[1] + os.path.expanduser(found[2]), word)
    kind, wanted = KINDS[type(default)]
    with suppress(KeyError, ValueError):
        if -inf < (value := kind(word)) < inf:
            return value
    raise ValueError(f"--{name} {word}: give {wanted}")
