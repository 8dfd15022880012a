"""What the samplers promise besides the distribution: greedy equality, exact counts, EOS, context, seeds and
arguments; and the statistics of their rounds."""
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from helpers import Says, tiny_gpt2, without_cache
from hypothesis import given, settings
from hypothesis import strategies as st

from autoregressive import autoregressive_sampling
from checks import checked_rule
from drafters import lookup
from lossless import distribution_of_text, memoryless, scripted, table, text_of
from reporting import stats
from samplers.tree_model import with_tree
from sampling import Round, probabilities
from speculative import speculative_sampling, verify

PROMPT = [1, 2]


def speculative(draft, target, n_tokens, K, seed=0, prompt=PROMPT, **settings):
    rng = np.random.default_rng(seed)
    return list(speculative_sampling(draft, target, prompt, n_tokens, K, rng, **settings))


def baseline(target, n_tokens, seed=0, prompt=PROMPT, **settings):
    return list(autoregressive_sampling(target, prompt, n_tokens, np.random.default_rng(seed), **settings))


# Temperature 0 ----------------------------------------------------------------------------------------------

@given(st.integers(0, 999), st.integers(1, 9), st.integers(0, 30), st.booleans())
@settings(max_examples=50)
def test_greedy_text_of_tables_is_the_baselines(seed, K, n_tokens, sparse):
    draft, target = (table(s, zeros=.3 * sparse, n_vocab=3) for s in (seed, seed + 1))
    expected = text_of(baseline(target, n_tokens, temperature=0))
    assert text_of(speculative(draft, target, n_tokens, K, seed, temperature=0)) == expected


@pytest.mark.parametrize("K", [1, 2, 4, 7])
def test_greedy_text_of_float64_models_is_the_baselines(K):
    for seed in range(3):
        target, draft = tiny_gpt2(seed, np.float64), tiny_gpt2(seed, np.float64, n_layer=1)
        rounds = speculative(draft, target, 40, K, seed + 1, temperature=0)
        assert text_of(rounds) == text_of(baseline(target, 40, temperature=0))
        accepted, tested = stats.acceptance(rounds)
        assert 0 < accepted < tested                            # some drafts were kept and some rejected


def test_greedy_float32_text_is_the_targets_argmax_or_within_rounding_of_it():
    target, draft = tiny_gpt2(0), tiny_gpt2(0, n_layer=1)
    text = PROMPT + list(text_of(speculative(draft, target, 70, 4, temperature=0)))
    logits = without_cache(target)(text, len(text))[1:-1]       # the rows that predict text[2:]
    assert (logits.max(axis=1) - logits[np.arange(70), text[2:]]).max() < 1e-4


@pytest.mark.parametrize("temperature", [0, 1])
def test_caches_do_not_change_a_round(temperature):
    """Even if full rejection follows full acceptance, after which the draft has not seen its last token."""
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
    draft, target, rng, n, warm = table(1), table(2), np.random.default_rng(0), 2500, dict(temperature=4)
    found = distribution_of_text(target, PROMPT, 3, **warm)
    runs = (speculative_sampling(draft, target, PROMPT, 3, 2, rng, **warm) for _ in range(n))
    counts = Counter(map(text_of, runs))
    assert len(found) == 27 and min(found.values()) * n > 5
    assert sum((counts[text] - n * found[text]) ** 2 / (n * found[text]) for text in found) < 54.1


def test_the_seed_alone_fixes_the_text_and_global_random_states_are_not_touched():
    def texts(seed):
        return text_of(speculative(table(1), table(2), 30, 3, seed)), text_of(baseline(table(2), 30, seed))
    np.random.seed(3)
    before = repr(np.random.get_state()), random.getstate()
    assert texts(0) == texts(0) and texts(0) != texts(1)
    assert (repr(np.random.get_state()), random.getstate()) == before


# Exact counts -----------------------------------------------------------------------------------------------

DRAFTS = {"full acceptance": table(2), "partial acceptance": table(1),
          "zero acceptance": memoryless([0, 0, 0, 1])}


@pytest.mark.parametrize("K", [1, 2, 4])
@pytest.mark.parametrize("draft", DRAFTS)
def test_exactly_n_tokens_are_made(draft, K):
    target = memoryless([.5, .5, 0, 0]) if draft == "zero acceptance" else table(2)
    for n_tokens in {0, 1, 2, K, K + 1, K + 2, 20}:
        for seed in range(3):
            rounds = speculative(DRAFTS[draft], target, n_tokens, K, seed)
            assert len(text_of(rounds)) == len(baseline(target, n_tokens, seed)) == n_tokens
            assert all(len(r.tokens) == r.n_accepted + 1 and len(r.drafts) <= K for r in rounds)
            if draft == "full acceptance":                      # K + 1 tokens in every round but the last
                assert all(len(r.tokens) == K + 1 for r in rounds[:-1])
                assert len(rounds) == -(-n_tokens // (K + 1))
            if draft == "zero acceptance":
                assert len(rounds) == n_tokens


class Limited:
    """A model with a context, which notes the longest text that it was asked about."""

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
    assert draft.longest < 12 and target.longest < 12           # no model ever reads the last token
    with pytest.raises(ValueError, match="context of 12"):
        speculative_sampling(draft, target, PROMPT, 11, K, np.random.default_rng(0))
    model = Limited(table(2), 12)
    assert len(baseline(model, 10)) == 10 and model.longest < 12
    with pytest.raises(ValueError, match="context of 12"):
        autoregressive_sampling(model, PROMPT, 11, np.random.default_rng(0))


# EOS and token 0 --------------------------------------------------------------------------------------------

EOS_CASES = {           # where EOS falls: what target and draft say after the prompt; EOS is 9, K is 3
    "first draft": ([9, 1, 2, 3, 4], [9, 1, 2, 3, 4]),
    "middle draft": ([1, 9, 2, 3, 4], [1, 9, 2, 3, 4]),
    "last draft": ([1, 2, 9, 3, 4], [1, 2, 9, 3, 4]),
    "bonus": ([1, 2, 3, 9, 4], [1, 2, 3, 9, 4]),
    "first correction": ([9, 1, 2, 3, 4], [5, 1, 2, 3, 4]),
    "later correction": ([1, 2, 9, 3, 4], [1, 2, 5, 3, 4]),
    "draft before a rejection": ([1, 9, 2, 3, 4], [1, 9, 5, 3, 4]),
    "rejected draft": ([1, 2, 3, 4, 9, 5], [1, 9, 3, 4, 9, 5]),
    "twice": ([1, 9, 9, 2, 3], [1, 9, 9, 2, 3]),
    "second round": ([1, 2, 3, 4, 5, 9, 6], [1, 2, 3, 4, 5, 9, 6]),
}


@pytest.mark.parametrize("says, guesses", EOS_CASES.values(), ids=EOS_CASES)
def test_eos_is_the_last_token_wherever_it_falls(says, guesses):
    target, draft, expected = scripted(PROMPT + says), scripted(PROMPT + guesses), says[:says.index(9) + 1]
    for eos in 9, [9], (8, 9), {8, 9}, np.array([9, 8]):
        rounds = speculative(draft, target, 30, 3, eos=eos)
        assert list(text_of(rounds)) == list(text_of(baseline(target, 30, eos=eos))) == expected
        for r in rounds:
            assert r.tokens[:r.n_accepted] == r.drafts[:r.n_accepted]
            assert len(r.tokens) - r.n_accepted in (0, 1)


def test_whichever_eos_comes_first_ends_the_text_and_one_in_the_prompt_ends_nothing():
    for says, eos, text in ([1, 8, 2, 9, 3], [9, 8], (1, 8)), ([1] * 5, 2, (1,) * 4):
        model = scripted(PROMPT + says)
        assert text_of(speculative(model, model, 4, 2, eos=eos)) == text
        assert text_of(baseline(model, 4, eos=eos)) == text


@pytest.mark.parametrize("guesses", [[0] * 9, [0, 1] * 5, [1] * 9], ids=["drafted", "half", "corrected"])
def test_token_0_is_a_token_like_any_other(guesses):
    target, draft = scripted([0] * 11), scripted([0, 0] + guesses)
    for eos, n in (None, 9), ([5, 6], 9), (0, 1):
        assert text_of(speculative(draft, target, 9, 3, prompt=[0, 0], eos=eos)) == (0,) * n
        assert text_of(baseline(target, 9, prompt=[0, 0], eos=eos)) == (0,) * n


# What a round holds -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("settings", [dict(), dict(temperature=.6, top_k=3), dict(top_p=.7),
                                      dict(temperature=0)], ids=str)
def test_a_round_holds_the_distributions_that_were_sampled_from(settings):
    draft, target, x = table(1, n_vocab=5), table(2, n_vocab=5), list(PROMPT)
    for r in speculative(draft, target, 30, 4, **settings):
        q = probabilities(target(x + r.drafts, len(r.drafts) + 1), **settings)
        assert np.array_equal(r.target_probs, q)
        for j, probs in enumerate(r.draft_probs):
            assert np.array_equal(probs, probabilities(draft(x + r.drafts[:j])[0], **settings))
            assert probs[r.drafts[j]] > 0
        x += r.tokens


@pytest.mark.parametrize("settings", [{}, dict(temperature=.6), dict(top_k=2), dict(top_p=.7),
                                      dict(temperature=0)], ids=str)
def test_a_draft_equal_to_the_target_is_never_rejected(settings):
    with np.errstate(all="raise"):
        rounds = speculative(table(2, zeros=.3), table(2, zeros=.3), 200, 3, **settings)
    assert [r.n_accepted for r in rounds] == [3] * 50 and stats.acceptance(rounds) == (150, 150)


def test_a_token_without_mass_is_rejected_even_if_u_is_0():
    assert verify(np.array([[0., 1], [1, 0]]), np.array([[1., 0]]), [0], Says(0., 0.)) == (0, 1)


def test_an_empty_residual_falls_back_to_the_target():
    """Draft and target differ only by rounding, and u is so near 1 that the draft is rejected, although q - p
    is positive nowhere."""
    q, p = np.array([[.5, .5], [1, 0]]), np.array([[np.nextafter(.5, 1), .5]])
    assert verify(q, p, [0], Says(1 - 2**-53, .7)) == (0, 1)


def test_a_model_may_keep_the_tokens_it_was_given():
    """The samplers do not change a list after they have passed it to a model."""
    def remembering(model, kept):
        def asked(tokens, n_last=1):
            assert all(a == b for a, b in kept)                 # nobody else has changed them
            kept.append((tokens, list(tokens)))
            return model(tokens, n_last)
        return asked
    draft, target = remembering(table(1), []), remembering(table(2), [])
    assert len(text_of(speculative(draft, target, 9, 3))) == len(baseline(target, 9)) == 9


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_the_callers_prompt_is_not_changed(kind):
    prompt = kind(PROMPT)
    rounds = [*speculative(table(1), table(2), 9, 3, prompt=prompt), *baseline(table(2), 9, prompt=prompt)]
    assert type(prompt) is type(kind(PROMPT)) and list(prompt) == PROMPT
    assert all(type(token) is int for r in rounds for token in [*r.tokens, *r.drafts])


# Arguments --------------------------------------------------------------------------------------------------

BAD = {"tokens": [[], "text", b"text", [1, 2.0], 3], "n_tokens": [-1, 2.5, "5"],
       "temperature": [-.1, np.nan, np.inf, "1"], "top_k": [-1, 1.5, np.inf, "2"],
       "top_p": [0, -.5, 1.5, np.nan, "1"], "eos": [1.0, "abc", [1, 2.0], ["9"]], "K": [0, -3, 2.5, "4"]}


def never(tokens, n_last=1):
    raise AssertionError("the model was asked before the arguments were checked")


@pytest.mark.parametrize("name", BAD)
def test_arguments_are_checked_at_the_call(name):
    says = {"tokens": "the prompt", "n_tokens": "the number of tokens"}.get(name, name)
    for bad in BAD[name]:
        arguments = dict(tokens=PROMPT, n_tokens=5, rng=np.random.default_rng(0)) | {name: bad}
        with pytest.raises(ValueError, match=f"^{says} .*: "):
            speculative_sampling(never, never, **{"K": 3} | arguments)
        if name != "K":
            with pytest.raises(ValueError, match=f"^{says} .*: "):
                autoregressive_sampling(never, **arguments)


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint16])
def test_numbers_of_numpy_are_numbers(kind):
    settings = dict(temperature=np.float32(1), top_k=kind(2), top_p=np.float64(.9), eos=kind(0))
    assert speculative(table(1), table(2), kind(9), kind(2), prompt=np.array(PROMPT), **settings)
    assert baseline(table(2), kind(9), **settings)
    long = dict(prompt=PROMPT * 60, propose=lookup.propose, temperature=Fraction(1, 2)) # int8 would overflow
    assert len(text_of(speculative(None, table(2), kind(9), kind(2), **long))) == 9


def test_a_prompt_that_does_not_fit_with_its_new_tokens_is_refused():
    for n_prompt, n_tokens in (81, 0), (78, 3):
        with pytest.raises(ValueError, match=f"{n_prompt} tokens and {n_tokens} new ones .* shorten"):
            autoregressive_sampling(tiny_gpt2(), [1] * n_prompt, n_tokens, np.random.default_rng(0))


def test_models_of_different_vocabularies_are_refused_at_the_call():
    with pytest.raises(ValueError, match="13 and 14"):
        speculative(tiny_gpt2(n_vocab=13), tiny_gpt2(n_vocab=14), 5, 3)


def test_a_rule_of_ones_own_that_answers_nonsense_is_told_what_to_return():
    for answer in None, 1, (1,), (1, 2, 3), ("a", 1), (1, 1.5), (-1, 0), (3, 0), (0, -1), (0, 13), [0, None]:
        with pytest.raises(ValueError, match=r"^the rule returned .*: return \(n_accepted, next_token\)"):
            checked_rule(lambda *_: answer)(np.zeros((3, 13)), np.zeros((2, 13)), [1, 2], None)
    answers = checked_rule(lambda *_: [2, np.int64(12)])
    assert answers(np.zeros((3, 13)), np.zeros((2, 13)), [1, 2], None) == (2, 12)


SHAPES = "was asked for the logits of . positions and returned"
WRONG_MODELS = {            # name: (how it changes the logits of table(2), what the error says)
    "a row too many": (lambda x: np.concatenate([x, x[-1:]]), SHAPES),
    "no axis of rows": (lambda x: x[0], SHAPES),
    "an axis too many": (lambda x: x[None], SHAPES),
    "no rows": (lambda x: x[:0], SHAPES),
    "NaN": (lambda x: x * np.nan, "NaN"),
    "another vocabulary": (lambda x: x[:, :2], "different vocabularies"),
}


@pytest.mark.parametrize("change, says", WRONG_MODELS.values(), ids=WRONG_MODELS)
def test_wrong_logits_are_refused_at_the_first_call(change, says):
    def wrong(tokens, n_last=1):
        return change(table(2)(tokens, n_last))
    rng = np.random.default_rng(0)
    runs = [speculative_sampling(*pair, PROMPT, 5, 3, rng) for pair in ((wrong, table(2)), (table(2), wrong))]
    if says != "different vocabularies":                        # alone, it is a small vocabulary
        runs.append(autoregressive_sampling(wrong, PROMPT, 5, rng))
    for rounds in runs:
        with pytest.raises(ValueError, match=says):
            next(rounds)


UNIFORM = np.full((2, 3), 1 / 3)
WRONG_DRAFTS = {
    "a token beyond the vocabulary": (([1, 3], None), "token 3, which is not in the target's vocabulary"),
    "a negative token": (([-1], None), "token -1, which is not in the target's vocabulary"),
    "no integers": (([1.0], None), "drafts must be a list of token ids"),
    "a word": (("ab", None), "drafts must be a list of token ids"),
    "too many": (([1] * 5, None), "5 tokens, but at most k = 3 were wanted"),
    "NaN": (([1, 1], UNIFORM * np.nan), "sum to nan"),
    "logits": (([1, 1], np.log(UNIFORM)), "sum to -3"),
    "a draft that cannot have been drawn": (([1], [[1., 0, 0]]), "that of the token is 0"),
    "too few distributions": (([1, 1], UNIFORM[:1]), "shapes .* for 2 drafts"),
    "a generator of distributions": (([1], (p for p in UNIFORM)), "returned"),
    "a number for p": (([1], np.array(.5)), "returned"),
    "too small a vocabulary": (([1], [[.5, .5]]), "shapes .* for 1 drafts"),
}


@pytest.mark.parametrize("answer, says", WRONG_DRAFTS.values(), ids=WRONG_DRAFTS)
def test_what_a_drafter_may_not_do_gets_one_sentence(answer, says):
    with pytest.raises(ValueError, match=f"^the drafter .*{says}"):
        speculative(None, tiny_gpt2(n_vocab=3), 9, 3, propose=lambda *_: answer)


# Statistics -------------------------------------------------------------------------------------------------

def test_accepted_corrected_and_bonus_tokens_add_up():
    rounds = speculative(table(1), table(2), 200, 3)
    accepted, tested = stats.acceptance(rounds)
    bonus = sum(r.n_accepted == len(r.drafts) for r in rounds)
    assert accepted + (tested - accepted) + bonus == len(text_of(rounds)) == 200
    assert tested - accepted + bonus == len(rounds)
    assert 0 < accepted < tested < sum(len(r.drafts) for r in rounds)   # what follows a rejection is untested


def test_acceptance_does_not_count_what_follows_eos():
    for case, expected in [("middle draft", (2, 2)), ("draft before a rejection", (2, 2)),
                           ("later correction", (2, 3))]:
        says, guesses = (scripted(PROMPT + text) for text in EOS_CASES[case])
        assert stats.acceptance(speculative(guesses, says, 30, 3, eos=9)) == expected
    assert stats.acceptance(baseline(table(2), 9)) == stats.acceptance([]) == (0, 0)


def test_of_a_tree_each_level_is_one_test():
    rows = np.ones((4, 3))
    nodes, parents = [1, 2, 0], [-1, -1, 0]
    rounds = [Round(tokens, nodes, n, rows, None, parents) for tokens, n in [
        ([0], 0), ([2, 1], 1), ([1, 2], 1), ([1, 0, 2], 2), ([1], 1)]]      # EOS ended the last one
    assert [stats.acceptance([r]) for r in rounds] == [(0, 1), (1, 1), (1, 2), (2, 2), (1, 1)]
    assert stats.acceptance(rounds) == (5, 7)


def test_of_a_block_all_drafts_are_tested():
    rounds = speculative(scripted(PROMPT + [1, 5, 2, 3, 4]), scripted(PROMPT + [1, 2, 3, 4, 4]), 30, 3)
    assert rounds[0].n_accepted == 1
    assert stats.acceptance(rounds, block=True)[1] == sum(len(r.drafts) for r in rounds)
    ended = speculative(scripted(PROMPT + [1, 9, 2, 3]), scripted(PROMPT + [1, 9, 2, 3]), 30, 3, eos=9)
    assert stats.acceptance(ended, block=True) == (2, 2)


def many_rounds(draft, target, K, n_runs=150):
    """The first ten rounds of each run, so early that the budget does not shorten them."""
    return [r for seed in range(n_runs) for r in speculative(draft, target, 11 * (K + 1), K, seed)[:10]]


def test_the_acceptance_rate_is_the_mass_that_both_distributions_share():
    """alpha = sum min(p, q) = .6 and 1 + .6 + .36 tokens per round, within four standard deviations."""
    rounds = many_rounds(memoryless([.5, .3, .2]), memoryless([.1, .6, .3]), K=2)
    accepted, tested = stats.acceptance(rounds)
    assert abs(accepted / tested - .6) < 4 * (.6 * .4 / tested) ** .5
    # .87 is the standard deviation of the capped geometric distribution
    assert abs(len(text_of(rounds)) / len(rounds) - 1.96) < 4 * .87 / len(rounds) ** .5


def test_the_acceptance_rate_is_the_mean_shared_mass_also_if_it_varies():
    rounds = many_rounds(table(1, n_vocab=6), table(2, n_vocab=6), K=3, n_runs=20)
    accepted, tested = stats.acceptance(rounds)
    shared = [np.minimum(r.target_probs[j], r.draft_probs[j]).sum()
              for r in rounds for j in range(min(r.n_accepted + 1, len(r.drafts)))]     # the tested ones
    assert len(shared) == tested
    assert abs(accepted - sum(shared)) < 4 * sum(beta * (1 - beta) for beta in shared) ** .5


def test_the_formula_is_off_where_acceptances_cluster():
    """Rounds with K = 4 alternate between accepting all drafts and none: of the five tested in two rounds,
    four are accepted.  That makes 3 tokens per round, not 1 + .8 + .. + .8 ** 4."""
    target, draft = scripted([1] * 70), scripted([2 if n >= 2 and (n - 2) % 6 == 5 else 1 for n in range(70)])
    rounds = speculative(draft, target, 60, 4)
    assert [len(r.tokens) for r in rounds] == [5, 1] * 10
    accepted, tested = stats.acceptance(rounds)                 # the last round has no room for a test
    assert (accepted, tested) == (40, 49) and 60 / len(rounds) == 3 < stats.expected_tokens(.8, 4) - .3


def test_theorem_3_8_of_leviathan_at_table_4():
    for alpha, K, c, speed in [
            (.75, 7, .02, 3.1575), (.80, 7, .04, 3.2509), (.82, 7, .11, 2.4971), (.62, 7, .02, 2.2580),
            (.68, 5, .04, 2.3467), (.71, 3, .11, 1.9338), (.65, 5, .02, 2.4015), (.73, 5, .04, 2.6193),
            (.74, 3, .11, 2.0247), (.53, 5, .02, 1.8914), (.55, 3, .04, 1.8026), (.56, 3, .11, 1.5408)]:
        assert round(stats.predicted_speedup(alpha, K, c), 4) == speed


def test_expected_tokens_at_the_ends():
    assert stats.expected_tokens(0, 5) == 1 and stats.expected_tokens(1, 5) == 6
    assert stats.expected_tokens(.6, 2) == pytest.approx(1.96)
    assert stats.predicted_speedup(1, 4, c=.25, v=1.5) == 5 / 2.5


def test_timed_notes_the_calls_and_is_the_model_otherwise():
    model = stats.Timed(tiny_gpt2())
    assert np.array_equal(model([1, 2, 3], 2), tiny_gpt2()([1, 2, 3], 2)) and model.n_ctx == 80
    assert [n_last for n_last, seconds in model.calls] == [2] and model.calls[0][1] > 0
    model.calls = [(1, 9.), (1, 2.), (5, 7.), (1, 8.), (1, 3.)]         # the first call ran the prompt
    assert model.seconds(1) == 3 and model.seconds(5) == 7 and model.seconds(2) is None
    assert not hasattr(stats.Timed(table(1)), "n_ctx") and not hasattr(stats.Timed(table(1)), "tree")
    model = stats.Timed(with_tree(tiny_gpt2()))
    model.tree([1, 2], [3, 4], [-1, 0])
    assert [rows for rows, seconds in model.calls] == [3]


def test_the_seconds_of_a_drafter_are_those_of_a_draft():
    drafter = stats.TimedDrafter(lambda *arguments: ([1, 2], arguments))
    assert drafter(None, [0], 2) == ([1, 2], (None, [0], 2))
    assert [n_drafts for n_drafts, seconds in drafter.calls] == [2] and drafter.calls[0][1] > 0
    drafter.calls = [(0, 9.), (2, 4.), (3, 3.), (1, 5.)]               # the first call found nothing
    assert drafter.seconds(1) == 2 and drafter.seconds(3) == 6
    drafter.calls = [(0, 9.)]
    assert drafter.seconds(1) is None


def test_what_could_not_be_measured_is_none():
    assert stats.ratio(1, 4) == .25 and stats.ratio(0, 4) == 0
    assert stats.ratio(None, 4) is stats.ratio(1, None) is stats.ratio(1, 0) is None


def test_the_clock_stands_still_between_rounds(monkeypatch):
    now, times = [0], []

    def slow(tokens, n_last=1):
        now[0] += 2
        return table(2)(tokens, n_last)

    monkeypatch.setattr(stats, "clock", lambda: now[0])
    for r in stats.clocked(autoregressive_sampling(slow, PROMPT, 3, np.random.default_rng(0)), times):
        now[0] += 100                                           # the caller takes its time
        assert len(r.tokens) == 1
    assert sum(times) == 3 * 2
