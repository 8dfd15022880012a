"""The probability that a node of a tree accepts a draft: each rule's and the best possible, exactly, on small
vocabularies.

    acceptance(rule, q, p, k)   P(the next token is one of the k drafts), by that rule
    ceiling(rule, q, p, k)      the highest that any lossless rule reaches with drafts drawn as that rule does

The ceiling is that of optimal transport with membership cost (Sun et al. 2023, arXiv 2310.15141).  It is a
linear programme: the mass of each set of drafts flows to tokens in that set, and no token x takes more than
q(x).  Its dual is a minimum cut.  Take any set A of tokens: an accepted token is in A, which has at most the
mass q(A), or else not all of its drafts are in A.  So the ceiling is the minimum over all A of

    q(A) + P(not all drafts are in A)
"""
from itertools import chain, combinations

import numpy as np

from lossless import exact_distribution
from methods.samplers.k_seq import K_SEQ
from methods.samplers.multi_draft import GREEDY
from methods.samplers.tree_rules import SEQUOIA, SPECINFER, select_chosen, top_tokens

LIKELIEST = (lambda p, k, rng: top_tokens(p, k)), select_chosen
RULES = {"SpecInfer": SPECINFER, "K-SEQ": K_SEQ, "Sequoia": SEQUOIA, "greedy drafts": GREEDY,
         "likeliest": LIKELIEST}


def acceptance(rule, q, p, k):
    draw, select = rule
    found = exact_distribution(lambda rng: select(q, p, draw(p, k, rng), rng)[0] is not None)
    return found.get(True, 0.0)


def ceiling(rule, q, p, k):
    draws = exact_distribution(lambda rng: frozenset(rule[0](p, k, rng)))
    tokens = range(len(q))
    subsets = chain.from_iterable(combinations(tokens, n) for n in range(len(q) + 1))
    return min(q[list(A)].sum() + sum(mass for drafts, mass in draws.items() if not drafts <= set(A))
               for A in subsets)


def pairs(n, n_vocab=5, seed=0):
    """n random (q, p), each uniform on the simplex."""
    return np.random.default_rng(seed).dirichlet(np.ones(n_vocab), size=(n, 2))
