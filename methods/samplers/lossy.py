"""Lossy rules: the text does *not* have the target's distribution.  In exchange, more drafts may be accepted
than by any lossless rule.  (`lenient` and `ensemble` accept at least as many as Algorithm 2, `typical`
sometimes fewer.)

    speculative_sampling(draft, target, tokens, n_tokens, K, rng, verify=lossy.lenient(.5))

    lenient     Leviathan et al. 2022 (arXiv 2211.17192), appendix A.5
    ensemble    the static ensemble of DIVERSED, 2026 (arXiv 2604.07622); assistant_ensemble_weight in
                transformers
    typical     "typical acceptance" of Medusa, Cai et al. 2024 (arXiv 2401.10774)

For each rule, `.._probs` computes the distribution it gives a token.  Notebook 6 shows how far this is from
the target's; the distance grows with the length of the text.  Wang et al. 2026 (arXiv 2607.26627) compute
such distributions for many rules, and find the harm where the draft's probability far exceeds the target's.
`lenient` bounds this excess: no token gets more than q / lenience.  `ensemble` does not: a token gets
(1 - weight) p even if q is 0.

The notation is Chen's: q the target, p the draft (Leviathan et al. swap them; Medusa's p_original is q).

At temperature 0 `lenient` and `typical` accept what Algorithm 2 accepts.

Not here: Leviathan's lenience for greedy text; Medusa's greedy choice of each round's first token; DIVERSED's
trained head that chooses the weight for each token.
"""
from functools import partial

import numpy as np

from methods.entries import Verifier, line_sampler
from sampling import sample


def verify_by(accepts, correct):
    """speculative.verify with another accept test for a draft x, accepts(q, p, x, rng), and another
    distribution for the token after a rejection, correct(q, p)."""
    def verify(target_probs, draft_probs, drafts, rng):
        for j, x in enumerate(drafts):
            q, p = target_probs[j], draft_probs[j]              # [n_vocab] each
            if not accepts(q, p, x, rng):
                return j, sample(correct(q, p), rng)
        return len(drafts), sample(target_probs[-1], rng)
    return verify


def residual(q, p):
    """Algorithm 2's residual, not normalized; q if it is empty."""
    return np.maximum(q - p, 0) if (q > p).any() else q


def lenient(lenience=.3):
    """A `verify` that multiplies p by `lenience`, 0 < lenience <= 1, in the accept test.  1 is Algorithm 2.

    No token gets more than q / lenience, but some may get nothing.  The paper does not say what follows a
    rejection; here it is a draw from Algorithm 2's residual.
    """
    if not 0 < lenience <= 1:
        raise ValueError(f"lenience is {lenience}: it must be above 0 and at most 1 (lossless)")
    return verify_by(lambda q, p, x, rng: rng.random() * lenience * p[x] < q[x], residual)


def lenient_probs(q, p, lenience):
    """The distribution of a token at a position with a draft: [n_vocab], [n_vocab] -> [n_vocab].

    >>> lenient_probs(np.array([.1, .6, .3]), np.array([.5, .3, .2]), .5)
    array([0.2  , 0.525, 0.275])
    """
    accepted, rest = np.minimum(p, q / lenience), residual(q, p)
    return accepted + (1 - accepted.sum()) * rest / rest.sum()


def ensemble(weight=.7):
    """A `verify` that tests drafts against the mixture m = weight q + (1 - weight) p.  1 is Algorithm 2.

    Wherever a draft is tested, the token has exactly the distribution m, and the draft is accepted with
    probability 1 - weight * TV(p, q), where TV is the total variation distance.

    Proof.  This is Algorithm 2 with the target m.  Its residual, max(0, m - p) = weight max(0, q - p), is
    Algorithm 2's own up to a factor.  It accepts with probability sum min(p, m) = 1 - sum max(0, m - p).

    A token without a draft (the bonus, the last of a text) comes from q.  So the distribution of a text also
    depends on where its rounds end: at K = 1, the token after an accepted draft has the distribution q.
    At temperature 0, (1 - weight) of the drafts that Algorithm 2 would reject are accepted.
    """
    if not 0 < weight <= 1:
        raise ValueError(f"the weight is {weight}: it must be above 0 and at most 1 (lossless)")
    return verify_by(lambda q, p, x, rng: rng.random() * p[x] < weight * q[x] + (1 - weight) * p[x], residual)


def ensemble_probs(q, p, weight):
    """The distribution of a token at a position with a draft: [n_vocab], [n_vocab] -> [n_vocab].

    >>> ensemble_probs(np.array([.5, .3, .2]), np.array([.2, .7, .1]), .7)      # .72 of the drafts accepted
    array([0.41, 0.42, 0.17])
    """
    return weight * q + (1 - weight) * p


def typical(epsilon=.09, delta=.3):
    """A `verify` that accepts a draft if the target finds it typical: q(x) > min(epsilon, delta exp(-H(q))).

    p is not used.  If q is spread over many tokens (its entropy H is high), unlikely ones are typical, too.
    After a rejection, or after the last draft, a token is drawn from q.
    """
    if not (0 < epsilon < 1 and 0 < delta < 1):
        raise ValueError(f"epsilon is {epsilon} and delta {delta}: both must be above 0 and below 1")
    return verify_by(lambda q, p, x, rng: q[x] > threshold(q, epsilon, delta), lambda q, p: q)


def threshold(q, epsilon, delta):
    some = q[q > 0]
    return min(epsilon, delta * np.exp((some * np.log(some)).sum()))        # exp(-H)


def typical_probs(q, p, epsilon=.09, delta=.3):
    """The distribution of a token at a position with a draft: [n_vocab], [n_vocab] -> [n_vocab].

    >>> typical_probs(np.array([.1, .6, .3]), np.array([.5, .3, .2]))   # all are typical: p itself
    array([0.5, 0.3, 0.2])
    """
    accepted = np.where(q > threshold(q, epsilon, delta), p, 0)
    return accepted + (1 - accepted.sum()) * q


def parse_numbers(rule, option):
    """lenient, "0.5" -> lenient(0.5).  Raises ValueError."""
    try:
        return rule(*map(float, option.split(","))) if option else rule()
    except TypeError:
        default = ",".join(map(str, rule.__defaults__))
        raise ValueError(f"give it as in {rule.__name__}:{default}") from None


def entry(rule):
    """The option of these entries is the accept rule itself, made from its numbers."""
    return Verifier("methods/samplers/lossy.py", line_sampler(lambda verify: verify),
                    partial(parse_numbers, rule), lossless=False)


LENIENT, ENSEMBLE, TYPICAL = map(entry, (lenient, ensemble, typical))
