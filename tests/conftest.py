"""Makes `import gpt2` work from a fresh clone, without an install, and hypothesis repeat itself."""
import gc
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")   # there is a worker for each core already

from hypothesis import settings

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS.parent), str(TESTS / "tools")]
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
