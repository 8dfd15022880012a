"""Accept rules: how many drafts they accept, and what a drafted token is if a rule is lossy.
test_methods_lossless.py checks that the others are lossless."""
from itertools import product

import numpy as np
import pytest
from helpers import PAIRS, mean_accepted

from lossless import exact_distribution
from lossless.judge import distance
from lossless.toys import memoryless, table
from methods.samplers import block, traversal, tree
from methods.samplers.k_seq import K_SEQ, division_factor
from methods.samplers.lossy import ensemble, ensemble_probs, lenient, lenient_probs, typical, typical_probs
from methods.samplers.multi_draft import GREEDY, draw
from methods.samplers.tree import tree_sampling, walk
from methods.samplers.tree_rules import SEQUOIA, SPECINFER, select_chosen, top_tokens
from sampling import probabilities
from speculative import speculative_sampling, verify

# Block verification -----------------------------------------------------------------------------------------

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


# What a node of a tree accepts ------------------------------------------------------------------------------

LIKELIEST = (lambda p, k, rng: top_tokens(p, k)), select_chosen
RULES = {"SpecInfer": SPECINFER, "K-SEQ": K_SEQ, "Sequoia": SEQUOIA, "greedy drafts": GREEDY,
         "likeliest": LIKELIEST}


def acceptance(rule, q, p, k):
    """The exact probability that the next token is one of the k drafts, by that rule."""
    draw, select = rule
    found = exact_distribution(lambda rng: select(q, p, draw(p, k, rng), rng)[0] is not None)
    return found.get(True, 0.0)


def ceiling(rule, q, p, k):
    """The highest acceptance of any lossless rule with drafts drawn as that rule does: optimal transport with
    membership cost (Sun et al. 2023, arXiv 2310.15141).  The mass of each set of drafts goes to tokens in
    that set, and no token gets more than its q."""
    linprog = pytest.importorskip("scipy.optimize", reason="scipy is missing: pip install -e .[test]").linprog
    draws = exact_distribution(lambda rng: frozenset(rule[0](p, k, rng)))
    flows = [(i, y) for i, drafts in enumerate(draws) for y in drafts]
    upper = np.zeros((len(draws) + len(q), len(flows)))
    for column, (i, y) in enumerate(flows):
        upper[i, column] = upper[len(draws) + y, column] = 1
    return -linprog(-np.ones(len(flows)), A_ub=upper, b_ub=[*draws.values(), *q]).fun


def pairs(n, n_vocab=5, seed=0):
    """n random (q, p), each uniform on the simplex."""
    return np.random.default_rng(seed).dirichlet(np.ones(n_vocab), size=(n, 2))


# K-SEQ ------------------------------------------------------------------------------------------------------

def test_equal_drafts_are_both_candidates_for_the_next_place():
    """Drafts (0, 1) and (0, 2): the target says 0 and then 2, which only the second draft holds."""
    q = np.array([[1., 0, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0], [0, 1, 0]])
    p = np.array([[1., 0, 0]] * 2 + [[0, .5, .5]] * 2)
    path, token = walk(q, p, [0, 0, 1, 2], [-1, -1, 0, 1], K_SEQ, np.random.default_rng(0))
    assert len(path) == 2 and path[1] == 3 and token == 1


def test_k_seq_by_hand():
    """q = (1, 0), p = (1/2, 1/2): rho is 1.5, and one of two drafts is accepted with probability 3/4."""
    q, p = np.array([1., 0]), np.array([.5, .5])
    assert division_factor(q, p, 2) == pytest.approx(1.5) and acceptance(K_SEQ, q, p, 2) == pytest.approx(.75)
    assert division_factor(q, p, 1) == 1 and acceptance(K_SEQ, q, p, 1) == pytest.approx(.5)
    assert acceptance(K_SEQ, p, p, 3) == pytest.approx(1)
    assert acceptance(K_SEQ, q, q[::-1], 3) == 0                                 # disjoint supports


def test_the_smallest_rho_is_found_and_is_allowed():
    rng = np.random.default_rng(0)
    for k in (2, 3, 8):
        q, p = rng.dirichlet(np.ones(50), size=2)
        rho = division_factor(q, p, k)

        def room(rho):
            beta = np.minimum(p, q / rho).sum()
            return rho * beta - (1 - (1 - beta) ** k)
        assert 1 < rho < k and room(rho) >= 0 > room(rho - 1e-6)


# Greedy drafts ----------------------------------------------------------------------------------------------

def test_the_chosen_are_the_likeliest_and_the_last_is_drawn_from_the_rest():
    p = np.array([.1, .4, .2, .3, 0])
    assert exact_distribution(lambda rng: tuple(draw(p, 3, rng))) == pytest.approx(
        {(1, 3, 2): 2 / 3, (1, 3, 0): 1 / 3})
    for width in (4, 5, 9):                                     # only possible tokens, and none twice
        assert exact_distribution(lambda rng: tuple(draw(p, width, rng))) == {(1, 3, 2, 0): 1}
    assert list(p) == [.1, .4, .2, .3, 0]


# What a node accepts ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("n", [4, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", RULES)
def test_no_rule_accepts_more_than_the_ceiling_and_greedy_drafts_accept_as_much(name, n):
    for (q, p), k in product(pairs(n), (1, 2, 3)):
        found, best = acceptance(RULES[name], q, p, k), ceiling(RULES[name], q, p, k)
        assert found < best + 1e-9 and (found > best - 1e-9 or name != "greedy drafts" or k == 1)


def test_acceptance_by_hand():
    """Two worked examples; with a single draft all rules accept the mass that p and q share."""
    q, p = np.array([1., 0]), np.array([.5, .5])
    assert [acceptance(rule, q, p, 2) for rule in (SPECINFER, K_SEQ, SEQUOIA, GREEDY)] == pytest.approx(
        [.75, .75, 1, 1])
    assert acceptance(LIKELIEST, np.array([.2, .3, .5]), np.array([.3, .2, .5]), 2) == pytest.approx(.7)
    q, p = pairs(1)[0]
    assert [acceptance(RULES[name], q, p, 1) for name in RULES if name != "likeliest"] == pytest.approx(
        [np.minimum(p, q).sum()] * 4)


# Traversal --------------------------------------------------------------------------------------------------

def random_rows(rng, n, zeros):
    rows = rng.dirichlet(np.ones(4), size=n) * (rng.random((n, 4)) >= zeros)
    rows[rows.sum(axis=1) == 0, 0] = 1
    return rows / rows.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("zeros", [0, .4])
@pytest.mark.parametrize("K", [1, 2, 3, 4])
def test_on_a_line_it_is_block_verification(K, zeros):
    """For given drafts, each (number kept, next token) has the same probability."""
    rng = np.random.default_rng(K)
    for _ in range(10):
        q, p = random_rows(rng, K + 1, zeros), random_rows(rng, K, zeros)
        drafts = [int(rng.choice(4, p=row)) for row in p]

        def by_traversal(walk):
            path, token = traversal.walk(q, p, drafts, list(range(-1, K - 1)), SEQUOIA, walk)
            return len(path), token
        blocks = exact_distribution(lambda walk: block.verify(q, p, drafts, walk))
        assert distance(exact_distribution(by_traversal), blocks) < 1e-12


@pytest.mark.parametrize("widths", [(1, 1), [-1, -1, 0]])
def test_without_replacement_it_accepts_no_fewer_drafts(widths):
    """The mean of the first round is at least that of the walk from the root down."""
    gains = []
    for seed in 1, 3, 5:
        pair = table(seed), table(seed + 1)
        ours, usual = (mean_accepted(lambda rng: tree_sampling(*pair, [2, 0], 3, widths, rng, walk=walk))
                       for walk in (traversal.walk, tree.walk))
        gains.append(ours - usual)
    assert min(gains) > -1e-12 and max(gains) > .01


def test_children_that_were_drawn_in_another_way_are_refused():
    """Traversal takes children drawn with or without replacement, but not GREEDY ones."""
    with pytest.raises(ValueError, match="take the rule SPECINFER or SEQUOIA"):
        list(tree_sampling(table(1), table(2), [0], 3, (2,), np.random.default_rng(0), rule=GREEDY,
                           walk=traversal.walk))


# Lossy rules ------------------------------------------------------------------------------------------------

LOSSY = {"lenient .5": (lenient(.5), lambda q, p: lenient_probs(q, p, .5)),
         "lenient .1": (lenient(.1), lambda q, p: lenient_probs(q, p, .1)),
         "ensemble .7": (ensemble(.7), lambda q, p: ensemble_probs(q, p, .7)),
         "ensemble .1": (ensemble(.1), lambda q, p: ensemble_probs(q, p, .1)),
         "typical": (typical(), typical_probs),
         "typical .3": (typical(.3, .55), lambda q, p: typical_probs(q, p, .3, .55))}


def first_token(draft, target, verify, **settings):
    """The exact distribution of the first of two tokens, the one that was drafted."""
    found = exact_distribution(lambda rng: next(speculative_sampling(
        draft, target, [2, 0], 2, 1, rng, verify=verify, **settings)).tokens[0])
    return np.array([found.get(token, 0) for token in range(3)])


@pytest.mark.parametrize("verify, formula", LOSSY.values(), ids=LOSSY)
def test_a_drafted_place_holds_what_the_formula_says(verify, formula):
    for name, pair in PAIRS.items():
        p, q = (np.exp(model([2, 0])[0]) / np.exp(model([2, 0])[0]).sum() for model in pair)
        assert first_token(*pair, verify) == pytest.approx(formula(q, p), abs=1e-12), name


def first_round(draft, target, n_tokens, K, verify):
    """The exact distribution of (tokens, how many of them are accepted drafts) of the first round."""
    def run(rng):
        r = next(speculative_sampling(draft, target, [2, 0], n_tokens, K, rng, verify=verify))
        return tuple(r.tokens), r.n_accepted
    return exact_distribution(run)


def test_a_tested_position_follows_the_mixture_and_any_other_the_target():
    """Position by position in rounds of two drafts, given the accepted drafts before it."""
    for name, (draft, target) in PAIRS.items():
        found = first_round(draft, target, 3, 2, ensemble(.7))
        for before in {tokens[:n] for tokens, n_accepted in found for n in range(n_accepted + 1)}:
            n, law = len(before), np.zeros(3)
            for (tokens, n_accepted), probability in found.items():
                if tokens[:n] == before and n_accepted >= n:
                    law[tokens[n]] += probability
            q, p = (probabilities(model([2, 0, *before])[0]) for model in (target, draft))
            expected = ensemble_probs(q, p, .7) if n < 2 else q
            assert law / law.sum() == pytest.approx(expected, abs=1e-12), (name, before)


def test_the_worked_example_of_the_ensemble():
    draft, target = memoryless([.2, .7, .1]), memoryless([.5, .3, .2])
    assert first_token(draft, target, ensemble(.7)) == pytest.approx([.41, .42, .17])
    found = first_round(draft, target, 2, 1, ensemble(.7))
    assert sum(chance for (_, n_accepted), chance in found.items() if n_accepted) == pytest.approx(.72)


@pytest.mark.parametrize("wrong", [lambda: lenient(0), lambda: lenient(1.5), lambda: typical(0, .3),
                                   lambda: typical(.3, 1), lambda: lenient(float("nan")),
                                   lambda: ensemble(0), lambda: ensemble(1.1)])
def test_numbers_that_mean_nothing_get_a_clear_sentence(wrong):
    with pytest.raises(ValueError, match="must be above 0"):
        wrong()
