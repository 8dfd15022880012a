"""Logits -> the distribution that is sampled from -> a token.

Draft, target and baseline all go through `probabilities`, so the p and q of the accept test are the
distributions that the tokens were drawn from (the "standardized sampling" of Leviathan et al. 2022, section
2.2).  They are float64: a float32 cumulative sum over 50,257 tokens ends at 0.9999 and would now and then
run off its end.

The second half checks what the samplers are called with and what their models and drafters answer.

But: no repetition penalty, no beams; whatever turns logits into a distribution can be added in
`probabilities`.
"""
from numbers import Integral, Real
from operator import index
from typing import NamedTuple

import numpy as np

from compute.backend import largest_to_host


class Round(NamedTuple):
    """What one pass of the target gave.  The baseline yields rounds without drafts."""
    tokens: list                                # the new ones: accepted drafts, then the correction or bonus
    drafts: list                                # the k drafted tokens
    n_accepted: int                             # how many of them are among `tokens`
    target_probs: np.ndarray                    # [k + 1, n_vocab]
    draft_probs: list | np.ndarray | None       # [k, n_vocab]: what the drafts were drawn from; None: chosen
    parents: list | None = None                 # of a tree: each draft's parent, -1 the root; None: a line


def probabilities(logits, temperature=1.0, top_k=0, top_p=1.0):
    """Logits [..., n_vocab] -> probabilities float64 [..., n_vocab]: temperature, then top-k, then top-p.

    temperature 0   all on the first of the largest logits
    top_k           keep the k largest logits, and all that tie with the k-th; 0 keeps all
    top_p           keep the smallest set of mass >= top_p (Holtzman et al. 2019, section 3.1); 1 keeps all

    A logit may be -inf (impossible).  Raises ValueError for NaN, +inf, or a row of nothing but -inf.

    >>> probabilities(np.log([.5, .25, .15, .1]), top_p=.6).round(3)
    array([0.667, 0.333, 0.   , 0.   ])
    """
    logits = np.asarray(logits)
    largest = logits.max(axis=-1, keepdims=True)                # [..., 1]; NaN where a logit is NaN
    if not np.isfinite(largest).all():
        raise ValueError("the logits hold NaN or infinity: the weights are damaged, or the model overflowed")
    if temperature == 0:
        probs = np.zeros(logits.shape)
        rows = probs.reshape(-1, probs.shape[-1])               # a view
        rows[np.arange(len(rows)), logits.argmax(axis=-1).reshape(-1)] = 1.0
        return probs
    logits = logits.astype(np.float64, order="C")               # C order: the reshapes below must be views
    with np.errstate(over="ignore"):                            # a tiny temperature: -inf, hence 0, is right
        probs = np.exp((logits - largest) / temperature)        # [..., n_vocab], the largest is 1
    if 0 < top_k < logits.shape[-1]:
        kth = -int(top_k)                                       # int: NumPy's unsigned have no negative
        probs[logits < np.partition(logits, kth, axis=-1)[..., kth, None]] = 0.0
    probs /= probs.sum(axis=-1, keepdims=True)
    if top_p < 1:
        for row in probs.reshape(-1, probs.shape[-1]):
            keep_nucleus(row, top_p)
    return probs


def keep_nucleus(probs, top_p):
    """In place: zero all but the smallest set of mass >= top_p in probs [n_vocab], and renormalize."""
    # Sorting 50,257 numbers costs more than the softmax.  Tokens below (1 - top_p) / n_vocab weigh less
    # than 1 - top_p together, so the nucleus lies among the others.
    candidates = np.flatnonzero(probs >= (1 - top_p) / len(probs))
    candidates = candidates[np.argsort(-probs[candidates], kind="stable")]  # most likely first, ties by index
    mass_before = np.cumsum(probs[candidates]) - probs[candidates]
    nucleus = candidates[: max(1, np.count_nonzero(mass_before < top_p))]
    kept = probs[nucleus]
    probs[:] = 0.0
    probs[nucleus] = kept / kept.sum()


def sample(probs, rng):
    """Draw a token from probs [n_vocab], which need not sum to 1: the inverse of its cumulative sum.

    Where one token has it all there is nothing to draw, and no random number is used.
    """
    likeliest = probs.argmax()
    if probs[likeliest] == probs.sum():             # as at temperature 0
        return int(likeliest)
    cumulative = np.cumsum(probs, dtype=np.float64)
    token = np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")
    # The product may round up to the total: then it is the last token that adds to the sum.
    return int(min(token, np.searchsorted(cumulative, cumulative[-1])))


def cut_after(tokens, ends):
    """The tokens up to the first that is in `ends`; that one stays.

    >>> cut_after([5, 9, 6, 9], ends={9})
    [5, 9]
    """
    return next((tokens[:i + 1] for i, token in enumerate(tokens) if token in ends), tokens)


# What goes in: one sentence that says what is wrong and what to do ------------------------------------------

def prepare(models, tokens, n_tokens, temperature, top_k, top_p, eos):
    """Check what a sampler is called with.  Returns (tokens, to_probs, ends).

    models      those that will be asked; None among them is none
    tokens      the prompt as a list
    to_probs    logits [n_rows, n_vocab] -> probabilities [n_rows, n_vocab], the same for all models;
                with `n_rows` given it refuses another number of rows
    ends        the set of EOS ids
    Raises ValueError.
    """
    models = [model for model in models if model is not None]
    ends = check_settings(n_tokens, temperature, top_k, top_p, eos)
    tokens = token_list(tokens, "the prompt must be a list of token ids: encode a text first")
    n_ctx = min((getattr(model, "n_ctx", float("inf")) for model in models), default=float("inf"))
    vocabularies = {model.n_vocab for model in models if hasattr(model, "n_vocab")}
    check_vocabularies(vocabularies)
    if not tokens:
        raise ValueError("the prompt is empty: give it at least one token")
    if len(tokens) + min(n_tokens, 1) > n_ctx:
        raise ValueError(f"the prompt has {len(tokens)} tokens, which leave no room in the context of "
                         f"{n_ctx}: shorten it")
    if len(tokens) + n_tokens > n_ctx:
        raise ValueError(f"a prompt of {len(tokens)} tokens and {n_tokens} new ones do not fit into the "
                         f"context of {n_ctx}: ask for at most {n_ctx - len(tokens)} new tokens, or shorten "
                         "the prompt")
    needed = 1 if temperature == 0 else top_k       # logits that a row's distribution depends on; 0 is all

    def to_probs(logits, n_rows=None):
        logits = largest_to_host(logits, needed)
        *rows, n_vocab = np.shape(logits)
        if n_rows is not None and rows != [n_rows]:
            raise ValueError(f"a model was asked for the logits of {n_rows} positions and gave an array of "
                             f"the shape {np.shape(logits)}: it must be [n_last, n_vocab]")
        vocabularies.add(n_vocab)
        check_vocabularies(vocabularies)
        return probabilities(logits, temperature, top_k, top_p)

    return tokens, to_probs, ends


def check_settings(n_tokens, temperature=1.0, top_k=0, top_p=1.0, eos=None):
    """Refuse numbers that mean nothing.  Returns the ids of EOS as a set.  Raises ValueError."""
    if not isinstance(n_tokens, Integral) or n_tokens < 0:
        raise ValueError(f"the number of tokens to generate is {n_tokens!r}: "
                         "it must be a whole number, 0 or more")
    if not isinstance(temperature, Real) or not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature is {temperature!r}: it must be 0 (greedy) or a positive number")
    if not isinstance(top_k, Integral) or top_k < 0:
        raise ValueError(f"top_k is {top_k!r}: it must be a whole number, 0 (keep all) or more")
    if not isinstance(top_p, Real) or not 0 < top_p <= 1:
        raise ValueError(f"top_p is {top_p!r}: it must be above 0 and at most 1 (keep all)")
    if eos is None:
        return set()
    return set(token_list([eos] if np.ndim(eos) == 0 and not isinstance(eos, (set, frozenset)) else eos,
                          f"eos is {eos!r}: it must be a token id, several, or None"))


def check_K(K):
    """Raises ValueError where K is no number of drafts."""
    if not isinstance(K, Integral) or K < 1:
        raise ValueError(f"K is {K!r}: it must be a whole number, at least one draft a round")


def check_vocabularies(sizes):
    """Raises ValueError where models have vocabularies of different sizes."""
    if len(sizes) > 1:
        raise ValueError("draft and target have different vocabularies "
                         f"({' and '.join(map(str, sorted(sizes)))} tokens): take two models of one family")


def token_list(tokens, complaint):
    """The ids as a list of Python's int.  Raises ValueError(complaint) where they are something else."""
    try:
        if isinstance(tokens, (str, bytes)):
            raise TypeError
        return [index(token) for token in tokens]
    except TypeError:
        raise ValueError(complaint) from None


# What comes back from a drafter -----------------------------------------------------------------------------

def checked_drafts(drafts, k, target):
    """The drafts as a list of ids.  Raises ValueError where they are more than k or unknown to the target."""
    drafts = token_list(drafts, f"the drafter proposed {drafts!r}: drafts must be a list of token ids")
    n_vocab = getattr(target, "n_vocab", float("inf"))
    if len(drafts) > k:
        raise ValueError(f"the drafter proposed {len(drafts)} tokens where at most {k} were wanted")
    for token in drafts:
        if not 0 <= token < n_vocab:
            raise ValueError(f"the drafter proposed token {token}, which is not in the target's vocabulary")
    return drafts


def checked_probs(draft_probs, drafts, target_probs):
    """The distributions [k, n_vocab] of the drafts; None makes point masses.

    Raises ValueError where they are no distributions, or cannot be those that the drafts were drawn from.

    >>> checked_probs(None, [2, 0], np.full((3, 3), 1 / 3))
    array([[0., 0., 1.],
           [1., 0., 0.]])
    """
    n_vocab = target_probs.shape[-1]
    if any(token >= n_vocab for token in drafts):
        raise ValueError(f"the drafter proposed token {max(drafts)}, which is not in the target's vocabulary")
    if draft_probs is None:
        draft_probs = np.zeros((len(drafts), n_vocab))
        draft_probs[np.arange(len(drafts)), drafts] = 1.0
        return draft_probs
    shapes = [np.shape(p) for p in draft_probs]
    if shapes != [(n_vocab,)] * len(drafts):
        raise ValueError(f"the drafter gave distributions of the shapes {shapes} for {len(drafts)} drafts: "
                         f"they must be [{len(drafts)}, {n_vocab}], or None for point masses")
    for token, p in zip(drafts, draft_probs):
        if not (abs(np.sum(p) - 1) < 1e-6 and np.min(p) >= 0 and p[token] > 0):     # also where it holds NaN
            raise ValueError(f"the drafter gave token {token} with a distribution that it cannot come "
                             f"from: its probabilities sum to {np.sum(p):.6g}, and "
                             f"that of the token is {p[token]:.6g}")
    return draft_probs
