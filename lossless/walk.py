"""A random generator that takes every branch: run(rng) -> the exact probability of each outcome.

A sampler is run with a `Walk` in place of its random generator.  `random()` then returns a `Uniform`, which
stands for a number u.  All that is known of u is an interval: [0, 1) at first.  Whenever the sampler compares
u (with an accept ratio, with a cumulative sum), the interval is cut in two, and the `Uniform` answers for one
side.  `exact_distribution` runs the sampler again for the other side.  The chance of a side is its share of
the interval, and the probability of a branch is the product of these chances.

Two coins, one of them biased, give four branches: .75 * .5 = .375 and so on.

>>> def two_coins(rng):
...     return "HT"[rng.random() >= .75] + "HT"[rng.random() >= .5]
>>> exact_distribution(two_coins)
{'HH': 0.375, 'HT': 0.375, 'TH': 0.125, 'TT': 0.125}

The first run answers "below .75" and "below .5": HH.  The second run repeats the first answer and changes the
second: HT.  The third begins with "above .75", and so on.  No number is ever drawn.

Limitations: a random number may be shifted, scaled, put through `log`, and compared with numbers and arrays,
but not with another random number, so a race of exponentials or Gumbel noise cannot be walked: write
rng.choice(len(p), p=p), which draws the same, for the judge.  What happens at exactly u = 0 is not seen.
"""
import contextlib
import heapq
import itertools
from collections import defaultdict

import numpy as np

MAX_BRANCHES = 1_000_000    # of one case; more would take too long
RUN_STEPS = 5_000           # random numbers, calls of a model and rounds in one run; more: taken as endless
NEGLIGIBLE = 1e-13          # less likely branches are left out
OBJECT_ERRORS = "numpy.object_", "Uniform", "input types"       # NumPy and torch say these of a Uniform
NOT_REPEATED = ("the sampler did not repeat itself: it must remember nothing between runs (make a new one "
                "for each; in a file, forget everything when a text does not continue the last), have no "
                "random generator of its own (draw from the one that is given), and not read the clock")
ENDLESS = (f"the sampler has made {RUN_STEPS:,} steps (random numbers, calls of a model, rounds) and goes "
           "on: it never ends, or its texts are too long for the judge")
RACE = "To judge argmax(log p + Gumbel noise) or argmin(exponentials / p), write rng.choice(len(p), p=p)"
NOT_WALKED = ("a random number was {}: that cannot be walked. Compare each with a probability or a "
              "cumulative sum. " + RACE)
# A number that answers comparisons --------------------------------------------------------------------------


class Uniform(np.lib.mixins.NDArrayOperatorsMixin):
    """Stands for a number computed from u, which is uniform in `interval`.  A comparison that is not yet
    decided cuts the interval in two, and the walk chooses a side: the likelier one first.

    >>> u = Walk().random()
    >>> u < .25, u.interval
    (False, [0.25, 1.0])
    >>> 1 - u > .8, u.interval                                  # u < .2: already decided
    (False, [0.25, 1.0])

    The number is below c if u is below cut(c), or above cut(c) if the number `falls` as u grows.  All numbers
    computed from one u share its interval: here 1 - u has cut(c) = 1 - c, and falls.
    """
    __class__ = float                                       # for isinstance

    def __init__(self, walk, interval=None, cut=float, falls=False):
        self.walk, self.interval, self.cut, self.falls = walk, interval or [0.0, 1.0], cut, falls
        if interval is None:
            walk.step()

    def transform(self, inverse, falls=False):
        """A function of this number, below c if this number is below inverse(c) (above, if `falls`)."""
        return Uniform(self.walk, self.interval, lambda c: self.cut(inverse(c)), self.falls != falls)

    def is_below(self, c):
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
        return self.apply(ufunc.__name__, inputs[0] is self, *others)

    def comparison(name):
        """A comparison that bypasses NumPy, for speed."""
        def decide(self, c):
            if type(c) in (float, np.float64):
                return c == c and self.is_below(c) == name.startswith("less")
            return name.endswith("equal") if c is self else getattr(np, name)(self, c)     # NumPy asks u < u
        return decide

    __lt__, __le__, __gt__, __ge__ = map(comparison, ("less", "less_equal", "greater", "greater_equal"))

    def apply(self, name, left, a=None):
        """The result of NumPy's operator `name`; `left`: this number is on the left of `a`."""
        if name in ("equal", "not_equal"):                  # equality with a number has probability 0
            return name == "not_equal"
        if a != a:                                          # NaN
            return False if name.startswith(("less", "greater")) else a
        match name:
            case "less" | "less_equal" | "greater" | "greater_equal":
                return self.is_below(a) == (left == name.startswith("less"))
            case "maximum" | "minimum":
                return a if self.is_below(a) == (name == "maximum") else self
            case "floor":
                return int(self)
            case "negative":
                return self.transform(lambda c: -c, falls=True)
            case "add":
                return self.transform(lambda c: c - a)
            case "subtract":
                return self.transform((lambda c: c + a) if left else (lambda c: a - c), falls=not left)
            case "multiply":
                return self.transform(lambda c: c / a, falls=a < 0) if a else 0.0
            case "divide" if left:
                return self.transform(lambda c: c * a, falls=a < 0)
            case "log":
                return np.nan if self.is_below(0) else self.transform(lambda c: np.exp(min(c, 700)))
        self.walk.refuse(f"put through np.{name}")

    def log(self):                                          # NumPy calls this for arrays of such numbers
        return np.log(self)

    def __int__(self):
        for n in range(RUN_STEPS if self >= 0 else 0):
            if self < n + 1:
                return n
        self.walk.refuse(f"rounded below 0, or made one of more than {RUN_STEPS:,} integers")
    __floor__ = __trunc__ = __int__

    def __float__(self):
        self.walk.refuse("made a plain number")

# The generator ----------------------------------------------------------------------------------------------
NUMPY_RNG = np.random.default_rng(0)    # draws nothing that is used


class Unlikely(BaseException):
    """Ends a run that goes on and on in a very unlikely branch.  `except Exception` does not catch it."""


class Walk(np.random.Generator):
    """Stands in for NumPy's generator in one run.  Each cut of an interval is a fork.  The walk repeats the
    forks of `path`, then takes the likelier side of each new one.  All of them are in `forks`: (whether it
    went left, the chance of the left side, the probability of the branch on the other side).  In a very
    unlikely branch it takes each side about as often as chance would: a loop that ends by chance does end."""

    def __init__(self, path=()):
        super().__init__(NUMPY_RNG.bit_generator)
        self.path, self.forks, self.probability, self.steps, self.refused = path, [], 1.0, 0, None

    def refuse(self, what, sentence=NOT_WALKED):
        self.refused = self.refused or ValueError(sentence.format(what))
        raise self.refused

    def fork(self, chance_left):
        n, before = len(self.forks), self.probability
        known = n < len(self.path)
        middle = .5 if before > NEGLIGIBLE else n ** 2 * .6180339 % 1
        left, expected, _ = self.path[n] if known else (chance_left >= middle, chance_left, 0)
        if abs(expected - chance_left) > 1e-6:
            self.refuse("", NOT_REPEATED)
        self.probability *= chance_left if left else 1 - chance_left
        self.forks.append((left, chance_left, before * (1 - chance_left if left else chance_left)))
        return left

    def step(self):
        self.steps += 1
        if self.steps > RUN_STEPS:
            if self.probability < 1e-3:                     # a loop that chance would end eventually
                raise Unlikely
            self.refuse("", ENDLESS)

    def repeat(self, draw, size):
        """What draw() returns, or an array of the shape `size`."""
        return draw() if size is None else np.array([draw() for _ in range(np.prod(size))]).reshape(size)

    def random(self, size=None, dtype=float):
        return self.repeat(lambda: Uniform(self), size)

    def uniform(self, low=0.0, high=1.0, size=None):
        size = np.broadcast_shapes(np.shape(low), np.shape(high)) or None if size is None else size
        return np.subtract(high, low) * self.random(size) + np.asarray(low)[()]

    def integers(self, low, high=None, size=None, dtype=int, endpoint=False):
        low, high = (0, low) if high is None else (low, high)
        if np.ndim(low) or np.ndim(high) or high - low > RUN_STEPS:
            self.refuse(f"drawn between {low} and {high}")
        return self.choice(np.arange(low, high + endpoint), size)

    def choice(self, a, size=None, replace=True, p=None):
        NUMPY_RNG.choice(a, size, replace, p)               # its own checks
        values = np.asarray(a) if np.ndim(a) else np.arange(a)
        weights = np.ones(len(values)) if p is None else np.array(p, float)

        def draw():
            i = self.draw_index(weights)
            weights[i] *= replace
            return i
        drawn = values[self.repeat(draw, size)]             # an array if `a` has rows or `size` is given
        return drawn if drawn.ndim else drawn.item()

    def multinomial(self, n, pvals, size=None):
        *shape, _ = NUMPY_RNG.multinomial(n, pvals, size).shape                 # with its own checks
        weights = np.append(pvals[:-1], max(1 - np.sum(pvals[:-1]), 0))         # as in NumPy
        drawn = self.repeat(lambda: self.draw_index(weights), (n, *shape))
        return np.eye(len(weights), dtype=int)[drawn].sum(axis=0)

    def binomial(self, n, p, size=None):
        return np.sum(self.random((n, *np.shape(NUMPY_RNG.binomial(n, p, size)))) < p, axis=0)

    def draw_index(self, weights):
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
            name, "the judge cannot walk rng.{}: draw with rng.random, uniform, integers, choice. " + RACE)))

# Every branch -----------------------------------------------------------------------------------------------

def exact_distribution(run, max_steps=np.inf):
    """run(rng) -> outcome.  Returns {outcome: probability} over everything that `rng` could give.

    `run` must do the same each time, so it must create any drafter that has a memory.  Branches with a
    probability below 1e-13 are left out, and all that remain after `max_steps` steps.
    Raises ValueError if the run never ends, does not repeat itself, or asks for what cannot be walked.

    >>> exact_distribution(lambda rng: "heads" if rng.random() < .75 else "tails")
    {'heads': 0.75, 'tails': 0.25}
    >>> exact_distribution(lambda rng: rng.choice(3, p=[.5, .25, .25]))
    {0: 0.5, 1: 0.25, 2: 0.25}
    """
    distribution, to_walk = defaultdict(float), [(-1.0, 0, [], 0)]
    order, steps = itertools.count(1), 0
    for _ in range(MAX_BRANCHES):
        *_, forks, n = heapq.heappop(to_walk)               # the likeliest one leaves `forks` at the n-th
        path = [*forks[:n], *((not left, chance, 0.0) for left, chance, _ in forks[n:n + 1])]
        walk = Walk(path)
        with contextlib.suppress(Unlikely):
            distribution[run_branch(run, walk)] += walk.probability
        if len(walk.forks) < len(path):
            raise ValueError(NOT_REPEATED)
        for n in range(len(path), len(walk.forks)):         # the other side of each new fork
            chance_of_other = walk.forks[n][2]
            if chance_of_other > NEGLIGIBLE:
                heapq.heappush(to_walk, (-chance_of_other, next(order), walk.forks, n))
        steps += walk.steps
        if steps > RUN_STEPS and not distribution:
            raise ValueError(ENDLESS)
        if not to_walk or steps > max_steps:
            return dict(distribution)
    raise ValueError(f"there are more than {MAX_BRANCHES:,} branches: give fewer tokens or less vocabulary")


def run_branch(run, walk):
    """run(walk).  If the walk refused something, raises its error, even if the run caught that."""
    try:
        outcome = run(walk)
    except Exception as error:
        if any(words in str(error) for words in OBJECT_ERRORS):
            walk.refuse("put into what takes plain numbers only")
        if not walk.refused:
            raise
    if walk.refused:
        raise walk.refused
    return outcome
