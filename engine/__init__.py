"""What stands behind the seven files, and need not be read to follow the method.

    compute/        matrix products of few rows, on a CPU or a GPU
    loading/        checkpoints, tokenizers, downloads, the command line
    reporting/      the figures of a run, in sentences
    checks.py       what is wrong with an argument, in a sentence
"""
import sys

try:
    from numpy import vecdot  # noqa: F401 - new in NumPy 2.0
except ImportError:
    print('error: NumPy 2.0 or later is needed: pip install "numpy>=2.0"', file=sys.stderr)
    sys.exit(2)
