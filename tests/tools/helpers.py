"""Code that several tests share: pairs of tables, a full disk, Ctrl-C, tiny GPT-2s, trees."""

import contextlib
import functools
import itertools
import json
import linecache
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import gpt2
from benchmarks.synthetic import SIZES, random_arrays
from encoder import EOS, Encoder, bytes_to_unicode
from engine.loading.checkpoint import write_tensorflow
from engine.loading.folder import list_shapes
from lossless import exact_distribution
from lossless.toys import as_model, memoryless, scripted, table
from methods.drafters import heads
from methods.table import DRAFTERS, VERIFIERS, choose
from utils import nest

ROOT = Path(__file__).resolve().parent.parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
HUGGINGFACE = FIXTURES / "huggingface"          # fixtures/README.md says what is there


def python(*words, **settings):
    """Runs `python` with these words in the root of the repository."""
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, **settings)


def git(*words):
    """The words that git answers."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.split()


# Models given by tables -------------------------------------------------------------------------------------

PAIRS = {                                       # name: (draft, target), with a vocabulary of three tokens
    "a distribution after every prefix": (table(1), table(2)),
    "zeros in both": (table(3, zeros=.4), table(4, zeros=.4)),
    "zeros in the draft": (table(5, zeros=.5), table(6)),
    "zeros in the target": (table(7), table(8, zeros=.5)),
    "draft is the target": (table(9, zeros=.2), table(9, zeros=.2)),
    "disjoint supports": (as_model(lambda x: np.where(np.arange(3) == sum(x) % 3, 0, -np.inf)),
                          as_model(lambda x: np.where(np.arange(3) == sum(x) % 3, -np.inf, np.arange(3)))),
    "draft is certain": (scripted([1, 2, 0, 1, 1, 0], n_vocab=3), table(10)),
    "target is certain": (table(11), scripted([1, 2, 0, 1, 1, 0], n_vocab=3)),
    "draft knows nothing": (memoryless([1 / 3, 1 / 3, 1 / 3]), table(12)),
}


def mean_accepted(sample):
    """The exact expected number of drafts that the first round of sample(rng) accepts."""
    found = exact_distribution(lambda rng: next(sample(rng)).n_accepted)
    return sum(n * chance for n, chance in found.items())


# A random generator -----------------------------------------------------------------------------------------


class Says:
    """Stands in for the random generator: `random()` returns these numbers, one after the other."""

    def __init__(self, *numbers):
        self.numbers = iter(numbers)

    def random(self):
        return next(self.numbers)


# A refusal --------------------------------------------------------------------------------------------------

def refused(read, path, reason):
    """Reading raises a ValueError: one sentence that names the file or its folder, and the reason -> it."""
    with pytest.raises(ValueError, match=f"(?s)^.{{,30}}{re.escape(str(path))}.*({reason})") as error:
        read(path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 1000
    return str(error.value)


# A full disk ------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def full_disk(n_bytes):
    """No file can grow beyond n_bytes: "File too large" stands for "No space left on device"."""
    resource = pytest.importorskip("resource", reason="the size of files cannot be limited on this system")
    limits, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)


# Files by PyTorch ------------------------------------------------------------------------------------------

def swap_pickle(path, change):
    """Changes data.pkl, as bytes, in a file by torch.save."""
    with zipfile.ZipFile(path) as old:
        files = {name: old.read(name) for name in old.namelist()}
    root = next(name for name in files if name.endswith("data.pkl"))
    with zipfile.ZipFile(path, "w") as new:
        for name, data in (files | {root: change(files[root])}).items():
            new.writestr(name, data)


# Ctrl-C -----------------------------------------------------------------------------------------------------

def interrupt(run, n):
    """Runs run() and presses Ctrl-C at the n-th event in our files: a line, a call or a return."""
    left, before = iter(range(n - 1)), sys.gettrace()

    def trace(frame, event, arg):
        file, line = frame.f_code.co_filename, frame.f_lineno
        if ours(file) and frame.f_code.co_name != "<genexpr>":  # Python would print the error and go on
            # A trace function can raise at a `try` or `yield` and at the end of a `with`; a signal cannot.
            line = linecache.getline(file, line).lstrip()
            if not line.startswith(("with ", "try:", "yield")) and next(left, None) is None:
                raise KeyboardInterrupt
            return trace

    sys.settrace(trace)
    try:
        run()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)


@functools.cache
def ours(file):
    """Whether the file belongs to this project, but neither to the tests nor to a package in .venv."""
    return ROOT in Path(file).parents and not {"tests", ".venv"} & {*Path(file).relative_to(ROOT).parts}


# Tiny GPT-2s ------------------------------------------------------------------------------------------------


def random_weights(shapes, seed, dtype):
    """{name: array}, large enough that every part of a model matters."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(name.endswith("/g"), 0.4, size=shape).astype(dtype)
            for name, shape in shapes.items()}


def tiny_gpt2(seed=0, dtype=np.float32, n_vocab=13, n_ctx=80, n_embd=8, n_layer=2):
    """A random GPT-2 with two heads."""
    shapes = list_shapes(n_vocab, n_ctx, n_embd, n_layer)
    return gpt2.GPT2(nest(random_weights(shapes, seed, dtype), n_layer), n_head=2)


HEAD_SIZES = {"medusa": 3, "exit": 1, "eagle": [1, 2], "parallel": [1, 2]}      # as in hparams.json


def head_arrays(kind, target, seed=5):
    """{name: array} of a random head for a tiny GPT-2."""
    wte = target.params["wte"]
    shapes = heads.head_shapes(kind, wte.shape[1], HEAD_SIZES[kind], target.n_vocab)
    return random_weights(shapes, seed, wte.dtype)


def random_head(kind, target):
    """The same, as a drafter reads it."""
    return nest(head_arrays(kind, target), n_layer=1) | {heads.SIZES[kind]: HEAD_SIZES[kind]}


def counted(model):
    """The model; from now on it notes in model.rows how many rows each of its passes has."""
    layers, model.rows = model.layers, []
    model.layers = lambda x, *rest: model.rows.append(len(x)) or layers(x, *rest)
    return model


def without_cache(model):
    """The same model, with its cache emptied before every call."""

    def uncached(tokens, n_last=1):
        model.reset()
        return model(tokens, n_last)

    return uncached


# A tiny stand-in for methods.Models -------------------------------------------------------------------------

class TinyModels:
    """A draft and a target with a small vocabulary, an encoder for it, and untrained heads."""

    def __init__(self, words="<|endoftx>ab", **sizes):
        self.draft_name = self.target_name = "tiny"
        ids = {char: i for i, char in enumerate([*words, EOS] if "<" in words else words)}
        self.draft, self.target = (tiny_gpt2(seed, n_vocab=len(ids), **sizes) for seed in (1, 0))
        self.encoder = Encoder(ids, [])
        self.load_draft = lambda: (self.draft, self.encoder)

    def head(self, kind):
        return random_head(kind, self.target)


def small():
    """In float64, with a context so short that all texts can be walked through."""
    return TinyModels("abc", dtype=np.float64, n_ctx=8)


# drafters that wrap another drafter
WITHIN = ["schedule:lookup", "optimum:medusa", "confident:ngram"]
OPTIONS = {"layer_skip": "layer_skip:a0,m1"}                            # it has no default


def combinations():
    """Every (drafter, verifier) that goes together, as typed on the command line."""
    for drafter, verifier in itertools.product([*DRAFTERS, *WITHIN], VERIFIERS):
        typed = OPTIONS.get(drafter, drafter), verifier
        with contextlib.suppress(ValueError):
            choose(*typed)
            yield typed


# Trees ------------------------------------------------------------------------------------------------------

UNEVEN = [-1, -1, 0, 0, 2]              # not expressible as widths: the second child has no children


# A folder of a random model ---------------------------------------------------------------------------------

def write_folder(folder, hparams=SIZES["tiny"], arrays=None, n_tokens=None):
    """Writes a folder in OpenAI's layout -> its path.  By default the weights are random; the tokens are the
    bytes, <|endoftext|>, and further ones."""
    folder, tokens = Path(folder), [*bytes_to_unicode().values(), EOS, *(f"<{i}>" for i in range(99))]
    ids = {token: i for i, token in enumerate(tokens[:n_tokens or hparams["n_vocab"]])}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hparams.json").write_text(json.dumps(hparams))
    (folder / "encoder.json").write_text(json.dumps(ids))
    (folder / "vocab.bpe").write_text("#version: 0.2\n")
    write_tensorflow(folder / "model.ckpt", random_arrays("tiny") if arrays is None else arrays)
    return folder
