"""The rule, by hand: the page's arithmetic is that of the code."""
import json
from types import SimpleNamespace

import numpy as np
import pytest

import samplers.block
import speculative
from lossless import exact_distribution
from pages.frame import interactive


@pytest.fixture
def page(browser, tmp_path):
    (tmp_path / "rule.html").write_text(interactive("The rule", "rule.html"), encoding="utf-8")
    browser.open(tmp_path / "rule.html")
    yield browser
    assert browser.complaints() == []


def n_kept(verify, q, p, drafts):
    """[the probability that 0, 1, 2 drafts are kept]."""
    def run(rng):
        return verify(np.array([q] * 3), np.array([p] * 2), drafts, rng)[0]
    found = exact_distribution(run)
    return [found.get(n, 0.0) for n in range(3)]


@pytest.mark.browser
def test_in_a_browser_it_keeps_what_algorithm_2_and_the_block_keep(page):
    rng = np.random.default_rng(0)
    for zeros in (0, 0, 1, 2):
        p, q = (rng.dirichlet(np.ones(5)) for _ in range(2))
        p[:zeros], q[3:3 + zeros] = 0, 0
        p, q = p / p.sum(), q / q.sum()
        means = dict(token=0.0, block=0.0)
        for x1 in np.flatnonzero(p):
            for x2 in np.flatnonzero(p):
                token, block = (n_kept(v, q, p, [x1, x2]) for v in
                                (speculative.verify, samplers.block.verify))
                found = page.run(f"return block({p.tolist()}, {q.tolist()}, {x1}, {x2})")
                assert [found["P2"], (1 - found["P2"]) * found["h"]] == pytest.approx(
                    block[2:0:-1], abs=1e-12)
                for name, share in ("token", token), ("block", block):
                    means[name] += p[x1] * p[x2] * (share[1] + 2 * share[2])
        assert page.run(f"return expected({p.tolist()}, {q.tolist()})") == pytest.approx(means, abs=1e-12)


@pytest.mark.browser
def test_in_a_browser_every_coin_leads_where_the_code_leads(page):
    p, q = page.run("return [p, q]")
    target, comes_out = (page.texts(f"#numbers tr:nth-child({row}) td") for row in (3, 6))
    assert target == comes_out
    for u, r, v in np.random.default_rng(1).random((50, 3)):
        numbers = [u, r, v]
        rng = SimpleNamespace(random=lambda numbers=numbers: numbers.pop(0))
        drafts, rows = speculative.propose(lambda x, n=1: None, [0], 1, lambda *_: np.array([p]), rng)
        n, token = speculative.verify(np.array([q] * 2), rows, drafts, rng)
        assert page.run(f"return outcome({json.dumps(dict(u=u, r=r, v=v))})") == (drafts[0] if n else token)
        said = page.run(f"return stepsOfOne({json.dumps(dict(u=u, r=r, v=v))}).at(-1)[0].at(-1)")
        assert f"“{'abcde'[drafts[0] if n else token]}”" in said


@pytest.mark.browser
def test_in_a_browser_a_bar_is_dragged_and_the_others_make_room(page):
    from selenium.webdriver import ActionChains
    grip = page.driver.find_element("css selector", "#q4 .grip")
    ActionChains(page.driver).drag_and_drop_by_offset(grip, 0, -60).perform()
    q = page.run("return q")
    assert .3 < q[4] < .45 and sum(q) == pytest.approx(1) and q[0] / q[1] == pytest.approx(.2 / .3)
    page.run("document.getElementById('p0').focus()")
    for key in "\ue013", "\ue013", "\ue015":            # up, up, down
        page.press(key)
    assert page.run("return [document.activeElement.id, p[0]]") == ["p0", pytest.approx(.41)]
    for button in ["step-one"] * 5 + ["many", "swap", "again"] + ["step-two"] * 5:
        page.driver.find_element("id", button).click()
    page.run("document.querySelectorAll('#grid button')[7].click()")
    assert page.run("return [two.x1, two.x2]") == [1, 2] and "“b”, “c”" in page.texts("#said-two")[0]
