"""compute/threads.py: parts of work come back whole, arrays lie apart, locks survive a fork."""
import contextlib
import copy
import gc
import linecache
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from helpers import interrupted

from compute import threads
from compute.linear import lay_out, linear
from utils import load_model

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
no_warning = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def n_threads(monkeypatch):
    """Sets the number of threads, with a queue of their own."""
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


def test_an_error_comes_back_when_all_parts_have_ended(n_threads):
    n_threads(3)
    failed, ended = threading.Event(), []

    def work(i, j):
        if j == 30:
            failed.wait()
            time.sleep(.05)
            ended.append(j)
        elif i:
            failed.set()
            raise MemoryError("the part in the middle")
    with pytest.raises(MemoryError):
        threads.share(work, 30, 10 ** 7)
    assert ended == [30]


def test_a_thread_that_waits_keeps_no_arrays_alive(n_threads):
    class Work:
        def __call__(self, i, j):
            pass

    n_threads(2)
    work = Work()
    threads.share(work, 30, 10 ** 7)
    alive = weakref.ref(work)
    del work
    for _ in range(100):                                        # the thread may be a moment late
        gc.collect()
        if alive() is None:
            break
        time.sleep(.01)
    assert alive() is None


def in_a_fork(works):
    """Whether works() is true in a forked process; one that hangs is ended."""
    child = os.fork()
    if child == 0:
        os._exit(0 if works() else 1)
    for _ in range(400):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


@forks
@no_warning
def test_a_forked_process_can_multiply(n_threads):
    n_threads(2)
    x, w, b = np.ones((2, 1024), np.float32), np.ones((1024, 1024), np.float32), np.zeros(1024, np.float32)
    w = lay_out(w)
    assert w.size > threads.SHARE and (linear(x, w, b) == 1024).all()           # the threads are there
    assert in_a_fork(lambda: (linear(x, w, b) == 1024).all())


@forks
@no_warning
def test_a_process_that_is_forked_during_a_wave_can_run_a_prompt(n_threads):
    n_threads(2)
    model, _ = load_model("demo-draft")
    tokens, forked = list(range(200)), []
    expected, layer = model(tokens), model.layer

    def forks_once(i, x, n_past, mask):
        if i and not forked:                                    # in a thread of the wave
            model.layer = layer
            forked.append(in_a_fork(lambda: np.allclose(model(tokens[:150]), others, atol=1e-4)))
        return layer(i, x, n_past, mask)
    others = model(tokens[:150])
    model.reset()
    model.layer = forks_once
    assert np.allclose(model(tokens), expected, atol=1e-4) and forked == [True]


@forks
@no_warning
def test_a_process_that_is_forked_while_another_thread_computes_can_use_the_same_model():
    model, _ = load_model("demo-draft")
    expected, reached, go_on = model([1, 2, 3]), threading.Event(), threading.Event()
    layers = model.layers

    def stopped(*arguments):
        reached.set()
        go_on.wait(20)
        return layers(*arguments)
    model.layers = stopped
    other = threading.Thread(target=model, args=([4, 5, 6, 7],))
    other.start()
    try:
        assert reached.wait(20)
        model.layers = layers
        assert in_a_fork(lambda: np.allclose(model([1, 2, 3]), expected, atol=1e-4))
    finally:
        go_on.set()
        other.join()


@pytest.fixture
def library(monkeypatch):
    """A library of which we see every number of threads that it was given, 7 at first."""
    given = [7]
    monkeypatch.setattr(threads, "blas_threads", lambda: (lambda: given[-1], given.append))
    return given


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, MemoryError])
def test_the_librarys_threads_come_back(library, error):
    for number in 7, 5:                                         # whatever the caller has set in between
        library.append(number)
        with pytest.raises(error) if error else contextlib.nullcontext():
            with threads.one_blas_thread():
                with threads.one_blas_thread():
                    assert library[-1] == 1
                assert library[-1] == 1                         # the outer one is not done
                if error:
                    raise error
        assert library[-1] == number and not threads.INSIDE.users


def test_the_last_thread_that_leaves_gives_the_librarys_threads_back(library):
    entered, go_on = threading.Event(), threading.Event()

    def other():
        with threads.one_blas_thread():
            entered.set()
            go_on.wait(20)
    thread = threading.Thread(target=other)
    with threads.one_blas_thread():
        thread.start()
        assert entered.wait(20)
    assert library[-1] == 1
    go_on.set()
    thread.join()
    assert library[-1] == 7


def test_ctrl_c_at_any_line_leaves_the_librarys_threads_as_they_were(library):
    def lines_run(stop_at):
        """How many lines ran; before number stop_at came Ctrl-C."""
        seen = []

        def trace(frame, event, _):
            # no signal comes at a `try`, nor at a `with` that is seen again at its end
            line = id(frame), frame.f_lineno
            text = linecache.getline(threads.__file__, frame.f_lineno).strip()
            if (frame.f_code.co_filename == threads.__file__ and event == "line" and line not in seen
                    and text not in ("try:", "finally:")):
                seen.append(line)
                if len(seen) == stop_at:
                    raise KeyboardInterrupt
            return trace
        sys.settrace(trace)
        try:
            with contextlib.suppress(KeyboardInterrupt), threads.one_blas_thread():
                pass
        finally:
            sys.settrace(None)
        return len(seen)

    for stop_at in range(1, lines_run(0) + 1):
        lines_run(stop_at)
        assert library[-1] == 7 and not threads.INSIDE.users, stop_at


@forks
@no_warning
def test_a_fork_during_a_product_has_the_librarys_threads_back(library):
    with threads.one_blas_thread():
        assert in_a_fork(lambda: library[-1] == 7 and not threads.INSIDE.users)
        assert library[-1] == 1


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


# The wave ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("n_cores, n_chunks, n_layers", [
    (1, 3, 2), (2, 1, 3), (2, 3, 1), (2, 4, 3), (2, 5, 2), (3, 2, 4), (3, 7, 3), (8, 5, 2), (2, 4, 0)])
def test_a_chunk_enters_a_layer_when_the_one_before_has_left_it(n_cores, n_chunks, n_layers, n_threads):
    n_threads(n_cores)
    begun, ended, rng = [], [], np.random.default_rng(0)
    pauses = rng.random((n_chunks, n_layers + 1)) / 500

    def step(chunk, layer):
        assert chunk == 0 or (chunk - 1, layer) in ended
        assert layer == 0 or (chunk, layer - 1) in ended
        begun.append((chunk, layer))
        time.sleep(pauses[chunk, layer])
        ended.append((chunk, layer))
    threads.wave(step, n_chunks, n_layers)
    assert sorted(begun) == sorted(ended) == [(c, i) for c in range(n_chunks) for i in range(n_layers)]


def test_threads_of_a_wave_work_at_the_same_time_share_no_products_and_keep_numpys_settings(n_threads):
    n_threads(3)
    met, parts, seen = threading.Barrier(3), [], []

    def step(chunk, layer):
        if layer == 2 - chunk:
            met.wait(20)                                        # all three are in some layer
        threads.share(lambda i, j: parts.append((i, j)), 50, 10 ** 7)
        seen.append(np.geterr()["over"])
    with np.errstate(over="raise"):
        threads.wave(step, 3, 3)
    assert parts == 9 * [(0, 50)] and set(seen) == {"raise"}
    threads.share(lambda i, j: parts.append((i, j)), 50, 10 ** 7)
    assert len(parts) == 12                                     # afterwards products are shared again


@pytest.mark.parametrize("chunk, layer", [(0, 0), (1, 1), (2, 0), (5, 2)])
@pytest.mark.parametrize("n_cores", [1, 2, 3])
def test_an_error_in_a_wave_comes_back_when_all_have_ended(chunk, layer, n_cores, n_threads, library):
    n_threads(n_cores)
    steps, before = [], threading.active_count()

    def step(*place):
        time.sleep(.001)
        steps.append(place)
        if place == (chunk, layer):
            raise MemoryError(str(place))
    with pytest.raises(MemoryError, match=re.escape(str((chunk, layer)))):
        threads.wave(step, 6, 3)
    n = len(steps)
    assert not {(chunk, layer + 1), (chunk + 1, layer)} & {*steps} and library[-1] == 7
    time.sleep(.01)
    assert len(steps) == n and threading.active_count() <= before


def test_ctrl_c_at_any_line_ends_a_wave(n_threads, monkeypatch):
    monkeypatch.setattr(threads, "one_blas_thread", contextlib.nullcontext)     # it has its own test
    n_threads(2)
    for n in range(1, 1000):
        inside = []

        def step(chunk, layer):
            inside.append(1)
            time.sleep(.001)
            inside.pop()
        was_interrupted = interrupted(lambda: threads.wave(step, 4, 2), n)
        assert not inside, n                                            # no step runs any more
        if not was_interrupted:
            break
    assert 30 < n < 999


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda lock: pickle.loads(pickle.dumps(lock))])
def test_a_lock_keeps_others_out_and_a_copy_of_it_is_free(copied):
    def enters(lock):
        with lock():
            entered.set()

    lock, entered = threads.Lock(), threading.Event()
    with lock(), lock():                                        # a thread may come again
        threading.Thread(target=enters, args=(copied(lock),), daemon=True).start()
        assert entered.wait(5)
        entered.clear()
        threading.Thread(target=enters, args=(lock,), daemon=True).start()
        assert not entered.wait(.05)
    assert entered.wait(5)


def test_threads_that_come_first_at_the_same_time_get_the_same_lock(monkeypatch):
    """A lock is made when it is first asked for, and meanwhile another thread may ask, too."""
    make, met, locks = threading.RLock, threading.Barrier(2), []

    def slowly():
        with contextlib.suppress(threading.BrokenBarrierError):
            met.wait(1)
        return make()

    monkeypatch.setattr(threading, "RLock", slowly)
    lock = threads.Lock()
    both = [threading.Thread(target=lambda: locks.append(lock())) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(5)
    assert locks[0] is locks[1]


def test_arrays_of_an_arena_lie_apart_and_begin_with_a_cache_line():
    arena, large = threads.Arena(), threads.ARENA // 4 + 1
    arrays = [arena.zeros(shape, dtype) for shape, dtype in
              [((3, 5), "f"), ((2, 7, 1), "d"), ((large,), "f"), ((3,), "f")]]
    for number, array in enumerate(arrays):
        assert array.ctypes.data % 64 == 0 and not array.any()
        array[...] = number + 1
    assert [set(array.ravel()) for array in arrays] == [{1}, {2}, {3}, {4}]
    assert [array.shape for array in arrays] == [(3, 5), (2, 7, 1), (large,), (3,)]


def test_the_number_of_threads_is_the_one_that_is_set_or_that_of_the_cores():
    for words, expected in [("4,2", 4), ("0", None), ("abc", None)]:
        code = "from compute import threads; print(threads.THREADS)"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                             env={**os.environ, "OPENBLAS_NUM_THREADS": "", "OMP_NUM_THREADS": words},
                             cwd=Path(__file__).parent.parent)
        assert int(run.stdout) == (expected or min(4, os.cpu_count())), words
