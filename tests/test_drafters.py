"""What drafters draft, and when they stop.  test_methods_lossless.py checks that they are lossless."""
import os
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from helpers import tiny_gpt2
from hypothesis import given, settings
from hypothesis.strategies import booleans, integers, lists, sampled_from, tuples

import gpt2
import speculative
from autoregressive import autoregressive_sampling
from encoder import Encoder, Tokenizer
from engine.reporting.stats import predicted_speedup
from lossless import exact_distribution
from lossless.toys import as_model, memoryless, scripted, table
from methods.drafters import adaptive, cascade, lookup
from methods.drafters.adaptive import Confident, Optimum, Schedule
from methods.drafters.early_exit import EarlyExit
from methods.drafters.jacobi import Jacobi
from methods.drafters.layer_skip import LayerSkip
from methods.drafters.ngram import NGram
from methods.drafters.suffix import Suffix
from methods.drafters.vocabularies import SLEM, TLI
from methods.entries import Drafted
from sampling import probabilities
from speculative import speculative_sampling
from utils import load_encoder


def rng(seed=0):
    return np.random.default_rng(seed)


# Prompt lookup ----------------------------------------------------------------------------------------------

@given(lists(integers(0, 3) | sampled_from([50256, 0xD800]), min_size=1), integers(0, 6))
def test_lookup_is_what_a_search_from_the_end_finds(x, k):
    def search():
        for n in (3, 2, 1):
            for start in reversed(range(len(x) - n)):
                if n < len(x) and x[start:start + n] == x[len(x) - n:]:
                    period = len(x) - n - start
                    return [x[len(x) - period + i % period] for i in range(k)]
        return []

    assert lookup.propose(None, x, k, None, None) == (search(), None)


# How many drafts --------------------------------------------------------------------------------------------

LOOP = [1, 2, 3, 4] * 20
RIGHT = scripted(LOOP)
WRONG_FROM_20 = scripted(LOOP[:20] + [9] * 60)


def numbers(propose, draft, n_tokens=40, K=8):
    """How many drafts each round of a run had; the target writes LOOP."""
    rounds = speculative_sampling(draft, scripted(LOOP), [9], n_tokens, K, rng(), propose=propose)
    return [len(r.drafts) for r in rounds]


def test_the_schedule_adds_two_if_all_were_accepted_and_otherwise_takes_one_away():
    schedule = Schedule(first=1)
    for _ in range(2):                                  # it starts afresh with a new text
        assert numbers(schedule, RIGHT) == [1, 3, 5, 7, 8, 8, 1]        # K is the limit; the text ends
    found = numbers(Schedule(first=1), WRONG_FROM_20)           # the first 20 tokens took 4 rounds
    assert found[:12] == [1, 3, 5, 7, 8, 7, 6, 5, 4, 3, 2, 1] and set(found[12:-1]) == {1}


def test_a_round_without_room_does_not_end_the_drafting():
    schedule, lengths = Schedule(first=3), []
    for n, k in (1, 4), (5, 0), (6, 0), (7, 4):
        lengths.append(len(schedule(table(1), [1] * n, k, lambda logits, *_: np.eye(3)[:1], rng())[0]))
    assert lengths == [3, 0, 0, 1]


def test_the_optimum_is_the_number_that_promises_most():
    c, v, K = 0.1, 1.8, 8
    optimum = Optimum(c, v, K)
    optimum.learn(71, 98)                               # (71 + 1) / (98 + 2)
    optimum.fade = 1
    speed = [predicted_speedup(0.72, n, c, 1 + (v - 1) * n / K) for n in range(K + 1)]
    assert optimum.choose_number(K) == int(np.argmax(speed)) == 3


def test_the_optimum_drafts_less_where_drafts_are_rejected_and_tries_again():
    always, never = (numbers(Optimum(0.2, 1.3, 8), draft) for draft in (RIGHT, scripted([9])))
    assert max(always) == 8 and never.count(0) > 20 and any(never[5:])


@pytest.mark.parametrize("K, n_before, costs", [
    (4, 4, {"c": .25, "v": 1.5}),                       # 2 / 4 / 2 and 3 / 2
    (16, 0, {"c": .12, "v": 2.0})])                     # only 8 drafts fit: a row costs 1 / 16
def test_what_drafting_and_rows_cost_is_the_median_of_several_turns(K, n_before, costs, monkeypatch):
    """A step of the target takes 2 s, 5 rows take 3 s, 4 drafts 2 s.  Of each kind the first call and two
    others are slow."""
    now, calls = [0.0], Counter()

    def takes(seconds, name):
        calls[name] += 1
        now[0] += seconds * (9 if calls[name] in (1, 4, 7) else 1)

    def target(tokens, n_last=1):
        assert len(tokens) == n_before + n_last
        takes(2 if n_last == 1 else 3, n_last)
    target.n_ctx = 9
    monkeypatch.setattr(adaptive, "clock", lambda: now[0])
    drafted = Drafted("draft", target, lambda draft, x, k, *_: takes(2, "drafts"))
    greedy = dict(temperature=0, top_k=0, top_p=1, eos=None)
    found = adaptive.measure_costs(drafted, [5, 6, 7, 8, 9], K, greedy)
    assert found == costs and calls.keys() == {1, 9 - n_before, "drafts"}


@pytest.mark.parametrize("propose, n_drafts", [
    (Confident(threshold=0.5), 4), (Confident(lookup.propose, threshold=1), 0)])
def test_drafting_stops_after_a_token_that_the_draft_is_not_sure_of(propose, n_drafts):
    def draft(tokens, n_last=1):
        return np.log([[0.7, 0.1, 0.1, 0.1]] if len(tokens) < 4 else [[0.4, 0.2, 0.2, 0.2]])

    for temperature in (0, 1e-3):                       # what counts is the draft's p at temperature 1
        run = draft, memoryless([0.25] * 4), [0], 9, 8, rng()
        rounds = speculative_sampling(*run, temperature=temperature, propose=propose)
        assert len(next(rounds).drafts) == n_drafts


# Early exit -------------------------------------------------------------------------------------------------

def test_early_exit_runs_each_token_through_each_layer_once():
    def counted(half):
        layers = half.layers
        half.layers = lambda x, *rest: rows.update({half: len(x)}) or layers(x, *rest)
    rows = Counter()
    target, tokens = tiny_gpt2(n_layer=4), [1, 2, 3, 4, 5]
    pair = EarlyExit(target, 2)
    counted(pair.draft), counted(pair.target)
    rounds = list(speculative_sampling(pair.draft, pair.target, tokens, 30, 3, rng()))
    assert 0 < sum(r.n_accepted for r in rounds) < sum(len(r.drafts) for r in rounds)
    # the prompt without its last token; then in each round the last token and the drafts
    expected = len(tokens) - 1 + sum(1 + len(r.drafts) for r in rounds)
    assert rows == {pair.draft: expected, pair.target: expected}
    pair.target.reset()
    assert pair.draft.past == pair.target.past == []                # resetting the target empties both


@settings(max_examples=30)
@given(lists(tuples(booleans(), integers(0, 9), lists(integers(0, 12), max_size=5), integers(1, 3),
                    integers(0, 9)), max_size=8), integers(0, 2))
def test_both_halves_are_pure_functions_of_their_tokens(calls, n_layers):
    """Whichever half is asked, whatever is cached, and even if either was reset."""
    model, whole = tiny_gpt2(dtype=np.float64), tiny_gpt2(dtype=np.float64)
    pair = EarlyExit(model, n_layers)
    first = gpt2.GPT2(whole.params | {"blocks": whole.params["blocks"][:n_layers]}, 2)
    tokens = [0]
    for upper, keep, new, n_last, chance in calls:
        tokens = (tokens[:keep] + new) or [0]
        half, alone = (pair.target, whole) if upper else (pair.draft, first)
        if chance == 0:
            half.reset()
        model([5, *tokens])                             # it has a separate cache
        n_last = min(n_last, len(tokens))
        assert half(tokens, n_last) == pytest.approx(alone(tokens, n_last), abs=1e-12)


@pytest.mark.parametrize("wrong, complaint", [
    (lambda: EarlyExit(tiny_gpt2(), -1), "after -1 layers: the model has 2, so take 0 .. 2"),
    (lambda: EarlyExit(tiny_gpt2(), 3), "after 3 layers: the model has 2, so take 0 .. 2"),
    (lambda: LayerSkip(tiny_gpt2(), attn=[2]), "no layer 2 to skip: the model has 2, from 0 on"),
    (lambda: LayerSkip(tiny_gpt2(), mlp=[-1]), "no layer -1 to skip: the model has 2, from 0 on"),
    (lambda: NGram(3).learn([3]), "token id 3 is not in 0 .. 2"),
    (lambda: NGram(3)([0, -1]), "token id -1 is not in 0 .. 2"),
    (lambda: NGram(3)([]), "0 tokens do not fit")])
def test_what_means_nothing_is_refused_in_one_sentence(wrong, complaint):
    with pytest.raises(ValueError, match=complaint):
        wrong()


# N-grams ----------------------------------------------------------------------------------------------------

def witten_bell(text, x, n_vocab, order):
    """p(. | x) after learning `text`, from the definition, counting from scratch for each context."""
    ngrams = [tuple(some[max(0, end - order):end]) for some in (text, x) for end in range(1, len(some) + 1)]
    p = [1 / n_vocab] * n_vocab
    for n in range(min(order, len(x) + 1)):
        h = tuple(x[len(x) - n:])
        followed = [ngram[-1] for ngram in ngrams if len(ngram) > n and ngram[len(ngram) - 1 - n:-1] == h]
        if followed:
            different = len(set(followed))
            p = [(followed.count(token) + different * p[token]) / (len(followed) + different)
                 for token in range(n_vocab)]
    return p


few_tokens = lists(integers(0, 3), max_size=6)


@settings(max_examples=50)
@given(few_tokens, integers(1, 4), lists(tuples(integers(0, 6), few_tokens, booleans()), max_size=5))
def test_n_grams_have_witten_bells_distribution_whatever_was_asked_before(text, order, calls):
    model, x = NGram(4, order), [0]
    model(x)
    model.learn(text)                                   # after its first use
    for keep, new, stumble in calls:
        x = (x[:keep] + new) or [0]
        if stumble:
            with pytest.raises(ValueError):
                model([1, 2, 4])                        # an invalid token leaves no trace
        n_last = 1 + len(new) % len(x)
        expected = [witten_bell(text, x[:end], 4, order) for end in range(len(x) - n_last + 1, len(x) + 1)]
        assert np.exp(model(x, n_last)) == pytest.approx(np.array(expected), abs=1e-6)


# Skipped layers ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("attn, mlp", [((), ()), ((0,), ()), ((), (1,)), ((2,), (0, 1)), ((1, 2), (2,))])
def test_a_skipped_sublayer_adds_nothing(attn, mlp):
    """The draft equals a model whose skipped sublayers have zeros as their output weights."""
    model, zeroed, whole = (tiny_gpt2(n_layer=3, dtype=np.float64) for _ in range(3))
    for name, layers in ("attn", attn), ("mlp", mlp):
        for layer in layers:
            c_proj = zeroed.params["blocks"][layer][name]["c_proj"]
            c_proj["w"].tiles[:] = c_proj["b"][:] = 0
    pair = LayerSkip(model, attn, mlp)
    for tokens, n_last in ([1, 2, 3], 2), ([1, 2, 4, 5], 1), ([1, 2, 4, 5, 6], 3), ([7], 1):
        assert pair.draft(tokens, n_last) == pytest.approx(zeroed(tokens, n_last), abs=1e-12)
        assert pair.target(tokens, n_last) == pytest.approx(whole(tokens, n_last), abs=1e-12)


# Staged drafting --------------------------------------------------------------------------------------------

def test_the_drafts_are_distributed_as_those_of_the_draft_alone():
    draft, x = table(1, n_vocab=3), [2, 0]
    to_probs = partial(probabilities, temperature=0.8)
    guesses = cascade.cascade(speculative.propose, table(5, n_vocab=3))

    def drafts(propose):
        return exact_distribution(lambda rng: tuple(map(int, propose(draft, x, 3, to_probs, rng)[0])))
    found, expected = drafts(guesses), drafts(speculative.propose)
    assert found.keys() == expected.keys() and len(found) == 27
    assert all(abs(found[text] - expected[text]) < 1e-12 for text in expected)


# Jacobi decoding --------------------------------------------------------------------------------------------

def counting(n_vocab=50):
    """A target that counts: each token is followed by the next number, whatever came before."""
    return as_model(lambda x: -abs(np.arange(n_vocab) - ((x[-1] if x else -1) + 1) % n_vocab))


def drafts_of(target, x, n_tokens, K):
    found = Jacobi(target)
    rounds = speculative_sampling(None, found, x, n_tokens, K, np.random.default_rng(0), temperature=0,
                                  propose=found.propose)
    return [r.drafts for r in rounds]


def test_the_answers_to_rejected_drafts_are_the_next_drafts(monkeypatch):
    """Without the pool, on a target that counts.  After each of the 7s it says 8, so 8 8 8 is drafted, though
    only the first 8 is right.  This is the Jacobi iteration: each round gets one more place right."""
    monkeypatch.setattr(Jacobi, "learn", lambda self: None)
    assert drafts_of(counting(), [7], 7, 3)[:4] == [[7, 7, 7], [8, 8, 8], [9, 9, 9], [10, 10, 10]]


def test_the_longest_match_in_the_pool_is_drafted_with_its_latest_answer():
    found = Jacobi(counting())
    found.pool = {(7,): 1, (9,): 2, (5, 7): 3}
    assert [found.propose(None, [x, 7], 1, None, None)[0] for x in (5, 6)] == [[3], [1]]
    found([7], 1)
    assert found.propose(None, [6, 7], 1, None, None)[0] == [8]


def test_with_the_pool_a_text_that_repeats_is_drafted_right():
    target = counting(n_vocab=4)
    assert drafts_of(target, [3], 40, 3)[-3:-1] == [[0, 1, 2], [0, 1, 2]]


# Suffix decoding --------------------------------------------------------------------------------------------

def drafts(x, k, memory=None):
    return (memory or Suffix()).propose(None, x, k, None, None)[0]


def ends(written, string):
    """Where this string ends, each time."""
    n = len(string)
    return [i + n for i in range(len(written) - n + 1) if written[i:i + n] == string]


def line_by_search(texts, k, depth):
    """The drafts after the last text, from the definition: a search through all texts for each string."""
    x, written, best = texts[-1], [token for text in texts for token in [None, *text]], (0, [])
    for p in range(min(depth - 1, len(x)), 0, -1):
        found, place, worth, score = [], None, 1, 0
        while len(ends(written, x[-p:])) > 1 and len(found) < min(k, 4 * p):
            string = x[-p:] + found
            places = ends(written, string)
            if place is None and (len(places) == 1 or len(string) >= depth):
                place = places[-1]                      # what followed there is drafted, whatever it was
            if place is None:
                after = [token for end in places for token in written[end:end + 1]]
            else:
                after, place = (written + found)[place:place + 1], place + 1
            after = [token for token in after if token is not None]
            token = max(reversed(after), key=after.count, default=None)      # the last of the most frequent
            worth *= after.count(token) / max(1, len(after))
            if worth < .1:
                break
            found, score = [*found, token], score + worth
        best = max(best, (score, found), key=lambda one: one[0])
    return best[1]


@given(lists(lists(integers(0, 2), min_size=2, max_size=14), min_size=1, max_size=3), integers(0, 8),
       sampled_from([2, 3, 4, 32]))
def test_a_line_is_what_a_search_through_all_texts_finds(texts, k, depth):
    memory = Suffix(depth)
    for text in texts:
        for end in range(1, len(text) + 1):
            found = drafts(text[:end], k, memory)
    assert found == line_by_search(texts, k, depth)


def test_the_tree_holds_what_is_worth_most():
    x = [1, 2, 3, 1, 2, 4, 1, 2, 3, 5, 1, 2]                            # after 1, 2: 3 twice, 4 once
    found = Suffix().grow(None, x, [-1, -1, 0, 0, 1, 1], None, None, None)
    assert found == ([3, 4, 1, 5, 1], [-1, -1, 0, 0, 1], None)          # worth 2/3, 1/3, 1/3, ..
    assert Suffix().grow(None, x, [-1] * 9, None, None, None) == ([3, 4], [-1, -1], None)       # one level


def test_other_texts_are_remembered_and_do_not_run_into_each_other():
    memory = Suffix()
    memory.learn([1, 2, 3])
    assert drafts([5, 1], 3, memory) == [2, 3]                          # not 5, of the next text
    assert drafts([9, 5], 3, memory) == [1]
    assert drafts([9, 5, 1], 3, memory) == [2, 3]
    memory.learn(np.array([6, 4, 3]))
    assert drafts([6], 3, memory) == [4, 3]
    for nonsense in "text", [1.5], None, [[1]]:
        with pytest.raises(ValueError, match="list of token ids"):
            memory.learn(nonsense)


@pytest.mark.parametrize("size, token, known", [(100, 998, True), (100, 960, True), (100, 890, False),
                                                (1, 998, False)])
def test_its_memory_is_bounded_and_keeps_the_younger_half(size, token, known):
    memory = Suffix(memory=size)
    memory.learn(range(1000))
    assert drafts([token], 1, memory) == [token + 1] * known


def test_a_known_text_is_remembered_after_a_reset_and_only_its_newer_half():
    memory = Suffix(memory=8, known=[1, 2, 3, 4, 5, 6])
    memory.learn([9, 7])
    memory.reset()
    assert [drafts([token], 2, memory) for token in (3, 2, 9)] == [[4, 5], [], []]


# Other vocabularies -----------------------------------------------------------------------------------------

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
    draft, target = tiny_gpt2(1, n_vocab=small.n_vocab, n_ctx=32), tiny_gpt2(2, n_vocab=encoder.n_vocab)
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
