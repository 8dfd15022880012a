"""The machine and its speed.

    machine(), caption()        hardware, NumPy and BLAS or CuPy, in words
    in_turns(runs, n)           seconds of each call; the runs take turns, f g f g
    seconds(n, f, g)            medians of these
    bandwidth(n)                the speed limit: bytes of weights read per second
    size_of(model)              bytes of its weights
"""
import contextlib
import os
import platform
from pathlib import Path
from statistics import median

import numpy as np
from tqdm import tqdm

from engine.compute.backend import clock, gpu, xp

# The machine ------------------------------------------------------------------------------------------------

def machine():
    """{name: words or number} of what times depend on."""
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        cpu = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    build = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    blas = f"{build['name']} {build['version']}"                # as NumPy was built
    with contextlib.suppress(ImportError, StopIteration):       # as it runs; this needs threadpoolctl
        from threadpoolctl import threadpool_info
        pool = next(pool for pool in threadpool_info() if pool["user_api"] == "blas")
        blas = (f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')}, "
                f"{pool['num_threads']} threads")
    return {"CPU": cpu, "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}",
            "Python": platform.python_version(), "NumPy": np.__version__, "BLAS": blas, "dtype": "float32",
            **gpu(),
            **{key: value for key, value in sorted(os.environ.items()) if key.startswith("OPENBLAS_")}}


def caption():
    """The machine in one line, for figures and tables of times, with a warning if it is busy."""
    m = machine()
    line = f"{m['CPU']}, {m['cores']} cores, NumPy {m['NumPy']}, {m['BLAS']}, {m['dtype']}"
    A = np.ones((512, 512), np.float32)
    times, = in_turns({"": lambda: A @ A}, 60).values()
    ratio = sum(times) / len(times) / min(times)                # near 1 if nothing else runs
    return line if ratio < 1.4 else (f"{line}\nBUSY: other programs make a product take {ratio:.1f} times as "
                                     "long as it can. Run this again when they are done.")


def in_turns(runs, n, limit=float("inf")):
    """Time {name: run} in turns -> {name: seconds of each call}.  After one turn to warm up there are `n`
    turns, or fewer if `limit` seconds are over."""
    times, start = {name: [] for name in runs}, clock()
    for _ in tqdm(range(n + 1), disable=None):
        for name, run in runs.items():
            begin = clock()
            run()
            times[name].append(clock() - begin)
        if clock() - start > limit:
            break
    return {name: mine[1:] or mine for name, mine in times.items()}


def seconds(repetitions, *runs):
    """Median seconds of each run."""
    return [median(mine) for mine in in_turns(dict(enumerate(runs)), repetitions).values()]


def bandwidth(n):
    """Bytes per second at which a product of one row reads its weights [n, n]: the faster of two products,
    as which one that is depends on the kernels."""
    rng = np.random.default_rng(0)
    A = xp.asarray(rng.random((n, n), dtype=np.float32))
    y = xp.asarray(rng.random(n, dtype=np.float32))
    return A.nbytes / min(seconds(50, lambda: A @ y, lambda: y @ A))


# One pass ---------------------------------------------------------------------------------------------------

def arrays_of(params):
    """All arrays, or Tiles, of nested parameters."""
    if hasattr(params, "nbytes"):
        return [params]
    parts = params.values() if isinstance(params, dict) else params
    return [array for part in parts for array in arrays_of(part)]


def size_of(model):
    """Bytes of the weights.  The output head counts only once, as the token embeddings."""
    return sum(array.nbytes for array in arrays_of({**model.params, "lm_head": []}))
