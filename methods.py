"""The tables of methods: a name, perhaps with an option after a colon -> a drafter or a verifier.

    python main.py --drafter early_exit:4 --verifier block
    python main.py --verifier tree:3,2,1
    python main.py --drafter my_drafter.py              # a file that defines `propose`; a verifier: `verify`

The tables are DRAFTERS and VERIFIERS.  Adding a method takes three steps:

    1. a file in drafters/ or samplers/, whose docstring names the paper
    2. an entry here
    3. a row of the table in docs/methods.md

The tests that run and judge whole tables then cover the new method, too.
"""
from collections.abc import Callable
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

import speculative
from autoregressive import autoregressive_sampling
from checks import checked_rule
from console import function_in, read_text
from drafters import adaptive, layer_skip, lookup
from drafters.cascade import cascade
from drafters.eagle import Eagle
from drafters.early_exit import EarlyExit, layers_of
from drafters.heads import head_beside
from drafters.jacobi import Jacobi
from drafters.medusa import Medusa
from drafters.ngram import NGram
from drafters.parallel import Parallel
from drafters.suffix import Suffix
from drafters.vocabularies import SLEM, TLI
from samplers import block, lossy, traversal
from samplers.coupling import coupled_baseline, coupled_sampling
from samplers.k_seq import K_SEQ
from samplers.multi_draft import GREEDY
from samplers.tree import shape_of_option, tree_sampling
from samplers.tree_model import depths, with_tree
from samplers.tree_rules import SEQUOIA, SPECINFER, likeliest, surest
from sampling import prepare
from speculative import speculative_sampling
from utils import load_model


class Drafter(NamedTuple):
    """An entry of DRAFTERS."""
    file: str
    make: Callable                  # (models, option, tokens, K, settings) -> Pair
    option: Callable | None = None  # the text after the colon -> the option, or ValueError; None: no option
    trained: str = ""               # what has to be trained: "draft", "head" or nothing
    grows: str = ""                 # "any": its draft model grows any tree; "own": it grows a tree of
                                    # chosen tokens, for the verifier `tree` only; "": it grows none
    one_text: bool = False          # it remembers one text, so it cannot draft for a batch
    lossless: bool | None = True    # None: not known


class Verifier(NamedTuple):
    """An entry of VERIFIERS: a `verify` for speculative_sampling, or a loop that replaces that function."""
    file: str
    verify: Callable | None = None  # option -> a verify
    loop: Callable | None = None    # (pair, option) -> a sampler
    option: Callable | None = None  # as in Drafter
    baseline: Callable | None = None    # replaces autoregressive_sampling
    tree: str = ""                  # "rule": it judges trees; "grow": also says how they grow; "": none
    tests_all: bool = False         # it also tests the drafts after a failed one
    lossless: bool | None = True


class Pair(NamedTuple):
    """What a drafter makes from the models: the arguments of a sampler."""
    draft: Callable | None          # a model, or None
    target: Callable
    propose: Callable = speculative.propose
    grow: Callable | None = None    # if the drafter grows a tree of its own


class Models:
    """The models of a command line.  The draft is loaded only if a drafter asks for it."""

    def __init__(self, draft_name, target_name, models_dir="models"):
        self.draft_name, self.target_name, self.models_dir = draft_name, target_name, models_dir
        self.target, self.encoder = load_model(target_name, models_dir)

    @cached_property
    def draft_and_encoder(self):
        return load_model(self.draft_name, self.models_dir)

    @property
    def draft(self):
        """The draft model.  Raises ValueError if its vocabulary is not the target's."""
        if not self.share_a_vocabulary:
            raise ValueError(f"{self.draft_name} and {self.target_name} have different vocabularies: take "
                             "two models of one family, or --drafter tli or slem, which work on the text")
        return self.draft_and_encoder[0]

    @property
    def share_a_vocabulary(self):
        encoder = self.draft_and_encoder[1]
        return encoder.ids == self.encoder.ids and encoder.ranks == self.encoder.ranks

    @property
    def draft_is_used(self):
        return "draft_and_encoder" in vars(self)

    def head(self, kind):
        """The name or folder of the target's head of this kind, or None."""
        return head_beside(self.target_name, kind, self.target)


# Options: the text after the colon, "" if there is none -> a value ------------------------------------------

def text_of_file(path):
    return read_text(path, "name a text file, as in ngram:notes.txt") if path else ""


def drafter_within(text):
    return chosen("drafter", text or "model", DRAFTERS)


# Drafters ---------------------------------------------------------------------------------------------------

def ngram(models, text, *_):
    model = NGram(models.target.n_vocab)
    model.learn(models.encoder.encode(text))
    return Pair(model, models.target)


def suffix(models, text, *_):
    memory = Suffix()
    memory.learn(models.encoder.encode(text))
    return Pair(None, models.target, memory.propose, memory.grow)


def staged(models, *_):
    return Pair(models.draft, models.target, cascade(speculative.propose, NGram(models.target.n_vocab)))


def jacobi(models, *_):
    answers = Jacobi(models.target)
    return Pair(None, answers.target, answers.propose)


def tli(models, *_):
    return Pair(TLI(*models.draft_and_encoder, models.encoder), models.target)


def slem(models, *_):
    return Pair(None, models.target, SLEM(*models.draft_and_encoder, models.encoder).propose)


def early_exit(models, n_layers, *_):
    """n_layers None: as many layers as the target's exit head was trained on; without such a head, half."""
    head = models.head("exit") if n_layers is None else None
    if n_layers is None and head is None:
        n_layers = len(models.target.params["blocks"]) // 2
    halves = EarlyExit(models.target, n_layers, head)
    return Pair(halves.draft, halves.target)


def skipped_layers(models, skipped, tokens, *_):
    if skipped is None:
        cost = layer_skip.seconds_per_token(models.target, [tokens[:models.target.n_ctx - 20]], n_tokens=20)
        n_layer = len(models.target.params["blocks"])
        skipped = layer_skip.search(cost, n_layer, np.random.default_rng(0), steps=20)
    halves = layer_skip.LayerSkip(models.target, *skipped)
    return Pair(halves.draft, halves.target, layer_skip.DraftExit())


def eagle(models, *_):
    head = Eagle(models.target, models.head("eagle") or "demo-eagle")
    return Pair(head, models.target, head.propose)


def medusa(models, *_):
    heads = Medusa(models.target, models.head("medusa") or "demo-medusa")
    return Pair(None, models.target, heads.propose, heads.grow)


def parallel(models, *_):
    head = Parallel(models.target, models.head("parallel") or "demo-parallel")
    return Pair(None, models.target, head.propose)


def around(wrapper):
    """The `make` of a drafter that wraps another one and chooses the number of drafts in each round."""
    def make(models, within, tokens, K, settings):
        pair = within.entry.make(models, within.option, tokens, K, settings)
        return pair._replace(propose=wrapper(pair, tokens, K, settings))
    return make


def optimum(pair, tokens, K, settings):
    """Optimum with the costs c and v, measured now for this prompt."""
    tokens, to_probs, _ = prepare([pair.draft, pair.target], tokens, 0, **settings)
    costs = adaptive.measured_costs(pair.draft, pair.target, pair.propose, tokens, K, to_probs)
    return adaptive.Optimum(**costs, K=K, propose=pair.propose)


def confident(pair, *_):
    """Confident asks for one draft at a time, and a parallel head would need a pass for each.  So this head
    gets a threshold and stops by itself."""
    head = getattr(pair.propose, "__self__", None)
    if isinstance(head, Parallel):
        return Parallel(head.target, head.params, threshold=.4).propose
    return adaptive.Confident(pair.propose)


DRAFTERS = {
    "model": Drafter("speculative.py", lambda models, *_: Pair(models.draft, models.target), trained="draft",
                     grows="any"),
    "lookup": Drafter("drafters/lookup.py", lambda models, *_: Pair(None, models.target, lookup.propose)),
    "ngram": Drafter("drafters/ngram.py", ngram, text_of_file, grows="any"),
    "suffix": Drafter("drafters/suffix.py", suffix, text_of_file, grows="own", one_text=True),
    "early_exit": Drafter("drafters/early_exit.py", early_exit, layers_of, trained="head"),
    "layer_skip": Drafter("drafters/layer_skip.py", skipped_layers, layer_skip.sublayers, one_text=True),
    "eagle": Drafter("drafters/eagle.py", eagle, trained="head", grows="any", one_text=True),
    "medusa": Drafter("drafters/medusa.py", medusa, trained="head", grows="own", one_text=True),
    "parallel": Drafter("drafters/parallel.py", parallel, trained="head", one_text=True),
    "cascade": Drafter("drafters/cascade.py", staged, trained="draft"),
    "jacobi": Drafter("drafters/jacobi.py", jacobi, one_text=True),
    "tli": Drafter("drafters/vocabularies.py", tli, trained="draft", grows="any"),
    "slem": Drafter("drafters/vocabularies.py", slem, trained="draft"),
    "schedule": Drafter("drafters/adaptive.py", around(lambda pair, *_: adaptive.Schedule(pair.propose)),
                        drafter_within, trained="draft", one_text=True),
    "optimum": Drafter("drafters/adaptive.py", around(optimum), drafter_within, trained="draft",
                       one_text=True),
    "confident": Drafter("drafters/adaptive.py", around(confident),
                         drafter_within, trained="draft", one_text=True),
}


# Verifiers --------------------------------------------------------------------------------------------------

def of_trees(file, kind="rule", **choice):
    """An entry that judges trees: tree_sampling with these arguments."""
    def loop(pair, shape):
        own = {"grow": pair.grow} if pair.grow else {}

        def sampler(draft, target, tokens, n_tokens, K, rng, **settings):
            return tree_sampling(draft, target, tokens, n_tokens, shape, rng, **choice, **own, **settings)
        return sampler
    return Verifier(file, loop=loop, option=shape_of_option, tree=kind)


VERIFIERS = {
    "token": Verifier("speculative.py", lambda _: speculative.verify),
    "block": Verifier("samplers/block.py", lambda _: block.verify, tests_all=True),
    "tree": of_trees("samplers/tree.py", rule=SEQUOIA),
    "specinfer": of_trees("samplers/tree_rules.py", rule=SPECINFER),
    "k_seq": of_trees("samplers/k_seq.py", rule=K_SEQ),
    "traversal": of_trees("samplers/traversal.py", rule=SEQUOIA, walk=traversal.walk),
    "multi_draft": of_trees("samplers/multi_draft.py", rule=GREEDY),
    "likeliest": of_trees("samplers/tree_rules.py", "grow", grow=likeliest),
    "surest": of_trees("samplers/tree_rules.py", "grow", grow=surest),
    "coupled": Verifier("samplers/coupling.py", baseline=coupled_baseline,
                        loop=lambda pair, _: partial(coupled_sampling, propose=pair.propose)),
    "lenient": Verifier("samplers/lossy.py", lambda rule: rule, lossless=False,
                        option=partial(lossy.with_numbers, lossy.lenient)),
    "typical": Verifier("samplers/lossy.py", lambda rule: rule, lossless=False,
                        option=partial(lossy.with_numbers, lossy.typical)),
}


# A drafter with a verifier ----------------------------------------------------------------------------------

class Chosen(NamedTuple):
    """What was typed, such as "early_exit:4": a name, its entry, and the option."""
    name: str
    entry: Drafter | Verifier
    option: object

    @property
    def lossless(self):                                         # of a wrapper: that of the drafter within
        return self.option.lossless if isinstance(self.option, Chosen) else self.entry.lossless


class Method(NamedTuple):
    """A drafter and a verifier that fit together."""
    drafter: Chosen
    verifier: Chosen

    @property
    def lossless(self):
        """True, False, or None if it is not known."""
        both = self.drafter.lossless, self.verifier.lossless
        return False if False in both else None if None in both else True

    @property
    def shape(self):
        """The parents of the tree's nodes, or None for a line."""
        return self.verifier.option if self.verifier.entry.tree else None

    @property
    def verify(self):
        return self.verifier.entry.verify(self.verifier.option)

    @property
    def goes_in_batches(self):
        return self.verifier.entry.verify is not None and not self.drafter.entry.one_text

    def n_drafts(self, K):
        """The most drafts that a round can accept: K, or the number of levels of the tree."""
        return max(depths(self.shape)) if self.shape else K

    def pair(self, models, tokens, K, settings):
        """What the drafter makes from the models: a Pair."""
        if self.shape:
            models.target = with_tree(models.target)        # heads must read the model that scores the tree
        pair = self.drafter.entry.make(models, self.drafter.option, tokens, K, settings)
        return pair._replace(draft=with_tree(pair.draft)) if self.shape else pair

    @property
    def own_baseline(self):
        """The loop that replaces autoregressive_sampling, or None.  If there is one, no draft changes the
        text, at any temperature."""
        return self.verifier.entry.baseline

    def baseline(self, draft, target, tokens, n_tokens, K, rng, **settings):
        """The target alone, called like `sampler`."""
        return (self.own_baseline or autoregressive_sampling)(target, tokens, n_tokens, rng, **settings)

    def own_loop(self, pair):
        """The loop that replaces speculative_sampling, called like it, or None."""
        return self.verifier.entry.loop and self.verifier.entry.loop(pair, self.verifier.option)

    def sampler(self, pair):
        """sampler(draft, target, tokens, n_tokens, K, rng, **settings) -> rounds."""
        return self.own_loop(pair) or partial(speculative_sampling, propose=pair.propose, verify=self.verify)


def choose(drafter, verifier):
    """Two words of a command line -> Method.  Raises ValueError if one is unknown or they do not fit."""
    drafter = chosen("drafter", drafter, DRAFTERS)
    verifier = chosen("verifier", verifier, VERIFIERS)
    grows, wanted = drafter.entry.grows, verifier.entry.tree
    if wanted and not grows:
        trees = [name for name, entry in DRAFTERS.items() if entry.grows]
        raise ValueError(f"--drafter {drafter.name} drafts a line of tokens and --verifier {verifier.name} "
                         f"judges a tree: use one of the drafters {', '.join(trees)}, or another verifier")
    if grows == "own" and wanted and verifier.name != "tree":
        raise ValueError(f"--drafter {drafter.name} grows a tree of its own, and --verifier {verifier.name} "
                         "judges other trees: use --verifier tree")
    return Method(drafter, verifier)


def chosen(kind, typed, table):
    """"early_exit:4" -> Chosen.  Raises ValueError."""
    name, colon, text = typed.partition(":")
    if name in table:
        entry = table[name]
        if colon and not entry.option:
            raise ValueError(f"--{kind} {typed}: {name} takes no option")
        try:
            return Chosen(name, entry, entry.option(text) if entry.option else None)
        except ValueError as error:
            raise ValueError(f"--{kind} {typed}: {error}") from None
    if not typed.endswith(".py"):
        raise ValueError(f"there is no {kind} {typed!r}: use one of {', '.join(table)}, or a file of your "
                         f"own, such as my_{kind}.py")
    if kind == "drafter":
        own = function_in(typed, "propose", like=speculative.propose)

        def make(models, *_):           # it may ask the draft model, if that has the same vocabulary
            draft = models.draft if models.share_a_vocabulary else None
            return Pair(draft, models.target, own)
        return Chosen(typed, Drafter(typed, make, lossless=None), None)
    own = checked_rule(function_in(typed, "verify", like=speculative.verify))
    return Chosen(typed, Verifier(typed, lambda _: own, lossless=None), None)
