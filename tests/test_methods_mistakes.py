"""The judge finds the mistakes that are planted in the methods, in every drafter of the table and in their
parts.  So the tests of test_methods_lossless.py would see them.

Mistakes in the lines of speculative.py are in the museum instead."""
import numpy as np
import pytest
from judged import EVERY_DRAFTER, FEW, FIVE, LINE, SHORT, deviation, entry
from samplers import FORM, FORMED, counts, drops_a_one, line, penalized, second_of_two, stops, trees, within

from lossless import check
from lossless.verdicts.rules import penalty
from methods.drafters import cascade
from methods.drafters.adaptive import Schedule
from methods.drafters.early_exit import EarlyExit, Lower
from methods.samplers import batch, block, k_seq, traversal, tree
from methods.samplers.constraints import constrained
from methods.samplers.k_seq import K_SEQ
from methods.samplers.multi_draft import GREEDY
from methods.samplers.tree_rules import SEQUOIA, SPECINFER, grow_drawn, top_tokens
from methods.table import VERIFIERS
from sampling import sample
from speculative import propose, speculative_sampling


def patched(sampler, module, name, replacement):
    """The sampler, with a function of the module replaced during its runs."""
    def run(*run, **settings):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, name, replacement)
            yield from sampler(*run, **settings)
    return run


class OneCoin:
    """A generator that always returns the same random number."""

    def __init__(self, rng):
        self.u = rng.random()

    def random(self):
        return self.u


def with_one_coin(rule):
    return lambda *given: rule(*given[:-1], OneCoin(given[-1]))


# Drafters ---------------------------------------------------------------------------------------------------

def dishonest(method):
    """One that drafts the likeliest token instead of a draw, and claims that chosen drafts were drawn."""
    def equal(drafts):
        return [np.full(method.target.n_vocab, 1 / method.target.n_vocab)] * len(drafts)

    def proposes(*asked):
        drafts, p = method.propose(*asked)
        return (drafts, equal(drafts)) if p is None else ([int(np.argmax(row)) for row in p[:1]], p[:1])

    def grows(*asked):
        nodes, parents, _ = method.grow(*asked)
        return nodes, parents, equal(nodes)
    return method._replace(propose=proposes, grow=method.grow and grows)


def after_the_draw(is_worthwhile, draft, x, k, to_probs, rng):
    drafts, p = propose(draft, x, k, to_probs, rng)
    n = next((j for j in range(k) if not is_worthwhile(draft(x + drafts[:j + 1]))), k)
    return drafts[:n], p[:n]


def drops_forbidden(draft, x, k, to_probs, rng):
    drafts, p = propose(draft, x, k, to_probs, rng)
    n = next((j for j, token in enumerate(drafts) if np.isinf(FORM(x + drafts[:j], np.zeros(3))[token])), k)
    return drafts[:n], p[:n]


def formed(propose=propose, process=FORM):
    """Texts of FORM, with the target masked anew by `process`."""
    return lambda draft, target, *run, **settings: speculative_sampling(
        draft.model, constrained(target.model, process), *run, propose=propose, **settings)


def stale(lower, tokens):
    """In place of Lower.hidden_states: what was computed for earlier drafts stays."""
    if len(lower.cached) < len(tokens):
        lower.forward(tokens, len(lower.cached))
    return lower.states[-1, :len(tokens)]


def every_guess(rows, o, guesses, rng):
    return len(guesses), int(rows[-1].argmax())


def another_prompt(slots, texts, n_last, right=batch.Slots.__call__):
    first = texts[min(texts)][0]
    return right(slots, {i: [first, *text[1:]] for i, text in texts.items()}, n_last)


# Accept rules -----------------------------------------------------------------------------------------------

def blocks(rest):
    """Block verification that draws its correction from rest(q, p)."""
    def mistaken(q, p, drafts, rng):
        n, token = block.verify(q, p, drafts, rng)
        return n, token if n == len(drafts) else sample(rest(q[n], p[n]), rng)
    return line(verify=mistaken)


def rejected_to_q(rule):
    """A rule that draws from q if all children are rejected."""
    draw, select = rule

    def mistaken(q, p, tokens, rng):
        i, token = select(q, p, tokens, rng)
        return (i, token) if i is not None else (None, sample(q, rng))
    return draw, mistaken


def ends_at_the_root(q, p, nodes, parents, rule, rng):
    """traversal.walk, with the last token drawn from the root's q."""
    return traversal.walk(q, p, nodes, parents, rule, rng)[0], sample(q[0], rng)


def a_row_late(q, *rest):
    return tree.walk([q[0], *q], *rest)


def half_of_rho(q, p, k, right=k_seq.division_factor):
    return (1 + right(q, p, k)) / 2


def grow_without_replacement(draft, x, shape, rule, *rest):
    return grow_drawn(draft, x, shape, SEQUOIA, *rest)


(GROWN, JUDGED), (AGAIN, JUDGED_AGAIN) = SEQUOIA, SPECINFER
LINES = {           # judged on the standard cases of up to four tokens
    "how many drafts depends on the drafts": line(lambda: Schedule(drops_a_one)),
    "early stop: decided by what follows the draft": stops(after_the_draw),
    "stages that accept every guess": patched(line(cascade.cascade), cascade, "verify", every_guess),
    "block: the correction is drawn from the target": blocks(lambda q, p: q),
    "block: the residual of Algorithm 2": blocks(lambda q, p: np.maximum(q - p, 0) if (q > p).any() else q),
    "block: one coin for all drafts": line(verify=with_one_coin(block.verify)),
    "batch: another's prompt": patched(second_of_two(), batch.Slots, "__call__", another_prompt),
    "penalty: the last token does not count": penalized(lambda x, logits: penalty(x[:-1], logits)),
}
TREES = {
    "drawn without replacement, judged as if with": trees(rule=(GROWN, JUDGED_AGAIN)),
    "drawn with replacement, judged as if without": trees(rule=(AGAIN, JUDGED)),
    "chosen children count as drawn": trees(rule=(lambda p, n, rng: top_tokens(p, n), JUDGED)),
    "equal children are judged once": trees(rule=(lambda *p: [*dict.fromkeys(AGAIN(*p))], JUDGED_AGAIN)),
    "one coin for all children": trees(rule=(GROWN, with_one_coin(JUDGED))),
    "the last draw is from q": trees(rule=rejected_to_q(SEQUOIA)),
    "the rows are one too late": trees(walk=a_row_late),
    "K-SEQ: rho is too small": patched(trees(rule=K_SEQ), k_seq, "division_factor", half_of_rho),
    "K-SEQ: the last draw is from q": trees(rule=rejected_to_q(K_SEQ)),
    "greedy drafts: the last counts as drawn from p": trees(rule=(
        GREEDY[0], lambda q, p, tokens, rng: JUDGED(q, p, tokens[-1:], rng))),
    "greedy drafts: the last draw is from q": trees(rule=rejected_to_q(GREEDY)),
    "traversal: a rejected child may come again": trees(
        rule=SPECINFER, grow=grow_without_replacement, walk=traversal.walk),
    "traversal: the last draw is from the root's q": trees(walk=ends_at_the_root),
}
HALVES, *THEIRS = within(EarlyExit, 1)
WITH_PAIRS = {      # name: (sampler, cases, pairs of its own)
    "an exit keeps the states of rejected drafts": (patched(HALVES, Lower, "hidden_states", stale), *THEIRS),
    "form: a forbidden draft that was drawn is dropped": (formed(drops_forbidden), LINE, FORMED),
    "form: the mask is one token late": (
        formed(process=lambda tokens, logits: FORM(tokens[:-1], logits)), LINE, FORMED),
}


def is_found(sampler, cases, pairs=None):
    return any(check(sampler, pairs, **case) > 1e-9 for case in cases)


@pytest.mark.parametrize("typed", EVERY_DRAFTER, ids=" ".join)
def test_a_dishonest_drafter_is_found(typed):
    sampler, cases, pairs = entry(*typed, dishonest)
    assert is_found(sampler, [cases[0] | dict(n_tokens=2)], pairs or FEW)


@pytest.mark.parametrize("name", [name for name in VERIFIERS if not VERIFIERS[name].lossless])
def test_a_lossy_rule_is_found(name):
    assert is_found(*entry("model", name))


@pytest.mark.parametrize("name", LINES)
def test_a_mistake_in_a_line_is_found(name):
    assert is_found(LINES[name], [dict(n_tokens=4)])


@pytest.mark.parametrize("name", TREES)
def test_a_mistake_in_a_tree_is_found(name):
    assert is_found(TREES[name], [SHORT, dict(Ks=[2], n_tokens=3, temperature=1)], [FEW[0], *FIVE])


@pytest.mark.parametrize("name", WITH_PAIRS)
def test_a_mistake_is_found_on_pairs_of_its_own(name):
    assert is_found(*WITH_PAIRS[name])


@pytest.mark.parametrize("drafter", [counts, drops_a_one])
def test_the_fast_cases_see_that_a_new_drafter_is_dishonest(drafter):
    assert deviation(line(lambda: drafter), LINE) > 1e-9
