"""The checks for each step of README.md: step(mine) yields a sentence for each mistake in your code, none if
it is right.

Your code runs with lossless/walk.py's `Walk` in place of the random generator, through every branch that
chance could take.  So its distribution is computed, not estimated, and a mistake that shows in one text in a
million is found like any other.

Limitations: an infinite loop that neither calls a model nor draws runs until child.py ends the process.
"""
from contextlib import suppress
from functools import partial
from inspect import signature
from numbers import Integral
from unittest import mock

import numpy as np

from engine.checks import check_settings, checked_propose, token_list
from exercises.calls import LARGEST, SMALLEST, extreme, run_perfect_draft, run_sampler, run_unchanged
from exercises.mistakes import FILTERS, KNOWN, name_first, omissions
from lossless import distribution_of_text, exact_distribution, report
from lossless.judge import distance
from lossless.toys import distribution_of_token, memoryless, table
from speculative import verify

Q = np.array([[.1, .6, .3], [.6, 0, .4], [.2, .2, .6]])             # the target's distributions
P = np.array([[.5, .3, .2], [.8, .2, 0]])                           # the draft's

# What compares it with the truth ----------------------------------------------------------------------------


def diff(found, expected, what):
    """Yields a sentence for each difference between two distributions: {outcome: probability}, or arrays."""
    if isinstance(expected, dict):
        for outcome in sorted(expected.keys() | found.keys()):
            yield from diff(found.get(outcome, 0.0), expected.get(outcome, 0.0),
                            f"{what}: the probability of {outcome}")
    elif np.shape(found) != np.shape(expected):
        yield (f"{what} has the shape {np.shape(found)} and should have {np.shape(expected)}" +
               ": the function returned None" * (found is None))
    elif not np.allclose(found, expected, rtol=0, atol=1e-9):
        sums, off = np.sum(found, axis=-1), np.abs(np.subtract(found, expected)).max()
        why = ("; nan comes from 0 / 0, or from exp of a large number" if np.isnan(found).any() else
               "; float32 is too coarse: compute in float64" if off < 1e-5 else
               "" if np.ndim(found) < 2 or np.allclose(sums, 1) else f"; your rows sum to {sums.round(4)}")
        digits = 12 if off <= 1e-3 else 4
        found, expected = (str(np.round(a, digits)).replace("\n", "") for a in (found, expected))
        yield f"{what} is {found} and should be {expected}{why}"


def compare_texts(what, sampler, models, prompt, n, *K, first=None, **settings):
    """Yields how the sampler's texts of n tokens differ from the target's; `first` cuts longer ones."""
    def run(rng):
        new = run_sampler(sampler, models, prompt, n, *K, rng, **settings)
        if any(token in eos for token in new[:-1]):
            raise ValueError(f"{what}: the text {list(new)} goes on after an EOS: any new token can be one")
        if "eos" not in settings and (len(new) < n or len(new) > n and first is None):
            raise ValueError(f"asked for {n} new token{'s' * (n != 1)} after {prompt}, it gives {len(new)}: "
                             f"{list(new)}")
        return new[:first]

    eos = check_settings(n, eos=settings.get("eos"))
    what = f"{what} after {prompt}, {settings}" if settings else f"{what} after {prompt}"
    found = exact_distribution(run)
    wrong = [*diff(found, distribution_of_text(models[-1], prompt, n, **settings), what)]
    if wrong:
        wrong[0] += next((f"\n    (these are the texts {words})" for words, texts in omissions(
            models[-1], prompt, n, eos, settings) if distance(texts, found) < 1e-9), "")
    yield from wrong


# The steps ------------------------------------------------------------------------------------------------


def step_1(mine):
    """the distribution"""
    cases = [(np.array(rows), settings)
             for rows in ([[2.0, 1.0, 0.5, -1.0], [-1.3, 0.2, 0.7, 1.7]], [[-1.0, 4.0, 4.0, 0.3]] * 2,
                          [[1000.0, 999.0, 0.0, 999.0]] * 2)
             for settings in ({}, dict(temperature=.5), dict(temperature=0), dict(top_k=2), dict(top_p=.6),
                              dict(top_k=2, top_p=.7), dict(temperature=2, top_k=3, top_p=.8),
                              dict(top_k=9))] + [(np.zeros((2, 4)), dict(top_p=.5))]   # sums that are exact
    found = [run_unchanged(mine.probabilities, rows, **settings) for rows, settings in cases]
    right = [np.array([distribution_of_token(row, **settings) for row in rows]) for rows, settings in cases]
    wrong = []
    for probs, expected, (rows, settings) in zip(found, right, cases):
        wrong += diff(probs, expected, f"probabilities of the rows {rows.tolist()}, {settings},")
    if wrong:
        wrong[0] += name_first(FILTERS, lambda known: all(np.allclose(
            probs, known(rows, *(dict(temperature=1, top_k=0, top_p=1) | settings).values()), atol=1e-9)
            for probs, (rows, settings) in zip(found, cases))) or (
            "\n    (these are the right numbers in another order: after sorting, put them back)" *
            np.allclose(np.sort(found), np.sort(right)))
    yield from wrong

    def draw(probs, rng):
        token = run_unchanged(mine.sample, probs, rng)
        return token_list([token], f"sample gives {token!r}: it should give a token, one whole number")[0]

    found = exact_distribution(lambda rng: draw(Q[0], rng))
    if len(found) == 1:
        yield "sample asks rng for no number, so it does not draw (or draws from elsewhere)"
    yield from diff(found, dict(enumerate(Q[0])), f"sample({Q[0]}, rng)")
    weights = np.random.default_rng(2).random(50_257).astype(np.float32)
    weights[:9] = weights[-9:] = 0
    for word, u, which in (SMALLEST, 0.0, "smallest"), (LARGEST, 1 - 2**-53, "largest"):
        token = None
        with suppress(Exception):
            token = mine.sample(weights / weights.sum(), extreme(word))
        if not isinstance(token, Integral) or not 9 <= token < 50_257 - 9:
            yield (f"if rng.random() gives {u!r}, the {which} that it can, sample gives {token}, which is "
                   "not a token or has probability 0 (sum in float64; where does the last sum end?)")


def step_2(mine):
    """autoregressive sampling"""
    for n, settings in (0, {}), (1, {}), (3, dict(temperature=.5, top_k=2)), (3, dict(top_k=9, top_p=.7)):
        yield from compare_texts(f"a text of {n}", mine.autoregressive_sampling, [table(2, zeros=.3)],
                                 [2, 0], n, **settings)


def refuse_negative(sample):
    """`sample`, for residuals: ValueError if one has negative entries, or is nan."""
    def checked(probs, rng):
        if not np.min(probs) >= 0:
            raise ValueError(f"sample was given {np.round(probs, 4)}: the residual is max(0, q - p)")
        return sample(probs, rng)
    return checked


def step_3(mine):
    """verify"""
    cases = {(1,): "accepted because q > p", (0,): "accepted with probability .2",
             (1, 1): "and the target gives the second probability 0", (): "no draft at all",
             (0, 0): "accepted with probability .2 and .75, each by a number u of its own"}

    def run(verify, q, p, drafts, rng):
        result = run_unchanged(verify, q, p, list(drafts), rng)
        complaint = f"verify gives {result!r}: it should give n_accepted, next_token, two whole numbers"
        numbers = token_list(result, complaint)
        if len(numbers) != 2:
            raise ValueError(complaint)
        return tuple(numbers)

    runs, wrong = [], []
    for drafts, why in cases.items():
        q, p = Q[:len(drafts) + 1], P[:len(drafts)]
        with mock.patch.object(mine, "sample", refuse_negative(mine.sample)):
            found, expected = (exact_distribution(partial(run, which, q, p, drafts))
                               for which in (mine.verify, verify))
        runs.append((q, p, drafts, found))
        say = [{f"{n} accepted, then {x}": chance for (n, x), chance in distribution.items()}
               for distribution in (found, expected)]
        new = [*diff(*say, f"drafted {list(drafts)}, {why}")]
        if new:
            new[0] += f"\n    q = target_probs = {q.tolist()}\n    p = draft_probs = {p.tolist()}"
            if distance({(n, x): chance for (x, n), chance in found.items()}, expected) < 1e-9:
                new[0] += "\n    (is the pair the wrong way round? n_accepted comes first)"
        wrong += new
    if wrong:
        wrong[0] += name_first(KNOWN, lambda rule: all(
            distance(exact_distribution(partial(run, rule().verify, *case)), found) < 1e-9
            for *case, found in runs))
    yield from wrong
    if tuple(mine.verify(np.eye(2)[::-1], np.eye(2)[:1], [0], extreme(SMALLEST))) != (0, 1):
        yield "a token that the target gives probability 0 is accepted if rng.random() is exactly 0"


def step_4(mine):
    """the loop"""
    for K in (1, 2):
        for draft, settings in ((table(1, zeros=.2), {}), (table(3), dict(top_k=2)),
                                (table(3), dict(top_k=9, top_p=.7)), (table(3), dict(temperature=0))):
            yield from compare_texts(f"the first three tokens at K = {K}", mine.speculative_sampling,
                                     [draft, table(2, zeros=.2)], [0], 3, K, first=3, **settings)
    # If your own drafter is the default, it drafts differently: step 8 says so.
    of_draft, of_target = run_perfect_draft(mine.speculative_sampling, 8)
    if len(of_target) != 2 and (of_draft or "propose" not in signature(mine.speculative_sampling).parameters):
        twice = len(of_draft) > len({*of_draft})
        yield ("8 tokens of a perfect draft at K = 3 take 2 passes of the target, "
               f"and yours took {len(of_target)}" +
               "\n    (the draft was called with the same tokens twice: call it with the drafts so far, "
               "too)" * twice)


def step_5(mine):
    """exactly n tokens, and EOS"""
    certain = memoryless([1, 0, 0])
    for n in range(6):
        for draft in certain, memoryless([0, 1, 0]):
            yield from compare_texts(f"a text of {n}", mine.speculative_sampling, [draft, certain], [2], n, 3)
        n_drafts, enough = len(run_perfect_draft(mine.speculative_sampling, n)[0]), n - -(-n // 4)
        if n_drafts > enough:
            yield (f"for {n} tokens of a perfect draft at K = 3, {enough} drafts are enough, and yours were "
                   f"{n_drafts}: the last token of a round is the target's")
            break
    yield from compare_texts("a text of 3", mine.speculative_sampling, [table(3), table(2, zeros=.2)], [0], 3,
                             2, top_k=9, top_p=.7)
    models = table(1, n_vocab=2), table(2, n_vocab=2)           # few branches, whatever is drafted
    for eos in [1], {0, 1}, np.array([0, 1]), 0:
        yield from compare_texts("autoregressive text", mine.autoregressive_sampling, models[1:], [1], 3,
                                 eos=eos)
        yield from compare_texts("speculative text", mine.speculative_sampling, models, [1], 3, 2, eos=eos)


def step_6(mine):
    """what it gains"""
    for alpha, K, tokens in (.6, 2, 1.96), (0, 4, 1), (1, 4, 5):
        yield from diff(mine.expected_tokens(alpha, K), tokens, f"expected_tokens({alpha}, {K})")
    for alpha, K, c, v, gain in (.8, 5, 0, 1, 3.68928), (.6, 2, .1, 1.5, 1.152941176), (1, 4, .25, 1.5, 2):
        yield from diff(mine.predicted_speedup(alpha, K, c, v), gain,
                        f"predicted_speedup({alpha}, {K}, c={c}, v={v})")


def step_7(mine):
    """the judge"""
    found = report(mine.speculative_sampling)
    if not found.lossless:
        yield str(found)


def step_8(mine):
    """a drafter of your own"""
    drafted = []

    def sampler(draft, target, *run, **settings):
        def propose(*arguments):
            drafted.append(checked_propose(mine.propose, target)(*arguments))
            return drafted[-1]
        return mine.speculative_sampling(draft, target, *run, propose=propose, **settings)
    found = report(sampler, Ks=[1, 2], n_tokens=4)
    if not found.lossless:
        yield str(found)
    elif not run_perfect_draft(mine.speculative_sampling, 8)[0]:
        yield ("without the argument propose, your sampler never asks the draft model: is your own drafter "
               "the default? The default does what step 4 did")
    elif not any(drafts for drafts, _ in drafted):
        yield ("nothing was drafted in these short texts, so nothing was judged: does your drafter wait "
               "too long?")


STEPS = {step_1: ["probabilities", "sample"], step_2: ["autoregressive_sampling"], step_3: ["verify"],
         step_4: ["speculative_sampling"], step_5: [], step_6: ["expected_tokens", "predicted_speedup"],
         step_7: [], step_8: ["propose"]}               # the functions that you write for each
