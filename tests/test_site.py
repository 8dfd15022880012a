"""The static site: nothing from the network, every link leads somewhere, all is there that was measured."""
import json
import re
import shutil
from base64 import b64encode
from collections import Counter
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from test_replay import data_of

from pages import notebooks
from pages import site as tool
from pages.__main__ import main
from pages.files import SITE, TRACE
from pages.frame import page
from pages.notebooks import NOTEBOOKS, alt_of, linked, notebook_pages, title_of
from pages.site import NOT_MEASURED, PYODIDE, RESULTS, RUNS, index_page, results_page
from pages.verdicts import verdicts_page
from verdicts.cases import CASES
from verdicts.page import code_of, finding
from verdicts.rules import RULES

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = (ROOT / ".github" / "workflows" / "pages.yml").read_text(encoding="utf-8")
FILES = "index.html", "results.html", "verdicts.html", "rule.html", "judge.html", "machine.html"
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
        assert others <= ({PYODIDE} if file == "judge.html" else set()), file
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
        check_links({"index.html": index_page({}) + "<a href='nowhere.html'>"})
    with pytest.raises(AssertionError):
        check_links({"index.html": page("Index", "", policy=f" {PYODIDE}")})


def test_the_index_leads_to_every_page():
    notebooks = {f"{path.stem}.html": title_of(path) for path in NOTEBOOKS}
    index = index_page(notebooks)
    replays = [f"replay_{name}.html" for name in RUNS]
    pages = dict.fromkeys([*notebooks, *FILES, *replays], index)
    check_links(pages)
    linked_to = {link.split("#")[0] for link in Links(index).links if "//" not in link}
    assert linked_to == {*pages} - {"index.html"}
    assert "github.com" not in index and "Rejection sampling</a>" in index
    assert '<a href="https://github.com/us/it">github.com/us/it</a>' in index_page({}, "https://github.com/us/it")


@pytest.mark.parametrize("link, leads_to", [
    ("../gpt2.py", "https://a.org/it/blob/HEAD/gpt2.py"),
    ("../README.md#beyond", "https://a.org/it/blob/HEAD/README.md#beyond"),
    ("../benchmarks/results/tokens.md", "results.html#tokens"),
    ("2_rejection_sampling.ipynb", "2_rejection_sampling.html"),
    ("https://arxiv.org/abs/2302.01318", "https://arxiv.org/abs/2302.01318"),
    ("#here", "#here"),
])
def test_a_link_of_a_notebook_leads_to_the_site_or_to_the_repository(link, leads_to):
    html = f'see <a href="{link}"><code>this</code>\none</a>.'
    assert linked(html, "https://a.org/it") == html.replace(link, leads_to)
    without = linked(html)
    assert without == ("see <code>this</code>\none." if "a.org" in leads_to else html.replace(link, leads_to))


def test_the_results_are_shown_as_they_were_written_or_how_to_make_them_is_said(tmp_path):
    pytest.importorskip("mistune", reason="mistune is missing: pip install -e '.[site]'")
    assert NOT_MEASURED in results_page(tmp_path)
    shutil.copy(RESULTS / "tokens.png", tmp_path)
    (tmp_path / "tokens.md").write_text("# How many?\n\n| a | b |\n| --- | --- |\n| 1 | 2.00 ± 0.01 |\n\n"
                                        "![a curve](tokens.png) and [a file](counts.json)\n\n"
                                        "![a curve](tokens.png)\n")
    (tmp_path / "speed.md").write_text("# How fast?\n\n## In words\n\n| a | b |\n| --- | --- |\n"
                                       "| 2.00 ± 0.01 | more than twenty letters, in words |\n")
    speed = results_page(tmp_path, "https://code.org/us")
    assert re.findall(r'<li>(.*?)</li>', speed) == [
        '<a href="#speed">How fast?</a>', '<a href="#tokens">How many?</a>']
    assert re.findall(r"<h[23].*", speed) == [
        '<h2 id="speed">How fast?</h2>', "<h3>In words</h3>", '<h2 id="tokens">How many?</h2>']
    assert re.findall(r'<td class="words">(.*?)</td>', speed) == ["more than twenty letters, in words"]
    assert speed.count('<div class="wide"><table>') == speed.count("</table></div>") == 2
    assert '<a href="https://code.org/us/blob/HEAD/benchmarks/results/counts.json">a file</a>' in speed
    (tmp_path / "speed.md").unlink()
    html = results_page(tmp_path)
    assert NOT_MEASURED not in html and "data:image/png" in html and "a curve" in html
    assert re.findall(r"<t[hd](?: [^>]*)?>(.*?)</t[hd]>", html) == ["a", "b", "1", "2.00 ± 0.01"]
    assert "counts.json" not in html and "a file" in html


def test_every_verdict_is_on_its_page_with_its_claim_and_its_code():
    html = verdicts_page()
    check_links(dict.fromkeys(["verdicts.html", "index.html", "judge.html"], html))
    words = re.sub(r"\s+", " ", Links(html).words)
    for case in CASES:
        assert f'<div id="{case.name}">' in html and f'<a href="{case.link}">' in html
        code = " ".join(code_of(case.rule).split())
        for said in (case.claim, case.outcome, case.answer, finding(case.found), code):
            assert said in words, (case.name, said)
        assert (f'"judge.html#{case.name}"' in html) == (case.rule in RULES)
    assert html.count("<details") == len(CASES)


def test_every_picture_of_a_notebook_has_words_of_its_own():
    for path in NOTEBOOKS:
        alts, before = [], ""
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            before = source if cell["cell_type"] == "markdown" else before
            if any("image/png" in output.get("data", {}) for output in cell.get("outputs", [])):
                alts.append(alt_of(source, before))
        assert len(set(alts)) == len(alts) and all(20 < len(alt) < 400 for alt in alts), alts


def test_the_workflow_builds_the_site_and_publishes_what_it_built():
    command = r'- run: python -m pages (\S+) "\$GITHUB_SERVER_URL/\$GITHUB_REPOSITORY"\n'
    folder = re.search(command, WORKFLOW).group(1)
    build, deploy = WORKFLOW.split("\njobs:\n")[1].split("\n  deploy:\n")
    assert f"actions/upload-pages-artifact@v4\n        with:\n          path: {folder}\n" in build
    assert 'pip install -q -e ".[site]"' in build and "write" not in build
    assert "needs: build\n" in deploy and "actions/deploy-pages@v4\n        id: deployment\n" in deploy
    assert re.findall(r"(\S+): write", deploy) == ["pages", "id-token"]


def check_notebook(path, html):
    """It is on its page with all it printed, drew and derived."""
    words = re.sub(r"\s+", "", Links(html).words)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    pictures = Counter()
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            assert re.sub(r"\s+", "", source) in words
        for output in cell.get("outputs", []):
            assert re.sub(r"\s+", "", "".join(output.get("text", ""))) in words
            pictures += Counter(kind for kind in output.get("data", {}) if kind.startswith("image/"))
            assert "".join(output.get("data", {}).get("image/png", "")).strip() in html
            if svg := "".join(output.get("data", {}).get("image/svg+xml", "")):
                assert f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}" in html
    assert len(Links(html).alts) == html.count("<img") == sum(pictures.values()) and "<svg" not in html
    prose = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    assert html.count("<math") == len(re.findall(r"\$\$.+?\$\$|\$.+?\$", prose, re.S))
    assert html.count('display="block"') == len(re.findall(r"\$\$.+?\$\$", prose, re.S))
    assert "¶" not in html and "In&nbsp;[" not in html
    assert not re.search(r"\\(sum|frac|alpha|text)\b", re.sub(r"(?s)<pre>.*?</pre>", "", html))


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


def test_the_site_has_all_its_pages_and_a_notebook_leads_to_the_next(monkeypatch):
    """The whole site, but for the runs that are replayed and all notebooks but three."""
    for module in "nbconvert", "latex2mathml", "mistune":
        pytest.importorskip(module, reason=f"{module} is missing: pip install -e '.[site]'")
    some = NOTEBOOKS[2:5]
    for module in tool, notebooks:
        monkeypatch.setattr(module, "NOTEBOOKS", some)
    monkeypatch.setattr(tool, "replay", lambda flags: page(" ".join(flags), ""))
    pages = tool.pages("https://github.com/name/repository")
    assert set(pages) == {*FILES, *(f"replay_{name}.html" for name in RUNS),
                          *(f"{path.stem}.html" for path in some)}
    check_links(dict.fromkeys([f"{path.stem}.html" for path in NOTEBOOKS], pages["index.html"]) | pages)
    titles = {file: re.search("<title>(.*?)</title>", html)[1] for file, html in pages.items()}
    assert [titles[file] for file in ("rule.html", "judge.html", "machine.html")] == [
        tool.PAGES[file][0] for file in ("rule.html", "judge.html", "machine.html")]
    for name, (flags, *_) in RUNS.items():
        assert titles[f"replay_{name}.html"] == escape(" ".join(flags))
    ends = [Links(pages[f"{path.stem}.html"].split('<nav class="end">')[1]) for path in some]
    first, second, third = (f"{path.stem}.html" for path in some)
    assert [end.links for end in ends] == [[second], [first, third], [second]]
    assert [end.words.strip() for end in ends] == [
        "The next →", "← The one beforeThe next →", "← The one before"]
    for path in some:
        check_notebook(path, pages[f"{path.stem}.html"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the whole site, as the workflow builds it."""
    for module in "nbconvert", "latex2mathml":
        pytest.importorskip(module, reason=f"{module} is missing: pip install -e '.[site]'")
    folder = tmp_path_factory.mktemp("built") / "site"
    main(str(folder), "https://github.com/name/repository")
    return folder


@pytest.mark.long
def test_the_whole_site_is_small_and_asks_nothing_of_the_network(site):
    pages = {path.name: path.read_text(encoding="utf-8") for path in site.iterdir()}
    assert set(pages) == {*FILES, *(f"{path.stem}.html" for path in NOTEBOOKS),
                          *(f"replay_{name}.html" for name in RUNS)}
    assert sum(path.stat().st_size for path in site.iterdir()) < 10e6
    check_links(pages)
    assert [file for file, html in pages.items() if PYODIDE in html] == ["judge.html"]
    for file, html in pages.items():                    # a link to a file of the repository
        for path in re.findall(r'href="https://github.com/name/repository/blob/HEAD/([^"#]*)', html):
            assert (ROOT / path).exists(), (file, path)
    for name in RUNS:                                   # each run is worth a look: bad rounds and good ones
        data = data_of(pages[f"replay_{name}.html"])
        kind, lengths = data["settings"], {len(r["tokens"]) for r in data["rounds"]}
        assert name in (kind["drafter"], kind["verifier"].split(":")[0])
        assert len(data["rounds"]) >= 7 and data["race"] and 1 in lengths and max(lengths) >= 4
    slots = [slot for r in data_of(pages["replay_block.html"])["rounds"] for slot in r["slots"]]
    assert any(slot["verdict"] == "accepted" and slot["coin"] >= slot["accept"] for slot in slots)


@pytest.mark.long
def test_a_notebook_is_on_its_page_with_all_it_printed_drew_and_derived():
    pytest.importorskip("nbconvert", reason="nbconvert is missing: pip install -e '.[site]'")
    pages = notebook_pages()
    for path in NOTEBOOKS:
        check_notebook(path, pages[f"{path.stem}.html"])


@pytest.mark.browser
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


@pytest.mark.browser
def test_in_a_browser_a_link_to_a_verdict_shows_it(site, browser):
    browser.open(site / "verdicts.html", address="#vllm-40149")
    assert browser.texts("details[open] summary b") == ["vllm-40149"]


@pytest.mark.browser
def test_in_a_browser_one_gets_from_the_index_to_a_run_and_back(site, browser):
    browser.open(site / "index.html")
    browser.driver.find_element("css selector", "img").click()
    assert browser.run("return settings.verifier") == "token"
    browser.driver.find_element("css selector", "header a").click()
    browser.driver.find_element("link text", "Rejection sampling").click()
    browser.driver.find_element("link text", "The next →").click()
    assert browser.texts("h1") == ["3. The speed-up"] and browser.complaints() == []
