"""Traversal: lossless, exactly; on a line it is block verification; what it accepts beside the other walk."""
import numpy as np
import pytest
from helpers import mutant, named, tiny_gpt2

from autoregressive import autoregressive_sampling
from lossless import PAIRS, check, distance, distribution_of_text, exact_distribution, pair, table, text_of
from samplers import block, traversal, tree
from samplers.multi_draft import GREEDY
from samplers.tree import tree_sampling
from samplers.tree_rules import SEQUOIA, SPECINFER, likeliest, surest
from verdicts.museum import tree_of

UNEVEN = [-1, -1, 0, 0, 2]


def with_shape(widths, walk=traversal.walk, **keywords):
    """As lossless.check calls a sampler; the K of the cases is put aside."""
    return lambda draft, target, tokens, n, K, rng, **settings: tree_sampling(
        draft, target, tokens, n, widths, rng, walk=walk, **settings, **keywords)


@pytest.mark.parametrize("widths, n_tokens, keywords", [
    ((2,), 2, {}), ((2,), 2, dict(rule=SPECINFER)), ((2, 1), 3, dict(grow=likeliest)),
    (UNEVEN, 3, dict(grow=surest))], ids=named)
def test_the_text_has_the_targets_distribution(widths, n_tokens, keywords):
    assert check(with_shape(widths, **keywords), Ks=[1], n_tokens=n_tokens) < 1e-12


@pytest.mark.parametrize("widths", [(2, 1), UNEVEN], ids=named)
@pytest.mark.parametrize("rule", [SPECINFER, SEQUOIA], ids=["with", "without"])
def test_deeper_trees_keep_the_distribution(rule, widths):
    pairs = [PAIRS["zeros in both"], PAIRS["target is certain"]]
    assert check(with_shape(widths, rule=rule), pairs, [1], 3, temperature=1) < 1e-12


def test_three_children_of_five_tokens_keep_the_distribution():
    assert check(with_shape((3,)), [pair("ff")], [1], 2, temperature=1) < 1e-12


@pytest.mark.long
def test_the_standard_cases_keep_the_distribution():
    assert check(tree_of(walk=traversal.walk)) < 1e-12


@pytest.mark.long
@pytest.mark.parametrize("widths", [(3,), (2, 1), (1, 2), (1, 1, 1), (2, 2), UNEVEN], ids=named)
@pytest.mark.parametrize("rule", [SPECINFER, SEQUOIA], ids=["with", "without"])
def test_six_shapes_keep_the_distribution_on_every_pair(rule, widths):
    assert check(with_shape(widths, rule=rule), None, [1], 3, temperature=1) < 1e-12


def random_rows(rng, n, zeros):
    rows = rng.dirichlet(np.ones(4), size=n) * (rng.random((n, 4)) >= zeros)
    rows[rows.sum(axis=1) == 0, 0] = 1
    return rows / rows.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("zeros", [0, .4])
@pytest.mark.parametrize("K", [1, 2, 3, 4])
def test_on_a_line_it_is_block_verification(K, zeros):
    """For given drafts: how many are kept, and what follows, with the same probabilities."""
    rng = np.random.default_rng(K)
    for _ in range(10):
        q, p = random_rows(rng, K + 1, zeros), random_rows(rng, K, zeros)
        drafts = [int(rng.choice(4, p=row)) for row in p]

        def by_traversal(walk):
            path, token = traversal.walk(q, p, drafts, list(range(-1, K - 1)), SEQUOIA, walk)
            return len(path), token
        blocks = exact_distribution(lambda walk: block.verify(q, p, drafts, walk))
        assert distance(exact_distribution(by_traversal), blocks) < 1e-12


def mean_accepted(walk, draft, target, widths, rule):
    found = exact_distribution(lambda rng: next(tree_sampling(
        draft, target, [2, 0], 3, widths, rng, walk=walk, rule=rule)).n_accepted)
    return sum(n * chance for n, chance in found.items())


def gains(widths, rule, seeds=(1, 3, 5)):
    """For some pairs: drafts accepted in the first round, more than by the walk from the root down."""
    return [mean_accepted(traversal.walk, table(seed), table(seed + 1), widths, rule)
            - mean_accepted(tree.walk, table(seed), table(seed + 1), widths, rule) for seed in seeds]


@pytest.mark.parametrize("widths", [(1, 1), [-1, -1, 0]], ids=named)
def test_without_replacement_it_accepts_no_fewer_drafts(widths):
    found = gains(widths, SEQUOIA)
    assert min(found) > -1e-12 and max(found) > .01


def test_with_replacement_it_may_accept_fewer():
    assert gains((2, 1), SPECINFER, seeds=[5])[0] < -.01


def test_greedy_text_is_the_baselines():
    target, draft = tiny_gpt2(1, np.float64), tiny_gpt2(1, np.float64, n_layer=1)
    alone = text_of(autoregressive_sampling(target, [1, 2], 40, np.random.default_rng(0), temperature=0))
    for keywords in {}, dict(grow=tree.drawn):
        sampler = with_shape((3, 2, 1), **keywords)
        rounds = list(sampler(draft, target, [1, 2], 40, 0, np.random.default_rng(0), temperature=0))
        assert text_of(rounds) == alone and len(rounds) < 40


def test_children_that_were_drawn_in_another_way_are_refused():
    with pytest.raises(ValueError, match="take the rule SPECINFER or SEQUOIA"):
        list(with_shape((2,), rule=GREEDY)(table(1), table(2), [0], 3, 0, np.random.default_rng(0)))


WRONG = {
    "a child is visited with a weight of its own": ("min(1, weight * t[x] / d[x])", "min(1, t[x] / d[x])"),
    "the residual forgets the weight": ("weight * t - d", "t - d"),
    "the weight stays after a refusal": ("weight, t = S / (S + (1 - weight)), r / S", "t = r / S"),
    "what was refused is still wanted": ("weight, t = S / (S + (1 - weight)), r / S",
                                         "weight = S / (S + (1 - weight))"),
    "d keeps the token that was refused": ("d = normalized(np.where(np.arange(len(d)) == x, 0, d))", "pass"),
    "after the children the token comes from q": ("[], sample(t, rng)", "[], sample(q[node + 1], rng)"),
    "a refused node is kept": ("rng.random() < weight", "True"),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_a_wrong_version_is_found(change):
    wrong, off = mutant(traversal, change), 0
    for draft, target, n, widths in [(table(7), table(223), 2, (2,)), (table(3), table(4), 3, (1, 1)),
                                     (table(5, n_vocab=5), table(6, n_vocab=5), 2, (3,))]:
        found = exact_distribution(lambda rng: text_of(tree_sampling(
            draft, target, [0], n, widths, rng, walk=wrong.walk)))
        off = max(off, distance(found, distribution_of_text(target, [0], n)))
    assert off > .002
