"""Each method has the target's distribution, exactly: every entry of methods/table.py, and what can be made
of the methods' parts in other ways.  A new entry needs no change here.

The fast tests walk a few cases, the long ones all standard cases.  In test_methods_mistakes.py, the same
cases find the mistakes that are planted there."""
import numpy as np
import pytest
from helpers import UNEVEN, small, tiny_gpt2
from judged import EVERY_DRAFTER, EVERY_VERIFIER, FEW, FIVE, LINE, TREE, WALKED, deviation, entry
from samplers import FORM, FORMED, line, penalized, second_of_two, trees, within

from encoder import Encoder
from lossless import check
from lossless.toys import table
from methods.drafters.adaptive import Confident, Optimum, Schedule
from methods.drafters.cascade import cascade
from methods.drafters.eagle import Eagle
from methods.drafters.early_exit import EarlyExit
from methods.drafters.grammar import draft_forced
from methods.drafters.layer_skip import LayerSkip
from methods.drafters.ngram import NGram
from methods.drafters.vocabularies import SLEM, TLI
from methods.samplers import block, traversal
from methods.samplers.constraints import automaton, constrained, forbid
from methods.samplers.k_seq import K_SEQ
from methods.samplers.lossy import ensemble, lenient
from methods.samplers.multi_draft import GREEDY
from methods.samplers.tree_model import with_tree
from methods.samplers.tree_rules import SPECINFER, grow_surest
from methods.table import choose, is_lossless
from speculative import propose, speculative_sampling


def learnt(text):
    model = NGram(n_vocab=3)
    model.learn(text)
    return model


def as_the_target_forces(draft, target, *run, **settings):
    """The grammar's mask is where the target has probability 0."""
    def process(tokens, logits):
        return np.where(np.isinf(target(tokens)[-1]), -np.inf, logits)
    propose = draft_forced(process, target([0]).shape[-1])
    return speculative_sampling(draft, target, *run, propose=propose, **settings)


TREE_TARGET, HEAD = with_tree(tiny_gpt2(0, np.float64, n_vocab=3, n_ctx=8)), small().head("eagle")


def eagles_tree(draft, target, *run, **settings):
    target.reset()
    return trees()(Eagle(target, HEAD), target, *run, **settings)


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
    "an exit before the first layer": within(EarlyExit, 0),
    "an exit after all layers": within(EarlyExit, 2),
    "a draft without some layers, that stops by itself": within(LayerSkip, [0], [1], propose=Confident()),
    "EAGLE's own tree": (eagles_tree, TREE, [(None, TREE_TARGET)]),
    "two stages": (line(lambda: cascade(cascade(propose, table(6)), table(5))), LINE[:1], FEW),
    "a draft of other words (TLI)": (line(), LINE, TLIS),
    "a draft of other words (SLEM)": (
        line(lambda: SLEM(table(1), OTHERS, WORDS).propose), LINE, [(None, table(2))]),
    "lenience 1": (line(verify=lenient(1)), LINE),
    "an ensemble of the target alone": (line(verify=ensemble(1)), LINE),
    "three children of five tokens": (three(), TREE[:1], FIVE),
    "an uneven tree": (uneven(), TREE),
    "an uneven tree, with replacement": (uneven(rule=SPECINFER), TREE),
    "an uneven tree of the surest": (uneven(grow=grow_surest), TREE),
    "a traversal of five tokens": (three(walk=traversal.walk), TREE[:1], FIVE),
    "a traversal with replacement": (trees(rule=SPECINFER, walk=traversal.walk), TREE),
    "a traversal of chosen children": (uneven(grow=grow_surest, walk=traversal.walk), TREE),
    "K-SEQ of five tokens": (trees(rule=K_SEQ), TREE[:1], FIVE),
    "greedy drafts of five tokens": (three(rule=GREEDY), TREE[:1], FIVE),
    "a batch": (second_of_two(), LINE),
    "a batch that verifies blocks": (second_of_two(verify=block.verify), LINE),
    "a penalty": (penalized(), LINE),
    "a penalty in a tree": (penalized(sampler=trees()), TREE),
    "forbidden tokens": (line(), LINE, [(table(1), constrained(table(2), forbid([1])))]),
    "an automaton": (line(), LINE, [(constrained(table(1), EITHER), constrained(table(2), EITHER))]),
    "a form that drafts": (line(lambda: draft_forced(FORM, 3)), LINE, FORMED),
    "a form that drafts, without a model": (
        line(lambda: lambda _, *asked: draft_forced(FORM, 3)(None, *asked)), LINE, FORMED),
    "a grammar that drafts what the target forces": (as_the_target_forces, LINE),
}
EACH = EVERY_DRAFTER + EVERY_VERIFIER


@pytest.mark.parametrize("typed", EACH, ids=" ".join)
def test_an_entry_of_the_table_has_the_targets_distribution(typed):
    assert deviation(*entry(*typed)) < 1e-12


@pytest.mark.parametrize("name", METHODS)
def test_what_is_made_of_the_parts_has_the_targets_distribution(name):
    assert deviation(*METHODS[name]) < 1e-12


@pytest.mark.long
@pytest.mark.parametrize("how", [*map(" ".join, EACH), *METHODS])
def test_it_has_it_in_all_standard_cases(how):
    """Or on the pairs of its own, in longer texts.  A penalty that is taken off and put back is rounded, and
    a temperature of 1e-7 multiplies that."""
    sampler, _, *pairs = METHODS.get(how) or entry(*how.split())
    pairs = pairs[0] if pairs else None
    largest = check(sampler, pairs, n_tokens=pairs and (2 if pairs is FIVE else 3))
    assert largest < (1e-9 if how.startswith("a penalty") else 1e-12)


@pytest.mark.long
@pytest.mark.parametrize("typed", [typed for typed in WALKED if typed not in EACH], ids=" ".join)
def test_what_goes_together_is_what_the_table_says(typed):
    """A combination is lossless if, and only if, methods/table.py says so."""
    sampler, _, pairs = entry(*typed)
    assert (check(sampler, pairs or FEW, [2], 3, temperature=.8) < 1e-9) == is_lossless(choose(*typed))
