"""Rules whose chance lossless.py cannot walk, integrated by hand: the exact distribution all the same.

    INTEGRALS["noise used twice"](draft, target, prompt) -> {text: probability}

A race: E_x is exponential with mean 1, one for each token, and the smallest E_x / w_x wins; so x wins with
probability w_x / sum w.  That is argmax(log w + Gumbel noise), and argmax(w / E), as engines write it.

But: one round, of one draft (of two where the text has two tokens).
"""
import numpy as np

from lossless import exact_distribution
from sampling import probabilities, sample


def race_twice(first, second):
    """[n_vocab, n_vocab]: the probability that a wins the race of the weights `first`, and b that of
    `second`, when both are run on the same E.

    Scale out of E_a: with t = E_b / E_a the other tokens' E must exceed E_a max(t r_i / r_b, p_i / p_a), so
    the joint probability is the integral over t > p_b / p_a of 1 / (1 + t + sum_i max(..))^2: between the
    places where a maximum changes sides it is 1 / (A + B t)^2.

    >>> race_twice(np.array([.5, .5]), np.array([0., 1.])).tolist()     # b is sure: a alone is random
    [[0.0, 0.5], [0.0, 0.5]]
    """
    joint = np.zeros((len(first), len(first)))
    for a in np.flatnonzero(first):
        for b in np.flatnonzero(second):
            p, r = first / first[a], second / second[b]         # in units of the winner's
            if a == b:                                          # all the others' E_i > E_a max(p_i, r_i)
                joint[a, b] = 1 / np.maximum(p, r).sum()
                continue
            others = [i for i in range(len(p)) if i not in (a, b)]
            low, high = p[b], 1 / r[a] if r[a] else np.inf      # t: a wins the first, b the second
            if low < high:
                joint[a, b] = piecewise(low, high, p[others], r[others])
    return joint


def piecewise(low, high, p, r):
    """The integral from low to high of dt / (1 + t + sum max(t r_i, p_i))^2."""
    turns = sorted({low, high, *(x / y for x, y in zip(p, r) if y > 0 and low < x / y < high)})
    total = 0.0
    for left, right in zip(turns, turns[1:]):
        middle = left + 1 if right == np.inf else (left + right) / 2
        up = middle * r > p                                     # which of the two each maximum is
        A, B = 1 + p[~up].sum(), 1 + r[up].sum()
        total += (1 / (A + B * left) - (0 if right == np.inf else 1 / (A + B * right))) / B
    return total


def rows(draft, target, x):
    return probabilities(draft(x)[-1]), probabilities(target(x)[-1])        # p, q


def noise_used_twice(draft, target, x):
    """The draft wins a race; refused, the token that wins the residual's race on the *same* E replaces it."""
    p, q = rows(draft, target, x)
    residual = np.maximum(q - p, 0)
    kept = np.minimum(p, q)
    refused = 1 - np.minimum(1, q / np.where(p > 0, p, 1))      # given the draft; its coin is a new one
    found = kept + (refused[:, None] * race_twice(p, residual)).sum(axis=0)
    return {(x,): chance for x, chance in enumerate(found)}


def race_for_the_residual(draft, target, x):
    """argmax(residual / E): the winner of a race is a draw from the residual, not its largest."""
    p, q = rows(draft, target, x)
    residual = np.maximum(q - p, 0)
    wins = race_twice(residual, residual).sum(axis=0) if residual.any() else residual
    return {(x,): chance for x, chance in enumerate(np.minimum(p, q) + (1 - np.minimum(p, q).sum()) * wins)}


def products_of_coins(draft, target, x):
    """Block verification as it is not meant: tau is the last i with u_1 .. u_i < r_1 .. r_i, the ratios cut
    at 1, and the correction is that of Algorithm 2.  P(u_1 u_2 < c) = c (1 - log c)."""
    def run(rng):
        drafts, ratios, residuals = [], [], []
        for _ in range(2):
            p, q = rows(draft, target, [*x, *drafts])
            drafts.append(d := sample(p, rng))
            ratios.append(min(1, q[d] / p[d]))
            residuals.append(np.maximum(q - p, 0))
        r, c = ratios[0], ratios[0] * ratios[1]
        both = c * (1 - np.log(c)) if c else 0.0
        first = r - c + c * np.log(ratios[1]) if c else r       # u_1 < r_1, u_1 u_2 > c
        tau = int(rng.choice(3, p=np.maximum([1 - both - first, first, both], 0)))
        text = [*drafts[:tau], *(sample(residual, rng) for residual in residuals[tau:tau + 1])]
        while len(text) < 2:
            text.append(sample(rows(draft, target, [*x, *text])[1], rng))
        return tuple(text)
    return exact_distribution(run)


GRID = 2 ** 24      # float32 uniforms, as torch.rand draws them: 0, 1, .. , GRID - 1 over GRID


def coin_up_to(draft, target, x):
    """coin <= q(d) on a grid that holds 0: a draft that the target rules out stays once in 2^24."""
    p, q = rows(draft, target, x)
    kept = np.minimum(np.floor(q * GRID) + 1, GRID) / GRID      # grid points that are <= q

    def run(rng):
        d = sample(p, rng)
        rest = np.where(np.arange(len(q)) == d, 0, q)
        return d if rng.random() < kept[d] else sample(rest if rest.any() else q, rng),
    return exact_distribution(run)


INTEGRALS = {
    "noise used twice": noise_used_twice,
    "race for the residual": race_for_the_residual,
    "products of coins": products_of_coins,
    "coin up to, on a grid": coin_up_to,
}
