"""The judge's page: it asks what Python asks, it answers what Python answers, and loads nothing unasked."""
import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import get_pyodide
import pytest

from pages.judge import answer, openings
from pages.site import PYODIDE, judge_page
from verdicts import CASES
from verdicts.museum import RIGHT, RULES, WRONG

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "tests" / "tools"
DOZEN = ["Algorithm 2", *[case.name for case in CASES][::6]]
MUSEUM = [name for name in [*WRONG, *RIGHT] if name in RULES][::12]
VERIFY = "def verify(q, p, drafts, rng):\n    "


@functools.cache
def opened():
    return {opening["name"]: opening for opening in openings()}         # judges all cases


def request(opening, **changes):
    keys = "code", "case", "K", "n_tokens", "settings", "penalty"
    return {key: opening[key] for key in keys if key in opening} | changes


def asked(**changes):
    return json.loads(answer(json.dumps(request(next(openings()), **changes))))


def check(name):
    """What can be opened is judged as it should be; what no draft can come from, the loop itself refuses."""
    found = json.loads(answer(json.dumps(request(opened()[name]))))
    if "error" in found:
        assert opened()[name]["wrong"] and "cannot come from" in found["error"], (name, found)
    else:
        assert found["lossless"] != opened()[name]["wrong"], name
    return found


@pytest.fixture(scope="module")
def data():
    return json.loads(re.search(r'type="application/json">(.*?)</script>', judge_page(), re.S)[1])


def test_the_page_holds_this_repositorys_files_unchanged_and_they_need_nothing_but_numpy(data):
    files = data["files"]
    assert files == {path: (ROOT / path).read_text(encoding="utf-8") for path in files}
    assert {"speculative.py", "sampling.py", "lossless.py", "checks.py", "pages/judge.py"} <= files.keys()
    foreign = subprocess.run([sys.executable, "-c", """if True:
        import sys, pages.judge
        ours = {path.split("/")[0].removesuffix(".py") for path in sys.argv[1:]} | {"verdicts"}
        print(*{m.split(".")[0] for m in sys.modules} - sys.stdlib_module_names - ours)"""] + [*files],
        cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert {name for name in foreign if not name.startswith("_")} <= {"numpy", "cython_runtime"}


@pytest.mark.long
def test_the_museum_can_be_opened():
    museum = [opening for opening in opened().values() if opening["group"].startswith("the museum")]
    assert {opening["name"] for opening in museum} == {*WRONG, *RIGHT} & {*RULES}
    assert all(opening["wrong"] == (opening["name"] in WRONG) for opening in museum)


@pytest.mark.long
def test_all_that_can_be_opened_is_judged_as_the_verdicts_and_the_museum_say():
    for name in opened():
        check(name)


@pytest.mark.parametrize("code, words", [
    ("def verify(:", "line 1: SyntaxError"),
    (VERIFY + "return 0, nothing", "line 2: NameError: name 'nothing' is not defined"),
    (VERIFY + "return 0, rng.poisson()", "line 2: the judge cannot walk rng.poisson"),
    ("def propose(draft, x, k, to_probs, rng):\n    return [7] * k, None", "7"),
])
def test_what_cannot_be_judged_is_one_sentence_with_its_line(code, words):
    found = asked(code=code)
    assert found.keys() == {"error"} and words in found["error"] and "\n" not in found["error"]


def test_only_what_is_defined_takes_the_place_of_algorithm_2():
    assert asked(code="")["lossless"]
    assert not asked(code=VERIFY + "return len(drafts), sample(q[-1], rng)")["lossless"]
    ones = "def propose(draft, x, k, to_probs, rng):\n    return [1] * k, None"
    assert asked(code=ones)["lossless"]


# In WebAssembly ------------------------------------------------------------------------

@pytest.fixture(scope="module")
def pyodide():
    folder = Path(os.environ.get("PYODIDE", "missing")).resolve()
    if not (folder / "pyodide.mjs").exists() or not list(folder.glob("numpy-*.whl")):
        pytest.skip("no Pyodide: python tests/tools/get_pyodide.py FOLDER, and PYODIDE=FOLDER")
    return folder


def near(a, b):
    """Equal, numbers to 1e-12."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(near(a[key], b[key]) for key in a)
    return a == b or isinstance(a, float) and abs(a - b) < 1e-12


@pytest.mark.long
def test_in_webassembly_the_answers_are_those_of_python(pyodide, data):
    if not shutil.which("node"):
        pytest.skip("no node: apt-get install nodejs")
    requests = [request(opened()[name]) for name in DOZEN + MUSEUM]
    requests.append(request(opened()["Algorithm 2"], code=VERIFY + "0 / 0"))
    done = subprocess.run(["node", TOOLS / "judge_in_node.mjs", pyodide], text=True, capture_output=True,
                          check=True, input=json.dumps(dict(files=data["files"], requests=requests)))
    for one, found in zip(requests, json.loads(done.stdout), strict=True):
        assert near(found, json.loads(answer(json.dumps(one)))), (one["code"], found)


@pytest.fixture(scope="module")
def server(pyodide):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def end_headers(self):
            self.send_header("Access-Control-Allow-Origin", "*")
            super().end_headers()

        def log_message(self, *_):
            asked_for.append(self.path)

    asked_for = []
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=pyodide))
    threading.Thread(target=served.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{served.server_port}/", asked_for
    served.shutdown()


def judge_it(browser, seconds=60):
    """Press the button -> the verdict's first words."""
    browser.driver.find_element("id", "judge").click()
    end = time.monotonic() + seconds
    while browser.run("return $('judge').disabled"):
        assert time.monotonic() < end
        time.sleep(.05)
    return browser.texts("#verdict h2")[0]


def check_shown(browser, found):
    """The page's verdict is `found`, Python's answer."""
    words = {True: "lossless", False: "not lossless", None: "cannot be judged"}
    assert judge_it(browser) == words[found.get("lossless")], found
    numbers = [float(text) for text in browser.texts("#verdict b")]
    wrong = [found["probability"], found["wanted"]] if found.get("text") else []
    assert numbers == pytest.approx(wrong, rel=1e-3, abs=1e-6)


@pytest.mark.browser
def test_in_a_browser_it_judges_after_a_click_and_asks_nobody_else(browser, server, tmp_path):
    base, asked_for = server
    page = judge_page(base)
    assert PYODIDE not in page and judge_page().replace(PYODIDE, base) == page
    assert get_pyodide.PYODIDE.replace("@", "/v") + "/" in PYODIDE      # what is tested is what is loaded
    (tmp_path / "judge.html").write_text(page, encoding="utf-8")
    browser.open(tmp_path / "judge.html", address=f"#{DOZEN[1]}")
    assert browser.run("return $('open').selectedOptions[0].text") == DOZEN[1] and asked_for == []
    check_shown(browser, check(DOZEN[1]))
    kinds = r"/pyodide(\.asm)?\.(js|wasm)|/pyodide-lock\.json|/python_stdlib\.zip|/numpy-.*\.whl"
    assert all(re.fullmatch(kinds, path) for path in asked_for), asked_for
    n_asked = len(asked_for)
    for code in "", VERIFY + "return nothing":
        browser.run(f"$('editor').value = {code!r}")
        check_shown(browser, asked(**request(opened()[DOZEN[1]], code=code)))
    browser.run(f"$('editor').value = {VERIFY + 'while True: pass'!r}")
    browser.driver.find_element("id", "judge").click()
    browser.driver.find_element("id", "stop").click()
    assert browser.texts("#verdict h2") == ["stopped"] and len(asked_for) == n_asked
    for name in DOZEN + MUSEUM:                         # each asks for what it is judged with
        browser.run(f"open({[*opened()].index(name)})")
        assert browser.run("return request()") == {"penalty": False} | request(opened()[name])
    assert [line for line in browser.complaints() if line["level"] != "INFO"] == []


@pytest.mark.long
@pytest.mark.browser
def test_in_a_browser_the_museum_is_judged_as_python_judges_it(browser, server, tmp_path):
    (tmp_path / "judge.html").write_text(judge_page(server[0]), encoding="utf-8")
    browser.open(tmp_path / "judge.html")
    for name in MUSEUM:
        browser.run(f"open({[*opened()].index(name)})")
        check_shown(browser, check(name))
