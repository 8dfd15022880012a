"""Says how far your own speculative sampling has come:  python -m exercises [my_speculative.py]

README.md in this folder describes the steps.  They are checked in order, up to the first that is not right.

In the place of the random generator your code gets one that walks every branch that chance could take
(lossless.py).  So its distribution is computed, not estimated, and a mistake that shows in one text of a
million is found like any other.
"""
import _thread
import contextlib
import sys
import threading
import traceback
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from itertools import islice
from pathlib import Path

import numpy as np

import lossless
from compute.backend import clock
from lossless import distribution_of_text, distribution_of_token, exact_distribution, memoryless, table
from reporting.stats import Timed

Q = np.array([[.1, .6, .3], [0, .5, .5], [.2, .2, .6]])             # a target's distributions
P = np.array([[.5, .3, .2], [.6, .4, 0]])                           # a draft's
ENOUGH = 5_000          # calls of a model in one run, after which it is said never to end
SECONDS = 60            # for a step that does nothing at all but go on
SHOWN = 4               # mistakes told of one step


class Says:
    """In the generator's place: `random()` returns these numbers, one after the other."""

    def __init__(self, *numbers):
        self.random = iter(numbers).__next__


class Wrong(Exception):
    """Not right yet, and why."""


class Asked:
    """A model that counts its calls, and says what is wrong with one."""

    def __init__(self, model):
        self.model, self.calls = model, 0

    def __call__(self, tokens, n_last=1):
        self.calls += 1
        if self.calls > ENOUGH:
            raise Wrong(f"a model was asked {ENOUGH:,} times in one run and still the text is not complete: "
                        "a loop never ends (is something appended in each round?)")
        if len(np.shape(tokens)) != 1:
            raise Wrong(f"a model was asked about {tokens!r}: that is no list of tokens")
        if not 1 <= n_last <= len(tokens):
            raise Wrong(f"a model was asked for the logits of the last {n_last} positions of {len(tokens)} "
                        f"tokens: n_last is at least 1 and at most {len(tokens)} there")
        return self.model(tokens, n_last)


def differences(found, expected, what):
    """A sentence for each thing in which two distributions, {outcome: probability} or arrays, differ."""
    if isinstance(expected, dict):
        for outcome in sorted(expected.keys() | found.keys()):
            yield from differences(found.get(outcome, 0.0), expected.get(outcome, 0.0),
                                   f"{what}: the probability of {outcome}")
    elif found is None:
        yield f"{what} is None: the function returns nothing"
    elif np.shape(found) != np.shape(expected):
        yield f"{what} has the shape {np.shape(found)} and should have {np.shape(expected)}"
    elif not np.allclose(found, expected, rtol=0, atol=1e-9):
        digits = 4 if np.abs(np.subtract(found, expected)).max() > 1e-3 else 12
        found, expected = (str(np.round(a, digits)).replace("\n", "") for a in (found, expected))
        yield f"{what} is {found} and should be {expected}"


def text(sampler, *arguments, **settings):
    """The new tokens of one run, which the sampler returns as a list or, as in this repository, in rounds."""
    prompt = next(argument for argument in arguments if isinstance(argument, list))
    before = list(prompt)
    models = [Asked(argument) if callable(argument) else argument for argument in arguments]
    result = sampler(*models, **settings)
    if result is None:
        raise Wrong("the function returns nothing: it should return the list of the new tokens")
    new = lossless.text_of(result)
    if prompt != before:
        raise Wrong(f"the caller's prompt {before} was changed to {prompt}: work on a copy")
    return new


def step_1(mine):
    """the distribution"""
    for logits in ([2.0, 1.0, 0.5, -1.0], [-1.0, 4.0, 4.0, 0.3], [1000.0, 999.0, 0.0, 999.0]):
        for settings in ({}, dict(temperature=.5), dict(temperature=0), dict(top_k=2), dict(top_p=.6),
                         dict(temperature=2, top_k=3, top_p=.8)):
            expected = distribution_of_token(np.array(logits), **settings)
            found = mine.probabilities(np.array([logits, logits]), **settings)
            yield from differences(found, [expected] * 2,
                                   f"probabilities of two rows {logits}, {settings},")
    found = exact_distribution(lambda rng: int(mine.sample(Q[0], rng)))
    yield from differences(found, dict(enumerate(Q[0])), f"sample({Q[0]}, rng)")
    weights = np.random.default_rng(0).random(50_257).astype(np.float32)
    weights[-9:] = 0
    token = mine.sample(weights / weights.sum(), Says(1 - 2 ** -53))
    if not 0 <= token < 50_257 - 9:
        yield (f"for the largest number that rng.random() gives, sample gives {token}, which is no token or "
               "has no probability")


def step_2(mine):
    """auto-regressive sampling"""
    target, prompt = table(2, zeros=.3), [2, 0]
    for n, settings in (0, {}), (1, {}), (3, {}), (3, dict(temperature=.5, top_k=2)):
        found = exact_distribution(
            lambda rng: text(mine.autoregressive_sampling, target, prompt, n, rng, **settings))
        yield from differences(found, distribution_of_text(target, prompt, n, **settings),
                               f"{n} tokens after {prompt}, {settings}")


def step_3(mine):
    """verify"""
    cases = {                                           # drafts: {what comes out: probability}, and why
        (1,): ({"1 kept, then 1": .5, "1 kept, then 2": .5}, "which is kept because q > p"),
        (0,): ({"1 kept, then 1": .2 * .5, "1 kept, then 2": .2 * .5,
                "0 kept, then 1": .8 * .75, "0 kept, then 2": .8 * .25}, "which is kept with probability .2"),
        (1, 0): ({"1 kept, then 1": 1 / 6, "1 kept, then 2": 5 / 6},
                 "where the target never says the second"),
        (1, 1): ({"2 kept, then 0": .2, "2 kept, then 1": .2, "2 kept, then 2": .6}, "which are both kept"),
        (): ({"0 kept, then 0": .1, "0 kept, then 1": .6, "0 kept, then 2": .3}, "no draft at all"),
    }
    for drafts, (expected, why) in cases.items():
        k = len(drafts)
        found = exact_distribution(
            lambda rng: "{} kept, then {}".format(*mine.verify(Q[:k + 1], P[:k], list(drafts), rng)))
        yield from differences(found, expected, f"drafted {list(drafts)}, {why}")
    if tuple(mine.verify(np.eye(2)[::-1], np.eye(2)[:1], [0], Says(0.0, .5))) != (0, 1):
        yield "a token that the target gives probability 0 is kept if rng.random() is exactly 0"


def step_4(mine):
    """the loop"""
    target = table(2, zeros=.2)
    for K in (1, 2):
        for draft, settings in ((table(1, zeros=.2), {}), (table(3), dict(top_k=2)),
                                (table(3), dict(temperature=0))):
            found = exact_distribution(
                lambda rng: text(mine.speculative_sampling, draft, target, [0], 3, K, rng, **settings)[:3])
            yield from differences(found, distribution_of_text(target, [0], 3, **settings),
                                   f"the first three tokens after [0], K = {K}, {settings}")
    model = Timed(lossless.scripted([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]))
    exact_distribution(lambda rng: text(mine.speculative_sampling, model.model, model, [0], 8, 3, rng))
    if len(model.calls) != 2:
        yield ("8 tokens of a perfect draft at K = 3 take 2 passes of the target, "
               f"and yours took {len(model.calls)}")


def step_5(mine):
    """exactly n tokens, and EOS"""
    target, wrong = memoryless([1, 0, 0]), False
    for n in range(6):
        for draft in target, memoryless([0, 1, 0]):
            for found in exact_distribution(
                    lambda rng: text(mine.speculative_sampling, draft, target, [0], n, 3, rng)):
                if found != (0,) * n:
                    wrong = True
                    yield f"asked for {n} tokens at K = 3 it gave {len(found)}"
    if wrong:                                           # longer texts have too many branches to walk
        return
    draft, target = table(1), table(2)
    for eos in [1], [0, 2]:
        found = exact_distribution(
            lambda rng: text(mine.autoregressive_sampling, target, [1], 4, rng, eos=eos))
        yield from differences(found, distribution_of_text(target, [1], 4, eos=eos),
                               f"auto-regressive text, EOS is one of {eos}")
        found = exact_distribution(
            lambda rng: text(mine.speculative_sampling, draft, target, [1], 4, 3, rng, eos=eos))
        yield from differences(found, distribution_of_text(target, [1], 4, eos=eos),
                               f"speculative text, EOS is one of {eos}")


def step_6(mine):
    """what it gains"""
    for alpha, K, tokens in (.6, 2, 1.96), (0, 4, 1), (1, 4, 5):
        yield from differences(mine.expected_tokens(alpha, K), tokens, f"expected_tokens({alpha}, {K})")
    for alpha, K, c, v, gain in (.8, 5, 0, 1, 3.68928), (.6, 2, .1, 1.5, 1.152941176), (1, 4, .25, 1.5, 2):
        yield from differences(mine.predicted_speedup(alpha, K, c, v), gain,
                               f"predicted_speedup({alpha}, {K}, c={c}, v={v})")


STEPS = {                                               # step: the functions that it asks for
    step_1: ["probabilities", "sample"],
    step_2: ["autoregressive_sampling"],
    step_3: ["verify"],
    step_4: ["speculative_sampling"],
    step_5: [],
    step_6: ["expected_tokens", "predicted_speedup"],
}


def check(mine, seconds=SECONDS):
    """Prints what is right, and what is wrong with the first step that is not.  Returns the number of steps
    that are right, from the first."""
    for n, (step, names) in enumerate(STEPS.items()):
        missing = [name for name in names if not callable(getattr(mine, name, None))]
        mistakes = [f"there is no function {name} yet" for name in missing] or found_by(step, mine, seconds)
        if mistakes:
            print(f"Step {n + 1}, {step.__doc__}: not yet.")
            print("".join(f"  {mistake}\n" for mistake in mistakes[:SHOWN]), end="")
            if len(mistakes) > SHOWN:
                print("  .. and more")
            return n
        print(f"Step {n + 1}, {step.__doc__}: right.")
    return len(STEPS)


def found_by(step, mine, seconds):
    """The mistakes that a step finds, as sentences, one more than are shown at the most.  What your code
    raises is the last of them."""
    mistakes = []
    try:
        with at_most(seconds):
            for mistake in islice(step(mine), SHOWN + 1):
                mistakes.append(mistake)
    except (Exception, SystemExit) as error:
        name = "" if isinstance(error, Wrong) else f"{type(error).__name__}: "
        lines = [f for f in traceback.extract_tb(error.__traceback__)
                 if f.filename == getattr(mine, "__file__", None)]
        where = f"\n    line {lines[-1].lineno}: {lines[-1].line}" if lines else ""
        mistakes.append(f"{name}{error}{where}{hint(error)}")
    return mistakes


def hint(error):
    """What may be meant."""
    if "truth value of an array" in str(error):
        return "\n    (one number is needed.  Is a [0] missing, as in model(x)[0]?)"
    if "'Says' object" in str(error):
        return "\n    (here rng has only `random()`, which gives one number)"
    return ""


@contextlib.contextmanager
def at_most(seconds):
    """What runs within is interrupted after so many seconds, with Wrong."""
    late = threading.Event()

    def interrupt():
        late.set()
        _thread.interrupt_main()
    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    except KeyboardInterrupt:
        if late.is_set():
            raise Wrong(f"after {seconds:g} seconds it has not come to an end: a loop never ends") from None
        raise
    finally:
        timer.cancel()


def measure(mine, n=60, K=4):
    """Your samplers on the embedded pair, in numbers."""
    from utils import load_model
    draft, encoder = load_model("demo-draft")
    target, _ = load_model("demo-target")
    prompt = encoder.encode("The old man looked out over the sea, and for a long time he said nothing.")
    runs = []
    for sampler, models, more in ((mine.autoregressive_sampling, [target], []),
                                  (mine.speculative_sampling, [draft, target], [K])):
        for model in models:
            model(prompt), model.reset()
        models = [Timed(model) for model in models]
        start = clock()
        lossless.text_of(sampler(*models, prompt, n, *more, np.random.default_rng(0)))
        runs.append((clock() - start, models))
    (base, (alone,)), (spec, (small, large)) = runs
    c, v = small.seconds(1) / alone.seconds(1), large.seconds(K + 1) / alone.seconds(1)
    tokens = n / len(large.calls)
    print(f"\nAt temperature 1, K = {K}: {tokens:.2f} tokens a pass, c = {c:.2f}, v = {v:.2f}, so it should "
          f"be {tokens / (K * c + v):.2f} times\nas fast as auto-regressive sampling.  "
          f"It took {spec:.2f} s instead of {base:.2f} s: {base / spec:.2f} times.")


def load(path):
    """The learner's file as a module.  Raises Wrong, in one sentence, for what is no module, or never
    ends."""
    if not path.exists():
        raise Wrong(f"there is no {path} yet: make an empty file of that name and begin with step 1 of "
                    "exercises/README.md")
    if not path.is_file():
        raise Wrong(f"{path} is a folder or a pipe: name a Python file")
    loader = SourceFileLoader("mine", str(path.resolve()))
    mine = module_from_spec(spec_from_loader("mine", loader))
    try:
        with at_most(SECONDS):
            loader.exec_module(mine)
    except Wrong as error:
        raise Wrong(f"{path} cannot be imported: {error}") from None
    except SyntaxError as error:
        raise Wrong(f"{path} is no Python yet: {error.msg} in line {error.lineno}: "
                    f"{(error.text or '').strip()}") from None
    except (Exception, SystemExit) as error:
        lines = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == mine.__file__]
        where = f" in line {lines[-1].lineno}: {lines[-1].line}" if lines else ""
        raise Wrong(f"{path} cannot be imported: {type(error).__name__}: {error}{where}") from None
    return mine


def main(arguments):
    """Run the command line; returns the exit status: 1 if a step is not right yet, 2 without a file."""
    if {"--help", "-h"} & {*arguments}:
        print(__doc__)
        return 0
    try:
        mine = load(Path(arguments[0] if arguments else "my_speculative.py"))
        if check(mine) < len(STEPS):
            return 1
        measure(mine)
    except (Wrong, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
