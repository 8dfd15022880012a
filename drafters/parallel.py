"""All drafts in one pass, and a Markov head  (DSpark, arXiv 2607.05147; the pass as in P-EAGLE and DFlash).

An EAGLE head, one transformer block, drafts each token in a pass of its own.  Here one pass of such a block
drafts k tokens.  After x_1 .. x_n it reads mask embeddings in place of the first k - 1 drafts:

    position i <= n         the target's states at i - 1, made one vector by a matrix, and the token x_i
    position n + j          the same states and token as at n, and a learnt mask m_j          j = 1 .. k - 1
    the state at n + j      times the target's own output matrix  ->  row j of logits       j = 0 .. k - 1

So row j knows the text, but none of the drafts before its own.  If "New York" and "San Francisco" are both
likely, it cannot tell which of the two was begun.  The Markov head is told the draft just before:

    x̃_{j+1} ~ softmax(row j + U[x̃_j] V)        x̃_0 = x_n, V = B wte^T

U [n_vocab, rank] and B [rank, n_embd] are learnt.  The drafts are drawn one by one, each from this
distribution, which `verify` gets as p.  So the text is lossless whatever U and B hold.

    P-EAGLE     (AWS 2026)  EAGLE with learnt embeddings in place of what is not yet known: m_j here
    DFlash      (arXiv 2602.06036)  a head of several layers drafts a whole block of tokens

Limitations: only for the target that the head was trained on; at most one more draft than there are mask
embeddings; no trees.
"""
from compute.backend import xp
from compute.linear import linear
from drafters.adaptive import confidence
from drafters.heads import load_head, states_before, unit
from gpt2 import GPT2, causal_mask, common_prefix, layer_norm
from sampling import sample


class Parallel:
    """`speculative_sampling(None, target, .., propose=Parallel(target).propose)`.

    target      the GPT2 that the head was trained on, and that verifies
    head        a folder ("demo-parallel" belongs to "demo-target"), or its parameters
                {"layers": the target's layers whose states it reads,
                "from_states": {"w" [(len(layers) + 1) * n_embd, n_embd], "b"},
                "from_token", "from_position" [n_embd, n_embd], "masks" [7, n_embd], "blocks": [one],
                "ln_f": {"g", "b"}, "previous" [n_vocab, rank], "bias" [rank, n_embd]: U and B}
    threshold   the drafts end after one whose probability, at temperature 1, is smaller.  That draft stays:
                a rule that drops it is not lossless (notebook 6)
    Raises ValueError for a head that belongs to another target.
    """

    def __init__(self, target, head="demo-parallel", threshold=0):
        self.params = params = load_head("parallel", head, target)
        self.target, self.layers, self.threshold = target, params["layers"], threshold
        self.from_states, self.masks = params["from_states"], params["masks"]
        self.tokens = unit(target.params["wte"]) @ params["from_token"]             # [n_vocab, n_embd]
        self.positions = unit(target.params["wpe"]) @ params["from_position"]       # [n_ctx, n_embd]
        self.U, self.V = params["previous"], params["bias"] @ target.params["wte"].T
        # never called as a model: it provides the head's layers and their cache
        self.block = GPT2(target.params | {"blocks": params["blocks"], "ln_f": params["ln_f"]},
                          target.n_head)

    def logits(self, x, k):
        """One pass -> [k, n_vocab]: row j is for x̃_{j+1}, still without the Markov head."""
        n_past = min(common_prefix(self.block.cached, x), len(x) - 1)
        before = states_before(self.target, x, n_past, self.layers)     # [new, (len(layers) + 1) * n_embd]
        known = linear(before, **self.from_states) + self.tokens[x[n_past:]]                # [new, n_embd]
        rows = xp.concatenate([known, known[-1] + self.masks[:k - 1]])              # [new + k - 1, n_embd]
        rows = rows + self.positions[n_past:n_past + len(rows)]
        self.block.cached = x[:n_past]                          # if we are interrupted, only these are valid
        states = self.block.layers(rows, n_past, causal_mask(n_past, len(rows)))[-k:]       # [k, n_embd]
        self.block.cached = x[:]
        return linear(layer_norm(states, **self.block.params["ln_f"]), **self.target.head)

    def propose(self, draft, x, k, to_probs, rng):
        """At most k tokens after x, from one pass: speculative.propose, without a draft model."""
        k = min(k, 1 + len(self.masks))
        drafts, p = [], []
        for row in self.logits(x, k) if k else []:
            row = row + self.U[(x + drafts)[-1]] @ self.V                   # the Markov head
            p.append(to_probs(row[None], 1)[0])
            drafts.append(sample(p[-1], rng))                               # x̃_j ~ p_j
            if self.threshold and confidence(row[None], drafts[-1]) < self.threshold:
                break
        return drafts, p
