"""The array module: NumPy, or CuPy after `use("cupy")`.

`xp` is a namespace that holds the functions of the module in use, so `from backend import xp` may stand at the top of a file
and the switch still reaches it.

But: it is one switch for the whole program, made before a model is loaded.
"""
import importlib
import types

xp = types.SimpleNamespace()


def use(name):
    """Fill `xp` with the functions of `name`: "numpy" or "cupy".

    Raises ValueError in one sentence where the module, its driver or its device is missing.
    """
    if name not in ("numpy", "cupy"):
        raise ValueError(f"there is no backend {name!r}: use numpy or cupy")
    try:
        module = importlib.import_module(name)
        module.zeros(1) + 1                                     # the driver and the device answer
    except Exception as error:                                  # CuPy raises its own kinds for a driver that is not there
        raise ValueError(f"the backend {name} does not work here ({error or type(error).__name__}): "
                         "install CuPy and a CUDA driver on a machine with a GPU, or use --backend numpy") from None
    xp.__dict__.clear()
    xp.__dict__.update({key: getattr(module, key) for key in dir(module) if not key.startswith("_")})


def to_host(x):
    """The array as a NumPy array."""
    return x.get() if hasattr(x, "get") else x


use("numpy")
