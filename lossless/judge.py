"""Is a sampler lossless?  Computes its exact output distribution, and how far that is from the target's.
Nothing is sampled.

A sampler is run with a `Walk` in place of its random generator.  `random()` then returns a uniform number of
which only an interval is known, [0, 1) at first.  Whenever the sampler compares that number (with an accept
ratio, with a cumulative sum), the interval is cut in two, and `exact_distribution` runs the sampler once for
each side.  The chance of a side is its share of the interval, and the probability of a branch is the product
of these chances.  So a mistake that shows in one text of a million is found like any other.

An idea of your own is checked in three lines.  Here it is a drafter that always proposes token 1 twice
(`python -m lossless` checks speculative.py itself):

>>> def ones(draft, x, k, to_probs, rng): return [1, 1][:k], None          # None: point masses
>>> from speculative import speculative_sampling
>>> check(lambda *run, **settings: speculative_sampling(*run, propose=ones, **settings), Ks=[2]) < 1e-12
True

Limitations: the models have a vocabulary of a few tokens, and speed is not judged.

- The 396 standard cases take two seconds for speculative.py.  They test each draft of rounds of up to
  eight drafts, in texts of up to eighteen tokens.  `thorough=True` takes a minute.  It also tests any two
  positions of a text of up to fifteen tokens, and all settings with up to four drafts.  A mistake is not
  found if it shows only in longer rounds or texts, only for ratios q / p in some narrow range, or only in
  trees that the sampler does not build at K = 1 .. 8.
- Nor is it found if it shows only when p and q differ by less than 3e-8, when the temperature is between 0
  and 1e-7 or above 13, or when top_p is below .03 or between .9995 and 1.  A rule that accepts every draft
  with q > 1 - 1e-7 passes, too.
- In each case the likeliest branches are walked first, for 7,000 steps (random numbers, calls of a model,
  rounds).  For speculative.py that is enough for all branches.  A sampler that draws more often leaves some
  unwalked, and a mistake that shows only there may be missed.  The report says how many cases are affected:
  152 of 396 if drafts are drawn by the alias method, 366 (and it takes 45 seconds) if they are drawn by
  rejection.  With the alias method, for example, accepting the last of five drafts without a test is missed.
- A random number may be shifted, scaled, put through `log`, and compared with numbers and arrays, but not
  with another random number.  So a race of exponentials or Gumbel noise cannot be walked.  What happens at
  exactly u = 0 is not seen.  A sampler that catches NumPy's TypeError for an array of random numbers may be
  judged wrongly.
- If a loop never ends, draws no random number, calls no model and yields nothing, the check never ends.
- If top_p is exactly a sum of probabilities, rounding decides which tokens are kept.

Two sets of samplers were written by somebody who had not seen the cases.  All of the first 21 were judged
correctly.  Of the next 22 (11 wrong, 11 lossless), 21 were judged correctly.  The other, a loop that ends
only by chance, was refused then and is judged correctly now.
"""
import contextlib
import copy
import functools
import heapq
import itertools
import sys
from collections import defaultdict
from inspect import isfunction
from typing import NamedTuple

import numpy as np

import speculative
from checks import checked_rule

BRANCHES = 1_000_000    # of one case; more are too much work
STEPS = 5_000           # random numbers, calls of a model and rounds in one run; more mean that it never ends
ENOUGH = 7_000          # such steps in all runs of a standard case; the remaining branches are left out
FEW = 300               # such steps in the runs that are repeated, to see whether they agree
MANY = 500              # random numbers that may be drawn at once
TINY = 1e-13            # less likely branches are left out
WRONG = 1e-9            # a larger deviation is not rounding
PROMPT = [2, 0]


# Walking every branch ---------------------------------------------------------------------------------------

def exact_distribution(run, most=np.inf):
    """run(rng) -> outcome.  Returns {outcome: probability} over everything that `rng` could give.

    `run` must do the same each time, so a drafter with a memory must be made anew in it.  Branches with a
    probability below 1e-13 are left out, and all that remain after `most` steps.
    Raises ValueError if the run never ends, does not repeat itself, or asks for what cannot be walked.

    >>> exact_distribution(lambda rng: "heads" if rng.random() < .75 else "tails")
    {'heads': 0.75, 'tails': 0.25}
    >>> exact_distribution(lambda rng: rng.choice(3, p=[.5, .25, .25]))
    {0: 0.5, 1: 0.25, 2: 0.25}
    """
    distribution = defaultdict(float)
    for outcome, walk in branches(run, most):
        distribution[outcome] += walk.probability
    return dict(distribution)


def branches(run, most=np.inf):
    """Yields (outcome, walk) of each branch, until `most` steps are made.  The next branch is always the
    likeliest that is known."""
    to_walk, order, steps, ended = [(-1.0, 0, [], 0)], itertools.count(1), 0, False
    for _ in range(BRANCHES):
        *_, taken, n = heapq.heappop(to_walk)
        path = [*taken[:n], *((not left, chance, 0.0) for left, chance, _ in taken[n:n + 1])]
        walk = Walk(path)
        with contextlib.suppress(Unlikely):
            yield outcome_of(run, walk), walk
            ended = True
        if len(walk.taken) < len(path):
            raise ValueError(NOT_REPEATED)
        for n in range(len(path), len(walk.taken)):         # the other side of each new fork
            chance_of_other = walk.taken[n][2]
            if chance_of_other > TINY:
                heapq.heappush(to_walk, (-chance_of_other, next(order), walk.taken, n))
        steps += walk.steps
        if steps > STEPS and not ended:
            raise ValueError(ENDLESS)
        if not to_walk or steps > most:
            return
    raise ValueError(f"there are more than {BRANCHES:,} branches: take fewer tokens or a smaller vocabulary")


def outcome_of(run, walk):
    """run(walk).  If the walk refused something, raises its error, even if the run caught that."""
    try:
        outcome = run(walk)
    except Exception as error:
        if any(words in str(error) for words in OF_OBJECTS):
            walk.refuse("put into what takes plain numbers only")
        if not walk.refused:
            raise
    if walk.refused:
        raise walk.refused
    return outcome


NOT_REPEATED = ("the sampler did not repeat itself: it must remember nothing between runs (make it anew for "
                "each; in a file, forget everything when a text does not continue the last), have no "
                "random generator of its own (draw from the one that is given), and look at no clock")
ENDLESS = (f"the sampler has made {STEPS:,} steps (random numbers, calls of a model, rounds) and goes on: it "
           "never ends, or its texts are too long for the judge")
NOT_WALKED = ("a random number was {}: that cannot be walked. Compare each with a probability or a "
              "cumulative sum, or draw with rng.choice(n, p=p)")


OF_OBJECTS = "numpy.object_", "Uniform", "input types"       # complaints of NumPy and torch
NUMPYS = np.random.default_rng(0)       # draws nothing that is used


class Unlikely(BaseException):
    """Ends a run that goes on and on in a very unlikely branch.  `except Exception` does not catch it."""


class Walk(np.random.Generator):
    """Stands in for NumPy's generator.  Repeats the forks (cuts of an interval) of `path`, then takes the
    likelier side of each new one.  In a very unlikely branch it takes each side about as often as chance
    would, so that a loop that ends by chance does end."""

    def __init__(self, path=()):
        super().__init__(NUMPYS.bit_generator)
        self.path, self.taken, self.probability, self.steps, self.refused = path, [], 1.0, 0, None

    def refuse(self, what, sentence=NOT_WALKED):
        self.refused = self.refused or ValueError(sentence.format(what))
        raise self.refused

    def fork(self, chance_left):
        n, before = len(self.taken), self.probability
        known = n < len(self.path)
        middle = .5 if before > TINY else n ** 2 * .6180339 % 1
        left, expected, _ = self.path[n] if known else (chance_left >= middle, chance_left, 0)
        if abs(expected - chance_left) > 1e-6:
            self.refuse("", NOT_REPEATED)
        self.probability *= chance_left if left else 1 - chance_left
        self.taken.append((left, chance_left, before * (1 - chance_left if left else chance_left)))
        return left

    def step(self):
        self.steps += 1
        if self.steps > STEPS:
            if self.probability < 1e-3:                     # a loop that chance would end some day
                raise Unlikely
            self.refuse("", ENDLESS)

    def several(self, size, draw):
        """One number, or an array of the shape `size`."""
        n = 1 if size is None else int(np.prod(size))
        if n > MANY:
            self.refuse(f"one of {n:,} that were drawn at once (draw as many as there are drafts)")
        return draw() if size is None else np.array([draw() for _ in range(n)]).reshape(size)

    def random(self, size=None, dtype=float):
        return self.several(size, lambda: Uniform(self))

    def uniform(self, low=0.0, high=1.0, size=None):
        size = np.broadcast_shapes(np.shape(low), np.shape(high)) or None if size is None else size
        return np.subtract(high, low) * self.random(size) + np.asarray(low)[()]

    def integers(self, low, high=None, size=None, dtype=int, endpoint=False):
        low, high = (0, low) if high is None else (low, high)
        if np.ndim(low) or np.ndim(high) or high - low > STEPS:
            self.refuse(f"drawn between {low} and {high}")
        return self.choice(np.arange(low, high + endpoint), size)

    def choice(self, a, size=None, replace=True, p=None):
        NUMPYS.choice(a, size, replace, p)                  # its own checks
        values = np.asarray(a) if np.ndim(a) else np.arange(a)
        weights = np.ones(len(values)) if p is None else np.array(p, float)

        def draw():
            i = self.index(weights)
            weights[i] *= replace
            return i
        drawn = values[self.several(size, draw)]            # an array if `a` has rows or `size` is given
        return drawn if drawn.ndim else drawn.item()

    def index(self, weights):
        """Draws i with probability weights[i] / sum."""
        self.step()
        *likely, last = np.flatnonzero(weights).tolist()
        for i in likely:
            if self.fork(float(weights[i] / weights[i:].sum())):
                return i
        return last

    def __reduce_ex__(self, protocol):                      # copy and pickle call this
        self.refuse("rng", "the judge cannot walk a copy of {}: draw from the one that is given")


for name in {*dir(np.random.Generator)} - {*vars(Walk)}:
    if not name.startswith("_"):
        setattr(Walk, name, property(lambda walk, name=name: walk.refuse(
            name, "the judge cannot walk rng.{}: draw with rng.random, uniform, integers or choice")))


class Uniform(np.lib.mixins.NDArrayOperatorsMixin):
    """A number computed from u, which is uniform in `interval`.  The number is below c if u is below cut(c),
    or above cut(c) if the number `falls` as u grows.  Numbers computed from one u share the interval."""
    __class__ = float                                       # for isinstance

    def __init__(self, walk, interval=None, cut=float, falls=False):
        self.walk, self.interval, self.cut, self.falls = walk, interval or [0.0, 1.0], cut, falls
        if interval is None:
            walk.step()

    def made(self, inverse, falls=False):
        """A function of this number, below c if this number is below inverse(c) (above, if `falls`)."""
        return Uniform(self.walk, self.interval, lambda c: self.cut(inverse(c)), self.falls != falls)

    def below(self, c):
        cut, (low, high) = self.cut(float(c)), self.interval
        if cut <= low or cut >= high:
            return (cut >= high) != self.falls
        below = self.walk.fork((cut - low) / (high - low))
        self.interval[below] = cut                          # True is 1: u is below the cut
        return below != self.falls

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        """NumPy calls this for every operator and function."""
        if method != "__call__" or options.get("out", [self])[0] is not self or "where" in options:
            self.walk.refuse(f"put through np.{ufunc.__name__} with {', '.join(options) or method}")
        if any(isinstance(x, np.ndarray) for x in inputs):
            rows = np.broadcast(*(np.asarray(x, dtype=object) for x in inputs))
            return np.array([ufunc(*row) for row in rows]).reshape(rows.shape)
        others = [x for x in inputs if x is not self]
        if any(isinstance(x, Uniform) for x in others):
            self.walk.refuse("compared or combined with another")
        if len(inputs) == 2 and not others:
            first, second = ufunc(.25, .25), ufunc(.75, .75)
            return first if first == second else self.walk.refuse("combined with itself")
        return self.answer(ufunc.__name__, inputs[0] is self, *others)

    def compared(name):
        """A comparison that bypasses NumPy, for speed."""
        def compare(self, c):
            if type(c) in (float, np.float64):
                return c == c and self.below(c) == name.startswith("less")
            return name.endswith("equal") if c is self else getattr(np, name)(self, c)     # NumPy asks u < u
        return compare

    __lt__, __le__, __gt__, __ge__ = map(compared, ("less", "less_equal", "greater", "greater_equal"))

    def __mul__(self, a):                                   # likewise
        return self.answer("multiply", True, a) if type(a) in (float, np.float64) else np.multiply(self, a)

    def answer(self, name, left, a=None):
        """The result of an operator; `left`: this number is on the left of `a`."""
        if name in ("equal", "not_equal"):                  # equality with a number has probability 0
            return name == "not_equal"
        if a != a:                                          # NaN
            return False if name.startswith(("less", "greater")) else a
        match name:
            case "less" | "less_equal" | "greater" | "greater_equal":
                return self.below(a) == (left == name.startswith("less"))
            case "maximum" | "minimum":
                return a if self.below(a) == (name == "maximum") else self
            case "floor":
                return int(self)
            case "negative":
                return self.made(lambda c: -c, falls=True)
            case "add":
                return self.made(lambda c: c - a)
            case "subtract":
                return self.made(lambda c: c + a) if left else self.made(lambda c: a - c, falls=True)
            case "multiply":
                return self.made(lambda c: c / a, falls=a < 0) if a else 0.0
            case "divide" if left:
                return self.made(lambda c: c * a, falls=a < 0)
            case "divide" if a == 0:
                return 0.0
            case "divide" if self.is_positive() and a > 0:
                return self.made(lambda c: a / c if c > 0 else np.inf, falls=True)
            case "log" if self.is_positive():
                return self.made(lambda c: np.exp(min(c, 700)))
        self.walk.refuse(f"put through np.{name}")

    def is_positive(self):
        zero, (low, high) = self.cut(0.0), self.interval
        return zero >= high if self.falls else zero <= low

    def log(self):                                          # NumPy calls this for arrays of such numbers
        return np.log(self)

    def __int__(self):
        for n in range(STEPS if self >= 0 else 0):
            if self < n + 1:
                return n
        self.walk.refuse(f"rounded below 0, or made one of more than {STEPS:,} integers")
    __floor__ = __trunc__ = __int__

    def __float__(self):
        self.walk.refuse("made a plain number")


# The target's distribution, from the definition -------------------------------------------------------------

def distribution_of_token(logits, temperature=1.0, top_k=0, top_p=1.0):
    """An independent version of sampling.probabilities: logits [n_vocab] -> probabilities [n_vocab]."""
    logits = np.asarray(logits, dtype=float)
    if temperature == 0:
        return np.eye(len(logits))[int(np.argmax(logits))]
    with np.errstate(over="ignore"):
        probs = np.exp((logits - max(logits)) / temperature)
    if top_k:
        probs[logits < sorted(logits)[-min(top_k, len(logits))]] = 0
    probs /= probs.sum()
    if top_p < 1:
        order = sorted(range(len(probs)), key=lambda i: -probs[i])              # of two that tie, the first
        before = itertools.accumulate(probs[order], initial=0)
        probs[[i for i, mass in zip(order, before) if mass >= top_p]] = 0
    return probs / probs.sum()


def distribution_of_text(model, prompt, n_tokens, eos=None, **settings):
    """{text: probability} of n_tokens tokens after the prompt; fewer if an EOS (`eos`: one id or
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
    """Makes a model from row(prefix, a tuple) -> logits [n_vocab].  The model's logits are read-only."""
    row = functools.cache(row)

    @functools.cache
    def rows(tokens, n_last):
        lengths = range(len(tokens) - n_last + 1, len(tokens) + 1)
        logits = np.array([row(tokens[:n]) for n in lengths], dtype=float)
        logits.flags.writeable = False
        return logits                               # [n_last, n_vocab]

    def model(tokens, n_last=1):
        return rows(tuple(tokens), n_last)
    model.n_vocab = len(row(()))
    return model


def table(seed, zeros=0.0, n_vocab=3):
    """A model with a random distribution after every prefix, in which a token is impossible with probability
    `zeros`."""
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
    """A model that says `text` whatever the tokens are: text[n] after n of them, text[-1] after its end."""
    def row(prefix):
        return np.where(np.arange(n_vocab) == text[min(len(prefix), len(text) - 1)], 0.0, -np.inf)
    return as_model(row)


# The standard cases -----------------------------------------------------------------------------------------

# A pair of models is written as a word, with a letter for each position of the new text.  The letter says
# which tokens the draft and the target can give there.  There are five tokens (24 if the word contains a w),
# called a, b, .. in KINDS, and shuffled after every prefix.  A capital letter means the same kind.  If pair()
# is given an EOS, that is token a where the letter is a capital, and token e elsewhere.
LETTERS, FLAT = "abcdefghijklmnopqrstuvwx", [.985 ** i for i in range(24)]
KINDS = {       # letter: (the draft's tokens, the target's), the likeliest first, and weights if not random
    ".": ("a", "a", [1], [1]),  # both are certain of the same: sure to be accepted
    "x": ("b", "a", [1], [1]),  # both are certain, and differ: sure to be rejected
    "=": ("abc", "abc"),        # the same distribution
    "s": ("cd", "abc"),         # sparse: c is accepted now and then, d never; the residual is a and b
    "b": ("dceb", "abcd"),      # broad: b is sure to be accepted, with few exceptions
    "f": ("bcaed", "abcde"),    # full: all tokens in both
    "o": ("cd", "ab"),          # disjoint
    "t": ("a", "abc"),          # the draft is certain
    "p": ("ba", "a"),           # the target is certain
    "e": ("bac", "abc", [.5, .3, .2], [.6, .3, .1]),        # token a: accepted, the correction, or the bonus
    "l": ("abc", "abc", [.9988, .001, .0002], [.993, .004, .003]),  # a is likely, and drafted too often
    "c": ("a", "abc", [1], [1, 2e-7, 1e-7]),                # the draft is certain, the target nearly
    "n": ("abc", "abc", [.4, .4, .2], [.4 + 3e-8, .4 - 3e-8, .2]),  # nearly the same: hardly any residual
    "r": ("bdca", "abcde", [1, 6e-4, 1e-4, 6e-6], [1, .14, 9e-4, 5e-5, 8e-8]),      # rare tokens in both
    "2": ("baecd", "abcde", *2 * [np.exp([2, 2, 1, 1, 0])]),        # two are equally likely, and two others
    "w": (LETTERS[1:] + "a", LETTERS, FLAT, FLAT),          # wide, and nearly flat
}


def pair(word, n_prompt=2, end=None):
    """The (draft, target) that the word describes, after n_prompt tokens; `end` is an EOS."""
    n_vocab, seed = 24 if "w" in word else 5, [*map(ord, word)]

    @functools.cache
    def at(prefix):
        letter = word[max(len(prefix) - n_prompt, 0):][:1] or "."
        shuffled = np.random.default_rng([*seed, *prefix]).permutation(n_vocab).tolist()
        if end is not None:
            i, j = 0 if letter.isupper() else 4, shuffled.index(end)
            shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
        return letter.lower(), dict(zip(LETTERS, shuffled))

    def model(which):
        def row(prefix):
            (kind, token), logits = at(prefix), np.full(n_vocab, -np.inf)
            letters, *weights = KINDS[kind][which::2]
            rng = None if weights else np.random.default_rng([*seed, *prefix, which if kind != "=" else 2])
            logits[[token[letter] for letter in letters]] = (
                np.log(weights[0]) if weights else -np.sort(rng.exponential(size=len(letters))))
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


def of_words(K, words, about, end=None, **settings):
    """A case for each word.  Its text has as many tokens as the word has letters."""
    if end is not None:
        settings["eos"] = [end]
    return [Case(f"{word!r}, {about}", *pair(word, 4, end), len(word), K, settings) for word in words.split()]


SETTINGS = [*(dict(temperature=t) for t in (1e-7, .013, .08, .36, .5, 1.04, 2.7, 13.)),
            *(dict(top_k=k) for k in (1, 2, 3, 4, 9)),
            *(dict(top_p=p) for p in (.03, .13, .3, .46, .75, .94, .987, .9995)),
            dict(temperature=.5, top_k=3), dict(temperature=1.5, top_k=2), dict(temperature=2, top_p=.7),
            dict(top_k=4, top_p=.7), dict(temperature=.7, top_k=3, top_p=.8)]
EOS = [dict(eos=0), dict(eos=[1]), dict(eos={2, 4}), dict(eos=(0, 1, 3)), dict(eos=np.arange(5)),
       dict(eos=[3, 4], temperature=.6), dict(eos=1, top_k=2), dict(eos=[2], temperature=1.5, top_p=.8)]


def standard_cases():
    yield Case("no token", *pair(""), 0, 2, {})
    for K, words in {1: "ff f rr 22 ss bb == oo te pf xs ef nf ll c. w ..............s.s. x.ss s.s.s..",
                     2: "ff. sb. sss .ss es. so. bs. rn. .sl .nr ...x..bs. x.xbs.", 3: "bf.. .bs. s.s.",
                     4: "f ss s.s ..........ss.", 8: "s.......s.......s"}.items():
        yield from of_words(K, words, "chance at several places")
    for K in range(1, 9):
        for i in range(K + 1):
            before, after = "." * i, "." * K
            yield from of_words(K, f"{before}ss{after}", "each place, and the next round's first draft")
            if K <= 4:
                yield from of_words(K, f"{before}x.s{after} {before}xs", "the next round's second draft")
                yield from of_words(K, f"{before}to{after} {before}p={after}", "each place")
                yield from of_words(K, f"{before}E{after} x{before}E{after}", "EOS", (K + i) % 5)
                yield from of_words(K, f"{before}st x{before}st", "the length limit") if i < K else ()
    for setting in SETTINGS:
        yield from of_words(1, "f. 2. r. n. w" + " ff" * (len(setting) > 1), "settings", **setting)
        yield from of_words(2, "..f ...f.", "settings", **setting)
    for setting in EOS:
        yield from of_words(2, "se. .bs.s", "EOS", **setting)
    for K in 1, 2, 3, 4, 6:
        yield from of_words(K, "=.fx2.s=..xf", "the likeliest tokens", temperature=0)


def numbered(cases, first=0):
    """Gives each case a new prompt (of 625), so that a sampler's memory of one does no harm in the next."""
    for i, case in enumerate(cases, first):
        yield case._replace(prompt=[i // 5 ** j % 5 for j in range(4)])


CASES = [*numbered(standard_cases())]


def more_cases():
    """Every two positions of a text, and all settings with more drafts."""
    for K in range(1, 7):
        for i, j in itertools.combinations(range(2 * K + 3), 2):
            word = "." * i + "{}" + "." * (j - i - 1) + "{}" + "." * (2 * K + 2 - j)
            yield from of_words(K, " ".join(map(word.format, "sxbf=", "sbsxe")), "two positions")
    for K, setting in itertools.product(range(1, 5), SETTINGS + EOS):
        yield from of_words(K, "f.f bs.s .es.s 2bs", "settings", **setting)


class Report(NamedTuple):
    """What was found.  The fields from `case` on describe the first text whose probability is wrong; they are
    None if all are right."""
    lossless: bool
    deviation: float                # the largest of any text; maybe more if branches were left out
    n_cases: int
    n_branches: int
    n_unfinished: int = 0           # cases with some branches left out
    case: str | None = None
    settings: dict | None = None
    prompt: list | None = None
    text: list | None = None
    probability: float | None = None
    wanted: float | None = None

    def __str__(self):
        walked = f"{self.n_branches:,} branches of {self.n_cases} case{'s' * (self.n_cases != 1)}"
        if self.n_unfinished:
            walked += f", {self.n_unfinished} case{'s' * (self.n_unfinished != 1)} not to the end"
        if self.lossless:
            return f"lossless: no probability is off by more than {self.deviation:.0e} ({walked})"
        digits = 6 if abs(self.probability - self.wanted) > 2e-6 else 12
        rounding = " (rounding, or something small that is left out?)" if self.deviation < 1e-6 else ""
        return (f"not lossless: after {self.prompt} the text {self.text} has probability "
                f"{self.probability:.{digits}f}, and should have {self.wanted:.{digits}f}{rounding}.  "
                f"({self.case}; {walked})")


def check(sampler, *which, **settings):
    """Returns the largest deviation of any text's probability from the target's.  Less than 1e-9 is rounding.
    The report is printed if it is more, or if some cases were not walked to the end.  The arguments are those
    of `report`."""
    found = report(sampler, *which, **settings)
    if not found.lossless or found.n_unfinished:
        print(found)
    return found.deviation


def report(sampler, pairs=None, Ks=None, n_tokens=None, thorough=False, **settings):
    """Walk the standard cases, up to the first that is wrong.  Returns a Report.

    sampler     (draft, target, tokens, n_tokens, K, rng, **settings) -> rounds, or the new tokens
    pairs       of (draft, target), with a vocabulary of a few tokens, instead of the standard cases; the
                prompt is then [0, 0], and each of Ks (1, 2, 3) is tried with texts of n_tokens
    Ks          without pairs: only standard cases with one of these K
    n_tokens    without pairs: only standard cases with at most this many tokens
    thorough    walk more cases, and all to the end (takes a minute)
    settings    temperature, top_k, top_p, eos: instead of the standard ones

    Raises ValueError if the sampler cannot be judged.  Errors that the sampler itself raises pass through.
    """
    chosen, most = [*CASES, *numbered(more_cases(), len(CASES))] if thorough else CASES, ENOUGH
    if settings:
        chosen = [case._replace(settings=settings) for case in chosen if not case.settings]
    chosen = [case for case in chosen if (Ks is None or case.K in Ks)
              and (n_tokens is None or case.n_tokens <= n_tokens)]
    if pairs is not None:
        chosen, most = [*of_pairs(pairs, Ks or (1, 2, 3), n_tokens, settings)], np.inf
    if not chosen:
        raise ValueError("there is nothing to judge: give at least one pair, or other Ks and n_tokens")
    so_far = Report(True, 0.0, 0, 0)
    for case in chosen:
        found = judge(sampler, *case, most=np.inf if thorough else most)
        so_far = Report(found.lossless, max(found.deviation, so_far.deviation),
                        *(a + b for a, b in zip(found[2:5], so_far[2:5])), *found[5:])
        if not found.lossless:
            break
    return so_far


def of_pairs(pairs, Ks, n_tokens, settings):
    """A case for each pair and each K.  Without settings, the first two pairs are tried with some, too."""
    for n, (draft, target) in enumerate(pairs):
        for K in Ks:
            least = max(4, K + 1) if isinstance(K, int) else 4
            yield Case(f"pair {n}", draft, target, n_tokens or least, K, settings, [0, 0])
        for setting in [] if settings or n > 1 else [dict(temperature=0), *SETTINGS[3::3], *EOS]:
            yield Case(f"pair {n}", draft, target, min(3, n_tokens or 3), Ks[len(Ks) // 2], setting, [0, 0])


def judge(sampler, *case, most=np.inf):
    """Walks one case, the likeliest branches first, until `most` steps are made.  Returns its Report."""
    case = Case(*case)
    found, n_branches = walked(sampler, case, most)
    wanted = distribution_of_text(case.target, case.prompt, case.n_tokens, **case.settings)
    missing = max(1 - sum(found.values()), 0)               # which may belong to any text
    more = {text: found.get(text, 0) - wanted.get(text, 0) for text in sorted(found.keys() | wanted.keys())}
    off = {text: max(d, -d - missing, 0) for text, d in more.items()}
    wrong = next((text for text in off if off[text] > WRONG), None)
    counts = max(off.values()), 1, n_branches, int(missing > WRONG)
    if wrong is None:
        return Report(True, *counts)
    again = [walked(sampler, case, FEW)[0] for _ in range(4)]
    if any(distance(again[0], other) > WRONG for other in again):
        raise ValueError(NOT_REPEATED)                      # chance of its own; two runs may agree
    return Report(False, *counts, str(case), case.settings, list(case.prompt), list(wrong),
                  float(found.get(wrong, 0)), float(wanted.get(wrong, 0)))


def walked(sampler, case, most):
    """({text: probability}, the number of branches)"""
    runs = itertools.count()

    def run(rng):
        next(runs)
        models = counted(case.draft, rng), counted(case.target, rng)
        settings = copy.deepcopy(case.settings)             # a sampler may change it
        return text_of(sampler(*models, list(case.prompt), case.n_tokens, case.K, rng, **settings), rng)
    return exact_distribution(run, most), next(runs)


def counted(model, rng):
    """The model, with its calls counted as steps of the run.  A model that is no function is left alone."""
    @functools.wraps(model)
    def asked(tokens, n_last=1):
        rng.step()
        return model(tokens, n_last)
    return asked if isfunction(model) else model


def text_of(result, rng=None):
    """The rounds of a run, or its new tokens, as a tuple of tokens.  Raises ValueError if they never end."""
    text, rng = [], rng or Walk()
    for part in result:
        rng.step()
        text += getattr(part, "tokens", [part])
    return tuple(map(int, text))


def distance(a, b):
    """Total variation between two distributions {outcome: probability}."""
    return sum(abs(a.get(key, 0) - b.get(key, 0)) for key in a.keys() | b.keys()) / 2


def main(path="", *, thorough=False):
    """Is it lossless?  Judges speculative.py, with your own drafter or accept rule if you name a file:

    python -m lossless my_drafter.py    # propose(draft, x, k, to_probs, rng) -> (drafts, draft_probs)
    python -m lossless my_rule.py       # verify(q, p, drafts, rng) -> (n_accepted, next_token)

    The first word of the answer is "lossless" or "not"; the exit status is 0, 1 (not lossless), or 2 (it
    cannot be judged).

    Args:
        path: a Python file with a function `propose`, a function `verify`, or both
        thorough: search for a minute instead of seconds
    """
    own = own_functions(path) if path else {}
    drafted = set()

    def sampler(*run, **settings):
        for r in speculative.speculative_sampling(*run, **settings, **own):
            drafted.update(r.drafts)
            yield r
    found = report(sampler, thorough=thorough)
    if found.lossless and not drafted:
        raise ValueError(f"{path} drafts nothing in these texts of a few tokens, so there is nothing to "
                         "judge: let it draft sooner")
    print(found)
    return 0 if found.lossless else 1


def own_functions(path):
    """{"propose": .., "verify": ..} of a user's file, if it has them.  Raises ValueError if it has none."""
    import console
    module = console.module_of(path, console.read_text(path, "name a Python file"))
    own = {name: console.function_in(path, name, like=getattr(speculative, name))
           for name in ("propose", "verify") if hasattr(module, name)}
    if "verify" in own:
        own["verify"] = checked_rule(own["verify"])
    if not own:
        raise ValueError(f"{path} has neither a function propose nor a function verify: see --help")
    return own


if __name__ == "__main__":
    import console
    sys.exit(console.run(main))
