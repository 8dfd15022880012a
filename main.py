"""Autoregressive and speculative sampling side by side, timed.

    python main.py --prompt "Alan Turing theorized that" --draft_model_size 124M --target_model_size 1558M

Without flags it runs the embedded pair.
"""
import inspect
import json as json_format
import sys
from functools import partial

import numpy as np

import console
import methods
from autoregressive import autoregressive_sampling
from compute import backend as backends
from compute import linear
from compute.backend import clock
from pages.files import check_place
from pages.trace import write_trace
from reporting.comparison import check_flags, compared, further, ready, run, summary, timing, without_effect
from reporting.terminal import progress, watch
from speculative import speculative_sampling

PROMPT = ("The tide was going out. Along the edge of the water a girl was walking barefoot, "
          "with her shoes in")


def main(prompt=PROMPT, *, n_tokens_to_generate=40, draft_model_size="demo-draft",
         target_model_size="demo-target", K=4, temperature=0.0, top_k=0, top_p=1.0, seed=0,
         models_dir="models", backend="numpy", drafter="model", verifier="token", show_rounds=False, trace="",
         json=False, fast=False):
    """Autoregressive and speculative sampling side by side, timed: both continue PROMPT.

    Args:
        prompt: the text to continue, exactly as typed
        n_tokens_to_generate: how many new tokens
        draft_model_size: 124M 355M 774M 1558M distilgpt2, demo-draft demo-target, or a folder
        target_model_size: likewise
        K: drafts per round, at most
        temperature: 0 is greedy
        top_k: sample from the k likeliest tokens; 0 for all
        top_p: sample from the likeliest tokens that hold this much probability; 1 for all
        seed: random seed
        models_dir: where downloaded models are kept
        backend: numpy, or cupy for a GPU
        drafter: {drafters}, or a file that defines propose; an option follows a colon
        verifier: {verifiers}, or a file that defines verify; an option follows, as in tree:3,2,1
        show_rounds: show what became of each draft, one line per round
        trace: write to this file a web page that replays the run, round by round
        json: print one JSON object
        fast: prefer speed to equal bits: the two texts may differ at a near-tie
    """
    given = {name: value for name, value in locals().items() if value != DEFAULTS[name]}
    n, settings = n_tokens_to_generate, dict(temperature=temperature, top_k=top_k, top_p=top_p)
    check_flags(n, K, seed, prompt, **settings)                 # all that can be checked before a download
    method = methods.choose(drafter, verifier)
    if trace:
        check_place(trace)
    backends.use(backend)
    linear.FAST = fast

    models = methods.Models(draft_model_size, target_model_size, models_dir)
    encoder, K, block = models.encoder, method.n_drafts(K), method.verifier.entry.tests_all
    tokens, settings["eos"] = encoder.encode(prompt), encoder.eos

    # The two samplers.  Verifiers of trees replace the second one, coupling replaces both.
    def autoregress(pair, rng):
        sampler = method.own_baseline or autoregressive_sampling
        return sampler(pair.target, tokens, n, rng, **settings)

    def speculate(pair, rng):
        sampler = method.own_loop(pair) or partial(
            speculative_sampling, propose=pair.propose, verify=method.verify)
        return sampler(pair.draft, pair.target, tokens, n, K, rng, **settings)

    # Run each from empty caches, timed, and show its text.
    def run_and_show(title, sampler, **options):
        done = run(sampler, pair, np.random.default_rng(seed), partial(show, title=title, **options))
        json or print(timing(done))
        return done

    def new_pair():                     # some drafters remember the text
        return ready(method.pair(models, tokens, K, settings), tokens)

    began, pair = clock(), new_pair()
    for sentence in without_effect(given, method, models):
        print(f"note: {sentence}", file=sys.stderr)
    show = progress if json else partial(watch, encoder=encoder, out=sys.stdout, prompt=prompt, block=block)
    alone = run_and_show("Autoregressive sampling", autoregress)
    spec = run_and_show("Speculative sampling", speculate, show_rounds=show_rounds)

    def again():
        pair = new_pair()
        return [run(sampler, pair, np.random.default_rng(seed)) for sampler in (autoregress, speculate)]

    # Compare the two runs, and more pairs of runs if they were short.
    result = dict(prompt=prompt, draft=draft_model_size if models.draft_is_used else drafter,
                  target=target_model_size, backend=backend, drafter=drafter, verifier=verifier, K=K,
                  temperature=temperature, top_k=top_k, top_p=top_p, seed=seed,
                  **compared(alone, spec, pair, method, n, K, encoder, further(again, alone, spec, began)))
    print(*[json_format.dumps(result)] if json else summary(result), sep="\n")
    if trace:
        write_trace(trace, speculate, new_pair(), method, encoder, result, alone.times)
        json or print(f"The rounds are in {trace}: open it in a browser.")


DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(main).parameters.items()}
main.__doc__ = main.__doc__.format(drafters=" ".join(methods.DRAFTERS), verifiers=" ".join(methods.VERIFIERS))

if __name__ == "__main__":
    sys.exit(console.run(main))
