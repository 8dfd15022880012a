"""For notebook 4: where a pass of gpt2.py spends its time, and the same weights in a textbook's layout."""
import contextlib
import cProfile
from collections import Counter

# What gpt2.py spends its time on: (function, called by) -> part of a pass
PARTS = {
    ("linear", "attention"): "attention products",
    ("linear", "feed_forward"): "feed-forward products",
    ("linear", "logits"): "output head",
    ("row_products", "dot_product_attention"): "attention over the cache",
    ("softmax", "dot_product_attention"): "softmax",
    ("gelu", "feed_forward"): "gelu",
    ("layer_norm", "transformer_block"): "layer norm",
    ("layer_norm", "logits"): "layer norm",
}


@contextlib.contextmanager
def parts_timed():
    """Gives a Counter.  After the `with` block it holds the seconds that each part of a pass took there.

    They are measured by Python's own profiler: how long each function took, by caller.
    """
    spent = Counter()
    with cProfile.Profile(builtins=False) as profiler:
        yield spent
    for caller in profiler.getstats():
        for called in caller.calls or []:
            if part := PARTS.get((called.code.co_name, caller.code.co_name)):
                spent[part] += called.totaltime


def textbook(params):
    """The same parameters, with matrices [n_in, n_out] instead of Tiles, and no separate head."""
    if isinstance(params, list):
        return [textbook(part) for part in params]
    if not isinstance(params, dict):
        return params
    if "w" not in params:
        return {name: textbook(part) for name, part in params.items() if name != "lm_head"}
    n_in, n_out = params["w"].shape
    w = params["w"].tiles.transpose(1, 2, 3, 0, 4).reshape(n_in, -1)[:, :n_out]
    return {"w": w, "b": params["b"]}
