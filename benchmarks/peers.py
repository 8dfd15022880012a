"""Next to transformers on PyTorch and llama.cpp: the same weights in float32, machine and hour.  By hand:

    python -m benchmarks.peers                          greedy tokens a second, alone and speculative
    python -m benchmarks.peers --passes llama-bench     milliseconds of passes, of GPT-2's sizes, too

All take turns, and the numbers are medians.  llama.cpp's programs for generation print their times
themselves: benchmarks/results/peers.md has the lines to type, and the results.

But: on the CPU only.  GPT-2's sizes have random weights; what weights say takes no time.
"""
import contextlib
import itertools
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

import console
from benchmarks.counts import DRAFT, HERE, TARGET
from benchmarks.synthetic import SIZES, random_arrays, random_model, vocabulary
from compute.backend import clock
from compute.threads import THREADS
from loading import export
from methods import Models, choose
from utils import load_model

METHOD = choose("model", "token")
N_CACHED, ROWS, PROMPT = 60, (1, 5, 9), 500


def ours(models, tokens, n_tokens, K):
    """The new tokens; K is None for the target alone."""
    sampler = METHOD.baseline if K is None else METHOD.sampler(METHOD.pair(models, tokens, K, {}))
    rng = np.random.default_rng(0)
    return [token for r in sampler(models.draft, models.target, tokens, n_tokens, K, rng, temperature=0)
            for token in r.tokens]


def theirs(assistant, target, tokens, n_tokens, K):
    """The same by `generate`, with an assistant that always drafts K tokens."""
    import torch
    torch.set_num_threads(THREADS)
    assistant.generation_config.update(num_assistant_tokens=K, num_assistant_tokens_schedule="constant",
                                       assistant_confidence_threshold=0.0)
    ids = torch.tensor([tokens])
    text = target.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=0,
                           max_new_tokens=n_tokens, min_new_tokens=n_tokens,
                           assistant_model=None if K is None else assistant)
    return text[0, len(tokens):].tolist()


def in_transformers(name, dtype="float32"):
    """The model `name` of this repository as a GPT2LMHeadModel."""
    from transformers import GPT2LMHeadModel
    with TemporaryDirectory() as place, contextlib.redirect_stdout(None):
        export.main(str(HERE.parent / "models" / name), f"{place}/{name}")
        return GPT2LMHeadModel.from_pretrained(f"{place}/{name}", dtype=dtype).eval()


# Passes -----------------------------------------------------------------------------------------------------

def passes_here(size):
    """-> seconds of a pass over the last n of N_CACHED + n tokens; of a prompt, if none is cached."""
    model = load_model(size)[0] if size == TARGET else random_model(size)

    def seconds(n, n_cached):
        tokens = [i % 256 for i in range(n_cached + n)]
        model.reset()
        if n_cached:
            model(tokens[:n_cached])
        start = clock()
        model(tokens, n if n_cached else 1)
        return clock() - start
    return seconds


def passes_of_transformers(size):
    """The same of transformers."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    if size == TARGET:
        model = in_transformers(size)
    else:
        sizes = {key: SIZES[size][key] for key in ("n_embd", "n_layer", "n_head")}
        model = GPT2LMHeadModel(GPT2Config(**sizes)).eval()

    @torch.no_grad()
    def seconds(n, n_cached):
        ids = torch.arange(n_cached + n)[None] % 256
        past = model(ids[:, :n_cached], use_cache=True).past_key_values if n_cached else None
        start = clock()
        model(ids[:, n_cached:], past_key_values=past, use_cache=True, logits_to_keep=n if n_cached else 1)
        return clock() - start
    return seconds


def passes_of_llama(program, folder, size):
    """The same of llama-bench, in a process of its own for each number of rows."""
    if size == TARGET:
        with contextlib.redirect_stdout(None):
            export.main(size, folder / size, "gguf")
    else:
        (folder / size).mkdir()
        export.write_gguf(folder / size, size, SIZES[size], random_arrays(size),
                          vocabulary(SIZES[size]["n_vocab"]))

    def seconds(n, n_cached):
        words = [program, "-m", folder / size / f"{size}.gguf", "-p", n, "-n", 0, "-d", n_cached,
                 "-t", THREADS, "-r", 5, "-o", "json"]
        found = json.loads(subprocess.run([*map(str, words)], check=True, stdout=subprocess.PIPE,
                                          stderr=subprocess.DEVNULL).stdout)
        return [ns / 1e9 for ns in found[0]["samples_ns"]]
    return seconds


def time_passes(llama_bench, repetitions, sizes=(TARGET, "124M", "355M")):
    """Prints a line of the table for each program and size."""
    with TemporaryDirectory() as folder:
        for size in sizes:
            programs, times = {"here": passes_here(size)}, {}
            programs["llama.cpp"] = passes_of_llama(llama_bench, Path(folder), size)
            with contextlib.suppress(ImportError):
                programs["transformers"] = passes_of_transformers(size)
            for turn in range(repetitions + 1):
                for (n, n_cached), (name, seconds) in itertools.product(
                        [*((n, N_CACHED) for n in ROWS), (PROMPT, 0)], programs.items()):
                    several = 1 if name == "llama.cpp" else 5
                    found = [seconds(n, n_cached) for _ in range(several)]
                    if turn:
                        times.setdefault((name, n), []).extend(np.ravel(found))
            for name in programs:
                ms = ", ".join(f"{median(times[name, n]) * 1e3:.3g}" for n in ROWS)
                rate = PROMPT / median(times[name, PROMPT])
                print(f"{size}, {name}: {ms} ms; prompt {rate:.0f} tokens a second", flush=True)


# Both -------------------------------------------------------------------------------------------------------

def main(n_tokens=60, K=4, repetitions=3, passes=""):
    """Tokens a second, or passes, here and by other programs.

    Args:
        n_tokens: tokens after each prompt
        K: drafts a round
        repetitions: of all in turns, after one to warm up
        passes: llama.cpp's program llama-bench; passes are timed, in place of generation
    """
    if passes:
        return time_passes(passes, repetitions)
    models, spent, texts = Models(DRAFT, TARGET), {}, {}
    lines = (HERE / "prompts.txt").read_text(encoding="utf-8").splitlines()
    prompts = [models.encoder.encode(line) for line in lines]
    programs = {"here": (ours, models)}
    try:
        programs["transformers"] = theirs, in_transformers(DRAFT), in_transformers(TARGET)
    except ImportError:
        print("transformers is left out: pip install torch transformers", file=sys.stderr)
    for _ in range(repetitions + 1):
        for name, (generate, *with_models) in programs.items():
            for drafts in (None, K):
                start = clock()
                texts[name, drafts] = [generate(*with_models, tokens, n_tokens, drafts) for tokens in prompts]
                spent.setdefault((name, drafts), []).append(clock() - start)
    for (name, drafts), seconds in spent.items():
        print(f"{name}, {'alone' if drafts is None else f'K = {drafts}'}: "
              f"{n_tokens * len(prompts) / median(seconds[1:]):.0f} tokens a second"
              + ("" if texts[name, drafts] == texts["here", None] else "; other texts than here"))


if __name__ == "__main__":
    sys.exit(console.run(main))
