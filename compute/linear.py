"""Products of few rows with many weights: y = x @ w + b.  The weights are fetched from memory once.

On first reading `linear(x, w, b)` is `x @ w + b`, `row_products(a, b)` is `a @ b`, and `row_sums(x)` is
`x.sum(axis=-1, keepdims=True)`. A row of x is one token. The rest of this file makes these products fast, and
lets a row *keep its bits*: its result is the same to the last bit, whatever rows are multiplied beside it.

A decode step multiplies one row with every weight; a verification multiplies K + 1 rows. The weights come
from memory once either way, so both should take nearly the same time. But for two or more rows a library
calls `gemm`, which first packs the weights into a copy. For a few rows, packing takes several times as long
as reading. (For one row the library calls `gemv`, which does not pack.)

OpenBLAS on AVX-512 has another kernel, for products of at most a million multiplications. It does not pack,
and it adds up the inputs in order, each row by itself. So the weights are laid out once as tiles of 64
outputs, each contiguous in memory. (In a model too large for most caches they have 32: narrow tiles stream
faster.) Up to 12 rows are multiplied with a tile at a time: 12 rows * 64 outputs * 1280 inputs = 983,040.
More rows cost only arithmetic, because a tile is read once for all of them. Prefill is cut into blocks of up
to 12 rows, which is no slower than `gemm`.

The second gain is exactness. With this kernel a row keeps its bits in a decode step, in a verification and
in prefill (the product is batch-invariant). So greedy speculative text is greedy text by construction.
(A single row is multiplied together with a copy of it, because the last bits of `gemv` differ.)

Other libraries and processors differ, so `exact` tests when a model is loaded whether rows keep their bits.
A tile takes the largest number of inputs (its depth) at which they do: with one version of Intel's MKL they
did at 768, but not at 1024. There may be no such depth, as on AVX2. Then each of up to 16 rows is multiplied
with a tile by a `gemv` of its own, while the tile is in the cache: rows keep their bits again, though extra
rows cost more. With `FAST` (main.py's --fast) these rows are multiplied together anyway, and may not keep
their bits. Without such a depth, more than 16 rows (a prompt) are multiplied all at once, by `gemm`:

    rows        if rows keep their bits     if not              if not, with FAST
    1 .. 16     blocks of up to 12          one by one          blocks of up to 12
    more        blocks of up to 12          all at once         all at once

Limitations: more than 16 rows keep their bits only if `exact_rows` is infinite. If it is not, with FAST 16
rows or fewer may not keep theirs either. On a GPU no row is sure to keep its bits. Tested with OpenBLAS and
MKL on AMD, not yet with Apple's Accelerate, BLIS or ARM's library (tests/tools/other_blas.py runs the test).
"""
import functools
import math
from contextlib import nullcontext

import numpy as np

from compute.backend import on_gpu, xp
from compute.threads import SHARE, one_blas_thread, share

FAST = False                        # True, set before a model is loaded: bits may be given up for speed
TILE, ROWS = 64, 12                 # outputs and rows of the largest product that is not packed
DEPTHS = 1280, 1024, 768, 512, 384, 256     # inputs of a tile: the first at which rows keep their bits
NARROW = 32                         # outputs of a tile if weights come from memory, or rows go one by one
LARGE = 25_000_000                  # weights (100 MB): more than most caches hold
FEW = 16                            # the most rows that may go one by one, to keep their bits
SUM = 16                            # columns of ones that add up a row; a single column would mean `gemv`


@functools.cache
def exact(depth, width, by_columns=False, dtype="f"):
    """True if rows keep their bits: none of the 2 to ROWS rows of a product [n, depth] @ [depth, width]
    depends on the others, or on its place among them.

    by_columns: the second factor is stored column by column, as keys are when multiplied with queries.
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
    """The largest of DEPTHS at which rows keep their bits; if there is none, simply the largest."""
    return next((depth for depth in DEPTHS if exact(depth, width)), DEPTHS[0])


def at_once(n, depth, width, by_columns=False, dtype="f"):
    """Whether n rows are multiplied with a tile in blocks of up to ROWS (the table above)."""
    return exact(depth, width, by_columns, dtype) or (FAST and 1 < n <= FEW)


def chunk(n_in, width):
    """How many of n_in inputs a tile takes at a time: the largest divisor (256 .. 1280) of n_in at which rows
    keep their bits.  If there is none, it is the largest up to 1280."""
    divisors = [n_in // n for n in range(1, n_in + 1) if n_in % n == 0 and n_in // n <= DEPTHS[0]]
    return next((depth for depth in divisors if depth >= DEPTHS[-1] and exact(depth, width)), divisors[0])


def exact_rows(n_embd, d_head, n_ctx):
    """How many rows at once keep their bits in all products of such a model; 1 if several may not."""
    if on_gpu():
        return 1
    weights = [(chunk(n_in, width), width) for n_in in (n_embd, 4 * n_embd) for width in (TILE, NARROW)]
    keys = [(d_head, TILE, True)]
    values = [(n, width) for width in {min(d_head, TILE), d_head % TILE or TILE, SUM}
              for n in range(TILE, min(n_ctx, deepest(width)) + TILE, TILE)]
    if all(exact(*shape) for shape in weights + keys + values):
        return math.inf
    return 1 if FAST else FEW


def cost(w, n):
    """The time to multiply n rows with w, in reads of one weight.  Up to 4 rows cost no more than one."""
    return w.size * max(1, n / 4)


def multiply(product, n_parts, w, n):
    """Threads share the parts of a product of n rows with w. Few rows do not wake the library's threads."""
    with one_blas_thread() if n > FEW else nullcontext():
        share(product, n_parts, cost(w, n))


def blocks(a, together):
    """[.., n, k] -> [.., n_blocks, rows, k]: the rows a tile takes at a time; copies fill the last block."""
    n = a.shape[-2]
    most = ROWS if together else 1 if n <= FEW else n
    rows = math.ceil(n / math.ceil(n / most))                       # about the same number in every block
    if together:
        rows += rows % 2                                            # an odd number of rows would be no faster
    missing = -n % rows
    if missing:
        a = a.repeat(2, axis=-2) if n == 1 else xp.concatenate([a, a[..., :missing, :]], axis=-2)
    return a.reshape(*a.shape[:-2], (n + missing) // rows, rows, a.shape[-1])


def row_products(a, b):
    """a [h, .., n, k] @ b [h or 1, .., k, m] -> [h, .., n, m]. Threads share h.

    >>> import numpy as np
    >>> a, b = np.ones((1, 3, 2)), np.arange(8.).reshape(1, 2, 4)
    >>> bool((row_products(a, b) == a @ b).all())
    True
    """
    if on_gpu():
        return a @ b
    if b.shape[-1] > TILE and b.shape[-1] % TILE == 0:              # keys: tiles side by side
        tiles = b.reshape(*b.shape[:-1], -1, TILE).swapaxes(-2, -3)         # [h, n_tiles, k, TILE]
        return row_products(a[..., None, :, :], tiles).swapaxes(-2, -3).reshape(*a.shape[:-1], -1)
    if b.shape[-1] > TILE:
        parts = [row_products(a, b[..., i:i + TILE]) for i in range(0, b.shape[-1], TILE)]
        return np.concatenate(parts, axis=-1)
    if a.shape[-1] > (most := deepest(b.shape[-1])):
        return row_products(a[..., :most], b[..., :most, :]) + row_products(a[..., most:], b[..., most:, :])
    n, by_columns = a.shape[-2], b.strides[-1] != b.itemsize
    depth, width = b.shape[-2:]
    a = blocks(a, at_once(n, depth, width, by_columns, b.dtype.char))            # [.., n_blocks, rows, k]
    b = b[..., None, :, :]                                          # [.., 1, k, m]
    if n <= FEW and cost(b, n) < SHARE:
        y = np.matmul(a, b, order="C")
    else:
        b = np.broadcast_to(b, (len(a), *b.shape[1:]))
        y = np.empty((*map(max, a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), dtype=a.dtype)
        multiply(lambda i, j: np.matmul(a[i:j], b[i:j], out=y[i:j], order="C"), len(a), b, n)
    return y.reshape(*y.shape[:-3], -1, y.shape[-1])[..., :n, :]


def row_sums(x):
    """The sum of each row [.., n, k] -> [.., n, 1].

    It is a product, because on AVX-512 a product adds in order. Then zeros (of masked keys, or of other
    branches of a tree of drafts) do not change its bits. They would change those of `sum`.
    """
    ones = xp.ones((*[1] * (x.ndim - 2), x.shape[-1], SUM), dtype=x.dtype)
    return row_products(x, ones)[..., :1]


def linear(x, w, b):
    """x [n, n_in] @ w + b [n_out] -> [n, n_out]. w: [n_in, n_out], or what `lay_out` made of it."""
    if w.ndim == 2:
        return x @ w + b
    n, (n_tiles, n_chunks, _, depth, width) = len(x), w.shape
    x = blocks(x, at_once(n, depth, width, False, w.dtype.char))                 # [n_blocks, rows, n_in]
    n_blocks, rows, _ = x.shape
    y = np.empty((n_blocks, rows, n_tiles, width), dtype=x.dtype)
    out = y.transpose(2, 0, 1, 3)                                   # [n_tiles, n_blocks, rows, width]
    if n_chunks > 1:                                                # -> [n_chunks, n_blocks, rows, depth]
        x = x.reshape(n_blocks, rows, n_chunks, depth).transpose(2, 0, 1, 3)

    def product(i, j):              # order: a tile with all rows, then the next tile
        if n_chunks > 1:
            np.matmul(x, w[i:j], order="C").sum(axis=1, out=out[i:j])
        else:
            np.matmul(x, w[i:j, 0], out=out[i:j], order="C")
    multiply(product, n_tiles, w, n)
    y = y.reshape(n_blocks * rows, n_tiles * width)[:n, :len(b)]
    y += b
    return y


def lay_out(w, n_weights=0, arena=np):
    """w [n_in, n_out] -> tiles [n_tiles, n_chunks, 1, depth, width], zeros at the end. (On a GPU: w.)

    n_weights       in the whole model: it decides between narrow and wide tiles
    arena           where the tiles of a model are stored together
    """
    if on_gpu():
        return w
    n_in, n_out = w.shape
    width = TILE if n_weights <= LARGE and exact(chunk(n_in, TILE), TILE) else NARROW
    whole, rest = divmod(n_out, width)
    tiles = arena.zeros((whole + (rest > 0), n_in, width), w.dtype)
    tiles[:whole] = w[:, :whole * width].reshape(n_in, whole, width).transpose(1, 0, 2)
    if rest:
        tiles[-1, :, :rest] = w[:, whole * width:]
    return tiles.reshape(len(tiles), -1, 1, chunk(n_in, width), width)
