"""The rounds of a run -> one web page that replays them, a single file that needs no server and no network.

    coins = Coins(np.random.default_rng(0))
    small = [reduce_round(r, coins.take())
             for r in speculative_sampling(draft, target, tokens, 60, 4, coins)]
    write_trace("run.html", small, result, encoder)     # `result`: what main.py --json prints

A round holds 2 K + 1 distributions over the whole vocabulary, so each is reduced as it comes: the likeliest
tokens of q and of p, and those that were drafted or emitted.  The letters are Chen's: q the target, p the
draft.  The page itself is replay.html.

But: the coins are sorted by the order in which speculative.py and samplers/block.py draw them; of a tree the
page shows the nodes and the path that was taken, not the coins, since each rule for a node asks for others.
Nor does it show the coins of a run that used them in yet another way (a rule or a drafter of one's own).
A long run is replayed up to LIMIT bytes; its totals hold all rounds.
"""
import json
from pathlib import Path

import numpy as np

from pages.files import TRACE, check_place, write_page  # noqa: F401 - main.py asks for the place here
from reporting.stats import is_tree, ratio, taken

TEMPLATE = Path(__file__).with_name("replay.html")
LIMIT = 350_000
SETTINGS = ("prompt", "draft", "target", "drafter", "verifier", "K", "temperature", "top_k", "top_p", "seed",
            "lossless")
SPEEDS = ("speedup", "predicted_speedup", "cost_ratio", "verify_ratio")


class Coins:
    """A numpy.random.Generator that remembers what it gave.  The samplers here ask it for `random()` alone;
    what a method of one's own asks for besides is passed on.
    """

    def __init__(self, rng):
        self.rng, self.seen = rng, []

    def random(self, *shape, **options):
        drawn = self.rng.random(*shape, **options)
        self.seen += np.ravel(drawn).tolist()
        return drawn

    def __getattr__(self, name):
        return getattr(self.rng, name)

    def take(self):
        """The coins since it was last asked."""
        seen, self.seen = self.seen, []
        return seen


def recorded(rounds, coins, small, block=False):
    """Pass the rounds on, and append each, reduced, to `small`."""
    for r in rounds:
        small.append(reduce_round(r, coins.take(), block=block))
        yield r


def reduce_round(r, coins, n_top=5, block=False):
    """A round and the coins drawn in it -> the little of both that the page shows, ready for JSON.

    The coins, in the order in which they were drawn:

        one a draft     drew it; none where p is a point mass, as at temperature 0, or where a text is copied
        one a draft     decided on it, from the left, up to the first rejection; on a block on all
        the last        drew the correction or the bonus, unless that was sure; lost where an EOS was accepted
    """
    if is_tree(r):
        return reduce_tree(r, n_top)
    drawn, decided, last_coin, fits = sort_coins(r, coins, block)
    weights = block_weights(r) if block else [1.0] * (len(r.drafts) + 1)
    chances = block_chances(r, weights) if block else [
        min(1.0, q[x] / p[x]) for x, q, p in zip(r.drafts, r.target_probs, r.draft_probs)]
    slots = []
    for j, (x, q, p) in enumerate(zip(r.drafts, r.target_probs, r.draft_probs)):
        kept = np.minimum(weights[j] * q, p).sum()      # the chance that a draft is accepted, whichever it is
        slots.append(dict(
            token=x, drawn_with=drawn[j], q=float(q[x]), p=float(p[x]), accept=float(chances[j]),
            P=short(weights[j + 1]) if block else None, coin=decided[j], kept=short(kept),
            verdict=verdict(r, j, block), probs=rows([q, p], [x, *r.tokens[j:j + 1]], n_top)))
    last = None if has_ended(r) else reduce_last(r, last_coin, weights[r.n_accepted], n_top)
    passed = [j for j, coin in enumerate(decided, 1) if coin is not None and coin < chances[j - 1]]
    n_passed = max(passed, default=0) if block else len(passed)
    fits = fits and (has_ended(r) or n_passed == r.n_accepted)
    return dict(tokens=r.tokens, slots=slots, last=last, block=block, fits=fits)


def sort_coins(r, coins, block):
    """(for each draft its coin or None, the same for each verdict, the last; is the number right?)"""
    n = len(r.drafts)
    n_decided = r.n_accepted if has_ended(r) else n if block else min(r.n_accepted + 1, n)
    n_drawn = sum(map(draws, r.draft_probs)) if n else 0
    n_more = len(coins) - n_drawn - n_decided
    coins = iter(coins)
    drawn = [next(coins, None) if draws(p) else None for p in (r.draft_probs if n else [])]
    decided = [next(coins, None) for _ in range(n_decided)] + [None] * (n - n_decided)
    return drawn, decided, next(coins, None), n_more >= 0 if has_ended(r) else n_more in (0, 1)


def has_ended(r):
    """Was an EOS among the accepted drafts?  Then no token of the target's follows."""
    return len(r.tokens) == r.n_accepted


def without_coins(r):
    """A reduced round of a method that uses coins in a way of its own: what became of the drafts, no more."""
    unknown = dict(drawn_with=None, accept=None, coin=None, kept=None, P=None)
    return r | dict(slots=[slot | unknown for slot in r["slots"]], last=r["last"] and dict(
        token=r["last"]["token"], kind=r["last"]["kind"], prob=r["last"]["q"], probs=[]), fits=False)


def draws(probs):
    """Does sampling.sample draw a number for probs [n_vocab]?  Not where all lies on one token."""
    return probs.max() != probs.sum()


def verdict(r, j, block):
    """What became of draft j."""
    if j < r.n_accepted:
        return "accepted"
    if has_ended(r):
        return "after the end"
    return "rejected" if j == r.n_accepted or block else "not tested"


def reduce_last(r, coin, weight, n_top):
    """The correction or the bonus, and what it was drawn from.  `weight`: 1, or block verification's."""
    probs, kind, mass = r.target_probs[r.n_accepted], "bonus", None
    if r.n_accepted < len(r.drafts):
        residual, kind = np.maximum(weight * probs - r.draft_probs[r.n_accepted], 0), "correction"
        mass = short(residual.sum())
        probs = residual / residual.sum() if residual.any() else probs
    x = r.tokens[-1]
    q = float(r.target_probs[r.n_accepted][x])
    return dict(token=x, kind=kind, drawn_with=coin, mass=mass, prob=float(probs[x]), q=q,
                probs=rows([probs], [x], n_top))


def block_weights(r):
    """P_0 .. P_k of block verification (Sun et al., arXiv 2403.10444): the chances to keep as many drafts."""
    weights = [1.0]
    for x, q, p in zip(r.drafts, r.target_probs, r.draft_probs):
        weights.append(min(weights[-1] * q[x], p[x]) / p[x])
    return weights


def block_chances(r, weights):
    """The chance h_j of each draft's coin in block verification; the last coin below its chance decides."""
    chances = []
    for weight, q, p in zip(weights[1:-1], r.target_probs[1:], r.draft_probs[1:]):
        z = np.maximum(weight * q - p, 0).sum()
        chances.append(z / (z + 1 - weight) if z + 1 - weight else 1.0)
    return chances + weights[1:][-1:]


def reduce_tree(r, n_top):
    """A round that drafted a tree: its nodes, the path that was taken, what the target said at its end."""
    path = taken(r)
    nodes = [dict(token=x, parent=parent, q=short(r.target_probs[parent + 1][x]), taken=i in path)
             for i, (x, parent) in enumerate(zip(r.drafts, r.parents))]
    last = None
    if len(r.tokens) > r.n_accepted:
        end, x = (path or [-1])[-1], r.tokens[-1]
        q = r.target_probs[end + 1]
        last = dict(token=x, kind="correction" if end in r.parents else "bonus", parent=end, prob=float(q[x]),
                    probs=rows([q], [x], n_top))
    return dict(tokens=r.tokens, slots=[], nodes=nodes, last=last)


def rows(distributions, marked, n_top):
    """[[token, *its probability in each], ...]: the n_top likeliest of each distribution and the marked, the
    likeliest first; then [None, ...], the mass of all others.

    >>> rows([np.array([.5, .25, .125, .125])], [3], n_top=1)
    [[0, 0.5], [3, 0.125], [None, 0.375]]
    """
    best = [token for probs in distributions for token in likeliest(probs, n_top)]
    kept = np.unique([*marked, *best]).astype(int)
    probs = np.stack(distributions)                     # [1 or 2, n_vocab]
    kept = kept[np.argsort(-probs[:, kept].max(axis=0), kind="stable")]
    others = np.maximum(probs.sum(axis=-1) - probs[:, kept].sum(axis=-1), 0)
    columns = [*probs[:, kept].T, others]
    return [[token, *map(short, column)] for token, column in zip([*kept.tolist(), None], columns)]


def likeliest(probs, n):
    """The n likeliest tokens of probs [n_vocab], ties by index; fewer where fewer are possible."""
    n = min(n, len(probs))
    least = np.partition(probs, -n)[-n]                 # np.argpartition takes thirty times as long
    tokens = np.flatnonzero((probs >= least) & (probs > 0))
    return tokens[np.argsort(-probs[tokens], kind="stable")][:n]


def short(x):
    return float(f"{x:.4g}")


def totals(rounds, result):
    """Of all reduced rounds.  `by_slot[j]`: how many drafts j were tested, accepted, and expected to be; of
    trees how many levels j; then nothing is expected, nor if the coins' meaning is unknown.
    """
    by_slot, tests = [], [tests_of(r) for r in rounds]
    unknown = any(not r.get("fits") for r in rounds)
    for j in range(max((max(len(r["slots"]), len(t)) for r, t in zip(rounds, tests)), default=0)):
        tested = [t[j] for t in tests if j < len(t)]
        expected = None if unknown else sum(kept for _, kept in tested)
        by_slot.append(dict(tested=len(tested), accepted=sum(a for a, _ in tested), expected=expected))
    n_tokens = sum(len(r["tokens"]) for r in rounds)
    return dict(rounds=len(rounds), tokens=n_tokens, tokens_per_target_pass=ratio(n_tokens, len(rounds)),
                by_slot=by_slot, accepted=sum(s["accepted"] for s in by_slot),
                tested=sum(s["tested"] for s in by_slot), **{key: result.get(key) for key in SPEEDS})


def tests_of(r):
    """[(was it accepted, the chance to be)] of what was tested in a reduced round, in its order."""
    if "nodes" in r:                                    # a level, as reporting.stats.acceptance counts
        n_taken = sum(node["taken"] for node in r["nodes"])
        refused = bool(r["last"]) and r["last"]["kind"] == "correction"
        return [(True, None)] * n_taken + [(False, None)] * refused
    return [(s["verdict"] == "accepted", s["kept"]) for s in r["slots"]
            if s["verdict"] in ("accepted", "rejected")]


def pieces(encoder, rounds):
    """Lists of tokens, one a round -> the text of each token; half a character waits for its other half."""
    stream = encoder.stream()
    texts = [[stream([token] if token != encoder.eos else []) for token in tokens] for tokens in rounds]
    if texts:
        texts[-1][-1] += stream([], final=True)
    return texts


def page(rounds, result, encoder, seconds=None):
    """The whole page as a string.

    rounds      from reduce_round
    seconds     (of each step of the baseline, of each of these rounds), for the race; or None
    """
    if not all(r.get("fits", True) for r in rounds):
        rounds = [without_coins(r) for r in rounds]
    shown, size = [], 0
    for r in rounds:
        size += len(compact(r))
        if size > LIMIT:
            break
        shown.append(r)
    shown = [r | dict(text=text) for r, text in zip(shown, pieces(encoder, [r["tokens"] for r in shown]))]
    race = None
    if seconds and shown:
        n = sum(len(r["tokens"]) for r in shown)        # a long run is cut; then both are
        alone = [[token] for token in result["autoregressive"]["tokens"][:n]]
        race = dict(text=[text for [text] in pieces(encoder, alone)],
                    alone=[*map(short, seconds[0][:len(alone)])],
                    rounds=[*map(short, seconds[1][:len(shown)])])
    settings = {key: result[key] for key in SETTINGS if result.get(key) is not None}
    data = compact(dict(settings=settings, totals=totals(rounds, result),
                        names=names(shown, encoder), rounds=shown, race=race))
    template = TEMPLATE.read_text(encoding="utf-8").replace("{{mark}}", TRACE, 1)
    # A string of the model may hold "</script>": without "<" nothing in the data can end its element.
    return template.replace("{{data}}", data.replace("<", "\\u003c"), 1)


def names(rounds, encoder):
    """{token: its text} for every token that the page names."""
    parts = [part for r in rounds for part in [*r["slots"], *r.get("nodes", []), r["last"]] if part]
    ids = {part["token"] for part in parts} | {row[0] for part in parts for row in part.get("probs", [])}
    return {token: encoder.to_bytes(token).decode("utf-8", errors="backslashreplace")
            for token in sorted(ids - {None})}


def compact(data):
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def write_trace(path, rounds, result, encoder, seconds=None):
    """Write the page; the arguments are those of `page`.  Raises ValueError; nothing is lost then."""
    write_page(path, page(rounds, result, encoder, seconds))
