"""The array module, and matrix products of few rows, shared among threads."""
from engine.compute import backend as backends
from engine.compute import probe
from engine.compute.backend import xp
from engine.compute.linear import row_products, total

__all__ = ["configure", "row_products", "total", "xp"]


def configure(backend="numpy", fast=False):
    """Call before models are loaded; holds for the whole program.

    backend     "numpy" or "cupy"; ValueError if it does not work here
    fast        give up batch invariance for speed (engine/compute/probe.py)
    """
    backends.use(backend)
    probe.FAST = fast
