"""Greedy texts of PyTorch: does it matter how many tokens a pass reads?  By hand:

    pip install torch transformers
    python -m benchmarks.near_ties              writes benchmarks/results/near_ties.json

A text is written one token a pass, and read again five tokens a pass, as in a verification.  Where the two
best logits are nearly equal, a row by itself and the same row among five may name different tokens: there
greedy speculative text parts from greedy text.

But: on the CPU, one thread, and the embedded target.
"""
import json
import sys

import console
from benchmarks.counts import HERE, TARGET
from benchmarks.measure import machine
from benchmarks.peers import in_transformers
from utils import load_model


def logits_of(model, tokens, cache=None):
    """(logits [n, n_vocab] of these tokens, the cache with them)."""
    import torch
    with torch.inference_mode():
        answer = model(torch.tensor([tokens]), past_key_values=cache, use_cache=True)
    return answer.logits[0].float(), answer.past_key_values


def parted(model, prompt, n_tokens, n_rows):
    """[(tokens before, token by itself, token among n_rows, the four logits of both)], all that differ."""
    import torch
    rows, cache = logits_of(model, prompt)
    alone, text = [rows[-1]], []
    for _ in range(n_tokens):
        text.append(int(alone[-1].argmax()))
        rows, cache = logits_of(model, text[-1:], cache)
        alone.append(rows[-1])
    rows, cache = logits_of(model, prompt)
    among = [rows[-1]]
    for i in range(0, n_tokens, n_rows):
        rows, cache = logits_of(model, text[i:i + n_rows], cache)
        among += rows
    places = zip(alone, among, range(n_tokens))
    return [(text[:n], *best, torch.stack([one[best], five[best]]).tolist()) for one, five, n in places
            if len(set(best := [int(one.argmax()), int(five.argmax())])) > 1]


def main(n_texts=40, n_tokens=200, n_rows=5):
    """Greedy texts of PyTorch in two precisions: how many depend on the number of tokens a pass reads?

    Args:
        n_texts: openings of benchmarks/openings.txt
        n_tokens: tokens after each
        n_rows: tokens a pass reads
    """
    import torch
    torch.set_num_threads(1)
    encoder = load_model(TARGET)[1]
    lines = (HERE / "openings.txt").read_text(encoding="utf-8").splitlines()[:n_texts]
    found = dict(torch=torch.__version__, CPU=machine()["CPU"], n_texts=len(lines), n_tokens=n_tokens,
                 n_rows=n_rows)
    for dtype in "bfloat16", "float32":
        model = in_transformers(TARGET, dtype)
        texts = [parted(model, encoder.encode(line), n_tokens, n_rows) for line in lines]
        first = next((places[0] for places in texts if places), None)
        found[dtype] = dict(parted=sum(map(bool, texts)), first=first and dict(
            after=encoder.decode(first[0][-8:]), by_itself=encoder.decode([first[1]]),
            among=encoder.decode([first[2]]), logits=first[3]))
    console.rewrite(HERE / "results" / "near_ties.json", json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    sys.exit(console.run(main))
