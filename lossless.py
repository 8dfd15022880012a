"""Is a sampler lossless?  Its exact output distribution, and how far it is from the target's.  Nothing is
sampled here.

A sampler is run with a `Walk` in the place of its random generator.  `random()` then returns a uniform
number of which only an interval is known, [0, 1) at first.  Wherever the program compares that number (with
an accept ratio, with a cumulative sum) the interval is cut in two, and `exact_distribution` runs the
program once for each side.  So every branch is walked, and its probability is the product of the lengths of
its intervals.  Nothing in the program is replaced, and a mistake that shows in one text of a million is
found like any other.

An idea of your own, a drafter that always proposes token 1 twice, is checked in three lines (`python -m
lossless` prints the standard cases for speculative.py itself):

>>> def ones(draft, x, k, to_probs, rng): return [1, 1][:k], None          # None: point masses
>>> from speculative import speculative_sampling
>>> check(lambda *run, **settings: speculative_sampling(*run, propose=ones, **settings), Ks=[2]) < 1e-12
True

But: what is walked is a sampler on models of a few tokens, not its speed nor its text on large ones.

- The standard cases reach eight drafts, eleven rounds and eighteen tokens, but do not test every draft of a
  round of every length.  `thorough=True` takes minutes: it tests every draft in rounds of up to eight, and
  any two places in texts of up to fifteen tokens.  What is wrong only beyond, or only for a ratio between .90
  and .91, no finite check can see; nor a tree of another shape than the sampler makes of K.
- A random number may be shifted, scaled, put through `log` or `exp`, and compared with numbers and arrays,
  but not with another one: a race of exponentials or Gumbel noise cannot be walked, nor a loop that only
  chance ends.  What happens at exactly u = 0 is not seen.
- A loop that neither draws nor asks a model nor yields is not noticed.  A top_p that is exactly a sum of
  probabilities is decided by rounding.
"""
import copy
import functools
import itertools
import sys
from collections import defaultdict
from inspect import isfunction
from numbers import Integral
from typing import NamedTuple

import numpy as np

from checks import checked_rule

BRANCHES = 1_000_000    # of a sampler, after which it is too much work
STEPS = 5_000           # random numbers, calls of a model or rounds in one run, after which it never ends
ENOUGH = 200_000        # such steps in all runs of a standard case: its other branches are left out
WRONG = 1e-9            # a deviation that is not rounding


# Walking every branch ---------------------------------------------------------------------------------------

def exact_distribution(run):
    """run(rng) -> outcome.  Returns {outcome: probability} over everything that `rng` could give.

    `run` must be the same each time: a drafter with a memory is made anew in it.
    Raises ValueError for a run that never ends, that does not repeat itself, or that asks for what cannot be
    walked.

    >>> exact_distribution(lambda rng: "heads" if rng.random() < .25 else "tails")
    {'heads': 0.25, 'tails': 0.75}
    >>> exact_distribution(lambda rng: rng.choice(3, p=[.5, .25, .25]))
    {0: 0.5, 1: 0.25, 2: 0.25}
    """
    distribution = defaultdict(float)
    for outcome, walk in branches(run):
        distribution[outcome] += walk.probability
    return dict(distribution)


def branches(run):
    """Yields (outcome, walk) of each branch, as it is walked."""
    path = []                                       # (left?, the chance of the left) of each fork so far
    for _ in range(BRANCHES):
        walk = Walk(path)
        outcome = run(walk)
        if len(walk.taken) < len(path):
            raise ValueError(NOT_REPEATED)
        yield outcome, walk
        path = walk.taken
        while path and not path[-1][0]:             # the last fork that was taken to the left is next taken
            path.pop()                              # to the right
        if not path:
            return
        path[-1] = False, path[-1][1]
    raise ValueError(f"there are more than {BRANCHES:,} branches: take fewer tokens or a smaller vocabulary")


NOT_REPEATED = ("the sampler did not repeat itself: it remembers something between runs (make it anew in "
                "each), or it has a random generator of its own (draw from the one that it is given)")
NOT_WALKED = ("a random number was {}: that cannot be walked. Compare each with a probability or a "
              "cumulative sum, or draw with rng.choice(n, p=p)")


class Walk:
    """In the place of a numpy.random.Generator.  Repeats the forks of `path`, then turns left."""

    def __init__(self, path):
        self.path, self.taken, self.probability, self.steps = path, [], 1.0, 0

    def fork(self, chance_left):
        n = len(self.taken)
        left, before = self.path[n] if n < len(self.path) else (True, chance_left)
        if abs(before - chance_left) > 1e-6:
            raise ValueError(NOT_REPEATED)
        self.taken.append((left, chance_left))
        self.probability *= chance_left if left else 1 - chance_left
        return left

    def step(self):
        self.steps += 1
        if self.steps > STEPS:
            raise ValueError(f"the sampler has made {STEPS:,} steps (random numbers, calls of a model, "
                             "rounds) and goes on: it never ends")

    def several(self, size, draw):
        """One, or an array of the shape `size`."""
        if size is None:
            return draw()
        return np.array([draw() for _ in range(np.prod(size, dtype=int))]).reshape(size)

    def random(self, size=None, dtype=float):
        return self.several(size, lambda: Uniform(self))

    def uniform(self, low=0.0, high=1.0, size=None):
        low, high = (np.asarray(bound)[()] for bound in (low, high))            # a number, or an array
        size = np.broadcast(low, high).shape or None if size is None else size
        return low + (high - low) * self.several(size, lambda: Uniform(self))

    def integers(self, low, high=None, size=None, dtype=int, endpoint=False):
        low, high = (0, low) if high is None else (low, high)
        if np.ndim(low) or np.ndim(high):
            raise ValueError(NOT_WALKED.format("drawn between bounds that are arrays"))
        if high - low > STEPS:
            raise ValueError(NOT_WALKED.format(f"one of {high - low:,} integers"))
        weights = np.ones(high - low + endpoint)
        return self.several(size, lambda: low + self.index(weights))

    def choice(self, a, size=None, replace=True, p=None):
        values = np.arange(a) if isinstance(a, Integral) else np.asarray(a)
        p = np.asarray(np.ones(len(values)) / len(values) if p is None else p)
        weights, slack = p.astype(float), np.finfo(np.result_type(p, np.float16)).eps ** .5     # as NumPy's
        n = 1 if size is None else np.prod(size, dtype=int)
        if weights.shape != values.shape or not ((weights >= 0).all() and abs(weights.sum() - 1) < slack):
            raise ValueError(f"rng.choice was called with p = {p} for {len(values)} values: give each a "
                             "probability, and let their sum be 1")
        if not replace and np.count_nonzero(weights) < n:
            raise ValueError(f"rng.choice cannot draw {n} values without replacement from p = {weights}")

        def draw():
            i = self.index(weights)
            if not replace:
                weights[i] = 0
            return values[i].item()
        return self.several(size, draw)

    def index(self, weights):
        """i with the probability weights[i] / sum."""
        self.step()
        *likely, last = np.flatnonzero(weights).tolist()
        for i in likely:
            if self.fork(float(weights[i] / weights[i:].sum())):
                return i
        return last

    def __reduce_ex__(self, protocol):              # copy and pickle call this
        raise ValueError("the judge cannot walk a copy of rng: draw from the one that is given")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise ValueError(f"the judge cannot walk rng.{name}: draw with rng.random, uniform, integers or "
                         "choice")


class Uniform(np.lib.mixins.NDArrayOperatorsMixin):
    """A number that is made of u, uniform in `interval`: it is below c if u is below cut(c), or above if it
    `falls` as u grows.  All that is made of one u shares the interval."""

    def __init__(self, walk, interval=None, cut=float, falls=False):
        self.walk, self.interval, self.cut, self.falls = walk, interval or [0.0, 1.0], cut, falls
        if interval is None:
            walk.step()

    def made(self, inverse, falls=False):
        """What is below c if this number is below inverse(c), or above if it `falls` as this one grows."""
        return Uniform(self.walk, self.interval, lambda c: self.cut(inverse(c)), self.falls != falls)

    def below(self, c):
        cut, (low, high) = self.cut(float(c)), self.interval
        if cut != cut:
            raise ValueError("a random number was compared with NaN: a distribution holds NaN")
        if cut <= low or cut >= high:
            return (cut >= high) != self.falls
        below = self.walk.fork((cut - low) / (high - low))
        self.interval[below] = cut                  # True is 1: u is below the cut
        return below != self.falls

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        """NumPy calls this for every operator and function."""
        in_place = [*options] == ["out"] and options["out"][0] is self          # u -= w
        if method != "__call__" or options and not in_place:                    # out=, where=, ..
            raise ValueError(NOT_WALKED.format(
                f"put through np.{ufunc.__name__} with {', '.join(options) or method}"))
        if any(isinstance(x, np.ndarray) for x in inputs):
            rows = np.broadcast(*(np.asarray(x, dtype=object) for x in inputs))
            return np.array([ufunc(*row) for row in map(without_nan, rows)]).reshape(rows.shape)
        left, others = inputs[0] is self, [x for x in inputs if x is not self]
        if any(isinstance(x, Uniform) for x in others):
            raise ValueError(NOT_WALKED.format("compared or combined with another"))
        if len(inputs) == 2 and not others:         # u - u, u / u, u < u: the same for every u
            first, second = ufunc(.25, .25), ufunc(.75, .75)
            if first != second:
                raise ValueError(NOT_WALKED.format("combined with itself"))
            return first
        return self.answer(ufunc.__name__, left, *others)

    def answer(self, name, left, a=None):
        """An operator, with this number on the left of `a` or on the right."""
        match name:
            case "equal" | "not_equal":             # equality with a number has probability 0
                return name == "not_equal"
            case "less" | "less_equal":
                return self.below(a) == left
            case "greater" | "greater_equal":
                return self.below(a) != left
            case "negative":
                return self.made(lambda c: -c, falls=True)
            case "add":
                return self.made(lambda c: c - a)
            case "subtract":
                return self.made(lambda c: c + a) if left else self.made(lambda c: a - c, falls=True)
            case "multiply" if a != 0:
                return self.made(lambda c: c / a, falls=a < 0)
            case "multiply":
                return 0.0
            case "divide" if not left and a == 0:
                return 0.0
            case "divide" if left:
                return self.made(lambda c: c * a, falls=a < 0)
            case "log" if self.is_positive():
                return self.made(lambda c: np.exp(min(c, 700)))
            case "log1p":
                return np.log(1 + self)
            case "exp":
                return self.made(lambda c: np.log(c) if c > 0 else -np.inf)
            case "divide" if self.is_positive() and a > 0:
                return self.made(lambda c: a / c if c > 0 else np.inf, falls=True)
        raise ValueError(NOT_WALKED.format(f"put through np.{name}"))

    def __lt__(self, c):                            # short cuts: NumPy's way round takes five times as long
        return self.below(c) if isinstance(c, float) else super().__lt__(c)

    def __gt__(self, c):
        return not self.below(c) if isinstance(c, float) else super().__gt__(c)

    def __mul__(self, a):
        return self.answer("multiply", True, a) if isinstance(a, float) else super().__mul__(a)
    __rmul__ = __mul__

    def is_positive(self):
        zero, (low, high) = self.cut(0.0), self.interval
        return zero >= high if self.falls else zero <= low

    def log(self):                                  # NumPy calls these three for arrays of such numbers
        return np.log(self)

    def log1p(self):
        return np.log1p(self)

    def exp(self):
        return np.exp(self)

    def __int__(self):
        if not self >= 0:
            raise ValueError(NOT_WALKED.format("rounded below 0"))
        cut, (low, high) = self.cut(float(STEPS)), self.interval
        if low < cut if self.falls else cut < high:
            raise ValueError(NOT_WALKED.format(f"made one of more than {STEPS:,} integers"))
        return next(n for n in itertools.count() if self < n + 1)
    __floor__ = __trunc__ = __int__

    def __float__(self):
        raise ValueError(NOT_WALKED.format("made a plain number"))


def without_nan(row):
    """Of an array with NaN somewhere; nobody may ever look at that place."""
    nan = any(isinstance(x, float) and x != x for x in row)
    return [np.nan if isinstance(x, Uniform) else x for x in row] if nan else row


# The target's distribution, from the definition -------------------------------------------------------------

def distribution_of_token(logits, temperature=1.0, top_k=0, top_p=1.0):
    """What sampling.probabilities promises, slowly: logits [n_vocab] -> probabilities [n_vocab].  The
    nucleus is found among all subsets."""
    tokens, logits = range(len(logits)), np.asarray(logits, dtype=float)
    if temperature == 0:
        return np.eye(len(logits))[int(np.argmax(logits))]
    with np.errstate(over="ignore"):
        probs = np.exp((logits - max(logits)) / temperature)
    if top_k:
        larger = [sum(logits[j] > logits[i] for j in tokens) for i in tokens]
        probs = np.array([probs[i] if larger[i] < top_k else 0.0 for i in tokens])
    probs = probs / probs.sum()
    if top_p < 1:
        subsets = (list(s) for n in range(1, len(logits) + 1) for s in itertools.combinations(tokens, n))
        size = len(next((s for s in subsets if probs[s].sum() >= top_p), tokens))
        nucleus = list(max(itertools.combinations(tokens, size), key=lambda s: probs[list(s)].sum()))
        probs = np.isin(tokens, nucleus) * probs / probs[nucleus].sum()
    return probs


def distribution_of_text(model, prompt, n_tokens, eos=None, **settings):
    """{text: probability} of n_tokens tokens after the prompt; fewer where an EOS (`eos`: one id or
    several) ends the text.

    >>> distribution_of_text(memoryless([.5, .25, .25]), [0], 2, eos=[0, 1])[2, 0]
    0.125
    """
    ends = () if eos is None else np.ravel([*eos] if np.iterable(eos) else eos)
    if n_tokens == 0:
        return {(): 1.0}
    distribution = {}
    for token, chance in enumerate(distribution_of_token(model(prompt)[0], **settings)):
        if chance > 0:
            left = 0 if token in ends else n_tokens - 1
            rest = distribution_of_text(model, [*prompt, token], left, eos, **settings)
            distribution |= {(token, *text): float(chance * more) for text, more in rest.items()}
    return distribution


# Models given by tables -------------------------------------------------------------------------------------

def as_model(row):
    """Makes a model of row(prefix, a tuple) -> logits [n_vocab].  Its logits are read-only."""
    row = functools.cache(row)

    def model(tokens, n_last=1):
        assert 1 <= n_last <= len(tokens)
        lengths = range(len(tokens) - n_last + 1, len(tokens) + 1)
        logits = np.array([row(tuple(tokens[:n])) for n in lengths], dtype=float)
        logits.flags.writeable = False
        return logits                               # [n_last, n_vocab]
    return model


def table(seed, zeros=0.0, n_vocab=3):
    """A random distribution after every prefix, in which a token is impossible with probability `zeros`."""
    def row(prefix):
        rng = np.random.default_rng([seed, *prefix])
        logits = rng.normal(scale=1.5, size=n_vocab)
        impossible = rng.random(n_vocab) < zeros
        impossible[rng.integers(n_vocab)] = False
        return np.where(impossible, -np.inf, logits)
    return as_model(row)


def memoryless(probs):
    """A model with the same distribution everywhere."""
    with np.errstate(divide="ignore"):
        logits = np.log(probs)
    return as_model(lambda prefix: logits)


def scripted(text, n_vocab=10):
    """A model that says `text` whatever went before: after n tokens text[n], and text[-1] beyond its end."""
    def row(prefix):
        return np.where(np.arange(n_vocab) == text[min(len(prefix), len(text) - 1)], 0.0, -np.inf)
    return as_model(row)


# The standard cases -----------------------------------------------------------------------------------------

PROMPT = [2, 0]

PAIRS = {                                                           # name: (draft, target)
    "a distribution after every prefix": (table(1), table(2)),
    "zeros in both": (table(3, zeros=.4), table(4, zeros=.4)),
    "zeros in the draft": (table(5, zeros=.5), table(6)),
    "zeros in the target": (table(7), table(8, zeros=.5)),
    "draft is the target": (table(9, zeros=.2), table(9, zeros=.2)),
    "disjoint supports": (as_model(lambda x: np.where(np.arange(3) == sum(x) % 3, 0, -np.inf)),
                          as_model(lambda x: np.where(np.arange(3) == sum(x) % 3, -np.inf, np.arange(3)))),
    "draft is certain": (scripted([1, 2, 0, 1, 1, 0], n_vocab=3), table(10)),
    "target is certain": (table(11), scripted([1, 2, 0, 1, 1, 0], n_vocab=3)),
    "draft knows nothing": (memoryless([1 / 3, 1 / 3, 1 / 3]), table(12)),
}

# Branches are what a case costs, and a position at which both models are certain costs none.  So a model is
# written as a word, a letter for each position of the new text: which tokens the draft and the target can say
# there.  Of five tokens, which every prefix shuffles; the likeliest stands first.
KINDS = {               # letter: (the draft's tokens, the target's)
    ".": ("a", "a"),            # both are certain of the same: sure to be accepted
    "x": ("b", "a"),            # both are certain, and differ: sure to be refused
    "=": ("abc", "abc"),        # the same distribution
    "s": ("cd", "abc"),         # sparse: c is accepted now and then, d never; the residual is a and b
    "b": ("dceb", "abcd"),      # broad: b is sure to stay
    "f": ("bcaed", "abcde"),    # full: all tokens in both
    "m": ("abd", "acb"),        # mild: the likeliest is the same
    "o": ("cd", "ab"),          # disjoint
    "t": ("a", "abc"),          # the draft is certain
    "p": ("ba", "a"),           # the target is certain
    "n": ("abc", "abc"),        # nearly the same distribution: hardly any residual
    "r": ("bdca", "abcde"),     # rare tokens in both
    "2": ("baecd", "abcde"),    # two are equally likely, and two others
}
LOGITS = {              # of the draft's tokens, the target's; of the other kinds they are random
    "n": ([2, 1.01, 0], [2, 1, 0]),
    "r": ([0, -7.5, -9, -12], [0, -2, -7, -10, -13]),
    "2": ([2, 2, 1, 1, 0], [2, 2, 1, 1, 0]),
}


def pair(word, n_prompt=2):
    """(draft, target) of the kinds that the word gives, after a prompt of n_prompt tokens."""
    def model(which):
        def row(prefix):
            kind = word[len(prefix) - n_prompt:][:1] or "."
            seed = [*map(ord, word), *prefix]
            shuffled = dict(zip("abcde", np.random.default_rng(seed).permutation(5)))
            tokens = [shuffled[letter] for letter in KINDS[kind][which]]
            rng = np.random.default_rng([*seed, which if kind != "=" else 2])
            logits = np.full(5, -np.inf)
            random = -np.sort(rng.exponential(size=len(tokens)))
            logits[tokens] = LOGITS[kind][which] if kind in LOGITS else random
            return logits
        return as_model(row)
    return model(0), model(1)


class Case(NamedTuple):
    name: str
    draft: object
    target: object
    n_tokens: int
    K: object
    settings: dict
    prompt: list = PROMPT

    def __str__(self):
        settings = "".join(f", {key} = {value}" for key, value in self.settings.items())
        return f"{self.name}; K = {self.K}, {self.n_tokens} tokens{settings}"


def of_words(K, words, about, prompt=PROMPT, **settings):
    """A case for each word: text of so many tokens as the word has letters."""
    return [Case(f"{word!r}, {about}", *pair(word, len(prompt)), len(word), K, settings, prompt)
            for word in words.split()]


SETTINGS = [dict(temperature=.5), dict(temperature=2.), dict(top_k=1), dict(top_k=2), dict(top_k=3),
            dict(top_k=4), dict(top_k=9), dict(top_p=.4), dict(top_p=.8), dict(top_p=.95),
            dict(temperature=.7, top_k=3, top_p=.8), dict(temperature=2, top_p=.7),
            dict(temperature=.5, top_k=3), dict(temperature=1.5, top_k=2), dict(top_k=4, top_p=.7)]
EOS = [dict(eos=0), dict(eos=[1]), dict(eos={2, 4}), dict(eos=(0, 1, 3)), dict(eos=np.arange(5)),
       dict(eos=[3, 4], temperature=.6), dict(eos=1, top_k=2), dict(eos=[2], temperature=1.5, top_p=.8)]

CASES = [
    Case("no token", *pair(""), 0, 2, {}),
    *of_words(1, "f ff ss bb == oo tm pf xs mf nf rr", "one draft and what follows it"),
    *of_words(4, "f ss s.s", "more drafts allowed than tokens wanted"),
    *of_words(1, "ss.", "another prompt", [1]),
    *of_words(2, "sb.", "another prompt", [4, 0, 3, 1, 4, 2]),
    *of_words(2, ".ss s.s ts. ps. =s. ms. so. bs. ns. rn. .rs sss sb. ff.", "two drafts"),
    *of_words(3, "..sf ss.. s.s. .bs. bf..", "three drafts"),
    *of_words(4, "...sf ss... .ss.. ..bs. s..ss", "four drafts"),
    *of_words(5, "....ss ..s..s", "five drafts"),
    *of_words(6, "..s..ss ....sss", "six drafts"),
    *of_words(7, "......ss ....s.ss", "seven drafts"),
    *of_words(8, "....sss.. .......ss. s.......s.......s .....xss......", "eight drafts"),
    *of_words(1, "..ss x.ss ss.s s.s.s..", "a round after one with a single draft"),
    *of_words(2, "xss. .xss. ...ss. s.s.s..", "a round after one of two drafts"),
    *of_words(2, "......bs. ...x..bs. x.xbs.", "a third round"),
    *of_words(1, "..............ssss", "an eighth round and a ninth"),
    *of_words(3, "x.ss. .xss.. ..xs.s. ....ss.. ss...ss", "a round after one of three drafts"),
    *of_words(4, "xbs... .xbs... ..xbs... ...xbs... .....bs... .....s..ss", "a round after one of four"),
    *of_words(4, "..........ss.", "a round after two of four"),
]
for setting in SETTINGS:
    CASES += of_words(1, "ff", "settings", **setting) + of_words(2, "ff. ...ff.", "settings", **setting)
for setting in dict(top_k=1), dict(top_k=3), dict(top_k=3, temperature=.7), dict(top_k=4, top_p=.9):
    CASES += of_words(1, "22", "ties", **setting)
for setting in EOS:
    CASES += of_words(2, "sss. .bs.ss", "EOS", **setting) + of_words(4, ".m.s.", "EOS", **setting)
for K in 1, 2, 3, 4, 6:
    CASES += of_words(K, "m.fx2.sm..xf", "the likeliest tokens", temperature=0)
    CASES += of_words(K, "m.f..m.", "the likeliest tokens, up to EOS", temperature=0, eos=[K % 5, 4])


class Report(NamedTuple):
    """What was found.  From `case` on about the first text whose probability is wrong; None if all are right.
    """
    lossless: bool
    deviation: float                # the largest of any text in the cases that were walked
    n_cases: int
    n_branches: int
    n_unfinished: int = 0           # cases of which some branches were left out
    case: str | None = None
    settings: dict | None = None
    prompt: list | None = None
    text: list | None = None
    probability: float | None = None
    wanted: float | None = None

    def __str__(self):
        walked = f"{self.n_branches:,} branches of {self.n_cases} case{'s' * (self.n_cases != 1)}"
        if self.n_unfinished:
            walked += f", {self.n_unfinished} of them not to the end"
        if self.lossless:
            return f"lossless: no probability is off by more than {self.deviation:.0e} ({walked})"
        digits = 6 if abs(self.probability - self.wanted) > 2e-6 else 12
        rounding = " (rounding in single precision?)" if self.deviation < 1e-6 else ""
        return (f"not lossless: after {self.prompt} the text {self.text} has probability "
                f"{self.probability:.{digits}f}, and should have {self.wanted:.{digits}f}{rounding}.  "
                f"({self.case}; {walked})")


def check(sampler, *which, **settings):
    """The largest deviation of any text's probability from the target's; below 1e-9 is rounding.  If it is
    more, the first wrong text is printed.  The arguments are those of `report`."""
    found = report(sampler, *which, **settings)
    if not found.lossless:
        print(found)
    return found.deviation


def report(sampler, pairs=None, Ks=None, n_tokens=None, thorough=False, **settings):
    """Walk the standard cases, up to the first that is wrong.  Returns a Report.

    sampler     (draft, target, tokens, n_tokens, K, rng, **settings) -> rounds, or the new tokens
    pairs       (draft, target) each, with a vocabulary of a few tokens; the prompt is then [0, 0]
    Ks          each is tried on every pair, with texts of n_tokens
    thorough    takes minutes
    settings    temperature, top_k, top_p, eos: in place of the standard ones

    With pairs, Ks or n_tokens given, these take the place of the standard cases.
    Raises ValueError for a sampler that cannot be judged; what the sampler itself raises comes through.
    """
    if pairs is None and Ks is None and n_tokens is None:
        chosen, most = [*CASES, *more_cases()] if thorough else CASES, np.inf if thorough else ENOUGH
        if settings:
            chosen = [case._replace(settings=settings) for case in chosen if not case.settings]
    else:
        chosen, most = cases(pairs, Ks or (1, 2, 3), n_tokens, settings), np.inf
    so_far = Report(True, 0.0, 0, 0)
    for case in chosen:
        found = judge(sampler, *case, most=most)
        so_far = Report(found.lossless, max(found.deviation, so_far.deviation),
                        *(a + b for a, b in zip(found[2:5], so_far[2:5])), *found[5:])
        if not found.lossless:
            if abs(judge(sampler, *case, most=most).deviation - found.deviation) > WRONG:  # models may round
                raise ValueError(NOT_REPEATED)
            break
    return so_far


def more_cases():
    """Each draft of a round, each two positions of a text, and more."""
    for K in range(1, 9):
        yield from of_words(K, " ".join("." * i + "s" + "." * (K - i) for i in range(K)), "each draft")
    for K in range(1, 7):
        for i, j in itertools.combinations(range(2 * K + 3), 2):
            for first, second in "ss", "xb", "bs", "fx", "=m":
                word = ["."] * (2 * K + 3)
                word[i], word[j] = first, second
                yield from of_words(K, "".join(word), "two positions")
    for K in range(1, 5):
        for word in itertools.product(".sx", repeat=5):
            yield from of_words(K, "".join(word), "five positions")
        for setting in SETTINGS + EOS:
            yield from of_words(K, "f.f bs.s .ms.s 2bs", "settings", **setting)
        yield from cases(None, [K], K + 1, {})


def cases(pairs, Ks, n_tokens, settings):
    """Each pair with each K, and a few with the standard settings."""
    named = PAIRS if pairs is None else {f"pair {i}": pair for i, pair in enumerate(pairs)}
    prompt = PROMPT if pairs is None else [0, 0]                # their vocabulary may have a single token
    if not named:
        raise ValueError("there are no pairs to judge: give at least one (draft, target)")

    def case(name, K, n_tokens=n_tokens, settings=settings):
        n_tokens = max(4, K + 1 if isinstance(K, int) else 0) if n_tokens is None else n_tokens
        return Case(name, *named[name], n_tokens, K, settings, prompt)

    yield from (case(name, K) for name in named for K in Ks)
    if not settings:
        few, K = n_tokens or 4, Ks[min(1, len(Ks) - 1)]
        for setting in [dict(temperature=0), *SETTINGS, *EOS]:
            yield from (case(name, K, min(3, few), setting) for name in list(named)[:2])
        yield from (case(next(iter(named)), Ks[-1], n) for n in range(min(4, few)))        # the length limit


def judge(sampler, *case, most=np.inf):
    """Walk one case, or so many steps of it.  Returns its Report."""
    case = Case(*case)

    def run(rng):
        models = [asked(model, rng) for model in (case.draft, case.target)]
        settings = copy.deepcopy(case.settings)     # a sampler may change its `eos`, but not the case's
        result = sampler(*models, list(case.prompt), case.n_tokens, case.K, rng, **settings)
        return text_of(result, rng)

    found, n_branches, steps = defaultdict(float), 0, 0
    for text, walk in branches(run):
        if unfinished := steps > most:
            break
        found[text] += walk.probability
        n_branches, steps = n_branches + 1, steps + walk.steps
    return compared(case, found, n_branches, unfinished)


def compared(case, found, n_branches, unfinished=False):
    """The Report of one case of which {text: probability} was found, perhaps not all."""
    wanted = distribution_of_text(case.target, case.prompt, case.n_tokens, **case.settings)
    texts = sorted(found if unfinished else found.keys() | wanted.keys())
    off = {text: found.get(text, 0) - wanted.get(text, 0) for text in texts}
    off = {text: max(d, 0) if unfinished else abs(d) for text, d in off.items()}     # more is still to come
    wrong = next((text for text in texts if off[text] > WRONG), None)
    counts = max(off.values()), 1, n_branches, unfinished
    return Report(True, *counts) if wrong is None else Report(
        False, *counts, str(case), case.settings, list(case.prompt), list(wrong),
        float(found.get(wrong, 0)), float(wanted.get(wrong, 0)))


def asked(model, rng):
    """The model; its calls are counted as steps of the run."""
    if not isfunction(model):                       # one with a cache and weights stays what it is
        return model

    @functools.wraps(model)
    def counted(tokens, n_last=1):
        rng.step()
        return model(tokens, n_last)
    return counted


def text_of(result, rng=None):
    """The rounds of a run, or its new tokens, as a tuple of tokens.  ValueError if they never end."""
    text, rng = [], rng or Walk([])
    for part in result:
        rng.step()
        text += getattr(part, "tokens", [part])
    return tuple(map(int, text))


def distance(a, b):
    """Total variation between two distributions {outcome: probability}."""
    return sum(abs(a.get(key, 0) - b.get(key, 0)) for key in a.keys() | b.keys()) / 2


def main(path="", *, thorough=False):
    """Is it lossless?  Judges speculative.py, or what a file of your own puts in its place:

    python -m lossless my_drafter.py    # propose(draft, x, k, to_probs, rng) -> (drafts, draft_probs)
    python -m lossless my_rule.py       # verify(q, p, drafts, rng) -> (n_accepted, next_token)

    The first word of the answer is "lossless" or "not"; the exit status is 0, 1 (not lossless), or 2 (it
    cannot be judged).

    Args:
        path: a Python file with a function `propose`, a function `verify`, or both
        thorough: look for minutes
    """
    from speculative import speculative_sampling
    own = own_functions(path) if path else {}
    drafted = set()

    def sampler(*run, **settings):
        for r in speculative_sampling(*run, **settings, **own):
            drafted.update(r.drafts)
            yield r
    found = report(sampler, thorough=thorough)
    if found.lossless and not drafted:
        raise ValueError(f"{path} drafts nothing in these texts of a few tokens, so there is nothing to "
                         "judge: let it draft sooner")
    print(found)
    return 0 if found.lossless else 1


def own_functions(path):
    """{"propose": .., "verify": ..} of somebody's file, as far as it has them.  ValueError if it has none."""
    import console
    import speculative
    own = {}
    for name in "propose", "verify":
        try:
            own[name] = console.function_in(path, name, like=getattr(speculative, name))
        except ValueError as error:
            if not str(error).endswith(f"has no function {name}"):
                raise
    if "verify" in own:
        own["verify"] = checked_rule(own["verify"])
    if not own:
        raise ValueError(f"{path} has neither a function propose nor a function verify: see --help")
    return own


if __name__ == "__main__":
    import console
    sys.exit(console.run(main))
