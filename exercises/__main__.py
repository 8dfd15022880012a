"""Says how far your own speculative sampling has come:  python -m exercises [my_speculative.py]

README.md in this folder describes the steps.  They are checked in order, up to the first that is not right.

In the place of the random generator your code gets something that walks every branch that chance could take (tests/helpers.py).
So its distribution is computed, not estimated, and a mistake that shows in one text of a million is found like any other.
"""
import importlib.util
import sys
import traceback
from pathlib import Path

import numpy as np

import lossless

from compute.backend import clock
from lossless import (distribution_of_text, distribution_of_token, exact_distribution, memoryless, scripted,
                      table)
from reporting.stats import Timed


Q, P = np.array([[.1, .6, .3], [0, .5, .5], [.2, .2, .6]]), np.array([[.5, .3, .2], [.6, .4, 0]])       # distributions of target and draft


class Says:
    """In the generator's place: `random()` returns these numbers, one after the other."""

    def __init__(self, *numbers):
        self.random = iter(numbers).__next__


class Wrong(Exception):
    """Not right yet, and why."""


def same(found, expected, what):
    """Two distributions, {outcome: probability} or arrays, are the same."""
    if isinstance(expected, dict):
        for outcome in sorted(expected.keys() | found.keys()):
            same(found.get(outcome, 0), expected.get(outcome, 0), f"{what}: the probability of {outcome}")
    elif np.shape(found) != np.shape(expected) or not np.allclose(found, expected, rtol=0, atol=1e-9):
        raise Wrong(f"{what} is {np.round(found, 4)} and should be {np.round(expected, 4)}")


def text(result):
    """The new tokens, given as a list or, as in this repository, in rounds."""
    return tuple(int(token) for part in result for token in getattr(part, "tokens", [part]))


def step_1(mine):
    """the distribution"""
    for logits in ([2.0, 1.0, 0.5, -1.0], [-1.0, 4.0, 4.0, 0.3], [1000.0, 999.0, 0.0, 999.0]):
        for settings in ({}, dict(temperature=.5), dict(temperature=0), dict(top_k=2), dict(top_p=.6), dict(temperature=2, top_k=3, top_p=.8)):
            expected = distribution_of_token(np.array(logits), **settings)
            same(mine.probabilities(np.array([logits, logits]), **settings), [expected] * 2, f"probabilities of two rows {logits}, {settings},")
    same(exact_distribution(lambda rng: int(mine.sample(Q[0], rng))), dict(enumerate(Q[0])), f"sample({Q[0]}, rng)")
    weights = np.random.default_rng(0).random(50_257).astype(np.float32)
    weights[-9:] = 0
    token = mine.sample(weights / weights.sum(), Says(1 - 2 ** -53))
    if not 0 <= token < 50_257 - 9:
        raise Wrong(f"for the largest number that rng.random() gives, sample gives {token}, which is no token or has no probability")


def step_2(mine):
    """auto-regressive sampling"""
    target, prompt = table(2, zeros=.3), [2, 0]
    for n, settings in (0, {}), (1, {}), (3, {}), (3, dict(temperature=.5, top_k=2)):
        found = exact_distribution(lambda rng: text(mine.autoregressive_sampling(target, prompt, n, rng, **settings)))
        same(found, distribution_of_text(target, prompt, n, **settings), f"{n} tokens after {prompt}, {settings}")
    if prompt != [2, 0]:
        raise Wrong("the caller's prompt was changed")


def step_3(mine):
    """verify"""
    def found(*drafts):
        k = len(drafts)
        return exact_distribution(lambda rng: "{} kept, then {}".format(*mine.verify(Q[:k + 1], P[:k], list(drafts), rng)))
    same(found(1), {"1 kept, then 1": .5, "1 kept, then 2": .5}, "drafted [1], which is kept because q > p")
    same(found(0), {"1 kept, then 1": .2 * .5, "1 kept, then 2": .2 * .5, "0 kept, then 1": .8 * .75, "0 kept, then 2": .8 * .25},
         "drafted [0], which is kept with probability .2")
    same(found(1, 0), {"1 kept, then 1": 1 / 6, "1 kept, then 2": 5 / 6}, "drafted [1, 0], where the target never says the second")
    same(found(1, 1), {"2 kept, then 0": .2, "2 kept, then 1": .2, "2 kept, then 2": .6}, "drafted [1, 1], which are both kept")
    same(found(), {"0 kept, then 0": .1, "0 kept, then 1": .6, "0 kept, then 2": .3}, "drafted nothing")
    if tuple(mine.verify(np.eye(2)[::-1], np.eye(2)[:1], [0], Says(0.0, .5))) != (0, 1):
        raise Wrong("a token that the target gives probability 0 is kept if rng.random() is exactly 0")


def step_4(mine):
    """the loop"""
    target = table(2, zeros=.2)
    for K in (1, 2):
        for draft, settings in (table(1, zeros=.2), {}), (table(3), dict(top_k=2)), (table(3), dict(temperature=0)):
            found = exact_distribution(lambda rng: text(mine.speculative_sampling(draft, target, [0], 3, K, rng, **settings))[:3])
            same(found, distribution_of_text(target, [0], 3, **settings), f"the first three tokens after [0], K = {K}, {settings}")
    model = Timed(scripted([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]))
    text(mine.speculative_sampling(model.model, model, [0], 8, 3, np.random.default_rng(0)))
    if len(model.calls) != 2:
        raise Wrong(f"8 tokens of a perfect draft at K = 3 take 2 passes of the target, and yours took {len(model.calls)}")


def step_5(mine):
    """exactly n tokens, and EOS"""
    for n in range(6):
        for draft in memoryless([1, 0, 0]), memoryless([0, 1, 0]):
            found = text(mine.speculative_sampling(draft, memoryless([1, 0, 0]), [0], n, 3, np.random.default_rng(0)))
            if found != (0,) * n:
                raise Wrong(f"asked for {n} tokens at K = 3 it gave {len(found)}")
    draft, target = table(1), table(2)
    for eos in [1], [0, 2]:
        found = exact_distribution(lambda rng: text(mine.autoregressive_sampling(target, [1], 4, rng, eos=eos)))
        same(found, distribution_of_text(target, [1], 4, eos=eos), f"auto-regressive text, EOS is one of {eos}")
        found = exact_distribution(lambda rng: text(mine.speculative_sampling(draft, target, [1], 4, 3, rng, eos=eos)))
        same(found, distribution_of_text(target, [1], 4, eos=eos), f"speculative text, EOS is one of {eos}")


def step_6(mine):
    """what it gains"""
    for alpha, K, tokens in (.6, 2, 1.96), (0, 4, 1), (1, 4, 5):
        same(mine.expected_tokens(alpha, K), tokens, f"expected_tokens({alpha}, {K})")
    for alpha, K, c, v, gain in (.8, 5, 0, 1, 3.68928), (.6, 2, .1, 1.5, 1.152941176), (1, 4, .25, 1.5, 2):
        same(mine.predicted_speedup(alpha, K, c, v), gain, f"predicted_speedup({alpha}, {K}, c={c}, v={v})")


STEPS = [step_1, step_2, step_3, step_4, step_5, step_6]


def check(mine, steps=STEPS):
    """The number of steps that are right, from the first."""
    for n, step in enumerate(steps):
        try:
            step(mine)
        except Exception as error:
            print(f"Step {n + 1}, {step.__doc__}: not yet.\n  {'' if isinstance(error, Wrong) else type(error).__name__ + ': '}{error}")
            frames = traceback.extract_tb(error.__traceback__)
            for f in [f for f in frames if f.filename == getattr(mine, "__file__", None)][-1:]:
                print(f"  {Path(f.filename).name}, line {f.lineno}: {f.line}")
            if frames[-1].filename == lossless.__file__ or "Uniform" in str(error) or "Walk" in str(error):
                print("  (rng has only `random()`; its number may be multiplied, compared with one number, and given to np.searchsorted)")
            return n
        print(f"Step {n + 1}, {step.__doc__}: right.")
    return len(steps)


def measure(mine, n=60, K=4):
    """Your samplers on the embedded pair, in numbers."""
    from utils import load_model
    draft, encoder = load_model("demo-draft")
    target, _ = load_model("demo-target")
    prompt, runs = encoder.encode("The old man looked out over the sea, and for a long time he said nothing."), []
    for sampler, models, more in (mine.autoregressive_sampling, [target], []), (mine.speculative_sampling, [draft, target], [K]):
        for model in models:
            model(prompt), model.reset()
        models = [Timed(model) for model in models]
        start = clock()
        text(sampler(*models, prompt, n, *more, np.random.default_rng(0)))
        runs.append((clock() - start, models))
    (base, (alone,)), (spec, (small, large)) = runs
    c, v, tokens = small.seconds(1) / alone.seconds(1), large.seconds(K + 1) / alone.seconds(1), n / len(large.calls)
    print(f"\nAt temperature 1, K = {K}: {tokens:.2f} tokens a pass, c = {c:.2f}, v = {v:.2f}, so it should be {tokens / (K * c + v):.2f} times as "
          f"fast as auto-regressive sampling.\nIt took {spec:.2f} s instead of {base:.2f} s: {base / spec:.2f} times.")


if __name__ == "__main__":
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "my_speculative.py")
    if not path.exists():
        sys.exit(f"There is no {path} yet: make an empty file of that name and begin with step 1 of exercises/README.md.")
    spec = importlib.util.spec_from_file_location("mine", path.resolve())
    mine = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mine)
    if check(mine) < len(STEPS):
        sys.exit(1)
    measure(mine)
