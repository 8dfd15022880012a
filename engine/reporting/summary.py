"""A run, and the comparison of two, in sentences."""
import re


def name_idle_flags(seed, temperature, top_k, top_p):
    """A sentence for each of these flags that was given but has no effect in a greedy run."""
    for flag, given in ("seed", seed), ("top_k", top_k), ("top_p", top_p < 1):
        if temperature == 0 and given:
            yield f"--{flag} has no effect at temperature 0, which is greedy"


BUSY = 1.3      # the ratio of speed-ups above which their spread is mentioned
SHARE = .8      # the share of its time for which a program has a processor, below which that is mentioned
SAME = {        # (same_text, same_bits): what to say if the texts should be the same
    (True, True): "The two texts are the same, as they always are {when} on this machine.",
    (True, False): "The two texts are the same; at a near-tie they may differ, because {why}.",
    (False, False): "The two texts differ at a near-tie, which can happen here: {why}.",
    (False, True): "The two texts are not the same, which must not happen {when}: please report it.",
}


def describe(r):
    """The figures of `engine.reporting.runs.compare`, with the temperature and perhaps those of `explain`, in
    sentences."""
    run, speedups = r["speculative"], r["speedups"]
    if not run["tokens"]:
        yield "No tokens were asked for: there is nothing to compare."
        return
    least, most = min(speedups), max(speedups)
    spread = f"median of {len(speedups)} pairs of runs, {least:.2f} to {most:.2f}"
    yield f"Speed-up {r['speedup']:.2f}x ({spread if len(speedups) > 1 else 'one pair of runs'})"
    if most > BUSY * least:
        yield "  The pairs differ: the machine is busy. With other programs closed, they would differ less."
    elif (r.get("processor_share") or 1) < SHARE:
        idle = 1 - r["processor_share"]
        yield f"  The machine is busy: {idle:.0%} of the time, this program had no processor."
    costs = [("c = {:.2f} (a draft)", r.get("cost_ratio")),
             ("v = {:.2f} (a verification)", r.get("verify_ratio"))]
    known = [words.format(value) for words, value in costs if value is not None]
    causes = [f"{run['tokens_per_target_pass']:.2f} tokens per target pass"]
    causes += ["in target steps, " + " and ".join(known)] * bool(known)
    if r.get("predicted_speedup"):
        measured = r["speedup_after_prompt"] and f", measured {r['speedup_after_prompt']:.2f}x"
        causes += [f"predicted {r['predicted_speedup']:.2f}x{measured or ''} once the prompt is read"]
    yield "  " + "; ".join(causes)
    if run["tested"]:
        yield "  acceptance rate {acceptance_rate:.2f}: {accepted} of {tested} tested drafts".format(**run)
    lossless = r.get("lossless", True)
    if lossless is False:
        yield f"The rule is lossy: its text does not have the target's distribution ({r['verifier']})."
    typed = r.get("drafter", ""), r.get("verifier", "")
    files = [re.sub(r"^(\w\w+:)+", "", word) for word in typed]                # confident:my.py
    yield from (f"Whether {own} is lossless is not known: python -m lossless {own} finds out."
                for own in files if own.endswith(".py"))
    if (r["temperature"] == 0 or r.get("same_by_seed")) and lossless:
        when = "at temperature 0" if r["temperature"] == 0 else f"with --verifier {r['verifier']}"
        why = f"a pass over these {r['rows']} rows can differ in its last bits from single steps"
        yield SAME[r["same_text"], r["same_bits"]].format(when=when, why=why)
    elif r["temperature"] == 0:
        yield ("The two texts are the same." if r["same_text"] else
               "The two texts differ; those of a lossless method are the same at temperature 0.")
    elif not r["same_text"] and lossless:
        yield "Different texts are expected at a temperature above 0; their distribution is the same."
