"""Several sequences at once: where batching takes from speculation what a cheap verification gave it.

A pass over n rows takes hardly longer than one over a single row as long as reading the weights is what takes
the time.  A batch of B sequences fills a pass with B rows, speculation with K + 1, both with B (K + 1).  As
rows get dearer ("ms a pass"), batching gains less than B, and speculation on top of it less and less.

But: all sequences begin together and are equally long; a server has neither.
"""
from itertools import cycle, islice
from statistics import median

import numpy as np

from benchmarks.pairs import load_pair
from compute.backend import clock
from samplers.batch import batch_sampling


def batches(name, s):
    """A row for each batch size, auto-regressive (K = 0) and speculative, all interleaved."""
    draft, target, prompts = load_pair(name, s.models_dir, s.prompts)
    n_tokens = s.n_synthetic if name.startswith("synthetic") else s.n_tokens
    cases = [(B, K) for B in s.batch_sizes for K in (0, s.K_fixed)]
    runs = {case: [] for case in cases}
    for _ in range(s.repetitions + 1):                          # the first is the warm-up
        for B, K in cases:
            runs[B, K].append(timed(draft, target, list(islice(cycle(prompts), B)), n_tokens, K))
    rate = {case: median(tokens / seconds for seconds, tokens, _, _ in mine[1:])
            for case, mine in runs.items()}
    return [{"pair": name, "N": n_tokens, "batch": B, "K": K, "tokens/s": rate[B, K],
             "over one alone": rate[B, K] / rate[cases[0]], "speculative over alone": rate[B, K] / rate[B, 0],
             "rows a pass": rows / passes, "tokens a pass": tokens / passes,
             "ms a pass": median(mine[0] for mine in runs[B, K][1:]) / passes * 1e3}
            for B, K in cases for _, tokens, passes, rows in runs[B, K][-1:]]


def timed(draft, target, prompts, n_tokens, K):
    """One greedy run of a batch -> (seconds, tokens, passes of the target, their rows)."""
    rngs = [np.random.default_rng(i) for i in range(len(prompts))]
    begin, tokens, passes, rows = clock(), 0, 0, 0
    for one in batch_sampling(draft, target, prompts, n_tokens, K, rngs, temperature=0):
        passes += 1
        tokens += sum(len(r.tokens) for r in one if r)
        rows += sum(len(r.drafts) + 1 for r in one if r)
    return clock() - begin, tokens, passes, rows
