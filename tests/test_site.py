"""The static site: nothing from the network, every link leads somewhere, all is there that was measured."""
import hashlib
import io
import json
import re
import zipfile
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from test_replay import data_of

from pages import site as tool
from pages.__main__ import main
from pages.files import SITE, TRACE
from pages.frame import page
from pages.site import PYODIDE, RUNS, index_page

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = (ROOT / ".github" / "workflows" / "pages.yml").read_text(encoding="utf-8")
FILES = "index.html", "live.html", "rule.html", "judge.html", "machine.html"
PACKS = {"code.zip", "demo-draft.zip", "demo-target.zip", "demo-eagle.zip"}      # which live.html loads
LOADING = ("src", "srcset", "poster", "data", "background", "action", "formaction", "xlink:href")


class Links(HTMLParser):
    """Reads a page as a browser does, and keeps what it would load, and where its links lead."""

    def __init__(self, html):
        super().__init__()
        self.loads, self.links, self.words, self.alts, self.inside = [], [], "", [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.inside.append(tag)
        for name, value in attributes:
            if name == "href" and tag == "a":
                self.links.append(value)
            elif name in LOADING or name == "href":
                self.loads.append(value)
            elif name == "style":
                self.loads += named_by(value)
        if tag == "img":
            self.alts.append(dict(attributes).get("alt"))

    def handle_data(self, data):
        if self.inside[-1:] == ["style"]:
            self.loads += named_by(data)
        elif self.inside[-1:] != ["script"]:
            self.words += data


def named_by(style):
    return re.findall(r"(?:url\(|@import)\s*['\"]?([^'\")\s]*)", style)


def check_links(pages):
    """pages: {file: its text}.  They load nothing but what they hold, and link to pages that are there; each
    picture has words of its own for those who cannot see it."""
    for file, html in pages.items():
        page = Links(html)
        assert [load[:60] for load in page.loads if not load.startswith("data:")] == [], file
        policy = re.search(r'Content-Security-Policy"\s+content="([^"]*)"', html)[1]
        assert policy.startswith("default-src 'none'") and SITE in html[:500], file
        others = {*re.findall(r"https?:[^\s;]+", policy)}
        assert others <= ({PYODIDE} if file in ("judge.html", "live.html") else set()), file
        for link in page.links:
            to, _, place = link.partition("#")
            assert to.startswith("https://") or (to or file) in pages, (file, link)
            assert to or f'id="{place}"' in html, (file, link)
        assert all(len(alt) > 20 for alt in page.alts), (file, page.alts)
        assert len(set(page.alts)) == len(page.alts), (file, page.alts)


def test_the_check_sees_what_a_page_would_load():
    for part in ('<img src="https://a.org/x.png">', '<script src="//a.org/x.js"></script>',
                 '<link rel="stylesheet" href="//a.org/x.css">', "<style>@import '//a.org/x.css';</style>",
                 "<style>p { background: url(//a.org/x) }</style>", "<p style='background: url(//a.org/x)'>"):
        assert [load.split("//")[1][:7] for load in Links(part).loads] == ["a.org/x"]
    with pytest.raises(AssertionError):
        check_links({"index.html": index_page() + "<a href='nowhere.html'>"})
    with pytest.raises(AssertionError):
        check_links({"index.html": page("Index", "", policy=f" {PYODIDE}")})


def test_the_index_leads_to_every_page():
    index = index_page()
    pages = dict.fromkeys([*FILES, *(f"replay_{name}.html" for name in RUNS)], index)
    check_links(pages)
    linked_to = {link.split("#")[0] for link in Links(index).links if "//" not in link}
    assert linked_to == {*pages} - {"index.html"} and "github.com" not in index
    assert '<a href="https://github.com/us/it">github.com/us/it</a>' in index_page("https://github.com/us/it")


def test_the_workflow_builds_the_site_and_publishes_what_it_built():
    command = r'- run: python -m pages (\S+) "\$GITHUB_SERVER_URL/\$GITHUB_REPOSITORY"\n'
    folder = re.search(command, WORKFLOW).group(1)
    build, deploy = WORKFLOW.split("\njobs:\n")[1].split("\n  deploy:\n")
    assert f"actions/upload-pages-artifact@v4\n        with:\n          path: {folder}\n" in build
    assert "pip install -q -e ." in build and "write" not in build
    assert "needs: build\n" in deploy and "actions/deploy-pages@v4\n        id: deployment\n" in deploy
    assert re.findall(r"(\S+): write", deploy) == ["pages", "id-token"]


def check_packs(files, html):
    """live.html loads this repository's files, unchanged, and knows their sizes and checksums."""
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

def test_a_run_that_fails_is_one_sentence():
    with pytest.raises(ValueError, match="^main.py --K none failed: error: .*none[^\n]*$"):
        tool.replay(["--K", "none"])


def test_a_run_is_replayed_as_a_page_of_the_site_with_a_way_back():
    html = tool.replay(["--n_tokens_to_generate", "6", "--temperature", "1", "--seed", "3"])
    data, head = data_of(html), html.split("</header>")[0]
    assert sum(len(r["tokens"]) for r in data["rounds"]) == 6 and data["settings"]["seed"] == 3
    assert SITE in html[:500] and TRACE not in html and html.count("</header>") == 1
    assert Links(head).links == ["index.html"] and "var(--q)" in head.split("index.html")[0][-40:]


def test_the_site_has_all_its_pages(monkeypatch):
    """But for the runs that are replayed."""
    monkeypatch.setattr(tool, "replay", lambda flags: page(" ".join(flags), ""))
    pages = tool.pages("https://github.com/name/repository")
    files = {file: pages.pop(file) for file in PACKS}
    assert set(pages) == {*FILES, *(f"replay_{name}.html" for name in RUNS)}
    check_links(pages)
    check_packs(files, pages["live.html"])
    titles = {file: re.search("<title>(.*?)</title>", html)[1] for file, html in pages.items()}
    assert [titles[file] for file in ("rule.html", "judge.html", "machine.html")] == [
        tool.PAGES[file][0] for file in ("rule.html", "judge.html", "machine.html")]
    for name, (flags, *_) in RUNS.items():
        assert titles[f"replay_{name}.html"] == escape(" ".join(flags))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the whole site, as the workflow builds it."""
    folder = tmp_path_factory.mktemp("built") / "site"
    main(str(folder), "https://github.com/name/repository")
    return folder


@pytest.mark.long
def test_the_whole_site_is_small_and_asks_nothing_of_the_network(site):
    pages = {path.name: path.read_text(encoding="utf-8") for path in site.glob("*.html")}
    assert set(pages) == {*FILES, *(f"replay_{name}.html" for name in RUNS)}
    assert {path.name for path in site.iterdir()} == {*pages, *PACKS}
    assert sum(path.stat().st_size for path in site.iterdir()) < 30e6
    check_links(pages)
    assert {file for file, html in pages.items() if PYODIDE in html} == {"judge.html", "live.html"}
    for name in RUNS:                                   # each run is worth a look: bad rounds and good ones
        data = data_of(pages[f"replay_{name}.html"])
        kind, lengths = data["settings"], {len(r["tokens"]) for r in data["rounds"]}
        assert name in (kind["drafter"], kind["verifier"].split(":")[0])
        assert len(data["rounds"]) >= 7 and data["race"] and 1 in lengths and max(lengths) >= 4
    slots = [slot for r in data_of(pages["replay_block.html"])["rounds"] for slot in r["slots"]]
    assert any(slot["verdict"] == "accepted" and slot["coin"] >= slot["accept"] for slot in slots)


@pytest.mark.browser
@pytest.mark.parametrize("size", [(390, 844), (1280, 800)], ids=["narrow", "wide"])
def test_in_a_browser_every_page_fits_the_screen_and_nothing_complains(site, browser, size):
    for path in sorted(site.glob("*.html")):
        for dark in False, True:
            browser.open(path, *size, dark=dark)
            assert browser.run("return document.documentElement.scrollWidth") <= size[0], path.name
            broken = "return [...document.images].filter(e => !e.naturalWidth || e.width < 100).length"
            assert browser.run(broken) == 0, path.name
            assert browser.complaints() == [], path.name
            ground = browser.run("return getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", ground))) < 200) == dark


@pytest.mark.browser
def test_in_a_browser_one_gets_from_the_index_to_a_run_and_back(site, browser):
    browser.open(site / "index.html")
    browser.driver.find_element("css selector", "img").click()
    assert browser.run("return settings.verifier") == "token"
    browser.driver.find_element("css selector", "header a").click()
    assert browser.texts("h1") == ["Speculative sampling, in NumPy"] and browser.complaints() == []
