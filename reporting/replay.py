"""The rounds of a run -> one web page that replays them, a single file that needs no server and no network.

    coins = Coins(np.random.default_rng(0))
    small = [reduce_round(r, coins.take()) for r in speculative_sampling(draft, target, tokens, 60, 4, coins)]
    write_trace("run.html", small, result, encoder)             # `result`: what main.py --json prints

A round holds 2 K + 1 laws over the whole vocabulary, so each is reduced as it comes: the likeliest tokens of q and of p, and those
that were drafted or emitted.  The letters are Chen's: q the target, p the draft.  The page itself is replay.html.

But: the coins are sorted by the order in which speculative.py draws them; another way of verifying needs another `reduce_round`.
A long run is replayed up to LIMIT bytes; its totals hold all rounds.
"""
import json
from pathlib import Path

import numpy as np

from reporting.stats import ratio

TEMPLATE = Path(__file__).with_name("replay.html")
LIMIT = 350_000


class Coins:
    """A numpy.random.Generator that remembers what it gave.  The samplers ask it for `random()` and nothing else."""

    def __init__(self, rng):
        self.rng, self.seen = rng, []

    def random(self):
        self.seen.append(self.rng.random())
        return self.seen[-1]

    def take(self):
        """The coins since it was last asked."""
        seen, self.seen = self.seen, []
        return seen


def reduce_round(r, coins, n_top=8):
    """A round and the coins drawn in it -> the little of both that the page shows, ready for JSON.

    Each token was drawn with one coin, and so was each verdict, in this order (k = len(r.drafts)):

        coins[:k]       drew the drafts
        coins[k:-1]     decided on the drafts from the left, up to the first rejection
        coins[-1]       drew the correction or the bonus; unused where EOS, among the accepted, had ended the text
    """
    k, n, ended = len(r.drafts), r.n_accepted, len(r.tokens) == r.n_accepted
    decided = coins[k:-1]
    slots = []
    for j, (x, q, p) in enumerate(zip(r.drafts, r.target_probs, r.draft_probs)):
        kept = np.minimum(q, p).sum()                           # the chance that a draft is accepted here, whichever it is
        slots.append(dict(
            token=x, drawn_with=coins[j], q=float(q[x]), p=float(p[x]), accept=min(1.0, float(q[x] / p[x])),
            coin=decided[j] if j < len(decided) else None, kept=short(kept), laws=rows([q, p], [x, *r.tokens[j:j + 1]], n_top),
            verdict="accepted" if j < n else "after the end" if ended else "rejected" if j == n else "not tested"))
    if ended:
        return dict(tokens=r.tokens, slots=slots, last=None)
    law, kind = r.target_probs[n], "bonus"
    if n < k:
        residual, kind = np.maximum(law - r.draft_probs[n], 0), "correction"
        law = residual / residual.sum() if residual.any() else law
    x = r.tokens[n]
    last = dict(token=x, kind=kind, drawn_with=coins[-1], prob=float(law[x]), law=rows([law], [x], n_top))
    return dict(tokens=r.tokens, slots=slots, last=last)


def recorded(rounds, coins, small):
    """Pass the rounds on, and append each, reduced, to `small`."""
    for r in rounds:
        small.append(reduce_round(r, coins.take()))
        yield r


def rows(laws, marked, n_top):
    """[[token, *its probability in each law], ...]: the n_top likeliest of each law and the marked ones, the likeliest first; then
    [None, ...], the mass of all others.

    >>> rows([np.array([.5, .25, .125, .125])], [3], n_top=1)
    [[0, 0.5], [3, 0.125], [None, 0.375]]
    """
    kept = np.unique([*marked, *(token for law in laws for token in likeliest(law, n_top))]).astype(int)
    laws = np.stack(laws)                                       # [1 or 2, n_vocab]
    kept = kept[np.argsort(-laws[:, kept].max(axis=0), kind="stable")]
    others = np.maximum(laws.sum(axis=-1) - laws[:, kept].sum(axis=-1), 0)
    return [[token, *map(short, column)] for token, column in zip([*kept.tolist(), None], [*laws[:, kept].T, others])]


def likeliest(law, n):
    """The n likeliest tokens of a law [n_vocab], ties by index; fewer where fewer are possible."""
    least = np.partition(law, -min(n, len(law)))[-min(n, len(law))]             # np.argpartition takes thirty times as long
    tokens = np.flatnonzero((law >= least) & (law > 0))
    return tokens[np.argsort(-law[tokens], kind="stable")][:n]


def short(x):
    return float(f"{x:.4g}")


def totals(rounds, result):
    """Of all reduced rounds.  `by_slot[j]`: how many drafts j were tested, accepted, and were to be expected to be accepted."""
    by_slot = []
    for j in range(max((len(r["slots"]) for r in rounds), default=0)):
        tested = [s for r in rounds for s in r["slots"][j:j + 1] if s["verdict"] in ("accepted", "rejected")]
        accepted = sum(s["verdict"] == "accepted" for s in tested)
        by_slot.append(dict(tested=len(tested), accepted=accepted, expected=sum(s["kept"] for s in tested)))
    n_tokens = sum(len(r["tokens"]) for r in rounds)
    return dict(rounds=len(rounds), tokens=n_tokens, tokens_per_target_pass=ratio(n_tokens, len(rounds)), by_slot=by_slot,
                accepted=sum(s["accepted"] for s in by_slot), tested=sum(s["tested"] for s in by_slot),
                **{key: result.get(key) for key in ("speedup", "predicted_speedup", "cost_ratio", "verify_ratio")})


def page(rounds, result, encoder):
    """The whole page as a string.  `rounds`: from reduce_round."""
    stream, shown, size = encoder.stream(), [], 0
    for r in rounds:
        size += len(compact(r))
        if size > LIMIT:
            break
        shown.append(r | dict(text=[stream([token] if token != encoder.eos else []) for token in r["tokens"]]))
    if shown:
        shown[-1]["text"][-1] += stream([], final=True)
    ids = {token for r in shown for part in [*r["slots"], *filter(None, [r["last"]])]
           for token in [part["token"], *(row[0] for row in part.get("laws") or part["law"])]} - {None}
    names = {token: encoder.to_bytes(token).decode("utf-8", errors="backslashreplace") for token in sorted(ids)}
    settings = {key: result.get(key) for key in ("prompt", "draft", "target", "K", "temperature", "top_k", "top_p", "seed")}
    data = compact(dict(settings=settings, totals=totals(rounds, result), names=names, rounds=shown))
    # A string of the model may hold "</script>": without "<" nothing in the data can end the element it stands in.
    return TEMPLATE.read_text(encoding="utf-8").replace("{{data}}", data.replace("<", "\\u003c"), 1)


def compact(data):
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def write_trace(path, rounds, result, encoder):
    Path(path).write_text(page(rounds, result, encoder), encoding="utf-8")
