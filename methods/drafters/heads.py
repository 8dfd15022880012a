"""What drafters with a trained head share: reading the head's weights and the target's hidden states.

A head reads the hidden states of a target and ends in the target's output matrix, so it works with that
target only.  The head's folder (written by models/training/heads.py) records a checksum of the target's token
embeddings.
"""
import hashlib
from operator import index
from pathlib import Path

import numpy as np

from engine.checks import check_ids
from engine.compute.backend import to_host, xp
from engine.loading.checkpoint import read_tensorflow
from engine.loading.files import expected_structure, one_sentence
from engine.loading.folder import check_weights, list_shapes
from engine.loading.names import find_embedded
from engine.loading.tokenizer import read_json
from gpt2 import common_prefix, layer_norm
from utils import nest

EMBEDDED = ("demo-eagle", "demo-medusa", "demo-exit", "demo-parallel")      # in models/, for demo-target
SIZES = dict(eagle="layers", medusa="n_heads", exit="exit_layer", parallel="layers")     # in hparams.json
N_ROWS, RANK = 8, 24            # of a parallel head: the most drafts per pass, the rank of its Markov head


def load_head(kind, name_or_folder, target):
    """The parameters of a head of this kind (a key of SIZES), nested as in utils.nest; a dict unchanged.

    Raises ValueError for files that are missing or damaged, another kind of head, or another target's head.
    """
    if isinstance(name_or_folder, dict):
        return name_or_folder
    folder = Path(name_or_folder)
    if str(name_or_folder) in EMBEDDED:
        folder = find_embedded(folder)
    with one_sentence(f"{folder} is not a head for this target"):
        hparams, arrays = read_json(folder / "hparams.json"), read_tensorflow(folder / "model.ckpt")
        if (hparams.get("kind"), hparams.get("target")) != (kind, checksum(target.params["wte"])):
            raise ValueError(f"it is not of the kind {kind!r}, or was trained on another target: train one "
                             "on this target (models/training/heads.py)")
        with expected_structure():
            size = hparams[SIZES[kind]]
            wanted = head_shapes(kind, target.params["wte"].shape[1], size, target.n_vocab)
        return nest(check_weights(arrays, wanted), n_layer=1) | {SIZES[kind]: size}


def find_head(name_or_folder, kind, target):
    """The head that goes with a target: for "demo-target" the bundled one, for a folder the one beside it
    (models/demo-eagle beside models/my-target).  None if there is none, or if it belongs to another target.

    name_or_folder, target      what the model was loaded from, and the model itself
    Raises ValueError for a head that cannot be read.
    """
    folder = Path(name_or_folder).parent / f"demo-{kind}"
    if name_or_folder == "demo-target":
        return folder.name
    if not Path(name_or_folder).is_dir() or not folder.is_dir():
        return None
    with one_sentence(f"{folder} is not a head for this target"):
        hparams = read_json(folder / "hparams.json")
    return folder if hparams.get("target") == checksum(target.params["wte"]) else None


def checksum(wte):
    """SHA-256 of a target's token embeddings in half precision."""
    return hashlib.sha256(to_host(wte).astype(np.float16).tobytes()).hexdigest()


def head_shapes(kind, n, size, n_vocab=0):
    """The shape of every parameter of a head, by name.  n is the target's n_embd; for size see SIZES."""
    if kind == "medusa":
        return {"model/residuals/w": (n, size * n), "model/residuals/b": (size * n,)}
    gpt2 = list_shapes(n_vocab=0, n_ctx=0, n_embd=n, n_layer=1)
    block = {name: gpt2[name] for name in gpt2 if name not in ("model/wte", "model/wpe")}
    if kind == "exit":
        return block
    block |= {"model/from_token": (n, n), "model/from_position": (n, n)}
    if kind == "parallel":
        return block | {"model/from_states/w": ((len(size) + 1) * n, n), "model/from_states/b": (n,),
                        "model/masks": (N_ROWS - 1, n), "model/previous": (n_vocab, RANK),
                        "model/bias": (RANK, n)}
    return block | {"model/fuse/w": ((len(size) + 1) * n, n), "model/fuse/b": (n,),
                    "model/from_state/w": (n, n), "model/from_state/b": (n,)}


def states_before(target, x, first, layers=()):
    """The target's states just before each of the tokens x[first:] ->
    [len(x) - first, (len(layers) + 1) * n_embd].  A row has the states after each of `layers`, normalized,
    and the state after the target's final norm; before the first token it is zero.

    Usually the last verification has left them in the target.  If not (a new prompt), the target runs here.
    Raises ValueError for ids outside the vocabulary.
    """
    x = [*map(index, x)]
    n = len(x) - 1
    check_ids(x[n:], target.n_vocab)
    if hasattr(target, "follow"):           # a TreeGPT2: joins the accepted path's states to the text's
        target.follow(x[:n])
    if common_prefix(target.past, x) < n:
        target.prefill(x, 1)                # a long text, in the same chunks as without a head
    if common_prefix(target.past, x) < n:
        target(x[:n])                       # a short text, which prefill did not run
    *early, last = target.states[[*layers, -1], max(first - 1, 0):n]            # [rows, n_embd] each
    states = xp.concatenate([*map(standardize, early), layer_norm(last, **target.params["ln_f"])], axis=1)
    return states if first else xp.pad(states, [(1, 0), (0, 0)])


def standardize(x):
    """Rows with mean 0 and variance 1: layer norm without gain and bias."""
    return layer_norm(x, 1, 0)
