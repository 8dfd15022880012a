"""The museum: the judge finds every mistake and passes every rule that is only unusual.  Algorithm2, on which
the rules are built, does what speculative.py does."""

import numpy as np
import pytest

from lossless import report
from lossless.judge import distance
from lossless.toys import table
from lossless.verdicts import CASES, PAIRS, mean_accepted, texts
from lossless.verdicts.museum import RIGHT, RULES, WRONG
from lossless.verdicts.rules import Algorithm2
from speculative import speculative_sampling

FEW = [([pair], Ks, n_tokens) for *pair, n_tokens, Ks in map(
    PAIRS.get, ("five tokens of vocabulary", "a distribution after every prefix"))]
OF_CASES = {case.rule for case in CASES}    # test_verdicts.py judges these


def test_each_rule_says_why():
    assert 60 <= len(RULES) <= 100 and {*WRONG} | {*RIGHT} == {*RULES}
    assert all(len(rule.__doc__.split()) > 2 and rule.__doc__.endswith(".") for rule in RULES.values())


@pytest.mark.parametrize("name", [name for name in WRONG if name not in OF_CASES])
def test_the_judge_finds_every_mistake(name):
    """On one of a few pairs, or on the standard cases."""
    assert not all(report(WRONG[name], *one).lossless for one in [*FEW, ()])


@pytest.mark.parametrize("name", [name for name in RIGHT if name not in OF_CASES])
def test_the_judge_lets_pass_what_is_only_unusual(name):
    assert max(report(RIGHT[name], *one, temperature=1).deviation for one in FEW) < 1e-12


@pytest.mark.long
@pytest.mark.parametrize("name", RIGHT)
def test_on_the_standard_cases_too(name):
    """The judge also passes each unusual rule on all standard cases."""
    assert report(RIGHT[name]).lossless


@pytest.mark.parametrize("settings", [{}, {"temperature": 0}, {"temperature": .7, "top_k": 2}, {"eos": 1},
                                      {"top_p": .6, "eos": [0, 2]}], ids=str)
def test_algorithm2_is_speculative_py_seed_for_seed(settings):
    for K in 1, 2, 4:
        for seed in range(20):
            models = table(seed, zeros=.2), table(seed + 1, zeros=.2)
            ours, theirs = ([*sampler(*models, [2, 0], 9, K, np.random.default_rng(seed), **settings)]
                            for sampler in (Algorithm2(), speculative_sampling))
            assert [r[:3] for r in ours] == [r[:3] for r in theirs] and len(ours) > 0


# By hand: target (.1, .6, .3), draft (.5, .3, .2) -----------------------------------------------------------

Q, P = (.1, .6, .3), (.5, .3, .2)


def first_token(rule, q, p, K=1, **settings):
    """The exact distribution [n_vocab] of the first token, q and p the same at every place."""
    found = texts(rule, q, p, K, settings)
    return [sum(chance for (text, _), chance in found.items() if text[0] == token) for token in range(len(q))]


# 0 was drafted and rejected, so E_1 > .6 E_0 and E_2 > .4 E_0.  Now 1 wins if E_1 < 3 E_2: its chance is the
# integral of 1 / (1 + t + max(t / 3, .4))^2 over t > .6; the maximum is .4 up to t = 1.2.
ONE = 1 / (1 + .6 + .4) - 1 / (1 + 1.2 + .4) + .75 / (1 + 1.2 * 4 / 3)


@pytest.mark.parametrize("rule, first", [
    ("Algorithm2", Q),
    ("ArgmaxSoftmaxRecorded", (.2, .6, .2)),                      # 0 is accepted with .2, else (0, .75, .25)
    ("TargetAfterRejection", (.14, .54, .32)),                    # .6 is accepted, .4 is drawn from q
    ("UniformIsZero", P),
    ("GreedyTarget", (0, 1, 0)),
    ("DrawnAsPointMasses", Q),
    ("AcceptedIfTheArgmax", (.07, .3 + .42, .21)),              # 1 is drafted with .3; or a draw from q
    ("MatchOrRatio", (.28, .48, .24)),                        # 0 equals the draw (.1), or passes (.9 * .2)
    ("TopTokensByRatio", (.2, .8, 0)),                        # 0 passes with .2, else 1 is sure to
    ("NoiseUsedTwice", (.1, .3 + .8 * ONE, .2 + .8 * (.5 - ONE))),
])
def test_the_first_token_by_hand(rule, first):
    assert first_token(rule, Q, P) == pytest.approx(first, abs=1e-12)


def test_how_many_drafts_are_accepted_by_hand():
    rules = "Algorithm2", "Match", "MatchArgmax", "DrawnAsPointMasses", "TopTokens"
    assert [mean_accepted(rule, Q, P, K=1) for rule in rules] == pytest.approx([.6, .29, .1, .29, .7])
    assert mean_accepted("Algorithm2", Q, P, K=2) == pytest.approx(.24 + 2 * .36)


def test_hierarchical_speculative_decoding_is_block_verification():
    """P(text, drafts accepted) is the same, and the last ratio must be capped.  The means are for the example
    of section 2 of Sun et al."""
    rules, example = ("HSD", "Block", "HSDLastUncapped"), ((1 / 3, 2 / 3), (2 / 3, 1 / 3))
    assert [mean_accepted(rule, *example) for rule in rules] == pytest.approx([11 / 9, 11 / 9, 12 / 9])
    for K in 1, 2:
        q, p = np.random.default_rng(K).dirichlet(np.ones(3), 2)
        ours, block, uncapped = (texts(rule, q, p, K, {}) for rule in rules)
        assert distance(ours, block) < 1e-12 and (distance(uncapped, block) > .001 or K == 1)


def test_a_length_that_is_chosen_after_all_drafts_were_seen(monkeypatch):
    """DSpark, appendix A: a_1 = .8; c_2 is .9 after token 0, and 0 after token 1.  Passes of 1, 2 and 3 rows:
    1, .5 and .45 a second."""
    def appendix(rule):
        class Appendix(RULES[rule]):
            seconds, before = (1, 1 / .5, 1 / .45), None

            def confidence(self, p, x):
                before, self.before = self.before, x        # the draft before x
                return .8 if before is None else .9 * (before == 0)
        monkeypatch.setitem(RULES, "Appendix", Appendix)
        return first_token("Appendix", (.7, .3), (.5, .5), K=2)
    assert appendix("LengthFromAllDrafts") == pytest.approx([.85, .15])
    assert appendix("LengthByEarlyStop") == pytest.approx([.7, .3])


def test_a_draft_that_the_target_rules_out_is_accepted_once_in_2_to_the_24():
    assert first_token("CoinUpTo", (0, 1), (.5, .5))[0] == pytest.approx(.5 / 2**24)


def test_products_of_coins_are_what_a_grid_of_coins_gives():
    """The draft is 0 three times, and q(0) = .6."""
    coins = (np.arange(120) + .5) / 120
    first, second = coins[:, None, None], coins[:, None] * coins[:, None, None]
    one, two, three = first <= .6, second <= .6**2, second * coins <= .6**3
    n_accepted = np.where(three, 3, np.where(two, 2, one))                  # [120, 120, 120]
    assert mean_accepted("ProductsOfCoins", K=3) == pytest.approx(n_accepted.mean(), abs=.005)
