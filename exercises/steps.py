"""The checks for each step of README.md: `mistakes(step, mine)` returns sentences, none if the step is right.

Your code runs with lossless/walk.py's `Walk` in place of the random generator, through every branch that
chance could take.  So its distribution is computed, not estimated, and a mistake that shows in one text in a
million is found like any other.

Limitations: an endless loop that neither calls a model nor draws goes on until __main__.py kills the process.
"""
import contextlib
import itertools
import json
import os
import signal
import sys
import traceback
from functools import partial
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from operator import index
from pathlib import Path

import numpy as np

import sampling
from compute.backend import clock
from lossless import distribution_of_text, exact_distribution, judge, toys
from lossless.toys import distribution_of_token, memoryless, table
from lossless.verdicts.museum import RULES, WRONG
from lossless.verdicts.rules import Algorithm2
from reporting.stats import Timed
from speculative import speculative_sampling

Q = np.array([[.1, .6, .3], [.6, 0, .4], [.2, .2, .6]])             # the target's distributions
P = np.array([[.5, .3, .2], [.8, .2, 0]])                           # the draft's
SHOWN = 4               # mistakes shown per step


class Wrong(Exception):
    """Your code is not right yet; the message says why."""


class Says:
    """Stands in for the random generator: `random()` returns these numbers, one after the other."""

    def __init__(self, *numbers):
        self.numbers = iter(numbers)

    def random(self, size=None):
        return next(self.numbers) if size is None else np.array([next(self.numbers) for _ in range(size)])

    def choice(self, a, p):                             # as NumPy's generator does it
        return int(np.searchsorted(np.cumsum(p) / np.sum(p), self.random(), side="right"))


def asked(model, rng):
    """Wraps a model: a wrong call raises `Wrong`.  A run that seems endless is stopped by an error."""
    def call(tokens, n_last=1):
        rng.step()
        if len(np.shape(tokens)) != 1:
            raise Wrong(f"a model was called with {tokens!r}: that is not a list of tokens")
        if not 1 <= n_last <= len(tokens):
            raise Wrong(f"a model was asked for the logits of the last {n_last} positions of {len(tokens)} "
                        f"tokens: n_last is at least 1 and at most {len(tokens)} there")
        return model(tokens, n_last)
    return call


def differences(found, expected, what):
    """Yields a sentence for each difference between two distributions: {outcome: probability}, or arrays."""
    if isinstance(expected, dict):
        for outcome in sorted(expected.keys() | found.keys()):
            yield from differences(found.get(outcome, 0.0), expected.get(outcome, 0.0),
                                   f"{what}: the probability of {outcome}")
    elif found is None:
        yield f"{what} is None: the function returns nothing"
    elif np.shape(found) != np.shape(expected):
        yield f"{what} has the shape {np.shape(found)} and should have {np.shape(expected)}"
    elif not same(found, expected):
        digits = 12 if np.abs(np.subtract(found, expected)).max() <= 1e-3 else 4
        sums = np.sum(found, axis=-1)
        why = ("; nan comes from 0 / 0, or from exp of a large number" if np.isnan(found).any() else
               "" if np.ndim(found) < 2 or np.allclose(sums, 1) else f"; your rows sum to {sums.round(4)}")
        found, expected = (str(np.round(a, digits)).replace("\n", "") for a in (found, expected))
        yield f"{what} is {found} and should be {expected}{why}"


def token(result, function, what="a token is expected"):
    """The result as an int.  Raises Wrong if it is not a whole number; `what` says what was expected."""
    try:
        return index(result)
    except TypeError:
        raise Wrong(f"{function} gives {result!r} where {what}: one whole number") from None


def text(sampler, *arguments, **settings):
    """The new tokens of one run.  The sampler may return a list of tokens or an iterator of rounds."""
    prompt = next(argument for argument in arguments if isinstance(argument, list))
    before, rng = list(prompt), arguments[-1]
    result = sampler(*[asked(a, rng) if callable(a) else a for a in arguments], **settings)
    try:
        new = judge.text_of(result, rng)
    except TypeError:
        raise Wrong(f"the function returns {result!r}: it should return the list of the new tokens") from None
    if prompt != before:
        raise Wrong(f"the caller's prompt {before} was changed to {prompt}: work on a copy")
    return new


def compared(what, sampler, models, prompt, n, *K, first=None, **settings):
    """Yields how the sampler's texts of n tokens differ from the target's; `first` cuts longer ones."""
    def run(rng):
        new = text(sampler, *models, prompt, n, *K, rng, **settings)
        if len(new) != n and first is None and "eos" not in settings:
            why = ", the prompt among them" if n < len(new) and [*new[:len(prompt)]] == prompt else ""
            raise Wrong(f"asked for {n} new tokens after {prompt} it gives {len(new)}: {list(new)}{why}")
        return new[:first]

    what = f"{what} after {prompt}, {settings}" if settings else f"{what} after {prompt}"
    found = exact_distribution(run)
    wrong = [*differences(found, distribution_of_text(models[-1], prompt, n, **settings), what)]
    if wrong:
        wrong[0] += "".join(f"\n    (these are the texts {instead})" for instead, texts in simpler(
            models[-1], prompt, n, **settings) if judge.distance(texts, found) < 1e-9)
    yield from wrong


def simpler(target, prompt, n, **settings):
    """Yields (words, distribution): the texts that come out if something is forgotten."""
    texts, eos = partial(distribution_of_text, target, prompt), settings.get("eos", [])
    yield "of temperature 0: nothing is drawn", texts(n, **settings | dict(temperature=0))
    yield "that come without these settings", texts(n)
    yield "of a model that sees only the last token", distribution_of_text(
        lambda tokens: target(tokens[-1:]), prompt, n, **settings)
    yield "without their EOS, which should be their last token", {
        new[:-1] if new[-1] in eos else new: chance for new, chance in texts(n, **settings).items() if new}
    if eos and prompt[-1] in eos:
        for length in 0, 1:
            yield "that end at once: an EOS in the prompt does not count", texts(length)


def same(found, expected):
    return np.shape(found) == np.shape(expected) and np.allclose(found, expected, rtol=0, atol=1e-9)


def kept_by(rule):
    """A probabilities() whose top-p keeps what `rule` says.  The rule maps (the probabilities, largest first;
    the mass before each; top_p; the probabilities at temperature 1 in the same order) to a mask."""
    def filtered(logits, temperature=1.0, top_k=0, top_p=1.0):
        probs, plain = (sampling.probabilities(logits, t, top_k) for t in (temperature, 1.0))
        order = np.argsort(-probs, kind="stable")
        p = probs[order]
        mask = rule(p, np.cumsum(p) - p, top_p, plain[order]) if top_p < 1 else p > 0
        probs[order] = np.where(mask | (np.arange(len(p)) == 0), p, 0)
        return probs / probs.sum()
    return filtered


def changed(change):
    """A probabilities() that changes its settings first."""
    def filtered(logits, temperature=1.0, top_k=0, top_p=1.0):
        settings = dict(temperature=temperature, top_k=top_k, top_p=top_p)
        return sampling.probabilities(logits, **settings | change(**settings))
    return filtered


def top_p_first(logits, temperature=1.0, top_k=0, top_p=1.0):
    with np.errstate(divide="ignore"):
        logits = np.log(sampling.probabilities(logits, temperature, top_p=top_p))
    return sampling.probabilities(logits, top_k=top_k)


def last_of_the_largest(logits, temperature=1.0, **settings):
    turn = -1 if temperature == 0 else 1
    return sampling.probabilities(logits[::turn], temperature, **settings)[::turn]


def ties_broken(logits, temperature=1.0, top_k=0, top_p=1.0):
    lost = np.argsort(-logits, kind="stable")[top_k or len(logits):]
    logits = np.where(np.isin(np.arange(len(logits)), lost), -np.inf, logits)
    return sampling.probabilities(logits, temperature, top_p=top_p)


FILTERS = {                                             # known mistakes of probabilities()
    "top-p comes before top-k": top_p_first,
    "exactly k tokens are kept at a tie": ties_broken,
    "the likeliest token is the last of the largest": last_of_the_largest,
    "top-k keeps k + 1": changed(lambda top_k, **_: dict(top_k=top_k and top_k + 1)),
    "the temperature multiplies": changed(
        lambda temperature, **_: dict(temperature=temperature and 1 / temperature)),
    "the token that reaches top-p is left out": kept_by(lambda p, before, top_p, _: before + p < top_p),
    "one token more than top-p needs is kept": kept_by(
        lambda p, before, top_p, _: np.roll(before < top_p, 1) | (before < top_p)),
    "the nucleus is that of temperature 1": kept_by(
        lambda p, before, top_p, plain: np.cumsum(plain) - plain < top_p),
}


def step_1(mine):
    """the distribution"""
    cases = [(np.array(logits), settings)
             for logits in ([2.0, 1.0, 0.5, -1.0], [-1.0, 4.0, 4.0, 0.3], [1000.0, 999.0, 0.0, 999.0])
             for settings in ({}, dict(temperature=.5), dict(temperature=0), dict(top_k=2), dict(top_p=.6),
                              dict(top_k=2, top_p=.7), dict(temperature=2, top_k=3, top_p=.8))]
    found = [mine.probabilities(np.array([logits, logits]), **settings) for logits, settings in cases]
    wrong = []
    for two, (logits, settings) in zip(found, cases):
        wrong += differences(two, [distribution_of_token(logits, **settings)] * 2,
                             f"probabilities of two rows {logits.tolist()}, {settings},")
    for name, known in FILTERS.items() if wrong else ():
        if all(same(two, [known(logits, **settings)] * 2) for two, (logits, settings) in zip(found, cases)):
            wrong[0] += f"\n    (all are those of a known mistake: {name})"
    yield from wrong
    walks = []
    found = exact_distribution(lambda rng: walks.append(rng) or token(mine.sample(Q[0], rng), "sample"))
    if not any(walk.forks for walk in walks):
        yield "sample asks rng for no number, so it does not draw (or draws from elsewhere)"
    yield from differences(found, dict(enumerate(Q[0])), f"sample({Q[0]}, rng)")
    weights = np.random.default_rng(2).random(50_257).astype(np.float32)
    weights[:9] = weights[-9:] = 0
    for u in 0.0, 1 - 2 ** -53:
        found = token(mine.sample(weights / weights.sum(), Says(u)), "sample")
        if not 9 <= found < 50_257 - 9:
            yield (f"if rng.random() gives {u!r}, the {'largest' if u else 'smallest'} that it can, sample "
                   f"gives {found}, which is not a token or has probability 0")


def step_2(mine):
    """autoregressive sampling"""
    for n, settings in (0, {}), (1, {}), (3, {}), (3, dict(temperature=.5, top_k=2)):
        yield from compared(f"a text of {n}", mine.autoregressive_sampling, [table(2, zeros=.3)], [2, 0], n,
                            **settings)


def step_3(mine):
    """verify"""
    def run(drafts, rng):
        result = mine.verify(Q[:len(drafts) + 1], P[:len(drafts)], list(drafts), rng)
        try:
            n_accepted, next_token = result
        except (TypeError, ValueError):
            raise Wrong(f"verify gives {result!r}: it should give the pair n_accepted, next_token") from None
        n_accepted = token(n_accepted, "verify", "the number of kept drafts is expected")
        return f"{n_accepted} kept, then {token(next_token, 'verify')}"

    cases = {                                           # drafts: ({what comes out: probability}, why)
        (1,): ({"1 kept, then 0": .6, "1 kept, then 2": .4}, "which is kept because q > p"),
        (0,): ({"1 kept, then 0": .2 * .6, "1 kept, then 2": .2 * .4,
                "0 kept, then 1": .8 * .75, "0 kept, then 2": .8 * .25}, "which is kept with probability .2"),
        (1, 1): ({"1 kept, then 2": 1}, "where the target never says the second"),
        (0, 0): ({"0 kept, then 1": .8 * .75, "0 kept, then 2": .8 * .25, "1 kept, then 2": .2 * .25,
                  **{f"2 kept, then {x}": .2 * .75 * q for x, q in enumerate(Q[2])}},
                 "which are kept with probability .2 and .75, each by a number of its own from rng"),
        (): ({"0 kept, then 0": .1, "0 kept, then 1": .6, "0 kept, then 2": .3}, "no draft at all"),
    }
    for drafts, (expected, why) in cases.items():
        yield from differences(exact_distribution(lambda rng: run(drafts, rng)), expected,
                               f"drafted {list(drafts)}, {why}")
    if tuple(mine.verify(np.eye(2)[::-1], np.eye(2)[:1], [0], Says(0.0, .5))) != (0, 1):
        yield "a token that the target gives probability 0 is kept if rng.random() is exactly 0"


def step_4(mine):
    """the loop"""
    for K in (1, 2):
        for draft, settings in ((table(1, zeros=.2), {}), (table(3), dict(top_k=2)),
                                (table(3), dict(temperature=0))):
            yield from compared(f"the first three tokens at K = {K}", mine.speculative_sampling,
                                [draft, table(2, zeros=.2)], [0], 3, K, first=3, **settings)
    model = Timed(toys.scripted([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]))
    exact_distribution(lambda rng: text(mine.speculative_sampling, model.model, model, [0], 8, 3, rng))
    if len(model.calls) != 2:
        yield ("8 tokens of a perfect draft at K = 3 take 2 passes of the target, "
               f"and yours took {len(model.calls)}")


def step_5(mine):
    """exactly n tokens, and EOS"""
    certain = memoryless([1, 0, 0])
    for n in range(6):
        for draft in certain, memoryless([0, 1, 0]):
            yield from compared(f"a text of {n}", mine.speculative_sampling, [draft, certain], [0], n, 3)
    models = table(1, n_vocab=2), table(2, n_vocab=2)           # few branches, whatever is drafted
    for eos in [1], [0, 1]:
        yield from compared("autoregressive text", mine.autoregressive_sampling, models[1:], [1], 3, eos=eos)
        yield from compared("speculative text", mine.speculative_sampling, models, [1], 3, 2, eos=eos)


def step_6(mine):
    """what it gains"""
    for alpha, K, tokens in (.6, 2, 1.96), (0, 4, 1), (1, 4, 5):
        yield from differences(mine.expected_tokens(alpha, K), tokens, f"expected_tokens({alpha}, {K})")
    for alpha, K, c, v, gain in (.8, 5, 0, 1, 3.68928), (.6, 2, .1, 1.5, 1.152941176), (1, 4, .25, 1.5, 2):
        yield from differences(mine.predicted_speedup(alpha, K, c, v), gain,
                               f"predicted_speedup({alpha}, {K}, c={c}, v={v})")


STEPS = {                                               # step: the functions that you write for it
    step_1: ["probabilities", "sample"],
    step_2: ["autoregressive_sampling"],
    step_3: ["verify"],
    step_4: ["speculative_sampling"],
    step_5: [],
    step_6: ["expected_tokens", "predicted_speedup"],
}
KNOWN = {               # what `known` (below) runs: (share of zero probabilities, settings)
    step_3: [(.4, {}), (0, {})], step_4: [(.4, {}), (0, dict(top_k=2)), (0, {})],
    step_5: [(.4, dict(eos=[1])), (0, {})]}


def mistakes(step, mine):
    """Sentences, at most one more than are shown.  If your code raises an error, the last one says so."""
    missing = [name for name in STEPS[step] if not callable(getattr(mine, name, None))]
    if missing:
        return [f"there is no function {name} yet" for name in missing]
    found = []
    try:
        for mistake in itertools.islice(step(mine), SHOWN + 1):
            found.append(mistake)
    except BaseException as error:                      # your code may raise SystemExit, too
        found.append(sentence(error, mine))
    if found and step in KNOWN:
        names = itertools.islice(known(step, mine), 1)
        found[0] += "".join(f"\n    (the texts are those of a known mistake: {name})" for name in names)
    return found


def known(step, mine):
    """Yields the mistakes of the museum that give exactly the texts of your code, each with why it is
    wrong."""
    def texts(sampler, zeros, settings):
        draft, target = table(6, zeros=zeros), table(5, zeros=zeros)
        return exact_distribution(lambda rng: judge.text_of(
            sampler(draft, target, [0], 3, 2, rng, **settings), rng)[:None if "eos" in settings else 3])

    def alike(sampler, found):
        with contextlib.suppress(Exception):            # it may raise an error, or never end
            return all(judge.distance(texts(sampler, *case), found[i]) < 1e-9
                       for i, case in enumerate(KNOWN[step]))

    yours = partial(speculative_sampling, verify=mine.verify) if step is step_3 else mine.speculative_sampling
    with contextlib.suppress(Exception):
        found = [texts(yours, *case) for case in KNOWN[step]]
        if not alike(speculative_sampling, found):
            for name, sampler in WRONG.items():
                if issubclass(RULES[name], Algorithm2) and alike(sampler, found):
                    why = " ".join((RULES[name].__doc__ or "").split())
                    yield f"{name}. {why}"


def sentence(error, mine):
    """The error that was raised, and the line of your file where it was raised."""
    name = "" if isinstance(error, Wrong) else f"{type(error).__name__}: "
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if frame.filename == getattr(mine, "__file__", None)]
    where = f"\n    line {lines[-1].lineno}: {lines[-1].line}" if lines else ""
    hint = "\n    (is a [0] missing, as in model(x)[0]?)" if "truth value of an array" in str(error) else ""
    return f"{name}{error}{where}{hint}"


def answers(path):
    """Yields a list of sentences for the import and for each step, empty if nothing is wrong.  Stops after
    the first list that is not empty; if all are empty, one more list says what is gained."""
    mine = module_from_spec(spec_from_loader("mine", SourceFileLoader("mine", str(Path(path).resolve()))))
    for wrong in itertools.chain([imported(mine)], (mistakes(step, mine) for step in STEPS)):
        yield wrong
        if wrong:
            return
    yield [measured(mine)]


def imported(mine):
    """Runs your file.  Returns a list: a sentence that says what went wrong, or nothing."""
    try:
        sys.modules["mine"] = mine                      # dataclasses look there
        # not the loader's exec_module: its cache misses an edit made within a second
        exec(compile(Path(mine.__file__).read_bytes(), mine.__file__, "exec"), vars(mine))
    except SyntaxError as error:
        return [f"{error.msg} in line {error.lineno}: {(error.text or '').strip()}"]
    except BaseException as error:                      # SystemExit, too
        return [sentence(error, mine).replace("\n    ", " in ")]
    return []


def measured(mine, n=60, K=4):
    """Times your samplers on the embedded pair and returns the numbers as text."""
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
        judge.text_of(sampler(*models, prompt, n, *more, np.random.default_rng(0)))
        runs.append((clock() - start, models))
    (base, (alone,)), (spec, (small, large)) = runs
    c, v = small.seconds(1) / alone.seconds(1), large.seconds(K + 1) / alone.seconds(1)
    tokens = n / len(large.calls)
    return (f"\nAt temperature 1, K = {K}: {tokens:.2f} tokens per pass, c = {c:.2f}, v = {v:.2f}, so it "
            f"should be {tokens / (K * c + v):.2f} times\nas fast as autoregressive sampling.  "
            f"It took {spec:.2f} s instead of {base:.2f} s: {base / spec:.2f} times.")


if __name__ == "__main__":                              # __main__.py reads one line for each answer
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)                                   # what your code prints goes to standard error
        alarm = getattr(signal, "alarm", int)           # in case __main__.py was killed; Windows has none
        alarm(int(sys.argv[2]))
        for answer in answers(sys.argv[1]):
            sys.stdout.flush()
            print(json.dumps(answer), file=out, flush=True)
            alarm(int(sys.argv[2]))
