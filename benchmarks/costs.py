"""Costs: how long passes and rounds take on this machine, by the clock.

    python -m benchmarks costs          eight minutes on a machine that has nothing else to do

Each kind of kernels is measured in a process of its own (OpenBLAS chooses them by OPENBLAS_CORETYPE), which
writes

    bandwidth       GB/s of the memory: a product of one row with 268 MB of weights, before the passes
    passes          milliseconds of each model's pass over 1, 2 .. rows (tokens), after 60 others
    rounds          milliseconds of each method's rounds, on texts of the embedded pair, in three parts:
                    drafting, the target's pass, and settling (from the target's logits to the new tokens)

Each is written as the quartiles and the number of calls.  The passes of a model take turns, and so do the
methods.  The first round, which reads the prompt, is left out, and no round is cut short by the end of the
text.  For each number of drafts, the medians of the three parts are added up; "typical" is the mean of these
sums over all rounds.  "slope" is the time that one more draft adds.  "speedup" compares whole runs, without
the first round, with runs of the target alone on the same prompts.

Limitations: on a busy machine all of it is noise.  The models of GPT-2's size have random weights (the time
does not depend on their values).  CPU only.
"""
import os
import subprocess
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path

import numpy as np
from tqdm import tqdm

from benchmarks.counts import DRAFT, HERE, MOST, TARGET, made, name_of, plan, write_json
from benchmarks.measure import caption, in_turns, machine, size_of, streams
from benchmarks.synthetic import random_model
from compute.backend import clock
from methods import Models, choose
from reporting.stats import Timed
from utils import load_model

KERNELS = {"avx512": "SkylakeX", "avx2": "Haswell"}
N_CACHED, N_TOKENS = 60, 60
ROWS = 1, 5, 9                      # at every turn; SELDOM, for large models, at every tenth
SELDOM = 2, 3, 4, 7, 13, 17, 25, 33, 49, 81
SIZES = {TARGET: 15, DRAFT: 3, "124M": 30, "355M": 60}          # seconds at most
METHODS_SECONDS, CALLS, MATRIX = 200, 200, 8192
PARTS = "drafting", "pass", "settling"


def quartiles(seconds):
    """-> milliseconds, and the number of calls."""
    return [*np.round(np.percentile(np.array(seconds) * 1e3, [25, 50, 75]), 4).tolist(), len(seconds)]


# Passes -----------------------------------------------------------------------------------------------------

def passes(name, seconds):
    """What is written about a model, and the quartiles of the bandwidth in GB/s, with the number of calls."""
    model = load_model(name)[0] if name.startswith("demo") else random_model(name)
    products, n_bytes = streams(MATRIX)         # not among the passes: this empties the cache
    rates = [n_bytes / second / 1e9 for second in min(in_turns(products, CALLS).values(), key=np.median)]
    tokens = [i % model.n_vocab for i in range(model.n_ctx)]
    runs = {n: partial(model, tokens[:N_CACHED + n], n) for n in sorted(ROWS + SELDOM, reverse=True)
            if N_CACHED + n <= model.n_ctx}                     # most first: 1 row comes after 2 or 5, not 81
    times = in_turns(runs, CALLS, seconds, () if name.startswith("demo") else SELDOM)
    rows = {n: quartiles(times[n]) for n in sorted(times)}
    return dict(bytes=size_of(model), rows=rows), [*np.percentile(rates, [25, 50, 75]).round(2), len(rates)]


# Rounds -----------------------------------------------------------------------------------------------------

class Watched(Timed):
    """A target that notes when its last call began and ended."""

    def timed(self, call, *arguments):
        self.began = clock()
        logits = super().timed(call, *arguments)
        self.ended = clock()
        return logits


def rounds_of(sampler, pair, tokens, n_tokens, K, T, seed):
    """[(drafts, new tokens, seconds of each part)] of each round of a run but the first."""
    target, found = Watched(pair.target), []
    rounds = sampler(pair.draft, target, tokens, n_tokens + MOST + 2, K, np.random.default_rng(seed),
                     temperature=T)
    done = len(next(rounds).tokens)
    begin = clock()
    while done < n_tokens:                                      # the run could go on: no round is cut short
        r = next(rounds)
        end = clock()
        done += len(r.tokens)
        spent = target.began - begin, target.ended - target.began, end - target.ended
        found.append((len(r.drafts), len(r.tokens), spent))
        begin = clock()
    return found


def run(cell, models, tokens, n_tokens, seed):
    """The rounds of a cell of the counts, or of the target alone if the drafter is "alone"."""
    drafter, verifier, K, T = cell
    method = choose("model" if drafter == "alone" else drafter, verifier or "token")
    pair = made(method, models, K or 1)
    sampler = method.baseline if drafter == "alone" else method.sampler(pair)
    return rounds_of(sampler, pair, tokens, n_tokens, K, T, seed)


def typical(rounds):
    """typical: see above, in milliseconds; drafts: their mean number; slope: the milliseconds that one more
    draft adds, by least squares."""
    sizes = defaultdict(list)
    for n_drafts, _, spent in rounds:
        sizes[n_drafts].append(spent)
    n, weights = [*sizes], [*map(len, sizes.values())]
    ms = [np.median(mine, axis=0).sum() * 1e3 for mine in sizes.values()]
    slope = np.polyfit(n, ms, 1, w=np.sqrt(weights))[0] if len(n) > 1 else 0
    return {"typical": round(np.average(ms, weights=weights), 4),
            "drafts": round(np.average(n, weights=weights), 3), "slope": round(slope, 4)}


def rounds(cells, seconds, prompts, n_tokens):
    """{name: what is written about the cell}"""
    lines, trees = Models(DRAFT, TARGET), Models(DRAFT, TARGET)         # trees need a target of their own
    baselines = {T: ("alone", "", None, T) for *_, T in cells}
    found, start = {cell: [] for cell in [*baselines.values(), *cells]}, clock()
    for seed, tokens in enumerate(tqdm([lines.encoder.encode(line) for line in prompts], disable=None)):
        for cell, mine in tqdm(found.items(), leave=False, disable=None):
            mine += run(cell, trees if ":" in cell[1] else lines, tokens, n_tokens, seed)
        if clock() - start > seconds:
            break
    speed = {cell: tokens_a_second(mine) for cell, mine in found.items()}
    return {name_of(*cell): written(mine) | {"speedup": round(speed[cell] / speed[baselines[cell[3]]], 4)}
            for cell, mine in found.items()}


def tokens_a_second(rounds):
    return sum(n for _, n, _ in rounds) / sum(sum(spent) for *_, spent in rounds)


def written(rounds):
    parts = {name: quartiles(times) for name, times in zip(PARTS, zip(*(spent for *_, spent in rounds)))}
    tokens = round(np.mean([n for _, n, _ in rounds]), 3)
    return parts | typical(rounds) | {"tokens": tokens, "tokens_a_second": round(tokens_a_second(rounds), 1)}


# All of it --------------------------------------------------------------------------------------------------

def measured():
    """The cells of K = 2, 4, 8 and of the tree 3,2,1 at temperatures 0 and 1, and passes of all models."""
    cells = [(drafter, verifier, K, T) for drafter, verifier, K, T, where in plan()
             if not where and T in (0, 1) and (
                 verifier.endswith(":3,2,1") or
                 K in (2, 4, 8) and ":" not in verifier and "early_exit:" not in drafter)]
    prompts = (HERE / "prompts.txt").read_text(encoding="utf-8").splitlines()
    found = {"machine": machine() | {"caption": caption()}, "passes": {}, "bandwidth": {}, "rounds": {}}
    for name, seconds in SIZES.items():
        found["passes"][name], found["bandwidth"][name] = passes(name, seconds)
    return found | {"rounds": rounds(cells, METHODS_SECONDS, prompts, N_TOKENS)}


def costs(out):
    """Measure with each kind of kernels that this processor has; write to the folder `out`."""
    for name, core in KERNELS.items():
        if name == "avx512" and not has_avx512():
            print("this processor has no AVX-512: left out", file=sys.stderr)
            continue
        measure = f"from benchmarks.costs import *; write({str(out)!r}, {name!r}, measured())"
        done = subprocess.run([sys.executable, "-c", measure], cwd=HERE.parent,
                              env=os.environ | {"OPENBLAS_CORETYPE": core})
        if done.returncode:
            raise ValueError(f"measuring with OPENBLAS_CORETYPE={core} failed: see above")


def has_avx512():
    flags = Path("/proc/cpuinfo")
    return flags.exists() and "avx512f" in flags.read_text(encoding="utf-8")


def write(out, name, found):
    write_json(Path(out) / f"costs_{name}.json", found)
