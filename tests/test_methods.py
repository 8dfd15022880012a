"""The table of methods: every drafter with every verifier does what it promises, or says why it cannot."""
import functools
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from helpers import OPTIONS, WITHIN, TinyModels, combinations, interrupted, small

from autoregressive import autoregressive_sampling
from lossless import text_of
from methods import DRAFTERS, VERIFIERS, Models, choose
from reporting.comparison import compared, ready, run, summary

ROOT = Path(__file__).resolve().parent.parent
PROMPT = [3, 1, 2]
FEW = [(4, 12, 0), (16, 3, 1), (1, 0, 0)]         # K, tokens, temperature
EVERY = [*itertools.product([1, 2, 4, 8, 16], [0, 1, 2, 5, 20], [0, 1])]


@pytest.mark.parametrize("sizes", [FEW, pytest.param(EVERY, marks=pytest.mark.long)], ids=["few", "every"])
@pytest.mark.parametrize("drafter", [*DRAFTERS, *WITHIN])
def test_what_goes_together_gives_n_tokens_and_the_greedy_text(drafter, sizes):
    """At any K and length, even if no round has K drafts.  The printed sentences have numbers, not "None"."""
    every = [typed for typed in combinations() if typed[0] == OPTIONS.get(drafter, drafter)]
    models, settings = TinyModels(), dict(top_k=0, top_p=1.0, eos=None)
    for typed, (i, (K, n, settings["temperature"])) in itertools.product(every, enumerate(sizes)):
        method = choose(*typed)
        pair, K = ready(method.pair(models, PROMPT, K, settings), PROMPT), method.n_drafts(K)
        alone, spec = (run(lambda pair, rng: sampler(pair.draft, pair.target, PROMPT, n, K, rng, **settings),
                           pair, np.random.default_rng(i))
                       for sampler in (method.baseline, method.sampler(pair)))
        assert len(alone.tokens) == len(spec.tokens) == n, typed
        assert all(r.n_accepted <= K and len(r.drafts) <= (len(method.shape) if method.shape else K)
                   for r in spec.rounds)
        if settings["temperature"] == 0 or typed[1] == "coupled":
            assert spec.tokens == alone.tokens, typed
        result = compared(alone, spec, pair, method, n, K, models.encoder, [1.0])
        named = dict(K=K, temperature=settings["temperature"], drafter=typed[0], verifier=typed[1])
        said = " ".join(summary(result | named))
        assert "None" not in said and "nan" not in json.dumps(result).lower(), typed
        assert ("lossy" in said) == (typed[1] in ("lenient", "typical") and n > 0)


def test_what_does_not_go_together_is_one_sentence_with_both_names():
    together, every = set(combinations()), itertools.product([*DRAFTERS, *WITHIN], VERIFIERS)
    apart = [(d, v) for d, v in every if (OPTIONS.get(d, d), v) not in together]
    assert len(apart) > 20 and len(together) > 40
    for drafter, verifier in apart:
        names = f"^--drafter {drafter.partition(':')[0]} .*--verifier {verifier}"
        with pytest.raises(ValueError, match=names):
            choose(drafter, verifier)


@pytest.mark.parametrize("kind, typed, says", [
    ("verifier", "tree:3,0", "at least one child"), ("verifier", "tree:3,x", "as in tree:3,2,1"),
    ("verifier", "tree:99,99", "more than"), ("verifier", "block:3", "takes no option"),
    ("verifier", "lenient:7", "lenience is 7"), ("verifier", "typical:.1,.2,.3", "as in typical:0.09,0.3"),
    ("verifier", "nope", "there is no verifier 'nope': use one of token, block"),
    ("drafter", "early_exit:x", "number of layers"), ("drafter", "ngram:nope.txt", "cannot read nope.txt"),
    ("drafter", "layer_skip:5", "as in layer_skip:a5"), ("drafter", "schedule:nope", "no drafter 'nope'"),
    ("drafter", "lookup:", "takes no option"), ("drafter", "nope.py", "cannot read nope.py")])
def test_a_word_that_means_nothing_is_told_before_anything_is_loaded(kind, typed, says):
    with pytest.raises(ValueError, match=says):
        choose(**dict(drafter="model", verifier="token") | {kind: typed})


def test_a_context_in_which_nothing_can_be_timed_is_told():
    for prompt in [1], [1] * 8:
        with pytest.raises(ValueError, match="of 8 tokens .* smaller K"):
            settings = dict(temperature=0, top_k=0, top_p=1.0, eos=None)
            choose("optimum", "token").pair(small(), prompt, 8, settings)


def test_options_mean_what_they_say():
    assert choose("model", "tree:3-2-1") == choose("model", "tree:3,2,1") == choose("model", "tree")
    assert choose("model", "tree:2,2").n_drafts(7) == 2 and choose("model", "token").n_drafts(7) == 7
    assert choose("layer_skip:a5,m6,a7", "token").drafter.option == [[5, 7], [6]]
    assert choose("schedule:ngram:README.md", "token").drafter.option.name == "ngram"
    assert not choose("eagle", "token").goes_in_batches and choose("lookup", "block").goes_in_batches


REMEMBERS = {"suffix", "jacobi", "schedule", "optimum", "layer_skip"}   # earlier runs change the drafts


@pytest.mark.parametrize("n_times", [1, pytest.param(20, marks=pytest.mark.fuzz)])
def test_ctrl_c_at_any_line_leaves_models_and_drafters_that_work(n_times):
    """Afterwards they answer a prompt that begins like the interrupted one just as new ones do."""
    settings, generator = dict(temperature=0, top_k=0, top_p=1.0, eos=None), np.random.default_rng

    def made():
        return method.pair(TinyModels(), [3, 1, 2], 3, settings)

    def text(pair, prompt):
        rounds = method.sampler(pair)(pair.draft, pair.target, prompt, 5, method.n_drafts(3), generator(7),
                                      **settings)
        return [token for r in rounds for token in r.tokens]

    for seed, typed in itertools.product(range(n_times), [*combinations()][::1 if n_times > 1 else 3]):
        method, rng = choose(*typed), generator([seed, *map(ord, "".join(typed))])
        pair = made()
        prompt = rng.integers(11, size=rng.integers(2, 30)).tolist()
        settings["temperature"] = 0 if typed[0].partition(":")[0] in REMEMBERS else int(rng.integers(2))
        interrupted(lambda: text(pair, prompt), int(rng.integers(1, 3000)))
        prompt[rng.integers(1, len(prompt)):] = [1, 2]
        assert text(pair, prompt) == text(made(), prompt), typed


OWN = "def propose(draft, x, k, to_probs, rng):\n    return [1] * k, None\n"


def test_a_file_of_ones_own_needs_no_entry(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    (tmp_path / "rule.py").write_text("from speculative import verify\n")
    method = choose(str(tmp_path / "mine.py"), str(tmp_path / "rule.py"))
    assert method.lossless is None
    assert choose(f"schedule:{tmp_path / 'mine.py'}", "token").lossless is None
    models = TinyModels()
    pair = method.pair(models, [1], 2, {})
    rounds = method.sampler(pair)(pair.draft, pair.target, [1], 9, 2, np.random.default_rng(0), temperature=0)
    alone = autoregressive_sampling(pair.target, [1], 9, np.random.default_rng(0), temperature=0)
    assert [t for r in rounds for t in r.tokens] == [t for r in alone for t in r.tokens]


@functools.cache
def greedy(prompt):
    """(the prompt's tokens, the embedded target's greedy text up to the end of the context)."""
    models = Models("demo-draft", "demo-target")
    tokens = models.encoder.encode(prompt)
    run = models.target, tokens, models.target.n_ctx - len(tokens), np.random.default_rng(0)
    return tokens, text_of(autoregressive_sampling(*run, temperature=0))


@pytest.mark.long
@pytest.mark.parametrize("typed", [
    *((drafter, "token") for drafter in [*DRAFTERS, *WITHIN]), ("model", "tree"), ("model", "tree:8"),
    ("model", "tree:2,2,2,2")], ids=" ".join)
def test_at_temperature_0_the_text_of_the_embedded_pair_is_the_baselines_over_5000_tokens(typed):
    """For texts up to the end of the context, at K = 1 .. 8."""
    models, n_tokens = Models("demo-draft", "demo-target"), 0
    method = choose(typed[0] + ":a5,m5" * (typed[0] == "layer_skip"), typed[1])
    settings = dict(temperature=0, top_k=0, top_p=1.0, eos=None)
    prompts = (ROOT / "benchmarks" / "prompts.txt").read_text(encoding="utf-8").splitlines()
    for i, line in enumerate(2 * prompts):
        (tokens, baseline), K = greedy(line[:40 + i]), 1 + i % 8
        pair = method.pair(models, tokens, K, settings)
        if method.shape and not pair.target.exact_paths:
            pytest.skip("this machine's kernels do not add in order, so a tree's paths may change their bits")
        run = pair.draft, pair.target, tokens, len(baseline), K, np.random.default_rng(0)
        assert text_of(method.sampler(pair)(*run, **settings)) == baseline, line
        n_tokens += len(baseline)
        if n_tokens > 5000:
            break
    assert n_tokens > 5000
