"""Draft & Verify: the target without some of its attention and MLP sublayers is the draft  (Zhang et al.
2024, arXiv 2309.08168).

    attn, mlp = search(seconds_per_token(model, texts), n_layer, rng)
    pair = LayerSkip(model, attn, mlp)
    speculative_sampling(pair.draft, pair.target, tokens, n_tokens, 8, rng, propose=DraftExit())

                                this file           the paper
    what is left out            attn, mlp           z, a vector of 2 L zeros and ones
    drafts                      at most k           at most K
    threshold of confidence     gamma               gamma
    acceptance: recent, wanted  rate, GOAL          AR, alpha

A sublayer adds something to the residual stream; one that is skipped adds nothing.  Which ones can be skipped
is found once for a model, by trial: `search`.  The draft is slow, so it should stop when it would only be
rejected: after a token that it is not confident of (`DraftExit`).  That token is kept and verified.  Dropping
it would be wrong, because then it would appear in the text less often than the target wants.

The layers below the first skipped sublayer run once for both, as in early_exit.py.

But: above them the draft keeps keys and values of its own (the paper's reads the verifier's); and the search
changes one sublayer at a time and keeps what is faster (the paper uses Bayesian optimization).
"""
import functools

import numpy as np

from compute.backend import clock
from drafters.adaptive import Confident, Schedule
from drafters.early_exit import Lower, Upper
from gpt2 import attend, attention, feed_forward, layer_norm
from speculative import propose as draft_propose
from speculative import speculative_sampling


class LayerSkip:
    """.draft, the model without the attention sublayers `attn` and the MLP sublayers `mlp` (indices of
    layers), and .target, the whole model; weights shared.  Raises ValueError for layers that do not exist.
    """

    def __init__(self, model, attn=(), mlp=()):
        blocks = model.params["blocks"]
        for layer in (*attn, *mlp):
            if not 0 <= layer < len(blocks):
                raise ValueError(f"there is no layer {layer} to skip: the model has {len(blocks)}, from 0 on")
        first = min((*attn, *mlp), default=len(blocks))
        lower, upper = Lower(model, first), model.params | {"blocks": blocks[first:]}
        self.target = Upper(upper, lower)
        self.draft = Skipping(upper, lower)
        self.draft.attn, self.draft.mlp = ({layer - first for layer in skipped} for skipped in (attn, mlp))


class Skipping(Upper):
    def layer(self, i, x, n_past, mask):                                # [n, n_embd] -> [n, n_embd]
        block, (keys, values) = self.params["blocks"][i], self.cache[i]
        if i not in self.attn:
            look = functools.partial(attend, keys=keys, values=values, n_past=n_past, mask=mask)
            x = x + attention(layer_norm(x, **block["ln_1"]), **block["attn"], attend=look)
        if i not in self.mlp:
            x = x + feed_forward(layer_norm(x, **block["ln_2"]), **block["mlp"])
        return x


class DraftExit(Schedule):
    """Confident, with a threshold gamma that rises if too few drafts are accepted, and falls if more could
    have been."""
    GOAL, STEP, OLD_RATE, OLD_GAMMA = .9, .01, .5, .9       # the paper's alpha, epsilon, beta_1, beta_2

    def __init__(self, propose=draft_propose, gamma=.6):
        self.first_gamma = gamma
        super().__init__(Confident(propose))

    def start(self):
        self.propose.threshold, self.rate = self.first_gamma, 0.0       # from 0, as in the authors' code

    def number(self, k):
        self.k = k
        return k

    def learn(self, accepted, tested):
        self.rate = self.OLD_RATE * self.rate + (1 - self.OLD_RATE) * accepted / len(self.drafts)
        step = self.STEP if self.rate < self.GOAL else 0 if len(self.drafts) == self.k else -self.STEP
        gamma = self.propose.threshold
        self.propose.threshold = self.OLD_GAMMA * gamma + (1 - self.OLD_GAMMA) * (gamma + step)


def search(cost, n_layer, rng, steps=60):
    """(attn, mlp) for which cost(attn, mlp) is small: skip or keep one sublayer at a time, and keep the
    change if it helps.  At first the middle third of the attention sublayers is skipped.
    """
    z = np.zeros((2, n_layer), dtype=bool)                          # attention and MLP: True if skipped
    z[0, n_layer // 3:-(-2 * n_layer // 3)] = True
    best = cost(*map(np.flatnonzero, z))
    for _ in range(steps):
        sublayer = divmod(int(rng.random() * 2 * n_layer), n_layer)
        z[sublayer] ^= True
        found = cost(*map(np.flatnonzero, z))
        if found < best:
            best = found
        else:
            z[sublayer] ^= True                                     # back
    return tuple(tuple(map(int, np.flatnonzero(row))) for row in z)


def seconds_per_token(model, texts, n_tokens=30, k=8):
    """A cost for `search`: (attn, mlp) -> seconds per verified token, at temperature 0, of some texts."""
    def cost(attn, mlp):
        pair, n, seconds = LayerSkip(model, attn, mlp), 0, 0.0
        for tokens in texts:
            rounds = speculative_sampling(pair.draft, pair.target, tokens, n_tokens, k,
                                          np.random.default_rng(0), temperature=0, propose=DraftExit())
            next(rounds)                                            # the prompt is not timed
            start = clock()
            n += sum(len(r.tokens) for r in rounds)
            seconds += clock() - start
        return seconds / n
    return cost
