"""What the heads on a target have in common: their weights, and the target's last hidden states.

Heads read a target's states and end in its output matrix, so they are of no use to another one.  The folder
of a head (training/heads.py writes it) therefore names its target, by a checksum of the token embeddings.
"""
import hashlib
from pathlib import Path

import numpy as np

from compute.backend import to_host, xp
from gpt2 import common_prefix, layer_norm
from loading.checkpoint import read_tensorflow
from utils import nested, read_json, shapes

EMBEDDED = ("demo-eagle", "demo-medusa", "demo-exit")         # in models/; they belong to demo-target


def load_head(kind, name_or_folder, target):
    """The parameters of a head ("eagle", "medusa" or "exit"), nested as in utils.nested.

    Raises ValueError in one sentence for files that are missing or damaged, another kind of head, or the head
    of another target.
    """
    folder = Path(name_or_folder)
    if str(name_or_folder) in EMBEDDED:
        folder = Path(__file__).resolve().parent.parent / "models" / folder
    if not folder.is_dir():
        raise ValueError(f"there is no head or folder {str(name_or_folder)!r}: use one of "
                         f"{', '.join(EMBEDDED)}, or a folder that training/heads.py has written")
    try:
        hparams, arrays = read_json(folder / "hparams.json"), read_tensorflow(folder / "model.ckpt")
        if hparams.get("kind") != kind:
            raise ValueError(f"it is of the kind {hparams.get('kind')!r}, not {kind!r}")
        if hparams.get("target") != checksum(target):
            raise ValueError("it was trained on another target: use it with that one, or train one on this "
                             "(training/heads.py)")
        size = {"medusa": "n_heads", "exit": "exit_layer"}.get(kind)
        if size and (type(hparams.get(size)) is not int or hparams[size] < 1):
            raise ValueError(f"{size} is {hparams.get(size)!r}, which is no size")
    except (ValueError, OSError) as error:
        raise ValueError(f"{folder} is not a head for this target: {error}") from None
    wanted = head_shapes(kind, target.params["wte"].shape[1], hparams.get("n_heads"))
    return nested(arrays, {"n_layer": 1}, folder, wanted) | {"exit_layer": hparams.get("exit_layer")}


def head_beside(target, drafter):
    """The head that goes with a target's name or folder: "demo-eagle" with "demo-target", and what lies
    beside a folder under that name.  None where there is none.

    >>> head_beside("demo-target", "early_exit"), head_beside("124M", "eagle"), head_beside("a", "lookup")
    ('demo-exit', None, None)
    """
    kinds = {"eagle": "eagle", "medusa": "medusa", "early_exit": "exit"}
    if drafter not in kinds:
        return None
    name = f"demo-{kinds[drafter]}"
    if target == "demo-target":
        return name
    folder = Path(target).parent / name
    return folder if Path(target).is_dir() and folder.is_dir() else None


def checksum(target):
    """Which model a head belongs to: SHA-256 of the token embeddings in half precision."""
    return hashlib.sha256(to_host(target.params["wte"]).astype(np.float16).tobytes()).hexdigest()


def head_shapes(kind, n, n_heads):
    """The shape of every parameter of a head, by name.  n is the target's n_embd."""
    if kind == "medusa":
        return {"model/residuals/w": (n, n_heads * n), "model/residuals/b": (n_heads * n,)}
    gpt2 = shapes(n_vocab=0, n_ctx=0, n_embd=n, n_layer=1)
    block = {name: gpt2[name] for name in gpt2 if name not in ("model/wte", "model/wpe")}
    if kind == "exit":
        return block
    return block | {"model/from_state/w": (n, n), "model/from_state/b": (n,), "model/from_token": (n, n),
                    "model/from_position": (n, n)}


def last_states(target, x, first):
    """The target's states, after its last norm, before the tokens x[first:] -> [len(x) - first, n_embd].

    The last verification has left them in target.states.  Where it has not (a new prompt), this is the
    prompt's pass, and the verification that comes has only the rest to do.  Before the first token are zeros.
    """
    n = len(x) - 1
    if hasattr(target, "follow"):           # a TreeGPT2: the states of the path that was taken move up
        target.follow(x[:n])
    if common_prefix(target.cached, x) < n:
        target(x[:n])
    states = layer_norm(target.states[max(first - 1, 0):n], **target.params["ln_f"])
    return states if first else xp.concatenate([xp.zeros_like(target.states[:1]), states])


def unit(x):
    """Rows with mean 0 and variance 1: the layer norm without gain and bias."""
    return layer_norm(x, 1, 0)
