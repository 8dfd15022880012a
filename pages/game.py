"""Is this lossless?  Guess.  The rules of game.ini, each with the judge's verdict.

    game()      what the page needs.  A question has the rule in NumPy (`code`), the law of its token, and the
                verdict on the case; for a wrong rule, also the clearest wrong text

Limitations: one draft a round, and models that do not look at the text.  A case's own verdict is found on
the models of lossless/verdicts/.
"""
import configparser
from functools import cache
from pathlib import Path

import numpy as np

import lossless
from lossless import exact_distribution
from lossless.toys import memoryless
from lossless.verdicts import CASES
from lossless.verdicts.museum import RULES, sampler
from sampling import sample

TOKENS, P, Q = ["tea", "milk", "cocoa", "juice"], np.array([.4, .3, .2, .1]), np.array([.1, .45, .25, .2])


@cache
def game():
    parser = configparser.ConfigParser(interpolation=None, delimiters="=")
    parser.read(Path(__file__).with_name("game.ini"), encoding="utf-8")
    cases = {case.name: case for case in CASES}
    rules = [question(cases[name], **parser[name]) for name in parser.sections()]
    return dict(n=len(CASES), n_wrong=sum(case.verdict == "wrong" for case in CASES), tokens=TOKENS,
                p=P.tolist(), q=Q.tolist(), rules=rules)


def question(case, words, code, reason):
    code = "\n".join(line.removeprefix("|") for line in code.strip().splitlines())
    law, judged, both = law_of(code), case.judge(), np.minimum(P, Q)
    here = lossless.report(sampler(RULES[case.rule]), [(memoryless(P), memoryless(Q))], Ks=(1,), n_tokens=2,
                           temperature=1.0)
    reason = reason.replace("\n", " ").format(p=P, q=Q, law=law, both=both, z=1 - both.sum())
    return dict(words=words.replace("\n", " "), code=code, reason=reason, lossless=judged.lossless,
                law=law.tolist(), n_branches=judged.n_branches, text=here.text,
                probability=here.probability, wanted=here.wanted, link=case.link, thread=case.thread,
                date=case.date, claim=case.claim)


def law_of(code):
    """The distribution of the token that the shown code gives [n_tokens], over every branch of chance."""
    scope = {"np": np}
    exec("def rule(p, q, rng, draw):\n" + "".join(f"    {line}\n" for line in code.splitlines()), scope)
    found = exact_distribution(lambda rng: int(scope["rule"](P, Q, rng, lambda w: sample(w, rng))))
    return np.array([found.get(token, 0.0) for token in range(len(TOKENS))])
