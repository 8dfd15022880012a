"""What the judge finds about a rule: judge(rule, settings) -> Report.

The exact distribution of the text beside the target's, over a few pairs of models given by tables, with one
to three drafts a round; and how many drafts are kept, exactly, beside the rule that keeps most of the same
drafts.  One of three words is the verdict:

    wrong                   some text has not the probability that the target gives it
    lossless but slow       all have; but fewer drafts are kept than could be
    fine                    all have, and no fewer are kept

But: these pairs and settings show what the cases are about; lossless.check looks further, and the long tests
run it on all that is lossless here.
"""
from typing import NamedTuple

from lossless import (
    PROMPT,
    WRONG,
    distribution_of_text,
    exact_distribution,
    memoryless,
    table,
    text_of,
)
from verdicts.integrals import INTEGRALS
from verdicts.rules import RULES, penalized

PAIRS = {                                                       # name: (draft, target, n_tokens, Ks)
    "a distribution after every prefix": (table(1), table(2), 3, (1, 2)),
    "zeros in both": (table(3, zeros=.4), table(4, zeros=.4), 3, (1, 2)),
    "zeros in the target": (table(7), table(8, zeros=.5), 3, (1, 2)),
    "five tokens of vocabulary": (table(21, n_vocab=5), table(22, n_vocab=5), 2, (1,)),
    "long rounds": (table(31, n_vocab=2), table(32, n_vocab=2), 4, (3,)),
}
KEPT_OF = ["a distribution after every prefix", "zeros in both", "five tokens of vocabulary"]


class Report(NamedTuple):
    """As lossless.report's, and what is kept of the drafts."""
    lossless: bool
    deviation: float                    # the largest
    verdict: str
    case: str = ""                      # of the first wrong text: the pair of models,
    K: int = 0
    settings: dict = {}
    prompt: list = PROMPT
    text: tuple = ()
    probability: float = 0.0            # what it has
    wanted: float = 0.0                 # and what it should have
    n_branches: int = 0
    accepted: float | None = None       # drafts of a first round of one, on the mean; None for what is wrong
    possible: float | None = None       # by the best rule for them
    how: str = "walked"
    worst: tuple = ()                   # (text, probability, wanted) of the largest deviation

    def __str__(self):
        if self.lossless:
            kept = "" if self.accepted is None else (
                f"; a first draft is kept with probability {self.accepted:.3f}, and could be with "
                f"{self.possible:.3f}")
            return f"{self.verdict}: no text's probability is off by more than {self.deviation:.0e}{kept}"
        more = "".join(f", {key} = {value}" for key, value in self.settings.items())
        text, has, should = self.worst
        return (f"wrong: with {self.case}, K = {self.K}{more}, the first wrong text is {list(self.text)} "
                f"after {self.prompt}: it has probability {self.probability:.6f} and should have "
                f"{self.wanted:.6f}; the worst is {list(text)}, {has:.6f} for {should:.6f}")


def judge(rule, settings=None, penalty=False):
    """rule, a name of RULES or INTEGRALS -> Report.  `penalty`: the target punishes repetition."""
    settings, first, worst, n_branches = settings or {}, None, ((), 0.0, 0.0), 0
    for case, (draft, target, n_tokens, Ks) in PAIRS.items():
        target = penalized(target) if penalty else target
        for K in Ks:
            found, wanted, branches = distributions(rule, draft, target, n_tokens, K, settings)
            n_branches += branches
            for text in sorted(found.keys() | wanted.keys()):
                has, should = float(found.get(text, 0)), float(wanted.get(text, 0))
                worst = max(worst, (text, has, should), key=lambda one: abs(one[1] - one[2]))
                if abs(has - should) > WRONG and first is None:
                    first = dict(case=case, K=K, text=text, probability=has, wanted=should)
    common = dict(deviation=abs(worst[1] - worst[2]), settings=settings, n_branches=n_branches, worst=worst,
                  how="integrated" if rule in INTEGRALS else "walked")
    if first:
        return Report(False, verdict="wrong", **common, **first)
    if rule in INTEGRALS:
        return Report(True, verdict="fine", **common)
    accepted, possible = (kept(name, settings, penalty) for name in (rule, RULES[rule].beside))
    return Report(True, verdict="lossless but slow" if accepted < possible - WRONG else "fine",
                  accepted=accepted, possible=possible, **common)


def distributions(rule, draft, target, n_tokens, K, settings):
    """({text: probability} by the rule, the same by the target, branches of chance)."""
    if rule in INTEGRALS:
        found = INTEGRALS[rule](draft, target, PROMPT)
        return found, distribution_of_text(target, PROMPT, len(next(iter(found)))), 0
    n_branches = 0

    def run(rng):
        nonlocal n_branches
        n_branches += 1
        return text_of(RULES[rule].sampler(draft, target, list(PROMPT), n_tokens, K, rng, **settings))

    found = exact_distribution(run)
    return found, distribution_of_text(target, PROMPT, n_tokens, **settings), n_branches


def kept(rule, settings=None, penalty=False, K=1):
    """How many of the first round's drafts are kept, the expectation; the mean over three pairs."""
    total = 0.0
    for name in KEPT_OF:
        draft, target, *_ = PAIRS[name]
        target = penalized(target) if penalty else target
        total += kept_of(rule, draft, target, K, settings or {})
    return total / len(KEPT_OF)


def kept_of(rule, draft, target, K, settings):
    def run(rng):
        steps = RULES[rule].sampler(draft, target, list(PROMPT), K + 1, K, rng, **settings)
        return next(iter(steps)).n_accepted
    return float(sum(n * chance for n, chance in exact_distribution(run).items()))


def first_token(rule, q, p, settings=None):
    """The exact distribution [n_vocab] of the first token, one draft, the same q and p everywhere."""
    found, _, _ = distributions(rule, memoryless(p), memoryless(q), 2, 1, settings or {})
    chances = [0.0] * len(q)
    for text, chance in found.items():
        chances[text[0]] += float(chance)
    return chances
