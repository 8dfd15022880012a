"""Ragged batches: several sequences at once, each at its own pace, each exactly as it would be alone.

A pass over one row (one position of a text) reads all of a model's weights; a pass over the rows of eight
sequences also reads them only once.  So the rows of all sequences are concatenated for the products with
weights; attention is computed for each sequence separately, with its own cache.  Nothing is padded: sequences
differ in length, accept different numbers of drafts and end at different times, and one that has ended costs
nothing more.

Each sequence has its own random generator and asks it for the same numbers, in the same order, as
speculative.py would.  So its tokens are those that it would get alone with that generator, if the logits are
the same to the last bit.  They are while a pass has no more rows than the model's `exact_rows`; with more, a
token may differ where two choices are nearly equal.

Batches and speculation exploit the same fact: rows after the first cost next to nothing.  A batch uses this
up: with 8 sequences a verification has 8 (K + 1) rows, which are no longer free.

Limitations: all sequences begin together (no queue from which to replace one that has ended).  A model that
is not a plain GPT2 is called for one sequence after another.
"""
from collections import defaultdict
from functools import partial
from itertools import accumulate, groupby
from numbers import Integral

import numpy as np

import speculative
from checks import checked_propose
from compute.backend import xp
from gpt2 import GPT2, causal_mask, dot_product_attention, transformer_block, whole_blocks
from sampling import Round, cut_after, point_masses, prepare, sample


def batch_sampling(draft, target, prompts, n_tokens, K, rngs, *, temperature=1.0, top_k=0, top_p=1.0,
                   eos=None, propose=speculative.propose, verify=speculative.verify):
    """Generate `n_tokens` tokens after each of `prompts`.  Returns a generator of lists: each holds the
    rounds (sampling.Round) of one target pass, one per sequence; None for a sequence that has ended.

    prompts     lists of token ids, of any lengths
    K           the largest number of drafts in a round; 0 is autoregressive, and `draft` may then be None
    rngs        one numpy.random.Generator for each prompt
    propose     speculative.propose drafts for all sequences in step; any other is called for one
                sequence after another (an EAGLE head reads the states of `target`, but the batch runs
                copies of `target`, so the head has to run `target` as well)
    The rest is as in speculative.speculative_sampling.
    Bad arguments raise ValueError at the call; if a prompt is at fault, the message says which.
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
        going = [i for i in x if len(x[i]) < T[i]]              # the sequences that have not ended
        while going:
            k = {i: min(int(K), T[i] - len(x[i]) - 1) for i in going}
            if not K or propose is speculative.propose:
                drafts, p = propose_in_step(drafters, x, k, to_probs, rngs)
            else:
                drafts, p = {}, {}
                for i in going:
                    drafts[i], own = checked(drafters[i], x[i][:], k[i], to_probs, rngs[i])
                    p[i] = None if own is None else [*map(np.array, own)]   # copies: it may reuse its array
            n_rows = {i: len(drafts[i]) + 1 for i in going}
            logits = targets({i: x[i] + drafts[i] for i in going}, n_rows)      # one pass for all
            result = [None] * len(texts)
            for i in going:                                     # from here on as in speculative.py
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

    slots[i] is a GPT2 with the weights of the model and a cache of its own, as long as the sequence will be.
    A call is GPT2.__call__ for all of them at once.  A model that is not a plain GPT2 stays one model, and
    is called for one sequence after another.
    """

    def __init__(self, model, lengths):
        self.model, self.slots, self.place = model, {}, {}
        if type(model) is not GPT2:
            return
        sizes = defaultdict(list)                            # {size of the cache: the sequences that need it}
        for i, length in enumerate(lengths):
            sizes[whole_blocks(length)].append(i)
        n_layer, _, n_head, _, d_head = model.cache.shape
        for size, members in sizes.items():
            # Caches of one size are stored side by side: attention can read neighbours in one product.
            shape = n_layer, 2, len(members), n_head, size, d_head
            caches = xp.zeros(shape, dtype=model.cache.dtype)
            for row, i in enumerate(members):
                self.slots[i] = GPT2(model.params, n_head)
                self.slots[i].cache = caches[:, :, row]
                self.place[i] = caches, row

    def __getitem__(self, i):
        return self.slots.get(i, self.model)

    def __call__(self, texts, n_last):
        if not self.slots:                      # copies, because the model may fill one array at each call
            return {i: xp.array(self.model(tokens, n_last[i])) for i, tokens in texts.items()}
        order = [i for i in self.place if i in texts]           # neighbours in a cache are neighbours here
        n_past = {i: self.slots[i].prefill(texts[i], n_last[i]) for i in order}
        new = {i: range(n_past[i], len(texts[i])) for i in order}               # positions that will be run
        for i in order:                                         # if we are interrupted, only these are valid
            self.slots[i].cached = texts[i][:n_past[i]]
        params, runs = self.model.params, self.runs(new)
        x = (params["wte"][[texts[i][position] for i in order for position in new[i]]]
             + params["wpe"][[position for i in order for position in new[i]]])   # [n, n_embd], n rows in all
        for layer, block in enumerate(params["blocks"]):
            x = transformer_block(x, **block, attend=partial(attend_by_sequence, layer=layer, runs=runs))
        states = dict(zip(order, xp.split(x, ends_of(new[i] for i in order))))  # [n_i, n_embd] each
        for i in order:
            self.slots[i].cached = texts[i]
        logits = self.model.logits(xp.concatenate([states[i][-n_last[i]:] for i in order]))
        return dict(zip(order, xp.split(logits, ends_of(range(n_last[i]) for i in order))))

    def runs(self, new):
        """Groups the sequences whose attention can be computed in one product: their caches are adjacent, and
        all have the same number of new positions and the same number of blocks of keys (gpt2.whole_blocks).

        new     {sequence: range of its new positions}
        Returns [(rows of x, caches [n_layer, 2, g, n_head, size, d_head], positions [g, n], mask), ...]
        """
        def kind(numbered):
            j, i = numbered
            caches, row = self.place[i]
            # i is the j-th sequence here and at `row` in caches; neighbours have the same row - j
            return id(caches), row - j, len(new[i]), whole_blocks(new[i].stop)

        runs, end = [], 0
        for _, members in groupby(enumerate(new), kind):
            members = [i for _, i in members]
            (caches, row), g, n = self.place[members[0]], len(members), len(new[members[0]])
            masks = xp.stack([causal_mask(new[i].start, n) for i in members])   # [g, n, s]
            masks = xp.repeat(masks, caches.shape[3], axis=0)                   # [g * n_head, n, s]
            positions = xp.asarray([list(new[i]) for i in members])             # [g, n]
            start, end = end, end + g * n
            runs.append((slice(start, end), caches[:, :, row:row + g], positions, masks))
        return runs


def ends_of(parts):
    """Where the parts of a concatenation end, except the last:  ends_of(["ab", "c", "de"]) == [2, 3]."""
    return list(accumulate(map(len, parts)))[:-1]


def attend_by_sequence(qkv, layer, runs):                       # [n, 3 * n_embd] -> [n, n_embd]
    """gpt2.attend for the rows of several sequences, each of which reads its own cache."""
    heads = []
    for rows, caches, positions, mask in runs:
        keys, values = caches[layer]                            # [g, n_head, size, d_head] each
        (g, n_head, size, d_head), n = keys.shape, positions.shape[1]
        # [g, n, n_head, d_head]
        q, k, v = qkv[rows].reshape(g, n, 3, n_head, d_head).transpose(2, 0, 1, 3, 4)
        which = xp.arange(g)[:, None]                           # [g, 1]
        keys[which, :, positions], values[which, :, positions] = k, v
        # The heads of all g sequences are treated as the heads of one.
        q = q.transpose(0, 2, 1, 3).reshape(g * n_head, n, d_head)
        keys, values = (a.reshape(g * n_head, size, d_head)[:, :mask.shape[-1]] for a in (keys, values))
        out = dot_product_attention(q, keys, values, mask)      # [g * n_head, n, d_head]
        heads.append(out.reshape(g, n_head, n, d_head).transpose(0, 2, 1, 3).reshape(g * n, -1))
    return xp.concatenate(heads)
