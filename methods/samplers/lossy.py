"""Lossy rules: the text does *not* have the target's distribution.  In exchange, more drafts may be accepted
than by any lossless rule.  (`lenient` accepts at least as many as Algorithm 2, `typical` sometimes fewer.)

    speculative_sampling(draft, target, tokens, n_tokens, K, rng, verify=lossy.lenient(.5))

    lenient     Leviathan et al. 2022 (arXiv 2211.17192), appendix A.5
    typical     "typical acceptance" of Medusa, Cai et al. 2024 (arXiv 2401.10774)

For each rule, `.._probs` computes the distribution that it gives a token.  Notebook 6 shows how far this is
from the target's.  The distance grows with the length of the text.

The letters are Chen's: q the target, p the draft (Leviathan et al. swap them; Medusa's p_original is q).

At temperature 0 both rules accept what Algorithm 2 accepts.

Not here: Leviathan's lenience for greedy text; Medusa's greedy choice of each round's first token.
"""
import numpy as np

from sampling import sample


def lenient(lenience=.3):
    """A `verify` that multiplies p by `lenience`, 0 < lenience <= 1, in the accept test.  1 is Algorithm 2.

    No token gets more than q / lenience, but some may get nothing.  The paper does not say what follows a
    rejection.  Here it is a draw from Algorithm 2's residual.
    """
    if not 0 < lenience <= 1:
        raise ValueError(f"lenience is {lenience}: it must be above 0 and at most 1 (lossless)")

    def verify_leniently(target_probs, draft_probs, drafts, rng):
        for j, token in enumerate(drafts):
            q, p = target_probs[j], draft_probs[j]              # [n_vocab] each
            if rng.random() * lenience * p[token] < q[token]:
                continue
            residual = np.maximum(q - p, 0)
            return j, sample(residual if residual.any() else q, rng)
        return len(drafts), sample(target_probs[-1], rng)

    return verify_leniently


def lenient_probs(q, p, lenience):
    """The distribution of a token at a position with a draft: [n_vocab], [n_vocab] -> [n_vocab].

    >>> lenient_probs(np.array([.1, .6, .3]), np.array([.5, .3, .2]), .5)
    array([0.2  , 0.525, 0.275])
    """
    accepted, residual = np.minimum(p, q / lenience), np.maximum(q - p, 0)
    return accepted + (1 - accepted.sum()) * residual / residual.sum() if residual.any() else q


def typical(epsilon=.09, delta=.3):
    """A `verify` that accepts a draft if the target finds it typical: q(x) > min(epsilon, delta exp(-H(q))).

    p is not used.  If q is spread over many tokens (its entropy H is high), unlikely ones are typical, too.
    After a rejection, or after all drafts, a token is drawn from q.
    """
    if not (0 < epsilon < 1 and 0 < delta < 1):
        raise ValueError(f"epsilon is {epsilon} and delta {delta}: both must be above 0 and below 1")

    def verify_typical(target_probs, draft_probs, drafts, rng):
        for j, token in enumerate(drafts):
            q = target_probs[j]
            if q[token] <= threshold(q, epsilon, delta):
                return j, sample(q, rng)
        return len(drafts), sample(target_probs[-1], rng)

    return verify_typical


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
