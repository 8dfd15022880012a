"""What the picture of a round shows: at each place p and q over the likeliest tokens, the number r that was
drawn, and the probability of acceptance that it was compared with.

    tests(round, draws)                 of speculative.verify
    tests(round, draws, block=True)     of methods/samplers/block.py, which weighs q by P_j
    tree_tests(round, draws)            of methods/samplers/tree_rules.py, select_drawn

The notation is Chen's: q the target, p the draft.
"""
import numpy as np

from methods.samplers.tree_rules import exclude, normalize

N_TOP = 4               # tokens of each distribution that are shown


def tests(r, draws, block=False):
    """One entry for each place, from the first draft to where the next token was drawn (a block: to the end).

    r       a sampling.Round;  draws    the numbers that the accept rule drew, in order
    An entry:  x        the draft at this place, or None after the last
               rows     [[token, p, q], ..] as `rows` gives them; for a block P_j q instead of q
               z        sum max(0, q - p): the token after a rejection is drawn from this difference
               r, ratio the number drawn, and the probability of acceptance.  Of a block: h_j, after j drafts
               weight   of a block: P_j

    >>> from sampling import Round
    >>> q, p = np.array([[.25, .75], [.5, .5]]), np.array([[.5, .5]])
    >>> tests(Round([1], [0], 0, q, p), draws=[.6])
    [{'x': 0, 'rows': [[1, 0.5, 0.75], [0, 0.5, 0.25], [None, 0.0, 0.0]], 'z': 0.25, 'r': 0.6, 'ratio': 0.5}]
    """
    k, found, weight = len(r.drafts), [], 1.0
    p_rows = [*r.draft_probs, np.zeros(r.target_probs.shape[1])]            # no draft comes after the last
    for j in range(k + 1 if block else min(len(r.tokens), r.n_accepted + 1)):
        x, p = r.drafts[j] if j < k else None, p_rows[j]
        if block and j:
            before = r.drafts[j - 1]
            weight = min(1.0, weight * r.target_probs[j - 1][before] / p_rows[j - 1][before])
        q = weight * r.target_probs[j]
        z = np.maximum(q - p, 0).sum()
        own = [r.tokens[-1]] if j == r.n_accepted < len(r.tokens) else []
        entry = dict(x=x, rows=rows([p, q], [x, *own], N_TOP), z=short(z))
        if block and j:
            h = z / (z + 1 - weight) if z else 0.0
            entry |= dict(r=short(draws[j - 1]), ratio=short(h), passes=bool(draws[j - 1] < h))
        elif not block and x is not None:
            entry |= dict(r=short(draws[j]), ratio=short(min(1.0, q[x] / p[x])))
        found.append(entry | (dict(weight=short(weight)) if block else {}))
    return found


def tree_tests(r, draws):
    """One entry for each child that was tried, in turn, and one for a draw after a leaf.

    r       a sampling.Round of a tree whose children were drawn without replacement
    An entry is as above, with p and q as they then are: without the tokens that were rejected.  `node` says
    which node of the tree was tried, `passes` whether it was accepted.

    >>> from sampling import Round
    >>> q, p = np.array([[.25, .75], [.5, .5], [1., 0]]), np.array([[.5, .5]] * 2)
    >>> [(t["node"], t["rows"][0], t["ratio"]) for t in tree_tests(
    ...     Round([1, 0], [0, 1], 1, q, p, [-1, -1]), [.9, .3]) if "node" in t]
    [(0, [1, 0.5, 0.75], 0.5), (1, [1, 1.0, 1.0], 1.0)]
    """
    found, here, q, p, draws = [], -1, r.target_probs[0], None, iter(draws)
    for i, (x, parent) in enumerate(zip(r.drafts, r.parents)):
        if parent != here:
            continue
        p = r.draft_probs[i] if p is None else p                # the first child is drawn from this
        u, left = next(draws), np.maximum(q - p, 0)
        found.append(dict(x=x, node=i, rows=rows([p, q], [x, r.tokens[-1]], N_TOP), z=short(left.sum()),
                          r=short(u), ratio=short(min(1.0, q[x] / p[x])), passes=bool(u * p[x] < q[x])))
        if found[-1]["passes"]:
            here, q, p = i, r.target_probs[i + 1], None
        else:
            q, p = normalize(left) if left.any() else q, exclude(p, x)
    if here not in r.parents:                                   # a leaf
        found.append(dict(x=None, rows=rows([0 * q, q], [r.tokens[-1]], N_TOP), z=1.0))
    return found


def rows(distributions, marked, n_top):
    """[[token, *its probability in each], ..]: the n_top likeliest tokens of each distribution and the marked
    tokens, likeliest first; then [None, ..], the sums over all others.

    >>> rows([np.array([.5, .25, .125, .125])], [3], n_top=1)
    [[0, 0.5], [3, 0.125], [None, 0.375]]
    """
    probs, marked = np.stack(distributions), [token for token in marked if token is not None]   # [n, n_vocab]
    best = np.argsort(-probs, axis=-1, kind="stable")[:, :n_top]
    shown = np.unique([*best[np.take_along_axis(probs, best, -1) > 0], *marked]).astype(int)
    shown = shown[np.argsort(-probs[:, shown].max(axis=0), kind="stable")]
    others = np.maximum(probs.sum(axis=-1) - probs[:, shown].sum(axis=-1), 0).round(12)
    columns = [*probs[:, shown].T, others]
    return [[token, *map(short, column)] for token, column in zip([*shown.tolist(), None], columns)]


def short(x):
    return float(f"{x:.4g}")
