"""Runs transformers' own generate() with an assistant through every branch of chance:

    /where/it/is/installed/python -m lossless.verdicts.real          prints what it finds, as one line of JSON

It needs an environment of its own:     pip install torch transformers==4.44.0         (or ==5.23.0)

The models are GPT-2s with a vocabulary of five tokens and random weights, in float64.  torch.multinomial and
torch.rand_like are replaced by the walk of lossless/.  README.md says what was found, with which versions.

Limitations: one sequence, sampling without filters, at most two drafts per round, three tokens.
"""
import json
import sys
from unittest import mock

import numpy as np

from lossless import distribution_of_text, exact_distribution
from lossless.judge import distance

PROMPT, N_TOKENS, N_DRAFTS = [2, 0], 3, 2


class UniformTensor:
    """Stands in for what torch.rand_like returns: numbers to compare with ratios.  No number is
    drawn after a rejection."""
    def __init__(self, rng):
        self.rng = rng

    def __le__(self, ratios):
        tests = enumerate(ratios.flatten().tolist())
        n = next((i for i, ratio in tests if not self.rng.random() < ratio), ratios.numel())
        return ratios.new_tensor([i < n for i in range(ratios.numel())]).bool().view(ratios.shape)


def patch_torch(rng):
    """A context in which torch.multinomial and torch.rand_like draw from the walk."""
    import torch

    def multinomial(probs, num_samples, **_):
        rows = np.array(probs.tolist())
        return torch.tensor([[rng.choice(len(row), p=row / row.sum())] for row in rows])
    return mock.patch.multiple(torch, multinomial=multinomial, rand_like=lambda _: UniformTensor(rng))


def tiny_gpt2(seed):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=5, n_embd=8, n_head=2, n_layer=1, n_positions=16,
                                       initializer_range=.8, bos_token_id=None, eos_token_id=None))
    for name, value in dict(eos_token_id=None, pad_token_id=0, num_assistant_tokens=N_DRAFTS,
                            num_assistant_tokens_schedule="constant").items():
        setattr(model.generation_config, name, value)
    return model.double().eval()


def main():
    """Compares the distribution of generate(.., assistant_model=.., do_sample=True) with the target's."""
    import torch
    import transformers

    target, assistant = tiny_gpt2(1), tiny_gpt2(2)

    def logits(tokens, n_last=1):
        with torch.no_grad():
            return target(torch.tensor([list(tokens)])).logits[0, -n_last:].numpy()

    def run(rng):
        with patch_torch(rng):
            text = target.generate(
                torch.tensor([PROMPT]), attention_mask=torch.ones(1, len(PROMPT)).long(), top_k=0,
                assistant_model=assistant, do_sample=True, max_new_tokens=N_TOKENS)
        return tuple(text[0, len(PROMPT):].tolist())

    found, wanted = exact_distribution(run), distribution_of_text(logits, PROMPT, N_TOKENS)
    worst = max(found.keys() | wanted.keys(), key=lambda text: abs(found.get(text, 0) - wanted.get(text, 0)))
    print(json.dumps({"transformers": transformers.__version__, "torch": torch.__version__, "text": worst,
                      "probability": found.get(worst, 0), "wanted": wanted.get(worst, 0),
                      "distance": distance(found, wanted)}))


if __name__ == "__main__":
    sys.exit(main())
