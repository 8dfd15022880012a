"""What main.py --trace writes: one web page, a single file without a network, in which a run is played.

    recording = Recording(coins, shown)                 # rounds.Coins, rounds.Shown
    rounds = [*recording(speculative_sampling(.., coins))]
    write_trace("run.html", recording, result, encoder, seconds)    # `result`: what main.py --json prints

Limitations: the page holds the first rounds of a long run, up to LIMIT bytes.
"""
import json
from html import escape

from pages.files import TRACE, check_place, write_page  # noqa: F401 - main.py checks the place from here
from pages.frame import page

LIMIT = 400_000
SETTINGS = "draft", "target", "drafter", "verifier", "K", "temperature", "top_k", "top_p", "seed", "lossless"
NUMBERS = ("tokens_per_target_pass", "acceptance_rate", "speedup", "predicted_speedup", "cost_ratio",
           "verify_ratio")


class Recording:
    def __init__(self, coins, shown):
        self.coins, self.shown, self.rounds, self.size = coins, shown, [], 0

    def __call__(self, rounds):
        """Pass the rounds on, and keep what is shown of each."""
        for r in rounds:
            coins = self.coins.take()
            if self.size < LIMIT:
                self.rounds.append(self.shown.round(r, coins))
                self.size += len(json.dumps(self.rounds[-1]))
            yield r


def write_trace(path, recording, result, encoder, seconds):
    """Write the page; seconds: of each step of the baseline, of each round.  Raises ValueError; then what was
    there before is as it was."""
    n = sum(len(r["tokens"]) for r in recording.rounds)
    stream = encoder.stream()
    alone = [dict(tokens=[token], text=[stream([token] if token != encoder.eos else [])], seconds=time)
             for token, time in zip(result["autoregressive"]["tokens"][:n], seconds[0])]
    spec = [r | dict(seconds=time) for r, time in zip(recording.rounds, seconds[1])]
    numbers = [(name, result["speculative"].get(name, result.get(name))) for name in NUMBERS]
    words = [f"{name} {result[name]}" for name in SETTINGS if result[name] is not None]
    words += [f"{name} {number:.2f}" for name, number in numbers if number is not None]
    settings = dict(prompt=result["prompt"], n_tokens=n, temperature=result["temperature"])
    recorded = dict(about=recording.shown.about(), settings=settings, alone=alone, spec=spec)
    write_page(path, page("Speculative sampling: a run", "trace.html", dict(recorded=recorded), mark=TRACE,
                          about=escape(", ".join(words).replace("_", " "))))
