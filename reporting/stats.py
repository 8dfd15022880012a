"""Figures of a run: acceptance rate, the costs c and v, the speed-up that they predict.

Formulas: Leviathan et al. 2022 (arXiv 2211.17192), section 3.  The paper's c is the cost of a draft, in
target steps.  The paper assumes that verifying K + 1 tokens costs one step; here it costs v steps.

Limitations: like the paper's, the prediction assumes that acceptances are independent and equally likely.
Real ones nearly are, except at the start of a round (notebook 3).  A tree drawn with replacement can have
equal siblings: the first of them counts as the accepted one.
"""
from contextlib import suppress
from functools import partial
from statistics import median

from compute.backend import clock


class Timed:
    """A model that notes its calls: [(rows of logits, seconds), ...]."""

    def __init__(self, model):
        self.model, self.calls = model, []

    def __call__(self, tokens, n_last=1):
        return self.timed(self.model, tokens, n_last)

    def timed(self, call, *arguments):
        start = clock()
        logits = call(*arguments)
        self.calls.append((len(logits), clock() - start))
        return logits

    def __getattr__(self, name):                # n_ctx, n_vocab, reset; `tree` is timed, too
        value = getattr(self.model, name)
        return partial(self.timed, value) if name == "tree" else value

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
        with suppress(TypeError, LookupError):          # the sampler refuses a malformed answer
            self.calls.append((len(answer[0]), time))
        return answer

    def seconds(self, n):
        """n times the median time per draft, over the calls that gave any; None if none did."""
        times = [n * time / n_drafts for n_drafts, time in self.calls if n_drafts]
        return median(times) if times else None


def clocked(rounds, times):
    """Pass the rounds on, and append the seconds that each took to `times`.  The last entry is the time from
    the last round to the end.  The caller's own time does not count.
    """
    while True:
        start = clock()
        r = next(rounds, None)
        times.append(clock() - start)
        if r is None:
            return
        yield r


def is_tree(r):
    return r.parents is not None


def taken(r):
    """Indices of the accepted among r.drafts: the first ones, or a path in a tree."""
    if not is_tree(r):
        return list(range(r.n_accepted))
    paths = [[]]                                        # siblings may be equal, so there may be several
    for token in r.tokens[:r.n_accepted]:
        paths = [path + [i] for path in paths for i, parent in enumerate(r.parents)
                 if parent == (path or [-1])[-1] and r.drafts[i] == token]
    return paths[0]


def acceptance(rounds, block=False):
    """(accepted, tested) of all rounds.  Drafts after a rejection, or after EOS, were never tested.

    block   the rounds come from block verification, which tests all drafts, even after one that fails

    In a tree a node's children count as one test: is one of them accepted?
    """
    def rejected(r):
        if len(r.tokens) == r.n_accepted:                       # the text ended with an accepted EOS
            return 0
        if is_tree(r):
            return int((taken(r) or [-1])[-1] in r.parents)     # 0 if a leaf was reached
        return len(r.drafts) - r.n_accepted if block else int(r.n_accepted < len(r.drafts))

    accepted = sum(r.n_accepted for r in rounds)
    return accepted, accepted + sum(map(rejected, rounds))


def by_rank(rounds):
    """How often the first child of a node was accepted, how often the second, ..: each is a share of the
    nodes that were reached and had at least that many children.

    >>> from sampling import Round
    >>> by_rank([Round([7, 1], [5, 7], 1, [], [], [-1, -1]), Round([3], [5, 7], 0, [], [], [-1, -1])])
    [0.0, 0.5]
    """
    tested, accepted = [], []
    for r in rounds:
        path = taken(r)
        for node, following in zip([-1, *path], [*path, None]):
            if len(r.tokens) == r.n_accepted and following is None:
                continue                                # an EOS among the accepted: nothing was tested
            children = [i for i, parent in enumerate(r.parents) if parent == node]
            for rank, child in enumerate(children):
                if rank == len(tested):
                    tested.append(0)
                    accepted.append(0)
                tested[rank] += 1
                accepted[rank] += child == following
    return [a / t for a, t in zip(accepted, tested)]


def ratio(a, b):
    """a / b, or None if either was not measured or b is 0."""
    return a / b if a is not None and b else None


def expected_tokens(alpha, K):
    """Tokens per round, 1 + alpha + .. + alpha^K  (Leviathan et al., equation 1).

    >>> round(expected_tokens(.6, 2), 4)
    1.96
    """
    return sum(alpha**i for i in range(K + 1))


def d_lk(p, q):
    """The distance of two distributions [.., n_vocab] (Leviathan et al., definition 3.2): half the sum of
    |p - q|.  A draft from p is accepted with probability 1 - d_lk(p, q) (theorem 3.5).

    >>> import numpy as np
    >>> round(float(d_lk(np.array([.1, .6, .3]), np.array([.5, .3, .2]))), 4)
    0.4
    """
    return abs(p - q).sum(axis=-1) / 2


def operations(alpha, K, c=0.0):
    """The factor by which speculation increases the operations per token  (Leviathan et al., theorem 3.11).

    c   operations of a draft step / those of a target step, the paper's ĉ

    >>> round(operations(.8, 5), 2)                     # the paper's table 1
    1.63
    """
    return (K * c + K + 1) / expected_tokens(alpha, K)


def predicted_speedup(alpha, K, c, v=1.0):
    """Expected speed-up over the baseline  (Leviathan et al., theorem 3.8, with v in place of 1).

    alpha   probability that a draft is accepted
    c       seconds of a draft step / seconds of a target step
    v       seconds of a target pass over K + 1 tokens / seconds of a target step

    >>> round(predicted_speedup(.8, 5, c=0), 2)         # the paper's table 1
    3.69
    """
    return expected_tokens(alpha, K) / (K * c + v)
