"""Known mistakes.  If one of them gives exactly what your code gives, the checks of steps.py name it beside
the numbers.
"""
from contextlib import suppress
from functools import partial

import numpy as np

from lossless import distribution_of_text
from lossless.cases import Case
from lossless.judge import distance, text_of, walk_case
from lossless.toys import table
from lossless.verdicts.museum import DISPUTED, RULES, WRONG, Algorithm2
from sampling import probabilities

# Of probabilities() -----------------------------------------------------------------------------------------


def kth(logits, k, axis=-1):
    """The k-th largest logit of each row [.., 1], or of all rows if axis is None; -inf if k keeps all."""
    return np.sort(logits, axis=axis)[..., -k, None] if 0 < k < logits.shape[-1] else -np.inf


FILTERS = {             # (logits [.., n_vocab], temperature, top_k, top_p) -> probabilities [.., n_vocab]
    "top-p comes before top-k": lambda logits, t, k, p: probabilities(
        np.log(np.maximum(probabilities(logits, t, 0, p), 1e-300)), 1, k),
    "exactly k tokens stay at a tie, the first": lambda logits, t, k, p: probabilities(
        logits - 1e-12 * np.arange(logits.shape[-1]), t, k, p),
    "exactly k tokens stay at a tie, the last": lambda logits, t, k, p: probabilities(np.where(
        logits.argsort().argsort() < logits.shape[-1] - (k or 99), -np.inf, logits), t, 0, p),
    "the k-th logit is that of all rows, not of each": lambda logits, t, k, p: probabilities(np.where(
        logits < kth(logits, k, None), -np.inf, logits), t, 0, p),
    "the k-th logit is that of the first row, not of each": lambda logits, t, k, p: probabilities(np.where(
        logits < kth(logits[:1], k), -np.inf, logits), t, 0, p),
    "top-k sets logits to 0, and exp(0) is 1: use -inf": lambda logits, t, k, p: probabilities(np.where(
        logits < kth(logits, k), 0, logits / (t or 1)), t and 1, 0, p),
    "at temperature 0 the largest logits share the probability": lambda logits, t, k, p: (
        probabilities(logits, t, k, p) if t else probabilities(logits, 1, 1)),
    "one token more stays if the sum is exactly top_p": lambda logits, t, k, p: probabilities(
        logits, t, k, min(p + 1e-12, 1)),
    "top-p is ignored": lambda logits, t, k, p: probabilities(logits, t, k),
    "the temperature is ignored": lambda logits, t, k, p: probabilities(logits, t and 1, k, p),
    "the temperature multiplies": lambda logits, t, k, p: probabilities(logits, t and 1 / t, k, p),
}


# Of a text --------------------------------------------------------------------------------------------------


def omissions(target, prompt, n, eos, settings):
    """Yields (words, distribution): the texts that result if something is forgotten."""
    texts, settings = partial(distribution_of_text, target, prompt), settings | dict(eos=eos)
    yield "of temperature 0: nothing is drawn", texts(n, **settings | dict(temperature=0))
    for name in settings:
        yield f"that come without {name}", texts(n, **{key: settings[key] for key in settings if key != name})
    yield "that come without these settings", texts(n)
    for seen, cut in ("last token", slice(-1, None)), ("prompt", slice(len(prompt))):
        yield f"of a model that sees only the {seen}", distribution_of_text(
            lambda tokens: target(tokens[cut]), prompt, n, **settings)
    yield "with the prompt in front: return the new tokens alone", {
        (*prompt, *new): chance for new, chance in texts(max(n - len(prompt), 0), **settings).items()}
    yield "without their EOS, which should be their last token", {
        new[:-1] if new[-1] in eos else new: chance for new, chance in texts(n, **settings).items() if new}
    if prompt[-1] in eos:
        yield "that end at once: an EOS in the prompt does not count", texts(0)


# Of verify() and of the sampler: these, and the museum's ---------------------------------------------------

class ResidualReversed(Algorithm2):
    """The residual is max(0, p - q), and should be max(0, q - p)."""
    def residual(self, q, p, x):
        return np.maximum(p - q, 0)


class OnAfterARejection(Algorithm2):
    """The drafts after a rejected one are tested, too. The first rejection should end the round."""
    def verify(self, Q, P, drafts, rng):
        results = [Algorithm2.verify(self, Q[[j, -1]], P[j:j + 1], [x], rng) for j, x in enumerate(drafts)]
        corrections = [token for n_accepted, token in results if not n_accepted]
        return len(drafts) - len(corrections), (corrections or [self.bonus(Q, drafts, rng)])[-1]


class RowsOneTooLate(Algorithm2):
    """Each draft is judged by the target's row after its own. The first of the K + 1 rows judges the first
    draft."""
    def rows(self, *run):
        Q = super().rows(*run)
        return np.concatenate([Q[1:], Q[-1:]])


class RecordedAfterTheDraft(Algorithm2):
    """p is recorded when the draft is already in the text, so it is the p of the token after it."""
    def propose(self, draft, x, k, probs, rng):
        drafts, _ = super().propose(draft, x, k, probs, rng)
        return drafts, [probs(draft(x + drafts[:j + 1]))[0] for j in range(k)]


class RowsFromTheFirst(Algorithm2):
    """The drafts are judged by the first rows of the text. Of all its rows, the last K + 1 belong to them."""
    def rows(self, target, x, drafts, probs, eos):
        return probs(target(x + drafts, len(x + drafts)))


class AllThatPassAreCounted(Algorithm2):
    """All drafts that pass the test are counted. Those after the first that fails belong to another text."""
    def verify(self, Q, P, drafts, rng):
        n = sum([self.accepts(Q[j], P[j], x, rng) for j, x in enumerate(drafts)])
        if n == len(drafts):
            return n, self.bonus(Q, drafts, rng)
        return n, self.correction(Q[n], P[n], drafts[n], rng)


class FirstDraftUntested(Algorithm2):
    """The first draft is accepted without a test."""
    def verify(self, Q, P, drafts, rng):
        n = len(drafts[:1])
        n_accepted, token = super().verify(Q[n:], P[n:], drafts[n:], rng)
        return n + n_accepted, token


class RejectedDraftCounted(Algorithm2):
    """The rejected draft is counted as accepted. If the first one is rejected, n_accepted is 0."""
    def verify(self, Q, P, drafts, rng):
        n_accepted, token = super().verify(Q, P, drafts, rng)
        return min(n_accepted + 1, len(drafts)), token


class ResidualOfTheNextRow(Algorithm2):
    """The residual is made of the target's row after that of the rejected draft."""
    def verify(self, Q, P, drafts, rng):
        n, _ = found = super().verify(Q, P, drafts, rng)
        return found if n == len(drafts) else (n, self.correction(Q[n + 1], P[n], drafts[n], rng))


class ProductOfRatios(Algorithm2):
    """A draft is tested by the product of all ratios up to its own, and should be tested by its own."""
    def verify(self, Q, P, drafts, rng):
        ratio = 1
        for j, x in enumerate(drafts):
            ratio *= Q[j][x] / P[j][x]
            if rng.random() >= ratio:
                return j, self.correction(Q[j], P[j], x, rng)
        return len(drafts), self.bonus(Q, drafts, rng)


class BonusFromAResidual(Algorithm2):
    """If all drafts are accepted, the next token is drawn from a residual, and should be drawn from q."""
    def verify(self, Q, P, drafts, rng):
        n, token = super().verify(Q, P, drafts, rng)
        return n, self.correction(Q[n], P[n - 1], 0, rng) if 0 < n == len(drafts) else token


# Several may give the same short texts; the first is named, so the museum's own come before the disputed.
MISTAKES = [RowsOneTooLate, RecordedAfterTheDraft,
            *(RULES[name] for name in sorted(WRONG, key=DISPUTED.__contains__)),
            ResidualReversed, OnAfterARejection, RowsFromTheFirst, AllThatPassAreCounted, FirstDraftUntested,
            RejectedDraftCounted, ResidualOfTheNextRow, ProductOfRatios, BonusFromAResidual]
KNOWN = {"": Algorithm2} | {                            # name and reason: rule; "" is right
    "Match. The target draws, and a draft that equals the draw is accepted. The text is right, but fewer "
    "drafts are accepted, q(x) of them instead of min(1, q(x) / p(x))": RULES["Match"]} | {
    f"{rule.__name__}. {' '.join((rule.__doc__ or '').split())}": rule for rule in MISTAKES}


def name_first(known, gives_yours):
    """The name of the first mistake in `known` of which gives_yours(mistake) holds, in a line of its own, or
    ""."""
    for name, mistake in known.items():
        with suppress(Exception):                       # it may raise an error, never end, or be for trees
            if gives_yours(mistake):
                return f"\n    (this is the result of a known mistake: {name})" if name else ""
    return ""


def name_rule(sampler):
    """The known mistake that gives exactly the texts of your sampler of step 4, in a line as above.

    That sampler may draft K tokens in every round.  So do the known mistakes if they are asked for two more
    tokens, which are then cut off.
    """
    cases = [Case("", table(6, zeros, n_vocab), table(5, zeros, n_vocab), n_tokens, 2, settings, [0])
             for n_tokens, n_vocab, zeros, settings in (        # zeros: the share of impossible tokens
                 (2, 2, 0, {}), (2, 3, .4, {}), (2, 3, 0, dict(top_k=2)), (3, 3, .4, {}), (4, 2, 0, {}))]

    def texts(sampler, case, n_more=0):
        return walk_case(sampler, case._replace(n_tokens=case.n_tokens + n_more),
                         outcome=lambda result, rng: text_of(result, rng)[:case.n_tokens])[0]

    def gives_yours(rule):
        return any(all(distance(texts(rule(), case, n_more), yours) < 1e-9
                       for case, yours in zip(cases, found)) for n_more in (0, 2))

    with suppress(Exception):                           # your sampler may raise an error, too
        found = [texts(sampler, case) for case in cases]
        return name_first(KNOWN, gives_yours)
    return ""
