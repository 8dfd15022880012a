"""Known mistakes: which of them gives exactly what your code gives?  The checks of steps.py name it beside
the numbers.
"""
from contextlib import suppress
from functools import partial

import numpy as np

from lossless import distribution_of_text, exact_distribution
from lossless.judge import distance
from lossless.toys import table
from lossless.verdicts.museum import RULES, WRONG, Algorithm2
from sampling import probabilities
from speculative import speculative_sampling

# Of probabilities() -----------------------------------------------------------------------------------------


def leave_out_the_last(logits, t, k, p):
    """Top-p without the token that reaches it."""
    probs, nucleus = probabilities(logits, t, k), probabilities(logits, t, k, p) > 0
    mass = probs[nucleus].sum() - probs[nucleus].min() - 1e-9
    return probabilities(logits, t, k, max(mass, 1e-9) if p < 1 else 1)


FILTERS = {             # (logits [n_vocab], temperature, top_k, top_p) -> probabilities [n_vocab]
    "top-p comes before top-k": lambda logits, t, k, p: probabilities(
        np.log(np.maximum(probabilities(logits, t, 0, p), 1e-300)), 1, k),
    "exactly k tokens stay at a tie": lambda logits, t, k, p: probabilities(
        logits - 1e-12 * np.arange(len(logits)), t, k, p),
    "top-k leaves k + 1": lambda logits, t, k, p: probabilities(logits, t, k and k + 1, p),
    "top-p is ignored": lambda logits, t, k, p: probabilities(logits, t, k),
    "the temperature multiplies": lambda logits, t, k, p: probabilities(logits, t and 1 / t, k, p),
    "the token that reaches top-p is left out": leave_out_the_last,
}


def name_filter(found, cases):
    """The mistake that gives all of what was found, in a line of its own, or "".

    found   [n_cases] of [n_rows, n_vocab]
    cases   [n_cases] of (logits [n_vocab], settings)
    """
    for name, known in FILTERS.items():
        if all(np.allclose(rows, known(logits, *({"temperature": 1, "top_k": 0, "top_p": 1} | of).values()),
                           atol=1e-9) for rows, (logits, of) in zip(found, cases)):
            return f"\n    (all are those of a known mistake: {name})"
    return ""


# Of a text --------------------------------------------------------------------------------------------------


def omissions(target, prompt, n, ends, **settings):
    """Yields (words, distribution): the texts that come out if something is forgotten."""
    texts, settings["eos"] = partial(distribution_of_text, target, prompt), ends
    yield "of temperature 0: nothing is drawn", texts(n, **settings | dict(temperature=0))
    for name in settings:
        yield f"that come without {name}", texts(n, **{key: settings[key] for key in settings if key != name})
    yield "that come without these settings", texts(n)
    yield "of a model that sees only the last token", distribution_of_text(
        lambda tokens: target(tokens[-1:]), prompt, n, **settings)
    yield "with the prompt in front: return the new tokens alone", {
        (*prompt, *new): chance for new, chance in texts(max(n - len(prompt), 0), **settings).items()}
    yield "without their EOS, which should be their last token", {
        new[:-1] if new[-1] in ends else new: chance for new, chance in texts(n, **settings).items() if new}
    if prompt[-1] in ends:
        for length in 0, 1:
            yield "that end at once: an EOS in the prompt does not count", texts(length)


# Of the sampler ---------------------------------------------------------------------------------------------

# (tokens, size of the vocabulary, share of zero probabilities, settings); the cheapest first
ROUNDS = [(2, 3, .4, {}), (3, 2, 0, {}), (3, 3, .4, {})]
LONG_ROUNDS = [(2, 2, 0, {}), (2, 3, .4, {}), (2, 3, 0, dict(top_k=2)), (3, 3, .4, {})]
ENDED = [*ROUNDS, (3, 3, .4, dict(eos=[1]))]


def name_rule(sampler, cases, more=(0,)):
    """The mistake of the museum that gives exactly the texts of your sampler, and why it is wrong, in a line
    of its own, or "".

    more    the museum is asked for so many more tokens, which are cut off; with 2 it has K drafts in every
            round, as your sampler may have in step 4
    """
    def texts(sampler, n, n_vocab, zeros, settings, n_more=0):
        models = table(6, zeros, n_vocab), table(5, zeros, n_vocab)

        def run(rng):
            new = []
            for part in sampler(*models, [0], n + n_more, 2, rng, **settings):
                rng.step()
                new += getattr(part, "tokens", [part])
                if len(new) >= n:
                    break
            return tuple(new[:n])
        return exact_distribution(run)

    def is_alike(sampler, n_more):
        with suppress(Exception):                       # it may raise an error, or never end
            return all(distance(texts(sampler, *case, n_more), found[i]) < 1e-9
                       for i, case in enumerate(cases))

    with suppress(Exception):
        found = [texts(sampler, *case) for case in cases]
        for name, known in {"": speculative_sampling, **WRONG}.items():
            if (not name or issubclass(RULES[name], Algorithm2)) and any(
                    is_alike(known, n_more) for n_more in more):
                why = " ".join((RULES[name].__doc__ or "").split()) if name else ""
                return name and f"\n    (the texts are those of a known mistake: {name}. {why})"
    return ""
