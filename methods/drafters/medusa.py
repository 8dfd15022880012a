"""Medusa (Cai et al. 2024, arXiv 2401.10774): heads that draft the next tokens all at once.

The last verification has computed the hidden state h that x_n was drawn from.  From h, head j predicts the
token j places after x_n:

    p_j = softmax((SiLU(h W_j + b_j) + h) wte^T)        j = 1 .. the number of heads

The heads depend neither on each other's tokens nor on x_n, so all of them are computed at once, at about the
cost of one step of an EAGLE head.  But they predict poorly, and the worse the further ahead.  Head j's draft
is drawn from p_j, so the text is lossless with `verify`; with the paper's "typical acceptance" it is not.

In a tree, which is how the paper uses them, the children of every node of level j - 1 are the likeliest
tokens of head j.  They are chosen, not drawn, so the rule is select_chosen.  The heads must read the same
model object that scores the tree:

    target = with_tree(model)
    tree_sampling(None, target, tokens, n_tokens, (3, 2, 1), rng, grow=Medusa(target).grow)

The paper copies the output matrix for every head; here all heads share the target's own.

Limitations: at most as many drafts per round, or levels of a tree, as there are heads.
"""
from collections import Counter

from engine.compute.backend import xp
from gpt2 import linear
from methods.drafters.heads import load_head, states_before
from methods.entries import LINE, OWN_TREE, Drafted, Drafter
from methods.samplers.tree_model import depths
from methods.samplers.tree_rules import top_tokens
from sampling import sample


class Medusa:
    """`speculative_sampling(None, target, .., propose=Medusa(target).propose)`.

    target      the GPT2 that the heads were trained on, and that verifies
    head        a folder ("demo-medusa" belongs to "demo-target"), or its parameters
                {"residuals": {"w" [n_embd, n_heads * n_embd], "b"}}
    Raises ValueError for heads that belong to another target.
    """

    def __init__(self, target, head="demo-medusa"):
        self.target, self.residuals = target, load_head("medusa", head, target)["residuals"]
        self.n_heads = len(self.residuals["b"]) // target.params["wte"].shape[1]

    def logits(self, x, k):
        """The first k heads after x -> logits [k, n_vocab]."""
        h = states_before(self.target, x, len(x) - 1)                       # [1, n_embd]
        y = linear(h, **self.residuals).reshape(self.n_heads, -1)[:k]       # [k, n_embd]
        silu = 0.5 * y * (1 + xp.tanh(0.5 * y))                             # y / (1 + exp(-y))
        return linear(h + silu, **self.target.lm_head)                      # [k, n_vocab]

    def propose(self, draft, x, k, to_probs, rng):
        """min(k, n_heads) tokens after x, one from each head: speculative.propose, without a draft model."""
        k = min(k, self.n_heads)
        P = to_probs(self.logits(x, k)) if k else []                    # [k, n_vocab]
        return [sample(row, rng) for row in P], P

    def grow(self, draft, x, shape, rule, to_probs, rng):
        """A tree of at most this shape: tree_rules.grow_likeliest, without a draft model."""
        levels = [level for level in depths(shape) if level <= self.n_heads]        # level by level
        parents = shape[:len(levels)]
        logits = self.logits(x, max(levels)) if levels else []
        best = [top_tokens(row, max(Counter(parents).values())) for row in logits]
        elder = [parents[:i].count(parent) for i, parent in enumerate(parents)]     # elder siblings: the rank
        return [best[level - 1][rank] for level, rank in zip(levels, elder)], parents, None


def make(models, *_):
    head = Medusa(models.target, models.head("medusa") or "demo-medusa")
    return Drafted(None, models.target, head.propose, head.grow)


DRAFTER = Drafter("methods/drafters/medusa.py", make, drafts=(LINE, OWN_TREE))
