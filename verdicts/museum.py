"""A museum of mistakes: samplers that are wrong, and some that look wrong and are right.

    WRONG, RIGHT        {what is changed: sampler}, as lossless.report takes one
    MISTAKES, UNUSUAL   the same as data: {kind: (module, {what is changed: the changes})}
    python -m verdicts.museum       judges them all and writes museum.md (half an hour)

Each is speculative.py (or block.py, a tree's rule, ..) with a line or two changed, as somebody could write
them: read a change beside the file that it changes.  The judge must find every mistake and let the others
pass; that is its own test, and the notebooks and exercises show some of them.

But: mistakes of caches and passes are beside the tests of those (a wrong cache makes another model).
"""
import inspect
import types
from functools import partial

import numpy as np

import sampling
import speculative
from drafters import adaptive, lookup
from samplers import batch, block, k_seq, tree, tree_rules
from speculative import speculative_sampling
from verdicts import mistakes, unusual


def changed(module, *changes):
    """The module with each (old, new) of its source replaced.  ValueError unless `old` is there exactly once.
    """
    source = inspect.getsource(module)
    for old, new in changes:
        if source.count(old) != 1:
            raise ValueError(f"{module.__name__} holds {old!r} {source.count(old)} times: adapt the change")
        source = source.replace(old, new)
    copy = types.ModuleType(module.__name__)
    exec(compile(source, f"{module.__name__}.py, changed", "exec"), copy.__dict__)
    return copy


# A sampler of a module --------------------------------------------------------------------------------------

def loop(module):
    return module.speculative_sampling


def rule(module):
    return partial(speculative_sampling, verify=module.verify)


def drafter(make):
    """Of a drafter: made anew for each run, for it may have a memory."""
    def of(module):
        return lambda *run, **settings: speculative_sampling(*run, propose=make(module), **settings)
    return of


def widths(K):
    """The children of a tree's nodes, by level."""
    return {1: (3,), 2: (2, 1)}.get(K, (2, *[1] * (K - 1)))


def tree_of(sampling=tree.tree_sampling, **how):
    def sampler(draft, target, tokens, n_tokens, K, rng, **settings):
        return sampling(draft, target, tokens, n_tokens, widths(K), rng, **how, **settings)
    return sampler


def children(name):
    """The rule `name` of the module at each node; SpecInfer's children are grown by its own `drawn`."""
    return lambda module: tree_of(rule=getattr(module, name), grow=getattr(module, "drawn", None))


def second_of_two(module):
    """The second of two sequences; the first has chance of its own."""
    def sampler(draft, target, tokens, n_tokens, K, rng, **settings):
        rngs = [np.random.default_rng(0), rng]
        rounds = module.batch_sampling(draft, target, [[1], tokens], n_tokens, K, rngs, **settings)
        return (both[1] for both in rounds if both[1])
    return sampler


def filtered(module):
    """speculative.py with the changed sampling.py."""
    copy = changed(speculative)
    copy.prepare = module.prepare
    return copy.speculative_sampling


MISTAKES = {            # kind: (module, module -> sampler, {what is changed: the changes})
    "accept test": (speculative, loop, mistakes.ACCEPT),
    "positions": (speculative, loop, mistakes.POSITIONS),
    "correction": (speculative, loop, mistakes.CORRECTIONS),
    "rounds": (speculative, loop, mistakes.ROUNDS),
    "drafting": (speculative, loop, mistakes.DRAFTING),
    "drafting by the last rounds": (adaptive, drafter(lambda module: module.Schedule(first=2)), mistakes.ADAPTIVE),
    "drafting by copies": (lookup, drafter(lambda module: module.propose), mistakes.LOOKUP),
    "settings and EOS": (speculative, loop, mistakes.SETTINGS_IN_THE_LOOP),
    "filters": (sampling, filtered, mistakes.FILTERS),
    "block": (block, rule, mistakes.BLOCK),
    "trees": (tree_rules, children("SEQUOIA"), mistakes.CHILDREN),
    "trees with replacement": (tree_rules, children("SPECINFER"), mistakes.WITH_REPLACEMENT),
    "trees, the walk": (tree, lambda module: tree_of(module.tree_sampling), mistakes.WALKS),
    "K-SEQ": (k_seq, lambda module: tree_of(rule=module.K_SEQ), mistakes.K_SEQS),
    "batches": (batch, second_of_two, mistakes.BATCHES),
}
UNUSUAL = {
    "accept test": (speculative, loop, unusual.COINS),
    "correction": (speculative, loop, unusual.CORRECTIONS),
    "drafting": (speculative, loop, unusual.DRAFTING),
    "block": (block, rule, {"block verification": []}),
    "trees": (tree_rules, children("SEQUOIA"), {"tree: without replacement": []}),
    "trees with replacement": (tree_rules, children("SPECINFER"), {"tree: with replacement": []}),
    "K-SEQ": (k_seq, lambda module: tree_of(rule=module.K_SEQ), {"K-SEQ": []}),
    "batches": (batch, second_of_two, unusual.BATCHES),
}


def made(rooms):
    """{what is changed: its kind}, {what is changed: sampler}."""
    kinds, samplers = {}, {}
    for kind, (module, sampler_of, entries) in rooms.items():
        for name, changes in entries.items():
            kinds[name] = kind
            samplers[name] = sampler_of(changed(module, *changes if isinstance(changes, list) else [changes]))
    return kinds, samplers


KIND, WRONG = made(MISTAKES)
WRONG |= {name: mistakes.with_settings(change) for name, change in mistakes.SETTINGS.items()}
_, RIGHT = made(UNUSUAL)
