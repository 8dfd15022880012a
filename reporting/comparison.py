"""A timed run, and the comparison of two of them: numbers, then sentences.

    pair = ready(pair, tokens)
    alone = run(autoregress, pair, rng)                     # autoregress, speculate: pair, rng -> rounds
    spec = run(speculate, pair, rng)
    figures = compared(alone, spec, pair, method, 40, 4, encoder, further(again, alone, spec, began))
    print(*summary(figures | dict(drafter="model", verifier="token", temperature=0)), sep="\n")

The clock runs while the sampler does, not while its rounds are shown.  Each model call and each proposal is
timed, too.  The medians give c, the cost of a draft, and v, the cost of a verification.

Limitations: the times come from few passes, on a machine that does other things, too.  The benchmarks
give numbers with errors.
"""
import re
from statistics import median
from typing import NamedTuple

import speculative
from checks import check_K, check_settings
from compute.backend import clock
from reporting.stats import Timed, TimedDrafter, acceptance, clocked, predicted_speedup, ratio
from samplers.tree_model import depths

REPEAT = 1.0        # seconds: the pair of runs is repeated until all took about this long


class Run(NamedTuple):
    rounds: list                    # sampling.Round, without their distributions
    times: list                     # seconds of each round, and of what follows the last
    draft: Timed | None
    target: Timed

    @property
    def tokens(self):
        return [token for r in self.rounds for token in r.tokens]

    @property
    def seconds(self):
        return sum(self.times)


def run(sampler, pair, rng, show=iter):
    """One run from empty caches.

    sampler     pair, rng -> rounds
    pair        as made by `ready`
    show        passes the rounds on, and may display them
    """
    models = [model for model in (pair.draft, pair.target) if model is not None]
    timed_models = pair._replace(draft=pair.draft and Timed(pair.draft), target=Timed(pair.target))
    rounds, times = sampler(timed_models, rng), []
    for model in models:
        model.reset()
    rounds = [r._replace(target_probs=None, draft_probs=None) for r in show(clocked(rounds, times))]
    return Run(rounds, times, timed_models.draft, timed_models.target)


def further(again, alone, spec, began):
    """The speed-ups of these two runs, and of as many more (not shown) as fit into REPEAT seconds.

    again   () -> another (alone, spec)
    began   `clock` when the first two runs began
    """
    speedups, spent = [speedup(alone, spec)], clock() - began
    last = spent
    while spent + last < REPEAT and spec.tokens:
        start = clock()
        speedups.append(speedup(*again()))
        last = clock() - start
        spent += last
    return speedups


def speedup(alone, spec):
    return ratio(ratio(len(spec.tokens), spec.seconds), ratio(len(alone.tokens), alone.seconds))


def ready(pair, tokens):
    """The pair with its drafter timed, and its models warmed up: the first call takes longer than others."""
    for model in filter(None, (pair.draft, pair.target)):
        model(tokens[:getattr(model, "n_ctx", None)])           # if it is too long, the sampler says so
        model.reset()
    return pair._replace(propose=TimedDrafter(pair.propose), grow=pair.grow and TimedDrafter(pair.grow))


# Numbers ----------------------------------------------------------------------------------------------------

def compared(alone, spec, pair, method, n_tokens, K, encoder, speedups):
    """Two runs -> the figures that main.py --json prints; one that could not be measured is None.

    pair        as made by `ready`, for both runs
    method      methods.Method
    speedups    of these two runs, and of others like them
    """
    accepted, tested = acceptance(spec.rounds, method.verifier.entry.tests_all)
    c, v = c_and_v(alone, spec, pair, method.shape, K)
    per_pass = ratio(len(spec.tokens), len(spec.rounds))
    runs = [dict(text=encoder.decode([token for token in one.tokens if token != encoder.eos]),
                 tokens=one.tokens, seconds=one.seconds,
                 tokens_per_second=ratio(len(one.tokens), one.seconds)) for one in (alone, spec)]
    runs[1] |= dict(rounds=len(spec.rounds), accepted=accepted, tested=tested,
                    acceptance_rate=ratio(accepted, tested), tokens_per_target_pass=per_pass)
    steady = all_have_K(spec.rounds, n_tokens, K) and method.verifier.name == "token"
    expected = predicted(spec, alone, steady, ratio(accepted, tested), per_pass, K, c, v)
    n_rows = (len(method.shape) if method.shape else min(K, n_tokens - 1)) + 1         # of a pass, at most
    target = pair.target
    return dict(autoregressive=runs[0], speculative=runs[1],
                speedup=speedups[0] and median(speedups), speedups=speedups, predicted_speedup=expected,
                cost_ratio=c, verify_ratio=v, rows=n_rows,
                same_text=alone.tokens == spec.tokens, same_by_seed=method.own_baseline is not None,
                same_bits=n_rows <= target.exact_rows and (not method.shape or target.exact_paths),
                lossless=method.lossless)


def all_have_K(rounds, n_tokens, K):
    """True if every round had K drafts, or as many as were still wanted.
    Theorem 3.8 of Leviathan et al. needs this."""
    made = 0
    for r in rounds:
        if len(r.drafts) != min(K, n_tokens - made - 1):
            return False
        made += len(r.tokens)
    return True


def c_and_v(alone, spec, pair, tree, K):
    """(c, v) in target steps; None if not measured.

    c   a step of the draft model; of other drafters, the time per draft; in a tree, the time per level
    v   the cost of a pass over K + 1 tokens, or over the tree
    """
    step = alone.target.seconds(1)
    if tree and pair.grow:
        drafting = pair.grow.seconds(len(tree))
        drafting = drafting and drafting / K
    elif tree:
        levels = [spec.draft.seconds(([0] + depths(tree)).count(depth)) for depth in range(K)]
        drafting = None if None in levels else sum(levels) / K
    else:
        steps = spec.draft if pair.propose.propose is speculative.propose else pair.propose
        drafting = steps.seconds(1)
    return ratio(drafting, step), ratio(spec.target.seconds((len(tree) if tree else K) + 1), step)


def predicted(spec, alone, steady, alpha, per_pass, K, c, v):
    """Theorem 3.8 if it applies; otherwise the tokens per pass, as counted, divided by a round's cost."""
    if steady:
        return None if None in (alpha, c, v) else predicted_speedup(alpha, K, c, v)
    step = alone.target.seconds(1)
    passes = [(r, ratio(spec.target.seconds(len(r.drafts) + 1), step)) for r in spec.rounds]
    known = [(max(depths(r.parents), default=0) if r.parents is not None else len(r.drafts), v)
             for r, v in passes if v]
    if c is None or not known:
        return None
    return ratio(per_pass, sum(n * c + v for n, v in known) / len(known))


def check_flags(n_tokens_to_generate, K, seed, prompt, **settings):
    """Checks these arguments before a model is loaded.  Raises ValueError.

    settings    temperature, top_k, top_p
    """
    check_settings(n_tokens_to_generate, **settings)
    check_K(K)
    if seed < 0:
        raise ValueError(f"seed is {seed}: it must be 0 or more")
    if not prompt:
        raise ValueError("the prompt is empty: give it some text, as in --prompt 'Once upon a time'")


def without_effect(given, method, models):
    """A sentence for each flag that was given but changes nothing in this run.

    given   {flag: value} of those that differ from their defaults
    """
    for applies, flags, reason in [
            (not given.get("temperature"), {"top_k", "top_p", "seed"}, "at temperature 0, which is greedy"),
            ("json" in given, {"show_rounds"}, "with --json"),
            (method.shape, {"K"}, "with a tree: its option says how deep it is, as in tree:3,2,1"),
            (models.target.exact_rows == float("inf"), {"fast"}, "here: exact bits cost no time"),
            (not models.draft_is_used, {"draft_model_size"}, f"with --drafter {method.drafter.name}")]:
        if applies:
            yield from (f"--{flag} has no effect {reason}" for flag in sorted(flags & given.keys()))


# Sentences --------------------------------------------------------------------------------------------------

def timing(run):
    speed = f", {len(run.tokens) / run.seconds:.0f} tokens per second" if run.tokens else ""
    return f"\nTime = {run.seconds:.2f} s, {len(run.tokens)} tokens{speed}\n"


SAME = {        # (same_text, same_bits): what to say if the texts should be the same
    (True, True): "The two texts are the same, as they always are {when} on this machine.",
    (True, False): "The two texts are the same; at a near-tie they may differ, because {why}.",
    (False, False): "The two texts differ at a near-tie, which can happen here: {why}.",
    (False, True): "The two texts are not the same, which must not happen {when}: please report it.",
}


def summary(r):
    """`compared`'s figures in sentences.  r holds them, and `drafter`, `verifier`, `temperature` as typed."""
    spec = r["speculative"]
    if not spec["tokens"]:
        yield "No tokens were asked for: there is nothing to compare."
        return
    line, all_ = f"Speed-up {r['speedup']:.2f}x", r["speedups"]
    notes = [f"median of {len(all_)} pairs, {min(all_):.2f} to {max(all_):.2f}"] if len(all_) > 1 else []
    if r["predicted_speedup"]:
        ratios = ("c", r["cost_ratio"]), ("v", r["verify_ratio"])
        known = [f"{name} = {value:.2f}" for name, value in ratios if value is not None]
        notes.append(f"predicted {r['predicted_speedup']:.2f}x: {', '.join(known)}")
    if notes:
        line += f" ({'; '.join(notes)})"
    if spec["tested"]:
        line += ", acceptance rate {acceptance_rate:.2f} ({accepted} of {tested} tested)".format(**spec)
    yield f"{line}, {spec['tokens_per_target_pass']:.2f} tokens per target pass"
    if r["lossless"] is False:
        yield f"The rule is lossy: its text does not have the target's distribution ({r['verifier']})."
    files = [re.sub(r"^(\w\w+:)+", "", typed) for typed in (r["drafter"], r["verifier"])]  # confident:my.py
    yield from (f"Whether {own} is lossless is not known: python -m lossless {own} finds out."
                for own in files if own.endswith(".py"))
    if (r["temperature"] == 0 or r["same_by_seed"]) and r["lossless"] is not None:
        when = "at temperature 0" if r["temperature"] == 0 else f"with --verifier {r['verifier']}"
        why = f"a pass over these {r['rows']} rows can differ in its last bits from single steps"
        yield SAME[r["same_text"], r["same_bits"]].format(when=when, why=why)
    elif r["temperature"] == 0:
        yield ("The two texts are the same." if r["same_text"] else
               "The two texts differ; those of a lossless method are the same at temperature 0.")
    elif not r["same_text"] and r["lossless"]:
        yield "Different texts are expected at a temperature above 0; their distribution is the same."
