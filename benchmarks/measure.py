"""What the machine is, and what it gives.

    machine(), caption()        hardware, NumPy and BLAS or CuPy, in words
    seconds(n, f, g)            medians over repetitions f g f g
    bandwidth(n)                the limit: bytes of weights a second
    size_of(model)              bytes of its weights

But: memory is the host's; how much of a GPU's is taken is not said.
"""
import contextlib
import functools
import os
import platform
from pathlib import Path
from statistics import median

import numpy as np

from compute.backend import clock, gpu, xp

# The machine ------------------------------------------------------------------------------------------------

def machine():
    """What figures depend on: {name: words or number}."""
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        cpu = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    build = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    blas = f"{build['name']} {build['version']}"                # as NumPy was built
    with contextlib.suppress(ImportError, StopIteration):       # as it runs, if threadpoolctl is there to ask
        from threadpoolctl import threadpool_info
        pool = next(pool for pool in threadpool_info() if pool["user_api"] == "blas")
        blas = (f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')}, "
                f"{pool['num_threads']} threads")
    return {"CPU": cpu, "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}",
            "Python": platform.python_version(), "NumPy": np.__version__, "BLAS": blas, "dtype": "float32",
            **gpu(),
            **{key: value for key, value in sorted(os.environ.items()) if key.startswith("OPENBLAS_")}}


def caption():
    """The machine in a line, for figures and tables of times; it says so if the machine is busy now."""
    m = machine()
    line = f"{m['CPU']}, {m['cores']} cores, NumPy {m['NumPy']}, {m['BLAS']}, {m['dtype']}"
    A = np.ones((512, 512), np.float32)
    times = []
    for _ in range(60):
        start = clock()
        A @ A
        times.append(clock() - start)
    ratio = sum(times) / len(times) / min(times)                # 1 if nothing else runs
    return line if ratio < 1.4 else (f"{line}\nBUSY: other programs make a product take {ratio:.1f} times as "
                                     "long as it can. Run this again when they are done.")


def seconds(repetitions, *runs):
    """Median seconds of each run, in the order A B A B, after one of each to warm up."""
    times = [[] for _ in runs]
    for _ in range(repetitions + 1):
        for run, mine in zip(runs, times):
            start = clock()
            run()
            mine.append(clock() - start)
    return [median(mine[1:]) for mine in times]


@functools.cache
def bandwidth(n):
    """Bytes a second at which a product of one row gets its weights [n, n]; of A @ y and y @ A the better."""
    rng = np.random.default_rng(0)
    A = xp.asarray(rng.random((n, n), dtype=np.float32))
    y = xp.asarray(rng.random(n, dtype=np.float32))
    return A.nbytes / min(seconds(9, lambda: A @ y, lambda: y @ A))


# One pass ---------------------------------------------------------------------------------------------------

def arrays_of(params):
    """All arrays of nested parameters."""
    if isinstance(params, xp.ndarray):
        return [params]
    parts = params.values() if isinstance(params, dict) else params
    return [array for part in parts for array in arrays_of(part)]


def size_of(*models):
    """Bytes of the weights.  What models share counts once, and so do token embeddings that are the head."""
    weights = [value for model in models for name, value in model.params.items() if name != "head"]
    return sum({id(array): array.nbytes for array in arrays_of(weights)}.values())


def some_tokens(model, n):
    return [token % model.n_vocab for token in range(n)]
