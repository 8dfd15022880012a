"""Which products of few rows this machine's BLAS computes *batch-invariantly*.

In a batch-invariant product x @ w a row's result is the same to the last bit, whatever rows are multiplied
beside it.  Libraries and processors differ, so `batch_invariant` tries it when a model is loaded.  OpenBLAS
on AVX-512 is batch-invariant up to a million multiplications: such a product is not packed, and each row adds
up the inputs in order, by itself.  A tile takes the largest number of inputs (its depth) for which this
holds; with one version of Intel's MKL that was 768, and not 1024.  There may be no such depth, as on AVX2.
Then each of up to 16 rows is multiplied with a tile by a `gemv` of its own, which is batch-invariant, too,
though extra rows cost more.  With FAST (--fast of python -m methods) these rows are multiplied together
anyway:

    rows        if batch-invariant          if not              if not, with FAST
    1 .. 16     blocks of up to 12          one by one          blocks of up to 12
    more        blocks of up to 12          all at once         all at once

Limitations: without such a depth more than 16 rows are not batch-invariant, and with FAST more than one are
not.  On a GPU there is no guarantee.  Tested with OpenBLAS and MKL on AMD, not yet with Apple's Accelerate,
BLIS or ARM's library (tests/tools/other_blas.py runs the test).
"""
import functools
import math

import numpy as np

from engine.compute.backend import on_gpu

FAST = False                        # give up batch invariance for speed; set by compute.configure
TILE, ROWS = 64, 12                 # outputs and rows of the largest product that is not packed
DEPTHS = 1280, 1024, 768, 512, 384, 256     # inputs of a tile; the first that is batch-invariant is used
NARROW = 32                         # outputs of a tile if weights come from memory, or rows go one by one
FEW = 16                            # the most rows that may go one by one, to be batch-invariant
SUM = 16                            # columns of ones that add up a row; a single column would mean `gemv`


@functools.cache
def batch_invariant(depth, width, by_columns=False, dtype="f"):
    """True if in a product [n, depth] @ [depth, width], n = 2 .. ROWS, no row depends on the others or on its
    place among them.

    by_columns      the second factor is stored column by column, as keys are when multiplied by queries
    """
    rng = np.random.default_rng(0)
    x, w = rng.random((ROWS, depth), dtype), rng.random((depth, width), dtype)
    if by_columns:
        w = np.asfortranarray(w)
    y = x[:2] @ w
    for n in range(3, ROWS + 1):                        # few rows first: many could wake a library's threads
        before, y = y, x[:n] @ w
        if not ((before == y[:-1]).all() and (x[1:n] @ w == y[1:]).all()):
            return False
    return True


@functools.cache
def deepest(width):
    """The largest of DEPTHS that is batch-invariant; simply the largest if none is."""
    return next((depth for depth in DEPTHS if batch_invariant(depth, width)), DEPTHS[0])


def in_blocks(n, depth, width, by_columns=False, dtype="f"):
    """Whether n rows are multiplied with a tile in blocks of up to ROWS (the table above)."""
    return batch_invariant(depth, width, by_columns, dtype) or (FAST and 1 < n <= FEW)


def tile_depth(n_in, width):
    """How many of n_in inputs a tile takes at a time: the largest divisor of n_in (256 .. 1280) that is
    batch-invariant or, if none is, the largest up to 1280."""
    divisors = [n_in // n for n in range(1, n_in + 1) if n_in % n == 0 and n_in // n <= DEPTHS[0]]
    return next((depth for depth in divisors if depth >= DEPTHS[-1]
                 and batch_invariant(depth, width)), divisors[0])


def exact_rows(n_embd, d_head, n_ctx, blocks=()):
    """How many rows at once are batch-invariant in all products of such a model; 1 if more may not be.

    blocks      the model's, which say how wide their feed-forward layers are; 4 * n_embd if there are none
    """
    if on_gpu():
        return 1
    n_inner = {len(block["mlp"]["c_fc"]["b"]) for block in blocks} or {4 * n_embd}
    weights = [(tile_depth(n_in, width), width) for n_in in {n_embd} | n_inner for width in (TILE, NARROW)]
    keys = [(d_head, TILE, True)]
    values = [(n, width) for width in {min(d_head, TILE), d_head % TILE or TILE, SUM}
              for n in range(TILE, min(n_ctx, deepest(width)) + TILE, TILE)]
    if all(batch_invariant(*shape) for shape in weights + keys + values):
        return math.inf
    return 1 if FAST else FEW
