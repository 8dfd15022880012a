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

But: what is walked is a sampler on models of a few tokens, not its speed nor its text on large ones; and a
sampler may ask its generator for `random()` alone, and only multiply that number by another that is not
negative, compare it, or give it to np.searchsorted.  A top_p that is exactly a sum of probabilities is
decided by rounding.
"""
import functools
import itertools
import sys
from collections import defaultdict
from numbers import Integral

import numpy as np

DRAWS = 5_000           # random numbers or tokens in one run, after which a sampler is said never to end
BRANCHES = 1_000_000    # of a sampler, after which it is too much work
WRONG = 1e-9            # a deviation that is no rounding


# Walking every branch ---------------------------------------------------------------------------------------

def exact_distribution(run):
    """run(rng) -> outcome.  Returns {outcome: probability} over all that `rng.random()` could give.

    `run` must be the same each time: a drafter with a memory is made anew in it.
    Raises ValueError where a run draws more than 5,000 numbers, or meets a probability that is NaN.

    >>> exact_distribution(lambda rng: "heads" if rng.random() < .25 else "tails")
    {'heads': 0.25, 'tails': 0.75}
    """
    distribution, path = defaultdict(float), []
    for _ in range(BRANCHES):
        walk = Walk(path)
        outcome = run(walk)
        if len(walk.taken) < len(path):
            raise ValueError("the sampler did not repeat itself: it remembers something between runs")
        distribution[outcome] += walk.probability
        path = walk.taken
        while path and not path[-1]:     # the last fork that was taken to the left is next taken to the right
            path.pop()
        if not path:
            return dict(distribution)
        path[-1] = False
    raise ValueError(f"there are more than {BRANCHES:,} branches: take fewer tokens or a smaller vocabulary")


class Walk:
    """In the generator's place: `random` is all it has.  Repeats the forks of `path`, then turns left."""

    def __init__(self, path):
        self.path, self.taken, self.probability, self.draws = path, [], 1.0, 0

    def random(self):
        self.draws += 1
        if self.draws > DRAWS:
            raise ValueError(f"the sampler has drawn {DRAWS:,} random numbers and goes on: it never ends")
        return Uniform(self)

    def fork(self, chance_left):
        n = len(self.taken)
        left = self.path[n] if n < len(self.path) else True
        self.taken.append(left)
        self.probability *= chance_left if left else 1 - chance_left
        return left


class Uniform:
    """u * scale, where u is uniform in `interval`, [low, high)."""
    __array_ufunc__ = None                          # NumPy's numbers leave the arithmetic to this class

    def __init__(self, walk, scale=1.0, interval=None):
        self.walk, self.scale = walk, scale
        self.interval = [0.0, 1.0] if interval is None else interval    # u's own: all its multiples share it

    def __mul__(self, scale):
        if not scale >= 0:
            raise ValueError(f"a random number was multiplied by {scale}: it may be multiplied by 0 or more")
        return Uniform(self.walk, self.scale * float(scale), self.interval)
    __rmul__ = __mul__

    def __lt__(self, number):
        if number is self:                          # np.searchsorted begins with that
            return False
        if number != number:
            raise ValueError("a random number was compared with NaN: a distribution holds NaN")
        if self.scale == 0:
            return number > 0
        cut, (low, high) = float(number) / self.scale, self.interval
        if cut <= low or cut >= high:
            return cut >= high
        left = self.walk.fork((cut - low) / (high - low))
        self.interval[left] = cut                   # True is 1: u is below the cut
        return left

    def __gt__(self, number):
        return number is not self and not self < number
    __le__, __ge__ = __lt__, __gt__                 # equality has probability 0


# The target's distribution, from the definition -------------------------------------------------------------

def distribution_of_token(logits, temperature=1.0, top_k=0, top_p=1.0):
    """What sampling.probabilities promises, slowly: logits [n_vocab] -> probabilities [n_vocab].  The
    nucleus is found among all subsets."""
    tokens = range(len(logits))
    if temperature == 0:
        return np.eye(len(logits))[int(np.argmax(logits))]
    probs = np.exp(np.asarray(logits) - max(logits)) ** (1 / temperature)
    if top_k:
        larger = [sum(logits[j] > logits[i] for j in tokens) for i in tokens]
        probs = np.array([probs[i] if larger[i] < top_k else 0.0 for i in tokens])
    probs = probs / probs.sum()
    if top_p < 1:
        subsets = (list(s) for n in range(1, len(logits) + 1) for s in itertools.combinations(tokens, n))
        size = len(next(s for s in subsets if probs[s].sum() >= top_p))
        nucleus = list(max(itertools.combinations(tokens, size), key=lambda s: probs[list(s)].sum()))
        probs = np.isin(tokens, nucleus) * probs / probs[nucleus].sum()
    return probs


def distribution_of_text(model, prompt, n_tokens, eos=None, **settings):
    """{text: probability} of n_tokens tokens after the prompt; fewer where an EOS (`eos`: one id or
    several) ends the text.

    >>> distribution_of_text(memoryless([.5, .25, .25]), [0], 2, eos=[0, 1])[2, 0]
    0.125
    """
    ends = () if eos is None else (eos,) if isinstance(eos, Integral) else eos
    if n_tokens == 0:
        return {(): 1.0}
    distribution = {}
    for token, chance in enumerate(distribution_of_token(model(prompt)[0], **settings)):
        left = 0 if token in ends else n_tokens - 1
        rest = distribution_of_text(model, [*prompt, token], left, eos, **settings)
        distribution |= {(token, *text): float(chance * more) for text, more in rest.items() if chance > 0}
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

SETTINGS = [dict(temperature=.5), dict(temperature=2.), dict(temperature=0), dict(top_k=1), dict(top_k=2),
            dict(top_p=.5), dict(top_p=.8), dict(temperature=.7, top_k=2, top_p=.9),
            dict(eos=0), dict(eos=[1]), dict(eos={0, 2}), dict(eos=(0, 1, 2))]


def check(sampler, pairs=None, Ks=(1, 2, 3, 4), n_tokens=4, **settings):
    """The largest deviation of any text's probability from the target's, over the standard cases; 1e-12 is
    rounding.

    sampler     (draft, target, tokens, n_tokens, K, rng, **settings) -> rounds, or the new tokens
    pairs       (draft, target) each, with a vocabulary of a few tokens; the tables above by default
    Ks          each is tried on every pair
    settings    temperature, top_k, top_p, eos: in place of the standard ones

    Where there is a text whose probability is wrong, the first is printed with both probabilities.
    Raises ValueError for a sampler that never ends; what the sampler itself raises comes through.
    """
    worst = 0.0
    for case in cases(pairs, Ks, n_tokens, settings):
        worst = max(worst, case_deviation(sampler, *case, quiet=worst > WRONG))
    return worst


def cases(pairs, Ks, n_tokens, settings):
    """(name, draft, target, n_tokens, K, settings) of each case of `check`."""
    named = PAIRS if pairs is None else {f"pair {i}": pair for i, pair in enumerate(pairs)}
    for name, pair in named.items():
        yield from ((name, *pair, n_tokens, K, settings) for K in Ks)
    if settings:
        return
    for name, pair in list(named.items())[:2]:
        yield from ((name, *pair, min(3, n_tokens), Ks[min(1, len(Ks) - 1)], setting) for setting in SETTINGS)
    name, pair = next(iter(named.items()))
    yield from ((name, *pair, n, Ks[-1], {}) for n in range(min(4, n_tokens)))          # the length limit


def case_deviation(sampler, name, draft, target, n_tokens, K, settings, quiet=False):
    """The largest deviation in one case; unless `quiet`, the first wrong text is printed."""
    def run(rng):
        return text_of(sampler(draft, target, list(PROMPT), n_tokens, K, rng, **settings))

    found, expected = exact_distribution(run), distribution_of_text(target, PROMPT, n_tokens, **settings)
    texts = sorted(found.keys() | expected.keys())
    off = {text: abs(found.get(text, 0) - expected.get(text, 0)) for text in texts}
    wrong = [text for text, deviation in off.items() if deviation > WRONG]
    if wrong and not quiet:
        more = "".join(f", {key} = {value}" for key, value in settings.items())
        text = wrong[0]
        print(f"Not lossless ({name}; K = {K}, {n_tokens} tokens{more}): after {PROMPT} the text "
              f"{list(text)} has probability {found.get(text, 0):.6f}, and should have "
              f"{expected.get(text, 0):.6f}.")
    return max(off.values(), default=0.0)


def text_of(result):
    """The rounds of a run, or its new tokens, as a tuple of tokens.  ValueError where they never end."""
    text = []
    for part in result:
        text += getattr(part, "tokens", [part])
        if len(text) > DRAWS:
            raise ValueError(f"the sampler has given {DRAWS:,} tokens and goes on: it never ends")
    return tuple(map(int, text))


def distance(a, b):
    """Total variation between two distributions {outcome: probability}."""
    return sum(abs(a.get(key, 0) - b.get(key, 0)) for key in a.keys() | b.keys()) / 2


if __name__ == "__main__":
    from speculative import speculative_sampling
    if {"--help", "-h"} & {*sys.argv}:
        print(__doc__)
        sys.exit()
    try:
        print(f"speculative.py: no probability is off by more than {check(speculative_sampling):.1e}")
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
