"""Next to transformers on PyTorch: the same weights in float32, machine and hour.  By hand:

    python -m benchmarks.peers          greedy tokens a second, alone and speculative

Both take turns, and the numbers are medians.  llama.cpp's programs print their times themselves: see
benchmarks/results/peers.md.

But: on the CPU only, and the embedded pair.
"""
import contextlib
import sys
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

import console
from benchmarks.counts import DRAFT, HERE, TARGET
from compute.backend import clock
from compute.threads import THREADS
from loading import export
from methods import Models, choose

METHOD = choose("model", "token")


def ours(models, tokens, n_tokens, K):
    """The new tokens; K is None for the target alone."""
    sampler = METHOD.baseline if K is None else METHOD.sampler(METHOD.pair(models, tokens, K, {}))
    rng = np.random.default_rng(0)
    return [token for r in sampler(models.draft, models.target, tokens, n_tokens, K, rng, temperature=0)
            for token in r.tokens]


def theirs(assistant, target, tokens, n_tokens, K):
    """The same by `generate`, with an assistant that always drafts K tokens."""
    import torch
    torch.set_num_threads(THREADS)
    assistant.generation_config.update(num_assistant_tokens=K, num_assistant_tokens_schedule="constant",
                                       assistant_confidence_threshold=0.0)
    ids = torch.tensor([tokens])
    text = target.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=0,
                           max_new_tokens=n_tokens, min_new_tokens=n_tokens,
                           assistant_model=None if K is None else assistant)
    return text[0, len(tokens):].tolist()


def in_transformers(name, dtype="float32"):
    """The model `name` of this repository as a GPT2LMHeadModel."""
    from transformers import GPT2LMHeadModel
    with TemporaryDirectory() as place, contextlib.redirect_stdout(None):
        export.main(str(HERE.parent / "models" / name), f"{place}/{name}")
        return GPT2LMHeadModel.from_pretrained(f"{place}/{name}", dtype=dtype).eval()


def main(n_tokens=60, K=4, repetitions=3):
    """Greedy tokens a second, alone and speculative, here and by transformers.

    Args:
        n_tokens: tokens after each prompt
        K: drafts a round
        repetitions: of both in turns, after one to warm up
    """
    models, spent, texts = Models(DRAFT, TARGET), {}, {}
    lines = (HERE / "prompts.txt").read_text(encoding="utf-8").splitlines()
    prompts = [models.encoder.encode(line) for line in lines]
    programs = {"here": (ours, models)}
    try:
        programs["transformers"] = theirs, in_transformers(DRAFT), in_transformers(TARGET)
    except ImportError:
        print("transformers is left out: pip install torch transformers", file=sys.stderr)
    for _ in range(repetitions + 1):
        for name, (generate, *with_models) in programs.items():
            for drafts in (None, K):
                start = clock()
                texts[name, drafts] = [generate(*with_models, tokens, n_tokens, drafts) for tokens in prompts]
                spent.setdefault((name, drafts), []).append(clock() - start)
    for (name, drafts), seconds in spent.items():
        print(f"{name}, {'alone' if drafts is None else f'K = {drafts}'}: "
              f"{n_tokens * len(prompts) / median(seconds[1:]):.0f} tokens a second"
              + ("" if texts[name, drafts] == texts["here", None] else "; other texts than here"))


if __name__ == "__main__":
    sys.exit(console.run(main))
