"""The game: what is shown is the case's rule, and the verdicts are the judge's."""
import numpy as np
import pytest

import lossless
from lossless.toys import memoryless
from lossless.verdicts import CASES
from lossless.verdicts.museum import RULES, sampler
from pages.game import P, Q, game

NAMES = {case.thread: case for case in CASES}


def test_ten_rules_some_of_them_lossless():
    rules = game()["rules"]
    assert len(rules) == 10 and 3 <= sum(rule["lossless"] for rule in rules) <= 7
    assert all(3 <= len(rule["code"].splitlines()) <= 6 for rule in rules)


@pytest.mark.parametrize("i", range(10))
def test_what_is_shown_has_the_law_of_the_rule_that_is_judged(i):
    rule = game()["rules"][i]
    cls = RULES[NAMES[rule["thread"]].rule]
    texts = lossless.exact_distribution(lambda rng: tuple(token for r in sampler(cls)(
        memoryless(P), memoryless(Q), [0, 0], 2, 1, rng) for token in r.tokens))
    law = [sum(chance for text, chance in texts.items() if text[0] == token) for token in range(len(Q))]
    assert law == pytest.approx(rule["law"], abs=1e-12)
    off = lossless.check(sampler(cls), [(memoryless(P), memoryless(Q))], Ks=(1,), n_tokens=2, temperature=1.0)
    assert rule["lossless"] == (off < 1e-9) == np.allclose(law, Q, rtol=0, atol=1e-12)
    assert rule["lossless"] == (NAMES[rule["thread"]].verdict == "lossless") == (rule["text"] is None)
    if rule["text"]:                                    # the clearest wrong text, of two independent tokens
        assert rule["wanted"] == pytest.approx(np.prod(Q[rule["text"]]))
        assert texts[tuple(rule["text"])] == pytest.approx(rule["probability"]) != rule["wanted"]
