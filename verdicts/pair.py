"""What "slow" costs on real models: how often a draft is kept, exactly, by each lossless rule.

    python -m verdicts.pair         the embedded pair, at every token of texts that the target writes itself

Given q and p each is a sum over the vocabulary, so nothing is sampled but the prefixes.  The result goes to
results.json; python -m verdicts.page shows it.

But: one draft, or two siblings, after a prefix of the target's text; not a whole round.
"""
import sys
from pathlib import Path

import numpy as np

import console
from autoregressive import autoregressive_sampling
from sampling import probabilities
from utils import load_model
from verdicts.cases import store

PROMPTS = Path(__file__).parents[1] / "benchmarks" / "prompts.txt"


def drawn_siblings(q, p):
    """Two children drawn without replacement: the second is a draft for the residual, and has p without the
    first.  After a refusal of x the residual is the same for every x, and zero at x itself."""
    residual = np.maximum(q - p, 0)
    if not residual.any():
        return 1.0
    residual /= residual.sum()
    refused = np.maximum(p - q, 0)                              # that x is drawn, and refused
    drawn = p > 0
    order = np.argsort(residual[drawn] / p[drawn])
    r, w = residual[drawn][order], p[drawn][order]              # [n_drawn], r / w rises
    below, above = np.append(0, np.cumsum(r)), np.append(np.cumsum(w[::-1])[::-1], 0)
    c = 1 / np.maximum(1 - p, 1e-300)                           # p without x is c p
    place = np.searchsorted(r / w, c)                           # min(r, c w) is r up to here, then c w
    return np.minimum(p, q).sum() + (refused * (below[place] + c * above[place])).sum()


KEPT = {    # rule: (q, p) -> how often the draft is kept; of two siblings how often one of them
    "Algorithm 2": lambda q, p: np.minimum(p, q).sum(),
    "match": lambda q, p: p @ q,
    "drawn, as point masses": lambda q, p: p @ q,
    "argmax as point masses": lambda q, p: q[p.argmax()],
    "match, argmax": lambda q, p: q[p.argmax()],
    "tree drawn without replacement": drawn_siblings,
    "tree of top tokens, p = 1": lambda q, p: q[np.argsort(-p, kind="stable")[:2]].sum(),
}


def measure(*, n_tokens: int = 60, temperature: float = 1.0, seed: int = 0):
    """How often the rules keep a draft of the embedded pair.

    Args:
        n_tokens: after each of the eight prompts
        temperature: of both models
        seed: of the texts
    """
    draft, encoder = load_model("demo-draft")
    target, _ = load_model("demo-target")
    kept = []
    for prompt in PROMPTS.read_text(encoding="utf-8").splitlines():
        x, rng = encoder.encode(prompt), np.random.default_rng(seed)
        for step in autoregressive_sampling(target, list(x), n_tokens, rng, temperature=temperature):
            q, p = (probabilities(model(x)[-1], temperature) for model in (target, draft))
            kept.append([rule(q, p) for rule in KEPT.values()])
            x += step.tokens
    mean, error = np.mean(kept, axis=0), np.std(kept, axis=0, ddof=1) / len(kept) ** .5
    found = {name: [float(f"{a:.4f}"), float(f"{b:.4f}")] for name, a, b in zip(KEPT, mean, error)}
    for name, (a, b) in found.items():
        print(f"{name:32} {a:.3f} ± {b:.3f}")
    store(pair={"prefixes": len(kept), "temperature": temperature, "kept": found})


if __name__ == "__main__":
    sys.exit(console.run(measure))
