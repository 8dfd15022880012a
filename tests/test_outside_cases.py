"""Cases that others made: inputs and results from other projects' tests, documentation, papers and data.

Cases that need the weights of GPT-2 are in test_weights.py."""
import numpy as np
import pytest
from helpers import Says, mean_accepted
from test_encoder import WHERE, needs_vocabulary

from benchmarks import counts
from benchmarks.sequoia import best_tree
from encoder import Encoder, bytes_to_unicode
from lossless import exact_distribution
from lossless.toys import memoryless
from methods.drafters import lookup
from methods.samplers import block
from methods.samplers.tree import walk
from sampling import point_masses, probabilities
from speculative import speculative_sampling, verify
from utils import load_encoder

# Accept rules -----------------------------------------------------------------------------------------------

def test_leetgpu():
    """AlphaGPU/leetgpu-challenges @ 5a5c5d8, challenges/medium/87, the example: output 1, 3, 0, 0 (0 pads).
    Its last number is for the draw; the number for the third draft is not used."""
    p = np.array([[.1, .6, .2, .1], [.1, .2, .5, .2], [.4, .2, .2, .2]])
    q = np.array([[.1, .5, .2, .2], [.3, .2, .2, .3], [.3, .2, .3, .2], [.25, .25, .25, .25]])
    assert verify(q, p, [1, 2, 0], Says(.50, .70, .90)) == (1, 3)


def test_flashinfer():
    """flashinfer-ai/flashinfer @ fb28d72, the docstring of chain_speculative_sampling: 2, 0, -1 for every
    seed."""
    p = np.array([[.1, .2, .3, .4], [.2, .3, .4, .1]])
    q = np.array([[0, .1, .6, .3], [1, 0, 0, 0], [.7, .1, .1, .1]])
    assert exact_distribution(lambda rng: verify(q, p, [2, 1], rng)) == {(1, 0): pytest.approx(1)}


@pytest.mark.parametrize("tokens, parents, says, path", [
    ([1, 2, 3, 4, 5], [-1, 0, -1, 2, 3], {0: 3, 3: 4, 4: 5}, [3, 4, 5]),
    ([8, 9, 10, 11, 12], [-1, 0, 1, -1, 3], {0: 11, 4: 12}, [4, 5])])
def test_sglangs_trees(tokens, parents, says, path):
    """sgl-project/sglang, sgl-kernel/tests/speculative/test_eagle_utils.py: accept_index, then token 18.
    There, node 0 is the root, whose token is known."""
    q = point_masses([says.get(node, 18) for node in range(6)], 19)
    found, token = walk(q, None, tokens, parents, None, np.random.default_rng(0))
    assert [place + 1 for place in found] == path and token == 18


@pytest.mark.parametrize("rule, due", [(verify, 10 / 9), (block.verify, 11 / 9)], ids=["token", "block"])
def test_the_toy_of_block_verification(rule, due):
    """Sun et al. 2024 (arXiv 2403.10444), section 2: the expected number of accepted drafts, of two."""
    draft, target = memoryless([2 / 3, 1 / 3]), memoryless([1 / 3, 2 / 3])
    assert mean_accepted(lambda rng: speculative_sampling(
        draft, target, [0], 3, 2, rng, verify=rule)) == pytest.approx(due, abs=1e-12)


# Distributions ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("settings, due", [
    (dict(top_k=1), [0, 0, 0, 1]), (dict(top_k=3), [0, 2 / 9, 3 / 9, 4 / 9]),
    (dict(top_p=.7), [0, 0, 3 / 7, 4 / 7]), (dict(top_p=.8), [0, 2 / 9, 3 / 9, 4 / 9]),
    (dict(temperature=0), [0, 0, 0, 1])], ids=str)
def test_llama_cpps_samplers(settings, due):
    """ggml-org/llama.cpp, tests/test-sampling.cpp."""
    assert probabilities(np.log([.1, .2, .3, .4]), **settings) == pytest.approx(np.array(due), abs=1e-6)


# Look-ups ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("x, k, drafts", [
    ([1, 2, 3, 4, 1, 2, 3], 3, [4, 1, 2]), ([1, 3, 6, 2, 3, 4, 1, 2, 3], 3, [4, 1, 2]),
    ([2, 3, 4, 5, 1, 2, 3, 4, 1, 2, 3, 4], 2, [1, 2]), ([3, 4, 5, 2, 3, 4, 1, 2, 3, 4], 2, [1, 2]),
    ([1, 2, 3, 100, 1, 2, 3, 200, 1, 2, 3, 300, 1, 2, 3], 2, [300, 1])], ids=str)
def test_vllms_look_ups(x, k, drafts):
    """vllm-project/vllm, tests/v1/spec_decode/test_ngram.py.  The last case differs by design: vLLM takes the
    first match, [100, 1], and methods/drafters/lookup.py the last."""
    assert lookup.propose(None, x, k, None, None) == (drafts, None)


# Trees and counts -------------------------------------------------------------------------------------------

# Infini-AI-Lab/Sequoia @ 0ff3ff7, acceptance-rate-vector.pt without its first entry (no child) and its last
SEQUOIA = [0.63418293, 0.10794602, 0.056971513, 0.022488756, 0.019490255, 0.014992503, 0.0044977511,
           0.0029985008, 0.011994003, 0.0044977511, 0.0074962517, 0.0044977511, 0.0059970017, 0.0029985008,
           0.0014992504, 0.0029985008, 0.0014992504, 0.0029985008, 0, 0.0029985008, 0.0029985008,
           0.0029985008, 0, 0.0014992504, 0, 0.0014992504, 0, 0, 0, 0.0014992504, 0.0014992504,
           0.0014992504]


@pytest.mark.parametrize("nodes, levels, tokens", [
    (2, 2, 1.634183), (4, 4, 2.291432), (5, 5, 2.453187), (8, 10, 2.732173), (16, 10, 3.130289),
    (32, 10, 3.500739), (64, 10, 3.852309)])
def test_sequoias_dynamic_program(nodes, levels, tokens):
    """Sequoia's tree_search.py on its vector.  There the root counts as a node and as a level."""
    assert best_tree(SEQUOIA, nodes - 1, levels - 1)[0] == pytest.approx(tokens, abs=1e-6)


def test_sequoias_demo_tree():
    """Sequoia's demo_tree.pt, Successors [[1], [2], [3], []]: a chain of four nodes, the root included."""
    assert best_tree(SEQUOIA, 3, 3)[1] == [-1, 0, 1]


def test_vllms_rates_by_position():
    """vllm-project/vllm 40662: the unconditional rates .9, .5, .2; the mean length is 2.6."""
    cell = counts.figures(counts.tally(10, 26, 30, [9, 5, 2], [10, 9, 5]))
    assert [cell["tokens"], cell["drafts"]] == [2.6, 3]
    assert [cell["accepted"], cell["tested"]] == [[.9, .5, .2], [1, .9, .5]]


# The tokenizer ----------------------------------------------------------------------------------------------

@needs_vocabulary
def test_tiktokens_digits():
    """openai/tiktoken @ 4e71bbe, tests/test_encoding.py."""
    encoder = load_encoder(WHERE)
    assert encoder.encode("hello world") == [31373, 995]
    assert [encoder.encode("0" * n) for n in range(1, 18)] == [
        [15], [405], [830], [2388], [20483], [10535], [24598], [8269], [10535, 830], [8269, 405], [8269, 830],
        [8269, 2388], [8269, 20483], [8269, 10535], [8269, 24598], [25645], [8269, 10535, 830]]


def test_wikipedias_example_of_byte_pairs():
    """karpathy/minbpe, tests/test_tokenizer.py."""
    merges = [("a", "a"), ("a", "b"), ("aa", "ab")]
    tokens = [*bytes_to_unicode().values(), *map("".join, merges), "<|endoftext|>"]
    encoder = Encoder({token: i for i, token in enumerate(tokens)}, merges)
    assert [tokens[i] for i in encoder.encode("aaabdaaabac")] == ["aaab", "d", "aaab", "a", "c"]
