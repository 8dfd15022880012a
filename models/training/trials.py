"""Trials of a pair: what it gives, and what an average of two pairs gives.

    python -m models.training.trials models
    python -m models.training.trials new --other OTHER --share 0.75

The second line first writes `new`, whose weights are 0.75 of those in models/ and the rest of those in OTHER.
Printed is a line for trials.jsonl: bits per byte and acceptance on held-out text; tokens per target pass at
K = 4, in 60 tokens after each of 60 openings; and loops, that is, how many of these texts, at temperature 0,
repeat their last six tokens.
"""
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch

from engine.loading import command_line
from models.training.model import GPT2, export, load
from models.training.text import prepare_text
from models.training.train import SIZES, check_is_new, evaluate
from speculative import speculative_sampling
from utils import load_model

MODELS, OPENINGS = Path("models"), Path("benchmarks/openings.txt")
K, N_TEXTS, N_TOKENS, PIECES = 4, 60, 60, 28             # pieces of held-out text, of 512 tokens


def load_torch(folder):
    model = GPT2(**json.loads((folder / "hparams.json").read_text(encoding="utf-8")))
    load(model, folder)
    return model


def average(other, share, out):
    """A pair between models/ and another one, written to the directory `out`."""
    for name, size in SIZES.items():
        model, theirs = (load_torch(Path(pair, name)) for pair in (MODELS, other))
        theirs = theirs.state_dict()
        model.load_state_dict({key: torch.lerp(theirs[key], ours, share)
                               for key, ours in model.state_dict().items()})
        export(model, size, Path(out, name))
        for file in "encoder.json", "vocab.bpe":
            shutil.copy(MODELS / name / file, Path(out, name))


def run(target, draft, prompts, T):
    """The rounds of each text."""
    return [[*speculative_sampling(draft, target, prompt, N_TOKENS + K + 1, K, np.random.default_rng(seed),
                                   temperature=T)] for seed, prompt in enumerate(prompts)]


def repeats(text, n=6):
    """Does the text repeat its last n tokens?

    >>> repeats([1, 2, 3, 1, 2], n=2), repeats([1, 2, 2, 2], n=2), repeats([1, 2, 3, 4], n=2)
    (True, True, False)
    """
    return any(text[i:i + n] == text[-n:] for i in range(len(text) - n))


def measure(pair, text):
    """The figures of a pair, a directory with demo-target and demo-draft."""
    folders = [Path(pair, name) for name in SIZES]
    _, *measured = prepare_text(text, 8, 4, folders[0], SIZES["demo-target"]["n_vocab"])
    found = evaluate(*map(load_torch, folders), *measured, pieces=PIECES)
    (target, encoder), (draft, _) = (load_model(str(folder)) for folder in folders)
    lines = OPENINGS.read_text(encoding="utf-8").splitlines()[:N_TEXTS]
    prompts = [encoder.encode(line) for line in lines]
    for T in 1, 0:
        texts = run(target, draft, prompts, T)
        tokens = [len(r.tokens) for rounds in texts for r in rounds if len(r.drafts) == K]
        found[f"tokens_temperature_{T}"] = np.mean(tokens)
    new = [[token for r in rounds for token in r.tokens][:N_TOKENS] for rounds in texts]
    found["loops"] = sum(repeats(prompt + tokens) for prompt, tokens in zip(prompts, new))
    return {key: round(value, 4) for key, value in found.items()}


def main(pair, other="", share=0.5, text="stories.txt"):
    """Measure a pair; with --other, first write it as an average of two.

    Args:
        pair: a directory with demo-target and demo-draft
        other: the pair to average with that in models/
        share: of the weights in models/
        text: made by models.training.fetch
    """
    if other:
        check_is_new(Path(pair))
        average(other, share, pair)
    print(json.dumps(dict(pair=Path(pair).name, **measure(pair, text))))


if __name__ == "__main__":
    sys.exit(command_line.run(main))
