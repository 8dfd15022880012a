"""Toy models: tables of a few tokens, and the exact distribution of their texts, from the definition.

A model here is a table: a row of logits for each prefix.  It has so few texts that their probabilities can be
multiplied out one by one, without a sampler.

>>> distribution_of_text(memoryless([.5, .25, .25]), [0], 2, eos=[0, 1])[2, 0]
0.125
"""
import functools
import itertools

import numpy as np


def as_model(row):
    """Makes a model from row(prefix, a tuple) -> logits [n_vocab]."""
    row = functools.cache(row)

    def model(tokens, n_last=1):
        lengths = range(len(tokens) - n_last + 1, len(tokens) + 1)
        return np.array([row(tuple(tokens[:n])) for n in lengths], dtype=float)     # [n_last, n_vocab]
    model.n_vocab = len(row(()))
    return model


def table(seed, zeros=0.0, n_vocab=3):
    """A model with a random distribution after every prefix, in which a token is impossible with probability
    `zeros`."""
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
    """A model that says `text` whatever the tokens are: text[n] after n of them, text[-1] after its end."""
    def row(prefix):
        return np.where(np.arange(n_vocab) == text[min(len(prefix), len(text) - 1)], 0.0, -np.inf)
    return as_model(row)


def spell(tokens):
    """Token ids -> letters, for people.

    >>> spell([1, 0, 2])
    'b a c'
    """
    return " ".join(chr(ord("a") + token) if token < 26 else str(token) for token in tokens) or "(no token)"


# The target's distribution, from the definition -------------------------------------------------------------

def distribution_of_token(logits, temperature=1.0, top_k=0, top_p=1.0):
    """An independent version of sampling.probabilities: logits [n_vocab] -> probabilities [n_vocab]."""
    logits = np.asarray(logits, dtype=float)
    if temperature == 0:
        return np.eye(len(logits))[int(np.argmax(logits))]
    with np.errstate(over="ignore"):
        probs = np.exp((logits - max(logits)) / temperature)
    if top_k:
        probs[logits < sorted(logits)[-min(top_k, len(logits))]] = 0
    probs /= probs.sum()
    if top_p < 1:
        order = sorted(range(len(probs)), key=lambda i: -probs[i])              # of two that tie, the first
        before = itertools.accumulate(probs[order], initial=0)
        probs[[i for i, mass in zip(order, before) if mass >= top_p]] = 0
    return probs / probs.sum()


def distribution_of_text(model, prompt, n_tokens, eos=None, **settings):
    """{text: probability} of n_tokens tokens after the prompt; fewer if an EOS (`eos`: one id or
    several) ends the text.

    >>> distribution_of_text(memoryless([.5, .25, .25]), [0], 2, eos=[0, 1])[2, 0]
    0.125
    """
    eos_ids = () if eos is None else np.ravel([*eos] if np.iterable(eos) else eos)
    if n_tokens == 0:
        return {(): 1.0}
    distribution = {}
    for token, chance in enumerate(distribution_of_token(model(prompt)[0], **settings)):
        if chance > 0:
            left = 0 if token in eos_ids else n_tokens - 1
            rest = distribution_of_text(model, [*prompt, token], left, eos, **settings)
            distribution |= {(token, *text): float(chance * more) for text, more in rest.items()}
    return distribution
