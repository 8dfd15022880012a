"""Writes questions.md: the two questions that are not about the rule, with numbers of this machine.

    python -m verdicts.questions        its prose is in questions.in.md

But: the pair of logits parts with the BLAS that is named there, perhaps not with another.
"""
import sys

import numpy as np

import console
from compute.linear import lay_out, linear
from reporting.stats import acceptance, is_tree
from samplers.tree import tree_sampling
from speculative import speculative_sampling
from utils import load_model
from verdicts.cases import HERE, results, store
from verdicts.pair import PROMPTS

N_IN, ROWS = 768, 5


# Why greedy texts differ ------------------------------------------------------------------------------------

def near_tie(seed):
    """x [ROWS, N_IN], w [N_IN, 64]: for the first row of x the logits 0 and 1 are as good as equal."""
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal(shape, np.float32) for shape in ((ROWS, N_IN), (N_IN, 64)))
    w *= np.float32(.05)
    a, b = x[0].astype(float) @ w[:, :2].astype(float)
    j = np.abs(x[0]).argmax()
    w[j, 1] += (a - b) / x[0, j]
    return x, w


def logits(x, w):
    """The first row's two logits: alone and with four others, by the BLAS and by compute.linear."""
    tiles, nothing = lay_out(w), np.zeros(w.shape[1], np.float32)
    return {"alone": (x[:1] @ w)[0, :2], "of five": (x @ w)[0, :2],
            "linear, alone": linear(x[:1], tiles, nothing)[0, :2],
            "linear, of five": linear(x, tiles, nothing)[0, :2]}


def parting():
    """The first near-tie that parts on this machine, with bits.  ValueError if a thousand do not."""
    for seed in range(1000):
        x, w = near_tie(seed)
        found = logits(x, w)
        if found["alone"].argmax() != found["of five"].argmax():
            blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
            exact = x[0].astype(float) @ w[:, :2].astype(float)
            return {"seed": seed, "blas": f"{blas['name']} {blas['version']}", "exact": exact.tolist(),
                    "logits": {name: [bits(value) for value in pair] for name, pair in found.items()}}
    raise ValueError("no near-tie parts on this machine, whose BLAS keeps bits: measure on another")


def bits(number):
    return [f"{number:.9g}", f"0x{np.float32(number).view(np.uint32):08x}"]


# What "acceptance" means ------------------------------------------------------------------------------------

def told(rounds, K):
    """One run in all the definitions: {word: number}.  `rounds` are sampling.Round's.

    >>> from sampling import Round
    >>> two = [Round([5, 6, 7], [5, 6], 2, [], []), Round([9], [5, 6], 0, [], [])]
    >>> words = told([r._replace(target_probs=[[1] * 9] * 3, draft_probs=[[1] * 9] * 2) for r in two], 2)
    >>> words["accepted over drafted"], words["tokens a pass"], words["per position"], words["tested"]
    (0.5, 2.0, [0.5, 0.5], 3)
    """
    accepted, tested = acceptance(rounds)
    passes, drafted = len(rounds), sum(len(r.drafts) for r in rounds)
    reached = [sum(r.n_accepted >= i for r in rounds) for i in range(K + 1)]       # passes with >= i accepted
    words = {"passes": passes, "drafted": drafted, "accepted": accepted, "tested": tested,
             "accepted over tested": accepted / tested, "accepted over drafted": accepted / drafted,
             "accepted a pass": accepted / passes,
             "tokens a pass": sum(len(r.tokens) for r in rounds) / passes,
             "per position": [n / passes for n in reached[1:]],
             "per position, given those before": [b / a if a else 0. for a, b in zip(reached, reached[1:])]}
    words["tokens over K + 1"] = words["tokens a pass"] / (K + 1)
    if not any(map(is_tree, rounds)):
        words["mean of min(1, q / p)"] = float(np.mean([
            min(1, r.target_probs[j][x] / r.draft_probs[j][x])
            for r in rounds if len(r.draft_probs) for j, x in enumerate(r.drafts[:r.n_accepted + 1])]))
    return words


def runs(K=4, n_tokens=200):
    """A line and a tree on the embedded pair: the first prompt, temperature 1, whole rounds only."""
    draft, encoder = load_model("demo-draft")
    target, _ = load_model("demo-target")
    prompt = encoder.encode(PROMPTS.read_text(encoding="utf-8").splitlines()[0])
    line = speculative_sampling(draft, target, prompt, n_tokens, K, np.random.default_rng(0))
    tree = tree_sampling(draft, target, prompt, n_tokens, (2, 2), np.random.default_rng(0))
    return {"line": told([r for r in line if len(r.drafts) == K], K),
            "tree": told([r for r in tree if len(r.drafts) > 2], 2)}


# The page ---------------------------------------------------------------------------------------------------

def page():
    stored = results()["questions"]
    parted, line, tree = stored["parting"], stored["line"], stored["tree"]
    rows = "\n".join(f"| {name} | {a[0]} | {b[0]} | {'first' if float(a[0]) > float(b[0]) else 'second'} | "
                     f"`{a[1]}`, `{b[1]}` |" for name, (a, b) in parted["logits"].items())
    shown = {f"{kind} {word}": ", ".join(f"{x:.3f}" for x in number) if isinstance(number, list) else
             f"{number:.3f}" if isinstance(number, float) else str(number)
             for kind, words in (("line", line), ("tree", tree)) for word, number in words.items()}
    shown |= {"rows": rows, "blas": parted["blas"], "seed": parted["seed"],
              "exact": " and ".join(f"{x:.9f}" for x in parted["exact"])}
    return (HERE / "questions.in.md").read_text(encoding="utf-8").format_map(shown)


def write():
    """Measure anew; write results.json and questions.md."""
    store(questions={"parting": parting(), **runs()})
    console.rewrite(HERE / "questions.md", page())


if __name__ == "__main__":
    sys.exit(console.run(write))
