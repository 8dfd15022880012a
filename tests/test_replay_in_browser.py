"""The page that replays a run, in Chromium: it shows the numbers of the rounds, step by step, and fits."""
import re

import numpy as np
import pytest
from test_replay import ENCODER, HOSTILE, SETTINGS, SPEEDS, WORDS, hostile_run, traced, tree_round

from pages.replay import reduce_round, write_trace
from reporting.stats import acceptance
from samplers.lossy import lenient
from samplers.tree import shape_of
from sampling import Round

pytestmark = pytest.mark.browser


def spaced(text):
    return text.replace(" ", "·").replace("\n", "↵")


def opened(browser, tmp_path, small, *size, settings=(), seconds=None, address="", **options):
    write_trace(tmp_path / "run.html", small, SETTINGS | SPEEDS | dict(settings), ENCODER, seconds)
    browser.open(tmp_path / "run.html", *size, address=address, **options)
    return browser


def check_round(browser, i, rounds, small):
    """The page shows round i whole: every number of it is computed here from the round."""
    r, s = rounds[i], small[i]
    n, k = r.n_accepted, len(r.drafts)
    assert browser.texts("#count") == [f"{i + 1} / {len(rounds)}"]
    said = ENCODER.decode([t for before in rounds[:i] for t in before.tokens] + r.tokens[:n])
    rejected = spaced(browser.run(f"return names[{r.drafts[n]}]")) if n < k else ""
    text = spaced(SETTINGS["prompt"] + said) + rejected + spaced(ENCODER.decode(r.tokens[n:]))
    assert spaced(browser.texts("#text")[0]) == text
    summary = browser.texts("#summary")[0]
    assert summary.startswith(f"Round {i + 1} of {len(rounds)}. ")
    assert (f"{n} of {k} draft" in summary) == (k > 0) and ("rejected" in summary) == (n < k)
    assert browser.texts(".card .word") == [spaced(ENCODER.decode([t])) for t in [*r.drafts, r.tokens[-1]]]
    assert browser.texts(".card .verdict") == (
        ["✓ accepted"] * n + ["✗ rejected"] * (n < k) + ["– not tested"] * (k - n - 1) + ["by the target"])
    assert browser.run("return known.focus") == n       # what decided
    for j, (slot, q, p, x) in enumerate(zip(s["slots"], r.target_probs, r.draft_probs, r.drafts)):
        shown, chance = browser.run(DETAIL % j), min(1, q[x] / p[x])
        terms = [term for term, _ in shown["facts"]]
        assert len(set(terms)) == len(terms)            # no two coins of one name
        facts = {term: float(fact.lstrip("<")) for term, fact in shown["facts"] if term != "coin r"}
        own = shown["names"].index(spaced(ENCODER.decode([x])))
        assert [facts["target q(x)"], facts["draft p(x)"]] == shown["numbers"][2 * own:2 * own + 2]
        assert [facts["target q(x)"], facts["draft p(x)"], facts["min(1, q / p)"]] == pytest.approx(
            [q[x], p[x], chance], abs=.00101)
        compared = shown["facts"][-1][1].split()
        assert compared == (["–"] if slot["coin"] is None else compared)
        if slot["coin"] is not None:
            coin, sign, accept = compared
            assert [float(coin), float(accept)] == pytest.approx([slot["coin"], chance], abs=.00051)
            assert (float(coin) < float(accept)) == (sign == "<") == (slot["verdict"] == "accepted")
        values = [value for token, *values in slot["probs"] if token is not None for value in values]
        assert shown["bars"] == pytest.approx([100 * value / max(values) for value in values], abs=.01)


DETAIL = """document.querySelectorAll(".card")[%d].click();
    const all = selector => [...document.querySelectorAll("#detail " + selector)];
    return {facts: all("dl > div").map(e => [e.children[0].textContent, e.children[1].textContent]),
            names: all(".name").map(e => e.textContent.replace("→ ", "")),
            numbers: all(".number").map(e => parseFloat(e.textContent.replace("<", ""))),
            bars: all(".bar").map(e => parseFloat(e.style.width))}"""


def test_in_a_browser_it_goes_through_the_run_and_shows_its_numbers(browser, tmp_path):
    from selenium.webdriver.common.keys import Keys
    rounds, small, _ = traced(n_tokens=24, n_vocab=len(WORDS))
    opened(browser, tmp_path, small)
    last = len(rounds) - 1
    for i in range(len(rounds)):
        check_round(browser, i, rounds, small)
        browser.press(Keys.ARROW_RIGHT)
    at = last                                           # the end is the end
    for key, step in [(Keys.ARROW_LEFT, -1), (Keys.HOME, -99), (Keys.PAGE_DOWN, 1), (" ", 1),
                      (Keys.PAGE_UP, -1), (Keys.END, 99), ("#back", -1), ("#first", -99), ("#next", 1),
                      ("#last", 99), ("#strip button:nth-child(3)", 2 - last), (" ", 1)]:
        if key.startswith("#"):
            browser.driver.find_element("css selector", key).click()
        else:
            browser.press(key)
        at = max(0, min(last, at + step))
        assert browser.run("return [now, location.hash]") == [at, f"#{at + 1}"], key
    assert browser.run("return document.activeElement === $('strip').children[3]")      # the focus goes along
    browser.driver.find_element("id", "back").click()
    browser.press(" ")                                          # once more what the button does
    assert browser.run("return now") == 1
    assert dict(zip(browser.texts("#figures dt"), browser.texts("#figures dd"))) == {
        "tokens per target pass": f"{24 / len(rounds):.2f}",
        "acceptance rate": f"{np.divide(*acceptance(rounds)):.2f}",
        "speed-up, measured": "1.50×", "speed-up, predicted": "1.75×",
        "draft step, c": "0.13", "checking K + 1, v": "–"}
    tested = [[r for r in rounds if r.n_accepted >= j and len(r.drafts) > j] for j in range(3)]
    counts = [f"{sum(r.n_accepted > j for r in some)} / {len(some)}" for j, some in enumerate(tested)]
    assert browser.texts("#by-slot td:nth-child(2)") == counts
    columns = "[...$('strip').children].map(b => [...b.children].map(c => c.className).join(''))"
    assert browser.run("return " + columns) == [
        "a" * r.n_accepted + "x" * (r.n_accepted < len(r.drafts)) + "o" for r in rounds]
    for kind, tokens in [("accepted", [r.tokens[:r.n_accepted] for r in rounds]),
                         ("own", [r.tokens[r.n_accepted:] for r in rounds])]:
        browser.run("show(999)")
        shown, text = "".join(browser.texts(f"#text .{kind}")), "".join(map(ENCODER.decode, tokens))
        assert re.sub(r"\s", "", shown) == re.sub(r"\s", "", text) != ""
    assert browser.complaints() == []


def test_in_a_browser_a_step_shows_what_is_known_by_then_and_no_more(browser, tmp_path):
    rounds, small, _ = traced(n_tokens=24, n_vocab=len(WORDS))
    i, r = next((i, r) for i, r in enumerate(rounds) if len(r.drafts) == 3 and r.n_accepted == 1)
    opened(browser, tmp_path, small)
    browser.run(f"show({i})")
    browser.press("s")
    words = [spaced(ENCODER.decode([t])) for t in [*r.drafts, r.tokens[-1]]]
    seen = []
    for _ in range(11):
        parts = [[text for text in browser.texts(f".card .{part}") if text or part in ("line", "coin")]
                 for part in ("word", "line", "coin", "verdict")]
        seen.append([len(part) for part in parts])
        assert parts[0] in (words[:seen[-1][0]], words)
        assert bool(browser.texts("#text .now .own")) == (parts[0] == words)
        browser.press("\ue014")                         # the right arrow
    drawn = [[0, 0, 0, 0], [1, 0, 0, 0], [2, 0, 0, 0], [3, 0, 0, 0]]
    judged = [[3, 3, 0, 0], [3, 3, 1, 0], [3, 3, 1, 1], [3, 3, 2, 1], [3, 3, 2, 3]]
    assert seen == [*drawn, *judged, [3, 3, 2, 3], [4, 3, 2, 4]]
    assert browser.run("return [now, at_step, location.hash]") == [i + 1, 0, f"#{i + 2}.1"]
    browser.press("\ue012")                             # the left arrow
    assert browser.run("return [now, at_step]") == [i, 10]
    browser.press("s")
    assert browser.run("return [now, at_step, $('steps').ariaPressed]") == [i, None, "false"]
    last = len(rounds) - 1
    for address, where in [("#3", [2, None]), ("#3.4", [2, 3]), ("#999", [last, None]), ("#x", [0, None])]:
        opened(browser, tmp_path, small, address=address)
        assert browser.run("return [now, at_step]") == where
    assert browser.complaints() == []


def test_in_a_browser_it_plays_and_races_on_one_clock(browser, tmp_path):
    """The clock is turned by hand: at each moment exactly the steps that had ended by then are written."""
    rounds, small, _ = traced(n_tokens=24, n_vocab=4)
    alone = [t % 4 for t in range(24)]
    seconds = [.01 * (1 + i % 3) for i in range(24)], [.02 + .01 * (i % 2) for i in range(len(rounds))]
    opened(browser, tmp_path, small, settings=dict(autoregressive=dict(tokens=alone)), seconds=seconds)
    browser.run("clock = 0; performance.now = () => clock; $('pace').value = '0';"
                "requestAnimationFrame = tick => (step = tick, 1)")
    browser.press("r")
    assert browser.run("return [$('replay').hidden, $('race').hidden]") == [True, False]
    prompt = spaced(SETTINGS["prompt"])
    for time in (0, .1049, .2551, 9):
        browser.run(f"clock = {1000 * time}; step()")
        done = [sum(end <= time for end in np.cumsum(some)) for some in seconds]
        assert spaced(browser.texts("#text-alone")[0]) == prompt + spaced(ENCODER.decode(alone[:done[0]]))
        written = [token for r in rounds[:done[1]] for token in r.tokens]
        assert spaced(browser.texts("#text-rounds")[0]) == prompt + spaced(ENCODER.decode(written))
        clock = f"{min(time, sum(seconds[1])):.3f} s, {len(written)} token"
        assert browser.texts("#clock-rounds")[0].startswith(clock)
    assert f"{sum(seconds[0]) / sum(seconds[1]):.2f}×" in browser.texts("#outcome")[0]
    browser.press("\ue00c")                                     # Escape
    assert browser.run("return [$('replay').hidden, $('race').hidden]") == [False, True]
    browser.run("setInterval = tick => (turned = tick, 1); clearInterval = () => 0")
    browser.press("p")
    browser.run("turned(); turned()")
    assert browser.run("return [now, $('play').textContent]") == [2, "Pause"]
    browser.driver.find_element("id", "next").click()           # a hand on the controls ends it
    assert browser.run("return [now, $('play').textContent]") == [3, "Play"]
    assert browser.complaints() == []


def test_in_a_browser_a_tree_shows_the_path_that_was_taken(browser, tmp_path):
    settings = dict(verifier="tree:3,2")
    opened(browser, tmp_path, [reduce_round(tree_round(), [.5] * 9)], settings=settings)
    assert browser.texts(".node.is-taken .accepted") == ["the", "sea"]
    parent = "document.querySelector('.node.is-own').closest('ul').parentNode"
    end = browser.run(f"return {parent}.querySelector('.node').textContent")
    assert end.startswith("·sea")                       # the target's own token hangs on the end of the path
    assert "A tree of 5 drafts, 2 of them taken" in browser.texts("#summary")[0]
    assert "tree:3,2 verification" in browser.texts("#settings")[0]
    table = browser.texts("#place") + browser.texts("#by-slot th") + browser.texts("#by-slot td")
    assert table == ["level", "1", "2", "1 / 1", "1.00", "–", "", "1 / 1", "1.00", "–", ""]
    assert browser.run(HIDDEN) == ["block", "token block", "block"] and browser.complaints() == []
    nodes = "return document.querySelectorAll('.node').length"
    assert [browser.run(f"show(0, {step}); {nodes}") for step in range(7)] == [1, 4, 6, 6, 6, 6, 7]
    shape, q = shape_of([3, 2, 1]), np.random.default_rng(0).dirichlet(np.ones(len(WORDS)), 16)
    large = Round([2, 1, 3, 0], [0, 1, 2] + [0, 1] * 3 + [3] * 6, 3, q, None, shape)
    for width in 300, 390:                              # though all of it is taller than the screen
        opened(browser, tmp_path, [reduce_round(large, [])], width, 844, settings=settings)
        assert len(browser.texts(".node.is-taken")) == 3
        assert browser.run("return document.querySelector('.tree').scrollWidth <= innerWidth")
        edge = browser.run("return document.querySelector('body > nav').getBoundingClientRect().top")
        box = browser.run("return document.querySelector('.node.is-own').getBoundingClientRect()")
        assert 0 <= box["left"] and box["right"] <= width and box["bottom"] <= edge


def test_in_a_browser_a_block_or_a_rule_of_ones_own_is_shown_for_what_it_is(browser, tmp_path):
    _, small, _ = traced(n_tokens=24, n_vocab=4, block=True)
    opened(browser, tmp_path, small, settings=dict(verifier="block"))
    for i, r in enumerate(small):
        browser.run(f"show({i})")
        for j, slot in enumerate(r["slots"]):
            facts = dict(browser.run(DETAIL % j)["facts"])
            assert [float(facts["kept so far P"]), float(facts["chance h"])] == pytest.approx(
                [slot["P"], slot["accept"]], abs=.00051)
        by_later = [s["verdict"] == "accepted" and s["coin"] >= s["accept"] for s in r["slots"]]
        assert [text == "✓ by a later coin" for text in browser.texts(".verdict")] == [*by_later, False]
    assert browser.run(HIDDEN) == ["tree"]
    _, small, _ = traced(n_tokens=24, n_vocab=4, verify=lenient(.3))
    opened(browser, tmp_path, small, settings=dict(verifier="lenient:0.3", lossless=False))
    assert "not lossless" in browser.texts("#settings")[0] and "not shown" in browser.texts("#rule")[0]
    for i in range(len(small)):
        for step in range(browser.run(f"show({i}); return steps.length")):
            browser.run(f"show({i}, {step})")
            assert browser.texts(".coin") == browser.texts(".accept") == []
    assert browser.complaints() == []


HIDDEN = "return [...document.querySelectorAll('[data-of]')].filter(e => e.hidden).map(e => e.dataset.of)"


def test_in_a_browser_a_round_is_on_one_screen_and_if_not_the_space_bar_scrolls(browser, tmp_path):
    controls = "document.querySelector('body > nav').getBoundingClientRect().top"
    for K, width, height in [(4, 1280, 800), (8, 1280, 800), (8, 1920, 1080)]:
        _, small, _ = traced(n_tokens=24, K=K)
        opened(browser, tmp_path, small, width, height)
        for i in range(len(small)):
            browser.run(f"show({i})")
            assert browser.run(f"return $('detail').getBoundingClientRect().bottom <= {controls}")
        shown = "[...document.querySelectorAll('body :not(sub, sup)')].filter(e => e.offsetParent)"
        sizes = browser.run(f"return {shown}.map(e => parseFloat(getComputedStyle(e).fontSize))")
        assert min(sizes) >= .018 * height
    _, small, _ = traced(n_tokens=24, K=4)
    for size, large in [((1024, 640), False), ((800, 500), False), ((1280, 800), True)]:       # 125 %, 160 %
        opened(browser, tmp_path, small, *size)
        if large:
            browser.press("l")
        browser.run("document.documentElement.style.scrollBehavior = 'auto'")
        for _ in range(9):                              # space scrolls until all was seen, and then it turns
            hidden = browser.run(f"return $('detail').getBoundingClientRect().bottom > {controls}")
            before = browser.run("return [now, scrollY]")
            browser.press(" ")
            wait_for_the_scroll(browser)
            at = browser.run("return [now, scrollY]")
            assert at[0] == before[0] + (not hidden) and (at[1] > before[1] if hidden else at[1] == 0)
    assert browser.complaints() == []


def wait_for_the_scroll(browser):
    """Until nothing has moved for a while."""
    browser.run("""return new Promise(done => {
        let last = scrollY, still = 0;
        const look = () => (still = scrollY === last ? still + 1 : 0, last = scrollY, still > 5)
            ? done() : setTimeout(look, 30);
        look() })""")


def test_in_a_browser_hostile_text_stays_text(browser, tmp_path):
    small = hostile_run()
    opened(browser, tmp_path, small, settings=dict(prompt="".join(HOSTILE), target=HOSTILE[1]))
    for i in range(len(small)):
        for step in ("null", "2"):
            browser.run(f"show({i}, {step})")
            found = browser.run("return [document.images.length, document.scripts.length, typeof hacked]")
            assert found == [0, 2, "undefined"]
    assert browser.texts("#text")[0].startswith("".join(HOSTILE))
    assert HOSTILE[1] in browser.texts("#settings")[0]
    opened(browser, tmp_path, [])
    assert browser.texts("#summary") == ["Nothing was generated."] and browser.complaints() == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [(360, 740), (1280, 800)], ids=["narrow", "wide"])
def test_in_a_browser_it_fits_the_screen(browser, tmp_path, size, dark):
    _, small, _ = traced(n_tokens=24, K=5)
    long = dict(prompt="W" * 300, draft="a-very-long-name-of-a-folder/" * 4)
    opened(browser, tmp_path, small, *size, settings=long, dark=dark)
    outside = """return [...document.querySelectorAll("#cards .card, .card > *, #detail *")].filter(e => {
        const box = e.getBoundingClientRect(), edge = document.documentElement.clientWidth;
        return box.right > edge + 1 || box.left < -1 }).map(e => e.outerHTML)"""
    for _ in "as it is", "large":
        for i in range(len(small)):
            browser.run(f"show({i})")
            assert browser.run("return document.documentElement.scrollWidth") <= size[0]
            assert browser.run(outside) == []
        buttons = "[...document.querySelectorAll('nav > button')].filter(e => e.offsetParent)"
        controls = browser.run(f"return {buttons}.map(e => e.getBoundingClientRect())")
        assert len(controls) >= 4 and all(box["bottom"] <= size[1] for box in controls)
        assert all(min(box["width"], box["height"]) >= 44 for box in controls)
        assert min(browser.run("return [...$('strip').children].map(e => e.offsetWidth)")) >= 24
        browser.press("l")
    ground = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground))) < 200) == dark
    assert browser.complaints() == []
