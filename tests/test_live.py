"""The pair on the page: it shows what really ran, it computes the same in WebAssembly as here, its numbers
are those worked out by hand, and wrong input gets a sentence."""
import functools
import http.server
import itertools
import json
import os
import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT
from test_verdicts import QUICK

from benchmarks.figures import value
from lossless import cases, judge
from lossless.verdicts import CASES
from lossless.verdicts.museum import RIGHT, RULES, WRONG
from methods.table import choose, prepare
from pages import site
from pages.live import Live, openings

RUN = dict(prompt="The sun was going down.", n_tokens=12, K=4, temperature=.8, top_p=.95, seed=0,
           drafter="model", verifier="token")
OPENED = {opening["name"]: opening for opening in openings()}
STOPS = (ROOT / "tests/tools/stops.js").read_text(encoding="utf-8")
ENDLESS = "def verify(q, p, drafts, rng):\n    while True: pass"


@pytest.fixture(scope="module")
def live():
    return Live()


def raced(live, **changes):
    """(what the page shows about a race, the rounds of its speculative lane)"""
    about, rounds = json.loads(live.start(json.dumps(RUN | changes))), []
    while "error" not in about and (found := json.loads(live.advance('{"lane": "spec"}'))):
        rounds.append(found)
    return about, rounds


@pytest.mark.parametrize("drafter, verifier, picture", [("model", "tree", "tree")] + [
    (drafter, picture, picture) for drafter in ("model", "lookup", "eagle")
    for picture in ("token", "block")])
def test_each_round_has_its_picture(live, drafter, verifier, picture):
    """Of Algorithm 2 and block verification, with lines that pages/picture.py quotes."""
    about, rounds = raced(live, drafter=drafter, verifier=verifier)
    assert sum(len(r["tokens"]) for r in rounds) == 12 and about["picture"] == picture
    assert (about["most"], about["n_drafting"]) == ((16, 3) if verifier == "tree" else (5, 4))
    assert all("tests" in r and ("nodes" in r) == (picture == "tree") and "steps" not in r for r in rounds)
    assert len(rounds[0].get("nodes", rounds[0].get("drafts"))) <= about["most"] - 1


@pytest.mark.parametrize("changes, words", [
    (dict(prompt="word " * 600), "do not fit into the context"),
    (dict(drafter="lookup", verifier="tree"), "tree judges a tree"),
    (dict(code="def verify(:"), "line 1: SyntaxError"), (dict(code="x = 1"), "neither propose nor verify")])
def test_what_cannot_be_run_is_one_sentence(live, changes, words):
    about, _ = raced(live, **changes)
    assert about.keys() == {"error"} and words in about["error"] and "\n" not in about["error"]


@pytest.mark.parametrize("code, words", [
    ("return 0, nothing", "line 2: NameError: name 'nothing' is not defined"),
    ("return 0, rng.poisson()", "line 2: the judge cannot walk rng.poisson"),
    ("return None", "the rule returned None"), ("return -1, 0", "the rule returned (-1, 0)"),
    ("return 0, 99", "the rule returned (0, 99)")])
def test_what_cannot_be_judged_is_one_sentence_with_its_line(live, code, words):
    found = json.loads(live.judge(json.dumps({"code": "def verify(q, p, drafts, rng):\n    " + code})))
    assert found.keys() == {"error"} and words in found["error"] and "\n" not in found["error"]


def judged(live, name):
    opening = OPENED[name]
    return json.loads(live.judge(json.dumps({key: opening[key] for key in (
        "code", "settings", "penalty", "disputed") if key in opening})))


@pytest.mark.parametrize("name", ["verify", "Swapped", "OneCoinForAll", CASES[0].name])
def test_what_is_opened_runs_a_race_line_by_line_and_is_judged(live, name, monkeypatch):
    monkeypatch.setattr(judge, "CASES", cases.CASES[:20])
    about, rounds = raced(live, code=OPENED[name]["code"])
    assert rounds and not any("error" in r for r in rounds) and about["lossless"] is None, (about, rounds)
    steps = [step for r in rounds for step in r["steps"]]
    assert not any("test" in step for step in steps)            # Algorithm 2's bound is not this rule's
    returned = [value for step in steps for name, value in step["facts"] if name == "returned"]
    assert returned == [] or returned.count("True") == sum(r["accepted"] for r in rounds)
    assert [source["name"] for source in about["sources"]][-2:] == ["your code", "the loop"]
    for r in rounds:
        assert ["new", {"tokens": r["tokens"], "of": len(r["tokens"])}] in r["steps"][-1]["facts"]
    seen = []
    live.progress = seen.append
    assert judged(live, name)["lossless"] != OPENED[name]["wrong"]
    assert seen == sorted(seen) and 0 < seen[-1] <= len(cases.CASES) / 20


@pytest.mark.long
def test_all_that_can_be_opened_is_judged_as_the_verdicts_and_the_museum_say(live, monkeypatch):
    """What is right on a few cases (test_verdicts.py judges it on all), and one of several that are alike."""
    assert {*RULES} & {*WRONG, *RIGHT} | {case.name for case in CASES} | {"verify", "propose"} == {*OPENED}
    monkeypatch.setattr(judge, "CLEAR", 0)
    alike = {str([one.get(key) for key in ("code", "settings", "penalty")]): one for one in openings()}
    for opening in alike.values():
        monkeypatch.setattr(judge, "CASES", QUICK if opening["wrong"] else cases.CASES[:4])
        found = judged(live, opening["name"])
        if "error" in found:                            # its drafts cannot come from p: the loop refuses it
            assert opening["wrong"] and "cannot come from" in found["error"], (opening["name"], found)
        else:
            assert found["lossless"] != opening["wrong"], opening["name"]


# In WebAssembly ---------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def pyodide():
    folder = Path(os.environ.get("PYODIDE", "missing")).resolve()
    if not (folder / "pyodide.mjs").exists() or not list(folder.glob("regex-*.whl")):
        pytest.skip("no Pyodide: run python tests/tools/get_pyodide.py FOLDER, then set PYODIDE=FOLDER")
    return folder


@pytest.fixture(scope="module")
def address(pyodide, tmp_path_factory):
    """index.html on a server, with Pyodide beside it.  The first answer to one request is wrong."""
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            if self.path.startswith("/demo-draft.zip") and not damaged:
                damaged.append(self.path)
                self.path = "/index.html"
            super().do_GET()

    folder, damaged = tmp_path_factory.mktemp("site"), []
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    home = f"http://127.0.0.1:{served.server_port}/"
    files = site.packs()
    page = site.index_page(files, base=home + "pyodide/")
    assert site.PYODIDE not in page
    for file, data in {**files, "index.html": page.encode()}.items():
        (folder / file).write_bytes(data)
    (folder / "pyodide").symlink_to(pyodide)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    yield home + "index.html"
    served.shutdown()


def until(browser, condition, seconds=240):
    end = time.monotonic() + seconds
    while not browser.run(f"return !!({condition})"):
        assert time.monotonic() < end, browser.texts("#error, #status, #verdict")
        time.sleep(.05)


def rounds_in_python(live, prompt, n_tokens, K, temperature, top_p, seed, drafter, verifier):
    """(drafts, n_accepted, tokens) of each round of such a run, without the page."""
    tokens, settings = live.encoder.encode(prompt), dict(temperature=temperature, top_p=top_p)
    method = prepare(choose(drafter, verifier), live.models, tokens, K, settings)
    run = method.sampler(method.draft, method.target, tokens, n_tokens, K, np.random.default_rng(seed),
                         eos=live.encoder.eos, **settings)
    return [[list(r.drafts), r.n_accepted, list(r.tokens)] for r in run]


@pytest.mark.long
@pytest.mark.browser
def test_in_a_browser_your_run_takes_the_recordings_place_and_is_that_of_python(live, browser, address):
    def measure_here():
        browser.run("$('presets').lastChild.click()")
        until(browser, "$('stop').hidden && s.preset.name === 'this browser'")  # one download was damaged
        assert browser.texts("#c-is")[0] in browser.texts("#preset-words")[0]
        assert browser.run("return s.c > 0 && s.v === s.preset.v[s.run.about.most - 1]")

    browser.visit(address)
    time.sleep(2)
    assert browser.run("return s.run.recorded && !$('status').textContent")     # nothing unasked
    measure_here()
    for changes in ({}, dict(temperature=.8), dict(temperature=.8, drafter="lookup", top_p=.9, seed=3),
                    dict(drafter="eagle", prompt="Héllo — 漢字 😀"),
                    dict(prompt="1, 2, 3,", K=7), dict(temperature=.8, seed=7, verifier="block")):
        browser.run(f"use(data.presets[0]); location.hash = new URLSearchParams({json.dumps(changes)})")
        until(browser, f"Object.entries({json.dumps(changes)}).every(([key, x]) => asSet()[key] === x)")
        browser.run("if (location.hash.length > 1) $('run').click()")
        until(browser, "$('stop').hidden && !s.run.recorded && "
              "Object.entries(asSet()).every(([key, x]) => s.run.settings[key] === x)")
        shown = browser.run("return s.run.spec.map(r => [r.drafts.map(d => d.token), r.accepted, r.tokens])")
        assert shown == rounds_in_python(live, **site.START | changes), changes
    measure_here()
    assert browser.complaints() == []


@pytest.mark.long
@pytest.mark.browser
def test_in_a_browser_one_runs_stops_opens_a_round_and_judges(browser, address):
    def click(name, done="$('stop').hidden"):
        browser.run(f"$('{name}').click()")
        until(browser, done)

    def type_code(code):
        browser.run(f"$('editor').value = {json.dumps(code)}; $('editor').oninput()")

    browser.visit("about:blank")
    browser.visit(address + "#prompt=The+old+man&temperature=0.8&seed=7&n_tokens=12&verifier=block")
    browser.driver.find_element("css selector", "#drawer summary").click()
    click("run", "!$('stop').hidden && !s.run.recorded && s.run.spec.length")    # while the race runs
    until(browser, "$('stop').hidden")
    browser.run("play(false); s.now = Infinity; draw()")
    browser.driver.find_element("css selector", "#text-spec .can:nth-of-type(3)").click()
    until(browser, "s.opened.of === s.run && s.opened.i === 1")
    assert browser.run("return document.activeElement.id") == "r-next"
    click("r-next")
    assert browser.texts("#place")[0].startswith("round 2 of ") and len(browser.texts("#source .lit")) == 1

    browser.run("open(openings.findIndex(it => it.name === 'Swapped'))")
    assert browser.texts("#differences .minus, #differences .plus") == [
        "        return rng.random() * p[x] < q[x]", "        return rng.random() * q[x] < p[x]"]
    click("judge")
    assert browser.texts("#verdict .verdict") == ["not lossless"]
    type_code(OPENED["verify"]["code"].replace("residual = np.maximum(q - p, 0)", "residual = q"))
    until(browser, "$('differences').textContent.includes('np.maximum')")
    click("try")
    assert browser.run("return Math.abs($('race').getBoundingClientRect().top) < 20")
    browser.run("openRound(s.run, 0, true)")
    assert len(browser.texts("#source .differs")) == 1
    type_code(ENDLESS)
    click("try", "!$('stop').hidden")
    click("stop")
    type_code("def verify(q, p, drafts, rng):\n    return '<img src=x onerror=hacked=1>', 0")
    for button, place in ("try", "#error"), ("judge", "#verdict"):
        click(button)
        assert "returned ('<img" in browser.texts(place)[0]
    last = "<script>hacked = 1</script> 😀"
    for prompt, words in [("", ""), ("letters" * 2000, "do not fit into the context"), (last, "")]:
        browser.run(f"$('prompt').value = {json.dumps(prompt)}")
        click("run")
        assert words in browser.texts("#error")[0] and browser.run("return typeof hacked") == "undefined"
    link, own = browser.run("return [addressOf({ code: 'x = 1' }), $('editor').value]")
    browser.driver.refresh()
    assert browser.run("return [$('prompt').value, $('seed').value, $('editor').value]") == [last, "7", own]
    browser.run("open(1); open(openings.findIndex(it => it.name === 'Swapped'))")
    assert browser.run("return $('editor').value") == own       # what was typed is kept, with each rule
    browser.visit("about:blank")
    browser.visit(link)
    assert browser.run("return [$('editor').value, $('choice').selectedOptions[0].text]") == [
        "x = 1", "code that came with a link"]
    assert [line for line in browser.complaints() if line["level"] == "SEVERE"] == []


# From a file, without a network -----------------------------------------------------------------------------

@pytest.fixture
def page(browser, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "index.html"
    if not path.exists():
        path.write_text(site.index_page({"code.zip": b""}), encoding="utf-8")
    yield lambda address="", *size: browser.open(path, *size, address=address) or browser
    assert browser.complaints() == []


@pytest.mark.browser
def test_in_a_browser_a_recording_plays_its_rounds_open_and_the_page_says_what_a_file_cannot_do(page):
    browser = page()
    assert browser.run("return s.playing && s.run.recorded")
    for i in range(20):                                 # a click on a round opens it while the race plays
        browser.run("dial(.6, 2); s.now = 20; play(true)")      # a change every other tenth of a second
        browser.driver.find_elements("css selector", "#text-spec .can")[i % 3].click()
        assert browser.run("return s.opened.of === s.run && s.opened.i") == i % 3
        assert browser.run("return $('slot').contains($('round'))")     # in place
        browser.run("scrollTo(0, 0)")
        time.sleep(.05)
    browser.run("s.now = Infinity; draw()")
    assert browser.texts("#text-alone") == [browser.run("return $('text-spec').innerText")]
    browser.run("race()")
    assert "python -m http.server" in browser.texts("#error")[0]
    shared = browser.run("$('twin').click(); openRound(s.run, 2, true); return addressOf({})")
    browser = page("#" + shared.split("#")[1])          # the link opens that round of that run
    assert browser.run("return [runs.indexOf(s.opened.of), s.opened.i, runs.indexOf(s.run)]") == [1, 2, 1]
    assert browser.run("$('text-spec').querySelectorAll('.can')[2].click(); return s.stops[s.at].out")


@pytest.mark.browser
def test_in_a_browser_lanes_and_headline_say_one_speed_up(page):
    """Tokens / the sum over the rounds of (k c + v(k)), where a pass over 1 row costs 1, one over K + 1 rows
    costs v, and in between it is linear in k."""
    browser = page()
    for i, (c, v) in [(0, (.15, 1.37)), (6, (.6, 4.9)), (0, (1, 5.22))]:
        run = browser.run(f"choose(runs[{i}]); dial({c}, {v}); s.now = Infinity; draw(); return s.run")
        most = 15 if i else 4
        steps = sum(r["depth"] * c + 1 + (v - 1) * len(r.get("drafts", r.get("nodes"))) / most
                    for r in run["spec"])
        assert browser.texts("#speed, #v-is") == [f"v = {v:.2f}", f"{40 / steps:.2f}×"]
        assert float(browser.run("return $('v').value")) == v                   # also beyond K + 1
        assert ("Switch drafting off" in browser.texts("#advice")[0]) == (40 < steps)
        ends = [text.split("after ")[1] for text in browser.texts("#count-alone, #count-spec")]
        assert [float(text.split()[0]) for text in ends] == pytest.approx([40, steps], abs=.051)
    browser.run("choose(runs[0]); use(data.presets[1])")
    assert browser.run("return [s.c, s.v]") == pytest.approx([value(f"avx2 {name}") for name in (
        "model token K=4 T=1: c", "passes demo-target: v 5")], abs=.001)


@pytest.mark.browser
def test_in_a_browser_the_formula_is_shown_only_for_drafts_judged_one_by_one(page):
    browser = page()
    for n, change, said in [
            (0, "", ""), (0, "settings: { ...runs[0].settings, verifier: 'lenient:.5' }", ""),
            (0, "settings: { ...runs[0].settings, verifier: 'block' }", "the rule is block"),
            (6, "", "In a tree"), (7, "", "does not always"),
            (0, "about: { ...runs[0].about, edited: true }", "the rule is your own")]:
        browser.run(f"choose({{ ...runs[{n}], {change} }})")
        assert said in browser.texts("#when-not")[0] and bool(said) == browser.run("return $('whats').hidden")


@pytest.mark.browser
@pytest.mark.parametrize("n", [1, 6, 7], ids=["a line", "a tree", "copied drafts"])
def test_in_a_browser_a_round_is_gone_through(page, n):
    browser = page()
    assert browser.run("return s.opened.of.settings.temperature") == .8
    assert browser.run("return s.opened.r.accepted < s.opened.r.drafts.length && s.at === 0")
    seen = browser.run(f"openRound(runs[{n}], 0, true);" + STOPS)
    assert {stop["kind"] for stop in seen} > {"show", "test", "accept", "left"}
    for stop in seen:
        assert len(stop["lit"]) == 1 and not re.search("undefined|NaN", stop["shown"])
        if stop["kind"] == "test":
            t = stop["t"]
            assert ("rejected" in stop["said"]) == (t["r"] >= t["ratio"]) == ("not less than" in stop["said"])
            assert stop["marks"] == pytest.approx([100 * t["ratio"], 100 * t["r"]])
        if stop["kind"] == "draw":                      # the shares of what is missing add up to 1
            assert sum(float(text.split()[0]) for text in stop["nums"] if text) == pytest.approx(1, abs=.01)


@pytest.mark.browser
def test_in_a_browser_the_game_is_played(page):
    browser = page("#guess")
    dealt = browser.run("return dealt()")
    reasons = [rule["reason"] for rule in site.game()["rules"]]
    assert reasons != [rule["reason"] for rule in dealt] and {*reasons} == {rule["reason"] for rule in dealt}
    for i, rule in enumerate(dealt):
        assert browser.texts("#card button") == ["Lossless", "Not lossless"]
        browser.run(f"document.querySelectorAll('#card button')[{i % 2}].click()")
        said = browser.texts("#card")[0]
        assert ("Not lossless." in said) != rule["lossless"] and rule["reason"] in said
        assert browser.run("return document.activeElement.textContent") == browser.texts("#card .verdict")[0]
        assert ("You saw it." in said) == (rule["lossless"] == (i % 2 == 0))
        assert (f"{rule['probability']:.4g}" in said) if rule["text"] else "no text is wrong" in said
        browser.run("$('card').querySelector('button').click()")
    right = sum(rule["lossless"] == (i % 2 == 0) for i, rule in enumerate(dealt))
    assert f"{right} of 10 accept rules right" in browser.texts("#card")[0]


@pytest.mark.browser
def test_in_a_browser_the_keyboard_is_enough(page):
    def go_to(selector):
        for _ in range(60):
            if browser.run(f"return document.activeElement.matches('{selector}')"):
                return
            browser.press("\ue004")                     # Tab
        raise AssertionError(selector)

    browser = page()
    browser.press(" ")                                  # from the body: plays, and does not scroll
    assert browser.run("return !s.playing && scrollY === 0")
    browser.press(" ")
    browser.run("s.slow = true; s.now = 1")             # so that it still plays at the end
    for selector, key, then in [
            ("summary", " ", "$('drawer').open && s.playing"), ("#drawer .main", "", "s.playing"),
            ("#play", " ", "!s.playing"),
            ("#step", "\ue014" * 6, "$('said').textContent.includes('Round')"),
            ("#text-spec .can", "\ue007", "s.opened.of === s.run && document.activeElement === $('r-next')"),
            ("#r-next", "\ue014", "s.at > 0"), ("#card button", "\ue007", "answers.length === 1"),
            ("#editor", "x", "$('editor').value.includes('x')"), ("#judge", "\ue007", "!$('error').hidden")]:
        go_to(selector)
        browser.press(key)
        assert browser.run(f"return {then}"), (selector, then)
    said = browser.run("return $('text-spec').querySelector('.can').ariaLabel")
    assert said == "Round 1: rejected 'm; drawn 'll"


@pytest.mark.browser
@pytest.mark.parametrize("size, on", [((1280, 720), " "), ((1920, 1080), "\ue00f"), ((375, 800), "click")],
                         ids=["keyboard", "remote", "mouse"])
def test_in_a_browser_the_tour_goes_through_the_ten_minutes_of_the_lesson(page, size, on):
    """Each stop says its sentence, moves something, and fits; the hatched part and the draw are seen."""
    browser, seen, look = page("", *size), [], (ROOT / "tests/tools/stop.js").read_text(encoding="utf-8")
    browser.run("$('tour').focus(); $('tour').click(); document.activeElement.blur()")
    for n, (name, words) in enumerate(site.tour()["stops"], 1):
        assert browser.texts("#guide-words") == [words] and browser.run("return $('g-place').value") == str(n)
        if name in ("the drafts", "the check", "what stays"):
            until(browser, "!s.playing")                # slow, to the next halt
        if name == "the race":
            until(browser, "s.now > 0")                 # it plays
        if name == "one guess":                         # then the reason fits, too
            browser.run("$('card').querySelector('button').click()")
        found = browser.run(look)
        assert found["parts"] == 1 and found["width"] <= size[0], name
        if size[0] > 400:
            assert found["height"] <= size[1] and found["full"] > 2 / 3 and not found["small"], (name, found)
        assert found["shown"] not in [other["shown"] for other in seen]
        seen.append(found)
        browser.run("$('g-next').click()") if on == "click" else browser.press(on)
    assert {"left", "draw"} <= {found["hatched"] for found in seen}
    assert browser.texts("#answers dt") == [asked for asked, _ in site.tour()["end"]] and len(seen) == 15
    assert ["hidden", "visible"] == [browser.run(f"""go({n});
        return getComputedStyle(document.querySelector('dd')).visibility""") for n in (15, 16)]
    browser.press("\ue00e")                             # PageUp
    assert browser.run("return $('g-place').value") == "14"
    browser.press("\ue00c")                             # Esc
    assert browser.run("return document.activeElement.id + document.documentElement.className") == "race"
    playing = browser.run("return s.playing")
    browser.press(" ")                                  # plays, and does not begin the tour again
    assert browser.run("return s.playing") != playing and browser.run("return $('guide').hidden")


@pytest.mark.browser
def test_in_a_browser_axe_finds_nothing(page):
    """WCAG 2.2, in light and dark: on the page, with a round opened in place, at each stop of the tour."""
    path = Path(os.environ.get("AXE", "missing"))
    if not path.exists():
        pytest.skip("no axe-core: npm install axe-core@4.11.1, then set AXE to its axe.min.js")
    browser = page()
    browser.run(path.read_text(encoding="utf-8") + "; window.axe = axe; play(false)")
    scripts = ["s.now = 20; draw()", "document.querySelectorAll('.can')[1].click()",
               *(f"go({n})" for n in range(1, 16))]
    for script, scheme in itertools.product(scripts, ["light", "dark"]):
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dict(
            features=[dict(name="prefers-color-scheme", value=scheme)]))
        browser.run(script)
        found = browser.driver.execute_async_script("""axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a",
            "wcag21aa", "wcag22aa"] }).then(all => arguments[0](all.violations.map(one => one.help)))""")
        assert found == [], script
