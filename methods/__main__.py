"""main.py with any drafter and any verifier.

    python -m methods --drafter eagle --verifier tree:3,2,1 --temperature 0.8
    python -m methods --drafter my_drafter.py --trace run.html

It also shows where the time goes: c, the cost of a draft, and v, the cost of a verification, both in target
steps (passes over one token).
"""
import inspect
import json as json_format
import sys
from functools import partial

from engine import compute
from engine.checks import READS_THE_END, check_flags, check_room
from engine.loading import command_line
from engine.loading.files import read_text
from engine.loading.names import name_sources
from engine.reporting.runs import compare, measure_calls
from engine.reporting.stats import log_probabilities, time_drafting
from engine.reporting.summary import describe, name_idle_flags
from engine.reporting.terminal import show_progress, watch
from methods.explain import explain
from methods.table import DRAFTERS, VERIFIERS, Models, choose, prepare
from pages.files import check_place
from pages.trace import write_trace


def main(prompt='Peter Rabbit was tired of living in the Old Briar-patch. "I', *, n_tokens_to_generate=40,
         draft_model_size="demo-draft", target_model_size="demo-target", K=4, temperature=0.0, top_k=0,
         top_p=1.0, seed=0, models_dir="models", backend="numpy", drafter="model", verifier="token",
         show_rounds=False, trace="", json=False, fast=False, prompt_file=""):
    """Other ways to draft and to accept (docs/methods.md), timed beside autoregressive sampling.

    Args:
        prompt: the text to continue, exactly as typed
        n_tokens_to_generate: how many new tokens
        draft_model_size: 124M 355M 774M 1558M distilgpt2, demo-draft demo-target, a folder, or a name in
            Hugging Face's cache
        target_model_size: what draft_model_size can be, too
        K: most drafts per round, that is, per pass of the target
        temperature: 0 takes the likeliest token
        top_k: sample from the k likeliest tokens; 0: no limit
        top_p: sample from the likeliest tokens that hold this much probability; 1: no limit
        seed: random seed
        models_dir: where downloaded models are kept
        backend: numpy, or cupy for a GPU
        drafter: {drafters}, or a file that defines propose; an option follows a colon
        verifier: {verifiers}, or a file that defines verify; an option follows, as in tree:3,2,1
        show_rounds: show what became of each draft, one line per round
        trace: write a web page to this file that replays the run, round by round
        json: print one JSON object instead of the texts
        fast: faster with some kernels, but the two texts may differ if two tokens are almost equally likely
        prompt_file: a file with the prompt (- for standard input); its last line break is dropped
    """
    given = {name for name, value in locals().items() if value != DEFAULTS[name]}
    if prompt_file:
        prompt = read_text(prompt_file, "name a text file, or - for standard input").removesuffix("\n")
    n_tokens, settings = n_tokens_to_generate, dict(temperature=temperature, top_k=top_k, top_p=top_p)
    check_flags(n_tokens, K, seed, prompt, **settings)          # whatever can be checked before a download
    choice = choose(drafter, verifier)
    if trace:
        check_place(trace)
    compute.configure(backend, fast)

    models = Models(draft_model_size, target_model_size, models_dir)
    encoder = models.encoder
    tokens, settings["eos"] = encoder.encode(prompt) or encoder.start, encoder.eos
    method = prepare(choice, models, tokens, K, settings, time_drafting)
    check_room(len(tokens), n_tokens, method.target.n_ctx)      # now, not after the baseline's run
    check_room(len(tokens), n_tokens, getattr(method.draft, "n_ctx", len(tokens) + n_tokens),
               f"{draft_model_size}'s context", READS_THE_END)

    # Usually these are autoregressive_sampling, and speculative_sampling with the chosen `propose` and
    # `verify`.  Trees of drafts and `coupled` have their own loops, with the same arguments.
    def autoregress(draft, target, rng):
        return method.baseline(target, tokens, n_tokens, rng, **settings)

    def speculate(draft, target, rng):
        return method.sampler(draft, target, tokens, n_tokens, method.K, rng, **settings)

    names = [target_model_size] + [draft_model_size] * bool(models.loaded)
    for sentence in (*name_sources(*names, models_dir=models_dir),
                     *name_idle_flags(seed, temperature, top_k, top_p),
                     *name_idle_choices(given, method, models, drafter)):
        print(f"note: {sentence}", file=sys.stderr)

    # Each is timed, starting from empty caches, while its text is shown.
    show = show_progress if json else partial(
        watch, encoder=encoder, out=sys.stdout, prompt=prompt, block=method.tests_all)

    def time(sampler, show=iter):
        method.reset()
        return measure_calls(sampler, method.draft, method.target, seed, show)

    baseline = time(autoregress, partial(show, title="Autoregressive sampling"))
    json or print(baseline.describe_time())
    speculative = time(speculate, partial(show, title="Speculative sampling", show_rounds=show_rounds))
    json or print(speculative.describe_time())
    costs = explain(baseline, speculative, method)              # before further runs add to the times
    figures = compare(baseline, speculative, encoder, lambda: (time(autoregress), time(speculate)),
                      block=method.tests_all)
    result = dict(prompt=prompt, draft=draft_model_size if models.loaded else drafter,
                  target=target_model_size, backend=backend, drafter=drafter, verifier=verifier, K=method.K,
                  temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, **(figures | costs))
    if json:
        for run in result["autoregressive"], result["speculative"]:
            run["logprobs"] = log_probabilities(method.target, tokens, run["tokens"])
        print(json_format.dumps(result))
    else:
        print(*describe(result), sep="\n")
    if trace:
        write_trace(trace, speculate, method, encoder, result)
        json or print(f"The rounds are in {trace}: open it in a browser.")


def name_idle_choices(given, method, models, drafter):
    """A sentence for each given flag that has no effect here, whatever the temperature."""
    for applies, flag, reason in [
            ("json" in given, "show_rounds", "with --json"),
            ("prompt_file" in given, "prompt", "with --prompt_file"),
            (method.shape, "K", "with a tree: its option says how deep it is, as in tree:3,2,1"),
            (models.target.exact_rows == float("inf"), "fast", "here: exact bits cost no time"),
            (not models.loaded, "draft_model_size", f"with --drafter {drafter}")]:
        if applies and flag in given:
            yield f"--{flag} has no effect {reason}"


DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(main).parameters.items()}
main.__doc__ = (main.__doc__ or "").format(drafters=" ".join(DRAFTERS), verifiers=" ".join(VERIFIERS))

if __name__ == "__main__":
    sys.exit(command_line.run(main))
