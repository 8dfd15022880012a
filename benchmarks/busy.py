"""What a busy machine leaves of the speed: the pair beside other processes that do nothing but count.

    busy_table(settings)        a row for each number of neighbours and of our own threads
    python -m benchmarks.busy   what one such row is measured by: a process, because the number of BLAS
                                threads is read when it starts

    over quiet      speculative tokens a second, over those without neighbours and with as many threads

But: these neighbours leave the memory and the caches alone; others will not.
"""
import json
import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from statistics import median

from benchmarks.pairs import alone, generate, load_pair, speculative

NEIGHBOURS, THREADS = (0, 1, 2), (2, 1)


def busy_table(settings):
    pair, K = settings.pairs[0], settings.K_fixed
    arguments = [pair, settings.models_dir, settings.prompts, settings.n_tokens, K]
    runs = {(n, threads): [] for n in NEIGHBOURS for threads in THREADS}
    for _ in range(settings.repetitions):
        for (n, threads), mine in runs.items():
            with neighbours(n):
                mine.append(in_a_process(arguments, threads))
    rows, quiet = [], {}
    for (n, threads), mine in runs.items():
        single, together = (median(column) for column in zip(*mine))
        quiet.setdefault(threads, together)
        rows.append({"pair": pair, "T": 0.0, "K": K, "neighbours": n, "threads": threads, "tokens/s": single,
                     "speculative tokens/s": together, "speed-up": together / single,
                     "over quiet": together / quiet[threads]})
    return rows


@contextmanager
def neighbours(n):
    """n processes that count, until the block ends."""
    with ExitStack() as stack:
        for _ in range(n):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def in_a_process(arguments, threads):
    """(tokens a second alone, speculative) with so many BLAS threads."""
    command = [sys.executable, "-m", "benchmarks.busy", json.dumps(arguments)]
    done = subprocess.run(command, env=os.environ | {"OPENBLAS_NUM_THREADS": str(threads)}, text=True,
                          stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def measure(pair, models_dir, prompts, n_tokens, K):
    """The medians of three runs over all prompts, in turns, after one that warms up."""
    draft, target, prompts = load_pair(pair, models_dir, prompts)
    runs = [(generate(alone(n_tokens, 0.0), [target], prompts).seconds,
             generate(speculative(K, n_tokens, 0.0), [draft, target], prompts).seconds) for _ in range(4)]
    return [n_tokens * len(prompts) / median(column) for column in zip(*runs[1:])]


if __name__ == "__main__":
    print(json.dumps(measure(*json.loads(sys.argv[1]))))
