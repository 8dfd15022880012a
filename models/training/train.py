"""Train the bundled pair: a byte-level BPE tokenizer, a GPT-2 target, and a draft distilled from it.

    pip install -e ".[training]"
    python -m models.training.train --text my_books.txt --out my_models
    python -m models.training.train --text my_books.txt --target 124M --out my_models

The second command trains only a draft model, for a target of your own.

The text is UTF-8, its documents separated by <|endoftext|>.  The last of them are held out, and every
reported result is measured on them.  First the target learns the text (`--steps`).  The draft model should be
accepted often, so it learns the finished target's distributions rather than the text (`--draft_steps`): the
loss is first the cross-entropy with them, then the share of its tokens that the target rejects.

The state is saved every `--save_every` steps, and the same command resumes from there.

Limitations: one process, one device; no dropout.  `--work` is for one text and one set of settings.
"""
import json
import math
import shutil
import sys
import time
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

from engine.loading import command_line, packages

packages.require(__name__, "training", "torch", "tokenizers")

import numpy as np
import torch
import torch.nn.functional as F
from tqdm import tqdm

from engine.loading.files import rewrite
from engine.loading.folder import read_folder
from engine.loading.names import find_folder
from models.training.model import GPT2, export, fill, load
from models.training.text import draw_batch, prepare_text, spread

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = {"demo-target": dict(n_vocab=4096, n_ctx=512, n_embd=192, n_head=3, n_layer=16),
         "demo-draft": dict(n_vocab=4096, n_ctx=512, n_embd=128, n_head=2, n_layer=2)}
# n_embd / n_head is 64, as in each GPT-2


def compute_loss(target_logits, draft_logits, labels, rejections):
    """Without draft logits, the target's cross-entropy with the text.  With them, the draft's with the
    target's distribution q, or its rejection rate 1 - sum min(p, q), p being the draft's distribution
    (Leviathan et al., corollary 3.6, who swap p and q)."""
    log_q = target_logits.float().log_softmax(-1)
    if draft_logits is None:
        return F.nll_loss(log_q, labels)
    log_p = draft_logits.float().log_softmax(-1)
    if rejections:
        return 1 - torch.minimum(log_p, log_q).exp().sum(-1).mean()
    return -(log_q.exp() * log_p).sum(-1).mean()


@torch.no_grad()
def evaluate(target, draft, tokens, n_bytes, pieces=None, batch=16):
    """Nats per token and bits per byte of each model, on the held-out text or `pieces` of it.  With a draft
    model also its acceptance rates along this text: at temperature 1 the mean of sum min(p, q), at
    temperature 0 the share of equal argmaxes."""
    n_ctx, totals = len(target.wpe), np.zeros(4)
    chosen = torch.from_numpy(spread(tokens, n_ctx, pieces).astype(np.int64))
    for rows in chosen.split(batch):
        inputs, labels = rows[:, :-1].to(DEVICE), rows[:, 1:].flatten().to(DEVICE)
        log_q = target(inputs).float().log_softmax(-1)
        log_p = draft(inputs).float().log_softmax(-1) if draft else log_q
        nll_target, nll_draft = (F.nll_loss(x, labels, reduction="sum").item() for x in (log_q, log_p))
        totals += [nll_target, nll_draft, torch.minimum(log_p, log_q).exp().sum().item(),
                   (log_p.argmax(-1) == log_q.argmax(-1)).sum().item()]
    nats, draft_nats, overlap, agreement = totals / (len(chosen) * n_ctx)
    per_byte = len(tokens) / n_bytes / math.log(2)
    found = dict(target_nats=nats, target_bits_per_byte=nats * per_byte)
    return found if draft is None else dict(
        found, draft_nats=draft_nats, draft_bits_per_byte=draft_nats * per_byte,
        acceptance_temperature_1=overlap, acceptance_temperature_0=agreement)


NEW = "masks", "previous", "bias"       # in a parallel head but not EAGLE's; their learning rate is higher


def make_optimizers(model, lr, weight_decay):
    """Muon for the matrices, AdamW for embeddings, norms, biases and NEW."""
    matrices, others, new = [], [], []
    for name, p in model.named_parameters():
        group = new if name in NEW else matrices if p.ndim == 2 and name not in ("wte", "wpe") else others
        group.append(p)
    muon = torch.optim.Muon(matrices, lr=lr, weight_decay=weight_decay, momentum=0.95,
                            adjust_lr_fn="match_rms_adamw")
    groups = [dict(params=others), dict(params=new, faster=4)]
    return [muon, torch.optim.AdamW(groups, lr=lr, weight_decay=0.0, betas=(0.9, 0.98))]


def schedule(step, steps, fall):
    """Warm-up, a long plateau, then linearly to zero over the last fraction `fall` of the steps."""
    return min(1.0, (step + 1) / min(100, steps / 20), (1 - step / steps) / fall)


def fit(name, steps, part, model, learn, measure, args):
    """Train a model up to step `steps`, from the last saved step on.

    name            NAME.pt and NAME.jsonl in args.work are the saved state and the log
    part            the model's name in the saved state
    learn(step)     computes the gradients; returns the loss
    measure()       returns the entries about held-out text
    """
    state, opts = Path(args.work) / f"{name}.pt", make_optimizers(model, args.lr, args.weight_decay)
    done, start, losses = 0, time.time(), []
    if state.exists():
        saved = torch.load(state, map_location=DEVICE)
        done = saved["step"]
        model.load_state_dict(saved[part])
        for opt, opt_state in zip(opts, saved["opts"]):
            opt.load_state_dict(opt_state)
    for step in tqdm(range(done, steps), desc=name, initial=done, total=steps, unit="step"):
        for group in (group for opt in opts for group in opt.param_groups):
            group["lr"] = args.lr * schedule(step, steps, args.fall) * group.get("faster", 1)
        losses.append(learn(step))
        for opt in opts:
            opt.step()
            opt.zero_grad()
        if (step + 1) % args.save_every == 0 or step + 1 == steps:
            row = json.dumps(dict(step=step + 1, seconds=round(time.time() - start),
                                  train_loss=round(np.mean(losses), 4), **measure()))
            with open(state.with_suffix(".jsonl"), "a") as log:
                log.write(row + "\n")
            opt_states = [opt.state_dict() for opt in opts]
            torch.save({"step": step + 1, "opts": opt_states, part: model.state_dict()}, saved := BytesIO())
            rewrite(state, saved.getvalue())                    # if interrupted here, it is logged twice
            losses.clear()
            tqdm.write(row)


def train(stage, steps, target, draft, data, args):
    """Stage "target" trains the target on the text, stage "draft" the draft on the finished target."""
    tokens, *measured = data
    target.requires_grad_(draft is None)
    loss = torch.compile(compute_loss)

    def learn(step):
        batch = draw_batch(tokens, len(target.wpe), step, args.batch, args.seed + (stage == "draft"))
        losses = []
        for piece in (pieces := batch.to(DEVICE).split(args.micro_batch)):
            inputs, labels = piece[:, :-1], piece[:, 1:].flatten()
            with torch.autocast(piece.device.type, dtype=torch.bfloat16):
                logits = target(inputs), draft and draft(inputs)
            losses.append(loss(*logits, labels, step >= steps * args.cross_entropy))
            (losses[-1] / len(pieces)).backward()
        return sum(losses).item() / len(pieces)

    fit(stage, steps, stage, draft or target, learn, lambda: evaluate(target, draft, *measured, pieces=64),
        args)


def check_is_new(*folders):
    for folder in folders:
        if folder.exists():
            raise ValueError(f"{folder} exists: move it away, or name another directory with --out")


def read_target(name, models_dir, work):
    """A finished model -> (the sizes of it and its draft, as SIZES; its arrays).  Writes its vocabulary to
    `work`."""
    sizes, arrays, files = read_folder(find_folder(name, models_dir))
    if not sizes.pop("tied") or sizes.pop("n_inner") not in (None, 4 * sizes["n_embd"]):
        raise ValueError(f"{name} has a separate output head, or feed-forward layers of other sizes than "
                         "GPT-2's: it cannot be used in training")
    (work / "encoder.json").write_text(json.dumps(files.ids), encoding="utf-8")
    merges = "\n".join(["#version: 0.2", *map(" ".join, files.merges), ""])
    (work / "vocab.bpe").write_text(merges, encoding="utf-8")
    same = dict(n_vocab=sizes["n_vocab"], n_ctx=sizes["n_ctx"])
    return {"demo-target": sizes, "demo-draft": SIZES["demo-draft"] | same}, arrays


def main(text, out, target="", work="", steps=4000, draft_steps=2000, start="", fall=0.25,
         cross_entropy=0.4, batch=16, micro_batch=4, lr=2e-3, weight_decay=0.2, held_out=4, measured=0,
         save_every=50, seed=0, models_dir="models"):
    """Train a pair, or a draft for a finished target.

    Args:
        text: the text to train on
        out: the pair is written to OUT/demo-target and OUT/demo-draft, at the end
        target: a finished model, 124M .. or a folder; only OUT/demo-draft is trained, with its vocabulary
        work: for the vocabulary, the logs and the training state; by default models/training/work/ and the
            target's name, or pair
        steps: steps for the target
        draft_steps: steps for the draft, afterwards
        start: a directory with demo-target and perhaps demo-draft, to start from instead of random weights
        fall: the last fraction of the steps, in which the learning rate falls to 0
        cross_entropy: the fraction of the draft's steps that use cross-entropy
        batch: pieces of n_ctx tokens per step
        micro_batch: how many of these at once (4 suits a CPU, 16 a GPU)
        lr: learning rate
        weight_decay: of the matrices; use more for more epochs
        held_out: how many documents, the last ones, are never trained on
        measured: how many of these, the last ones, results are measured on; 0 for all
        save_every: steps between saved states
        seed: random seed
        models_dir: where downloaded models are kept
    """
    if start and target:
        raise ValueError("--start names a pair, and --target a finished target: give one of the two")
    target, out, trained = str(target), Path(out), ["demo-draft"] if target else [*SIZES]
    check_is_new(*(out / name for name in trained))
    work = Path(work or Path("models/training/work", Path(target).name or "pair"))
    args = SimpleNamespace(**locals())
    work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)

    sizes, arrays = read_target(target, models_dir, work) if target else (SIZES, None)
    vocabulary = Path(start) / "demo-target" if start else work
    data = prepare_text(text, held_out, measured, vocabulary, sizes["demo-target"]["n_vocab"])
    models = {name: GPT2(**size).to(DEVICE) for name, size in sizes.items()}
    for name, model in models.items():
        if start and (Path(start) / name).exists():
            load(model, Path(start) / name)
        for block in model.h:
            block.compile()                                     # one compilation serves all blocks
    if target:
        fill(models["demo-target"], arrays)
    else:
        train("target", steps, models["demo-target"], None, data, args)
    train("draft", draft_steps, *models.values(), data, args)

    results = json.dumps(evaluate(*models.values(), *data[1:]), indent=1)
    (work / "results.json").write_text(results + "\n")
    for name in trained:
        export(models[name], sizes[name], out / name)
        for file in "encoder.json", "vocab.bpe":
            shutil.copy(vocabulary / file, out / name)
    print(results)


if __name__ == "__main__":
    sys.exit(command_line.run(main))
