"""The standard cases: on which pairs of toy models, with which K, lengths and settings a sampler is tried.

>>> len(CASES)
396
"""
import functools
import itertools
from typing import NamedTuple

import numpy as np

from lossless.toys import as_model

PROMPT = [2, 0]



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


def of_pairs(pairs, Ks, n_tokens, settings):
    """A case for each pair and each K.  Without settings, the first two pairs are tried with some, too."""
    for n, (draft, target) in enumerate(pairs):
        for K in Ks:
            least = max(4, K + 1) if isinstance(K, int) else 4
            yield Case(f"pair {n}", draft, target, n_tokens or least, K, settings, [0, 0])
        for setting in [] if settings or n > 1 else [dict(temperature=0), *SETTINGS[3::3], *EOS]:
            yield Case(f"pair {n}", draft, target, min(3, n_tokens or 3), Ks[len(Ks) // 2], setting, [0, 0])
