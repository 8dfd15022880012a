"""The same source runs on CuPy, tested without a GPU on a strict stand-in (tools/strict_cupy.py).  Also:
what is copied between host and device, and when."""
import contextlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import strict_cupy
from helpers import synthetic_pair
from strict_cupy import counts, cupy
from test_rooms import FILES, room_of

import console
import gpt2
import main
from autoregressive import autoregressive_sampling
from benchmarks.synthetic import random_model
from compute import backend
from compute.backend import xp
from lossless import memoryless
from reporting import stats
from speculative import speculative_sampling
from utils import load_model

PROMPT = [11, 7, 200, 3, 3, 150, 42]


@contextlib.contextmanager
def stand_in():
    """Inside this context the program runs on the stand-in for CuPy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cupy", cupy)
        backend.use("cupy")
        counts.clear()
        try:
            yield
        finally:
            backend.use("numpy")


def on_both(run):
    """The results of run() on NumPy and on the stand-in."""
    on_numpy = run()
    with stand_in():
        return on_numpy, run()


def text(sampler, *models, n=40, K=(), **settings):
    rounds = sampler(*models, PROMPT, n, *K, np.random.default_rng(3), **settings)
    return [token for r in rounds for token in r.tokens]


# The forward pass -------------------------------------------------------------------------------------------

CALLS = [(1, 1), (2, 1), (7, 5), (12, 1), (17, 16), (60, 1), (65, 5), (30, 4), (100, 20)]   # tokens, n_last


@pytest.mark.parametrize("name", ["tiny", pytest.param("demo-target", marks=pytest.mark.long)])
def test_logits_are_those_of_numpy_but_for_rounding(name):
    tokens = np.random.default_rng(0).integers(0, 300, 100).tolist()

    def run():
        model = random_model(name) if name == "tiny" else load_model(name)[0]
        return [model(tokens[:n], n_last) for n, n_last in CALLS]

    for a, b in zip(*on_both(run)):
        assert isinstance(b, cupy.ndarray) and a.shape == b.shape and b.dtype == np.float32
        assert np.abs(a - b.get()).max() < 2e-5 * np.abs(a).max()
    assert counts["made float32"] > 1000 and not {"made float64", "made float16"} & counts.keys()


def test_an_id_out_of_range_is_found_on_the_host():
    """CuPy itself would wrap such an index round without an error."""
    with stand_in():
        model = random_model("tiny")
        model([1, 2])
        for bad in (300, -1, 10**9):
            counts.clear()
            with pytest.raises(ValueError, match="token id"):
                model([1, bad, 2], 2)
            assert not counts


def test_nothing_of_the_device_is_in_gpt2_py():
    source = Path(gpt2.__file__).read_text(encoding="utf-8")
    assert not any(word in source for word in ("import numpy", ".get()", "cuda", "on_gpu"))


# What crosses -----------------------------------------------------------------------------------------------

def test_a_pass_itself_brings_nothing_to_the_host():
    with stand_in():
        model = load_model("demo-target")[0]
        counts.clear()
        model(PROMPT)
        of_prompt = counts["bytes copied for products"]
        model(PROMPT + [1, 2, 3], 4)
    assert counts["bytes to host"] == counts["syncs"] == 0
    assert counts["bytes to device"] == 8 * (len(PROMPT) + 4)   # only the ids of the tokens in the pass
    weights = sum(block["mlp"]["c_fc"]["w"].nbytes for block in model.params["blocks"])
    assert counts["bytes copied for products"] - of_prompt < weights        # only queries, keys and values


# The samplers, the command line -----------------------------------------------------------------------------

@pytest.mark.parametrize("settings", [dict(temperature=0), dict(temperature=0.8, top_k=50, top_p=0.9)],
                         ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", ["synthetic", pytest.param("demo", marks=pytest.mark.long)])
def test_both_samplers_say_the_same_on_both_backends(name, settings):
    def run():
        draft, target = (synthetic_pair("tiny", 2, 0.1) if name == "synthetic" else
                         (load_model("demo-draft")[0], load_model("demo-target")[0]))
        return (text(autoregressive_sampling, target, **settings),
                text(speculative_sampling, draft, target, K=[4], **settings))

    on_numpy, on_device = on_both(run)
    assert on_numpy == on_device and len(on_device[0]) == len(on_device[1]) == 40
    if settings["temperature"] == 0:
        assert on_device[0] == on_device[1]


def test_a_draft_on_the_host_may_serve_a_target_on_the_device():
    with stand_in():
        draft = memoryless(np.full(300, 1 / 300))
        assert len(text(speculative_sampling, draft, random_model("tiny"), K=[3], n=20, top_k=40)) == 20


@pytest.mark.parametrize("error", [
    None, ImportError("Failure finding libcublas.so.12\nmuch advice " * 99), RuntimeError(),
    RuntimeError("cudaErrorInsufficientDriver: CUDA driver is insufficient\nfor this")], ids=repr)
def test_one_sentence_says_what_cupy_said_and_what_it_needs(capsys, monkeypatch, error):
    """If `cupy` is not installed, or fails at its first array."""
    def ones(*_, **__):
        raise error

    broken = type("Broken", (), {"ones": staticmethod(ones), "float32": np.float32})
    monkeypatch.setitem(sys.modules, "cupy", error and broken)
    assert console.run(main.main, ["--backend", "cupy"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and len(err) < 500
    assert (type(error).__name__ if error else "ModuleNotFoundError") in err and "--backend numpy" in err
    assert not backend.on_gpu() and xp.ndarray is np.ndarray                    # nothing has changed


def test_a_backend_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="there is no backend 'torch'"):
        backend.use("torch")


# Timing -----------------------------------------------------------------------------------------------------

def test_no_clock_is_read_while_the_device_works(monkeypatch):
    readings = []

    def perf_counter():
        assert not strict_cupy.pending
        readings.append(0.0)
        return float(len(readings))

    monkeypatch.setattr(backend, "perf_counter", perf_counter)
    with stand_in():
        timed = stats.Timed(random_model("tiny"))
        list(stats.clocked(autoregressive_sampling(timed, PROMPT, 3, np.random.default_rng(0)), []))
        timed(PROMPT)
        assert strict_cupy.pending is False and len(readings) > 9
        assert backend.gpu() == {"GPU": "no GPU but a strict stand-in", "CuPy": "a strict stand-in"}
    ticks = [backend.clock() for _ in range(9)]
    assert ticks == sorted(ticks) and backend.gpu() == {}


def test_all_clocks_are_the_one_of_backend_py():
    """Except in training, which uses PyTorch, and where the code waits for a server or a browser."""
    for path in FILES:
        if path.name != "backend.py" and room_of(path) not in ("training", "notebooks", "tests"):
            assert not re.search(r"perf_counter|time\.time\b", path.read_text(encoding="utf-8")), path


# The stand-in itself ----------------------------------------------------------------------------------------

def names():
    return dict(np=np, cp=cupy, a=cupy.ones((4, 6), dtype=np.float32), b=cupy.ones((6,), dtype=np.float32),
                i=cupy.arange(3), n=np.ones((4, 6), np.float32))


# CuPy refuses these too, except for a few that it silently accepts: it wraps indices out of range, truncates
# the index 1.0, takes True for a mask, and some of its functions accept lists or NumPy arrays.
REFUSED = {
    TypeError: """np.asarray(a) | a + n | n + a | n * b | a += n | a + [1] * 6 | a @ n | n @ a.T
        cp.matmul(a, n) | cp.exp(n) | cp.exp([1.0]) | cp.maximum(a, n) | cp.sum(n) | cp.sum([1])
        cp.where(n > 0, a, a) | cp.stack([a, n]) | cp.concatenate([n, n]) | cp.ascontiguousarray(n)
        cp.triu([[1]]) | np.vecdot(a, a) | np.add(a, n) | a == n | a < n | range(i[1]) | [1, 2, 3][i[1]]
        hash(a) | a[:i[1]] | cp.add(a, a, out=n) | np.concatenate([a, n]) | a.dot(n)""",
    ValueError: "a[0] = n[0] | a[0] = [1.0] * 6 | a.item() | a.reshape(5, 5) | int(a) | if a: pass",
    IndexError: "a[7] | a[[0, 99]] | a[cp.asarray([0, -5])] | a[1.0] | a[True] | a[a]",
    AttributeError: "cp.vecdot | cp.random | cp.errstate | cp.array_api | a.tostring | a.__index__"}

@pytest.mark.parametrize("error, refused", REFUSED.items())
def test_the_stand_in_refuses_what_cupy_does(error, refused):
    for code in refused.replace("\n", "|").split("|"):
        with pytest.raises(error):
            exec(code.strip(), names())
            pytest.fail(f"{code} was allowed")
