"""A static site that needs no installation.  python -m pages FOLDER"""
import re
import sys
from pathlib import Path

from engine.loading import command_line
from pages.files import write_folder
from pages.site import PYODIDE, pages


def main(folder, repository="", address="", pyodide=PYODIDE):
    """Write the site to a folder that a web server can serve: python -m http.server -d FOLDER.

    Args:
        folder: where to write; it may exist, and other files in it stay
        repository: the web address of the code, for a link to it: https://github.com/us/it
        address: the web address of the site, for the preview of a link to it: https://us.github.io/it
        pyodide: the web address of Python for browsers, for networks that block the usual one
    """
    if not folder or Path(folder).exists() and not Path(folder).is_dir():
        raise ValueError(f"cannot write to {folder!r}: name a folder")
    if not re.fullmatch(r"https?://[^\s;,'\"]+", pyodide):       # it becomes part of the page's policy
        raise ValueError(f"--pyodide {pyodide}: give an address that begins with https:// or http://")
    write_folder(folder, pages(repository.rstrip("/"), address.rstrip("/"), pyodide.rstrip("/") + "/"))
    print(f"python -m http.server -d {folder}    serves it at http://localhost:8000")


if __name__ == "__main__":
    sys.exit(command_line.run(main))
