"""Vote 1.  After a rejection, the next token is drawn from q, not from the residual.  Lossless?

    python -m lossless exercises/votes/residual.py

No: the tokens that the draft proposes too rarely should get all that is missing, and get only a part of it.
"""
from sampling import sample


def verify(Q, P, drafts, rng):
    for j, x in enumerate(drafts):
        if rng.random() * P[j][x] >= Q[j][x]:
            return j, sample(Q[j], rng)                     # instead of max(0, q - p)
    return len(drafts), sample(Q[-1], rng)
