"""Trees of drafts: which nodes they have, and that a pass over a tree gives the logits of its paths.

The distribution of their texts is in test_methods_lossless.py, greedy texts in test_table.py."""
import numpy as np
import pytest
from helpers import counted, tiny_gpt2, without_cache

from engine.reporting.stats import accepted_path
from lossless.judge import text_of
from lossless.toys import memoryless, scripted, table
from methods.samplers import tree_model
from methods.samplers.tree import shape_of, tree_sampling
from methods.samplers.tree_model import depths, with_tree
from methods.samplers.tree_rules import SEQUOIA, SPECINFER, grow_drawn, grow_likeliest, grow_surest
from utils import load_model

PROMPT = [1, 2]


def run(draft, target, n_tokens, widths, seed=0, prompt=PROMPT, **settings):
    rng = np.random.default_rng(seed)
    return list(tree_sampling(draft, target, prompt, n_tokens, widths, rng, **settings))


# Which nodes grow, and how many are accepted ----------------------------------------------------------------
def test_the_nodes_that_stay_are_those_that_the_draft_thinks_likeliest():
    """After any prefix the draft has .6, .3 and .1; a node has two children.  So the paths have .6, .36, .3,
    .18 and .18, and .216 on level 3."""
    draft = with_tree(memoryless([.1, .6, .3]))
    for shape, nodes, parents in [
            ([-1, -1], [1, 2], [-1, -1]), ([-1, -1, 0], [1, 2, 1], [-1, -1, 0]),
            ([-1, -1, 0, 0], [1, 2, 1, 2], [-1, -1, 0, 0]), ([-1, -1, 0, 2], [1, 2, 1, 1], [-1, -1, 0, 2])]:
        assert grow_surest(draft, [0], shape, None, None, None) == (nodes, parents, None)


# The pass over a tree ---------------------------------------------------------------------------------------

def random_tree(rng, n, n_vocab=13):
    parents = [int(rng.integers(-1, i)) if i else -1 for i in range(n)]
    return rng.integers(n_vocab, size=n).tolist(), parents


def paths_of(tokens, nodes, parents):
    texts = [tokens]
    for token, parent in zip(nodes, parents):
        texts.append([*texts[parent + 1], token])
    return texts


def test_logits_of_a_tree_are_those_of_its_paths_whatever_was_asked_before():
    """The texts follow a path or go elsewhere, and a tree is run in two passes.  In between come another tree
    of the same nodes, another text, and the model without a tree."""
    def same(rows, *texts):
        assert np.allclose(rows, np.stack([plain(text)[0] for text in texts]), atol=1e-12)
    plain, model = without_cache(tiny_gpt2(dtype=np.float64)), with_tree(tiny_gpt2(dtype=np.float64))
    rng, tokens = np.random.default_rng(0), [1]
    for _ in range(24):
        nodes, parents = random_tree(rng, int(rng.integers(0, 9)))
        texts = paths_of(tokens, nodes, parents)
        first, n_last = rng.integers(len(nodes) + 1), int(rng.integers(1, len(texts) + 1))
        same(model.tree(tokens, nodes[:first], parents[:first]), *texts[:first + 1])
        same(model.tree(tokens, nodes, parents, n_last), *texts[-n_last:])
        same(model.tree(tokens, nodes, list(range(-1, len(nodes) - 1)), 1), tokens + nodes)
        other = [*tokens[:-1], (tokens[-1] + 1) % 13]
        same(model.tree(other, nodes, parents, 1), other + texts[-1][len(tokens):])
        same(model(other), other)
        tokens = texts[rng.integers(len(texts))] + rng.integers(13, size=rng.integers(0, 3)).tolist()
        tokens = tokens[:rng.integers(1, 60)]


def test_a_level_of_the_draft_and_a_tree_of_the_target_are_one_pass_each():
    draft, target = (counted(with_tree(tiny_gpt2(seed))) for seed in (0, 1))
    rounds, rows = run(draft, target, 20, (3, 2, 1)), draft.rows
    assert rounds[0].parents == shape_of((3, 2, 1)) and rows[:3] == [2, 3, 6]
    after = [rows[i:i + 3] for i in range(3, 3 * (len(rows) // 3), 3)]
    assert after and all(1 <= first <= 2 and rest == [3, 6] for first, *rest in after[:4])
    assert len(target.rows) == len(rounds)


def test_a_tree_that_is_larger_than_the_context_sees_what_was_cached_before():
    tokens, model = [1, 2, 3, 4, 5], with_tree(tiny_gpt2(n_ctx=20))
    model(tokens)
    nodes = [i % 13 for i in range(150)]
    expected = [tiny_gpt2(n_ctx=20)([*tokens, 6, node])[0] for node in nodes[:13]]
    assert np.allclose(model.tree([*tokens, 6], nodes, [-1] * 150)[1:14], expected, atol=1e-5)


# Bits -------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def demo():
    target = load_model("demo-target")[0]
    if not with_tree(target).exact_paths:
        pytest.skip("this machine's kernels do not add in order, so gaps between keys change the last bits")
    return target


@pytest.mark.parametrize("n", [63, 126, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 300, 480))])
def test_a_path_has_the_bits_of_single_steps_also_after_it_was_moved(demo, n):
    model, rng = with_tree(demo), np.random.default_rng(n)
    tokens = rng.integers(4096, size=n).tolist()
    for _ in range(2):
        nodes, parents = random_tree(rng, 12, 4096)
        texts, rows = paths_of(tokens, nodes, parents), model.tree(tokens, nodes, parents)
        assert all(demo(text)[0].tobytes() == row.tobytes() for text, row in zip(texts, rows))
        tokens = [*max(texts, key=len), 7]


def test_whether_paths_keep_their_bits_is_tried(monkeypatch):
    """`keeps_paths` tries products: here a stand-in whose sums depend on gaps, then one whose sums do not."""
    tree_model.keeps_paths.cache_clear()
    monkeypatch.setattr(tree_model, "row_products", lambda a, b: a.astype(np.float32).sum(-1, keepdims=True))
    assert not tree_model.keeps_paths(64)
    tree_model.keeps_paths.cache_clear()
    monkeypatch.setattr(tree_model, "row_products", lambda a, b: a[..., :1] * 0)
    assert tree_model.keeps_paths(64) and not tree_model.keeps_paths(65)
    tree_model.keeps_paths.cache_clear()


# Counts, context, EOS ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("n_tokens", [0, 1, 2, 3, 4, 5, 20])
def test_exactly_n_tokens_come_and_the_tree_shrinks_before_the_end(n_tokens):
    for seed in range(3):
        rounds, left = run(table(1), table(2), n_tokens, (2, 2, 1), seed), n_tokens
        assert len(text_of(rounds)) == n_tokens
        for r in rounds:
            assert max(depths(r.parents), default=0) == min(3, left - 1) and r.n_accepted < 4
            left -= len(r.tokens)


@pytest.mark.parametrize("temperature", [0, 1])
def test_the_context_can_be_filled(temperature):
    draft, target = tiny_gpt2(0, np.float64, n_ctx=20), tiny_gpt2(1, np.float64, n_ctx=20)
    # more nodes than the context has places
    rounds = run(draft, target, 18, (6, 3, 2), temperature=temperature)
    assert len(text_of(rounds)) == 18 and max(len(r.drafts) for r in rounds) == 60
    with pytest.raises(ValueError, match="context of 20"):
        run(draft, target, 19, (2, 1))


@pytest.mark.parametrize("says, guesses", [
    ([9, 1, 2, 3], [9, 1, 2, 3]), ([1, 9, 2, 3], [1, 9, 2, 3]), ([1, 2, 9, 3], [1, 2, 9, 3]),
    ([9, 1], [5, 1]), ([1, 9, 9], [1, 9, 9])])
def test_eos_is_the_last_token_wherever_it_falls(says, guesses):
    for grow in (grow_drawn, grow_likeliest):
        rounds = run(scripted(PROMPT + guesses), scripted(PROMPT + says), 30, (2, 1), eos=9, grow=grow)
        assert list(text_of(rounds)) == says[:says.index(9) + 1]


@pytest.mark.parametrize("rule", [SPECINFER, SEQUOIA], ids=["with", "without"])
def test_a_round_holds_the_tree_and_the_path_is_found_in_it(rule):
    for r in run(table(1, n_vocab=6), table(2, n_vocab=6), 60, (3, 2), rule=rule):
        assert [r.drafts[i] for i in accepted_path(r)] == r.tokens[:r.n_accepted]
        assert len(r.target_probs) == len(r.drafts) + 1 == len(r.parents) + 1 == len(r.draft_probs) + 1


def test_the_callers_lists_stay():
    def spoils(draft, x, shape, *rest):
        x.append(0), shape.append(0)
        return [], [], None
    prompt, widths = list(PROMPT), [-1, -1]
    assert len(text_of(run(table(1), table(2), 9, widths, 0, prompt, grow=spoils))) == 9
    assert prompt == PROMPT and widths == [-1, -1]


# Arguments --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("widths, says", [
    ((3, 0), "at least one child"), ((2, -1), "at least one child"),
    (3, "children per node"), ("3,2", "children per node"), ((2, 1.5), "children per node"),
    ((50, 50), "2550 nodes"), ([-1, 2, 0], "must come before"),
    ([-1, -2], "must come before"), ([-1] * 1001, "1001 nodes")], ids=str)
def test_a_bad_shape_gets_a_clear_sentence_at_the_call(widths, says):
    with pytest.raises(ValueError, match=says) as error:
        tree_sampling(table(1), table(2), PROMPT, 5, widths, np.random.default_rng(0))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("grown, says", [
    (([1, 2], [-1], None), "each node needs one"), (([1], [0], None), "must come before its node"),
    (([1] * 4, [-1, 0, 1, 2], None), "at most 3"), (([7], [-1], [[1, 0, 0]]), "vocabulary"),
    (([1], [-1], [[.5, .5]]), "shapes"), (([1], [-1], [[1, 0, 0]]), "cannot come")], ids=str)
def test_what_grow_may_not_do_gets_a_clear_sentence(grown, says):
    with pytest.raises(ValueError, match=says):
        run(None, tiny_gpt2(n_vocab=3), 4, (2, 1), grow=lambda *_: grown)


@pytest.mark.parametrize("tokens, nodes, parents, says", [
    ([1], [12, 13], [-1, 0], "token id 13 is not in 0 .. 12"),
    ([1], [-1], [-1], "token id -1 is not in"),
    ([], [], [], "0 tokens"), ([1] * 79, [1, 1], [-1, 0], "context of 80")])
def test_what_does_not_fit_into_the_model_is_refused(tokens, nodes, parents, says):
    with pytest.raises(ValueError, match=says):
        with_tree(tiny_gpt2()).tree(tokens, nodes, parents)
