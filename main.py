"""Autoregressive and speculative sampling side by side, timed.

    python main.py --prompt "Alan Turing theorized that" --draft_model_size 124M --target_model_size 1558M

Without flags it runs the embedded pair.
"""
import signal

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)    # Ctrl-C while the libraries load: no traceback

import inspect
import json as json_format
import os
import shutil
import sys
from difflib import get_close_matches
from functools import partial
from math import isfinite
from pathlib import Path
from textwrap import dedent, fill
from types import SimpleNamespace

import fire
import numpy as np
from tqdm import tqdm

from autoregressive import autoregressive_sampling
from benchmarks.measure import seconds
from compute import backend as backends
from drafters import layer_skip, lookup
from drafters.adaptive import Optimum
from drafters.early_exit import EarlyExit
from drafters.heads import head_beside
from drafters.medusa import Medusa
from drafters.ngram import NGram
from drafters.eagle import Eagle
from loading.files import read_text, told
from reporting.many import continue_all, prompts_in
from pages.replay import Coins, recorded, write_trace
from reporting.stats import Timed, TimedProposer, acceptance, advice, clocked, predicted_speedup, ratio
from reporting.terminal import watch
from samplers import block
from samplers.batch import batch_sampling
from samplers.tree import depths, shape_of, tree_sampling, with_tree
from sampling import check_K, check_settings, prepare
from speculative import propose, speculative_sampling, verify
from utils import load_pair

PROMPT = '"I want nothing," cried the young man, with a smile.'
WIDTHS = "3,2,1"
MOST = 8            # drafts a round with --K auto


def compare(prompt=PROMPT, n_tokens_to_generate=60, draft_model_size="demo-draft",
            target_model_size="demo-target", K=4, temperature=0.0, top_k=0, top_p=1.0, seed=0,
            models_dir="models", backend="numpy", drafter="model", verifier="token", widths=WIDTHS,
            prompts_file="", show_rounds=False, trace="", json=False, exit_layer=0, ngram_file=""):
    """Generate a continuation of PROMPT twice, autoregressively and speculatively, and compare.

    Args:
        prompt: the text to continue, taken as typed
        n_tokens_to_generate: new tokens, the same for both
        draft_model_size: 124M 355M 774M 1558M distilgpt2, demo-draft demo-target, or a folder
        target_model_size: likewise
        K: drafts a round; auto: up to 8, as many as promise most (measures what they cost before the run)
        temperature: 0 is greedy
        top_k: sample from the k likeliest tokens; 0 for all
        top_p: sample from the likeliest tokens that hold this much probability; 1 for all
        seed: of the random generator
        models_dir: where downloaded models are kept
        backend: numpy, or cupy for a GPU
        drafter: who guesses: model, lookup, ngram, early_exit, layer_skip, eagle, medusa
        verifier: how the guesses are judged: token (Algorithm 2), block, or tree (several at each place)
        widths: of a tree, children a node by level
        prompts_file: a file with a prompt a line, continued as a batch, in place of one prompt
        show_rounds: show what became of each draft, a line a round
        trace: a file for a web page that replays the speculative run
        json: print one JSON object
        exit_layer: with early_exit, after how many layers; 0 where a head was trained, else after half
        ngram_file: with ngram, a text to learn from beforehand
    """
    f = SimpleNamespace(**locals())                             # the flags
    check_flags(f)                                              # what can be told before a download
    backends.use(backend)
    draft, target, propose, encoder = load(f)
    f.settings["eos"] = encoder.eos
    if f.prompts:
        batch = partial(batch_sampling, draft, target, n_tokens=f.n_tokens_to_generate, **f.settings,
                        propose=propose, verify=VERIFIERS[verifier])
        continue_all(batch, f.prompts, encoder, f.n_tokens_to_generate, about(f), target.exact_rows, json)
    else:
        compare_one(f, draft, target, propose, encoder)


def compare_one(f, draft, target, propose, encoder):
    """One prompt, both ways, shown as the rounds come; then what the comparison says."""
    tokens, n, coins = encoder.encode(f.prompt), f.n_tokens_to_generate, Coins(np.random.default_rng(f.seed))
    _, to_probs, _ = prepare([draft, target], tokens, n, **f.settings)   # a prompt that is too long ends here
    costs = costs_of(draft, target, propose, tokens, f.K, to_probs) if f.auto else None
    if costs:
        propose = Optimum(**costs, K=f.K, propose=propose)
        if not f.json:
            print("K = auto: in target steps a draft costs {c}, a pass over {rows} tokens {v}\n".format(
                rows=f.K + 1, **costs))
    propose, recording = TimedProposer(propose), []

    def baseline(model):
        return autoregressive_sampling(model, tokens, n, np.random.default_rng(f.seed), **f.settings)

    def speculative(draft, target):
        if f.shape:
            return tree_sampling(draft, target, tokens, n, f.shape, coins, **f.settings)
        return speculative_sampling(draft, target, tokens, n, f.K, coins, **f.settings,
                                    propose=propose, verify=VERIFIERS[f.verifier])

    def shown(title, rounds, show_rounds=False):
        """Pass the rounds on, and show them as they come.  (The clock stands still meanwhile.)"""
        if f.json:
            return tqdm(rounds, desc=title, unit=" rounds", leave=False, disable=None)
        return watch(rounds, encoder, sys.stdout, title, f.prompt, show_rounds=show_rounds,
                     block=f.verifier == "block")

    def shown_and_kept(rounds):
        if f.trace:
            rounds = recorded(rounds, coins, recording, block=f.verifier == "block")
        return shown("Speculative sampling", rounds, f.show_rounds)

    _, alone, times_alone, ar = run(baseline, [target], tokens, partial(shown, "Autoregressive sampling"))
    if not f.json:
        print(timing(ar))
    rounds, pair, times, spec = run(speculative, [draft, target], tokens, shown_and_kept)
    if not f.json:
        print(timing(spec))
    n_rows = (len(f.shape) if f.shape else f.K) + 1             # of a target pass
    result = dict(prompt=f.prompt, **about(f) | dict(auto=costs), autoregressive=ar, speculative=spec,
                  **figures(ar, alone, spec, [*pair, propose], rounds, f.K, f.verifier, f.shape),
                  same_text=ar["tokens"] == spec["tokens"],
                  same_bits=n_rows <= target.exact_rows and (not f.shape or target.exact_paths))
    for one in (ar, spec):
        one["text"] = encoder.decode([token for token in one["tokens"] if token != encoder.eos])
    if f.trace:
        try:
            write_trace(f.trace, recording, result, encoder, (times_alone, times))
        except OSError as error:
            raise ValueError(told(error, f.trace)) from None
    if f.json:
        print(json_format.dumps(result))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 1000
        written = [f"The rounds are in {f.trace}: open it in a browser."] if f.trace else []
        for line in [*summary(result), *written]:
            print(fill(line, width, break_long_words=False, break_on_hyphens=False))


def about(f):
    """The settings of a run, as --json tells them."""
    return dict(draft=f.draft_model_size if f.drafter == "model" else f.drafter, target=f.target_model_size,
                backend=f.backend, drafter=f.drafter, verifier=f.verifier, K=f.K,
                widths=f.widths if f.shape else None, auto=None, temperature=f.temperature, top_k=f.top_k,
                top_p=f.top_p, seed=f.seed)


# What the flags name.  A drafter makes (draft, target, propose) of the two models, of which the draft is None
# but for "model", and of flags of its own; a verifier is a `verify`, or None for a tree.

def with_ngrams(draft, target, text, **_):
    model = NGram(target.n_vocab)
    model.learn(text)
    return model, target, propose


def with_early_exit(draft, target, exit_layer, head, **_):
    if head and not exit_layer:
        pair = EarlyExit(target, head=head)
    else:
        pair = EarlyExit(target, exit_layer or len(target.params["blocks"]) // 2)
    return pair.draft, pair.target, propose


def with_eagle(draft, target, head, **_):
    return None, target, Eagle(target, head or "demo-eagle").propose


def with_medusa(draft, target, head, **_):
    return None, target, Medusa(target, head or "demo-medusa").propose


def with_layer_skip(draft, target, tokens, **_):
    cost = layer_skip.seconds_per_token(target, [tokens[:target.n_ctx - 20]], n_tokens=20)
    attn, mlp = layer_skip.search(cost, len(target.params["blocks"]), np.random.default_rng(0), steps=20)
    print(f"Skipped, by a short search: attention in layers {list(attn)}, MLP in {list(mlp)}",
          file=sys.stderr)
    pair = layer_skip.LayerSkip(target, attn, mlp)
    return pair.draft, pair.target, layer_skip.DraftExit()


DRAFTERS = {
    "model": lambda draft, target, **_: (draft, target, propose),
    "lookup": lambda draft, target, **_: (None, target, lookup.propose),
    "ngram": with_ngrams,
    "early_exit": with_early_exit,
    "layer_skip": with_layer_skip,
    "eagle": with_eagle,
    "medusa": with_medusa,
}
VERIFIERS = {
    "token": verify,
    "block": block.verify,
    "tree": None,
}


def check_flags(f):
    """Raises ValueError in one sentence for what can be told before a model is loaded.  Completes f:

    auto, shape, prompts, text      of --K, --widths, --prompts_file, --ngram_file
    settings                        temperature, top_k and top_p
    """
    for flag, default, where, goes in [
            ("widths", WIDTHS, "--verifier tree", f.verifier == "tree"),
            ("draft_model_size", "demo-draft", "--drafter model", f.drafter == "model"),
            ("exit_layer", 0, "--drafter early_exit", f.drafter == "early_exit"),
            ("ngram_file", "", "--drafter ngram", f.drafter == "ngram"),
            ("prompt", PROMPT, "a run without --prompts_file", not f.prompts_file),
            ("K", 4, "a line of drafts: the tree's --widths say how deep it is", f.verifier != "tree")]:
        if getattr(f, flag) != default and not goes:
            raise ValueError(f"--{flag} is for {where}")
    f.auto, f.K = f.K == "auto", MOST if f.K == "auto" else f.K
    f.settings = dict(temperature=f.temperature, top_k=f.top_k, top_p=f.top_p)
    check_settings(f.n_tokens_to_generate, **f.settings)
    check_K(f.K)
    if f.K > 1024:
        raise ValueError(f"K is {f.K}: no context holds so many drafts; 2 to 8 a round are usual")
    if f.seed < 0:
        raise ValueError(f"seed is {f.seed}: it must be 0 or more")
    if not f.prompt:
        raise ValueError("the prompt is empty: give it some text, as in --prompt 'Once upon a time'")
    for flag, name, table in ("drafter", f.drafter, DRAFTERS), ("verifier", f.verifier, VERIFIERS):
        if name not in table:
            raise ValueError(f"there is no {flag} {name!r}: use one of {', '.join(table)}")
    f.shape = shape_in(f.widths) if f.verifier == "tree" else None
    if f.shape:
        if f.prompts_file or f.drafter != "model":
            raise ValueError("a tree is drafted by a model, for one --prompt: leave out --drafter and "
                             "--prompts_file")
        f.K = max(depths(f.shape))
    if f.prompts_file and (f.show_rounds or f.trace or f.auto):
        raise ValueError("--show_rounds, --trace and --K auto are for a single run: leave them out, or give "
                         "one --prompt")
    if f.prompts_file and f.drafter in ("eagle", "medusa"):
        raise ValueError(f"--drafter {f.drafter} reads the states of one text: give one --prompt")
    f.prompts = prompts_in(f.prompts_file) if f.prompts_file else []
    f.text = read_text(f.ngram_file, "name a text file") if f.ngram_file else ""
    if f.trace:
        check_place(Path(f.trace))


def shape_in(widths):
    """--widths 3,2,1 -> the shape of a tree.  Raises ValueError."""
    try:
        numbers = [int(width) for width in widths.split(",")]
    except ValueError:
        raise ValueError(f"--widths {widths}: give the children a node by level, as in 3,2,1") from None
    if min(numbers) < 1:
        raise ValueError(f"--widths {widths}: every node of a level has 1 child or more, as in 3,2,1")
    return shape_of(numbers)


def check_place(path):
    """Raises ValueError where the file `path` cannot be written: better now than after the work."""
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise ValueError(f"cannot write {path}: name a file in a folder that exists, as in --trace run.html")
    existed = path.exists()
    if path.is_file() and path.stat().st_size and not path.read_bytes().startswith(b"<!doctype html>"):
        raise ValueError(f"{path} is there and no web page: take another name, as in --trace run.html")
    if path.is_file() or not existed:                   # else a pipe or a device: to be opened once, when due
        try:
            path.open("ab").close()
            if not existed:
                path.unlink()
        except OSError as error:
            raise ValueError(f"cannot write {path} ({error.strerror}): take another file") from None


def load(f):
    """(draft, target, propose, encoder) of what the flags name."""
    draft, target, encoder = load_pair(f.draft_model_size if f.drafter == "model" else None,
                                       f.target_model_size, f.models_dir)
    if f.shape:
        draft, target = with_tree(draft), with_tree(target)
    flags = dict(tokens=encoder.encode([f.prompt, *f.prompts][-1]), text=encoder.encode(f.text),
                 exit_layer=f.exit_layer, head=head_beside(f.target_model_size, f.drafter))
    return *DRAFTERS[f.drafter](draft, target, **flags), encoder


def run(sampler, models, tokens, shown):
    """One timed run from empty caches -> (rounds without their distributions, timed models, seconds of each
    round, result)."""
    for model in models:                        # once before it: no run pays for waking up threads and memory
        if model is not None:
            model(tokens), model.reset()
    timed, times = [model and Timed(model) for model in models], []
    rounds = [r._replace(target_probs=None, draft_probs=None) for r in shown(clocked(sampler(*timed), times))]
    new = [token for r in rounds for token in r.tokens]
    result = dict(tokens=new, seconds=sum(times), tokens_per_second=ratio(len(new), sum(times)))
    return rounds, timed, times, result


def costs_of(draft, target, propose, tokens, K, to_probs):
    """dict(c, v) for this prompt, to two digits, so that a choice which depends on them mostly repeats."""
    tokens, rng = tokens[:target.n_ctx - K] or tokens[:1], np.random.default_rng(0)
    one, more, drafting = seconds(9, lambda: target(tokens), lambda: target(tokens + tokens[:1] * K, K + 1),
                                  lambda: propose(draft, tokens, K, to_probs, rng))
    return dict(c=float(f"{drafting / K / one:.2g}"), v=float(f"{more / one:.2g}"))


def figures(ar, alone, spec, models, rounds, K, verifier, shape=None):
    """The numbers of the comparison; None for what could not be measured.  Also completes `spec`.

    models  draft, target and proposer, timed
    shape   the parents of a tree of K levels, or None.  Then c is a level's cost, on average
    """
    draft, target, proposer = models
    step, alpha = alone[0].seconds(1), ratio(*acceptance(rounds, verifier == "block"))
    drafting, n_rows = (draft or proposer).seconds(1), (len(shape) if shape else K) + 1
    v = ratio(target.seconds(n_rows), step)
    if shape:
        levels = [draft.seconds(([0] + depths(shape)).count(depth)) for depth in range(K)]
        drafting = None if None in levels else sum(levels) / K
    c = ratio(drafting, step)
    per_pass = ratio(len(spec["tokens"]), len(rounds))
    spec |= dict(rounds=len(rounds), acceptance_rate=alpha, tokens_per_target_pass=per_pass)
    predicted, fixed = None, proposer.propose is propose
    if fixed and None not in (alpha, c, v):
        # theorem 3.8 is about Algorithm 2; for others the tokens are counted
        predicted = predicted_speedup(alpha, K, c, v) if verifier == "token" else per_pass / (K * c + v)
    elif not fixed and None not in (step, c, per_pass):         # rounds of any length: their tokens and costs
        passes = [ratio(target.seconds(len(r.drafts) + 1), step) for r in rounds]
        known = [len(r.drafts) * c + v for r, v in zip(rounds, passes) if v]
        predicted = ratio(per_pass, ratio(sum(known), len(known)))
    return dict(speedup=ratio(spec["tokens_per_second"], ar["tokens_per_second"]),
                predicted_speedup=predicted, cost_ratio=c, verify_ratio=v)


def timing(run):
    speed = f", {run['tokens_per_second']:.0f} tokens per second" if run["tokens"] else ""
    return f"\nTime = {run['seconds']:.2f} s, {len(run['tokens'])} tokens{speed}\n"


SAME = {        # (same_text, same_bits): what is said at temperature 0
    (True, True): "The two texts are the same, as they always are at temperature 0 on this machine.",
    (True, False): "The two texts are the same; on this machine a near-tie may part them when K = {K}.",
    (False, False): "The two texts part at a near-tie, which can happen on this machine when K = {K}.",
    (False, True): "The two texts are not the same, which must not happen at temperature 0: report it.",
}


def summary(r):
    """The comparison; whether the texts are the same, or should be; what would gain more."""
    spec, c, v = r["speculative"], r["cost_ratio"], r["verify_ratio"]
    if not spec["tokens"]:
        yield "No tokens were wanted: there is nothing to compare."
        return
    line = f"Speed-up {r['speedup']:.2f}x"
    if r["predicted_speedup"]:
        known = [f"{name} = {value:.2f}" for name, value in (("c", c), ("v", v)) if value is not None]
        line += f" (predicted {r['predicted_speedup']:.2f}x: {', '.join(known)})"
    if spec["acceptance_rate"] is not None:
        line += f", acceptance rate {spec['acceptance_rate']:.2f}"
    yield f"{line}, {spec['tokens_per_target_pass']:.2f} tokens per target pass"
    if r["temperature"] == 0:
        yield SAME[r["same_text"], r["same_bits"]].format(**r)
    elif not r["same_text"]:
        yield "Different texts are expected at a temperature above 0; their distribution is the same."
    steady = r["drafter"] not in ("lookup", "layer_skip") and not r["auto"]         # every round has K drafts
    if steady and r["verifier"] == "token" and r["predicted_speedup"]:
        yield from filter(None, [advice(spec["acceptance_rate"], r["K"], c, v)])


TYPES = {name: type(parameter.default) for name, parameter in inspect.signature(compare).parameters.items()}


def as_typed(arguments):
    """Check the words of the command line and write each flag so that fire takes it as typed.

        --prompt 1e3  ->  --prompt='1e3'

    Left alone, fire guesses: 2017-10-10 is 1997, a flag without a value is True, a stray word becomes K,
    and a misspelt flag is told after the whole job.
    """
    checked, words = [], iter(arguments)
    for word in words:
        flag, equals, value = word.partition("=")
        # -K is short for --K, and -n for --n_tokens_to_generate
        names = [n for n in TYPES if flag.replace("-", "_") == f"__{n}"
                 or flag == f"-{n[0]}" and n != "ngram_file"]
        if len(names) != 1:
            name = flag.lstrip("-").replace("-", "_")
            near = get_close_matches(name, TYPES, n=1) if flag.startswith("-") else []
            hint = f"did you mean --{near[0]}?" if near else "see python main.py --help"
            raise ValueError(f"{word!r} is not a flag of this program: {hint}")
        kind = TYPES[names[0]]
        if kind is bool:
            if equals:
                raise ValueError(f"{flag} takes no value")
            value = "True"
        elif not equals:
            value = next(words, "--")
            if value.startswith("--"):
                raise ValueError(f"{flag} needs a value (one that begins with -- is written {flag}=--...)")
        try:
            value = value if (names[0], value) == ("K", "auto") else kind(value)
            if kind is float and not isfinite(value):
                raise ValueError
            checked.append(f"--{names[0]}={value!r}")
        except ValueError:
            raise ValueError(f"{flag} {value}: that is no {'whole ' if kind is int else ''}number") from None
    return checked


def usage():
    """What --help prints: the docstring of `compare`, with the defaults."""
    about, _, flags = dedent("    " + compare.__doc__).partition("\nArgs:\n")
    lines, width = [__doc__.split("\n\n")[1], about.strip(), ""], shutil.get_terminal_size().columns
    for line in flags.strip().splitlines():
        name, _, text = line.strip().partition(": ")
        default = str(inspect.signature(compare).parameters[name].default)
        text += "" if default in ("False", "") else f" (default {default})"
        lines.append(fill(f"  --{name:22}{text}", width, subsequent_indent=" " * 26, break_on_hyphens=False))
    return "\n".join(lines)


def main(arguments):
    """Run the command line; returns the exit status."""
    if sys.stdout is None:                                 # closed by the caller (>&-)
        sys.stdout = open(os.devnull, "w")
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.reconfigure(errors="replace")               # a terminal that cannot show a character shows "?"
    try:
        if {"--help", "-h"} & {*arguments}:
            print(usage())
        else:
            fire.Fire(compare, command=as_typed(arguments), name="main.py")
        sys.stdout.flush()
    except BrokenPipeError:                            # the reader went away (| head): nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {told(error)}", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:                                # the disk is full: Python would try again at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except MemoryError:
        print("error: the memory does not suffice for these models: take smaller ones", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
