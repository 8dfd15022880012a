"""The standard cases: on which pairs of toy models, with which K, lengths and settings a sampler is tried.

A wrong sampler is often right by luck: at the first draft, at K = 1, if p and q share all tokens, if a round
begins after a rejection.  So each pair of models is made position by position, from a word with a letter for
each position of the new text; the letter says which tokens the two models can give there (KINDS).  In the
word "..s.", draft and target are certain of the same token at all positions but the third, so the walk has
few branches, and all of them test the third draft.

>>> len(CASES)
457
"""
import functools
import itertools
from typing import NamedTuple

import numpy as np

from lossless.toys import as_model

PROMPT = [2, 0]

# Pairs of models --------------------------------------------------------------------------------------------

# There are five tokens (24 if the word contains a w).  They play the parts a, b, .. of KINDS; which token
# plays which part is drawn again after every prefix.  A capital letter means the same kind.  An EOS that is
# given to pair() plays part a where the letter is a capital, and part e elsewhere.  GPT-2's logits are near
# -100 and below, and adding a constant to a row does not change its softmax, so the rows of an f get one of
# FAR.
PARTS, FLAT, TIES = "abcdefghijklmnopqrstuvwx", [.985 ** i for i in range(24)], np.exp([2, 2, 1, 1, 0])
FAR = -120, -102, 0, 60             # in float32, exp(-102) has few digits, and exp(-104) is 0


class Kind(NamedTuple):
    draft: str                  # the draft's tokens, the likeliest first
    target: str
    p: list | None = None       # the weights of the draft's tokens; None: random
    q: list | None = None


KINDS = {
    ".": Kind("a", "a", [1], [1]),      # both are certain of the same: sure to be accepted
    "x": Kind("b", "a", [1], [1]),      # both are certain, and differ: sure to be rejected
    "=": Kind("abc", "abc"),            # the same distribution
    "s": Kind("cd", "abc"),             # sparse: c is accepted now and then, d never; the residual is a and b
    "b": Kind("dceb", "abcd"),          # broad: b is sure to be accepted, with few exceptions
    "f": Kind("bcaed", "abcde"),        # full: all tokens in both; logits in float32, some far from 0
    "o": Kind("cd", "ab"),              # disjoint
    "t": Kind("a", "abc"),              # the draft is certain
    "p": Kind("ba", "a"),               # the target is certain
    "e": Kind("bac", "acb", [.5, .3, .2], [.6, .3, .1]),        # easy numbers; a comes in each way
    "l": Kind("abc", "abc", [.9988, .001, .0002], [.993, .004, .003]),  # a is likely, and drafted too often
    "c": Kind("a", "abc", [1], [1, 2e-7, 1e-7]),                # the draft is certain, the target nearly
    "n": Kind("abc", "abc", [.4, .4, .2], [.4 + 3e-8, .4 - 3e-8, .2]),  # nearly the same: hardly any residual
    "r": Kind("bdca", "abcde", [1, 6e-4, 1e-4, 6e-6], [1, .14, 9e-4, 5e-5, 8e-8]),      # rare tokens in both
    "2": Kind("baecd", "abcde", TIES, TIES),                    # two are equally likely, and two others
    "k": Kind("ba", "ab", [.6, .4], [.5, .5]),                  # the target ties, the draft prefers one
    "w": Kind(PARTS[1:] + "a", PARTS, FLAT, FLAT),              # wide, and nearly flat
}


def pair(word, n_prompt=2, end=None):
    """The (draft, target) that the word describes, after n_prompt tokens; `end` is an EOS."""
    n_vocab, seed = 24 if "w" in word else 5, [*map(ord, word)]

    @functools.cache
    def rows(prefix):
        """The logits of draft and target after the prefix: [2, n_vocab]."""
        letter = word[max(len(prefix) - n_prompt, 0):][:1] or "."
        kind, streams = KINDS[letter.lower()], [2, 2] if letter == "=" else [0, 1]
        tokens = np.random.default_rng([*seed, *prefix]).permutation(n_vocab).tolist()
        if end is not None:
            i, j = 0 if letter.isupper() else 4, tokens.index(end)
            tokens[i], tokens[j] = tokens[j], tokens[i]
        logits, token_of = np.full((2, n_vocab), -np.inf), dict(zip(PARTS, tokens))
        for row, stream, parts, weights in zip(
                logits, streams, (kind.draft, kind.target), (kind.p, kind.q)):
            rng = np.random.default_rng([*seed, *prefix, stream])
            row[[token_of[part] for part in parts]] = (
                -np.sort(rng.exponential(size=len(parts))) if weights is None else np.log(weights))
            if kind is KINDS["f"]:
                row[:] = np.float32(row + rng.choice(FAR))
        return logits
    return as_model(lambda prefix: rows(prefix)[0]), as_model(lambda prefix: rows(prefix)[1])


# What is tried ----------------------------------------------------------------------------------------------

class Case(NamedTuple):
    name: str                   # what a mistake here would be about, for the report
    draft: object
    target: object
    n_tokens: int
    K: object
    settings: dict
    prompt: list = PROMPT

    def __str__(self):
        settings = "".join(f", {key} = {value}" for key, value in self.settings.items())
        return f"{self.name}; K = {self.K}, {self.n_tokens} token{'s' * (self.n_tokens != 1)}{settings}"


def make_cases(K, words, name, end=None, n_prompt=4, **settings):
    """A case for each word.  Its text has as many tokens as the word has letters."""
    if end is not None:
        settings["eos"] = [end]
    return [Case(name, *pair(w, n_prompt, end), len(w), K, settings, [0] * n_prompt) for w in words.split()]


SETTINGS = [*(dict(temperature=t) for t in (1e-7, .013, .08, .36, .5, 1.04, 2.7, 13.)),
            *(dict(top_k=k) for k in (1, 2, 3, 4, 9)),
            *(dict(top_p=p) for p in (.03, .13, .3, .46, .75, .94, .987, .9995)),
            dict(temperature=.5, top_k=3), dict(temperature=1.5, top_k=2), dict(temperature=2, top_p=.7),
            dict(top_k=4, top_p=.7), dict(temperature=.7, top_k=3, top_p=.8)]
WITH_EOS = [dict(eos=0), dict(eos=[1]), dict(eos={2, 4}), dict(eos=(0, 1, 3)), dict(eos=np.arange(5)),
            dict(eos=[3, 4], temperature=.6), dict(eos=1, top_k=2), dict(eos=[2], temperature=1.5, top_p=.8)]


def standard_cases():
    """Easy numbers come first, because the first mistake found is the one that is shown."""
    yield Case("no token is wanted", *pair(""), 0, 2, {})
    yield from make_cases(1, "ee", "easy numbers") + make_cases(2, "eee", "easy numbers")
    for K, words in {1: "ff f rr 22 ss bb == oo te pf xs ef nf ll c. w ..............s.s. x.ss s.s.s..",
                     2: "ff. sb. sss .ss es. so. bs. rn. .sl .nr ...x..bs. x.xbs.", 3: "bf.. .bs. s.s.",
                     4: "f ss s.s ...........ss. .............s.s.s", 8: "s.......s.......s"}.items():
        yield from make_cases(K, words, "chance at several positions")
    for K, n_rounds in (1, 10), (2, 6):
        words = ["x" * n + "ss" + "." * (K - 1) for n in range(1, n_rounds)]       # each x is a round
        yield from make_cases(K, " ".join(words), "one of many rounds")
    for K in range(1, 9):
        for i in range(K + 1):
            yield from position_cases(K, "." * i, "." * K)
    for setting in SETTINGS:
        words = "f. 2. r. n. w" + " ff" * (len(setting) > 1)
        yield from make_cases(1, words, "temperature, top-k and top-p", **setting)
        yield from make_cases(2, "..f ...f.", "temperature, top-k and top-p in a longer round", **setting)
    for setting in WITH_EOS:
        yield from make_cases(2, "se. .bs.s", "the ways to give EOS", **setting)
    for K in 1, 2, 3, 4, 6:
        yield from make_cases(K, "kf 2k =.fxk2s=..xf", "the likeliest token, and ties", temperature=0)
    for n_prompt in 1, 20:
        yield from make_cases(2, "ff. s.s", "a prompt of one token, or of twenty", n_prompt=n_prompt)


def position_cases(K, before, after):
    """A mistake at one position of a round of K, the one after `before`, or in the next round."""
    i = len(before)
    yield from make_cases(K, f"{before}ss{after}", "one position of a round, and the first of the next")
    yield from make_cases(K, f"{before}E{after}", "EOS at one position of a round", (K + i) % 5)
    if K <= 4:
        yield from make_cases(K, f"{before}x.s{after} {before}xs", "the second position of the next round")
        yield from make_cases(K, f"{before}to{after} {before}p={after}", "sure drafts at one position")
        yield from make_cases(K, f"x{before}E{after}", "EOS at one position of a later round", (K + i) % 5)
        yield from make_cases(K, f"{before}st x{before}st", "the length limit") if i < K else ()


def give_prompts(cases, first=0):
    """Gives each case a new prompt, so that a sampler's memory of one does not affect the next."""
    for i, case in enumerate(cases, first):
        yield case._replace(prompt=[i // 5 ** j % 5 for j in range(len(case.prompt))])


CASES = [*give_prompts(standard_cases())]


def thorough_cases():
    """The standard cases, then every two positions of a text, and all settings with more drafts."""
    yield from CASES
    yield from give_prompts(more_cases(), len(CASES))


def more_cases():
    for K in range(1, 7):
        for i, j in itertools.combinations(range(2 * K + 3), 2):
            word = "." * i + "{}" + "." * (j - i - 1) + "{}" + "." * (2 * K + 2 - j)
            yield from make_cases(K, " ".join(map(word.format, "sxbf=", "sbsxe")), "two positions of a text")
    for K, setting in itertools.product(range(1, 5), SETTINGS + WITH_EOS):
        yield from make_cases(K, "f.f bs.s .es.s 2bs", "settings in all rounds", **setting)


def pair_cases(pairs, Ks, n_tokens, settings):
    """A case for each pair and each K.  Without settings, the first two pairs are tried with some, too."""
    for n, (draft, target) in enumerate(pairs):
        for K in Ks:
            least = max(4, K + 1) if isinstance(K, int) else 4
            yield Case(f"pair {n}", draft, target, n_tokens or least, K, settings, [0, 0])
        for setting in [] if settings or n > 1 else [dict(temperature=0), *SETTINGS[3::3], *WITH_EOS]:
            yield Case(f"pair {n}", draft, target, min(3, n_tokens or 3), Ks[len(Ks) // 2], setting, [0, 0])
