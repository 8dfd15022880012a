"""The judge in the browser: judge.html runs this file and what it imports, unchanged, in Pyodide.

    answer('{"code": "def verify(..", "case": "zeros in both", "K": 2, ..}') -> '{"lossless": false, ..}'
    openings()          what a reader can open there: Algorithm 2, the cases of verdicts/, the museum

The code of the editor is run with the names of verdicts/rules.py and sampling.py around it; what it does not
define, a `propose` or a `verify`, is speculative.py's.

But: on one case, chosen in the page, or the standard cases up to the first that is wrong; python -m lossless
can be thorough.
"""
import ast
import inspect
import json
import re
import traceback
from functools import cache
from textwrap import indent

import lossless
import sampling
import speculative
from verdicts import judging, museum, rules

EDITOR = "<editor>"
STANDARD = "the standard cases, up to the first that is wrong"
PAIRS = {name: pair for name, (*pair, _, _) in judging.PAIRS.items()} | lossless.PAIRS
START = "a distribution after every prefix"
SMALL = next(str(case) for case in lossless.CASES if case.name == "'.ss', two drafts")


def answer(request):
    """JSON -> JSON."""
    try:
        return json.dumps(judged(**json.loads(request)))
    except Exception as error:
        return json.dumps(dict(error=sentence(error)))


def judged(code, case, K, n_tokens, settings, penalty=False):
    """lossless.Report about the code in the editor, as a dict.

    case        a name of PAIRS, to which K, n_tokens and the settings belong, a standard case, or STANDARD
    """
    names = vars(sampling) | vars(speculative) | vars(rules) | dict(__name__="editor")
    exec(compile(code, EDITOR, "exec"), names)
    own = {name: names[name] for name in ("propose", "verify")}
    sampler = names.get("sampler") or (
        lambda *run, **settings: speculative.speculative_sampling(*run, **own, **settings))
    if case == STANDARD:
        return lossless.report(sampler)._asdict()
    one = next((one for one in lossless.CASES if str(one) == case), None)
    if case in PAIRS:
        draft, target = PAIRS[case]
        target = rules.penalized(target) if penalty else target
        one = lossless.Case(case, draft, target, n_tokens, K, settings)
    return lossless.judge(sampler, *one)._asdict()


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
    from verdicts.cases import in_order
    own = IMPORTS + "\n\n".join(whole())
    first = START_WITH | dict(group="the code", name="Algorithm 2", code=own, wrong=False)
    return [first, *(opening(case) for case in in_order() if case.rule in rules.RULES), *of_the_museum()]


START_WITH = dict(case=START, K=2, n_tokens=3, settings={"temperature": 1})
IMPORTS = "import numpy as np\n\nfrom sampling import probabilities, sample\n\n\n"    # for use as a file


def opening(case):
    """A case of verdicts/, on the pair and with the K that its first wrong text was found with."""
    pair, K = case.found.get("case", START), case.found.get("K", 2)
    return dict(group=case.verdict, name=case.name, code=code_of(case.rule), case=pair, K=K,
                n_tokens=judging.PAIRS[pair][2], settings=case.settings or {"temperature": 1},
                wrong=case.verdict == "wrong", penalty=case.penalty, claim=case.claim, link=case.link)


def of_the_museum():
    """What verdicts/museum.py changes in a file: a mistake with the case that sees it best, what is right
    with a small one."""
    best = {name: row.removesuffix(" |").split(" | ")[-1] for name, row in museum.rows().items()}
    for rooms, group in ("MISTAKES", "the museum: wrong"), ("UNUSUAL", "the museum: right"):
        for kind, (module, _, entries) in getattr(museum, rooms).items():
            for name, changes in entries.items():
                lines = [f"    ({old!r},\n     {new!r})," for old, new in changes]
                code = functions_of(module, changes) or "\n".join([
                    f"from verdicts.museum import {rooms}, changed",
                    f"import {module.__name__} as module", "", "module = changed(module, *[", *lines, "])",
                    f"sampler = {rooms}[{kind!r}][1](module)", ""])
                wrong = rooms == "MISTAKES"
                yield START_WITH | dict(group=group, name=name, code=code, wrong=wrong,
                                        case=best.get(name, STANDARD) if wrong else SMALL,
                                        claim=f"{kind}, in {module.__name__}.py")


def code_of(name):
    """A rule's own functions, or the lines that it changes, and what makes a sampler of them in
    verdicts/rules.py."""
    part, *more = rules.RULES[name].code
    if isinstance(part, tuple) and not more and "=" not in makers()[name].partition("beside=")[0]:
        if functions := functions_of(*part):
            return functions
    own = [indent(museum.difference(*part), "# ") if isinstance(part, tuple) else inspect.getsource(part)
           for part in rules.RULES[name].code if isinstance(part, tuple) or part.__module__ == rules.__name__]
    return "\n\n".join([*own, f"sampler = {makers()[name]}.sampler\n"])


@cache
def makers():
    """{name of a rule: what stands beside it in RULES}"""
    table = ast.parse(inspect.getsource(rules)).body[-1].value
    return {key.value: ast.unparse(value) for key, value in zip(table.keys, table.values)}


@cache
def whole():
    """`propose` and `verify`, without docstrings."""
    sources = map(inspect.getsource, (speculative.propose, speculative.verify))
    return [re.sub(r'    """.*?"""\n', "", source, flags=re.S) for source in sources]


def functions_of(module, changes):
    """`propose` or `verify` as it is changed, without comments, if nothing else is; otherwise ""."""
    new = whole() if module is speculative else []
    for old, text in changes:
        if sum(old in function for function in new) != 1:
            return ""
        new = [function.replace(old, text) for function in new]
    found = [re.sub(r"(?<=\S)  +#.*", "", function) for function in new if function not in whole()]
    return IMPORTS + "\n\n".join(found) if found else ""
