"""Samplers for the judge, made of the parts that methods/ has."""
import functools

import numpy as np
from helpers import tiny_gpt2

from lossless.toys import table
from lossless.verdicts.rules import penalty
from methods.drafters.grammar import form
from methods.samplers.batch import batch_sampling
from methods.samplers.constraints import constrained
from methods.samplers.tree import tree_sampling
from speculative import propose, speculative_sampling, verify

# Samplers made of a part ------------------------------------------------------------------------------------

def line(make=lambda: propose, verify=verify):
    """Lines of drafts by make().  Each run makes a new drafter, because some remember earlier calls."""
    return lambda *run, **settings: speculative_sampling(*run, propose=make(), verify=verify, **settings)


def widths(K):
    return (2, *[1] * (K - 1))


def trees(widths=widths, **how):
    return lambda draft, target, tokens, n_tokens, K, rng, **settings: tree_sampling(
        draft, target, tokens, n_tokens, widths(K), rng, **how, **settings)


def second_of_two(**how):
    """The second sequence of a batch.  The first draws from a generator of its own."""
    def sampler(draft, target, tokens, n_tokens, K, rng, **settings):
        rngs = [np.random.default_rng(0), rng]
        for both in batch_sampling(draft, target, [[1], tokens], n_tokens, K, rngs, **how, **settings):
            yield from both[1].tokens if both[1] else []
    return sampler


def penalized(process=penalty, sampler=speculative_sampling):
    """Takes a penalty off the judge's target and lets `process` put it back."""
    def run(draft, target, *rest, **settings):
        plain = constrained(target, functools.partial(penalty, size=-2.0))
        return sampler(draft, constrained(plain, process), *rest, **settings)
    return run


def within(kind, *how, propose=propose):
    """(sampler, cases, pairs) for a draft and a target that share a tiny GPT-2: kind(model, ..)."""
    halves = kind(tiny_gpt2(1, np.float64, n_vocab=3, n_ctx=8), *how)

    def sampler(draft, target, *run, **settings):
        target.reset()                                  # what is cached changes the last bits
        return speculative_sampling(draft, target, *run, propose=propose, **settings)
    return sampler, [dict(Ks=[2], n_tokens=3, temperature=.7, top_k=2)], [(halves.draft, halves.target)]


def counts(draft, x, k, to_probs, rng):
    """Drafts what most often followed the last token, and claims that it was drawn from the frequencies."""
    followed = np.bincount([b for a, b in zip(x, x[1:]) if a == x[-1]], minlength=draft(x).shape[-1])
    p = followed / max(followed.sum(), 1)
    return [int(p.argmax())][:k * p.any()], [p][:k * p.any()]


def drops_a_one(draft, x, k, to_probs, rng):
    """Throws the last draft away if it is token 1."""
    drafts, p = propose(draft, x, k, to_probs, rng)
    n = len(drafts) - (drafts[-1:] == [1])
    return drafts[:n], p[:n]


FORM = form([{2}, 0, 1, {0}, 2], n_prompt=2)
FORMED = [(constrained(table(1), FORM), constrained(table(2), FORM))]
