"""Work shared between a few threads, memory for many arrays side by side, and locks that a fork survives.

NumPy releases Python's lock while it multiplies, so threads that each multiply a part run at the same time.
OpenBLAS has its own threads, which would wait for ours; compute/linear.py gives it pieces so small that
it does not wake them.

But: a few cores use up the memory bandwidth, so there are at most four threads, unless OPENBLAS_NUM_THREADS
or OMP_NUM_THREADS sets another number.
"""
import functools
import math
import os
import queue
import threading
from collections import defaultdict

import numpy as np

SHARE = 1_000_000                   # weights; work shorter than reading these is not worth sharing
LATE = 250_000                      # weights that the caller reads before another thread has woken up
LINE, HUGE, ARENA = 64, 2 ** 21, 2 ** 25    # bytes: a cache line, a huge page, the smallest arena
SET = (os.environ.get("OPENBLAS_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS") or "").split(",")[0]
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
            f = done = None                             # a waiting thread keeps no arrays alive

    jobs = queue.SimpleQueue()
    for _ in range(THREADS - 1):
        threading.Thread(target=work, daemon=True).start()
    return jobs


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=workers.cache_clear)     # a fork has the queue, but not its threads


def share(f, n, work):
    """f(0, n), or, if there is much work, parts f(i, j) at the same time. All have ended when it returns.

    work    as the number of weights that are read in the same time. The caller starts LATE weights ahead, so
            that all end together.
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


class Lock:
    """`with lock():` one thread at a time, which may come again; a copy or a forked process starts with a
    free lock.

    After a fork only the thread that forked goes on, so a lock that another thread held would stay locked.
    The `with` itself takes Python's own lock: in an __enter__ of ours Ctrl-C could come right after it.
    """

    def __init__(self):
        self.of_process = defaultdict(threading.RLock)          # {process id: its lock}

    def __call__(self):
        return self.of_process[os.getpid()]

    def __reduce__(self):                                       # pickle and copy.deepcopy
        return Lock, ()


class Arena:
    """Room for many arrays side by side. Linux gives a large array huge pages (NumPy asks for them): a few
    addresses to look up instead of thousands, which saves a tenth of the embedded target's time."""

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
