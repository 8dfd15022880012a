"""The benchmark's arithmetic, on runs and clocks that are made up; and the commands that its tables stand
beside.

test_benchmark.py runs the tables for real.
"""
import contextlib
import json
import re
import shlex
import subprocess
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import benchmarks.__main__ as benchmark
from benchmarks import batches, busy, heads, measure, methods, pairs, peers, show, trees
from benchmarks.pairs import Run
from benchmarks.synthetic import synthetic_pair
from sampling import Round

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
TINY = synthetic_pair("tiny", 1, 0.2)


def commands():
    """(the words after `python -m benchmarks`, the settings that they give) of each command in the text."""
    text = (RESULTS / "README.md").read_text(encoding="utf-8").replace("\\\n", "")
    for words in re.findall(r"^python -m benchmarks (.*)$", text, re.M):
        yield words, vars(benchmark.read_flags(shlex.split(words)))


def test_the_committed_tables_were_made_by_the_commands_beside_them():
    checked = set()
    for words, settings in commands():
        for path in (ROOT / settings["out"] / f"{table}.json" for table in settings["tables"]):
            if path.exists():
                was = json.loads(path.read_text(encoding="utf-8"))["settings"]
                same = {key: settings[key] for key in was.keys() - {"tables", "out"}}
                assert was | same == was, (path, words)
                checked.add(path)
    assert len(checked) >= 14


# Batches ----------------------------------------------------------------------------------------------------

def test_a_batch_is_counted_pass_by_pass(monkeypatch):
    ticks = count(5)
    monkeypatch.setattr(batches, "clock", lambda: next(ticks))
    assert batches.timed(*TINY, [[1, 2], [3]], 6, 0) == (1, 12, 6, 12)
    sure = synthetic_pair("tiny", 1, 0.0)                      # each draft is accepted
    assert batches.timed(*sure, [[1, 2], [3]], 6, 2) == (1, 12, 2, 12)


def test_the_rows_of_batches_leave_out_the_warm_up(monkeypatch):
    def timed(draft, target, prompts, n_tokens, K):
        calls.append(len(prompts))
        warm = 0 if len(calls) > 4 else 100
        return (warm + 2.0 + K) / (1 if len(prompts) == 1 else 2), 60 * len(prompts), 10, 40

    calls, s = [], SimpleNamespace(models_dir="", prompts="", n_synthetic=30, n_tokens=60, K_fixed=4,
                                   batch_sizes=[1, 3], repetitions=2)
    monkeypatch.setattr(batches, "timed", timed)
    monkeypatch.setattr(batches, "load_pair", lambda *_: (None, None, [[1], [2]]))
    rows = batches.batches("synthetic:tiny:1:0.2", s)
    assert calls == [1, 1, 3, 3] * 3
    assert [(r["batch"], r["K"]) for r in rows] == [(1, 0), (1, 4), (3, 0), (3, 4)]
    assert [r["tokens/s"] for r in rows] == [30, 10, 180, 60] and {r["N"] for r in rows} == {30}
    assert [r["over one alone"] for r in rows] == [1, 1 / 3, 6, 2]
    assert [r["speculative over alone"] for r in rows] == pytest.approx([1, 1 / 3, 1, 1 / 3])
    assert [r["ms a pass"] for r in rows] == [200, 600, 100, 300]
    assert {(r["rows a pass"], r["tokens a pass"]) for r in rows} == {(4, 6), (4, 18)}
    assert batches.batches("demo-draft:demo-target", s)[0]["N"] == 60


# The machine ------------------------------------------------------------------------------------------------

def test_bandwidth_is_bytes_over_the_better_of_two_times(monkeypatch):
    monkeypatch.setattr(measure, "seconds", lambda repetitions, *runs: [4.0, 2.0])
    assert measure.bandwidth.__wrapped__(8) == 8 * 8 * 4 / 2


@pytest.mark.parametrize("repetitions", [1, 3])
def test_the_parts_are_measured_after_a_warm_up(repetitions, monkeypatch):
    lengths, model = [], TINY[1]

    def noted(tokens, n_last):
        lengths.append((len(tokens), n_last))
        return model(tokens, n_last)

    monkeypatch.setattr(measure, "named", lambda *_: noted)
    monkeypatch.setattr(measure, "some_tokens", lambda _, n: [1] * n)
    rows = measure.parts("tiny", "", repetitions, [1, 3], 5)
    assert lengths == [(6, 1)] * (repetitions + 1) + [(8, 3)] * (repetitions + 1)
    assert all(row["ms"] > 0 for row in rows) and {row["rows"] for row in rows} == {1, 3}


# Runs -------------------------------------------------------------------------------------------------------

def test_a_run_takes_as_long_as_the_clock_says_and_leaves_nothing_out(monkeypatch):
    ticks = count(7)
    monkeypatch.setattr(pairs, "clock", lambda: next(ticks))
    prompts = [[1, 2], [3]]
    first = next(ticks)
    run = pairs.generate(pairs.speculative(3, 9, 1.0), TINY, prompts)
    assert 0 < run.seconds < next(ticks) - first and run.seconds == int(run.seconds)
    assert 0 < sum(seconds for _, _, seconds in run.parts) < run.seconds
    assert [n for name, n, _ in run.parts if name == "prompt"] == [(2, 3), (1, 3)]


def test_what_the_warm_up_took_is_in_no_row(monkeypatch):
    wanted = []

    def generate(sampler, models, prompts):
        wanted.append(sampler)
        return len(wanted)

    monkeypatch.setattr(pairs, "load_pair", lambda *_: (*TINY, [[1], [2], [3]]))
    monkeypatch.setattr(pairs, "alone", lambda n, temperature: ("alone", n))
    monkeypatch.setattr(pairs, "speculative", lambda K, n, temperature: (K, n))
    monkeypatch.setattr(pairs, "generate", generate)
    monkeypatch.setattr(pairs, "figures", lambda baseline, runs, K: {"base": baseline, "runs": runs})
    rows = pairs.compare("a:b", [1, 4], 0.0, 60, SimpleNamespace(models_dir="", prompts="", repetitions=2))
    assert wanted == [("alone", 6), (1, 6), (4, 6)] + [("alone", 60), (1, 60), (4, 60)] * 2
    assert [(r["K"], r["base"], r["runs"], r["prompts"]) for r in rows] == [(1, [4, 7], [5, 8], 3),
                                                                           (4, [4, 7], [6, 9], 3)]
    assert all(r["resident MB"] > r["weights MB"] > 0 for r in rows)


def test_a_method_is_run_at_its_fastest_shape(monkeypatch):
    monkeypatch.setattr(methods, "sampler_of", lambda method, shape, *_: shape)
    monkeypatch.setattr(methods, "generate", lambda shape, *_: SimpleNamespace(seconds=abs(shape - 3)))
    method = methods.Method("", "", [], [1, 2, 4, 6], None, None)
    assert methods.fastest_shape(method, [], 9, 0.0) == 2 and (method.weights, method.trained) == (0, False)
    assert methods.fastest_shape(method._replace(shapes=[7]), [], 9, 0.0) == 7


# Tables that are only made if asked for ---------------------------------------------------------------------

def row_of(method, **more):
    return {"method": method, "shape": "", "tokens per pass": 2.5, "rows a pass": 5, "c": .1, "v": 1.2,
            "cost": 1.6, "predicted": 1.5, "measured": 1.4, "weights MB": 1.0} | more


def test_the_heads_have_their_acceptance_by_position_but_for_trees(monkeypatch):
    rounds = [Round([1, 2, 3], [1, 2], 2, [], []), Round([1, 9], [1, 2], 1, [], [])] * 10
    line = methods.Method("eagle", "", [], [3], None, None)
    known = [line, line._replace(name="Medusa's tree", shapes=[(2, 1)]), line._replace(name="prompt lookup")]
    monkeypatch.setattr(heads, "load_pair", lambda *_: (None, None, [[1]]))
    monkeypatch.setattr(heads, "all_methods", lambda *_: known)
    monkeypatch.setattr(heads, "sampler_of", lambda *_: None)
    monkeypatch.setattr(heads, "generate", lambda *_: SimpleNamespace(rounds=rounds))
    monkeypatch.setattr(heads, "compare_methods", lambda some, target, prompts, temperature, _: [
        row_of(method.name, T=temperature) for method in some])
    rows = heads.heads_table(SimpleNamespace(pairs=["a:b"], models_dir="", prompts="", K=[3], n_tokens=9,
                                             temperatures=[0.0, 1.0]))
    assert [(r["method"], r["T"], r["acceptance, by position"]) for r in rows] == [
        (name, T, shares) for T in (0.0, 1.0)
        for name, shares in (("eagle", [1.0, .5]), ("Medusa's tree", None))]
    assert all(tuple(row) == heads.COLUMNS for row in rows)
    assert heads.by_position(rounds[:38:2] + rounds[1:2], 20) == []         # tested eleven times


def test_the_best_tree_is_one_of_the_trees_with_the_best_rule(monkeypatch):
    asked = []

    def best(rule, prompts, temperature, n_tokens):
        asked.append((rule.name, prompts, temperature))
        return [-1, 0]

    monkeypatch.setattr(trees, "load_pair", lambda *_: (*TINY, [[1], [2], [3]]))
    monkeypatch.setattr(trees, "best_shape", best)
    monkeypatch.setattr(trees, "compare_methods", lambda some, *_: [
        row_of(method.name, T=0, shape=str(method.shapes[0])) for method in some])
    rows = trees.trees_table(SimpleNamespace(pairs=["a:b"], models_dir="", prompts="", K=[3], n_tokens=9,
                                             temperatures=[0.0, 1.0], shapes=["2-1", "3"]))
    (greedy, two, T), (other, _, T1) = asked
    assert "likeliest" in greedy and two == [[1], [2]] and (T, T1) == (0.0, 1.0) and "Sequoia" in other
    found = [(r["method"], r["shape"]) for r in rows]
    assert [r for r in found if "best for" in r[0]] == [
        (f"{name}, best for this machine", "[-1, 0]") for name in (greedy, other)]
    first = found[:next(i for i, r in enumerate(found) if "best for" in r[0])]
    assert len(first) == 6 and {shape for _, shape in first[2:]} == {"(2, 1)", "(3,)"}
    assert all("likeliest" in name for name, _ in first[2:]) and len(found) > 2 * len(first)
    assert all(r["passes"] == 40 and r["rows a token"] == 2 for r in rows)


def test_the_best_shape_asks_both_models_for_their_times(monkeypatch):
    method = methods.Method("", "", ["draft", "target"], [(2,)], None, None)
    monkeypatch.setattr(trees, "sampler_of", lambda *what: what[1:])
    monkeypatch.setattr(trees, "generate", lambda *what: Run(0, [["rounds", what]], [], []))
    monkeypatch.setattr(trees, "by_rank", lambda rounds: rounds)
    monkeypatch.setattr(trees.sequoia, "seconds", lambda model, tokens, n: (model, tokens, n))
    monkeypatch.setattr(trees.sequoia, "fastest", lambda *what: what)
    ranks, target, draft = trees.best_shape(method, [[1], [2]], 1.0, 9)
    assert (draft, target) == (("draft", [1], trees.ROWS), ("target", [1], trees.ROWS))
    assert ranks == ["rounds", ((trees.WIDE, 9, 1.0), ["draft", "target"], [[1], [2]])]


# Peers ------------------------------------------------------------------------------------------------------

def test_a_program_that_fails_is_quoted_by_its_last_line(tmp_path):
    for content, said in (("echo one >&2; echo two >&2; exit 3", "status 3 and said: two"),
                          ("exit 4", "status 4 and said: nothing")):
        (tmp_path / "bad").write_text(f"#!/bin/sh\n{content}\n")
        (tmp_path / "bad").chmod(0o755)
        with pytest.raises(ValueError, match=said):
            peers.run_program(tmp_path, "bad")
    (tmp_path / "bad").write_text('#!/bin/sh\necho said "$@"; echo log >&2\n')
    assert peers.run_program(tmp_path, "bad", "-n", 3) == (f"said -n 3 -t {peers.THREADS}\n", "log\n")


def test_the_rows_of_peers_are_medians_after_a_warm_up(monkeypatch):
    def runs(factor, text):
        calls = []

        def run(K):
            calls.append(K)
            return factor * (50 if len(calls) <= 2 else 1) * (1 if K is None else .5), [text + " "]
        return run

    monkeypatch.setattr(peers, "available", lambda _: ["transformers"])
    monkeypatch.setattr(peers, "load_pair", lambda *_: (None, None, [[1]]))
    monkeypatch.setattr(peers, "weights_of_pair", lambda *_: None)
    monkeypatch.setattr(peers, "our_runs", lambda *_: runs(.25, "text"))
    monkeypatch.setattr(peers, "transformers_runs", lambda *_: runs(.5, "text and more"))
    ours, theirs = peers.against_peers("a:b", 4, SimpleNamespace(n_tokens=9, models_dir="", prompts="",
                                                                  repetitions=2))
    assert (ours["tokens/s"], theirs["tokens/s"], theirs["speculative tokens/s"]) == (4, 2, 4)
    assert (theirs["here / it"], theirs["speculative, here / it"], theirs["speed-up"]) == (2, 2, 2)
    assert ours["same texts"] and theirs["same texts"] and theirs["N"] == 9 and theirs["prompts"] == 1


def test_passes_are_asked_for_after_an_emptied_cache_where_nothing_is_cached(monkeypatch):
    events, ticks = [], count(3)
    monkeypatch.setattr(peers, "clock", lambda: next(ticks))

    class Model:
        def reset(self):
            events.append("reset")

        def __call__(self, tokens, n_last):
            events.append((len(tokens), n_last))

    model = Model()
    assert peers.our_passes(model, [1] * 9, (1, 3), 4, 2) == {1: [1, 1], 3: [1, 1]}
    assert events == [(5, 1), (7, 3)] * 3
    events.clear()
    assert peers.our_passes(model, [1] * 9, (6,), 0, 1) == {6: [1]} and events == ["reset", (6, 1)] * 2


class Theirs:
    """A model of transformers, on NumPy: it says 7, 8, 9 after any prompt."""

    def __init__(self):
        self.calls, self.past_key_values = [], SimpleNamespace(crop=lambda n: self.calls.append(("crop", n)))

    def generate(self, ids, max_new_tokens, **settings):
        return np.append(ids, [[7, 8, 9][:max_new_tokens]], axis=1)

    def __call__(self, ids, past_key_values=None, logits_to_keep=None, use_cache=True):
        self.calls.append((ids.shape[1], past_key_values is not None, logits_to_keep))
        return self


def test_transformers_is_asked_for_texts_and_passes_as_we_are(monkeypatch):
    torch = SimpleNamespace(tensor=np.array, ones_like=np.ones_like, no_grad=contextlib.nullcontext)
    ticks, theirs, decode = count(2), Theirs(), SimpleNamespace(decode=str)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(peers, "clock", lambda: next(ticks))
    assert peers.transformers_text(theirs, [[1, 2], [3]], 3) == [[7, 8, 9]] * 2
    assert peers.transformers_passes(theirs, [1] * 9, (1, 3), 4, 1) == {1: [1], 3: [1]}
    assert theirs.calls == [(4, False, None)] + [(1, True, 1), ("crop", -1), (3, True, 3), ("crop", -3)] * 2
    monkeypatch.setattr(peers, "to_transformers", lambda *_: theirs)
    run = peers.transformers_runs([(None, None, None), (None, None, decode)], [[1, 2], [3]], 2)
    assert run(None) == (1 / 4, ["[7, 8]"] * 2)
    assert peers.ROWS == (1, 5, 9)                                      # as the columns are called


# Pictures ---------------------------------------------------------------------------------------------------

def drawn(draw, rows):
    matplotlib = pytest.importorskip("matplotlib.figure", reason="matplotlib is not installed")
    figure = matplotlib.Figure()
    draw(figure, rows)
    return figure


def test_the_bars_of_the_parts_are_stacked_up_to_1():
    rows = [{"model": "a", "rows": n, "part": part, "ms": ms} for n, times in ((1, (1, 1, 2)), (5, (3, 1, 0)))
            for part, ms in zip("xyz", times)]
    axes, = drawn(show.stack_parts, rows).axes
    bars = [[(bar.get_x(), bar.get_width()) for bar in part] for part in axes.containers]
    assert bars == [[(0, .25), (0, .75)], [(.25, .25), (.75, .25)], [(.5, .5), (1, 0)]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a\n1 row", "a\n5 rows"]


def test_positions_are_counted_from_1():
    rows = [{"T": T, "method": name, "acceptance, by position": [.9, .5, .25] if name == "a" else None}
            for T in (0, 1) for name in "ab"]
    panels = drawn(show.draw_positions, rows).axes
    assert [list(panel.get_lines()[0].get_xdata()) for panel in panels] == [[1, 2, 3]] * 2
    assert all(len(panel.get_lines()) == 1 for panel in panels)
    assert list(panels[0].get_xticks()) == [1, 2, 3, 4, 5]


def test_every_picture_of_a_table_is_written(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    for table, rows in (("forward", [{"model": "a", "rows": n, "over one row": 1 + n / 9} for n in (1, 5)]),
                        ("lossy", [{"rule": "a", "distance": .1, "tokens per pass": 3.0}])):
        show.plot(table, rows, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["forward_rows.png", "lossy.png"]


def test_a_table_is_as_wide_as_its_cells():
    text = show.as_markdown("title", {"CPU": "x", "cores": 2}, [{"a": 1.5, "long name": None},
                                                               {"a": True, "long name": "x"}])
    assert text == ("## title\n\nCPU x; cores 2\n\n| a     | long name |\n|-------|-----------|\n"
                    "| 1.500 | -         |\n| yes   | x         |\n")


def test_what_neighbours_leave_is_told_beside_the_quiet_speed_with_as_many_threads(monkeypatch):
    speeds = {(0, 2): 400, (0, 1): 300, (1, 2): 100, (1, 1): 150, (2, 2): 50, (2, 1): 75}
    here = []

    @contextlib.contextmanager
    def neighbours(n):
        here.append(n)
        yield

    monkeypatch.setattr(busy, "neighbours", neighbours)
    monkeypatch.setattr(busy, "in_a_process", lambda _, threads: (20, speeds[here[-1], threads]))
    rows = busy.busy_table(SimpleNamespace(pairs=["a:b"], models_dir="", prompts="", n_tokens=9, K_fixed=4,
                                           repetitions=1))
    assert {(r["neighbours"], r["threads"]): r["speculative tokens/s"] for r in rows} == speeds
    assert [r["over quiet"] for r in rows] == [1, 1, .25, .5, .125, .25]
    assert [r["speed-up"] for r in rows] == [20, 15, 5, 7.5, 2.5, 3.75]


def test_neighbours_go_when_the_measurement_ends():
    started, popen = [], subprocess.Popen
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(busy.subprocess, "Popen", lambda *words: started.append(popen(*words)) or started[-1])
        with busy.neighbours(2):
            assert [process.poll() for process in started] == [None, None]
    assert [process.poll() is not None for process in started] == [True, True]
