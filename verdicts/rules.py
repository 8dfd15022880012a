"""The rules that threads argue about.

    RULES["match"].sampler(draft, target, tokens, n_tokens, K, rng, **settings)

Most are a file of this repository with a line or two changed, `of` the museum: RULES, at the end, says which
change, and mistakes.py and unusual.py have it.  The others are the functions below, which keep the letters of
speculative.py: q the target, p the draft, d or x̃ a drafted token, (q - p)_+ the residual.  Which thread is
about which rule is in cases.ini, and what the judge finds in README.md.

Some rules are right; they stand here because somebody doubted them.

But: these are reductions, ours unless the case says otherwise: what an engine does to one sequence, without
its batches, kernels and precision.  What chance can do in them is multiplied out by lossless.py; the few
rules that it cannot walk are in integrals.py.
"""
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from drafters import lookup
from samplers import block, lossy
from samplers.constraints import constrained
from samplers.tree_rules import SEQUOIA, SPECINFER, likeliest, most, normalized, select_chosen, select_drawn
from sampling import sample
from speculative import propose, speculative_sampling, verify
from verdicts.museum import CHANGES, changed, penalty, tree_of

penalized = partial(constrained, process=penalty)       # a target like any other, q(. | text)

# A line of drafts -------------------------------------------------------------------------------------------

def beam(draft, x, k, to_probs, rng, width=2):
    """The likeliest of the texts that a beam of two finds; p is the draft's own."""
    found = [([], [], 1.0)]                                     # (drafts, their p, the probability of all)
    for _ in range(k):
        grown = []
        for drafts, rows, chance in found:
            p = to_probs(draft(x + drafts), 1)[0]
            grown += [([*drafts, token], [*rows, p], chance * p[token]) for token in most(p, width)]
        found = sorted(grown, key=lambda text: -text[2])[:width]
    return found[0][:2]


def beam_as_point_masses(draft, x, k, to_probs, rng):
    return beam(draft, x, k, to_probs, rng)[0], None


def zeroed_and_restored(target_probs, draft_probs, drafts, rng):
    """Right for point masses: each correction is drawn from q without d, and q(d) is put back."""
    q, corrections = target_probs.copy(), []
    for j, token in enumerate(drafts):
        kept, q[j, token] = q[j, token], 0
        corrections.append(sample(q[j], rng) if q[j].any() else token)
        q[j, token] = kept
    for j, token in enumerate(drafts):
        if not rng.random() < q[j, token]:
            return j, corrections[j]
    return len(drafts), sample(q[-1], rng)


# A node of a tree -------------------------------------------------------------------------------------------

def draw_top(p, width, rng):
    return [token for token in most(p, width) if p[token] > 0]


def select_top_with_p_1(q, p, tokens, rng):
    """Right: each child is a point mass for what is left of q."""
    for i, token in enumerate(tokens):
        if rng.random() < q[token]:                             # u <= q / 1
            return i, token
        q = normalized(np.where(np.arange(len(q)) == token, 0, q))
    return None, sample(q, rng)


def select_by_one_coin(q, p, tokens, rng, to_the_end=False):
    """Right: one coin against the children's q, added up; refused, a new one for the rest.  The coin that
    refused all children must not draw the last token, `to_the_end`: it is known to be large."""
    coin, passed = rng.random(), 0.0
    for i, token in enumerate(tokens):
        passed += q[token]
        if coin < passed:
            return i, token
    rest = np.where(np.isin(np.arange(len(q)), tokens), 0, q)
    again = SimpleNamespace(random=lambda: coin)
    return None, sample(rest if rest.any() else q, again if to_the_end else rng)


def select_by_a_draw_for_each(q, p, tokens, rng):
    """Each path has a draw of its own for the place that they share; one that matches wins."""
    for i, token in enumerate(tokens):
        own = sample(q, rng)
        if own == token:
            return i, token
    return None, own if tokens else sample(q, rng)


# All of them ------------------------------------------------------------------------------------------------

class Rule(NamedTuple):
    """A rule as `lossless.check` calls it, its code to be shown, and what it is compared with."""
    sampler: object         # (draft, target, tokens, n_tokens, K, rng, **settings) -> rounds
    code: tuple             # functions, or (module, changes)
    beside: str             # the rule that accepts what can be accepted of these drafts


def of(*names, code=(), beside="Algorithm 2", **how):
    """Entries of the museum, all of one file."""
    file, sampler_of, _ = CHANGES[names[0]]
    changes = [change for name in names for change in CHANGES[name][2]]
    return Rule(sampler_of(changed(file, *changes), **how), ((file, changes), *code), beside)


def line(propose=propose, verify=verify, code=(), beside="Algorithm 2"):
    sampler = partial(speculative_sampling, propose=propose, verify=verify)
    return Rule(sampler, code or (verify,), beside)


def node(draw, select, code=(), beside="tree drawn without replacement", **how):
    return Rule(tree_of(widths=SHAPES.get, rule=(draw, select), **how), code or (select,), beside)


SHAPES = {1: [-1, -1], 2: [-1, -1, 0, 0], 3: [-1, -1, -1]}      # K -> the parent of each node
IN_A_TREE = dict(widths=SHAPES.get, beside="tree drawn without replacement")
CHOSEN = "the draft is the argmax, and recorded as chosen"
AS_CHOSEN = dict(beside="argmax as point masses")

RULES = {
    "Algorithm 2": line(),
    "argmax, softmax recorded": of("the draft is the argmax, its distribution recorded as the softmax"),
    "argmax as point masses": of(CHOSEN),
    "drawn, as point masses": of("drawn drafts are recorded as chosen"),
    "filtered, raw recorded": of("the draft is drawn after top-k, its distribution recorded before"),
    "drawn from rounded": of("the draft is drawn from p in eight bits, and p recorded in full"),
    "beam, softmax recorded": line(beam, code=(beam,)),
    "beam as point masses": line(beam_as_point_masses, code=(beam, beam_as_point_masses)),
    "chosen, unlikely last dropped": of(
        "the draft is the argmax, and is not made if the last is unlikely", **AS_CHOSEN),
    "exit by the coin of the test": of("drafting stops after an unlikely token as its own coin says"),
    "match": of("a draw from q is kept unless it is the draft"),
    "match, argmax": of("a draw from q is kept unless it is the draft", CHOSEN),
    "accept all, looked up": of("every draft is accepted", propose=lookup.propose, beside="looked up"),
    "looked up": line(lookup.propose, code=(lookup.propose,), beside="looked up"),
    "uniform is zero": of("the coin is 0"),
    "over the largest": of("the accept test is q over the largest q"),
    "softmax of residual": of("the residual is a softmax of its positive part"),
    "target after refusal": of("after a rejection the target's distribution is used, not the residual"),
    "match or ratio": of("a draw from q is kept where it is not the draft"),
    "one position late": of("a refusal draws from the next row"),
    "first untested": of("the first draft is not tested"),
    "EOS impossible at drafts": of("the target cannot say EOS in the place of a draft"),
    "largest of residual": of("the correction is the likeliest of the residual"),
    "zeroed for good": of("q of each draft is 0 before the tests", CHOSEN, **AS_CHOSEN),
    "zeroed and restored": of(
        CHOSEN, verify=zeroed_and_restored, code=(zeroed_and_restored,), **AS_CHOSEN),
    "typical": line(verify=lossy.typical()),
    "block": line(verify=block.verify),
    "block, point masses": of(CHOSEN, verify=block.verify, code=(block.verify,), **AS_CHOSEN),
    "block until first failure": of("block: the first refusal ends the round"),
    "settings for the draft alone": of("the target's filters are forgotten"),
    "judged at temperature 1": of("the target's filters are forgotten",
                                  "the draft is drawn after top-k, its distribution recorded before"),
    "greedy target": of("the target is greedy"),
    "greedy but for the bonus": of("the target is greedy at the drafts"),
    "filters at once": of("top-p after top-k counts what top-k took away"),
    "penalty on the bonus alone": of("penalty: at the bonus only"),
    "penalty ignored": of("penalty: never"),
    "on after EOS": of("the round goes on after an accepted EOS"),
    "refused drafts stay": of("all drafts stay in the text"),
    "tree drawn without replacement": node(*SEQUOIA),
    "tree drawn, order fixed": node(*SPECINFER, beside="tree drawn, order fixed"),
    "tree of top tokens, p = 1": node(draw_top, select_top_with_p_1),
    "tree of top tokens, softmax recorded": node(draw_top, select_drawn, (draw_top, select_drawn)),
    "tree, one coin": node(draw_top, select_by_one_coin),
    "tree, one coin to the end": node(
        draw_top, partial(select_by_one_coin, to_the_end=True), (select_by_one_coin,)),
    "tree, residual in place": of("tree: the residual is written over q", **IN_A_TREE),
    "tree, match": node(*SEQUOIA, (likeliest, select_chosen), grow=likeliest),
    "tree, a draw for each path": node(draw_top, select_by_a_draw_for_each),
    "tree, end of the row before": of("tree: the bonus from the parent's row", **IN_A_TREE),
    "tree, wrong rows": of("tree: the rows are one too late", **IN_A_TREE),
}
