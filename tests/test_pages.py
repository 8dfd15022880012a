"""Pages on disk: no file of anyone else's is lost.  The site is complete, its links lead somewhere, and it
loads nothing from outside but Python.  The game shows the rules of its cases, and the judge's verdicts.
"""
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT

import lossless
from engine.loading.files import rewrite
from lossless import verdicts
from lossless.toys import memoryless
from lossless.verdicts import CASES
from lossless.verdicts.museum import RULES, sampler
from pages import frame
from pages import site as site_module
from pages.__main__ import main
from pages.files import MARK, check_place, is_ours, write_folder
from pages.game import P, Q, game
from pages.site import PYODIDE, index_page

REFUSED = (ValueError, OSError)         # engine/loading/command_line.py turns both into one sentence


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


# The site ---------------------------------------------------------------------------------------------------

FILES = {"index.html"}
PACKS = {"code.zip", "demo-draft.zip", "demo-target.zip", "demo-eagle.zip"}      # index.html loads these


def check_links(pages):
    """pages: {file: its text}.  They may load nothing from outside, and their links lead somewhere."""
    for file, html in pages.items():
        policy = re.search(r'Content-Security-Policy"\s+content="([^"]*)"', html)[1]
        assert policy.startswith("default-src 'none'") and html.startswith(MARK), file
        others = {*re.findall(r"https?:[^\s;]+", policy)}
        assert others <= ({PYODIDE} if file == "index.html" else set()), file
        for link in re.findall(r'<a\s+href="([^"]*)"', html):
            to, _, place = link.partition("#")
            assert to.startswith("https://") or (to or file) in pages, (file, link)
            assert to or "=" in place or f'id="{place}"' in html, (file, link)         # =: settings of a race


def check_packs(files, html):
    """index.html loads this repository's files unchanged, and knows the size and checksum of each pack."""
    said = json.loads(re.search(r'type="application/json">(.*?)</script>', html, re.S)[1])["packs"]
    for pack in said:
        data = files[pack["file"]]
        assert (pack["size"], pack["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            assert archive.namelist()
            for name in archive.namelist():
                assert archive.read(name) == (ROOT / name).read_bytes(), name
    assert {pack["file"] for pack in said} == PACKS


def test_only_the_projects_own_files_are_packed(tmp_path, monkeypatch):
    for path in ROOT.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "my_keys.py").write_text("KEY = 1")
    monkeypatch.setattr(site_module, "ROOT", tmp_path)
    with zipfile.ZipFile(io.BytesIO(site_module.packs()["code.zip"])) as archive:
        names = {*archive.namelist()}
    assert "my_keys.py" not in names >= {"main.py", "engine/checks.py", "lossless/verdicts/cases.ini"}


@pytest.mark.parametrize("folder, pyodide", [
    ("", PYODIDE), (__file__, PYODIDE), ("site", "/pyodide"), ("site", "ftp://x"),
    *[("site", PYODIDE + more) for more in ("; x", "'", '"', " x")]])
def test_a_folder_or_an_address_that_cannot_be_is_refused_before_the_work(folder, pyodide, monkeypatch):
    monkeypatch.setattr("pages.__main__.pages", None)
    with pytest.raises(ValueError, match="cannot write to|--pyodide .*: give an address"):
        main(folder, pyodide=pyodide)


# The whole --------------------------------------------------------------------------------------------------

@pytest.fixture
def without_runs(monkeypatch):
    """Pages without recordings and without the game, which take long to make."""
    monkeypatch.setattr(site_module, "recordings", list)
    monkeypatch.setattr(site_module, "game", dict)


def build(folder):
    """The whole site, as in the workflow."""
    main(str(folder), "https://github.com/name/repository/", "https://name.github.io/repository/", PYODIDE)
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return build(tmp_path_factory.mktemp("built") / "site")


def test_the_whole_site_is_small_and_asks_nothing_of_the_network_but_python(without_runs, tmp_path):
    site = build(tmp_path / "site")
    files = {path.name: path.read_bytes() for path in site.iterdir()}
    pages = {file: data.decode() for file, data in files.items() if file.endswith(".html")}
    assert pages.keys() == FILES and files.keys() == FILES | PACKS | {"card.png"}
    assert all(map(is_ours, site.iterdir()))            # so that a second run may replace them
    assert sum(map(len, files.values())) < 20e6
    check_links(pages)
    check_packs(files, pages["index.html"])
    assert 'href="https://github.com/name/repository"' in pages["index.html"]
    assert 'content="https://name.github.io/repository/card.png"' in pages["index.html"]
    assert "unsafe-inline" not in pages["index.html"] and "form-action 'none'" in pages["index.html"]
    assert '"><script>' not in index_page({}, repository='"><script>')


@pytest.mark.browser
@pytest.mark.parametrize("size", [(375, 800), (1280, 720)], ids=["narrow", "wide"])
def test_in_a_browser_the_page_fits_the_screen_and_nothing_complains(site, browser, size):
    for dark in False, True:
        browser.open(site / "index.html", *size, dark=dark)
        assert browser.run("return $('speed').getBoundingClientRect().bottom") < size[1]
        browser.run("choose({ ...s.run, settings: { ...s.run.settings, prompt: 'W'.repeat(300) } })")
        assert browser.run("return document.documentElement.scrollWidth") <= size[0]
        assert browser.complaints() == []
        ground = browser.run("return getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground))) < 200) == dark
    assert browser.texts("h1") == ["Speculative sampling"]


@pytest.mark.browser
def test_the_readmes_picture_is_of_this_page(site, browser):
    """(If not: python tests/tools/take_pictures.py)"""
    pytest.importorskip("PIL", reason="Pillow is missing: pip install pillow")
    from PIL import Image
    from take_pictures import RACE, shot
    path = site / "index.html"
    browser.open(path)
    shown = np.asarray(shot(browser, path, browser.run("return finish()"), RACE), int)
    race = Image.open(ROOT / "pages" / "race.webp")
    assert race.size == RACE and abs(np.asarray(race.convert("RGB"), int) - shown).mean() < 3
    assert race.n_frames > 50 and (ROOT / "pages" / "race.webp").stat().st_size < 1.5e6


def test_two_modules_that_define_one_name_are_refused(without_runs, tmp_path, monkeypatch):
    copied = shutil.copytree(frame.HERE, tmp_path / "pages")
    (copied / "when.mjs").write_text("export function draw() {}\n")
    monkeypatch.setattr(frame, "HERE", copied)
    with pytest.raises(ValueError, match="when.mjs defines draw"):
        index_page({})


def test_the_pages_arithmetic_is_that_worked_out_by_hand():
    if not shutil.which("node"):
        pytest.skip("node is not installed")
    run = subprocess.run(["node", "--test", ROOT / "tests/formula.test.mjs"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


# The game ---------------------------------------------------------------------------------------------------

NAMES = {case.thread: case for case in CASES}


def test_the_game_shows_ten_rules_and_the_law_of_each_is_that_of_the_rule_that_is_judged(monkeypatch):
    """Judged here on one pair of models."""
    monkeypatch.setattr(verdicts, "PAIRS", {"one": verdicts.PAIRS["five tokens of vocabulary"]})
    rules = game.__wrapped__()["rules"]                 # not those in its cache
    assert len(rules) == 10 and 3 <= sum(rule["lossless"] for rule in rules) <= 7
    assert all(3 <= len(rule["code"].splitlines()) <= 6 for rule in rules)
    for rule in rules:
        check_question(rule)


def check_question(rule):
    """What is shown has the law of the rule of its case."""
    cls = RULES[NAMES[rule["thread"]].rule]
    texts = lossless.exact_distribution(lambda rng: tuple(token for r in sampler(cls)(
        memoryless(P), memoryless(Q), [0, 0], 2, 1, rng) for token in r.tokens))
    law = [sum(chance for text, chance in texts.items() if text[0] == token) for token in range(len(Q))]
    assert law == pytest.approx(rule["law"], abs=1e-12)
    assert rule["lossless"] == np.allclose(law, Q, rtol=0, atol=1e-12)
    assert rule["lossless"] == (NAMES[rule["thread"]].verdict == "lossless") == (rule["text"] is None)
    if rule["text"]:                                    # the clearest wrong text, of two independent tokens
        assert rule["wanted"] == pytest.approx(np.prod(Q[rule["text"]]))
        assert texts[tuple(rule["text"])] == pytest.approx(rule["probability"]) != rule["wanted"]
