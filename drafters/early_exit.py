"""Early exit: the first layers of the target are the draft  (LayerSkip, Elhoushi et al. 2024, arXiv
2404.16710, self-speculative decoding; the one-model mode of lucidrains' speculative-decoding).

    pair = EarlyExit(model, 4)
    speculative_sampling(pair.draft, pair.target, tokens, n_tokens, K, rng)

                            this file           LayerSkip
    layers of the draft     n_layers            E
    drafts                  K                   d
    kept between the two    states, cache       exit query cache, KV cache
    a pass of each half     Lower.forward,      forward_early,
                            Upper.forward       forward_remainder

The output head reads the hidden states after the first layers, and that is the draft.  The target takes the
same hidden states on through the other layers.  So every token goes through every layer once, whichever
half was called first, and the two halves together keep as many keys and values as one model.

Each half is a model like any other: a pure function of its tokens, with a cache of its own layers that
follows the longest common prefix.  Resetting either empties both.  The texts are those of a separate pair,
because the same products are computed with the same weights.

With an exit head the draft has one more block and a norm of its own: lucidrains' "extra transformer block",
which training/heads.py trains while the model stays frozen.

    pair = EarlyExit(model, head="demo-exit")

But: the model is used as it is.  The paper trains it for this (layer dropout, and a loss at every layer),
and GPT-2 was not: its first layers draft badly unless they are most of the model, or a head has learnt to
read them.
"""
from drafters.heads import load_head
from gpt2 import GPT2, causal_mask, common_prefix
from samplers.tree_model import TreeGPT2


class EarlyExit:
    """.draft, the first n_layers layers and the output head, and .target, the whole model; weights shared.

    model       a GPT2; its own cache stays as it is
    n_layers    0 (the embeddings alone) .. all; with a head, those that it was trained on
    head        a folder ("demo-exit" belongs to "demo-target"), or its parameters {"blocks": [one], "ln_f",
                "exit_layer"}
    Raises ValueError for an impossible number of layers, or another model's head.
    """

    def __init__(self, model, n_layers=None, head=None):
        if head is not None:
            head = dict(load_head("exit", head, model))
            trained_on = head.pop("exit_layer")
            if n_layers not in (None, trained_on):
                raise ValueError(f"an exit after {n_layers} layers: this head was trained on {trained_on}")
            n_layers = trained_on
        n_all = len(model.params["blocks"])
        if n_layers is None or not 0 <= n_layers <= n_all:
            raise ValueError(f"an exit after {n_layers} layers: the model has {n_all}, so take 0 .. {n_all}")
        lower = Lower(model, n_layers)
        self.draft = lower if head is None else Upper(model.params | head, lower)
        self.target = Upper(model.params | {"blocks": model.params["blocks"][n_layers:]}, lower)


class Lower(GPT2):
    """The first n_layers layers; its `states` are the hidden states that leave them."""

    def __init__(self, model, n_layers):
        if type(model) not in (GPT2, TreeGPT2):                         # a half, or somebody's own
            raise ValueError(f"{type(model).__name__} computes in its own way: take layers of a plain GPT2")
        self.followers = []                                             # models that continue from these
        super().__init__(model.params | {"blocks": model.params["blocks"][:n_layers]}, model.cache.shape[2])

    def reset(self):
        """Empty the caches of all models that share the hidden states."""
        with self.lock():
            for model in (self, *self.followers):
                model.cached = []

    def hidden(self, tokens):
        """[n, n_embd], the states of n tokens after these layers; runs those that are not in the cache."""
        n_past = common_prefix(tokens, self.cached)
        if n_past < len(tokens):            # in a verification, the last draft: the others are cached
            self.forward(tokens, n_past)
        return self.states[:len(tokens)]


class Upper(GPT2):
    """Other layers, those of params["blocks"], on top of the hidden states of `lower`."""

    def __init__(self, params, lower):
        self.lower = lower
        lower.followers.append(self)
        super().__init__(params, lower.cache.shape[2])
        self.lock = lower.lock                                          # one cache, in two halves

    def reset(self):
        self.lower.reset()

    def forward(self, tokens, n_past):
        x = self.lower.hidden(tokens)[n_past:].copy()                   # [n, n_embd]
        self.cached = tokens[:n_past]
        x = self.layers(x, n_past, causal_mask(n_past, len(x)))
        self.states[n_past:len(tokens)] = x
        if not self.torn:
            self.cached = tokens
        return x
