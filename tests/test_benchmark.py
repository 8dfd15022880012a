"""The benchmark's results; never its times."""
import json
import math

import numpy as np
import pytest

import benchmarks.__main__ as benchmark
import gpt2
from loading.checkpoint import read_tensorflow
from benchmarks.measure import arrays_of, parts_timed, size_of, textbook
from sampling import Round, probabilities
from reporting.stats import acceptance
from benchmarks.synthetic import SIZES, random_arrays, random_model, synthetic_pair, write_folder
from utils import load_model, shapes

TABLES = ["pairs", "synthetic", "forward", "parts", "prefill", "loading"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """{table: what is in its .json}, from one run of everything."""
    folder = tmp_path_factory.mktemp("results")
    assert benchmark.main(["--quick", f"--out={folder}", "--n_tokens=12"]) == 0
    return {table: json.loads((folder / f"{table}.json").read_text(encoding="utf-8")) for table in TABLES}


def test_every_table_says_what_it_depends_on(results):
    for result in results.values():
        assert {"CPU", "cores", "NumPy", "BLAS", "dtype", "repetitions"} <= result["machine"].keys() and result["rows"]
        assert result["settings"]["n_tokens"] == 12


def test_each_pair_temperature_and_K_has_a_row_whose_numbers_fit_together(results):
    rows = results["pairs"]["rows"]
    assert [(r["T"], r["K"]) for r in rows] == [(0, 1), (0, 4), (1, 1), (1, 4)]
    for r in rows:
        assert 0 < r["acceptance"] < 1 and 1 <= r["tokens per pass"] <= r["K"] + 1 and len(r["by position"]) == r["K"]
        predicted = sum(r["acceptance"] ** i for i in range(r["K"] + 1)) / (r["K"] * r["c"] + r["v"])
        assert r["predicted"] == pytest.approx(predicted)
        assert r["measured / explained"] == pytest.approx(r["measured"] * (r["K"] * r["c"] + r["v"]) / r["tokens per pass"])


def test_at_temperature_0_both_samplers_said_the_same(results):
    assert all(r["same text"] for r in results["pairs"]["rows"] if r["T"] == 0)


def test_the_parts_of_a_pass_are_its_products_and_the_rest(results):
    names = {r["part"] for r in results["parts"]["rows"]}
    assert names == {"attention products", "feed-forward products", "output head", "attention over the cache", "softmax", "gelu",
                     "layer norm", "the rest"}


def test_timing_the_parts_changes_nothing():
    model, before = random_model("tiny"), vars(gpt2).copy()
    logits = model([1, 2, 3], 2)
    model.reset()
    with parts_timed() as spent:
        assert (model([1, 2, 3], 2) == logits).all()
    assert min(spent.values()) > 0 and vars(gpt2) == before


def test_acceptance_by_position_counts_what_was_tested():
    rounds = [Round([1, 2, 3], [1, 2], 2, [], []), Round([1, 5], [1, 2], 1, [], []), Round([5], [1, 2], 0, [], []), Round([1], [], 0, [], [])]
    assert benchmark.by_position(rounds, 3) == [2 / 3, 1 / 2, None]
    assert acceptance(rounds) == (3, 5)                                         # 2 + 1 of 3 + 2: the same drafts


def test_the_synthetic_draft_is_the_first_layers_of_its_target_and_costs_no_memory():
    draft, target = synthetic_pair("tiny", 2, 0.5)
    assert [a is b for a, b in zip(draft.params["blocks"], target.params["blocks"])] == [True, True]
    assert size_of(draft, target) == size_of(target)


@pytest.mark.parametrize("name", ["demo-draft", "demo-target"])
def test_the_size_counts_every_parameter_of_the_files_once(name):
    arrays = read_tensorflow(benchmark.PROMPTS.parent.parent / "models" / name / "model.ckpt")
    assert size_of(load_model(name)[0]) == 4 * sum(a.size for a in arrays.values())          # their widths fill whole tiles


def test_textbook_matrices_are_those_of_the_files():
    arrays, params = random_arrays("tiny"), textbook(random_model("tiny").params)
    assert sum(a.size for a in arrays_of(params)) == sum(a.size for a in arrays.values())
    assert (params["blocks"][3]["attn"]["c_attn"]["w"] == arrays["model/h3/attn/c_attn/w"]).all()       # 96 outputs, two tiles
    assert (params["blocks"][0]["mlp"]["c_proj"]["w"] == arrays["model/h0/mlp/c_proj/w"]).all()


def test_the_dial_turns_acceptance_from_1_down():
    def overlap(dial):
        draft, target = synthetic_pair("tiny", 1, dial)
        tokens = np.random.default_rng(0).integers(target.n_vocab, size=60).tolist()
        return np.minimum(probabilities(draft(tokens, 50)), probabilities(target(tokens, 50))).sum(axis=-1).mean()
    rates = [overlap(dial) for dial in (0, 0.05, 0.2, 1)]
    assert rates == sorted(rates, reverse=True) and rates[0] == pytest.approx(1) and rates[-1] < 0.3


def test_a_random_folder_is_a_model_like_any_other(tmp_path):
    write_folder(tmp_path, "tiny")
    model, encoder = load_model(tmp_path)
    assert encoder.n_vocab == SIZES["tiny"]["n_vocab"] and encoder.decode(encoder.encode("The sea")) == "The sea"
    assert (model([1, 2, 3], 3) == random_model("tiny")([1, 2, 3], 3)).all()


def test_random_models_have_the_number_of_parameters_of_gpt2():
    for size, expected in {"124M": 124_439_808, "355M": 354_823_168, "774M": 774_030_080, "1558M": 1_557_611_200}.items():
        assert sum(math.prod(shape) for shape in shapes(**SIZES[size]).values()) == expected


def test_transformers_given_our_weights_computes_our_logits():
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    model = random_model("tiny")
    tokens = list(range(20))
    with torch.no_grad():
        theirs = benchmark.to_transformers(model)(torch.tensor([tokens])).logits[0].numpy()
    assert np.abs(model(tokens, 20) - theirs).max() < 1e-4


@pytest.mark.parametrize("flag", ["--tables=nothing", "--n_tokens=many", "--n_token=3", "K=3", "--K", "--pairs=demo-draft:nowhere", "--pairs=124M",
                                  "--prompts=nowhere.txt"])
def test_a_bad_flag_gets_one_sentence(capsys, flag):
    assert benchmark.main(["--quick", "--tables=pairs", flag]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: ") and err.count("\n") == 1 and out == ""
