"""The museum: mistakes that are easy to make, and code that looks wrong but is right.

    WRONG, RIGHT        {name: sampler}, samplers as lossless.report takes them
    RULES               {name: its class}: these, and those that public threads are about (rules.py)

They test lossless/, which must find every wrong one and pass the others.
"""
import numpy as np

from engine.checks import check_settings
from lossless.verdicts.rules import RULES as DISPUTED
from lossless.verdicts.rules import Algorithm2, CoinDrawsTheCorrection
from sampling import cut_after, probabilities, sample

# The accept test --------------------------------------------------------------------------------------------

class Swapped(Algorithm2):
    """p and q are swapped in the accept test."""
    def accepts(self, q, p, x, rng):
        return rng.random() * q[x] < p[x]


class ByTheProbabilityAlone(Algorithm2):
    """A draft is accepted with probability q(draft), which is right for point masses, not for drawn
    drafts."""
    def accepts(self, q, p, x, rng):
        return rng.random() < q[x]


class AcceptedIfLiked(Algorithm2):
    """A draft is accepted if the target gives it a higher probability than the drafter does. No coin is
    tossed."""
    def accepts(self, q, p, x, rng):
        return p[x] < q[x]


class ALittleLenience(Algorithm2):
    """The test uses .9 p instead of p."""
    def accepts(self, q, p, x, rng):
        return rng.random() * .9 * p[x] < q[x]


class FloorUnderP(Algorithm2):
    """p is at least .001 in the accept test. Only drafts with a smaller p show it."""
    def accepts(self, q, p, x, rng):
        return rng.random() * max(p[x], 1e-3) < q[x]


class CoinUpTo(Algorithm2):
    """The test is u <= q / p. A uniform float32 is 0 once in 2^24, and 0 <= 0 accepts a draft that is
    impossible under the target."""
    def accepts(self, q, p, x, rng):
        return rng.random() < (np.floor(min(q[x] / p[x], 1) * 2**24) + 1) / 2**24


# The correction and the bonus -------------------------------------------------------------------------------

class AbsoluteResidual(Algorithm2):
    """The residual is |q - p|, so tokens with q < p can be corrections, too."""
    def residual(self, q, p, x):
        return np.abs(q - p)


class NeverQuiteZero(Algorithm2):
    """Every entry of the residual is at least a millionth, "for numerical stability"."""
    def residual(self, q, p, x):
        return np.maximum(q - p, 1e-6)


class BonusFromTheDraft(Algorithm2):
    """The bonus token is drawn from the draft model's last distribution."""
    def verify(self, Q, P, drafts, rng):
        return super().verify(np.concatenate([Q[:-1], P[-1:]]) if drafts else Q, P, drafts, rng)


# Positions and rounds ---------------------------------------------------------------------------------------

class LastRowForAll(Algorithm2):
    """The draft's last distribution is used for every position. A round with a single draft does not show
    it."""
    def verify(self, Q, P, drafts, rng):
        return super().verify(Q, [P[-1]] * len(P) if drafts else P, drafts, rng)


class RowsOneTooEarly(Algorithm2):
    """Each draft but the first is judged by the target's row before its own."""
    def verify(self, Q, P, drafts, rng):
        return super().verify(np.concatenate([Q[:1], Q[:-2], Q[-1:]]) if drafts else Q, P, drafts, rng)


class RejectedDraftIsRead(Algorithm2):
    """The target continues from the rejected draft instead of the correction, as if a cache were not rolled
    back."""
    rejected = ()

    def rows(self, target, x, drafts, *more):
        return super().rows(target, [*x[:len(x) - len(self.rejected)], *self.rejected], drafts, *more)

    def verify(self, Q, P, drafts, rng):
        n_accepted, token = super().verify(Q, P, drafts, rng)
        self.rejected = drafts[n_accepted:n_accepted + 1]
        return n_accepted, token


class EOSOnlyAtTheEnd(Algorithm2):
    """EOS ends the text only as the last token of a round. An EOS among the accepted drafts is left out, and
    the text goes on."""
    def text(self, drafts, n_accepted, token, eos):
        new = drafts[:n_accepted] + [token]
        return [x for x in new[:-1] if x not in eos] + new[-1:]


class EOSInThePrompt(Algorithm2):
    """An EOS in the prompt ends the text before it begins. Only an EOS among the new tokens should."""
    def __call__(self, draft, target, tokens, n_tokens, *run, eos=None, **settings):
        ended = check_settings(n_tokens, eos=eos) & {*tokens}
        return super().__call__(draft, target, tokens, 0 if ended else n_tokens, *run, eos=eos, **settings)


class TenthRoundKeepsAll(Algorithm2):
    """In the tenth round, and in no other, rejected drafts stay in the text. Shorter texts do not show it."""
    n_rounds = 0

    def text(self, drafts, n_accepted, token, eos):
        self.n_rounds += 1
        return super().text(drafts, len(drafts) if self.n_rounds == 10 else n_accepted, token, eos)


# Drafting ---------------------------------------------------------------------------------------------------

class UnlikelyThrownAway(Algorithm2):
    """Unlikely drafts are thrown away after they were drawn, so unlikely tokens come too rarely."""
    def propose(self, *run):
        drafts, P = super().propose(*run)
        n = next((j for j, x in enumerate(drafts) if P[j][x] < .4), len(drafts))
        return drafts[:n], P[:n]


# Logits and settings ----------------------------------------------------------------------------------------

class LogitsClipped(Algorithm2):
    """Finite logits are clipped to 50 and -50, "for numerical stability". GPT-2's are near -100, so all
    tokens become equally likely."""
    def rows(self, target, x, drafts, probs, eos):
        logits = target(x + drafts, len(drafts) + 1)
        return probs(np.where(np.isfinite(logits), logits.clip(-50, 50), logits))


class ExpInSinglePrecision(Algorithm2):
    """The softmax takes exp in float32 without subtracting the largest logit first. GPT-2's logits are near
    -100, where float32 has few digits left, and none below -103."""
    def rows(self, target, x, drafts, probs, eos):
        weights = np.exp(target(x + drafts, len(drafts) + 1), dtype=np.float32)
        return probs(np.log(np.maximum(weights, np.float64(1e-300))))


class FiltersJointly(Algorithm2):
    """Top-k and top-p are computed independently, and a token must pass both. Top-p should see only what
    top-k has left."""
    def rows(self, target, x, drafts, probs, eos):
        logits = target(x + drafts, len(drafts) + 1)
        q = probabilities(logits, **self.settings | dict(top_p=1.0))
        q *= probabilities(logits, **self.settings | dict(top_k=0)) > 0
        return q / q.sum(axis=1, keepdims=True)


class EOSIgnoredIfZero(Algorithm2):
    """If EOS is token 0, it is taken for "no EOS"."""
    def __call__(self, *run, eos=None, **settings):
        return super().__call__(*run, eos=None if isinstance(eos, int) and eos == 0 else eos, **settings)


# Unusual, and right -----------------------------------------------------------------------------------------

class CoinStretched(CoinDrawsTheCorrection, lossless=True):
    """The coin that rejected a draft is uniform between the ratio and 1. Stretched to [0, 1), it may draw the
    correction."""
    def correction(self, q, p, x, rng):
        self.coin = (self.coin - q[x] / p[x]) / (1 - q[x] / p[x])
        return super().correction(q, p, x, rng)


class NoBonus(Algorithm2, lossless=True):
    """If all drafts are accepted, the last one ends the round. The bonus token is drawn and thrown away."""
    def text(self, drafts, n_accepted, token, eos):
        bonus = 0 < n_accepted == len(drafts)
        return cut_after(drafts if bonus else drafts[:n_accepted] + [token], eos)


class FewerIfUnsure(Algorithm2, lossless=True):
    """Drafting ends when the draft model's next distribution is flat. This is decided before anything is
    drawn from that distribution."""
    def propose(self, draft, x, k, probs, rng):
        drafts, P = [], []
        while len(drafts) < k and (row := probs(draft(x + drafts))[0]).max() > .5:
            drafts.append(sample(row, rng))
            P.append(row)
        return drafts, P


RULES = DISPUTED | {name: rule for name, rule in [*vars().items()]
                    if isinstance(rule, type) and rule.__module__ == __name__}


def sampler(rule):
    """The sampler of a rule's class.  Each run makes a new instance, because some rules have a memory."""
    return lambda *run, **settings: rule()(*run, **settings)


WRONG, RIGHT = ({name: sampler(rule) for name, rule in RULES.items() if rule.lossless is lossless}
                for lossless in (False, True))
