"""The benchmark's results; never its times."""
import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import benchmarks.__main__ as benchmark
from benchmarks import methods, peers
from benchmarks.lossy import RULES, toy
from benchmarks.measure import arrays_of, parts_timed, size_of, textbook
from benchmarks.methods import all_methods, sampler_of
from benchmarks.pairs import alone, by_position, explained_seconds, generate, speculative, text_of
from benchmarks.synthetic import SIZES, random_arrays, random_model, synthetic_pair, write_folder
from loading.checkpoint import read_tensorflow
from loading.folder import shapes
from reporting.stats import acceptance
from sampling import Round, probabilities
from utils import load_model

ROOT = Path(__file__).resolve().parent.parent
PAIR = load_model("demo-draft")[0], load_model("demo-target")[0]
TABLES = ["pairs", "synthetic", "forward", "parts", "prefill", "loading", "methods"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """{table: what is in its .json}, from one run of everything."""
    folder = tmp_path_factory.mktemp("results")
    prompts = folder / "prompts.txt"
    prompts.write_text("There was a long silence.\n\nOnce upon a time there was\n", encoding="utf-8")
    assert benchmark.main(["--quick", f"--out={folder}", "--n_tokens=12", f"--prompts={prompts}",
                           "--methods=draft model,prompt lookup"]) == 0
    return {table: json.loads((folder / f"{table}.json").read_text(encoding="utf-8")) for table in TABLES}


def test_every_table_says_what_it_depends_on(results):
    for result in results.values():
        assert {"CPU", "cores", "NumPy", "BLAS", "dtype", "repetitions"} <= result["machine"].keys()
        assert result["rows"]
        assert result["settings"]["n_tokens"] == 12


def test_each_pair_temperature_and_K_has_a_row_whose_numbers_fit_together(results):
    rows = results["pairs"]["rows"]
    assert [(r["T"], r["K"]) for r in rows] == [(0, 1), (0, 4), (1, 1), (1, 4)]
    for r in rows:
        assert 0 < r["acceptance"] < 1 and 1 <= r["tokens per pass"] <= r["K"] + 1
        assert len(r["by position"]) == r["K"]
        predicted = sum(r["acceptance"] ** i for i in range(r["K"] + 1)) / (r["K"] * r["c"] + r["v"])
        assert r["predicted"] == pytest.approx(predicted)
        assert r["measured / explained"] == pytest.approx(r["measured"] / r["explained"])
        assert sum(r["shares"]) == pytest.approx(1) and min(r["shares"]) > 0


def test_at_temperature_0_both_samplers_said_the_same(results):
    assert all(r["same text"] for r in results["pairs"]["rows"] if r["T"] == 0)


def test_the_parts_of_a_pass_are_its_products_and_the_rest(results):
    names = {r["part"] for r in results["parts"]["rows"]}
    assert names == {"attention products", "feed-forward products", "output head", "attention over the cache",
                     "softmax", "gelu", "layer norm", "the rest"}
    assert all(r["ms"] > 0 for r in results["parts"]["rows"])


LOSSY = "lenience 0.3", "typical acceptance"


METHODS = all_methods(*PAIR, [3])


@pytest.mark.long
@pytest.mark.parametrize("i", range(len(METHODS) + 1))
def test_every_method_of_the_table_runs_and_is_what_its_row_says(i, monkeypatch):
    monkeypatch.setattr(methods.layer_skip, "search", lambda *_, **more: ((5,), (6,)))      # it takes seconds
    method = METHODS[i] if i < len(METHODS) else methods.layers_skipped(PAIR[1], [3], [[11, 12, 13]])
    run = generate(sampler_of(method, method.shapes[-1], 6, 1.0), method.models, [[11, 12, 13, 11, 12]])
    assert len(text_of(run.rounds)) == 6 and (ROOT / method.file).exists()
    deviation = method.check(Ks=[2], n_tokens=2)
    assert deviation > .01 if method.name in LOSSY else deviation < 1e-9


def test_the_methods_have_a_row_at_each_temperature_whose_numbers_fit_together(results):
    rows = results["methods"]["rows"]
    assert [(r["method"], r["T"]) for r in rows] == [("draft model", 0), ("prompt lookup", 0),
                                                     ("draft model", 1), ("prompt lookup", 1)]
    for r in rows:
        assert r["predicted"] == pytest.approx(r["tokens per pass"] / r["cost"])
        assert r["cost"] == pytest.approx(r["c"] * (r["rows a pass"] - 1) + r["v"])
        assert r["lossless"] == (r["deviation"] < 1e-9) and sum(r["kept"]) <= r["rows a pass"] - 1


def test_timing_the_parts_changes_nothing():
    model = random_model("tiny")
    logits = model([1, 2, 3], 2)
    model.reset()
    with parts_timed() as spent:
        assert (model([1, 2, 3], 2) == logits).all()
    assert min(spent.values()) > 0


def test_a_run_keeps_no_distributions_and_its_parts_are_disjoint():
    draft, target = synthetic_pair("tiny", 1, 0.2)
    for run in (generate(alone(9, 1.0), [target], [[1, 2], [3]]),
                generate(speculative(3, 9, 1.0), [draft, target], [[1, 2], [3]])):
        assert all(r.target_probs is None and r.draft_probs is None for r in run.rounds)
        assert [len(text_of(rounds)) for rounds in run.texts] == [9, 9]
        assert sum(seconds for _, _, seconds in run.parts) < run.seconds
        names = [name for name, _, _ in run.parts]
        assert names.count("prompt") == 2 and names.count("settling") == len(run.rounds)
        assert names.count("pass") == names.count("drafting") == len(run.rounds) - 2
        assert explained_seconds([run]).keys() == {"prompt", "settling", "drafting", "pass"}


def test_acceptance_by_position_counts_what_was_tested():
    rounds = [Round([1, 2, 3], [1, 2], 2, [], []), Round([1, 5], [1, 2], 1, [], []),
              Round([5], [1, 2], 0, [], []), Round([1], [], 0, [], [])]
    assert by_position(rounds, 3) == [2 / 3, 1 / 2, None]
    assert acceptance(rounds) == (3, 5)                         # 2 + 1 of 3 + 2: the same drafts


def test_the_synthetic_draft_is_the_first_layers_of_its_target_and_costs_no_memory():
    draft, target = synthetic_pair("tiny", 2, 0.5)
    assert [a is b for a, b in zip(draft.params["blocks"], target.params["blocks"])] == [True, True]
    assert size_of(draft, target) == size_of(target)


@pytest.mark.parametrize("name", ["demo-draft", "demo-target"])
def test_the_size_counts_every_parameter_of_the_files_once(name):
    arrays = read_tensorflow(ROOT / "models" / name / "model.ckpt")
    # their widths fill whole tiles
    assert size_of(load_model(name)[0]) == 4 * sum(a.size for a in arrays.values())


def test_textbook_matrices_are_those_of_the_files():
    arrays, params = random_arrays("tiny"), textbook(random_model("tiny").params)
    assert sum(a.size for a in arrays_of(params)) == sum(a.size for a in arrays.values())
    # 96 outputs: two tiles
    assert (params["blocks"][3]["attn"]["c_attn"]["w"] == arrays["model/h3/attn/c_attn/w"]).all()
    assert (params["blocks"][0]["mlp"]["c_proj"]["w"] == arrays["model/h0/mlp/c_proj/w"]).all()


def test_the_dial_turns_acceptance_from_1_down():
    def overlap(dial):
        draft, target = synthetic_pair("tiny", 1, dial)
        tokens = np.random.default_rng(0).integers(target.n_vocab, size=60).tolist()
        p, q = probabilities(draft(tokens, 50)), probabilities(target(tokens, 50))
        return np.minimum(p, q).sum(axis=-1).mean()
    rates = [overlap(dial) for dial in (0, 0.05, 0.2, 1)]
    assert rates == sorted(rates, reverse=True) and rates[0] == pytest.approx(1) and rates[-1] < 0.3


def test_a_random_folder_is_a_model_like_any_other(tmp_path):
    write_folder(tmp_path, "tiny")
    model, encoder = load_model(tmp_path)
    assert encoder.n_vocab == SIZES["tiny"]["n_vocab"]
    assert encoder.decode(encoder.encode("The sea")) == "The sea"
    assert (model([1, 2, 3], 3) == random_model("tiny")([1, 2, 3], 3)).all()


def test_random_models_have_the_number_of_parameters_of_gpt2():
    expected = {"124M": 124_439_808, "355M": 354_823_168, "774M": 774_030_080, "1558M": 1_557_611_200}
    for size, n_parameters in expected.items():
        assert sum(math.prod(shape) for shape in shapes(**SIZES[size]).values()) == n_parameters


def test_transformers_given_our_weights_computes_our_logits():
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    model = random_model("tiny")
    tokens = list(range(20))
    with torch.no_grad():
        theirs = peers.to_transformers(SIZES["tiny"], random_arrays("tiny"))(torch.tensor([tokens])).logits[0]
    assert np.abs(model(tokens, 20) - theirs.numpy()).max() < 1e-4


def test_what_llama_cpp_prints_is_understood_also_when_its_log_was_cut_off(monkeypatch):
    log = ("I encoded   15 tokens in    0.020 seconds, speed:  750.0 t/s\n"
           "I decoded   61 tokens in    0.102 seconds, speed:  598.0 t/s\n")
    bench = json.dumps([{"n_prompt": 5, "samples_ns": [2_000_000, 3_000_000]}])
    perf = "I common_perf_print:  total time =   30.00 ms /  65 tokens"
    answers = iter([("", "only the beginning"), ("\n\nOnce upon a time", log),
                    (" upon a time\n", ""), (" upon a time\n", perf), (bench, "")])
    monkeypatch.setattr(peers, "run_program", lambda *words: next(answers))
    speculated, text = peers.llama_speculative("bin", "draft.gguf", "target.gguf", "Once", 60, 4)
    assert speculated == pytest.approx(0.002) and text == " upon a time"
    assert peers.llama_alone("bin", "target.gguf", "Once", 60) == (0.0005, " upon a time\n")
    assert peers.llama_passes("bin", "target.gguf", [5], 60, 2) == {5: [0.002, 0.003]}


def test_both_are_named_and_left_out_where_they_are_missing(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert peers.available(SimpleNamespace(llama_cpp="")) == []
    err = capsys.readouterr().err
    assert err.count("\n") == 2 and "--llama_cpp=FOLDER" in err and "pip install torch transformers" in err


def test_a_reader_who_goes_away_gets_no_traceback():
    command = [sys.executable, "-m", "benchmarks", "--help"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait() == 0


def test_ctrl_c_is_one_word(capsys, monkeypatch):
    def interrupted(settings):
        raise KeyboardInterrupt
    monkeypatch.setitem(benchmark.TABLES, "pairs", interrupted)
    assert benchmark.main(["--tables=pairs"]) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


@pytest.mark.parametrize("flag", ["--tables=nothing", "--n_tokens=many", "--n_token=3", "K=3", "--K",
                                  "--pairs=demo-draft:nowhere", "--pairs=124M", "--prompts=nowhere.txt",
                                  "--tables=peers --llama_cpp=nowhere"])
def test_a_bad_flag_gets_one_sentence(capsys, flag):
    assert benchmark.main(["--quick", "--tables=pairs", *flag.split()]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: ") and err.count("\n") == 1 and out == ""


def test_lossy_rules_are_told_from_lossless_ones_by_their_exact_distance():
    rows = {name: toy(rule) for name, (rule, _) in RULES.items()}
    for name in ("Algorithm 2", "block verification"):
        assert max(rows[name]["toy distances"]) < 1e-12
    assert min(rows["lenient(0.5)"]["toy distances"]) > .05 < min(rows["typical(0.09, 0.3)"]["toy distances"])
    assert rows["Algorithm 2"]["toy accepted"] < rows["lenient(0.5)"]["toy accepted"]


@pytest.mark.long
def test_the_tables_of_trees_and_of_lossy_rules_fit_together(tmp_path):
    (tmp_path / "prompts.txt").write_text("There was a long silence.\n", encoding="utf-8")
    assert benchmark.main(["--quick", "--tables=trees,lossy", f"--out={tmp_path}",
                           f"--prompts={tmp_path / 'prompts.txt'}"]) == 0
    trees, lossy = (json.loads((tmp_path / f"{table}.json").read_text(encoding="utf-8"))["rows"]
                    for table in ("trees", "lossy"))
    for row in trees:
        assert row["predicted"] == pytest.approx(row["tokens per pass"] / row["cost"])
        assert row["passes"] * row["tokens per pass"] == pytest.approx(100)
        assert row["rows a token"] * row["tokens per pass"] == pytest.approx(row["rows a pass"])
    assert sum("best for this machine" in row["method"] for row in trees) == 2
    assert all((row["distance"] > 0) == ("(" in row["rule"]) for row in lossy)
    assert (tmp_path / "trees.png").exists() and (tmp_path / "lossy.png").exists()
