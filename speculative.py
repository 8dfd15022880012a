"""Speculative sampling: Algorithm 2 of Chen et al. 2023 (arXiv 2302.01318); the same method as Algorithm 1 of Leviathan et al. 2022
(arXiv 2211.17192), found independently.

A small draft model proposes K tokens, one at a time.  The target model looks at all of them in one pass, which costs little more than
one token.  A modified rejection sampling keeps some of them and corrects the first it rejects, so that the text has exactly the law of
the target alone.

The letters are Chen's.  Leviathan et al. swap them:

                        this file and Chen      Leviathan
    target              q                       p
    draft               p                       q
    number of drafts    K                       gamma

Where the code differs from the printed Algorithm 2: n stays as it is within a round (the paper's listing advances it inside the accept
loop); the text ends at length T exactly, prompt included (the paper's may run past it), because a round drafts fewer than K tokens
where fewer are wanted; and EOS ends the text.

But: one draft at a time (no trees), one sequence (no batch).
"""
from numbers import Integral

import numpy as np

from sampling import Round, prepare, sample


def verify(target_probs, draft_probs, drafts, rng):
    """The accept loop: how many drafts are kept, and the token that follows them.  Returns (n_accepted, next_token).

    target_probs    [k + 1, n_vocab]    q(. | x_1 .. x_n, xt_1 .. xt_{j-1})   for j = 1 .. k + 1
    draft_probs     [k, n_vocab]        p(. | x_1 .. x_n, xt_1 .. xt_{j-1})   for j = 1 .. k:  the laws the drafts were drawn from
    drafts          [k]                 xt_1 .. xt_k;  k <= K is the number that this round drafted, possibly 0

    Lossless (Theorem 1): x can come in two ways.  As a draft that survives, with probability p(x) min(1, q(x) / p(x)) = min(p(x), q(x)).
    Or after a rejection, which has probability Z = 1 - sum min(p, q) = sum max(0, q - p), by a draw from (q - p)_+ = max(0, q - p) / Z:
    together max(0, q(x) - p(x)).  The two add up to q(x), whatever p is.

    >>> q, p = np.array([[.1, .6, .3], [0, 0, 1]]), np.array([[.5, .3, .2]])
    >>> verify(q, p, [1], np.random.default_rng(0))             # q > p at token 1: accepted, then the bonus
    (1, 2)
    """
    for j, token in enumerate(drafts):                          # j counts from 0: row j and drafts[j] are the paper's j + 1
        q, p = target_probs[j], draft_probs[j]                  # [n_vocab] each
        if rng.random() * p[token] < q[token]:                  # r < min(1, q / p), without the division
            continue                                            # accept: the token stays, try the next
        residual = np.maximum(q - p, 0)                         # (q - p)_+ before its division by the sum: `sample` needs none
        return j, sample(residual if residual.any() else q, rng)            # p = q up to rounding: nothing left but q
    return len(drafts), sample(target_probs[-1], rng)           # all accepted: one more from q(. | .., xt_1 .. xt_k)


def speculative_sampling(draft, target, tokens, n_tokens, K, rng, *, temperature=1.0, top_k=0, top_p=1.0, eos=None):
    """Generate `n_tokens` tokens after `tokens`, up to K + 1 a target pass.  Returns a generator of rounds (sampling.Round).

    draft, target   tokens, n_last -> logits [n_last, n_vocab]
    K               drafts a round, at least 1
    rng             numpy.random.Generator, the only source of chance
    eos             an id, several, or None: generation ends with the first of them, which is emitted
    temperature, top_k, top_p   as in sampling.probabilities, for draft and target alike: they make the p and q of the paper
    Raises ValueError for bad arguments at the call, not at the first round.
    """
    tokens, law, ends = prepare([draft, target], tokens, n_tokens, temperature, top_k, top_p, eos)
    if not isinstance(K, Integral) or K < 1:
        raise ValueError(f"K is {K}: it must be a whole number, at least one draft a round")

    def rounds():
        x, T = list(tokens), len(tokens) + n_tokens
        while len(x) < T:
            drafts, p = [], []
            for _ in range(min(K, T - len(x) - 1)):             # k drafts: the last token that is wanted comes from the target
                p.append(law(draft(x + drafts))[0])             # [n_vocab]    p(. | x_1 .. x_n, xt_1 .. xt_{j-1}), n = len(x)
                drafts.append(sample(p[-1], rng))
            q = law(target(x + drafts, len(drafts) + 1))        # [k + 1, n_vocab]    q(. | x_1 .. x_n, xt_1 .. xt_{j-1}), j = 1 .. k + 1
            n_accepted, next_token = verify(q, p, drafts, rng)
            new = drafts[:n_accepted] + [next_token]
            while any(token in ends for token in new[:-1]):     # EOS among the accepted: what follows it was never said
                new.pop()
            x += new
            yield Round(new, drafts, min(n_accepted, len(new)), q, p)
            if new[-1] in ends:
                return

    return rounds()
