"""Heads on the target: EAGLE, Medusa, an exit.  They cause no extra pass of the target, and what they draft
depends only on the tokens.  test_judgements.py checks that they are lossless."""
import json

import numpy as np
import pytest
from helpers import tiny_gpt2
from test_tree import paths_of, random_tree

import gpt2
from compute.linear import linear
from drafters.eagle import Eagle
from drafters.early_exit import EarlyExit
from drafters.heads import SIZES, checksum, head_beside, head_shapes, load_head
from drafters.medusa import Medusa
from gpt2 import layer_norm
from loading.checkpoint import write_tensorflow
from methods import Models, choose
from reporting.stats import acceptance
from samplers.tree import tree_sampling
from samplers.tree_model import with_tree
from sampling import prepare, probabilities
from speculative import speculative_sampling

N_HEADS = 3


def random_head(kind, seed=1, n=8, dtype=np.float64):
    """The parameters of a random head for a tiny GPT-2 of width n."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.normal(scale=0.4, size=shape).astype(dtype)

    if kind == "medusa":
        return {"residuals": {"w": normal(n, N_HEADS * n), "b": normal(N_HEADS * n)}}
    donor = tiny_gpt2(seed, dtype, n_embd=n, n_layer=1).params
    return {"layers": [1, 2], "fuse": {"w": normal(3 * n, n), "b": normal(n)},
            "from_state": {"w": normal(n, n), "b": normal(n)}, "from_token": normal(n, n),
            "from_position": normal(n, n), "blocks": donor["blocks"], "ln_f": donor["ln_f"]}


def tiny_eagle(target):
    return Eagle(target, head=random_head("eagle"))


def tiny_medusa(target):
    return Medusa(target, head=random_head("medusa"))


BOTH = pytest.mark.parametrize("tiny", [tiny_eagle, tiny_medusa])


def run(head, target, prompt, n_tokens):
    return list(speculative_sampling(None, target, prompt, n_tokens, 4, np.random.default_rng(0),
                                     propose=head.propose))


def asked(head, x, k, seed=0):
    """(drafts, draft_probs) that the head proposes after x."""
    to_probs = prepare([head.target], x, 0, 1.0, 0, 1.0, None)[1]
    return head.propose(None, x, k, to_probs, np.random.default_rng(seed))


# Trees ------------------------------------------------------------------------------------------------------


def test_what_an_eagle_says_after_a_node_depends_on_the_path_alone():
    """Over texts that are continued, cut or replaced, with the tree built in two passes."""
    head, alone = (tiny_eagle(with_tree(tiny_gpt2(5, np.float64, n_ctx=30))) for _ in range(2))
    rng, x = np.random.default_rng(7), [1]
    for _ in range(40):
        x = (x[:rng.integers(1, len(x) + 1)] + rng.integers(0, 13, rng.integers(0, 4)).tolist())[-15:]
        nodes, parents = random_tree(rng, int(rng.integers(1, 9)))
        first = int(rng.integers(0, len(nodes) + 1))
        head.tree(x, nodes[:first], parents[:first])
        for path, row in zip(paths_of([], nodes, parents), head.tree(x, nodes, parents), strict=True):
            alone.reset()
            assert np.allclose(row, alone.tree(x, path, range(-1, len(path) - 1), 1)[0], atol=1e-12)


def test_medusas_tree_holds_the_likeliest_of_each_head():
    target = with_tree(tiny_gpt2(5, np.float64))
    head, x = tiny_medusa(target), [3, 1, 4]
    nodes, parents, _ = head.grow(None, x, [-1, -1, 0, 0, 1, 2], None, None, None)
    first, second, third = np.argsort(-head.logits(x, 3)).tolist()
    assert nodes == [*first[:2], *second[:2], second[0], third[0]] and parents == [-1, -1, 0, 0, 1, 2]
    deep = head.grow(None, x, [-1, 0, 1, 2, 3], None, None, None)       # there are only three heads
    assert deep == ([first[0], second[0], third[0]], [-1, 0, 1], None)


# What a head says depends on the tokens alone ---------------------------------------------------------------

def error_of_memory(tiny, calls=30):
    """The largest difference between the p of a head in long use and of a new head on a new target.  The
    prompts are continued, cut and changed, up to the end of the context; in between the target is reset or
    called for other texts."""
    target = tiny_gpt2(5, np.float64, n_ctx=24)
    head, rng, error, x = tiny(target), np.random.default_rng(7), 0.0, [1]
    for i in range(calls):
        x = x[:rng.integers(1, len(x) + 1)] if rng.random() < .5 else x
        x = (x + rng.integers(0, 13, rng.integers(0, 6)).tolist())[:23]
        if rng.random() < .2:
            target([4, 4, 4]) if rng.random() < .5 else target.reset()
        drafts, p = asked(head, x, k := min(50, 24 - len(x)), seed=i)
        fresh = asked(tiny(tiny_gpt2(5, np.float64, n_ctx=24)), x, k, seed=i)
        assert drafts == fresh[0] and len(drafts) == (k if tiny is tiny_eagle else min(k, N_HEADS))
        error = max(error, np.abs(np.array(p) - np.array(fresh[1])).max())
        target(x + drafts)                                          # the verification
    return error


@BOTH
def test_a_head_remembers_nothing_but_the_tokens(tiny):
    assert error_of_memory(tiny) < 1e-12


def test_medusas_heads_are_the_papers_formula():
    target, x = tiny_gpt2(5, np.float64), [3, 1, 4, 1, 5]
    w, b = random_head("medusa")["residuals"].values()
    params = target.params
    target(x[:-1])
    h = layer_norm(target.states[-1, 3], **params["ln_f"])              # from which x_n was drawn
    _, p = asked(tiny_medusa(target), x, 2)
    for j, row in enumerate(p):
        y = h @ w[:, 8 * j:8 * j + 8] + b[8 * j:8 * j + 8]
        assert np.allclose(row, probabilities((h + y / (1 + np.exp(-y))) @ params["wte"].T), atol=1e-12)


def test_an_eagle_that_has_learnt_to_be_the_last_layer_foretells_the_target():
    """The target's only block does nothing, so its states depend on one token each, which this head knows."""
    target = tiny_gpt2(5, np.float64, n_layer=1)
    zero = {"w": np.zeros((8, 8)), "b": np.zeros(8)}
    for part in target.params["blocks"][0]["attn"]["c_proj"], target.params["blocks"][0]["mlp"]["c_proj"]:
        part["w"], part["b"] = np.zeros_like(part["w"]), np.zeros_like(part["b"])
    wte = target.params["wte"]
    wte[:] = (wte - wte.mean(1, keepdims=True)) / wte.std(1, keepdims=True)         # as `unit` does
    target.params["wpe"][:] = 0
    head = Eagle(target, head={"layers": [], "fuse": zero, "from_state": zero, "from_token": np.eye(8),
                               "from_position": np.eye(8), "blocks": target.params["blocks"],
                               "ln_f": target.params["ln_f"]})
    drafts, p = asked(head, [3, 1, 4], 4)
    logits = target([3, 1, 4] + drafts[:-1], 4)
    assert np.allclose(p, probabilities(logits), atol=1e-4)


# The exit head ----------------------------------------------------------------------------------------------

def tiny_exit(target, exit_layer=1):
    donor = tiny_gpt2(9, np.float64, n_layer=1).params
    head = {"blocks": donor["blocks"], "ln_f": donor["ln_f"], "exit_layer": exit_layer}
    return EarlyExit(target, head=head)


def test_an_exit_head_is_the_models_next_layer():
    """The draft equals a GPT-2 with the first layers and the head's own."""
    model = tiny_gpt2(3, np.float64)
    pair = tiny_exit(model)
    own = pair.draft.params["blocks"]
    blocks, ln_f = model.params["blocks"][:1] + own, pair.draft.params["ln_f"]
    alone = gpt2.GPT2(model.params | {"blocks": blocks, "ln_f": ln_f}, 2)
    assert np.allclose(pair.draft([1, 2, 3], 2), alone([1, 2, 3], 2), atol=1e-12)
    assert np.allclose(pair.target([1, 2, 4], 2), model([1, 2, 4], 2), atol=1e-12)
    assert np.allclose(pair.draft([1, 2, 4], 3), alone([1, 2, 4], 3), atol=1e-12)


def test_an_exit_head_goes_where_it_was_trained():
    assert tiny_exit(tiny_gpt2(3), 2).draft([1, 2]).shape == (1, 13)
    with pytest.raises(ValueError, match="after 1 layers: this head was trained on 2"):
        EarlyExit(tiny_gpt2(3), 1, head={"blocks": [], "ln_f": {}, "exit_layer": 2})
    with pytest.raises(ValueError, match="after 3 layers: the model has 2"):
        tiny_exit(tiny_gpt2(3), 3)


# Passes of the target ---------------------------------------------------------------------------------------

@BOTH
@pytest.mark.parametrize("prompt", [[5], [5, 1, 2, 3, 4]])
def test_no_pass_of_the_target_but_the_prompts_and_one_a_round(tiny, prompt, monkeypatch):
    target, passes = tiny_gpt2(3), []
    forward = target.forward
    monkeypatch.setattr(target, "forward", lambda *run: passes.append(1) or forward(*run))
    head = tiny(target)
    rounds = run(head, target, prompt, 40)
    assert len(passes) == len(rounds) + (len(prompt) > 1)
    passes.clear()
    again = run(head, target, prompt, 40)    # the prompt is cached
    assert len(passes) == len(again) == len(rounds)


@BOTH
def test_a_tree_asks_for_no_pass_of_its_own(tiny, monkeypatch):
    """The head finds the states of the accepted path at its nodes in the tree."""
    target, passes = with_tree(tiny_gpt2(3)), []
    layers = target.layers
    monkeypatch.setattr(target, "layers", lambda *run: passes.append(1) or layers(*run))
    head, prompt, rng = tiny(target), [5, 1, 2, 3, 4], np.random.default_rng(0)
    rounds = list(tree_sampling(None, target, prompt, 40, (4, 3), rng, grow=head.grow))
    assert any(len(r.tokens) > 2 for r in rounds) and len(passes) == len(rounds) + 1
    x = prompt + rounds[0].tokens
    assert asked(head, x, 3)[0] == asked(tiny(with_tree(tiny_gpt2(3))), x, 3)[0]


# The folder of a head ---------------------------------------------------------------------------------------

def write_head(folder, kind, target, **changes):
    """Writes a head's folder as training/heads.py does, with random weights in half precision."""
    rng, n = np.random.default_rng(0), target.params["wte"].shape[1]
    size = {"medusa": N_HEADS, "exit": 1, "eagle": [1, 2]}[kind]
    hparams = {"kind": kind, "target": checksum(target), SIZES[kind]: size} | changes
    arrays = {name: rng.normal(scale=.4, size=shape).astype(np.float16)
              for name, shape in head_shapes(kind, n, size).items()}
    folder.mkdir(exist_ok=True)
    write_tensorflow(folder / "model.ckpt", arrays)
    (folder / "hparams.json").write_text(json.dumps(hparams))
    return arrays


@pytest.mark.parametrize("kind", ["eagle", "medusa", "exit"])
def test_a_written_head_is_read_again(kind, tmp_path):
    target = tiny_gpt2(1)
    arrays = write_head(tmp_path, kind, target)
    params = load_head(kind, tmp_path, target)
    for name, array in arrays.items():
        place = params["blocks"][0] if "/h0/" in name else params
        for part in name.removeprefix("model/").removeprefix("h0/").split("/"):
            place = place[part]
        one = np.eye(len(array), dtype=np.float32)                      # matrices are stored in tiles
        found = linear(one, place, np.zeros(array.shape[-1])) if name.endswith("/w") else place
        assert found.dtype == np.float32 and (found == array).all()


def exit_of(target, folder):
    return EarlyExit(target, head=folder)


@pytest.mark.parametrize("kind, make, sizes", [
    ("medusa", Medusa, ["five", None, 0]), ("exit", exit_of, ["five", None, 0]),
    ("eagle", Eagle, [None, 1, [0, 1], [1, 3], [1, "2"]])])
def test_a_head_that_is_not_for_this_target_says_why(kind, make, sizes, tmp_path):
    def refused(says, target=1, folder=tmp_path):
        with pytest.raises(ValueError, match=says):
            make(tiny_gpt2(target), folder)
    write_head(tmp_path, kind, tiny_gpt2(1))
    assert make(tiny_gpt2(1), tmp_path)
    refused("trained on another target", 2)
    refused("there is no head or folder", folder=tmp_path / "nothing")
    for size in sizes:
        write_head(tmp_path, kind, tiny_gpt2(1), **{SIZES[kind]: size})
        refused(f"{SIZES[kind]} is")
    other = "exit" if kind == "medusa" else "medusa"
    write_head(tmp_path, other, tiny_gpt2(1))
    refused(f"of the kind '{other}', not '{kind}'")
    (tmp_path / "model.ckpt.index").write_bytes(b"")
    refused("is not a head for this target")


def test_a_head_lies_beside_its_target_or_there_is_none(tmp_path):
    mine, other = tiny_gpt2(1), tiny_gpt2(2)
    target, head = tmp_path / "mine", tmp_path / "demo-eagle"
    target.mkdir()
    assert head_beside(str(target), "eagle", mine) is None
    write_head(head, "eagle", mine)
    assert head_beside(str(target), "eagle", mine) == head
    assert head_beside(str(target), "eagle", other) is head_beside(str(target), "medusa", mine) is None
    assert head_beside("demo-target", "exit", mine) == "demo-exit"
    assert head_beside("124M", "exit", mine) is None
    (head / "hparams.json").write_text("{")                         # damaged: load_head will say so
    assert head_beside(str(target), "eagle", mine) == head
    target.rmdir()
    assert head_beside(str(target), "eagle", mine) is None


@BOTH
def test_a_token_that_is_not_there_is_refused(tiny):
    for x in [5, 13], [5, -1], [13]:
        with pytest.raises(ValueError, match=f"token id {x[-1]} is not in 0 .. 12"):
            asked(tiny(tiny_gpt2(1)), x, 2)
    for node in 13, -1:
        with pytest.raises(ValueError, match=f"token id {node} is not in 0 .. 12"):
            tiny_eagle(tiny_gpt2(1)).tree([5], [node], [-1])
    with pytest.raises(ValueError, match="2 levels do not fit into the context of 80"):
        tiny_eagle(tiny_gpt2(1)).tree([5] * 79, [1, 1], [-1, 0])


# The embedded heads -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["eagle", "medusa", "early_exit"])
def test_the_embedded_heads_foretell_the_embedded_target(name):
    """Their acceptance rate is far above chance, which is 1 in 4,096; their model cards have the figures."""
    models, method = Models("demo-draft", "demo-target"), choose(name, "token")
    pair, tokens = method.pair(models, [1], 4, {}), models.encoder.encode("There was a long silence.")
    rounds = list(method.sampler(pair)(pair.draft, pair.target, tokens, 30, 4, np.random.default_rng(0),
                                       temperature=0))
    accepted, tested = acceptance(rounds)
    assert accepted / tested > (0.15 if name == "medusa" else 0.4)
