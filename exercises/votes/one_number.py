"""Vote 2.  One random number tests all drafts of a round.  Lossless?

    python -m lossless exercises/votes/one_number.py

No.  Suppose that the ratios q / p of two drafts are .2 and .75.  If the first is accepted, u is below .2, so
the second is accepted every time instead of three times in four.  A round with one draft does not show it.
"""
from sampling import sample


def verify(Q, P, drafts, rng):
    u = rng.random()                                        # instead of a new one for each draft
    for j, x in enumerate(drafts):
        if u * P[j][x] >= Q[j][x]:
            return j, sample((Q[j] - P[j]).clip(0), rng)
    return len(drafts), sample(Q[-1], rng)
