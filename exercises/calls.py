"""Runs your code: calls it as a reader of README.md would expect, and looks at what it calls in turn."""
from contextlib import suppress
from unittest import mock

import numpy as np

from engine.checks import check_call, token_list
from lossless import exact_distribution
from lossless.judge import text_of
from lossless.toys import scripted, table
from lossless.walk import Walk
from sampling import probabilities

SMALLEST, LARGEST = 0, 0x12dd9bb3                       # words that MT19937 turns into 32 zeros, and 32 ones


def run_unchanged(function, *given, **settings):
    """function(*given).  Raises ValueError if it changes an array or a list, which belong to the caller."""
    copies = [one.copy() if isinstance(one, (np.ndarray, list)) else one for one in given]
    result = function(*copies, **settings)
    if any(mine is not one and not np.array_equal(mine, one) for mine, one in zip(copies, given)):
        raise ValueError(f"{function.__name__} changed what it was given, which is the caller's: copy it")
    return result


def run_sampler(sampler, models, prompt, *more, **settings):
    """The new tokens of one run.  The sampler may return a list of tokens or an iterator of rounds."""
    before, rng = list(prompt), more[-1]
    result = sampler(*(check_calls(model, rng) for model in models), prompt, *more, **settings)
    new = text_of(result, rng)
    if prompt != before:
        raise ValueError(f"the caller's prompt {before} was changed to {prompt}: work on a copy")
    return new


def check_calls(model, rng):
    """The model.  A wrong call raises ValueError, and a run that seems infinite is stopped by an error."""
    def checked(tokens, n_last=1):
        rng.step()
        token_list(tokens, f"a model was called with {tokens!r}: that is not a list of tokens")
        check_call(tokens, n_last, np.inf)
        return model(tokens, n_last)
    return checked


def run_perfect_draft(sampler, n, K=3, stop=()):
    """n tokens, with a draft that is always right.  Returns (number of tokens, n_last) of each call of the
    draft, and of each call of the target, up to an error of the kind `stop`."""
    model, calls = scripted([*range(10)]), ([], [])
    models = (lambda *call, seen=seen: seen.append((len(call[0]), call[1])) or model(*call) for seen in calls)
    with suppress(stop):
        run_sampler(sampler, models, [0], n, K, Walk())
    return calls


def extreme(word):
    """A NumPy generator whose first number is 0 (word SMALLEST), or the largest below 1 (word LARGEST)."""
    bits = np.random.MT19937()
    bits.state = dict(bit_generator="MT19937", state=dict(key=np.where(np.arange(624) < 2, word, 1), pos=0))
    return np.random.Generator(bits)


# What is wrong with a call, in a line of its own, or "" -----------------------------------------------------

def name_call(mine):
    """What is wrong with the arrays that your sampler gives to verify."""
    with mock.patch.object(mine, "verify", wraps=mine.verify) as verify:
        run_perfect_draft(mine.speculative_sampling, 6, stop=Exception)
    for q, p, drafts in (call.args[:3] for call in verify.call_args_list):
        k, shapes = len(drafts), [np.shape(q), np.shape(p)]
        right = [(k + 1, 10), (k, 10)]                  # 10 tokens of vocabulary
        if k and () not in shapes and shapes != right:
            why = ("they are exchanged; the target comes first" if shapes == right[::-1] else
                   "is a [0] missing, as in probabilities(draft(x))[0]?" if len(shapes[1]) == 3 else "")
            return ("\n    (for {} drafts, verify was given target_probs of shape {} and draft_probs of {}, "
                    "which should be {} and {}. {})".format(k, *shapes, *right, why))
    return ""


def name_drafter(mine):
    """What is wrong with the first draft of your drafter."""
    def draft_one(rng):
        x = [0, 1, 2, 0, 1, 0, 1]
        (token, *_), p = mine.propose(table(3), x, 1, probabilities, rng)
        return token, p if p is None else p[0][token], len(x)
    for (token, p, length), chance in exact_distribution(draft_one).items():
        if length != 7:
            return "\n    (propose changes x, which holds the text: work on a copy)"
        if p is not None and abs(chance - p) > 1e-9:
            return f"\n    (propose drafts {token} with probability {chance:.4f}, and its p says {p:.4f})"
    return ""
