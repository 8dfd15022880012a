"""Speculative sampling: Algorithm 2 of Chen et al. 2023 (arXiv 2302.01318); the same method as Algorithm 1 of
Leviathan et al. 2022 (arXiv 2211.17192), found independently.

A small draft model proposes K tokens, one at a time, and the target model scores all of them in one forward
pass.  As long as reading the weights takes most of its time, that pass costs little more than a pass over a
single token.  Modified rejection sampling accepts some of the drafts and replaces the first one it rejects,
so that the text has exactly the distribution of the target alone.

The notation is Chen's; Leviathan et al. swap p and q:

                        this file and Chen      Leviathan
    target              q                       p
    draft               p                       q
    number of drafts    K                       gamma

q and p are distributions [n_vocab]; Q and P are matrices with one of them per row.  T is the length of the
text as in the paper, and not the temperature.

Differences from the printed Algorithm 2: n is fixed within a round (the paper's listing advances it inside
the accept loop, a slip that, read literally, would skip positions).  Rounds near the end draft fewer than K
tokens, so that the text, prompt included, has length T exactly unless an EOS ends it sooner.

Other ways to draft are other `propose` functions (methods/drafters/), and other accept rules are other
`verify` functions (methods/samplers/).

Limitations: no trees of drafts (methods/samplers/tree.py), no batches of texts (methods/samplers/batch.py).
"""
from functools import partial

import numpy as np

from engine.checks import check_K, checked
from sampling import Round, cut_after, point_masses, probabilities, sample


def propose(draft, x, k, to_probs, rng):
    """The drafting loop: k tokens after x, one at a time.  Returns (drafts, draft_probs).

    draft           tokens -> logits [1, n_vocab]
    x               the list x_1 .. x_n, a copy
    to_probs        logits -> probabilities, with the settings of the run (temperature, top-k, top-p)

    drafts          x̃_1 .. x̃_k.  A drafter of your own may return fewer, or none.
    draft_probs     [k, n_vocab]    p(. | x_1 .. x_n, x̃_1 .. x̃_{t-1}), what each draft was drawn from, or
                    None for point masses: the drafts were chosen, not drawn.
    """
    drafts, P = [], []
    for _ in range(k):
        P.append(to_probs(draft(x + drafts))[0])                # p [n_vocab]   p(. | .., x̃_1 .. x̃_{t-1})
        drafts.append(sample(P[-1], rng))                       # x̃_t ~ p(. | .., x̃_1 .. x̃_{t-1})
    return drafts, P


def verify(target_probs, draft_probs, drafts, rng):
    """The accept loop.  Returns (n_accepted, next_token): how many drafts are accepted, and the token that
    follows them.

    target_probs    [k + 1, n_vocab]    q(. | x_1 .. x_n, x̃_1 .. x̃_{t-1})   for t = 1 .. k + 1
    draft_probs     [k, n_vocab]        p(. | x_1 .. x_n, x̃_1 .. x̃_{t-1})   for t = 1 .. k
    drafts          [k]                 x̃_1 .. x̃_k;  k <= K is the number drafted in this round, possibly 0

    Lossless (Chen's Theorem 1): a token x is emitted in one of two ways.  As an accepted draft it has
    probability p(x) min(1, q(x) / p(x)) = min(p(x), q(x)).  Otherwise the draft is rejected, with probability
    Z = 1 - sum min(p, q) = sum max(0, q - p), and x is drawn from the residual distribution, which is
    max(0, q - p) / Z, the paper's (q - p)_+.  Z cancels, so this way has probability max(0, q(x) - p(x)), and
    the two add up to q(x), whatever p is.  (From one token to a whole text: notebook 2, "The induction".)

    >>> Q, P = np.array([[.1, .6, .3], [0, 0, 1]]), np.array([[.5, .3, .2]])
    >>> verify(Q, P, [1], np.random.default_rng(0))             # q > p at token 1: accepted, then one from q
    (1, 2)
    """
    for t, token in enumerate(drafts):                          # x̃_{t+1}; t drafts are accepted so far
        q, p = target_probs[t], draft_probs[t]                  # [n_vocab] each
        if rng.random() * p[token] < q[token]:                  # r < min(1, q / p), without the division
            continue                                            # accept: the token stays, try the next
        residual = np.maximum(q - p, 0)                         # (q - p)_+; `sample` normalizes
        # The residual is empty only if p = q up to rounding: then the rejection itself was a rounding error.
        return t, sample(residual if residual.any() else q, rng)
    return len(drafts), sample(target_probs[-1], rng)           # all accepted: x ~ q(. | .., x̃_1 .. x̃_k)


@checked(K=check_K)                                     # inside, tokens is a list and eos a set of ids
def speculative_sampling(draft, target, tokens, n_tokens, K, rng, *, temperature=1.0, top_k=0, top_p=1.0,
                         eos=None, propose=propose, verify=verify):
    """Generate `n_tokens` tokens after `tokens`, up to K + 1 per target pass.

    Returns a generator of rounds (sampling.Round).

    draft, target   tokens, n_last=1 -> logits [n_last, n_vocab]; draft is None if `propose` needs no model
    K               maximum number of drafts per round, at least 1
    rng             numpy.random.Generator, the only source of randomness
    eos             an id, several ids, or None: generation stops once it has emitted one of them
    temperature, top_k, top_p   as in sampling.probabilities, for both models; the results are p and q
    propose, verify     as above
    Raises ValueError for bad arguments at the call, and for a drafter's mistakes during the run.
    """
    to_probs = partial(probabilities, temperature=temperature, top_k=top_k, top_p=top_p)
    x, T = list(tokens), len(tokens) + n_tokens
    while len(x) < T:
        # 1. Draft.
        k = min(K, T - len(x) - 1)                              # the last token of a round is the target's
        drafts, P = propose(draft, x[:], k, to_probs, rng)      # x̃_1 .. x̃_k, and what they were drawn from

        # 2. One pass of the target over all drafts.
        Q = to_probs(target(x + drafts, len(drafts) + 1))       # [k + 1, n_vocab]   q(. | .., x̃_1 .. x̃_{t-1})
        P = point_masses(drafts, Q.shape[1]) if P is None else P    # [k, n_vocab]   p(x̃_t | ..) = 1 if chosen

        # 3. Accept a few, and add one token; an EOS ends the text.
        n_accepted, next_token = verify(Q, P, drafts, rng)
        new = cut_after(drafts[:n_accepted] + [next_token], eos)
        x += new
        n_accepted = min(n_accepted, len(new))                  # fewer if an EOS was among the accepted
        yield Round(tokens=new, drafts=drafts, n_accepted=n_accepted, target_probs=Q, draft_probs=P)
        if x[-1] in eos:
            return
