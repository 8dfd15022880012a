"""Many prompts, continued in batches, autoregressively and speculatively; each is printed as soon as it is
done.

    python -m reporting.many prompts.txt --json

Every sequence has the same seed, so its texts are those that main.py --prompt gives for it alone, near-ties
excepted if a pass has more rows than keep their bits (samplers/batch.py).

Not here: what belongs to a single run: c, v and a prediction, colours, the replay page.
"""
import json as json_format
import sys
from functools import partial

import numpy as np
from tqdm import tqdm

import console
import methods
import speculative
from compute import backend as backends
from compute.backend import clock
from reporting.comparison import check_flags
from reporting.stats import acceptance, ratio
from reporting.terminal import harmless
from samplers.batch import batch_sampling

BATCH = 16              # sequences at once; with more, rows are no longer cheap


def main(file, n_tokens_to_generate=60, draft_model_size="demo-draft", target_model_size="demo-target", K=4,
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
                         "--prompt, or another")
    backends.use(backend)
    models = methods.Models(draft_model_size, target_model_size, models_dir)
    pair = method.pair(models, models.encoder.encode(prompts[0]), K, settings)
    about = dict(draft=draft_model_size if models.draft_is_used else drafter, target=target_model_size,
                 backend=backend, drafter=drafter, verifier=verifier, K=K, **settings, seed=seed,
                 lossless=method.lossless)
    batch = partial(batch_sampling, pair.draft, pair.target, n_tokens=n_tokens_to_generate, **settings,
                    eos=models.encoder.eos, propose=pair.propose, verify=method.verify)
    continue_all(batch, prompts, models.encoder, n_tokens_to_generate, about, models.target.exact_rows, json)


def prompts_in(path):
    """The lines of a file that are not blank.  Raises ValueError if there are none, or it is not text."""
    lines = console.read_text(path, "name a file with a prompt on each line").split("\n")
    prompts = [line for line in lines if line.strip()]
    if not prompts:
        raise ValueError(f"{path} holds no prompts: write one on each line")
    return prompts


def continue_all(batch, prompts, encoder, n_tokens, about, exact_rows, as_json):
    """Continue all prompts, BATCH at a time, and print them in order, as text or as JSON, one per line.

    batch       (prompts, K=, rngs=) -> a generator of lists of rounds: batch_sampling with the rest bound
    about       the settings by name, K and seed among them; every JSON object repeats them
    exact_rows  how many rows at once keep their bits
    If interrupted, it first prints every text that is finished.
    """
    tokens, K = [encoder.encode(prompt) for prompt in prompts], about["K"]
    batch(tokens, K=K, rngs=tokens)                             # raises now if a prompt does not fit
    made, seconds, parted = [0, 0], [0.0, 0.0], 0               # autoregressive, speculative
    with tqdm(total=2 * n_tokens * len(prompts), unit=" tokens", leave=False, disable=None) as bar:
        for start in range(0, len(prompts), BATCH):
            some, runs, interrupted = tokens[start:start + BATCH], [None, None], False
            for way, k in enumerate([0, K]):
                if not interrupted:
                    runs[way] = run(batch, some, k, about["seed"], bar)
                    *_, n_made, time, interrupted = runs[way]
                    made[way], seconds[way] = made[way] + n_made, seconds[way] + time
            for j, prompt in enumerate(prompts[start:start + BATCH]):
                alone, spec = (finished(run, j, encoder, n_tokens) if run else None for run in runs)
                if alone or spec:
                    result = compared(prompt, about, alone, spec, some, exact_rows)
                    parted += result["same_text"] is False
                    bar.clear()
                    text = harmless(f"{prompt}{(spec or alone)['text']}\n")
                    print(json_format.dumps(result) if as_json else text, flush=True)
            if interrupted:
                raise KeyboardInterrupt
    rates, plural = [ratio(*pair) for pair in zip(made, seconds)], "s" * (len(prompts) > 1)
    if all(rates):
        print(f"{len(prompts)} prompt{plural}, up to {BATCH} at once: {rates[0]:.0f} tokens per second "
              f"autoregressively, {rates[1]:.0f} speculatively, speed-up {rates[1] / rates[0]:.2f}x",
              file=sys.stderr if as_json else sys.stdout)
    if parted and about["temperature"] == 0:
        print(f"In {parted} of {len(prompts)} the two texts differ, which can happen at near-ties if a pass "
              f"has more than {exact_rows} rows.", file=sys.stderr if as_json else sys.stdout)


def run(batch, prompts, K, seed, bar):
    """One batch -> (rounds of each sequence without their distributions, tokens, seconds, interrupted?)"""
    if not K:                                       # the target alone: a rule of one's own has no say
        batch = partial(batch, verify=speculative.verify)
    sequences, begin, n_made, interrupted = [[] for _ in prompts], clock(), 0, False
    try:
        for one in batch(prompts, K=K, rngs=[np.random.default_rng(seed) for _ in prompts]):
            for rounds, r in zip(sequences, one):
                if r:
                    rounds.append(r._replace(target_probs=None, draft_probs=None))
                    n_made += len(r.tokens)
                    bar.update(len(r.tokens))
    except KeyboardInterrupt:
        interrupted = True
    return sequences, n_made, clock() - begin, interrupted


def finished(run, j, encoder, n_tokens):
    """The text and figures of sequence j; None if it was interrupted.  The time is that of its batch."""
    sequences, n_made, seconds, _ = run
    rounds = sequences[j]
    new = [token for r in rounds for token in r.tokens]
    if len(new) < n_tokens and encoder.eos not in new[-1:]:
        return None
    text = encoder.decode([token for token in new if token != encoder.eos])
    return dict(text=text, tokens=new, seconds=seconds, tokens_per_second=ratio(n_made, seconds),
                rounds=len(rounds), acceptance_rate=ratio(*acceptance(rounds)),
                tokens_per_target_pass=ratio(len(new), len(rounds)))


def compared(prompt, about, alone, spec, batch, exact_rows):
    """What main.py --json prints for one prompt, here one of a batch (given as tokens)."""
    speedup = ratio(spec["tokens_per_second"], alone["tokens_per_second"]) if alone and spec else None
    return dict(prompt=prompt, **about, batch=len(batch), autoregressive=alone, speculative=spec,
                speedup=speedup, predicted_speedup=None, cost_ratio=None, verify_ratio=None,
                same_text=alone["tokens"] == spec["tokens"] if alone and spec else None,
                same_bits=sum(len(tokens) + about["K"] for tokens in batch) <= exact_rows)


if __name__ == "__main__":
    sys.exit(console.run(main))
