"""Counts: how many tokens a target pass gives, for each method of methods.py.  No clock.

    python -m benchmarks counts             hours; Ctrl-C stops it, and finished counts are kept
    python -m benchmarks counts lookup      only what this method's row in docs/methods.md needs

The number of tokens per pass depends on the pair of models, the method, the temperature, K and the prompts,
but not on the machine (kernels differ at near-ties only).  So it is counted once, with a standard error.

A prompt is an opening, that is, a line of openings.txt, and 16 tokens by which the target has continued it at
temperature 1.  The rounds that begin in the next 60 tokens are counted; these tokens are at the places 0 to
59.  When all openings have been used, they are continued again with other seeds, until the standard error is
small enough.  A cell of counts.json, say "model token K=4 T=1", has

    tokens, se      tokens per target pass, and the standard error, from the differences between texts
    drafts          drafts per round; in a tree, nodes
    kept            [j] the share of rounds in which at least j + 1 drafts were accepted
    tested          [j] the share of rounds that accepted the first j drafts and had one more (in a tree: one
                    more level); kept / tested is the acceptance rate of draft j + 1

Counting without coins.  A coin is the random number of an accept test.  A run draws drafts and coins, and
both decide its text and its rounds.  Often neither has to be drawn.  Instead the target alone writes a
text X.  Then the probability of each round is computed, given that a run writes X.  This gives the same
averages, because a lossless run writes X with the same probability as the target does.

One draft.  At the place of a draft, X has the token x.  A run emits x here with probability q(x) in all, and
as an accepted draft with probability min(p(x), q(x)).  (Otherwise x is the correction.)  So in the runs that
write X, the draft was accepted with probability min(p, q) / q, which is

    min(1, r)           r = p(x) / q(x)

One round.  The probability that it accepts at least j drafts is the product of min(1, r_i) over its first j
tokens.  Block verification has P_j q in place of q (samplers/block.py explains P_j).  So it accepts draft
j + 1 with probability min(1, r_{j+1} / P_j).  The product of the first j of these is the smallest of 1, r_1,
r_1 r_2, .., r_1 .. r_j.

One text.  The first round begins at place 0.  If a round begins at t and accepts j drafts, the next one
begins at t + j + 1.  This gives the chance that a round begins at t, for one t after another.  The sum of
these chances is the expected number of rounds.  If each chance is multiplied by the expected tokens of a
round that begins there, the sum is the expected number of tokens.

This works only for lossless methods whose drafts depend on the text alone and are the same for every K.  The
others are run, coins and all, from an empty memory for each text: trees, lossy rules, `coupled`, drafters
with a memory or with random draws of their own, and drafters that choose how many drafts to make.

At temperature 0 a small model soon repeats itself in a loop, and drafters that copy are then nearly always
right.  So some cells count only rounds that begin at certain places.  "lookup token K=4 places:0-20 T=0" has
the first 20 places, before most loops; places:20-40 and places:40-60 have later ones.  "prompts:copying" has
the first 20 places after the prompts of copying.txt, in which phrases and names recur.

Limitations: these openings, 60 tokens, and the embedded pair.  Only a change of weights is noticed: after
changing the openings or the constants here, delete counts.json.  Run this program only once at a time: of
two, one would overwrite the other's cells.
"""
import hashlib
import json
import math
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np
from tqdm import tqdm

from benchmarks.sequoia import best_tree
from console import rewrite
from drafters import adaptive
from methods import DRAFTERS, VERIFIERS, Models, choose
from reporting.stats import by_rank
from samplers.batch import batch_sampling
from samplers.tree_model import depths
from sampling import probabilities
from utils import load_model

HERE = Path(__file__).resolve().parent
FILE = HERE / "results" / "counts.json"
DRAFT, TARGET = "demo-draft", "demo-target"
N_MORE, N_TOKENS, MOST, UNITS = 16, 60, 8, 46   # N_: tokens; MOST drafts per round; UNITS texts at a time
# Only rounds that begin at these places of a text are counted.
WHERE = {"": (0, N_TOKENS), "places:0-20": (0, 20), "places:20-40": (20, 40), "places:40-60": (40, 60),
         "prompts:copying": (0, 20)}
KS, TEMPERATURES = (2, 4, 8, 1, 3, 6), (0, 1, .5)               # the most important first
SHAPES = "3,2,1", "2,1,1,1", "4,1,1,1", "8,1,1,1", "2,2,2", "1,1,1"
EXITS = 2, 4, 6, 8, 10, 12
LOSSY = "lenient:0.8", "lenient:0.5", "lenient:0.1", "typical:0.3,0.55", "typical:0.01,0.1"
DEPTH, SIZES = 8, (4, 8, 16, 32, 64, 128, 256, 512)     # of the best trees (sequoia.py): most levels, nodes
# In a run these depend on a clock.  Here they are fixed: sublayers to skip, and c and v for `optimum`.
FIXED = {"layer_skip": "layer_skip:a5,a6,a7,a8,a9,a10,m7,m8"}
COSTS = dict(c=0.15, v=1.4)

# Drafters whose drafts depend on the text alone; a larger K only adds drafts.
MEMORYLESS = "model", "lookup", "ngram", "early_exit", "eagle", "medusa", "parallel"
# (p / q along the text) [.., K] -> the chance that at least 1 .. K drafts are accepted
CHANCES = {"token": lambda r: np.minimum(r, 1).cumprod(-1),
           "block": lambda r: np.minimum.accumulate(np.minimum(r.cumprod(-1), 1), -1)}


# What is counted --------------------------------------------------------------------------------------------

def plan():
    """[(drafter, verifier, K, T, where)]: the cells that need no coins come first.  K is None for a tree."""
    def cells(pairs, Ks=(None,), temperatures=TEMPERATURES):
        return [(*pair, K, T) for T in temperatures for K in Ks for pair in pairs]

    lines = [(FIXED.get(name, name), "token") for name in DRAFTERS]
    lines += [("model", name) for name, entry in VERIFIERS.items() if not entry.tree]
    rules = [name for name, entry in VERIFIERS.items() if entry.tree]
    trees = [("model", f"{rule}:{shape}") for shape in SHAPES for rule in rules]
    trees += [(name, f"tree:{shape}") for shape in ("3,2,1", "2,2", "4,2,2")
              for name, entry in DRAFTERS.items() if entry.grows == "own"]
    trees += [("eagle", f"{rule}:3,2,1") for rule in ("tree", "traversal", "surest")]
    wide = [("model", f"{rule}:{k},1,1,1") for k in (2, 16, 32) for rule in ("tree", "specinfer", "k_seq")]
    best = [("model", f"tree:best{n}") for n in SIZES] + [("eagle", f"tree:best{n}") for n in SIZES[:4]]
    found = [*cells(lines, KS), *cells(trees), *cells(wide, temperatures=[1]),
             *cells([("model", rule) for rule in LOSSY], [4], [1]),
             *cells([(f"early_exit:{n}", "token") for n in EXITS], [4], [0, 1]),
             *cells(best, temperatures=[1, 0])]
    rows = [cell for names in (DRAFTERS, VERIFIERS) for name in names for cell in row(name)]
    later = [(name, "token", 4, 0, where) for where in ("places:20-40", "places:40-60")
             for name in ("model", "lookup", "suffix", "jacobi", "eagle")]
    found = dict.fromkeys([*rows, *later, *((*counted_as(*cell), "") for cell in found)])
    return sorted(found, key=lambda cell: not is_exact(*cell[:2]))              # quick ones first


def row(name):
    """The cells of this entry's row in docs/methods.md: T = 0 before loops, T = 1, T = 0 when copying."""
    if name in DRAFTERS:
        pair = FIXED.get(name, name), "token", 4
    else:
        pair = ("model", f"{name}:3,2,1", None) if VERIFIERS[name].tree else ("model", name, 4)
    columns = (0, "places:0-20"), (1, ""), (0, "prompts:copying")
    return [(*counted_as(*pair, T), where) for T, where in columns]


def counted_as(drafter, verifier, K, T):
    """The cell that is counted in place of this one, because both accept the same drafts.

    At temperature 0 p and q are one-hot.  Then all rules for trees judge the same tree of likeliest tokens,
    lossy rules and `coupled` accept what Algorithm 2 accepts, and a cascade drafts what its draft model
    would.  At any temperature TLI does so, because here both models share a vocabulary."""
    name, _, option = verifier.partition(":")
    drafter = "model" if drafter == "tli" else drafter
    if T == 0:
        if VERIFIERS[name].lossless is False or name == "coupled":
            verifier = "token"
        elif VERIFIERS[name].tree == "rule":
            verifier = f"tree:{option}"
        drafter = "model" if drafter == "cascade" else drafter
    return drafter, verifier, K, T


def name_of(drafter, verifier, K, T, where=""):
    return " ".join(filter(None, [drafter, verifier, K and f"K={K}", where, f"T={T:g}"]))


@cache
def loaded(drafter, verifier, T):
    """(method, models)"""
    name, _, n_best = verifier.partition(":best")
    method = choose(drafter, name if n_best else verifier)
    if n_best:
        _, shape = best_tree(ranks(drafter, T), int(n_best), DEPTH)
        method = method._replace(verifier=method.verifier._replace(option=shape))
    return method, Models(DRAFT, TARGET)


@cache
def ranks(drafter, T):
    """How often the root's first child is accepted, its second, .., its sixteenth."""
    method, models = loaded(drafter, "tree:16", T)
    return by_rank([r for seed, prompt in enumerate(prompts(0, UNITS))
                    for r in rounds_of(method, made(method, models, 1), prompt, 1, T, seed)])


def made(method, models, K):
    """A new Pair, with c and v fixed."""
    with mock.patch.object(adaptive, "measured_costs", lambda *_: COSTS):
        return method.pair(models, openings()[0], K, dict(temperature=0, top_k=0, top_p=1.0, eos=None))


@cache
def openings(file="openings.txt"):
    encoder = load_model(TARGET)[1]
    return [encoder.encode(line) for line in (HERE / file).read_text(encoding="utf-8").splitlines()]


@cache
def prompts(first, n, where=""):
    """n prompts, from number `first` on.  The number is the seed of the opening's continuation.
    The prompts of copying.txt are not continued."""
    if where == "prompts:copying":
        return openings("copying.txt")[first:first + n]
    numbers = range(first, first + n)
    some = [openings()[number % len(openings())] for number in numbers]
    return [opening + said for opening, said in zip(some, continued(some, N_MORE, 1, numbers))]


def continued(prompts, n_tokens, T, seeds):
    """What the target alone writes after the prompts: a list of tokens for each."""
    rngs, said = [np.random.default_rng([seed, n_tokens]) for seed in seeds], [[] for _ in prompts]
    target, _ = load_model(TARGET)
    for rounds in batch_sampling(None, target, prompts, n_tokens, 0, rngs, temperature=T):
        for text, r in zip(said, rounds):
            text += r.tokens
    return said


# Without coins ----------------------------------------------------------------------------------------------

@cache
def texts(T, first, n, where):
    """[n] texts by the target alone: (prompt, N_TOKENS tokens and as many more as a round may reach)."""
    some = prompts(first, n, where)
    return [*zip(some, continued(some, N_TOKENS + MOST + 1, T, range(first, first + n)))]


class OnText:
    """A draft model along a text: one pass computes all its logits."""

    def __init__(self, model, text, first):
        self.first, self.logits = first, model(text, len(text) - first)

    def __call__(self, tokens, n_last=1):
        end = len(tokens) - self.first
        return self.logits[end - n_last:end]


def along(propose, draft, text, n, T):
    """p of each token that follows text[:n], one for each draft.  To make the drafter draw the tokens of the
    text, it is given distributions that are certain of them."""
    p = []

    def to_probs(logits, n_rows=None):
        probs = probabilities(logits, T)                        # [rows, n_vocab]
        here = text[n + len(p):n + len(p) + len(probs)]
        p.extend(probs[range(len(here)), here])
        certain = np.zeros_like(probs)
        certain[range(len(here)), here] = 1
        return certain

    drafts, drawn_from = propose(draft, text[:n], MOST, to_probs, None)
    if drawn_from is None:                                      # chosen: p is one-hot
        p = [float(token == stands) for token, stands in zip(drafts, text[n:])]
    return p[:len(drafts)]


@cache
def target_probs(T, first, n, where):
    """q of each token of these texts."""
    model, _ = load_model(TARGET)
    q = [probabilities(model((prompt + said)[:-1], len(said)), T)[range(len(said)), said]
         for prompt, said in texts(T, first, n, where)]
    return [np.where(some > 0, some, 1) for some in q]          # 0 only if T = 0, at a near-tie


@cache
def ratios(drafter, T, first, n, where):
    """r of all rounds that could begin in these texts: [n, N_TOKENS, MOST], NaN where there is no draft."""
    method, models = loaded(drafter, "token", T)
    pair = made(method, models, MOST)
    q, found = target_probs(T, first, n, where), np.full((n, N_TOKENS, MOST), np.nan)
    for i, (prompt, said) in enumerate(texts(T, first, n, where)):
        text, start = prompt + said, len(prompt)
        if method.drafter.entry.trained == "head":
            pair.target(text[:-1])                              # the head reads this pass's states
        draft = pair.draft and OnText(pair.draft, text[:-1], start - 1)
        for t in range(N_TOKENS):
            p = along(pair.propose, draft, text, start + t, T)
            found[i, t, :len(p)] = np.divide(p, q[i][t:t + len(p)])
    return found


def summed(r, chances, K, places=(0, N_TOKENS)):
    """One text's r [N_TOKENS, MOST] -> the tally of the rounds that begin in these places, averaged over all
    coins."""
    r = r[:, :K]
    there = ~np.isnan(r)                                        # [N_TOKENS, K]   is there such a draft?
    kept = chances(np.where(there, r, 0.0))                     # [N_TOKENS, K]   P(at least j + 1 accepted)
    begins = np.zeros(len(r) + K + 1)                           # the chance that a round begins here
    begins[0] = 1
    for t, chance in enumerate(kept):
        begins[t + 1:t + K + 2] += begins[t] * -np.diff([1, *chance, 0])        # P(0 .. K accepted)
    begins = begins[:len(r)]
    begins[:places[0]] = begins[places[1]:] = 0
    tested = np.column_stack([np.ones(len(r)), kept[:, :-1]]) * there
    return tally(begins.sum(), begins @ (1 + kept.sum(1)), begins @ there.sum(1), begins @ kept,
                 begins @ tested)


# With coins -------------------------------------------------------------------------------------------------

def rounds_of(method, pair, prompt, K, T, seed, places=(0, N_TOKENS)):
    """The rounds of one text that begin in these places.  The run goes on further, so none is cut short."""
    most, n_tokens = method.n_drafts(K), 0
    rounds = method.sampler(pair)(pair.draft, pair.target, prompt, places[1] + most + 1, K,
                                  np.random.default_rng(seed), temperature=T)
    for r in rounds:
        if n_tokens >= places[1]:
            break
        if n_tokens >= places[0]:
            yield r._replace(target_probs=None, draft_probs=None)
        n_tokens += len(r.tokens)


def drawn(method, models, K, T, prompt, seed, places):
    """The tally of one text's rounds."""
    most, n_rounds, n_tokens, n_drafts = method.n_drafts(K), 0, 0, 0
    kept, tested = np.zeros(most), np.zeros(most)
    for r in rounds_of(method, made(method, models, K), prompt, K, T, seed, places):
        deep = max(depths(r.parents), default=0) if r.parents is not None else len(r.drafts)
        kept[:r.n_accepted] += 1
        tested[:min(r.n_accepted + 1, deep)] += 1
        n_rounds, n_tokens, n_drafts = n_rounds + 1, n_tokens + len(r.tokens), n_drafts + len(r.drafts)
    return tally(n_rounds, n_tokens, n_drafts, kept, tested)


# Cells ------------------------------------------------------------------------------------------------------

def tally(rounds, tokens, drafts, kept, tested):
    """The sums of one text, and the squares for the error: tallies are added up over texts."""
    return np.array([1, rounds, tokens, drafts, rounds**2, tokens**2, rounds * tokens, *kept, *tested])


def counted(cell, first, n, done=lambda n: None):
    """The tally of `n` texts.  done(1) is called after each text that is run."""
    drafter, verifier, K, T, where = cell
    method, models = loaded(drafter, verifier, T)
    if is_exact(drafter, verifier):
        return sum(summed(r, CHANCES[verifier], K, WHERE[where]) for r in ratios(drafter, T, first, n, where))
    total = 0
    for seed, prompt in enumerate(prompts(first, n, where), first):
        total = total + drawn(method, models, K or 1, T, prompt, seed, WHERE[where])
        done(1)
    return total


def is_exact(drafter, verifier):
    """Can it be counted without coins?"""
    return drafter.split(":")[0] in MEMORYLESS and verifier in CHANCES


def figures(total):
    """A tally -> a cell of the file."""
    n, rounds, tokens, drafts, rr, tt, rt = total[:7]
    kept, tested = np.split(total[7:] / rounds, 2)
    per_pass = tokens / rounds
    # the variance of tokens - per_pass * rounds, over texts
    spread = max(tt - 2 * per_pass * rt + per_pass**2 * rr, 0) / max(n - 1, 1)
    return {"tokens": round(per_pass, 4), "se": round(math.sqrt(n * spread) / rounds, 4),
            "drafts": round(drafts / rounds, 3), "kept": kept.round(4).tolist(),
            "tested": tested.round(4).tolist(), "texts": int(n), "sums": total.round(4).tolist()}


def wanted(cell):
    """The relative error to reach: one per cent for whole texts if they are cheap or important, else two."""
    drafter, verifier, K, T, where = cell
    if where == "prompts:copying":
        return math.inf                                         # as many texts as there are prompts
    matters = is_exact(drafter, verifier) or K in KS[:3] and T in TEMPERATURES[:2]
    return .01 if matters and not where else .02


def needed(cell, before):
    """How many texts are needed in all, estimated from the error so far."""
    if not before:
        return UNITS * (1 if cell[-1] == "prompts:copying" else 6)
    return round(before["texts"] * max(1, (before["se"] / (wanted(cell) * before["tokens"])) ** 2))


def count_cell(cell, before, bar):
    """Count more texts, until the error is small enough.  before: the cell so far, or None."""
    while not before or before["se"] > wanted(cell) * before["tokens"]:
        total, texts, guess = np.array(before["sums"]) if before else 0, bar.n, needed(cell, before)
        total = total + counted(cell, before["texts"] if before else 0, UNITS, bar.update)
        before = figures(total)
        bar.total += needed(cell, before) - guess
        bar.update(texts + UNITS - bar.n)
    return before


def count(name="", file=FILE):
    """Count all cells, or those of this entry's row, to the wanted error; write the file after each."""
    found, cells = read(file), row(name) if name else plan()
    texts = [needed(cell, found.get(name_of(*cell))) - found.get(name_of(*cell), {"texts": 0})["texts"]
             for cell in cells]
    with tqdm(total=sum(texts), unit=" texts", disable=None) as bar:
        for cell in cells:
            bar.set_description(this := name_of(*cell))
            before = found.get(this)
            found[this] = count_cell(cell, before, bar)
            if found[this] != before:
                write(file, found)
    return {name_of(*cell): found[name_of(*cell)] for cell in cells}


def read(file):
    """{name: cell}.  Raises ValueError if they were counted on other weights."""
    if not file.exists():
        return {}
    found = json.loads(file.read_text(encoding="utf-8"))
    if found["about"]["weights"] != weights():
        raise ValueError(f"{file} was counted on weights other than those in models/: delete it, then "
                         "start again")
    return found["cells"]


def write(file, cells):
    about = dict(draft=DRAFT, target=TARGET, openings=len(openings()), n_tokens=N_TOKENS, optimum=COSTS,
                 layer_skip=FIXED["layer_skip"], weights=weights())
    write_json(file, dict(about=about, cells=cells))


def weights():
    """{folder: a checksum}"""
    return {path.parent.name: hashlib.sha256(path.read_bytes()).hexdigest()[:12]
            for path in sorted(HERE.parent.glob("models/demo-*/model.ckpt.data*"))}


def write_json(file, found):
    """{part: {name: ..}}, one line per name."""
    def lines(part):
        return ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in part.items())
    parts = ",\n".join(f' "{name}": {{\n{lines(part)}\n }}' for name, part in found.items())
    rewrite(file, f"{{\n{parts}\n}}\n")
