"""A round of a run -> what a page shows of it: text, drafts, and the lines that ran, with their values.

    coins = Coins(rng)
    shown = Shown(encoder, coins, propose, verify)
    shown.about()                       the functions, as they are in their files
    run = speculative_sampling(.., coins, propose=propose, verify=verify)
    shown.next(run)                     the next round, a dict for JSON; None after the last

sys.settrace notes the lines while they run, so any rule can be shown.  The letters are Chen's: q the target,
p the draft.

Limitations: if a method has a loop of its own (a tree, `coupled`), its drafts and what became of them are
shown, but no lines.  Tracing makes a round seem about a twentieth longer than it is.
"""
import ast
import inspect
import re
import sys
import textwrap
from pathlib import Path

import numpy as np

from compute.backend import clock
from reporting.stats import Timed, is_tree, taken
from sampling import sample
from speculative import speculative_sampling

EDITOR = "<editor>"                                     # the file name of code that was typed into a page
N_TOP = 6                                               # tokens of a distribution that are shown
UNSEEN = "yield ", "draft_probs=p)"                     # lines of the loop that are not worth showing

LOOP = next(code for code in speculative_sampling.__code__.co_consts if inspect.iscode(code))
STEPS = [           # Algorithm 2 of Chen et al., and the lines of speculative.py that do it
    ("while n < T", ["while len(x) < T:"]),
    ("for t = 1 .. K: sample x̃ₜ ~ p(· | x₁ .. xₙ, x̃₁ .. x̃ₜ₋₁)",
     ["for _ in range(k):", "p.append(to_probs(draft(x + drafts), 1)[0])",
      "drafts.append(sample(p[-1], rng))"]),
    ("in parallel, compute K + 1 sets of logits q(· | ..)",
     ["q = to_probs(target(x + drafts, k + 1), k + 1)"]),
    ("for t = 1 .. K: sample r ~ U[0, 1]; if r < min(1, q(x̃ₜ) / p(x̃ₜ)) accept",
     ["for j, token in enumerate(drafts):", "q, p = target_probs[j], draft_probs[j]",
      "if rng.random() * p[token] < q[token]:", "continue"]),
    ("else sample from (q − p)₊ and leave the loop",
     ["residual = np.maximum(q - p, 0)", "return j, sample(residual if residual.any() else q, rng)"]),
    ("if all are accepted, sample one more from q(· | .., x̃₁ .. x̃ₖ)",
     ["return len(drafts), sample(target_probs[-1], rng)"]),
]


class Coins:
    """A numpy.random.Generator that remembers the numbers it gave."""

    def __init__(self, rng):
        self.rng, self.seen = rng, []

    def __getattr__(self, name):
        def drawn(*arguments, **options):
            value = getattr(self.rng, name)(*arguments, **options)
            self.seen.append(value)
            return value
        return drawn


def untraced(function):
    """The function, but its calls are not traced: tracing makes a model a fifth slower."""
    def called(*arguments):
        traced = sys.gettrace()
        sys.settrace(None)
        try:
            return function(*arguments)
        finally:
            sys.settrace(traced)
    return called


class Untraced(Timed):
    """A model whose calls are not traced."""

    def timed(self, call, *arguments):
        return untraced(call)(*arguments)


class Lines:
    """A trace function for sys.settrace.  `steps` collects each line of the code as it ran, with its values;
    `seconds` is the time this took."""

    def __init__(self, sources, coins, n_vocab):
        self.of = {source["code"]: i for i, source in enumerate(sources) if source["code"]}
        self.typed = next((i for i, source in enumerate(sources) if source["file"] == EDITOR), None)
        self.sources, self.coins, self.n_vocab = sources, coins, n_vocab
        self.steps, self.open, self.draw, self.seconds = [], {}, None, 0.0

    def __call__(self, frame, event, _):
        code = frame.f_code
        if code is sample.__code__ and self.steps:
            self.draw = dict(probs=np.array(frame.f_locals["probs"]), before=len(self.coins.seen))
            return self.drawn
        if code in self.of or (code.co_filename == EDITOR and not code.co_name.startswith("<")):
            return self.line
        return None

    def drawn(self, frame, event, token):
        if event == "return" and token is not None:
            probs = self.draw["probs"] / self.draw["probs"].sum()
            [u] = self.coins.seen[self.draw["before"]:] or [None]
            del self.coins.seen[self.draw["before"]:]
            start = probs[:token].sum()
            for step in [*self.open.values()][-1:]:                     # the line that called it
                step["draw"] = dict(token=int(token), u=u, probs=probs, start=short(start),
                                    end=short(start + probs[token]))
        return self.drawn

    def line(self, frame, event, value):
        began = clock()
        if before := self.open.pop(id(frame), None):
            try:
                self.fill(before, frame, value if event == "return" else None)
            except Exception:                           # a user's function can hold anything
                self.forget(before)
        if event == "line":
            source = self.of.get(frame.f_code, self.typed)
            line = frame.f_lineno - self.sources[source]["first"]
            step = dict(source=source, line=line, facts=[], before=len(self.coins.seen))
            self.open[id(frame)] = step
            self.steps.append(step)
        self.seconds += clock() - began
        return self.line

    def fill(self, step, frame, value):
        """Adds to a step what the names on its line hold afterwards."""
        names, series = frame.f_locals, {}
        text = self.sources[step["source"]]["lines"][step["line"]].split("#")[0].strip()
        shown = text if self.steps[-1] is step else text.split(" = ")[-1]   # only what the call was given
        for name in dict.fromkeys(re.findall(r"(?<![\w.'\"])[^\W\d_]\w*", shown)):
            if name in names:
                self.note(name, names[name], step["facts"], series, f"{name}.append" in text)
        x = next((names[name] for name in ("token", "x") if self.is_id(names.get(name))), None)
        coins = self.coins.seen[step.pop("before"):]
        q, p = names.get("q"), names.get("p")
        if len(coins) == 1 and x is not None and self.is_row(q) and self.is_row(p):
            series = {"q": q, "p": p}
            step["test"] = dict(u=coins[0], q=short(q[x]), p=short(p[x]),
                                ratio=min(1.0, float(q[x] / p[x])) if p[x] else 1.0)
        elif self.steps[-1] is step:
            step["facts"] += [["u", short(coin)] for coin in coins if np.ndim(coin) == 0]
        if draw := step.get("draw"):
            series, x = {"drawn from": draw.pop("probs")}, draw["token"]
        if value is not None and text.startswith("return"):
            if isinstance(value, tuple) and [*map(self.is_id, value)] == [True, True]:
                step["facts"] += [["n_accepted", int(value[0])], ["next_token", {"tokens": [int(value[1])]}]]
        same = next((s for s in reversed(self.steps[:-1]) if s["line"] == step["line"]), None)
        if text.startswith(UNSEEN) or text.startswith("for ") and same and same["facts"] == step["facts"]:
            self.forget(step)                           # the end of a loop
        if series:
            step["chart"] = dict(series=[*series], marked=x, rows=rows([*series.values()], [x], N_TOP))

    def forget(self, step):
        self.steps = [other for other in self.steps if other is not step]

    def of_a_round(self):
        """The steps, from the loop's `while` line on."""
        texts = [self.sources[step["source"]]["lines"][step["line"]].strip() for step in self.steps]
        first = next((i for i, text in enumerate(texts) if text.startswith("while ")), 0)
        return [{key: value for key, value in step.items() if key != "before"} for step in self.steps[first:]]

    def is_id(self, value):
        return (isinstance(value, (int, np.integer)) and not isinstance(value, bool)
                and 0 <= value < self.n_vocab)

    def is_row(self, value):
        return isinstance(value, np.ndarray) and value.shape == (self.n_vocab,)

    def note(self, name, value, facts, series, grows):
        rows_of = isinstance(value, (list, np.ndarray)) and len(value) and all(map(self.is_row, value))
        if self.is_row(value) or rows_of and grows:
            series[name] = value[-1] if rows_of else value
        elif rows_of:
            facts.append([name, f"{len(value)} distribution{'s' * (len(value) > 1)}"])
        elif isinstance(value, list) and all(map(self.is_id, value)):
            facts.append([name, {"tokens": [int(token) for token in value[-8:]], "of": len(value)}])
        elif self.is_id(value) and name in ("token", "next_token", "x"):
            facts.append([name, {"tokens": [int(value)]}])
        elif isinstance(value, (int, float, np.number)):
            facts.append([name, int(value) if self.is_id(value) else short(value)])


class Shown:
    """What is shown of one run.

    coins       a Coins, the run's random generator
    propose, verify     as in speculative_sampling; if verify is None, no lines are shown
    loop        the function or generator that calls them
    code        the text of the editor, if propose or verify comes from there
    """

    def __init__(self, encoder, coins, propose, verify, *, loop=LOOP, tests_all=False, code=""):
        self.encoder, self.coins, self.tests_all, self.stream = encoder, coins, tests_all, encoder.stream()
        propose = getattr(propose, "propose", propose)          # of a TimedDrafter
        shown = [propose, verify, loop] if verify else []
        self.sources = [source for source in map(source_of, shown) if source]
        self.beside_paper = {source["file"] for source in self.sources} == {"speculative.py"}
        if code:
            lines = code.expandtabs(4).split("\n")
            self.sources.insert(-1, dict(name="your code", file=EDITOR, first=1, lines=lines, code=None,
                                         doc=None))
        for source in self.sources:
            source["paper"] = [next((i for i, (_, parts) in enumerate(STEPS) if line.strip().startswith(
                tuple(parts))), None) for line in source["lines"]]

    def about(self):
        """For JSON: the sources, and the steps of Algorithm 2 if all sources but the editor's are in
        speculative.py."""
        kept = ("name", "file", "first", "lines", "doc", "paper")
        return dict(sources=[{key: source[key] for key in kept} for source in self.sources],
                    steps=[text for text, _ in STEPS] if self.beside_paper else [])

    def next(self, run):
        """Runs the next round -> what is shown of it, with its seconds; None after the last."""
        self.coins.seen.clear()
        lines, traced, began = Lines(self.sources, self.coins, self.encoder.n_vocab), sys.gettrace(), clock()
        sys.settrace(lines if self.sources else None)
        try:
            r = next(run, None)
        finally:
            sys.settrace(traced)
        seconds = round(clock() - began - lines.seconds, 5)
        return r and self.round(r, lines) | dict(seconds=seconds)

    def round(self, r, lines):
        last = None
        if len(r.tokens) > r.n_accepted:
            end = (taken(r) or [-1])[-1] if is_tree(r) else None
            rejected = r.n_accepted < len(r.drafts) if end is None else end in r.parents
            last = dict(token=int(r.tokens[-1]), kind="correction" if rejected else "bonus")
        found = dict(tokens=[int(token) for token in r.tokens], kept=r.n_accepted, last=last,
                     text=[self.stream([token] if token != self.encoder.eos else []) for token in r.tokens])
        if is_tree(r):
            path = taken(r)
            found["nodes"] = [dict(token=int(x), parent=parent, q=short(r.target_probs[parent + 1][x]),
                                   taken=i in path) for i, (x, parent) in enumerate(zip(r.drafts, r.parents))]
        else:
            found["drafts"] = [
                dict(token=int(x), q=short(q[x]), p=short(p[x]), verdict=self.verdict(r, j, last))
                for j, (x, q, p) in enumerate(zip(r.drafts, r.target_probs, r.draft_probs))]
            found["steps"] = lines.of_a_round()
        found["names"] = {token: self.encoder.to_bytes(token).decode("utf-8", errors="backslashreplace")
                          for token in sorted(ids_in(found))}
        return found

    def verdict(self, r, j, last):
        if j < r.n_accepted:
            return "accepted"
        if last is None:
            return "after the end"
        return "rejected" if j == r.n_accepted or self.tests_all else "not tested"


def source_of(function):
    """{name, file, first (its line number), lines, code, doc (the docstring's first and last line, from 0)};
    None if the function is in no file."""
    code = function if inspect.iscode(function) else getattr(inspect.unwrap(function), "__code__", None)
    if not code or not Path(code.co_filename).exists():
        return None
    lines, first = inspect.getsourcelines(code)
    text = textwrap.dedent("".join(lines))
    start = ast.parse(text).body[0].body[0]
    doc = [start.lineno - 1, start.end_lineno - 1] if ast.get_docstring(ast.parse(text).body[0]) else None
    path = Path(code.co_filename)
    file = f"{path.parent.name}/{path.name}" if path.parent.name in ("drafters", "samplers") else path.name
    name = "the loop" if code.co_name in ("rounds", "__call__") else code.co_name
    return dict(name=name, file=file, first=first, code=code, doc=doc, lines=text.rstrip("\n").split("\n"))


def short(x):
    return float(f"{x:.4g}")


def rows(distributions, marked, n_top):
    """[[token, *its probability in each], ..]: the n_top likeliest tokens of each distribution and the marked
    tokens, likeliest first; then [None, ..], the sums over all others.

    >>> rows([np.array([.5, .25, .125, .125])], [3], n_top=1)
    [[0, 0.5], [3, 0.125], [None, 0.375]]
    """
    probs = np.stack(distributions)                                     # [n, n_vocab]
    best = np.argsort(-probs, axis=-1, kind="stable")[:, :n_top]
    kept = np.unique([*best.ravel(), *(token for token in marked if token is not None)]).astype(int)
    kept = kept[probs[:, kept].any(axis=0) | np.isin(kept, [token for token in marked if token is not None])]
    kept = kept[np.argsort(-probs[:, kept].max(axis=0), kind="stable")]
    others = np.maximum(probs.sum(axis=-1) - probs[:, kept].sum(axis=-1), 0)
    columns = [*probs[:, kept].T, others]
    return [[token, *map(short, column)] for token, column in zip([*kept.tolist(), None], columns)]


def ids_in(found):
    """The ids of all tokens in what is shown of a round."""
    ids = [*found["tokens"], *(part["token"] for part in [*found.get("drafts", []), *found.get("nodes", [])])]
    for step in found.get("steps", []):
        ids += [token for _, fact in step["facts"] if isinstance(fact, dict) for token in fact["tokens"]]
        ids += [row[0] for row in step.get("chart", {"rows": []})["rows"] if row[0] is not None]
    return {*ids}
