"""The comparison of two runs: its numbers, worked out by hand with made-up clocks, and its sentences."""
import math
from types import SimpleNamespace

import pytest

import speculative
from methods import choose
from reporting import comparison
from reporting.comparison import Run, compared, speedup, summary, without_effect
from sampling import Round

ENCODER = SimpleNamespace(eos=9, decode=lambda tokens: "".join(map(str, tokens)))


def clock(calls):
    """A model or drafter with made-up timings: {rows or drafts: seconds}."""
    return SimpleNamespace(seconds=dict(calls).get, exact_rows=4, exact_paths=True)


def line(*made):
    """One round for each (drafts, accepted); every round has one token more than it accepted."""
    return [Round([0] * (n + 1), [0] * k, n, None, None) for k, n in made]


def figures(rounds, draft, target, propose, K, n_tokens, typed=("model", "token"), grow=None):
    alone = Run(line(*[(0, 0)] * n_tokens), [0.01] * n_tokens, None, clock({1: 0.010}))
    spec = Run(rounds, [0.02] * len(rounds), draft and clock(draft), clock(target))
    drafter = clock(propose)
    drafter.propose = speculative.propose if draft else None
    pair = SimpleNamespace(propose=drafter, grow=grow and clock(grow), target=clock({}))
    return compared(alone, spec, pair, choose(*typed), n_tokens, K, ENCODER, [speedup(alone, spec)])


def test_rounds_of_k_drafts_are_predicted_by_theorem_3_8():
    """Three rounds of 2 drafts, then one for the last token alone: 5 of the 6 tested drafts are accepted."""
    r = figures(line((2, 2), (2, 1), (2, 2), (0, 0)), {1: 0.001}, {1: 0.010, 3: 0.013}, {}, 2, 9)
    alpha = 5 / 6
    assert r["predicted_speedup"] == pytest.approx((1 + alpha + alpha**2) / (2 * 0.1 + 1.3))
    assert (r["cost_ratio"], r["verify_ratio"]) == (pytest.approx(0.1), pytest.approx(1.3))
    assert r["speedup"] == pytest.approx((9 / 0.08) / (9 / 0.09)) and r["lossless"] is True
    assert (r["speculative"]["accepted"], r["speculative"]["tested"], r["speculative"]["rounds"]) == (5, 6, 4)
    assert r["same_text"] and r["same_bits"]


def test_rounds_of_any_length_are_predicted_by_what_they_cost():
    """Four rounds with 0, 2, 2 and 1 drafts, 8 tokens.  A step takes 10 ms, each further row 1 ms, a draft
    2 ms."""
    rounds = line((0, 0), (2, 2), (2, 1), (1, 1))
    r = figures(rounds, None, {1: 0.010, 2: 0.011, 3: 0.012}, {1: 0.002}, 2, 8, ("lookup", "token"))
    assert r["predicted_speedup"] == pytest.approx(8 / (1.0 + 2 * (0.4 + 1.2) + (0.2 + 1.1)))
    assert (r["cost_ratio"], r["verify_ratio"]) == (pytest.approx(0.2), pytest.approx(1.2))


def test_a_tree_costs_its_levels_and_one_pass():
    """Shape (2, 1): the draft makes one pass for each level, over 1 row and over 2.  The target's pass has
    5 rows."""
    rounds = [Round([0, 0, 0], [0, 1, 0, 1], 2, None, None, [-1, -1, 0, 1])]
    typed = ("model", "tree:2,1")
    r = figures(rounds, {1: 0.002, 2: 0.004}, {5: 0.015}, {}, 2, 3, typed)
    assert r["cost_ratio"] == pytest.approx(0.3) and r["verify_ratio"] == pytest.approx(1.5)
    assert r["predicted_speedup"] == pytest.approx(3 / (2 * 0.3 + 1.5)) and not r["same_bits"]  # 5 > 4
    own = figures(rounds, None, {5: 0.015}, {}, 2, 3, ("medusa", "tree:2,1"), grow={4: 0.001})
    assert own["cost_ratio"] == pytest.approx(0.05)


def test_what_was_not_measured_is_none_and_no_sentence_prints_it():
    """All rounds are shorter than K, so no pass had K + 1 rows and theorem 3.8 does not apply."""
    r = figures(line((1, 1), (1, 0)), None, {2: 0.011}, {1: 0.002}, 6, 3, ("medusa", "token"))
    assert r["verify_ratio"] is None and r["predicted_speedup"] == pytest.approx(1.5 / (0.2 + 1.1))
    said = " ".join(summary(r | dict(K=6, temperature=1, drafter="medusa", verifier="token")))
    assert "None" not in said and "c = 0.20)" in said and "(1 of 2 tested)" in said


def sentences(**changes):
    r = figures(line((2, 2), (2, 1), (2, 2), (0, 0)), {1: 0.001}, {1: 0.010, 3: 0.013}, {}, 2, 9)
    return " ".join(summary(r | dict(K=2, temperature=0, drafter="model", verifier="token") | changes))


def test_what_is_said_of_the_texts_depends_on_what_was_promised():
    assert "as they always are" in sentences()
    assert "at a near-tie they may differ, because a pass over these 3 rows can" in sentences(same_bits=False)
    assert "report it" in sentences(same_text=False)
    assert "can happen" in sentences(same_text=False, same_bits=False)
    assert "Different texts are expected" in sentences(temperature=1, same_text=False)
    lossy = sentences(temperature=1, same_text=False, lossless=False, verifier="lenient:0.5")
    assert "lossy" in lossy and "lenient:0.5" in lossy and "the same" not in lossy
    assert "python -m lossless my.py" in sentences(lossless=None, verifier="my.py")


def test_flags_without_effect_are_named():
    given = dict(top_k=3, seed=1, show_rounds=1, K=2, draft_model_size="", prompt="", json=True, fast=True)
    models = SimpleNamespace(draft_is_used=False, target=SimpleNamespace(exact_rows=math.inf))
    told = list(without_effect(given, choose("medusa", "tree"), models))
    assert [sentence.split()[0] for sentence in told] == [
        "--seed", "--top_k", "--show_rounds", "--K", "--fast", "--draft_model_size"]
    models = SimpleNamespace(draft_is_used=True, target=SimpleNamespace(exact_rows=16))
    given |= dict(temperature=1.0)
    del given["json"]
    assert not list(without_effect(given, choose("model", "token"), models))


def test_short_runs_are_repeated_and_the_median_is_printed(monkeypatch):
    """Only the pairs of runs advance this clock, .24 s each, so four pairs fit into a second."""
    now, runs = [10.0], iter([1.5, 2.5, 1.0, 9.9])
    monkeypatch.setattr(comparison, "clock", lambda: now[0])
    monkeypatch.setattr(comparison, "REPEAT", 1)

    def timed(tokens_per_second):
        return Run(line((0, 0)), [1 / tokens_per_second], None, None)

    def again():
        now[0] += .24
        return timed(1), timed(next(runs))
    began, now[0] = now[0], now[0] + .24
    found = comparison.further(again, timed(1), timed(2), began)
    assert found == pytest.approx([2, 1.5, 2.5, 1.0])
    said = sentences(speedups=found, speedup=1.75)
    assert "Speed-up 1.75x (median of 4 pairs, 1.00 to 2.50; predicted" in said
    assert comparison.further(again, timed(1), timed(2), now[0] - 60) == [2]         # a long run stands alone
