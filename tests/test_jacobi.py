"""Jacobi decoding with a pool of n-grams: the drafts are the target's answers in earlier passes."""

import numpy as np

from lossless.toys import as_model
from methods.drafters.jacobi import Jacobi
from speculative import speculative_sampling


def counting(n_vocab=50):
    """A target that counts: each token is followed by the next number, whatever came before."""
    return as_model(lambda x: -abs(np.arange(n_vocab) - ((x[-1] if x else -1) + 1) % n_vocab))


def drafts_of(target, x, n_tokens, K):
    found = Jacobi(target)
    rounds = speculative_sampling(None, found, x, n_tokens, K, np.random.default_rng(0), temperature=0,
                                  propose=found.propose)
    return [r.drafts for r in rounds]


def test_the_answers_to_rejected_drafts_are_the_next_drafts(monkeypatch):
    """Without the pool, on a target that counts.  After each of the 7s it says 8, so 8 8 8 is drafted, though
    only the first 8 is right.  This is the Jacobi iteration: each round gets one more place right."""
    monkeypatch.setattr(Jacobi, "learn", lambda self: None)
    assert drafts_of(counting(), [7], 7, 3)[:4] == [[7, 7, 7], [8, 8, 8], [9, 9, 9], [10, 10, 10]]


def test_the_pool_holds_what_the_target_said_after_each_token():
    found = Jacobi(counting())
    found([1, 7, 7, 3], 3)                              # its answers after 1 7, 1 7 7 and 1 7 7 3
    # 8 was not asked about: the two answers at these places, then 4 once more
    assert found.propose(None, [1, 7, 8], 3, None, None) == ([8, 4, 4], None)
    assert found.pool == {(7,): 8, (1, 7): 8, (7, 7): 8, (1, 7, 7): 8, (3,): 4, (7, 3): 4, (7, 7, 3): 4}
    found([20, 3, 4, 4], 2)
    assert found.propose(None, [6, 7], 2, None, None) == ([8, 8], None)             # not this text: no places
    assert found.pool.keys() >= {(3, 4, 4), (20, 3, 4)}
    found([2], 1)
    found.pool = {(7,): 1, (9,): 2, (5, 7): 3}
    assert [found.propose(None, [x, 7], 1, None, None)[0] for x in (5, 6)] == [[3], [1]]   # longest first
    found([7], 1)
    assert found.propose(None, [6, 7], 1, None, None)[0] == [8]         # the latest answer counts


def test_with_the_pool_a_text_that_repeats_is_drafted_right():
    target = counting(n_vocab=4)
    assert drafts_of(target, [3], 40, 3)[-3:-1] == [[0, 1, 2], [0, 1, 2]]
