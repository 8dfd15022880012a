"""Early exit: the first layers of the target are the draft  (LayerSkip, Elhoushi et al. 2024, arXiv
2404.16710, self-speculative decoding; the mode with one model in lucidrains'
speculative-decoding).

    pair = EarlyExit(model, 4)
    speculative_sampling(pair.draft, pair.target, tokens, n_tokens, K, rng)

                            this file           LayerSkip
    layers of the draft     n_layers            E
    drafts                  K                   d
    kept between the two    hidden, cache       exit query cache, KV cache

The output head reads the hidden states after the first layers, and that is the draft.  The target goes on
from the same hidden states through the other layers.  So every token goes through every layer once, whoever
asked for it, and the two halves together keep as many keys and values as one model.

Each half is a model like any other: a pure function of its tokens, with a cache of its own layers that
follows the longest common prefix.  Resetting either empties both.  The texts are those of a separate pair,
because the same products are made with the same weights.

But: the model is used as it is.  The paper trains it for this (layer dropout, and a loss at every layer),
and GPT-2 was not: its first layers guess badly unless they are most of the model.
"""
from compute.backend import xp
from gpt2 import GPT2, causal_mask, common_prefix


class EarlyExit:
    """.draft, the first n_layers layers and the output head, and .target, the whole model; weights shared.

    model       a GPT2; its own cache stays as it is
    n_layers    0 (the embeddings alone) .. all
    Raises ValueError for another number of layers.
    """

    def __init__(self, model, n_layers):
        n_all = len(model.params["blocks"])
        if not 0 <= n_layers <= n_all:
            raise ValueError(f"an exit after {n_layers} layers: the model has {n_all}, so take 0 .. {n_all}")
        self.draft = Lower(model, n_layers)
        self.target = Upper(model, self.draft)


class Lower(GPT2):
    """The first n_layers layers, which remember the hidden states that leave them."""

    def __init__(self, model, n_layers):
        self.followers = []                                             # what goes on from these states
        super().__init__(model.params | {"blocks": model.params["blocks"][:n_layers]}, model.cache.shape[2])
        wpe = model.params["wpe"]
        self.hidden = xp.zeros(wpe.shape, dtype=wpe.dtype)              # [n_ctx, n_embd], of the cached tokens

    def reset(self):
        """Empty the caches of all that share the hidden states."""
        for model in (self, *self.followers):
            model.cached = []

    def layers(self, x, n_past, mask, which=slice(None)):
        x = super().layers(x, n_past, mask, which)
        self.hidden[n_past:n_past + len(x)] = x
        return x

    def states(self, tokens):
        """[n, n_embd], the hidden states of n tokens; runs those that have not been here."""
        n_past = common_prefix(tokens, self.cached)
        if n_past < len(tokens):
            self.forward(tokens, n_past)
        return self.hidden[:len(tokens)]


class Upper(GPT2):
    """The other layers, on top of the hidden states of `lower`."""

    def __init__(self, model, lower):
        self.lower = lower
        lower.followers.append(self)
        n_lower = len(lower.params["blocks"])
        super().__init__(model.params | {"blocks": model.params["blocks"][n_lower:]}, model.cache.shape[2])

    def reset(self):
        self.lower.reset()

    def __call__(self, tokens, n_last=1):
        logits = super().__call__(tokens, n_last)
        if not self.cached:                         # NaN, and gpt2.py emptied the cache: the lower one, too
            self.lower.cache[:, :, :, :len(tokens)] = 0
            self.reset()
        return logits

    def forward(self, tokens, n_past):
        x = self.lower.states(tokens)[n_past:]                          # [n, n_embd]
        self.cached = tokens[:n_past]
        x = self.layers(x, n_past, causal_mask(n_past, len(x)))
        self.cached = tokens
        return x
