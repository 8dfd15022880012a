"""The functions of engines themselves, enumerated where their package is installed:

    /where/it/is/installed/python -m verdicts.real          adds to results.json what it finds

    transformers    generate() with an assistant model, sampling: a GPT-2 of five tokens, random weights, in
                    float64; and _speculative_sampling with drafts that were drawn.  Its torch.multinomial
                    and torch.rand_like ask the judge
    mlx-lm          speculative_generate_step; the judge is its `sampler`, tables are its models

Each engine needs an environment of its own (numpy and the engine are enough):

    pip install torch transformers==4.44.0 "numpy<2"        pip install torch transformers==5.23.0
    pip install "mlx[cpu]" mlx-lm numpy

With --json it prints what it finds and stores nothing; the long tests ask so the Pythons in $ENGINES (joined
as in $PATH) and compare.

But: one sequence, no settings, two drafts a round.
"""
import importlib
import inspect
import sys
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from json import dumps
from unittest import mock

import numpy as np

import console
from lossless import distance, distribution_of_text, exact_distribution, table
from verdicts.cases import results, store

PROMPT, N_TOKENS, N_DRAFTS = [2, 0], 3, 2


def pick(weights, rng):
    """A draw, through the judge's walk: which of the weights."""
    weights = np.asarray(weights, dtype=float)
    return rng.choice(len(weights), p=weights / weights.sum())


def found(run, target, n_tokens=N_TOKENS):
    exact, wanted = exact_distribution(run), distribution_of_text(target, PROMPT, n_tokens)
    worst = max(exact.keys() | wanted.keys(), key=lambda text: abs(exact.get(text, 0) - wanted.get(text, 0)))
    return {"deviation": float(f"{abs(exact.get(worst, 0) - wanted.get(worst, 0)):.3g}"),
            "distance": float(f"{distance(exact, wanted):.3g}"), "texts": len(wanted),
            "worst": [list(worst), float(f"{exact.get(worst, 0):.6g}"), float(f"{wanted.get(worst, 0):.6g}")]}


# transformers -----------------------------------------------------------------------------------------------

class Coins:
    """What torch.rand_like gives: numbers that the judge compares.  After a refusal none counts."""
    def __init__(self, rng):
        self.rng = rng

    def __le__(self, ratios):
        import torch

        kept = torch.zeros_like(ratios, dtype=torch.bool)
        for i, ratio in enumerate(ratios.flatten().tolist()):
            if not self.rng.random() < ratio:
                break
            kept.view(-1)[i] = True
        return kept


def asking(rng):
    """torch.multinomial and torch.rand_like, as long as this lasts, ask the judge."""
    import torch

    def multinomial(probs, num_samples, **_):
        assert num_samples == 1
        return torch.tensor([[pick(row, rng)] for row in probs.tolist()])
    return mock.patch.multiple(torch, multinomial=multinomial, rand_like=lambda _: Coins(rng))


def tiny_gpt2(seed, n_vocab=5):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=n_vocab, n_embd=8, n_head=2, n_layer=1, n_positions=16,
                                       initializer_range=.8, bos_token_id=None, eos_token_id=None))
    settings = dict(eos_token_id=None, pad_token_id=0, num_assistant_tokens=N_DRAFTS,
                    num_assistant_tokens_schedule="constant")
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    return model.double().eval()


def generate():
    """model.generate(.., assistant_model=.., do_sample=True), every branch of it."""
    import torch

    target, assistant = tiny_gpt2(1), tiny_gpt2(2)

    def logits(tokens, n_last=1):
        with torch.no_grad():
            return target(torch.tensor([list(tokens)])).logits[0, -n_last:].numpy()

    def run(rng):
        with asking(rng):
            text = target.generate(torch.tensor([PROMPT]), attention_mask=torch.ones(1, len(PROMPT)).long(),
                                   assistant_model=assistant, do_sample=True, top_k=0, max_new_tokens=2)
        return tuple(text[0, len(PROMPT):].tolist())
    return found(run, logits, 2)


def speculative_sampling(**more):
    """_speculative_sampling in a loop of ours, with drafts drawn from tables."""
    import torch
    from transformers.generation.utils import _speculative_sampling

    draft, target = table(1), table(2)
    parameters = inspect.signature(_speculative_sampling).parameters
    if more.keys() - parameters.keys():
        raise ModuleNotFoundError(f"this version has no {', '.join(more)}")
    if "is_done_candidate" in parameters:
        more["is_done_candidate"] = False

    def run(rng):
        x = list(PROMPT)
        while (left := len(PROMPT) + N_TOKENS - len(x)) > 0:
            k, drafts = min(N_DRAFTS, left - 1), []
            for _ in range(k):
                drafts.append(pick(np.exp(draft(x + drafts)[0]), rng))
            q = torch.tensor(target(x + drafts, k + 1))[None]
            if not k:
                x.append(pick(np.exp(q[0, 0].numpy()), rng))
                continue
            p = torch.tensor(np.stack([draft(x + drafts[:j])[0] for j in range(k)]))[None]
            with asking(rng):
                tokens, _ = _speculative_sampling(torch.tensor([x + drafts]), p, k, q, **more)
            x += tokens[0].tolist()
        return tuple(x[len(PROMPT):])
    return found(run, target)


# mlx-lm -----------------------------------------------------------------------------------------------------

class Tokens:
    """A cache that keeps the tokens themselves, for a model that is a table."""
    state = []

    def __init__(self):
        self.tokens = []

    def is_trimmable(self):
        return True

    def trim(self, n):
        del self.tokens[len(self.tokens) - n:]
        return n


class Table:
    layers = [None]

    def __init__(self, model):
        self.model = model

    def make_cache(self):
        return [Tokens()]

    def __call__(self, inputs, cache):
        import mlx.core as mx

        cache[0].tokens += inputs[0].tolist()
        return mx.array(self.model(cache[0].tokens, inputs.shape[1]).astype(np.float32))[None]


def speculative_generate_step():
    import mlx.core as mx

    step = importlib.import_module("mlx_lm.generate").speculative_generate_step
    draft, target = table(1), table(2)

    def run(rng):
        def sampler(logprobs):
            return mx.array([pick(row, rng) for row in np.exp(np.array(logprobs, dtype=float))], mx.uint32)
        tokens = step(mx.array(PROMPT), Table(target), Table(draft), num_draft_tokens=N_DRAFTS,
                      max_tokens=2, sampler=sampler)
        return tuple(int(token) for token, *_ in tokens)
    return found(run, target, 2)


REAL = {    # (package, what is enumerated): how
    ("transformers", "generate with an assistant"): generate,
    ("transformers", "_speculative_sampling"): speculative_sampling,
    ("transformers", "_speculative_sampling with assistant_ensemble_weight 0.5 (declared lossy)"):
        partial(speculative_sampling, assistant_ensemble_weight=.5),
    ("mlx-lm", "speculative_generate_step"): speculative_generate_step,
}


def enumerate_installed():
    """{"transformers 4.44.0: generate ..": what was found} of what is installed; the rest is printed."""
    results = {}
    for (package, name), run in REAL.items():
        try:
            results[f"{package} {version(package)}: {name}"] = run()
        except (PackageNotFoundError, ModuleNotFoundError) as error:    # it, or what it needs
            print(f"not enumerated: {package}, {name} ({error})", file=sys.stderr)
    return results


def main(json=False):
    """Enumerate the engines that are installed here, and store what is found in results.json.

    Args:
        json: print it, and store nothing
    """
    new = enumerate_installed()
    if json:
        return print(dumps(new))
    for name, result in new.items():
        print(f"{name:55} {result}")
    store(real=dict(sorted((results()["real"] | new).items())))


if __name__ == "__main__":
    sys.exit(console.run(main))
