"""The same source on CuPy, without a GPU: it runs on a strict stand-in (strict_cupy.py).  And what crosses to
the host, and when."""

import contextlib
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import strict_cupy
from helpers import tiny_gpt2
from strict_cupy import counts, cupy

import benchmarks.__main__ as benchmark
import gpt2
from autoregressive import autoregressive_sampling
from benchmarks import measure
from benchmarks.synthetic import random_model, synthetic_pair
from compute import backend
from compute.backend import xp
from lossless import memoryless
from main import main
from reporting import stats
from sampling import prepare, probabilities
from speculative import speculative_sampling
from utils import load_model

ROOT = Path(__file__).resolve().parent.parent
ROOMS = "compute", "drafters", "samplers", "loading", "reporting", "benchmarks", "exercises"
PROMPT = [11, 7, 200, 3, 3, 150, 42]


@contextlib.contextmanager
def stand_in():
    """Within it the program runs on the stand-in for CuPy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cupy", cupy)
        backend.use("cupy")
        counts.clear()
        try:
            yield
        finally:
            backend.use("numpy")


def on_both(run):
    """run() on NumPy, and on the stand-in."""
    on_numpy = run()
    with stand_in():
        return on_numpy, run()


def text(sampler, *models, **settings):
    n, rng = settings.pop("n", 40), np.random.default_rng(3)
    K = [settings.pop("K")] if "K" in settings else []
    return [token for r in sampler(*models, PROMPT, n, *K, rng, **settings) for token in r.tokens]


def pair(name):
    if name == "synthetic":
        return synthetic_pair("tiny", 2, 0.1)
    return load_model("demo-draft")[0], load_model("demo-target")[0]


# The forward pass -------------------------------------------------------------------------------------------

CALLS = [
    (1, 1),
    (2, 1),
    (7, 5),
    (12, 1),
    (17, 16),
    (60, 1),
    (65, 5),
    (30, 4),
    (100, 20),
]  # tokens so far, n_last


@pytest.mark.parametrize("name", ["tiny", "demo-draft", "demo-target"])
def test_logits_are_those_of_numpy_but_for_rounding(name):
    tokens = np.random.default_rng(0).integers(0, 300, 100).tolist()

    def run():
        model = random_model(name) if name == "tiny" else load_model(name)[0]
        return [model(tokens[:n], n_last) for n, n_last in CALLS]

    for a, b in zip(*on_both(run)):
        assert isinstance(b, cupy.ndarray) and a.shape == b.shape and b.dtype == np.float32
        assert np.abs(a - b.get()).max() < 2e-5 * np.abs(a).max()


def test_the_forward_pass_makes_no_float64():
    with stand_in():
        model = random_model("tiny")
        for n, n_last in CALLS:
            model(list(range(n)), n_last)
    assert counts["made float32"] > 1000 and not [
        key for key in counts if key in ("made float64", "made float16")
    ]


def test_an_id_out_of_range_is_found_on_the_host():
    """CuPy would wrap it: row -1 or row n_vocab % n_vocab, and no word."""
    with stand_in():
        model = random_model("tiny")
        model([1, 2])
        for bad in (300, -1, 10**9):
            counts.clear()
            with pytest.raises(ValueError, match="token id"):
                model([1, bad, 2], 2)
            assert not counts
        with pytest.raises(ValueError, match="fit into the context"):
            model([0] * 129)


def test_nothing_of_the_device_is_in_gpt2_py():
    source = Path(gpt2.__file__).read_text(encoding="utf-8")
    assert not any(word in source for word in ("import numpy", ".get()", "cuda", "on_gpu"))


# What crosses -----------------------------------------------------------------------------------------------


def test_a_pass_itself_brings_to_the_host_only_whether_its_numbers_are_finite():
    with stand_in():
        model = random_model("tiny")
        counts.clear()
        model(PROMPT)
        model(PROMPT + [1, 2, 3], 4)
    assert counts["bytes to host"] == counts["syncs"] == 2  # two passes, a bool each
    assert counts["bytes to device"] == 8 * (len(PROMPT) + 4)  # the ids of the tokens that are run


def test_no_product_copies_the_weights():
    with stand_in():
        model = load_model("demo-target")[0]
        model(PROMPT)
        counts.clear()
        model(PROMPT + [1, 2, 3, 4], 5)
        assert counts["bytes copied for products"] < 0.1 * measure.size_of(
            model
        )  # of queries, keys and values


@pytest.mark.parametrize(
    "settings, bytes_a_row",
    [
        (dict(temperature=0), 12),
        (dict(temperature=0, top_k=50, top_p=0.9), 12),
        (dict(top_k=50), 50 * 12),
        (dict(top_k=1), 12),
        (dict(), 4096 * 4),
        (dict(top_p=0.9), 4096 * 4),
        (dict(top_k=4096), 4096 * 4),
    ],
    ids=str,
)
def test_of_the_logits_only_those_that_the_law_needs_cross(settings, bytes_a_row):
    """An id and a logit are 12 bytes; without top-k the distribution needs the whole row."""
    with stand_in():
        draft, target = pair("demo")
        for sampler, models in ((autoregressive_sampling, [target]), (speculative_sampling, [draft, target])):
            counts.clear()
            rounds = list(
                sampler(
                    *models,
                    PROMPT,
                    12,
                    *([4] if draft in models else []),
                    np.random.default_rng(0),
                    **settings,
                )
            )
            rows = sum(2 * len(r.drafts) + 1 for r in rounds)
            passes = sum(len(r.drafts) + 1 for r in rounds)
            assert (
                counts["bytes to host"] == rows * bytes_a_row + passes
            )  # a bool a pass; ties would add to it
            assert counts["syncs"] <= 4 * passes


@pytest.mark.parametrize(
    "settings",
    [
        dict(temperature=0),
        dict(top_k=1),
        dict(top_k=5),
        dict(top_k=5, top_p=0.6),
        dict(top_p=0.6),
        dict(),
        dict(temperature=0.3, top_k=299),
        dict(top_k=300),
        dict(top_k=1000),
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(300,), (1, 300), (5, 300)], ids=str)
def test_the_law_has_the_same_bits_whether_few_logits_cross_or_all(settings, shape):
    logits = np.random.default_rng(1).normal(size=shape).round(1).astype(np.float32)  # rounded: full of ties
    logits[..., 10:20] = -np.inf
    expected = probabilities(logits, **settings)
    settings = dict(temperature=1.0, top_k=0, top_p=1.0) | settings
    _, to_probs, _ = prepare([lambda *_: None], [0], 1, eos=None, **settings)
    with stand_in():
        assert to_probs(cupy.asarray(logits)).tobytes() == expected.tobytes()


@pytest.mark.parametrize("temperature, top_k", [(0, 0), (1, 0), (1, 1), (1, 3)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("n_bad", [1, 4])
def test_damaged_logits_are_found_though_few_cross(temperature, top_k, value, n_bad):
    logits = np.zeros((2, 20), dtype=np.float32)
    logits[1, 3 : 3 + n_bad] = value
    _, to_probs, _ = prepare([lambda *_: None], [0], 1, temperature, top_k, 1.0, None)
    with stand_in(), pytest.raises(ValueError, match="NaN or infinity"):
        to_probs(cupy.asarray(logits))


# The samplers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [dict(temperature=0), dict(temperature=1), dict(temperature=0.8, top_k=50, top_p=0.9)],
    ids=str,
)
@pytest.mark.parametrize("name", ["synthetic", pytest.param("demo", marks=pytest.mark.long)])
def test_both_samplers_say_the_same_on_both_backends(name, settings):
    def run():
        draft, target = pair(name)
        return text(autoregressive_sampling, target, **settings), text(
            speculative_sampling, draft, target, K=4, **settings
        )

    on_numpy, on_device = on_both(run)
    assert on_numpy == on_device and len(on_device[0]) == len(on_device[1]) == 40
    if settings["temperature"] == 0:
        assert on_device[0] == on_device[1]


def test_a_draft_on_the_host_may_serve_a_target_on_the_device():
    with stand_in():
        assert (
            len(
                text(
                    speculative_sampling,
                    memoryless(np.full(300, 1 / 300)),
                    random_model("tiny"),
                    K=3,
                    n=20,
                    top_k=40,
                )
            )
            == 20
        )


# The command line -------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    "flags",
    [pytest.param([], marks=pytest.mark.long), ["--temperature", "1", "--top_k", "50", "--show_rounds"]],
    ids=" ".join,
)
def test_main_runs_on_the_stand_in_and_says_the_same(capsys, flags):
    def run():
        assert main([*flags, "--json", "--backend", "cupy" if backend.on_gpu() else "numpy"]) == 0
        return json.loads(capsys.readouterr().out)

    on_numpy, on_device = on_both(run)
    assert (on_numpy["backend"], on_device["backend"]) == ("numpy", "cupy") and counts[
        "bytes to device"
    ] > 1e6
    for sampler in ("autoregressive", "speculative"):
        assert on_numpy[sampler]["tokens"] == on_device[sampler]["tokens"]


def broken(error):
    """A `cupy` that fails at its first array."""

    def ones(*_, **__):
        raise error

    return type("Broken", (), {"ones": staticmethod(ones), "float32": np.float32})


class CUDARuntimeError(RuntimeError):
    pass


BROKEN = {
    "package": (None, "the package CuPy is not installed"),
    "driver": (
        broken(
            CUDARuntimeError(
                "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"
            )
        ),
        "NVIDIA's driver is not",
    ),
    "device": (
        broken(CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")),
        "there is no device",
    ),
    "a library": (
        broken(ImportError("Failure finding libcublas.so.12")),
        "CuPy is installed, but says: Failure finding libcublas.so.12",
    ),
    "anything": (broken(RuntimeError("one\ntwo")), "says: one two"),
    "no word": (broken(RuntimeError()), "says: RuntimeError"),
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize(
    "program, flags",
    [(main, ["--backend", "cupy"]), (benchmark.main, ["--backend=cupy"])],
    ids=["main", "benchmark"],
)
def test_one_sentence_says_what_is_missing(capsys, monkeypatch, what, program, flags):
    module, sentence = BROKEN[what]
    monkeypatch.setitem(sys.modules, "cupy", module)
    assert program(flags) == 2
    out, err = capsys.readouterr()
    assert (
        out == ""
        and err.startswith("error: ")
        and err.count("\n") == 1
        and sentence in err
        and "--backend numpy" in err
    )
    assert not backend.on_gpu() and xp.ndarray is np.ndarray  # still what it was


def test_an_import_that_fails_is_told_by_its_cause(capsys, monkeypatch, tmp_path):
    (tmp_path / "cupy.py").write_text(
        "try:\n    import nowhere_to_be_found\nexcept ImportError as e:\n"
        '    raise ImportError("=====\\nFailed to import CuPy.\\nmuch advice") from e\n'
    )
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["--backend", "cupy"]) == 2
    err = capsys.readouterr().err
    assert (
        err.count("\n") == 1 and "CuPy is installed, but says: No module named 'nowhere_to_be_found'" in err
    )


# Timing -----------------------------------------------------------------------------------------------------


def test_no_clock_is_read_while_the_device_works(monkeypatch):
    readings = []

    def perf_counter():
        assert not strict_cupy.pending
        readings.append(len(readings))
        return float(len(readings))

    monkeypatch.setattr(backend, "perf_counter", perf_counter)
    measure.bandwidth.cache_clear(), measure.product_rate.cache_clear()
    with stand_in():
        timed = stats.Timed(random_model("tiny"))
        list(stats.clocked(autoregressive_sampling(timed, PROMPT, 3, np.random.default_rng(0)), []))
        timed(PROMPT)
        assert strict_cupy.pending is False and len(readings) == 2 * 3 + 2 * 3 + 2 + 2
        assert benchmark.main(["--quick", "--backend=cupy", "--tables=synthetic,forward,parts,prefill"]) == 0
    measure.bandwidth.cache_clear(), measure.product_rate.cache_clear()
    assert len(readings) > 100


def test_all_clocks_are_the_one_of_backend_py():
    for path in [*ROOT.glob("*.py"), *(path for room in ROOMS for path in (ROOT / room).glob("*.py"))]:
        source = path.read_text(encoding="utf-8")
        assert path.name == "backend.py" or not any(
            word in source for word in ("perf_counter", "time.time")
        ), path.name


def test_on_numpy_the_clock_costs_nothing():
    ticks = [backend.clock() for _ in range(1000)]
    assert ticks == sorted(ticks) and np.median(np.diff(ticks)) < 1e-5 and backend.gpu() == {}


@pytest.mark.long
def test_the_benchmark_runs_on_the_stand_in_and_names_the_device(capsys, tmp_path, monkeypatch):
    (tmp_path / "cupy.py").write_text("import sys, strict_cupy\nsys.modules['cupy'] = strict_cupy.cupy\n")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT / "tests")])
    )  # the table `loading` starts new processes
    (tmp_path / "prompts.txt").write_text("The old man\nHe said\n")
    with stand_in():
        assert (
            benchmark.main(
                [
                    "--quick",
                    "--backend=cupy",
                    "--tables=pairs,synthetic,forward,parts,prefill,loading",
                    f"--prompts={tmp_path / 'prompts.txt'}",
                    f"--out={tmp_path}",
                ]
            )
            == 0
        )
        assert benchmark.main(["--quick", "--backend=cupy", "--tables=peers"]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: ") and err.count("\n") == 1 and "CPU" in err
    assert out.count("GPU no GPU but a strict stand-in; CuPy a strict stand-in") == 6
    for table in ("pairs", "synthetic", "forward", "parts", "prefill", "loading"):
        result = json.loads((tmp_path / f"{table}.json").read_text(encoding="utf-8"))
        assert (
            result["machine"]["GPU"] == "no GPU but a strict stand-in"
            and result["settings"]["backend"] == "cupy"
            and result["rows"]
        )
    assert all(
        row["same text"]
        for row in json.loads((tmp_path / "pairs.json").read_text(encoding="utf-8"))["rows"]
        if row["T"] == 0
    )


# The stand-in itself ----------------------------------------------------------------------------------------


def names():
    return dict(
        np=np,
        cp=cupy,
        a=cupy.ones((4, 6), dtype=np.float32),
        b=cupy.ones((6,), dtype=np.float32),
        i=cupy.arange(3),
        n=np.ones((4, 6), np.float32),
    )


# CuPy refuses these, too, but for a few that it does in silence: it wraps indices out of range, cuts 1.0
# off, takes True for a mask, and in some functions a list, or a NumPy array for what NumPy then does with
# it.
REFUSED = {
    TypeError: [
        "np.asarray(a)",
        "a + n",
        "n + a",
        "n * b",
        "a += n",
        "a + [1] * 6",
        "a @ n",
        "n @ a.T",
        "cp.matmul(a, n)",
        "cp.exp(n)",
        "cp.exp([1.0])",
        "cp.maximum(a, n)",
        "cp.sum(n)",
        "cp.sum([1])",
        "cp.where(n > 0, a, a)",
        "cp.stack([a, n])",
        "cp.concatenate([n, n])",
        "cp.ascontiguousarray(n)",
        "cp.triu([[1]])",
        "np.vecdot(a, a)",
        "np.add(a, n)",
        "a == n",
        "a < n",
        "range(i[1])",
        "[1, 2, 3][i[1]]",
        "hash(a)",
        "a[:i[1]]",
        "cp.add(a, a, out=n)",
        "np.concatenate([a, n])",
        "a.dot(n)",
    ],
    ValueError: ["a[0] = n[0]", "a[0] = [1.0] * 6", "a.item()", "a.reshape(5, 5)", "int(a)", "if a: pass"],
    IndexError: ["a[7]", "a[[0, 99]]", "a[cp.asarray([0, -5])]", "a[1.0]", "a[True]", "a[a]"],
    AttributeError: ["cp.vecdot", "cp.random", "cp.errstate", "cp.array_api", "a.tostring", "a.__index__"],
}
ALLOWED = [
    "a * 2",
    "2.0 / a",
    "a * np.float32(2)",
    "cp.sqrt(2)",
    "np.exp(a)",
    "a[[0, 1]]",
    "a[range(2)]",
    "a[np.array([0, 1])]",
    "a[i]",
    "a[..., None]",
    "a[:, 1:3]",
    "a[np.int64(1)]",
    "int(a[0, 0])",
    "bool(a[0, 0] > 0)",
    "cp.asarray(n)",
    "a[0] = 1",
    "a[0] = b",
    "a += 1",
    "len(a)",
    "x, y, z, w = a",
    "cp.full((2, 2), -1e10, dtype=cp.float32)",
    "cp.triu(a, 1)",
    "cp.matmul(a[..., None, :], b[:, None])",
    "a.max(axis=-1, keepdims=True)",
    "cp.concatenate([a, a])",
    "a.transpose(1, 0).reshape(2, 12)",
    "cp.partition(a, -2, axis=-1)",
    "cp.flatnonzero(~(a < b))",
]


@pytest.mark.parametrize("error, code", [(error, code) for error, codes in REFUSED.items() for code in codes])
def test_the_stand_in_refuses(error, code):
    with pytest.raises(error):
        exec(code, names())


@pytest.mark.parametrize("code", ALLOWED)
def test_the_stand_in_allows(code):
    exec(code, names())


def test_the_stand_in_computes_as_numpy_and_keeps_its_dtypes():
    a = names()["a"]
    assert (a * 2).dtype == (a * np.float32(2)).dtype == a.sum().dtype == np.float32
    assert (a * np.float64(2)).dtype == (a * cupy.sqrt(2)).dtype == np.float64  # as NumPy 2: so it creeps in
    assert isinstance(a.sum(), cupy.ndarray) and a.sum().shape == () and float(a.sum()) == 24
    view = a.copy()
    view[1:3][:, 0] = 5
    view[0] += 1
    assert view.get().tolist() == [[2] * 6, [5] + [1] * 5, [5] + [1] * 5, [1] * 6]


def test_the_stand_in_counts_what_crosses_and_who_waits():
    a = names()["a"]
    counts.clear()
    a[[0, 1]], cupy.asarray(np.ones(3)), a.get(), int(a[0, 0]), a[a > 0], cupy.nonzero(a)
    assert (counts["bytes to device"], counts["bytes to host"], counts["syncs"]) == (16 + 24, 96 + 4, 4)
    counts.clear()
    a @ a.T, a.T @ a, a[None] @ a.T, a[::2, ::2] @ a[:3]
    assert counts["bytes copied for products"] == 96 + 24  # a transposed matrix in a stack, and one with gaps


def test_the_stand_in_has_no_name_that_cupy_has_not():
    """CuPy can be imported without a GPU."""
    real = pytest.importorskip("cupy")
    assert {name for name in dir(cupy) if name[0] != "_" and not hasattr(real, name)} == set()
    assert {name for name in dir(cupy.ndarray) if name[:2] != "__" and not hasattr(real.ndarray, name)} == {
        "checked"
    }
    with pytest.raises(TypeError, match="Implicit conversion"):
        real.ndarray.__array__(
            real.ndarray((), memptr=real.cuda.MemoryPointer(real.cuda.UnownedMemory(8, 8, None, 0), 0))
        )


def test_tiny_models_of_the_tests_are_numpy_s():
    assert isinstance(tiny_gpt2()([1]), np.ndarray) and isinstance(random_model("tiny")([1]), np.ndarray)
