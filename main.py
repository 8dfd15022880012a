"""Autoregressive and speculative sampling side by side, timed.

    python main.py --prompt "Alan Turing theorized that" --draft_model_size 124M --target_model_size 1558M

Without flags it runs the embedded pair.
"""
import signal

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)    # Ctrl-C while the libraries load: no traceback

import inspect
import json as json_format
import sys
from functools import partial

import numpy as np

import console
import methods
from compute import backend as backends
from compute import linear
from reporting.comparison import check_flags, compared, run, summary, timed, timing, warm_up, without_effect
from reporting.terminal import progress, watch

PROMPT = '"I want nothing," cried the young man, with a smile.'


def main(prompt=PROMPT, n_tokens_to_generate=60, draft_model_size="demo-draft",
         target_model_size="demo-target", K=4, temperature=0.0, top_k=0, top_p=1.0, seed=0,
         models_dir="models", backend="numpy", drafter="model", verifier="token", show_rounds=False, trace="",
         json=False, fast=False):
    """Autoregressive and speculative sampling side by side, timed: PROMPT is continued twice.

    Args:
        prompt: the text to continue, taken as typed
        n_tokens_to_generate: new tokens, the same for both
        draft_model_size: 124M 355M 774M 1558M distilgpt2, demo-draft demo-target, or a folder
        target_model_size: likewise
        K: drafts per round
        temperature: 0 is greedy
        top_k: sample from the k likeliest tokens; 0 for all
        top_p: sample from the likeliest tokens that hold this much probability; 1 for all
        seed: of the random generator
        models_dir: where downloaded models are kept
        backend: numpy, or cupy for a GPU
        drafter: {drafters}, or a file with a propose; an option follows a colon
        verifier: {verifiers}, or a file with a verify; as in tree:3,2,1
        show_rounds: show what became of each draft, one line per round
        trace: a file for a web page that replays the speculative run, written when all has been printed
        json: print one JSON object
        fast: speed before the same bits: at temperature 0 a near-tie may fall otherwise
    """
    flags = dict(locals())
    n, settings = n_tokens_to_generate, dict(temperature=temperature, top_k=top_k, top_p=top_p)
    check_flags(n, K, seed, prompt, **settings)                 # all that can be checked before a download
    method = methods.choose(drafter, verifier)
    if trace:
        from pages import replay  # here: other runs need not wait for it
        replay.check_place(trace)
    backends.use(backend)
    linear.FAST = fast

    # Load.  The drafter makes its pair from the two models.
    models = methods.Models(draft_model_size, target_model_size, models_dir)
    encoder, K = models.encoder, method.n_drafts(K)
    tokens, settings["eos"] = encoder.encode(prompt), encoder.eos
    pair = timed(method.pair(models, tokens, K, settings))
    warm_up(pair, tokens)
    given = {name for name, p in inspect.signature(main).parameters.items() if flags[name] != p.default}
    for sentence in without_effect(given, method, temperature, json, models.draft_is_used):
        print(f"note: {sentence}", file=sys.stderr)

    # Two runs, which time themselves.
    block, recording = method.verifier.entry.tests_all, []
    shown = progress if json else partial(watch, encoder=encoder, out=sys.stdout, prompt=prompt, block=block)
    generate = partial(run, pair=pair, tokens=tokens, n_tokens=n, K=K, settings=settings)

    alone = generate(method.baseline, rng=np.random.default_rng(seed),
                     show=partial(shown, title="Autoregressive sampling"))
    json or print(timing(alone))

    coins = np.random.default_rng(seed)
    if trace:
        coins = replay.Coins(coins)

    def speculative_shown(rounds):
        rounds = replay.recorded(rounds, coins, recording, block=block) if trace else rounds
        return shown(rounds, title="Speculative sampling", show_rounds=show_rounds)

    spec = generate(method.sampler(pair), rng=coins, show=speculative_shown)
    json or print(timing(spec))

    # Compare the two.
    result = dict(prompt=prompt, draft=draft_model_size if models.draft_is_used else drafter,
                  target=target_model_size, backend=backend, drafter=drafter, verifier=verifier, K=K,
                  temperature=temperature, top_k=top_k, top_p=top_p, seed=seed,
                  **compared(alone, spec, pair, method, n, K, encoder))
    print(*[json_format.dumps(result)] if json else summary(result), sep="\n")
    if trace:
        replay.write_trace(trace, recording, result, encoder, (alone.times, spec.times))
        json or print(f"The rounds are in {trace}: open it in a browser.")


main.__doc__ = main.__doc__ and main.__doc__.format(drafters=" ".join(methods.DRAFTERS),
                                                    verifiers=" ".join(methods.VERIFIERS))

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(console.run(main))
