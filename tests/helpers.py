"""What the tests share: models given by tables, exact laws, mutants, tiny GPT-2s.

The exact law of a sampler is found by running the sampler itself.  In the place of the random generator it gets a `Walk`,
whose `random()` returns a uniform number of which only an interval is known, [0, 1) at first.  Wherever the program compares
that number (with an accept ratio, with a cumulative sum) the interval is cut in two, and `exact_law` runs the program once
for each side.  So every branch is walked, and its probability is the product of the lengths of the final intervals.  Nothing
in the program is replaced.
"""
import functools
import inspect
import itertools
import types
from collections import defaultdict
from pathlib import Path

import numpy as np

import gpt2
import speculative

N_VOCAB = 3                                         # of the table models


# Walking every branch ------------------------------------------------------------------------------------------------------

def exact_law(run):
    """run(rng) -> outcome.  Returns {outcome: probability} over all that `rng.random()` could give.

    >>> exact_law(lambda rng: "heads" if rng.random() < .25 else "tails")
    {'heads': 0.25, 'tails': 0.75}
    """
    law, path = defaultdict(float), []
    for _ in range(100_000):
        walk = Walk(path)
        outcome = run(walk)
        law[outcome] += walk.probability
        path = walk.taken
        while path and not path[-1]:                # the last fork that was taken to the left is next taken to the right
            path.pop()
        if not path:
            return dict(law)
        path[-1] = False
    raise AssertionError("more than 100,000 branches")


class Says:
    """In the generator's place: `random()` returns these numbers, one after the other."""

    def __init__(self, *numbers):
        self.random = iter(numbers).__next__


class Walk:
    """The generator's place: `random` is all it has.  Repeats the forks of `path`, then turns left at each."""

    def __init__(self, path):
        self.path, self.taken, self.probability = path, [], 1.0

    def random(self):
        return Uniform(self)

    def fork(self, chance_left):
        assert 0 < chance_left < 1, "a law holds NaN"
        n = len(self.taken)
        left = self.path[n] if n < len(self.path) else True
        self.taken.append(left)
        self.probability *= chance_left if left else 1 - chance_left
        return left


class Uniform:
    """u * scale, where u is uniform in [low, high)."""
    __array_ufunc__ = None                          # NumPy's numbers leave the arithmetic to this class

    def __init__(self, walk, scale=1.0):
        self.walk, self.low, self.high, self.scale = walk, 0.0, 1.0, scale

    def __mul__(self, scale):
        return Uniform(self.walk, self.scale * float(scale))        # before it is compared, so [0, 1) is right
    __rmul__ = __mul__

    def __lt__(self, number):
        if number is self:                          # np.searchsorted begins with that
            return False
        if self.scale == 0:
            return number > 0
        cut = float(number) / self.scale
        if cut <= self.low or cut >= self.high:
            return cut >= self.high
        if self.walk.fork((cut - self.low) / (self.high - self.low)):
            self.high = cut
            return True
        self.low = cut
        return False

    def __gt__(self, number):                       # equality has probability 0
        return number is not self and not self < number
    __le__, __ge__ = __lt__, __gt__


# Models given by tables ----------------------------------------------------------------------------------------------------

def as_model(row):
    """row(prefix, a tuple) -> logits [n_vocab] makes a model.  What it returns is read-only: nobody may change it."""
    row = functools.cache(row)

    def model(tokens, n_last=1):
        assert 1 <= n_last <= len(tokens)
        logits = np.array([row(tuple(tokens[:n])) for n in range(len(tokens) - n_last + 1, len(tokens) + 1)], dtype=float)
        logits.flags.writeable = False
        return logits
    return model


def table(seed, zeros=0.0, n_vocab=N_VOCAB):
    """A model with a law of its own after every prefix, in which a token is impossible with probability `zeros`."""
    def row(prefix):
        rng = np.random.default_rng([seed, *prefix])
        logits = rng.normal(scale=1.5, size=n_vocab)
        impossible = rng.random(n_vocab) < zeros
        impossible[rng.integers(n_vocab)] = False
        return np.where(impossible, -np.inf, logits)
    return as_model(row)


def memoryless(probs):
    """A model with the same law everywhere."""
    with np.errstate(divide="ignore"):
        logits = np.log(probs)
    return as_model(lambda prefix: logits)


def scripted(text, n_vocab=10):
    """A model that says `text` whatever went before: after n tokens text[n], and text[-1] beyond its end."""
    return as_model(lambda prefix: np.where(np.arange(n_vocab) == text[min(len(prefix), len(text) - 1)], 0.0, -np.inf))


# The target's own law, from the definition ---------------------------------------------------------------------------------

def law_of_one_token(logits, temperature=1.0, top_k=0, top_p=1.0):
    """What sampling.probabilities promises, slowly.  The nucleus is found among all subsets."""
    tokens = range(len(logits))
    if temperature == 0:
        return np.eye(len(logits))[int(np.argmax(logits))]
    probs = np.exp(np.asarray(logits) - max(logits)) ** (1 / temperature)
    if top_k:
        probs = np.array([probs[i] if sum(logits[j] > logits[i] for j in tokens) < top_k else 0.0 for i in tokens])
    probs = probs / probs.sum()
    if top_p < 1:
        subsets = (list(s) for size in range(1, len(logits) + 1) for s in itertools.combinations(tokens, size))
        size = len(next(s for s in subsets if probs[s].sum() >= top_p))
        nucleus = list(max(itertools.combinations(tokens, size), key=lambda s: probs[list(s)].sum()))
        probs = np.isin(tokens, nucleus) * probs / probs[nucleus].sum()
    return probs


def law_of_text(model, prompt, n_tokens, eos=(), **settings):
    """{text: probability} of n_tokens tokens after the prompt, fewer where one of `eos` ends the text."""
    if n_tokens == 0:
        return {(): 1.0}
    law = {}
    for token, chance in enumerate(law_of_one_token(model(prompt)[0], **settings)):
        rest = {(): 1.0} if token in eos else law_of_text(model, [*prompt, token], n_tokens - 1, eos, **settings)
        law |= {(token, *text): chance * more for text, more in rest.items() if chance > 0}
    return law


def text_of(rounds):
    """The rounds of a run, joined."""
    return tuple(token for r in rounds for token in r.tokens)


def distance(a, b):
    """Total variation between two laws {outcome: probability}."""
    return sum(abs(a.get(key, 0) - b.get(key, 0)) for key in a.keys() | b.keys()) / 2


def error_of_law(sampler):
    """How far the law of a speculative sampler is from the target's: the largest total variation over a few settings."""
    target, some, full = table(123, zeros=.2), table(23, zeros=.2), table(223)
    cases = [(2, some, {}), (3, some, {}), (2, full, dict(top_k=2)), (2, some, dict(eos=[1]))]
    return max(distance(exact_law(lambda rng: text_of(sampler(draft, target, [0], 3, K, rng, **settings))),
                        law_of_text(target, [0], 3, **settings)) for K, draft, settings in cases)


# Wrong versions ------------------------------------------------------------------------------------------------------------

def mutant(module, *changes):
    """The module with each (old, new) of its source replaced; `old` must be there exactly once."""
    source = inspect.getsource(module)
    for old, new in changes:
        assert source.count(old) == 1, f"{module.__name__}.py holds {old!r} {source.count(old)} times: adapt the test"
        source = source.replace(old, new)
    changed = types.ModuleType(module.__name__)
    exec(compile(source, f"mutant of {module.__name__}.py", "exec"), changed.__dict__)
    return changed


# Tiny GPT-2s ---------------------------------------------------------------------------------------------------------------

def tiny_gpt2(seed=0, dtype=np.float32, module=gpt2, n_vocab=13, n_ctx=80, n_embd=8, n_layer=2):
    """A random GPT-2 with two heads, its weights large enough that every part matters.  In float64 so is its cache."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.normal(scale=0.4, size=shape).astype(dtype)

    def norm():
        return {"g": 1 + normal(n_embd), "b": normal(n_embd)}

    def dense(n_in, n_out):
        return {"w": normal(n_in, n_out), "b": normal(n_out)}

    n = n_embd
    params = {"wte": normal(n_vocab, n), "wpe": normal(n_ctx, n), "ln_f": norm(), "blocks": []}
    for _ in range(n_layer):
        params["blocks"].append({"ln_1": norm(), "attn": {"c_attn": dense(n, 3 * n), "c_proj": dense(n, n)},
                                 "ln_2": norm(), "mlp": {"c_fc": dense(n, 4 * n), "c_proj": dense(4 * n, n)}})
    model = module.GPT2(params, n_head=2)
    model.cache = model.cache.astype(dtype)
    return model


def without_cache(model):
    """The same model, its cache emptied before every call."""
    def uncached(tokens, n_last=1):
        model.reset()
        return model(tokens, n_last)
    return uncached


def error_of_cache(calls, module=gpt2, dtype=np.float64):
    """The largest difference that the cache makes over these calls.

    A call (keep, new, n_last) asks for the logits of the last call's tokens[:keep] + new.
    """
    model, uncached = tiny_gpt2(module=module, dtype=dtype), without_cache(tiny_gpt2(dtype=dtype))
    tokens, error = [0], 0.0
    for keep, new, n_last in calls:
        tokens = ((tokens[:keep] + list(new)) or [0])[:model.n_ctx]
        n_last = min(n_last, len(tokens))
        error = max(error, np.abs(model(tokens, n_last) - uncached(tokens, n_last)).max())
    return error


def error_of_logits(module=gpt2, dtype=np.float64):
    """The largest difference between this forward pass and transformers' (make_transformers_fixture.py)."""
    arrays = dict(np.load(Path(__file__).parent / "fixtures" / "gpt2.npz"))
    tokens, logits = arrays.pop("tokens"), arrays.pop("logits")
    params = {"blocks": [{}, {}]}
    for name, array in arrays.items():                              # h0/ln_1/g -> params["blocks"][0]["ln_1"]["g"]
        *path, last = name.split("/")
        place = params
        for part in path:
            place = params["blocks"][int(part[1:])] if part in ("h0", "h1") else place.setdefault(part, {})
        place[last] = array.astype(dtype)
    model = module.GPT2(params, n_head=4)
    model.cache = model.cache.astype(dtype)
    return max(np.abs(model(list(row), len(row)) - expected).max() for row, expected in zip(tokens, logits))
