"""exercises: this repository's own code passes every step and an empty file passes none; wrong versions get a
helpful reply; and whatever a reader's file does, the program answers.
"""
import os
import re
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest

import autoregressive
import sampling
import speculative
from exercises.__main__ import check, main
from exercises.steps import FILTERS, STEPS, mistakes, step_3, step_4, step_5
from lossless.verdicts.museum import RULES, WRONG
from lossless.verdicts.rules import Algorithm2
from reporting import stats

ROOT = Path(__file__).parent.parent
NAMES = {name: n + 1 for n, names in enumerate(STEPS.values()) for name in names}               # name: step
SOLUTION = """
from sampling import probabilities, sample
from autoregressive import autoregressive_sampling
from speculative import speculative_sampling, verify
from reporting.stats import expected_tokens, predicted_speedup
"""


def solution(module=speculative, **changes):
    mine = types.ModuleType("mine")
    for m in (sampling, autoregressive, stats, module):
        mine.__dict__.update({name: getattr(m, name) for name in NAMES if hasattr(m, name)})
    mine.__dict__.update(changes)
    return mine


def rounds_as_list(sampler):
    return lambda *run, **settings: [token for r in sampler(*run, **settings) for token in r.tokens]


BASELINE = rounds_as_list(autoregressive.autoregressive_sampling)


def always_K(draft, target, tokens, n_tokens, K, rng, eos=None, **settings):
    """Lossless: the last round also has K drafts, and its tokens are cut to the budget."""
    new = []
    while len(new) < n_tokens and not (eos and new and new[-1] in eos):
        run = speculative.speculative_sampling(draft, target, [*tokens, *new], K + 1, K, rng, **settings)
        new += sampling.cut_after(next(run).tokens, eos or ())
    return new[:n_tokens]


@pytest.mark.parametrize("mine", [solution(), solution(autoregressive_sampling=BASELINE,
                                                       speculative_sampling=always_K)],
                         ids=["rounds", "lists, with K drafts in every round"])
def test_right_answers_pass_every_step(mine):
    assert not [wrong for step in STEPS for wrong in mistakes(step, mine)]


@pytest.mark.parametrize("name, step", NAMES.items())
def test_each_step_needs_its_functions(name, step):
    asks = list(STEPS)[step - 1]
    assert mistakes(asks, solution(**{name: None})) == [f"there is no function {name} yet"]
    assert "None" in mistakes(asks, solution(**{name: lambda *run, **more: None}))[0]


# the judge finds these mistakes, but the steps do not
HARDER = {"FloorUnderP", "LateRound", "FiltersJointly", "TopPIgnoredWithTopK", "EOSIgnoredIfZero"}
OF_VERIFY = [name for name in WRONG if issubclass(RULES[name], Algorithm2) and all(
    getattr(RULES[name], part) is getattr(Algorithm2, part)
    for part in ("propose", "draw", "recorded", "rows", "text", "__call__"))]


def notices(step, mine):
    """Whether the step finds a mistake, without naming it."""
    try:
        return next(iter(step(mine)), None) is not None
    except Exception:
        return True


def test_step_3_notices_the_mistakes_of_the_museum():
    for name in OF_VERIFY:
        mine = solution(verify=lambda *run: RULES[name]().verify(*run))
        assert name in HARDER or notices(step_3, mine), name


def test_steps_4_and_5_notice_the_mistakes_of_the_museum():
    """At least one of the two steps notices each."""
    for name in WRONG:
        if issubclass(RULES[name], Algorithm2):
            mine = solution(speculative_sampling=WRONG[name])
            assert name in HARDER or notices(step_4, mine) or notices(step_5, mine), name


@pytest.mark.parametrize("name", FILTERS)
def test_step_1_knows_the_mistakes_of_filters_by_their_names(name):
    def probabilities(logits, **settings):
        return np.array([FILTERS[name](row, **settings) for row in logits])
    assert f"known mistake: {name})" in mistakes(next(iter(STEPS)), solution(probabilities=probabilities))[0]


# Replies ----------------------------------------------------------------------------------------------------

def slow(draft, target, tokens, n_tokens, K, rng, **settings):
    return BASELINE(target, tokens, n_tokens, rng, **settings)


def changing(sampler, place):
    def changed(*run, **settings):
        new = sampler(*run, **settings)
        run[place].extend(new)
        return new
    return changed


def rows(n):
    """A baseline that asks the model for n rows of logits."""
    def sampler(model, tokens, n_tokens, rng, **settings):
        return [sampling.sample(sampling.probabilities(model(tokens, n))[0], rng)] * n_tokens
    return sampler


def millionth(logits, **settings):
    return sampling.probabilities(logits, **settings) + 1e-6 * (np.arange(4) == 0)


def counted(probs, rng):
    """`sample` as many people first write it."""
    u, total = rng.random() * np.sum(probs, dtype=float), 0.0
    for token, chance in enumerate(probs):
        total = total + chance
        if u < total:
            return token
    return int(np.flatnonzero(probs)[-1])


def no_0(model, tokens, n_tokens, rng, **settings):
    return [counted(sampling.probabilities(model(tokens)), rng) for _ in range(n_tokens)]


def left(probs, rng):
    return np.searchsorted(np.cumsum(probs, dtype=float), rng.random(), side="left")


def with_settings(**own):
    return lambda *run, **settings: BASELINE(*run, **own)


def one_coin(q, p, drafts, rng):
    u = rng.random()
    n = next((j for j, x in enumerate(drafts) if not u * p[j][x] < q[j][x]), len(drafts))
    return n, sampling.sample(np.maximum(q[n] - p[n], 0) if n < len(drafts) else q[n], rng)


def asking(model, tokens, n_tokens, rng, **settings):
    while True:
        model(tokens)


REPLIES = {                                             # what is wrong: (changes, step, part of the reply)
    "a millionth": (dict(probabilities=millionth), 1, "0.60946104"),
    'side="left"': (dict(sample=left), 1, "rng.random() gives 0.0"),
    "np.random": (dict(sample=lambda probs, rng: np.random.choice(len(probs), p=probs)), 1,     # noqa: NPY002
                  "asks rng for no number"),
    "a race": (dict(sample=lambda probs, rng: np.argmin(-np.log(rng.random(3)) / probs[:3])), 1,
               "compared or combined with another"),
    "a missing [0]": (dict(sample=counted, autoregressive_sampling=no_0), 2, "is a [0] missing"),
    "a list for a token": (dict(sample=lambda *run: [sampling.sample(*run)]), 1, "one whole number"),
    "the caller's prompt": (dict(autoregressive_sampling=changing(BASELINE, 1)), 2, "the caller's prompt"),
    "nan": (dict(probabilities=lambda logits, **settings: logits * np.nan), 1, "exp of a large number"),
    "a sum over all rows": (dict(probabilities=lambda logits, **settings: sampling.probabilities(
        logits, **settings) / len(logits)), 1, "your rows sum to [0.5 0.5]"),
    "the argmax": (dict(autoregressive_sampling=with_settings(temperature=0)), 2, "nothing is drawn"),
    "the last token alone": (dict(autoregressive_sampling=lambda model, *run, **settings: BASELINE(
        lambda x, n=1: model(x[-1:]), *run, **settings)), 2, "sees only the last token"),
    "the EOS is lost": (dict(autoregressive_sampling=lambda *run, eos=(), **settings: [
        token for token in BASELINE(*run, eos=eos, **settings) if token not in eos]), 5, "without their EOS"),
    "rejected drafts are written": (dict(speculative_sampling=WRONG["RejectedDraftsStay"]), 4,
                                   "a known mistake: RejectedDraftsStay. Rejected drafts stay in the text."),
    "too many rows": (dict(autoregressive_sampling=rows(99)), 2, "the last 99 positions of 2 tokens"),
    "asks for ever": (dict(autoregressive_sampling=asking), 2, "never ends"),
    "one u for all drafts": (dict(verify=one_coin), 3, "a known mistake: OneCoinForAll"),
    "a token for a pair": (dict(verify=lambda q, p, drafts, rng: 0), 3, "the pair n_accepted, next_token"),
    "EOS in the middle": (dict(speculative_sampling=WRONG["OnAfterEOS"]), 5, "a known mistake: OnAfterEOS"),
    "no use of the drafts": (dict(speculative_sampling=slow), 4, "take 2 passes of the target"),
}


@pytest.mark.parametrize("changes, step, says", REPLIES.values(), ids=REPLIES)
def test_a_reply_says_what_is_wrong(changes, step, says):
    assert says in "\n".join(mistakes([*STEPS][step - 1], solution(**changes)))


# The program ------------------------------------------------------------------------------------------------

FILES = {                                               # the file's contents: part of the answer
    "": "there is no function probabilities yet", "def f(:": "cannot be imported: invalid syntax in line 1",
    "import numpy\nimport nowhere": "Error: No module named 'nowhere' in line 2: import nowhere",
    "import sys; sys.exit(3)": "SystemExit: 3 in line 1", "input()": "EOFError",
    "import os; os._exit(0)": "ended Python itself (exit status 0)",
    "3 ** (10 ** 9)": "after 0.4 seconds",
    "print('{}')\ndef probabilities(logits, **settings):\n    return [[.25] * 4] * 2\n"
    "def sample(probs, rng):\n    return 0": ".. and more"}


@pytest.mark.parametrize("content, said", FILES.items())
def test_whatever_a_file_does_there_is_an_answer(content, said, tmp_path, capsys):
    (tmp_path / "mine.py").write_text(content, encoding="utf-8")
    try:
        assert check(tmp_path / "mine.py", seconds=.4 if "0.4" in said else 60) == 0
        assert said in (out := capsys.readouterr().out) and out.count("\n  ") <= 5
    except ValueError as error:
        assert said in str(error) and str(error).count("\n") == 0


def test_a_folder_or_a_missing_file_gets_one_sentence(tmp_path):
    for path, said in (tmp_path, "is a folder"), (tmp_path / "my.py", "there is no .*my.py yet"):
        with pytest.raises(ValueError, match=said):
            main(path)


def test_the_command_says_in_the_end_what_is_gained(tmp_path):
    (tmp_path / "my_speculative.py").write_text(SOLUTION, encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "exercises"], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0 and "Step 6, what it gains: right." in done.stdout and not done.stderr
    found = re.search(r"It took ([\d.]+) s instead of ([\d.]+) s: ([\d.]+)", done.stdout).groups()
    short, long, times = map(float, found)
    off = .005                                                  # both are printed with two digits
    assert (long - off) / (short + off) - off <= times <= (long + off) / (short - off) + off


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to one process alone")
def test_ctrl_c_ends_the_program_and_the_process_of_the_file(tmp_path):
    file, alive = tmp_path / "mine.py", tmp_path / "alive"
    file.write_text(f"import os, time\nopen({str(alive)!r}, 'w').write(str(os.getpid()))\ntime.sleep(1000)\n")
    obeys = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); " \
            "from loading.command_line import run; from exercises.__main__ import main; " \
            "sys.exit(run(main, sys.argv[1:]))"
    with subprocess.Popen([sys.executable, "-c", obeys, file], cwd=ROOT, stderr=subprocess.PIPE) as program:
        while not (alive.exists() and alive.read_text()):
            time.sleep(.05)
        program.send_signal(signal.SIGINT)
        assert program.communicate()[1] == b"interrupted\n" and program.returncode == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int(alive.read_text()), 0)


@pytest.mark.long
@pytest.mark.skipif(not hasattr(signal, "alarm"), reason="this system has no alarm")
def test_a_loop_ends_also_if_the_program_that_would_end_it_was_killed(tmp_path):
    """The process that runs the reader's file sets an alarm for itself."""
    (tmp_path / "mine.py").write_text("import time\ntime.sleep(20)\n")
    words = [sys.executable, "-m", "exercises.steps", tmp_path / "mine.py", "1"]
    assert subprocess.run(words, cwd=ROOT).returncode == -signal.SIGALRM


def test_the_text_names_every_function():
    words = (ROOT / "exercises" / "README.md").read_text(encoding="utf-8")
    assert all(f"def {name}(" in words for name in NAMES) and words.count("## Step") == 6
