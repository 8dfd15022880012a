"""Pages on disk: each is written beside its place and renamed, and only what this project wrote is replaced.

    check_place(path)               before the work: ValueError if a page cannot be written there
    write_page(path, html)          one page, whole or not at all
    check_folder(folder)            the same two for a folder of pages
    write_folder(folder, pages)     {file: html, or bytes}

A page of ours has a mark in its head, one for runs that main.py wrote and one for the site, so that
neither replaces the other.  A symbolic link stays one: the page goes where it leads.

Limitations: what appears in the place of a page just between the last look and the rename is replaced; a
power failure between two renames leaves a folder of old and new pages, each of them whole; a program that is
killed while it writes leaves a folder .new.* behind, which can be deleted; pipes and devices (/dev/stdout)
are refused, because nothing can be written beside them.
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
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(500).replace(b"\r\n", b"\n").startswith((BEGIN + mark).encode())


def place(path):
    """Where a path leads, through symbolic links.  Raises ValueError if they lead in a circle."""
    real = Path(os.path.realpath(path))
    if real.is_symlink():
        raise ValueError(f"cannot write {path}: its symbolic links lead in a circle; take another name")
    return real


def sentences(check):
    """A decorator: OSErrors about the first argument, a path, become a ValueError of one sentence."""
    def checked(path, *arguments):
        try:
            return check(path, *arguments)
        except OSError as error:
            raise ValueError(told(error, path)) from None
    checked.__doc__ = check.__doc__
    return checked


@sentences
def check_place(path):
    """Raises ValueError if the page of a run cannot be written to `path`, or would replace something else."""
    real = place(path)
    if real.is_dir() or not real.parent.is_dir():
        raise ValueError(f"cannot write {path}: name a file in a folder that exists, as in --trace run.html")
    TemporaryDirectory(dir=real.parent, prefix=".new.").cleanup()
    if real.exists() and not has_mark(real, TRACE):
        raise ValueError(f"{path} exists and is not the page of a run: take another name, as run.html")
    if real.exists() and not os.access(real, os.W_OK):
        raise ValueError(f"{path} is write-protected: take another name, as in --trace run.html")


@sentences
def write_page(path, html):
    """Raises ValueError; then what was there before is as it was."""
    check_place(path)                                           # much may have happened since the first time
    rewrite(path, html)


@sentences
def check_folder(folder):
    """Raises ValueError if the folder cannot be made, or holds anything but pages of such a site."""
    real = place(folder)
    if not real.parent.is_dir():
        raise ValueError(f"cannot write {folder}: there is no folder {real.parent}")
    others = [path for path in (real.iterdir() if real.exists() else [])
              if not (has_mark(path, SITE) or path.name.startswith(".new."))]
    if others:
        raise ValueError(f"{others[0]} is not a page of this program: move it away, or name a new folder")
    TemporaryDirectory(dir=real if real.exists() else real.parent, prefix=".new.").cleanup()


@sentences
def write_folder(folder, pages):
    """Write them all; pages of before that are no longer among them stay.  Raises ValueError; then no page
    has been touched, unless the disk refuses to rename one that it could write."""
    real = place(folder)
    with TemporaryDirectory(dir=real if real.is_dir() else real.parent, prefix=".new.") as work:
        for file, html in pages.items():
            data = html if isinstance(html, bytes) else html.encode("utf-8")
            (Path(work) / file).write_bytes(data)
        taken = [file for file in pages if os.path.lexists(real / file) and not has_mark(real / file, SITE)]
        if taken:
            raise ValueError(f"{real / taken[0]} appeared while the pages were made: move it away")
        real.mkdir(exist_ok=True)
        for file in pages:
            os.replace(Path(work) / file, real / file)
