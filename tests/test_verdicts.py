"""The verdicts: the judge finds what every case says, the program writes the committed page, and the vectors
catch wrong rules."""
import json
import random
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import Says

from loading import command_line
from lossless import exact_distribution
from lossless.verdicts import ANSWERS, CASES, HERE, __main__, check_vectors, reports
from lossless.verdicts.museum import RULES, WRONG, Algorithm2, sampler
from methods.samplers import block, k_seq
from methods.samplers.tree_rules import SEQUOIA
from sampling import point_masses, sample
from speculative import verify

VECTORS = json.loads((HERE / "vectors.json").read_text(encoding="utf-8"))
PAGE = (HERE / "README.md").read_text(encoding="utf-8")


# The cases and their page -----------------------------------------------------------------------------------

ONE_OF_EACH = {(case.rule, str(case.settings), case.penalty): case for case in CASES}    # threads share rules


@pytest.mark.parametrize("case", ONE_OF_EACH.values(), ids=lambda case: case.name)
def test_a_case_is_what_the_judge_finds(case):
    """The verdict of each case, lossless or wrong."""
    if case.verdict == "lossless":
        assert case.judge().deviation < 1e-12
    else:                                           # stops at the first wrong pair; the page shows all
        found = reports(sampler(RULES[case.rule]), case.settings, case.penalty)
        assert any(abs(one.probability - one.wanted) > 1e-9 for one in found if not one.lossless)


def test_a_case_says_who_shipped_it_what_decides_it_and_where():
    """All fields of all cases are filled in and well-formed."""
    assert len({case.name for case in CASES}) == len(CASES) >= 80
    for case in CASES:
        assert f"\n- **{case.status}**: " in PAGE and case.says in {"wrong", "lossless", *ANSWERS}
        assert re.fullmatch(r"[\w.-]+/[\w.-]+/((issues|pull)/\d+|blob/\w+/\S+)", case.thread), case.name
        assert re.fullmatch(r"20\d\d-[01]\d", case.date) and case.claim[-1] in ".?" and case.quote, case.name
        facts, shipped = case[-7:-2], (case.status, case.verdict) == ("shipped", "wrong")
        assert case.sees and {bool(fact) for fact in facts} == {shipped}, case.name     # since .. read
        assert "@" not in case.claim + case.outcome + case.quote
        assert case.name.startswith("proposal-") == (case.status in ("proposal", "question")), case.name


def test_what_is_said_is_whether_a_claim_holds():
    answers = {case.name: case.answer for case in CASES}
    assert answers["transformers-32867"] == "True."
    assert answers["mlx-swift-lm-459"] == answers["proposal-6"] == answers["proposal-16"] == "Not true."
    assert answers["EAGLE-183"] == "A question." and answers["ssd-verify"] == "Found in the code."
    assert answers["vllm-ascend-7603"] == "The finding is right, its reason is not."


def test_the_error_of_one_token_by_hand():
    """After a rejection, which has probability .15, a is drawn again, from q."""
    case, = (case for case in CASES if case.name == "Spec-RL-14")
    assert __main__.error_of_a_token(case) == pytest.approx(.15 * .6)


@pytest.mark.long
def test_the_page_is_what_its_program_writes():
    assert PAGE == __main__.page()
    words = re.sub("```.*?```", "", PAGE, flags=re.S).split()
    assert len(words) <= 8_500 and len(PAGE.split()) <= 9_500


def test_the_program_prints_all_cases_or_one_of_them(capsys):
    assert command_line.run(__main__.main, []) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(CASES)
    assert command_line.run(__main__.main, ["eagle-47"]) == 0
    told = capsys.readouterr().out
    assert all(part in told for part in ("class LeftoverAfterTheLeaf", " has probability ",
                                         "Largest error: ", "; 2024-02, 61020ed", "SafeAILab/EAGLE/pull/47",
                                         "adjustflag and accept_length"))
    assert command_line.run(__main__.main, ["vlm-40149"]) == 2
    assert "no case has 'vlm-40149' in its name" in capsys.readouterr().err


@pytest.mark.parametrize("word, name", [("draft_probs is None", "vllm-40149"), ("bonus", "EAGLE-bonus"),
                                        ("relaxed_acceptance", "TensorRT-LLM-3865")])
def test_a_word_finds_its_cases_in_the_table_and_with_the_program(word, name, capsys):
    case = next(case for case in CASES if case.name == name)
    row = next(line for line in PAGE.splitlines() if line.endswith(f"| [{case.verdict}](#{name.lower()})"))
    assert row.startswith(case.project) and word in row
    assert command_line.run(__main__.main, [word]) == 0 and name in capsys.readouterr().out


# The vectors ------------------------------------------------------------------------------------------------

LINES = {"algorithm 2": verify, "block": block.verify, "point masses": verify}
NODES = {"k-seq": k_seq.K_SEQ, "sequoia": SEQUOIA}


def result(vector, drafts, rng):
    """(kept, next), as vectors.md defines them."""
    rule, q = vector["rule"], np.array(vector["q"])
    p = point_masses(drafts, q.shape[1]) if vector["p"] is None else np.array(vector["p"])
    kept, token = LINES[rule](q, p, drafts, rng) if rule in LINES else NODES[rule][1](q, p, drafts, rng)
    return -1 if kept is None else int(kept), int(token)


def result_of(vector, uniforms):
    return result(vector, vector["drafts"], Says(*uniforms, *[0.0] * 9))


def outcome(vector, rng):
    """Of a round with drafts that are drawn, if the vector has none."""
    if vector["rule"] in NODES:
        return result(vector, NODES[vector["rule"]][0](np.array(vector["p"]), vector["k"], rng), rng)
    drafts = vector["drafts"] or [sample(np.array(row), rng) for row in vector["p"]]
    kept, token = result(vector, drafts, rng)
    return kept, *drafts[:kept], token


def test_each_vector_is_what_its_rule_gives():
    for vector in VECTORS["steps"]:
        assert result_of(vector, vector["uniforms"]) == (vector["kept"], vector["next"])
    for vector in VECTORS["distributions"]:
        found = exact_distribution(lambda rng: outcome(vector, rng))
        assert found == pytest.approx({tuple(one): chance for *one, chance in vector["outcomes"]})


def test_a_step_lies_close_to_a_threshold_but_not_too_close():
    """Most numbers within .02 of where the result changes, but none within .0001, unless it is 0."""
    def changes(vector, i, shift):
        numbers = np.array([vector["uniforms"]] * 2)
        numbers[:, i] = np.clip(numbers[:, i] + [-shift, shift], 0, .9999)
        return {result_of(vector, row) for row in numbers} != {(vector["kept"], vector["next"])}
    places = [(vector, i) for vector in VECTORS["steps"] for i, u in enumerate(vector["uniforms"]) if u]
    assert not any(changes(*place, 1e-4) for place in places)
    assert sum(changes(*place, .02) for place in places) > len(places) / 2


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
def test_the_vectors_are_reproduced_in_another_language():
    run = subprocess.run(["node", HERE / "check_vectors.js"], capture_output=True, text=True)
    assert run.returncode == 0 and f"{len(VECTORS['steps'])} steps" in run.stdout, run.stderr


def of_museum(rule):
    def verify(q, p, drafts, uniform):
        coins = SimpleNamespace(random=uniform)
        return tuple(map(int, RULES[rule]().verify(np.array(q), np.array(p), drafts, coins)))
    return verify


OUTSIDE_VERIFY = "propose", "draw", "rows", "text", "__call__"
OF_ONE_ROUND = [name for name in WRONG if issubclass(RULES[name], Algorithm2) and all(
    getattr(RULES[name], step) is getattr(Algorithm2, step) for step in OUTSIDE_VERIFY)]
TOO_SMALL = {"FloorUnderP", "NeverQuiteZero"}                   # vectors.md says so
RARE = {"ForbiddenRowZeroed"}                                   # only distributions show it
BY_CHOICE = {"ProductsOfCoins", "NoiseUsedTwice"}               # they need rng.choice, not numbers u


def test_a_step_fails_for_every_mistake_of_the_museum_that_one_round_can_show():
    for name in {*OF_ONE_ROUND, "Algorithm2"} - TOO_SMALL - RARE - BY_CHOICE:
        failed = [*check_vectors.check(of_museum(name), VECTORS | {"distributions": []})]
        assert bool(failed) == (name in WRONG), name
    assert len(OF_ONE_ROUND) > 25


@pytest.mark.parametrize("name", ["Algorithm2", "OneCoinForAll", "CoinDrawsTheCorrection", "ALittleLenience"])
def test_the_checker_to_copy_counts_outcomes(name, monkeypatch):
    """Only its chi-square tests of outcomes, for engines whose random numbers cannot be set."""
    monkeypatch.setattr(check_vectors, "ROUNDS", 2000)
    random.seed(1)
    failed = [*check_vectors.check(of_museum(name), VECTORS | {"steps": []})]
    assert bool(failed) == (name in WRONG)


def test_the_checker_to_copy_passes_what_it_holds():
    assert subprocess.check_output([sys.executable, HERE / "check_vectors.py"], text=True) == "all pass\n"
