"""Each method has the target's distribution, exactly: every entry of methods/table.py, and what can be made
of the methods' parts in other ways.  A new entry needs no change here.

A sampler is judged on pairs of models of its own or on FEW, with each of LINE or TREE as settings.  The fast
tests walk a few cases, the long ones all standard cases.  The same cases find every drafter of the table once
it is made dishonest, and every lossy rule.  (Mistakes in accept rules are in the museum.)
"""
import copy
import functools

import numpy as np
import pytest
from helpers import PAIRS, UNEVEN, combinations, small

from encoder import Encoder
from lossless import check, judge, report
from lossless.cases import pair
from lossless.toys import table
from lossless.verdicts.rules import penalty
from methods.drafters.adaptive import Optimum, Schedule
from methods.drafters.cascade import cascade
from methods.drafters.grammar import draft_forced, form
from methods.drafters.ngram import NGram
from methods.drafters.vocabularies import SLEM, TLI
from methods.entries import OWN_TREE
from methods.samplers import block, traversal
from methods.samplers.batch import batch_sampling
from methods.samplers.constraints import automaton, constrained, forbid
from methods.samplers.k_seq import K_SEQ
from methods.samplers.lossy import ensemble, lenient
from methods.samplers.multi_draft import GREEDY
from methods.samplers.tree import tree_sampling
from methods.samplers.tree_rules import SPECINFER, grow_surest
from methods.table import DRAFTERS, VERIFIERS, choose, is_lossless, prepare
from speculative import propose, speculative_sampling, verify

# Samplers made of a part ------------------------------------------------------------------------------------

def line(make=lambda: propose, verify=verify):
    """Lines of drafts by make().  Each run makes a new drafter, because some remember earlier calls."""
    return lambda *run, **settings: speculative_sampling(*run, propose=make(), verify=verify, **settings)


def widths(K):
    return (2, *[1] * (K - 1))


def trees(widths=widths, **how):
    return lambda draft, target, tokens, n_tokens, K, rng, **settings: tree_sampling(
        draft, target, tokens, n_tokens, widths(K), rng, **how, **settings)


def second_of_two(**how):
    """The second sequence of a batch.  The first draws from a generator of its own."""
    def sampler(draft, target, tokens, n_tokens, K, rng, **settings):
        rngs = [np.random.default_rng(0), rng]
        for both in batch_sampling(draft, target, [[1], tokens], n_tokens, K, rngs, **how, **settings):
            yield from both[1].tokens if both[1] else []
    return sampler


def penalized(draft, target, *rest, sampler=speculative_sampling, **settings):
    """Takes a penalty off the judge's target and puts it back."""
    plain = constrained(target, functools.partial(penalty, size=-2.0))
    return sampler(draft, constrained(plain, penalty), *rest, **settings)


def counts(draft, x, k, to_probs, rng):
    """Drafts what most often followed the last token, and claims that it was drawn from the frequencies."""
    followed = np.bincount([b for a, b in zip(x, x[1:]) if a == x[-1]], minlength=draft(x).shape[-1])
    p = followed / max(followed.sum(), 1)
    return [int(p.argmax())][:k * p.any()], [p][:k * p.any()]


def drops_a_one(draft, x, k, to_probs, rng):
    """Throws the last draft away if it is token 1."""
    drafts, p = propose(draft, x, k, to_probs, rng)
    n = len(drafts) - (drafts[-1:] == [1])
    return drafts[:n], p[:n]


FORM = form([{2}, 0, 1, {0}, 2], n_prompt=2)
FORMED = [(constrained(table(1), FORM), constrained(table(2), FORM))]


FEW = [PAIRS[name] for name in ("a distribution after every prefix", "zeros in both", "draft is certain")]
FIVE = [pair("ff")]                                     # five tokens
SHORT = dict(Ks=[1], n_tokens=2, temperature=1)
LINE = [dict(Ks=[2], n_tokens=3, temperature=.7, top_k=2), SHORT, dict(Ks=[3], n_tokens=3, eos=1)]
TREE = [SHORT, dict(Ks=[2], n_tokens=3, temperature=.7, top_k=2)]


def deviation(sampler, cases, pairs=None):
    """The largest of these cases.  Without pairs, a line of drafts is also judged on the standard cases of
    two tokens, whose prompts have a token that recurs."""
    short = check(sampler, **SHORT) if pairs is None and cases is LINE else 0
    return max(short, *(check(sampler, pairs or FEW, **case) for case in cases))


# The entries of methods/table.py ----------------------------------------------------------------------------

class Given:
    """A table.Models with the two models of a case."""
    def __init__(self, draft, target, n_vocab):
        self.draft, self.target = draft, target
        draft.n_vocab = target.n_vocab = n_vocab
        self.encoder = letters(n_vocab)
        self.load_draft = lambda: (draft, self.encoder)


@functools.cache
def letters(n_vocab):
    return Encoder({token: i for i, token in enumerate("abcdefghijklmnopqrstuvwx"[:n_vocab])}, [])


def reads_layers(drafter):
    """Whether it needs a GPT2: its layers, or its hidden states."""
    return bool({"early_exit", "layer_skip", "eagle", "medusa", "parallel"} & {*drafter.split(":")})


tiny_models = functools.cache(small)


def entry(drafter, verifier, change=lambda drafted: drafted):
    """(sampler, cases, pairs) of the sampler that python -m methods runs; K sets the shape of a tree."""
    def sampler(draft, target, tokens, n_tokens, K, rng, **settings):
        shape = ":" + ",".join(map(str, widths(K))) if VERIFIERS[verifier].verifies_trees else ""
        choice = choose(drafter, verifier + shape)
        if reads_layers(drafter):
            models = copy.copy(tiny_models())
            models.draft.reset(), models.target.reset()         # what is cached changes the last bits
        else:
            models = Given(draft, target, target(tokens).shape[-1])
        settings = dict(temperature=1.0, top_k=0, top_p=1.0, eos=None) | settings
        method = prepare(choice, models, tokens, K, settings, change)
        return method.sampler(method.draft, method.target, tokens, n_tokens, K, rng, **settings)

    if reads_layers(drafter):
        return sampler, LINE[:1], [(None, tiny_models().target)]
    return sampler, TREE if VERIFIERS[verifier].verifies_trees else LINE, None


# The judge cannot walk a race, and measured costs differ from run to run.
WALKED = [(drafter, verifier) for drafter, verifier in combinations()
          if verifier != "coupled" and not drafter.startswith("optimum")]
LOSSLESS = [typed for typed in WALKED if is_lossless(choose(*typed))]
EVERY_DRAFTER = [(d, v) for d, v in LOSSLESS if v == "token"] + [
    (d, v) for d, v in LOSSLESS if v == "tree" and OWN_TREE in DRAFTERS[d.partition(":")[0]].drafts]
EVERY_VERIFIER = [(d, v) for d, v in LOSSLESS if d == "model" and v != "token"]


# Other ways -------------------------------------------------------------------------------------------------

def learnt(text):
    model = NGram(n_vocab=3)
    model.learn(text)
    return model


def uneven(**how):
    return trees(lambda K: UNEVEN, **how)


def three(**how):
    return trees(lambda K: (3,), **how)


# Both have the tokens a and b; each has one more that the other lacks.
WORDS = Encoder({"a": 0, "b": 1, "ab": 2}, [("a", "b")])
OTHERS = Encoder({"b": 0, "ba": 1, "a": 2}, [("b", "a")])
TLIS = [(TLI(table(1), OTHERS, WORDS), table(2))]
EITHER = automaton(0, lambda _, token: token, lambda state, logits: [state, (state + 1) % 3], n_prompt=2)

METHODS = {         # name: (sampler, cases) or (sampler, cases, pairs of its own)
    "a schedule that begins with two drafts": (line(lambda: Schedule(first=2)), LINE),
    "the optimum, with given costs": (line(lambda: Optimum(c=.1, v=1.3, K=4)), LINE),
    "a draft that learnt a text": (line(), LINE, [(learnt([0, 1, 2, 0, 1]), table(2))]),
    "a draft that learns from its own text": (line(), LINE, [(NGram(3), table(4, zeros=.4))]),
    "two stages": (line(lambda: cascade(cascade(propose, table(6)), table(5))), LINE[:1], FEW),
    "a draft of other words (TLI)": (line(), LINE, TLIS),
    "a draft of other words (SLEM)": (
        line(lambda: SLEM(table(1), OTHERS, WORDS).propose), LINE, [(None, table(2))]),
    "lenience 1": (line(verify=lenient(1)), LINE),
    "an ensemble of the target alone": (line(verify=ensemble(1)), LINE),
    "three children of five tokens": (three(), TREE[:1], FIVE),
    "an uneven tree": (uneven(), TREE),
    "an uneven tree of the surest": (uneven(grow=grow_surest), TREE),
    "a traversal of five tokens": (three(walk=traversal.walk), TREE[:1], FIVE),
    "a traversal with replacement": (trees(rule=SPECINFER, walk=traversal.walk), TREE),
    "a traversal of chosen children": (uneven(grow=grow_surest, walk=traversal.walk), TREE),
    "K-SEQ of five tokens": (trees(rule=K_SEQ), TREE[:1], FIVE),
    "greedy drafts of five tokens": (three(rule=GREEDY), TREE[:1], FIVE),
    "a batch": (second_of_two(), LINE),
    "a batch that verifies blocks": (second_of_two(verify=block.verify), LINE),
    "a penalty": (penalized, LINE),
    "a penalty in a tree": (functools.partial(penalized, sampler=trees()), TREE),
    "forbidden tokens": (line(), LINE, [(table(1), constrained(table(2), forbid([1])))]),
    "an automaton": (line(), LINE, [(constrained(table(1), EITHER), constrained(table(2), EITHER))]),
    "a form that drafts": (line(lambda: draft_forced(FORM, 3)), LINE, FORMED),
    "a form that drafts, without a model": (
        line(lambda: lambda _, *asked: draft_forced(FORM, 3)(None, *asked)), LINE, FORMED),
}
EACH = [*EVERY_DRAFTER, *EVERY_VERIFIER, ("eagle", "tree")]


@pytest.mark.parametrize("typed", EACH, ids=" ".join)
def test_an_entry_of_the_table_has_the_targets_distribution(typed):
    assert deviation(*entry(*typed)) < 1e-12


@pytest.mark.parametrize("name", METHODS)
def test_what_is_made_of_the_parts_has_the_targets_distribution(name):
    assert deviation(*METHODS[name]) < 1e-12


@pytest.mark.long
@pytest.mark.parametrize("how", [*map(" ".join, EACH), *METHODS])
def test_it_has_it_in_all_standard_cases(how, monkeypatch):
    """In their likeliest branches, or on the pairs of its own, in longer texts.  A penalty that is taken off
    and put back is rounded, and a temperature of 1e-7 multiplies that."""
    monkeypatch.setattr(judge, "ALL_STEPS", 100_000)
    sampler, _, *pairs = METHODS.get(how) or entry(*how.split())
    pairs = pairs[0] if pairs else None
    found = report(sampler, pairs, n_tokens=pairs and (2 if pairs is FIVE else 3))
    assert found.deviation < (1e-9 if how.startswith("a penalty") else 1e-12)


@pytest.mark.long
@pytest.mark.parametrize("typed", [typed for typed in WALKED if typed not in EACH], ids=" ".join)
def test_what_goes_together_is_what_the_table_says(typed):
    """A combination is lossless if, and only if, methods/table.py says so."""
    sampler, _, pairs = entry(*typed)
    assert (check(sampler, pairs or FEW, [2], 3, temperature=.8) < 1e-9) == is_lossless(choose(*typed))


# Mistakes that are planted ----------------------------------------------------------------------------------

def dishonest(drafted):
    """One that drafts the likeliest token instead of a draw, and claims that chosen drafts were drawn."""
    def equal(drafts):
        return [np.full(drafted.target.n_vocab, 1 / drafted.target.n_vocab)] * len(drafts)

    def proposes(*asked):
        drafts, p = drafted.propose(*asked)
        return (drafts, equal(drafts)) if p is None else ([int(np.argmax(row)) for row in p[:1]], p[:1])

    def grows(*asked):
        nodes, parents, _ = drafted.grow(*asked)
        return nodes, parents, equal(nodes)
    return drafted._replace(propose=proposes, grow=drafted.grow and grows)


def is_found(sampler, cases, pairs=None):
    return any(check(sampler, pairs, **case) > 1e-9 for case in cases)


@pytest.mark.parametrize("typed", EVERY_DRAFTER, ids=" ".join)
def test_a_dishonest_drafter_is_found(typed):
    sampler, cases, pairs = entry(*typed, dishonest)
    assert is_found(sampler, [cases[0] | dict(n_tokens=2)], pairs or FEW)


@pytest.mark.parametrize("name", [name for name in VERIFIERS if not VERIFIERS[name].lossless])
def test_a_lossy_rule_is_found(name):
    assert is_found(*entry("model", name))


@pytest.mark.parametrize("drafter", [counts, drops_a_one])
def test_the_fast_cases_see_that_a_new_drafter_is_dishonest(drafter):
    assert deviation(line(lambda: drafter), LINE) > 1e-9
