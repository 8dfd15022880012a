"""Samplers of the entries of methods/table.py, and a few cases on which the judge is fast.

A sampler is judged on pairs of models of its own or on FEW, with each of LINE or TREE as settings."""
import copy
import functools

from helpers import PAIRS, combinations, small
from samplers import widths

from encoder import Encoder
from lossless import check
from lossless.cases import pair
from methods.entries import OWN_TREE
from methods.table import DRAFTERS, VERIFIERS, choose, is_lossless, prepare

FEW = [PAIRS[name] for name in ("a distribution after every prefix", "zeros in both", "draft is certain")]
FIVE = [pair("ff")]                                     # five tokens
SHORT = dict(Ks=[1], n_tokens=2, temperature=1)
LINE = [dict(Ks=[2], n_tokens=3, temperature=.7, top_k=2), SHORT, dict(Ks=[3], n_tokens=3, eos=1)]
TREE = [SHORT, dict(Ks=[2], n_tokens=3, temperature=.7, top_k=2)]


def deviation(sampler, cases, pairs=None):
    """The largest of these cases.  Without pairs, a line of drafts is also judged on the standard cases of
    two tokens, whose prompts have a token that recurs."""
    short = check(sampler, **SHORT) if pairs is None and cases is LINE else 0
    return max(short, *(check(sampler, pairs or FEW, **case) for case in cases))


# The entries of methods/table.py ----------------------------------------------------------------------------

class Given:
    """A table.Models with the two models of a case."""
    def __init__(self, draft, target, n_vocab):
        self.draft, self.target = draft, target
        draft.n_vocab = target.n_vocab = n_vocab
        self.encoder = letters(n_vocab)
        self.load_draft = lambda: (draft, self.encoder)


@functools.cache
def letters(n_vocab):
    return Encoder({token: i for i, token in enumerate("abcdefghijklmnopqrstuvwx"[:n_vocab])}, [])


def reads_layers(drafter):
    """Whether it needs a GPT2: its layers, or its hidden states."""
    return bool({"early_exit", "layer_skip", "eagle", "medusa", "parallel"} & {*drafter.split(":")})


tiny_models = functools.cache(small)


def entry(drafter, verifier, change=lambda drafted: drafted):
    """(sampler, cases, pairs) of the sampler that python -m methods runs; K sets the shape of a tree."""
    def sampler(draft, target, tokens, n_tokens, K, rng, **settings):
        shape = ":" + ",".join(map(str, widths(K))) if VERIFIERS[verifier].verifies_trees else ""
        choice = choose(drafter, verifier + shape)
        if reads_layers(drafter):
            models = copy.copy(tiny_models())
            models.draft.reset(), models.target.reset()         # what is cached changes the last bits
        else:
            models = Given(draft, target, target(tokens).shape[-1])
        settings = dict(temperature=1.0, top_k=0, top_p=1.0, eos=None) | settings
        method = prepare(choice, models, tokens, K, settings, change)
        return method.sampler(method.draft, method.target, tokens, n_tokens, K, rng, **settings)

    if reads_layers(drafter):
        return sampler, LINE[:1], [(None, tiny_models().target)]
    return sampler, TREE if VERIFIERS[verifier].verifies_trees else LINE, None


# The judge cannot walk a race, and measured costs differ from run to run.
WALKED = [(drafter, verifier) for drafter, verifier in combinations()
          if verifier != "coupled" and not drafter.startswith("optimum")]
LOSSLESS = [typed for typed in WALKED if is_lossless(choose(*typed))]
EVERY_DRAFTER = [(d, v) for d, v in LOSSLESS if v == "token"] + [
    (d, v) for d, v in LOSSLESS if v == "tree" and OWN_TREE in DRAFTERS[d.partition(":")[0]].drafts]
EVERY_VERIFIER = [(d, v) for d, v in LOSSLESS if d == "model" and v != "token"]
