"""Test vectors for engines in any language: writes vectors.json, whose format and rules are in vectors.md.

    python -m lossless.verdicts.vectors

A *step* fixes q, p, the drafts and the uniform numbers in their order, and gives the result: `kept` and
`next`.  Most uniform numbers lie close to a *threshold*, where the result changes, so a rule that is a little
off fails.
A *distribution* fixes q and p, and gives the exact probability of each outcome of a round.

Limitations: one round; q and p do not depend on the drafts.
"""
import json
from itertools import chain, repeat
from types import SimpleNamespace

import numpy as np

from loading import files
from lossless import exact_distribution
from lossless.verdicts import HERE
from methods.samplers import block, k_seq
from methods.samplers.tree_rules import SEQUOIA
from sampling import point_masses, sample
from speculative import verify

LINES = {"algorithm 2": verify, "block": block.verify, "point masses": verify}
NODES = {"k-seq": k_seq.K_SEQ, "sequoia": SEQUOIA}
MARGIN, NEAR = 1e-4, .02            # distance from a threshold: MARGIN at least, below NEAR if possible


def listed(uniforms):
    """Stands in for the generator: returns these numbers, then zeros."""
    return SimpleNamespace(random=chain(uniforms, repeat(0.0)).__next__)


def row(rng, n_vocab):
    """A distribution in twentieths, often with zeros."""
    weights = rng.multinomial(20, rng.dirichlet(np.ones(n_vocab)))
    return (weights / 20).tolist() if weights.max() < 18 else row(rng, n_vocab)


def judge(rule, q, p, drafts, rng):
    """(kept, next), as vectors.md defines them."""
    q = np.array(q)
    p = point_masses(drafts, q.shape[1]) if p is None else np.array(p)
    kept, token = LINES[rule](q, p, drafts, rng) if rule in LINES else NODES[rule][1](q, p, drafts, rng)
    return -1 if kept is None else int(kept), int(token)


def vector(rule, q, p, drafts, uniforms):
    kept, token = judge(rule, q, p, drafts, listed(uniforms))
    return dict(rule=rule, q=q, p=p, drafts=drafts, uniforms=uniforms, kept=kept, next=token)


def step(rule, rng, k, n_vocab, wanted):
    """A vector in which `kept` is `wanted`.  For each uniform number 100 values are tried: it is the first
    that is nearer than NEAR to a threshold, or the first of all if none is.  No number used is nearer than
    MARGIN."""
    while True:
        q, p = [row(rng, n_vocab) for _ in range(k + 1)], [row(rng, n_vocab) for _ in range(k)]
        drafts = [sample(np.array(one), rng) for one in p]
        if rule in NODES:
            q, p = q[0], p[0]
            drafts = NODES[rule][0](np.array(p), k, rng)
        given, uniforms, near = (rule, q, None if rule == "point masses" else p, drafts), [], 0
        for tries in rng.uniform(NEAR, 1 - NEAR, size=(k + 1, 100)).round(3).tolist():
            close = [u for u in tries if varies(given, [*uniforms, u], NEAR)]
            uniforms, near = [*uniforms, (close + tries)[0]], near + bool(close)
        if near > (rule in LINES or wanted < 0) and not varies(given, uniforms, MARGIN):
            if (found := vector(*given, uniforms))["kept"] == wanted:
                return found


def varies(given, uniforms, shift):
    """Whether the result changes if one number moves by `shift`, up or down.  The number is the last one if
    `shift` is NEAR, else any."""
    shifts = shift * np.eye(len(uniforms))[-1 if shift == NEAR else 0:]
    moved = [np.minimum(uniforms + sign * one, .9999) for one in shifts for sign in (-1, 1)]     # below 1
    return len({judge(*given, listed(numbers)) for numbers in moved}) > 1


def distribution(rule, rng, k, n_vocab):
    """A vector with the exact probability of each outcome of a round."""
    q, p, chosen = (step(rule, rng, k, n_vocab, 0)[name] for name in ("q", "p", "drafts"))
    chosen = chosen if p is None else None
    return dict(rule=rule, q=q, p=p, k=k, drafts=chosen, outcomes=outcomes(rule, q, p, k, chosen))


def outcomes(rule, q, p, k, chosen):
    """[[kept, tokens.., probability], ..]; `chosen` are the drafts of point masses."""
    def run(walk):
        if rule in NODES:
            return judge(rule, q, p, NODES[rule][0](np.array(p), k, walk), walk)
        drafts = chosen if p is None else [sample(np.array(one), walk) for one in p]
        kept, token = judge(rule, q, p, drafts, walk)
        return (kept, *drafts[:kept], token)

    found = sorted(exact_distribution(run).items())
    return [[*map(int, outcome), float(f"{chance:.12g}")] for outcome, chance in found]


def text():
    """JSON with one vector per line."""
    rng, vectors = np.random.default_rng(7), {"steps": [], "distributions": []}
    for rule in (*LINES, *NODES):
        node, q, p = rule in NODES, [[0, .6, .4], [.2, .5, .3]], [[.5, .3, .2]]
        q, p = (q[0], p[0]) if node else (q, p)
        vectors["steps"] += [step(rule, rng, k, 3 + i % 2, i % (k + 1) - node) for k in (1 + node, 2, 3)
                          for i in range(4)]
        vectors["steps"].append(                        # the target rules the draft out, and u is 0
            vector(rule, q, None if rule == "point masses" else p, [0], [0.0, .5]))
        vectors["distributions"] += [distribution(rule, rng, k, n) for k, n in ((1, 3), (2, 3), (2, 4))]
    parts = [f'"{part}": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]" for part, rows in vectors.items()]
    return "{\n" + ",\n".join(['"format": 2', *parts]) + "\n}\n"


if __name__ == "__main__":
    files.rewrite(HERE / "vectors.json", text())
