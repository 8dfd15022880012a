"""The page where the pair runs: a round's lines are those that ran, and what is typed is answered in a sentence."""  # noqa: E501
import json

import numpy as np
import pytest

from pages.live import Live, openings
from pages.rounds import STEPS, Coins, Shown
from speculative import propose, speculative_sampling, verify

RUN = dict(prompt="The tide was going out.", n_tokens=12, K=4, temperature=.8, top_p=.95, seed=0, drafter="model",  # noqa: E501
           verifier="token")
RULES = {opening["name"]: opening for opening in openings()}


@pytest.fixture(scope="module")
def live():
    return Live()


def raced(live, **changes):
    """(what is shown of a race, the rounds of its speculative lane)"""
    about, rounds = json.loads(live.start(json.dumps(RUN | changes))), []
    while "error" not in about and (found := json.loads(live.advance("spec"))):
        rounds.append(found)
    return about, rounds


@pytest.mark.parametrize("drafter", ["model", "lookup", "eagle"])
@pytest.mark.parametrize("verifier", ["token", "block"])
def test_every_round_is_run_again_line_by_line(live, drafter, verifier):
    about, rounds = raced(live, drafter=drafter, verifier=verifier)
    assert sum(len(r["tokens"]) for r in rounds) == 12 and bool(about["steps"]) == (
        (drafter, verifier) == ("model", "token"))
    for r in rounds:
        assert r["steps"] and r["steps"][-1]["facts"][-1] == ["new", {"tokens": r["tokens"], "of": len(r["tokens"])}]  # noqa: E501


def test_a_rounds_lines_have_the_values_of_the_run(live):
    tokens, coins = live.encoder.encode(RUN["prompt"]), Coins(np.random.default_rng(3))
    shown = Shown(live.encoder, tokens, 12, 4, None, propose, verify)
    for r in speculative_sampling(live.draft, live.target, tokens, 12, 4, coins):
        steps = shown.round(r, coins.take())["steps"]
        tests = [step["test"] for step in steps if "test" in step]
        lines = {shown.sources[step["source"]]["lines"][step["line"]].split("#")[0].strip() for step in steps}
        n_tested = min(r.n_accepted + 1, len(r.drafts))
        assert len(tests) == n_tested and lines - {"new = cut_after(drafts[:n_accepted] + [next_token], ends)"}  # noqa: E501
        for j, test in enumerate(tests):
            q, p = r.target_probs[j][r.drafts[j]], r.draft_probs[j][r.drafts[j]]
            assert test["q"] == pytest.approx(q, rel=1e-3) and test["p"] == pytest.approx(p, rel=1e-3)
            assert (test["u"] * p < q) == (j < r.n_accepted)


def test_each_step_of_the_paper_names_lines_of_the_source(live):
    about, _ = raced(live)
    lines = [line.strip() for source in about["sources"] for line in source["lines"]]
    assert all(any(line.startswith(part) for line in lines) for _, parts in STEPS for part in parts)


@pytest.mark.parametrize("changes, words", [
    (dict(prompt=""), "the prompt is empty"), (dict(prompt="a" * 10_000), "10,000 letters"),
    (dict(prompt="word " * 600), "do not fit into the context"),
    (dict(code="def verify(:"), "line 1: SyntaxError"), (dict(code="x = 1"), "neither propose nor verify")])
def test_what_cannot_be_run_is_one_sentence(live, changes, words):
    about, _ = raced(live, **changes)
    assert about.keys() == {"error"} and words in about["error"] and "\n" not in about["error"]


def test_text_that_looks_like_a_page_stays_text(live):
    assert raced(live, prompt="<script>alert(1)</script> \N{GRINNING FACE}")[1]


@pytest.mark.parametrize("name", ["verify", "Swapped", "OneCoinForAll", "TargetWithoutTheDraft"])
def test_what_is_opened_runs_a_race_and_is_judged(live, name):
    opening = RULES[name]
    about, rounds = raced(live, code=opening["code"])
    assert rounds and not any("error" in r for r in rounds), (about, rounds)
    if opening["wrong"]:
        assert json.loads(live.judge(json.dumps(dict(code=opening["code"]))))["lossless"] is False
