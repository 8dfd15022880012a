"""The records of methods/table.py: an entry for each drafter and each verifier, and what they produce.

    entry       DRAFTERS["eagle"]       Drafter         its file, and how to make it
    made of it  drafter.make(..)        Drafted         the functions that draft, for given models
    entry       VERIFIERS["tree"]       Verifier        its file, and how to make it
    both        table.prepare(..)       Method          everything a run needs

The file of each method ends with its entry.
"""
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import speculative
from autoregressive import autoregressive_sampling
from speculative import speculative_sampling

# What is drafted and verified: a line of tokens, a tree grown by a draft model, or a drafter's own tree of
# chosen tokens.  A drafter and a verifier fit together if they have one of these in common.
LINE, TREE, OWN_TREE = "line", "tree", "tree of its own"


class Drafter(NamedTuple):
    """An entry of DRAFTERS."""
    file: str
    make: Callable                  # (models, option, tokens, K, settings) -> Drafted
    parse: Callable | None = None   # the text after the colon -> the option, or ValueError; None: no option
    drafts: tuple = (LINE,)
    wraps: bool = False             # the option is another Drafter
    lossless: bool | None = True    # None: not known
    option: object = None           # set by table.choose


class Drafted(NamedTuple):
    """A drafter, ready for two models and a prompt."""
    draft: Callable | None          # tokens, n_last -> logits [n_last, n_vocab]; None: no draft model
    target: Callable                # likewise: the target, or another model with the same distribution
    propose: Callable = speculative.propose     # draft, x, k, to_probs, rng -> (drafts [at most k], p)
    grow: Callable | None = None    # draft, x, shape, rule, to_probs, rng -> (nodes [n], parents [n], p)
    memory: object = None           # has reset() if one run would otherwise change the drafts of the next


class Verifier(NamedTuple):
    """An entry of VERIFIERS."""
    file: str
    make: Callable                  # (Drafted, option) -> a sampler, called as speculative_sampling
    parse: Callable | None = None   # as in Drafter
    verifies: tuple = (LINE,)
    baseline: Callable = autoregressive_sampling        # what it is compared with
    tests_all: bool = False         # the rule also tests drafts after one that fails
    lossless: bool | None = True
    option: object = None

    @property
    def verifies_trees(self):
        return LINE not in self.verifies


def line_sampler(rule):
    """How a Verifier is made of an accept rule for the loop of speculative.py.  rule: option -> verify"""
    return lambda drafted, option: partial(speculative_sampling, propose=drafted.propose, verify=rule(option))


# The entries of speculative.py itself, which knows nothing of this table.
MODEL = Drafter("speculative.py", lambda models, *_: Drafted(models.draft, models.target),
                drafts=(LINE, TREE))
TOKEN = Verifier("speculative.py", line_sampler(lambda _: speculative.verify))


class Method(NamedTuple):
    """A drafter and a verifier, ready: everything a run needs.

        method.baseline(method.target, tokens, n, rng, **settings)                              # -> rounds
        method.sampler(method.draft, method.target, tokens, n, method.K, rng, **settings)       # -> rounds
    """
    draft: Callable | None          # the first five come from the Drafted
    target: Callable
    propose: Callable
    grow: Callable | None
    memory: object
    sampler: Callable               # speculative_sampling with `propose` and `verify`, or another loop
    baseline: Callable
    K: int                          # the most drafts that a round can accept
    shape: list | None              # [n_nodes], the parents of the tree's nodes; None: a line of drafts
    tests_all: bool
    lossless: bool | None

    def reset(self):
        """Empty all caches and memories, so that no run depends on an earlier one."""
        for one in (self.draft, self.target, self.memory):
            if hasattr(one, "reset"):                           # a plain function has none
                one.reset()
