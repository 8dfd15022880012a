"""Vote 3.  Drafting stops before a token is drawn, if the draft model is unsure of it.  Lossless?

    python -m lossless exercises/votes/stop_before.py

Yes: the decision depends on p, not on the token, which is still to be drawn.
"""
from sampling import sample


def propose(draft, x, k, to_probs, rng):
    drafts, P = [], []
    while len(drafts) < k and (row := to_probs(draft(x + drafts))[0]).max() > .5:
        drafts, P = [*drafts, sample(row, rng)], [*P, row]
    return drafts, P
