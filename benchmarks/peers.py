"""How long a pass takes in this project, in transformers (on PyTorch) and in llama.cpp.  By hand:

    python -m benchmarks.peers llama.cpp/build/bin/llama-bench      milliseconds; results/peers.md has them

The models have the same sizes everywhere, and float32 weights.

Limitations: CPU only.  The weights are random (the time does not depend on their values).
"""
import contextlib
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.counts import TARGET
from benchmarks.measure import in_turns
from benchmarks.synthetic import SIZES, random_arrays, random_model, vocabulary
from compute.threads import THREADS
from loading import command_line, export
from loading.tokenizer import Files

N_CACHED, ROWS = 60, (1, 5, 9)


def passes_here(size):
    """{rows: a function that runs a pass over them, after N_CACHED tokens}"""
    model, tokens = random_model(size), [i % 256 for i in range(N_CACHED + max(ROWS))]
    return {n: partial(model, tokens[:N_CACHED + n], n) for n in ROWS}


def passes_of_transformers(size):
    """The same for transformers."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.set_num_threads(THREADS)
    sizes = {key: SIZES[size][key] for key in ("n_embd", "n_layer", "n_head")}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=SIZES[size]["n_vocab"], **sizes)).eval()
    ids = torch.arange(N_CACHED + max(ROWS))[None] % 256
    with torch.no_grad():
        past = model(ids[:, :N_CACHED], use_cache=True).past_key_values

    @torch.no_grad()
    def run(n):
        model(ids[:, N_CACHED:N_CACHED + n], past_key_values=past, use_cache=True)
        past.crop(-n)
    return {n: partial(run, n) for n in ROWS}


def passes_of_llama(program, folder, size):
    """{rows: median milliseconds of a pass}, by llama-bench's clock."""
    (folder / size).mkdir()
    encoder = vocabulary(SIZES[size]["n_vocab"])
    files = Files(encoder.ids, [*encoder.ranks], set(), False, ([], []), [encoder.eos])
    export.write_gguf(folder / size, size, SIZES[size], random_arrays(size), files)
    words = [program, "-m", folder / size / f"{size}.gguf", "-n", 0, "-d", N_CACHED, "-t", THREADS, "-r", 15,
             "-o", "json", "-p"]
    found = {n: subprocess.run([*map(str, words), str(n)], check=True, capture_output=True) for n in ROWS}
    return {n: median(json.loads(one.stdout)[0]["samples_ns"]) / 1e6 for n, one in found.items()}


def main(llama_bench="", repetitions=15):
    """Milliseconds of passes over 1, 5 and 9 rows, here and by other programs.

    Args:
        llama_bench: the path of llama.cpp's program llama-bench; without it llama.cpp is left out
        repetitions: how often each pass is timed here and in transformers, which take turns
    """
    SIZES[TARGET] = dict(n_vocab=4096, n_ctx=512, n_embd=192, n_head=3, n_layer=16)
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
    sys.exit(command_line.run(main))
