"""The notebooks: what is stored is a clean run from top to bottom, what they say about tests is true, and
they still run.
"""
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path, kind):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def test_they_are_numbered_without_a_gap():
    assert len(NOTEBOOKS) >= 6
    assert [int(path.name[0]) for path in NOTEBOOKS] == list(range(1, len(NOTEBOOKS) + 1))


@each_notebook
def test_lines_are_within_110_columns(path):
    """Formulas and tables in the text excepted."""
    lines = [line for kind in ("code", "markdown") for cell in cells(path, kind)
             for line in "".join(cell["source"]).splitlines() if not line.startswith(("$$", "\\", "|"))]
    assert not [line for line in lines if len(line) > 110]


@each_notebook
def test_stored_outputs_are_a_clean_run_from_top_to_bottom(path):
    code = cells(path, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs
    assert not [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in outputs)


@each_notebook
def test_what_is_stored_is_small_and_tells_nothing_of_the_machines_folders(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert path.stat().st_size < 400_000
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    assert notebook["metadata"] == {"kernelspec": kernel, "language_info": {"name": "python"}}
    assert all(cell["metadata"] == {} for cell in notebook["cells"])
    assert not re.search(r"/(tmp|home|root|work|Users)/", path.read_text(encoding="utf-8"))


@each_notebook
def test_the_tests_it_points_to_exist(path):
    for cell in cells(path, "markdown"):
        for file, name in re.findall(r"(tests/\w+\.py)(?:::(\w+))?", "".join(cell["source"])):
            source = (ROOT / file).read_text(encoding="utf-8")
            assert not name or f"def {name}(" in source, (file, name)


@pytest.mark.long
@each_notebook
def test_it_runs_from_a_clean_kernel(path, monkeypatch):
    for module in "nbclient", "nbformat", "ipykernel", "matplotlib":
        pytest.importorskip(module, reason=f"{module} is missing: pip install -e '.[notebooks]'")
    monkeypatch.syspath_prepend(ROOT / "notebooks")
    monkeypatch.delitem(sys.modules, "run", raising=False)
    from run import run
    notebook = run(path)                            # raises where a cell fails or writes to standard error
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
