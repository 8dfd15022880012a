"""Beside transformers: its assisted generation, and speculative sampling here, with the same two models.

    pip install -e ".[outside]"         # torch and transformers, some gigabytes
    python -m benchmarks peers          four minutes on an otherwise idle machine

Both programs continue the same openings by the same number of tokens, in float32, with the same number of
threads: without drafts (K=0), and with K drafts in every round.  They take turns, text by text.  Of each,
peers_*.json has

    speed           tokens per second, prompts included
    speedup         over the same program without drafts, in the same turn
    tokens          per target pass
    c, v            a draft step, and a pass over K + 1 tokens, in target steps: medians of the program's own
                    calls of its models
    predicted       the speed-up that follows from tokens, c and v (Leviathan et al., theorem 3.8)
    outside         the share of the time that is spent outside the models
    same            at temperature 0, how many texts are those of the target alone here

as [lowest, median, highest] of the three turns.  At the end it has the milliseconds of a pass over 1, 5 and 9
tokens, with nothing cached, of a model with the shapes of 124M and random weights: the three quartiles.

Limitations: one text at a time, on a CPU; transformers as installed, without torch.compile.
"""
from collections import defaultdict
from itertools import product
from tempfile import TemporaryDirectory

import numpy as np
import torch
import transformers
from tqdm import tqdm

from autoregressive import autoregressive_sampling
from benchmarks import costs, measure, synthetic
from benchmarks.counts import DRAFT, TARGET, openings, write_json
from engine.compute.backend import clock
from engine.compute.threads import THREADS
from engine.loading import export
from engine.reporting.stats import Timed
from speculative import speculative_sampling
from utils import load_pair

TURNS, CALLS, N_TEXTS, N_TOKENS = 3, 15, 8, 60


def run_here(draft, target, tokens, K, T, seed):
    """The new tokens.  draft, target: Timed"""
    settings = dict(rng=np.random.default_rng(seed), temperature=T)
    rounds = (speculative_sampling(draft, target, tokens, N_TOKENS, K, **settings) if K else
              autoregressive_sampling(target, tokens, N_TOKENS, **settings))
    return [token for r in rounds for token in r.tokens]


def run_there(draft, target, tokens, K, T, seed):
    """The same by transformers.  draft, target: as load returns them"""
    torch.manual_seed(seed)
    draft.generation_config.num_assistant_tokens, ids = K, torch.tensor([tokens])
    return target.generate(ids, attention_mask=torch.ones_like(ids), do_sample=T > 0,
                           assistant_model=draft.model if K else None)[0, len(tokens):].tolist()


def load(name):
    """The model in transformers, as a Timed that notes its calls."""
    with TemporaryDirectory() as folder:
        export.main(name, f"{folder}/new")
        timed = Timed(transformers.GPT2LMHeadModel.from_pretrained(f"{folder}/new"))
    timed.generation_config.update(
        max_new_tokens=N_TOKENS, eos_token_id=None, pad_token_id=0, top_k=0,
        num_assistant_tokens_schedule="constant", assistant_confidence_threshold=0)
    timed.register_forward_pre_hook(lambda *_: timed.calls.append(clock()))
    timed.register_forward_hook(lambda network, _, found: timed.calls.append(
        (found.logits.shape[1], clock() - timed.calls.pop())))
    return timed


def measure_turn(programs, n_texts):
    """{program and cell: its figures}"""
    runs = defaultdict(list)
    for seed, tokens in enumerate(openings()[:n_texts]):
        for T, K, (name, (run, draft, target)) in product((0, 1), (0, 2, 4), programs.items()):
            draft.reset(), target.reset()
            start = clock()
            text = run(draft, target, tokens, K, T, seed)
            seconds, inside = clock() - start, sum(time for _, time in draft.calls + target.calls)
            runs[name, K, T].append(
                (text, seconds, inside, draft.seconds(1), target.seconds(K + 1), len(target.calls)))
    return {f"{name} K={K} T={T}": summarize(K, mine, runs[name, 0, T], runs["here", 0, T])
            for (name, K, T), mine in runs.items()}


def summarize(K, mine, plain, here):
    """The figures of a cell; plain, here: the runs without drafts of the same program, and here."""
    texts, seconds, inside, steps, passes, n_passes = zip(*mine)
    step = [passes for *_, passes, _ in plain]
    c, v = K and np.median(np.divide(steps, step)), np.median(np.divide(passes, step))
    tokens, alone = sum(map(len, texts)) / sum(n_passes), sum(seconds for _, seconds, *_ in plain)
    return dict(speed=sum(map(len, texts)) / sum(seconds), speedup=alone / sum(seconds), tokens=tokens,
                c=c, v=v, predicted=tokens / (K * c + v), outside=1 - sum(inside) / sum(seconds),
                same=sum(text == run[0] for text, run in zip(texts, here)))


def measure_all(file):
    torch.set_num_threads(THREADS)
    transformers.logging.set_verbosity_error()                  # it warns of top_k=0 at temperature 0
    programs = {"here": (run_here, *map(Timed, load_pair(DRAFT, TARGET)[:2])),
                "transformers": (run_there, load(DRAFT), load(TARGET))}
    measure_turn(programs, 1)                                   # to warm up
    turns = [measure_turn(programs, N_TEXTS) for _ in tqdm(range(TURNS), disable=None)]
    found = {cell: {field: sorted(round(float(turn[cell][field]), 4) for turn in turns) for field in figures}
             for cell, figures in turns[0].items()}
    network = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval().requires_grad_(False)
    passes = {"here": synthetic.random_model("124M"),
              "transformers": lambda tokens, n_last: network(torch.tensor([tokens]))}
    times = measure.in_turns({(name, n): lambda run=run, n=n: run([*range(n)], n)
                              for n in (1, 5, 9) for name, run in passes.items()}, CALLS)
    for (name, n), seconds in times.items():
        found.setdefault(f"{name} 124M", {})[n] = costs.quartiles(seconds)[:3]
    libraries = f"transformers {transformers.__version__}, PyTorch {torch.__version__}"
    write_json(file, {"peers": found, "machine": {"caption": f"{measure.caption()}, {libraries}"}})
