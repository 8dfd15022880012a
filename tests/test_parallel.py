"""The parallel head: it is lossless whatever it has learnt, and its rows are those of a plain causal pass."""
import numpy as np
import pytest
from helpers import small, tiny_gpt2

from autoregressive import autoregressive_sampling
from drafters.adaptive import confidence
from drafters.heads import unit
from drafters.parallel import Parallel
from gpt2 import GPT2, layer_norm
from lossless import check
from methods import Models, choose
from speculative import speculative_sampling


def tiny(target, kind=Parallel, **more):
    """A head with random weights for a tiny target."""
    rng, n, n_vocab = np.random.default_rng(1), target.params["wte"].shape[1], target.n_vocab

    def normal(*shape):
        return rng.normal(scale=.4, size=shape)

    donor = tiny_gpt2(1, np.float64, n_embd=n, n_layer=1).params
    return kind(target, {"layers": [1, 2], "from_states": {"w": normal(3 * n, n), "b": normal(n)},
                         "from_token": normal(n, n), "from_position": normal(n, n), "masks": normal(7, n),
                         "blocks": donor["blocks"], "ln_f": donor["ln_f"], "previous": 4 * normal(n_vocab, 3),
                         "bias": normal(3, n)}, **more)


def deviation(kind=Parallel, K=2, temperature=1.0, n_tokens=3, **more):
    """How far the distribution of the text is from that of a tiny target."""
    def run(_, target, *rest, **settings):
        target.reset()                                  # or an earlier run would change the last bits
        head = tiny(target, kind, **more)
        return speculative_sampling(None, target, *rest, propose=head.propose, **settings)
    target = tiny_gpt2(3, np.float64, n_vocab=3, n_ctx=8)
    return check(run, [(None, target)], Ks=(K,), n_tokens=n_tokens, temperature=temperature)


@pytest.mark.parametrize("settings", [{}, dict(temperature=0), dict(threshold=.4)])
def test_the_text_has_the_targets_distribution(settings):
    assert deviation(**settings) < 1e-12


class BiasOfAnotherToken(Parallel):
    """Wrong: it draws with the bias of the token before, but reports every row with the bias of x_n."""

    def propose(self, draft, x, k, to_probs, rng):
        drafts, _ = super().propose(draft, x, k, to_probs, rng)
        return drafts, [to_probs((row + self.U[x[-1]] @ self.V)[None], 1)[0]
                        for row in (self.logits(x, k) if k else [])]


class WithoutTheBias(Parallel):
    def propose(self, draft, x, k, to_probs, rng):
        drafts, _ = super().propose(draft, x, k, to_probs, rng)
        return drafts, to_probs(self.logits(x, k), k) if k else []


class LooksAhead(Parallel):
    """Wrong: it cuts the block before the first unlikely draft, so the drafts decide how many there are."""

    def propose(self, draft, x, k, to_probs, rng):
        drafts, p = super().propose(draft, x, k, to_probs, rng)
        kept = next((j for j, token in enumerate(drafts) if p[j][token] < .4), len(drafts))
        return drafts[:kept], p[:kept]


@pytest.mark.parametrize("kind, n_tokens", [(BiasOfAnotherToken, 3), (WithoutTheBias, 2), (LooksAhead, 2)])
def test_a_wrong_version_is_found(kind, n_tokens):
    assert deviation(kind, n_tokens=n_tokens) > 1e-4


def test_the_rows_are_those_of_a_plain_causal_pass():
    """The plain pass has no cache, and its inputs for the masks are written out."""
    target, x, k = tiny_gpt2(5, np.float64), [3, 1, 4, 1, 5, 9], 4
    head = tiny(target)
    head.logits(x[:3], 8), head.logits(x[:5], 2)                        # earlier calls
    params, wte = head.params, target.params["wte"]
    target(x)
    states = target.states[[1, 2, -1], :len(x) - 1]                     # [3, 5, n_embd]
    last = layer_norm(states[2], **target.params["ln_f"])
    before = np.pad(np.concatenate([unit(states[0]), unit(states[1]), last], 1), [(1, 0), (0, 0)])
    inputs = before @ params["from_states"]["w"] + params["from_states"]["b"]
    inputs = inputs + unit(wte)[x] @ params["from_token"]
    inputs = np.concatenate([inputs, *(inputs[-1:] + mask for mask in params["masks"][:k - 1])])
    inputs = inputs + unit(target.params["wpe"])[:len(inputs)] @ params["from_position"]
    alone = GPT2({"wte": inputs, "wpe": np.zeros_like(inputs), "blocks": params["blocks"],
                  "ln_f": params["ln_f"]}, target.n_head)
    alone(range(len(inputs)))                                           # every input a "token" of its own
    expected = layer_norm(alone.states[-1, len(x) - 1:len(inputs)], **params["ln_f"]) @ wte.T   # [k, n_vocab]
    assert np.allclose(head.logits(x, k), expected, atol=1e-12)


def test_each_draft_is_drawn_with_the_bias_of_the_token_before_it():
    head, x, seen = tiny(tiny_gpt2(5, np.float64)), [3, 1, 4], []
    drafts, _ = head.propose(None, x, 4, lambda logits, n: seen.append(logits[0]) or np.full((1, 13), 1 / 13),
                             np.random.default_rng(0))
    bias = head.params["previous"] @ head.params["bias"] @ head.target.params["wte"].T      # [13, 13]
    assert np.allclose(seen, head.logits(x, 4) + bias[[4, *drafts[:3]]], atol=1e-12)


def test_what_it_says_depends_on_the_tokens_alone():
    target, rng, x = tiny_gpt2(5, np.float64, n_ctx=24), np.random.default_rng(7), [1]
    head = tiny(target)
    for _ in range(30):
        x = x[:rng.integers(1, len(x) + 1)] if rng.random() < .5 else x
        x = (x + rng.integers(0, 13, rng.integers(0, 6)).tolist())[:23]
        k = min(8, 24 - len(x))
        fresh = tiny(tiny_gpt2(5, np.float64, n_ctx=24)).logits(x, k)
        assert np.allclose(head.logits(x, k), fresh, atol=1e-12)
        target(x + rng.integers(0, 13, k).tolist())                     # the verification


def test_one_pass_of_the_head_a_round_and_none_of_the_target_but_the_prompts(monkeypatch):
    """Drafting costs one pass of the head.  The target only runs the prompt and the verifications."""
    target, passes = tiny_gpt2(3), []
    head, forward, layers = tiny(target), target.forward, GPT2.layers
    monkeypatch.setattr(target, "forward", lambda *run: passes.append("target") or forward(*run))
    monkeypatch.setattr(head.block, "layers", lambda *run: passes.append("head") or layers(head.block, *run))
    rounds = list(speculative_sampling(None, target, [5, 1, 2], 40, 4, np.random.default_rng(0),
                                       propose=head.propose))
    drafting = sum(bool(r.drafts) for r in rounds)
    assert passes.count("head") == drafting and passes.count("target") == len(rounds) + 1


def test_confident_cuts_the_block_after_an_unlikely_draft():
    models, method = small(), choose("confident:parallel", "token")
    pair, seen = method.pair(models, [1], 8, {}), []

    def to_probs(logits, n):
        seen.append(logits)
        return np.exp(logits) / np.exp(logits).sum()

    lengths = set()
    for seed in range(20):
        seen.clear()
        drafts, p = pair.propose(None, [1], 7, to_probs, np.random.default_rng(seed))
        sure = [confidence(row, token) >= .4 for row, token in zip(seen, drafts)]
        assert all(sure[:-1]) and (len(drafts) == 7 or not sure[-1])
        lengths.add(len(drafts))
    assert len(lengths) > 1


@pytest.mark.parametrize("K", [2, 8])
def test_the_embedded_head_foretells_the_embedded_target(K):
    """Acceptance is far above chance, which is 1 in 4,096; the figures are in the head's model card."""
    models, method = Models("demo-draft", "demo-target"), choose("parallel", "token")
    tokens = models.encoder.encode("There was a long silence.")
    pair, run = method.pair(models, tokens, K, {}), (tokens, 40)
    rounds = list(method.sampler(pair)(None, pair.target, *run, K, np.random.default_rng(0), temperature=0))
    baseline = autoregressive_sampling(pair.target, *run, np.random.default_rng(0), temperature=0)
    assert [t for r in rounds for t in r.tokens] == [t for r in baseline for t in r.tokens]
    assert len(rounds) < 25
