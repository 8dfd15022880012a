"""What drafters draft, and when they stop.  test_methods_lossless.py checks that they are lossless."""
from collections import Counter

import numpy as np
import pytest
from helpers import tiny_gpt2
from hypothesis import given, settings
from hypothesis.strategies import booleans, integers, lists, sampled_from, tuples

import gpt2
from lossless.toys import memoryless, scripted, table
from methods.drafters import adaptive, lookup
from methods.drafters.adaptive import Confident, Optimum, Schedule
from methods.drafters.early_exit import EarlyExit
from methods.drafters.layer_skip import LayerSkip
from methods.drafters.ngram import NGram
from methods.entries import Drafted
from reporting.stats import predicted_speedup
from speculative import speculative_sampling


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
            for array in zeroed.params["blocks"][layer][name]["c_proj"].values():
                array[:] = 0
    pair = LayerSkip(model, attn, mlp)
    for tokens, n_last in ([1, 2, 3], 2), ([1, 2, 4, 5], 1), ([1, 2, 4, 5, 6], 3), ([7], 1):
        assert pair.draft(tokens, n_last) == pytest.approx(zeroed(tokens, n_last), abs=1e-12)
        assert pair.target(tokens, n_last) == pytest.approx(whole(tokens, n_last), abs=1e-12)
