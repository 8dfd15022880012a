"""A sampler -> a report: its exact output distribution on each case, and how far that is from the target's.
"""
import copy
import functools
import itertools
from inspect import isfunction
from typing import NamedTuple

import numpy as np

from lossless.cases import CASES, Case, more_cases, numbered, of_pairs
from lossless.toys import distribution_of_text
from lossless.walk import NOT_REPEATED, Walk, exact_distribution

ENOUGH = 7_000          # such steps in all runs of a standard case; the remaining branches are left out
FEW = 300               # such steps in the runs that are repeated, to see whether they agree
WRONG = 1e-9            # a larger deviation is not rounding


class Report(NamedTuple):
    """What was found.  The fields from `case` on describe the first text whose probability is wrong; they are
    None if all are right."""
    lossless: bool
    deviation: float                # the largest of any text; maybe more if branches were left out
    n_cases: int
    n_branches: int
    n_unfinished: int = 0           # cases with some branches left out
    case: str | None = None
    settings: dict | None = None
    prompt: list | None = None
    text: list | None = None
    probability: float | None = None
    wanted: float | None = None

    def __str__(self):
        walked = f"{self.n_branches:,} branches of {self.n_cases} case{'s' * (self.n_cases != 1)}"
        if self.n_unfinished:
            walked += f", {self.n_unfinished} case{'s' * (self.n_unfinished != 1)} not to the end"
        if self.lossless:
            return f"lossless: no probability is off by more than {self.deviation:.0e} ({walked})"
        digits = 6 if abs(self.probability - self.wanted) > 2e-6 else 12
        rounding = " (rounding, or something small that is left out?)" if self.deviation < 1e-6 else ""
        return (f"not lossless: after {self.prompt} the text {self.text} has probability "
                f"{self.probability:.{digits}f}, and should have {self.wanted:.{digits}f}{rounding}.  "
                f"({self.case}; {walked})")


def check(sampler, *which, **settings):
    """Returns the largest deviation of any text's probability from the target's.  Less than 1e-9 is rounding.
    The report is printed if it is more, or if some cases were not walked to the end.  The arguments are those
    of `report`."""
    found = report(sampler, *which, **settings)
    if not found.lossless or found.n_unfinished:
        print(found)
    return found.deviation


def report(sampler, pairs=None, Ks=None, n_tokens=None, thorough=False, **settings):
    """Walk the standard cases, up to the first that is wrong.  Returns a Report.

    sampler     (draft, target, tokens, n_tokens, K, rng, **settings) -> rounds, or the new tokens
    pairs       of (draft, target), with a vocabulary of a few tokens, instead of the standard cases; the
                prompt is then [0, 0], and each of Ks (1, 2, 3) is tried with texts of n_tokens
    Ks          without pairs: only standard cases with one of these K
    n_tokens    without pairs: only standard cases with at most this many tokens
    thorough    walk more cases, and all to the end (takes a minute)
    settings    temperature, top_k, top_p, eos: instead of the standard ones

    Raises ValueError if the sampler cannot be judged.  Errors that the sampler itself raises pass through.
    """
    chosen, most = [*CASES, *numbered(more_cases(), len(CASES))] if thorough else CASES, ENOUGH
    if settings:
        chosen = [case._replace(settings=settings) for case in chosen if not case.settings]
    chosen = [case for case in chosen if (Ks is None or case.K in Ks)
              and (n_tokens is None or case.n_tokens <= n_tokens)]
    if pairs is not None:
        chosen, most = [*of_pairs(pairs, Ks or (1, 2, 3), n_tokens, settings)], np.inf
    if not chosen:
        raise ValueError("there is nothing to judge: give at least one pair, or other Ks and n_tokens")
    so_far = Report(True, 0.0, 0, 0)
    for case in chosen:
        found = judge(sampler, *case, most=np.inf if thorough else most)
        so_far = Report(found.lossless, max(found.deviation, so_far.deviation),
                        *(a + b for a, b in zip(found[2:5], so_far[2:5])), *found[5:])
        if not found.lossless:
            break
    return so_far


def judge(sampler, *case, most=np.inf):
    """Walks one case, the likeliest branches first, until `most` steps are made.  Returns its Report."""
    case = Case(*case)
    found, n_branches = walked(sampler, case, most)
    wanted = distribution_of_text(case.target, case.prompt, case.n_tokens, **case.settings)
    missing = max(1 - sum(found.values()), 0)               # which may belong to any text
    more = {text: found.get(text, 0) - wanted.get(text, 0) for text in sorted(found.keys() | wanted.keys())}
    off = {text: max(d, -d - missing, 0) for text, d in more.items()}
    wrong = next((text for text in off if off[text] > WRONG), None)
    counts = max(off.values()), 1, n_branches, int(missing > WRONG)
    if wrong is None:
        return Report(True, *counts)
    again = [walked(sampler, case, FEW)[0] for _ in range(4)]
    if any(distance(again[0], other) > WRONG for other in again):
        raise ValueError(NOT_REPEATED)                      # chance of its own; two runs may agree
    return Report(False, *counts, str(case), case.settings, list(case.prompt), list(wrong),
                  float(found.get(wrong, 0)), float(wanted.get(wrong, 0)))


def walked(sampler, case, most):
    """({text: probability}, the number of branches)"""
    runs = itertools.count()

    def run(rng):
        next(runs)
        models = counted(case.draft, rng), counted(case.target, rng)
        settings = copy.deepcopy(case.settings)             # a sampler may change it
        return text_of(sampler(*models, list(case.prompt), case.n_tokens, case.K, rng, **settings), rng)
    return exact_distribution(run, most), next(runs)


def counted(model, rng):
    """The model, with its calls counted as steps of the run.  A model that is no function is left alone."""
    @functools.wraps(model)
    def asked(tokens, n_last=1):
        rng.step()
        return model(tokens, n_last)
    return asked if isfunction(model) else model


def text_of(result, rng=None):
    """The rounds of a run, or its new tokens, as a tuple of tokens.  Raises ValueError if they never end."""
    text, rng = [], rng or Walk()
    for part in result:
        rng.step()
        text += getattr(part, "tokens", [part])
    return tuple(map(int, text))


def distance(a, b):
    """Total variation between two distributions {outcome: probability}."""
    return sum(abs(a.get(key, 0) - b.get(key, 0)) for key in a.keys() | b.keys()) / 2
