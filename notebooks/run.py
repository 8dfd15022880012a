"""Run the notebooks from clean kernels and store their outputs:

    python notebooks/run.py [--check | --untimed] [notebook.ipynb ...]

--check     writes nothing, and says which stored outputs are not those of the code
--untimed   stores no output of a cell that measures the machine: for a machine that is busy

A cell that measures the machine begins with "# On this machine"; --check leaves its outputs alone, and those
that are pictures.  A cell that fails, or writes to standard error, ends the program with an error.
"""
import re
import sys
from base64 import b64decode, b64encode
from io import BytesIO
from pathlib import Path
from time import perf_counter

import nbformat
from nbclient import NotebookClient
from PIL import Image

HERE = Path(__file__).resolve().parent
METADATA = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"}}
NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?")


def run(path):
    """The notebook, executed in its folder: only what its cells print says something of time or machine."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False, coalesce_streams=True,
                   extra_arguments=["--log-level=40"], resources={"metadata": {"path": HERE}}).execute()
    notebook.metadata = nbformat.from_dict(METADATA)
    for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
        if output.get("name") == "stderr":
            raise RuntimeError(f"{path}: a cell wrote to standard error:\n{output.text}")
        if png := output.get("data", {}).get("image/png"):      # plots of few colours: a third of the size
            image = Image.open(BytesIO(b64decode(png))).convert("RGB").quantize(128)
            image.save(small := BytesIO(), "png", optimize=True)
            output.data["image/png"] = b64encode(small.getvalue()).decode()
    return notebook


def timed(cell):
    return cell.source.startswith("# On this machine")


def stale(stored, fresh):
    """The numbers of the cells whose stored words and numbers are not those of a fresh run."""
    return [new.execution_count for old, new in zip(stored.cells, fresh.cells, strict=True)
            if new.cell_type == "code" and not timed(new) and words(old) != words(new)]


def words(cell):
    """What a cell printed, without what rounding decides: numbers below 1e-9 are 0."""
    printed = "\n".join(output.get("text") or output.data.get("text/plain", "") for output in cell.outputs)
    return NUMBER.sub(lambda number: number[0] if not abs(float(number[0])) < 1e-9 else "0", printed).split()


def main(words):
    check, untimed = "--check" in words, "--untimed" in words
    failed = False
    for path in [Path(word) for word in words if not word.startswith("--")] or sorted(HERE.glob("*.ipynb")):
        start, stored = perf_counter(), nbformat.read(path, as_version=4)
        notebook = run(path)
        seconds = perf_counter() - start
        if found := check and stale(stored, notebook):
            failed = True
            print(f"{path.name}: the stored outputs of cells {found} are not those of the code")
        for old, new in zip(stored.cells, notebook.cells):
            if untimed and timed(new):
                new.outputs = old.outputs
        if not check:
            nbformat.write(notebook, path)
        print(f"{path.name}: {seconds:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
