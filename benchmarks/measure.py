"""What the machine gives and what one pass of a model takes of it; `python -m benchmarks` makes tables of it.

    machine()                           hardware, NumPy and BLAS or CuPy, in words
    seconds(n, f, g)                    medians over repetitions f g f g
    bandwidth(n), product_rate(n)       the limits: bytes of weights and floating-point operations a second
    forward, parts, prefill, loading    rows of tables: a pass over few rows, by its parts, over a long
                                        prompt; a model from its files

But: memory is the host's; how much of a GPU's is taken is not told.
"""
import contextlib
import cProfile
import functools
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.synthetic import SIZES, random_model, write_folder
from compute.backend import clock, gpu, on_gpu, xp
from utils import load_model

# What gpt2.py spends its time on: (function, called by) -> part of a pass
PARTS = {
    ("linear", "attention"): "attention products",
    ("linear", "feed_forward"): "feed-forward products",
    ("linear", "logits"): "output head",
    ("row_products", "dot_product_attention"): "attention over the cache",
    ("softmax", "dot_product_attention"): "softmax",
    ("gelu", "feed_forward"): "gelu",
    ("layer_norm", "transformer_block"): "layer norm",
    ("layer_norm", "logits"): "layer norm",
}


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


@functools.cache
def product_rate(n):
    """Floating-point operations a second of a large product."""
    A = xp.asarray(np.random.default_rng(0).random((n, n), dtype=np.float32))
    return 2 * n ** 3 / seconds(5, lambda: A @ A)[0]


def resident():
    """Bytes of this process that are in memory; None where the system does not tell."""
    with contextlib.suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


# One pass ---------------------------------------------------------------------------------------------------

def named(name, models_dir):
    """A random model for a size of GPT-2, else the model of that name."""
    return random_model(name) if name in SIZES else load_model(name, models_dir)[0]


def label(name):
    return f"{name} (random)" if name in SIZES else name


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


def textbook(params):
    """The same parameters, matrices [n_in, n_out], not tiles (compute/linear.py), and no separate head."""
    if isinstance(params, list):
        return [textbook(part) for part in params]
    if not isinstance(params, dict):
        return params
    if "w" not in params:
        return {name: textbook(part) for name, part in params.items() if name != "head"}
    n_tiles, n_chunks, _, depth, width = params["w"].shape
    w = params["w"].transpose(1, 2, 3, 0, 4).reshape(n_chunks * depth, n_tiles * width)[:, :len(params["b"])]
    return {"w": w, "b": params["b"]}


def some_tokens(model, n):
    return [token % model.n_vocab for token in range(n)]


def forward(name, models_dir, repetitions, rows, n_cached, n_matrix):
    """A pass over the last 1, 2, 3 .. rows, on top of n_cached tokens in the cache."""
    model = named(name, models_dir)
    tokens = some_tokens(model, n_cached + max(rows))
    times = seconds(repetitions, *(functools.partial(model, tokens[:n_cached + n], n) for n in rows))
    size, rate = size_of(model), bandwidth(n_matrix)
    return [{"model": label(name), "rows": n, "cached": n_cached, "ms": time * 1e3,
             "over one row": time / times[0], "weights MB": size / 1e6, "GB/s": size / time / 1e9,
             "bandwidth GB/s": rate / 1e9, "over weights / bandwidth": time * rate / size}
            for n, time in zip(rows, times)]


def parts(name, models_dir, repetitions, rows, n_cached):
    """The same, by parts of gpt2.py."""
    model, table = named(name, models_dir), []
    tokens = some_tokens(model, n_cached + max(rows))
    for n in rows:
        passes = []
        for _ in range(repetitions + 1):
            with parts_timed() as spent:
                model(tokens[:n_cached + n], n)
            passes.append(spent)
        table += [{"model": label(name), "rows": n, "cached": n_cached, "part": part,
                   "ms": 1e3 * median(spent[part] for spent in passes[1:])} for part in sorted(passes[0])]
    return table


@contextlib.contextmanager
def parts_timed():
    """A Counter that holds the seconds of each part of what ran within, once that is done.

    Python's own profiler tells them: how long each function took, by who called it.
    """
    spent = Counter()
    clocks = {"timer": clock} if on_gpu() else {}               # the one that waits for the GPU
    profiler = cProfile.Profile(builtins=False, **clocks)
    start = clock()
    with profiler:
        yield spent
    total = clock() - start
    for caller in profiler.getstats():
        for called in caller.calls or []:
            part = PARTS.get((name_of(called.code), name_of(caller.code)))
            if part:
                spent[part] += called.totaltime
    spent["the rest"] = total - sum(time for part, time in spent.items() if part != "the rest")


def name_of(code):
    """Of a function in gpt2.py's namespace, from its code; functions written in C have none."""
    return getattr(code, "co_name", "")


def prefill(name, models_dir, repetitions, n_tokens, n_matrix):
    """A long prompt: the share of the machine's rate of products that the whole pass reaches."""
    model = named(name, models_dir)
    tokens, n_embd = some_tokens(model, min(n_tokens, model.n_ctx)), model.params["wte"].shape[1]
    n, n_layer = len(tokens), len(model.params["blocks"])
    time, = seconds(repetitions, lambda: (model.reset(), model(tokens)))
    pairs = n * (n + 1) / 2                                     # of a query and a key that it may see
    multiply_adds = n_layer * (12 * n * n_embd ** 2 + 2 * pairs * n_embd) + n_embd * model.n_vocab
    work = 2 * multiply_adds
    rate = product_rate(n_matrix // 4)
    return [{"model": label(name), "tokens": n, "seconds": time, "GFlop/s": work / time / 1e9,
             "sgemm GFlop/s": rate / 1e9, "share": work / time / rate}]


LOADING = """
import sys
from compute.backend import clock, use
from benchmarks.measure import resident, size_of
from utils import load_model
use(sys.argv[3])
before, start = resident() or 0, clock()
model, encoder = load_model(sys.argv[1], sys.argv[2])
loaded = clock()
model(encoder.encode("The"))
print(loaded - start, clock() - loaded, (resident() or 0) - before, size_of(model))
"""


def loading(name, models_dir, repetitions):
    """From files to the first token, each time in a new process.  The system keeps new files in memory."""
    with tempfile.TemporaryDirectory() as folder:
        if name in SIZES:
            write_folder(folder, name)
        command = [sys.executable, "-c", LOADING, folder if name in SIZES else name,
                   os.path.abspath(models_dir), "cupy" if on_gpu() else "numpy"]
        root = Path(__file__).resolve().parent.parent
        outputs = [subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
                   for _ in range(repetitions)]
    load, first, growth, size = (median(map(float, values)) for values in zip(*map(str.split, outputs)))
    return [{"model": label(name), "load s": load, "first token s": first, "weights MB": size / 1e6,
             "growth MB": growth / 1e6, "growth / weights": growth / size}]
