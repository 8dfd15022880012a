"""Imports go one way only: from programs to directories to the files of the reading path."""
import ast
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest
from helpers import ROOT

# The rooms (a directory, or a file at the top), from the ground up: each imports only what is before it.
ORDER = """engine encoder sampling gpt2 autoregressive speculative utils lossless methods.entries
methods.samplers methods.drafters lossless.verdicts methods benchmarks pages exercises models notebooks
lossless.__main__ methods.__main__ main tests""".split()


def room_of(module):
    """The room with the longest name that begins this dotted name; otherwise its first part."""
    parts = module.split(".")
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((name for name in names if name in ORDER), parts[0])


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


def test_a_file_imports_only_what_comes_before_its_room():
    """So no two rooms need each other, the judge needs no method, and nothing but a test imports main.py."""
    for path in FILES:
        allowed = ORDER[:ORDER.index(room_of(module_of(path))) + 1]
        assert {*map(room_of, imported(path))} & {*ORDER} <= {*allowed}, path


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
