"""Training, end to end on a few seconds' worth of text: what the scripts write is what NumPy then runs."""
import json
import lzma
import math
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import full_disk

from autoregressive import autoregressive_sampling
from drafters.eagle import Eagle
from drafters.early_exit import EarlyExit
from drafters.medusa import Medusa
from sampling import prepare
from speculative import speculative_sampling
from utils import load_model

ROOT = Path(__file__).parent.parent
SIZE = dict(n_vocab=400, n_ctx=64, n_embd=32, n_head=2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(the folder of a tiny pair and three heads, the modules that made them)."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[training]'")
    pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install '.[training]'")
    folder = tmp_path_factory.mktemp("trained")
    documents = [path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("**/README.md"))]
    (folder / "text.txt").write_text("<|endoftext|>".join(documents), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "training"))
        import heads
        import train
        patch.setattr(train, "TARGET", dict(SIZE, n_layer=3))
        patch.setattr(train, "DRAFT", dict(SIZE, n_layer=1))
        patch.setattr(train, "N_CTX", SIZE["n_ctx"])
        where = ["--text", f"{folder}/text.txt", "--out", f"{folder}", "--device", "cpu", "--held_out", "2"]
        train.main([*where, "--work", f"{folder}/work", "--steps", "40", "--draft_steps", "20",
                    "--batch", "8", "--save_every", "60", "--no_compile"])
        for kind in heads.HEADS:
            run = [kind, *where, "--work", f"{folder}/heads", "--target", f"{folder}/demo-target",
                   "--layers", "1", "2", "--no_compile", "--save_every", "10", "--held_out_pieces", "8",
                   "--steps"]
            heads.main([*run, "20"])
            shutil.rmtree(folder / f"demo-{kind}")              # no folder is written over
            heads.main([*run, "40"])                            # goes on from step 20
        yield folder, heads, torch
        for name in "heads", "train":
            sys.modules.pop(name)


@pytest.mark.long
def test_no_file_of_others_is_written_over(trained, tmp_path):
    """By a folder of results that is there, nor by one for the work that holds a model."""
    folder, heads, _ = trained
    model = shutil.copytree(folder / "demo-target", tmp_path / "demo-target")
    (model / "vocab.json").touch(), (model / "merges.txt").touch()
    words = ["--text", f"{folder}/text.txt", "--steps", "1", "--no_compile"]
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (tmp_path / "demo-exit").symlink_to("nowhere")
    for main, more in (heads.train.main, []), (
            heads.main, ["exit", "--target", str(model), "--layers", "1", "2"]):
        for out, work in ("", "work"), ("new", "demo-target"):
            with pytest.raises(ValueError, match="name another folder with --(out|work)$"):
                main([*more, *words, "--out", f"{tmp_path}/{out}", "--work", f"{tmp_path}/{work}"])
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.long
def test_steps_are_saved_as_often_as_asked_and_nonsense_is_told_at_once(trained, tmp_path):
    folder, heads, _ = trained
    words = ["--text", f"{folder}/text.txt", "--out", f"{tmp_path}/out", "--work", f"{tmp_path}/work",
             "--no_compile", "--device", "cpu"]
    heads.train.main([*words, "--steps", "7", "--draft_steps", "1", "--save_every", "3"])
    assert [(row["stage"], row["step"]) for row in log(tmp_path / "work" / "log.jsonl")] == [
        ("pair", 3), ("pair", 6), ("pair", 7), ("draft", 1)]
    head = ["exit", *words, "--target", f"{folder}/demo-target", "--steps", "7", "--save_every", "3"]
    with pytest.raises(SystemExit):
        heads.main([*head, "--layers", "2", "1"])
    with pytest.raises(ValueError, match="demo-eagle holds a model of another"):
        heads.main([*head, "--layers", "1", "2", "--work", f"{tmp_path}/head",
                    "--start", f"{folder}/demo-eagle"])
    packed = lzma.compress(b"whole"), lzma.compress(b"more")
    for damaged in packed[0] + packed[1], packed[0] + b"x", packed[0][:-1]:
        (tmp_path / "text.xz").write_bytes(damaged)
        with pytest.raises(ValueError, match="is not a whole text"):
            heads.train.read_documents(tmp_path / "text.xz")
    (tmp_path / "text.xz").write_bytes(packed[0])
    assert heads.train.read_documents(tmp_path / "text.xz") == ["whole\n"]
    (tmp_path / "short.txt").write_text("long " * 999 + "<|endoftext|>short<|endoftext|>" + "long " * 999)
    with pytest.raises(ValueError, match="held-out documents have . tokens"):       # the one in the middle
        heads.train.main(["--text", f"{tmp_path}/short.txt", "--out", f"{tmp_path}/o", "--work",
                          f"{tmp_path}/w", "--held_out", "1", "--start", f"{folder}", "--no_compile"])


@pytest.mark.long
@pytest.mark.parametrize("changed", ["text", "target", "its blocks", "start", "lr", "steps"])
def test_what_was_kept_of_another_run_is_not_taken_for_this_ones(trained, tmp_path, changed):
    folder, heads, _ = trained
    text, target, more = folder / "text.txt", folder / "demo-target", []
    if changed == "text":
        text = tmp_path / "text.txt"
        text.write_text((folder / "text.txt").read_text() + "more")
    elif changed in ("target", "its blocks"):
        target = shutil.copytree(target, tmp_path / "target")
        weights = target / "model.ckpt.data-00000-of-00001"
        model = heads.train.GPT2(**SIZE, n_layer=3).requires_grad_(False)
        if changed == "its blocks":
            heads.train.load(model, target)
            model.h[0].attn["c_attn"].w += .1
        heads.train.export(model, dict(SIZE, n_layer=3), target)
        assert weights.read_bytes() != (folder / "demo-target" / weights.name).read_bytes()
    else:
        more = dict(start=["--start", f"{folder}/demo-exit"], lr=["--lr", ".1"],
                    steps=["--steps", "20"])[changed]
    before = {path: path.read_bytes() for path in (folder / "heads").iterdir()}
    words = ["--text", str(text), "--target", str(target), "--work", f"{folder}/heads", "--held_out", "2",
             "--layers", "1", "2", "--out", str(tmp_path), "--steps", "50", "--no_compile", *more]
    with pytest.raises(ValueError, match="(of another run|has 40 steps).*: name another folder with --work"):
        heads.main(["exit", *words])
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.long
@pytest.mark.parametrize("n_bytes", [10, 8_000, -100, 200_000])
def test_after_a_full_disk_the_same_command_goes_on(trained, tmp_path, n_bytes):
    """What did not fit is the note of the run, the tokens, or the states of the optimizers."""
    folder, heads, _ = trained
    words = ["--text", f"{folder}/text.txt", "--out", f"{tmp_path}/out", "--work", f"{tmp_path}/work",
             "--device", "cpu", "--held_out", "2", "--steps", "2", "--draft_steps", "2", "--batch", "8",
             "--no_compile"]
    n_bytes += (folder / "work" / "train.npy").stat().st_size * (n_bytes < 0)   # lacks its last bytes
    with pytest.raises((OSError, ValueError)), full_disk(n_bytes):
        heads.train.main(words)
    assert not [*tmp_path.glob("out/*")]
    heads.train.main(words)
    tokens = [np.load(place / "train.npy") for place in (tmp_path / "work", folder / "work")]
    assert np.array_equal(*tokens) and len([*tmp_path.glob("out/demo-*")]) == 2


@pytest.mark.long
def test_on_a_full_disk_no_half_of_a_file_of_states_is_left(trained, tmp_path):
    folder, heads, _ = trained
    twin = heads.train.GPT2(**SIZE, n_layer=3)
    pieces, path = np.zeros((9, 64), np.int64), tmp_path / "states.npy"
    with pytest.raises(OSError, match="large"), full_disk(50_000):
        heads.States(twin, pieces, (1, 2), path, "cpu")
    assert not path.exists()
    states = heads.States(twin, pieces, (1, 2), path, "cpu")
    states.kept[0, :, :-1] = 1                          # half of a piece: the machine went down
    given = states[np.array([0, 1])]
    assert all((a[0] == a[1]).all() for a in given[:3])


def log(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line]


@pytest.mark.long
def test_losses_fall_and_acceptance_rises(trained):
    rows = log(trained[0] / "work" / "log.jsonl")
    assert rows[-1]["train_target_nats"] < math.log(SIZE["n_vocab"]) - 0.5      # that of knowing nothing
    for kind in "eagle", "medusa", "exit":
        rows = log(trained[0] / "heads" / f"{kind}.jsonl")              # each was saved, and so evaluated
        assert [row["step"] for row in rows] == [10, 20, 30, 40]    # resumed, nothing twice
        first, last = rows[0]["acceptance_temperature_1"], rows[-1]["acceptance_temperature_1"]
        assert min(last) > 0.1
        if kind == "medusa":            # it begins as the output matrix, which is good enough for this text
            assert sum(last) > sum(first) - 0.05
        else:
            assert sum(last) > sum(first)


@pytest.mark.long
def test_numpy_runs_what_was_trained(trained):
    folder = trained[0]
    (draft, encoder), (target, _) = load_model(folder / "demo-draft"), load_model(folder / "demo-target")
    tokens, rng, settings = encoder.encode("sampling"), np.random.default_rng(0), dict(temperature=0)
    baseline = [r.tokens[0] for r in autoregressive_sampling(target, tokens, 40, rng, **settings)]
    heads = [Eagle(target, folder / "demo-eagle"), Medusa(target, folder / "demo-medusa")]
    exits = EarlyExit(target, head=folder / "demo-exit")
    for one, other, more in [(draft, target, {}), (exits.draft, exits.target, {}),
                             *((None, target, dict(propose=head.propose)) for head in heads)]:
        rounds = speculative_sampling(one, other, tokens, 40, 4, rng, **settings, **more)
        assert [token for r in rounds for token in r.tokens] == baseline


@pytest.mark.long
@pytest.mark.parametrize("kind, make", [("eagle", Eagle), ("medusa", Medusa)])
def test_numpys_head_says_what_pytorchs_says(trained, kind, make):
    """Each draft of a round, from PyTorch's unrolled steps on the whole text at once."""
    folder, heads, torch = trained
    target, encoder = load_model(folder / "demo-target")
    module = heads.HEADS[kind](SIZE["n_embd"], SIZE["n_head"])
    module.load_state_dict(torch.load(folder / "heads" / f"{kind}.pt")["head"])
    x = encoder.encode("The target looks at all drafts in one pass.")[:30]
    head, to_probs = make(target, folder / f"demo-{kind}"), prepare([target], x, 0, 1.0, 0, 1.0, None)[1]
    drafts, p = head.propose(None, x, 3, to_probs, np.random.default_rng(0))

    twin = heads.train.GPT2(**SIZE, n_layer=3)
    heads.train.load(twin, folder / "demo-target")
    with torch.no_grad():
        states = heads.States(twin, np.array([x + drafts]), (1, 2), folder / f"{kind}.states.npy", "cpu")
        outputs = module(*states[np.arange(1)])
        for j, states in enumerate(outputs[:3]):
            row = len(x) - 1 + j                                        # of the token after this one
            expected = (states[0, row] @ twin.wte.T).softmax(-1).numpy()
            assert np.abs(p[j] - expected).sum() / 2 < 0.02             # states and weights in half precision
