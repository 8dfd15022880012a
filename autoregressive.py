"""Autoregressive sampling: Algorithm 1 of Chen et al. 2023 (arXiv 2302.01318), the baseline.

Notation as in the paper: q is the target's distribution, x_1 .. x_n are the tokens so far, and T is the
length of the whole text, prompt included (not the temperature).
"""
from functools import partial

from engine.checks import checked
from sampling import Round, probabilities, sample


@checked()                                              # inside, tokens is a list and eos a set of ids
def autoregressive_sampling(model, tokens, n_tokens, rng, *, temperature=1.0, top_k=0, top_p=1.0, eos=None):
    """Generate `n_tokens` tokens after `tokens`, one per target pass.

    Returns a generator of rounds (sampling.Round).

    model           the target: tokens, n_last=1 -> logits [n_last, n_vocab]
    rng             numpy.random.Generator, the only source of randomness
    eos             an id, several ids, or None: generation stops once it has emitted one of them
    temperature, top_k, top_p   as in sampling.probabilities; the result is the paper's q
    Raises ValueError for bad arguments, at the call rather than in the first round.
    """
    to_probs = partial(probabilities, temperature=temperature, top_k=top_k, top_p=top_p)
    x, T = list(tokens), len(tokens) + n_tokens
    while len(x) < T:
        Q = to_probs(model(x[:]))                               # [1, n_vocab]    q(. | x_1 .. x_n)
        new = [sample(Q[0], rng)]                               # x_{n+1} ~ q(. | x_1 .. x_n)
        x += new
        yield Round(tokens=new, drafts=[], n_accepted=0, target_probs=Q, draft_probs=[])
        if x[-1] in eos:
            return
