"""Constraints: what the examples do.  test_methods_lossless.py checks their distribution."""
import numpy as np
import pytest
from helpers import tiny_gpt2

from autoregressive import autoregressive_sampling
from lossless.toys import scripted, table
from methods.samplers.constraints import constrained, forbid, penalty
from speculative import speculative_sampling


def test_each_row_is_that_of_its_own_prefix_and_the_models_logits_stay():
    target, calls = table(2), []

    def process(tokens, logits):
        calls.append(tokens[:])
        tokens.clear()                                          # a process may do this
        logits[:] = len(calls[-1])
        return logits
    tokens, before = [0, 1, 2, 0], target([0, 1, 2, 0], 3)
    assert constrained(target, process)(tokens, 3)[:, 0].tolist() == [2, 3, 4]
    assert calls == [[0, 1], [0, 1, 2], [0, 1, 2, 0]] and tokens == [0, 1, 2, 0]
    assert (target(tokens, 3) == before).all()


def test_a_constrained_model_says_its_sizes_and_forgets_like_the_model():
    plain = tiny_gpt2()
    model = constrained(plain, penalty(2))
    with pytest.raises(ValueError, match="context of 80"):
        autoregressive_sampling(model, [1], 80, np.random.default_rng(0))
    with pytest.raises(ValueError, match="5 and 13"):
        speculative_sampling(tiny_gpt2(n_vocab=5), model, [1], 9, 2, np.random.default_rng(0))
    model([1, 2, 3])
    assert plain.past == [1, 2, 3]
    model.reset()
    assert plain.past == []
    assert not hasattr(constrained(table(1), penalty(2)), "n_ctx")


def test_a_constraint_that_leaves_nothing_gets_one_sentence():
    model = constrained(scripted([1, 2]), forbid([2]))
    with pytest.raises(ValueError, match=r"forbids every token after \[1\]: leave at least one"):
        model([1])
