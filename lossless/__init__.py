"""Is a sampler lossless?  Computes its exact output distribution, and how far that is from the target's.
Nothing is sampled, so a mistake that shows in one text in a million is found like any other.

The modules are chapters, in this order:

    walk.py     a random generator that takes every branch
    toys.py     small models, and the exact distribution of their texts
    cases.py    what is tried
    judge.py    check and report
    ledger.py   a wrong text, to be checked with a pencil

It takes three lines to check an idea of your own, here a drafter that always proposes token 1 twice
(`python -m lossless` checks speculative.py itself):

>>> def ones(draft, x, k, to_probs, rng): return [1, 1][:k], None          # None: point masses
>>> from functools import partial
>>> from speculative import speculative_sampling
>>> check(partial(speculative_sampling, propose=ones), Ks=[2]) < 1e-12
True

Limitations: the models have a vocabulary of a few tokens, and speed is not judged.

- The 457 standard cases take two seconds for speculative.py.  They test each draft of rounds of up to
  eight drafts, each token of texts of up to eighteen, and an EOS at each of these drafts; the first ten
  rounds of a text at K = 1, and the first six at K = 2; logits as far from 0 as -120 and 60; prompts of one,
  four and twenty tokens.  `thorough=True` takes a minute.  It also tests any two positions of a text of up
  to fifteen tokens, and all settings with up to four drafts.  A mistake is not found if it shows only in
  longer rounds or texts, only for ratios q / p in some narrow range, or only in trees that the sampler does
  not build at K = 1 .. 8.  Four that stay unseen, and what would see them (`pair` is in cases.py):

      rounds after the tenth      check(sampler, [pair("x" * 12 + "ss.")], [1], n_tokens=15, temperature=1)
      ninth drafts                check(sampler, [pair("." * 8 + "ss.")], [9], n_tokens=11, temperature=1)
      token ids above 24          check(sampler, [[table(1, n_vocab=300)] * 2], [1], 1, temperature=1)
      a top-k of 50 by default    the same (`table` is in toys.py)
- Nor is it found if it shows only when p and q differ by less than 3e-8, when the temperature is between 0
  and 1e-7 or above 13, or when top_p is below .03 or between .9995 and 1.  A rule that accepts every draft
  with q > 1 - 1e-7 passes, too.
- In each case the likeliest branches are walked first, for 40,000 steps (random numbers, calls of a model,
  rounds), and for 1,000,000 in all cases: half of them for the cases that come first, then each of those
  that are left gets an even share.  speculative.py needs 156,000.  A sampler that draws more often leaves
  branches unwalked, and a mistake that shows only there may be missed.  The first line of the report says
  so, and `check` returns at least the probability that was not walked.  `thorough=True` has neither limit.
  No clock is read: a busy machine takes longer and says the same.
- A sampler that catches NumPy's TypeError for an array of random numbers may be judged wrongly; walk.py
  says what else cannot be walked.
- If a loop never ends, draws no random number, calls no model and yields nothing, the check never ends.
- If top_p is exactly a sum of probabilities, rounding decides which tokens are kept.

Three sets of samplers were written by somebody who had not seen the cases.  All of the first 21 were judged
correctly, and so were 21 of the next 22 (11 wrong, 11 lossless); the other, a loop that ends only by chance,
was refused then and is judged correctly now.  Of the last 30 (23 wrong, 7 lossless), 25 were judged
correctly; the other five needed logits far from 0 or many rounds, which the cases have now, or a larger
vocabulary than the cases have (token ids kept in one byte).
"""
from lossless.cases import standard_cases
from lossless.judge import check, report
from lossless.toys import distribution_of_text
from lossless.walk import exact_distribution

__all__ = ["check", "distribution_of_text", "exact_distribution", "report", "standard_cases"]
