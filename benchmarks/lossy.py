"""What lossy rules gain, and how far their text is from the target's distribution.

    lossy_table(settings)       a row for each rule, those of samplers/lossy.py and two lossless ones

    toy accepted        drafts of 2, exactly: a pair of tables over 3 tokens
    toy distances       of texts of 2 and 3 tokens from the target's distribution: total variation, exactly,
                        by lossless.py
    tokens per pass     of the pair, at temperature 1
    distance            of a token that was drafted and tested there, from the target's distribution: the mean
                        over the places of these texts, by the rule's formula over the whole vocabulary

But: the distance of a whole text on the pair is not known, only that of each token, given what came before.
"""
from functools import partial

import numpy as np

from benchmarks.pairs import load_pair
from lossless import PAIRS, PROMPT, distance, distribution_of_text, exact_distribution, text_of
from reporting.stats import d_lk
from samplers import block
from samplers.lossy import lenient, lenient_probs, typical, typical_probs
from speculative import speculative_sampling, verify

RULES = {"Algorithm 2": (verify, None), "block verification": (block.verify, None),
         **{f"lenient({x})": (lenient(x), partial(lenient_probs, lenience=x)) for x in (.8, .5, .3, .1)},
         **{f"typical({e}, {d})": (typical(e, d), partial(typical_probs, epsilon=e, delta=d))
            for e, d in [(.3, .55), (.09, .3), (.01, .1)]}}
TOY = PAIRS["a distribution after every prefix"]


def lossy_table(settings):
    draft, target, prompts = load_pair(settings.pairs[0], settings.models_dir, settings.prompts)
    rows = []
    for name, (rule, formula) in RULES.items():
        rounds = [r for seed, tokens in enumerate(prompts)
                  for r in measured(draft, target, tokens, rule, formula, seed, settings)]
        far = [x for _, distances in rounds for x in distances]
        rows.append({"rule": name, **toy(rule), "K": settings.K_fixed,
                     "tokens per pass": sum(n for n, _ in rounds) / len(rounds),
                     "distance": float(np.mean(far)) if far else 0.0})
    return rows


def toy(verify):
    """Exact figures of a rule on a pair of tables."""
    def run(rng, n_tokens):
        return speculative_sampling(*TOY, PROMPT, n_tokens, 2, rng, verify=verify)

    accepted = exact_distribution(lambda rng: next(run(rng, 3)).n_accepted)
    texts = [exact_distribution(lambda rng: text_of(run(rng, n))) for n in (2, 3)]
    return {"toy accepted": sum(n * chance for n, chance in accepted.items()),
            "toy distances": [distance(found, distribution_of_text(TOY[1], PROMPT, n))
                              for n, found in enumerate(texts, 2)]}


def measured(draft, target, tokens, verify, formula, seed, settings):
    """(tokens of the round, distance of each place that was tested) of each round after a prompt."""
    for r in speculative_sampling(draft, target, tokens, settings.n_tokens, settings.K_fixed,
                                  np.random.default_rng(seed), verify=verify):
        places = range(min(r.n_accepted + 1, len(r.drafts))) if formula else ()
        pairs = [(r.target_probs[j], r.draft_probs[j]) for j in places]
        yield len(r.tokens), [d_lk(formula(q, p), q) for q, p in pairs]
