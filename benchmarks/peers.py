"""How long a pass takes in this project and in transformers (on PyTorch).  To be run by hand:

    python -m benchmarks.peers          # milliseconds; results/peers.md has them, and llama.cpp's

The models have the same sizes in both, and float32 weights.

Limitations: CPU only.  The weights are random (the time does not depend on their values).
"""
import contextlib
import sys
from functools import partial
from statistics import median

from benchmarks.counts import TARGET
from benchmarks.measure import in_turns
from benchmarks.synthetic import SIZES, random_model
from compute.threads import THREADS
from loading import command_line

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


def main(repetitions=15):
    """Milliseconds of passes over 1, 5 and 9 rows, here and in transformers.

    Args:
        repetitions: how many times each pass is timed; the two programs take turns
    """
    SIZES[TARGET] = dict(n_vocab=4096, n_ctx=512, n_embd=192, n_head=3, n_layer=16)
    for size in TARGET, "124M", "355M":
        programs = {"here": passes_here(size)}
        with contextlib.suppress(ImportError):
            programs["transformers"] = passes_of_transformers(size)
        times = in_turns({(name, n): run for name, runs in programs.items() for n, run in runs.items()},
                         repetitions)
        for name in programs:
            ms = [f"{median(times[name, n]) * 1e3:.3g}" for n in ROWS]
            print(f"{size}, {name}: {', '.join(ms)} ms", flush=True)


if __name__ == "__main__":
    sys.exit(command_line.run(main))
