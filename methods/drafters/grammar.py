"""A grammar as a drafter: wherever its mask allows a single token, that token is the draft.

    process = form([*encode('{"name": "'), letters, *encode('"}'), eos], n_prompt=len(prompt))
    target, propose = constrained(target, process), draft_forced(process, n_vocab)
    speculative_sampling(None, target, prompt, .., eos=eos, propose=propose)                            # or
    speculative_sampling(constrained(draft, process), target, prompt, .., eos=eos, propose=propose)

Much of a JSON text with a fixed schema is forced.  A forced token costs no draft pass and is always accepted:
under the mask (methods/samplers/constraints.py) q and p are both 1 there.  If there is a draft model, it
drafts the free tokens, under the same mask.  (In vLLM, pull request 45400 drafts what is forced, and 47885
gives the drafter the mask.  In Ollama, 18105, only the target has it.)

Lossless for the *constrained target*: every token has the target's distribution over the ids allowed there.
This is not the target's distribution given that the text obeys the grammar, for two reasons.  The mask does
not look ahead: a token may be likely now though the target finds every text of this form after it unlikely
(arXiv 2605.07698).  And a fixed piece is tokenized in one way, the encoder's, while the target gives some
probability to other tokenizations of the same text.

A *drawn* draft that the grammar forbids must not be dropped with the round continuing from q: it counts as
rejected, so the next token comes from the residual.

Not here: compiling a grammar to an automaton; a choice between pieces; free places with a minimum length.
"""
import numpy as np

from methods.samplers.constraints import automaton
from sampling import sample


def form(places, n_prompt):
    """A process, as from constraints.automaton, for a form with fixed and free places.

    places      a token id is a fixed place; a set of ids is a free place, for any number of these tokens,
                up to the next place's id.  The last place must be fixed, such as an EOS; it is repeated
    n_prompt    the length of the prompt, which does not belong to the form

    >>> form([7, {1, 2}, 0], n_prompt=1)([9, 7, 2], np.zeros(8))
    array([  0.,   0.,   0., -inf, -inf, -inf, -inf, -inf])
    """
    def step(at, token):
        if isinstance(places[at], set):
            return at if token != places[at + 1] else min(at + 2, len(places) - 1)
        return min(at + 1, len(places) - 1)

    def allowed(at, logits):
        return [*places[at], places[at + 1]] if isinstance(places[at], set) else [places[at]]
    return automaton(0, step, allowed, n_prompt)


def draft_forced(process, n_vocab):
    """A `propose` that drafts the tokens a mask forces and, if there is a draft model, the free ones too.

    process     sets the logits of forbidden tokens to -inf, and changes no others

    JSON with a fixed schema, one token per character, and a target that finds all tokens equally likely:

    >>> from methods.samplers.constraints import constrained
    >>> from speculative import speculative_sampling
    >>> def ids(text): return [*map(ord, text)]
    >>> process = form([*ids('{"name": "'), {*ids("abcd")}, *ids('", "age": "'), {*ids("0123456789")},
    ...                 *ids('"}'), 0], n_prompt=1)
    >>> target = constrained(lambda tokens, n_last=1: np.zeros((n_last, 128)), process)
    >>> rounds = list(speculative_sampling(None, target, [0], 99, 20, np.random.default_rng(5), eos=0,
    ...                                    propose=draft_forced(process, 128)))
    >>> tokens, n_forced = sum((r.tokens for r in rounds), []), sum(r.n_accepted for r in rounds)
    >>> print("".join(map(chr, tokens[:-1])))
    {"name": "cabdddabc", "age": "6"}
    >>> print(f"{n_forced} of {len(tokens)} tokens were forced, {len(rounds)} target passes")
    22 of 34 tokens were forced, 13 target passes
    """
    def propose(draft, x, k, to_probs, rng):
        drafts, P = [], []
        while len(drafts) < k:
            logits = process(x + drafts, np.zeros(n_vocab))[None]       # [1, n_vocab]: 0, forbidden -inf
            if np.isfinite(logits).sum() > 1:                           # a free token
                if draft is None:
                    break
                logits = draft(x + drafts)
            P.append(to_probs(logits)[0])                               # of a forced token: a point mass
            drafts.append(sample(P[-1], rng))
        return drafts, P
    return propose
