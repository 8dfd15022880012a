"""python -m lossless my_rule.py: is it lossless?"""
import sys

import speculative
from checks import checked_rule
from loading import command_line
from lossless.judge import report


def main(path="", *, thorough=False):
    """Is it lossless?  Judges speculative.py, with your own drafter or accept rule if you name a file:

    python -m lossless my_drafter.py    # propose(draft, x, k, to_probs, rng) -> (drafts, draft_probs)
    python -m lossless my_rule.py       # verify(q, p, drafts, rng) -> (n_accepted, next_token)

    The first word of the answer is "lossless" or "not"; the exit status is 0, 1 (not lossless), or 2 (it
    cannot be judged).

    Args:
        path: a Python file with a function `propose`, a function `verify`, or both
        thorough: search for a minute instead of seconds
    """
    own = own_functions(path) if path else {}
    drafted = set()

    def sampler(*run, **settings):
        for r in speculative.speculative_sampling(*run, **settings, **own):
            drafted.update(r.drafts)
            yield r
    found = report(sampler, thorough=thorough)
    if found.lossless and not drafted:
        raise ValueError(f"{path} drafts nothing in these texts of a few tokens, so there is nothing to "
                         "judge: let it draft sooner")
    print(found)
    return 0 if found.lossless else 1


def own_functions(path):
    """{"propose": .., "verify": ..} of a user's file, if it has them.  Raises ValueError if it has none."""
    from loading import files, user_file
    module = user_file.module_of(path, files.read_text(path, "name a Python file"))
    own = {name: user_file.function_in(path, name, like=getattr(speculative, name))
           for name in ("propose", "verify") if hasattr(module, name)}
    if "verify" in own:
        own["verify"] = checked_rule(own["verify"])
    if not own:
        raise ValueError(f"{path} has neither a function propose nor a function verify: see --help")
    return own


if __name__ == "__main__":
    from loading import command_line
    sys.exit(command_line.run(main))
