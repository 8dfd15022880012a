"""Pages on disk: they are written whole or not at all, and no file of anyone else's is lost."""
import os
from pathlib import Path

import pytest
from helpers import full_disk

from loading.files import rewrite
from pages.__main__ import main
from pages.files import MARK, check_place, write_folder

REFUSED = (ValueError, OSError)         # loading/command_line.py turns both into one sentence


def state(folder):
    """{path: its contents, or where the link leads} for everything below the folder."""
    def content(path):
        return os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
    return {str(path): content(path) for path in folder.rglob("*")}


@pytest.fixture
def folder(tmp_path):
    """Things that a user may name as the place for a page."""
    (tmp_path / "text").write_text("mine")
    (tmp_path / "empty").touch()
    (tmp_path / "mine.html").write_text("<!doctype html>\n<html lang='en'>mine")
    (tmp_path / "quoting.html").write_text("<!doctype html>\n<p>" + MARK)
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "to text").symlink_to("text")
    (tmp_path / "folder").mkdir()
    getattr(os, "mkfifo", Path.touch)(tmp_path / "pipe")                   # Windows has no such pipes
    return tmp_path


@pytest.mark.parametrize("name", ["text", "empty", "mine.html", "quoting.html", "circle",
                                  "circle/a", "to text", "folder", "nowhere/a", "text/a", "",
                                  "pipe", "/dev/null", "/dev/fd/0", "new/"])
def test_only_the_page_of_a_run_is_replaced(folder, name):
    """Anything else at the place is refused in one sentence and stays as it was."""
    before = state(folder)
    with pytest.raises(REFUSED, match=r"^[^\n]+(: | and |; )[^\n]+$"):
        check_place(os.path.join(folder, name))
    assert state(folder) == before


def test_a_page_is_written_where_the_path_leads(folder):
    old = MARK
    (folder / "run.html").write_bytes(old.replace("\n", "\r\n").encode())  # line ends of Windows
    (folder / "to run").symlink_to("run.html")
    (folder / "to new").symlink_to("folder/new.html")
    before = state(folder)
    for name, real in [("run.html", "run.html"), ("to run", "run.html"), ("to new", "folder/new.html"),
                       ("other.html", "other.html")]:
        check_place(str(folder / name))
        rewrite(str(folder / name), old + name)
        assert (folder / real).read_text() == old + name
        before[str(folder / real)] = (old + name).encode()
        assert state(folder) == before


def test_on_a_full_disk_the_old_page_stays(tmp_path):
    pages = dict.fromkeys(["index.html", "new.html"], MARK + "new" * 10_000)
    (tmp_path / "index.html").write_text(MARK + "old")
    before = state(tmp_path)
    with pytest.raises(OSError, match="File too large.*index.html"):
        with full_disk(10_000):
            write_folder(tmp_path, pages)
    assert state(tmp_path) == before


def test_a_site_replaces_its_own_pages_alone(folder):
    pages = {"index.html": MARK + "new", "code.zip": (MARK + "new").encode()}
    site = folder / "site"
    write_folder(site, dict.fromkeys(pages, MARK + "old"))
    (site / "notes.txt").write_text("mine")
    before = state(folder)
    write_folder(site, pages)
    assert state(folder) == before | {str(site / name): (MARK + "new").encode() for name in pages}
    for name in "text", "mine.html", "pipe":                            # takes the place of a page
        (site / "code.zip").unlink()
        (folder / name).rename(site / "code.zip")
        before = state(folder)
        with pytest.raises(ValueError, match="code.zip exists and was not written by this program"):
            write_folder(site, pages)
        assert state(folder) == before


@pytest.mark.parametrize("name", ["text", "circle", "nowhere/site", "x" * 300])
def test_a_place_that_cannot_be_a_folder_is_refused_in_one_sentence(folder, monkeypatch, name):
    monkeypatch.setattr("pages.__main__.pages", lambda *_: {"index.html": MARK})
    before = state(folder)
    with pytest.raises(REFUSED, match=r"^[^\n]+$"):
        main(str(folder / name))
    assert state(folder) == before
