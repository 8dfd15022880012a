"""A museum of mistakes: samplers that are wrong, and some that look wrong and are right.

    WRONG, RIGHT        {what is changed: sampler}, as lossless.report takes one
    MISTAKES, UNUSUAL   the same as data: {kind: (module, module -> sampler, {what is changed: the changes})}
    python -m verdicts.museum       judges them all and writes museum.md (half an hour); with a name, that one

Each is speculative.py (or block.py, a tree's rule, ..) with a line or two changed, as somebody could write
them: read a change beside the file that it changes.  The judge must find every mistake and let the others
pass; that is its own test, and the notebooks and exercises show some of them.  Some are what a public thread
is about: rules.py says which.

But: mistakes of caches and passes are beside the tests of those (a wrong cache makes another model), and
those of a race beside the tests of coupling (the judge cannot walk it).
"""
import functools
import inspect
import re
import sys
import types
from difflib import unified_diff
from functools import partial
from pathlib import Path

import numpy as np

import console
import sampling
import speculative
from drafters import adaptive, lookup
from lossless import CASES, judge
from samplers import batch, block, constraints, k_seq, multi_draft, traversal, tree, tree_rules
from speculative import speculative_sampling
from verdicts import mistakes, unusual


def changed(module, *changes):
    """The module with each (old, new) of its source replaced.  ValueError unless `old` is there exactly once.
    """
    copy = types.ModuleType(module.__name__)
    copy.probabilities = sampling.probabilities
    exec(compile(changed_source(module, changes), f"{module.__name__}.py, changed", "exec"), copy.__dict__)
    return copy


def changed_source(module, changes):
    source = inspect.getsource(module)
    for old, new in changes:
        if source.count(old) != 1:
            raise ValueError(f"{module.__name__} holds {old!r} {source.count(old)} times: adapt the change")
        source = source.replace(old, new)
    return source


def difference(module, changes):
    """The lines that differ, without their comments: "-" is before what was there, "+" before what is new."""
    files = inspect.getsource(module).splitlines(), changed_source(module, changes).splitlines()
    shown = [re.sub("  +#.*", "", line) for line in unified_diff(*files, n=0, lineterm="")
             if line[0] in "+-" and line[1:3] not in ("++", "--")]
    return "\n".join([f"{module.__name__.replace('.', '/')}.py:", *shown])


# A sampler of a module --------------------------------------------------------------------------------------

def loop(module, **how):
    return partial(module.speculative_sampling, **how)


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


def tree_of(sampling=tree.tree_sampling, widths=widths, **how):
    """`widths`: K -> the shape of the tree."""
    def sampler(draft, target, tokens, n_tokens, K, rng, **settings):
        return sampling(draft, target, tokens, n_tokens, widths(K), rng, **how, **settings)
    return sampler


def children(name):
    """The rule `name` of the module at each node; SpecInfer's children are grown by its own `drawn`."""
    return lambda module, **how: tree_of(rule=getattr(module, name), grow=module.drawn, **how)


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


def penalty(tokens, logits, size=2.0):
    """Each token of the text so far loses `size`."""
    logits[[token for token in {*tokens} if token < len(logits)]] -= size
    return logits


def with_penalty(module):
    """The target is a model with a penalty, which is taken from it here and put back by the module."""
    def sampler(draft, target, *run, **settings):
        plain = constraints.constrained(target, partial(penalty, size=-2.0))
        return speculative_sampling(draft, module.constrained(plain, penalty), *run, **settings)
    return sampler


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
    "trees, the walk": (
        tree, lambda file, **how: tree_of(file.tree_sampling, **how), mistakes.WALKS),
    "K-SEQ": (k_seq, lambda file: tree_of(rule=file.K_SEQ), mistakes.K_SEQS),
    "greedy drafts": (multi_draft, lambda file: tree_of(rule=file.GREEDY), mistakes.GREEDY),
    "traversal": (traversal, lambda file: tree_of(walk=file.walk), mistakes.TRAVERSAL),
    "constraints": (constraints, with_penalty, mistakes.CONSTRAINTS),
    "batches": (batch, second_of_two, mistakes.BATCHES),
    "settings": (speculative, loop, mistakes.SETTINGS),
}
UNUSUAL = {
    "accept test": (speculative, loop, unusual.ACCEPT),
    "correction": (speculative, loop, unusual.CORRECTIONS),
    "drafting": (speculative, loop, unusual.DRAFTING),
    "block": (block, rule, {"block verification": []}),
    "trees": (tree_rules, children("SEQUOIA"), unusual.CHILDREN),
    "trees with replacement": (tree_rules, children("SPECINFER"), {"tree: with replacement": []}),
    "K-SEQ": (k_seq, lambda file: tree_of(rule=file.K_SEQ), {"K-SEQ": []}),
    "greedy drafts": (multi_draft, lambda file: tree_of(rule=file.GREEDY), {"greedy drafts": []}),
    "traversal": (traversal, lambda file: tree_of(walk=file.walk), {"traversal": []}),
    "constraints": (constraints, with_penalty, {"penalty": []}),
    "batches": (batch, second_of_two, unusual.BATCHES),
}


def made(kinds):
    """{what is changed: sampler}"""
    return {name: when_first_run(module, sampler_of, changes)
            for module, sampler_of, entries in kinds.values() for name, changes in entries.items()}


def when_first_run(module, sampler_of, changes):
    make = functools.cache(lambda: sampler_of(changed(module, *changes)))
    return lambda *run, **settings: make()(*run, **settings)


KIND = {name: kind for kind, (_, _, entries) in MISTAKES.items() for name in entries}
WRONG, RIGHT = made(MISTAKES), made(UNUSUAL)
CHANGES = {name: (module, sampler_of, changes) for kinds in (MISTAKES, UNUSUAL)
           for module, sampler_of, entries in kinds.values() for name, changes in entries.items()}


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


def rows():
    """{name: its row} of museum.md."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return {line.split(" | ")[0][2:]: line for line in lines if line.startswith("| ")}


def main(name=""):
    """Judges the mistakes of the museum in every standard case, and writes museum.md (half an hour).

    Args:
        name: of one mistake, whose row alone is written anew
    """
    if name and name not in WRONG:
        raise ValueError(f"there is no mistake {name!r} in the museum: museum.md has their names")
    new = {}
    for one in [name] if name else WRONG:
        found = seen(one)
        new[one] = f"| {one} | {found[0][0]:.1e} | {len(found)} | {found[0][1]} |"
        print(new[one], flush=True)
    old = rows() | new if name else new
    console.rewrite(TABLE, TITLE + "\n".join(old[one] for one in WRONG if one in old) + "\n")


TITLE = f"""# The museum of mistakes

What `lossless.check` finds when a line or two are changed, as `mistakes.py` says: the largest deviation of
any text's probability in one of the {len(CASES)} standard cases (inf: the loop refuses what the drafter
gives), the number of cases that see it (for batches among those of at most three tokens), and the one that
sees it best.  Written by `python -m verdicts.museum`.

| what is changed | deviation | cases | best seen by |
|---|---|---|---|
"""

if __name__ == "__main__":
    sys.exit(console.run(main))
