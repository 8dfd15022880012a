"""Writes pages to disk, whole or not at all, and never replaces a file that this project did not write.

    check_place(path)                   before the work: ValueError if a page cannot be written there
    write_folder(folder, pages)         {file: html, or bytes}; other files in the folder stay

A page is first written to a temporary file beside its place, which is then renamed.  Our pages begin with
MARK.  A symbolic link stays one: the page is written where the link points.

Limitations: pipes and devices (/dev/stdout) are refused: renaming would replace them by a file.
"""
import os
from pathlib import Path

from engine.loading.files import rewrite

MARK = ('<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="generator" content="speculative-sampling-numpy">')


def check_place(path):
    """Raises ValueError if a page cannot be written to `path`, or would replace a file that is not ours."""
    real = Path(os.path.realpath(path))                         # where symbolic links point
    folder = real.parent
    if (not os.path.basename(path) or real.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK)):
        raise ValueError(f"cannot write {path}: name a file in a folder that you can write to")
    if (os.path.exists(path) or os.path.lexists(real)) and not is_ours(real):   # /dev/stdout's may not exist
        raise ValueError(f"{path} exists and was not written by this program: take another name")


def is_ours(path):
    """Whether the file begins as our pages do.  (A picture has MARK as its first comment.)"""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(500).replace(b"\r\n", b"\n")
    return head.startswith(MARK.encode()) or head.startswith(b"\x89PNG") and MARK.encode() in head


def write_folder(folder, pages):
    """Writes all pages, or none if one of them would replace a file that is not ours."""
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    for file in pages:
        check_place(folder / file)
    for file, html in pages.items():
        rewrite(folder / file, html)
