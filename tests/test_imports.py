"""Imports go one way only: from programs to directories to the files of the reading path."""
import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
READING = ["autoregressive", "speculative", "sampling", "checks", "gpt2", "encoder", "utils"]
MAY = {         # a directory ("room") or file: what it may import besides itself
    "autoregressive": ["sampling"], "speculative": ["sampling", "checks"], "sampling": ["checks", "compute"],
    "checks": [], "console": [], "gpt2": ["checks", "compute"], "encoder": [],
    "utils": ["loading", "compute", "encoder", "gpt2"], "compute": [],
    "loading": ["encoder", "compute", "console"],
    "lossless": ["sampling", "speculative", "checks", "autoregressive", "console"],
    "samplers": [*READING, "compute"], "drafters": [*READING, "compute", "loading", "samplers"],
    "methods": [*READING, "compute", "loading", "drafters", "samplers", "console"],
}


def room_of(path):
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


@cache
def imported(path):
    """The top-level names of all modules that a file imports, at any place in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module.split(".")[0])
    return names


FILES = [path for path in sorted(ROOT.rglob("*.py")) if not path.relative_to(ROOT).parts[0].startswith(".")]
ROOMS = {room_of(path) for path in FILES}


@pytest.mark.parametrize("room", MAY)
def test_no_arrow_runs_back_up(room):
    """Each directory or file imports only what MAY allows."""
    for path in FILES:
        if room_of(path) == room:
            assert imported(path) & ROOMS <= {room, *MAY[room]}, path


def test_nobody_imports_main_and_only_programs_of_its_kind_read_the_table():
    """The table is methods.py."""
    importers = {name: {room_of(path) for path in FILES if name in imported(path)}
                 for name in ("main", "methods")}
    assert importers["main"] <= {"tests"}
    assert importers["methods"] <= {"main", "reporting", "benchmarks", "pages", "tests", "verdicts"}
