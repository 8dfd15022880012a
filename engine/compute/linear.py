"""Products of few rows with many weights: y = x @ w, where a row of x is one token.

With these weights laid out in tiles, verifying 5 tokens costs little more than a decode step (v of 5 in
benchmarks/results/passes.md); with plain `x @ w` it costs several (notebook 4).  And the products are
*batch-invariant*: a row's result is the same to the last bit, whatever rows are multiplied beside it.

`x @ lay_out(w)` is `x @ w`, `row_products(a, b)` is `a @ b` for two stacks of matrices (attention's), and
`total(x)` is `x.sum(axis=-1, keepdims=True)`; the rest of this file is about how they are computed.

A decode step multiplies one row with every weight, and a verification K + 1 rows.  Either way the weights are
read from memory once, so both should take nearly the same time.  But for two or more rows a BLAS runs `gemm`,
which first packs the weights into a copy, and for a few rows packing takes several times as long as reading.
(For one row it runs `gemv`, which does not pack.)

OpenBLAS on AVX-512 has another kernel, for products of at most a million multiplications, which does not
pack.  So the weights are laid out once as tiles of 64 outputs, each contiguous in memory.  (In a model too
large for most caches they have 32, because narrow tiles stream faster.)  Up to 12 rows are multiplied with a
tile at a time: 12 rows * 64 outputs * 1280 inputs = 983,040.  More rows cost only arithmetic, because a tile
is read once for all of them.  Prefill is split into blocks of up to 12 rows, which is no slower than `gemm`.

If this kernel is batch-invariant, greedy speculative text equals greedy text by construction.  (A single row
is multiplied together with a copy of itself, because the last bits of `gemv` differ.)  probe.py finds out
whether it is, and says what happens if not.
"""
import math

import numpy as np

from engine.compute import probe
from engine.compute.backend import on_gpu, xp
from engine.compute.probe import FEW, NARROW, ROWS, SUM, TILE
from engine.compute.threads import SHARE, one_blas_thread, share

LARGE = 25_000_000                  # weights (100 MB): more than most caches hold


def cost(w, n):
    """The time to multiply n rows by w, in reads of one weight.  Up to 4 rows cost no more than one."""
    return w.size * max(1, n / 4)


def multiply(product, n_parts, w, n):
    """Share the parts of a product of n rows by w among threads.  Few rows do not wake the BLAS's threads."""
    if n > FEW:
        with one_blas_thread():
            share(product, n_parts, cost(w, n))
    else:
        share(product, n_parts, cost(w, n))


def cut_into_blocks(a, in_blocks):
    """[.., n, k] -> [.., n_blocks, rows, k]: the rows a tile takes at a time; copies pad the last block."""
    n = a.shape[-2]
    most = ROWS if in_blocks else 1 if n <= FEW else n
    rows = math.ceil(n / math.ceil(n / most))                       # about the same number in every block
    if in_blocks:
        rows += rows % 2            # one row becomes two, to avoid gemv; other odd numbers are no faster
    missing = -n % rows
    if missing:
        a = a.repeat(2, axis=-2) if n == 1 else xp.concatenate([a, a[..., :missing, :]], axis=-2)
    return a.reshape(*a.shape[:-2], (n + missing) // rows, rows, a.shape[-1])


def row_products(a, b):
    """a [h, .., n, k] @ b [h or 1, .., k, m] -> [h, .., n, m], tile by tile.  Threads share h.

    >>> a, b = np.ones((1, 3, 2)), np.arange(8.).reshape(1, 2, 4)
    >>> bool((row_products(a, b) == a @ b).all())
    True
    """
    if on_gpu():
        return a @ b
    k, m = b.shape[-2:]
    if m > TILE and m % TILE == 0:                                  # keys: tiles side by side
        tiles = b.reshape(*b.shape[:-1], -1, TILE).swapaxes(-2, -3)         # [h, n_tiles, k, TILE]
        # [h, n_tiles, n, TILE] -> [h, n, m]
        return row_products(a[..., None, :, :], tiles).swapaxes(-2, -3).reshape(*a.shape[:-1], m)
    if m > TILE:
        return np.concatenate([row_products(a, b[..., i:i + TILE]) for i in range(0, m, TILE)], axis=-1)
    if k > (most := probe.deepest(m)):
        return row_products(a[..., :most], b[..., :most, :]) + row_products(a[..., most:], b[..., most:, :])
    return multiply_tile(a, b)


def multiply_tile(a, b):
    """a [h, .., n, k] @ b [h or 1, .., k, m] -> [h, .., n, m]; b is a tile, so m is at most TILE."""
    n, (k, m) = a.shape[-2], b.shape[-2:]
    by_columns = b.strides[-1] != b.itemsize
    a = cut_into_blocks(a, probe.in_blocks(n, k, m, by_columns, b.dtype.char))   # [h, .., n_blocks, rows, k]
    b = b[..., None, :, :]                                                      # [h or 1, .., 1, k, m]
    if n <= FEW and cost(b, n) < SHARE:
        y = np.matmul(a, b, order="C")
    else:
        b = np.broadcast_to(b, (len(a), *b.shape[1:]))
        y = np.empty((*map(max, a.shape[:-2], b.shape[:-2]), a.shape[-2], m), dtype=a.dtype)
        multiply(lambda i, j: np.matmul(a[i:j], b[i:j], out=y[i:j], order="C"), len(a), b, n)
    return y.reshape(*y.shape[:-3], -1, m)[..., :n, :]


def total(x):
    """The sum of each row [.., n, k] -> [.., n, 1].

    It is a product because on AVX-512 a product adds in order, so zeros (from masked keys, or other branches
    of a tree of drafts) do not change its bits, as they would with `sum`.
    """
    ones = xp.ones((*[1] * (x.ndim - 2), x.shape[-1], SUM), dtype=x.dtype)
    return row_products(x, ones)[..., :1]


class Tiles:
    """A matrix [n_in, n_out], laid out so that `x @ tiles` is batch-invariant, and fast for a few rows x.

    tiles       [n_tiles, n_chunks, 1, depth, width]; the columns of zeros at the end are cut off the product
    shape       (n_in, n_out)
    """
    __array_ufunc__ = None                                          # so NumPy leaves x @ tiles to __rmatmul__

    def __init__(self, tiles, shape):
        self.tiles, self.shape, self.nbytes = tiles, shape, tiles.nbytes

    def __rmatmul__(self, x):                                       # [n, n_in] -> [n, n_out]
        n, (n_tiles, n_chunks, _, depth, width) = len(x), self.tiles.shape
        x = cut_into_blocks(x, probe.in_blocks(n, depth, width, False, x.dtype.char))   # [n_blocks, rows, k]
        n_blocks, rows, _ = x.shape
        y = np.empty((n_blocks, rows, n_tiles, width), dtype=x.dtype)
        out = y.transpose(2, 0, 1, 3)                               # [n_tiles, n_blocks, rows, width]
        if n_chunks > 1:                                            # -> [n_chunks, n_blocks, rows, depth]
            x = x.reshape(n_blocks, rows, n_chunks, depth).transpose(2, 0, 1, 3)

        def product(i, j):          # in this order: a tile with all rows, then the next tile
            if n_chunks > 1:
                np.matmul(x, self.tiles[i:j], order="C").sum(axis=1, out=out[i:j])
            else:
                np.matmul(x, self.tiles[i:j, 0], out=out[i:j], order="C")
        multiply(product, n_tiles, self.tiles, n)
        return y.reshape(n_blocks * rows, n_tiles * width)[:n, :self.shape[1]]


def lay_out(w, n_weights=0, arena=np):
    """w [n_in, n_out] -> Tiles (on a GPU: w).

    n_weights       in the whole model, to choose between narrow and wide tiles
    arena           where all tiles of a model are stored
    """
    if on_gpu():
        return w
    n_in, n_out = w.shape
    wide = n_weights <= LARGE and probe.batch_invariant(probe.tile_depth(n_in, TILE), TILE)
    width = TILE if wide else NARROW
    tiles = arena.zeros((math.ceil(n_out / width), n_in, width), w.dtype)
    for i, tile in enumerate(tiles):
        part = w[:, i * width:(i + 1) * width]                      # the last may be narrower
        tile[:, :part.shape[1]] = part
    return Tiles(tiles.reshape(len(tiles), -1, 1, probe.tile_depth(n_in, width), width), w.shape)
