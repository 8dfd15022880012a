"""Run the notebooks from clean kernels and store their outputs:

    python notebooks/run.py [--check] [notebook.ipynb ...]

--check runs them and writes nothing.  Either way a cell that fails, or writes to standard error, ends it with
an error.
"""
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


def run(path):
    """The notebook, executed in its folder: only what its cells print tells of the time or the machine."""
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


if __name__ == "__main__":
    for path in [Path(a) for a in sys.argv[1:] if a != "--check"] or sorted(HERE.glob("*.ipynb")):
        start = perf_counter()
        notebook = run(path)
        if "--check" not in sys.argv:
            nbformat.write(notebook, path)
        print(f"{path.name}: {perf_counter() - start:.0f} s", flush=True)
