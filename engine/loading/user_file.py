"""A user's Python file -> a function in it, such as `propose` in my_drafter.py; bugs in it are reported with
file and line.
"""
import functools
import inspect
import os
import sys
import traceback
import types

import numpy as np

from engine.checks import checked_verify
from engine.loading.files import read_text

LOADED = {}         # {absolute path of a file that load_function has loaded: the path as typed}


def load_function(path, name, like):
    """The function `name` in a user's Python file, which must take the arguments of `like`.

    Raises ValueError if it cannot be loaded.
    """
    function = getattr(load_module(path, read_text(path, "name a Python file")), name, None)
    if not callable(function):
        raise ValueError(f"{path} has no function {name}")
    arguments = inspect.signature(like).parameters
    flags = {name for name, argument in arguments.items() if argument.kind is argument.KEYWORD_ONLY}
    try:
        inspect.signature(function).bind(*arguments.keys() - flags, **dict.fromkeys(flags))
    except TypeError:
        raise ValueError(f"{path}: {name} must take the arguments ({', '.join(arguments)})") from None
    return function


@functools.cache                                        # a drafter and a rule from one file share its globals
def load_module(path, source):
    name = os.path.abspath(path)
    LOADED[name] = path
    module = types.ModuleType(name)
    sys.modules[name], module.__file__ = module, name   # dataclasses look there; it may read files beside it
    sys.path.append(os.path.dirname(name))              # or import them
    try:
        exec(compile(source, name, "exec"), vars(module))       # `import` might run stale bytecode
    except (Exception, SystemExit) as error:
        place = f"{path}, line {error.lineno}" if isinstance(error, SyntaxError) else locate(error)
        said = error.msg if isinstance(error, SyntaxError) else error
        raise ValueError(f"{place or path}: {type(error).__name__}: {said}") from None
    return module


def locate(error):
    """'my_drafter.py, line 7': the last line of a loaded file in the error's traceback, or None."""
    lines = [f"{LOADED[frame.filename]}, line {frame.lineno}"
             for frame in traceback.extract_tb(error.__traceback__) if frame.filename in LOADED]
    return lines[-1] if lines else None


def checked_rule(verify):
    """A user's `verify`, called with copies that it may change, and its result checked (checks.py)."""
    @functools.wraps(verify)
    def on_copies(Q, P, drafts, rng):
        P = np.array(np.reshape(P, (len(drafts), Q.shape[-1])))             # also without drafts
        return verify(np.array(Q), P, list(drafts), rng)
    return checked_verify(on_copies)
