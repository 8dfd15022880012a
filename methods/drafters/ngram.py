"""An n-gram language model with proper probabilities, updated as the text grows  (interpolation as in
Witten and Bell 1991, "The zero-frequency problem"; n-grams as a draft model: Leviathan et al. 2022, sections
3.6 and 4.2, the latter with bigrams).

    draft = NGram(target.n_vocab)
    draft.learn(encoder.encode(open("notes.txt").read()))           # optional
    speculative_sampling(draft, target, tokens, n_tokens, K, rng)

The model counts how often token x followed the last n - 1 tokens h.  Short contexts have many counts and say
little, long ones have few and say much, so all are interpolated, from the shortest up:

    p_0(x)     = 1 / n_vocab
    p_n(x | h) = (c(h, x) + T(h) p_{n-1}(x | h')) / (c(h) + T(h))       h' is h without its oldest token

c is a count, and T(h) is the number of different tokens that followed h: the more there are, the less h is
trusted.  After a context that was never seen, p_n = p_{n-1}.

It is a model like any other, tokens -> logits (here log-probabilities).  It counts the texts it has learnt
and the running text, that is, the tokens it is called with, drafts included; the counts of rejected drafts
are removed again.

Limitations: the learnt texts and the running text have the same weight.  No Kneser-Ney smoothing.  Always on
the CPU.  It must not be called from several threads at once.
"""
from collections import Counter, defaultdict
from operator import index

import numpy as np

from engine.checks import check_call, check_ids
from engine.loading.files import read_text
from gpt2 import common_prefix
from methods.entries import LINE, TREE, Drafted, Drafter


class NGram:
    """model(tokens, n_last) -> log-probabilities float32 [n_last, n_vocab].

    order       tokens in the longest n-gram, the predicted one included; at least 1

    >>> model = NGram(n_vocab=4, order=2)
    >>> np.exp(model([0, 1, 0])[0]).round(3)            # 1 followed 0 before
    array([0.25, 0.65, 0.05, 0.05], dtype=float32)
    """

    def __init__(self, n_vocab, order=3):
        self.n_vocab, self.order = n_vocab, order
        self.texts, self.complete = [], False                       # complete: all texts are counted

    def learn(self, tokens):
        """Learn a text for good.  Raises ValueError for ids outside the vocabulary."""
        tokens = [*map(index, tokens)]
        check_ids(tokens, self.n_vocab)
        self.texts.append(tokens)
        self.complete = False

    def reset(self):
        """Forget the running text."""
        self.follow([])

    def recount(self):
        """Count everything from scratch: on first use, after a new text or an interruption."""
        self.unigrams = np.zeros(self.n_vocab)                      # c((), x) of every x
        self.after = defaultdict(Counter)                           # h of 1 .. order - 1 tokens: {x: c(h, x)}
        self.cached = []                                            # the running text, as far as counted
        for text in self.texts:
            for end in range(1, len(text) + 1):
                self.count(text[max(0, end - self.order):end], 1)

    def count(self, ngram, times):
        """Add `times` to c(h, x), x the last token and h each suffix of those before it, () included."""
        *context, token = ngram
        self.unigrams[token] += times
        for start in range(len(context)):
            counts = self.after[tuple(context[start:])]
            counts[token] += times
            if not counts[token]:
                del counts[token]

    def follow(self, tokens):
        """Make `tokens` the running text: uncount what is not in it, count what is new."""
        if not self.complete:
            self.recount()
        self.complete = False                                       # an interrupt may leave half a count
        n_common = common_prefix(tokens, self.cached)
        while len(self.cached) > n_common:
            self.count(self.cached[-self.order:], -1)
            self.cached.pop()
        for token in tokens[n_common:]:
            self.cached.append(token)
            self.count(self.cached[-self.order:], 1)
        self.complete = True

    def __call__(self, tokens, n_last=1):
        """Raises ValueError for ids outside the vocabulary, or if there are no tokens."""
        tokens = [*map(index, tokens)]
        check_call(tokens, n_last, float("inf"))
        check_ids(tokens, self.n_vocab)
        ends = range(len(tokens) - n_last + 1, len(tokens) + 1)
        return np.log(np.array([self.probs(tokens[:end]) for end in ends], dtype=np.float32))

    def probs(self, tokens):
        """p(. | tokens), [n_vocab]."""
        self.follow(tokens)
        n_distinct = np.count_nonzero(self.unigrams)                # T(()), at least 1 because of tokens[0]
        p = (self.unigrams + n_distinct / self.n_vocab) / (self.unigrams.sum() + n_distinct)
        for length in range(1, min(self.order, len(tokens) + 1)):
            counts = self.after.get(tuple(tokens[-length:]))        # c(h, x) for every x that followed h
            if not counts:
                break
            p *= len(counts) / (counts.total() + len(counts))
            p[list(counts)] += np.array(list(counts.values())) / (counts.total() + len(counts))
        return p


def read_if_named(path):
    """The option of ngram and suffix -> a text to learn."""
    return read_text(path, "name a text file, as in ngram:notes.txt") if path else ""


def make(models, text, *_):
    model = NGram(models.target.n_vocab)
    model.learn(models.encoder.encode(text))
    return Drafted(model, models.target)


DRAFTER = Drafter("methods/drafters/ngram.py", make, parse=read_if_named, drafts=(LINE, TREE))
