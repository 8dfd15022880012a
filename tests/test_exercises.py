"""exercises: this repository's own code passes every step, an empty file none, and every wrong version is
stopped.
"""
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from helpers import mutant
from test_wrong_versions import WRONG

import autoregressive
import exercises.__main__ as exercises
import sampling
import speculative
from reporting import stats

ROOT = Path(exercises.__file__).parent.parent
NAMES = {name: n + 1 for n, names in enumerate(exercises.STEPS.values()) for name in names}     # name: step


def solution(module=speculative, **changes):
    mine = types.ModuleType("mine")
    for m in (sampling, autoregressive, stats, module):
        mine.__dict__.update({name: getattr(m, name) for name in NAMES if hasattr(m, name)})
    mine.__dict__.update(changes)
    return mine


@pytest.mark.long
def test_this_repository_passes_every_step():
    assert exercises.check(solution()) == len(exercises.STEPS) == 6


def test_an_empty_file_passes_none():
    assert exercises.check(types.ModuleType("mine")) == 0


@pytest.mark.parametrize("name, step", NAMES.items())
@pytest.mark.parametrize("nothing", [None, lambda *run, **more: None], ids=["missing", "returns nothing"])
def test_each_step_needs_its_functions(name, step, nothing, monkeypatch):
    steps = list(exercises.STEPS.items())[step - 1:step]                # the others would take seconds
    monkeypatch.setattr(exercises, "STEPS", dict(steps))
    assert exercises.check(solution()) == 1
    assert exercises.check(solution(**{name: nothing})) == 0


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG)
def test_no_wrong_version_passes(changes):
    wrong = mutant(speculative, *changes)
    assert exercises.check(solution(wrong)) in (2, 3, 4)    # step 3, 4 or 5 stops it


def as_list(sampler):
    return lambda *run, **settings: [token for r in sampler(*run, **settings) for token in r.tokens]


BASELINE = as_list(autoregressive.autoregressive_sampling)
SPECULATIVE = as_list(speculative.speculative_sampling)


def test_lists_of_tokens_will_do():
    assert exercises.check(solution(autoregressive_sampling=BASELINE, speculative_sampling=SPECULATIVE)) == 6


def test_a_target_that_is_asked_token_by_token_is_noticed(capsys):
    def slow(draft, target, tokens, n_tokens, K, rng, **settings):
        return BASELINE(target, tokens, n_tokens, rng, **settings)
    assert exercises.check(solution(speculative_sampling=slow)) == 3
    assert "2 passes" in capsys.readouterr().out


def test_a_probability_that_is_off_by_a_millionth_is_not_right():
    def off(logits, **settings):
        probs = sampling.probabilities(logits, **settings)
        return probs + 1e-6 * (np.arange(probs.shape[-1]) == 0)
    assert exercises.check(solution(probabilities=off)) == 0


@pytest.mark.parametrize("name, step", [("autoregressive_sampling", 2), ("speculative_sampling", 4)])
def test_a_sampler_that_changes_the_callers_prompt_is_told_so(name, step, capsys):
    sampler = {"autoregressive_sampling": BASELINE, "speculative_sampling": SPECULATIVE}[name]

    def changing(*run, **settings):
        new = sampler(*run, **settings)
        run[-3 if name == "autoregressive_sampling" else -4].extend(new)
        return new
    assert exercises.check(solution(**{name: changing})) == step - 1
    assert "the caller's prompt" in capsys.readouterr().out


@pytest.mark.parametrize("name", [
    "autoregressive_sampling", pytest.param("speculative_sampling", marks=pytest.mark.long)])
def test_a_sampler_that_knows_only_the_first_of_several_eos_is_not_right(name):
    def one(*run, eos=None, **settings):
        return getattr(solution(), name)(*run, eos=eos and eos[:1], **settings)
    assert exercises.found_by(exercises.step_5, solution(**{name: one}), seconds=60)


def test_other_use_of_chance_gets_a_hint(capsys):
    assert exercises.check(solution(sample=lambda probs, rng: rng.choice(len(probs), p=probs))) == 0
    assert "rng has only `random()`" in capsys.readouterr().out


def counted(probs, rng):
    """`sample` as many write it first."""
    u = rng.random()
    total = 0.0
    for token, chance in enumerate(probs):
        total = total + chance
        if u < total:
            return token
    return len(probs) - 1 - np.argmax(np.asarray(probs)[::-1] > 0)


def test_a_missing_0_is_told_and_not_taken_for_a_wrong_use_of_chance(capsys):
    def sampler(model, tokens, n_tokens, rng, temperature=1.0, top_k=0, top_p=1.0, eos=None):
        x = list(tokens)
        for _ in range(n_tokens):
            x.append(counted(sampling.probabilities(model(x), temperature, top_k, top_p), rng))
        return x[len(tokens):]
    assert exercises.check(solution(sample=counted, autoregressive_sampling=sampler)) == 1
    assert "Is a [0] missing" in capsys.readouterr().out


@pytest.mark.parametrize("rows, told", [(99, "the last 99 positions of 2 tokens"), (0, "the last 0 posit")])
def test_a_wrong_n_last_is_told_and_not_taken_for_a_wrong_use_of_chance(rows, told, capsys):
    def sampler(model, tokens, n_tokens, rng, **settings):
        return [sampling.sample(sampling.probabilities(model(tokens, rows)[0]), rng)] * n_tokens
    assert exercises.check(solution(autoregressive_sampling=sampler)) == 1
    out = capsys.readouterr().out
    assert told in out and "rng has only" not in out


def drawing(model, tokens, n_tokens, rng, **settings):
    while True:
        rng.random()


def asking(model, tokens, n_tokens, rng, **settings):
    while True:
        model(tokens)


def idle(model, tokens, n_tokens, rng, **settings):
    while True:
        pass


@pytest.mark.parametrize("sampler", [drawing, asking, idle])
def test_a_loop_that_never_appends_is_told_so(sampler, capsys):
    mine = solution(autoregressive_sampling=sampler)
    mistake, = exercises.found_by(exercises.step_2, mine, seconds=.3 if sampler is idle else 60)
    assert "never ends" in mistake


def test_all_that_is_wrong_with_a_step_is_told_up_to_four(capsys):
    assert exercises.check(solution(probabilities=lambda logits, **settings: np.ones_like(logits) / 4)) == 0
    out = capsys.readouterr().out
    assert out.count(" and should be ") == 4 and ".. and more" in out


def run(folder, *arguments):
    return subprocess.run([sys.executable, "-m", "exercises", *arguments], cwd=folder, capture_output=True,
                          text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


@pytest.mark.long
def test_the_command_says_what_is_missing_and_in_the_end_what_it_gains(tmp_path):
    nothing = run(tmp_path)
    assert nothing.returncode == 2 and "there is no my_speculative.py yet" in nothing.stderr
    mine = tmp_path / "my_speculative.py"
    mine.write_text("import numpy as np\n\n"
                    "def probabilities(logits, **settings):\n    return np.exp(logits)\n"
                    "\ndef sample(probs, rng):\n    return 0\n", encoding="utf-8")
    begun = run(tmp_path)
    assert begun.returncode == 1 and "Step 1, the distribution: not yet." in begun.stdout and not begun.stderr
    mine.write_text("from sampling import probabilities, sample\n"
                    "from autoregressive import autoregressive_sampling\n"
                    "from speculative import speculative_sampling, verify\n"
                    "from reporting.stats import expected_tokens, predicted_speedup\n", encoding="utf-8")
    done = run(tmp_path, "my_speculative.py")
    assert done.returncode == 0 and "Step 6, what it gains: right." in done.stdout
    assert "tokens a pass" in done.stdout and not done.stderr
    found = re.search(r"It took ([\d.]+) s instead of ([\d.]+) s: ([\d.]+) times", done.stdout).groups()
    short, long, times = map(float, found)
    off = .005                                                  # each has two digits
    assert (long - off) / (short + off) - off <= times <= (long + off) / (short - off) + off


@pytest.mark.parametrize("content, told", [
    ("def f(:\n", "is no Python yet: invalid syntax in line 1"), ("x = 1\0", "is no Python yet: source code"),
    ("import numpy\nimport nowhere\n", "Error: No module named 'nowhere' in line 2: import nowhere"),
    ("import sys; sys.exit(3)\n", "SystemExit: 3 in line 1"), (None, "is a folder"),
    ("raise KeyboardInterrupt\n", "interrupted")],
    ids=["syntax", "null byte", "import", "exit", "folder", "Ctrl-C"])
def test_what_cannot_be_checked_gets_one_sentence(content, told, tmp_path, capsys):
    mine = tmp_path / "mine.py"
    mine.write_text(content, encoding="utf-8") if content else mine.mkdir()
    assert exercises.main([str(mine)]) == (130 if told == "interrupted" else 2)
    out, err = capsys.readouterr()
    assert told in err and len(err.splitlines()) == 1 and not out


def test_a_file_that_never_ends_is_told_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(exercises, "SECONDS", .2)
    (tmp_path / "mine.py").write_text("while True:\n    pass\n")
    assert exercises.main([str(tmp_path / "mine.py")]) == 2
    out, err = capsys.readouterr()
    assert "mine.py cannot be imported: after 0.2 seconds" in err and err.count("\n") == 1 and not out


def test_help_tells_what_it_does(capsys):
    assert exercises.main(["--help"]) == 0 and "python -m exercises" in capsys.readouterr().out


def test_an_empty_file_is_told_what_to_begin_with(tmp_path, capsys):
    mine = tmp_path / "mine.py"
    mine.touch()
    assert exercises.main([str(mine)]) == 1
    out, err = capsys.readouterr()
    assert "there is no function probabilities yet" in out and "Error" not in out and not err


def test_the_text_names_every_function():
    words = (ROOT / "exercises" / "README.md").read_text(encoding="utf-8")
    assert all(f"def {name}(" in words for name in NAMES) and words.count("## Step") == 6


def test_a_mistake_is_told_in_few_digits_unless_more_are_needed():
    said, = exercises.differences([1 / 3, 2 / 3], [.5, .5], "x")
    assert said == "x is [0.3333 0.6667] and should be [0.5 0.5]"
    said, = exercises.differences(.5 + 1e-6, .5, "x")
    assert said == "x is 0.500001 and should be 0.5"


def test_nothing_more_is_promised_after_four_mistakes(monkeypatch, capsys):
    def step(mine):
        """a step"""
        yield from "abcde"[:n]

    monkeypatch.setattr(exercises, "STEPS", {step: []})
    for n in (4, 5):
        assert exercises.check(None) == 0
        assert ("more" in capsys.readouterr().out) == (n == 5)
