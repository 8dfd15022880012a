"""Logits -> the distribution to sample from -> a token.

Draft, target and baseline all go through `probabilities`, so that in the accept test p is the distribution
the drafts were drawn from and q the one the baseline draws from (the "standardized sampling" of Leviathan et
al. 2022, section 2.2).  All probabilities are float64, because in float32 the cumulative sum over 50,257
tokens may end at 0.99996, and an occasional draw would fall beyond it.

Limitations: no repetition penalty, no beam search.
"""
from typing import NamedTuple

import numpy as np

from engine.compute.backend import to_host


class Round(NamedTuple):
    """The result of one target pass.  The baseline's rounds have no drafts."""
    tokens: list                                # accepted drafts, then one more unless an EOS was accepted
    drafts: list                                # the k drafted tokens
    n_accepted: int                             # how many of them are among `tokens`
    target_probs: np.ndarray                    # [k + 1, n_vocab]
    draft_probs: list | np.ndarray | None       # [k, n_vocab], drawn from these; None: a tree of chosen nodes
    parents: list | None = None                 # only trees: the index of each draft's parent; -1: the root


def probabilities(logits, temperature=1.0, top_k=0, top_p=1.0):
    """Logits [..., n_vocab] -> probabilities float64 [..., n_vocab]: temperature, then top-k, then top-p.

    temperature 0   all the probability on the largest logit, the first one if several tie
    top_k           keep the k largest logits, and any that tie with the k-th; 0 keeps all
    top_p           keep the smallest set of mass >= top_p (Holtzman et al. 2019, section 3.1); 1 keeps all

    A logit may be -inf (an impossible token).  Raises ValueError for NaN, +inf, or a row that is all -inf.

    >>> probabilities(np.log([.5, .25, .15, .1]), top_p=.6).round(3)
    array([0.667, 0.333, 0.   , 0.   ])
    """
    logits = np.asarray(to_host(logits))
    largest = logits.max(axis=-1, keepdims=True)                # [..., 1]; NaN if a logit is NaN
    if not np.isfinite(largest).all():
        raise ValueError("the logits hold NaN or infinity: the weights are damaged, or the model overflowed")
    if temperature == 0:
        probs = np.zeros(logits.shape)
        np.put_along_axis(probs, logits.argmax(axis=-1, keepdims=True), 1.0, axis=-1)
        return probs
    logits = logits.astype(np.float64, order="C")               # C order: the reshape below must be a view
    with np.errstate(over="ignore"):                            # a tiny temperature gives -inf, hence 0
        probs = np.exp((logits - largest) / temperature)        # [..., n_vocab], the largest is 1
    if 0 < top_k < logits.shape[-1]:
        kth = np.partition(logits, -top_k, axis=-1)[..., -top_k, None]      # [..., 1], the k-th largest
        probs[logits < kth] = 0.0
    probs /= probs.sum(axis=-1, keepdims=True)
    if top_p < 1:
        for row in probs.reshape(-1, probs.shape[-1]):
            keep_nucleus(row, top_p)
    return probs


def keep_nucleus(probs, top_p):
    """In place: zero all but the smallest set of mass >= top_p in probs [n_vocab], and renormalize."""
    # Sorting 50,257 numbers would cost more than the softmax, so only candidates are sorted: all tokens below
    # (1 - top_p) / n_vocab together have less than 1 - top_p, so none of them is in the nucleus.
    candidates = np.flatnonzero(probs >= (1 - top_p) / len(probs))
    candidates = candidates[np.argsort(-probs[candidates], kind="stable")]  # most likely first, ties by index
    mass_before = np.cumsum(probs[candidates]) - probs[candidates]
    nucleus = candidates[: max(1, np.count_nonzero(mass_before < top_p))]
    kept = probs[nucleus]
    probs[:] = 0.0
    probs[nucleus] = kept / kept.sum()


def sample(probs, rng):
    """Draw a token from probs [n_vocab], which need not sum to 1, by inverting the cumulative sum.

    No random number is used if one token has all the probability.
    """
    likeliest = probs.argmax()
    if probs[likeliest] == probs.sum():             # as at temperature 0
        return int(likeliest)
    cumulative = np.cumsum(probs, dtype=np.float64)
    # rng.random() is at most 1 - 2^-53, so the product is below the sum (unless that is below 2.2e-308), and
    # probs[token] > 0.
    return int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))


def point_masses(tokens, n_vocab):
    """The distributions [k, n_vocab] of tokens that were chosen rather than drawn.

    >>> point_masses([2, 0], 3)
    array([[0., 0., 1.],
           [1., 0., 0.]])
    """
    probs = np.zeros((len(tokens), n_vocab))
    probs[np.arange(len(tokens)), tokens] = 1.0
    return probs


def cut_after(tokens, eos):
    """The tokens up to and including the first that is in `eos`.

    >>> cut_after([5, 9, 6, 9], eos={9})
    [5, 9]
    """
    return next((tokens[:i + 1] for i, token in enumerate(tokens) if token in eos), tokens)
