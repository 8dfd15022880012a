"""Rules that public threads are about. Each is Algorithm 2, or a rule for trees, with a step changed.

    RULES["TargetAfterRejection"]()(draft, target, tokens, n_tokens, K, rng, **settings) -> rounds

A rule's class line says if it is lossless, and its docstring says why.  The tests compare this with what
lossless/ finds.  As in speculative.py, q is the target's distribution and p the draft model's.  A
"correction" follows a rejected draft.  A "bonus" token follows if all drafts of a round are accepted.

Limitations: these are reductions, written from what a thread or a file says.  They show what an engine does
to one sequence, without its batches, kernels and precision.  lossless/ cannot walk a race of exponentials
(argmin E / p), so a rule that uses such a race draws from the distribution that the race gives.
"""
from functools import partial
from types import SimpleNamespace

import numpy as np

from engine.checks import check_settings
from methods.samplers import block, lossy, tree
from methods.samplers.constraints import constrained
from methods.samplers.tree_rules import SEQUOIA, grow_likeliest, normalize, top_tokens
from sampling import Round, cut_after, point_masses, probabilities, sample


class Rule:
    """A rule's class line says if it is lossless: `class Match(Algorithm2, lossless=True)`."""
    def __init_subclass__(cls, lossless=False):
        cls.lossless = lossless


class Algorithm2(Rule, lossless=True):
    """A token comes as an accepted draft with probability min(p, q), and as a correction with max(0, q - p).
    The sum is q, whatever p is. This is speculative.py cut into steps."""
    looked_at = slice(None)             # the tokens of a round among which an EOS is looked for

    def __call__(self, draft, target, tokens, n_tokens, K, rng, *, eos=None, **settings):
        x, T, eos = list(tokens), len(tokens) + n_tokens, check_settings(n_tokens, eos=eos)
        self.settings, self.x, self.ends, probs = settings, x, (len(x), T), partial(probabilities, **settings)
        while len(x) < T:
            drafts, P = self.propose(draft, x, min(K, T - len(x) - 1), probs, rng)
            Q = self.rows(target, x, drafts, probs, eos)
            P = point_masses(drafts, Q.shape[1]) if P is None else P
            n_accepted, token = self.verify(Q, P, drafts, rng)
            new = self.text(drafts, n_accepted, token, eos)[:T - len(x)]
            x += new
            yield Round(new, drafts, min(n_accepted, len(new)), Q, P)
            if eos & {*new[self.looked_at]}:
                return

    # Drafting
    def propose(self, draft, x, k, probs, rng):
        drafts, P = [], []
        for _ in range(k):
            row = probs(draft(x + drafts))[0]
            drafts.append(self.draw(row, rng))
            P.append(row)
        return drafts, P

    def draw(self, p, rng):
        return sample(p, rng)

    # The target's pass
    def rows(self, target, x, drafts, probs, eos):
        return probs(target(x + drafts, len(drafts) + 1))

    # Judging
    def verify(self, Q, P, drafts, rng):
        for j, x in enumerate(drafts):
            if not self.accepts(Q[j], P[j], x, rng):
                return j, self.correction(Q[j], P[j], x, rng)
        return len(drafts), self.bonus(Q, drafts, rng)

    def accepts(self, q, p, x, rng):
        return rng.random() * p[x] < q[x]

    def correction(self, q, p, x, rng):
        r = self.residual(q, p, x)
        return sample(r if r.any() else q, rng)

    def residual(self, q, p, x):
        return np.maximum(q - p, 0)

    def bonus(self, Q, drafts, rng):
        return sample(Q[-1], rng)

    # The text
    def text(self, drafts, n_accepted, token, eos):
        return cut_after(drafts[:n_accepted] + [token], eos)


# Drawn from one distribution, recorded as another -----------------------------------------------------------

class ArgmaxSoftmaxRecorded(Algorithm2):
    """The ratio q / p is right for drafts that were drawn from p. The argmax is proposed every time, so its p
    is 1, and dividing by a smaller p accepts it too often."""
    def draw(self, p, rng):
        return int(p.argmax())


class DrawnAsPointMasses(Algorithm2, lossless=True):
    """The rule for point masses does not depend on how the draft came about, so a drawn draft may be judged
    like a chosen one. The draft is accepted with probability sum p q instead of sum min(p, q)."""
    def propose(self, *run):
        return super().propose(*run)[0], None


class ArgmaxAsPointMasses(DrawnAsPointMasses, ArgmaxSoftmaxRecorded, lossless=True):
    """The draft x is accepted with probability q(x). After a rejection, which has probability 1 - q(x), each
    other token y is drawn with probability q(y) / (1 - q(x)). So y comes with probability q(y)."""


class FilteredRawRecorded(Algorithm2):
    """A filter lets through tokens whose p adds up to Z < 1, and draws them with probability p / Z. The test
    divides by p, so its ratio is too large by the factor 1 / Z."""
    def propose(self, draft, x, k, probs, rng):
        drafts, _ = super().propose(draft, x, k, probs, rng)
        return drafts, [probabilities(draft(x + drafts[:j]))[0] for j in range(k)]


class DrawnFromRounded(Algorithm2):
    """Drafts are drawn from rounded probabilities, but the test divides by the exact ones. Here the mantissa
    is rounded to 8 bits, as in bfloat16."""
    def draw(self, p, rng):
        mantissa, exponent = np.frexp(p)
        return sample(np.ldexp(np.round(mantissa * 256) / 256, exponent), rng)


class UnlikelyLastDropped(ArgmaxSoftmaxRecorded, lossless=True):
    """Each draft is an argmax, which does not depend on chance, so leaving out an unlikely last one only
    makes the round shorter. If drafts were drawn, this would be wrong."""
    def propose(self, *run):
        drafts, P = super().propose(*run)
        return drafts[:-1] if drafts and P[-1][drafts[-1]] < .4 else drafts, None


class ForbiddenDropped(ArgmaxAsPointMasses, lossless=True):
    """A draft that a grammar forbids (here: with q = 0) is dropped before the test. It was chosen, so the
    residual would be q without it, which is q. If drafts were drawn, this would be wrong."""
    def verify(self, Q, P, drafts, rng):
        n = next((j for j, x in enumerate(drafts) if not Q[j][x]), len(drafts))
        return super().verify(Q[:n + 1], P[:n], drafts[:n], rng)


class ForbiddenRowZeroed(Algorithm2):
    """If a grammar forbids the draft (here: if q = 0), its whole row of p is set to 0, and the correction is
    drawn from q. But tokens with q < p already get all of their q from accepted drafts. If drafts were
    chosen, this would be right."""
    def residual(self, q, p, x):
        return super().residual(q, p, x) if q[x] else q


class Shortlist(Algorithm2, lossless=True):
    """The drafter knows only some tokens (here two). p is 0 elsewhere, and the others come as corrections."""
    def propose(self, draft, x, k, probs, rng):
        def of_two(logits):
            known = np.maximum(logits, -50)                     # in case both are impossible
            return probs(np.where(np.arange(logits.shape[-1]) < 2, known, -np.inf))
        return super().propose(draft, x, k, of_two, rng)


class FiltersForTheTargetAlone(Algorithm2, lossless=True):
    """The drafter ignores top-k and top-p. A draft outside the target's set has q = 0 and is always rejected,
    which is slower, not wrong."""
    def propose(self, draft, x, k, probs, rng):
        return super().propose(draft, x, k, partial(probs, top_k=0, top_p=1.0), rng)


class ExitByTheCoinOfTheTest(Algorithm2, lossless=True):
    """One coin decides both whether drafting ends after a draft and whether the draft is accepted, but it
    does not affect which token was drafted. If the draft is accepted, the next token has the target's
    distribution, whether it is drafted or not."""
    def propose(self, draft, x, k, probs, rng):
        drafts, P, self.coins = [], [], []
        while len(drafts) < k and not (drafts and P[-1][drafts[-1]] < .5 and 1 - self.coins[-1] <= .5):
            P.append(probs(draft(x + drafts))[0])
            drafts.append(sample(P[-1], rng))
            self.coins.append(rng.random())
        return drafts, P

    def accepts(self, q, p, x, rng):
        return self.coins.pop(0) * p[x] < q[x]


# How many drafts are verified -------------------------------------------------------------------------------

class LengthFromAllDrafts(Algorithm2):
    """The best number of drafts to verify is found after all were drawn, so whether a draft is verified
    depends on which token it is, and some tokens are dropped more often than others."""
    seconds = 1, 1.7, *np.arange(1.8, 4, .1)            # that a pass over 1, 2, .. tokens takes

    def propose(self, *run):
        drafts, P = super().propose(*run)
        surely = np.cumprod([1, *map(self.confidence, P, drafts)])      # [n]: a guess of P(first n accepted)
        worth = np.cumsum(surely) / self.seconds[:len(surely)]  # tokens per second, with n drafts
        n = self.best(worth)
        return drafts[:n], P[:n]

    def confidence(self, p, x):
        return p.max()

    def best(self, worth):
        return int(worth.argmax())


class LengthFromDrawnTokens(LengthFromAllDrafts):
    """The best number of drafts is found from the probabilities of the tokens that were drawn, so an unlikely
    draft is dropped more often than a likely one."""
    def confidence(self, p, x):
        return p[x]


class LengthByEarlyStop(LengthFromAllDrafts, lossless=True):
    """The search stops at the first length after which the speed drops, so whether a draft is verified
    depends only on the drafts before it."""
    def best(self, worth):
        return next((n for n in range(len(worth) - 1) if worth[n + 1] < worth[n]), len(worth) - 1)


class LengthFromTheRoundBefore(LengthFromAllDrafts, lossless=True):
    """The number of drafts to verify follows from the drafts of an earlier round, so it does not depend on
    those of this round."""
    before = float("inf")                       # the first round has no limit

    def best(self, worth):
        n, self.before = self.before, super().best(worth)
        return min(n, len(worth) - 1)


# A different target from the one asked for ------------------------------------------------------------------

class SettingsForTheDraftAlone(Algorithm2):
    """Temperature, top-k and top-p are applied to the draft only, so the text has the distribution of a
    target without them."""
    def rows(self, target, x, drafts, probs, eos):
        return probabilities(target(x + drafts, len(drafts) + 1))


class SettingsForTheBonusAlone(SettingsForTheDraftAlone):
    """Drafts are judged and corrected by the target without temperature, top-k and top-p. Only the bonus
    token is drawn with them."""
    def rows(self, *run):
        return np.concatenate([super().rows(*run)[:-1], Algorithm2.rows(self, *run)[-1:]])


class BonusWithoutSettings(Algorithm2):
    """Drafts are judged and corrected with temperature, top-k and top-p. The bonus token is drawn without
    them."""
    def rows(self, target, x, drafts, probs, eos):
        q = super().rows(target, x, drafts, probs, eos)
        return np.concatenate([q[:-1], probabilities(target(x + drafts))]) if drafts else q


class SettingsForTheDrawsAlone(FilteredRawRecorded, SettingsForTheBonusAlone):
    """Drafts and bonus tokens are drawn with the settings, but p and q are recorded without them, so
    corrections ignore them, too."""


class TestWithoutFilters(ArgmaxAsPointMasses):
    """The draft is accepted with its probability before top-k and top-p. Otherwise a token is drawn with
    them, from the logits without the draft."""
    def rows(self, target, x, drafts, *more):
        self.logits = [*target(x + drafts, len(drafts) + 1)]
        return super().rows(target, x, drafts, *more)

    def accepts(self, q, p, x, rng):
        self.row = self.logits.pop(0)
        return rng.random() < probabilities(self.row)[x]

    def correction(self, q, p, x, rng):
        return sample(probabilities(np.where(np.arange(len(q)) - x, self.row, -np.inf), **self.settings), rng)


class GreedyTarget(Algorithm2):
    """The text is greedy at every temperature."""
    def rows(self, *run):
        q = super().rows(*run)
        return point_masses(q.argmax(axis=1), q.shape[1])


class GreedyButForTheBonus(GreedyTarget):
    """Accepted and corrected tokens are greedy, and only bonus tokens are drawn."""
    def rows(self, *run):
        return np.concatenate([super().rows(*run)[:-1], Algorithm2.rows(self, *run)[-1:]])


def penalty(tokens, logits, size=2.0):
    """Subtracts `size` from the logit of each token in the text so far."""
    logits[[token for token in {*tokens} if token < len(logits)]] -= size
    return logits


class PenaltyIgnored(Algorithm2):
    """The repetition penalty is left out. Here the toy target applies it, and the rule undoes it."""
    def rows(self, target, *more):
        return super().rows(constrained(target, partial(penalty, size=-2.0)), *more)


class PenaltyFromBeforeTheRound(PenaltyIgnored):
    """Every position gets the penalties of the tokens before the round. The penalties of the round's own
    drafts are missing."""
    def rows(self, target, x, *more):
        plain = constrained(target, partial(penalty, size=-2.0))
        return Algorithm2.rows(self, constrained(plain, lambda _, logits: penalty(x, logits)), x, *more)


class EOSImpossibleAtDrafts(Algorithm2):
    """The target gives EOS some probability at the drafts' positions, and the rule sets it to 0."""
    def rows(self, target, x, drafts, probs, eos):
        q = super().rows(target, x, drafts, probs, eos)
        q[:-1, [*eos]] = 0
        return q / np.maximum(q.sum(axis=1, keepdims=True), 1e-9)


class OnAfterEOS(Algorithm2):
    """Drafts after an accepted EOS stay in the text, which should have ended there."""
    def text(self, drafts, n_accepted, token, eos):
        return drafts[:n_accepted] + [token]


class EOSSeenOnlyAtTheEnd(OnAfterEOS):
    """The text ends if the last token of a round is EOS. An EOS before it ends nothing, and more rounds
    follow."""
    looked_at = slice(-1, None)


class LengthBeforeEOS(OnAfterEOS):
    """A round that reaches the last place of the text is not searched for an EOS."""
    def text(self, drafts, n_accepted, token, eos):
        new = drafts[:n_accepted] + [token]
        return new if len(self.x) + len(new) >= self.ends[1] else cut_after(new, eos)


# The accept test, and what follows a rejection --------------------------------------------------------------

class EveryDraftAccepted(Algorithm2):
    """No draft is tested, so all but the bonus tokens are the drafter's text."""
    def accepts(self, *_):
        return True


class UniformIsZero(Algorithm2):
    """0 is below every ratio above 0, so every draft that is possible under the target is accepted."""
    def accepts(self, q, p, x, rng):
        return 0 < q[x]


class OneCoinForAll(Algorithm2):
    """One coin judges all drafts of a round. A round with a single draft does not show it."""
    def verify(self, *run):
        self.coin = run[-1].random()
        return super().verify(*run)

    def accepts(self, q, p, x, rng):
        return self.coin * p[x] < q[x]


class CoinDrawsTheCorrection(Algorithm2):
    """The coin that rejected the draft is known to be large, but it also draws the correction."""
    def accepts(self, q, p, x, rng):
        self.coin = rng.random()
        return self.coin * p[x] < q[x]

    def correction(self, q, p, x, rng):
        r = self.residual(q, p, x)
        return int((np.cumsum(r) > self.coin * r.sum()).argmax())


class OldPlaceTested(Algorithm2):
    """The i-th draft of every round is tested by the ratio of the i-th token of the text, which belongs to an
    earlier round."""
    def verify(self, Q, P, drafts, rng):
        return super().verify(Q, P, (self.x + drafts)[self.ends[0]:][:len(drafts)], rng)


class TargetAfterRejection(Algorithm2):
    """Tokens with q < p get all of their q from accepted drafts, and a draw from q adds more."""
    def residual(self, q, p, x):
        return q


class OverTheLargest(TargetAfterRejection, ArgmaxSoftmaxRecorded):
    """The draft is the drafter's argmax, and is accepted with probability q(draft) / max q; otherwise a token
    is drawn from q. The draft then comes too often."""
    def accepts(self, q, p, x, rng):
        return rng.random() * q.max() < q[x]


class AcceptedIfTheArgmax(TargetAfterRejection):
    """A draft is accepted if it is the target's likeliest token; otherwise a token is drawn from q. The
    likeliest token then comes too often."""
    def accepts(self, q, p, x, rng):
        return x == q.argmax()


class SoftmaxOfResidual(Algorithm2):
    """The residual should be divided by its sum. Its softmax gives some probability to every token, even to
    those that get all of their q from accepted drafts."""
    def residual(self, q, p, x):
        return np.exp(np.maximum(q - p, 0))


class TargetWithoutTheDraft(Algorithm2):
    """Only the rejected draft is taken out of q. That is right for point masses. If drafts are drawn, other
    tokens also get part of their q from accepted drafts."""
    def residual(self, q, p, x):
        return np.where(np.arange(len(q)) == x, 0, q)


class LargestOfResidual(Algorithm2):
    """The correction is always the token with the largest residual, not a draw."""
    def correction(self, q, p, x, rng):
        return int((q - p).argmax())


class GreedyByRatio(SettingsForTheDrawsAlone, LargestOfResidual):
    """At temperature 0, drafts, corrections and bonus tokens are argmaxes, but a coin and the ratio of two
    softmaxes decide whether a draft is accepted."""


class Match(Algorithm2, lossless=True):
    """The text consists of the target's own draws. A draft only decides whether the next draw can come from
    the same pass, so p does not affect the text."""
    def accepts(self, q, p, x, rng):
        self.drawn = sample(q, rng)
        return self.drawn == x

    def correction(self, *_):
        return self.drawn


class MatchArgmax(Match, ArgmaxAsPointMasses, lossless=True):
    """As in `Match`, but the draft is the argmax of p, and is accepted with probability q(draft)."""


class MatchOrRatio(ArgmaxSoftmaxRecorded):
    """The draft is the argmax, and p its softmax. It is accepted if it equals the target's draw or passes
    the ratio test; with two chances it comes too often. The correction is the target's draw, or comes from
    the residual if an accepted draft differed from its draw."""
    def verify(self, Q, P, drafts, rng):
        self.equal = True
        return super().verify(Q, P, drafts, rng)

    def accepts(self, q, p, x, rng):
        self.drawn = sample(q, rng)
        accepted = self.drawn == x or super().accepts(q, p, x, rng)
        self.equal &= self.drawn == x or not accepted
        return accepted

    def correction(self, *run):
        return self.drawn if self.equal else super().correction(*run)


class OnePositionLate(Algorithm2):
    """The correction is drawn from the target's distribution after the rejected draft, as if that draft were
    in the text."""
    def verify(self, Q, P, drafts, rng):
        n_accepted, token = super().verify(Q, P, drafts, rng)
        return n_accepted, token if n_accepted == len(drafts) else sample(Q[n_accepted + 1], rng)


class DraftOverOwnDraw(Algorithm2):
    """The target draws a token t, and the draft x is accepted with probability p(x) / q(t): the ratio is
    inverted, and its two probabilities are of different tokens."""
    def accepts(self, q, p, x, rng):
        return rng.random() * q[sample(q, rng)] < p[x]


class DraftOverOwnDrawLate(DraftOverOwnDraw, OnePositionLate):
    """As in `DraftOverOwnDraw`, and the correction comes from the target's distribution after the rejected
    draft, as in `OnePositionLate`."""


class RejectedDraftsStay(Algorithm2):
    """Rejected drafts stay in the text."""
    def text(self, drafts, n_accepted, token, eos):
        return cut_after(drafts + [token], eos)


class BonusFromTheRowBefore(Algorithm2):
    """If all drafts are accepted, the bonus is drawn from the distribution that judged the last draft, as if
    that draft were not in the text."""
    def bonus(self, Q, drafts, rng):
        return sample(Q[-2 if drafts else -1], rng)


class BonusIsTheArgmax(Algorithm2):
    """If all drafts are accepted, the next token is the target's likeliest instead of a draw."""
    def bonus(self, Q, drafts, rng):
        return int(Q[-1].argmax())


class Typical(Algorithm2):
    """A draft is accepted if the target finds it likely enough, however often it is proposed."""
    verify = staticmethod(lossy.typical())


class RelaxedForThinking(SettingsForTheDraftAlone, BonusIsTheArgmax):
    """A draft is accepted if it is one of the target's N likeliest tokens, and at most delta less likely than
    the likeliest (here N = 2, delta = .6). Otherwise the likeliest token follows."""
    def accepts(self, q, p, x, rng, N=2, delta=.6):
        return q[x] >= max(np.sort(q)[-N], q.max() - delta)

    def correction(self, q, *_):
        return int(q.argmax())


class StaticEnsemble(Algorithm2):
    """The test uses v = w q + (1 - w) p instead of q, here with w = .7. The residual max(0, v - p) is w
    max(0, q - p), so a tested position has exactly the distribution v. The bonus comes from q."""
    def accepts(self, q, p, x, rng, w=.7):
        return rng.random() * p[x] < w * q[x] + (1 - w) * p[x]


class Block(Algorithm2, lossless=True):
    """Whole prefixes are judged, and the longest one that passes is accepted. On average it accepts at least
    as many drafts as Algorithm 2 (Sun et al.)."""
    verify = staticmethod(block.verify)


class HSD(Algorithm2, lossless=True):
    """Hierarchical speculative decoding is block verification, scanned from the back: the capped ratio
    P_t = r_t / max(1, r_1, .., r_t) is min(1, P_{t-1} q / p)."""
    def ratios(self, Q, P, drafts):                             # r_t and P_t, [k + 1] each
        r = np.cumprod([1.0, *(Q[j][x] / P[j][x] for j, x in enumerate(drafts))])
        return r, r / np.maximum.accumulate(np.maximum(r, 1))

    def scan(self, Q, P, drafts, rng):      # how many are accepted, and what the next token is drawn from
        k, (_, capped) = len(drafts), self.ratios(Q, P, drafts)
        if rng.random() < capped[k]:
            return k, Q[k]
        for t in range(k - 1, -1, -1):
            change = capped[t] * Q[t] - P[t]
            more, less = change.clip(0), -change.clip(max=0)
            if t == 0 or rng.random() * less.sum() < more.sum():
                return t, more

    def verify(self, Q, P, drafts, rng):
        t, weights = self.scan(Q, P, drafts, rng)
        return t, sample(weights if weights.any() else Q[t], rng)


class HSDLastUncapped(HSD):
    """The ratio of the whole text is not capped, so after a prefix with a ratio above 1, all drafts are
    accepted too often."""
    def ratios(self, *run):
        r, capped = super().ratios(*run)
        return r, [*capped[:-1], r[-1]]


class HSDOneTooEarly(HSD):
    """Each prefix is judged by the ratios of the prefix that is one draft shorter, so in rounds of two drafts
    or more, the first is accepted without a test."""
    def scan(self, Q, P, drafts, rng):
        if len(drafts) < 2:
            return super().scan(Q, P, drafts, rng)
        t, more = super().scan(Q[:-1], P[:-1], drafts[:-1], rng)
        if t == len(drafts) - 1:
            return t + 1, Q[t + 1]
        return t + 1, P[t + 1] * more / np.where(P[t] > 0, P[t], np.inf)


class ProductsOfCoins(ArgmaxAsPointMasses):
    """A prefix of the drafts passes if the product of its coins is at most that of its q(draft), and the
    longest one that passes is accepted. But products are small too often: P(u_1 u_2 < c) = c (1 - log c),
    not c. The code does so in rounds of three drafts or more, and this rule in rounds of three.

    The numbers -log(u_1 .. u_i) are the arrival times of a Poisson process, so the i-th prefix fails if at
    least i arrivals come before the time -log(q_1 .. q_i)."""
    shortest = 3

    def verify(self, Q, P, drafts, rng):
        if len(drafts) != self.shortest:
            return super().verify(Q, P, drafts, rng)
        a, b, c = np.cumprod([max(Q[j][x], 1e-99) for j, x in enumerate(drafts)])
        A, B, C = -np.log([a, b, c])
        at_most = [1 - a - b * A - c * A * (B - A / 2),         # P(at most n drafts are accepted)
                   1 - b * (1 + B) - c * B**2 / 2, 1 - c * (1 + C + C**2 / 2), 1]
        n = int(rng.choice(4, p=np.diff(at_most, prepend=0).clip(0)))
        return n, sample(Q[3], rng) if n == 3 else self.correction(Q[n], P[n], drafts[n], rng)


class NoiseUsedTwice(Algorithm2):
    """Each token gets exponential noise E. The draft has the smallest E / p, and the correction the smallest
    E / residual. If a token with a large p was not drafted, its E is large, and the correction uses the same
    E, so such tokens come too rarely."""
    def correction(self, q, p, x, rng):
        given = race_twice(p, self.residual(q, p, x), x)        # x won the first race: who wins again
        return rng.choice(len(q), p=given / given.sum())


def race_twice(first, second, a):
    """Returns [n_vocab]: for each token b, the probability that a wins the race argmin E / first and b wins
    the race argmin E / second, if both races are run on the same exponentials E.

    With E_b = t E_a both win if every other E_i exceeds E_a max(first_i / first_a, t second_i / second_b).
    Integrating over E_a and substituting τ = t first_a / second_b gives the probability

        first_a second_b ∫ 1 / H(τ)² dτ         H(τ) = Σ max(first_i, τ second_i)

    with τ from first_b / second_b to first_a / second_a.  Between two neighbouring ratios first_i /
    second_i, H is a straight line F + S τ, and the integral is (1 / H(left) - 1 / H(right)) / S.  If b is a,
    the probability is first_a / H(first_a / second_a).

    >>> race_twice(np.array([.5, .5]), np.array([0., 1.]), 0).tolist()     # 1 is sure to win the second
    [0.0, 0.5]
    """
    ratio = np.divide(first, second, out=np.full(len(first), np.inf), where=second > 0)
    order = np.argsort(ratio)
    S, F = second[order].cumsum(), first.sum() - first[order].cumsum()      # up to a ratio, and after it
    one_over_H = 1 / (F + S * ratio[order])
    integral = np.zeros(len(first))                                         # up to each ratio
    integral[order[1:]] = np.cumsum(-np.diff(one_over_H) / S[:-1])
    joint = first[a] * second * np.maximum(integral[a] - integral, 0)
    joint[a] = first[a] * one_over_H[order == a].item()
    return joint


# Trees ------------------------------------------------------------------------------------------------------

class Tree(Rule, lossless=True):
    """A rejected child is taken out of p, and q becomes the residual, so the test of the next child divides
    by the distribution that this child was drawn from."""
    grow = None
    draw, select = map(staticmethod, SEQUOIA)
    walk = staticmethod(tree.walk)
    shapes = {1: [-1, -1], 2: [-1, -1, 0, 0], 3: [-1, -1, -1]}  # K -> the parent of each node

    def __call__(self, draft, target, tokens, n_tokens, K, rng, **settings):
        shape = self.shapes.get(K) or [-1, *range(K - 1)]
        return tree.tree_sampling(draft, target, tokens, n_tokens, shape, rng, grow=self.grow,
                                  rule=(self.draw, self.select), walk=self.walk, **settings)


class TreeMatch(Tree, lossless=True):
    """The target draws once at each node, and the child that equals this draw is accepted, so the text
    consists of the target's own draws."""
    grow = staticmethod(grow_likeliest)


class TopTokens(Tree, lossless=True):
    """The children are chosen, so each is a point mass. A child x is accepted with probability q(x);
    otherwise x is taken out of q, and q is normalized for the next child."""
    def draw(self, p, width, rng):
        return [token for token in top_tokens(p, width) if p[token] > 0]

    def select(self, q, p, tokens, rng):
        for i, token in enumerate(tokens):
            if rng.random() < q[token]:                         # p is 1
                return i, token
            q = normalize(np.where(np.arange(len(q)) == token, 0, q))
        return None, sample(q, rng)


class TopTokensPairedByPlace(TopTokens):
    """Two mistakes. The top candidates are proposed every time, but the test divides by their softmax as if
    they were drawn from it. After top-k, p and q are lists of different tokens, but p is subtracted from q
    index by index."""
    def select(self, q, p, tokens, rng):
        for i, token in enumerate(tokens):
            if rng.random() * p[token] < q[token]:
                return i, token
            left = q.copy()
            for place, other in zip(np.flatnonzero(q), p[p > 0]):
                left[place] = max(q[place] - other, 0)
            q = normalize(left) if left.any() else q
        return None, sample(q, rng)


class TopTokensByRatio(TopTokens):
    """The top candidates are proposed every time, but each is tested by q / p as if it were drawn from p, and
    neither is updated. If all are rejected, the residual of the first test follows."""
    def select(self, q, p, tokens, rng):
        passed = [i for i, token in enumerate(tokens) if rng.random() * p[token] < q[token]]
        if passed:
            return passed[0], tokens[passed[0]]
        return None, Algorithm2().correction(q, p, None, rng)


class OneCoin(TopTokens, lossless=True):
    """One coin is compared with the running sum of the children's q. This is a draw from q by its cumulative
    sum, with the children first. If no child is accepted, a new number draws from the rest of q."""
    def select(self, q, p, tokens, rng, again=False):
        coin, passed = rng.random(), 0.0
        for i, token in enumerate(tokens):
            passed += q[token]
            if coin < passed:
                return i, token
        rest = np.where(np.isin(np.arange(len(q)), tokens), 0, q)
        last = SimpleNamespace(random=lambda: coin) if again else rng
        return None, sample(rest if rest.any() else q, last)


class OneCoinToTheEnd(OneCoin):
    """The coin that rejected the children, and is therefore large, also draws the last token, so tokens at
    the end of the vocabulary come too often."""
    def select(self, *run):
        return super().select(*run, again=True)


class LeftoverAfterTheLeaf(Tree):
    """If a sibling was rejected before the last node of the path was accepted, the next token is drawn from
    the residual after this rejection, not from the target's distribution after the path."""
    def walk(self, q, p, nodes, parents, rule, rng):
        path, token = tree.walk(q, p, nodes, parents, rule, rng)
        leaf = path[-1] if path and path[-1] not in parents else -1
        rejected = [i for i in range(leaf) if parents[i] == parents[leaf]]
        if rejected:
            left, p_left = q[parents[leaf] + 1], p[leaf]
            for i in rejected:
                left = normalize(np.maximum(left - p_left, 0))
                p_left = normalize(np.where(np.arange(len(left)) == nodes[i], 0, p_left))
            token = sample(left, rng)
        return path, token


RULES = {name: rule for name, rule in [*vars().items()]
         if isinstance(rule, type) and issubclass(rule, Rule) and rule is not Rule}
