"""main.py --trace writes a web page that replays a run: a single file, which needs no network.

    write_trace("run.html", speculate, pair, method, encoder, result, seconds)

    speculate   (pair, rng) -> the rounds: the run is repeated, with the same seed
    result      what main.py --json prints
    seconds     the time of each step of the baseline

Limitations: of a long run the page holds only the first rounds, about LIMIT bytes.
"""
import json
from html import escape

import numpy as np

from console import rewrite
from pages.frame import page
from pages.rounds import Coins, Shown, Untraced

LIMIT = 400_000
SETTINGS = "draft", "target", "drafter", "verifier", "K", "temperature", "top_k", "top_p", "seed", "lossless"
NUMBERS = ("tokens_per_target_pass", "acceptance_rate", "speedup", "predicted_speedup", "cost_ratio",
           "verify_ratio")


def write_trace(path, speculate, pair, method, encoder, result, seconds):
    """Writes the page.  If an error is raised, a page that was there before is unchanged."""
    coins = Coins(np.random.default_rng(result["seed"]))
    verify = None if method.own_loop(pair) else method.verify
    shown = Shown(encoder, coins, pair.propose, verify, tests_all=method.verifier.entry.tests_all)
    run = speculate(pair._replace(draft=pair.draft and Untraced(pair.draft), target=Untraced(pair.target)),
                    coins)
    spec, size = [], 0
    while size < LIMIT and (found := shown.next(run)):
        spec.append(found)
        size += len(json.dumps(found))
    n, stream = sum(len(r["tokens"]) for r in spec), encoder.stream()
    alone = [dict(tokens=[token], text=[stream([token] if token != encoder.eos else [])], seconds=time)
             for token, time in zip(result["autoregressive"]["tokens"][:n], seconds)]
    numbers = [(name, result["speculative"].get(name, result.get(name))) for name in NUMBERS]
    words = [f"{name} {result[name]}" for name in SETTINGS if result[name] is not None]
    words += [f"{name} {number:.2f}" for name, number in numbers if number is not None]
    settings = dict(prompt=result["prompt"], n_tokens=n, temperature=result["temperature"])
    recorded = dict(about=shown.about(), settings=settings, alone=alone, spec=spec)
    rewrite(path, page("Speculative sampling: a run", "trace.html", dict(recorded=recorded),
                          about=escape(", ".join(words).replace("_", " "))))
