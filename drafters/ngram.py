"""An n-gram language model with proper probabilities, learnt while the text grows  (Witten and Bell 1991,
"The zero-frequency problem"; as a draft, Leviathan et al. 2022, section 4.1 has bigrams).

    draft = NGram(target.n_vocab)
    draft.learn(encoder.encode(open("notes.txt").read()))           # if there is a text to learn from
    speculative_sampling(draft, target, tokens, n_tokens, K, rng)

How often did token x follow the last tokens h?  Short contexts are known well and say little, long ones the
other way round, so all are interpolated, from the shortest on:

    p_0(x)     = 1 / n_vocab
    p_n(x | h) = (c(h, x) + T(h) p_{n-1}(x | h')) / (c(h) + T(h))       h' is h without its oldest token

c counts, and T(h) is the number of different tokens that followed h: what often had something new after it is
trusted less.  A context that was never seen says nothing.  The letters are Witten and Bell's, but for p,
which is Chen's draft.

It is a model like any other, tokens -> logits (here log-probabilities), and a pure function of its tokens:
what is counted is the text that was learnt, and the tokens themselves, also those that were only drafted.
Where a draft is rejected its counts are taken back.

But: one weight for what was learnt and what is being said; no Kneser-Ney, which is better on large texts;
on the CPU, whatever the backend.
"""
from collections import Counter, defaultdict

import numpy as np

from gpt2 import common_prefix


class NGram:
    """model(tokens, n_last) -> log-probabilities float32 [n_last, n_vocab].

    order       tokens in the longest n-gram, its last one included; at least 1

    >>> model = NGram(n_vocab=4, order=2)
    >>> np.exp(model([0, 1, 0])[0]).round(3)            # 1 is what followed 0 before
    array([0.25, 0.65, 0.05, 0.05], dtype=float32)
    """

    def __init__(self, n_vocab, order=3):
        if order < 1:
            raise ValueError(f"the order of the n-grams is {order}: it must be 1 or more")
        self.n_vocab, self.order = n_vocab, order
        self.unigrams = np.zeros(n_vocab)                           # c((), x): many, so in an array
        self.after = defaultdict(Counter)                           # h -> {x: c(h, x)}, h of 1 .. order - 1
        self.cached = []                                           # the running text, as far as it is counted

    def learn(self, tokens):
        """Count a text for good.  Raises ValueError for ids outside the vocabulary."""
        self.reset()
        tokens = list(tokens)
        if tokens and not 0 <= min(tokens) <= max(tokens) < self.n_vocab:
            raise ValueError(f"the text holds tokens that are not in 0 .. {self.n_vocab - 1}: "
                             "is this the model's own encoder?")
        for end in range(1, len(tokens) + 1):
            self.count(tokens[max(0, end - self.order):end], 1)

    def reset(self):
        """Forget the running text."""
        self.follow([])

    def count(self, ngram, times):
        """Add `times` to the counts of the last token of `ngram` after what stands before it."""
        *context, token = ngram
        self.unigrams[token] += times
        for start in range(len(context)):
            counts = self.after[tuple(context[start:])]
            counts[token] += times
            if not counts[token]:
                del counts[token]

    def follow(self, tokens):
        """Make `tokens` the running text: take back what differs from the last one, count what is new."""
        kept = common_prefix(tokens, self.cached)
        while len(self.cached) > kept:
            self.count(self.cached[-self.order:], -1)
            self.cached.pop()
        for token in tokens[kept:]:
            self.cached.append(token)
            self.count(self.cached[-self.order:], 1)

    def __call__(self, tokens, n_last=1):
        ends = range(len(tokens) - n_last + 1, len(tokens) + 1)
        return np.log(np.array([self.probs(list(tokens[:end])) for end in ends], dtype=np.float32))

    def probs(self, tokens):
        """p(. | tokens), [n_vocab]."""
        self.follow(tokens)
        different = np.count_nonzero(self.unigrams)                 # T; there is at least tokens[0]
        p = (self.unigrams + different / self.n_vocab) / (self.unigrams.sum() + different)
        for length in range(1, min(self.order, len(tokens) + 1)):
            counts = self.after.get(tuple(tokens[-length:]))        # of what followed the last tokens
            if not counts:
                break
            p *= len(counts) / (counts.total() + len(counts))
            p[list(counts)] += np.array(list(counts.values())) / (counts.total() + len(counts))
        return p
