"""Figures of a run: the calls' times and the acceptance rate; formulas for tokens and speed-up.

Formulas: Leviathan et al. 2022 (arXiv 2211.17192), section 3.  The paper's c is the cost of a draft in target
steps.  It assumes that verifying K + 1 tokens costs one step; here it costs v steps.

Limitations: like the paper, `predicted_speedup` assumes that acceptances are independent and equally likely,
which real ones nearly are, except at the start of a round (notebook 3).  A tree drawn with replacement can
have equal siblings; the first of them counts as the accepted one.
"""
from collections import Counter
from contextlib import suppress
from functools import partial
from statistics import median

import numpy as np

from engine.checks import StandIn
from engine.compute.backend import clock, to_host


class Timed(StandIn):
    """A model that records its calls: [(rows of logits, seconds), ...], and when the last began and ended."""

    def __init__(self, model):
        self.model, self.calls = model, []

    def __call__(self, tokens, n_last=1):
        return self.timed(self.model, tokens, n_last)

    def reset(self):
        self.calls.clear()
        if hasattr(self.model, "reset"):                        # a plain function has none
            self.model.reset()

    @property
    def tree(self):                             # if the model has one: methods/samplers/tree_model.py
        return partial(self.timed, self.model.tree)

    def timed(self, call, *arguments):
        start = clock()
        logits = call(*arguments)
        self.last = start, clock()
        self.calls.append((len(logits), self.last[1] - start))
        return logits

    def seconds(self, n_last):
        """Median time of calls for n_last rows after the first call (the prompt); None if there is none."""
        times = [time for n, time in self.calls[1:] if n == n_last]
        return median(times) if times else None


class TimedDrafter:
    """A drafter, or what grows a tree, that notes its calls: [(number of drafts, seconds), ...]."""

    def __init__(self, propose):
        self.propose, self.calls = propose, []

    def __call__(self, *arguments):
        start = clock()
        answer = self.propose(*arguments)
        time = clock() - start
        with suppress(TypeError, LookupError):          # the sampler rejects a malformed result
            self.calls.append((len(answer[0]), time))
        return answer

    def seconds(self, n):
        """n times the median time per draft, over the calls that gave any; None if none did."""
        times = [n * time / n_drafts for n_drafts, time in self.calls if n_drafts]
        return median(times) if times else None


def time_drafting(drafted):
    """A methods.entries.Drafted whose functions are TimedDrafters."""
    return drafted._replace(propose=TimedDrafter(drafted.propose),
                            grow=drafted.grow and TimedDrafter(drafted.grow))


def time_rounds(rounds, times, now=None):
    """Pass the rounds on, and append the seconds each took to `times`; the last entry is the time from the
    last round to the end.  The caller's own time does not count.  now: another clock
    """
    now = now or clock
    while True:
        start = now()
        r = next(rounds, None)
        times.append(now() - start)
        if r is None:
            return
        yield r


def is_tree(r):
    return r.parents is not None


def accepted_path(r):
    """Indices of the accepted drafts in r.drafts: the first ones, or a path in a tree."""
    if not is_tree(r):
        return list(range(r.n_accepted))
    paths = [[]]                                        # siblings may be equal, so there may be several
    for token in r.tokens[:r.n_accepted]:
        paths = [path + [i] for path in paths for i, parent in enumerate(r.parents)
                 if parent == (path or [-1])[-1] and r.drafts[i] == token]
    return paths[0]


def count_acceptance(rounds, block=False):
    """(accepted, tested) over all rounds.  Drafts after a rejection or an EOS were never tested.

    block   the rounds come from block verification, which tests all drafts, even after one that fails

    In a tree a node's children count as one test, passed if one of them is accepted.
    """
    accepted = sum(r.n_accepted for r in rounds)
    return accepted, accepted + sum(count_rejected(r, block) for r in rounds)


def count_rejected(r, block=False):
    """How many of a round's tests failed."""
    if len(r.tokens) == r.n_accepted:                           # the text ended with an accepted EOS
        return 0
    if is_tree(r):
        return int((accepted_path(r) or [-1])[-1] in r.parents)         # 0 if a leaf was reached
    return len(r.drafts) - r.n_accepted if block else int(r.n_accepted < len(r.drafts))


def rate_by_rank(rounds):
    """How often the first child of a node was accepted, how often the second, ..: each as a share of the
    nodes that were reached and had at least that many children.

    >>> from sampling import Round
    >>> rate_by_rank([Round([7, 1], [5, 7], 1, [], [], [-1, -1]), Round([3], [5, 7], 0, [], [], [-1, -1])])
    [0.0, 0.5]
    """
    tested, accepted = Counter(), Counter()
    for r in rounds:
        path = accepted_path(r)
        for node, following in zip([-1, *path], [*path, None]):
            if len(r.tokens) == r.n_accepted and following is None:
                continue                                # an EOS among the accepted: nothing was tested
            children = [i for i, parent in enumerate(r.parents) if parent == node]
            for rank, child in enumerate(children):
                tested[rank] += 1
                accepted[rank] += child == following
    return [accepted[rank] / tested[rank] for rank in sorted(tested)]


def log_probabilities(model, prompt, tokens):
    """The model's log-probability of each of the tokens after the prompt, at temperature 1 and without top-k
    and top-p, from one pass over the text.  None if the text does not fit into the context.

    >>> table = lambda tokens, n_last: np.log([[.25, .75]] * n_last)
    >>> np.exp(log_probabilities(table, [0], [1, 0])).round(2).tolist()
    [0.75, 0.25]
    """
    text = [*prompt, *tokens[:-1]]
    if not tokens or len(text) > getattr(model, "n_ctx", len(text)):
        return None if tokens else []
    logits = to_host(model(text, len(tokens)))                  # [len(tokens), n_vocab]
    rows = (np.asarray(row, np.float64) - row.max() for row in logits)
    return [float(row[token] - np.log(np.exp(row).sum())) for row, token in zip(rows, tokens)]


def ratio(a, b):
    """a / b, or None if either was not measured or b is 0."""
    return a / b if a is not None and b else None


def expected_tokens(alpha, K):
    """Tokens per round, 1 + alpha + .. + alpha^K  (Leviathan et al., equation 1).

    >>> round(expected_tokens(.6, 2), 4)
    1.96
    """
    return sum(alpha**i for i in range(K + 1))


def predicted_speedup(alpha, K, c, v=1.0):
    """Expected speed-up over the baseline  (Leviathan et al., theorem 3.8, with v in place of 1).

    alpha   probability that a draft is accepted
    c       seconds of a draft step / seconds of a target step
    v       seconds of a target pass over K + 1 tokens / seconds of a target step

    >>> round(predicted_speedup(.8, 5, c=0), 2)         # the paper's table 1
    3.69
    """
    return expected_tokens(alpha, K) / (K * c + v)
