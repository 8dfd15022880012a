"""Passes next to transformers on PyTorch and llama.cpp: the same weights in float32, and machine.  By hand:

    python -m benchmarks.peers llama.cpp/build/bin/llama-bench      milliseconds; results/peers.md has them

But: on the CPU only.  GPT-2's sizes have random weights; what weights say takes no time.
"""
import contextlib
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import console
from benchmarks.counts import HERE, TARGET
from benchmarks.measure import in_turns
from benchmarks.synthetic import SIZES, random_arrays, random_model, vocabulary
from compute.threads import THREADS
from loading import export
from utils import load_model

N_CACHED, ROWS = 60, (1, 5, 9)


def in_transformers(name, dtype="float32"):
    """The model `name` of this repository as a GPT2LMHeadModel."""
    from transformers import GPT2LMHeadModel
    with TemporaryDirectory() as place, contextlib.redirect_stdout(None):
        export.main(str(HERE.parent / "models" / name), f"{place}/{name}")
        return GPT2LMHeadModel.from_pretrained(f"{place}/{name}", dtype=dtype).eval()


def passes_here(size):
    """{rows: a pass over the last so many of N_CACHED and as many tokens}"""
    model = load_model(size)[0] if size == TARGET else random_model(size)
    tokens = [i % 256 for i in range(N_CACHED + max(ROWS))]
    return {n: partial(model, tokens[:N_CACHED + n], n) for n in ROWS}


def passes_of_transformers(size):
    """The same of transformers."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.set_num_threads(THREADS)
    if size == TARGET:
        model = in_transformers(size)
    else:
        sizes = {key: SIZES[size][key] for key in ("n_embd", "n_layer", "n_head")}
        model = GPT2LMHeadModel(GPT2Config(**sizes)).eval()
    ids = torch.arange(N_CACHED + max(ROWS))[None] % 256
    with torch.no_grad():
        past = model(ids[:, :N_CACHED], use_cache=True).past_key_values

    @torch.no_grad()
    def run(n):
        model(ids[:, N_CACHED:N_CACHED + n], past_key_values=past, use_cache=True)
        past.crop(N_CACHED)
    return {n: partial(run, n) for n in ROWS}


def passes_of_llama(program, folder, size):
    """{rows: its milliseconds}, by llama-bench's own clock."""
    if size == TARGET:
        with contextlib.redirect_stdout(None):
            export.main(size, folder / size, "gguf")
    else:
        (folder / size).mkdir()
        export.write_gguf(folder / size, size, SIZES[size], random_arrays(size),
                          vocabulary(SIZES[size]["n_vocab"]))
    words = [program, "-m", folder / size / f"{size}.gguf", "-n", 0, "-d", N_CACHED, "-t", THREADS, "-r", 15,
             "-o", "json", "-p"]
    found = {n: subprocess.run([*map(str, words), str(n)], check=True, capture_output=True) for n in ROWS}
    return {n: median(json.loads(one.stdout)[0]["samples_ns"]) / 1e6 for n, one in found.items()}


def main(llama_bench="", repetitions=15):
    """Milliseconds of passes over 1, 5 and 9 rows, here and by other programs.

    Args:
        llama_bench: llama.cpp's program of this name; without it llama.cpp is left out
        repetitions: of all in turns, after one to warm up
    """
    for size in TARGET, "124M", "355M":
        programs = {"here": passes_here(size)}
        with contextlib.suppress(ImportError):
            programs["transformers"] = passes_of_transformers(size)
        times = in_turns({(name, n): run for name, runs in programs.items() for n, run in runs.items()},
                         repetitions)
        ms = {name: {n: median(times[name, n]) * 1e3 for n in ROWS} for name in programs}
        if llama_bench:
            with TemporaryDirectory() as folder:
                ms["llama.cpp"] = passes_of_llama(llama_bench, Path(folder), size)
        for name, mine in ms.items():
            print(f"{size}, {name}: {', '.join(f'{mine[n]:.3g}' for n in ROWS)} ms", flush=True)


if __name__ == "__main__":
    sys.exit(console.run(main))
