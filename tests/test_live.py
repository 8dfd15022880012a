"""live.html, where the embedded pair runs: it shows the lines of code that really ran, it computes the same
in WebAssembly as here, and wrong input gets a sentence."""
import base64
import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import get_pyodide
import numpy as np
import pytest

from lossless import cases, judge
from lossless.verdicts import CASES
from lossless.verdicts.museum import RIGHT, RULES, WRONG
from pages import site
from pages.live import Live, openings
from pages.rounds import STEPS, Coins, Shown
from speculative import propose, speculative_sampling, verify

NODE = Path(__file__).resolve().parent / "tools" / "live_in_node.mjs"
RUN = dict(prompt="The tide was going out.", n_tokens=12, K=4, temperature=.8, top_p=.95, seed=0,
           drafter="model", verifier="token")
PROMPTS = ["The old man", "It was a dark night, and", "\"No,\" said the girl.", "1, 2, 3,", "Héllo — 漢字 😀"]
OPENED = {opening["name"]: opening for opening in openings()}
ENDLESS = "def verify(q, p, drafts, rng):\n    while True: pass"


@pytest.fixture(scope="module")
def live():
    return Live()


def raced(live, **changes):
    """(what the page shows about a race, the rounds of its speculative lane)"""
    about, rounds = json.loads(live.start(json.dumps(RUN | changes))), []
    while "error" not in about and (found := json.loads(live.advance("spec"))):
        rounds.append(found)
    return about, rounds


@pytest.mark.parametrize("drafter", ["model", "lookup", "eagle"])
@pytest.mark.parametrize("verifier", ["token", "block"])
def test_every_round_is_run_again_line_by_line(live, drafter, verifier):
    about, rounds = raced(live, drafter=drafter, verifier=verifier)
    assert sum(len(r["tokens"]) for r in rounds) == 12
    assert bool(about["steps"]) == ((drafter, verifier) == ("model", "token"))
    for r in rounds:
        assert r["steps"][-1]["facts"][-1][1] == {"tokens": r["tokens"], "of": len(r["tokens"])}


def test_a_rounds_lines_have_the_values_of_the_run(live):
    def run(rng):
        return speculative_sampling(live.draft, live.target, live.encoder.encode(RUN["prompt"]), 12, 4, rng)

    shown, again = Shown(live.encoder, coins := Coins(np.random.default_rng(3)), propose, verify), run(coins)
    for r in run(np.random.default_rng(3)):
        tests = [step["test"] for step in shown.next(again)["steps"] if "test" in step]
        assert len(tests) == min(r.n_accepted + 1, len(r.drafts))
        for j, test in enumerate(tests):
            q, p = r.target_probs[j][r.drafts[j]], r.draft_probs[j][r.drafts[j]]
            assert [test["q"], test["p"], test["ratio"]] == pytest.approx([q, p, min(1, q / p)], rel=1e-3)
            assert (test["u"] * p < q) == (j < r.n_accepted)


def test_each_step_of_the_paper_names_lines_of_the_source(live):
    about, _ = raced(live)
    lines = [line.strip() for source in about["sources"] for line in source["lines"]]
    assert all(any(line.startswith(part) for line in lines) for _, parts in STEPS for part in parts)


@pytest.mark.parametrize("changes, words", [
    (dict(prompt=""), "the prompt is empty"), (dict(prompt="word " * 600), "do not fit into the context"),
    (dict(code="def verify(:"), "line 1: SyntaxError"), (dict(code="x = 1"), "neither propose nor verify")])
def test_what_cannot_be_run_is_one_sentence(live, changes, words):
    about, _ = raced(live, **changes)
    assert about.keys() == {"error"} and words in about["error"] and "\n" not in about["error"]


@pytest.mark.parametrize("code, words", [
    ("return 0, nothing", "line 2: NameError: name 'nothing' is not defined"),
    ("return 0, rng.poisson()", "line 2: the judge cannot walk rng.poisson")])
def test_what_cannot_be_judged_is_one_sentence_with_its_line(live, code, words):
    found = json.loads(live.judge(json.dumps({"code": "def verify(q, p, drafts, rng):\n    " + code})))
    assert found.keys() == {"error"} and words in found["error"] and "\n" not in found["error"]
    assert "neither propose nor verify" in json.loads(live.judge('{"code": ""}'))["error"]


def judged(live, name):
    opening = OPENED[name]
    return json.loads(live.judge(json.dumps({key: opening[key] for key in (
        "code", "settings", "penalty", "disputed") if key in opening})))


@pytest.mark.parametrize("name", ["verify", "Swapped", "OneCoinForAll", CASES[0].name])
def test_what_is_opened_runs_a_race_and_is_judged(live, name, monkeypatch):
    monkeypatch.setattr(judge, "CASES", cases.CASES[:60])
    about, rounds = raced(live, code=OPENED[name]["code"])
    assert rounds and not any("error" in r for r in rounds), (about, rounds)
    assert judged(live, name)["lossless"] != OPENED[name]["wrong"]


@pytest.mark.long
def test_all_that_can_be_opened_is_judged_as_the_verdicts_and_the_museum_say(live):
    assert {*RULES} & {*WRONG, *RIGHT} | {case.name for case in CASES} | {"verify", "propose"} == {*OPENED}
    for name in OPENED:
        found = judged(live, name)
        if "error" in found:                            # its drafts cannot come from p: the loop refuses it
            assert OPENED[name]["wrong"] and "cannot come from" in found["error"], (name, found)
        else:
            assert found["lossless"] != OPENED[name]["wrong"], name


# In WebAssembly ---------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def pyodide():
    folder = Path(os.environ.get("PYODIDE", "missing")).resolve()
    if not (folder / "pyodide.mjs").exists() or not list(folder.glob("regex-*.whl")):
        pytest.skip("no Pyodide: run python tests/tools/get_pyodide.py FOLDER, then set PYODIDE=FOLDER")
    return folder


@pytest.mark.long
def test_in_webassembly_the_same_is_written_shown_and_judged(live, pyodide):
    if not shutil.which("node"):
        pytest.skip("node is not installed: apt-get install nodejs")
    races = [RUN | dict(prompt=prompt, temperature=0, drafter=drafter)
             for prompt in PROMPTS for drafter in ("model", "lookup", "eagle")] + [RUN]
    names = "verify", "Swapped"
    zips = [base64.b64encode(data).decode() for data in site.packs().values()]
    request = dict(zips=zips, races=races, judged=[OPENED[name]["code"] for name in names])
    done = subprocess.run(["node", NODE, pyodide], text=True, capture_output=True, check=True,
                          input=json.dumps(request))
    found = json.loads(done.stdout)
    for settings, rounds in zip(races, found["races"], strict=True):
        here = raced(live, **settings)[1]
        assert [r["tokens"] for r in rounds] == [r["tokens"] for r in here], settings
        assert [[(s["source"], s["line"]) for s in r["steps"]] for r in rounds] == [
            [(s["source"], s["line"]) for s in r["steps"]] for r in here]
    assert [report["lossless"] for report in found["judged"]] == [True, False]


@pytest.fixture(scope="module")
def address(pyodide, tmp_path_factory):
    """live.html on a server, with Pyodide beside it."""
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    folder = tmp_path_factory.mktemp("site")
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    home = f"http://127.0.0.1:{served.server_port}/"
    files = site.packs()
    page = site.live_page(files, base=home + "pyodide/")
    assert site.PYODIDE == get_pyodide.BASE and site.PYODIDE not in page
    for file, data in {**files, "live.html": page.encode()}.items():
        (folder / file).write_bytes(data)
    (folder / "pyodide").symlink_to(pyodide)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    yield home + "live.html"
    served.shutdown()


def until(browser, condition, seconds=90):
    end = time.monotonic() + seconds
    while not browser.run(f"return !!({condition})"):
        assert time.monotonic() < end, browser.texts("#error, #status")
        time.sleep(.05)


@pytest.mark.long
@pytest.mark.browser
def test_in_a_browser_one_runs_stops_opens_a_round_and_judges(live, browser, address):
    def click(name, done="!busy"):
        browser.driver.find_element("id", name).click()
        until(browser, done)

    def typed(code):
        browser.run(f"$('editor').value = {json.dumps(code)}")

    browser.visit(address + "#prompt=The+old+man&temperature=0.8&seed=7&n_tokens=12")
    click("run", "busy && run.spec.length")             # while the race runs
    until(browser, "!busy")
    settings = RUN | dict(prompt="The old man", top_p=1, seed=7)
    assert browser.run("return run.spec.flatMap(r => r.tokens)") == [
        token for r in raced(live, **settings)[1] for token in r["tokens"]]
    browser.run("time = Infinity")
    until(browser, "chosen !== null")
    browser.driver.find_element("css selector", "#text-spec .round:nth-of-type(2)").click()
    click("next")
    assert browser.texts("#place")[0].startswith("line 2 of ") and len(browser.texts("#paper .lit")) <= 1

    browser.run("open(openings.findIndex(it => it.name === 'Swapped'))")
    click("judge")
    assert browser.texts("#verdict h3") == ["not lossless"] and browser.texts("#verdict .differs")
    typed(OPENED["verify"]["code"])
    click("judge")
    assert browser.texts("#verdict h3") == ["lossless"]
    typed(ENDLESS)
    click("race", "busy")
    click("stop")
    typed("def verify(q, p, drafts, rng):\n    return '<img src=x onerror=hacked=1>', 0")
    click("race")
    assert "<img" in browser.texts("#error")[0]
    last = "<script>hacked = 1</script> 😀"
    for prompt, words in [("", "is empty"), ("letters" * 2000, "do not fit into the context"), (last, "")]:
        browser.run(f"$('prompt').value = {json.dumps(prompt)}")
        click("run")
        assert words in browser.texts("#error")[0] and browser.run("return typeof hacked") == "undefined"
    link = browser.run("return location.href")
    browser.visit("about:blank")
    browser.visit(link)
    assert browser.run("return [$('prompt').value, $('seed').value]") == [last, "7"]
    assert [line for line in browser.complaints() if line["level"] == "SEVERE"] == []


@pytest.mark.browser
def test_in_a_browser_a_recorded_race_plays_from_a_file_which_says_what_it_cannot_do(browser, tmp_path):
    """Opened as a file, the page cannot run Python, and names the command that serves it."""
    page = site.live_page({"code.zip": b""})
    (tmp_path / "live.html").write_text(page, encoding="utf-8")
    browser.open(tmp_path / "live.html")
    until(browser, "$('count-alone').textContent.startsWith('40 tokens')")
    assert browser.texts("#text-alone") == [browser.run(
        "document.querySelectorAll('#text-spec .rejected').forEach(e => e.remove());"
        "return $('text-spec').textContent")]
    browser.driver.find_element("id", "run").click()
    assert "python -m http.server" in browser.texts("#error")[0] and browser.complaints() == []
