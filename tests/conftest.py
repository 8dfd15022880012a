"""Makes `import gpt2` work from a fresh clone, without an install, and hypothesis repeat itself."""
import copy
import functools
import gc
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")   # there is a worker for each core already

from hypothesis import settings

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS.parent), str(TESTS / "tools")]
import utils  # noqa: E402
from compute.backend import on_gpu  # noqa: E402
from loading.folder import EMBEDDED  # noqa: E402

read = utils.load_model
once = functools.cache(lambda name, folder: read(name))


def load_model(name, *folder):
    """The embedded models are read from their files once; each time they get a cache of their own."""
    if name not in EMBEDDED or on_gpu():
        return read(name, *folder)
    model, encoder = once(name, os.getcwd())
    return copy.copy(model), encoder


utils.load_model = load_model           # before anybody imports it

from browser import browser  # noqa: E402, F401 - a fixture of all tests of pages

from reporting import comparison  # noqa: E402

comparison.REPEAT = 0                   # what main.py prints may be of a single pair of runs

collect_ignore = ["tools"]              # programs that make fixtures, and what tests share

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")

gc.disable()                            # while thousands of tests are collected, which are not garbage


def pytest_collection_finish():
    gc.freeze()
    gc.enable()
