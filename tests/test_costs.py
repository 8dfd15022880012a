"""Costs: what is clocked and how it is summed up; never how long anything takes."""
import json
from itertools import count

import numpy as np
import pytest
from helpers import TinyModels, synthetic_pair

from benchmarks import costs, measure
from benchmarks.measure import arrays_of, size_of
from benchmarks.synthetic import random_arrays, random_model
from loading.checkpoint import read_tensorflow
from methods import choose
from notebooks.parts import PARTS, parts_timed, textbook
from sampling import probabilities
from utils import load_model


def test_calls_take_turns_and_the_first_turn_warms_up(monkeypatch):
    ticks, order = count(), []
    monkeypatch.setattr(costs, "clock", lambda: next(ticks))
    often = {name: lambda name=name: order.append(name) for name in "ab"}
    times = costs.in_turns(often, {"c": lambda: order.append("c")}, 2, 1e9, 4)
    assert "".join(order) == "abc" + "ab" + "abc" + "ab" + "abc"
    assert times == {"a": [1] * 4, "b": [1] * 4, "c": [1] * 2}
    assert len(costs.in_turns(often, {}, 1, 10, 100)["a"]) == 2                  # the time was up


def test_the_parts_of_a_round_are_all_of_it(monkeypatch):
    ticks = count()
    monkeypatch.setattr(costs, "clock", lambda: next(ticks) * 1.0)
    models, method = TinyModels(), choose("model", "token")
    pair = method.pair(models, [1, 2], 3, {})
    found = costs.rounds_of(method.sampler(pair), pair, [1, 2], 12, 3, 1.0, 0)
    assert found and all(parts == (1, 1, 1) for *_, parts in found)  # a tick between two readings
    assert all(drafts == 3 for drafts, *_ in found)                  # none is cut short
    first = next(method.sampler(pair)(pair.draft, pair.target, [1, 2], 12, 3, np.random.default_rng(0)))
    numbers = [len(first.tokens), *(n for _, n, _ in found)]
    assert sum(numbers) >= 12 > sum(numbers[:-1])


def test_a_typical_round_has_the_median_of_its_size():
    rounds = [(4, 2, (1, 2, 0)), (4, 1, (1, 90, 0)), (4, 3, (1, 3, 0)), (0, 1, (0, 1, 0))]
    assert costs.typical(rounds) == pytest.approx(
        {"typical": (3 * (1 + 3) + 1) / 4 * 1e3, "drafts": 3, "slope": (4 - 1) / 4 * 1e3})
    assert costs.quartiles([1, 2, 3, 4, 5]) == [2000, 3000, 4000, 5]


def test_every_entry_has_what_the_tables_read(monkeypatch, tmp_path):
    found = json.loads(costs.as_json(costs.measured(quick=True)))
    assert {"CPU", "cores", "NumPy", "BLAS", "dtype"} <= found["machine"].keys()
    assert found["passes"].keys() == found["bandwidth"].keys() == {"tiny", "demo-draft"}
    assert all(len(times) == 4 for model in found["passes"].values() for times in model["rows"].values())
    assert "alone T=0" in found["rounds"] and len(found["rounds"]) == 4
    for entry in found["rounds"].values():
        assert {"drafting", "pass", "settling", "typical", "tokens", "speedup"} <= entry.keys()
    assert found["rounds"]["alone T=0"]["speedup"] == 1 == found["rounds"]["alone T=0"]["tokens"]


# The machine and the models of measure.py and synthetic.py --------------------------------------------------

def test_bandwidth_is_bytes_over_the_better_of_two_times(monkeypatch):
    monkeypatch.setattr(measure, "seconds", lambda repetitions, *runs: [4.0, 2.0])
    assert measure.bandwidth.__wrapped__(8) == 8 * 8 * 4 / 2


def test_timing_the_parts_changes_nothing():
    model = random_model("tiny")
    logits = model([1, 2, 3], 2)
    model.reset()
    with parts_timed() as spent:
        assert (model([1, 2, 3], 2) == logits).all()
    assert min(spent.values()) > 0 and {*PARTS.values(), "the rest"} == spent.keys()


@pytest.mark.parametrize("name", ["demo-draft", "demo-target"])
def test_the_size_counts_every_parameter_of_the_files_once(name):
    arrays = read_tensorflow(costs.HERE.parent / "models" / name / "model.ckpt")
    assert size_of(load_model(name)[0]) == 4 * sum(a.size for a in arrays.values())     # whole tiles


def test_the_synthetic_draft_is_the_first_layers_of_its_target_and_costs_no_memory():
    draft, target = synthetic_pair("tiny", 2, 0.5)
    assert [a is b for a, b in zip(draft.params["blocks"], target.params["blocks"])] == [True, True]
    assert size_of(draft, target) == size_of(target)


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
