"""What the samplers promise besides the distribution: greedy equality, counts, EOS, context, chance,
arguments; and the statistics."""

import random
from collections import Counter

import numpy as np
import pytest
from helpers import Says, tiny_gpt2, without_cache
from hypothesis import given, settings
from hypothesis import strategies as st

from autoregressive import autoregressive_sampling
from lossless import distribution_of_text, memoryless, scripted, table, text_of
from reporting import stats
from samplers.tree import with_tree
from sampling import Round, probabilities
from speculative import speculative_sampling, verify
from utils import load_model

PROMPT = [1, 2]


def speculative(draft, target, n_tokens, K, seed=0, prompt=PROMPT, **settings):
    return list(
        speculative_sampling(draft, target, prompt, n_tokens, K, np.random.default_rng(seed), **settings)
    )


def baseline(target, n_tokens, seed=0, prompt=PROMPT, **settings):
    return list(autoregressive_sampling(target, prompt, n_tokens, np.random.default_rng(seed), **settings))


# Temperature 0 (T4, T8) -------------------------------------------------------------------------------------


@given(st.integers(0, 999), st.integers(1, 9), st.integers(0, 30), st.booleans())
@settings(max_examples=100)
def test_greedy_text_of_tables_is_the_baselines(seed, K, n_tokens, sparse):
    draft, target = (table(s, zeros=0.3 * sparse, n_vocab=3) for s in (seed, seed + 1))
    expected = text_of(baseline(target, n_tokens, temperature=0))
    assert text_of(speculative(draft, target, n_tokens, K, seed, temperature=0)) == expected


@pytest.mark.parametrize("K", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_greedy_text_of_float64_models_is_the_baselines(seed, K):
    target, draft = tiny_gpt2(seed, np.float64), tiny_gpt2(seed, np.float64, n_layer=1)
    expected = text_of(baseline(target, 40, temperature=0))
    for rng_seed in (0, 1):
        rounds = speculative(draft, target, 40, K, rng_seed, temperature=0)
        assert text_of(rounds) == expected
    # some drafts were kept and some refused
    assert 0 < stats.acceptance(rounds)[0] < stats.acceptance(rounds)[1]


def test_greedy_float32_text_is_the_targets_argmax_or_within_rounding_of_it():
    target, draft = tiny_gpt2(0), tiny_gpt2(0, n_layer=1)
    text = PROMPT + list(text_of(speculative(draft, target, 70, 4, temperature=0)))
    logits = without_cache(target)(text, len(text))[1:-1]  # the rows that predict text[2:]
    assert (logits.max(axis=1) - logits[np.arange(70), text[2:]]).max() < 1e-4


@pytest.mark.parametrize("n_tokens", [60, pytest.param(400, marks=pytest.mark.long)])
@pytest.mark.parametrize("n_prompt", [1, 15, 40, 90])
def test_passes_of_more_than_16_rows_part_from_the_baseline_only_at_near_ties(n_prompt, n_tokens):
    """Up to 16 rows nothing differs (test_exact.py).  At K = 20 they are a `gemm`: other rounding."""
    (draft, _), (target, _) = load_model("demo-draft"), load_model("demo-target")
    prompt = np.random.default_rng([20, n_prompt]).integers(0, 4096, n_prompt).tolist()
    expected = text_of(baseline(target, n_tokens, prompt=prompt, temperature=0))
    rounds = speculative(draft, target, n_tokens, 20, prompt=prompt, temperature=0)
    text = text_of(rounds)
    assert len(rounds[0].target_probs) == 21
    for n in range(n_tokens):
        if text[n] != expected[n]:  # what follows is another text
            second, first = np.sort(target(prompt + list(expected[:n]))[0])[-2:]
            assert first - second < 1e-4, (
                f"the texts part at token {n}, where {first - second:.6f} separates the two best"
            )
            break


@pytest.mark.parametrize("temperature", [0, 1])
def test_caches_do_not_change_a_round(temperature):
    """Also where full acceptance, after which the draft has not seen its last token, meets full rejection."""

    def agrees_then_not(tokens, n_last=1):
        logits = draft(tokens, n_last)
        return logits if len(tokens) % 15 < 10 else -logits

    runs = []
    for wrap in (lambda model: model, without_cache):
        draft, target = wrap(tiny_gpt2(0, np.float64)), wrap(tiny_gpt2(0, np.float64))
        runs.append(speculative(agrees_then_not, target, 60, 3, temperature=temperature))
    assert [r[:3] for r in runs[0]] == [r[:3] for r in runs[1]]
    kept = [r.n_accepted for r in runs[0]]
    assert (3, 0) in zip(kept, kept[1:])


# A real generator -------------------------------------------------------------------------------------------


def test_samples_of_a_real_generator_have_the_targets_distribution():
    """Chi-square over the 27 texts of three tokens, at a temperature where each is expected at least five
    times.  Its 0.999 quantile at 26 degrees of freedom is 54.1."""
    draft, target, rng, n, warm = table(1), table(2), np.random.default_rng(0), 4000, dict(temperature=3)
    found = distribution_of_text(target, PROMPT, 3, **warm)
    counts = Counter(
        text_of(speculative_sampling(draft, target, PROMPT, 3, 2, rng, **warm)) for _ in range(n)
    )
    assert len(found) == 27 and min(found.values()) * n > 5
    assert sum((counts[text] - n * found[text]) ** 2 / (n * found[text]) for text in found) < 54.1


@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_seed_gives_the_same_text_and_another_seed_another(seed):
    def texts(seed):
        return text_of(speculative(table(1), table(2), 30, 3, seed)), text_of(baseline(table(2), 30, seed))

    assert texts(seed) == texts(seed)
    assert texts(seed) != texts(seed + 1)


def test_global_random_states_are_not_touched():
    np.random.seed(3)
    before = repr(np.random.get_state()), random.getstate()
    speculative(table(1), table(2), 20, 3)
    baseline(table(2), 20)
    assert (repr(np.random.get_state()), random.getstate()) == before


# Exact counts (T5, T9) --------------------------------------------------------------------------------------

DRAFTS = {
    "full acceptance": table(2),
    "partial acceptance": table(1),
    "zero acceptance": memoryless([0, 0, 0, 1]),
}


@pytest.mark.parametrize("more", ["0", "1", "2", "K", "K + 1", "K + 2", "20"])
@pytest.mark.parametrize("K", [1, 2, 4])
@pytest.mark.parametrize("draft", DRAFTS)
def test_exactly_n_tokens_are_made(draft, K, more):
    n_tokens, target = (
        eval(more, {"K": K}),
        (memoryless([0.5, 0.5, 0, 0]) if draft == "zero acceptance" else table(2)),
    )
    for seed in range(5):
        rounds = speculative(DRAFTS[draft], target, n_tokens, K, seed)
        assert len(text_of(rounds)) == n_tokens
        assert all(len(r.tokens) == r.n_accepted + 1 and len(r.drafts) <= K for r in rounds)
        if draft == "full acceptance":  # K + 1 tokens a round, but for the last
            assert [len(r.tokens) for r in rounds[:-1]] == [K + 1] * (-(-n_tokens // (K + 1)) - 1) * (
                n_tokens > 0
            )
        if draft == "zero acceptance":
            assert len(rounds) == n_tokens
        assert (
            len(baseline(target, n_tokens, seed))
            == len(text_of(baseline(target, n_tokens, seed)))
            == n_tokens
        )


class Limited:
    """A model with a context; it notes the longest text that it was asked about."""

    def __init__(self, model, n_ctx):
        self.model, self.n_ctx, self.longest = model, n_ctx, 0

    def __call__(self, tokens, n_last=1):
        self.longest = max(self.longest, len(tokens))
        return self.model(tokens, n_last)


@pytest.mark.parametrize("draft_ctx, target_ctx", [(12, 12), (12, 90), (90, 12)])
@pytest.mark.parametrize("K", [1, 3, 20])
def test_the_context_can_be_filled_and_never_be_exceeded(draft_ctx, target_ctx, K):
    draft, target = Limited(table(2), draft_ctx), Limited(table(2), target_ctx)
    assert len(text_of(speculative(draft, target, 12 - len(PROMPT), K))) == 10
    assert draft.longest < 12 and target.longest < 12  # the last token is emitted and never looked at
    with pytest.raises(ValueError, match="context of 12"):
        speculative_sampling(draft, target, PROMPT, 11, K, np.random.default_rng(0))


def test_the_baseline_fills_the_context_and_no_more():
    model = Limited(table(2), 12)
    assert len(baseline(model, 10)) == 10 and model.longest < 12
    with pytest.raises(ValueError, match="context of 12"):
        autoregressive_sampling(model, PROMPT, 11, np.random.default_rng(0))


# EOS (T6) and token 0 (T12) ---------------------------------------------------------------------------------

EOS_CASES = {  # where it falls: what the target says after the prompt, what the draft says; K = 3, 9 is EOS
    "first draft": ([9, 1, 2, 3, 4], [9, 1, 2, 3, 4]),
    "middle draft": ([1, 9, 2, 3, 4], [1, 9, 2, 3, 4]),
    "last draft": ([1, 2, 9, 3, 4], [1, 2, 9, 3, 4]),
    "bonus": ([1, 2, 3, 9, 4], [1, 2, 3, 9, 4]),
    "first correction": ([9, 1, 2, 3, 4], [5, 1, 2, 3, 4]),
    "later correction": ([1, 2, 9, 3, 4], [1, 2, 5, 3, 4]),
    "draft before a rejection": ([1, 9, 2, 3, 4], [1, 9, 5, 3, 4]),
    "refused draft": ([1, 2, 3, 4, 9, 5], [1, 9, 3, 4, 9, 5]),
    "twice": ([1, 9, 9, 2, 3], [1, 9, 9, 2, 3]),
    "second round": ([1, 2, 3, 4, 5, 9, 6], [1, 2, 3, 4, 5, 9, 6]),
}


@pytest.mark.parametrize(
    "eos", [9, [9], (8, 9), {8, 9}, np.array([9, 8])], ids=["id", "list", "tuple", "set", "array"]
)
@pytest.mark.parametrize("says, guesses", EOS_CASES.values(), ids=EOS_CASES)
def test_eos_is_the_last_token_wherever_it_falls(says, guesses, eos):
    target, draft, expected = scripted(PROMPT + says), scripted(PROMPT + guesses), says[: says.index(9) + 1]
    rounds = speculative(draft, target, 30, 3, eos=eos)
    assert list(text_of(rounds)) == list(text_of(baseline(target, 30, eos=eos))) == expected
    for r in rounds:
        assert r.tokens[: r.n_accepted] == r.drafts[: r.n_accepted] and len(r.tokens) - r.n_accepted in (0, 1)


def test_whichever_eos_comes_first_ends_the_text():
    model = scripted(PROMPT + [1, 8, 2, 9, 3])
    assert (
        text_of(speculative(model, model, 30, 4, eos=[9, 8]))
        == text_of(baseline(model, 30, eos=[9, 8]))
        == (1, 8)
    )


def test_eos_in_the_prompt_ends_nothing():
    model = scripted(PROMPT + [1] * 5)
    assert (
        len(text_of(speculative(model, model, 4, 2, eos=2))) == len(text_of(baseline(model, 4, eos=2))) == 4
    )


@pytest.mark.parametrize(
    "guesses", [[0] * 9, [0, 1] * 5, [1] * 9], ids=["drafted", "half drafted", "corrected"]
)
def test_token_0_is_a_token_like_any_other(guesses):
    target, draft = scripted([0] * 11), scripted([0, 0] + guesses)
    for eos in (None, 5, [5, 6]):
        assert text_of(speculative(draft, target, 9, 3, prompt=[0, 0], eos=eos)) == (0,) * 9
        assert text_of(baseline(target, 9, prompt=[0, 0], eos=eos)) == (0,) * 9
    assert text_of(speculative(draft, target, 9, 3, prompt=[0, 0], eos=0)) == (0,)
    assert text_of(baseline(target, 9, prompt=[0, 0], eos=0)) == (0,)


# What a round holds (T13, T14) ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [dict(), dict(temperature=0.6, top_k=3), dict(top_p=0.7), dict(temperature=0)], ids=str
)
def test_a_round_holds_the_distributions_that_were_sampled_from(settings):
    draft, target, x = table(1, n_vocab=5), table(2, n_vocab=5), list(PROMPT)
    for r in speculative(draft, target, 30, 4, **settings):
        assert np.array_equal(
            r.target_probs, probabilities(target(x + r.drafts, len(r.drafts) + 1), **settings)
        )
        for j, probs in enumerate(r.draft_probs):
            assert np.array_equal(probs, probabilities(draft(x + r.drafts[:j])[0], **settings))
            assert probs[r.drafts[j]] > 0
        x += r.tokens


@pytest.mark.parametrize(
    "settings", [{}, dict(temperature=0.6), dict(top_k=2), dict(top_p=0.7), dict(temperature=0)], ids=str
)
def test_a_draft_equal_to_the_target_is_never_refused(settings):
    with np.errstate(all="raise"):
        rounds = speculative(table(2, zeros=0.3), table(2, zeros=0.3), 200, 3, **settings)
    assert [r.n_accepted for r in rounds] == [3] * 50 and all(len(r.tokens) == 4 for r in rounds)
    assert stats.acceptance(rounds) == (150, 150)


def test_a_token_without_mass_is_refused_even_if_u_is_0():
    assert verify(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[1.0, 0.0]]), [0], Says(0.0, 0.0)) == (0, 1)


def test_an_empty_residual_falls_back_to_the_target():
    """Draft and target differ by rounding; u is so near 1 that the draft is refused: q - p is empty."""
    q, p = np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[np.nextafter(0.5, 1), 0.5]])
    assert verify(q, p, [0], Says(1 - 2**-53, 0.7)) == (0, 1)


# Arguments (T18) --------------------------------------------------------------------------------------------

BAD = [
    dict(tokens=[]),
    dict(tokens="text"),
    dict(tokens=b"text"),
    dict(tokens=[1, 2.0]),
    dict(tokens=3),
    dict(n_tokens=-1),
    dict(n_tokens=2.5),
    dict(n_tokens="5"),
    dict(temperature=-0.1),
    dict(temperature=np.nan),
    dict(temperature=np.inf),
    dict(temperature="1"),
    dict(top_k=-1),
    dict(top_k=1.5),
    dict(top_k=np.inf),
    dict(top_k="2"),
    dict(top_p=0),
    dict(top_p=-0.5),
    dict(top_p=1.5),
    dict(top_p=np.nan),
    dict(top_p="1"),
    dict(eos=1.0),
    dict(eos="abc"),
    dict(eos=[1, 2.0]),
    dict(eos=["9"]),
]


def never(tokens, n_last=1):
    raise AssertionError("the model was asked before the arguments were checked")


@pytest.mark.parametrize("bad", [*BAD, dict(K=0), dict(K=-3), dict(K=2.5), dict(K="4")], ids=str)
def test_arguments_are_checked_at_the_call(bad):
    arguments = dict(tokens=PROMPT, n_tokens=5, rng=np.random.default_rng(0)) | bad
    (name,) = bad
    says = {"tokens": "the prompt", "n_tokens": "the number of tokens"}.get(name, name)
    with pytest.raises(ValueError, match=f"^{says} .*: "):
        speculative_sampling(never, never, **{"K": 3} | arguments)
    if "K" not in bad:
        with pytest.raises(ValueError, match=f"^{says} .*: "):
            autoregressive_sampling(never, **arguments)


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint16])
def test_numbers_of_numpy_are_numbers(kind):
    settings = dict(temperature=np.float32(1), top_k=kind(2), top_p=np.float64(0.9), eos=kind(0))
    rng = np.random.default_rng(0)
    rounds = list(
        speculative_sampling(table(1), table(2), np.array(PROMPT), kind(9), kind(2), rng, **settings)
    )
    assert rounds and list(autoregressive_sampling(table(2), PROMPT, kind(9), rng, **settings))


def test_a_prompt_that_is_too_long_is_told_so_and_not_to_ask_for_0_tokens():
    with pytest.raises(ValueError, match="^the prompt has 81 tokens, .* context of 80: shorten it"):
        autoregressive_sampling(tiny_gpt2(), [1] * 81, 0, np.random.default_rng(0))
    with pytest.raises(ValueError, match="ask for at most 2 new tokens"):
        autoregressive_sampling(tiny_gpt2(), [1] * 78, 3, np.random.default_rng(0))


def rows_of(model, change):
    """The model with its logits changed."""
    return lambda tokens, n_last=1: change(model(tokens, n_last))


WRONG_LOGITS = {
    "a row too many": lambda x: np.concatenate([x, x[-1:]]),
    "no axis of rows": lambda x: x[0],
    "an axis too many": lambda x: x[None],
    "no rows": lambda x: x[:0],
}


@pytest.mark.parametrize("change", WRONG_LOGITS.values(), ids=WRONG_LOGITS)
def test_logits_with_a_wrong_number_of_rows_are_refused_at_the_first_call(change):
    wrong = rows_of(table(2), change)
    for rounds in (
        autoregressive_sampling(wrong, PROMPT, 5, np.random.default_rng(0)),
        speculative_sampling(wrong, table(2), PROMPT, 5, 3, np.random.default_rng(0)),
        speculative_sampling(table(2), wrong, PROMPT, 5, 3, np.random.default_rng(0)),
    ):
        with pytest.raises(ValueError, match="was asked for the logits of . positions and gave"):
            next(rounds)


@pytest.mark.parametrize("n_vocab", [1, 2, 4])
def test_another_vocabulary_is_refused_at_the_first_call_where_the_models_do_not_tell_theirs(n_vocab):
    rounds = speculative_sampling(table(1, n_vocab=n_vocab), table(2), PROMPT, 5, 2, np.random.default_rng(0))
    with pytest.raises(ValueError, match="different vocabularies"):
        next(rounds)


UNIFORM = np.full((2, 3), 1 / 3)
WRONG_DRAFTS = {
    "a token beyond the vocabulary": (([1, 3], None), "token 3, which is not in the target's vocabulary"),
    "a negative token": (([-1], None), "token -1, which is not in the target's vocabulary"),
    "no integers": (([1.0], None), "drafts must be a list of token ids"),
    "a word": (("ab", None), "drafts must be a list of token ids"),
    "too many": (([1] * 5, None), "5 tokens, and at most 3 were wanted"),
    "NaN": (([1, 1], UNIFORM * np.nan), "sum to nan"),
    "logits": (([1, 1], np.log(UNIFORM)), "sum to -3"),
    "a draft that cannot have been drawn": (([1], [[1.0, 0, 0]]), "that of the token is 0"),
    "too few distributions": (([1, 1], UNIFORM[:1]), "shapes .* for 2 drafts"),
    "too small a vocabulary": (([1], [[0.5, 0.5]]), "shapes .* for 1 drafts"),
}


@pytest.mark.parametrize("answer, says", WRONG_DRAFTS.values(), ids=WRONG_DRAFTS)
@pytest.mark.parametrize("target", [table(2), tiny_gpt2(n_vocab=3)], ids=["table", "GPT-2"])
def test_what_a_drafter_may_not_do_gets_one_sentence(answer, says, target):
    rounds = speculative_sampling(
        None, target, PROMPT, 9, 3, np.random.default_rng(0), propose=lambda *_: answer
    )
    with pytest.raises(ValueError, match=f"^the drafter .*{says}"):
        next(rounds)


def test_a_drafter_may_answer_with_numpys_integers_and_arrays():
    def likeliest(draft, x, k, to_probs, rng):
        return np.array([draft(x)[0].argmax()] * min(k, 1)), None

    rounds = list(
        speculative_sampling(table(1), table(2), PROMPT, 9, 3, np.random.default_rng(0), propose=likeliest)
    )
    assert len(text_of(rounds)) == 9 and all(
        type(token) is int for r in rounds for token in r.tokens + r.drafts
    )


def test_whoever_changes_a_round_does_not_change_the_text():
    def spoil(rounds):
        for r in rounds:
            yield list(r.tokens)
            r.tokens.clear(), r.drafts.clear()
            r.target_probs[:] = 0

    for sampler in (
        lambda rng: speculative_sampling(table(1), table(2), PROMPT, 30, 3, rng, eos=5),
        lambda rng: autoregressive_sampling(table(2), PROMPT, 30, rng, eos=5),
    ):
        texts = [
            [token for tokens in rounds for token in tokens]
            for rounds in (
                spoil(sampler(np.random.default_rng(4))),
                (r.tokens for r in sampler(np.random.default_rng(4))),
            )
        ]
        assert texts[0] == texts[1] and len(texts[0]) == 30


def test_models_of_different_vocabularies_are_refused_at_the_call():
    with pytest.raises(ValueError, match="13 and 14"):
        speculative_sampling(
            tiny_gpt2(n_vocab=13), tiny_gpt2(n_vocab=14), PROMPT, 5, 3, np.random.default_rng(0)
        )


def test_logits_that_are_nan_are_refused():
    broken = memoryless([np.nan, 0.5, 0.5])
    for rounds in (
        autoregressive_sampling(broken, PROMPT, 5, np.random.default_rng(0)),
        speculative_sampling(broken, table(2), PROMPT, 5, 3, np.random.default_rng(0)),
        speculative_sampling(table(2), broken, PROMPT, 5, 3, np.random.default_rng(0)),
    ):
        with pytest.raises(ValueError, match="NaN"):
            next(rounds)


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_the_callers_prompt_is_not_changed(kind):
    prompt = kind(PROMPT)
    rounds = [*speculative(table(1), table(2), 9, 3, prompt=prompt), *baseline(table(2), 9, prompt=prompt)]
    assert type(prompt) is type(kind(PROMPT)) and list(prompt) == PROMPT
    assert all(type(token) is int for r in rounds for token in [*r.tokens, *r.drafts])


# Statistics (T20) -------------------------------------------------------------------------------------------


def test_accepted_corrected_and_bonus_tokens_add_up():
    rounds = speculative(table(1), table(2), 200, 3)
    accepted, tested = stats.acceptance(rounds)
    bonus = sum(r.n_accepted == len(r.drafts) for r in rounds)
    assert accepted + (tested - accepted) + bonus == len(text_of(rounds)) == 200
    assert tested - accepted + bonus == len(rounds)
    # what follows a rejection is not tested
    assert 0 < accepted < tested < sum(len(r.drafts) for r in rounds)


def test_acceptance_does_not_count_what_follows_eos():
    says, guesses = EOS_CASES["middle draft"]
    assert stats.acceptance(
        speculative(scripted(PROMPT + guesses), scripted(PROMPT + says), 30, 3, eos=9)
    ) == (2, 2)
    says, guesses = EOS_CASES["draft before a rejection"]
    assert stats.acceptance(
        speculative(scripted(PROMPT + guesses), scripted(PROMPT + says), 30, 3, eos=9)
    ) == (2, 2)
    says, guesses = EOS_CASES["later correction"]
    assert stats.acceptance(
        speculative(scripted(PROMPT + guesses), scripted(PROMPT + says), 30, 3, eos=9)
    ) == (2, 3)
    assert stats.acceptance(baseline(table(2), 9)) == stats.acceptance([]) == (0, 0)


def test_of_a_tree_each_level_is_one_test():
    rows = np.ones((4, 3))
    nodes, parents = [1, 2, 0], [-1, -1, 0]
    rounds = [Round(tokens, nodes, n, rows, None, parents) for tokens, n in [
        ([0], 0), ([2, 1], 1), ([1, 2], 1), ([1, 0, 2], 2), ([1], 1)]]      # the last ended with an EOS
    assert [stats.acceptance([r]) for r in rounds] == [(0, 1), (1, 1), (1, 2), (2, 2), (1, 1)]
    assert stats.acceptance(rounds) == (5, 7)


def test_of_a_block_all_drafts_are_tested():
    rounds = speculative(scripted(PROMPT + [1, 5, 2, 3, 4]), scripted(PROMPT + [1, 2, 3, 4, 4]), 30, 3)
    assert rounds[0].n_accepted == 1 and stats.acceptance(rounds, block=True)[1] == sum(
        len(r.drafts) for r in rounds
    )
    ended = speculative(scripted(PROMPT + [1, 9, 2, 3]), scripted(PROMPT + [1, 9, 2, 3]), 30, 3, eos=9)
    assert stats.acceptance(ended, block=True) == (2, 2)


def many_rounds(draft, target, K, n_runs=150):
    """The first ten rounds of each run, too early for the budget to shorten them."""
    return [r for seed in range(n_runs) for r in speculative(draft, target, 11 * (K + 1), K, seed)[:10]]


def test_the_acceptance_rate_is_the_mass_that_both_distributions_share():
    """alpha = sum min(p, q) = .6, within four standard deviations; and 1 + .6 + .36 tokens a round."""
    rounds = many_rounds(memoryless([0.5, 0.3, 0.2]), memoryless([0.1, 0.6, 0.3]), K=2)
    accepted, tested = stats.acceptance(rounds)
    assert abs(accepted / tested - 0.6) < 4 * (0.6 * 0.4 / tested) ** 0.5
    # .87: of the capped geometric
    assert abs(len(text_of(rounds)) / len(rounds) - 1.96) < 4 * 0.87 / len(rounds) ** 0.5


def test_the_acceptance_rate_is_the_mean_shared_mass_also_if_it_varies():
    rounds = many_rounds(table(1, n_vocab=6), table(2, n_vocab=6), K=3, n_runs=40)
    accepted, tested = stats.acceptance(rounds)
    shared = [
        np.minimum(r.target_probs[j], r.draft_probs[j]).sum()
        for r in rounds
        for j in range(min(r.n_accepted + 1, len(r.drafts)))
    ]  # the tested ones
    assert len(shared) == tested
    assert abs(accepted - sum(shared)) < 4 * sum(beta * (1 - beta) for beta in shared) ** 0.5


def test_the_formula_is_off_where_acceptances_cluster():
    """Rounds of K = 4 that accept all and none take turns: 3 tokens a round, not 1 + .5 + .. + .5 ** 4."""
    target, draft = scripted([1] * 70), scripted([2 if n >= 2 and (n - 2) % 6 == 5 else 1 for n in range(70)])
    rounds = speculative(draft, target, 60, 4)
    assert [len(r.tokens) for r in rounds] == [5, 1] * 10
    assert stats.expected_tokens(0.5, 4) == 1.9375 != 60 / len(rounds) == 3


@pytest.mark.parametrize(
    "alpha, K, speed",
    [(0.6, 2, 1.96), (0.7, 3, 2.53), (0.8, 2, 2.44), (0.8, 5, 3.69), (0.9, 2, 2.71), (0.9, 10, 6.86)],
)
def test_table_1_of_leviathan(alpha, K, speed):
    assert round(stats.predicted_speedup(alpha, K, c=0), 2) == speed


@pytest.mark.parametrize(
    "alpha, K, c, speed",
    [
        (0.75, 7, 0.02, 3.1575),
        (0.80, 7, 0.04, 3.2509),
        (0.82, 7, 0.11, 2.4971),
        (0.62, 7, 0.02, 2.2580),
        (0.68, 5, 0.04, 2.3467),
        (0.71, 3, 0.11, 1.9338),
        (0.65, 5, 0.02, 2.4015),
        (0.73, 5, 0.04, 2.6193),
        (0.74, 3, 0.11, 2.0247),
        (0.53, 5, 0.02, 1.8914),
        (0.55, 3, 0.04, 1.8026),
        (0.56, 3, 0.11, 1.5408),
    ],
)
def test_theorem_3_8_of_leviathan_at_table_4(alpha, K, c, speed):
    assert round(stats.predicted_speedup(alpha, K, c), 4) == speed


def test_expected_tokens_at_the_ends():
    assert stats.expected_tokens(0, 5) == 1 and stats.expected_tokens(1, 5) == 6
    assert stats.expected_tokens(0.6, 2) == pytest.approx(1.96)
    assert stats.predicted_speedup(1, 4, c=0.25, v=1.5) == 5 / 2.5


def test_timed_notes_the_calls_and_is_the_model_otherwise():
    model = stats.Timed(tiny_gpt2())
    assert np.array_equal(model([1, 2, 3], 2), tiny_gpt2()([1, 2, 3], 2)) and model.n_ctx == 80
    assert [n_last for n_last, seconds in model.calls] == [2] and model.calls[0][1] > 0
    model.calls = [(1, 9.0), (1, 2.0), (5, 7.0), (1, 8.0), (1, 3.0)]  # the first call is the prompt
    assert model.seconds(1) == 3 and model.seconds(5) == 7 and model.seconds(2) is None
    assert not hasattr(stats.Timed(table(1)), "n_ctx") and not hasattr(stats.Timed(table(1)), "tree")
    model = stats.Timed(with_tree(tiny_gpt2()))
    model.tree([1, 2], [3, 4], [-1, 0])
    assert [rows for rows, seconds in model.calls] == [3]


def test_the_seconds_of_a_proposer_are_those_of_a_draft():
    proposer = stats.TimedProposer(lambda *arguments: ([1, 2], arguments))
    assert proposer(None, [0], 2) == ([1, 2], (None, [0], 2))
    assert [n_drafts for n_drafts, seconds in proposer.calls] == [2] and proposer.calls[0][1] > 0
    proposer.calls = [(0, 9.0), (2, 4.0), (3, 3.0), (1, 5.0)]                   # nothing was found at first
    assert proposer.seconds(1) == 2 and proposer.seconds(3) == 6
    proposer.calls = [(0, 9.0)]
    assert proposer.seconds(1) is None


def test_what_could_not_be_measured_is_none():
    assert stats.ratio(1, 4) == 0.25 and stats.ratio(0, 4) == 0
    assert stats.ratio(None, 4) is stats.ratio(1, None) is stats.ratio(1, 0) is None


def test_the_clock_stands_still_between_rounds(monkeypatch):
    now, times = [0], []

    def slow(tokens, n_last=1):
        now[0] += 2
        return table(2)(tokens, n_last)

    monkeypatch.setattr(stats, "clock", lambda: now[0])
    rounds = autoregressive_sampling(slow, PROMPT, 3, np.random.default_rng(0))
    for r in stats.clocked(rounds, times):
        now[0] += 100  # whoever watches takes his time
        assert len(r.tokens) == 1
    assert sum(times) == 3 * 2


@pytest.mark.parametrize(
    "alpha, c, v, reason",
    [
        (0.1, 0.1, 1, "too few drafts are accepted (10%)"),
        (0.9, 1, 1.2, "a draft step is too dear"),
        (0.9, 0.05, 5, "checking 5"),
    ],
)
def test_the_bottleneck_is_what_would_gain_most(alpha, c, v, reason):
    assert reason in stats.bottleneck(alpha, 4, c, v)
