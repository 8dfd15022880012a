"""Makes tests/fixtures/gpt2.npz: a tiny GPT-2 with random weights, and its logits from transformers.

    python -m venv /tmp/hf && /tmp/hf/bin/pip install torch transformers
    /tmp/hf/bin/python tests/tools/make_transformers_fixture.py

Needed only to make the fixture again; the test needs neither library.  It was made with transformers 5.23.0
and torch 2.13.0.  All weights are random, including biases and layer norms, and so large that a mistake in
any part of the model changes the logits.
"""
from pathlib import Path

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

FIXTURE = Path(__file__).resolve().parent.parent / "fixtures" / "gpt2.npz"


def openai_name(name):
    """transformer.h.0.ln_1.weight -> h0/ln_1/g"""
    kind = {"weight": "g" if ".ln_" in name else "w", "bias": "b"}
    path = name.removeprefix("transformer.").replace("h.", "h", 1).split(".")
    return path[0] if path[0] in ("wte", "wpe") else "/".join([*path[:-1], kind[path[-1]]])


def main():
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=97, n_positions=64, n_embd=32, n_layer=2, n_head=4)).eval()
    arrays = {}
    for name, weight in model.transformer.named_parameters(prefix="transformer"):
        std, mean = (0.3, 1.0) if name.endswith("weight") and ".ln_" in name else (0.3, 0.0)
        weight.data = torch.normal(mean, std, weight.shape)
        arrays[openai_name(name)] = weight.data.numpy()
    model.tie_weights()
    model = model.double()
    tokens = torch.randint(97, (2, 64))
    with torch.no_grad():
        logits = model(tokens).logits                                                       # [2, 64, 97]
    np.savez_compressed(FIXTURE, tokens=tokens.numpy(), logits=logits.numpy().astype(np.float32), **arrays)
    print(f"{FIXTURE}: {FIXTURE.stat().st_size} bytes, logits {logits.mean():.2f} +- {logits.std():.2f}")


if __name__ == "__main__":
    main()
