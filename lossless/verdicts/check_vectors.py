"""Tests an accept rule with vectors.json: put yours in place of `verify`.

    python check_vectors.py
"""
import json
import random
from collections import Counter
from itertools import accumulate, chain, repeat
from pathlib import Path

RULES, ROUNDS = ("algorithm 2", "point masses"), 10_000


def draw(weights, u):
    return next(token for token, above in enumerate(accumulate(weights)) if above > u * sum(weights))


def verify(Q, P, drafts, uniform):
    """Algorithm 2.  Returns (how many drafts are accepted, the next token)."""
    for j, x in enumerate(drafts):
        if not uniform() * P[j][x] < Q[j][x]:
            return j, draw([max(0, a - b) for a, b in zip(Q[j], P[j])], uniform())
    return len(drafts), draw(Q[len(drafts)], uniform())


def rows_of_p(vector, drafts):
    """The vector's p, or point masses: 1 at each draft and 0 elsewhere."""
    return vector["p"] or [[float(token == x) for token in range(len(vector["q"][0]))] for x in drafts]


def check(verify, vectors):
    """Yields a sentence for each vector that fails."""
    for i, v in enumerate(vectors["steps"]):
        if v["rule"] in RULES:
            uniform = chain(v["uniforms"], repeat(0.0)).__next__
            found = verify(v["q"], rows_of_p(v, v["drafts"]), v["drafts"], uniform)
            if tuple(found) != (v["kept"], v["next"]):
                yield f"step {i}: {found}, and should be {v['kept'], v['next']}"
    for i, v in enumerate(vectors["distributions"]):
        if v["rule"] in RULES:
            counts, expected = Counter(), {tuple(o[:-1]): o[-1] * ROUNDS for o in v["outcomes"]}
            for _ in range(ROUNDS):
                drafts = v["drafts"] or [draw(row, random.random()) for row in v["p"]]
                n_accepted, token = verify(v["q"], rows_of_p(v, drafts), drafts, random.random)
                counts[(n_accepted, *drafts[:n_accepted], token)] += 1
            impossible = counts.keys() - expected.keys()
            chi, n = sum((counts[o] - e) ** 2 / e for o, e in expected.items()), len(expected) - 1
            if impossible or chi > n + 3.8 * (2 * n) ** .5 + 10:        # false alarm: under 1 in 10,000
                yield f"distribution {i}: chi-square {chi:.0f} of {n}, impossible: {sorted(impossible)}"


if __name__ == "__main__":
    found = [*check(verify, json.loads((Path(__file__).parent / "vectors.json").read_text()))]
    print(*found or ["all pass"], sep="\n")
