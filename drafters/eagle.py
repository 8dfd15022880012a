"""EAGLE: a head that drafts from the target's hidden states  (Li et al. 2024, arXiv 2401.15077).

The target's last hidden state says more about what comes next than the tokens do, and it costs nothing: the
last verification has computed it.  The head is one transformer block that goes on from there.

    at position i       the state before it (i - 1), the token x_i, the position  ->  the state at i
    the state at i      times the target's own output matrix  ->  p(. | x_1 .. x_i)

Up to x_n the states before are the target's.  From there on they are the head's own, so it drafts as many
tokens as it is asked for.  The token that was drawn goes in beside the state, or the head would not know
which of the likely ones it was: the paper's "token sequence advanced by one time step".

What differs from the papers, whose features f_1 .. f_n are the states here:

    EAGLE-1     is trained to hit the target's features, here (training/heads.py) to have its tokens accepted;
                it drafts a tree.  The positions come in here because GPT-2's are embeddings
    EAGLE-2     (2406.16858) grows its tree where the head is surest
    EAGLE-3     (2503.01840) reads low and middle layers, too; it is trained on its own drafts for as many
                steps as it is to draft, here for three

lucidrains' speculative-decoding has such a head, too, and calls it a prophet transformer.  The first token
has no state before it: zeros stand there.

But: a line of drafts, no tree; the target that it was trained on and no other; one text at a time.
"""
from compute.linear import linear
from drafters.heads import last_states, load_head, unit
from gpt2 import GPT2, causal_mask, common_prefix, layer_norm
from sampling import sample


class Eagle:
    """`speculative_sampling(None, target, .., propose=Eagle(target).propose)`.

    target      the GPT2 that the head was trained on, the one that verifies
    head        a folder; "demo-eagle" belongs to "demo-target"
                or its parameters: {"from_state": {"w", "b"}, "from_token", "from_position",
                "blocks": [one], "ln_f": {"g", "b"}}; the first three matrices are [n_embd, n_embd]
    Raises ValueError for a head that belongs to another target.
    """

    def __init__(self, target, head="demo-eagle"):
        params = load_head("eagle", head, target)
        self.target, self.from_state = target, params["from_state"]
        # What it makes of each token and of each position does not change: it is multiplied out once.
        self.tokens = unit(target.params["wte"]) @ params["from_token"]             # [n_vocab, n_embd]
        self.positions = unit(target.params["wpe"]) @ params["from_position"]       # [n_ctx, n_embd]
        n_head = target.cache.shape[2]
        # a GPT2 for its layers and its cache; never called
        self.block = GPT2({**target.params, "blocks": params["blocks"], "ln_f": params["ln_f"]}, n_head)
        self.reset()

    def reset(self):
        """Empty the cache."""
        self.cached = []          # the tokens whose keys and values, made from the target's states, are there

    def step(self, before, tokens, n_past):
        """The states before some tokens [n, n_embd], and these [n] -> their own states [n, n_embd]."""
        n = len(tokens)
        x = linear(before, **self.from_state) + self.tokens[tokens] + self.positions[n_past:n_past + n]
        x = self.block.layers(x, n_past, causal_mask(n_past, n))
        return layer_norm(x, **self.block.params["ln_f"])

    def propose(self, draft, x, k, to_probs, rng):
        """k tokens after x, one at a time: speculative.propose, without a draft model."""
        if k == 0:
            return [], []
        drafts, p = [], []
        n_past = min(common_prefix(self.cached, x), len(x) - 1)
        states, new = last_states(self.target, x, n_past), x[n_past:]       # [n - n_past, n_embd]
        self.cached = x[:n_past]                                # if we are interrupted, only these are sure
        while len(drafts) < k:
            states = self.step(states, new, n_past)[-1:]        # [1, n_embd], at x_n, x̃_1, x̃_2 ..
            p.append(to_probs(linear(states, **self.target.head), 1)[0])
            drafts.append(sample(p[-1], rng))                   # x̃_j ~ p(. | x_1 .. x_n, x̃_1 .. x̃_{j-1})
            n_past += len(new)
            new = drafts[-1:]
        self.cached = list(x)                                   # keys and values of the drafts are its own
        return drafts, p
