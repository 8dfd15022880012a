"""Suffix decoding: its drafts are what most often followed the last tokens, in all texts."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import integers, lists, sampled_from

from methods.drafters.suffix import Suffix


def drafts(x, k, memory=None):
    return (memory or Suffix()).propose(None, x, k, None, None)[0]


def ends(written, string):
    """Where this string ends, each time."""
    n = len(string)
    return [i + n for i in range(len(written) - n + 1) if written[i:i + n] == string]


def line_by_search(texts, k, depth):
    """The drafts after the last text, from the definition: a search through all texts for each string."""
    x, written, best = texts[-1], [token for text in texts for token in [None, *text]], (0, [])
    for p in range(min(depth - 1, len(x)), 0, -1):
        found, place, worth, score = [], None, 1, 0
        while len(ends(written, x[-p:])) > 1 and len(found) < min(k, 4 * p):
            string = x[-p:] + found
            places = ends(written, string)
            if place is None and (len(places) == 1 or len(string) >= depth):
                place = places[-1]                      # what followed there is drafted, whatever it was
            if place is None:
                after = [token for end in places for token in written[end:end + 1]]
            else:
                after, place = (written + found)[place:place + 1], place + 1
            after = [token for token in after if token is not None]
            token = max(reversed(after), key=after.count, default=None)      # the last of the most frequent
            worth *= after.count(token) / max(1, len(after))
            if worth < .1:
                break
            found, score = [*found, token], score + worth
        best = max(best, (score, found), key=lambda one: one[0])
    return best[1]


@given(lists(lists(integers(0, 2), min_size=2, max_size=14), min_size=1, max_size=3), integers(0, 8),
       sampled_from([2, 3, 4, 32]))
def test_a_line_is_what_a_search_through_all_texts_finds(texts, k, depth):
    memory = Suffix(depth)
    for text in texts:
        for end in range(1, len(text) + 1):
            found = drafts(text[:end], k, memory)
    assert found == line_by_search(texts, k, depth)


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


@pytest.mark.parametrize("size, token, known", [(100, 998, True), (100, 960, True), (100, 890, False),
                                                (1, 998, False)])
def test_its_memory_is_bounded_and_keeps_the_younger_half(size, token, known):
    memory = Suffix(memory=size)
    memory.learn(range(1000))
    assert drafts([token], 1, memory) == [token + 1] * known


def test_of_a_known_text_only_the_newer_half_of_the_memory_is_learnt_and_only_once(monkeypatch):
    memory = Suffix(memory=8, known=[1, 2, 3, 4, 5, 6])
    monkeypatch.setattr(Suffix, "add", None)
    for _ in range(2):
        memory.reset()
        assert memory.text == [3, 4, 5, 6]
    monkeypatch.undo()
    assert drafts([3], 2, memory) == [4, 5]
