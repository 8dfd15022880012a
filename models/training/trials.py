"""Trials of a pair: an average of two, and what a pair gives.

    python -m models.training.trials average OTHER --share 0.75 --out new
    python -m models.training.trials measure new --text stories.txt

`average` writes the pair whose weights are 0.75 of those in models/ and the rest of those in OTHER.
`measure` prints a line for trials.jsonl: bits per byte and acceptance on held-out text, tokens per target
pass at K = 4, and loops, that is, how many of 60 greedy texts repeat their last six tokens.
"""
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch

from autoregressive import autoregressive_sampling
from benchmarks.counts import openings
from loading import command_line
from loading.folder import read_folder
from models.training.model import GPT2, export, fill, load
from models.training.text import prepare_text
from models.training.train import SIZES, check_is_new, evaluate
from speculative import speculative_sampling
from utils import load_model

MODELS = Path("models")
N_TEXTS, N_TOKENS, K = 60, 60, 4


def average(other, share, out):
    """A pair between models/ and another one, written to the directory `out`."""
    for name, size in SIZES.items():
        models = GPT2(**size), GPT2(**size)
        for model, pair in zip(models, (other, MODELS)):
            load(model, Path(pair, name))
        theirs, ours = (model.state_dict() for model in models)
        models[1].load_state_dict({key: torch.lerp(theirs[key], ours[key], share) for key in ours})
        export(models[1], size, Path(out, name))
        for file in "encoder.json", "vocab.bpe":
            shutil.copy(MODELS / name / file, Path(out, name))


def load_torch(folder):
    sizes, arrays, _ = read_folder(folder)
    model = GPT2(**{key: sizes[key] for key in SIZES["demo-target"]})
    fill(model, arrays)
    return model


def tokens_per_pass(target, draft, T):
    """The mean over all rounds of K drafts."""
    rounds = [r for seed, prompt in enumerate(openings()[:N_TEXTS])
              for r in speculative_sampling(draft, target, prompt, N_TOKENS + K + 1, K,
                                            np.random.default_rng(seed), temperature=T) if len(r.drafts) == K]
    return sum(len(r.tokens) for r in rounds) / len(rounds)


def greedy_text(target, prompt):
    rounds = autoregressive_sampling(target, prompt, N_TOKENS, np.random.default_rng(), temperature=0)
    return prompt + [token for r in rounds for token in r.tokens]


def repeats(text, n=6):
    """Does the text repeat its last n tokens?

    >>> repeats([1, 2, 3, 1, 2], n=2), repeats([1, 2, 2, 2], n=2), repeats([1, 2, 3, 4], n=2)
    (True, True, False)
    """
    return any(text[i:i + n] == text[-n:] for i in range(len(text) - n))


def measure(pair, text, pieces):
    """The figures of a pair, a directory with demo-target and demo-draft."""
    folders = [Path(pair, name) for name in SIZES]
    _, *measured = prepare_text(text, 8, 4, folders[0], SIZES["demo-target"]["n_vocab"])
    found = evaluate(*map(load_torch, folders), *measured, pieces=pieces)
    target, draft = (load_model(str(folder))[0] for folder in folders)
    found |= {f"tokens_temperature_{T}": tokens_per_pass(target, draft, T) for T in (0, 1)}
    found |= dict(loops=sum(repeats(greedy_text(target, prompt)) for prompt in openings()[:N_TEXTS]))
    return {key: round(value, 4) for key, value in found.items()}


def main(what, pair, share=0.5, out="", text="stories.txt", pieces=28):
    """Average two pairs, or measure one.

    Args:
        what: average or measure
        pair: a directory with demo-target and demo-draft
        share: with average, that of the weights in models/
        out: with average, where the new pair is written
        text: with measure, made by models.training.fetch
        pieces: with measure, pieces of 512 tokens of held-out text
    """
    if what == "average":
        check_is_new(Path(out))
        average(pair, share, out)
    elif what == "measure":
        print(json.dumps(dict(pair=Path(pair).name, **measure(pair, text, pieces))))
    else:
        raise ValueError(f"there is no {what!r}: use average or measure")


if __name__ == "__main__":
    sys.exit(command_line.run(main))
