"""Where the time of two runs goes: c, the cost of a draft, v, the cost of a verification, and the speed-up
they predict.

    figures = compare(baseline, speculative, ..) | explain(baseline, speculative, method)

c and v are medians of the runs' own calls, in target steps (passes over one token).
"""
import speculative as algorithm_2
from autoregressive import autoregressive_sampling
from engine.reporting.stats import is_tree, ratio
from methods.samplers.tree_model import depths


def explain(baseline, speculative, method):
    """Two Runs -> c, v, the speed-up they predict and the measured one to compare it with, both without the
    prefill; None for what could not be measured.

    method      methods.entries.Method, whose `propose` (or `grow`) is a TimedDrafter
    """
    c, v = costs_of(baseline, speculative, method)
    predicted = predict_from_rounds(baseline, speculative, c)
    measured = ratio(speculative.speed_after_prompt, baseline.speed_after_prompt)
    return dict(predicted_speedup=predicted, speedup_after_prompt=measured, cost_ratio=c, verify_ratio=v,
                lossless=method.lossless, same_by_seed=method.baseline is not autoregressive_sampling)


def costs_of(baseline, speculative, method):
    """(c, v) in target steps; None if not measured.

    c   a step of the draft model; for other drafters, the time per draft; in a tree, the time per level
    v   the cost of a pass over K + 1 tokens, or over the tree
    """
    step, K, tree = baseline.target.seconds(1), method.K, method.shape
    if tree and method.grow:
        drafting = method.grow.seconds(len(tree) / K)
    elif tree:
        levels = [speculative.draft.seconds(([0] + depths(tree)).count(depth)) for depth in range(K)]
        drafting = None if None in levels else sum(levels) / K
    else:
        plain = method.propose.propose is algorithm_2.propose
        drafting = (speculative.draft if plain else method.propose).seconds(1)
    n_rows = (len(tree) if tree else K) + 1
    return ratio(drafting, step), ratio(speculative.target.seconds(n_rows), step)


def predict_from_rounds(baseline, speculative, c):
    """The counted tokens per pass, divided by the mean cost of a round, n c + v for n drafts (Leviathan et
    al., theorem 3.8, but for any numbers of drafts, and with no assumption on acceptances)."""
    step, per_pass = baseline.target.seconds(1), ratio(len(speculative.tokens), len(speculative.rounds))
    passes = [(r, ratio(speculative.target.seconds(len(r.drafts) + 1), step)) for r in speculative.rounds]
    known = [(n_levels(r), v) for r, v in passes if v]
    if c is None or not known:
        return None
    return ratio(per_pass, sum(n * c + v for n, v in known) / len(known))


def n_levels(r):
    """The number of drafts in sequence: the depth of a tree, the length of a line."""
    return max(depths(r.parents), default=0) if is_tree(r) else len(r.drafts)
