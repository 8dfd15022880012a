"""Timed runs, and the comparison of two of them in numbers.

    baseline = measure(autoregress, draft, target, seed)        # autoregress: rng -> rounds
    speculative = measure(speculate, draft, target, seed)
    figures = compare(baseline, speculative, encoder, run_both_again)

The clock runs while the sampler does, but not while its rounds are shown.  If the models are Timed, each of
their calls is timed as well (methods/explain.py says where the time goes).

Limitations: the times come from few passes, on a machine that also does other things.  The benchmarks give
numbers with errors.
"""
from collections.abc import Callable
from functools import partial
from statistics import median
from time import process_time
from typing import NamedTuple

import numpy as np

from engine.reporting.stats import Timed, count_acceptance, is_tree, ratio, time_rounds

PAIRS, REPEAT = 3, 1.0      # at least 3 pairs of runs, and more until they took about a second
LONG = 10.0                 # seconds: a pair that takes longer is not repeated


class Run(NamedTuple):
    rounds: list                    # sampling.Round, without their distributions
    times: list                     # seconds of each round, and those after the last
    draft: Callable | None
    target: Callable
    processor: list = []            # seconds of processor time, as in `times`

    @property
    def tokens(self):
        return [token for r in self.rounds for token in r.tokens]

    @property
    def seconds(self):
        return sum(self.times)

    @property
    def tokens_per_second(self):
        return ratio(len(self.tokens), self.seconds)

    def describe_time(self):
        speed = f", {self.tokens_per_second:.0f} tokens per second" if self.tokens else ""
        return f"\nTime = {self.seconds:.2f} s, {len(self.tokens)} tokens{speed}\n"

    @property
    def speed_after_prompt(self):
        """Tokens per second after the first round, which includes the prefill."""
        return ratio(sum(len(r.tokens) for r in self.rounds[1:]) or None, sum(self.times[1:]))

    def as_dict(self, encoder):
        """The run's figures in --json."""
        text = encoder.decode([token for token in self.tokens if token not in encoder.eos_ids])
        return dict(text=text, tokens=self.tokens, seconds=self.seconds,
                    tokens_per_second=self.tokens_per_second)


def race(autoregress, speculate, draft, target, seed, encoder, show):
    """Both runs, one after the other, with their texts and times -> the figures of `compare`.

    autoregress, speculate      rng -> rounds; draft, target: the models that they call
    show                        shows a run under a `title`, as terminal.watch does
    """
    def time(sampler, show=iter):
        return measure(sampler, draft, target, seed, show)

    runs, samplers = [], {"Autoregressive sampling": autoregress, "Speculative sampling": speculate}
    for sampler in samplers.values():                           # runs nothing yet, but bad arguments raise
        sampler(None)
    for title, sampler in samplers.items():
        runs.append(time(sampler, partial(show, title=title)))
        print(runs[-1].describe_time())
    return compare(*runs, encoder, lambda: (time(autoregress), time(speculate)))


def measure(sampler, draft, target, seed, show=iter):
    """One run from empty caches -> Run, after calling each model once, because a first call takes longer.

    sampler     rng -> rounds; draft, target: the models that it calls
    show        passes the rounds on, and may display them; `iter` only passes them on
    """
    for model in filter(None, (draft, target)):
        model([0])
        if hasattr(model, "reset"):                             # a plain function has none
            model.reset()
    times, processor = [], []
    rounds = time_rounds(time_rounds(sampler(np.random.default_rng(seed)), processor, process_time), times)
    shown = [r._replace(target_probs=None, draft_probs=None) for r in show(rounds)]
    return Run(shown, times, draft, target, processor)


def measure_calls(sampler, draft, target, seed, show=iter):
    """As `measure`, but each call of the models is timed, too.  sampler: draft, target, rng -> rounds"""
    draft, target = draft and Timed(draft), Timed(target)
    return measure(partial(sampler, draft, target), draft, target, seed, show)


def count_rounds(rounds, block=False):
    """What became of the drafts, in --json."""
    accepted, tested = count_acceptance(rounds, block)
    n_tokens = sum(len(r.tokens) for r in rounds)
    return dict(rounds=len(rounds), accepted=accepted, tested=tested, acceptance_rate=ratio(accepted, tested),
                tokens_per_target_pass=ratio(n_tokens, len(rounds)))


def repeat(run_both_again, baseline, speculative):
    """The speed-ups of these two runs and of further pairs, which are not shown."""
    from tqdm import tqdm  # here: it loads more modules than all the rest

    speedups = [speedup(baseline, speculative)]
    first = baseline.seconds + speculative.seconds
    n = max(PAIRS, int(REPEAT / first)) if 0 < first < LONG and speculative.tokens else 1
    for _ in tqdm(range(1, n), desc="again, for the median", leave=False, disable=None):
        speedups.append(speedup(*run_both_again()))
    return speedups


def speedup(baseline, speculative):
    return ratio(speculative.tokens_per_second, baseline.tokens_per_second)


def compare(baseline, speculative, encoder, run_both_again, block=False):
    """Two Runs -> {figure: value}; one that could not be measured is None.

    run_both_again      () -> another (baseline, speculative), for more speed-ups if these runs were short
    block               the rounds come from block verification
    """
    rounds, target = speculative.rounds, speculative.target
    rows = max((len(r.drafts) for r in rounds), default=0) + 1                          # of a pass, at most
    speedups = repeat(run_both_again, baseline, speculative)
    return dict(
        autoregressive=baseline.as_dict(encoder),
        speculative=speculative.as_dict(encoder) | count_rounds(rounds, block),
        speedup=speedups[0] and median(speedups), speedups=speedups, rows=rows,
        processor_share=ratio(sum(baseline.processor + speculative.processor) or None,
                              baseline.seconds + speculative.seconds),
        same_text=baseline.tokens == speculative.tokens,
        same_bits=rows <= target.exact_rows and (not any(map(is_tree, rounds)) or target.exact_paths))
