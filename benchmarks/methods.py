"""Every drafter and sampler of this repository side by side, on the embedded pair.

    all_methods(draft, target, Ks)      the list: a new method is one more entry
    methods_table(settings)             a row for each method and temperature, at its own best K or shape

The prompts are those of prompts.txt and one that repeats itself.  Each shape of a method runs once on some of
them; then the fastest takes turns with the baseline and the other methods.  What things cost is told in steps
of the target alone: a pass over one row, and what follows it until there is a token.

    easy, hard, repeating   tokens a target pass on the November morning, the engine and the rain below
    rows a pass             of the target: the drafts and one
    c                       drafting, a draft
    v                       the target's pass over these rows, and what follows it until there are tokens
    cost                    of a round: c times its drafts, and v
    predicted               tokens per pass / cost; the prompt's pass counts in what is measured alone
    weights MB              beyond those of the target
    lines                   of its file
    deviation               of the text's distribution from the target's, computed by lossless.check

But: this pair lies in the processor's cache, where calls and not weights take the time; at full size v is
nearer to 1.
"""
import math
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

import numpy as np

import lossless
from benchmarks.measure import size_of
from benchmarks.pairs import alone, generate, load_pair, text_of, typical
from benchmarks.synthetic import tiny_head, tiny_target
from drafters import layer_skip, lookup
from drafters.adaptive import Confident, Schedule
from drafters.eagle import Eagle
from drafters.early_exit import EarlyExit
from drafters.heads import head_shapes
from drafters.medusa import Medusa
from drafters.ngram import NGram
from reporting.stats import acceptance, is_tree, ratio
from samplers import block, lossy
from samplers.k_seq import K_SEQ
from samplers.tree import tree_sampling
from samplers.tree_model import with_tree
from samplers.tree_rules import SEQUOIA, SPECINFER, likeliest, surest
from speculative import speculative_sampling
from utils import load_model

ROOT = Path(__file__).resolve().parent.parent
EASY = "It was a cold, grey morning in November, and the fog lay thick upon the river when we"
HARD = "The engine had been built at Leeds in 1868; it weighed 34 tons, and its boiler carried 120 pounds of"
REPEATING = ("The rain fell on the roof, and the rain fell on the road, and the rain fell on the river; "
             "the rain fell on the roof, and the rain fell on the road, and the rain fell on")
ROUNDING = 1e-9             # a deviation below it
N_EXIT = 4                  # of the target's 16 layers
MOST_K = 16                 # where K adapts itself
TREES = [(2, 1), (2, 1, 1), (3, 1, 1), (2, 2, 1), (3, 2, 1), (4, 2, 1, 1)]      # children a node, by level
SMALL_TREES = {1: (2,), 2: (2, 1), 3: (3,), 4: (1, 2)}      # in the place of K, where all is walked through


class Method(NamedTuple):
    """An entry of the table."""
    name: str
    file: str               # where it is written
    models: list            # what is timed, the target last
    shapes: list            # K, or whatever else a method has in its place; the best is taken
    run: Callable           # (*models, tokens, n_tokens, shape, rng, **settings) -> rounds
    check: Callable         # (Ks=.., n_tokens=..) -> the largest deviation from the target's distribution
    weights: int = 0        # bytes beyond those of the target
    trained: bool = False   # does it need training?
    tests_all: bool = False     # of a round's drafts also those after a refusal


def chain(**doors):
    """`run` of Algorithm 2 with another `propose` or `verify`; draft is None where the models hold none."""
    def run(*arguments, **settings):
        *draft, target, tokens, n_tokens, K, rng = arguments
        return speculative_sampling(*(draft or [None]), target, tokens, n_tokens, K, rng, **doors, **settings)
    return run


def checked(run, **settings):
    """`check` of a `run` that takes a draft and a target; settings as lossless.check takes them."""
    return lambda **cases: lossless.check(run, **settings, **cases)


def checked_in_target(propose_of):
    """`check` of a drafter that lives in its target: propose_of(target) -> propose, on a tiny GPT-2."""
    def check(Ks, n_tokens):
        target = tiny_target()
        run = chain(propose=propose_of(target))
        return lossless.check(run, [(None, target)], Ks, min(3, n_tokens))
    return check


def checked_halves(halves_of):
    """The same of a drafter that is a part of its target: halves_of(target) has .draft and .target."""
    def check(Ks, n_tokens):
        halves = halves_of(tiny_target())
        return lossless.check(chain(), [(halves.draft, halves.target)], Ks, min(3, n_tokens))
    return check


def all_methods(draft, target, Ks, texts=()):
    """The list.  Ks: the numbers of drafts to try; texts: tokens, to find out which layers can be skipped."""
    methods = [*with_draft(draft, target, Ks), *trees(draft, target), *without(target, Ks)]
    if texts:
        methods.append(layers_skipped(target, Ks, texts))
    if all((ROOT / "models" / name).is_dir() for name in ("demo-eagle", "demo-medusa", "demo-exit")):
        methods += heads(target, Ks)
    return methods


def with_draft(draft, target, Ks):
    """A draft model, which was trained with its target."""
    def method(name, file, shapes=Ks, tests_all=False, **doors):
        run = chain(**doors)
        return Method(name, file, [draft, target], shapes, run, checked(run), size_of(draft), True, tests_all)

    def confident(*arguments, **settings):
        *models, tokens, n_tokens, threshold, rng = arguments
        run = chain(propose=Confident(threshold=threshold))
        return run(*models, tokens, n_tokens, MOST_K, rng, **settings)

    return [
        method("draft model", "speculative.py"),
        method("block verification", "samplers/block.py", tests_all=True, verify=block.verify),
        method("K by +2, -1", "drafters/adaptive.py", [MOST_K], propose=Schedule()),
        method("lenience 0.3", "samplers/lossy.py", verify=lossy.lenient(.3)),
        method("typical acceptance", "samplers/lossy.py", verify=lossy.typical()),
        Method("K by confidence", "drafters/adaptive.py", [draft, target], [0.05, 0.1, 0.2, 0.3], confident,
               checked(chain(propose=Confident(threshold=0.6))), size_of(draft), True),
    ]


def trees(draft, target):
    """Several drafts for the same place, and one pass for all."""
    def method(name, file="samplers/tree.py", **choice):
        def run(draft, target, tokens, n_tokens, widths, rng, **settings):
            return tree_sampling(draft, target, tokens, n_tokens, widths, rng, **choice, **settings)

        def walked(draft, target, tokens, n_tokens, K, rng, **settings):
            return run(draft, target, tokens, n_tokens, SMALL_TREES[K], rng, **settings)

        def check(Ks, n_tokens):
            return lossless.check(walked, None, Ks, min(3, n_tokens))

        models = [with_tree(draft), with_tree(target)]
        return Method(name, file, models, TREES, run, check, size_of(draft), True)

    return [
        method("tree, SpecInfer", rule=SPECINFER),
        method("tree, Sequoia", rule=SEQUOIA),
        method("tree, K-SEQ", "samplers/k_seq.py", rule=K_SEQ),
        method("tree of the likeliest", grow=likeliest),
        method("likeliest, as EAGLE-2", grow=surest),
    ]


def without(target, Ks):
    """Nothing but the target, as it is."""
    copied = chain(propose=lookup.propose)
    halves = EarlyExit(target, N_EXIT)
    return [
        Method("prompt lookup", "drafters/lookup.py", [target], Ks, copied, checked(copied)),
        Method("n-grams of the text", "drafters/ngram.py", [NGram(target.n_vocab), target], Ks, chain(),
               checked(chain(), pairs=[(NGram(3), lossless.table(4, zeros=0.4))])),
        Method(f"early exit, {N_EXIT} layers", "drafters/early_exit.py", [halves.draft, halves.target], Ks,
               chain(), checked_halves(lambda tiny: EarlyExit(tiny, 1))),
    ]


def layers_skipped(target, Ks, texts):
    """The target without the sublayers that a short search found superfluous."""
    cost, n_layer = layer_skip.seconds_per_token(target, texts), len(target.params["blocks"])
    attn, mlp = layer_skip.search(cost, n_layer, np.random.default_rng(0), steps=20)
    halves = layer_skip.LayerSkip(target, attn, mlp)

    def run(*arguments, **settings):
        return speculative_sampling(*arguments, propose=layer_skip.DraftExit(), **settings)

    def check(Ks, n_tokens):
        tiny = layer_skip.LayerSkip(tiny_target(), attn=[0], mlp=[1])
        return lossless.check(run, [(tiny.draft, tiny.target)], Ks, min(3, n_tokens))

    return Method("layers skipped", "drafters/layer_skip.py", [halves.draft, halves.target], Ks, run, check)


def bytes_of(shapes):
    """Of float32 arrays, {name: shape}."""
    return 4 * sum(map(math.prod, shapes.values()))


def heads(target, Ks):
    """Drafters that read the target's states.  Their weights lie in models/."""
    eagle, medusa, n = Eagle(target), Medusa(target), target.params["wte"].shape[1]
    halves = EarlyExit(target, head="demo-exit")
    return [
        Method("eagle", "drafters/eagle.py", [target], Ks, chain(propose=eagle.propose),
               checked_in_target(lambda tiny: Eagle(tiny, head=tiny_head("eagle")).propose),
               weights=bytes_of(head_shapes("eagle", n, 0)), trained=True),
        Method("Medusa", "drafters/medusa.py", [target], Ks, chain(propose=medusa.propose),
               checked_in_target(lambda tiny: Medusa(tiny, head=tiny_head("medusa")).propose),
               weights=bytes_of(head_shapes("medusa", n, medusa.n_heads)), trained=True),
        Method("early exit with a head", "drafters/early_exit.py", [halves.draft, halves.target], Ks, chain(),
               checked_halves(lambda tiny: EarlyExit(tiny, head=tiny_head("exit") | {"exit_layer": 1})),
               weights=bytes_of(head_shapes("exit", n, 0)), trained=True),
        tree_of_heads(target, weights=bytes_of(head_shapes("medusa", n, medusa.n_heads))),
    ]


def tree_of_heads(target, weights):
    """Medusa's heads as the paper has them, a tree of the likeliest."""
    def run_of(target, **more):
        head = Medusa(target, **more)

        def run(target, tokens, n_tokens, widths, rng, **settings):
            return tree_sampling(None, target, tokens, n_tokens, widths, rng, grow=head.grow, **settings)
        return run

    def check(Ks, n_tokens):
        target = with_tree(tiny_target())
        run = run_of(target, head=tiny_head("medusa"))

        def walked(draft, target, tokens, n_tokens, K, rng, **settings):
            return run(target, tokens, n_tokens, SMALL_TREES[K], rng, **settings)
        return lossless.check(walked, [(None, target)], Ks, min(3, n_tokens))

    target = with_tree(target)
    shapes = [(2, 1), (3, 1), (3, 2)]
    run = run_of(target)
    return Method("Medusa's tree", "drafters/medusa.py", [target], shapes, run, check, weights, True)


# The table --------------------------------------------------------------------------------------------------

def methods_table(settings):
    """A row for each method and temperature."""
    draft, target, prompts = load_pair(settings.pairs[0], settings.models_dir, settings.prompts)
    encoder = load_model(settings.pairs[0].split(":")[-1], settings.models_dir)[1]
    three = [encoder.encode(text) for text in (EASY, HARD, REPEATING)]
    prompts = [tokens for tokens in prompts if tokens not in three] + three
    everything = settings.methods == ["all"]
    texts = prompts[:1] if everything or "layers skipped" in settings.methods else ()     # a search
    methods = [method for method in all_methods(draft, target, settings.K, texts)
               if everything or method.name in settings.methods]
    deviations = [method.check(Ks=settings.check_K, n_tokens=settings.check_tokens) for method in methods]
    rows = []
    for temperature in settings.temperatures:
        measured = compare_methods(methods, target, prompts, temperature, settings)
        rows += [row | {"deviation": deviation, "lossless": deviation < ROUNDING}
                 for row, deviation in zip(measured, deviations)]
    return rows


def compare_methods(methods, target, prompts, temperature, settings):
    """A row for each method: its fastest shape, taking turns with the baseline and the others."""
    some = prompts[:4]
    n_tokens = settings.n_tokens
    generate(alone(n_tokens, temperature), [target], prompts)                   # the warm-up
    shapes = [fastest_shape(method, some, n_tokens, temperature) for method in methods]
    baseline, runs = [], [[] for _ in methods]
    for _ in range(settings.repetitions):
        baseline.append(generate(alone(n_tokens, temperature), [target], prompts))
        for method, shape, mine in zip(methods, shapes, runs):
            mine.append(generate(sampler_of(method, shape, n_tokens, temperature), method.models, prompts))
    return [{"method": method.name, "file": method.file, "T": temperature, "shape": str(shape)}
            | figures(baseline, mine, method.tests_all)
            | {"weights MB": method.weights / 1e6, "trained": method.trained, "lines": lines_of(method.file)}
            for method, shape, mine in zip(methods, shapes, runs)]


def lines_of(file):
    return len((ROOT / file).read_text(encoding="utf-8").splitlines())


def sampler_of(method, shape, n_tokens, temperature):
    """A sampler for `generate`."""
    def sampler(*arguments):
        *models_and_tokens, rng = arguments
        return method.run(*models_and_tokens, n_tokens, shape, rng, temperature=temperature)
    return sampler


def fastest_shape(method, prompts, n_tokens, temperature):
    if len(method.shapes) == 1:
        return method.shapes[0]
    seconds = [generate(sampler_of(method, shape, n_tokens, temperature), method.models, prompts).seconds
               for shape in method.shapes]
    return method.shapes[seconds.index(min(seconds))]


def figures(baseline, runs, tests_all):
    """What runs of a method gain over those of the baseline, and what a round of theirs costs."""
    rounds, texts = runs[0].rounds, runs[0].texts               # repetitions share seeds, hence rounds
    step = typical(baseline, "pass") + typical(baseline, "settling")
    drafting = typical(runs, "drafting") / step
    v = (typical(runs, "pass") + typical(runs, "settling")) / step
    n_drafts, per_pass = mean(len(r.drafts) for r in rounds), tokens_per_pass(rounds)
    alpha = None if is_tree(rounds[0]) else ratio(*acceptance(rounds, tests_all))
    return {"tokens per pass": per_pass,
            "easy, hard, repeating": [tokens_per_pass(text) for text in texts[-3:]],
            "rows a pass": n_drafts + 1, "acceptance": alpha, "kept": kept(rounds),
            "c": ratio(drafting, n_drafts), "v": v, "cost": drafting + v,
            "predicted": per_pass / (drafting + v),
            "measured": median(a.seconds / b.seconds for a, b in zip(baseline, runs))}


def tokens_per_pass(rounds):
    return len(text_of(rounds)) / len(rounds)


def kept(rounds):
    """The share of the rounds that keep at least one draft, two, ..

    >>> from sampling import Round
    >>> kept([Round([5, 6, 7], [5, 6], 2, [], []), Round([5, 8], [5, 9], 1, [], [])])
    [1, 0.5]
    """
    most = max(r.n_accepted for r in rounds)
    return [mean(r.n_accepted > j for r in rounds) for j in range(most)]
