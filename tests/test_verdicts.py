"""The verdicts: every rule is what its name says (mended it turns fine, broken it turns wrong), the page is
what the judge finds, and what cannot be walked is integrated rightly."""
import copy
import inspect
import json
import math
import os
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import mutant

from lossless import PAIRS, check, exact_distribution, memoryless, table
from sampling import Round
from verdicts import cases, integrals, judging, museum, page, pair, questions, real, rules, vectors
from verdicts.__main__ import in_full, main
from verdicts.cases import CASES, HERE, KINDS, ORDER, WHY, case_named, in_order, results
from verdicts.integrals import INTEGRALS, race_twice
from verdicts.judging import first_token, report, verdict
from verdicts.museum import CHANGES
from verdicts.rules import RULES

WRONG = [name for name in RULES if any(c.rule == name and c.verdict == "wrong" for c in CASES)]
RIGHT = [name for name in RULES if name not in WRONG]


def settings_of(rule):
    """(settings, penalty) in which a case shows it."""
    return next(((case.settings, case.penalty) for case in CASES if case.rule == rule), ({}, False))


# Every rule, changed in a line ------------------------------------------------------------------------------

MENDED = {      # wrong -> right: {rule: (a place in the code of the rule, what should stand there)}
    "beam, softmax recorded": ("return found[0][:2]", "return found[0][0], None"),
    "typical": ("verify=lossy.typical()", "verify=verify"),
    "tree of top tokens, softmax recorded": (
        "node(draw_top, select_drawn, (", "node(draw_top, select_top_with_p_1, ("),
    "tree, one coin to the end": ("random=lambda: coin", "random=rng.random"),
    "tree, a draw for each path": ("        own = sample(q, rng)\n        if own == token:",
                                   "        own = own if i else sample(q, rng)\n        if own == token:"),
}
BROKEN = {      # right -> wrong
    "beam as point masses": ("    return beam(draft, x, k, to_probs, rng)[0], None",
                             "    return beam(draft, x, k, to_probs, rng)"),
    "zeroed and restored": ("kept, q[j, token] = q[j, token], 0", "kept = q[j, token] = 0"),
    "tree of top tokens, p = 1": ("q = normalized(np.where(np.arange(len(q)) == token, 0, q))", "pass"),
    "tree, one coin": ("sample(rest if rest.any() else q, again", "sample(q, again"),
    "tree, match": ("grow=likeliest)", "temperature=0)"),
}
ELSEWHERE = {"Algorithm 2", "looked up", "block", "block, point masses", "tree drawn without replacement",
             "tree drawn, order fixed"}                         # of speculative.py, samplers/: tested there
OF_THE_MUSEUM = [name for name, rule in RULES.items() if isinstance(rule.code[0], tuple)]
ENTRY = {str(changes): name for name, (*_, changes) in CHANGES.items()}


@pytest.fixture
def few_pairs(monkeypatch):
    kept = {"five tokens of vocabulary": (2, (1,)), "long rounds": (3, (2,))}
    monkeypatch.setattr(judging, "PAIRS", {name: judging.PAIRS[name][:2] + kept[name] for name in kept})
    monkeypatch.setattr(judging, "KEPT_OF", ["long rounds"])


def word_of(rule):
    """The verdict in the settings in which a case shows the rule."""
    return verdict(report(rule, *settings_of(rule)), rule, *settings_of(rule))[0]


def word_of_changed(rule, changes, monkeypatch):
    changed = mutant(rules, *changes)
    monkeypatch.setitem(RULES, rule, changed.RULES[rule])
    return word_of(rule)


@pytest.mark.parametrize("rule", MENDED)
def test_a_wrong_rule_mended_is_right(rule, few_pairs, monkeypatch):
    assert word_of(rule) == "wrong"
    assert word_of_changed(rule, [within(rule, MENDED[rule])], monkeypatch) != "wrong"


@pytest.mark.parametrize("rule", BROKEN)
def test_a_right_rule_broken_is_wrong(rule, few_pairs, monkeypatch):
    assert word_of(rule) != "wrong"
    assert word_of_changed(rule, [within(rule, BROKEN[rule])], monkeypatch) == "wrong"


def within(rule, change):
    """The change, with as much of the rule's own code before it as makes its place unique."""
    old, new = change
    source, code = inspect.getsource(rules), page.code_of(rule)
    if source.count(old) == 1:
        return old, new
    start = source.index(code.splitlines()[0])
    end = source.index(old, start)
    return source[start:end] + old, source[start:end] + new


@pytest.mark.parametrize("rule", [
    rule for rule in OF_THE_MUSEUM if len(RULES[rule].code) == 1 and str(RULES[rule].code[0][1]) in ENTRY])
def test_a_rule_of_the_museum_is_wrong_if_its_change_is_a_mistake(rule, few_pairs):
    assert (word_of(rule) == "wrong") == (ENTRY[str(RULES[rule].code[0][1])] in museum.WRONG)


def test_no_rule_is_left_out():
    assert {*MENDED, *BROKEN, *OF_THE_MUSEUM, *ELSEWHERE} == set(RULES)
    assert set(WRONG) >= set(MENDED) and not set(WRONG) & set(BROKEN)


def test_rules_are_short_enough_to_stand_beside_speculative():
    for name, rule in RULES.items():
        for function in rule.code:
            if getattr(function, "__module__", "") == "verdicts.rules":
                source = inspect.getsource(function).replace(f'"""{function.__doc__}"""', "")
                assert len([line for line in source.splitlines() if line.strip()]) <= 15, name
    used = {case.rule for case in CASES}
    assert set(RULES) - used <= {rule.beside for rule in RULES.values()} and set(INTEGRALS) <= used


# By hand ----------------------------------------------------------------------------------------------------

Q, P = (.1, .6, .3), (.5, .3, .2)


@pytest.mark.parametrize("rule, first", [
    ("Algorithm 2", Q),
    ("argmax, softmax recorded", (.2, .6, .2)),                 # 0 is drafted: .2 stays, .8 of (0, .75, .25)
    ("target after refusal", (.14, .54, .32)),                  # .6 kept, and .4 of q
    ("uniform is zero", P),
    ("greedy target", (0, 1, 0)),
    ("drawn, as point masses", Q),
    ("race for the residual", Q),
    ("noise used twice", (.1, .3 + .4 * 6 / 7, .2 + .4 / 7)),
])
def test_the_first_token_by_hand(rule, first):
    """Of the last: 0 was drafted and refused, so E_1 > .6 E_0 and E_2 > .4 E_0, and 1 wins if E_1 < 3 E_2.
    With E_0 = 1 / 2 of the time .. the integral of 1 / (1 + t + max(t / 3, .4))^2 over t > .6."""
    if rule == "noise used twice":
        low = 1 / (1 + .6 + .4) - 1 / (1 + 1.2 + .4)            # t from .6 to 1.2: the maximum is .4
        one = low + .75 / (1 + 1.2 * 4 / 3)                     # then 1 / (1 + 4 t / 3)^2
        first = .1, .3 + .8 * one, .2 + .8 * (.5 - one)
    assert first_token(rule, Q, P) == pytest.approx(first, abs=1e-12)


def test_a_draft_that_the_target_rules_out_is_kept_once_in_2_to_the_24():
    """On a grid a draft stays as often as points are not above q; else another comes, as q has them."""
    q, p = (0, .7, .3), (.5, .25, .25)
    a, b, c = 1 / 2**24, math.ceil(.7 * 2**24) / 2**24, math.ceil(.3 * 2**24) / 2**24       # drafts that stay
    assert first_token("coin up to, on a grid", q, p) == pytest.approx([
        .5 * a, .25 * b + .5 * (1 - a) * .7 + .25 * (1 - c), .25 * c + .5 * (1 - a) * .3 + .25 * (1 - b)],
        abs=1e-12)


def test_how_many_drafts_are_kept_by_hand():
    kept = {rule: judging.kept_of(rule, memoryless(P), memoryless(Q), 1, {}) for rule in (
        "Algorithm 2", "match", "match, argmax", "drawn, as point masses", "tree of top tokens, p = 1")}
    assert list(kept.values()) == pytest.approx([.6, .29, .1, .29, .7])


@pytest.mark.parametrize("rule", pair.KEPT)
def test_the_sum_over_the_vocabulary_is_what_the_walk_gives(rule):
    rng = np.random.default_rng(1)
    for n_vocab in 3, 5:
        q, p = rng.dirichlet(np.full(n_vocab, .6), size=2)
        walked = judging.kept_of(rule, memoryless(p), memoryless(q), 1, {})
        assert pair.KEPT[rule](q, p) == pytest.approx(walked)


def test_the_pair_is_measured_at_every_token_of_the_texts(monkeypatch):
    """The draft has two distributions by turns: half of the prefixes have one, half the other."""
    q, p, by_turns = (.2, .5, .3), (.5, .3, .2), (.1, .1, .8)
    models = {"demo-draft": lambda x, n_last=1: np.log([by_turns if len(x) % 2 else p]),
              "demo-target": memoryless(q)}
    encoder = SimpleNamespace(encode=lambda line: [0] * (1 + len(line) % 2))
    stored = {}
    monkeypatch.setattr(pair, "load_model", lambda name: (models[name], encoder))
    monkeypatch.setattr(pair, "store", stored.update)
    pair.measure(n_tokens=6, temperature=2.0)
    assert stored["pair"].items() >= {"prefixes": 8 * 6, "temperature": 2.0}.items()
    flat = [np.sqrt(one) / np.sqrt(one).sum() for one in (q, p, by_turns)]      # at temperature 2
    for name, rule in pair.KEPT.items():
        one, other = (rule(flat[0], flat[i]) for i in (1, 2))
        assert stored["pair"]["kept"][name] == pytest.approx(
            [(one + other) / 2, abs(one - other) / 2 / 47 ** .5], abs=1e-4), name


def test_a_race_run_twice_on_the_same_noise():
    """Beside sums over a fine grid of quantiles of three exponentials, and rows that must add up."""
    n = 80
    E = -np.log1p(-(np.arange(n) + .5) / n)
    E = np.stack(np.meshgrid(E, E, E, indexing="ij"), -1).reshape(-1, 3)
    for first, second in [((.5, .3, .2), (0, .3, .1)), ((.2, .5, .3), (.6, .1, .3))]:
        first, second = np.array(first), np.array(second)
        a = (E / first).argmin(axis=1)
        b = (E / np.where(second > 0, second, 1e-9)).argmin(axis=1)
        counted = np.zeros((3, 3))
        np.add.at(counted, (a, b), 1 / len(E))
        joint = race_twice(first, second)
        assert joint == pytest.approx(counted, abs=.02)
        assert joint.sum(axis=1) == pytest.approx(first) and joint.sum(axis=0) == pytest.approx(
            second / second.sum())


def test_products_of_coins_are_what_a_grid_of_coins_gives():
    draft, target = PAIRS["a distribution after every prefix"]
    coins = (np.arange(400) + .5) / 400
    first, both = coins[:, None] * np.ones(400), coins[:, None] * coins     # u_1, u_1 u_2
    p, q = integrals.rows(draft, target, [2, 0])
    after = [integrals.rows(draft, target, [2, 0, d]) for d in range(3)]
    found = np.zeros((3, 3))
    for d, (p2, q2) in enumerate(after):
        for e in range(3):
            r, r2 = min(1, q[d] / p[d]), min(1, q2[e] / p2[e])
            two = (both < r * r2).mean()
            one = ((both >= r * r2) & (first < r)).mean()
            found[d, e] += p[d] * p2[e] * two
            found[d] += p[d] * p2[e] * one * np.maximum(q2 - p2, 0) / np.maximum(q2 - p2, 0).sum()
            found += p[d] * p2[e] * (1 - one - two) * np.array(
                [x * after[i][1] for i, x in enumerate(np.maximum(q - p, 0) / np.maximum(q - p, 0).sum())])
    exact = INTEGRALS["products of coins"](draft, target, [2, 0])
    assert np.array([[exact[d, e] for e in range(3)] for d in range(3)]) == pytest.approx(found, abs=.002)


# The cases and their page -----------------------------------------------------------------------------------

def test_there_is_enough_of_everything():
    assert len(CASES) >= 40 and len({case.project for case in CASES}) >= 15
    assert len({case.name for case in CASES}) == len(CASES)
    assert sum(case.verdict != "wrong" for case in CASES) >= 8
    assert sum(case.kind == "tree" for case in CASES) >= 6
    assert sum(case.kind == "reused" for case in CASES) >= 4
    for case in CASES:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+/(issues|pull)/\d+", case.thread), case.name
        assert re.fullmatch(r"20\d\d-[01]\d", case.date) and case.kind in KINDS and case.verdict in ORDER
        assert case.by in {"user", "contributor", "maintainer", "reviewer"}
        assert case.claim.endswith((".", "?", "!")) and case.outcome.endswith("."), case.name
        assert "@" not in case.claim + case.outcome + case.note


def test_who_is_right_is_said_of_every_case():
    assert set(WHY) == {*RULES, *INTEGRALS}
    answers = {case.name: case.answer for case in CASES}
    assert answers["transformers-32867"].startswith("The user is right. The ratio q / p")
    assert answers["mlx-swift-lm-459"].startswith("The contributor is not right.")
    assert answers["mlx-lm-1085"].startswith("The contributor is not right.")
    assert answers["EAGLE-183"].startswith("Is it lossless? Yes, but slowly.")


def test_the_table_is_sorted_by_verdict():
    assert [case.verdict for case in in_order()] == sorted([case.verdict for case in CASES], key=ORDER.index)


def test_the_page_is_what_was_stored():
    assert (HERE / "README.md").read_text(encoding="utf-8") == page.page()


def equal(a, b):
    """Numbers to six digits, everything else exactly; what is below 1e-12 is rounding."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b if isinstance(a, str) or a is None or b is None else abs(a - b) <= 1e-12 + 2e-6 * abs(a)


def test_the_cases_of_few_branches_are_judged_anew():
    few = [case for case in CASES if case.found["branches"] < 300]
    assert len(few) > len(CASES) / 2 and {case.kind for case in few} == {*KINDS}
    assert {*INTEGRALS} <= {case.rule for case in few} and sum(bool(case.example) for case in few) > 3
    assert equal(dict(page.judged(few)), {case.name: case.found for case in few})


@pytest.mark.long
def test_every_case_is_judged_anew():
    assert equal(dict(page.judged(CASES)), results()["cases"])


@pytest.mark.long
@pytest.mark.parametrize("rule", [rule for rule in RIGHT if not rule.startswith("tree")])
def test_what_is_right_here_is_lossless_on_the_standard_cases(rule):
    assert check(RULES[rule].sampler, Ks=(1, 2), n_tokens=3) < 1e-12


# The program ------------------------------------------------------------------------------------------------

def test_the_table_and_a_case_are_printed(capsys):
    main()
    table = capsys.readouterr().out
    assert all(case.name in table for case in CASES) and table.index("WRONG") < table.index("SLOW")
    headings = [line for line in table.splitlines() if " · " in line]
    assert {*headings} == {f"{case.verdict.upper()} · {KINDS[case.kind]}" for case in CASES}
    assert len({*headings}) == len(headings)
    text = " ".join(in_full(case_named("transformers-32867")).split())
    assert "wrong" in text and "0.75, 0.25" in text and "drafts.append(int(np.argmax(p[-1])))" in text


def test_an_unknown_case_gets_the_nearest(capsys):
    import console

    assert console.run(main, ["vllm-4014"]) == 2
    assert "vllm-40149" in capsys.readouterr().err


# The vectors ------------------------------------------------------------------------------------------------

def test_the_vectors_are_what_their_program_writes():
    assert (HERE / "vectors.json").read_text(encoding="utf-8") == vectors.text()


def test_the_first_tokens_of_the_vectors_have_the_targets_distribution():
    """Independent of the rules: what comes first adds up to q, whatever is kept."""
    for one in vectors.vectors()["distributions"]:
        node = one["rule"] in vectors.NODES
        first = np.zeros(len(one["q"] if node else one["q"][0]))
        for _, token, *rest in one["outcomes"]:
            first[token] += rest[-1]
        assert first == pytest.approx(one["q"] if node else one["q"][0], abs=1e-11)


@pytest.mark.long
def test_another_language_reproduces_the_vectors_and_sees_what_is_changed(tmp_path):
    if not shutil.which("node"):
        pytest.skip("there is no Node")
    def node(file):
        return subprocess.run(["node", HERE / "check_vectors.js", file], capture_output=True, text=True)

    whole = node(HERE / "vectors.json")
    assert whole.returncode == 0 and "40 steps and 15 distributions" in whole.stdout, whole.stderr
    assert len((HERE / "check_vectors.js").read_text(encoding="utf-8").splitlines()) <= 100
    made = vectors.vectors()
    for part, i in [("steps", i) for i in range(0, 40, 9)] + [("distributions", i) for i in range(0, 15, 4)]:
        changed = copy.deepcopy(made)
        if part == "steps":
            changed[part][i]["next"] = (changed[part][i]["next"] + 1) % 3
        else:
            changed[part][i]["outcomes"][-1][-1] += 1e-6
        (tmp_path / "vectors.json").write_text(json.dumps(changed))
        found = node(tmp_path / "vectors.json")
        assert found.returncode == 1 and f"{part[:-1]} {i} differs" in found.stderr


# What writes the pages --------------------------------------------------------------------------------------

def test_what_is_found_is_written_beside_what_was(tmp_path, monkeypatch):
    """Each program finds here what is stored, and so writes the committed files; of results.json its part."""
    whole = results()
    files = ["results.json", "README.md", "questions.md", "vectors.json"]
    committed = {file: (HERE / file).read_text(encoding="utf-8") for file in files}
    for path in HERE.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    for module in cases, page, questions, vectors:
        monkeypatch.setattr(module, "HERE", tmp_path)
    asked, told = whole["cases"], whole["questions"]
    monkeypatch.setattr(page, "judged", lambda those: [(case.name, asked[case.name]) for case in those])
    monkeypatch.setattr(questions, "parting", lambda: told["parting"])
    monkeypatch.setattr(questions, "runs", lambda: {key: told[key] for key in ("line", "tree")})
    for module, file, part in (page, "README.md", "cases"), (questions, "questions.md", "questions"):
        (tmp_path / file).write_text("old")
        (tmp_path / "results.json").write_text(json.dumps(whole | {part: whole[part] | {"old": 1}}))
        module.write()
        assert {name: (tmp_path / name).read_text(encoding="utf-8") for name in files} == committed
    monkeypatch.setattr(vectors, "text", lambda: "new")
    vectors.write()
    assert (tmp_path / "vectors.json").read_text() == "new"


# Real functions ---------------------------------------------------------------------------------------------

def test_what_was_found_of_real_functions():
    found = {name: one["deviation"] for name, one in results()["real"].items()}
    assert found["transformers 4.44.0: generate with an assistant"] > .05       # transformers-32867
    assert found["transformers 5.23.0: generate with an assistant"] < 1e-7
    assert found["mlx-lm 0.32.2: speculative_generate_step"] < 1e-7             # mlx-lm-1709


def test_an_engines_text_is_compared_with_the_targets():
    """Algorithm 2 and the museum's wrong residual in an engine's place; a draw goes through the judge."""
    draft, target = PAIRS["a distribution after every prefix"]
    pair = draft, target, real.PROMPT, real.N_TOKENS, real.N_DRAFTS

    def run(sampler):
        return lambda rng: tuple(token for r in sampler(*pair, rng) for token in r.tokens)

    right, wrong = (real.found(run(sampler), target) for sampler in (
        RULES["Algorithm 2"].sampler, RULES["target after refusal"].sampler))
    assert right["deviation"] < 1e-12 > right["distance"] and right["texts"] == wrong["texts"] == 27
    text, has, should = wrong["worst"]
    assert wrong["deviation"] == pytest.approx(abs(has - should), rel=.01) and len(text) == 3
    assert wrong["deviation"] < wrong["distance"] < 27 * wrong["deviation"] / 2
    assert exact_distribution(lambda rng: real.pick([1, 0, 3], rng)) == {0: .25, 2: .75}
    cache = real.Tokens()
    cache.tokens += [1, 2, 3]
    assert cache.is_trimmable() and cache.trim(2) == 2 and cache.tokens == [1]


@pytest.mark.long
def test_real_functions_that_are_installed_still_do_what_was_found():
    """In this environment and in those of $ENGINES, their Pythons joined as in $PATH."""
    found, missing = {}, ""
    for python in [sys.executable, *filter(None, os.environ.get("ENGINES", "").split(os.pathsep))]:
        run = subprocess.run([python, "-m", "verdicts.real", "--json"], cwd=HERE.parent, capture_output=True,
                             text=True, check=True)
        found |= json.loads(run.stdout)
        missing += run.stderr
    stored = results()["real"]
    for name in found.keys() & stored.keys():
        assert found[name]["deviation"] == pytest.approx(stored[name]["deviation"], abs=1e-7), name
    if stored.keys() - found.keys():
        pytest.skip(f"not repeated: {', '.join(sorted(stored.keys() - found.keys()))}.  {missing}")


def test_a_misspelt_case_is_told_its_nearest_names():
    assert case_named(CASES[0].name.upper()) == CASES[0]
    with pytest.raises(ValueError, match=f"did you mean .*{CASES[0].name}"):
        case_named(CASES[0].name[:-1] + "x")
    with pytest.raises(ValueError, match=r"did you mean \w"):
        case_named("zzzz")


# The questions ----------------------------------------------------------------------------------------------

def test_the_questions_page_is_what_was_stored():
    text = (HERE / "questions.md").read_text(encoding="utf-8")
    assert text == questions.page() and "{" not in text


def test_a_row_of_our_product_has_the_same_bits_alone_and_of_five():
    for seed in range(20):
        found = questions.logits(*questions.near_tie(seed))
        assert (found["linear, alone"] == found["linear, of five"]).all()
    pair = results()["questions"]["parting"]["logits"]
    assert pair["linear, alone"] == pair["linear, of five"] and pair["alone"] != pair["of five"]


def test_the_first_near_tie_that_parts_is_shown_with_its_bits(monkeypatch):
    for x, w in map(questions.near_tie, range(20)):
        a, b = x[0].astype(float) @ w[:, :2].astype(float)
        assert abs(a - b) < 1e-6                                # of logits of the size 1
    x, w = questions.near_tie(2)
    alone, parted = np.float32([.25, .5]), np.float32([.5, .25])

    def logits(asked, _):
        return {"alone": alone, "of five": parted if (asked == x).all() else alone}

    monkeypatch.setattr(questions, "logits", logits)
    found = questions.parting()
    assert found["seed"] == 2 and found["exact"] == pytest.approx(
        [sum(float(a) * float(b) for a, b in zip(x[0], w[:, i])) for i in (0, 1)], abs=1e-9)
    assert found["logits"] == {"alone": [["0.25", "0x3e800000"], ["0.5", "0x3f000000"]],
                               "of five": [["0.5", "0x3f000000"], ["0.25", "0x3e800000"]]}


def test_whole_rounds_of_a_line_and_of_a_tree_are_told(monkeypatch):
    models = {"demo-draft": table(1, n_vocab=4), "demo-target": table(2, n_vocab=4)}
    monkeypatch.setattr(questions, "load_model", lambda name: (
        models[name], SimpleNamespace(encode=lambda line: [len(line) % 4])))
    found = questions.runs(K=3, n_tokens=40)
    for words, K, n_drafts in (found["line"], 3, 3), (found["tree"], 2, 6):
        assert len(words["per position"]) == K and words["drafted"] == n_drafts * words["passes"] > 30
        assert words["tokens over K + 1"] == words["tokens a pass"] / (K + 1)


def test_the_definitions_of_acceptance_on_three_rounds_by_hand():
    """Drafts 5 and 6: both kept, the first refused, the second refused."""
    p, q = np.full((2, 9), .5), np.full((3, 9), .5)
    q[0, 5], q[1, 6] = .25, 2.
    words = questions.told([Round(tokens, [5, 6], n, q, p)
                            for tokens, n in (([5, 6, 7], 2), ([1], 0), ([5, 1], 1))], 2)
    assert words == {
        "passes": 3, "drafted": 6, "accepted": 3, "tested": 5, "accepted over tested": 3 / 5,
        "accepted over drafted": 1 / 2, "accepted a pass": 1, "tokens a pass": 2,
        "per position": [2 / 3, 1 / 3], "per position, given those before": [2 / 3, 1 / 2],
        "tokens over K + 1": 2 / 3, "mean of min(1, q / p)": (3 * .5 + 2 * 1) / 5}
    tree = Round([5], [5, 6], 1, q, None, parents=[-1, -1])
    assert "mean of min(1, q / p)" not in questions.told([tree], 2)


def test_the_definitions_agree_with_each_other():
    words = results()["questions"]["line"]
    assert words["tokens a pass"] == pytest.approx(1 + sum(words["per position"]))
    assert words["tokens a pass"] == pytest.approx(1 + words["accepted a pass"])
    assert np.cumprod(words["per position, given those before"]) == pytest.approx(words["per position"])
    assert words["accepted over drafted"] == pytest.approx(words["accepted a pass"] / 4)
    assert words["accepted over drafted"] < words["accepted over tested"]
