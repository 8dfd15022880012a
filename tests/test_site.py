"""The static site: whole or not at all, nothing from the network, every link leads somewhere."""

import json
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from test_replay import Browser, data_of

from pages import __main__ as tool
from pages.__main__ import MARK, NOT_MEASURED, RESULTS, RUNS, index_page, main, results_page

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
WORKFLOW = (ROOT / ".github" / "workflows" / "pages.yml").read_text(encoding="utf-8")
LOADING = ("src", "srcset", "poster", "data", "background", "action", "formaction", "xlink:href")


class Links(HTMLParser):
    """Reads a page as a browser does, and keeps what it would load, and where its links lead."""

    def __init__(self, html):
        super().__init__()
        self.loads, self.links, self.words, self.inside = [], [], "", []
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

    def handle_data(self, data):
        if self.inside[-1:] == ["style"]:
            self.loads += named_by(data)
        elif self.inside[-1:] != ["script"]:
            self.words += data


def named_by(style):
    return re.findall(r"(?:url\(|@import)\s*['\"]?([^'\")\s]*)", style)


def check_links(pages):
    """pages: {file: its text}.  They load nothing but what they hold, and link to pages that are there."""
    for file, html in pages.items():
        page = Links(html)
        assert [load[:60] for load in page.loads if not load.startswith("data:")] == [], file
        assert "default-src 'none'" in html and MARK in html[:500], file
        for link in page.links:
            assert link.startswith("https://") or link.split("#")[0] in pages, (file, link)


def test_the_check_sees_what_a_page_would_load():
    for part in ('<img src="https://a.org/x.png">', '<script src="//a.org/x.js"></script>',
                 '<link rel="stylesheet" href="//a.org/x.css">', "<style>@import '//a.org/x.css';</style>",
                 "<style>p { background: url(//a.org/x) }</style>", "<p style='background: url(//a.org/x)'>"):
        assert [load.split("//")[1][:7] for load in Links(part).loads] == ["a.org/x"]
    with pytest.raises(AssertionError):
        check_links({"index.html": MARK + "default-src 'none'<a href='nowhere.html'>"})


def test_the_index_leads_to_every_page(tmp_path):
    notebooks = {f"{path.stem}.html": tool.title_of(path) for path in NOTEBOOKS}
    index = index_page(notebooks)
    pages = dict.fromkeys([*notebooks, "results.html", *(f"replay_{name}.html" for name in RUNS)], index)
    check_links(pages | {"index.html": index})
    assert {link.split("#")[0] for link in Links(index).links if "//" not in link} == set(pages)
    assert "github.com" not in index
    for file, title in zip(notebooks, ["Generate and check", "Rejection sampling", "The speed-up"]):
        assert f'<li><a href="{file}">{title}</a></li>' in index
    assert '<a href="https://github.com/us/it">github.com/us/it</a>' in index_page({}, "https://github.com/us/it")


@pytest.mark.parametrize("link, leads_to", [
    ("../gpt2.py", "https://a.org/it/blob/HEAD/gpt2.py"),
    ("../README.md#beyond", "https://a.org/it/blob/HEAD/README.md#beyond"),
    ("../benchmarks/results/avx512/lossy.md", "results.html"),
    ("2_rejection_sampling.ipynb", "2_rejection_sampling.html"),
    ("https://arxiv.org/abs/2302.01318", "https://arxiv.org/abs/2302.01318"),
    ("#here", "#here"),
])
def test_a_link_of_a_notebook_leads_to_the_site_or_to_the_repository(link, leads_to):
    html = f'see <a href="{link}"><code>this</code>\none</a>.'
    assert tool.linked(html, "https://a.org/it") == html.replace(link, leads_to)
    without = tool.linked(html)
    assert without == ("see <code>this</code>\none." if "a.org" in leads_to else html.replace(link, leads_to))


def test_the_table_of_all_methods_is_shown_as_it_was_measured_or_how_to_measure_it_is_told(tmp_path):
    assert NOT_MEASURED in results_page(tmp_path)
    for kind in "json", "png":
        shutil.copy(RESULTS / f"heads.{kind}", tmp_path / f"methods.{kind}")
    html = results_page(tmp_path)
    check_links({"results.html": html, "index.html": html})
    assert NOT_MEASURED not in html and html.count("<img") == 1
    rows = [line.strip("| ").split("|") for line in
            (RESULTS / "heads.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = re.findall(r"<t[hd](?: [^>]*)?>(.*?)</t[hd]>", html)
    assert cells == [cell.strip().replace("'", "&#x27;") for row in rows for cell in row]


def test_a_folder_that_holds_anything_else_is_left_alone(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("pages.__main__.pages", lambda repository: pytest.fail("it began to work"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "index.html").write_text(MARK)
    (tmp_path / "mixed" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    new = tmp_path / "new"
    for words in ([tmp_path / "mine"], [tmp_path / "mixed"], [tmp_path / "file"], [new / "where"], [],
                  ["--quick"], [new, "name/repository"], [new, "https://a.org", "x"]):
        before = sorted(tmp_path.rglob("*"))
        assert main([*map(str, words)]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("error: ") and err.count("\n") == 1
        assert sorted(tmp_path.rglob("*")) == before


def test_help_helps_and_what_is_missing_is_named(tmp_path, capsys, monkeypatch):
    assert main(["--help"]) == main([str(tmp_path), "-h"]) == 0
    assert "python -m pages FOLDER" in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "nbconvert", None)
    monkeypatch.setitem(sys.modules, "latex2mathml.converter", None)
    assert main([str(tmp_path / "site")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "pip install -e '.[site]'" in err and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_site_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("pages.__main__.pages", lambda repository: site)
    site = {"index.html": MARK, "old.html": MARK + "—" * 100_000}
    assert main([str(tmp_path / "site")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'site' / 'index.html'}: 2 pages, 0.3 MB\n"
    with pytest.raises(TypeError):
        tool.write_site(tmp_path / "site", {"index.html": "new", "other.html": None})
    assert {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "site").iterdir()} == site
    site = {"index.html": MARK + "new"}
    assert main([str(tmp_path / "site")]) == 0
    assert [path.name for path in tmp_path.rglob("*")] == ["site", "index.html"]


@pytest.mark.long
def test_a_run_that_fails_is_one_sentence_and_leaves_nothing(tmp_path, capsys, monkeypatch):
    pytest.importorskip("nbconvert")
    monkeypatch.setattr("pages.__main__.notebook_page", lambda *_: MARK)
    monkeypatch.setitem(RUNS, "token", (["--K", "none"], "", ""))
    assert main([str(tmp_path / "site")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "--K none" in err and not list(tmp_path.iterdir())


def test_the_workflow_builds_the_site_and_publishes_what_it_built():
    command = r'- run: python -m reporting\.site (\S+) "\$GITHUB_SERVER_URL/\$GITHUB_REPOSITORY"\n'
    folder = re.search(command, WORKFLOW).group(1)
    build, deploy = WORKFLOW.split("\njobs:\n")[1].split("\n  deploy:\n")
    assert f"actions/upload-pages-artifact@v4\n        with:\n          path: {folder}\n" in build
    assert 'pip install -q -e ".[site]"' in build and "write" not in build
    assert "needs: build\n" in deploy and "actions/deploy-pages@v4\n        id: deployment\n" in deploy
    assert re.findall(r"(\S+): write", deploy) == ["pages", "id-token"]


# The whole ------------------------------------------------------------------------

@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the whole site, as the workflow builds it."""
    for module in "nbconvert", "latex2mathml":
        pytest.importorskip(module, reason=f"{module} is missing: pip install -e '.[site]'")
    folder = tmp_path_factory.mktemp("built") / "site"
    assert main([str(folder), "https://github.com/name/repository"]) == 0
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.driver.quit()


@pytest.mark.long
def test_the_whole_site_is_small_and_asks_nothing_of_the_network(site):
    pages = {path.name: path.read_text(encoding="utf-8") for path in site.iterdir()}
    assert set(pages) == {"index.html", "results.html", *(f"{path.stem}.html" for path in NOTEBOOKS),
                          *(f"replay_{name}.html" for name in RUNS)}
    assert sum(path.stat().st_size for path in site.iterdir()) < 10e6
    check_links(pages)
    for file, html in pages.items():                    # a notebook's link to a file of the repository
        for path in re.findall(r'href="https://github.com/name/repository/blob/HEAD/([^"#]*)', html):
            assert (ROOT / path).exists(), (file, path)


@pytest.mark.long
def test_a_notebook_is_on_its_page_with_all_it_printed_drew_and_derived(site):
    for path in NOTEBOOKS:
        html = (site / f"{path.stem}.html").read_text(encoding="utf-8")
        words = re.sub(r"\s+", "", Links(html).words)
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for cell in cells:
            source = "".join(cell["source"])
            if cell["cell_type"] == "code":
                assert re.sub(r"\s+", "", source) in words
            for output in cell.get("outputs", []):
                printed = "".join(output.get("text", ""))
                assert re.sub(r"\s+", "", printed) in words
                assert "".join(output.get("data", {}).get("image/png", "")).strip() in html
        told = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        formulas = re.findall(r"\$\$.+?\$\$|\$.+?\$", told, re.S)
        assert html.count("<math") == len(formulas)
        assert "¶" not in html and "In&nbsp;[" not in html
        assert not re.search(r"\\(sum|frac|alpha|text)\b", re.sub(r"(?s)<pre>.*?</pre>", "", html))


@pytest.mark.long
def test_each_run_is_the_one_that_the_index_names(site):
    kinds = {name: data_of((site / f"replay_{name}.html").read_text(encoding="utf-8")) for name in RUNS}
    for name, (key, value) in {"token": ("verifier", "token"), "block": ("verifier", "block"),
                               "tree": ("verifier", "tree"), "lookup": ("drafter", "lookup"),
                               "eagle": ("drafter", "eagle")}.items():
        assert kinds[name]["settings"][key] == value
        assert len(kinds[name]["rounds"]) >= 7 and kinds[name]["race"]
        lengths = {len(r["tokens"]) for r in kinds[name]["rounds"]}
        assert 1 in lengths and max(lengths) >= 4       # both bad rounds and good ones
    slots = [slot for r in kinds["block"]["rounds"] for slot in r["slots"]]
    assert any(slot["verdict"] == "accepted" and slot["coin"] >= slot["accept"] for slot in slots)


@pytest.mark.long
@pytest.mark.parametrize("size", [(390, 844), (1280, 800)], ids=["narrow", "wide"])
def test_in_a_browser_every_page_fits_the_screen_and_nothing_complains(site, browser, size):
    for path in sorted(site.iterdir()):
        for dark in False, True:
            browser.open(path, *size, dark=dark)
            assert browser.run("return document.documentElement.scrollWidth") <= size[0], path.name
            broken = "return [...document.images].filter(e => !e.naturalWidth || e.width < 100).length"
            assert browser.run(broken) == 0, path.name
            assert browser.complaints() == [], path.name
            ground = browser.run("return getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", ground))) < 200) == dark


@pytest.mark.long
def test_in_a_browser_one_gets_from_the_index_to_a_run_and_back(site, browser):
    browser.open(site / "index.html")
    browser.driver.find_element("css selector", "figure a").click()
    assert browser.run("return settings.verifier") == "token"
    browser.driver.find_element("css selector", "header a").click()
    browser.driver.find_element("link text", "Rejection sampling").click()
    browser.driver.find_element("link text", "The next →").click()
    assert browser.texts("h1") == ["3. The speed-up"] and browser.complaints() == []
