"""Fetches Pyodide, which the tests of the live page need: python tests/tools/get_pyodide.py FOLDER

Then run PYODIDE=FOLDER pytest tests/test_live.py -m "long or browser".  The runtime comes from npm (node and
npm are needed), the wheels of NumPy and regex from where the page loads them.  About 20 MB.
"""
import json
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory

from pages.site import PYODIDE

VERSION = re.search(r"/v([\d.]+)/", PYODIDE)[1]


def main(folder):
    with TemporaryDirectory() as work:
        npm = ["npm", "install", "--silent", "--prefix", work, f"pyodide@{VERSION}"]
        if subprocess.run(npm).returncode:
            sys.exit("npm could not fetch Pyodide: the tests that need it are skipped")
        shutil.copytree(Path(work) / "node_modules" / "pyodide", folder)
    packages = json.loads((folder / "pyodide-lock.json").read_text(encoding="utf-8"))["packages"]
    for name in "numpy", "regex":               # Pyodide compares their checksums with its lock file
        file = packages[name]["file_name"]
        try:
            with urllib.request.urlopen(PYODIDE + file, timeout=60) as wheel:
                (folder / file).write_bytes(wheel.read())
        except OSError:
            sys.exit(f"{PYODIDE + file} could not be fetched: the tests that need it are skipped")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
