"""Test vectors for engines in any language: writes vectors.json, whose format is in vectors.md.

    python -m verdicts.vectors

A *step* fixes everything: q, p, drafts and uniform numbers in their order -> what is kept and what follows.
A *distribution* fixes q and p: the exact probability of each thing that a round can give.

But: one round, of rows that do not depend on the drafts.
"""
import json
import sys
from functools import partial

import numpy as np

import console
from lossless import exact_distribution
from samplers import block, k_seq
from samplers.tree_rules import SEQUOIA
from sampling import point_masses, sample
from speculative import verify
from verdicts.cases import HERE

LINES = {"algorithm 2": verify, "block": block.verify, "point masses": verify}
NODES = {"k-seq": k_seq.K_SEQ, "sequoia": SEQUOIA}
STEPS, MARGIN = 8, 1e-4


class Listed:
    """In the generator's place: gives the numbers of a list."""
    def __init__(self, uniforms):
        self.uniforms = list(uniforms)

    def random(self):
        return self.uniforms.pop(0)


def row(rng, n_vocab, zeros):
    """A distribution in twentieths, so that every language reads the same number."""
    while True:
        weights = rng.multinomial(20, rng.dirichlet(np.ones(n_vocab)))
        if (weights == 0).any() == zeros and weights.max() < 18:
            return weights / 20


def on_a_line(rule, q, p, drafts, rng):
    q = np.array(q)
    p = point_masses(drafts, q.shape[1]) if rule == "point masses" else np.array(p)
    return LINES[rule](q, p, drafts, rng)


def at_a_node(rule, q, p, children, rng):
    index, token = NODES[rule][1](np.array(q), np.array(p), children, rng)
    return -1 if index is None else index, token


def step(rule, rng, k, n_vocab):
    """One vector.  Its uniforms are no nearer to a boundary than MARGIN: rounding does not matter."""
    line = rule in LINES
    judge = partial(on_a_line if line else at_a_node, rule)
    while True:
        q = [row(rng, n_vocab, False).tolist() for _ in range(k + 1)]
        p = [row(rng, n_vocab, bool(j % 2)).tolist() for j in range(k)]
        if line:
            drafts = [sample(np.array(one), rng) for one in p]
        else:
            q, p = q[0], p[0]
            drafts = NODES[rule][0](np.array(p), k, rng)
        uniforms = [float(f"{u:.3f}") for u in rng.uniform(.002, .998, size=k + 1)]
        found = {judge(q, p, drafts, Listed(np.array(uniforms) + shift)) for shift in (-MARGIN, 0, MARGIN)}
        if len(found) == 1:
            kept, token = found.pop()
            return dict(rule=rule, q=q, p=None if rule == "point masses" else p,
                        drafts=drafts, uniforms=uniforms, kept=int(kept), next=int(token))


def distribution(rule, rng, k, n_vocab):
    """Exact: {kept and tokens: probability} of a round whose drafts are drawn, or for point masses chosen."""
    made = step(rule, rng, k, n_vocab)
    q, p, chosen = made["q"], made["p"], made["drafts"]

    def run(walk):
        if rule in LINES:
            drafts = chosen if p is None else [sample(np.array(one), walk) for one in p]
            kept, token = on_a_line(rule, q, p, drafts, walk)
            return (kept, *drafts[:kept], token)
        children = NODES[rule][0](np.array(p), k, walk)
        return at_a_node(rule, q, p, children, walk)

    found = exact_distribution(run)
    outcomes = [[*map(int, outcome), float(f"{chance:.12g}")] for outcome, chance in sorted(found.items())]
    return dict(rule=rule, q=q, p=p, k=k, drafts=chosen if p is None else None, outcomes=outcomes)


def vectors():
    rng = np.random.default_rng(7)
    steps = [step(rule, rng, 1 + i % 3 + (rule in NODES), 3 + i % 2)
             for rule in (*LINES, *NODES) for i in range(STEPS)]
    distributions = [distribution(rule, rng, k, n_vocab) for rule in (*LINES, *NODES)
                     for k, n_vocab in ((1, 3), (2, 3), (2, 4))]
    return {"format": 1, "steps": steps, "distributions": distributions}


def text():
    """JSON with a vector a line."""
    made = vectors()
    lines = [f'"{part}": [\n' + ",\n".join(json.dumps(one) for one in made[part]) + "\n]"
             for part in ("steps", "distributions")]
    return "{\n" + ",\n".join(['"format": 1', *lines]) + "\n}\n"


def write():
    """Write vectors.json."""
    console.rewrite(HERE / "vectors.json", text())


if __name__ == "__main__":
    sys.exit(console.run(write))
