"""The test of the tests: speculative sampling is easy to get almost right, and each way of getting it wrong
is caught.

Every entry changes a line or two of the real code.  The exact distribution of the changed sampler
(test_lossless.py), or the logits of the changed model (test_gpt2.py), is then clearly off.  Some changes
that look as bad are harmless: the distribution stays."""

import numpy as np
import pytest
from helpers import deviation_of, error_of_cache, error_of_logits, mutant

import gpt2
import speculative
from lossless import check, exact_distribution

ACCEPT = "rng.random() * p[token] < q[token]"
ROWS = "q, p = target_probs[j], draft_probs[j]"
RESIDUAL = "residual = np.maximum(q - p, 0)"
DRAW = "drafts.append(sample(p[-1], rng))"
NEW = "cut_after(drafts[:n_accepted] + [next_token], ends)"
THEN = "\n" + 8 * " "  # the next line of the drafting loop
LIMIT = "k = min(K, T - len(x) - 1)"
UNFILTERED = "probabilities(draft(x + drafts))[0]"  # without top-k
IMPORT = ("import numpy as np\n", "import numpy as np\nfrom sampling import probabilities\n")

WRONG = {
    "every draft is accepted": [(ACCEPT, "True")],
    "one coin decides on all drafts": [
        ("for j, token in enumerate(drafts):", "r = rng.random()\n    for j, token in enumerate(drafts):"),
        (ACCEPT, "r * p[token] < q[token]")],
    "no draft is accepted, the residual is kept": [(ACCEPT, "False")],
    "p and q are swapped in the accept test": [(ACCEPT, "rng.random() * q[token] < p[token]")],
    "the accept test is the probability itself": [(ACCEPT, "rng.random() < q[token]")],
    "drafts are accepted where the target likes them better": [(ACCEPT, "p[token] < q[token]")],
    "after a rejection the target's distribution is used, not the residual": [(RESIDUAL, "residual = q")],
    "the residual is p - q": [(RESIDUAL, "residual = np.maximum(p - q, 0)")],
    "the residual is |q - p|": [(RESIDUAL, "residual = np.abs(q - p)")],
    "the residual is a softmax of q - p": [(RESIDUAL, "residual = np.exp(q - p)")],
    "the draft's last distribution stands for every position": [
        (ROWS, "q, p = target_probs[j], draft_probs[-1]")
    ],
    "the target's rows are one too late": [(ROWS, "q, p = target_probs[j + 1], draft_probs[j]")],
    "the target's rows are one too early": [(ROWS, "q, p = target_probs[j - 1], draft_probs[j]")],
    "the target's rows are in reverse order": [
        (ROWS, "q, p = target_probs[len(drafts) - 1 - j], draft_probs[j]")
    ],
    "the bonus is drawn from row K - 1": [
        ("sample(target_probs[-1], rng)", "sample(target_probs[len(drafts) - 1], rng)")
    ],
    "the draft is drawn after top-k, its distribution recorded before": [
        IMPORT,
        (DRAW, f"unfiltered = {UNFILTERED}; {DRAW}; p[-1] = unfiltered"),
    ],
    "the distribution is recorded after top-k, the draft drawn before": [
        IMPORT,
        (DRAW, f"drafts.append(sample({UNFILTERED}, rng))"),
    ],
    "the draft is the argmax, its distribution recorded as the softmax": [
        (DRAW, "drafts.append(int(np.argmax(p[-1])))")
    ],
    "an unlikely draft is thrown away after it was drawn": [
        (DRAW, DRAW + THEN + "if p[-1][drafts[-1]] < .4:" + THEN + "    del p[-1], drafts[-1]; break")
    ],
    "text goes on after an accepted EOS": [(NEW, "drafts[:n_accepted] + [next_token]")],
    "the last round is as long as the others": [(LIMIT, "k = K")],
    "the accepted drafts are forgotten": [(NEW, "[next_token]")],
    "one accepted draft is lost": [(NEW, "drafts[:n_accepted][1:] + [next_token]")],
}

HARMLESS = {
    "nothing is changed": [],
    # A poor draft, but p is what it was drawn from.
    "the draft does not see its own drafts": [("to_probs(draft(x + drafts), 1)", "to_probs(draft(x), 1)")],
    "drafting stops before an unlikely token is drawn": [
        (DRAW, "if p[-1].max() < .6:" + THEN + "    del p[-1]; break" + THEN + DRAW)
    ],
    "drafting stops after an unlikely token, which is kept": [
        (DRAW, DRAW + THEN + "if p[-1][drafts[-1]] < .4:" + THEN + "    break")
    ],
}


def deviation(measure, changes):
    """What `measure` finds; infinity where a distribution is refused from which the draft cannot come."""
    try:
        return measure(mutant(speculative, *changes).speculative_sampling)
    except ValueError as error:
        assert "cannot come from" in str(error)
        return np.inf


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG)
def test_a_wrong_sampler_is_caught(changes):
    assert deviation(deviation_of, changes) > 0.01


@pytest.mark.long
@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG)
def test_lossless_check_finds_every_wrong_sampler(changes, capsys):
    found = deviation(lambda sampler: check(sampler, Ks=(1, 2), n_tokens=3), changes)
    assert found > 0.005 and (found == np.inf or "not lossless" in capsys.readouterr().out)


@pytest.mark.parametrize("changes", HARMLESS.values(), ids=HARMLESS)
def test_a_harmless_change_passes(changes):
    assert deviation_of(mutant(speculative, *changes).speculative_sampling) < 1e-12


# One token by hand: target (.1, .6, .3), draft (.5, .3, .2) -------------------------------------------------


@pytest.mark.parametrize(
    "changes, drawn_from, expected",
    [
        ([], [0.5, 0.3, 0.2], [0.1, 0.6, 0.3]),
        ([(RESIDUAL, "residual = q")], [0.5, 0.3, 0.2], [0.14, 0.54, 0.32]),
        ([], [1, 0, 0], [0.2, 0.6, 0.2]),
    ],
    ids=["right", "target instead of residual", "draft is the argmax"],
)
def test_wrong_distributions_of_one_token_are_as_computed_by_hand(changes, drawn_from, expected):
    q, p = np.array([[0.1, 0.6, 0.3], [0, 0, 1]]), np.array([[0.5, 0.3, 0.2]])
    verify, found = mutant(speculative, *changes).verify, np.zeros(3)
    for draft in range(3):
        for (n_accepted, token), chance in exact_distribution(lambda rng: verify(q, p, [draft], rng)).items():
            found[draft if n_accepted else token] += drawn_from[draft] * chance
    assert found == pytest.approx(expected)


# The model --------------------------------------------------------------------------------------------------

N_PAST = "n_past = min(common_prefix(tokens, self.cached), n_prompt)"
NO_ASSERT = ("assert tokens[:n_past] == self.cached[:n_past]", "pass")

VISIBLE = "xp.arange(n_past, n_past + n)[:, None]"

WRONG_CACHE = {
    "rejected keys and values stay in the cache": [
        (N_PAST, "n_past = min(len(self.cached), n_prompt)"),
        NO_ASSERT,
    ],
    "an accepted draft that was never fed is skipped": [
        (N_PAST, "n_past = n_prompt if self.cached else 0"),
        NO_ASSERT,
    ],
    "the cache is believed to be one longer": [
        ("common_prefix(tokens, self.cached),", "common_prefix(tokens, self.cached) + 1,"),
        NO_ASSERT,
    ],
    "positions are counted from the first new token": [('["wpe"][n_past:len(tokens)]', '["wpe"][:len(new)]')],
    "the mask is counted from the first new token": [
        (VISIBLE, "xp.arange(n)[:, None]")
    ],
}

WRONG_FORWARD = {
    "GELU by the error function": [
        (
            "(1 + xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))",
            "(1 + xp.vectorize(math.erf)(x * math.sqrt(.5)))",
        )
    ],
    "scores are not divided by sqrt(d_head)": [("q = q * (1 / math.sqrt(d_head))", "pass")],
    "scores are divided by sqrt(n_embd)": [("math.sqrt(d_head)", "math.sqrt(n_head * d_head)")],
    "queries and keys are swapped": [("q, k, v = qkv", "k, q, v = qkv")],
    "keys and values are swapped": [("q, k, v = qkv", "q, v, k = qkv")],
    "heads are cut before q, k, v": [
        ("qkv.reshape(n, 3, n_head, d_head)", "qkv.reshape(n, n_head, 3, d_head).transpose(0, 2, 1, 3)")
    ],
    "a token does not see itself": [(VISIBLE, VISIBLE + " - 1")],
    "a token sees the next one": [(VISIBLE, VISIBLE + " + 1")],
    "a bias is missing": [("attend(qkv), **c_proj)", "attend(qkv), c_proj['w'], 0 * c_proj['b'])")],
    "the variance is the unbiased one": [
        (
            "variance = xp.vecdot(x, x)[..., None] / x.shape[-1]",
            "variance = xp.vecdot(x, x)[..., None] / (x.shape[-1] - 1)",
        )
    ],
    "the layer norm has no bias": [("* g + b", "* g")],
    "the last layer norm is missing": [('linear(layer_norm(x, **self.params["ln_f"]), ', "linear(x, ")],
    "the attention's residual is missing": [("x = x + attention(", "x = attention(")],
    "the feed-forward's residual is missing": [("return x + feed_forward(", "return feed_forward(")],
}


def random_calls():
    rng = np.random.default_rng(0)
    return [
        (rng.integers(12), rng.integers(13, size=rng.integers(1, 6)).tolist(), rng.integers(1, 4))
        for _ in range(50)
    ]


@pytest.mark.parametrize("changes", WRONG_CACHE.values(), ids=WRONG_CACHE)
def test_a_wrong_cache_is_caught(changes):
    assert error_of_cache(random_calls(), mutant(gpt2, *changes)) > 0.1


@pytest.mark.parametrize("changes", WRONG_FORWARD.values(), ids=WRONG_FORWARD)
def test_a_wrong_forward_pass_is_caught(changes):
    assert error_of_logits(mutant(gpt2, *changes)) > 1e-3


def test_the_unchanged_model_passes():
    assert error_of_cache(random_calls(), mutant(gpt2)) < 1e-12
    assert error_of_logits(mutant(gpt2)) < 1e-6
