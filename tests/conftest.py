"""Makes `import gpt2` work from a fresh clone without an install, and makes hypothesis repeatable."""
import copy
import functools
import gc
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")   # each core already has a pytest worker

from hypothesis import settings

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS.parent), str(TESTS / "tools")]
import utils  # noqa: E402
from compute.backend import on_gpu  # noqa: E402
from loading.folder import EMBEDDED  # noqa: E402

read = utils.load_model
once = functools.cache(lambda name, folder: read(name))


def load_model(name, *folder):
    """Reads the files of each embedded model only once; every caller gets a copy with its own cache."""
    if name not in EMBEDDED or on_gpu():
        return read(name, *folder)
    model, encoder = once(name, os.getcwd())
    return copy.copy(model), encoder


utils.load_model = load_model           # before any test imports it

from browser import browser  # noqa: E402, F401 - a fixture that all tests of pages use

from reporting import comparison  # noqa: E402

comparison.REPEAT = 0                   # one pair of runs is enough for what main.py prints

collect_ignore = ["tools"]              # programs that make fixtures, and code that tests share

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")

gc.disable()                            # collecting thousands of tests makes no garbage


def pytest_collection_finish():
    gc.freeze()
    gc.enable()
