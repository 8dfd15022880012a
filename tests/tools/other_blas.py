"""Another library under NumPy: does it keep bits, and what does it cost?

    python tests/tools/other_blas.py /tmp/mkl       # builds NumPy on Intel's MKL there (a quarter of an hour)
    python tests/tools/other_blas.py                # asks the NumPy of this Python: Accelerate, BLIS, ..

Prints a row of a table: library, kernels, depths that keep bits, v of 5 and of 9
rows on demo-target, the speed-up of the embedded pair, the same with --fast.  The first form also runs
tests/test_exact.py.
"""
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from statistics import median
from time import perf_counter

ROOT = Path(__file__).resolve().parent.parent.parent
SETUP = [f"-Csetup-args=-D{setting}" for setting in (
    "blas=mkl-sdl", "lapack=mkl-sdl", "allow-noblas=false")]    # the last: or it may silently get no BLAS


def build(folder):
    """An environment with NumPy on MKL -> its Python."""
    folder = Path(folder).resolve()
    python = folder / "bin" / "python"
    if folder.exists():
        sys.exit(f"{folder} is there already: name a new folder, or delete it")
    venv.create(folder, with_pip=True)
    pip = [python, "-m", "pip", "install", "-q"]
    subprocess.run([*pip, "mkl", "mkl-devel", "meson-python", "cython", "ninja"], check=True)
    found = next(folder.rglob("mkl-sdl.pc")).parent
    tools = {"PKG_CONFIG_PATH": str(found), "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run([*pip, "--no-binary", "numpy", "--no-build-isolation", "numpy", *SETUP], check=True,
                   env=os.environ | tools)
    subprocess.run([*pip, "tqdm", "regex", "requests", "pytest", "pytest-xdist", "hypothesis"], check=True)
    return python


def seconds(model, tokens, n_rows):
    """Median of a pass over the last n_rows of the tokens."""
    times = []
    for _ in range(25):
        model(tokens[:-n_rows])                             # the others leave the cache
        start = perf_counter()
        model(tokens, n_rows)
        times.append(perf_counter() - start)
    return median(times)


def row():
    sys.path.insert(0, str(ROOT))
    import numpy as np

    from compute.linear import DEPTHS, TILE, exact
    from utils import load_model
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    model, tokens = load_model("demo-target")[0], list(range(64))
    one, five, nine = (seconds(model, tokens, n) for n in (1, 5, 9))
    speedup = []
    for flag in [], ["--fast"]:
        command = [sys.executable, "main.py", "--json", *flag]
        runs = [subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout for _ in range(5)]
        speedup.append(median(json.loads(run)["speedup"] for run in runs))
    print(f"| {blas['name']} {blas['version']} | {os.environ.get('OPENBLAS_CORETYPE', 'default')} "
          f"| {[depth for depth in DEPTHS if exact(depth, TILE)] or 'none'} "
          f"| {five / one:.2f}, {nine / one:.2f} | {speedup[0]:.2f}, {speedup[1]:.2f} |")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    elif sys.argv[1:]:
        python = build(sys.argv[1])
        subprocess.run([python, "-m", "pytest", "-q", "-n0", "tests/test_exact.py"], cwd=ROOT, check=True)
        subprocess.run([python, __file__], check=True)
    else:
        row()
