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
import sys
import types
from functools import partial
from pathlib import Path

import numpy as np

import sampling
import speculative
from drafters import adaptive, lookup
from lossless import CASES, judge
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
    "drafting by the last rounds": (
        adaptive, drafter(lambda file: file.Schedule(first=2)), mistakes.ADAPTIVE),
    "drafting by copies": (lookup, drafter(lambda file: file.propose), mistakes.LOOKUP),
    "filters": (sampling, filtered, mistakes.FILTERS),
    "settings and EOS": (speculative, loop, mistakes.SETTINGS_IN_THE_LOOP),
    "block": (block, rule, mistakes.BLOCK),
    "trees": (tree_rules, children("SEQUOIA"), mistakes.CHILDREN),
    "trees with replacement": (tree_rules, children("SPECINFER"), mistakes.WITH_REPLACEMENT),
    "trees, the walk": (tree, lambda file: tree_of(file.tree_sampling), mistakes.WALKS),
    "K-SEQ": (k_seq, lambda file: tree_of(rule=file.K_SEQ), mistakes.K_SEQS),
    "batches": (batch, second_of_two, mistakes.BATCHES),
}
UNUSUAL = {
    "accept test": (speculative, loop, unusual.COINS),
    "correction": (speculative, loop, unusual.CORRECTIONS),
    "drafting": (speculative, loop, unusual.DRAFTING),
    "block": (block, rule, {"block verification": []}),
    "trees": (tree_rules, children("SEQUOIA"), {"tree: without replacement": []}),
    "trees with replacement": (tree_rules, children("SPECINFER"), {"tree: with replacement": []}),
    "K-SEQ": (k_seq, lambda file: tree_of(rule=file.K_SEQ), {"K-SEQ": []}),
    "batches": (batch, second_of_two, unusual.BATCHES),
}


def made(rooms):
    """{what is changed: sampler}"""
    return {name: sampler_of(changed(module, *changes if isinstance(changes, list) else [changes]))
            for module, sampler_of, entries in rooms.values() for name, changes in entries.items()}


KIND = {name: kind for kind, (_, _, entries) in MISTAKES.items() for name in entries}
WRONG = made(MISTAKES) | {name: mistakes.with_settings(new) for name, new in mistakes.SETTINGS.items()}
RIGHT = made(UNUSUAL)


# The table --------------------------------------------------------------------------------------------------

TABLE = Path(__file__).with_suffix(".md")
STEPS = 10_000          # of a case: a mistake in a tree has shown by then


def deviation(sampler, case):
    """From the target's distribution; infinite if the loop itself refuses what a drafter gives."""
    try:
        return judge(sampler, *case, most=STEPS).deviation
    except ValueError as error:
        if "cannot come from" not in str(error):
            raise
        return np.inf


def seen(name):
    """(deviation, case) of each standard case that sees a mistake, the largest first.  A batch has two texts,
    so its branches are the square of one's: of its mistakes the cases of at most three tokens are asked."""
    cases = [case for case in CASES if case.n_tokens <= 3] if name.startswith("batch") else CASES
    found = [(deviation(WRONG[name], case), str(case)) for case in cases]
    return sorted((pair for pair in found if pair[0] > 1e-9), reverse=True)


def main():
    """Judges every mistake of the museum in every standard case, and writes museum.md (half an hour)."""
    lines = [TITLE]
    for name in WRONG:
        found = seen(name)
        lines.append(f"| {name} | {found[0][0]:.1e} | {len(found)} | {found[0][1]} |\n")
        print(lines[-1], end="", flush=True)
    TABLE.write_text("".join(lines), encoding="utf-8")


TITLE = f"""# The museum of mistakes

What `lossless.check` finds when a line or two are changed, as `mistakes.py` says: the largest deviation of
any text's probability in one of the {len(CASES)} standard cases (inf: the loop refuses what the drafter
gives), the number of cases that see it (for batches among those of at most three tokens), and the one that
sees it best.  Written by `python -m verdicts.museum`.

| what is changed | deviation | cases | best seen by |
|---|---|---|---|
"""

if __name__ == "__main__":
    import console
    sys.exit(console.run(main))
