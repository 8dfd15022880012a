"""Costs: what is timed and how it is summarized, but never how long anything takes.  Counts: rounds are added
up right, counting resumes where it stopped, and the committed counts have the order that theory demands."""
import json
import math
import os
import re
from functools import cache
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import benchmarks.__main__
import lossless.__main__
from benchmarks import costs, counts, figures, measure, mine
from benchmarks.counts import FILE, name_of
from benchmarks.measure import arrays_of, size_of
from benchmarks.synthetic import SIZES, random_arrays, random_model
from engine.loading import command_line
from engine.loading.checkpoint import read_tensorflow
from engine.loading.folder import list_shapes
from engine.reporting import stats
from lossless.toys import table
from notebooks.parts import PARTS, parts_timed, textbook
from sampling import Round
from speculative import speculative_sampling
from utils import load_model

# Costs ------------------------------------------------------------------------------------------------------

def test_each_part_of_a_round_has_its_own_seconds(monkeypatch):
    """A call of the draft takes one second here, a call of the target five."""
    now = [0]

    def slow(model, seconds):
        def call(*arguments):
            now[0] += seconds
            return model(*arguments)
        return call

    for module in costs, stats:
        monkeypatch.setattr(module, "clock", lambda: now[0])
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
    found = costs.measure_rounds([model, tree], 1e9, 2, 7)
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


# Counts -----------------------------------------------------------------------------------------------------

CELLS = json.loads(FILE.read_text(encoding="utf-8"))["cells"]


def test_a_run_is_tallied_round_by_round(monkeypatch):
    """Of two drafts, 2, 1 and 0 are accepted; the last round has none."""
    rounds = [Round([0] * (n + 1), [0] * k, n, None, None) for k, n in ((2, 2), (2, 1), (2, 0), (0, 0))]
    monkeypatch.setattr(counts, "rounds_of", lambda *_: rounds)
    found = counts.tally_run(SimpleNamespace(K=2), 1, [], 0, (0, 60))
    assert found.tolist() == [1, 4, 7, 6, 16, 49, 28, 2, 1, 3, 2]           # .., accepted, tested


def test_after_others_each_text_starts_from_what_those_left_in_memory(monkeypatch):
    """Here the memory is a list of texts, and a text gives as many tokens as it holds."""
    def rounds(method, *text):
        method.seeds.append(text)
        yield Round([0] * len(method.seeds), [], 0, None, None)
    new = dict(load_choice=lambda *_: (None, None), prompts=lambda first, n: [[]] * n, rounds_of=rounds)
    for name, fake in (new | dict(prepare_fixed=lambda *_: SimpleNamespace(K=1, seeds=[]))).items():
        monkeypatch.setattr(counts, name, fake)
    for where, n_tokens in ("", 1), (counts.AFTER, counts.N_OTHERS + 1):
        assert counts.count_texts(("suffix", "token", 4, 0, where), 7, 3)[2] == 3 * n_tokens


def test_the_error_is_that_of_a_ratio():
    rng = np.random.default_rng(0)
    rounds, tokens = rng.integers(15, 30, 40), rng.integers(60, 66, 40)
    cell = counts.figures(sum(counts.tally(r, t, 0, [0], [0]) for r, t in zip(rounds, tokens)))
    drawn = [tokens[i].sum() / rounds[i].sum() for i in rng.integers(0, 40, (4000, 40))]       # the bootstrap
    assert cell["tokens"] == round(tokens.sum() / rounds.sum(), 4)
    assert cell["se"] == pytest.approx(np.std(drawn), rel=.1)


@pytest.mark.parametrize("cell, counted_as", [
    (("tli", "token", 4, 1), ("model", "token", 4, 1)), (("cascade", "token", 4, 1),) * 2,
    (("cascade", "token", 4, 0), ("model", "token", 4, 0)), (("ngram", "lenient:0.5", 4, 1),) * 2,
    (("ngram", "lenient:0.5", 4, 0), ("ngram", "token", 4, 0)), (("model", "block", 4, 0),) * 2,
    (("model", "k_seq:3,2,1", None, 0), ("model", "tree:3,2,1", None, 0))])
def test_what_is_the_same_by_theory_is_counted_once(cell, counted_as):
    assert counts.counted_as(*cell) == counted_as


def test_a_cell_goes_on_where_it_stopped_but_not_with_other_weights(monkeypatch, tmp_path):
    """The file gets the cell and keeps what was there."""
    asked, cell, file = [], ("model", "coupled", 4, 1, ""), tmp_path / "counts.json"
    name = name_of(*cell)

    def some(cell, first, n):
        asked.append(first)
        return sum(counts.tally(r, 60, 0, [0], [0]) for r in (18 + (first + i) % 9 for i in range(n)))

    monkeypatch.setattr(counts, "count_texts", some)
    monkeypatch.setattr(counts, "plan", lambda: [cell])
    monkeypatch.setattr(counts, "wanted_error", lambda _: .03)
    counts.write(file, {"another": {"tokens": 2}})
    coarse = counts.count(file=file)
    monkeypatch.setattr(counts, "wanted_error", lambda _: .01)
    fine = counts.count(file=file)
    assert asked == list(range(0, 46 * len(asked), 46)) and fine[name]["texts"] > coarse[name]["texts"]
    assert fine[name]["se"] <= .01 * fine[name]["tokens"] and counts.count(file=file) == fine
    assert counts.read(file) == {"another": {"tokens": 2}} | fine
    monkeypatch.setattr(counts, "weights", lambda: {"demo-target": "others"})
    with pytest.raises(ValueError, match="counted with weights other than"):
        counts.count(file=file)


# The committed counts ---------------------------------------------------------------------------------------

def test_the_committed_cells_were_counted_on_these_weights():
    assert counts.read(FILE) == CELLS and len(counts.weights()) == 6


def test_every_cell_keeps_its_bounds():
    for name, cell in CELLS.items():
        accepted, tested = np.array(cell["accepted"]), np.array(cell["tested"])
        assert 1 <= cell["tokens"] <= len(accepted) + 1 and (np.diff(accepted) <= 1e-9).all(), name
        assert (accepted <= tested + 1e-9).all() and (tested[1:] <= accepted[:-1] + 1e-9).all(), name
        assert cell["tokens"] == pytest.approx(1 + accepted.sum(), abs=1e-3), name
        assert cell["se"] < .04 * cell["tokens"], name


def no_fewer(more, less, slack=3):
    """The first cell has at least the tokens per pass of the second, within `slack` standard errors."""
    a, b = CELLS[more], CELLS[less]
    assert a["tokens"] >= b["tokens"] - slack * (a["se"] ** 2 + b["se"] ** 2) ** .5, (more, less)


def test_the_order_that_theory_demands_of_two_methods_holds():
    Ks = 1, 2, 3, 4, 6, 8
    for T in "0", "0.5", "1":
        for K, more in zip(Ks, Ks[1:]):
            no_fewer(f"model block K={more} T={T}", f"model block K={K} T={T}")
        for K in Ks:
            no_fewer(f"model block K={K} T={T}", f"model token K={K} T={T}")
            if T != "0":
                no_fewer(f"model token K={K} T={T}", f"model coupled K={K} T={T}")
    for rule in "lenient:0.8", "lenient:0.5", "lenient", "lenient:0.1":
        no_fewer(f"model {rule} K=4 T=1", "model token K=4 T=1")
    for shape, T in product(("3,2,1", "2,2,2", "4,1,1,1", "8,1,1,1"), ("0.5", "1")):
        no_fewer(f"model tree:{shape} T={T}", f"model specinfer:{shape} T={T}")
        no_fewer(f"model traversal:{shape} T={T}", f"model tree:{shape} T={T}")
        no_fewer(f"model k_seq:{shape} T={T}", f"model specinfer:{shape} T={T}", slack=4)
        no_fewer(f"model tree:{shape} T={T}", f"model token K={shape.count(',') + 1} T={T}")
    for rule, T in product(("tree", "specinfer", "k_seq"), ("0.5", "1")):              # no branches
        no_fewer(f"model {rule}:1,1,1 T={T}", f"model token K=3 T={T}")
        no_fewer(f"model token K=3 T={T}", f"model {rule}:1,1,1 T={T}")
    for n in (4, 8, 16, 32, 64):
        no_fewer(f"model tree:best{2 * n} T=1", f"model tree:best{n} T=1")


def test_what_copies_gains_as_a_greedy_text_goes_on():
    """As docs/methods.md says: the more the text repeats itself."""
    def gain(method):
        early, late = (CELLS[f"{method} token K=4 places:{places} T=0"] for places in ("0-20", "40-60"))
        return late["tokens"] - early["tokens"]
    assert min(map(gain, ("lookup", "suffix", "jacobi"))) > gain("model") + .2


# A drafter of your own --------------------------------------------------------------------------------------

COUNTED = cache(mine.count_texts)                # of `model` once, for all tests
README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
FILES = {"model": "import speculative\ndef propose(*run):\n    return speculative.propose(*run)\n",
         "silent": "def propose(draft, x, k, to_probs, rng):\n    return [], None\n",
         "copied": re.search(r"def copied.*?(?=\nrng =)", README, re.S)[0].replace("copied", "propose")}


@pytest.fixture
def drafter(tmp_path, monkeypatch):
    for name, few in dict(N_TEXTS=2, N_TIMED=1, N_TOKENS=12, count_texts=COUNTED).items():
        monkeypatch.setattr(mine, name, few)
    monkeypatch.setitem(counts.WHERE, "", (0, 20))      # places of a text
    monkeypatch.setattr(lossless.judge, "CASES", lossless.judge.CASES[:9])
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    return lambda name: str(tmp_path / f"{name}.py")


def test_the_readmes_own_drafter_is_judged_and_compared_by_two_commands(drafter, capsys):
    assert {"lossless", "benchmarks mine"} <= {*re.findall(r"^python -m (.*) my_drafter\.py", README, re.M)}
    assert command_line.run(lossless.__main__.main, [drafter("copied")]) == 0
    assert command_line.run(benchmarks.__main__.main, ["mine", drafter("copied")]) == 0
    out = capsys.readouterr().out
    assert len(re.findall(r"^(?:copied.py|model) +\d\.\d\d ± \d\.\d\d( +\d\.\d\d){4} ± ", out, re.M)) == 4
    assert len(re.findall(r"^copied.py, compared .*: -\d\.\d\d ± .*\(fewer\); [-+]\d+% ± ", out, re.M)) == 2
    assert "Not checked: is it lossless?" in out and f"python -m lossless {drafter('copied')}" in out


@pytest.mark.parametrize("name, says", [
    ("silent", r" 1.00 ± 0.00 +- +- +2.00 +0.50 ± 0.00[^±]*model +[23].\d\d ± .*\n"
     r".*: -[12].*fewer.*-\d+% ± \d+% .*slower"),
    ("model", r": \+0.00 ± \d.\d\d tokens per pass \(no clear difference\); \+0% ± \d+% speed \(no clear")])
def test_what_is_said_follows_from_counts_and_costs(name, says, drafter, monkeypatch):
    """Here a round of the target alone takes 1 ms, and any other 2."""
    def cost(ms):
        quartiles = dict.fromkeys(("pass", "drafting"), [ms, ms, ms, 9])
        return quartiles | dict(typical=ms, slope=0, drafts=0, tokens=1, speedup=1)
    monkeypatch.setattr(mine, "measure_rounds", lambda cells, *_: {
        **{mine.name_of(*cell): cost(2) for cell in cells}, **{f"alone T={T}": cost(1) for T in (0, 1)}})
    assert len(re.findall(says, "\n".join(mine.measure_drafter(drafter(name))))) == 2


@pytest.mark.parametrize("words, says", [([], "needs your file"), (["none.py"], "none.py")])
def test_without_a_file_there_is_one_sentence_and_nothing_else(words, says, capsys):
    assert command_line.run(benchmarks.__main__.main, ["mine", *words]) == 2
    out, err = capsys.readouterr()
    assert re.fullmatch(f"error: .*{says}.*\n", err) and not out
