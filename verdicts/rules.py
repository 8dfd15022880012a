"""The rules that threads argue about, each as the few lines in which it differs from speculative.py.

    RULES["match"].sampler(draft, target, tokens, n_tokens, K, rng, **settings)

Read them beside `propose` and `verify` of speculative.py, whose letters they keep: q the target, p the
draft, d or x̃ a drafted token, (q - p)_+ the residual.  RULES, at the end, says for each whether it is about
drafting, judging or something else, and gives it the signature that `lossless.check` wants.  Which thread is
about which rule is in cases.ini, and what the judge finds in README.md.

Some rules are right; they stand here because somebody doubted them.

But: these are reductions, ours unless the case says otherwise: what an engine does to one sequence, without
its batches, kernels and precision.  What chance can do in them is multiplied out by lossless.py; the few
rules that it cannot walk are in integrals.py.
"""
from typing import NamedTuple

import numpy as np

from drafters import lookup
from samplers import block, lossy
from samplers.tree import tree_sampling, walk
from samplers.tree_rules import SEQUOIA, SPECINFER, likeliest, most, normalized, select_drawn
from sampling import probabilities, sample
from speculative import propose, speculative_sampling, verify

# Drafting: what is recorded as p ----------------------------------------------------------------------------

def argmax(draft, x, k, to_probs, rng):
    """Wrong with Algorithm 2's test: p is not what the drafts come from."""
    drafts, p = [], []
    for _ in range(k):
        p.append(to_probs(draft(x + drafts), 1)[0])             # recorded: the softmax
        drafts.append(int(p[-1].argmax()))                      # drafted: its largest
    return drafts, p


def argmax_as_point_masses(draft, x, k, to_probs, rng):
    return argmax(draft, x, k, to_probs, rng)[0], None          # p = 1 at the draft


def drawn_as_point_masses(draft, x, k, to_probs, rng):
    """Right: given d, a coin q(d) and else a draw from q without d give q, however d came about."""
    return propose(draft, x, k, to_probs, rng)[0], None


def filtered_recorded_raw(draft, x, k, to_probs, rng):
    """Drawn after temperature, top-k and top-p; recorded before them: q / p is too large."""
    drafts, _ = propose(draft, x, k, to_probs, rng)
    return drafts, [probabilities(draft(x + drafts[:j]))[0] for j in range(len(drafts))]


def drawn_from_rounded(draft, x, k, to_probs, rng):
    """Drawn from p in bfloat16 (8 bits), recorded in full."""
    drafts, p = [], []
    for _ in range(k):
        p.append(to_probs(draft(x + drafts), 1)[0])
        mantissa, exponent = np.frexp(p[-1])
        drafts.append(sample(np.ldexp(np.round(mantissa * 256) / 256, exponent), rng))
    return drafts, p


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


def unlikely_last_dropped(draft, x, k, to_probs, rng, drawn=True):
    """The last draft goes if the drafter thought it unlikely: harmless only if it was chosen, not drawn."""
    drafts, p = (propose if drawn else argmax)(draft, x, k, to_probs, rng)
    if drafts and p[-1][drafts[-1]] < .4:
        drafts, p = drafts[:-1], p[:-1]
    return drafts, p if drawn else None


def chosen_unlikely_last_dropped(draft, x, k, to_probs, rng):
    return unlikely_last_dropped(draft, x, k, to_probs, rng, drawn=False)


# Judging: the accept test, and what follows a refusal -------------------------------------------------------

def match(target_probs, draft_probs, drafts, rng):
    """Right: each token is the target's own draw; drafts only say how far it may draw ahead."""
    for j, token in enumerate(drafts):
        own = sample(target_probs[j], rng)                      # t ~ q(. | .., x̃_1 .. x̃_j)
        if own != token:
            return j, own
    return len(drafts), sample(target_probs[-1], rng)


def accept_all(target_probs, draft_probs, drafts, rng):
    return len(drafts), sample(target_probs[-1], rng)


def uniform_is_zero(target_probs, draft_probs, drafts, rng):
    return verify(target_probs, draft_probs, drafts, AfterZeros(rng, len(drafts)))


class AfterZeros:
    """A generator whose accept coins are 0; what comes after them is drawn."""
    def __init__(self, rng, n_coins):
        self.rng, self.coins = rng, [0.0] * n_coins

    def random(self):
        return self.coins.pop() if self.coins else self.rng.random()


def over_the_largest(target_probs, draft_probs, drafts, rng):
    """The draft's probability under the target, over the target's largest: p is not asked."""
    for j, token in enumerate(drafts):
        q = target_probs[j]
        if not rng.random() * q.max() < q[token]:
            return j, sample(q, rng)
    return len(drafts), sample(target_probs[-1], rng)


def softmax_of_residual(target_probs, draft_probs, drafts, rng):
    for j, token in enumerate(drafts):
        q, p = target_probs[j], draft_probs[j]
        if not rng.random() * p[token] < q[token]:
            return j, sample(np.exp(np.maximum(q - p, 0)), rng)     # (q - p)_+ through a softmax
    return len(drafts), sample(target_probs[-1], rng)


def target_after_refusal(target_probs, draft_probs, drafts, rng):
    for j, token in enumerate(drafts):
        q, p = target_probs[j], draft_probs[j]
        if not rng.random() * p[token] < q[token]:
            return j, sample(q, rng)                                # q itself, without - p
    return len(drafts), sample(target_probs[-1], rng)


def match_or_ratio(target_probs, draft_probs, drafts, rng):
    """Kept if the target's own draw is the draft or if the ratio's coin says so; else that draw."""
    for j, token in enumerate(drafts):
        q, p = target_probs[j], draft_probs[j]
        own = sample(q, rng)
        if own != token and not rng.random() * p[token] < q[token]:
            return j, own
    return len(drafts), sample(target_probs[-1], rng)


def one_position_late(target_probs, draft_probs, drafts, rng):
    """After a refusal the next place is asked, whose q has the refused draft before it."""
    for j, token in enumerate(drafts):
        if not rng.random() * draft_probs[j][token] < target_probs[j][token]:
            return j, sample(target_probs[j + 1], rng)
    return len(drafts), sample(target_probs[-1], rng)


def first_untested(target_probs, draft_probs, drafts, rng):
    tested = min(1, len(drafts))                                # from the second on
    kept, token = verify(target_probs[tested:], draft_probs[tested:], drafts[tested:], rng)
    return tested + kept, token


def eos_impossible(target_probs, draft_probs, drafts, rng, eos=1):
    """q(EOS) = 0 wherever a draft is judged."""
    q = target_probs.copy()
    for row in q[:-1]:
        row[eos] = 0
        row[:] = normalized(row)
    return verify(q, draft_probs, drafts, rng)


def largest_of_residual(target_probs, draft_probs, drafts, rng):
    """The noise of the race lands in a copy: what is left is the largest of the residual."""
    for j, token in enumerate(drafts):
        q, p = target_probs[j], draft_probs[j]
        if not rng.random() * p[token] < q[token]:
            return j, int(np.maximum(q - p, 0).argmax())
    return len(drafts), sample(target_probs[-1], rng)


def zeroed_for_good(target_probs, draft_probs, drafts, rng):
    """q(d) becomes 0 in place, for the correction, before the tests are made."""
    q = target_probs.copy()
    q[np.arange(len(drafts)), drafts] = 0
    return verify(q, draft_probs, drafts, rng)


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


def block_until_first_failure(target_probs, draft_probs, drafts, rng):
    """Block verification, broken off at the first place that does not pass."""
    q, p = target_probs, [*draft_probs, np.zeros_like(target_probs[-1])]
    weight, tau, residual = 1.0, 0, np.maximum(q[0] - p[0], 0)
    for j, token in enumerate(drafts, 1):
        weight = min(weight * q[j - 1][token], p[j - 1][token]) / p[j - 1][token]      # P_j
        rest = np.maximum(weight * q[j] - p[j], 0)
        z = rest.sum()
        if not rng.random() * (z + 1 - weight) < z:             # u < h_j
            break
        tau, residual = j, rest
    return tau, sample(residual if residual.any() else q[tau], rng)


# Another target than the one that was asked for -------------------------------------------------------------

def settings_for_the_draft_alone(draft, target, x, n_tokens, K, rng, **settings):
    """q is the target's plain softmax, whatever temperature, top-k and top-p say."""
    def proposal(draft, x, k, _, rng):
        return propose(draft, x, k, lambda logits, n_rows: probabilities(logits, **settings), rng)
    return speculative_sampling(draft, target, x, n_tokens, K, rng, propose=proposal)


def judged_at_temperature_1(draft, target, x, n_tokens, K, rng, temperature=1.0):
    """Drawn at the temperature; in the test, the residual and the bonus p and q are those at 1."""
    def proposal(draft, x, k, to_probs, rng):
        drafts, _ = propose(draft, x, k, lambda logits, n_rows: probabilities(logits, temperature), rng)
        return drafts, [to_probs(draft(x + drafts[:j]), 1)[0] for j in range(len(drafts))]
    return speculative_sampling(draft, target, x, n_tokens, K, rng, propose=proposal)


def one_hot(logits):
    return np.where(np.arange(logits.shape[-1]) == logits.argmax(axis=-1)[:, None], 0.0, -np.inf)


def greedy_target(draft, target, x, n_tokens, K, rng, **settings):
    return speculative_sampling(draft, lambda tokens, n_last=1: one_hot(target(tokens, n_last)),
                                x, n_tokens, K, rng, **settings)


def greedy_but_for_the_bonus(draft, target, x, n_tokens, K, rng, **settings):
    def mixed(tokens, n_last=1):
        logits = target(tokens, n_last)
        return np.concatenate([one_hot(logits[:-1]), logits[-1:]])
    return speculative_sampling(draft, mixed, x, n_tokens, K, rng, **settings)


def filters_at_once(draft, target, x, n_tokens, K, rng, *, top_k, top_p):
    """top-k and top-p both look at the whole softmax; one after the other, top-p looks at what is left."""
    def filtered(model):
        def both(tokens, n_last=1):
            logits = model(tokens, n_last)
            keep = (probabilities(logits, top_k=top_k) > 0) & (probabilities(logits, top_p=top_p) > 0)
            return np.where(keep, logits, -np.inf)
        return both
    return speculative_sampling(filtered(draft), filtered(target), x, n_tokens, K, rng)


def penalized(model, penalty=2.0):
    """Each token of the text so far loses `penalty`: a target like any other, q(. | text)."""
    def penalizing(tokens, n_last=1):
        logits = np.array(model(tokens, n_last))
        for row, n in zip(logits, range(len(tokens) - n_last + 1, len(tokens) + 1)):
            row[[token for token in set(tokens[:n]) if token < len(row)]] -= penalty
        return logits                                           # [n_last, n_vocab]
    penalizing.plain = model
    return penalizing


def penalty_on_the_bonus_alone(draft, target, x, n_tokens, K, rng, **settings):
    def mixed(tokens, n_last=1):
        return np.concatenate([target.plain(tokens, n_last)[:-1], target(tokens)])
    return speculative_sampling(draft, mixed, x, n_tokens, K, rng, **settings)


def penalty_ignored(draft, target, x, n_tokens, K, rng, **settings):
    return speculative_sampling(draft, target.plain, x, n_tokens, K, rng, **settings)


# The end of the text ----------------------------------------------------------------------------------------

def on_after_eos(draft, target, x, n_tokens, K, rng, eos):
    """What the round still holds after an accepted EOS stays in the text."""
    for step in speculative_sampling(draft, target, x, n_tokens, K, rng):
        yield step
        if eos in step.tokens:
            return


def refused_drafts_stay(draft, target, x, n_tokens, K, rng, **settings):
    x, T = list(x), len(x) + n_tokens
    while len(x) < T:
        step = next(speculative_sampling(draft, target, x, T - len(x), K, rng, **settings))
        new = (step.drafts + step.tokens[-1:])[:T - len(x)]     # all the drafts, then the next token
        yield step._replace(tokens=new)
        x += new


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


def select_by_one_coin(q, p, tokens, rng):
    """Right: one coin against the children's q, added up; refused, a new one for the rest."""
    coin, passed = rng.random(), 0.0
    for i, token in enumerate(tokens):
        passed += q[token]
        if coin < passed:
            return i, token
    rest = np.where(np.isin(np.arange(len(q)), tokens), 0, q)
    return None, sample(rest if rest.any() else q, rng)


def select_and_end_by_one_coin(q, p, tokens, rng):
    """The coin that refused all children also draws the last token: it is known to be large."""
    coin, passed = rng.random(), 0.0
    for i, token in enumerate(tokens):
        passed += q[token]
        if coin < passed:
            return i, token
    rest = normalized(np.where(np.isin(np.arange(len(q)), tokens), 0, q))
    for token in np.flatnonzero(rest):
        if coin < rest[:token + 1].sum():
            break
    return None, int(token) if rest.any() else tokens[-1]


def select_by_a_draw_for_each(q, p, tokens, rng):
    """Each path has a draw of its own for the place that they share; one that matches wins."""
    for i, token in enumerate(tokens):
        own = sample(q, rng)
        if own == token:
            return i, token
    return None, own if tokens else sample(q, rng)


def select_in_place(q, p, tokens, rng):
    """As Sequoia's rule, q overwritten by its residual: the last line that draws from `q` is right."""
    q, p = q.copy(), p.copy()
    for i, token in enumerate(tokens):
        if rng.random() * p[token] < q[token]:
            return i, token
        q[:] = normalized(np.maximum(q - p, 0)) if (q > p).any() else q
        p[token] = 0
        p[:] = normalized(p)
    return None, sample(q, rng)


def end_of_the_row_before(q, p, nodes, parents, rule, rng):
    """After a whole path the last tested q is drawn from again, whose token is taken already."""
    q = q.copy()
    for node, parent in enumerate(parents):
        if node not in parents:                                 # a leaf
            q[node + 1] = q[parent + 1]
    return walk(q, p, nodes, parents, rule, rng)


def likeliest_nodes(draft, target, x, n_tokens, widths, rng, **settings):
    """Right: one draw of the target at each node, and the walk goes to the child that it is."""
    return tree_sampling(draft, target, x, n_tokens, widths, rng, grow=likeliest, **settings)


def wrong_rows(draft, target, x, n_tokens, widths, rng, **settings):
    """A node is judged by the q of the node before it in the list, not of its parent."""
    class Shifted:
        def __call__(self, tokens, n_last=1):
            return target(tokens, n_last)

        def tree(self, tokens, nodes, parents, n_last=None):
            paths = [[]]
            for token, parent in zip(nodes, parents):
                paths.append([*paths[parent + 1], token])
            order = [0, *range(len(nodes))]                     # rows 0, 0, 1, 2 ..
            return np.array([target([*tokens, *paths[i]])[-1] for i in order])
    return tree_sampling(draft, Shifted(), x, n_tokens, widths, rng, **settings)


# All of them ------------------------------------------------------------------------------------------------

class Rule(NamedTuple):
    """A rule as `lossless.check` calls it, the functions above that are it, and what it is compared with."""
    sampler: object         # (draft, target, tokens, n_tokens, K, rng, **settings) -> rounds
    code: tuple             # to be shown
    beside: str             # the rule that accepts what can be accepted of these drafts
    tree: bool = False


def drafting(propose, beside="Algorithm 2"):
    return Rule(lambda *run, **settings: speculative_sampling(*run, propose=propose, **settings),
                (propose,), beside)


def judging(verify, propose=propose, beside="Algorithm 2"):
    return Rule(lambda *run, **settings: speculative_sampling(*run, propose=propose, verify=verify,
                                                              **settings), (verify,), beside)


def looping(sampler, beside="Algorithm 2"):
    return Rule(sampler, (sampler,), beside)


def in_a_tree(select, draw=SEQUOIA[0], code=(), beside="tree drawn without replacement", walk=walk):
    def sampler(draft, target, x, n_tokens, K, rng, **settings):
        return tree_sampling(draft, target, x, n_tokens, SHAPES[K], rng, rule=(draw, select), walk=walk,
                             **settings)
    return Rule(sampler, code or (select,), beside, True)


def looping_in_a_tree(sampling):
    return Rule(lambda draft, target, x, n_tokens, K, rng, **settings: sampling(
        draft, target, x, n_tokens, SHAPES[K], rng, **settings), (sampling,),
        "tree drawn without replacement", True)


SHAPES = {1: [-1, -1], 2: [-1, -1, 0, 0], 3: [-1, -1, -1]}      # K -> the parent of each node

RULES = {
    "Algorithm 2": judging(verify),
    "argmax, softmax recorded": drafting(argmax),
    "argmax as point masses": drafting(argmax_as_point_masses),
    "drawn, as point masses": drafting(drawn_as_point_masses),
    "filtered, raw recorded": drafting(filtered_recorded_raw),
    "drawn from rounded": drafting(drawn_from_rounded),
    "beam, softmax recorded": drafting(beam),
    "beam as point masses": drafting(beam_as_point_masses),
    "drawn, unlikely last dropped": drafting(unlikely_last_dropped),
    "chosen, unlikely last dropped": drafting(chosen_unlikely_last_dropped, "argmax as point masses"),
    "match": judging(match),
    "match, argmax": judging(match, argmax),
    "accept all, looked up": judging(accept_all, lookup.propose, "looked up"),
    "looked up": drafting(lookup.propose, "looked up"),
    "uniform is zero": judging(uniform_is_zero),
    "over the largest": judging(over_the_largest),
    "softmax of residual": judging(softmax_of_residual),
    "target after refusal": judging(target_after_refusal),
    "match or ratio": judging(match_or_ratio),
    "one position late": judging(one_position_late),
    "first untested": judging(first_untested),
    "EOS impossible at drafts": judging(eos_impossible),
    "largest of residual": judging(largest_of_residual),
    "zeroed for good": judging(zeroed_for_good, argmax_as_point_masses, "argmax as point masses"),
    "zeroed and restored": judging(zeroed_and_restored, argmax_as_point_masses, "argmax as point masses"),
    "typical": judging(lossy.typical()),
    "block": judging(block.verify),
    "block, point masses": judging(block.verify, argmax_as_point_masses, "argmax as point masses"),
    "block until first failure": judging(block_until_first_failure),
    "settings for the draft alone": looping(settings_for_the_draft_alone),
    "judged at temperature 1": looping(judged_at_temperature_1),
    "greedy target": looping(greedy_target),
    "greedy but for the bonus": looping(greedy_but_for_the_bonus),
    "filters at once": looping(filters_at_once),
    "penalty on the bonus alone": looping(penalty_on_the_bonus_alone),
    "penalty ignored": looping(penalty_ignored),
    "on after EOS": looping(on_after_eos),
    "refused drafts stay": looping(refused_drafts_stay),
    "tree drawn without replacement": in_a_tree(select_drawn),
    "tree drawn, order fixed": in_a_tree(SPECINFER[1], SPECINFER[0], beside="tree drawn, order fixed"),
    "tree of top tokens, p = 1": in_a_tree(select_top_with_p_1, draw_top),
    "tree of top tokens, softmax recorded": in_a_tree(select_drawn, draw_top, (draw_top, select_drawn)),
    "tree, one coin": in_a_tree(select_by_one_coin, draw_top),
    "tree, one coin to the end": in_a_tree(select_and_end_by_one_coin, draw_top),
    "tree, residual in place": in_a_tree(select_in_place, SEQUOIA[0]),
    "tree, match": looping_in_a_tree(likeliest_nodes),
    "tree, a draw for each path": in_a_tree(select_by_a_draw_for_each, draw_top),
    "tree, end of the row before": in_a_tree(select_drawn, code=(end_of_the_row_before,),
                                             walk=end_of_the_row_before),
    "tree, wrong rows": looping_in_a_tree(wrong_rows),
}
