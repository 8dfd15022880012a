"""The bundled pair on the page: index.html runs this file and its imports, unchanged, in Pyodide.

    live = Live()
    live.start('{"prompt": "The fox", "K": 4, ..}')    begin two runs: the target alone, and speculation
    live.advance('{"lane": "spec"}')                    the next target pass of that run, or of "alone"
    live.costs()                                        c and v, as measured during these runs
    live.judge('{"code": "def verify(..", ..}')         is the code in the editor lossless?
    openings()                                          what can be opened in the editor

The methods take their arguments as JSON and return JSON; an error is returned as one sentence under "error".
The code in the editor can use the names of lossless/verdicts/rules.py, sampling.py and speculative.py.  It
defines `propose`, `verify` or both, or else a subclass of Algorithm2 or Tree; if several, the last counts.

Limitations: one text at a time.  The judge stops at the first case that is wrong;
python -m lossless --thorough searches longer.
"""
import copy
import inspect
import json
import traceback
from functools import cache, partial

import numpy as np

import sampling
import speculative
from autoregressive import autoregressive_sampling
from engine.loading.user_file import checked_rule
from engine.reporting.runs import Run
from engine.reporting.stats import Timed, time_drafting
from methods.explain import costs_of
from methods.table import Models, choose, prepare
from pages.rounds import EDITOR, Coins, Shown, source_of, texts
from speculative import speculative_sampling


def as_json(method):
    """Decorates a method: it takes and returns JSON, and an error becomes a sentence under "error"."""
    def answer(self, request="{}"):
        try:
            return json.dumps(method(self, **json.loads(request)))
        except Exception as error:                      # the editor's code can raise anything
            return json.dumps(dict(error=sentence(error)))
    return answer


class Live:
    progress = staticmethod(lambda share: None)         # the page puts its own here, for the judge

    def __init__(self):
        self.models = Models("demo-draft", "demo-target")
        self.encoder, self.runs = self.models.encoder, {}
        self.baseline = copy.deepcopy(self.models.target)       # the same weights, a cache of its own

    @as_json
    def start(self, prompt, n_tokens, K, temperature, top_p, seed, drafter, verifier, code=""):
        """Begins a race.  Returns what the page shows of it besides the rounds."""
        tokens, coins = self.encoder.encode(prompt) or self.encoder.start, Coins(np.random.default_rng(seed))
        settings = dict(temperature=temperature, top_p=top_p, eos=self.encoder.eos)
        choice = choose(drafter, "token" if code else verifier)
        self.method = method = prepare(choice, self.models, tokens, K, settings, time_drafting)
        draft, target, alone = self.timed = [
            model and Timed(model) for model in (method.draft, method.target, self.baseline)]
        method.reset()
        alone.reset()
        sampler = load_rule(code, method.propose)() if code else method.sampler
        self.shown = Shown(self.encoder, coins, sampler, trace=False, code=code, tree=bool(method.shape))
        self.runs = dict(spec=sampler(draft, target, tokens, n_tokens, method.K, coins, **settings), alone=(
            autoregressive_sampling(alone, tokens, n_tokens, np.random.default_rng(seed), **settings)))
        self.texts = texts(self.encoder)
        return self.shown.about(method) | (dict(edited=True, lossless=None) if code else {})

    @as_json
    def advance(self, lane):
        """Runs the next target pass of a run ("alone" or "spec").  Returns what is shown of it, or None
        after the last."""
        if lane == "spec":
            return self.shown.next(self.runs[lane])
        r = next(self.runs[lane], None)
        return r and dict(tokens=r.tokens, text=self.texts(r.tokens))

    @as_json
    def costs(self):
        """{c, v} of the last race, as python -m methods measures them; None for what did not happen."""
        draft, target, alone = self.timed
        c, v = costs_of(Run([], [], None, alone), Run([], [], draft, target), self.method)
        return dict(c=c, v=v)

    @as_json
    def judge(self, code, settings=None, penalty=False, disputed=False):
        """lossless.Report, as a dict, about this code.

        disputed    judge it on the models of lossless/verdicts/, with these settings
        penalty     the target has a repetition penalty
        """
        import lossless  # not at the top: a race begins sooner
        from lossless.judge import CASES
        from lossless.verdicts import museum, reports
        sampler, seen = museum.sampler(load_rule(code)), set()

        def watched(draft, target, tokens, *run, **settings):
            seen.add(tuple(tokens))                             # each standard case has a prompt of its own
            self.progress(len(seen) / len(CASES))
            return sampler(draft, target, tokens, *run, **settings)

        if not disputed:
            return lossless.report(watched)._asdict()
        for found in reports(watched, settings or {}, penalty):
            if not found.lossless:
                break
        return found._asdict()


def record(settings):
    """Runs a race now and returns it as the page shows it."""
    live, rounds = Live(), {"alone": [], "spec": []}
    about = json.loads(live.start(json.dumps(settings)))
    for lane, done in rounds.items():
        while found := json.loads(live.advance(json.dumps(dict(lane=lane)))):
            done.append(found)
    return dict(about=about, settings=settings, **rounds)


# The rule ---------------------------------------------------------------------------------------------------

def load_rule(code, propose=speculative.propose):
    """Runs the editor's code.  Returns a function without arguments that makes its sampler, whose `verify` is
    checked: it must return what Algorithm 2 does.

    propose     drafts if the code defines no function of this name
    """
    from lossless.verdicts import rules  # not at the top: a race without the editor's code begins sooner
    names = vars(sampling) | vars(speculative) | vars(rules) | dict(__name__="editor")
    exec(compile(code, EDITOR, "exec"), names)
    own = {name: value for name, value in names.items() if getattr(value, "__module__", "") == "editor"}
    classes = [value for value in own.values() if isinstance(value, type)]
    if classes:
        return lambda: checked(classes[-1]())
    if not own.keys() & {"propose", "verify"}:
        raise ValueError("the code defines neither propose nor verify, nor a subclass of Algorithm2 or Tree")
    propose, verify = own.get("propose", propose), own.get("verify", speculative.verify)
    return lambda: partial(speculative_sampling, propose=propose, verify=checked_rule(verify))


def checked(rule):
    """The rule; what its `verify` returns is checked from now on.  (A rule for trees has none: it walks.)"""
    if hasattr(rule, "verify"):
        rule.verify = checked_rule(rule.verify)
    return rule


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
                   code=code_of(museum.RULES[case.rule]), wrong=case.verdict == "wrong",
                   settings=case.settings, penalty=case.penalty, disputed=True, claim=case.claim,
                   link=case.link, thread=case.thread)
    for name, rule in museum.RULES.items():
        group = "right, though it looks wrong" if rule.lossless else "mistakes that are easily made"
        yield dict(group=group, name=name, code=code_of(rule), wrong=not rule.lossless)


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


@cache
def code_of(rule):
    """The source of the rule's class, after those of other classes of museum.py that it inherits from."""
    from lossless.verdicts import rules
    own = [cls for cls in rule.__mro__[::-1]
           if cls.__module__.startswith("lossless.verdicts") and cls.__name__ not in vars(rules)]
    return "\n\n".join(map(inspect.getsource, own or [rule]))
