"""Autoregressive and speculative sampling side by side, timed.

    python main.py --prompt "Alan Turing theorized that" --draft_model_size 124M --target_model_size 1558M

Without flags it runs the embedded pair.
"""
import inspect
import json as json_format
import os
import sys
from time import perf_counter

import fire
import numpy as np
from fire.decorators import SetParseFns
from tqdm import tqdm

import backend as backends
from autoregressive import autoregressive_sampling
from speculative import speculative_sampling
from stats import Timed, acceptance, expected_tokens, predicted_speedup, ratio
from utils import load_model

PROMPT = "The old man looked out over the sea, and for a long time he said nothing."


def compare(prompt=PROMPT, n_tokens_to_generate=60, draft_model_size="demo-draft", target_model_size="demo-target", K=4,
            temperature=0.0, top_k=0, top_p=1.0, seed=0, models_dir="models", backend="numpy", json=False):
    """Generate a continuation of PROMPT twice, autoregressively and speculatively, and compare.

    Args:
        prompt: the text to continue, taken as typed
        n_tokens_to_generate: new tokens, the same for both
        draft_model_size: 124M 355M 774M 1558M distilgpt2, demo-draft demo-target, or a folder
        target_model_size: likewise
        K: drafts a round
        temperature: 0 is greedy
        top_k: sample from the k likeliest tokens; 0 for all
        top_p: sample from the likeliest tokens that hold this much probability; 1 for all
        seed: of the random generator
        models_dir: where downloaded models are kept
        backend: numpy, or cupy for a GPU
        json: print one JSON object
    """
    settings = dict(temperature=temperature, top_k=top_k, top_p=top_p)
    speculative_sampling(None, None, [0], n_tokens_to_generate, K, None, **settings)    # bad numbers end here, before a download
    if seed < 0:
        raise ValueError(f"seed is {seed}: it must be 0 or more")
    if not prompt:
        raise ValueError("the prompt is empty: give it some text, as in --prompt 'Once upon a time'")
    backends.use(backend)
    draft, draft_encoder = load_model(draft_model_size, models_dir)
    target, encoder = load_model(target_model_size, models_dir)
    if draft_encoder.ids != encoder.ids or draft_encoder.ranks != encoder.ranks:
        raise ValueError(f"{draft_model_size} and {target_model_size} do not share one vocabulary: a draft's token must mean the same "
                         "to the target, so take two models of one family")
    tokens = encoder.encode(prompt)
    settings["eos"] = encoder.eos

    def run(title, sampler, *models):
        """One timed run from empty caches.  The models run once before it, so that neither run pays for waking up the machine."""
        for model in models:
            model(tokens, 1), model.reset()
        timed = [Timed(model) for model in models]
        rounds, start = [], perf_counter()
        with tqdm(total=n_tokens_to_generate, desc=title, unit="tok", leave=False, disable=None) as bar:
            for r in sampler(*timed, tokens, n_tokens_to_generate):
                rounds.append(r)
                bar.update(len(r.tokens))
        seconds = perf_counter() - start
        new = [token for r in rounds for token in r.tokens]
        text = encoder.decode(new[:-1] if new and new[-1] == encoder.eos else new)
        return rounds, timed, dict(text=text, tokens=new, seconds=seconds, tokens_per_second=ratio(len(new), seconds))

    def baseline(model, tokens, n):
        return autoregressive_sampling(model, tokens, n, np.random.default_rng(seed), **settings)

    def speculative(draft, target, tokens, n):
        return speculative_sampling(draft, target, tokens, n, K, np.random.default_rng(seed), **settings)

    _, [target_alone], ar = run("Autoregressive sampling", baseline, target)
    rounds, [timed_draft, timed_target], spec = run("Speculative sampling", speculative, draft, target)
    accepted, tested = acceptance(rounds)
    alpha, step = ratio(accepted, tested), target_alone.seconds(1)
    c, v = ratio(timed_draft.seconds(1), step), ratio(timed_target.seconds(K + 1), step)
    spec |= dict(rounds=len(rounds), acceptance_rate=alpha, tokens_per_target_pass=ratio(len(spec["tokens"]), len(rounds)))
    result = dict(prompt=prompt, draft=draft_model_size, target=target_model_size, backend=backend, K=K, temperature=temperature,
                  top_k=top_k, top_p=top_p, seed=seed, autoregressive=ar, speculative=spec,
                  speedup=ratio(spec["tokens_per_second"], ar["tokens_per_second"]),
                  predicted_speedup=None if None in (alpha, c, v) else predicted_speedup(alpha, K, c, v), cost_ratio=c, verify_ratio=v)
    print(json_format.dumps(result) if json else report(result))


def report(r):
    """The result as a person reads it."""
    def block(title, run):
        return (f"{title}\n{'-' * len(title)}\n{r['prompt']}{run['text']}\n\n"
                f"Time = {run['seconds']:.2f} s, {len(run['tokens'])} tokens, {show(run['tokens_per_second'], '.0f')} tokens per second\n")

    spec = r["speculative"]
    return "\n".join([
        block("Autoregressive sampling", r["autoregressive"]),
        block("Speculative sampling", spec),
        f"Speed-up {show(r['speedup'])}x (predicted {show(r['predicted_speedup'])}x), acceptance rate {show(spec['acceptance_rate'])}, "
        f"{show(spec['tokens_per_target_pass'])} tokens per target pass"])


def show(number, form=".2f"):
    return "-" if number is None else format(number, form)


def parser(name, kind):
    def parse(text):
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"--{name} {text}: that is no {'whole ' if kind is int else ''}number") from None
    return parse


FLAGS = {name: type(parameter.default) for name, parameter in inspect.signature(compare).parameters.items()}


def as_typed(arguments):
    """Check the words of the command line, and join each flag with its value: ["--K", "4"] -> ["--K=4"].

    Left alone, fire guesses: a flag without a value is True, a stray word becomes K, a wrong flag is told after the whole job.
    """
    checked, words = [], iter(arguments)
    for word in words:
        flag, equals, value = word.partition("=")
        name = flag[2:].replace("-", "_")
        if not flag.startswith("--") or name not in FLAGS:
            raise ValueError(f"{word!r} is not a flag of this program: see python main.py --help")
        if FLAGS[name] is bool:
            if equals:
                raise ValueError(f"{flag} takes no value")
            checked.append(flag)
            continue
        if not equals:
            value = next(words, "--")
            if value.startswith("--"):
                raise ValueError(f"{flag} needs a value (one that begins with -- is written {flag}=--...)")
        checked.append(f"--{name}={value}")
    return checked


def main(arguments):
    """Run the command line; returns the exit status."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")                    # a terminal that cannot show a character shows "?"
    command = SetParseFns(**{name: parser(name, kind) for name, kind in FLAGS.items() if kind is not bool})(compare)
    try:
        fire.Fire(command, command=["--help"] if arguments == ["--help"] else as_typed(arguments), name="main.py")
        sys.stdout.flush()
    except BrokenPipeError:                                     # the reader went away (| head): nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except MemoryError:
        print("error: the memory does not suffice for these models: take smaller ones", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
