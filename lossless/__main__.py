"""python -m lossless my_rule.py: is it lossless?"""
import sys
from functools import partial
from numbers import Integral

import numpy as np
from tqdm import tqdm

import speculative
from engine.checks import check_settings
from engine.loading import command_line
from lossless.cases import thorough_cases
from lossless.judge import DEFAULTS, report
from lossless.ledger import write_ledger

watch = partial(tqdm, unit=" cases", leave=False, delay=1, disable=None)         # None: only on a terminal


def main(path="", *, thorough=False, explain=False):
    """Is it lossless?  Judges speculative.py, with your own drafter or accept rule if you name a file:

    python -m lossless my_drafter.py        # propose(draft, x, k, to_probs, rng) -> (drafts, draft_probs)
    python -m lossless my_rule.py           # verify(Q, P, drafts, rng) -> (n_accepted, next_token)
    python -m lossless my_speculative.py    # speculative_sampling(..), a loop of your own: judged as it is

    The first word of the answer is "lossless" or "not"; the exit status is 0, 1 (not lossless), or 2 (it
    was not judged).  It goes on "as far as it was walked" if some cases were not walked to the end.

    Args:
        path: a Python file with one of these functions, or with propose and verify
        thorough: search ten times as long; it usually takes seconds, but minutes for a drafter with many
            likely drafts, of which some cases may then be left
        explain: show each step on the way to a wrong text, to be checked with a pencil
    """
    own, drafted = own_functions(path) if path else {}, set()

    def sampler(*run, **settings):
        for r in speculative.speculative_sampling(*run, **settings, **own):
            drafted.update(r.drafts)
            yield r
    judged = own.get("speculative_sampling", sampler)
    found = report(judged, thorough=thorough, watch=watch)
    if found.lossless and judged is sampler and not drafted:
        raise ValueError(f"{path} drafts nothing in these texts of a few tokens, so there is nothing to "
                         "judge: make it draft sooner")
    print(found)
    loop = " in the loop of speculative.py" * (judged is sampler)
    print(f"judged: {' and '.join(own)} of {path}{loop}" if own else "judged: speculative.py")
    if explain and not found.lossless:
        which = found.prompt, found.case
        case = next(case for case in thorough_cases() if (case.prompt, str(case)) == which)
        try:
            print("\n" + write_ledger(judged, case, found))
        except Exception as error:                      # the verdict stands, whatever the sampler does now
            print(f"There is no ledger: {type(error).__name__}: {error}")
    return 0 if found.lossless else 1


def own_functions(path):
    """{name: function} of a user's file: a loop, or else propose, verify or both.  Raises ValueError if it
    has none of its own."""
    from engine.loading import files, user_file
    module = user_file.load_module(path, files.read_text(path, "name a Python file"))
    own = {name: user_file.load_function(path, name, like=like)
           for name, like in dict(propose=speculative.propose, verify=speculative.verify,
                                  speculative_sampling=example).items()
           if getattr(module, name, None) not in (None, getattr(speculative, name))}      # or imported
    if not own:
        raise ValueError(f"{path} has no function propose, verify or speculative_sampling: see --help")
    if "speculative_sampling" in own:
        return {"speculative_sampling": partial(call_loop, path, own["speculative_sampling"])}
    if "verify" in own:
        own["verify"] = user_file.checked_rule(own["verify"])
    return own


def example(draft, target, tokens, n_tokens, K, rng, *, temperature, top_k, top_p, eos):
    """The arguments that a loop must accept."""


def call_loop(path, loop, *run, eos=None, **settings):
    """Yields the tokens or rounds of a user's loop, which gets all settings: EOS is None or a list of ids."""
    eos = None if eos is None else sorted(check_settings(0, eos=eos))
    result = loop(*run, **DEFAULTS | settings | dict(eos=eos))
    for part in result if np.iterable(result) else [result]:
        if not isinstance(part, Integral) and not hasattr(part, "tokens"):
            raise ValueError(f"{path}: speculative_sampling gave {part!r} instead of new tokens or rounds")
        yield part


if __name__ == "__main__":
    sys.exit(command_line.run(main))
