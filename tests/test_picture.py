"""The picture of a round: each number as worked out by hand, r as the accept rule drew it."""
import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from methods.samplers import block
from methods.samplers.tree import walk
from methods.samplers.tree_rules import select_drawn
from pages import picture
from pages.frame import HERE
from pages.live import Live
from pages.rounds import Coins, Shown, source_of
from pages.site import START
from sampling import Round
from speculative import propose, speculative_sampling, verify

Q = np.array([[.1, .6, .3], [.25, .25, .5], [.5, .3, .2]])
P = np.array([[.2, .7, .1], [.05, .8, .15]])
RULES = {"token": verify, "block": block.verify}


def test_a_rejection_by_hand():
    """The first draft, 2, is accepted: q / p = 3.  The second, 1, has q / p = .25 / .8 = .3125.  A draw from
    (.2, 0, .35) replaces it, and 0 comes out."""
    first, second = picture.tests(Round([2, 0], [2, 1], 1, Q, P), draws=[.9, .4])
    assert first == dict(x=2, r=.9, ratio=1.0, z=.2,
                         rows=[[1, .7, .6], [2, .1, .3], [0, .2, .1], [None, 0, 0]])
    assert second == dict(x=1, r=.4, ratio=.3125, z=.55,
                          rows=[[1, .8, .25], [2, .15, .5], [0, .05, .25], [None, 0, 0]])


def test_if_all_drafts_are_accepted_the_last_place_has_q_alone():
    *_, last = picture.tests(Round([2, 0, 1], [2, 0], 2, Q, P), draws=[.9, .1])
    assert last == dict(x=None, z=1.0, rows=[[0, 0, .5], [1, 0, .3], [2, 0, .2], [None, 0, 0]])


def test_a_block_by_hand():
    """P_1 = min(1, .6 / .7) = 6/7 and P_2 = 6/7 * .25 / .8 = 15/56 = h_2, as no draft comes after the last.
    After one draft P_1 q - p = (.1643, -.5857, .2786), so z = .4429 and h_1 = z / (z + 1 - 6/7)."""
    found = picture.tests(Round([1, 2], [1, 1], 1, Q, P), draws=[.5, .3], block=True)
    assert [entry["weight"] for entry in found] == [1, .8571, .2679]
    assert [(entry["r"], entry["ratio"], entry["passes"]) for entry in found[1:]] == [
        (.5, round(.442857 / (.442857 + 1 / 7), 4), True), (.3, .2679, False)]
    assert found[1]["rows"][0] == [1, .8, round(.25 * 6 / 7, 4)] and found[1]["z"] == .4429


@pytest.mark.parametrize("name", RULES)
def test_r_is_what_the_rule_drew_and_decides_as_it_did(name):
    """The same run once more, with a generator that notes what the rule alone draws."""
    live, drawn = Live(), []

    def noting(q, p, drafts, rng):
        drawn.append([])
        random = SimpleNamespace(random=lambda: drawn[-1].append(rng.random()) or drawn[-1][-1])
        return RULES[name](q, p, drafts, random)

    run = [live.encoder.encode(START["prompt"]), 30, 4]
    pair = live.models.draft, live.models.target
    again = [*speculative_sampling(*pair, *run, np.random.default_rng(5), verify=noting)]
    coins = Coins(np.random.default_rng(5))
    sampler = partial(speculative_sampling, propose=propose, verify=RULES[name])
    shown, spec = Shown(live.encoder, coins, sampler, trace=False), sampler(*pair, *run, coins)
    for r, rs in zip(again, drawn, strict=True):
        found = [entry for entry in shown.next(spec)["tests"] if "r" in entry]
        assert [entry["r"] for entry in found] == pytest.approx(rs[:len(found)], rel=1e-3)
        passed = [entry["r"] < entry["ratio"] for entry in found]
        assert r.n_accepted == (max([0, *(j for j, yes in enumerate(passed, 1) if yes)]) if name == "block"
                                else [*passed, False].index(False))
        assert len(found) == (len(r.drafts) if name == "block" else min(r.n_accepted + 1, len(r.drafts)))


def test_each_child_of_a_tree_is_tried_as_the_rule_tried_it():
    """r is what the rule drew for each, and those that pass are the path that it took."""
    live = Live()
    live.start(json.dumps(START | dict(temperature=.8, verifier="tree", n_tokens=30)))
    while found := json.loads(live.advance('{"lane": "spec"}')):
        tried = [t for t in found["tests"] if "node" in t]
        drawn = live.shown.coins.drawn_by(select_drawn.__code__)
        assert [t["r"] for t in tried] == pytest.approx(drawn, rel=1e-3)
        taken = [i for i, node in enumerate(found["nodes"]) if node["taken"]]
        assert [t["node"] for t in tried if t["passes"]] == taken
        assert all(found["nodes"][t["node"]]["token"] == t["x"] for t in tried)


def test_what_the_page_quotes_are_lines_of_the_rules():
    """A name that changes there changes in pages/lines.json, too."""
    quoted = json.loads((HERE / "lines.json").read_text(encoding="utf-8"))
    quoted["paper"] = {start: start for _, starts in quoted["paper"] for start in starts}
    for name, functions in {"token": [verify], "block": [block.verify], "tree": [select_drawn, walk],
                            "paper": [propose, verify, speculative_sampling]}.items():
        lines = [line.strip() for function in functions for line in source_of(function)["lines"]]
        assert all(any(map(str.startswith, lines, [start] * len(lines))) for start in quoted[name].values())
