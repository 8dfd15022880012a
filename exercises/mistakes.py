"""Known mistakes.  If one of them gives exactly what your code gives, the checks of steps.py name it beside
the numbers.
"""
from contextlib import suppress
from functools import partial

import numpy as np

from exercises.bugs import EDITS, load, source
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


# Of verify() and of the sampler: those of bugs.txt, and the museum's ----------------------------------------

# Several may give the same short texts; the first is named, so the museum's own come before the disputed.
KNOWN = {"": Algorithm2} | {                            # name and reason: rule; "" is right
    "Match. The target draws, and a draft that equals the draw is accepted. The text is right, but fewer "
    "drafts are accepted, q(x) of them instead of min(1, q(x) / p(x))": RULES["Match"]} | {
    head: partial(load, source(head)) for head in EDITS if head not in RULES} | {
    f"{name}. {' '.join((RULES[name].__doc__ or '').split())}": RULES[name]
    for name in sorted(WRONG, key=DISPUTED.__contains__)}


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
