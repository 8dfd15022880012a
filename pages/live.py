"""The pair itself on the page: index.html runs this file and its imports, unchanged, in Pyodide.

    live = Live()
    live.start('{"prompt": "The tide", "K": 4, ..}')    begin two runs: the target alone, and speculation
    live.advance("alone"), live.advance("spec")         the next target pass of that run
    live.costs()                                        c and v, as measured during these runs
    live.judge('{"code": "def verify(..", ..}')         is the code in the editor lossless?
    openings()                                          what can be opened in the editor

The methods return JSON; an error is returned as one sentence under "error".  The code in the editor can use
the names of lossless/verdicts/rules.py, sampling.py and speculative.py.  It defines `propose`, `verify` or
both, or else a subclass of Algorithm2 or Tree.  Of several subclasses the last one counts.

Limitations: one text at a time.  The judge stops at the first case that is wrong;
python -m lossless --thorough searches longer.
"""
import ast
import copy
import inspect
import json
import sys
import traceback
from functools import cache, partial
from statistics import median

import numpy as np

import sampling
import speculative
from autoregressive import autoregressive_sampling
from checks import checked_rule
from compute import threads
from methods.table import Models, choose, prepare
from pages.rounds import EDITOR, Coins, Shown, source_of
from reporting.stats import Timed, TimedDrafter, ratio
from speculative import speculative_sampling

if sys.platform == "emscripten":                        # where memory counts even if it was never written to
    threads.ARENA = 2 ** 22


def as_json(method):
    """Decorates a method: it returns JSON, and an error becomes a sentence under "error"."""
    def answer(self, *request):
        try:
            return json.dumps(method(self, *request))
        except Exception as error:                      # the editor's code can raise anything
            return json.dumps(dict(error=sentence(error)))
    return answer


class Live:
    def __init__(self):
        self.models = Models("demo-draft", "demo-target")
        self.encoder, self.runs = self.models.encoder, {}
        self.baseline = copy.deepcopy(self.models.target)       # the same weights, a cache of its own

    @as_json
    def start(self, request):
        """Begins a race.  Returns what the page shows of it besides the rounds."""
        return self.begin(**json.loads(request))

    def begin(self, prompt, n_tokens, K, temperature, top_p, seed, drafter, verifier, code=""):
        tokens, eos = self.encoder.encode(prompt), self.encoder.eos
        settings = dict(temperature=temperature, top_p=top_p, eos=eos)
        own, choice = typed(code) if code else {}, choose(drafter, "token" if code else verifier)
        method = prepare(choice, self.models, tokens, K, settings, TimedDrafter)
        draft, target, alone = self.timed = [
            model and Timed(model) for model in (method.draft, method.target, self.baseline)]
        method.reset()
        alone.reset()
        coins, self.proposing = Coins(np.random.default_rng(seed)), method.propose
        propose, verify = own.get("propose", method.propose), own.get("verify", method.verify)
        shown, sampler = partial(Shown, self.encoder, coins, trace=False, code=code), method.sampler
        if "rule" in own:
            sampler = own["rule"]()
            self.shown = shown(getattr(sampler, "propose", None), getattr(sampler, "verify", None),
                               loop=own["rule"].__call__)
        else:
            self.shown = shown(propose, verify)
            if verify:
                sampler = partial(speculative_sampling, propose=propose, verify=checked_rule(verify))
        self.runs = dict(spec=sampler(draft, target, tokens, n_tokens, method.K, coins, **settings), alone=(
            autoregressive_sampling(alone, tokens, n_tokens, np.random.default_rng(seed), **settings)))
        self.stream, self.most = self.encoder.stream(), 1 + len(method.shape or range(K))
        return self.shown.about() | dict(most=self.most, n_drafting=method.K, edited=bool(code))

    @as_json
    def advance(self, lane):
        """Runs the next target pass of a run ("alone" or "spec").  Returns what is shown of it, or None
        after the last."""
        if lane == "spec":
            return self.shown.next(self.runs[lane])
        r = next(self.runs[lane], None)
        return r and dict(tokens=r.tokens, text=[self.stream([t] if t not in self.encoder.ends else [])
                                                 for t in r.tokens])

    @as_json
    def costs(self):
        """{c, v}: what a draft (of a tree: a level) costs, and a pass over the most rows, in steps of the
        target alone; medians of the last run.  None for what did not happen."""
        draft, target, alone = self.timed
        step, drafting = alone.seconds(1), [seconds for _, seconds in draft.calls[1:]] if draft else []
        draft_seconds = median(drafting) if drafting else self.proposing.seconds(1)
        return dict(c=ratio(draft_seconds, step), v=ratio(target.seconds(self.most), step))

    @as_json
    def judge(self, request):
        """lossless.Report about the code in the editor, as a dict."""
        return judged(**json.loads(request))


def recorded(settings):
    """Runs a race now and returns it as the page shows it."""
    live, rounds = Live(), {"alone": [], "spec": []}
    about = json.loads(live.start(json.dumps(settings)))
    for lane, done in rounds.items():
        while found := json.loads(live.advance(lane)):
            done.append(found)
    return dict(about=about, settings=settings, **rounds)


# The rule ---------------------------------------------------------------------------------------------------

def typed(code):
    """Runs the editor's code.  Returns {"rule": a class}, or the functions {"propose": .., "verify": ..}."""
    from lossless.verdicts import rules  # not at the top: a race without the editor's code begins sooner
    names = vars(sampling) | vars(speculative) | vars(rules) | dict(__name__="editor")
    exec(compile(code, EDITOR, "exec"), names)
    classes = [value for value in names.values() if getattr(value, "__module__", "") == "editor"
               and isinstance(value, type)]
    found = {name: names[name] for name in ("propose", "verify")
             if getattr(names[name], "__module__", "") == "editor"}
    if not classes and not found:
        raise ValueError("the code defines neither propose nor verify, nor a subclass of Algorithm2 or Tree")
    return {"rule": classes[-1]} if classes else found


def judged(code, settings=None, penalty=False, disputed=False):
    """lossless.Report, as a dict, about this code.  What its `verify` returns is checked as in a race.

    disputed    judge it on the models of lossless/verdicts/, with these settings
    penalty     the target has a repetition penalty
    """
    import lossless
    from lossless.verdicts import museum, reports
    own = typed(code)
    if "verify" in own:
        own["verify"] = checked_rule(own["verify"])
    sampler = museum.sampler(checked(own["rule"])) if "rule" in own else (
        partial(speculative_sampling, **own))
    if not disputed:
        return lossless.report(sampler)._asdict()
    for found in reports(sampler, settings or {}, penalty):
        if not found.lossless:
            break
    return found._asdict()


def checked(rule):
    """The rule's class, but what its `verify` returns is checked.  (The walk of a tree is its own.)"""
    verify = getattr(rule, "verify", None)
    return type(rule.__name__, (rule,), {"verify": lambda self, *run: checked_rule(
        partial(verify, self))(*run)}) if verify else rule


def sentence(error):
    """The error as one sentence, with the line number if the editor's code raised it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == EDITOR]
    if isinstance(error, SyntaxError):
        lines = [error.lineno]
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return (f"line {lines[-1]}: " if lines else "") + kind + " ".join(str(error).split())


def openings():
    """[{group, name, code, wrong, ..}, ..]"""
    from lossless.verdicts import CASES, museum
    for function in speculative.verify, speculative.propose:
        yield dict(group="Algorithm 2", name=function.__name__, code=without_docstring(function), wrong=False)
    for case in CASES:
        yield dict(group="disputed: " + case.verdict.replace("wrong", "not lossless"), name=case.name,
                   code=code_of(case.rule), wrong=case.verdict == "wrong", settings=case.settings,
                   penalty=case.penalty, disputed=True, claim=case.claim, link=case.link,
                   thread=case.thread)
    for group, table in (
            ("mistakes that are easily made", museum.WRONG), ("right, though it looks wrong", museum.RIGHT)):
        for name in table:
            yield dict(group=group, name=name, code=code_of(name), wrong=table is museum.WRONG)


def paper():
    """{function or method: its source}: Algorithm 2, with which the editor's code is compared."""
    from lossless.verdicts.rules import Algorithm2
    methods = [value for value in vars(Algorithm2).values() if inspect.isfunction(value)]
    return ({"    " + method.__name__: inspect.getsource(method) for method in methods}
            | {function.__name__: without_docstring(function)
               for function in (speculative.verify, speculative.propose)})


def without_docstring(function):
    source = source_of(function)
    return "\n".join([source["lines"][0], *source["lines"][source["doc"][1] + 1:]]) + "\n"


def code_of(name):
    """The source of the rule's class, after those of other classes of museum.py that it inherits from."""
    from lossless.verdicts import museum, rules
    own = [cls for cls in museum.RULES[name].__mro__[::-1]
           if cls.__module__.startswith("lossless.verdicts") and cls.__name__ not in vars(rules)]
    return "\n\n".join(sources(cls.__module__)[cls.__name__] for cls in own or [museum.RULES[name]])


@cache
def sources(module):
    """{class: its source}; inspect.getsource would parse the file again for each."""
    text = inspect.getsource(sys.modules[module])
    lines = text.splitlines(keepends=True)
    return {node.name: "".join(lines[node.lineno - 1:node.end_lineno]) for node in ast.parse(text).body
            if isinstance(node, ast.ClassDef)}
