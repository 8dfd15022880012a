"""The judge in the browser: judge.html runs this file and what it imports, unchanged, in Pyodide.

    answer('{"code": "def verify(..", "case": "zeros in both", "K": 2, ..}') -> '{"lossless": false, ..}'
    openings()          what a reader can open there: Algorithm 2, the cases of verdicts/, the museum

The code in the editor is run with the names of verdicts/rules.py and sampling.py around it.  It defines a
class over Algorithm2, the last of which is judged, or a `propose` or a `verify`; what it does not define is
speculative.py's.

Limitations: one case, chosen in the page, or the standard cases up to the first that is wrong; python -m
lossless can be thorough.
"""
import inspect
import json
import traceback

import lossless
import sampling
import speculative
from samplers.constraints import constrained
from verdicts import CASES, PAIRS, museum, rules

EDITOR = "<editor>"
STANDARD = "the standard cases, up to the first that is wrong"
START = "a distribution after every prefix"
START_WITH = dict(case=START, K=2, n_tokens=3, settings={"temperature": 1})
IMPORTS = "import numpy as np\n\nfrom sampling import probabilities, sample\n\n\n"    # for use as a file


def answer(request):
    """JSON -> JSON."""
    try:
        return json.dumps(judged(**json.loads(request)))
    except Exception as error:
        return json.dumps(dict(error=sentence(error)))


def judged(code, case, K, n_tokens, settings, penalty=False):
    """lossless.Report about the code in the editor, as a dict.

    case        a name of PAIRS, to which K, n_tokens and the settings belong, or STANDARD
    """
    names = vars(sampling) | vars(speculative) | vars(rules) | dict(__name__="editor")
    exec(compile(code, EDITOR, "exec"), names)
    own = {name: names[name] for name in ("propose", "verify")}
    classes = [value for value in names.values() if getattr(value, "__module__", "") == "editor"
               and isinstance(value, type)]
    sampler = museum.sampler(classes[-1]) if classes else (
        lambda *run, **settings: speculative.speculative_sampling(*run, **own, **settings))
    if case == STANDARD:
        return lossless.report(sampler)._asdict()
    draft, target, *_ = PAIRS[case]
    target = constrained(target, rules.penalty) if penalty else target
    return lossless.report(sampler, [(draft, target)], [K], n_tokens, **settings)._asdict()


def sentence(error):
    """What is wrong, with the line of the editor's code if it is there."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == EDITOR]
    if isinstance(error, SyntaxError):
        lines = [error.lineno]
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return (f"line {lines[-1]}: " if lines else "") + kind + str(error)


# What can be opened -----------------------------------------------------------------------------------------

def openings():
    """[{group, name, code, case, K, n_tokens, settings, wrong, ..}, ..]"""
    own = IMPORTS + "\n\n".join(map(inspect.getsource, (speculative.propose, speculative.verify)))
    yield START_WITH | dict(group="the code", name="Algorithm 2", code=own, wrong=False)
    yield from map(of_case, CASES)
    for group, table in ("the museum: wrong", museum.WRONG), ("the museum: right", museum.RIGHT):
        for name in table:
            if name in museum.RULES:
                yield START_WITH | dict(group=group, name=name, code=code_of(name),
                                        case=STANDARD, wrong=table is museum.WRONG)


def of_case(case):
    """A case of verdicts/, on the pair and with the K that its first wrong text is found with."""
    found = case.judge()
    pair = next((name for name in PAIRS if not found.lossless and found.case.startswith(name)), START)
    return dict(group=case.verdict, name=case.name, code=code_of(case.rule), case=pair,
                K=max(PAIRS[pair][3]), n_tokens=PAIRS[pair][2], settings=case.settings or {"temperature": 1},
                wrong=case.verdict == "wrong", penalty=case.penalty, claim=case.claim, link=case.link)


def code_of(name):
    """The rule's class, and those of the museum that it changes, as they are in the file."""
    own = [cls for cls in museum.RULES[name].__mro__[::-1]
           if cls.__module__.startswith("verdicts") and cls.__name__ not in vars(rules)]
    return "\n\n".join(map(inspect.getsource, own or [museum.RULES[name]]))
