"""Adapt the number of drafts: fewer while they are rejected, more while they are accepted.

    propose = Schedule(lookup.propose)                  # one object per run
    speculative_sampling(None, target, tokens, n_tokens, 8, rng, propose=propose)

Each class wraps a drafter, and asks it for at most the k drafts that the loop asks for:

    Schedule        +2 if all drafts of a round were accepted, else -1: the heuristic of transformers'
                    assisted generation  (J. Gante, 2023; num_assistant_tokens_schedule="heuristic")
    Confident       stop after a token the draft model is not confident of
                    (assistant_confidence_threshold in transformers)
    Optimum         the number with the most expected tokens per second (Leviathan et al. 2022, theorem 3.8),
                    from a running estimate of the acceptance rate alpha, the cost c of a draft and the cost v
                    of a verification

Lossless, because a round is lossless for any number of drafts (notebook 2, "The induction").  Whether a round
makes another draft may depend on the text, the earlier drafts and p, but not on that draft itself: a round
may end after an unlikely draft, but must not drop it, and the number must not be chosen after all drafts have
been drawn.  (Notebook 6 has the example from appendix A of DSpark, arXiv 2607.05147, whose scheduler decides
before each draft.)

Limitations: no trees of drafts.  c and v are measured before the run, because runs that depend on a clock
cannot be repeated.  Confident asks for one draft at a time, so an EAGLE, Medusa or parallel head runs the
target for each further draft.
"""
from functools import partial

import numpy as np

from engine.checks import checked_propose
from engine.compute.backend import clock
from gpt2 import common_prefix
from methods.entries import Drafter
from sampling import probabilities
from speculative import propose as draft_propose

THRESHOLD = .4      # of Confident: a less probable draft ends the round


class Schedule:
    """+2 drafts if all of a round's drafts were accepted, else -1, but at least one."""

    def __init__(self, propose=draft_propose, first=5):
        self.propose, self.first = propose, first
        self.x, self.drafts = [], []
        self.start()

    def __call__(self, draft, x, k, to_probs, rng):
        if len(x) <= len(self.x) or x[:len(self.x)] != self.x:          # another run: forget the last one
            self.start()
        else:
            accepted = common_prefix(self.drafts, x[len(self.x):])
            self.learn(accepted, accepted + (accepted < len(self.drafts)))
        n = self.choose_number(k)
        drafts, P = checked_propose(self.propose, draft)(draft, x[:], n, to_probs, rng)
        self.x, self.drafts = list(x), drafts
        return drafts, P

    def start(self):
        self.K = self.first

    def learn(self, accepted, tested):
        """Learn from the last round.  Drafts after a rejection were not tested."""
        if tested:
            self.K = self.K + 2 if accepted == tested else max(1, self.K - 1)

    def choose_number(self, k):
        """The number of drafts, if the loop takes at most k."""
        self.K = min(self.K, max(1, k))
        return min(self.K, k)


class Optimum(Schedule):
    """The number of drafts, possibly 0, with the most expected tokens per unit of time in a round.

    c       cost of a draft.  Like v, it is in target steps (passes over one token)
    v       cost of a target pass over K + 1 tokens, assumed to grow linearly with the tokens
    memory  number of rounds after which an observation has weight 1 / e

    alpha is estimated as if one draft had been accepted and one rejected before the run (Laplace's rule).
    Observations fade even while no drafts are made, so that the estimate returns to 1/2 and drafting resumes
    if it promises a gain at that rate.
    """

    def __init__(self, c, v, K, propose=draft_propose, memory=16):
        self.c, self.row, self.fade = c, max(0, v - 1) / K, np.exp(-1 / memory)
        super().__init__(propose)

    def start(self):
        self.accepted = self.tested = 0.0

    def learn(self, accepted, tested):
        self.accepted = self.fade * self.accepted + accepted
        self.tested = self.fade * self.tested + tested

    def choose_number(self, k):
        alpha = (self.accepted + 1) / (self.tested + 2)
        gains = [sum(alpha**i for i in range(n + 1)) / (1 + n * (self.c + self.row)) for n in range(k + 1)]
        return int(np.argmax(gains))


class Confident:
    """Stop after a draft whose probability at temperature 1 is below the threshold, whatever the run's
    temperature.  A drafter that does not call to_probs (lookup, slem) is never stopped.
    """

    def __init__(self, propose=draft_propose, threshold=THRESHOLD):
        self.propose, self.threshold = propose, threshold

    def __call__(self, draft, x, k, to_probs, rng):
        def to_probs_seen(logits):
            seen.append(logits)
            return to_probs(logits)

        seen, drafts, P, propose = [], [], [], checked_propose(self.propose, draft)
        while len(drafts) < k:                                          # one at a time
            new, new_p = propose(draft, x + drafts, 1, to_probs_seen, rng)
            if not new:
                break
            drafts += new
            P = None if new_p is None else [*P, *map(np.array, new_p)]  # a drafter may reuse its array
            if seen and probabilities(seen[-1])[-1, drafts[-1]] < self.threshold:
                break
        return drafts, P


def measure_costs(drafted, tokens, K, settings):
    """dict(c, v) for Optimum, measured after these tokens: medians of nine turns, to two digits, so that two
    measurements usually lead to the same choices.  A context too short for K drafts gets fewer.

    drafted     methods.entries.Drafted
    """
    models = draft, target = drafted.draft, drafted.target
    to_probs = partial(probabilities, **{name: settings[name] for name in settings.keys() - {"eos"}})
    n_ctx = min(model.n_ctx for model in models if hasattr(model, "n_ctx"))
    k = min(K, n_ctx - 1)
    tokens, rng, times = tokens[:n_ctx - k], np.random.default_rng(0), [[], [], []]
    for _ in range(10):
        for i, run in enumerate([lambda: target(tokens), lambda: target(tokens + tokens[:1] * k, k + 1),
                                 lambda: drafted.propose(draft, tokens, k, to_probs, rng)]):
            start = clock()
            run()
            times[i].append(clock() - start)
    step, verification, drafting = (np.median(turns[1:]) for turns in times)
    row = (verification / step - 1) / k
    return dict(c=float(f"{drafting / k / step:.2g}"), v=float(f"{1 + row * K:.2g}"))


def adapt(wrap):
    """An entry for a class above; its option is the drafter it wraps."""
    def make(models, within, *run):                             # run: tokens, K, settings
        drafted = within.make(models, within.option, *run)
        return drafted._replace(propose=wrap(drafted, *run))
    return Drafter("methods/drafters/adaptive.py", make, wraps=True)


def optimum(drafted, tokens, K, settings):
    costs = settings.get("costs") or measure_costs(drafted, tokens, K, settings)
    return Optimum(**costs, K=K, propose=drafted.propose)


SCHEDULE = adapt(lambda drafted, *_: Schedule(drafted.propose))
OPTIMUM = adapt(optimum)
CONFIDENT = adapt(lambda drafted, *_: Confident(drafted.propose))
