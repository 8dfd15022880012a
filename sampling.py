"""Logits -> the law that is sampled from -> a token.

Draft, target and baseline all go through `probabilities`, so the p and q of the accept test are the laws the tokens were drawn from
(the "standardized sampling" of Leviathan et al. 2022, section 2.2).  Laws are float64: a float32 cumulative sum over
50,257 tokens ends at 0.9999 and would now and then run off its end.

But: no repetition penalty, no beams; whatever turns logits into a law can be added in `probabilities`.
"""
from numbers import Integral
from operator import index
from typing import NamedTuple

import numpy as np

from compute.backend import largest_to_host


class Round(NamedTuple):
    """What one pass of the target gave.  The baseline yields rounds without drafts."""
    tokens: list                   # the new tokens: the accepted drafts, then the correction or the bonus
    drafts: list                   # the k drafted tokens
    n_accepted: int                # how many of them are among `tokens`
    target_probs: np.ndarray       # [k + 1, n_vocab]
    draft_probs: list              # k laws [n_vocab], the ones the drafts were drawn from


def probabilities(logits, temperature=1.0, top_k=0, top_p=1.0):
    """Logits [..., n_vocab] -> probabilities float64 [..., n_vocab]: temperature, then top-k, then top-p.

    temperature 0   all on the first of the largest logits
    top_k           keep the k largest logits, and all that tie with the k-th; 0 keeps all
    top_p           keep the smallest set whose mass reaches top_p (Holtzman et al. 2019, section 3.1); 1 keeps all

    A logit may be -inf (impossible).  Raises ValueError for NaN, +inf, or a row of nothing but -inf.

    >>> probabilities(np.log([.5, .25, .15, .1]), top_p=.6).round(3)
    array([0.667, 0.333, 0.   , 0.   ])
    """
    logits = np.asarray(logits, dtype=np.float64, order="C")                    # C order: the reshapes below must be views
    largest = logits.max(axis=-1, keepdims=True)                                # [..., 1]; NaN where a logit is NaN
    if not np.isfinite(largest).all():
        raise ValueError("the logits hold NaN or infinity: the weights are damaged, or the model overflowed")
    if temperature == 0:
        probs = np.zeros_like(logits)
        rows = probs.reshape(-1, probs.shape[-1])                               # a view
        rows[np.arange(len(rows)), logits.argmax(axis=-1).reshape(-1)] = 1.0
        return probs
    with np.errstate(over="ignore"):                                            # a tiny temperature: -inf, hence 0, is right
        probs = np.exp((logits - largest) / temperature)                        # [..., n_vocab], the largest is 1
    if 0 < top_k < logits.shape[-1]:
        probs[logits < np.partition(logits, -top_k, axis=-1)[..., -top_k, None]] = 0.0
    probs /= probs.sum(axis=-1, keepdims=True)
    if top_p < 1:
        for row in probs.reshape(-1, probs.shape[-1]):
            keep_nucleus(row, top_p)
    return probs


def keep_nucleus(probs, top_p):
    """In place: zero all but the smallest set of mass >= top_p in probs [n_vocab], and renormalize."""
    # Sorting 50,257 numbers costs more than the softmax.  Tokens below (1 - top_p) / n_vocab weigh less than 1 - top_p
    # together, so the nucleus lies among the others.
    candidates = np.flatnonzero(probs >= (1 - top_p) / len(probs))
    candidates = candidates[np.argsort(-probs[candidates], kind="stable")]      # most likely first, ties by index
    mass_before = np.cumsum(probs[candidates]) - probs[candidates]
    nucleus = candidates[: max(1, np.count_nonzero(mass_before < top_p))]
    kept = probs[nucleus]
    probs[:] = 0.0
    probs[nucleus] = kept / kept.sum()


def sample(probs, rng):
    """Draw a token from probs [n_vocab], which need not sum to 1: invert the cumulative sum at one uniform number."""
    cumulative = np.cumsum(probs, dtype=np.float64)
    token = np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")
    return int(min(token, np.searchsorted(cumulative, cumulative[-1])))         # rounding: at most the last with any mass


def prepare(models, tokens, n_tokens, temperature, top_k, top_p, eos):
    """Check what both samplers are called with.  Returns (tokens as a list, law: logits -> probabilities, ids of EOS).

    Raises ValueError in one sentence that says what is wrong.
    """
    try:
        tokens = [index(token) for token in tokens]
    except TypeError:
        raise ValueError("the prompt must be a list of token ids: encode a text first") from None
    n_ctx = min(getattr(model, "n_ctx", float("inf")) for model in models)
    vocabularies = {model.n_vocab for model in models if hasattr(model, "n_vocab")}
    if len(vocabularies) > 1:
        raise ValueError(f"draft and target have different vocabularies ({' and '.join(map(str, sorted(vocabularies)))} tokens)")
    if not tokens:
        raise ValueError("the prompt is empty: give it at least one token")
    if not isinstance(n_tokens, Integral) or n_tokens < 0:
        raise ValueError(f"the number of tokens to generate is {n_tokens}: it must be a whole number, 0 or more")
    if len(tokens) + n_tokens > n_ctx:
        raise ValueError(f"a prompt of {len(tokens)} tokens and {n_tokens} new ones do not fit into the context of {n_ctx}: "
                         f"ask for at most {max(0, n_ctx - len(tokens))} tokens, or shorten the prompt")
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature is {temperature}: it must be 0 (greedy) or a positive number")
    if not isinstance(top_k, Integral) or top_k < 0:
        raise ValueError(f"top_k is {top_k}: it must be a whole number, 0 (keep all) or more")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p is {top_p}: it must be above 0 and at most 1 (keep all)")
    ends = set() if eos is None else {eos} if isinstance(eos, Integral) else set(eos)
    needed = 1 if temperature == 0 else top_k                   # logits of a row that the law depends on; 0 is all
    return tokens, lambda logits: probabilities(largest_to_host(logits, needed), temperature, top_k, top_p), ends
