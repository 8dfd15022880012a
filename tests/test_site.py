"""The static site: it is complete, its links lead somewhere, and it loads nothing from outside but Python."""
import hashlib
import io
import json
import re
import zipfile

import numpy as np
import pytest
from helpers import ROOT

from pages.__main__ import main
from pages.files import MARK, is_ours
from pages.site import PYODIDE, index_page

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


# The whole ------------------------------------------------------------------------

@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the whole site, built as in the workflow."""
    folder = tmp_path_factory.mktemp("built") / "site"
    main(str(folder), "https://github.com/name/repository/", "https://name.github.io/repository/")
    return folder


def test_the_whole_site_is_small_and_asks_nothing_of_the_network_but_python(site):
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
        browser.run("choose({ ...run, settings: { ...run.settings, prompt: 'W'.repeat(300) } })")
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
