"""The judge in the browser: judge.html runs this file and what it imports, unchanged, in Pyodide.

    answer('{"code": "def verify(..", "case": "zeros in both", "K": 2, ..}') -> '{"lossless": false, ..}'
    openings()          what a reader can open there: Algorithm 2, the cases of verdicts/, the museum

The code of the editor is run with the names of verdicts/rules.py around it; what it does not define, a
`propose` or a `verify`, is speculative.py's.

But: on one case, chosen in the page, or the standard cases up to the first that is wrong; python -m lossless
can be thorough.
"""
import inspect
import json
import re
import traceback

import lossless
import speculative
from verdicts import judging, rules

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
    names = vars(speculative) | vars(rules) | dict(__name__="editor")
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
                changes = changes if isinstance(changes, list) else [changes]
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
    """A rule's own functions, and the line that makes a sampler of them, as in verdicts/rules.py."""
    rule = rules.RULES[name]
    own = [inspect.getsource(function) for function in rule.code if function.__module__ == rules.__name__]
    parts = {part: name_of(it) for part, it in inspect.getclosurevars(rule.sampler).nonlocals.items()}
    last = f"sampler = RULES[{name!r}].sampler"                 # of parts that have no name
    if not parts:
        last = f"sampler = {name_of(rule.sampler)}"
    elif all(parts.values()):
        maker = {"propose": "drafting({propose})", "propose verify": "judging({verify}, {propose})",
                 "draw select walk": "in_a_tree({select}, {draw}, walk={walk})",
                 "sampling": "looping_in_a_tree({sampling})"}[" ".join(sorted(parts))]
        last = f"sampler = {maker.format(**parts)}.sampler"
    return "\n\n".join([*own, last + "\n"])


def name_of(function):
    """As it is called in verdicts/rules.py: target_after_refusal, lookup.propose, SEQUOIA[0]; or ""."""
    for name, value in vars(rules).items():
        inner = vars(value).items() if inspect.ismodule(value) else enumerate(value) if name.isupper() else ()
        form = "{}.{}" if inspect.ismodule(value) else "{}[{}]"
        found = [form.format(name, key) for key, part in inner if part is function]
        if value is function or found:
            return name if value is function else found[0]
    return ""
