"""Vote 5.  The draft is the argmax of the softmax, and the softmax is recorded as p.  Lossless?

    python -m lossless exercises/votes/argmax.py

No: the argmax is proposed every time, so its p is 1, and the test divides by less.  It would be lossless with
p = 1 for the argmax and 0 for all other tokens: return `drafts, None`.
"""


def propose(draft, x, k, to_probs, rng):
    drafts, P = [], []
    for _ in range(k):
        P.append(to_probs(draft(x + drafts))[0])
        drafts.append(int(P[-1].argmax()))                  # instead of a draw from P[-1]
    return drafts, P
