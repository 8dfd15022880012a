"""The page of a run: its numbers are those of the rounds, its lines are those that ran, its text is data."""
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from helpers import full_disk

import console
from encoder import EOS, Encoder, bytes_to_unicode
from lossless import memoryless, table
from main import main
from methods import Pair, choose
from pages import trace
from pages.frame import page
from pages.rounds import Coins, Shown
from pages.trace import SETTINGS, write_trace
from reporting.stats import ratio
from speculative import propose, speculative_sampling, verify

HOSTILE = ["</script><script>hacked = 1</script>", "<img src=x onerror='hacked = 1'>", "<!--<script>",
           "{{data}}", "&lt;b&gt;", "\u2028\\u003c\"'"]
WORDS = [" the", " sea", "\n", "漢字", *HOSTILE, "😀"]


def encoder_of(words):
    """An encoder with a token for each word, then half a character, then EOS."""
    char_of = bytes_to_unicode()
    tokens = ["".join(char_of[b] for b in word.encode()) for word in words] + [char_of[0xe2]]
    return Encoder({token: i for i, token in enumerate(tokens)} | {EOS: len(tokens)}, [])


ENCODER = encoder_of(WORDS)


def traced(path, models=None, n_tokens=24, prompt="Once <b>upon</b> a time", verifier="token"):
    """Writes the page of a run of two tables to `path` -> (the rounds, the data in the page)."""
    def run(pair, rng):
        return speculative_sampling(pair.draft, pair.target, [0], n_tokens, 3, rng, verify=method.verify)

    pair = Pair(*models or [table(seed, zeros=.2, n_vocab=ENCODER.n_vocab) for seed in (5, 105)])
    method = choose("model", verifier)
    rounds = [*run(pair, np.random.default_rng(1))]
    tokens = [token for r in rounds for token in r.tokens]
    result = dict.fromkeys(SETTINGS, 1) | dict(
        prompt=prompt, draft=HOSTILE[1], autoregressive=dict(tokens=tokens),
        speculative=dict(tokens_per_target_pass=ratio(n_tokens, len(rounds))))
    write_trace(path, run, pair, method, ENCODER, result, [.01] * n_tokens)
    return rounds, data_of(path.read_text(encoding="utf-8"))


class Data(HTMLParser):
    """Reads a page as a browser does, and keeps the tags and the contents of <script id="data">."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.tags and self.tags[-1] == ("script", {"id": "data", "type": "application/json"}):
            self.text += data


def data_of(html):
    return json.loads(Data(html).text)["recorded"]


@pytest.mark.parametrize("rule", ["token", "block"])
def test_the_page_has_the_numbers_of_the_rounds_and_the_lines_that_ran(tmp_path, rule):
    rounds, data = traced(tmp_path / "run.html", verifier=rule)
    assert len(rounds) == len(data["spec"]) and data["alone"][3]["seconds"] == .01
    for r, shown in zip(rounds, data["spec"]):
        assert (shown["tokens"], shown["kept"]) == (r.tokens, r.n_accepted) and 0 < shown["seconds"] < 1
        assert [draft["token"] for draft in shown["drafts"]] == r.drafts
        for draft, q, p in zip(shown["drafts"], r.target_probs, r.draft_probs):
            assert [draft["q"], draft["p"]] == pytest.approx([q[draft["token"]], p[draft["token"]]], rel=1e-3)
        n, k = r.n_accepted, len(r.drafts)
        after = ["rejected"] * k if rule == "block" else ["rejected"] + ["not tested"] * k
        assert [draft["verdict"] for draft in shown["drafts"]] == (["accepted"] * n + after)[:k]
        assert shown["last"] == dict(token=r.tokens[-1], kind="correction" if n < k else "bonus")
        assert shown["steps"][-1]["facts"][-1][1] == {"tokens": r.tokens, "of": n + 1}
        for step in shown["steps"]:
            chart = step.get("chart")
            if chart and {*chart["series"]} <= {"q", "p", "drawn from"}:
                assert np.sum([row[1:] for row in chart["rows"]], axis=0) == pytest.approx(1, abs=.01)
            if draw := step.get("draw"):
                assert draw["u"] is None or draw["start"] - 1e-3 <= draw["u"] <= draw["end"] + 1e-3


def test_text_of_the_model_or_the_prompt_is_never_markup(tmp_path):
    uniform = memoryless(np.full(len(WORDS), 1 / len(WORDS)))
    _, data = traced(tmp_path / "run.html", [uniform] * 2, n_tokens=40, prompt="".join(HOSTILE))
    assert data["settings"]["prompt"] == "".join(HOSTILE)
    assert {*HOSTILE} & {piece for r in data["spec"] for piece in r["text"]}
    found = Data((tmp_path / "run.html").read_text(encoding="utf-8"))
    plain = Data(page("", "trace.html", {}, about=""))
    assert found.tags == plain.tags


def test_a_character_in_two_tokens_comes_with_the_second():
    parts = [b"\xe2\x80", b"\x94", b"a"]
    encoder = Encoder({"".join(bytes_to_unicode()[b] for b in part): i for i, part in enumerate(parts)}, [])
    target, coins = lambda tokens, n_last=1: np.log(np.eye(3))[-n_last:], Coins(np.random.default_rng(0))
    with np.errstate(divide="ignore"):
        run = speculative_sampling(None, target, [0], 3, 2, coins, propose=lambda *_: ([0, 1], None))
        found = Shown(encoder, coins, propose, verify).next(run)
    assert found["text"] == ["", "—", "a"] and found["names"][0] == "\\xe2\\x80"


def test_the_page_of_a_long_run_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "LIMIT", 50_000)
    rounds, data = traced(tmp_path / "run.html", n_tokens=100)
    assert 5 < len(data["spec"]) < len(rounds)
    assert len(data["alone"]) == sum(len(r["tokens"]) for r in data["spec"])
    shown = [json.dumps(r) for r in data["spec"]]
    assert sum(map(len, shown[:-1])) < 50_000 < sum(map(len, shown)) + 1000      # the seconds come on top
    with pytest.raises(OSError, match="run.html"), full_disk(10_000):
        traced(tmp_path / "run.html")
    assert len(data_of((tmp_path / "run.html").read_text(encoding="utf-8"))["spec"]) == len(data["spec"])


@pytest.mark.parametrize("drafter, verifier, lines", [
    ("model", "token", "propose verify"), ("lookup", "lenient:0.3", "propose verify_leniently"),
    ("eagle", "block", "propose verify"), ("cascade", "token", "propose verify"),
    ("parallel", "token", "propose verify"), ("suffix", "token", "propose verify"),
    ("model", "tree", ""), ("model", "coupled", "")])
def test_the_command_line_writes_the_page_of_its_run(tmp_path, capsys, drafter, verifier, lines):
    run = ["--json", "--temperature", "0.8", "--drafter", drafter, "--verifier", verifier, "-n", "12"]
    assert console.run(main, run) == 0
    plain = json.loads(capsys.readouterr().out)["speculative"]["tokens"]
    assert console.run(main, [*run, "--trace", str(tmp_path / "run.html")]) == 0
    result = json.loads(capsys.readouterr().out)
    html = (tmp_path / "run.html").read_text(encoding="utf-8")
    data = data_of(html)
    assert plain == result["speculative"]["tokens"] == [token for r in data["spec"] for token in r["tokens"]]
    assert "".join(text for r in data["alone"] for text in r["text"]) == result["autoregressive"]["text"]
    assert [source["name"] for source in data["about"]["sources"]] == [
        *lines.split(), *["the loop"] * bool(lines)]
    assert all(bool(r.get("steps")) == bool(lines) for r in data["spec"])
    assert f"verifier {verifier}" in html and "seed 0" in html


# In a browser -----------------------------------------------------------------------------------------------

@pytest.mark.browser
def test_in_a_browser_a_run_plays_and_its_rounds_are_gone_through(browser, tmp_path):
    rounds, data = traced(tmp_path / "run.html")
    browser.open(tmp_path / "run.html")
    browser.run("time = Infinity; tick()")
    assert browser.texts("#count-alone, #count-spec") == [
        "24 tokens, 24 passes", f"24 tokens, {len(rounds)} passes"]
    shown = "".join("".join(r["text"]) for r in data["alone"])
    assert browser.texts("#text-alone") == ["Once <b>upon</b> a time" + shown]
    for i, (r, known) in enumerate(zip(rounds, data["spec"])):
        browser.run(f"choose({i})")
        assert browser.texts("#round-title") == [f"Round {i + 1} of {len(rounds)}"]
        lit = []
        for step in known["steps"]:
            source = data["about"]["sources"][step["source"]]
            assert browser.texts(".source .lit") == [source["lines"][step["line"]]]
            if (part := source["paper"][step["line"]]) is not None:
                assert browser.texts("#paper .lit") == [data["about"]["steps"][part]]
                lit.append(part)
            if test := step.get("test"):
                said = "accept" if test["u"] * test["p"] < test["q"] else "reject"
                assert browser.texts("#values b")[-1:] == [said]
                assert len(browser.texts(".chips li")) == len(r.drafts)     # the new token is not shown yet
            browser.press("\ue014")                     # the right arrow
        assert len(browser.texts(".chips .accepted")) == r.n_accepted and browser.texts(".chips .own")
        assert lit[0] == 0 and lit[-1] == (4 if r.n_accepted < len(r.drafts) else 5)
    browser.run("bySeconds = true; replay(); time = .11; tick()")
    assert browser.texts("#count-alone") == ["11 tokens, 11 passes, 0.11 s"]
    assert browser.run("return document.images.length + document.scripts.length") == 2
    assert browser.run("return typeof hacked") == "undefined" and browser.complaints() == []


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [(390, 844), (1280, 800)], ids=["narrow", "wide"])
def test_in_a_browser_it_fits_the_screen(browser, tmp_path, size, dark):
    traced(tmp_path / "run.html", prompt="W" * 300)
    browser.open(tmp_path / "run.html", *size, dark=dark)
    browser.run("time = Infinity; tick()")
    for _ in range(30):
        browser.run("$('next').disabled ? choose(chosen + 1) : move(1)")
        assert browser.run("return document.documentElement.scrollWidth") <= size[0]
    heights = browser.run("return [...document.querySelectorAll('button')].map(b => b.offsetHeight)")
    assert min(heights) >= 44 and browser.complaints() == []
    ground = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground))) < 200) == dark


def test_every_colour_of_text_can_be_read_on_both_backgrounds():
    """A contrast of at least 4.5, as in WCAG 2.1, in the light and the dark scheme."""
    def luminance(colour):
        r_g_b = np.array([int(colour[i:i + 2], 16) / 255 for i in (0, 2, 4)])
        linear = np.where(r_g_b <= .04045, r_g_b / 12.92, ((r_g_b + .055) / 1.055) ** 2.4)
        return np.dot([.2126, .7152, .0722], linear)

    schemes = re.findall(r":root \{(.*?)\}", page("", "trace.html", {}, about=""), re.S)
    assert len(schemes) == 2
    for scheme in schemes:
        colours = {name: luminance(value) for name, value in re.findall(r"--(\w+): #(\w+)", scheme)}
        for ink in ("ink", "soft", "q", "p", "good", "bad"):
            for ground in ("paper", "sheet", "now"):
                dark, light = sorted([colours[ink], colours[ground]])
                assert (light + .05) / (dark + .05) >= 4.5, (ink, ground)
