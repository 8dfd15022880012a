"""A draft and a target: what speculation gains, and what explains it.

    load_pair("demo-draft:demo-target", ..)     models and prompts
    generate(sampler, models, prompts)          one timed run over all prompts
    compare(name, Ks, temperature, ..)          a row for each K, the baseline and all K interleaved

Every round is cut in three: drafting, the target's pass, and settling: from the target's logits to the new
tokens, that is, distributions and draws.  "predicted" is theorem 3.8 of Leviathan et al. with the run's own
acceptance rate, c and v.  "explained" counts all that was done, the prompt's own pass, drafting, passes and
settling, each at the median of its size; "shares" says how much of the time each of the four took.

But: at full size the pairs are random weights (synthetic.py), whose acceptance says nothing about a real
pair.
"""
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from autoregressive import autoregressive_sampling
from benchmarks.measure import resident, size_of
from benchmarks.synthetic import synthetic_pair
from compute.backend import clock
from console import read_text
from reporting.stats import Timed, acceptance, predicted_speedup, ratio
from speculative import speculative_sampling
from utils import load_model

PARTS = "prompt", "drafting", "pass", "settling"
PROMPTS = Path(__file__).resolve().parent / "prompts.txt"


def load_pair(name, models_dir="models", prompts=""):
    """(draft, target, prompts as tokens) of "124M:1558M", or of "synthetic:355M:2:0.1", a synthetic_pair."""
    if name.count(":") != (3 if name.startswith("synthetic:") else 1):
        raise ValueError(f"{name!r} is no pair: write draft:target, or synthetic:SIZE:LAYERS:DIAL")
    if name.startswith("synthetic:"):
        _, size, n_first, dial = name.split(":")
        draft, target = synthetic_pair(size, int(n_first), float(dial))
        prompts = np.random.default_rng(0).integers(target.n_vocab, size=(2, 16))
        return draft, target, prompts.tolist()
    draft, target = name.split(":")
    target, encoder = load_model(target, models_dir)
    lines = read_text(prompts or PROMPTS, "name a file with a prompt a line").splitlines()
    return load_model(draft, models_dir)[0], target, [encoder.encode(line) for line in lines if line]


# One run, with a clock at each of its parts ----------------------------------------------------------------

class Run(NamedTuple):
    """What a run over all prompts left behind."""
    seconds: float
    texts: list         # the rounds of each prompt, without distributions: keeping those slows it down
    calls: list         # of each model, those with a prompt left out: [(n_last, seconds), ...]
    parts: list         # [(name, size, seconds), ...], nearly all seconds; the names are PARTS

    @property
    def rounds(self):
        return [r for rounds in self.texts for r in rounds]


class Watched(Timed):
    """A model that knows when its last call began and ended; `tree` (samplers/tree.py) is a call, too."""

    def timed(self, call, *arguments):
        self.began = clock()
        logits = super().timed(call, *arguments)
        self.ended = clock()
        return logits


def generate(sampler, models, prompts):
    """All prompts, from empty caches.  sampler(*models, tokens, rng) -> rounds; the target comes last."""
    total, texts, calls, parts = 0.0, [], [[] for _ in models], []
    for seed, tokens in enumerate(prompts):
        for model in models:
            model.reset()
        watched = [Watched(model) for model in models]
        begin = clock()
        rounds = sampler(*watched, tokens, np.random.default_rng(seed))
        texts.append(list(noted(rounds, watched[-1], len(tokens), parts)))
        total += clock() - begin
        for mine, model in zip(calls, watched):
            mine += model.calls[1:]
    return Run(total, texts, calls, parts)


def noted(rounds, target, n_prompt, parts):
    """Pass the rounds on without their distributions; note the parts into which the target's call cuts each.

    The first round's calls run the prompt, too: they are a part of their own.
    """
    begin, first = clock(), True
    for r in rounds:
        end, k = clock(), len(r.drafts)
        if first:
            parts.append(("prompt", (n_prompt, k), target.ended - begin))
        else:
            parts += [("drafting", k, target.began - begin), ("pass", k, target.ended - target.began)]
        parts.append(("settling", k, end - target.ended))
        first = False
        yield r._replace(target_probs=None, draft_probs=None)
        begin = clock()


def text_of(rounds):
    return [token for r in rounds for token in r.tokens]


def call_seconds(runs, which, n_last):
    """Median seconds of one model's calls for n_last rows in several runs; None where there was none."""
    times = [seconds for run in runs for n, seconds in run.calls[which] if n == n_last]
    return median(times) if times else None


def typical(runs, name):
    """Mean seconds of the parts of this name, each at the median of its size.

    >>> parts = [("pass", 4, 2.0), ("pass", 4, 7.0), ("pass", 4, 3.0), ("pass", 1, 1.0), ("drafting", 4, 1.0)]
    >>> typical([Run(9, [], [], parts)], "pass")
    2.5
    """
    sizes = defaultdict(list)
    for run in runs:
        for part, size, seconds in run.parts:
            if part == name:
                sizes[size].append(seconds)
    n_parts = sum(map(len, sizes.values()))
    return sum(len(times) * median(times) for times in sizes.values()) / n_parts if n_parts else 0.0


def explained_seconds(runs):
    """{name: seconds} of one run, if each of its parts took the median of its size."""
    counts = Counter(name for name, _, _ in runs[0].parts)      # repetitions share seeds, hence parts
    return {name: n * typical(runs, name) for name, n in counts.items()}


# Tables -----------------------------------------------------------------------------------------------------

def by_position(rounds, K):
    """Acceptance rate of the first, second, .. draft of a round, among those that were tested.

    >>> from sampling import Round
    >>> by_position([Round([5, 6, 7], [5, 6], 2, [], []), Round([5, 8], [5, 9], 1, [], [])], 3)
    [1.0, 0.5, None]
    """
    accepted = [sum(r.n_accepted > j for r in rounds) for j in range(K)]
    rejected = [sum(r.n_accepted == j < len(r.drafts) and len(r.tokens) > j for r in rounds)
                for j in range(K)]
    return [ratio(a, a + b) for a, b in zip(accepted, rejected)]


def alone(n_tokens, temperature):
    """A sampler for `generate`: the baseline."""
    return lambda target, tokens, rng: autoregressive_sampling(target, tokens, n_tokens, rng,
                                                               temperature=temperature)


def speculative(K, n_tokens, temperature):
    """A sampler for `generate`: Algorithm 2."""
    return lambda draft, target, tokens, rng: speculative_sampling(draft, target, tokens, n_tokens, K, rng,
                                                                   temperature=temperature)


def compare(name, Ks, temperature, n_tokens, settings):
    """One pair at one temperature: a row for each K, the baseline and all K interleaved."""
    draft, target, prompts = load_pair(name, settings.models_dir, settings.prompts)
    baseline, pairs = [], [[] for _ in Ks]
    for n in [2 + max(Ks)] + [n_tokens] * settings.repetitions:                 # the first is the warm-up
        baseline.append(generate(alone(n, temperature), [target], prompts))
        for K, runs in zip(Ks, pairs):
            runs.append(generate(speculative(K, n, temperature), [draft, target], prompts))
    about = {"pair": name, "T": temperature, "N": n_tokens, "prompts": len(prompts)}
    memory = {"weights MB": size_of(draft, target) / 1e6, "resident MB": (resident() or 0) / 1e6}
    return [about | {"K": K} | figures(baseline[1:], runs[1:], K) | memory for K, runs in zip(Ks, pairs)]


def figures(baseline, runs, K):
    """The speed-up of runs over those of the baseline, and what explains it."""
    rounds = runs[0].rounds                                     # repetitions share seeds, hence rounds
    n_tokens, alpha = len(text_of(rounds)), ratio(*acceptance(rounds))
    step = call_seconds(baseline, 0, 1)
    c, v = ratio(call_seconds(runs, 0, 1), step), ratio(call_seconds(runs, 1, K + 1), step)
    measured = median(a.seconds / b.seconds for a, b in zip(baseline, runs))
    predicted = None if None in (alpha, c, v) else predicted_speedup(alpha, K, c, v)
    parts = explained_seconds(runs)
    explained = sum(explained_seconds(baseline).values()) / sum(parts.values())
    return {"acceptance": alpha, "by position": by_position(rounds, K),
            "tokens per pass": n_tokens / len(rounds), "step ms": step * 1e3, "c": c, "v": v,
            "predicted": predicted, "explained": explained, "measured": measured,
            "measured / predicted": ratio(measured, predicted), "measured / explained": measured / explained,
            "shares": [parts.get(name, 0.0) / sum(parts.values()) for name in PARTS],
            "tokens/s alone": n_tokens / median(a.seconds for a in baseline),
            "tokens/s": n_tokens / median(b.seconds for b in runs),
            "same text": text_of(baseline[0].rounds) == text_of(rounds)}
