"""Penalties, forbidden tokens, grammar masks: they need no change to speculative sampling.

    target = constrained(target, penalty(1.2))
    speculative_sampling(draft, target, ..)                             # lossless for the constrained target
    speculative_sampling(constrained(draft, penalty(1.2)), target, ..)  # more accepted, if the two are alike

A constraint is a function that changes the logits of one position (one row of the model's output):

    process(tokens so far, logits [n_vocab]) -> logits [n_vocab]

It is called for each row with the tokens up to that position, drafts included, so a constrained model is a
pure function of its tokens, like any other.  The usual mistake is to process a row with the tokens up to
another position, or to skip some rows.

    penalty     Keskar et al. 2019 (arXiv 1909.05858, CTRL), section 4.1
    forbid      tokens that must never occur
    automaton   only tokens that an automaton allows, as in a JSON mask; methods/drafters/grammar.py has an
                example, and drafts what such a mask forces

Not here: compiling a grammar to an automaton (Willard and Louf 2023, arXiv 2307.09702).

Limitations: rows are processed one by one, which is slow if the vocabulary is large.  A tree calls a
constrained model once per row.  A batch calls it once per sequence, each with a cache of its own.
"""
from functools import reduce

import numpy as np

from engine.compute.backend import to_host


class Constrained:
    """A model with its logits processed: `constrained(model, process)`.

    process     may modify the list and the array it gets
    Raises ValueError if it leaves no token that could follow.
    """

    def __init__(self, model, process):
        self.model, self.process = model, process
        for name in "n_ctx", "n_vocab", "reset":
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))

    def __call__(self, tokens, n_last=1):
        tokens, rows = list(tokens), []
        for i, logits in enumerate(to_host(self.model(tokens[:], n_last))):         # [n_vocab]
            so_far = tokens[:len(tokens) - n_last + 1 + i]
            rows.append(np.array(self.process(so_far[:], logits * 1.0)))            # copies, in floats
            if not (rows[-1] > -np.inf).any():
                raise ValueError(f"the constraint forbids every token after {so_far[-5:]}: leave at least "
                                 "one, such as the one that ends a text")
        return np.stack(rows)                                   # [n_last, n_vocab]


constrained = Constrained


def penalty(theta):
    """Makes tokens that are already in the text, prompt included, less likely if theta > 1 (more if < 1).

    The paper divides each logit by theta, which makes a token with a negative logit more likely.  Here a
    negative logit is multiplied by theta, as in transformers and vLLM.

    >>> penalty(2)([0, 1, 1], np.array([4., -4, 1]))
    array([ 2., -8.,  1.])
    """
    def process(tokens, logits):
        seen = sorted(set(tokens))
        logits[seen] = np.where(logits[seen] > 0, logits[seen] / theta, logits[seen] * theta)
        return logits
    return process


def forbid(ids):
    """Tokens that must never occur.

    >>> forbid([0, 2])([1], np.array([4., -4, 1]))
    array([-inf,  -4., -inf])
    """
    ids = list(ids)

    def process(tokens, logits):
        logits[ids] = -np.inf
        return logits
    return process


def automaton(start, step, allowed, n_prompt):
    """Only tokens that the automaton allows.

    step        (state, token) -> state
    allowed     (state, logits) -> the ids that may follow, or a mask [n_vocab]
    n_prompt    the length of the prompt, which the automaton does not read

    Allowing only tokens 1 and 2:

    >>> digits = automaton(None, lambda state, token: None, lambda state, logits: [1, 2], n_prompt=1)
    >>> digits([0, 2], np.array([4., -4, 1]))
    array([-inf,  -4.,   1.])
    """
    def process(tokens, logits):
        state, masked = reduce(step, tokens[n_prompt:], start), np.full_like(logits, -np.inf)
        ids = allowed(state, logits)
        masked[ids] = logits[ids]
        return masked
    return process
