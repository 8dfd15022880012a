"""What the judge finds about a rule: report(rule, settings), and verdict(report, rule, settings).

The exact distribution of the text beside the target's, over a few pairs of models given by tables, with one
to three drafts a round; and how many drafts are kept, exactly, beside the rule that keeps most of the same
drafts.  One of three words is the verdict:

    wrong                   some text has not the probability that the target gives it
    lossless but slow       all have; but fewer drafts are kept than could be
    fine                    all have, and no fewer are kept

But: these pairs and settings show what the cases are about; lossless.check looks further, and the long tests
run it on all that is lossless here.
"""
import lossless
from lossless import PROMPT, WRONG, exact_distribution, memoryless, table
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


def report(rule, settings=None, penalty=False):
    """rule, a name of RULES or INTEGRALS -> lossless.Report: of the first case that is wrong, but with the
    largest deviation and the branches of all.  `penalty`: the target punishes repetition."""
    judge, found = integrated if rule in INTEGRALS else walked, []
    for name, (draft, target, n_tokens, Ks) in PAIRS.items():
        target = penalized(target) if penalty else target
        found += [judge(rule, name, draft, target, n_tokens, K, settings or {}) for K in Ks]
    first = next((one for one in found if not one.lossless), found[0])
    return first._replace(deviation=float(max(one.deviation for one in found)), n_cases=len(found),
                          n_branches=sum(one.n_branches for one in found))


def walked(rule, *case):
    return lossless.judge(RULES[rule].sampler, *case)


def integrated(rule, name, draft, target, n_tokens, K, settings):
    found = INTEGRALS[rule](draft, target, PROMPT)
    n_tokens = len(next(iter(found)))
    return lossless.compared(lossless.Case(name, draft, target, n_tokens, n_tokens, settings), found, 0)


def verdict(report, rule, settings=None, penalty=False):
    """(one of the three words, how often a first draft is kept, how often it could be; None: not walked)."""
    if not report.lossless:
        return "wrong", None, None
    if rule in INTEGRALS:
        return "fine", None, None
    accepted, possible = (kept(name, settings, penalty) for name in (rule, RULES[rule].beside))
    return "lossless but slow" if accepted < possible - WRONG else "fine", accepted, possible


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
    if rule in INTEGRALS:
        found = INTEGRALS[rule](memoryless(p), memoryless(q), PROMPT)
    else:
        found = exact_distribution(lambda rng: lossless.text_of(RULES[rule].sampler(
            memoryless(p), memoryless(q), list(PROMPT), 2, 1, rng, **settings or {})))
    chances = [0.0] * len(q)
    for text, chance in found.items():
        chances[text[0]] += float(chance)
    return chances
