"""Which method on which machine: a cost model of one line.  A page repeats it in JavaScript (machines.json).

    speedup(tokens, steps, rows, c, v, batch)

Everything is counted in the target's steps, a pass over one row.  `tokens`, `steps` and `rows` are counts and hold
for every machine; c and v are the machine's.

But: attention over a long context, settling (distributions and draws) and the network are not in it, a tree's
level counts as one step of the drafter, and machines that were not measured are assumed.
"""
import numpy as np

# v as [rows, steps], linear in between.  "assumed": nobody measured it here.
MACHINES = {
    "GPU, one sequence": dict(assumed=True, batch=1, v=[[1, 1], [128, 1], [256, 1.3], [1024, 4]]),
    "GPU, 64 sequences": dict(assumed=True, batch=64, v=[[1, 1], [128, 1], [256, 1.3], [1024, 4]]),
    "laptop": dict(assumed=True, batch=1, v=[[1, 1], [4, 1.2], [8, 1.6], [16, 2.6], [32, 4.8]]),
    "laptop, 16 sequences": dict(assumed=True, batch=16, v=[[1, 1], [4, 1.2], [8, 1.6], [16, 2.6], [32, 4.8]]),
}
# A step of each drafter, by the layers that it runs of the target's sixteen and the output head; assumed, too.
C = {"model": 0.12, "lookup": 0, "ngram": 0, "suffix": 0, "jacobi": 0, "early_exit": 0.33, "eagle": 0.1,
     "medusa": 0.03}


def steps_of(v, rows):
    """A pass over so many rows, by the table v; beyond its end it goes on as steeply.

    >>> steps_of([[1, 1], [5, 2]], 3), steps_of([[1, 1], [5, 2]], 9)
    (1.5, 3.0)
    """
    (a, at_a), (b, at_b) = v[-2:]
    if rows > b:
        return at_b + (rows - b) * (at_b - at_a) / (b - a)
    return float(np.interp(rows, *zip(*v)))


def speedup(tokens, steps, rows, c, v, batch=1):
    """Over the target alone at the same number of sequences.

    tokens      a pass of the target
    steps       of the drafter a round, each over one row for each sequence
    rows        of the target's pass, for each sequence: the drafts and one
    c           a step of the drafter over one of the target
    v           [[rows, steps], ..] of the target, see steps_of

    >>> round(speedup(3.69, 5, 6, c=0, v=[[1, 1], [9, 1]]), 2)        # Leviathan et al., table 1
    3.69
    """
    alone = steps_of(v, batch)
    return tokens * alone / (steps * c * alone + steps_of(v, batch * rows))
