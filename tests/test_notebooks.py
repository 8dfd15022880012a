"""The notebooks: the stored outputs are a clean run from top to bottom, the tests they name exist, and they
still run and give those outputs.
"""
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
from helpers import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
FOLDED = {"jupyter": {"outputs_hidden": True}}
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path, kind):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


@each_notebook
def test_stored_outputs_are_a_clean_run_from_top_to_bottom(path):
    code = cells(path, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs
    assert not [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"]
    kinds = [kind for output in outputs for kind in output.get("data", {})]
    assert {"image/svg+xml", "image/png"} & {*kinds}
    assert not any("image/png" in output.get("data", {}) for cell in code for output in cell["outputs"]
                   if not "".join(cell["source"]).startswith("# On this machine"))


@each_notebook
def test_what_is_stored_is_small_and_tells_nothing_of_the_machines_folders(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert path.stat().st_size < 400_000
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    assert notebook["metadata"] == {"kernelspec": kernel, "language_info": {"name": "python"}}
    assert all(cell["metadata"] in ({}, FOLDED) for cell in notebook["cells"])
    assert not re.search(r"/(tmp|home|root|work|Users)/", path.read_text(encoding="utf-8"))


def test_what_a_reader_guesses_first_is_folded():
    code = [cell for path in NOTEBOOKS for cell in cells(path, "code")]
    guessed = ["# Guess first: " in "".join(cell["source"][:2]) for cell in code]
    assert sum(guessed) >= 7 and guessed == [cell["metadata"] == FOLDED for cell in code]


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """A folder of links to what a kernel finds after `pip install -e .`, and to nothing else."""
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    modules = {*(f"{name}.py" for name in setup["py-modules"])}
    folder = tmp_path_factory.mktemp("installed")
    for name in modules | {name.split(".")[0] for name in setup["packages"]}:
        (folder / name).symlink_to(ROOT / name)
    return str(folder)


@each_notebook
def test_on_colab_a_bare_kernel_fetches_the_project_once(path, tmp_path, monkeypatch):
    def system(command):
        if "nobody" in command:
            return 128
        (tmp_path / "project/notebooks").mkdir(parents=True)
        (tmp_path / "project/speculative.py").touch()
        commands.append(command)

    commands, names, cell = [], ["nobody/it", "us/it"], "".join(
        cells(path, "code")[0]["source"]).split("\n\nimport matplotlib")[0]
    monkeypatch.setitem(sys.modules, "google.colab", sys)
    monkeypatch.setattr("builtins.input", lambda _: names.pop(0))
    monkeypatch.setattr("os.system", system)
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="github.com/nobody/it could not be fetched"):
        exec(cell, {})
    for _ in range(2):
        exec(cell, {})
        assert Path.cwd() == tmp_path / "project/notebooks" and sys.path[0] == str(tmp_path / "project")
    assert commands == ["git clone -q https://github.com/us/it project && pip install -q -e project"]


@each_notebook
def test_the_tests_it_points_to_exist(path):
    for cell in cells(path, "markdown"):
        for file, name in re.findall(r"(tests/\w+\.py)(?:::(\w+))?", "".join(cell["source"])):
            source = (ROOT / file).read_text(encoding="utf-8")
            assert not name or f"def {name}(" in source, (file, name)


NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?")


def words(cell):
    """The words that a cell printed and those in its pictures.  Numbers below 1e-9 become 0, because rounding
    decides what they are."""
    printed = ""
    for output in cell.outputs:
        data = output.get("data", {})
        in_picture = re.findall(r"<text[^>]*>([^<]*[a-z][^<]*)</text>", data.get("image/svg+xml", ""))
        shown = [str(data[kind]) for kind in sorted(data) if not kind.startswith("image/")]
        printed += "\n".join(["", output.get("text", ""), *shown, *in_picture])
    return NUMBER.sub(lambda number: number[0] if not abs(float(number[0])) < 1e-9 else "0", printed).split()


@each_notebook
def test_what_looks_at_the_clock_is_marked(path):
    """The mark says that the outputs depend on the machine; marked cells are not compared."""
    code = ["".join(cell["source"]) for cell in cells(path, "code")[1:]]
    timed = [source for source in code if re.search(r"perf_counter\(|seconds\(|Timed\(|bandwidth\(", source)]
    assert all(source.startswith("# On this machine") for source in timed)


@pytest.fixture
def run_module(monkeypatch, installed):
    for module in "nbclient", "nbformat", "ipykernel", "matplotlib":
        pytest.importorskip(module, reason=f"{module} is missing: pip install -e '.[notebooks]'")
    monkeypatch.syspath_prepend(ROOT / "notebooks")
    monkeypatch.setenv("PYTHONPATH", installed)             # its kernels run this folder, as if installed
    monkeypatch.delitem(sys.modules, "run", raising=False)
    import run
    return run


@pytest.mark.long
@each_notebook
def test_it_runs_from_a_clean_kernel_and_gives_what_is_stored(path, run_module):
    fresh = run_module.run(path)                    # raises if a cell fails or writes to standard error
    for old, new in zip(run_module.nbformat.read(path, as_version=4).cells, fresh.cells, strict=True):
        if new.cell_type == "code" and not new.source.startswith("# On this machine"):
            assert words(old) == words(new)
