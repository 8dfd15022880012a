"""GPT-2: token ids -> logits, in NumPy  (Radford et al. 2019; parameters named after OpenAI's checkpoint).

On first reading `linear(x, w, b)` is `x @ w + b` and `row_products(a, b)` is `a @ b` (compute/linear.py).

The model is a pure function of its tokens.  Internally it keeps the keys and values of the last call (the
KV cache); a new call reuses those of the longest common prefix and runs only the rest.  So a sampler calls
`model(x + drafts, K + 1)` and never deals with caches: after a rejection the rejected tokens are simply no
longer in the prefix.

A position's result is the same to the last bit whether it runs alone (a decode step) or with others (a
verification): in a product of up to `exact_rows` rows none depends on the others, attention runs over whole
blocks of 64 keys, and masked keys add exact zeros.

Everything is float32.  Scalars come from `math`, because a NumPy scalar such as np.sqrt(2) is float64 and
would turn the whole forward pass into float64.

But: inference only, one sequence at a time (threads that share a model take turns; a signal handler may not
call it during a call), no dropout; weights must be finite, and may not be changed after the first call.
"""
import copy
import math
from functools import partial
from operator import index

from compute.backend import xp
from compute.linear import SUM, exact_rows, linear, row_products
from compute.threads import Lock, wave

BLOCK = 64          # keys; attention runs over whole blocks of the cache
CHUNK = 96          # positions in one chunk of a prompt: their activations stay in the caches of the cores
                    # (128: up to a fifth slower with AVX-512 kernels, a tenth faster with AVX2)


def gelu(x):                                                            # the tanh form, as in OpenAI's code
    return 0.5 * x * (1 + xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))


def softmax(x):                                                         # over the last axis
    e = xp.exp(x - x.max(axis=-1, keepdims=True))
    # The total is a product, too: a product adds in order, so zeros (masked keys, other branches of a tree
    # of drafts) do not change its bits, as they would those of a sum.
    ones = xp.ones((*[1] * (e.ndim - 2), e.shape[-1], SUM), dtype=e.dtype)
    return e / row_products(e, ones)[..., :1]


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

    keys, values    [n_head, n_ctx, d_head]
    mask            [n, s]    the s keys are those of all n_past + n positions, rounded up to whole blocks
    """
    n, s = mask.shape
    n_head, _, d_head = keys.shape
    q, k, v = qkv.reshape(n, 3, n_head, d_head).transpose(1, 2, 0, 3)   # [n_head, n, d_head] each
    keys[:, n_past:n_past + n], values[:, n_past:n_past + n] = k, v
    heads = dot_product_attention(q, keys[:, :s], values[:, :s], mask)  # [n_head, n, d_head]
    return heads.transpose(1, 0, 2).reshape(n, -1)                      # -> [n, n_embd]


def dot_product_attention(q, k, v, mask):
    """softmax(q k^T / sqrt(d_head) + mask) v.

    q [n_head, n, d_head], k and v [n_head, s, d_head], mask [n, s] or [n_head, n, s] -> [n_head, n, d_head]
    """
    n_head, n, d_head = q.shape
    q = q * (1 / math.sqrt(d_head))
    k = k.reshape(n_head, -1, BLOCK, d_head).transpose(0, 1, 3, 2)      # [n_head, s / BLOCK, d_head, BLOCK]
    scores = row_products(q[:, None], k).transpose(0, 2, 1, 3)          # [n_head, n, s / BLOCK, BLOCK]
    scores = scores.reshape(n_head, n, -1) + mask                       # [n_head, n, s]
    return row_products(softmax(scores), v)                             # -> [n_head, n, d_head]


def whole_blocks(n):
    return -(-n // BLOCK) * BLOCK


def causal_mask(n_past, n):
    """[n, s]: 0 where the new position n_past + i may see key j, that is, if j <= n_past + i; else -1e38.

    s is a whole number of blocks.
    """
    behind = xp.arange(whole_blocks(n_past + n)) > xp.arange(n_past, n_past + n)[:, None]
    return behind * xp.float32(-1e38)


def transformer_block(x, ln_1, attn, ln_2, mlp, attend):                # [n, n_embd] -> [n, n_embd]
    x = x + attention(layer_norm(x, **ln_1), **attn, attend=attend)
    return x + feed_forward(layer_norm(x, **ln_2), **mlp)


def common_prefix(a, b):
    """Length of the longest common prefix of two lists."""
    n = min(len(a), len(b))
    return n if a[:n] == b[:n] else next(i for i in range(n) if a[i] != b[i])


class GPT2:
    """model(tokens, n_last) -> logits [n_last, n_vocab] of the last n_last positions, float32.

    params      {"wte": [n_vocab, n_embd], "wpe": [n_ctx, n_embd], "blocks": [...], "ln_f": {"g", "b"}}
                as utils.nested makes them: weights and "head" in tiles (compute.linear.lay_out).  Plain
                matrices work too, but then a row's last bits depend on the rows computed with it.
    n_head      attention heads; each has n_embd / n_head dimensions
    """

    def __init__(self, params, n_head):
        self.params = params
        self.n_vocab, n_embd = params["wte"].shape
        self.n_ctx = len(params["wpe"])
        dtype, n_layer = params["wte"].dtype, len(params["blocks"])
        # [n_layer, keys and values, n_head, n_ctx, d_head]
        self.cache = xp.zeros((n_layer, 2, n_head, whole_blocks(self.n_ctx), n_embd // n_head), dtype=dtype)
        # [n_ctx, n_embd]: the last block's output for each cached token; some drafters start from it
        self.states = xp.zeros((self.n_ctx, n_embd), dtype=dtype)
        # [n_ctx, n_early, n_embd]: the same after earlier layers, if one of these drafters asks (`keep`)
        self.early_layers, self.early = (), xp.zeros((self.n_ctx, 0, n_embd), dtype=dtype)
        self.head = {"w": params.get("head", params["wte"].T), "b": xp.zeros(self.n_vocab, dtype=dtype)}
        # how many rows at once keep the bits of single ones
        self.exact_rows = exact_rows(n_embd, n_embd // n_head, self.n_ctx)
        self.torn = False               # was the last pass interrupted, or did it overflow (damaged weights)?
        self.lock = Lock()                      # threads that share a model share its cache: they take turns
        self.reset()

    def __copy__(self):                         # copy.copy: the same weights, its own cache
        return copy.deepcopy(self, {id(shared): shared for shared in (self.params, self.head)})

    def __getstate__(self):                 # a copy begins with an empty cache: a thread may be changing it
        return vars(self) | {"cached": [], "torn": True}

    def keep(self, layers):
        """From now on keep the states after so many layers, too, in `early`.  This empties the cache."""
        with self.lock():
            layers = tuple(sorted({*self.early_layers, *layers}))
            if layers != self.early_layers:
                self.reset()
                n, n_embd = self.states.shape
                self.early = xp.zeros((n, len(layers), n_embd), self.states.dtype)
                self.early_layers = layers

    def reset(self):
        """Empty the cache."""
        with self.lock():
            self.cached = []                               # the tokens whose keys and values are in the cache

    def __call__(self, tokens, n_last=1):
        """Raises ValueError for ids outside the vocabulary, or more tokens than fit into the context."""
        tokens, n_last = [*map(index, tokens)], int(n_last)     # NumPy's small integers overflow
        with self.lock():
            n_past = self.prefill(tokens, n_last)
            x = self.forward(tokens, n_past)[-n_last:]          # [n, n_embd] -> [n_last, n_embd]
        return self.logits(x)                                   # [n_last, n_embd] -> [n_last, n_vocab]

    def prefill(self, tokens, n_last):
        """How many of the tokens need not be run, because they are in the cache.  If the text is long, all
        but the last n_last tokens are run here, so that the bits do not depend on how many drafts follow."""
        if not 1 <= len(tokens) <= self.n_ctx:
            raise ValueError(f"{len(tokens)} tokens do not fit into the context: it takes 1 .. {self.n_ctx}")
        if not 1 <= n_last <= len(tokens):
            raise ValueError(f"n_last is {n_last}: it must be 1 .. {len(tokens)}, the number of tokens")
        n_prompt = len(tokens) - n_last
        n_past = min(common_prefix(tokens, self.cached), n_prompt)
        for token in tokens[n_past:]:                  # CuPy would silently wrap an index out of range
            if not 0 <= token < self.n_vocab:
                raise ValueError(f"token id {token} is not in 0 .. {self.n_vocab - 1}: "
                                 "is this the model's own encoder?")
        if len(tokens) - n_past <= min(CHUNK, self.exact_rows):
            return n_past
        if n_past < n_prompt:
            self.forward(tokens[:n_prompt], n_past)
        return min(n_prompt, len(self.cached))              # after an overflow: all of it once more

    def forward(self, tokens, n_past):
        """Run tokens[n_past:] on top of the cache -> [n, n_embd]."""
        assert tokens[:n_past] == self.cached[:n_past]
        self.cached = tokens[:n_past]                       # if we are interrupted, only these are valid
        new = tokens[n_past:]
        x = self.params["wte"][new] + self.params["wpe"][n_past:len(tokens)]    # [n, n_embd]
        x = self.layers(x, n_past, causal_mask(n_past, len(new)))
        self.states[n_past:len(tokens)] = x
        if not self.torn:
            self.cached = tokens
        return x

    def layers(self, x, n_past, mask):
        """x [n, n_embd] through all blocks -> [n, n_embd]. Many rows go in chunks, one behind the other."""
        n = len(x)
        n_chunks = 1 if n <= CHUNK else 2 * math.ceil(n / (2 * CHUNK))     # even: for two threads
        cuts = [n * i // n_chunks for i in range(n_chunks + 1)]
        xs = [x[i:j] for i, j in zip(cuts, cuts[1:])]

        def step(chunk, i):
            start, stop = cuts[chunk:chunk + 2]
            visible = mask[start:stop, :whole_blocks(n_past + stop)]
            xs[chunk] = self.layer(i, xs[chunk], n_past + start, visible)
            if i + 1 in self.early_layers:
                place = self.early_layers.index(i + 1)
                self.early[n_past + start:n_past + stop, place] = xs[chunk]
        if self.torn:                                       # even for a masked key 0 * NaN would be NaN
            self.cache[:, :, :, n_past:] = 0
        self.torn = True
        wave(step, n_chunks, len(self.params["blocks"]))
        x = xp.concatenate(xs) if n_chunks > 1 else xs[0]
        self.torn = not xp.isfinite(x).all()
        return x

    def layer(self, i, x, n_past, mask):
        """x [n, n_embd] through block i -> [n, n_embd]."""
        keys, values = self.cache[i]
        cache = dict(keys=keys, values=values, n_past=n_past, mask=mask)
        return transformer_block(x, **self.params["blocks"][i], attend=partial(attend, **cache))

    def logits(self, x):
        """The output head: x [n, n_embd] -> [n, n_vocab]."""
        return linear(layer_norm(x, **self.params["ln_f"]), **self.head)
