"""Ragged batches: several sequences at once, each at its own pace, each as it would be alone.

A row is one position of a text.  A pass over one row reads all of a model's weights, and so does a pass over
the rows of eight sequences.  So the rows of all sequences are concatenated for the products with weights.
Attention is computed for each sequence separately, with its own cache.  Nothing is padded, and a sequence
that has ended costs nothing.

Each sequence has its own random generator and asks it for the same numbers, in the same order, as
speculative.py would.  So it gets the tokens that it would get alone, if its logits are the same to the last
bit.  They are while a pass has at most `model.exact_rows` rows.  With more rows, a token may differ where two
choices are nearly equal.

Batches and speculation exploit the same fact: a few more rows cost little.  With 8 sequences a verification
has 8 (K + 1) rows, and on a CPU these take much longer than 8.

Limitations: all sequences begin together (no queue from which to replace one that has ended).
"""
from copy import copy
from functools import partial
from itertools import accumulate
from numbers import Integral

import numpy as np

import speculative
from checks import checked_propose
from compute.backend import xp
from gpt2 import GPT2, attend, causal_mask, transformer_block, whole_blocks
from sampling import Round, cut_after, point_masses, prepare, sample


def batch_sampling(draft, target, prompts, n_tokens, K, rngs, *, temperature=1.0, top_k=0, top_p=1.0,
                   eos=None, propose=speculative.propose, verify=speculative.verify):
    """Generate `n_tokens` tokens after each of `prompts`.  Returns a generator of lists, one per target pass.
    A list has one round (sampling.Round) per sequence, or None if the sequence has ended.

    prompts     lists of token ids, of any lengths
    K           the largest number of drafts in a round; 0 is autoregressive, and `draft` may then be None
    rngs        one numpy.random.Generator for each prompt
    propose     speculative.propose drafts for all sequences in the same passes.  Any other drafter is called
                for one sequence after another.  The batch runs copies of `target`, so an EAGLE head, which
                reads the states of `target`, has to run `target` itself
    The rest is as in speculative.speculative_sampling.
    Bad arguments raise ValueError at the call.  If a prompt is at fault, the message says which.
    """
    if not isinstance(K, Integral) or K < 0:
        raise ValueError(f"K is {K!r}: it must be a whole number, 0 (autoregressive) or more")
    if len(rngs) != len(prompts):
        raise ValueError(f"{len(prompts)} prompts and {len(rngs)} random generators: give one for each")
    texts, models = [], [draft if K else None, target]
    for number, prompt in enumerate(prompts, 1):
        try:
            tokens, to_probs, ends = prepare(models, prompt, n_tokens, temperature, top_k, top_p, eos)
        except ValueError as error:
            raise ValueError(f"prompt {number}: {error}") from None
        texts.append(tokens)
    checked = checked_propose(propose, target)

    def rounds():
        x = dict(enumerate(texts))
        T = [len(tokens) + int(n_tokens) for tokens in texts]
        # Any other drafter may call the draft with texts longer than T.
        longest = T if propose is speculative.propose else [getattr(draft, "n_ctx", 0)] * len(T)
        drafters, targets = Slots(models[0], longest), Slots(target, T)
        going = [i for i in x if len(x[i]) < T[i]]              # those that have not ended
        while going:
            k = {i: min(int(K), T[i] - len(x[i]) - 1) for i in going}
            if not K or propose is speculative.propose:
                drafts, p = propose_in_step(drafters, x, k, to_probs, rngs)
            else:
                drafts, p = {}, {}
                for i in going:
                    drafts[i], own = checked(drafters[i], x[i][:], k[i], to_probs, rngs[i])
                    p[i] = None if own is None else [*map(np.array, own)]   # copies: `own` may change
            n_rows = {i: len(drafts[i]) + 1 for i in going}
            logits = targets({i: x[i] + drafts[i] for i in going}, n_rows)      # one pass for all
            result = [None] * len(texts)
            for i in going:                                     # as in speculative.py
                q = to_probs(logits[i], n_rows[i])              # [k + 1, n_vocab]
                p_i = point_masses(drafts[i], q.shape[1]) if p[i] is None else p[i]     # [k, n_vocab]
                n_accepted, next_token = verify(q, p_i, drafts[i], rngs[i])
                new = cut_after(drafts[i][:n_accepted] + [next_token], ends)
                x[i] += new
                result[i] = Round(new, drafts[i], min(n_accepted, len(new)), q, p_i)
            yield result
            going = [i for i in going if len(x[i]) < T[i] and x[i][-1] not in ends]

    return rounds()


def propose_in_step(drafters, x, k, to_probs, rngs):
    """speculative.propose for all sequences: the j-th drafts of all come from one pass of the draft.

    k       {sequence: drafts wanted}
    Returns drafts and draft_probs, {sequence: ..} each.
    """
    drafts, p = {i: [] for i in k}, {i: [] for i in k}
    for j in range(max(k.values())):
        wanting = [i for i in k if j < k[i]]
        logits = drafters({i: x[i] + drafts[i] for i in wanting}, dict.fromkeys(wanting, 1))
        for i in wanting:
            p[i].append(to_probs(logits[i], 1)[0])              # [n_vocab]
            drafts[i].append(sample(p[i][-1], rngs[i]))
    return drafts, p


class Slots:
    """One model for several sequences: slots({i: tokens}, {i: n_last}) -> {i: logits [n_last, n_vocab]}.

    slots[i] is a GPT2 with the weights of the model and a cache of its own, for at least lengths[i] tokens.
    A call does what GPT2.__call__ does, for all sequences at once.  If the model is not a plain GPT2, it is
    called for one sequence after another.
    """

    def __init__(self, model, lengths):
        self.model = model
        self.slots = [copy(model) for _ in lengths] if type(model) is GPT2 else []
        for slot, length in zip(self.slots, lengths):
            slot.cache = xp.zeros_like(model.cache[:, :, :, :whole_blocks(length)])

    def __getitem__(self, i):
        return self.slots[i] if self.slots else self.model

    def __call__(self, texts, n_last):
        if not self.slots:                      # copies: the model may reuse its array
            return {i: xp.array(self.model(tokens, n_last[i])) for i, tokens in texts.items()}
        slots, params = self.slots, self.model.params
        n_past = {i: slots[i].prefill(tokens, n_last[i]) for i, tokens in texts.items()}
        for i, tokens in texts.items():                         # if we are interrupted, only these are valid
            slots[i].cached = tokens[:n_past[i]]
        n_new = {i: len(tokens) - n_past[i] for i, tokens in texts.items()}
        masks = {i: causal_mask(n_past[i], n_new[i]) for i in texts}
        token_ids = [token for i, tokens in texts.items() for token in tokens[n_past[i]:]]
        positions = [position for i in texts for position in range(n_past[i], len(texts[i]))]
        x = params["wte"][token_ids] + params["wpe"][positions]         # [n, n_embd], n new rows in all

        def attend_each(qkv, layer):                            # [n, 3 * n_embd] -> [n, n_embd]
            return xp.concatenate([attend(rows, *slots[i].cache[layer], n_past[i], masks[i])
                                   for i, rows in apart(qkv, n_new).items()])

        for layer, block in enumerate(params["blocks"]):
            x = transformer_block(x, **block, attend=partial(attend_each, layer=layer))
        for i, tokens in texts.items():
            slots[i].cached = tokens
        last = [rows[-n_last[i]:] for i, rows in apart(x, n_new).items()]       # [n_last, n_embd] each
        return apart(self.model.logits(xp.concatenate(last)), {i: n_last[i] for i in texts})


def apart(x, n):
    """The rows of x by sequence: x [n[i] + n[j] + .., m] -> {i: [n[i], m], j: [n[j], m], ..}."""
    return dict(zip(n, xp.split(x, [*accumulate(n.values())][:-1])))
