"""GPT-2: token ids -> logits, in NumPy  (Radford et al. 2019; parameters named after OpenAI's checkpoint).

On first reading `linear(x, w, b)` is `x @ w + b`, `row_products(a, b)` is `a @ b`, and `row_sums(x)` is
`x.sum(axis=-1, keepdims=True)`.  Each token is a row.  A row of the result is the same, to the last bit,
whichever other rows are computed with it (compute/linear.py gives the limits).  So a pass over several drafts
gives the same logits as passes over one token each.

The logits depend on the tokens alone.  The model keeps the keys and values of the last call (the KV cache).
A new call reuses those of the longest common prefix and runs the rest.  So a sampler calls
`model(x + drafts, K + 1)` and never deals with caches: rejected tokens are not in the common prefix.

Everything is float32.  Scalars come from `math`, because a NumPy scalar such as np.sqrt(2) is float64 and
would turn the whole forward pass into float64.

Limitations: inference only, one sequence at a time, no dropout.  A model must not be called from several
threads at once.
"""
import math
from functools import partial
from operator import index

from checks import check_call, check_ids
from compute.backend import xp
from compute.linear import exact_rows, linear, row_products, row_sums

BLOCK = 64          # keys in a block; attention reads whole blocks, in which masked keys add exact zeros
CHUNK = 96          # positions of a prompt that run together; few, so that activations stay in fast caches


def gelu(x):                                                            # the tanh form, as in OpenAI's code
    return 0.5 * x * (1 + xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))


def softmax(x):                                                         # over the last axis
    e = xp.exp(x - x.max(axis=-1, keepdims=True))
    return e / row_sums(e)


def layer_norm(x, g, b, eps=1e-5):                           # mean 0 and variance 1, then scale g and shift b
    x = x - x.sum(axis=-1, keepdims=True) / x.shape[-1]
    variance = xp.vecdot(x, x)[..., None] / x.shape[-1]                 # the biased estimate
    return x / xp.sqrt(variance + eps) * g + b


def feed_forward(x, c_fc, c_proj):                                      # [n, n_embd] -> [n, n_embd]
    return linear(gelu(linear(x, **c_fc)), **c_proj)                    # -> [n, 4 * n_embd] -> [n, n_embd]


def attention(x, c_attn, c_proj, attend):                               # [n, n_embd] -> [n, n_embd]
    qkv = linear(x, **c_attn)                                           # [n, n_embd] -> [n, 3 * n_embd]
    return linear(attend(qkv), **c_proj)                                # -> [n, n_embd] -> [n, n_embd]


def attend(qkv, keys, values, n_past, mask):                            # [n, 3 * n_embd] -> [n, n_embd]
    """Attend to the n_past cached positions and the n new ones, whose keys and values join the cache.

    keys, values    [n_head, n_ctx, d_head], n_ctx rounded up to whole blocks
    mask            [n, s]    s is n_past + n, rounded up to whole blocks
    """
    n, s = mask.shape
    n_head, _, d_head = keys.shape
    q, k, v = qkv.reshape(n, 3, n_head, d_head).transpose(1, 2, 0, 3)   # [n_head, n, d_head] each
    keys[:, n_past:n_past + n], values[:, n_past:n_past + n] = k, v
    heads = dot_product_attention(q, keys[:, :s], values[:, :s], mask)  # [n_head, n, d_head]
    return heads.transpose(1, 0, 2).reshape(n, -1)                      # -> [n, n_embd]


def dot_product_attention(q, k, v, mask):                   # q [n_head, n, d_head]; k, v [n_head, s, d_head]
    scores = row_products(q / math.sqrt(q.shape[-1]), k.transpose(0, 2, 1)) + mask      # [n_head, n, s]
    return row_products(softmax(scores), v)                             # -> [n_head, n, d_head]


def transformer_block(x, ln_1, attn, ln_2, mlp, attend):                # [n, n_embd] -> [n, n_embd]
    x = x + attention(layer_norm(x, **ln_1), **attn, attend=attend)
    return x + feed_forward(layer_norm(x, **ln_2), **mlp)


def whole_blocks(n):
    return -(-n // BLOCK) * BLOCK


def causal_mask(n_past, n):
    """[n, s]: 0 if the new position n_past + i may see key j, that is, if j <= n_past + i; else -1e38."""
    behind = xp.arange(whole_blocks(n_past + n)) > xp.arange(n_past, n_past + n)[:, None]
    return behind * xp.float32(-1e38)


def common_prefix(a, b):
    """Length of the longest common prefix of two lists."""
    n = min(len(a), len(b))
    return n if a[:n] == b[:n] else next(i for i in range(n) if a[i] != b[i])


class GPT2:
    """model(tokens, n_last) -> logits [n_last, n_vocab] of the last n_last positions, float32.

    params      {"wte": [n_vocab, n_embd], "wpe": [n_ctx, n_embd], "blocks": [...], "ln_f": {"g", "b"}}
                as made by utils.nested, which lays out each matrix "w" in tiles (compute.linear.lay_out) and
                adds "head", the transpose of wte.  Plain matrices work, but then a row's last bits may depend
                on other rows.
    n_head      attention heads; each has n_embd / n_head dimensions
    """

    def __init__(self, params, n_head):
        self.params, self.n_head = params, n_head
        (self.n_vocab, n_embd), self.n_ctx = params["wte"].shape, len(params["wpe"])
        n_layer, d_head, dtype = len(params["blocks"]), n_embd // n_head, params["wte"].dtype
        # The keys and values of the cached tokens in each layer, and states that some drafters read:
        # states[0] holds the embeddings, states[i] the output of the i-th layer.
        self.cache = xp.zeros((n_layer, 2, n_head, whole_blocks(self.n_ctx), d_head), dtype)
        self.states = xp.zeros((n_layer + 1, self.n_ctx, n_embd), dtype)
        self.head = {"w": params.get("head", params["wte"].T), "b": xp.zeros(self.n_vocab, dtype)}
        self.exact_rows = exact_rows(n_embd, d_head, self.n_ctx)    # the most rows that keep their bits
        self.reset()

    def __copy__(self):                                         # the same weights, a cache of its own
        return type(self)(self.params, self.n_head)

    def reset(self):
        """Empty the cache."""
        self.cached = []                                        # the tokens whose keys and values it holds

    def __call__(self, tokens, n_last=1):
        """Raises ValueError for ids outside the vocabulary, or an impossible number of tokens or rows."""
        tokens, n_last = [*map(index, tokens)], int(n_last)     # NumPy's small integers overflow
        n_past = self.prefill(tokens, n_last)
        x = self.forward(tokens, n_past)                        # [n, n_embd]
        return self.logits(x[-n_last:])                         # [n_last, n_embd] -> [n_last, n_vocab]

    def prefill(self, tokens, n_last):
        """Returns how many of the tokens are in the cache.  If many are missing, all but the last n_last are
        run first, in chunks.  So a prompt's keys and values do not depend on how many drafts follow."""
        check_call(tokens, n_last, self.n_ctx)
        n_prompt = len(tokens) - n_last
        n_past = min(common_prefix(tokens, self.cached), n_prompt)
        check_ids(tokens[n_past:], self.n_vocab)
        if len(tokens) - n_past <= min(CHUNK, self.exact_rows):
            return n_past
        for start in range(n_past, n_prompt, CHUNK):
            self.forward(tokens[:min(start + CHUNK, n_prompt)], start)
        return n_prompt

    def forward(self, tokens, n_past):
        """Run tokens[n_past:] on top of the cache -> [n, n_embd]."""
        self.cached = tokens[:n_past]                           # after an interruption only these are valid
        x = self.params["wte"][tokens[n_past:]] + self.params["wpe"][n_past:len(tokens)]    # [n, n_embd]
        x = self.layers(x, n_past, causal_mask(n_past, len(x)))
        self.cached = tokens
        return x

    def layers(self, x, n_past, mask):
        """x [n, n_embd], at the positions from n_past on, through all blocks -> [n, n_embd]."""
        new = slice(n_past, n_past + len(x))
        self.states[0, new] = x
        for i, block in enumerate(self.params["blocks"]):
            keys, values = self.cache[i]                        # [n_head, n_ctx, d_head] each
            look = partial(attend, keys=keys, values=values, n_past=n_past, mask=mask)
            x = self.states[i + 1, new] = transformer_block(x, **block, attend=look)
        return x

    def logits(self, x):
        """The output head: x [n, n_embd] -> [n, n_vocab]."""
        return linear(layer_norm(x, **self.params["ln_f"]), **self.head)
