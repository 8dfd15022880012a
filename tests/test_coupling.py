"""Coupled sampling: the seed alone fixes the text, however it is drafted; the text has the target's
distribution; and drafts are accepted as often as the formula says."""
from collections import Counter
from itertools import product

import numpy as np
import pytest
from helpers import PAIRS, named, tiny_gpt2

from drafters import lookup
from drafters.adaptive import Confident, Schedule
from drafters.cascade import cascade
from lossless import distribution_of_text, table, text_of
from methods import DRAFTERS, Models, chosen
from samplers import coupling
from samplers.batch import batch_sampling
from samplers.coupling import Race, acceptance, coupled, coupled_baseline, coupled_sampling
from samplers.tree import tree_sampling
from samplers.tree_rules import drawn, likeliest, surest
from speculative import propose

PROMPT = [1, 2]


def text(draft, target, n_tokens, K, seed=0, prompt=PROMPT, **settings):
    rng = np.random.default_rng(seed)
    return text_of(coupled_sampling(draft, target, prompt, n_tokens, K, rng, **settings))


def baseline(target, n_tokens, seed=0, prompt=PROMPT, **settings):
    return text_of(coupled_baseline(target, prompt, n_tokens, np.random.default_rng(seed), **settings))


# One text ---------------------------------------------------------------------------------------------------

SETTINGS = [{}, dict(temperature=.6, top_k=2), dict(top_p=.7), dict(temperature=0), dict(eos=[1])]


def own_draws(draft, x, k, to_probs, rng):
    """Draws from its generator itself: how many drafts, and which."""
    return [int(rng.random() * 3) for _ in range(rng.integers(k + 1))], None


@pytest.mark.parametrize("drafter", [propose, lookup.propose, own_draws, Schedule(), Confident()],
                         ids=lambda one: getattr(one, "__name__", type(one).__name__))
def test_the_text_is_a_function_of_the_seed_whatever_the_drafter_and_K(drafter):
    for seed, ((draft, target), settings) in enumerate(product(PAIRS.values(), SETTINGS)):
        expected = baseline(target, 20, seed, **settings)
        assert len(expected) == 20 or settings.get("eos") == [expected[-1]]
        K = (1, 3, 8)[seed % 3]
        assert text(draft, target, 20, K, seed, propose=drafter, **settings) == expected


def test_another_seed_gives_another_text_and_the_generator_is_asked_once():
    assert len({baseline(table(2), 20, seed) for seed in range(10)}) == 10
    rng, other = np.random.default_rng(3), np.random.default_rng(3)
    list(coupled_sampling(table(1), table(2), PROMPT, 20, 3, rng)), other.random()
    assert rng.random() == other.random()


@pytest.mark.parametrize("widths", [(2,), (3, 2, 1), [-1, -1, 0]], ids=named)
@pytest.mark.parametrize("grow", [drawn, likeliest, surest])
def test_it_is_the_same_with_a_tree(grow, widths):
    for seed in range(3):
        rounds = list(tree_sampling(table(1), table(2), PROMPT, 30, widths, Race(np.random.default_rng(seed)),
                                    grow=grow, walk=coupling.walk))
        assert text_of(rounds) == baseline(table(2), 30, seed) and len(rounds) < 30


def test_it_is_the_same_in_a_batch():
    prompts, races = [[1, 2], [0], [2, 2, 1]], [Race(np.random.default_rng(seed)) for seed in range(3)]
    target, draft = tiny_gpt2(1, np.float64), tiny_gpt2(1, np.float64, n_layer=1)
    texts = [[], [], []]
    for rounds in batch_sampling(draft, target, prompts, 25, 3, races, propose=coupled(propose),
                                 verify=coupling.verify):
        for one, r in zip(texts, rounds):
            one += r.tokens if r else []
    assert [tuple(one) for one in texts] == [
        baseline(target, 25, seed, prompt) for seed, prompt in enumerate(prompts)]


@pytest.mark.parametrize("n_tokens, Ks", [(15, [4]), pytest.param(100, range(1, 9), marks=pytest.mark.long)])
def test_every_drafter_of_the_table_gives_the_embedded_targets_text(n_tokens, Ks):
    """The short test runs four drafters at K = 4, the long one all at K = 1 .. 8, with a seed for each K.
    On kernels that round a row differently in company, texts may part where rounding decides a race."""
    models = Models("demo-draft", "demo-target")
    prompt = models.encoder.encode("The old man looked out over the sea")
    settings = dict(temperature=1, top_k=0, top_p=1, eos=None)
    for K in Ks:
        expected = baseline(models.target, n_tokens, K, prompt)
        for name in ["model", "lookup", "eagle", "medusa"] if n_tokens == 15 else DRAFTERS:
            drafter = chosen("drafter", name + ":a5,m5" * (name == "layer_skip"), DRAFTERS)
            pair = drafter.entry.make(models, drafter.option, prompt, K, settings)
            found = text(pair.draft, pair.target, n_tokens, K, K, prompt, propose=pair.propose, **settings)
            n = next((n for n in range(n_tokens) if found[n] != expected[n]), None)
            if n is not None:
                race = Race(np.random.default_rng(K))
                logits = models.target(prompt + list(found[:n]))[0].astype(float)
                times = np.log(coupling.exponentials(race.seed, n, len(logits))) - logits
                assert models.target.exact_rows < np.inf, f"{name}, K = {K}: they part at token {n}"
                assert abs(times[found[n]] - times[expected[n]]) < 1e-4


# The distribution -------------------------------------------------------------------------------------------

@pytest.mark.parametrize("n", [1500, pytest.param(40_000, marks=pytest.mark.long)])
def test_the_text_has_the_targets_distribution(n):
    """Chi-square over the 27 texts of three tokens; its .999 quantile at 26 degrees of freedom is 54.1."""
    draft, target, warm = table(1), table(2), dict(temperature=4)
    wanted = distribution_of_text(target, PROMPT, 3, **warm)
    counts = Counter(text(draft, target, 3, 2, seed, **warm) for seed in range(n))
    assert len(wanted) == 27 and min(wanted.values()) * n > 5
    assert sum((counts[one] - n * wanted[one]) ** 2 / (n * wanted[one]) for one in wanted) < 54.1


def winners(q, p, n):
    """[n_vocab, n_vocab]: the share of places where the target draws x and the draft draws y."""
    joint, race = np.zeros((len(q), len(q))), Race(np.random.default_rng(0))
    for place in range(n):
        joint[race.winner(q, place), race.winner(p, place)] += 1 / n
    return joint


def test_how_often_a_draft_stays_is_the_closed_formula():
    """Within four standard deviations.  Also, target and draft each draw from their own distribution."""
    pairs, n = np.random.default_rng(0).dirichlet(np.ones(4), size=(3, 2)), 3000
    for q, p in [*pairs, (np.array([.5, .5, 0, 0]), np.array([0, .2, .8, 0]))]:
        joint = winners(q, p, n)
        both = np.array([np.trace(joint), *joint.sum(axis=1), *joint.sum(axis=0)])
        wanted = np.array([acceptance(q, p), *q, *p])
        assert (abs(both - wanted) <= 4 * (wanted * (1 - wanted) / n) ** .5).all()


def test_every_draft_stays_if_the_draft_is_the_target():
    """Even if the drafter asks for rows that it then does not use."""
    target = table(2)
    for drafter in propose, cascade(propose, table(1)), cascade(propose, target):
        rounds = coupled_sampling(target, target, PROMPT, 40, 4, np.random.default_rng(0), propose=drafter)
        assert all(r.n_accepted == len(r.drafts) for r in rounds)


def test_what_it_costs_beside_algorithm_2():
    """It accepts at most what Algorithm 2 accepts, s = sum min(p, q), and at least s / (2 - s)."""
    for q, p in np.random.default_rng(0).dirichlet(np.ones(5), size=(200, 2)):
        shared = np.minimum(p, q).sum()                         # 1 - TV
        assert shared / (2 - shared) - 1e-12 <= acceptance(q, p) <= shared + 1e-12
        assert acceptance(p, p) == pytest.approx(1)
    assert acceptance(np.array([1., 0]), np.array([0, 1.])) == 0


def test_an_impossible_token_never_wins():
    race = Race(np.random.default_rng(0))
    with np.errstate(all="raise"):
        assert {race.winner(np.array([0, 1., 0]), j) for j in range(50)} == {1}
        assert race.winner(np.array([5e-324, 0, .5]), 0) == 2
