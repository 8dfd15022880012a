"""Products of few rows with many weights: y = x @ w + b for 1 to 16 rows, the weights fetched once, every row with the same bits.

A decode step multiplies one row with every weight; a verification multiplies K + 1 rows.  The weights come from memory once
either way, so both should take the same time.  A library does not see it so: for one row it calls `gemv`, which streams the weights; for
two or more it calls `gemm`, which first packs the weights into a copy, and that takes several times as long as reading them.

So we never leave `gemv`.  The weights are cut into panels that fit into the caches of the cores, and every row meets a panel before
the next panel is fetched: the first row pays for the memory, the others find the panel in the cache.  (They are not free: notebook 4
measures both ways.)  A panel of PANEL weights is also just large enough for OpenBLAS to share a `gemv` between
two threads.

The second gain is exactness.  Each row is a `gemv` of its own, the same call whatever stands in the other rows, so row i of a
(K + 1)-row product has the same bits as the one-row product.  With `gemm` it does not, and greedy speculative text would now and then
part from greedy text.

Figures: the README (benchmark.py made them) and notebook 4.
"""
from backend import xp

SMALL = 16              # rows; from here on `gemm` wins, because there it does more with each weight than fetch it
PANEL = 600_000         # weights a panel, 2.4 MB


def row_products(a, b):
    """a [.., n, k] @ b [.., k, m] -> [.., n, m], each of the n rows by itself if they are few.

    >>> import numpy as np
    >>> a, b = np.ones((3, 2)), np.arange(8.).reshape(2, 4)
    >>> bool((row_products(a, b) == a @ b).all())
    True
    """
    if not 1 < a.shape[-2] <= SMALL:                                            # one row is a `gemv` anyhow
        return a @ b
    return xp.matmul(a[..., None, :], b[..., None, :, :])[..., 0, :]            # [.., n, 1, k] @ [.., 1, k, m] -> [.., n, 1, m]


def linear(x, w, b=None):
    """x [n, n_in], w [n_in, n_out], b [n_out] -> [n, n_out].  w should be the transpose of a contiguous array (see `lay_out`)."""
    n_in, n_out = w.shape
    n_panels = n_in * n_out // PANEL
    if len(x) > SMALL or n_panels < 2:
        y = row_products(x, w)
    else:
        width = -(-n_out // n_panels // 16) * 16                                # outputs a panel, a multiple of 16
        whole = n_out // width * width
        panels = w[:, :whole].T.reshape(-1, width, n_in).transpose(0, 2, 1)     # [n_panels, n_in, width], a view
        y = xp.empty((len(x), n_out), dtype=x.dtype)
        y[:, :whole] = row_products(x, panels).transpose(1, 0, 2).reshape(len(x), whole)    # [n_panels, n, width] -> [n, whole]
        y[:, whole:] = row_products(x, w[:, whole:])
    if b is not None:
        y += b
    return y


def lay_out(w):
    """w [n_in, n_out], with the weights of each output next to each other in memory, as panels need them."""
    return xp.ascontiguousarray(w.T).T
