"""Coupled sampling: Daliri, Musco and Suresh 2024 (arXiv 2408.07978).  The text is a function of the seed.

    coupled_sampling(draft, target, tokens, n_tokens, K, rng)           # as speculative_sampling
    coupled_baseline(target, tokens, n_tokens, rng)                     # the same text

Algorithm 2 of Chen et al. keeps the target's distribution, but not its text: with another drafter or another
K, the same seed may give another text.  Here every token is the winner of a race.  Each token x has an
exponential random number E(x), which depends only on the seed and the place (the number of tokens generated
before).  The winner is

    argmin over x of E(x) / q(x)

which is x with probability q(x).  The draft runs the same race with its p, and often the same token wins,
since p and q are similar and E is the same.  A draft is accepted if it is the token the target draws, so the
text is the same whatever the drafter, K or batch.

The notation is Chen's, as in speculative.py: q the target, p the draft (in the paper Q is Bob's, P Alice's).

Why argmin E / q is a draw from q.  E(x) / q(x) is exponential with rate q(x).  Of independent clocks with
these rates, which sum to 1, the one for x rings first with probability q(x).

What it costs.  Let TV be the total variation distance of p and q.  Algorithm 2 accepts a draft with
probability sum min(p, q) = 1 - TV.  Here the probability is at most 1 - TV and at least (1 - TV) / (1 + TV),
and no method guarantees more if neither side knows the other's distribution.  x wins both races if E(y) >=
E(x) max(p(y) / p(x), q(y) / q(x)) for all y, which has probability 1 / (the sum of these maxima over y).

Limitations: if the two best times of a race are nearly equal, the last bits of the logits decide.  If these
bits depend on which positions share a pass (engine/compute/linear.py), texts from one seed may differ.
`lossless.check` cannot follow this sampler, because a race compares random numbers with one another;
tests/test_coupling.py tests the text and its distribution instead.
"""
import functools

import numpy as np

import speculative
from methods.entries import Verifier
from sampling import point_masses
from speculative import speculative_sampling


class Race:
    """Takes the place of a random generator, and runs the races of one text.

    rng     its first number seeds the exponentials; a drafter may draw others
    """

    def __init__(self, rng):
        self.seed, self.rng = int(rng.random() * 2**53), rng
        self.n = 0                                              # tokens emitted so far

    def winner(self, probs, j):
        """probs [n_vocab] -> argmin E / probs at place self.n + j."""
        times = np.full(len(probs), np.inf)                     # [n_vocab]
        with np.errstate(over="ignore"):
            np.divide(exponentials(self.seed, self.n + j, len(probs)), probs, out=times, where=probs > 0)
        return int(times.argmin())


@functools.lru_cache(maxsize=32)
def exponentials(seed, place, n_vocab):
    """E [n_vocab] of a place; cached, because both models use it."""
    return np.random.default_rng([seed, place]).standard_exponential(n_vocab)


def verify(target_probs, draft_probs, drafts, race):
    """As speculative.verify, but accepts a draft if it is the token the target draws."""
    for j, q in enumerate(target_probs):                        # q [n_vocab]
        token = race.winner(q, j)
        if j == len(drafts) or token != drafts[j]:
            race.n += j + 1
            return j, token


def couple(propose):
    """Returns `propose` with races: each distribution it draws from becomes a point mass at the winner."""
    def propose_winners(draft, x, k, to_probs, race):
        n, j = len(x), 0                                        # len(x) now, as `propose` may change x

        def to_winners(logits):                                 # [rows, n_vocab] -> [rows, n_vocab]
            nonlocal j
            probs = to_probs(logits)
            winners = [race.winner(row, place) for place, row in enumerate(probs, j)]  # places j, j + 1, ..
            j += len(probs)
            return point_masses(winners, probs.shape[1])

        def draft_at_place(tokens, n_last=1):                   # sets j for the first row of the answer
            nonlocal j
            j = len(tokens) - n_last - n + 1
            return draft(tokens, n_last)

        return propose(draft and draft_at_place, x, k, to_winners, race.rng)
    return propose_winners


def coupled_sampling(draft, target, tokens, n_tokens, K, rng, *, propose=speculative.propose, **settings):
    """The arguments (but `verify`), rounds and errors of speculative_sampling."""
    return speculative_sampling(draft, target, tokens, n_tokens, K, Race(rng), propose=couple(propose),
                                verify=verify, **settings)


def coupled_baseline(model, tokens, n_tokens, rng, **settings):
    """The arguments, rounds and errors of autoregressive_sampling; the text of coupled_sampling."""
    return coupled_sampling(None, model, tokens, n_tokens, 1, rng, propose=lambda *_: ([], None), **settings)


VERIFIER = Verifier("methods/samplers/coupling.py", baseline=coupled_baseline,
                    make=lambda drafted, _: functools.partial(coupled_sampling, propose=drafted.propose))
