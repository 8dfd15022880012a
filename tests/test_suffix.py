"""Suffix decoding: it counts what followed each suffix of the text, and drafts from these counts."""
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import integers, lists

from methods.drafters.suffix import Suffix


def test_the_score_of_a_tree_is_the_number_of_its_nodes_that_are_expected():
    """After 7, 8 came 9 twice and 1 once."""
    memory = Suffix()
    memory.learn([7, 8, 9, 7, 8, 1, 7, 8, 9, 7, 8])
    assert memory.tree(memory.open[2], 3, 1, 2) == (pytest.approx(2 / 3 + 1 / 3), [9, 1], [-1, -1])
    assert memory.tree(memory.open[2], 3, 3, 1) == (pytest.approx(3 * 2 / 3), [9, 7, 8], [-1, 0, 1])


def drafts(x, k, memory=None):
    return (memory or Suffix()).propose(None, x, k, None, None)[0]


texts = lists(lists(integers(0, 2), max_size=14), min_size=1, max_size=3)


@given(texts)
def test_what_followed_each_suffix_is_counted_right_however_the_text_came(found):
    """Checked by a search through all texts."""
    memory, depth = Suffix(depth=4), 4
    for text in found:
        for end in range(len(text) + 1):
            memory.learn(text[:end])
    last, done = found[-1], [text for text in found if text]
    assert len(memory.open) <= depth
    for p in range(1, depth):
        suffix = last[len(last) - p:] if p <= len(last) else None
        expected = Counter(text[i + p] for text in done for i in range(len(text) - p)
                           if text[i:i + p] == suffix)
        n_stood = sum(text[i:i + p] == suffix for text in done for i in range(len(text) - p + 1))
        known = p < len(memory.open)
        assert known == (suffix is not None and n_stood > 1)
        if known:
            assert memory.open[p].count == n_stood
            assert {token: node.count for token, node in memory.open[p].after.items()} == expected


@pytest.mark.parametrize("x, k, expected", [
    ([7, 8, 9, 1, 7, 8], 3, [9, 1, 7]),
    ([1, 2, 3], 4, []), ([1], 4, []), ([1, 1], 0, []),
    ([7, 7], 3, [7, 7, 7]),                                             # copies its own drafts too
    ([1, 2, 5, 1, 2, 5, 1, 2, 6, 1, 2], 2, [5, 1]),                     # the most frequent, not the last
    ([1, 2, 5, 1, 2, 6, 1, 2], 2, [6, 1]),                              # the last of equal ones
    ([3, 1, 2, 5, 4, 1, 2, 6, 4, 1, 2, 6, 3, 1, 2], 1, [5])])           # a longer match counts more
def test_a_line_of_drafts(x, k, expected):
    assert drafts(x, k) == expected


def test_how_far_it_drafts_follows_from_the_length_of_the_match():
    text = [*range(100, 140)]
    assert [len(drafts([*text, 5, *text[:p]], 30)) for p in (1, 2, 5, 9)] == [4, 8, 20, 30]


def test_the_tree_holds_what_is_worth_most():
    x = [1, 2, 3, 1, 2, 4, 1, 2, 3, 5, 1, 2]                            # after 1, 2: 3 twice, 4 once
    found = Suffix().grow(None, x, [-1, -1, 0, 0, 1, 1], None, None, None)
    assert found == ([3, 4, 1, 5, 1], [-1, -1, 0, 0, 1], None)          # worth 2/3, 1/3, 1/3, ..
    assert Suffix().grow(None, x, [-1] * 9, None, None, None) == ([3, 4], [-1, -1], None)       # one level


def test_other_texts_are_remembered_and_do_not_run_into_each_other():
    memory = Suffix()
    memory.learn([1, 2, 3])
    assert drafts([5, 1], 3, memory) == [2, 3]                          # not 5, of the next text
    assert drafts([9, 5], 3, memory) == [1]
    assert drafts([9, 5, 1], 3, memory) == [2, 3]
    memory.learn(np.array([6, 4, 3]))
    assert drafts([6], 3, memory) == [4, 3]
    for nonsense in "text", [1.5], None, [[1]]:
        with pytest.raises(ValueError, match="list of token ids"):
            memory.learn(nonsense)


def test_a_shorter_match_is_taken_if_it_promises_more():
    memory = Suffix()
    memory.learn([1, 2, 3])
    memory.learn([9, 2, 3, 4, 5, 6])
    assert drafts([8, 1, 2], 4, memory) == [3, 4, 5, 6]                 # after 1, 2 came only one token


def test_its_memory_is_bounded_and_keeps_the_younger_half():
    memory, rng = Suffix(depth=8, memory=100), np.random.default_rng(0)
    x = []
    for _ in range(1000):
        x.append(int(rng.integers(50)))
        memory.learn(x)
        assert len(memory.text) < 100
    assert x[-50:] == memory.text[-50:] and memory.x == x
    assert drafts([*x[-20:-10]], 3, memory) == x[-10:-7]
    assert drafts([1, 2, 1, 2, 1], 3, Suffix(memory=1)) == []
