"""One product shared between a few threads, and memory for many arrays side by side.

NumPy releases Python's lock while it multiplies, so threads that each multiply a part run at the same time.
OpenBLAS and MKL have threads of their own for large products.  Theirs and ours would wait for each other, so
`one_blas_thread` keeps theirs out of a product.

Limitations: a few cores use up the memory bandwidth, so there are at most four threads, unless
OPENBLAS_NUM_THREADS or OMP_NUM_THREADS sets another number.
"""
import contextlib
import ctypes
import functools
import itertools
import math
import os
import queue
import threading
from pathlib import Path

import numpy as np

SHARE = 1_000_000                   # weights; work shorter than reading them is not shared
LATE = 250_000                      # weights that the caller reads until another thread has woken up
LINE, HUGE, ARENA = 64, 2 ** 21, 2 ** 25    # bytes: a cache line, a huge page, the smallest arena
SET = (os.environ.get("OPENBLAS_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS") or "").split(",")[0]
BLAS = [("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"),      # in NumPy's wheels
        ("openblas_get_num_threads", "openblas_set_num_threads"),
        ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
        ("bli_thread_get_num_threads", "bli_thread_set_num_threads")]
THREADS = int(SET) if SET.isdecimal() and int(SET) else min(4, os.cpu_count() or 1)


@functools.cache
def workers():
    """The queue of THREADS - 1 threads that wait for work. (concurrent.futures takes 50 us longer.)"""
    def work():
        while True:
            f, i, j, done = jobs.get()
            try:
                f(i, j)
                done.put(None)
            except BaseException as error:              # for the caller to deal with
                done.put(error)

    jobs = queue.SimpleQueue()
    for _ in range(THREADS - 1):
        threading.Thread(target=work, daemon=True).start()
    return jobs


if hasattr(os, "register_at_fork"):                     # a forked process has the queue, but not its threads
    os.register_at_fork(after_in_child=workers.cache_clear)


def share(f, n, work):
    """f(0, n), or its parts f(i, j) at the same time if there is much work. It returns when all have ended.

    work    the time that f(0, n) takes, as the number of weights that could be read in that time

    The caller starts before the other threads. So its part is larger by LATE weights, and all end together.
    """
    if work < SHARE or THREADS == 1:
        return f(0, n)
    first = round(n / THREADS * (1 + (THREADS - 1) * LATE / work))
    cuts = [first + (n - first) * i // (THREADS - 1) for i in range(THREADS)]
    done = queue.SimpleQueue()
    for i, j in zip(cuts, cuts[1:]):
        workers().put((f, i, j, done))
    f(0, first)
    for error in [done.get() for _ in cuts[1:]]:
        if error is not None:
            raise error


@functools.cache
def blas_threads():
    """(get, set) for the number of threads of NumPy's library, if the list above has their names."""
    wheels = Path(np.__file__).parents[1].glob("numpy.libs/*openblas*")
    for path, (get, set_) in itertools.product([*wheels, np._core._multiarray_umath.__file__], BLAS):
        with contextlib.suppress(AttributeError, OSError):
            library = ctypes.CDLL(str(path))                    # this file, or one that it was linked with
            return getattr(library, get), getattr(library, set_)
    return int, int                                             # without effect


@contextlib.contextmanager
def one_blas_thread():
    """Inside, NumPy's library has one thread; afterwards, as many as before."""
    get, set_ = blas_threads()
    before = get()
    try:
        set_(1)
        yield
    finally:
        set_(before)


class Arena:
    """Room for many arrays side by side, in one large array, to which Linux gives huge pages. Addresses in
    them are found faster, which saves a tenth of the embedded target's time."""

    def __init__(self):
        self.left = np.empty(0, np.uint8)

    def zeros(self, shape, dtype):
        n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        room = -(-n_bytes // LINE) * LINE
        if room > len(self.left):
            array = np.zeros(max(room, ARENA) + HUGE, np.uint8)
            self.left = array[-array.ctypes.data % HUGE:]
        taken, self.left = self.left[:n_bytes], self.left[room:]
        return taken.view(dtype).reshape(shape)
