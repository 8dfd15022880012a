"""compute/threads.py: shared work is done completely, arrays do not overlap, forked processes multiply."""
import contextlib
import os
import runpy
import signal

import numpy as np
import pytest

from compute import threads
from compute.linear import lay_out, linear
from utils import load_model

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
no_warning = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def n_threads(monkeypatch):
    """use(n) sets the number of threads, with a new queue."""
    def use(n):
        monkeypatch.setattr(threads, "THREADS", n)
        threads.workers.cache_clear()
    yield use
    threads.workers.cache_clear()


@pytest.mark.parametrize("n_cores", [1, 2, 3, 8])
def test_work_is_shared_whole_between_threads_and_an_error_comes_back(n_cores, n_threads):
    n_threads(n_cores)
    for n in (1, 2, 7, 50):
        done = np.zeros(n)

        def work(i, j):
            assert 0 <= i <= j <= n
            done[i:j] += 1
        threads.share(work, n, 10 ** 7)
        assert (done == 1).all()

    def fails(i, j):
        if i < 50 <= j:
            raise MemoryError("the last part")
    with pytest.raises(MemoryError, match="the last part"):
        threads.share(fails, 50, 10 ** 7)


def in_a_fork(works):
    """Whether works() is true in a forked process, which is ended if it hangs."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if works() else 1)
    return os.waitpid(child, 0)[1] == 0


@forks
@no_warning
def test_a_forked_process_can_multiply(n_threads):
    n_threads(2)
    x, w, b = np.ones((2, 1024), np.float32), np.ones((1024, 1024), np.float32), np.zeros(1024, np.float32)
    w = lay_out(w)
    assert w.size > threads.SHARE and (linear(x, w, b) == 1024).all()           # the threads exist now
    assert in_a_fork(lambda: (linear(x, w, b) == 1024).all())


@pytest.fixture
def library(monkeypatch):
    """A list of the numbers of threads that a stand-in for the library was given, 7 at first."""
    given = [7]
    monkeypatch.setattr(threads, "blas_threads", lambda: (lambda: given[-1], given.append))
    return given


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, MemoryError])
def test_the_librarys_threads_come_back(library, error):
    for number in 7, 5:                                         # the caller may change it in between
        library.append(number)
        with pytest.raises(error) if error else contextlib.nullcontext():
            with threads.one_blas_thread():
                with threads.one_blas_thread():
                    assert library[-1] == 1
                assert library[-1] == 1                         # the outer block is not over
                if error:
                    raise error
        assert library[-1] == number


def test_the_librarys_own_functions_are_found_and_a_caller_sees_no_change():
    if not threads.blas_threads():
        pytest.skip("the functions of this NumPy's library are not known")
    get, _ = threads.blas_threads()
    before = get()
    with threads.one_blas_thread():
        assert get() == 1
    assert get() == before
    model, _ = load_model("demo-draft")
    model(list(range(200)))
    assert get() == before


def test_arrays_of_an_arena_lie_apart_and_begin_with_a_cache_line():
    arena, large = threads.Arena(), threads.ARENA // 4 + 1
    arrays = [arena.zeros(shape, dtype) for shape, dtype in
              [((3, 5), "f"), ((2, 7, 1), "d"), ((large,), "f"), ((3,), "f")]]
    for number, array in enumerate(arrays):
        assert array.ctypes.data % 64 == 0 and not array.any()
        array[...] = number + 1
    assert all((array == number).all() for number, array in enumerate(arrays, 1))
    assert [array.shape for array in arrays] == [(3, 5), (2, 7, 1), (large,), (3,)]


def test_the_number_of_threads_is_the_one_that_is_set_or_that_of_the_cores(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "")
    for words, expected in [("4,2", 4), ("0", None), ("abc", None)]:
        monkeypatch.setenv("OMP_NUM_THREADS", words)
        assert runpy.run_path(threads.__file__)["THREADS"] == (expected or min(4, os.cpu_count())), words
