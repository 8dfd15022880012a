"""Vote 4.  A draft that turns out to be unlikely is thrown away, with those after it.  Lossless?

    python -m lossless exercises/votes/throw_away.py

No: the drafts that remain are likelier than p says, so unlikely tokens come too rarely.
"""
import speculative


def propose(draft, x, k, to_probs, rng):
    drafts, P = speculative.propose(draft, x, k, to_probs, rng)
    n = next((j for j, token in enumerate(drafts) if P[j][token] < .4), len(drafts))
    return drafts[:n], P[:n]
