"""EAGLE: a head that drafts from the target's hidden states  (Li et al. 2024, arXiv 2401.15077).

The target's hidden states say more about what comes next than the tokens do, and they cost nothing, because
the last verification has computed them.  The head is one transformer block that continues from there.

    the target at i - 1     its states after a few layers, after half of them, and after all, fused into one
                            by a matrix
    the head at i           the state at i - 1, the token x_i and the position i  ->  the state at i
    the state at i          times the target's output matrix  ->  the logits of p(. | x_1 .. x_i)

The text has n tokens.  Up to i = n the state at i - 1 is the target's, and after that the head's own, so that
the head can draft any number of tokens.  The token x_i is an input because the state at i - 1 does not
determine which token was drawn.  Before the first token the state is zero.

Differences from the papers (which call the states features, f_1 .. f_n):

    EAGLE-1     is trained to match the target's features.  The head here is trained to have its tokens
                accepted (models/training/heads.py)
    EAGLE-2     (2406.16858) grows its tree where the head is most confident: tree_rules.grow_surest here
    EAGLE-3     (2503.01840) fuses low, middle and high states and learns to continue from its own states,
                as here.  Its reduced vocabulary is left out: see notebook 8

To draft a tree, the head must read the same model object that scores it:

    target = with_tree(model)
    tree_sampling(Eagle(target), target, tokens, n_tokens, (3, 2, 1), rng)

Limitations: only for the target it was trained on; one text at a time.
"""
from itertools import groupby
from operator import index

from engine.compute.backend import xp
from gpt2 import common_prefix, layer_norm, linear
from methods.drafters.heads import load_head, standardize, states_before
from methods.entries import LINE, TREE, Drafted, Drafter
from methods.samplers.tree_model import TreeGPT2, check_nodes, depths, tree_mask
from sampling import sample


class Eagle:
    """`speculative_sampling(None, target, .., propose=Eagle(target).propose)`.

    target      the GPT2 that the head was trained on, and that verifies
    head        a folder ("demo-eagle" belongs to "demo-target"), or its parameters
                {"layers": the layers of the target that it reads,
                "fuse": {"w" [(len(layers) + 1) * n_embd, n_embd], "b"},
                "from_state": {"w", "b"}, "from_token", "from_position", "blocks": [one],
                "ln_f": {"g", "b"}}; the three from_ matrices are [n_embd, n_embd]
    Raises ValueError for a head that belongs to another target.
    """

    def __init__(self, target, head="demo-eagle"):
        self.params = params = load_head("eagle", head, target)
        self.target, self.layers = target, params["layers"]
        self.fuse, self.from_state = params["fuse"], params["from_state"]
        self.n_vocab, self.n_ctx = target.n_vocab, target.n_ctx
        # products with each token and each position, computed once
        self.tokens = standardize(target.params["wte"]) @ params["from_token"]      # [n_vocab, n_embd]
        self.positions = standardize(target.params["wpe"]) @ params["from_position"]      # [n_ctx, n_embd]
        # never called as a model: it provides the head's layers and their cache
        self.block = TreeGPT2(target.params | {"blocks": params["blocks"], "ln_f": params["ln_f"]},
                              target.n_head)
        self.reset()

    def reset(self):
        """Empty the cache."""
        self.past, self.nodes, self.parents = [], [], []        # in the cache: a text, and drafts after x_n
        self.states = self.block.states[-1, :0]                 # [1 + n_drafts, n_embd]: at x_n and drafts

    def step(self, before, new, n_past, n, parents):
        """Run the head's block over new tokens or drafts, cached from n_past on -> their states.

        before      [len(new), n_embd]   the state before each of them
        n, parents  the length of the text, and the parents of all drafts after it, the new ones last
        """
        positions = [*range(n), *(n - 1 + depth for depth in depths(parents))][n_past:]
        self.block.make_room(n + len(parents))
        x = linear(before, **self.from_state) + self.tokens[new] + self.positions[positions]
        x = self.block.layers(x, n_past, tree_mask(n_past, n, parents))
        return layer_norm(x, **self.block.params["ln_f"])

    def read(self, x):
        """Run the text x, with all keys and values from the target's states, none from the head's own."""
        n_past = min(common_prefix(self.past, x), len(x) - 1)
        before = linear(states_before(self.target, x, n_past, self.layers), **self.fuse)
        self.reset()
        self.past = x[:n_past]                              # after an interruption only these are valid
        states = self.step(before, x[n_past:], n_past, len(x), [])[-1:]
        self.past = x                                       # if interrupted here, x is read again
        self.states = states

    def tree(self, x, nodes, parents, n_last=None):
        """As TreeGPT2.tree: logits [1 + n_nodes, n_vocab] after x_n and the nodes, or the last n_last."""
        x, nodes, parents = [*map(index, x)], [*map(index, nodes)], list(parents)
        check_nodes(len(x), nodes, parents, self.n_vocab, self.n_ctx)
        if x != self.past or not len(self.states):
            self.read(x)
        n_known = common_prefix([*zip(nodes, parents)], [*zip(self.nodes, self.parents)])
        for _, level in groupby(range(n_known, len(nodes)), key=depths(parents).__getitem__):
            level = [*level]                                # in one step: all nodes of the same depth
            start, end = level[0], level[-1] + 1
            self.nodes, self.parents, self.states = nodes[:start], parents[:start], self.states[:1 + start]
            before = self.states[[1 + parent for parent in parents[start:end]]]
            new = self.step(before, nodes[start:end], len(x) + start, len(x), parents[:end])
            self.states = xp.concatenate([self.states, new])    # first: states without nodes are harmless
            self.nodes, self.parents = nodes[:end], parents[:end]
        return linear(self.states[:1 + len(nodes)][-(n_last or 1 + len(nodes)):], **self.target.lm_head)

    def __call__(self, tokens, n_last=1):
        """Called like any model, it answers for the last token alone."""
        return self.tree(tokens, [], [])

    def propose(self, draft, x, k, to_probs, rng):
        """k tokens after x, one at a time: speculative.propose, without a draft model."""
        drafts, P = [], []
        for j in range(k):
            P.append(to_probs(self.tree(x, drafts, range(-1, j - 1), 1))[0])
            drafts.append(sample(P[-1], rng))                   # x̃_j ~ p(. | x_1 .. x_n, x̃_1 .. x̃_{j-1})
        return drafts, P


def make(models, *_):
    head = Eagle(models.target, models.head("eagle") or "demo-eagle")
    return Drafted(head, models.target, head.propose)           # the head is also a draft model, for trees


DRAFTER = Drafter("methods/drafters/eagle.py", make, drafts=(LINE, TREE))
