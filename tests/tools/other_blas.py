"""NumPy on another BLAS library: which products are batch-invariant, and what several rows cost.

    python tests/tools/other_blas.py                # tests the NumPy of this Python: Accelerate, BLIS, ..

Prints a row of a table: library, kernels, batch-invariant depths, v of 5 and of 9 rows on demo-target.  To
get NumPy on Intel's MKL, in a separate environment:

    pip install mkl mkl-devel meson-python cython ninja
    export PKG_CONFIG_PATH=$(dirname $(find .venv -name mkl-sdl.pc))
    pip install --no-binary numpy --no-build-isolation numpy \\
        -Csetup-args=-D{blas=mkl-sdl,lapack=mkl-sdl,allow-noblas=false}
"""
import os
from itertools import cycle

import numpy as np

from benchmarks.measure import seconds
from engine.compute.probe import DEPTHS, TILE, batch_invariant
from utils import load_model


def a_pass(model, n):
    """A function that runs a pass over n rows after 60 cached tokens."""
    ends = cycle([[n] * n, [100 + n] * n])              # alternate, so that they are never cached
    return lambda: model([*range(60), *next(ends)], n)


if __name__ == "__main__":
    blas, model = np.show_config(mode="dicts")["Build Dependencies"]["blas"], load_model("demo-target")[0]
    one, five, nine = seconds(25, *(a_pass(model, n) for n in (1, 5, 9)))
    print(f"| {blas['name']} {blas['version']} | {os.environ.get('OPENBLAS_CORETYPE', 'default')} "
          f"| {[depth for depth in DEPTHS if batch_invariant(depth, TILE)] or 'none'} "
          f"| {five / one:.2f}, {nine / one:.2f} |")
