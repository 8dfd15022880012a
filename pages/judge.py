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
from textwrap import indent

import lossless
import sampling
import speculative
from verdicts import judging, rules
from verdicts.museum import changed_source, difference

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
    """What the judge finds about the code in the editor, as a dict.

    case        a name of PAIRS, to which K, n_tokens and the settings belong, a standard case, or STANDARD
    """
    names = vars(sampling) | vars(speculative) | vars(rules) | dict(__name__="editor")
    exec(compile(code, EDITOR, "exec"), names)
    own = {name: names[name] for name in ("propose", "verify")}
    sampler = names.get("sampler") or (
        lambda *run, **settings: speculative.speculative_sampling(*run, **own, **settings))
    cases = {str(one): one for one in lossless.CASES}
    if case in PAIRS:
        draft, target = PAIRS[case]
        target = rules.penalized(target) if penalty else target
        one = lossless.Case(case, draft, target, n_tokens, K, settings)
        case, cases[str(one)] = str(one), one
    found = lossless.report(sampler) if case == STANDARD else lossless.judge(sampler, *cases[case])
    first = dict(text=found.text, probability=found.probability, wanted=found.wanted)
    return dict(lossless=found.lossless, deviation=found.deviation, branches=found.n_branches,
                case=found.case, prompt=found.prompt, first=first,
                worst=None if found.lossless else worst(sampler, cases[found.case]))


def worst(sampler, case):
    """Of a case that is wrong, the text that is most wrong."""
    def run(rng):
        x, pair = list(case.prompt), (case.draft, case.target)
        return lossless.text_of(sampler(*pair, x, case.n_tokens, case.K, rng, **case.settings))

    has = lossless.exact_distribution(run)
    wanted = lossless.distribution_of_text(case.target, case.prompt, case.n_tokens, **case.settings)
    text = max(sorted(has.keys() | wanted.keys()), key=lambda t: abs(has.get(t, 0) - wanted.get(t, 0)))
    return dict(text=text, probability=float(has.get(text, 0)), wanted=float(wanted.get(text, 0)))


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
    own = "\n\n".join(map(inspect.getsource, (speculative.propose, speculative.verify)))
    own = re.sub(r'(    """[^\n]*)\n.*?"""', r'\1"""', own, flags=re.S)         # its docstrings' first lines
    first = START_WITH | dict(group="the code", name="Algorithm 2", code=IMPORTS + own, wrong=False)
    return [first, *(opening(case) for case in in_order() if case.rule in rules.RULES), *museum()]


START_WITH = dict(case=START, K=2, n_tokens=3, settings={"temperature": 1})
IMPORTS = "import numpy as np\n\nfrom sampling import sample\n\n\n"          # so that it works as a file


def opening(case):
    """A case of verdicts/, on the pair and with the K that its first wrong text was found with."""
    pair, K = case.found.get("case", START), case.found.get("K", 2)
    return dict(group=case.verdict, name=case.name, code=code_of(case.rule), case=pair, K=K,
                n_tokens=judging.PAIRS[pair][2], settings=case.settings or {"temperature": 1},
                wrong=case.verdict == "wrong", penalty=case.penalty, claim=case.claim, link=case.link)


def museum():
    """What verdicts/museum.py changes in a file, as the lines that change it: a mistake with the case that
    sees it best, and what is right with a small one."""
    from verdicts import museum
    table = museum.TABLE.read_text(encoding="utf-8")
    best = dict(re.findall(r"^\| (.*) \| \S+ \| \d+ \| (.*) \|$", table, re.M))
    for group, name_of_rooms, rooms in (("the museum: wrong", "MISTAKES", museum.MISTAKES),
                                        ("the museum: right", "UNUSUAL", museum.UNUSUAL)):
        for kind, (module, _, entries) in rooms.items():
            for name, changes in entries.items():
                lines = [f"    ({old!r},\n     {new!r})," for old, new in changes]
                code = "\n".join([f"from verdicts.museum import {name_of_rooms}, changed",
                                  f"import {module.__name__} as module", "",
                                  "module = changed(module, *[", *lines, "])",
                                  f"sampler = {name_of_rooms}[{kind!r}][1](module)", ""])
                wrong = rooms is museum.MISTAKES
                case = best.get(name, STANDARD) if wrong else SMALL
                yield START_WITH | dict(group=group, name=name, code=code, case=case, wrong=wrong,
                                        claim=f"{kind}, in {module.__name__}.py")


def code_of(name):
    """A rule's own functions, or the lines that it changes, and what makes a sampler of them in
    verdicts/rules.py.  Where `propose` or `verify` alone is changed it stands here as a whole."""
    table = ast.parse(inspect.getsource(rules)).body[-1].value              # RULES
    makers = {key.value: ast.unparse(value) for key, value in zip(table.keys, table.values)}
    part, *more = rules.RULES[name].code
    if isinstance(part, tuple) and not more and "=" not in makers[name].partition("beside=")[0]:
        functions = changed_functions(*part)
        if functions.keys() <= {"propose", "verify"}:
            return "\n\n".join(functions.values())
    own = [indent(difference(*part), "# ") if isinstance(part, tuple) else inspect.getsource(part)
           for part in rules.RULES[name].code if isinstance(part, tuple) or part.__module__ == rules.__name__]
    return "\n\n".join([*own, f"sampler = {makers[name]}.sampler\n"])


def changed_functions(module, changes):
    """{name: source} of the functions that differ, without their docstrings."""
    source, found = changed_source(module, changes), {}
    before = {ast.dump(node) for node in ast.parse(inspect.getsource(module)).body}
    for node in ast.parse(source).body:
        if ast.dump(node) not in before:
            text = ast.get_source_segment(source, node)
            found[getattr(node, "name", "")] = re.sub(r' {4}""".*?"""\n', "", text, count=1, flags=re.DOTALL)
    return found
