"""The array module: NumPy, or CuPy after `use("cupy")`; for a GPU also copies to the host and a clock.

`xp` is a namespace with the functions of the module in use, so a file that begins with `from
engine.compute.backend import xp` still follows a later switch.

Limitations: one switch for the whole program, to be set before a model is loaded.
"""
import importlib
import types
from time import perf_counter

xp = types.SimpleNamespace()


def use(name):
    """Fill `xp` with the functions of `name`: "numpy" or "cupy".

    Raises ValueError, with one sentence, if the module, its driver or its device is missing.
    """
    if name not in ("numpy", "cupy"):
        raise ValueError(f"there is no backend {name!r}: use numpy or cupy")
    try:
        module = importlib.import_module(name)
        one = module.ones((1, 1), dtype=module.float32)
        to_host(one @ one)                              # fails without a driver, a device or CUDA's libraries
    except Exception as error:                          # CuPy raises exceptions of its own
        raise ValueError(f"the backend {name} does not work here ({error!r:.200}): it needs an NVIDIA GPU, "
                         'its driver and pip install "cupy-cuda12x[ctk]"; or use --backend numpy') from None
    xp.__dict__.clear()
    # vars, not dir: dir also names submodules, and importing NumPy's would take 60 ms
    xp.__dict__.update({key: value for key, value in vars(module).items() if not key.startswith("_")})
    if not hasattr(xp, "vecdot"):                       # CuPy 14.2 does not have it
        xp.vecdot = lambda a, b: (a * b).sum(axis=-1)


def on_gpu():
    return hasattr(xp, "cuda")


def to_host(x):
    """The array as a NumPy array."""
    return x.get() if hasattr(x, "get") else x


def clock():
    """Seconds.  CuPy's functions return before the GPU has finished, so this waits for it first."""
    if on_gpu():
        xp.cuda.get_current_stream().synchronize()
    return perf_counter()


def gpu():
    """What to report with measurements, {name: words}; {} if no GPU is in use."""
    if not on_gpu():
        return {}
    cupy = importlib.import_module("cupy")
    device = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return {"GPU": device["name"].decode(), "CuPy": cupy.__version__}


use("numpy")
