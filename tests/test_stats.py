"""Statistics of a run: Leviathan's formulas, and which children of a tree's nodes are accepted."""

import pytest

from reporting.stats import expected_tokens, predicted_speedup, rate_by_rank
from sampling import Round


@pytest.mark.parametrize("alpha, K, speed", [
    (.6, 2, 1.96), (.7, 3, 2.53), (.8, 2, 2.44), (.8, 5, 3.69), (.9, 2, 2.71), (.9, 10, 6.86)])
def test_table_1_of_leviathan(alpha, K, speed):
    assert round(predicted_speedup(alpha, K, c=0), 2) == speed


@pytest.mark.parametrize("alpha, c, K, speed", [
    (.5, .01, 5, 1.88), (.9, .01, 24, 7.49), (.7, .05, 6, 2.35), (.8, .1, 6, 2.47), (.9, .2, 7, 2.37),
    (.5, .4, 1, 1.07)])
def test_the_best_k_is_the_first_that_one_more_draft_does_not_help(alpha, c, K, speed):
    assert max(range(40), key=lambda k: predicted_speedup(alpha, k, c)) == K
    assert round(predicted_speedup(alpha, K, c), 2) == speed

    def helps(k):  # from K = k to k + 1
        return alpha ** (k + 1) * (1 + c * k) > c * expected_tokens(alpha, k) * (1 + 1e-12)

    assert all(helps(k) for k in range(K)) and not helps(K)


def test_children_are_counted_by_rank_over_the_nodes_that_were_reached():
    parents = [-1, -1, 0, 0, 2]
    taken_second = Round([5, 9], [4, 5, 6, 7, 8], 1, [], [], parents)    # stops at a leaf: no test there
    all_the_way = Round([4, 6, 8, 1], [4, 5, 6, 7, 8], 3, [], [], parents)
    ended = Round([4], [4, 5, 6, 7, 8], 1, [], [], parents)        # EOS: no test below
    assert rate_by_rank([taken_second, all_the_way, ended]) == [4 / 5, 1 / 4]
