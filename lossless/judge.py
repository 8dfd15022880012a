"""A sampler -> a report: its exact output distribution on each case, and how far it is from the target's."""
import contextlib
import copy
import functools
from inspect import isfunction, signature
from typing import NamedTuple

import numpy as np

from lossless.cases import CASES, pair_cases, thorough_cases
from lossless.toys import distribution_of_text, spell
from lossless.walk import NOT_REPEATED, Walk, exact_distribution

MAX_STEPS = 40_000      # in all runs of a standard case; the remaining branches are left out
ALL_STEPS = 1_000_000   # in all standard cases; if they take more, each gets fewer
FEW_STEPS = 300         # in the runs that are repeated, to see whether they agree
DEFAULTS = dict(temperature=1.0, top_k=0, top_p=1.0, eos=None)
ROUNDING = 1e-9         # a larger deviation is a mistake
CLEAR = .01             # after a smaller one, a larger one is looked for in the cases of few tokens
FEW_TOKENS = 4


class Report(NamedTuple):
    """What was found.  The fields from `case` on describe a text whose probability is wrong; they are None if
    all are right."""
    lossless: bool
    deviation: float                # the largest of any text; maybe more if branches were left out
    n_cases: int
    n_branches: int
    n_steps: int                    # random numbers, calls of a model and rounds, in all branches
    n_unfinished: int = 0           # cases with some branches left out
    unwalked: float = 0.0           # the largest probability of the branches that were left out of a case
    case: str | None = None
    settings: dict | None = None
    prompt: list | None = None
    text: list | None = None
    probability: float | None = None
    wanted: float | None = None
    hint: str = ""                  # what the mistake may be

    def __str__(self):
        walked = f"{self.n_branches:,} branches of {self.n_cases} case{'s' * (self.n_cases != 1)}"
        if self.lossless:
            some = (f" as far as it was walked: {self.n_unfinished} of {self.n_cases} cases not to the end.  "
                    f"A mistake may hide in the rest, {self.unwalked:.1g} of the probability at most: "
                    "thorough=True (--thorough) walks it.\nIn what was walked,") * (self.n_unfinished > 0)
            return f"lossless{some or ':'} no probability is off by more than {self.deviation:.0e} ({walked})"
        hint = self.hint or " (float32 sums, or something small is left out)" * (self.deviation < 1e-6)
        walked += f"; {self.n_unfinished} not walked to the end" * (self.n_unfinished > 0)
        digits = 6 if abs(self.probability - self.wanted) > 2e-6 else 12
        return (f'not lossless: after "{spell(self.prompt)}" the text "{spell(self.text)}" has probability '
                f"{self.probability:.{digits}f}, and should have {self.wanted:.{digits}f}{hint}.  "
                f"({self.case}; {walked})\n"
                "The models are toys: their token 0 is written a, their token 1 b, and so on.")


def check(sampler, *which, **settings):
    """Returns the largest deviation of any text's probability from the target's, or what was not walked of a
    case's probability if that is more.  Less than 1e-9 is rounding; if it is more, the report is printed.
    The arguments are those of `report`."""
    found = report(sampler, *which, **settings)
    if not found.lossless or found.n_unfinished:
        print(found)
    return max(found.deviation, found.unwalked)


def report(sampler, pairs=None, Ks=None, n_tokens=None, thorough=False, watch=iter, **settings):
    """Walk the standard cases, up to the first that is wrong.  Returns a Report.

    If no text is off by .01 there, the remaining cases of up to four tokens are walked, too, so that the
    report can show a text that is short and far off.

    sampler     (draft, target, tokens, n_tokens, K, rng, **settings) -> rounds, or the new tokens
    pairs       of (draft, target), with a vocabulary of a few tokens, instead of the standard cases; the
                prompt is then [0, 0], and each of Ks (1, 2, 3) is tried with texts of n_tokens
    Ks          without pairs: only standard cases with one of these K
    n_tokens    without pairs: only standard cases with at most this many tokens
    thorough    walk more cases, and all to the end (a minute for speculative.py)
    watch       passes the cases on, and may show the progress
    settings    temperature, top_k, top_p, eos: instead of the standard settings

    Raises ValueError if the sampler cannot be judged.  Errors that the sampler itself raises pass through.
    """
    chosen = [*thorough_cases()] if thorough else CASES
    if settings:
        chosen = [case._replace(settings=settings) for case in chosen if not case.settings]
    chosen = [case for case in chosen if (Ks is None or case.K in Ks)
              and (n_tokens is None or case.n_tokens <= n_tokens)]
    if pairs is not None:
        chosen = [*pair_cases(pairs, Ks or (1, 2, 3), n_tokens, settings)]
    if not chosen:
        raise ValueError("there is nothing to judge: give at least one pair, or other Ks and n_tokens")
    limit, left = (np.inf, np.inf) if thorough or pairs is not None else (MAX_STEPS, ALL_STEPS)
    required = {name for name, it in signature(sampler).parameters.items() if it.default is it.empty}
    sampler = functools.partial(sampler, **{name: DEFAULTS[name] for name in DEFAULTS.keys() & required})
    reports, wrong = [], []
    for i, case in enumerate(watch(chosen)):
        if wrong and case.n_tokens > FEW_TOKENS:
            continue
        # Half of the steps are for the cases that come first.  Then each gets an even share of what is left.
        max_steps = min(limit, max(left - ALL_STEPS / 2, left / (len(chosen) - i)))
        with contextlib.suppress(*[Exception] * len(wrong)):        # the verdict stands, whatever it does now
            reports.append(judge_case(sampler, case, max_steps))
            left -= reports[-1].n_steps
            wrong += [found for found in reports[-1:] if not found.lossless]
        if wrong and wrong[0].deviation >= CLEAR:
            break
    shown = clearest((found.text, found.deviation, found) for found in wrong)[2] if wrong else reports[0]
    sums = {name: sum(getattr(found, name) for found in reports)
            for name in ("n_cases", "n_branches", "n_steps", "n_unfinished")}
    return shown._replace(deviation=max(found.deviation for found in reports),
                          unwalked=max(found.unwalked for found in reports), **sums)


def clearest(wrong):
    """Of tuples (text, error, ..): the shortest text whose error is at least half of the largest one."""
    wrong = [*wrong]
    large = max(error for _, error, *_ in wrong) / 2
    return min((one for one in wrong if one[1] >= large), key=lambda one: (len(one[0]), -round(one[1], 9)))


def judge_case(sampler, case, max_steps=np.inf):
    """Walks one case, the likeliest branches first, until `max_steps` steps are made.  Returns its Report."""
    found, *walked = walk_case(sampler, case, max_steps)
    wanted = distribution_of_text(case.target, case.prompt, case.n_tokens, **case.settings)
    missing = max(1 - sum(found.values()), 0)           # in branches that were left out
    errors = find_errors(found, wanted, missing)
    counts = max(errors.values()), 1, *walked, int(missing > ROUNDING), missing * (missing > ROUNDING)
    if counts[0] <= ROUNDING:
        return Report(True, *counts)
    again = [walk_case(sampler, case, FEW_STEPS)[0] for _ in range(4)]
    if any(distance(again[0], other) > ROUNDING for other in again):
        raise ValueError(NOT_REPEATED)                  # it draws elsewhere; two runs may agree
    text, _ = clearest(errors.items())
    return Report(False, *counts, str(case), case.settings, list(case.prompt), list(text), float(
        found.get(text, 0)), float(wanted.get(text, 0)), name_cause(sampler, case, found, again[0]))


def name_cause(sampler, case, found, again):
    """What the mistake may be, in brackets, or ""."""
    if all(text[:len(case.prompt)] == tuple(case.prompt) for text in found):
        return " (each text begins with the prompt: return the new tokens only)"
    from unittest.mock import patch  # not at the top: it is slow, and a right sampler does not need it
    for other in map(reseed, range(1, 9)):              # one other seed may give the same text
        with patch.multiple(np.random, default_rng=other(np.random.default_rng), seed=other(np.random.seed)):
            if distance(again, walk_case(sampler, case, FEW_STEPS)[0]) > ROUNDING:
                return " (it draws from a generator with a seed of its own, not from the one that is given)"
    return ""


def reseed(more):
    """Decorates NumPy's ways to make a generator: another seed is taken for a fixed one."""
    return lambda make: lambda seed=None: make(seed + more if isinstance(seed, int) else seed)


def find_errors(found, wanted, missing):
    """{text: how far its probability in `found` is off, at least}; `missing` may belong to any text."""
    more = {text: found.get(text, 0) - wanted.get(text, 0) for text in sorted(found.keys() | wanted.keys())}
    return {text: max(d, -d - missing, 0) for text, d in more.items()}


def walk_case(sampler, case, max_steps=np.inf, outcome=None):
    """({outcome: probability}, the number of branches, the number of steps).  outcome(result, rng) is the
    text, unless given."""
    steps, outcome = [], outcome or text_of             # of each branch

    def run(rng):
        models = count_calls(case.draft, rng), count_calls(case.target, rng)
        settings = copy.deepcopy(case.settings)         # a sampler may change it
        try:
            return outcome(sampler(*models, list(case.prompt), case.n_tokens, case.K, rng, **settings), rng)
        except IndexError as error:
            error.args = f"{error} (q has a row more than p: are they exchanged at verify(q, p, ..)?)",
            raise
        finally:
            steps.append(rng.steps)
    return exact_distribution(run, max_steps), len(steps), sum(steps)


def count_calls(model, rng):
    """The model, its calls counted as steps of the run.  A model that is not a function is left alone."""
    @functools.wraps(model)
    def call(tokens, n_last=1):
        rng.step()
        return model(tokens, n_last)
    return call if isfunction(model) else model


def text_of(result, rng=None):
    """The rounds of a run, or its new tokens, as a tuple of tokens.  Raises ValueError if they never end."""
    text, rng = [], rng or Walk()
    for part in result:
        rng.step()
        text.extend(getattr(part, "tokens", [part]))
    return tuple(map(int, text))


def distance(a, b):
    """Total variation between two distributions {outcome: probability}."""
    return sum(abs(a.get(key, 0) - b.get(key, 0)) for key in a.keys() | b.keys()) / 2
