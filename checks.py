"""Checks of what callers pass in, and of what drafters and rules return.  Each raises ValueError with one
sentence that says what is wrong.
"""
from numbers import Integral, Real
from operator import index

import numpy as np

# What callers pass in ---------------------------------------------------------------------------------------

def check_settings(n_tokens, temperature=1.0, top_k=0, top_p=1.0, eos=None):
    """Check the settings of a run.  Returns the EOS ids as a set.  Raises ValueError."""
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
    """K as a Python int.  Raises ValueError unless it is a whole number, 1 or more."""
    if not isinstance(K, Integral) or K < 1:
        raise ValueError(f"K is {K!r}: it must be a whole number, at least one draft per round")
    return int(K)


def check_room(n_prompt, n_tokens, n_ctx):
    """Raises ValueError if a prompt is empty, or does not fit into the context along with its new tokens."""
    if not n_prompt:
        raise ValueError("the prompt is empty: give it at least one token")
    if n_prompt + n_tokens > n_ctx:
        raise ValueError(f"a prompt of {n_prompt} tokens and {n_tokens} new ones do not fit into the "
                         f"context of {n_ctx}: ask for fewer, or shorten the prompt")


def check_ids(tokens, n_vocab):
    """Raises ValueError if one of the tokens is not in the vocabulary."""
    for token in tokens:
        if not 0 <= token < n_vocab:
            raise ValueError(f"token id {token} is not in 0 .. {n_vocab - 1}: "
                             "was the text encoded by the model's own encoder?")


def check_call(tokens, n_last, n_ctx):
    """Raises ValueError unless a model gets 1 .. n_ctx tokens and is asked for 1 .. len(tokens) rows."""
    if not 1 <= len(tokens) <= n_ctx:
        raise ValueError(f"{len(tokens)} tokens do not fit into the context: it takes 1 .. {n_ctx}")
    if not 1 <= n_last <= len(tokens):
        raise ValueError(f"n_last is {n_last}: with {len(tokens)} tokens it must be 1 .. {len(tokens)}")


def check_vocabularies(sizes):
    """Raises ValueError if models have vocabularies of different sizes."""
    if len(sizes) > 1:
        raise ValueError("draft and target have different vocabularies "
                         f"({' and '.join(map(str, sorted(sizes)))} tokens): take two models of one family")


def token_list(tokens, complaint):
    """The ids as a list of Python ints.  Raises ValueError(complaint) if they are something else."""
    try:
        if isinstance(tokens, (str, bytes)):
            raise TypeError
        return [index(token) for token in tokens]
    except TypeError:
        raise ValueError(complaint) from None


# What drafters and rules return -----------------------------------------------------------------------------

def checked_propose(propose, target):
    """`propose`, with its answer checked.  Raises ValueError unless the answer is (drafts, draft_probs): at
    most k tokens of the target's vocabulary, and the distributions that they were drawn from, or None.
    """
    def checked(draft, x, k, to_probs, rng):
        answer = propose(draft, x, k, to_probs, rng)
        if (not isinstance(answer, (tuple, list)) or len(answer) != 2 or isinstance(answer[0], Integral)
                or not (answer[1] is None or np.iterable(answer[1]) and hasattr(answer[1], "__len__"))):
            raise ValueError(f"the drafter returned {answer!r}: return (drafts, p), a list of at most {k} "
                             "token ids, and p, the distribution that each was drawn from, or None for p if "
                             "they were chosen")
        drafts, p = checked_drafts(answer[0], k, target), answer[1]
        return drafts, checked_probs(p, drafts, target) if drafts and p is not None else None
    return checked


def checked_drafts(drafts, k, target):
    """The drafts as a list of ids.  Raises ValueError for more than k drafts, or an id unknown to the target.
    """
    drafts = token_list(drafts, f"the drafter proposed {drafts!r}: drafts must be a list of token ids")
    n_vocab = getattr(target, "n_vocab", float("inf"))
    if len(drafts) > k:
        raise ValueError(f"the drafter proposed {len(drafts)} tokens, but at most k = {k} were wanted: cut "
                         "them, as in drafts[:k]")
    for token in drafts:
        if not 0 <= token < n_vocab:
            raise ValueError(f"the drafter proposed token {token}, which is not in the target's vocabulary")
    return drafts


def checked_probs(draft_probs, drafts, target):
    """The draft_probs [k, n_vocab].  Raises ValueError unless they are distributions that the drafts could
    have been drawn from."""
    shapes = [np.shape(p) for p in draft_probs]
    wanted = (target.n_vocab,) if hasattr(target, "n_vocab") else (shapes or [()])[0]
    if shapes != [wanted] * len(drafts):
        raise ValueError(f"the drafter gave distributions of shapes {shapes} for {len(drafts)} drafts: "
                         f"they must be [{len(drafts)}, n_vocab], or None for point masses")
    for token, p in zip(drafts, draft_probs):
        if not (abs(np.sum(p) - 1) < 1e-6 and np.min(p) >= 0 and p[token] > 0):     # also if NaN
            raise ValueError(f"the drafter gave token {token} with a distribution that it cannot come "
                             f"from: its probabilities sum to {np.sum(p):.6g}, and "
                             f"that of the token is {p[token]:.6g}")
    return draft_probs


def checked_rule(verify):
    """A user's `verify`, which gets copies that it may change.  Raises ValueError if it returns anything but
    (n_accepted, next_token)."""
    def checked(target_probs, draft_probs, drafts, rng):
        p = np.reshape(draft_probs, (len(drafts), target_probs.shape[-1]))      # also without drafts
        answer = verify(np.array(target_probs), p.copy(), list(drafts), rng)
        try:
            n_accepted, next_token = map(index, answer)
        except (TypeError, ValueError):
            n_accepted = -1
        if not (0 <= n_accepted <= len(drafts) and 0 <= next_token < target_probs.shape[-1]):
            raise ValueError(f"the rule returned {answer!r}: return (n_accepted, next_token), how many of "
                             f"the {len(drafts)} drafts are kept and the id of the token that follows them")
        return n_accepted, next_token
    return checked
