"""Work shared between a few threads, memory for many arrays side by side, and locks that a fork survives.

    share       the parts of one product
    wave        the chunks of a long prompt, each a layer behind the one before: all cores share all the work

NumPy releases Python's lock while it multiplies, so threads that each multiply a part run at the same time.
OpenBLAS and MKL have threads of their own for large products, and theirs and ours would wait for each other:
`one_blas_thread` keeps theirs out of a product.

But: a few cores use up the memory bandwidth, so there are at most four threads, unless OPENBLAS_NUM_THREADS
or OMP_NUM_THREADS sets another number.  A process that forks while another thread of it multiplies may hang
in the library (seen once in a thousand forks with OpenBLAS).  Several Ctrl-C within a few milliseconds may
leave the library with one thread (once in a thousand times): slower, but just as correct.
"""
import contextlib
import contextvars
import ctypes
import functools
import itertools
import math
import os
import queue
import threading
import time
import types
from pathlib import Path

import numpy as np

from compute.backend import on_gpu

SHARE = 1_000_000                   # weights; work shorter than reading these is not worth sharing
LATE = 250_000                      # weights that the caller reads before another thread has woken up
LINE, HUGE, ARENA = 64, 2 ** 21, 2 ** 25    # bytes: a cache line, a huge page, the smallest arena
SET = (os.environ.get("OPENBLAS_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS") or "").split(",")[0]
BLAS = [("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"),      # in NumPy's wheels
        ("openblas_get_num_threads", "openblas_set_num_threads"),
        ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
        ("bli_thread_get_num_threads", "bli_thread_set_num_threads")]
ALONE = contextvars.ContextVar("a thread of a wave, which shares no work", default=False)
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


def share(f, n, work):
    """f(0, n), or, if there is much work, parts f(i, j) at the same time. All have ended when it returns.

    work    as the number of weights that are read in the same time. The caller starts LATE weights ahead, so
            that all end together.
    """
    if work < SHARE or THREADS == 1 or ALONE.get():
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


def wave(step, n_chunks, n_layers):
    """step(chunk, layer) for all chunks and layers. A chunk enters a layer when the one before has left it.

    Each of THREADS threads takes the next chunk when it is done with one; they share no products meanwhile.
    No step runs any more when it returns or raises.
    """
    if min(n_chunks, n_layers, THREADS) <= 1 or on_gpu():
        for chunk, layer in itertools.product(range(n_chunks), range(n_layers)):
            step(chunk, layer)
        return
    todo, running, stopped = iter(range(n_chunks)), [], []
    left = [queue.SimpleQueue() for _ in range(n_chunks)]       # of each, by layer: None, or an error

    def run():
        ALONE.set(True)
        error = None
        running.append(True)
        for chunk in todo:
            for layer in range(n_layers):
                error = (left[chunk - 1].get() if chunk else None) or error
                try:
                    if not (error or stopped):
                        step(chunk, layer)
                except BaseException as raised:                 # for the caller to deal with
                    error = raised
                left[chunk].put(error)
        running.pop()

    def stop():
        stopped.append(True)                                    # a thread that begins later does nothing
        try:
            while running:                                      # an event could stay locked after Ctrl-C
                time.sleep(1e-4)
        except BaseException:                                   # another Ctrl-C
            stop()
            raise

    try:
        with one_blas_thread():
            for _ in range(min(THREADS, n_chunks)):
                as_here = contextvars.copy_context().run        # with the caller's np.errstate
                threading.Thread(target=as_here, args=[run], daemon=True).start()
            for _ in range(n_layers):
                if error := left[-1].get():
                    raise error
    finally:
        try:
            stop()
        finally:
            stop()                                              # again, if Ctrl-C came just there


class Lock:
    """`with lock():` one thread at a time, which may come again; a copy or a forked process starts with a
    free lock.

    After a fork only the thread that forked goes on, so a lock that another thread held would stay locked.
    The `with` itself takes Python's own lock: in an __enter__ of ours Ctrl-C could come right after it.
    """

    def __init__(self):
        self.of_process = {}                                    # {process id: its lock}

    def __call__(self):
        return self.of_process.setdefault(os.getpid(), threading.RLock())       # in one step

    def __reduce__(self):                                       # pickle and copy.deepcopy
        return Lock, ()


@functools.cache
def blas_threads():
    """(get, set), which read and set the number of threads of NumPy's library; None if they are not known."""
    wheels = Path(np.__file__).parents[1].glob("numpy.libs/*openblas*")
    for path, (get, set_) in itertools.product([*wheels, np._core._multiarray_umath.__file__], BLAS):
        with contextlib.suppress(AttributeError, OSError):
            library = ctypes.CDLL(str(path))                    # this file, or one that it was linked with
            return getattr(library, get), getattr(library, set_)


@contextlib.contextmanager
def one_blas_thread():
    """In here NumPy's library has one thread, and afterwards as many as before. Threads may share it."""
    get, set_ = blas_threads() or (int, int)
    me = object()
    try:
        with INSIDE.lock():
            if not INSIDE.users:
                INSIDE.before = get()
            INSIDE.users.add(me)
            set_(1)
        yield
    finally:
        try:
            leave(me)
        finally:
            leave(me)                                           # again, if Ctrl-C came just there


def leave(user):
    with INSIDE.lock():
        if INSIDE.users == {user} and blas_threads():
            blas_threads()[1](INSIDE.before)
        INSIDE.users.discard(user)


INSIDE = types.SimpleNamespace(lock=Lock(), users=set(), before=0)


def after_fork():
    """A fork has the queue, but not its threads, nor others that multiply."""
    workers.cache_clear()
    for user in [*INSIDE.users]:
        leave(user)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=after_fork)


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
