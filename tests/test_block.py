"""Block verification accepts at least as many drafts as Algorithm 2 on average."""
import numpy as np
import pytest
from helpers import PAIRS, mean_accepted

from methods.samplers import block
from speculative import speculative_sampling, verify


@pytest.mark.parametrize("draft, target", PAIRS.values(), ids=PAIRS)
def test_a_block_accepts_at_least_as_many_drafts_on_every_pair(draft, target):
    for K in (1, 2, 3):
        single, together = (mean_accepted(lambda rng: speculative_sampling(
            draft, target, [0, 0], K + 1, K, rng, verify=rule)) for rule in (verify, block.verify))
        assert together >= single - 1e-12
        if K == 1:                                                      # for one draft both are the same rule
            assert together == pytest.approx(single, abs=1e-12)


def test_extreme_probabilities_raise_no_warning():
    q, p = np.array([[.5, .5], [1, 0], [0, 1]]), np.array([[5e-324, 1], [1, 0]])
    with np.errstate(all="raise"):
        assert block.verify(q, p, [0, 0], np.random.default_rng(0)) == (2, 1)
        assert block.verify(q[:1], [], [], np.random.default_rng(0))[0] == 0
