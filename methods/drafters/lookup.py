"""Prompt lookup: the drafts are copied from an earlier place in the text  (A. Saxena, "Prompt Lookup
Decoding", November 2023, a repository without a paper; `prompt_lookup_num_tokens` in transformers; the idea
is in Leviathan et al. 2022, section 3.6).

    speculative_sampling(None, target, tokens, n_tokens, K, rng, propose=lookup.propose)

Summaries, translations, code and answers about a document repeat what comes before them.  So the drafter
looks up the last tokens of the text earlier in the text, and proposes what followed them there.

                            this file           Saxena              transformers
    tokens that must match  N, then N-1 .. 1    max_ngram_size      max_matching_ngram_size
    drafts                  k                   num_pred_tokens     prompt_lookup_num_tokens

A draft is chosen here, not drawn: p is a point mass, written None.  A draft x̃ is then accepted with
probability q(x̃), and after a rejection the residual max(0, q - p) is q without x̃.  Any other p would be
wrong; notebook 5 tries one.

If several places match, the last one is taken; Saxena and transformers take the first.

Limitations: it uses only one match; methods/drafters/suffix.py counts what followed all of them.
"""
from methods.entries import Drafted, Drafter

N = 3           # tokens that must match, to begin with


def propose(draft, x, k, to_probs, rng):
    """What followed the last tokens of x where they occurred before -> (drafts, None).  No drafts if the last
    token is new.  `draft`, `to_probs` and `rng` are not used.

    >>> propose(None, [7, 8, 9, 1, 7, 8], 3, None, None)            # 7, 8 occurred at the start
    ([9, 1, 7], None)
    >>> propose(None, [5, 6, 6], 4, None, None)                     # the copy continues into itself
    ([6, 6, 6, 6], None)
    """
    text = "".join(map(chr, x))                     # one character per token, because string search is fast
    for n in range(min(N, len(x) - 1), 0, -1):
        start = text.rfind(text[-n:], 0, -1)        # before text[-n:] itself
        if start >= 0:
            copied = list(x)
            for source in range(start + n, start + n + k):
                copied.append(copied[source])
            return copied[len(x):], None
    return [], None


DRAFTER = Drafter("methods/drafters/lookup.py", lambda models, *_: Drafted(None, models.target, propose))
