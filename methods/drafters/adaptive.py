"""How many drafts to make: fewer while they are rejected, more while they are accepted.

    propose = Schedule(lookup.propose)                  # one object per run
    speculative_sampling(None, target, tokens, n_tokens, 8, rng, propose=propose)

Each class wraps a drafter, and asks it for at most the k drafts that the loop wants:

    Schedule        +2 if all drafts of a round were accepted, else -1: the heuristic of transformers'
                    assisted generation  (J. Gante, 2023; num_assistant_tokens_schedule="heuristic")
    Confident       stop after a token that the draft model is not confident of
                    (assistant_confidence_threshold in transformers)
    Optimum         the number that promises the most tokens per second (Leviathan et al. 2022, theorem 3.8).
                    It follows from a running estimate of the acceptance rate alpha, the cost c of a draft
                    and the cost v of a verification
    EarlyStop       the same, but decided before each draft, from how sure the drafter is there: the scheduler
                    of DSpark (arXiv 2607.05147, Algorithm 1), in vLLM called adaptive verification

Lossless, because each round is lossless for any number of drafts (notebook 2, "The induction").  Whether
a round makes another draft may depend on the text, the earlier drafts and p, but not on that draft itself.
A round may end after an unlikely draft, but must not drop it.  Nor may the best number be chosen after all
have been drawn: EarlyStop ends the round before the first draft that would lower the speed, even if later
ones would raise it again.  (Notebook 6 has the example from DSpark's appendix A.)

Limitations: no trees of drafts.  c and v are measured before the run, since a clock inside the run would
make it unrepeatable.
"""
from functools import partial

import numpy as np

from checks import checked_propose
from compute.backend import clock, to_host
from gpt2 import common_prefix
from sampling import probabilities
from speculative import propose as draft_propose


class Schedule:
    """+2 drafts if all of a round's drafts were accepted, else -1, but at least one."""

    def __init__(self, propose=draft_propose, first=5):
        self.propose, self.first = propose, first
        self.x, self.drafts = [], []
        self.start()

    def __call__(self, draft, x, k, to_probs, rng):
        if len(x) <= len(self.x) or x[:len(self.x)] != self.x:          # another run: forget the last one
            self.start()
        elif self.drafts:
            accepted = common_prefix(self.drafts, x[len(self.x):])
            self.learn(accepted, accepted + (accepted < len(self.drafts)))
        n = self.choose_number(k)
        drafts, p = checked_propose(self.propose, draft)(draft, x[:], n, to_probs, rng)
        self.x, self.drafts = list(x), drafts
        return drafts, p

    def start(self):
        self.K = self.first

    def learn(self, accepted, tested):
        """Learn from the last round.  Drafts after a rejection were not tested."""
        self.K = self.K + 2 if accepted == tested else max(1, self.K - 1)

    def choose_number(self, k):
        """How many drafts, if the loop takes at most k."""
        self.K = min(self.K, max(1, k))
        return min(self.K, k)


class Optimum(Schedule):
    """The number of drafts, possibly 0, with the most expected tokens per unit of time in a round.

    c       the cost of a draft.  Like v, it is in target steps (passes over one token)
    v       the cost of a target pass over K + 1 tokens.  It is assumed to grow linearly with the tokens
    memory  the number of rounds after which an observation has the weight 1 / e

    alpha is estimated as if one draft had been accepted before the run and one rejected (Laplace's rule).
    Observations fade even while no drafts are made.  So the estimate returns to 1/2, and drafting is tried
    again if it promises a gain at that rate.
    """

    def __init__(self, c, v, K, propose=draft_propose, memory=16):
        self.c, self.row, self.fade = c, max(0, v - 1) / K, np.exp(-1 / memory)
        super().__init__(propose)

    def start(self):
        self.accepted = self.tested = 0.0

    def learn(self, accepted, tested):
        self.forget()
        self.accepted, self.tested = self.accepted + accepted, self.tested + tested

    def forget(self):
        self.accepted, self.tested = self.fade * self.accepted, self.fade * self.tested

    def choose_number(self, k):
        alpha = (self.accepted + 1) / (self.tested + 2)
        gains = [sum(alpha**i for i in range(n + 1)) / (1 + n * (self.c + self.row)) for n in range(k + 1)]
        best = int(np.argmax(gains))
        if best == 0:
            self.forget()
        return best


class EarlyStop(Optimum):
    """For a head that computes the logits of a block of drafts in one pass (parallel.Parallel).  A draft is
    drawn and verified only if that is expected to raise the round's number of tokens per unit of time.

    c, v, K, memory     as in Optimum: the pass costs K c
    propose             calls the is_worthwhile that it is given before it draws a draft

    The chance that a draft will be accepted is estimated before it is drawn: it is the share of accepted
    drafts among those for which the head was about as sure.  (By its largest probability at temperature 1, in
    BINS classes.  DSpark trains another head for this.)
    """
    BINS = 8

    def __init__(self, c, v, K, propose, memory=100):
        self.pass_cost = K * c
        super().__init__(c, v, K, partial(propose, is_worthwhile=self.is_worthwhile), memory)

    def start(self):
        self.accepted, self.tested = np.zeros((2, self.BINS))

    def learn(self, accepted, tested):
        for j, sure in enumerate(self.classes[:tested]):
            self.accepted[sure] += j < accepted
            self.tested[sure] += 1

    def choose_number(self, k):
        self.forget()
        self.classes, self.survival, self.tokens, self.seconds = [], 1.0, 1.0, 1 + self.pass_cost
        return k

    def is_worthwhile(self, logits):
        """Whether to draw a draft from these logits [1, n_vocab].  Time is in target steps."""
        sure = int(probabilities(to_host(logits)).max() * (self.BINS - .001))
        survival = self.survival * (self.accepted[sure] + 1) / (self.tested[sure] + 2)      # Laplace's rule
        tokens, seconds = self.tokens + survival, self.seconds + self.row
        if tokens / seconds < self.tokens / self.seconds:
            return False
        self.classes.append(sure)
        self.survival, self.tokens, self.seconds = survival, tokens, seconds
        return True


class Confident:
    """Stop after a draft whose probability at temperature 1 is below the threshold, whatever the run's
    temperature.  A drafter that does not call to_probs (lookup, slem) is never stopped.
    """

    def __init__(self, propose=draft_propose, threshold=.4):
        self.propose, self.threshold = propose, threshold

    def __call__(self, draft, x, k, to_probs, rng):
        def to_probs_seen(logits):
            seen.append(logits)
            return to_probs(logits)

        seen, drafts, p, propose = [], [], [], checked_propose(self.propose, draft)
        while len(drafts) < k:                                          # one at a time
            new, new_p = propose(draft, x + drafts, 1, to_probs_seen, rng)
            if not new:
                break
            drafts += new
            p = None if new_p is None else [*p, *map(np.array, new_p)]  # a drafter may reuse its array
            if seen and confidence(seen[-1], drafts[-1]) < self.threshold:
                break
        return drafts, p


def measure_costs(method, tokens, K, settings):
    """dict(c, v) for Optimum, measured after these tokens: medians of nine turns, to two digits, so that two
    measurements mostly lead to the same choices.

    method      has draft, target and propose (a methods.table.Method)
    """
    models = draft, target = method.draft, method.target
    to_probs = partial(probabilities, **{name: settings[name] for name in settings.keys() - {"eos"}})
    n_ctx = min(model.n_ctx for model in models if hasattr(model, "n_ctx"))
    tokens, rng, times = tokens[:n_ctx - K] or tokens[:1], np.random.default_rng(0), [[], [], []]
    for _ in range(10):
        for i, run in enumerate([lambda: target(tokens), lambda: target(tokens + tokens[:1] * K, K + 1),
                                 lambda: method.propose(draft, tokens, K, to_probs, rng)]):
            start = clock()
            run()
            times[i].append(clock() - start)
    step, verification, drafting = (np.median(turns[1:]) for turns in times)
    return dict(c=float(f"{drafting / K / step:.2g}"), v=float(f"{verification / step:.2g}"))


def confidence(logits, token):
    """The probability of the token in the last row of logits [n, n_vocab], at temperature 1."""
    return probabilities(to_host(logits))[-1, token]
