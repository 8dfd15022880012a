"""exercises.py: this repository's own code passes every step, an empty file none, and every wrong version is stopped."""
import os
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
NAMES = {"probabilities": 1, "sample": 1, "autoregressive_sampling": 2, "verify": 3, "speculative_sampling": 4, "expected_tokens": 6,
         "predicted_speedup": 6}                            # name: the step that asks for it


def solution(module=speculative, **changes):
    mine = types.ModuleType("mine")
    mine.__dict__.update({name: getattr(m, name) for m in (sampling, autoregressive, stats, module) for name in NAMES if hasattr(m, name)}, **changes)
    return mine


def test_this_repository_passes_every_step():
    assert exercises.check(solution()) == len(exercises.STEPS) == 6


def test_an_empty_file_passes_none():
    assert exercises.check(types.ModuleType("mine")) == 0


@pytest.mark.parametrize("name, step", NAMES.items())
@pytest.mark.parametrize("nothing", [None, lambda *arguments, **more: None], ids=["missing", "returns nothing"])
def test_each_step_needs_its_functions(name, step, nothing):
    assert exercises.check(solution(**{name: nothing})) == step - 1


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG)
def test_no_wrong_version_passes(changes):
    wrong = mutant(speculative, *changes)
    assert exercises.check(solution(wrong)) in (2, 3, 4)    # step 3, 4 or 5 stops it


def test_lists_of_tokens_will_do():
    def as_list(sampler):
        return lambda *arguments, **settings: [token for r in sampler(*arguments, **settings) for token in r.tokens]
    mine = solution(autoregressive_sampling=as_list(autoregressive.autoregressive_sampling),
                    speculative_sampling=as_list(speculative.speculative_sampling))
    assert exercises.check(mine) == 6


def test_a_target_that_is_asked_token_by_token_is_noticed(capsys):
    def slow(draft, target, tokens, n_tokens, K, rng, **settings):
        return exercises.text(autoregressive.autoregressive_sampling(target, tokens, n_tokens, rng, **settings))
    assert exercises.check(solution(speculative_sampling=slow)) == 3
    assert "2 passes" in capsys.readouterr().out


@pytest.mark.parametrize("sample", [lambda probs, rng: rng.choice(len(probs), p=probs), lambda probs, rng: np.argmax(np.cumsum(probs) > rng.random()),
                                    lambda probs, rng: int(rng.random() - probs[0] > 0)], ids=["choice", "array", "difference"])
def test_other_use_of_chance_gets_a_hint(sample, capsys):
    assert exercises.check(solution(sample=sample)) == 0
    assert "rng has only `random()`" in capsys.readouterr().out


def run(folder, *arguments):
    return subprocess.run([sys.executable, "-m", "exercises", *arguments], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)


def test_the_command_says_what_is_missing_and_in_the_end_what_it_gains(tmp_path):
    nothing = run(tmp_path)
    assert nothing.returncode == 1 and "There is no my_speculative.py yet" in nothing.stderr
    mine = tmp_path / "my_speculative.py"
    mine.write_text("import numpy as np\n\ndef probabilities(logits, **settings):\n    return np.exp(logits)\n", encoding="utf-8")
    begun = run(tmp_path)
    assert begun.returncode == 1 and "Step 1, the distribution: not yet." in begun.stdout and not begun.stderr
    mine.write_text("from sampling import probabilities, sample\nfrom autoregressive import autoregressive_sampling\n"
                    "from speculative import speculative_sampling, verify\nfrom reporting.stats import expected_tokens, predicted_speedup\n", encoding="utf-8")
    done = run(tmp_path, "my_speculative.py")
    assert done.returncode == 0 and "Step 6, what it gains: right." in done.stdout and "tokens a pass" in done.stdout and not done.stderr


def test_the_text_names_every_function():
    words = (ROOT / "exercises" / "README.md").read_text(encoding="utf-8")
    assert all(f"def {name}(" in words for name in NAMES) and words.count("## Step") == 6
