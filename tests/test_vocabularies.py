"""A draft with another vocabulary: TLI and SLEM turn what it writes into the target's tokens."""
import os
from pathlib import Path

import numpy as np
import pytest
from helpers import load_encoder, tiny_gpt2

from autoregressive import autoregressive_sampling
from encoder import Encoder, Tokenizer
from lossless.toys import scripted, table
from methods.drafters.vocabularies import SLEM, TLI
from speculative import speculative_sampling

DEMO = Path(__file__).parent.parent / "models" / "demo-target"

# Both have the tokens a and b; each has one more that the other lacks.
ENCODER = Encoder({"a": 0, "b": 1, "ab": 2}, [("a", "b")])
SMALL = Encoder({"b": 0, "ba": 1, "a": 2}, [("b", "a")])
DRAFT, TARGET = table(1, n_vocab=3), table(2, n_vocab=3)


def test_tli_has_the_drafts_logits_for_the_tokens_of_both_and_nothing_for_the_others():
    draft = TLI(DRAFT, SMALL, ENCODER)
    for tokens in [1], [0, 1, 2, 0], [2, 2]:
        b, _, a = DRAFT(SMALL.encode(ENCODER.decode(tokens)))[0]
        assert draft(tokens)[0] == pytest.approx([a, b, -np.inf], rel=1e-6)
    rows = draft([0, 1, 2, 0], 3)
    assert (rows == [draft([0, 1])[0], draft([0, 1, 2])[0], draft([0, 1, 2, 0])[0]]).all()


@pytest.mark.parametrize("x, written, k, expected", [
    ([1], "a b", 2, [2]),                       # b ab: the draft does not have ab
    ([1], "a b ba b", 4, [2, 1, 2]),            # b ab b ab
    ([1], "a b ba b", 2, [2]),                  # k counts the draft's tokens
    ([0], "a b b", 3, [2, 1]),                  # a ab b
    ([0], "b a", 2, []), ([1, 0], "ba", 1, []),     # ab would cross the seam
    ([0, 1], "b", 1, [1]),                      # text before the seam does not matter
    ([1, 1], "b", 0, [])])
def test_slem_proposes_what_the_draft_wrote_where_it_is_surely_new(x, written, k, expected):
    n = len(SMALL.encode(ENCODER.decode(x)))
    draft = scripted([0] * n + [SMALL.ids[token] for token in written.split()], n_vocab=3)
    assert SLEM(draft, SMALL, ENCODER).propose(None, x, k, None, None) == (expected, None)


@pytest.mark.parametrize("around", [([0], []), ([], [0])])
def test_what_a_tokenizer_puts_around_a_text_changes_no_draft(around):
    ids, draft = {"<s>": 0, "a": 1, "b": 2}, table(1, n_vocab=3)
    plain, wraps = (Tokenizer(ids, [], ["<s>"], False, sides, []) for sides in (([], []), around))
    x, wrapped = plain.encode("abb"), wraps.encode("abb")
    drafts = SLEM(draft, plain, plain).propose(None, x, 3, None, None)
    assert len(drafts[0]) == 3 and len(wrapped) == 4
    for small in plain, wraps:
        assert SLEM(draft, small, wraps).propose(None, wrapped, 3, None, None) == drafts
        assert (TLI(draft, small, wraps)(wrapped) == TLI(draft, plain, plain)(x)).all()


def gpt2_in_words_of(encoder, seed, n_ctx):
    return tiny_gpt2(seed, n_vocab=encoder.n_vocab, n_ctx=n_ctx)


@pytest.fixture(scope="module", params=["half of the merges", "gpt2"])
def encoders(request):
    """(the draft's encoder, the target's encoder)"""
    if request.param == "gpt2":
        if "GPT2_VOCAB" not in os.environ:
            pytest.skip("GPT-2's vocabulary was not found: set GPT2_VOCAB to its folder")
        return load_encoder(DEMO), load_encoder(os.environ["GPT2_VOCAB"])
    whole = load_encoder(DEMO)
    merges = list(whole.ranks)[:2000]
    tokens = [*sorted(whole.char_of.values()), *map("".join, merges)]
    return Encoder({token: i for i, token in enumerate(tokens)}, merges), whole


TEXT = "\u201cI want nothing,\u201d cried the young man, with a smile\u2026 na\u00efve"


@pytest.mark.parametrize("method", [TLI, SLEM])
def test_with_whole_vocabularies_the_text_at_temperature_0_is_the_baselines(encoders, method):
    """Random models also write parts of characters.  The draft's context is shorter than the text."""
    small, encoder = encoders
    draft, target = gpt2_in_words_of(small, 1, 32), gpt2_in_words_of(encoder, 2, 80)
    tokens = encoder.encode(TEXT)
    method = method(draft, small, encoder)
    more = dict(propose=method.propose) if isinstance(method, SLEM) else {}
    for temperature in 0, 1:
        run = target, tokens, 40
        rounds = list(speculative_sampling(None if more else method, *run, 4, np.random.default_rng(0),
                                           temperature=temperature, **more))
        assert sum(len(r.drafts) for r in rounds) > 20
        if temperature == 0:
            baseline = autoregressive_sampling(*run, np.random.default_rng(0), temperature=0)
            assert [token for r in rounds for token in r.tokens] == [r.tokens[0] for r in baseline]
