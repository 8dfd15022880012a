"""exercises: right programs pass every step and an empty file passes none; wrong programs get a helpful
reply; and whatever a reader's file does, the program answers.
"""
import doctest
import os
import re
import subprocess
import sys
import types
from contextlib import suppress
from functools import cache, partial
from inspect import signature
from json import loads

import pytest
from helpers import ROOT

from engine.loading.user_file import load_module
from exercises import bugs
from exercises.__main__ import check, main, show_hint
from exercises.child import find_mistakes
from exercises.mistakes import FILTERS
from exercises.steps import STEPS, step_3, step_4, step_5
from lossless import judge, report
from lossless.__main__ import own_functions
from lossless.cases import CASES, Case, pair
from lossless.judge import distance, walk_case
from lossless.toys import table
from lossless.verdicts import CASES as DISPUTES
from lossless.verdicts.museum import RULES, WRONG
from lossless.verdicts.rules import Algorithm2
from speculative import speculative_sampling

NAMES = {name: n + 1 for n, names in enumerate(STEPS.values()) for name in names}               # name: step
README = (ROOT / "exercises" / "README.md").read_text(encoding="utf-8")
STUDENT = (ROOT / "tests" / "fixtures" / "student.py").read_text(encoding="utf-8")


def program(*changes, **names):
    """The student's program, with each (old, new) of the changes made in its text, and these names set."""
    text, mine = STUDENT, types.ModuleType("my_speculative.py")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    exec(compile(text, mine.__name__, "exec"), vars(mine))
    vars(mine).update(names, text=text)
    return mine


SAMPLE = STUDENT[STUDENT.index("    cumulative ="):STUDENT.index("\n\n\ndef autoregressive")]


@pytest.mark.parametrize("old, new, n_steps", [
    ("rng.random()", "rng.uniform()", 5),
    (SAMPLE, "    return rng.choice(len(probs), p=probs / probs.sum())", 5),
    ("rng.random()", "(rng.integers(2) + rng.uniform(0, 1, size=1)[0]) / 2", 3)])  # too many branches
def test_all_ways_to_ask_rng_are_right(old, new, n_steps):
    mine = program((old, new))
    assert not [wrong for step in [*STEPS][:n_steps] for wrong in find_mistakes(step, mine)]


@pytest.mark.parametrize("name, step", NAMES.items())
def test_each_step_needs_its_functions(name, step):
    asks = list(STEPS)[step - 1]
    assert find_mistakes(asks, program(**{name: None})) == [f"there is no function {name} yet"]
    assert "None" in find_mistakes(asks, program(**{name: lambda *run, **more: None}))[0]


# the judge, in step 7, finds these mistakes, but the steps before it do not
HARDER = {"FloorUnderP", "FiltersJointly", "ProductsOfCoins", "LogitsClipped", "TenthRoundKeepsAll"}
OUTSIDE_VERIFY = "propose", "draw", "rows", "text", "__call__"


def notices(step, mine):
    """Whether the step finds a mistake."""
    with suppress(Exception):
        return any(step(mine))
    return True


@pytest.mark.parametrize("name", [name for name in WRONG
                                  if issubclass(RULES[name], Algorithm2) and name not in HARDER])
def test_steps_3_to_5_notice_the_mistakes_of_the_museum(name):
    """Step 3 those of verify, and steps 4 and 5, together, the others."""
    rule = RULES[name]
    if all(getattr(rule, part) is getattr(Algorithm2, part) for part in OUTSIDE_VERIFY):
        assert notices(step_3, program(verify=lambda *run: rule().verify(*run)))
    else:
        mine = program(speculative_sampling=WRONG[name])
        assert notices(step_4, mine) or notices(step_5, mine)


@pytest.mark.parametrize("name", FILTERS)
def test_step_1_knows_the_mistakes_of_filters_by_their_names(name):
    def probabilities(logits, temperature=1, top_k=0, top_p=1):
        return FILTERS[name](logits, temperature, top_k, top_p)
    wrong = find_mistakes(next(iter(STEPS)), program(probabilities=probabilities))
    assert f"known mistake: {name})" in wrong[0]


# Replies ----------------------------------------------------------------------------------------------------

TESTS = STUDENT[STUDENT.index("    for j, x in enum"):STUDENT.index("    return len(drafts), sample(")]
EOS = "set() if eos is None else {eos} if isinstance(eos, int) else set(eos)"
LOOP = "x.append(sample(probabilities(model(x), temperature, top_k, top_p)[0], rng))"
KNOWN = "a known mistake: "
OF_TOP_K = "probs[logits < np.sort(logits, axis=-1)[..., -top_k, None]] = 0"
ROWS = "target(x + drafts, len(drafts) + 1)"
POINT = "        P = np.eye(Q.shape[1])[drafts] if P is None else P\n"
REPLIES = [             # (step, what the student wrote instead of what, a part of the reply)
    (1, "axis=-1) - p >= top_p", "axis=-1) >= top_p", "nan comes from 0 / 0"),
    (1, "return probs / probs.sum(axis=-1, keepdims=True)", "return probs / probs.sum()", "your rows sum to"),
    (1, 'side="right"', 'side="left"', "rng.random() gives 0.0"),
    (1, "u = rng.random()", "u = np.random.random()", "asks rng for no number"),
    (1, "/ temperature)\n", "/ temperature).astype(np.float32)\n", "compute in float64"),
    (1, "dtype=float)", "dtype=np.float32)", "sum in float64"),
    (1, OF_TOP_K, "np.put_along_axis(probs, np.argsort(-logits)[..., top_k:], 0, axis=-1)",
     KNOWN + "exactly k tokens stay at a tie, the first"),
    (1, "- p >= top_p", "- p > top_p", KNOWN + "one token more stays"),
    (1, SAMPLE, "    u = rng.random()\n    return next(i for i, c in enumerate(np.cumsum(probs)) if u < c)",
     "gives 0.9999999999999999, the largest that it can, sample gives None"),
    (2, LOOP, "x.append(int(np.argmax(model(x)[0])))", "nothing is drawn"),
    (2, "model(x), temp", "model(x[-1:]), temp", "sees only the last token"),
    (2, "model(x), temp", "model(x, 99), temp", "n_last is 99: with 2 tokens"),
    (2, "x, eos = list(tokens)", "x, eos = tokens", "the caller's prompt [2, 0] was changed"),
    (2, "    return x[n:]\n\n\ndef verify", "    return x\n\n\ndef verify", "it gives 2: [2, 0]"),
    (2, "x.append(sample(", "(sample(", "never ends"),
    (2, "    return x[n:]\n\n\ndef verify", "\n\n\ndef verify", "return nothing?"),
    (3, TESTS, "    u = rng.random()\n" + TESTS.replace("u = rng.random()", ""), KNOWN + "OneCoinForAll"),
    (3, "residual = np.maximum(q - p, 0)", "residual = q", KNOWN + "TargetAfterRejection"),
    (3, "np.maximum(q - p, 0)", "q - p", "the residual is max(0, q - p)"),
    (3, "u * p[x] < q[x]", "u * p[x] <= q[x]", "rng.random() is exactly 0"),
    (3, "return len(drafts), sample(target_probs[-1], rng)",
     "return sample(target_probs[-1], rng), len(drafts)", "is the pair the wrong way round?"),
    (3, "len(drafts), sample(", "sample(", "n_accepted, next_token, two whole numbers"),
    (4, "draft(x + drafts)", "draft(x)", "called with the same tokens twice"),
    (4, "temperature, top_k, top_p)\n\n", "temperature, top_k)\n\n", "without top_p"),
    (4, "= verify(Q, P,", "= verify(Q[[*range(1, len(Q)), -1]], P,", KNOWN + "RowsOneTooLate"),
    (5, EOS, EOS.replace("{eos} if isinstance(eos, int) else ", ""), "eos=0)"),
    (5, EOS, EOS.replace("eos is None", "not eos"), "an `if eos`, where eos is an array"),
    (5, "            if token in eos:\n                return x[n:]\n", "", "goes on after an EOS"),
    (5, "n + n_tokens:\n        k", "n + n_tokens and x[-1] not in eos:\n        k", "does not count"),
    (5, "        if x[-1] in eos:\n            break\n", "", "autoregressive text after [1]"),
    (6, "range(K + 1)", "range(K)", "expected_tokens(0.6, 2) is 1.6 and should be 1.96"),
    (7, "u * p[x] < q[x]", "u * max(p[x], 1e-3) < q[x]", "not lossless"),
    (8, POINT, "", "a point mass"), (8, POINT, "        P = np.array(P)\n", "a point mass"),
    (8, "propose=ask_model", "propose=lambda *run: propose(*run)", "is your own drafter the default?"),
    (8, "[:k], None) if", ", None) if", "tokens, but at most k = 0"),
    (8, "return (x[places", "return ([], None) if k else (x[places", "nothing was drafted"),
]
COMPARED = TESTS.split("\n")[0] + ("\n        if (y := sample(target_probs[j], rng)) != x:\n"
                                   "            return j, y\n")
SEEN = ("    counts = np.bincount(x, minlength=3) + 1\n    token = sample(counts / counts.sum(), rng)\n"
        "    counts[token] += 1\n    return [token][:k], [counts / counts.sum()][:k]\n")
SLIPS = [               # common in public code, or with NumPy
    (1, "np.put_along_axis(probs, order, p, axis=-1)", "probs = p", "the right numbers in another order"),
    (1, "np.eye(logits.shape[-1])[logits.argmax(axis=-1)]", "probabilities(logits, 1, 1)", "logits share"),
    (1, "    if temperature == 0", "    logits -= 1\n    if temperature == 0", "changed what it was given"),
    (2, "top_p)[0], rng))", "top_p)[0], np.random.default_rng()))", "np.random is used: draw from rng"),
    (3, "residual = np.maximum(q - p", "q -= p\n        residual = np.maximum(q", "changed what it"),
    (3, TESTS, COMPARED, KNOWN + "Match. The target draws"),
    (4, "= to_probs(draft(x + drafts))[0]", "= to_probs(draft(x + drafts))", "is a [0] missing"),
    (4, "last = verify(Q, P,", "last = verify(P, Q,", "the target comes first"),
    (4, "propose(draft, list(x)", "propose(draft, np.array(x)", "keep lists of tokens"),
    (4, ROWS, "target(x + drafts, K + 1)", "for 1 drafts, verify was given target_probs of shape (4, 10)"),
    (4, ", top_k, top_p)\n\n    while", ", top_p, top_k)\n\n    while", "in probabilities(logits=[["),
    (8, ("draft, list(x), k", "    places = ["), ("draft, x, k", "    x.append(x[-1])\n    places = ["),
     "propose changes x"),
    (8, STUDENT[STUDENT.index("    places = ["):], SEEN, "and its p says"),
]
SLOW = [                # most of the known mistakes are tried before
    (5, ("min(K, n + n_tokens - len(x) - 1)", "return x[n:]"), ("K", "return x[n:n + n_tokens]"),
     "0 drafts are enough, and yours were 3"),          # lossless, but the last round drafts for nothing
    (5, "min(K, n + n_tokens - len(x) - 1)", "K", "1 new token after [2], it gives 4: [0, 0, 0, 0]"),
    (4, "    return x[n:]\n\n\ndef exp", "    return x\n\n\ndef exp", "with the prompt in front"),
]


@pytest.mark.parametrize("step, old, new, says", [
    *REPLIES, *SLIPS, *(pytest.param(*reply, marks=pytest.mark.long) for reply in SLOW)])
def test_a_reply_says_what_is_wrong(step, old, new, says, monkeypatch):
    monkeypatch.setattr(judge, "CASES", CASES[:12])
    mine = program(*([(old, new)] if isinstance(old, str) else zip(old, new)))
    assert not [wrong for before in [*STEPS][:min(step - 1, 5)] for wrong in find_mistakes(before, mine)]
    assert says in "\n".join(find_mistakes([*STEPS][step - 1], mine, mine.text))


# The program ------------------------------------------------------------------------------------------------

FILES = {                                               # the file's contents: part of the answer
    "": "there is no function probabilities yet", "def f(:": "line 1: SyntaxError", "input()": "EOFError",
    "import os; os._exit(0)": "ended Python itself (exit status 0)",
    "x = 1\nwhile x: pass": "after 0.5 seconds it has not finished: a loop never ends, or waits (line 2)",
    "3 ** (10 ** 9)": "after 0.5 seconds"}


@pytest.mark.parametrize("content, said", FILES.items())
def test_whatever_a_file_does_there_is_an_answer(content, said, tmp_path, capsys):
    (tmp_path / "mine.py").write_text(content, encoding="utf-8")
    n_right, wrong = check(tmp_path / "mine.py", seconds=.5 if "after" in said else 60)
    assert n_right == 0 and said in wrong[0] and said in capsys.readouterr().out


def test_a_folder_or_a_missing_file_gets_one_sentence(tmp_path):
    for path in tmp_path, tmp_path / "my.py":
        with pytest.raises(ValueError, match="--start .* writes one to begin with"):
            main(path)


def test_a_class_gets_a_line_for_each_file(tmp_path, capsys):
    for name, text in ("a.py", STUDENT.split("\ndef autoregressive")[0]), ("b.py", "raise SystemExit"):
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "c.py").write_bytes("x = 'caf\u00e9'".encode("latin-1"))
    (tmp_path / "d.py").mkdir()
    (tmp_path / "e.ipynb").write_text('{"cells": [null]}')
    assert main(str(tmp_path / "[a-d].py"), str(tmp_path / "e.ipynb"), json=True) == 1
    a, b, c, d, e = map(loads, capsys.readouterr().out.splitlines())
    assert not c["right"] + d["right"] + e["right"] and all(one["mistakes"] for one in (c, d, e))
    assert "it is not UTF-8 text" in c["mistakes"][0] and "Is a directory" in d["mistakes"][0]
    assert (a["right"], a["steps"], a["step"], a["name"]) == (1, 8, 2, None)
    assert a["mistakes"] == ["there is no function autoregressive_sampling yet"]
    assert b["right"] == 0 and "SystemExit" in b["mistakes"][0]


@pytest.mark.long
def test_without_a_name_the_command_checks_my_speculative_py(tmp_path):
    (tmp_path / "my_speculative.py").write_text(STUDENT, encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "exercises"], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0 and "Step 8, a drafter of your own: right.\n" in done.stdout
    assert "python -m benchmarks mine my_speculative.py" in done.stdout and "--bug 1" in done.stdout
    assert not done.stderr


def test_a_file_to_begin_with_has_every_function_and_no_other_file_is_lost(tmp_path, capsys):
    assert main(str(tmp_path / "mine.py"), start=True) is None
    with pytest.raises(ValueError, match="already exists"):
        main(str(tmp_path / "mine.py"), start=True)
    assert main(str(tmp_path / "*.py")) == 1                            # PowerShell leaves it to the program
    assert "NotImplementedError: not written yet" in capsys.readouterr().out
    written = load_module("mine.py", (tmp_path / "mine.py").read_text(encoding="utf-8"))
    for name in NAMES:
        mine, right = (signature(getattr(one, name)).parameters for one in (written, program()))
        assert [*mine] == [*right][:len(mine)] and len(right) - len(mine) <= (name == "speculative_sampling")


@pytest.mark.parametrize("step", range(1, 9))
def test_each_time_the_next_hint_is_shown_and_the_last_one_is_the_solution(step, tmp_path, capsys):
    for _ in range(5):
        show_hint(step, tmp_path / "mine.hints")
    shown = re.findall(rf"Step {step}, hint (\d) of (\d): (.*)", capsys.readouterr().out)
    assert [n for n, *_ in shown] == [min(str(n), last) for n, (_, last, _) in enumerate(shown, 1)]
    assert shown[-1][2].startswith("The solution: ") or step == 7


def test_the_examples_of_the_text_are_what_a_right_program_gives():
    examples = "".join(re.findall(r"```python\n(>>>.*?)```", README, re.S))
    test = doctest.DocTestParser().get_doctest(examples, vars(program()), "README.md", None, None)
    assert len(test.examples) == 11 and not doctest.DocTestRunner().run(test).failed


# Find the bug -----------------------------------------------------------------------------------------------

PAIR = [table(1, n_vocab=2), table(2, n_vocab=2)]
SHOW_ALL = [Case("", *PAIR, 3, 2, dict(temperature=.5)), Case("", *PAIR, 3, 2, dict(eos=[1])),
            Case("", table(3), table(8, zeros=.5), 2, 2, {}), Case("", *pair("r."), 2, 1, {})]


@cache
def texts(sampler):
    return [walk_case(sampler, case)[0] for case in SHOW_ALL]


def differ(one, other):
    """Whether two samplers write different texts."""
    return any(distance(a, b) > 1e-9 for a, b in zip(texts(one), texts(other)))


def test_a_bug_to_find_is_the_museums_mistake_and_the_loop_without_it_is_right():
    right = bugs.load(bugs.RIGHT)
    assert not differ(right, Algorithm2())
    for name in bugs.NAMES:
        assert differ(mine := bugs.load(bugs.source(name)), right) and not differ(mine, WRONG[name]), name
    assert all(bugs.RIGHT.count(old) == 1 for old, _ in bugs.EDITS.values())
    assert len({case.rule for case in DISPUTES} & {*bugs.NAMES}) >= 20 and f" {len(bugs.NAMES)}.\n" in README


def test_the_name_of_a_bug_and_its_thread_are_shown_when_it_is_mended(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(judge, "CASES", CASES[:4])
    path, number = tmp_path / "mine.py", bugs.NAMES.index("GreedyTarget") + 1
    assert not main(str(path), bug=number) and path.read_text(encoding="utf-8") == bugs.source("GreedyTarget")
    assert main(str(path), bug=number) == 1 and "GreedyTarget" not in capsys.readouterr().out
    path.write_text(bugs.RIGHT, encoding="utf-8")
    assert not main(str(path), bug=number) and path.read_text(encoding="utf-8") == bugs.RIGHT
    said = capsys.readouterr().out
    assert "It was GreedyTarget" in said and "sglang/" in said and "temperature=0)\nstood in place of" in said
    no_drafts = bugs.RIGHT.replace("range(min(K,", "range(0 * min(K,")                      # lossless, too
    path.write_text(no_drafts, encoding="utf-8")
    assert main(str(path), bug=number) == 1 and "instead of going round it" in capsys.readouterr().out


# Votes ------------------------------------------------------------------------------------------------------

VOTES = sorted((ROOT / "exercises" / "votes").glob("*.py"))


@pytest.mark.parametrize("path", VOTES, ids=lambda path: path.stem)
def test_a_vote_is_judged_as_its_docstring_says(path, monkeypatch):
    monkeypatch.setattr(judge, "CASES", CASES[:40])
    found = report(partial(speculative_sampling, **own_functions(str(path))))
    assert found.lossless == ("\nYes: " in path.read_text(encoding="utf-8"))
