"""Many prompts, continued in batches, autoregressively and speculatively.

    python -m reporting.many prompts.txt --json

Every prompt has the same seed, so its texts are those that main.py --prompt gives for it alone.  They may
differ at near-ties if a pass has more tokens than the model's `exact_rows` (samplers/batch.py).

Not here: c, v and a prediction, colours, the page of a run (main.py).
"""
import json as json_format
import sys
from functools import partial

import numpy as np
from tqdm import tqdm

import console
import methods
from compute import backend as backends
from compute.backend import clock
from reporting.comparison import check_flags
from reporting.stats import acceptance, ratio
from reporting.terminal import harmless
from samplers.batch import batch_sampling

BATCH = 16              # prompts at once; with more, a pass has too many tokens to be cheap


def main(file, n_tokens_to_generate=40, draft_model_size="demo-draft", target_model_size="demo-target", K=4,
         temperature=0.0, top_k=0, top_p=1.0, seed=0, models_dir="models", backend="numpy", drafter="model",
         verifier="token", json=False):
    """Continue every line of a file, up to 16 at once, autoregressively and speculatively.

    Args:
        file: a text file with a prompt on each line
        n_tokens_to_generate: new tokens after each prompt
        K: drafts per round
        temperature: 0 is greedy
        drafter: this and the other flags are as in main.py
        json: print a JSON object for each prompt, one per line
    """
    settings = dict(temperature=temperature, top_k=top_k, top_p=top_p)
    prompts = prompts_in(file)
    check_flags(n_tokens_to_generate, K, seed, prompts[0], **settings)
    method = methods.choose(drafter, verifier)
    if not method.goes_in_batches:
        raise ValueError(f"--drafter {drafter} --verifier {verifier} is for one text at a time: use main.py "
                         "--prompt, or another method")
    backends.use(backend)
    models = methods.Models(draft_model_size, target_model_size, models_dir)
    encoder, exact_rows = models.encoder, models.target.exact_rows
    tokens = [encoder.encode(prompt) for prompt in prompts]
    pair = method.pair(models, tokens[0], K, settings)
    batch = partial(batch_sampling, pair.draft, pair.target, n_tokens=n_tokens_to_generate, **settings,
                    eos=encoder.eos, propose=pair.propose)
    batch(prompts=tokens, K=K, rngs=tokens)                     # raises now if a prompt does not fit
    about = dict(draft=draft_model_size if models.draft_is_used else drafter, target=target_model_size,
                 backend=backend, drafter=drafter, verifier=verifier, K=K, **settings, seed=seed,
                 lossless=method.lossless, predicted_speedup=None, cost_ratio=None, verify_ratio=None)
    seconds, bar = [0.0, 0.0], tqdm(range(0, len(prompts), BATCH), unit=" batches", leave=False, disable=None)
    n_made = [0, 0]                                             # autoregressively, speculatively
    for start in bar:
        some, results = tokens[start:start + BATCH], []
        for way, sampler in enumerate([partial(batch, K=0), partial(batch, K=K, verify=method.verify)]):
            results.append(run(sampler, some, seed, encoder))
            n_made[way] += sum(len(one["tokens"]) for one in results[way])
            seconds[way] += results[way][0]["seconds"]
        bar.clear()
        for prompt, alone, spec in zip(prompts[start:start + BATCH], *results):
            result = dict(prompt=prompt, **about, batch=len(some), autoregressive=alone, speculative=spec,
                          speedup=ratio(spec["tokens_per_second"], alone["tokens_per_second"]),
                          same_text=alone["tokens"] == spec["tokens"],
                          same_bits=sum(len(one) + K for one in some) <= exact_rows)
            print(json_format.dumps(result) if json else harmless(f"{prompt}{spec['text']}\n"), flush=True)
    alone, spec = (n / time for n, time in zip(n_made, seconds))
    print(f"{len(prompts)} prompts, up to {BATCH} at once: {alone:.0f} tokens per second autoregressively, "
          f"{spec:.0f} speculatively", file=sys.stderr if json else sys.stdout)


def prompts_in(file):
    """The lines of a file that are not blank.  Raises ValueError if there are none."""
    lines = console.read_text(file, "name a file with a prompt on each line").split("\n")
    prompts = [line for line in lines if line.strip()]
    if not prompts:
        raise ValueError(f"{file} holds no prompts: write one on each line")
    return prompts


def run(sampler, prompts, seed, encoder):
    """One batch -> the text and figures of each sequence.  Their time is that of the batch."""
    sequences, begin = [[] for _ in prompts], clock()
    for one in sampler(prompts=prompts, rngs=[np.random.default_rng(seed) for _ in prompts]):
        for rounds, r in zip(sequences, one):
            if r:
                rounds.append(r._replace(target_probs=None, draft_probs=None))
    seconds, news = clock() - begin, [[token for r in rounds for token in r.tokens] for rounds in sequences]
    return [dict(text=encoder.decode([token for token in new if token != encoder.eos]), tokens=new,
                 seconds=seconds, tokens_per_second=ratio(sum(map(len, news)), seconds), rounds=len(rounds),
                 acceptance_rate=ratio(*acceptance(rounds)),
                 tokens_per_target_pass=ratio(len(new), len(rounds))) for new, rounds in zip(news, sequences)]


if __name__ == "__main__":
    sys.exit(console.run(main))
