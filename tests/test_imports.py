"""Imports go one way: programs > methods > lossless > the seven files > engine."""
import ast
import re
import tomllib
from pathlib import Path

import pytest
from helpers import ROOT, git

# Five groups, from the ground up: a file imports only from its own group and from those before it.
GROUPS = [{"engine"}, {"main", "autoregressive", "speculative", "sampling", "gpt2", "encoder", "utils"},
          {"lossless"}, {"methods"}, {"pages", "benchmarks", "exercises", "models", "notebooks"}, {"tests"}]
PROGRAMS = 4                            # with lossless.verdicts and every __main__.py


def group_of(module):
    """The index of a dotted name's group; -1: not of this project."""
    if "__main__" in module.split(".") or module.startswith("lossless.verdicts"):
        return PROGRAMS
    return next((i for i, group in enumerate(GROUPS) if module.split(".")[0] in group), -1)


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


def test_a_file_imports_only_from_its_own_group_and_those_before_it():
    """So the reading path needs no method, the judge needs none, and nothing in engine/ knows either."""
    for path in FILES:
        names, module = imported(path), ".".join(path.relative_to(ROOT).with_suffix("").parts)
        assert max(map(group_of, names), default=-1) <= group_of(module), path
        assert "main" not in {name.split(".")[0] for name in names} or "tests" in path.parts, path


a_clone = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone: git cannot be asked")


@a_clone
def test_git_ignores_downloaded_models_and_not_the_training_beside_them():
    asked = ["models/124M/hparams.json", "models/training/new.py", "models/training/work/pair.pt"]
    assert git("check-ignore", *asked) == [asked[0], asked[2]]


@a_clone
def test_the_installation_lists_every_module_and_every_package():
    """`pip install -e .` makes these importable from any folder."""
    files = [Path(name) for name in git("ls-files", "*.py")]
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert {*listed["py-modules"]} == {path.stem for path in files if len(path.parts) == 1}
    assert {*listed["packages"]} == {".".join(path.parent.parts) for path in files if path.stem == "__init__"}


@a_clone
def test_the_readme_has_a_line_for_every_folder_and_file_of_code():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.search(r"```text\n(main\.py.*?)```", readme, re.S).group(1).splitlines()
    there = {re.sub("/.*", "/", file) for file in git("ls-files") if re.match(r"[a-z]\w*(/|\.py$)", file)}
    assert {line.split()[0] for line in lines if line} == there
