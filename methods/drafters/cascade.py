"""Staged drafting: the draft model has a drafter of its own  (Spector and Re 2023, arXiv 2308.04623; the
vertical cascade of Chen et al. 2023, arXiv 2312.11462).

    staged = cascade(speculative.propose, NGram(draft.n_vocab))         # n-grams guess, as in both papers
    speculative_sampling(draft, target, tokens, n_tokens, K, rng, propose=staged)
    speculative_sampling(draft, target, tokens, n_tokens, K, rng, propose=cascade())    # lookup guesses

Something smaller guesses the draft model's tokens, and the draft model verifies these guesses as a target
would, with speculative.verify.  Each accepted guess saves the draft model a pass.

Why it is lossless.  By the theorem in speculative.verify each token of this inner verification has the draft
model's distribution p(. | all before it).  So the tokens are distributed as if speculative.propose had drawn
them one by one, and their p are returned with them.

At temperature 0 the drafts are the draft model's own, token for token.

Not here: the horizontal cascade (a smaller draft model for the later tokens of a round); a tree of guesses.
"""
import speculative
from methods.drafters import lookup
from methods.drafters.ngram import NGram
from methods.entries import Drafted, Drafter
from sampling import point_masses
from speculative import verify


def cascade(guess=lookup.propose, smaller=None):
    """A drafter in which `guess` (with the model `smaller`, if it needs one) proposes to the draft model."""
    def propose(draft, x, k, to_probs, rng):
        drafts, P = [], []
        while len(drafts) < k:
            text, wanted = x + drafts, k - len(drafts) - 1      # the last token is the draft model's own
            guesses, guess_probs = guess(smaller, text[:], wanted, to_probs, rng)       # [g], [g, n_vocab]
            rows = to_probs(draft(text + guesses, len(guesses) + 1))    # after the text and each guess
            guess_probs = point_masses(guesses, rows.shape[1]) if guess_probs is None else guess_probs
            n_accepted, token = verify(rows, guess_probs, guesses, rng)
            drafts += guesses[:n_accepted] + [token]
            P += [*rows[:n_accepted + 1]]
        return drafts, P
    return propose


def make(models, *_):
    return Drafted(models.draft, models.target, cascade(speculative.propose, NGram(models.target.n_vocab)))


DRAFTER = Drafter("methods/drafters/cascade.py", make)
