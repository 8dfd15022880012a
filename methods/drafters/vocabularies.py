"""A draft model whose vocabulary is not the target's  (Timor et al. 2025, arXiv 2502.05202).

    draft = TLI(small, small_encoder, encoder)                          # a model over the target's tokens
    speculative_sampling(draft, target, tokens, n_tokens, K, rng)

    slem = SLEM(small, small_encoder, encoder)                          # a drafter
    speculative_sampling(None, target, tokens, n_tokens, K, rng, propose=slem.propose)

Both decode the target's tokens to text, and encode the text again for the draft model.

    TLI     token-level intersection: the draft model's distribution over the tokens that both vocabularies
            have (with the same bytes), normalized, and zero elsewhere.  This is the p the drafts are drawn
            from, so the text is lossless
    SLEM    string-level exact match: the draft model continues the text, and its continuation is encoded for
            the target.  The p of such drafts is not known, so the draft model takes its likeliest tokens
            instead of drawing, and p is None, which makes the text lossless, too

The new text may merge with the end of the old one: if the target has written "th" and SLEM's draft model
continues with "e", together they would be the token "the".  Nothing is proposed if such a token would span
the end of the old text.

Limitations: the text is encoded again for each row of logits (TLI) or each token of the draft model (SLEM).
If it is longer than the draft model's context, only its end is read, from scratch for each row (TLI) or round
(SLEM).  The draft model sees an incomplete character as U+FFFD, and the end-of-text token spelled out.  SLEM
is greedy at every temperature; the paper draws.

Not here: the paper's third method, SLRS, which sums p over all tokenizations of a string.
"""
import copy
from itertools import accumulate

import numpy as np

from engine.compute.backend import to_host
from methods.entries import LINE, TREE, Drafted, Drafter


class Reader:
    """A draft model called with the target's tokens."""

    def __init__(self, draft, draft_encoder, encoder):
        self.draft, self.draft_encoder, self.encoder = draft, plain(draft_encoder), plain(encoder)
        self.added = {token for side in getattr(encoder, "around", ()) for token in side}
        self.n_vocab, self.n_ctx_draft = encoder.n_vocab, getattr(draft, "n_ctx", 1 << 30)

    def reset(self):
        self.draft.reset()

    def decode(self, tokens):
        """The text of the target's tokens, without those its encoder puts around a text."""
        return self.encoder.decode([token for token in tokens if token not in self.added])

    def read(self, text, room=0):
        """The text's last tokens for the draft model, few enough for its context to take `room` more."""
        return self.draft_encoder.encode(text)[-max(1, self.n_ctx_draft - room):]


def plain(encoder):
    """The encoder without the tokens it puts around each text, because here the text continues."""
    encoder = copy.copy(encoder)
    encoder.around = [], []
    return encoder


class TLI(Reader):
    """model(tokens, n_last) -> logits [n_last, n_vocab] over the target's tokens; -inf if not in both."""

    def __init__(self, draft, draft_encoder, encoder):
        super().__init__(draft, draft_encoder, encoder)
        both = sorted(draft_encoder.ids.keys() & encoder.ids.keys())
        self.ids, self.draft_ids = ([one.ids[token] for token in both] for one in (encoder, draft_encoder))

    def __call__(self, tokens, n_last=1):
        logits = np.full((n_last, self.n_vocab), -np.inf, dtype=np.float32)
        for i in range(n_last):
            text = self.decode(tokens[:len(tokens) - n_last + 1 + i])
            logits[i, self.ids] = to_host(self.draft(self.read(text)))[-1, self.draft_ids]
        return logits


class SLEM(Reader):
    """A drafter that works on the text: `SLEM(draft, draft_encoder, encoder).propose`."""

    def propose(self, draft, x, k, to_probs, rng):
        """At most k tokens after x: speculative.propose with SLEM's own draft model."""
        text, drafts = self.decode(x), []
        start, written = self.read(text, room=k), []
        while len(written) < k and len(drafts) < k and len(start + written) <= self.n_ctx_draft:
            written.append(int(self.draft(start + written)[-1].argmax()))
            drafts = self.new_tokens(text, self.draft_encoder.stream()(written))
        return drafts[:k], None

    def new_tokens(self, text, more):
        """The target's tokens of `more` after `text`; none if one would span both.

        text + more is encoded as a whole, so that words are split as in the target's encoder.
        """
        tokens = self.encoder.encode(text + more)
        ends = [0, *accumulate(len(self.encoder.to_bytes(token)) for token in tokens)]
        seam = len(text.encode())
        return tokens[ends.index(seam):] if seam in ends else []


def make_tli(models, *_):
    return Drafted(TLI(*models.load_draft(), models.encoder), models.target)


def make_slem(models, *_):
    slem = SLEM(*models.load_draft(), models.encoder)
    return Drafted(None, models.target, slem.propose, memory=slem)


BY_TOKEN = Drafter("methods/drafters/vocabularies.py", make_tli, drafts=(LINE, TREE))
BY_STRING = Drafter("methods/drafters/vocabularies.py", make_slem)
