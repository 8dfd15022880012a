"""What speculative sampling gains on this machine, and why: tables of measurements, each with what it depends on.

    python -m benchmarks --tables=pairs --out=results        the embedded pair: acceptance, c, v, predicted and measured speed-up
    python -m benchmarks --quick                           every table in a few seconds, on models too small to mean anything

    pairs           draft:target over K and temperatures, on a file of prompts
    synthetic       the same for a random full-size pair (synthetic.py) over its dial: speed-ups for acceptance rates from 0 to 1
    forward         a pass over 1, 2, 3 .. rows against the bandwidth of the memory         (this and the next three: measure.py)
    parts           the same by its parts
    prefill         a long prompt against the machine's rate of products
    loading         a model from its files to the first token: time and memory
    transformers    both samplers against the transformers library on PyTorch, same weights; only if asked for

A flag is written --name=value, a list with commas; the names are in DEFAULTS.  With --out=FOLDER each table is also written there,
as .json and .md, and as a plot where matplotlib is installed.

"predicted" is theorem 3.8 with the run's own acceptance rate, c and v; "explained" is the same without its assumption that acceptances
are independent, (tokens per pass) / (K c + v).

Times are medians over repetitions in the order A B A B, after a warm-up.  Every timed run starts from an empty cache and generates
equally many tokens; loading, tokenizing and printing are outside, the prompt's own pass is inside.  With --backend=cupy the models run
on a GPU, which every table names, and each reading of the clock waits for it.

But: on a busy machine all of it is noise, and more so with two threads, which wait for each other.
"""
import json
import sys
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import numpy as np

from autoregressive import autoregressive_sampling
from compute.backend import clock, on_gpu, use
from benchmarks.measure import forward, loading, machine, parts, prefill, resident, seconds, size_of, textbook
from speculative import speculative_sampling
from reporting.stats import Timed, acceptance, predicted_speedup, ratio
from benchmarks.synthetic import synthetic_pair
from utils import load_model

PROMPTS = Path(__file__).resolve().parent / "prompts.txt"
DEFAULTS = dict(tables=["pairs", "synthetic", "forward", "parts", "prefill", "loading"], out="", models_dir="models", backend="numpy",
                repetitions=5, pairs=["demo-draft:demo-target"], K=[1, 2, 3, 4, 5, 6, 8], temperatures=[0.0, 1.0], n_tokens=60, prompts="",
                synthetic=["355M:2"], dials=[0.0, 0.02, 0.05, 0.1, 0.2, 1.0], n_synthetic=30,       # size:layers of the draft
                K_fixed=4,                                                      # of the tables synthetic and transformers
                models=["demo-target", "124M", "355M"], rows=[1, 2, 3, 4, 5, 6, 8, 9, 12, 16], n_cached=60, n_prefill=512,
                n_matrix=8192)                                                  # [n, n], to measure the bandwidth
QUICK = dict(repetitions=1, K=[1, 4], n_tokens=8, synthetic=["tiny:1"], dials=[0.0, 0.2], n_synthetic=8, models=["tiny"], rows=[1, 5],
             n_cached=20, n_prefill=64, n_matrix=512)


# Both samplers --------------------------------------------------------------------------------------------------------------------

def load_pair(name, s):
    """(draft, target, prompts as tokens):  "124M:1558M", or "synthetic:355M:2:0.1" for synthetic_pair("355M", 2, 0.1)."""
    if name.count(":") != (3 if name.startswith("synthetic:") else 1):
        raise ValueError(f"{name!r} is no pair: write draft:target, or synthetic:SIZE:LAYERS:DIAL")
    if name.startswith("synthetic:"):
        _, size, n_first, dial = name.split(":")
        draft, target = synthetic_pair(size, int(n_first), float(dial))
        return draft, target, np.random.default_rng(0).integers(target.n_vocab, size=(2, 16)).tolist()
    draft, target = name.split(":")
    target, encoder = load_model(target, s.models_dir)
    lines = Path(s.prompts or PROMPTS).read_text(encoding="utf-8").splitlines()
    return load_model(draft, s.models_dir)[0], target, [encoder.encode(line) for line in lines if line]


def generate(models, prompts, n_tokens, temperature, K=None):
    """All prompts from empty caches, autoregressively if K is None -> (seconds, rounds, [timed models of each prompt])."""
    total, rounds, watched = 0.0, [], []
    for seed, tokens in enumerate(prompts):
        timed = [Timed(model) for model in models]
        for model in models:
            model.reset()
        start = clock()
        if K is None:
            run = autoregressive_sampling(*timed, tokens, n_tokens, np.random.default_rng(seed), temperature=temperature)
        else:
            run = speculative_sampling(*timed, tokens, n_tokens, K, np.random.default_rng(seed), temperature=temperature)
        rounds += run
        total += clock() - start
        watched.append(timed)
    return total, rounds, watched


def text_of(rounds):
    return [token for r in rounds for token in r.tokens]


def call_seconds(runs, which, n_last):
    """Median seconds of one model's calls for n_last rows in several runs of `generate`, the calls with the prompts left out."""
    times = [time for _, _, watched in runs for timed in watched for n, time in timed[which].calls[1:] if n == n_last]
    return median(times) if times else None


def by_position(rounds, K):
    """Acceptance rate of the first, second, .. draft of a round, among those that were tested.

    >>> from sampling import Round
    >>> by_position([Round([5, 6, 7], [5, 6], 2, [], []), Round([5, 8], [5, 9], 1, [], [])], 3)
    [1.0, 0.5, None]
    """
    accepted = [sum(r.n_accepted > j for r in rounds) for j in range(K)]
    rejected = [sum(r.n_accepted == j < len(r.drafts) and len(r.tokens) > j for r in rounds) for j in range(K)]
    return [ratio(a, a + b) for a, b in zip(accepted, rejected)]


def compare(name, Ks, temperature, n_tokens, s):
    """One pair at one temperature: a row for each K, the baseline and all K interleaved."""
    draft, target, prompts = load_pair(name, s)
    alone, pairs = [], [[] for _ in Ks]
    for n in [2 + max(Ks)] + [n_tokens] * s.repetitions:                        # the first is the warm-up
        alone.append(generate([target], prompts, n, temperature))
        for K, runs in zip(Ks, pairs):
            runs.append(generate([draft, target], prompts, n, temperature, K))
    memory = {"weights MB": size_of(draft, target) / 1e6, "resident MB": (resident() or 0) / 1e6}
    return [{"pair": name, "T": temperature, "K": K, "N": n_tokens, "prompts": len(prompts)} | figures(alone[1:], runs[1:], K) | memory
            for K, runs in zip(Ks, pairs)]


def figures(alone, runs, K):
    """The speed-up of runs over runs alone, and what explains it."""
    rounds = runs[0][1]                                                         # repetitions share seeds, hence rounds
    n_tokens, alpha, step = len(text_of(rounds)), ratio(*acceptance(rounds)), call_seconds(alone, 0, 1)
    per_pass, measured = n_tokens / len(rounds), median(a[0] / b[0] for a, b in zip(alone, runs))
    c, v = ratio(call_seconds(runs, 0, 1), step), ratio(call_seconds(runs, 1, K + 1), step)
    predicted, explained = (None, None) if None in (alpha, c, v) else (predicted_speedup(alpha, K, c, v), per_pass / (K * c + v))
    return {"acceptance": alpha, "by position": by_position(rounds, K), "tokens per pass": per_pass, "step ms": step * 1e3, "c": c,
            "v": v, "predicted": predicted, "measured": measured, "measured / predicted": ratio(measured, predicted),
            "measured / explained": ratio(measured, explained), "tokens/s alone": n_tokens / median(a[0] for a in alone),
            "tokens/s": n_tokens / median(b[0] for b in runs), "same text": text_of(alone[0][1]) == text_of(rounds)}


# Against transformers -------------------------------------------------------------------------------------------------------------

def to_transformers(model):
    """The same weights as a GPT2LMHeadModel."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    n_layer, _, n_head, _, d_head = model.cache.shape
    theirs = GPT2LMHeadModel(GPT2Config(vocab_size=model.n_vocab, n_positions=model.n_ctx, n_embd=n_head * d_head, n_layer=n_layer,
                                        n_head=n_head, bos_token_id=None, eos_token_id=None)).eval()
    params = textbook(model.params)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():                       # "transformer.h.0.attn.c_attn.weight"
            place = params
            for part in name.removeprefix("transformer.").split("."):
                if not isinstance(place, np.ndarray):                           # "wte.weight" is one of ours already as "wte"
                    part = {"h": "blocks", "bias": "b", "weight": "w" if "w" in place else "g"}.get(part, part)
                    place = place[int(part) if part.isdigit() else part]
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(place)))
    return theirs


def against_transformers(name, K, s):
    """Greedy tokens a second: alone against `generate`, speculative against `generate` with an assistant, all four interleaved."""
    import torch
    draft, target, prompts = load_pair(name, s)
    assistant, theirs = to_transformers(draft), to_transformers(target)
    assistant.generation_config.update(num_assistant_tokens=K, num_assistant_tokens_schedule="constant",
                                       assistant_confidence_threshold=0.0)
    texts = [None] * 4

    def ours(i, *models, K=None):
        texts[i] = text_of(generate(models, prompts, s.n_tokens, 0.0, K)[1])

    def generated(i, **more):
        texts[i] = []
        for tokens in prompts:
            ids = torch.tensor([tokens])
            new = theirs.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=s.n_tokens,
                                  min_new_tokens=s.n_tokens, pad_token_id=0, **more)[0, len(tokens):]
            texts[i] += new.tolist()

    times = seconds(s.repetitions, lambda: ours(0, target), lambda: generated(1), lambda: ours(2, draft, target, K=K),
                    lambda: generated(3, assistant_model=assistant))
    a, b, c, d = (len(texts[0]) / time for time in times)
    return [{"pair": name, "T": 0.0, "K": K, "N": s.n_tokens, "tokens/s": a, "transformers": b, "ratio": a / b,
             "speculative tokens/s": c, "transformers assisted": d, "ratio of these": c / d, "speed-up": c / a,
             "speed-up in transformers": d / b, "same texts": texts[0] == texts[1] == texts[2] == texts[3],
             "torch threads": torch.get_num_threads()}]


# Tables ---------------------------------------------------------------------------------------------------------------------------

def rows_of(table, s):
    """The rows of a table, each {column: value}."""
    if table == "pairs":
        return [row for name in s.pairs for temperature in s.temperatures for row in compare(name, s.K, temperature, s.n_tokens, s)]
    synthetic = [f"synthetic:{name}:{dial}" for name in s.synthetic for dial in s.dials]
    if table == "synthetic":                                                    # at temperature 1: greedy noise repeats itself
        return [row for name in synthetic for row in compare(name, [s.K_fixed], 1.0, s.n_synthetic, s)]
    if table == "transformers":
        if on_gpu():
            raise ValueError("the table transformers is measured on the CPU: take it with --backend=numpy")
        return [row for name in [*s.pairs, *synthetic] for row in against_transformers(name, s.K_fixed, s)]
    more = {"forward": (forward, 3 * s.repetitions, s.rows, s.n_cached, s.n_matrix),
            "parts": (parts, 3 * s.repetitions, [1, 5], s.n_cached),
            "prefill": (prefill, s.repetitions, s.n_prefill, s.n_matrix), "loading": (loading, s.repetitions)}
    if table not in more:
        raise ValueError(f"there is no table {table!r}: take some of pairs, synthetic, transformers, {', '.join(more)}")
    measure, *settings = more[table]
    return [row for name in s.models for row in measure(name, s.models_dir, *settings)]


def shown(value):
    """
    >>> [shown(value) for value in (0.123456, 1234.5, 60, None, [0.5, None], "tiny", True)]
    ['0.123', '1234', '60', '-', '0.50 -', 'tiny', 'yes']
    """
    if isinstance(value, list):
        return " ".join("-" if v is None else f"{v:.2f}" for v in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 100 else f"{value:.0f}"
    return "-" if value is None else str(value)


def as_markdown(title, about, rows):
    """A heading, what the figures depend on, and the rows."""
    cells = [list(rows[0]), *([shown(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join([f"## {title}", "", "; ".join(f"{key} {value}" for key, value in about.items()), "", *lines, ""])


LABELS = {"K": "K, drafts a round", "measured": "measured speed-up", "predicted": "predicted speed-up", "acceptance": "acceptance rate",
          "rows": "rows of a pass", "over one row": "time over that of one row", "share": "share of the time of a pass"}


def plot(table, rows, folder):
    """The pictures of a table, where matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    pictures = {"pairs": [("K", "measured", ("pair", "T")), ("predicted", "measured", ("pair", "T"))],
                "synthetic": [("acceptance", "measured", ("K", "N")), ("predicted", "measured", ("K", "N"))],
                "forward": [("rows", "over one row", ("model",))], "parts": [("share", "", ())]}
    for x, y, by in pictures.get(table, []):
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        if table == "parts":
            stack_parts(axes, rows)
        else:
            for group in dict.fromkeys(tuple(row[key] for key in by) for row in rows):
                points = sorted((row[x], row[y]) for row in rows if row[x] is not None and tuple(row[key] for key in by) == group)
                axes.plot([x for x, _ in points], [y for _, y in points], "o" if x == "predicted" else "o-",
                          label=", ".join(f"{key} {value}" for key, value in zip(by, group)))
            axes.axline((1, 1), slope=x == "predicted", color="grey", linewidth=0.5)            # no gain; or just as predicted
        axes.set(xlabel=LABELS.get(x, x), ylabel=LABELS.get(y, y), title=table)
        if x == "predicted":
            axes.set_aspect("equal", adjustable="datalim")
        figure.legend(loc="outside lower center", ncols=3, fontsize="small")
        figure.savefig(Path(folder) / f"{table}_{x}.png", dpi=100)


def stack_parts(axes, rows):
    """A bar for each model and number of rows, its parts as shares."""
    bars = list(dict.fromkeys((row["model"], row["rows"]) for row in rows))
    left = [0.0] * len(bars)
    for part in dict.fromkeys(row["part"] for row in rows):
        widths = [sum(row["ms"] for row in rows if (row["model"], row["rows"], row["part"]) == (*bar, part)) for bar in bars]
        totals = [sum(row["ms"] for row in rows if (row["model"], row["rows"]) == bar) for bar in bars]
        shares = [width / total for width, total in zip(widths, totals)]
        axes.barh([f"{model}\n{n} rows" for model, n in bars], shares, left=left, label=part)
        left = [a + b for a, b in zip(left, shares)]


# Command line ---------------------------------------------------------------------------------------------------------------------

def read_flags(words):
    """["--K=1,2"] -> the settings, as attributes."""
    settings = DEFAULTS | (QUICK if "--quick" in words else {})
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if word == "--quick":
            continue
        if not word.startswith("--") or name not in DEFAULTS or not equals:
            raise ValueError(f"{word!r} is not a flag: write --quick, or --name=value with one of {', '.join(DEFAULTS)}")
        default = DEFAULTS[name]
        try:
            settings[name] = [type(default[0])(v) for v in value.split(",")] if isinstance(default, list) else type(default)(value)
        except ValueError:
            raise ValueError(f"{word}: that is no number, or not a whole one") from None
    return SimpleNamespace(**settings)


def main(words):
    """Run the command line; returns the exit status."""
    if words in (["--help"], ["-h"]):
        print(__doc__, *(f"    --{name}={default}" for name, default in DEFAULTS.items()), sep="\n")
        return 0
    try:
        s = read_flags(words)
        use(s.backend)
        about = machine() | {"repetitions": s.repetitions}
        for table in s.tables:
            rows = rows_of(table, s)
            print(as_markdown(table, about, rows), flush=True)
            if s.out:
                Path(s.out).mkdir(parents=True, exist_ok=True)
                Path(s.out, f"{table}.md").write_text(as_markdown(table, about, rows), encoding="utf-8")
                result = json.dumps(dict(machine=about, settings=vars(s), rows=rows), indent=1)
                Path(s.out, f"{table}.json").write_text(result + "\n", encoding="utf-8")
                plot(table, rows, s.out)
    except (ValueError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
