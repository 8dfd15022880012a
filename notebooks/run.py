"""Run the notebooks from clean kernels and store their outputs:

    python notebooks/run.py [--untimed] [notebook.ipynb ...]

A cell whose output depends on the machine begins with "# On this machine"; tests/test_notebooks.py compares
the stored outputs of the other cells with a new run.  A cell that fails or writes to standard error ends the
program with an error.
"""
import re
import sys
from pathlib import Path
from time import perf_counter

from engine.loading import command_line, files, packages

packages.require(__name__, "notebooks", "nbformat", "nbclient")

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
METADATA = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"}}
PICTURES = ["--InlineBackend.figure_formats=svg", "--InlineBackend.rc=svg.fonttype=none",
            "--InlineBackend.rc=svg.hashsalt=notebooks"]        # text stays text; the same ids each time


def run(path):
    """The notebook, executed in its folder.  Only the outputs of its cells depend on the machine."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False, coalesce_streams=True,
                   extra_arguments=["--log-level=40", *PICTURES],
                   resources={"metadata": {"path": path.resolve().parent}}).execute()
    notebook.metadata.update(nbformat.from_dict(METADATA))
    for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
        if output.get("name") == "stderr":
            raise ValueError(f"{path}: a cell wrote to standard error:\n{output.text}")
        if svg := output.get("data", {}).get("image/svg+xml"):
            output.data["image/svg+xml"] = smaller(svg)
    return notebook


def smaller(svg):
    """The SVG at half the size: without its date, on one line, with numbers truncated to two decimals.

    >>> smaller('<?xml?>\\n<svg>\\n <metadata>today</metadata>\\n<path d="M 1.23456 -7\\nz"/>0.0012</svg>')
    '<svg><path d="M 1.23 -7 z"/>0.0012</svg>'
    """
    svg = re.sub(r"<metadata>.*?</metadata>|<!DOCTYPE.*?>|<\?xml.*?>", "", svg, flags=re.S)
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), svg)        # tags only
    return " ".join(re.sub(r">\s+<", "><", svg).split())


def main(*paths, untimed=False):
    """Run the notebooks from clean kernels and store their outputs.

    Args:
        paths: notebooks; all, if none is named
        untimed: keep the stored outputs of cells that depend on the machine (for a busy machine)
    """
    for path in map(Path, paths or sorted(HERE.glob("*.ipynb"))):
        start, stored = perf_counter(), nbformat.read(path, as_version=4)
        notebook = run(path)
        for old, new in zip(stored.cells, notebook.cells):
            if untimed and new.source.startswith("# On this machine"):
                new.outputs = old.outputs
        files.rewrite(path, nbformat.writes(notebook) + "\n")
        print(f"{path.name}: {perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(command_line.run(main))
