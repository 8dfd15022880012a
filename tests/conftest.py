"""Makes `import gpt2` work from a fresh clone, without an install, and hypothesis repeat itself."""
import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")
