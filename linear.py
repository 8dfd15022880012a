"""Products of few rows with many weights: y = x @ w + b, the weights fetched once, every row with the same bits in any company.

A decode step multiplies one row with every weight; a verification multiplies K + 1 rows.  The weights come from memory once
either way, so both should take the same time.  A library does not see it so: for one row it calls `gemv`, which streams the weights; for
two or more it calls `gemm`, which first packs the weights into a copy, and that takes several times as long as reading them.

OpenBLAS on AVX-512 has another kernel, for products of at most a million multiplications.  It does not pack, and it adds up the
inputs in their order, each row by itself.  So the weights are laid out once as tiles of 64 outputs, each contiguous in memory, and up to
12 rows meet a tile at a time: 12 * 64 * 1280 = 983,040.  Tile after tile streams by, at the pace of the memory for one row as for five;
and a prompt, cut into blocks of 12 rows, is no slower than in `gemm`.

The second gain is exactness.  A row has the same bits in a decode step, in a verification and in a prompt, so greedy speculative text is
greedy text by construction.  (A single row would go to `gemv`, whose last bits differ: it goes twice.)

Other kernels (AVX2, other libraries) have no such product; `exact()` finds out by trying.  There each of up to 16 rows meets a tile in a
`gemv` of its own, while the tile is in the cache: the same bits again, though further rows are less of a bargain.

Figures: the README (benchmark.py made them) and notebook 4.
"""
import functools
import math
import os
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np

from backend import xp

TILE, DEPTH, ROWS = 64, 1280, 12        # outputs, inputs and rows of the largest product that is not packed
FEW = 16                                # rows that go one by one where there is no such product
SHARE = 1_500_000                       # weights; a product of more is shared between threads (to wake one takes some 30 us)
THREADS = int(os.environ.get("OPENBLAS_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS") or min(4, os.cpu_count()))


@functools.cache
def exact():
    """True if the rows of a product of 2 to ROWS rows with a tile keep their bits in any company: tried, not believed."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((ROWS, DEPTH), dtype=np.float32), rng.standard_normal((DEPTH, TILE), dtype=np.float32)
    products = [(x[:, :depth], w[:depth]) for depth in (24, 64, 192, 768, DEPTH)]
    products += [(x[:, :TILE], np.ascontiguousarray(w[:TILE].T).T)]                         # as queries meet keys
    return all((a[i:i + n] @ b == (a @ b)[i:i + n]).all() for a, b in products for n in range(2, ROWS) for i in (0, ROWS - n))


def exact_rows():
    """How many rows at once keep their bits here; 1 promises nothing (a GPU)."""
    if xp.ndarray is not np.ndarray:
        return 1
    return math.inf if exact() else FEW


@functools.cache
def pool():
    return ThreadPoolExecutor(THREADS - 1)


def blocks(a):
    """[.., n, k] -> [.., n_blocks, rows, k], the rows that meet a tile at once; the last block is filled up with other rows."""
    n = a.shape[-2]
    if exact():
        rows = max(2, -(-n // -(-n // ROWS)))                                   # 2 to ROWS, about the same in every block
    else:
        rows = 1 if n <= FEW else n
    missing = -n % rows
    if missing:
        a = xp.concatenate([a, a[..., :missing, :]], axis=-2)
    return a.reshape(*a.shape[:-2], (n + missing) // rows, rows, a.shape[-1])


def product(a, b, out=None):
    """a [.., rows, k] @ b [.., k, m] -> [.., rows, m], at most DEPTH of the k inputs at once."""
    matmul = functools.partial(np.matmul, order="C")                            # all blocks of rows with one tile, then the next tile
    out = matmul(a[..., :DEPTH], b[..., :DEPTH, :], out=out)
    for i in range(DEPTH, a.shape[-1], DEPTH):
        out += matmul(a[..., i:i + DEPTH], b[..., i:i + DEPTH, :])
    return out


def multiply(a, b, out=None):
    """The same, b [n, .., k, m] cut along its first axis for the threads, if it is large.  a has that axis, too, or not."""
    if b.size * a.shape[-3] < SHARE or THREADS == 1:
        return product(a, b, out)
    if out is None:
        out = np.empty((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), dtype=a.dtype)
    cuts = [len(b) * i // THREADS for i in range(THREADS + 1)]
    parts = [(a[i:j] if a.ndim == b.ndim else a, b[i:j], out[i:j]) for i, j in zip(cuts, cuts[1:])]
    others = [pool().submit(product, *part) for part in parts[1:]]
    product(*parts[0])
    wait(others)
    return out


def row_products(a, b):
    """a [.., n, k] @ b [.., k, m] -> [.., n, m], m <= TILE; the bits of a row do not depend on the other rows.

    >>> import numpy as np
    >>> a, b = np.ones((3, 2)), np.arange(8.).reshape(2, 4)
    >>> bool((row_products(a, b) == a @ b).all())
    True
    """
    if xp.ndarray is not np.ndarray:                                            # a GPU
        return a @ b
    y = multiply(blocks(a), b[..., None, :, :])                                 # [.., n_blocks, rows, m]
    return y.reshape(*y.shape[:-3], -1, y.shape[-1])[..., :a.shape[-2], :]


def linear(x, w, b):
    """x [n, n_in] @ w + b [n_out] -> [n, n_out].  w is [n_in, n_out], or the tiles that `lay_out` made of it."""
    if w.ndim == 2:
        return x @ w + b
    n, (n_tiles, _, _, width) = len(x), w.shape
    x = blocks(x)                                                               # [n_blocks, rows, n_in]
    y = xp.empty((*x.shape[:2], n_tiles, width), dtype=x.dtype)
    multiply(x, w, out=y.transpose(2, 0, 1, 3))                                 # [n_tiles, n_blocks, rows, TILE]
    y = y.reshape(-1, n_tiles * width)[:n, :len(b)]
    y += b
    return y


def lay_out(w):
    """w [n_in, n_out] -> tiles [n_tiles, 1, n_in, TILE], the last one filled up with zeros.  (On a GPU: w.)"""
    if xp.ndarray is not np.ndarray:
        return w
    n_in, n_out = w.shape
    whole, rest = divmod(n_out, TILE)
    tiles = np.zeros((whole + (rest > 0), n_in, TILE), dtype=w.dtype)
    tiles[:whole] = w[:, :whole * TILE].reshape(n_in, whole, TILE).transpose(1, 0, 2)
    if rest:
        tiles[-1, :, :rest] = w[:, whole * TILE:]
    return tiles[:, None]
