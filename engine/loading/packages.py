"""Packages that only some programs need: torch to train, nbformat to run the notebooks, .."""
import ast
import sys
from importlib.util import find_spec
from pathlib import Path

from engine.loading import command_line


def require(name, extra, *packages):
    """A program calls this before it imports packages that only it needs: where one is missing, --help prints
    the help as always, and anything else is one sentence.

    name        the program's __name__
    extra       the packages' group in pyproject.toml
    """
    missing = [package for package in packages if find_spec(package) is None]
    if name != "__main__" or not missing:
        return
    path = sys.modules[name].__file__
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if getattr(node, "name", "") == "main"]
    exec(compile(tree, path, "exec"), scope := {})              # its flags and its docstring

    def program():
        raise ValueError(f'{" and ".join(missing)} must be installed for this: pip install -e ".[{extra}]"')
    asked = {"--help", "-h"} & {*sys.argv}
    sys.exit(command_line.run(scope["main"], ["--help"]) if asked else command_line.run(program, []))
