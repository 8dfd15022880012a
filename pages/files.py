"""Pages on disk: each is written beside its place and renamed, and only what this project wrote is replaced.

    check_place(path)                   before the work: ValueError if a page cannot be written there
    write_page(path, html)              one page, whole or not at all
    write_folder(folder, pages)         {file: html, or bytes}; other files in the folder stay

A page of ours has a mark in its head, one for runs that main.py wrote and one for the site, so that
neither replaces the other.  A symbolic link stays one: the page goes where it leads.

Limitations: a power failure between two renames leaves a folder of old and new pages, each of them whole;
pipes and devices (/dev/stdout) are refused, because nothing can be written beside them.
"""
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from console import rewrite, told

BEGIN = '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'      # then one of the marks
TRACE = '<meta name="generator" content="main.py --trace">'
SITE = '<meta name="generator" content="python -m pages">'


def has_mark(path, mark):
    """Is this a file that begins as our pages do?  (A video of 3 GB is not read to say no.)"""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(500).replace(b"\r\n", b"\n").startswith((BEGIN + mark).encode())


def check_place(path, mark=TRACE):
    """Raises ValueError if a page cannot be written to `path`, or would replace something else."""
    real = Path(os.path.realpath(path))                         # where symbolic links lead
    try:
        if real.is_dir() or not real.parent.is_dir():
            raise ValueError(f"cannot write {path}: name a file in a folder that exists, such as run.html")
        TemporaryDirectory(dir=real.parent).cleanup()           # can anything be written there?
        if os.path.lexists(real) and not has_mark(real, mark):
            raise ValueError(f"{path} exists and was not written by this program: take another name")
        if real.exists() and not os.access(real, os.W_OK):
            raise ValueError(f"{path} is write-protected: take another name")
    except OSError as error:
        raise ValueError(told(error, path)) from None


def write_page(path, html, mark=TRACE):
    """Raises ValueError; then what was there before is as it was."""
    check_place(path, mark)                                     # much may have happened since the first time
    try:
        rewrite(path, html)
    except OSError as error:
        raise ValueError(told(error, path)) from None


def write_folder(folder, pages):
    """Writes all pages, or none if one of them would replace something else.  Raises ValueError."""
    folder = Path(folder)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise ValueError(told(error, folder)) from None
    for file in pages:
        check_place(folder / file, SITE)
    for file, html in pages.items():
        write_page(folder / file, html, SITE)
