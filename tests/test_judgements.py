"""Every method has the target's distribution, exactly, and the judge finds the mistakes planted in each.

METHODS and MISTAKES are {name: (sampler, pairs, cases)}, as lossless.check takes them.  The fast test walks
`cases`, on the method's own pairs or on a few others; the long test judges a method without pairs of its own
on the standard cases.  Both tables read the entries of methods.py, so a new entry needs no change here.

Mistakes in the lines of speculative.py, and samplers that are only unusual, are in the museum instead.
"""
import copy
import functools

import numpy as np
import pytest
from helpers import PAIRS, UNEVEN, combinations, small, tiny_gpt2

from drafters import cascade, eagle, early_exit
from drafters.adaptive import Optimum, Schedule
from drafters.cascade import cascade as staged
from drafters.eagle import Eagle
from drafters.early_exit import EarlyExit
from drafters.layer_skip import DraftExit, LayerSkip
from drafters.ngram import NGram
from drafters.vocabularies import SLEM, TLI
from encoder import Encoder
from lossless import check, pair, table
from methods import DRAFTERS, VERIFIERS, choose
from samplers import batch, block, k_seq, traversal, tree
from samplers.batch import batch_sampling
from samplers.constraints import automaton, brackets, constrained, forbidden
from samplers.k_seq import K_SEQ
from samplers.lossy import lenient
from samplers.multi_draft import GREEDY
from samplers.tree import tree_sampling
from samplers.tree_model import with_tree
from samplers.tree_rules import SEQUOIA, SPECINFER, drawn, most, surest
from sampling import sample
from speculative import propose, speculative_sampling, verify

FEW = [PAIRS[name] for name in ("a distribution after every prefix", "zeros in both", "draft is certain")]
LINE = [dict(Ks=[2], n_tokens=3, temperature=.7, top_k=2), dict(Ks=[1], n_tokens=2, temperature=1),
        dict(Ks=[3], n_tokens=3, eos=1)]
TREE = [dict(Ks=[1], n_tokens=2, temperature=1), dict(Ks=[2], n_tokens=3, temperature=.7, top_k=2)]
STANDARD = [{}]                                         # all standard cases, up to the first wrong one
SMALL = [dict(Ks=[1], n_tokens=2, temperature=1), dict(Ks=[2], n_tokens=3, temperature=1)]


# Samplers made of a part ------------------------------------------------------------------------------------

def line(make=lambda: propose, verify=verify, **how):
    """Lines of drafts by make().  Each run makes a new drafter, because some remember earlier calls."""
    return lambda *run, **settings: speculative_sampling(
        *run, propose=make(), verify=verify, **how, **settings)


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


def penalty(tokens, logits, size=2.0):
    logits[[token for token in {*tokens} if token < len(logits)]] -= size
    return logits


def penalized(constrain=constrained, process=penalty, sampler=speculative_sampling):
    """Takes a penalty off the judge's target and lets `constrain` put it back."""
    def run(draft, target, *rest, **settings):
        plain = constrained(target, functools.partial(penalty, size=-2.0))
        return sampler(draft, constrain(plain, process), *rest, **settings)
    return run


# The entries of methods.py ----------------------------------------------------------------------------------

class Given:
    """A methods.Models with the two models of a case."""
    share_a_vocabulary = draft_is_used = True

    def __init__(self, draft, target, n_vocab):
        self.draft, self.target = draft, target
        draft.n_vocab = target.n_vocab = n_vocab
        self.encoder = letters(n_vocab)
        self.draft_and_encoder = draft, self.encoder


@functools.cache
def letters(n_vocab):
    return Encoder({token: i for i, token in enumerate("abcdefghijklmnopqrstuvwx"[:n_vocab])}, [])


def reads_layers(drafter):
    trained = [DRAFTERS[name].trained for name in drafter.split(":") if name in DRAFTERS]
    return "head" in trained or drafter.startswith("layer_skip")


@functools.cache
def tiny_models():
    return small()


def entry(drafter, verifier, spoiled=lambda pair: pair):
    """The sampler that main.py runs; K sets the shape of a tree.  `spoiled` changes the pair."""
    def sampler(draft, target, tokens, n_tokens, K, rng, **settings):
        shape = ":" + ",".join(map(str, widths(K))) if VERIFIERS[verifier].tree else ""
        method = choose(drafter, verifier + shape)
        if reads_layers(drafter):
            models = copy.copy(tiny_models())
            models.draft.reset(), models.target.reset()         # what is cached changes the last bits
        else:
            models = Given(draft, target, target(tokens).shape[-1])
        settings = dict(temperature=1.0, top_k=0, top_p=1.0, eos=None) | settings
        pair = spoiled(method.pair(models, tokens, K, settings))
        return method.sampler(pair)(pair.draft, pair.target, tokens, n_tokens, K, rng, **settings)

    if reads_layers(drafter):
        return sampler, [(None, tiny_models().target)], LINE[:1]
    return sampler, None, TREE if VERIFIERS[verifier].tree else LINE


def dishonest(pair):
    """A pair that drafts the likeliest token instead of a draw, and claims that chosen drafts were drawn."""
    def equal(drafts):
        return [np.full(pair.target.n_vocab, 1 / pair.target.n_vocab)] * len(drafts)

    def proposes(*asked):
        drafts, p = pair.propose(*asked)
        return (drafts, equal(drafts)) if p is None else ([int(np.argmax(row)) for row in p[:1]], p[:1])

    def grows(*asked):
        nodes, parents, _ = pair.grow(*asked)
        return nodes, parents, equal(nodes)
    return pair._replace(propose=proposes, grow=pair.grow and grows)


# The judge cannot walk a race, and measured costs differ from run to run.
WALKED = [(drafter, verifier) for drafter, verifier in combinations()
          if verifier != "coupled" and not drafter.startswith("optimum")]
LOSSLESS = [typed for typed in WALKED if choose(*typed).lossless]
GROWS = [(d, v) for d, v in LOSSLESS if v == "tree" and DRAFTERS[d.partition(":")[0]].grows == "own"]
LINES = [(d, v) for d, v in LOSSLESS if v == "token"]

METHODS = {" ".join(typed): entry(*typed) for typed in LOSSLESS
           if typed in LINES + GROWS or typed[0] == "model"}
MISTAKES = {f"{' '.join(typed)}, dishonest": (sampler, pairs or FEW, [cases[0] | dict(n_tokens=2)])
            for typed in LINES + GROWS for sampler, pairs, cases in [entry(*typed, dishonest)]}
MISTAKES |= {f"model {name}": entry("model", name) for name in VERIFIERS if not VERIFIERS[name].lossless}


# Drafters made in other ways than an entry makes them -------------------------------------------------------

def learnt(text):
    model = NGram(n_vocab=3)
    model.learn(text)
    return model


def layers(seed=1):
    return tiny_gpt2(seed, np.float64, n_vocab=3, n_ctx=8)


def within(halves, propose=propose):
    """A row of METHODS for a draft and a target that share one tiny GPT-2."""
    def sampler(draft, target, *run, **settings):
        target.reset()                                  # what is cached changes the last bits
        return speculative_sampling(draft, target, *run, propose=propose, **settings)
    return sampler, [(halves.draft, halves.target)], LINE[:1]


def eagles_tree(draft, target, tokens, n_tokens, K, rng, **settings):
    target.reset()
    head = Eagle(target, tiny_models().head("eagle"))
    return tree_sampling(None, target, tokens, n_tokens, widths(K), rng, grow=head.grow, **settings)


# Both have the tokens a and b; each has one more that the other lacks.
WORDS = Encoder({"a": 0, "b": 1, "ab": 2}, [("a", "b")])
OTHERS = Encoder({"b": 0, "ba": 1, "a": 2}, [("b", "a")])
TLIS = [(TLI(table(1), OTHERS, WORDS), table(2))]
COUNTED = [(learnt([0, 1, 2, 0, 1]), table(2)), (NGram(3), table(4, zeros=.4))]
FIVE = [pair("ff")]
FORK = automaton(0, lambda _, token: token, lambda state, logits: [state, (state + 1) % 3], n_prompt=2)

METHODS |= {
    "a schedule that begins with two drafts": (line(lambda: Schedule(first=2)), None, LINE),
    "the optimum, with given costs": (line(lambda: Optimum(c=.1, v=1.3, K=4)), None, LINE),
    "a draft that learnt a text": (line(), COUNTED, LINE),
    "an exit before the first layer": within(EarlyExit(layers(), 0)),
    "an exit after all layers": within(EarlyExit(layers(), 2)),
    "a draft without some layers, that stops by itself": within(LayerSkip(layers(), [0], [1]), DraftExit()),
    "EAGLE's own tree": (eagles_tree, [(None, with_tree(layers(0)))], TREE),
    "two stages of drafting": (line(lambda: staged(staged(propose, table(6)), table(5))), FEW, LINE[:1]),
    "a draft of other words (TLI)": (line(), TLIS, LINE),
    "a draft of other words (SLEM)": (
        line(lambda: SLEM(table(1), OTHERS, WORDS).propose), [(None, table(2))], LINE),
    "lenience 1": (line(verify=lenient(1)), None, LINE),
    "three children of five tokens": (trees(lambda K: (3,)), FIVE, TREE[:1]),
    "an uneven tree": (trees(lambda K: UNEVEN), None, TREE),
    "an uneven tree, with replacement": (trees(lambda K: UNEVEN, rule=SPECINFER), None, TREE),
    "an uneven tree of the surest": (trees(lambda K: UNEVEN, grow=surest), None, TREE),
    "a traversal of five tokens": (trees(lambda K: (3,), walk=traversal.walk), FIVE, TREE[:1]),
    "a traversal with replacement": (trees(rule=SPECINFER, walk=traversal.walk), None, TREE),
    "a traversal of chosen children": (
        trees(lambda K: UNEVEN, grow=surest, walk=traversal.walk), None, TREE),
    "K-SEQ of five tokens": (trees(rule=K_SEQ), FIVE, TREE[:1]),
    "greedy drafts of five tokens": (trees(lambda K: (3,), rule=GREEDY), FIVE, TREE[:1]),
    "a batch": (second_of_two(), None, LINE),
    "a batch that verifies blocks": (second_of_two(verify=block.verify), None, LINE),
    "a penalty": (penalized(), None, LINE),
    "a penalty in a tree": (penalized(sampler=trees()), None, TREE),
    "forbidden tokens": (line(), [(table(1), constrained(table(2), forbidden([1])))], LINE),
    "an automaton": (line(), [(constrained(table(1), FORK), constrained(table(2), FORK))], LINE),
    "brackets": (line(), [(table(1), constrained(table(2), brackets(0, 1, 2, 2, 2)))], LINE),
}


# Mistakes ---------------------------------------------------------------------------------------------------

def patched(sampler, module, name, mistake):
    """The sampler, with a function of the module replaced by a mistake during its runs."""
    def run(*run, **settings):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, name, mistake)
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


def drops_unlikely(draft, x, k, to_probs, rng):
    drafts, p = propose(draft, x, k, to_probs, rng)
    n = next((i for i, (token, row) in enumerate(zip(drafts, p)) if row[token] < .4), k)
    return drafts[:n], p[:n]


def drops_a_one(draft, x, k, to_probs, rng):
    drafts, p = propose(draft, x, k, to_probs, rng)
    n = len(drafts) - (drafts[-1:] == [1])
    return drafts[:n], p[:n]


def counts(draft, x, k, to_probs, rng):
    """Drafts what most often followed the last token, and gives the frequencies as p."""
    followed = np.bincount([b for a, b in zip(x, x[1:]) if a == x[-1]], minlength=draft(x).shape[-1])
    p = followed / max(followed.sum(), 1)
    return [int(p.argmax())][:k * p.any()], [p][:k * p.any()]


def unmapped(draft, x, k, to_probs, rng):
    """TLI, with the p over the draft's own ids instead of the target's."""
    p = to_probs(table(1)(OTHERS.encode(WORDS.decode(x)))) + 1e-9
    return [sample(to_probs(draft(x))[0], rng)][:k], (p / p.sum())[:k]


def reversed_p(pair):
    def proposes(*asked):
        drafts, p = pair.propose(*asked)
        return drafts, p[::-1]
    return pair._replace(propose=proposes)


def stale(lower, tokens):
    if len(lower.cached) < len(tokens):
        lower.forward(tokens, len(lower.cached))
    return lower.states[-1, :len(tokens)]


def rejected_to(draw_the_rest, select):
    """A rule that, if all drafts are rejected, draws from other weights: draw_the_rest(q, p)."""
    def mistaken(q, p, tokens, rng):
        i, token = select(q, p, tokens, rng)
        return (i, token) if i is not None else (None, sample(draw_the_rest(q, p), rng))
    return mistaken


def q_or_p(q, p):
    return np.maximum(q - p, 0) if (q > p).any() else q


def blocks(rest):
    """Block verification that draws its correction from rest(q, p) at the first draft that is not kept."""
    def mistaken(q, p, drafts, rng):
        n, token = block.verify(q, p, drafts, rng)
        return n, token if n == len(drafts) else sample(rest(q[n], p[n]), rng)
    return mistaken


def traverses(rest):
    def mistaken(q, p, nodes, parents, rule, rng):
        path, _ = traversal.walk(q, p, nodes, parents, rule, rng)
        return path, sample(rest(q, [-1, *path]), rng)
    return mistaken


def walks(change):
    """tree.walk with changed rows; change(q, p) returns the new (q, p)."""
    return lambda q, p, *rest: tree.walk(*change(q, p), *rest)


def as_many_as_the_first(sampler=second_of_two):
    """No sequence accepts more drafts than the sequence before it."""
    def run(*given, **settings):
        kept = [99]

        def mistaken(*judged):
            n, token = verify(*judged)
            kept.append(min(n, kept[-1]))
            return kept[-1], token
        return sampler(verify=mistaken)(*given, **settings)
    return run


def another_prompt(slots, texts, n_last, right=batch.Slots.__call__):
    first = texts[min(texts)][0]
    return right(slots, {i: [first, *text[1:]] for i, text in texts.items()}, n_last)


def all_drafts_for_all_rows(model, process):
    return lambda tokens, n_last=1: np.stack([process(tokens, row * 1.0) for row in model(tokens, n_last)])


right_rho, (GROWN, JUDGED), (AGAIN, JUDGED_AGAIN) = k_seq.division_factor, SEQUOIA, SPECINFER
SPOILED = {
    "an unlikely draft is dropped": line(lambda: drops_unlikely),
    "how many drafts depends on the drafts": line(lambda: Schedule(drops_a_one)),
    "counts are said to be what the likeliest was drawn from": line(lambda: counts),
    "block: the correction is drawn from the target": line(verify=blocks(lambda q, p: q)),
    "block: the residual of Algorithm 2": line(verify=blocks(q_or_p)),
    "block: one coin for all drafts": line(verify=with_one_coin(block.verify)),
    "tree: drawn without replacement, judged as if with": trees(rule=(GROWN, JUDGED_AGAIN)),
    "tree: drawn with replacement, judged as if without": trees(rule=(AGAIN, JUDGED)),
    "tree: chosen children count as drawn": trees(rule=(lambda p, n, rng: most(p, n), JUDGED)),
    "tree: equal children are judged once": trees(rule=(
        lambda *given: [*dict.fromkeys(AGAIN(*given))], JUDGED_AGAIN)),
    "tree: one coin for all children": trees(rule=(GROWN, with_one_coin(JUDGED))),
    "tree: the last draw is from q": trees(rule=(GROWN, rejected_to(lambda q, p: q, JUDGED))),
    "tree: the first child is accepted": trees(rule=(GROWN, lambda q, p, tokens, rng: (0, tokens[0]))),
    "tree: the q of the root": trees(walk=walks(lambda q, p: ([q[0]] * len(q), p))),
    "tree: the rows are one too late": trees(walk=walks(lambda q, p: ([q[0], *q], p))),
    "K-SEQ: rho is 1": patched(trees(rule=K_SEQ), k_seq, "division_factor", lambda q, p, k: 1.0),
    "K-SEQ: rho is too small": patched(
        trees(rule=K_SEQ), k_seq, "division_factor", lambda q, p, k: (1 + right_rho(q, p, k)) / 2),
    "K-SEQ: the last draw is from q": trees(rule=(K_SEQ[0], rejected_to(lambda q, p: q, K_SEQ[1]))),
    "K-SEQ: one coin for all drafts": trees(rule=(K_SEQ[0], with_one_coin(K_SEQ[1]))),
    "greedy drafts: the last counts as drawn from p": trees(rule=(
        GREEDY[0], lambda q, p, tokens, rng: JUDGED(q, p, tokens[-1:], rng))),
    "greedy drafts: the last draw is from q": trees(rule=(GREEDY[0], rejected_to(lambda q, p: q, GREEDY[1]))),
    "traversal: a rejected child may come again": trees(
        rule=SPECINFER, grow=lambda draft, x, shape, _, *rest: drawn(draft, x, shape, SEQUOIA, *rest),
        walk=traversal.walk),
    "traversal: the last draw is from the root's q": trees(walk=traverses(lambda q, path: q[0])),
    "traversal: one coin for all nodes": trees(walk=with_one_coin(traversal.walk)),
    "batch: all accept as many as the one before": as_many_as_the_first(),
    "batch: another's prompt": patched(second_of_two(), batch.Slots, "__call__", another_prompt),
    "penalty: never": penalized(lambda model, process: model),
    "penalty: all drafts count for all rows": penalized(all_drafts_for_all_rows),
    "penalty: the last token does not count": penalized(
        process=lambda tokens, logits: penalty(tokens[:-1], logits)),
}
OF_TREES = "tree", "K-SEQ", "greedy drafts", "traversal"
MISTAKES |= {name: (sampler, *(([FEW[0], *FIVE], SMALL) if name.startswith(OF_TREES) else (None, STANDARD)))
             for name, sampler in SPOILED.items()}
EAGLE, *OWN = entry("eagle", "token")
HALVES, *THEIRS = within(EarlyExit(layers(), 1))
MISTAKES |= {
    "an exit keeps the states of rejected drafts": (
        patched(HALVES, early_exit.Lower, "hidden", stale), *THEIRS),
    "TLI with the p of the draft's own ids": (line(lambda: unmapped), TLIS, STANDARD),
    "stages that keep every guess": (
        patched(line(staged), cascade, "verify", lambda rows, o, guesses, rng: (
            len(guesses), int(rows[-1].argmax()))), None, STANDARD),
    "EAGLE draws from p squared": (
        patched(EAGLE, eagle, "sample", lambda p, rng: sample(p ** 2, rng)), *OWN),
    "Medusa gives p in the other order": entry("medusa", "token", reversed_p),
}


# The tests --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", METHODS)
def test_the_text_has_the_targets_distribution(name):
    sampler, pairs, cases = METHODS[name]
    assert max(check(sampler, pairs or FEW, **case) for case in cases) < 1e-12


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_it_has_it_in_all_standard_cases(name):
    """The text has the target's distribution in all standard cases too."""
    sampler, pairs, _ = METHODS[name]
    assert check(sampler, pairs, n_tokens=pairs and (2 if pairs is FIVE else 3)) < 1e-12


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name):
    sampler, pairs, cases = MISTAKES[name]
    assert any(check(sampler, pairs, **case) > 1e-9 for case in cases)


@pytest.mark.long
@pytest.mark.parametrize("typed", [typed for typed in WALKED if " ".join(typed) not in METHODS], ids=" ".join)
def test_what_goes_together_is_what_the_table_says(typed):
    """A combination is lossless if, and only if, methods.py says so."""
    sampler, pairs, _ = entry(*typed)
    assert (check(sampler, pairs or FEW, [2], 3, temperature=.8) < 1e-9) == choose(*typed).lossless
