"""Training, end to end on a little text: NumPy runs the models and heads that the scripts write."""
import json
import math
import re
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT, write_folder
from test_heads import MAKE

from autoregressive import autoregressive_sampling
from engine.loading import command_line, export
from main import main as run_pair
from methods.drafters.early_exit import EarlyExit
from sampling import probabilities
from speculative import speculative_sampling
from utils import load_model

SIZE = dict(n_vocab=400, n_ctx=64, n_embd=32, n_head=2)

pytestmark = pytest.mark.long


def words(folder, work, *more):
    return ["--text", f"{folder}/text.txt", "--out", f"{folder}", "--work", f"{folder}/{work}",
            "--held_out", "2", *more]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(the directory with a tiny pair and its heads, the module heads that trained the heads, PyTorch)."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[training]'")
    pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install '.[training]'")
    folder = tmp_path_factory.mktemp("trained")
    documents = [path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("**/README.md"))]
    (folder / "text.txt").write_text("<|endoftext|>".join(documents), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        from models.training import heads, train
        for name, n_layer in ("demo-target", 3), ("demo-draft", 1):
            patch.setitem(train.SIZES, name, dict(SIZE, n_layer=n_layer))
        patch.setattr(torch._dynamo.config, "disable", True)            # compiling takes minutes
        assert not command_line.run(train.main, words(folder, "work", "--steps", "40", "--draft_steps", "20",
                                                 "--batch", "8", "--save_every", "60"))
        for kind in heads.HEADS:
            run = [kind, *words(folder, "heads"), "--target", f"{folder}/demo-target", "--layers", "1,2",
                   "--places", "24", "--save_every", "10", "--held_out_pieces", "8", "--steps"]
            assert not command_line.run(heads.main, [*run, "20"])
            shutil.rmtree(folder / f"demo-{kind}")              # no directory is overwritten
            assert not command_line.run(heads.main, [*run, "40"])    # resumes at step 20
        yield folder, heads, torch


def log(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_losses_fall_and_acceptance_rises(trained):
    rows = log(trained[0] / "work" / "target.jsonl") + log(trained[0] / "work" / "draft.jsonl")
    guessing = math.log(SIZE["n_vocab"])
    assert max(rows[-1]["target_nats"], rows[-1]["draft_nats"], rows[0]["train_loss"]) < guessing - 0.5
    for kind in trained[1].HEADS:
        rows = log(trained[0] / f"demo-{kind}" / "training.jsonl")
        assert [row["step"] for row in rows] == [10, 20, 30, 40]    # resumed, no step twice
        first, last = rows[0]["acceptance_temperature_1"], rows[-1]["acceptance_temperature_1"]
        slack = 0.05 if kind == "medusa" else 0     # it starts as the output matrix, which is good already
        assert min(last) > 0.1 and sum(last) > sum(first) - slack


def test_a_training_starts_from_a_pair(trained):
    folder, train = trained[0], trained[1].train
    few = ["--steps", "1", "--draft_steps", "1", "--batch", "8", "--out", f"{folder}/later", "--lr", "1e-5"]
    assert not command_line.run(train.main, words(folder, "later", "--start", f"{folder}", *few))
    for name in "target", "draft":
        before, after = (log(folder / work / f"{name}.jsonl")[-1] for work in ("work", "later"))
        assert abs(after[f"{name}_nats"] - before[f"{name}_nats"]) < 0.01


def test_the_readmes_command_trains_a_draft_for_a_model_of_ones_own(trained, tmp_path, monkeypatch):
    """In place of 124M: a random model, in Hugging Face's layout."""
    folder, train = trained[0], trained[1].train
    readme = (ROOT / "models/training/README.md").read_text(encoding="utf-8")
    trains, runs = re.findall("^python (.*--?target.* 124M.*)$", readme, re.M)
    monkeypatch.chdir(tmp_path)
    shutil.copy(folder / "text.txt", "my_books.txt")
    write_folder("tiny")
    export.main("tiny", "mine")
    few = ["--steps", "9", "--draft_steps", "2", "--batch", "2"]
    assert not command_line.run(train.main, [*trains.replace("124M", "mine").split()[2:], *few])
    assert [row["step"] for row in log(Path("models/training/work/mine/draft.jsonl"))] == [2]
    assert [path.name for path in Path("my_models").iterdir()] == ["demo-draft"]
    few = ["--n_tokens_to_generate", "5"]
    assert not command_line.run(run_pair, [*runs.replace("124M", "mine").split()[1:], *few])


def test_no_result_is_overwritten(trained, capsys):
    folder, heads, _ = trained
    for main, more in (heads.train.main, []), (heads.main, ["exit"]):
        assert command_line.run(main, [*more, *words(folder, "work")]) == 2
        assert "name another directory with --out" in capsys.readouterr().err


def test_numpy_runs_what_was_trained(trained):
    folder = trained[0]
    (draft, encoder), (target, _) = load_model(folder / "demo-draft"), load_model(folder / "demo-target")
    tokens, rng, settings = encoder.encode("sampling"), np.random.default_rng(0), dict(temperature=0)
    baseline = [r.tokens[0] for r in autoregressive_sampling(target, tokens, 40, rng, **settings)]
    exits = EarlyExit(target, head=folder / "demo-exit")
    for one, other in (draft, target), (exits.draft, exits.target):
        rounds = speculative_sampling(one, other, tokens, 40, 4, rng, **settings)
        assert [token for r in rounds for token in r.tokens] == baseline


@pytest.mark.parametrize("kind", MAKE)
def test_numpys_head_says_what_pytorchs_says(trained, kind):
    """The p of each draft in a round, compared with PyTorch's rows at one place of the whole text."""
    folder, heads, torch = trained
    target, encoder = load_model(folder / "demo-target")
    torch.manual_seed(0)
    module = heads.HEADS[kind](SIZE["n_embd"], SIZE["n_head"], SIZE["n_vocab"])
    for p in module.parameters():               # what it learnt from this text would be too little to see
        p.data = (p.data + 0.3 * torch.randn_like(p)).half().float()
    hparams = json.loads((folder / f"demo-{kind}" / "hparams.json").read_text())
    heads.export(module, hparams, folder / f"random-{kind}")
    x = encoder.encode("The target looks at all drafts in one pass.")[:30]
    to_probs = partial(probabilities, temperature=0.3)            # cold, so that p is far from uniform
    head = MAKE[kind](target, folder / f"random-{kind}")
    drafts, p = head.propose(None, x, 4, to_probs, np.random.default_rng(0))

    twin = heads.train.GPT2(**SIZE, n_layer=3)
    heads.train.load(twin, folder / "demo-target")
    with torch.no_grad():
        text = np.array([x + drafts + [0] * 8])                         # space for rows not asked for
        states = heads.States(twin, text, (1, 2), folder / f"{kind}.states.npy")
        rows = module(torch.tensor([len(x) - 1]), *states[np.arange(1)])[0, 0]
        expected = (rows @ twin.wte.T / 0.3).softmax(-1).numpy()
    for j, row in enumerate(p):
        assert np.abs(row - expected[j]).sum() / 2 < 0.006              # the states are in half precision


def test_a_parallel_head_begins_as_the_first_step_of_an_eagle(trained):
    folder, heads, torch = trained
    eagle, head = (heads.HEADS[kind](SIZE["n_embd"], SIZE["n_head"], SIZE["n_vocab"])
                   for kind in ("eagle", "parallel"))
    heads.train.load(eagle, folder / "demo-eagle")
    head.start_from_eagle(eagle)
    low, middle, last, token = torch.randn(4, 2, 40, SIZE["n_embd"])
    given = torch.tensor([1, 5, 30]), low, middle, last, torch.zeros(2, 40, dtype=int), token, token[0]
    with torch.no_grad():
        assert torch.allclose(head(*given)[:, :, 0], eagle(*given)[:, :, 0], atol=1e-4)
