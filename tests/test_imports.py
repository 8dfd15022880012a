"""Imports go one way only: from programs to directories to the files of the reading path."""
import ast
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest
from helpers import ROOT

READING = ["autoregressive", "speculative", "sampling", "checks", "gpt2", "encoder", "utils"]
METHODS = ["methods", "methods.entries", "methods.drafters", "methods.samplers"]
JUDGE = ["lossless", "lossless.verdicts"]
MAY = {         # a room (a directory, or a file at the top): what it may import besides itself
    "checks": [], "compute": [], "loading": [], "encoder": ["loading"],
    "sampling": ["checks", "compute"], "gpt2": ["checks", "compute"],
    "autoregressive": ["sampling", "checks"], "speculative": ["sampling", "checks"],
    "utils": ["loading", "compute", "encoder", "gpt2", "checks"],
    "lossless": ["sampling", "speculative", "checks"],
    "lossless.__main__": ["speculative", "checks", *JUDGE],
    "methods.entries": [*READING],
    "methods.samplers": [*READING, "compute", "methods.entries"],
    "methods.drafters": [*READING, "compute", "loading", "methods.entries", "methods.samplers"],
    "methods": [*READING, "compute", "loading", *METHODS],
    "lossless.verdicts": [*READING, "compute", "lossless", *METHODS],
    "reporting": [*READING, "compute", *METHODS],
    "benchmarks": [*READING, "compute", "loading", *METHODS, *JUDGE, "reporting"],
    "pages": [*READING, "compute", "loading", *METHODS, *JUDGE, "reporting", "benchmarks"],
    "main": [*READING, "compute", "loading", "reporting"],
    "methods.__main__": [*READING, "compute", "loading", *METHODS, "reporting", "pages"],
    "models": [*READING, "compute", "loading", *METHODS],
}


def room_of(module):
    """The room with the longest name that begins this dotted name; otherwise its first part."""
    parts = module.split(".")
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((name for name in names if name in MAY), parts[0])


def module_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@cache
def imported(path):
    """The dotted names of all modules that a file imports, at any place in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{name.name}" for name in node.names}
    return names


FILES = [path for path in sorted(ROOT.rglob("*.py")) if not path.relative_to(ROOT).parts[0].startswith(".")]
ROOMS = {room_of(module_of(path)) for path in FILES}


def arrows(path):
    """The other rooms that a file imports.  A program may read its flags with loading.command_line and
    loading.user_file, and write its file with loading.files, wherever it is."""
    text = path.read_text(encoding="utf-8")
    names = imported(path)
    if '__name__ == "__main__"' in text:
        names = {name for name in names if not name.startswith("loading")}
    return {room_of(name) for name in names} & ROOMS - {room_of(module_of(path))}


@pytest.mark.parametrize("room", MAY)
def test_no_arrow_runs_back_up(room):
    """Each directory or file imports only what MAY allows."""
    for path in FILES:
        if room_of(module_of(path)) == room:
            assert arrows(path) <= {*MAY[room]}, path


def test_no_two_rooms_need_each_other():
    """MAY itself has no cycle: each room may import only rooms that could be built before it."""
    built, left = set(), {room: {*may} - {room} for room, may in MAY.items()}
    while ready := {room for room, may in left.items() if may <= built}:
        built |= ready
        left = {room: may for room, may in left.items() if room not in built}
    assert not left


def test_nobody_imports_main_and_only_programs_of_its_kind_read_the_table():
    importers = {name: {room_of(module_of(path)) for path in FILES
                        if any(one == name or one.startswith(f"{name}.") for one in imported(path))}
                 for name in ("main", "methods.table")}
    assert importers["main"] <= {"tests"}
    assert importers["methods.table"] <= {"methods.__main__", "reporting", "benchmarks", "pages", "tests"}


a_clone = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone: git cannot be asked")


@a_clone
def test_git_ignores_downloaded_models_and_not_the_training_beside_them():
    asked = ["models/124M/hparams.json", "models/training/new.py", "models/training/work/pair.pt"]
    run = subprocess.run(["git", "check-ignore", *asked], cwd=ROOT, capture_output=True, text=True)
    assert run.stdout.split() == [asked[0], asked[2]]


@a_clone
def test_the_installation_lists_every_module_and_every_package():
    """`pip install -e .` makes these importable from any folder."""
    git = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True)
    files = [Path(name) for name in git.stdout.splitlines()]
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert {*listed["py-modules"]} == {path.stem for path in files if len(path.parts) == 1}
    assert {*listed["packages"]} == {".".join(path.parent.parts) for path in files if path.stem == "__init__"}


@a_clone
def test_the_readme_has_a_line_for_every_folder_and_file_of_code():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.search(r"```text\n(main\.py.*?)```", readme, re.S).group(1).splitlines()
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    there = {re.sub("/.*", "/", file) for file in files if re.match(r"[a-z]\w*(/|\.py$)", file)}
    assert {line.split()[0] for line in lines if line} == there
