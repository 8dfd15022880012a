"""The museum: the judge finds every mistake and passes every rule that is only unusual; Algorithm2, on which
the rules are built, does what speculative.py does.  The verdicts: the judge finds what every case says, the
program writes the committed page, and the vectors catch wrong rules.
"""
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

from engine.loading import command_line
from lossless import exact_distribution, judge, report, verdicts
from lossless.judge import distance
from lossless.toys import table
from lossless.verdicts import ANSWERS, CASES, HERE, __main__, check_vectors, mean_accepted, reports
from lossless.verdicts.museum import RIGHT, RULES, WRONG, Algorithm2, sampler
from methods.samplers import block, k_seq
from methods.samplers.tree_rules import SEQUOIA
from sampling import point_masses, sample
from speculative import speculative_sampling, verify

# The museum -------------------------------------------------------------------------------------------------

def test_each_rule_says_why():
    assert 60 <= len(RULES) <= 100 and {*WRONG} | {*RIGHT} == {*RULES}
    assert all(len(rule.__doc__.split()) > 2 and rule.__doc__.endswith(".") for rule in RULES.values())


# In this order most mistakes are found at once.
QUICK = sorted(judge.CASES, key=lambda case: not case.settings and case.n_tokens < 11)


@pytest.mark.parametrize("name", sorted(WRONG.keys() - {case.rule for case in CASES}))
def test_the_judge_finds_every_mistake(name, monkeypatch):
    """(Those of the cases are found below.)"""
    monkeypatch.setattr(judge, "CASES", QUICK)
    monkeypatch.setattr(judge, "CLEAR", 0)          # a small deviation is enough
    assert not report(WRONG[name]).lossless


@pytest.mark.parametrize("n_cases", [4, pytest.param(None, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", RIGHT)
def test_the_judge_lets_pass_what_is_only_unusual(name, n_cases, monkeypatch):
    monkeypatch.setattr(judge, "CASES", judge.CASES[:n_cases])
    monkeypatch.setattr(judge, "ALL_STEPS", 200_000)    # the likeliest branches
    assert report(RIGHT[name]).lossless


@pytest.mark.parametrize("settings", [{}, {"temperature": 0}, {"temperature": .7, "top_k": 2}, {"eos": 1},
                                      {"top_p": .6, "eos": [0, 2]}], ids=str)
def test_algorithm2_is_speculative_py_seed_for_seed(settings):
    for K in 1, 2, 4:
        for seed in range(20):
            models = table(seed, zeros=.2), table(seed + 1, zeros=.2)
            ours, theirs = ([*sampler(*models, [2, 0], 9, K, np.random.default_rng(seed), **settings)]
                            for sampler in (Algorithm2(), speculative_sampling))
            assert [r[:3] for r in ours] == [r[:3] for r in theirs] and len(ours) > 0


# By hand: target (.1, .6, .3), draft (.5, .3, .2) -----------------------------------------------------------

Q, P = (.1, .6, .3), (.5, .3, .2)


def first_token(rule, q, p, K=1, **settings):
    """The exact distribution [n_vocab] of the first token, q and p the same at every place."""
    found = verdicts.texts(rule, q, p, K, settings)
    return [sum(chance for (text, _), chance in found.items() if text[0] == token) for token in range(len(q))]


# 0 was drafted and rejected, so E_1 > .6 E_0 and E_2 > .4 E_0.  Now 1 wins if E_1 < 3 E_2: its chance is the
# integral of 1 / (1 + t + max(t / 3, .4))^2 over t > .6; the maximum is .4 up to t = 1.2.
ONE = 1 / (1 + .6 + .4) - 1 / (1 + 1.2 + .4) + .75 / (1 + 1.2 * 4 / 3)


@pytest.mark.parametrize("rule, first", [
    ("Algorithm2", Q),
    ("ArgmaxSoftmaxRecorded", (.2, .6, .2)),                      # 0 is accepted with .2, else (0, .75, .25)
    ("TargetAfterRejection", (.14, .54, .32)),                    # .6 is accepted, .4 is drawn from q
    ("UniformIsZero", P),
    ("DraftOverOwnDraw", (.45, .39, .16)),                # .9, .7, .5 are accepted, else (0, .75, .25)
    ("GreedyTarget", (0, 1, 0)),
    ("DrawnAsPointMasses", Q),
    ("AcceptedIfTheArgmax", (.07, .3 + .42, .21)),              # 1 is drafted with .3; or a draw from q
    ("MatchOrRatio", (.28, .48, .24)),                        # 0 equals the draw (.1), or passes (.9 * .2)
    ("TopTokensByRatio", (.2, .8, 0)),                        # 0 passes with .2, else 1 is sure to
    ("NoiseUsedTwice", (.1, .3 + .8 * ONE, .2 + .8 * (.5 - ONE))),
])
def test_the_first_token_by_hand(rule, first):
    assert first_token(rule, Q, P) == pytest.approx(first, abs=1e-12)


def test_how_many_drafts_are_accepted_by_hand():
    rules = "Algorithm2", "Match", "MatchArgmax", "DrawnAsPointMasses", "TopTokens"
    assert [mean_accepted(rule, Q, P, K=1) for rule in rules] == pytest.approx([.6, .29, .1, .29, .7])
    assert mean_accepted("Algorithm2", Q, P, K=2) == pytest.approx(.24 + 2 * .36)


def test_hierarchical_speculative_decoding_is_block_verification():
    """P(text, drafts accepted) is the same, and the last ratio must be capped.  The means are for the example
    of section 2 of Sun et al."""
    rules, example = ("HSD", "Block", "HSDLastUncapped"), ((1 / 3, 2 / 3), (2 / 3, 1 / 3))
    assert [mean_accepted(rule, *example) for rule in rules] == pytest.approx([11 / 9, 11 / 9, 12 / 9])
    for K in 1, 2:
        q, p = np.random.default_rng(K).dirichlet(np.ones(3), 2)
        ours, block, uncapped = (verdicts.texts(rule, q, p, K, {}) for rule in rules)
        assert distance(ours, block) < 1e-12 and (distance(uncapped, block) > .001 or K == 1)


def test_a_length_that_is_chosen_after_all_drafts_were_seen(monkeypatch):
    """DSpark, appendix A: a_1 = .8; c_2 is .9 after token 0, and 0 after token 1.  Passes of 1, 2 and 3 rows:
    1, .5 and .45 a second."""
    def appendix(rule):
        class Appendix(RULES[rule]):
            seconds, before = (1, 1 / .5, 1 / .45), None

            def confidence(self, p, x):
                before, self.before = self.before, x        # the draft before x
                return .8 if before is None else .9 * (before == 0)
        monkeypatch.setitem(RULES, "Appendix", Appendix)
        return first_token("Appendix", (.7, .3), (.5, .5), K=2)
    assert appendix("LengthFromAllDrafts") == pytest.approx([.85, .15])
    assert appendix("LengthByEarlyStop") == pytest.approx([.7, .3])


# The cases and their page -----------------------------------------------------------------------------------

PAGE = (HERE / "README.md").read_text(encoding="utf-8")
ONE_OF_EACH = {(case.rule, str(case.settings), case.penalty): case for case in CASES}    # threads share rules


@pytest.mark.parametrize("case", [
    pytest.param(case, id=case.name, marks=[pytest.mark.long] * (case.verdict == "lossless"))
    for case in ONE_OF_EACH.values()])
def test_a_case_is_what_the_judge_finds(case):
    """The verdict of each case, lossless or wrong."""
    if case.verdict == "lossless":
        assert case.judge().deviation < 1e-12
    else:                                           # stops at the first wrong pair; the page shows all
        found = reports(sampler(RULES[case.rule]), case.settings, case.penalty)
        assert any(abs(one.probability - one.wanted) > 1e-9 for one in found if not one.lossless)


EDGE = r"((main|open|[\w.]*\d)[, ] ?)?20\d\d-[01]\d(, .+)?|"        # "4.41.0, 2024-05, 30778", "open 2026-08"


def test_a_case_says_what_was_read_when_how_it_is_reached_and_what_was_replied():
    """All fields of all cases are filled in and well-formed, and "open" is never said without a month."""
    assert len({case.name for case in CASES}) == len(CASES) >= 110
    for case in CASES:
        assert f"\n- **{case.status}**: " in PAGE and case.says in {"wrong", "lossless", *ANSWERS}
        assert re.fullmatch(r"[\w.-]+/[\w.-]+/((issues|pull)/\d+|blob/\w+/\S+)", case.thread), case.name
        assert re.fullmatch(r"20\d\d-[01]\d", case.date) and case.claim[-1] in ".?", case.name
        assert re.fullmatch(r"(blob/v?[\w.]+/[^#]+(#L\d+(-L\d+)?)?|pull/\d+/files|)", case.at), case.name
        assert bool(case.at) == bool(re.fullmatch(r"20\d\d(-\d\d){2}", case.read)), case.name
        assert case.sees and re.fullmatch(EDGE, case.since) and re.fullmatch(EDGE, case.until), case.name
        told = case.at and case.until and case.reached and case.reply
        assert told or (case.status, case.verdict) != ("shipped", "wrong"), case.name
        assert not re.search(r"@|\bopen\b(?! 20\d\d-\d\d)", " ".join(map(str, case[5:-2]))), case.name
        assert case.name.startswith("proposal-") == (case.status in ("proposal", "question")), case.name
        assert 0 < len(case.quote.split()) <= 20, case.name


def test_what_is_withdrawn_keeps_its_address_and_says_since_when():
    assert all(f'<a id="{name.lower()}"></a>{name}: {why}' in PAGE and re.match(r"20\d\d(-\d\d){2}: \w", why)
               and command_line.run(__main__.main, [name]) == 2 for name, why in verdicts.WITHDRAWN.items())


def test_the_error_of_one_token_by_hand():
    """After a rejection, which has probability .15, a is drawn again, from q."""
    case, = (case for case in CASES if case.name == "Spec-RL-14")
    assert __main__.error_of_a_token(case) == pytest.approx(.15 * .6)


@pytest.mark.long
def test_the_page_is_what_its_program_writes():
    assert PAGE == __main__.page()
    words = re.sub("```.*?```", "", PAGE, flags=re.S).split()
    assert len(words) <= 10_000 and len(PAGE.split()) <= 11_000


def test_the_program_prints_all_cases_or_one_of_them(capsys):
    assert command_line.run(__main__.main, []) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        [case.project, case.name] for case in CASES]
    assert command_line.run(__main__.main, ["eagle-47"]) == 0
    told = capsys.readouterr().out
    assert all(part in told for part in (
        "EAGLE: EAGLE-47 is wrong\n", "class LeftoverAfterTheLeaf", " has probability ", "Largest error: ",
        "2024-02, 61020ed", "EAGLE/pull/47", "EAGLE/blob/a02ade9/model/utils.py#L388", "mended in 61020ed"))
    assert command_line.run(__main__.main, ["vlm-40149"]) == 2
    assert "no case has 'vlm-40149'" in capsys.readouterr().err


@pytest.mark.parametrize("words, name", [
    ("draft_probs is None", "vllm-40149"), ("bonus", "EAGLE-bonus"),
    ("relaxed_acceptance", "TensorRT-LLM-3865"), ("0.8.2", "mistral.rs-2424"),
    ("https://github.com/vllm-project/vllm/pull/54282/files#r1", "vllm-54282"),
    ("vllm 54282", "vllm-54282"), ("NoiseUsedTwice", "vllm-54282"), ("#54282", "vllm-54282"),
    ("0.29.0", "vllm-54282"), ("2026-08 gumbel", "vllm-54282")])
def test_a_stranger_finds_a_case_by_what_they_have_at_hand(words, name, capsys, monkeypatch):
    """With the program, and what the table holds in the table."""
    monkeypatch.setattr(__main__, "finding", lambda case: "")           # judges nothing
    assert command_line.run(__main__.main, words.split()) == 0 and name in capsys.readouterr().out
    case = next(case for case in CASES if case.name == name)
    row = next(line for line in PAGE.splitlines() if line.endswith(f"](#{__main__.address(name)})"))
    assert row.startswith(case.project) and (words in row or name == "vllm-54282")


# The vectors ------------------------------------------------------------------------------------------------

VECTORS = json.loads((HERE / "vectors.json").read_text(encoding="utf-8"))
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
RARE = {"ForbiddenRowZeroed", "OldPlaceTested"}                 # only distributions or later rounds show them
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
