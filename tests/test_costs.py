"""Costs: what is timed and how it is summarized, but never how long anything takes."""
import json
import math
import os
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import costs, figures, measure
from benchmarks.measure import arrays_of, size_of
from benchmarks.synthetic import SIZES, random_arrays, random_model
from loading.checkpoint import read_tensorflow
from loading.folder import list_shapes
from lossless.toys import table
from notebooks.parts import PARTS, parts_timed, textbook
from speculative import speculative_sampling
from utils import load_model


def test_each_part_of_a_round_has_its_own_seconds(monkeypatch):
    """A call of the draft takes one second here, a call of the target five."""
    now = [0]

    def slow(model, seconds):
        def call(*arguments):
            now[0] += seconds
            return model(*arguments)
        return call

    monkeypatch.setattr(costs, "clock", lambda: now[0])
    pair = SimpleNamespace(draft=slow(table(1), 1), target=slow(table(2), 5))
    found = costs.time_parts(speculative_sampling, pair, [0], 12, 3, 1.0, 0)
    assert {(n_drafts, spent) for n_drafts, _, spent in found} == {(3, (3, 5, 0))}     # none is cut short
    rounds = speculative_sampling(table(1), table(2), [0], 30, 3, np.random.default_rng(0))
    whole = [len(r.tokens) for r in rounds]
    assert [n for _, n, _ in found] == whole[1:len(found) + 1]          # all but the first, with the prompt
    assert sum(whole[:len(found)]) < 12 <= sum(whole[:len(found) + 1])


def test_a_typical_round_has_the_median_of_its_size():
    rounds = [(4, 2, (1, 2, 0)), (4, 1, (1, 90, 0)), (4, 3, (1, 3, 0)), (0, 1, (0, 1, 0))]
    assert costs.typical(rounds) == pytest.approx(
        {"typical": (3 * (1 + 3) + 1) / 4 * 1e3, "drafts": 3, "slope": (4 - 1) / 4 * 1e3})
    assert costs.quartiles([1, 2, 3, 4, 5]) == [2000, 3000, 4000, 5]


def test_a_speed_up_is_that_over_the_target_alone_at_the_same_temperature(monkeypatch):
    """Worked out by hand from made-up tokens and seconds."""
    model, tree = ("model", "token", 4, 0), ("model", "tree:2", None, 1)
    rounds = {("alone", "", None, 0): (0, 1, (0, 2, 0)), ("alone", "", None, 1): (0, 1, (0, 8, 0)),
              model: (4, 3, (1, 2, 0)), tree: (0, 1, (0, 4, 0))}
    monkeypatch.setattr(costs, "run", lambda cell, *_: [rounds[cell]])
    found = costs.measure_rounds([model, tree], 1e9, ["ab", "c"], 7)
    assert {name: (one["tokens"], one["speedup"]) for name, one in found.items()} == {
        "alone T=0": (1, 1), "alone T=1": (1, 1), "model token K=4 T=0": (3, 2), "model tree:2 T=1": (1, 2)}


@pytest.mark.parametrize("kernels", costs.KERNELS)
def test_what_was_committed_is_what_would_be_clocked(kernels):
    """The files hold no method that is no longer measured; a new one may be missing until it is."""
    stored, cells = figures.costs(kernels), {costs.name_of(*cell[:4]) for cell in costs.plan()}
    assert {*stored} == {"machine", "passes", "rounds"} and {*stored["passes"]} == {*costs.SIZES}
    assert {name for name in stored["rounds"] if not name.startswith("alone")} <= cells


def test_what_is_measured_is_what_the_tables_read(monkeypatch, tmp_path):
    """Here it is little: a few cells, and small models."""
    few = dict(SIZES={"tiny": 1, "demo-draft": 1}, CALLS=3, MATRIX=512, N_TOKENS=12, METHODS_SECONDS=0,
               plan=lambda: [("lookup", "token", 4, 0, ""), ("model", "tree:3,2,1", None, 1, "")])
    for name, value in few.items():
        monkeypatch.setattr(costs, name, value)
    costs.measure_all(tmp_path / "costs.json")
    found = json.loads((tmp_path / "costs.json").read_text(encoding="utf-8"))
    assert {"CPU", "cores", "NumPy", "BLAS", "dtype"} <= found["machine"].keys()
    assert found["machine"]["GB/s"] > 0 and found["passes"].keys() == {"tiny", "demo-draft"}
    for model in found["passes"].values():
        assert "9" in model["rows"] and all(len(times) == 4 for times in model["rows"].values())
    assert [*found["rounds"]] == ["alone T=0", "alone T=1", "lookup token K=4 T=0", "model tree:3,2,1 T=1"]
    for entry in found["rounds"].values():
        assert {"drafting", "pass", "settling", "typical", "tokens", "speedup"} <= entry.keys()


def test_a_program_that_fails_is_named_with_its_environment():
    with pytest.raises(ValueError, match="^OPENBLAS_CORETYPE=nowhere python -c 1/0 failed"):
        costs.run_python("-c", "1/0", OPENBLAS_CORETYPE="nowhere")


# The machine and the models of measure.py and synthetic.py --------------------------------------------------

def test_runs_take_turns_after_one_to_warm_up_and_the_median_is_taken(monkeypatch):
    now, lasts = [0], iter([9, 90, 1, 2, 5, 1, 2, 4])                           # the first two warm up

    def run():
        now[0] += next(lasts)
    monkeypatch.setattr(measure, "clock", lambda: now[0])
    assert measure.seconds(3, run, run) == [2, 2]
    assert len(measure.in_turns({"a": lambda: None}, 100, limit=-1)["a"]) == 1  # the time limit was reached


@pytest.mark.parametrize("slow, busy", [(1.3, False), (1.5, True)])
def test_a_busy_machine_is_named(slow, busy, monkeypatch):
    monkeypatch.setattr(measure, "in_turns", lambda *_: {"": [1, *[slow] * 59]})
    caption = measure.caption()
    assert f"{os.cpu_count()} cores, NumPy {np.__version__}" in caption
    assert ("BUSY: other programs make a product take 1.5 times" in caption) == busy


def test_timing_the_parts_changes_nothing():
    model = random_model("tiny")
    logits = model([1, 2, 3], 2)
    model.reset()
    with parts_timed() as spent:
        assert (model([1, 2, 3], 2) == logits).all()
    assert min(spent.values()) > 0 and {*PARTS.values()} == spent.keys()


@pytest.mark.parametrize("name", ["demo-draft", "demo-target"])
def test_the_size_counts_every_parameter_of_the_files_once(name):
    arrays = read_tensorflow(costs.HERE.parent / "models" / name / "model.ckpt")
    assert size_of(load_model(name)[0]) == 4 * sum(a.size for a in arrays.values())     # no padding


def test_the_sizes_are_gpt_2s():
    """The sizes that Radford et al. published in 2019, with 64 numbers for each attention head."""
    published = {"124M": 124_439_808, "355M": 354_823_168}
    assert {*SIZES} == {"tiny", *published}
    for name, n_weights in published.items():
        assert sum(map(math.prod, list_shapes(**SIZES[name]).values())) == n_weights
        assert SIZES[name]["n_head"] * 64 == SIZES[name]["n_embd"] and SIZES[name]["n_ctx"] == 1024


def test_textbook_matrices_are_those_of_the_files():
    arrays, params = random_arrays("tiny"), textbook(random_model("tiny").params)
    assert sum(a.size for a in arrays_of(params)) == sum(a.size for a in arrays.values())
    # c_attn has 96 outputs, which are two tiles
    assert (params["blocks"][3]["attn"]["c_attn"]["w"] == arrays["model/h3/attn/c_attn/w"]).all()
    assert (params["blocks"][0]["mlp"]["c_proj"]["w"] == arrays["model/h0/mlp/c_proj/w"]).all()
