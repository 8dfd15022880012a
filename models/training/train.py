"""Train the embedded pair: a byte-level BPE tokenizer, a GPT-2 target, and a draft distilled from it.

    pip install -e ".[training]"
    python -m models.training.train --text my_books.txt --out my_models

The text is UTF-8, its documents separated by <|endoftext|>.  The last of them are held out; every reported
result is measured on them.  First the target learns the text (`--steps`).  A draft should be accepted often,
so it learns the finished target's distributions, not the text (`--draft_steps`): the loss is first the
cross-entropy with them, then the share of its tokens that the target rejects.

The state is saved every `--save_every` steps, and the same command resumes from there.  Without that state,
a training goes on from a target in half precision: `--start` names its folder, `--done` the steps it has had.
The schedule and the order of the text stay the same; the optimizers' momentum begins anew.

Limitations: one process, one device; no dropout.  `--work` belongs to one text and one set of settings.
"""
import json
import math
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import ByteLevelBPETokenizer
from torch import nn
from tqdm import tqdm

from encoder import EOS, bytes_to_unicode
from loading import command_line
from loading.checkpoint import read_tensorflow, write_tensorflow

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
N_CTX = 512
TARGET = dict(n_vocab=4096, n_ctx=N_CTX, n_embd=192, n_head=3, n_layer=16)   # heads of 64, as in each GPT-2
DRAFT = dict(n_vocab=4096, n_ctx=N_CTX, n_embd=128, n_head=2, n_layer=2)
NAMES = "demo-target", "demo-draft"


# The model: GPT-2, with gpt2.py's parameter names -----------------------------------------------------------

class Linear(nn.Module):
    """OpenAI's layout: w [n_in, n_out]."""

    def __init__(self, n_in, n_out, std):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n_in, n_out) * std)
        self.b = nn.Parameter(torch.zeros(n_out))

    def forward(self, x):
        return F.linear(x, self.w.T, self.b)


class LayerNorm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.g, self.b = nn.Parameter(torch.ones(n)), nn.Parameter(torch.zeros(n))

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], self.g, self.b, 1e-5)


def attention(q, k, v, n_rows=128):                         # each [B, n_head, T, d_head], as is the result
    """Causal, a few rows at a time, without the columns after them: on a CPU this takes half the time of
    PyTorch's own."""
    heads = []
    for i in range(0, q.shape[2], n_rows):
        rows = q[:, :, i: i + n_rows] * q.shape[-1] ** -0.5
        scores = rows @ k[:, :, : i + n_rows].transpose(-1, -2)
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(i + 1)
        weights = scores.float().masked_fill(later, -torch.inf).softmax(-1)
        heads.append(weights.to(v.dtype) @ v[:, :, : i + n_rows])
    return torch.cat(heads, dim=2)


class Block(nn.Module):
    def __init__(self, n_embd, n_head, n_layer):
        super().__init__()
        self.n_head = n_head
        std, residual_std = n_embd ** -0.5, n_embd ** -0.5 / math.sqrt(2 * n_layer)
        self.ln_1, self.ln_2 = LayerNorm(n_embd), LayerNorm(n_embd)
        self.attn = nn.ModuleDict(dict(c_attn=Linear(n_embd, 3 * n_embd, std),
                                       c_proj=Linear(n_embd, n_embd, residual_std)))
        self.mlp = nn.ModuleDict(dict(c_fc=Linear(n_embd, 4 * n_embd, std),
                                      c_proj=Linear(4 * n_embd, n_embd, residual_std / 2)))

    def forward(self, x, attend=attention):                                 # [B, T, n_embd] -> [B, T, n_embd]
        B, T, C = x.shape
        qkv = self.attn.c_attn(self.ln_1(x)).split(C, dim=-1)
        q, k, v = (t.view(B, T, self.n_head, -1).transpose(1, 2) for t in qkv)
        heads = attend(q, k, v)                                          # [B, n_head, T, d_head]
        x = x + self.attn.c_proj(heads.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, n_vocab, n_ctx, n_embd, n_head, n_layer):
        super().__init__()
        self.wte = nn.Parameter(torch.randn(n_vocab, n_embd) * 0.02)
        self.wpe = nn.Parameter(torch.randn(n_ctx, n_embd) * 0.01)
        self.h = nn.ModuleList(Block(n_embd, n_head, n_layer) for _ in range(n_layer))
        self.ln_f = LayerNorm(n_embd)

    def forward(self, tokens):                                           # [B, T] -> [B * T, n_vocab]
        x = self.wte[tokens] + self.wpe[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x).flatten(0, 1), self.wte)


# Data -------------------------------------------------------------------------------------------------------

def read_documents(path):
    text = Path(path).read_text(encoding="utf-8")
    return [document.strip() + "\n" for document in text.split(EOS) if document.strip()]


def train_tokenizer(documents, folder, n_vocab):
    """Byte-level BPE in OpenAI's two files: encoder.json (every byte, the merges, <|endoftext|>) and
    vocab.bpe (the merges)."""
    trainer = ByteLevelBPETokenizer()
    trainer.train_from_iterator(documents, vocab_size=n_vocab - 1, special_tokens=[], show_progress=False)
    trainer.save_model(str(folder))                                      # vocab.json, merges.txt
    merges = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()[1:]
    entries = list(bytes_to_unicode().values()) + [merge.replace(" ", "") for merge in merges] + [EOS]
    if len(entries) != n_vocab:
        raise ValueError(f"the text is too short for a vocabulary of {n_vocab} tokens: take more of it")
    lines = "\n".join(["#version: 0.2", *merges]) + "\n"
    (folder / "vocab.bpe").write_text(lines, encoding="utf-8", newline="\n")
    ids = {entry: i for i, entry in enumerate(entries)}
    (folder / "encoder.json").write_text(json.dumps(ids), encoding="utf-8")


def tokenize(documents, folder):
    """The tokens of all documents, each with <|endoftext|> before it."""
    tokenizer = ByteLevelBPETokenizer.from_file(str(folder / "encoder.json"), str(folder / "vocab.bpe"))
    eos = tokenizer.token_to_id(EOS)
    return np.concatenate([np.array([eos] + encoding.ids, np.uint16)
                           for encoding in tokenizer.encode_batch(documents)])


def prepare_text(path, n_held_out, n_measured, vocabulary):
    """Text -> (tokens to train on, tokens and bytes of the documents to measure on).  The last documents are
    held out; the last `n_measured` of these are measured on, 0 for all of them.  If the directory
    `vocabulary` has no vocabulary, one is trained and written there."""
    documents = read_documents(path)
    if not 0 < n_held_out < len(documents):
        raise ValueError(f"{path} has {len(documents)} documents: hold out fewer of them (--held_out)")
    documents, held_out = documents[:-n_held_out], documents[-(n_measured or n_held_out):]
    if not (vocabulary / "encoder.json").exists():
        train_tokenizer(documents, vocabulary, TARGET["n_vocab"])
    tokens, test_tokens = tokenize(documents, vocabulary), tokenize(held_out, vocabulary)
    n_bytes = sum(len(document.encode("utf-8")) for document in held_out)
    print(f"{len(tokens):,} tokens to train on, {len(test_tokens):,} held out ({n_bytes:,} bytes)")
    return tokens, test_tokens, n_bytes


def batch_of(tokens, step, batch, seed):
    """Batch `step` of an endless stream: each epoch cuts the text at other places and shuffles the pieces."""
    per_epoch = (len(tokens) - 2 * N_CTX) // N_CTX // batch
    if per_epoch < 1:
        raise ValueError(f"the text is too short: {len(tokens):,} tokens are not {batch} pieces of {N_CTX}")
    epoch, i = divmod(step, per_epoch)
    rng = np.random.default_rng([seed, epoch])
    offset = rng.integers(N_CTX)
    starts = offset + N_CTX * rng.permutation(per_epoch * batch)[i * batch: (i + 1) * batch]
    return torch.from_numpy(np.stack([tokens[s: s + N_CTX + 1] for s in starts]).astype(np.int64))


# Training ---------------------------------------------------------------------------------------------------

def loss_of(target, draft, batch, rejections=False):
    """Without a draft: the target's cross-entropy with the text.  Else the draft's with the target's
    distribution q, or its rejection rate 1 - sum min(p, q), p the draft's distribution (Leviathan et al.,
    corollary 3.6, who swap the letters)."""
    inputs, labels = batch[:, :-1], batch[:, 1:].flatten()
    with torch.autocast(batch.device.type, dtype=torch.bfloat16):
        log_q = target(inputs).float().log_softmax(-1)
        if draft is None:
            return F.nll_loss(log_q, labels)
        log_p = draft(inputs).float().log_softmax(-1)
    if rejections:
        return 1 - torch.minimum(log_p, log_q).exp().sum(-1).mean()
    return -(log_q.exp() * log_p).sum(-1).mean()


@torch.no_grad()
def evaluate(target, draft, tokens, n_bytes, device, pieces=None, batch=16):
    """On held-out text, or on `pieces` of it: nats per token and bits per byte of each model; with a draft also
    the acceptance rates of drafts that continue this text (at temperature 1 the mean of sum min(p, q), at
    temperature 0 the share of equal argmaxes)."""
    n = (len(tokens) - 1) // N_CTX
    chosen = np.linspace(0, n - 1, min(n, pieces or n)).astype(int)
    windows = np.stack([tokens[i * N_CTX: (i + 1) * N_CTX + 1] for i in chosen])
    windows, totals = torch.from_numpy(windows.astype(np.int64)), np.zeros(4)
    for rows in windows.split(batch):
        inputs, labels = rows[:, :-1].to(device), rows[:, 1:].flatten().to(device)
        log_q = target(inputs).float().log_softmax(-1)
        log_p = draft(inputs).float().log_softmax(-1) if draft else log_q
        nll_target, nll_draft = (F.nll_loss(x, labels, reduction="sum").item() for x in (log_q, log_p))
        totals += [nll_target, nll_draft, torch.minimum(log_p, log_q).exp().sum().item(),
                   (log_p.argmax(-1) == log_q.argmax(-1)).sum().item()]
    nats, draft_nats, overlap, agreement = totals / (len(chosen) * N_CTX)
    per_byte = len(tokens) / n_bytes / math.log(2)
    found = dict(target_nats=nats, target_bits_per_byte=nats * per_byte)
    return found if draft is None else dict(
        found, draft_nats=draft_nats, draft_bits_per_byte=draft_nats * per_byte,
        acceptance_temperature_1=overlap, acceptance_temperature_0=agreement)


NEW = "masks", "previous", "bias"       # in a parallel head, but not in EAGLE's: they learn faster


def optimizers(models, lr, weight_decay=0.02):
    """Muon for the matrices, AdamW for embeddings, norms, biases and NEW."""
    named = [pair for model in models for pair in model.named_parameters()]
    new = [p for name, p in named if name in NEW]
    matrices = [p for name, p in named if p.ndim == 2 and name not in ("wte", "wpe", *NEW)]
    others = [p for name, p in named if name not in NEW and (p.ndim != 2 or name in ("wte", "wpe"))]
    muon = torch.optim.Muon(matrices, lr=lr, weight_decay=weight_decay, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    groups = [dict(params=others), dict(params=new, faster=4)]
    return [muon, torch.optim.AdamW(groups, lr=lr, weight_decay=0.0, betas=(0.9, 0.98))]


def schedule(step, steps, fall, done=0):
    """Warm-up, a long plateau, then straight to zero over the last part, the fraction `fall`.  From `done` on,
    the optimizers are new."""
    return min(1.0, (step + 1 - done) / min(100, steps / 20), (1 - step / steps) / fall)


def resume(path, models, opts, device, done):
    """Restores models {name: model} and optimizers as last saved.  Returns the steps done, `done` if none."""
    if not path.exists():
        return done
    saved = torch.load(path, map_location=device)
    for name, model in models.items():
        model.load_state_dict(saved[name])
    for opt, opt_state in zip(opts, saved["opts"]):
        opt.load_state_dict(opt_state)
    print(f"{path.stem}: resuming from step {saved['step']}")
    return saved["step"]


def save(path, step, models, opts):
    """Saves completely or not at all."""
    part = path.with_suffix(".part")
    torch.save(dict(step=step, opts=[opt.state_dict() for opt in opts],
                    **{name: model.state_dict() for name, model in models.items()}), part)
    part.replace(path)


def fit(name, steps, models, trained, learn, evaluated, args, begun=0):
    """Trains up to step `steps`, from the last saved step on.

    name            NAME.pt and NAME.jsonl in args.work are the saved state and the log
    models          {name: model}: all that are saved; `trained` lists those that learn
    learn(step)     computes the gradients; returns the loss
    evaluated()     returns the entries about held-out text
    begun           the step that the models handed over have reached
    """
    state, opts = Path(args.work) / f"{name}.pt", optimizers(trained, args.lr, args.weight_decay)
    done, start, losses = resume(state, models, opts, args.device, begun), time.time(), []
    for step in tqdm(range(done, steps), desc=name, initial=done, total=steps, unit="step"):
        for group in (group for opt in opts for group in opt.param_groups):
            group["lr"] = args.lr * schedule(step, steps, args.fall, begun) * group.get("faster", 1)
        losses.append(learn(step))
        for opt in opts:
            opt.step()
            opt.zero_grad()
        if (step + 1) % args.save_every == 0 or step + 1 == steps:
            row = json.dumps(dict(step=step + 1, seconds=round(time.time() - start),
                                  train_loss=round(np.mean(losses), 4), **evaluated()))
            with open(state.with_suffix(".jsonl"), "a") as log:
                log.write(row + "\n")
            save(state, step + 1, models, opts)                 # if interrupted here, it is logged twice
            losses.clear()
            tqdm.write(row)


def train(stage, steps, target, draft, data, args):
    """Stage "target": the target, from the text.  Stage "draft": the draft, from the finished target."""
    tokens, test_tokens, n_bytes = data
    loss_of_batch = loss_of if args.no_compile else torch.compile(loss_of)
    target.requires_grad_(draft is None)

    def learn(step):
        batch = batch_of(tokens, step, args.batch, args.seed + (stage == "draft")).to(args.device)
        losses = []
        for piece in (pieces := batch.split(args.micro_batch)):
            losses.append(loss_of_batch(target, draft, piece, step >= steps * args.cross_entropy))
            (losses[-1] / len(pieces)).backward()
        return sum(losses).item() / len(pieces)

    models = dict(target=target) if draft is None else dict(draft=draft)
    fit(stage, steps, models, [*models.values()], learn,
        lambda: evaluate(target, draft, test_tokens, n_bytes, args.device, pieces=64), args,
        args.done if draft is None else 0)


# The result -------------------------------------------------------------------------------------------------

def load(model, folder):
    """Load the weights of an exported directory into a model."""
    arrays = read_tensorflow(folder / "model.ckpt")
    model.load_state_dict({
        name: torch.from_numpy(arrays[tensorflow_name(name)].astype(np.float32)).view_as(parameter)
        for name, parameter in model.state_dict().items()})


def tensorflow_name(name):
    """
    >>> tensorflow_name("h.0.attn.c_attn.w"), tensorflow_name("wte")
    ('model/h0/attn/c_attn/w', 'model/wte')
    """
    return "model/" + name.replace("h.", "h", 1).replace(".", "/")


def check_new(*folders):
    for folder in folders:
        if folder.exists():
            raise ValueError(f"{folder} exists: move it away, or name another directory with --out")


def export(model, hparams, folder):
    """hparams.json and the weights in OpenAI's layout, in half precision."""
    folder.mkdir(parents=True)
    arrays = {}
    for name, parameter in model.state_dict().items():
        array = parameter.cpu().numpy().astype(np.float16)
        # OpenAI's matrices are [1, n_in, n_out]
        arrays[tensorflow_name(name)] = array[None] if name.endswith(".w") else array
    write_tensorflow(folder / "model.ckpt", arrays)
    (folder / "hparams.json").write_text(json.dumps(hparams, indent=1) + "\n", encoding="utf-8")
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt"\n'
                                       'all_model_checkpoint_paths: "model.ckpt"\n')


def main(text, out, work="models/training/work/pair", device="", steps=4000, draft_steps=2000, start="", done=0,
         fall=0.25, cross_entropy=0.4, batch=16, micro_batch=4, lr=2e-3, weight_decay=0.2, held_out=4,
         measured=0, save_every=50, no_compile=False, seed=0):
    """Train the embedded pair.

    Args:
        text: the text to train on
        out: the pair is written to OUT/demo-target and OUT/demo-draft, at the end
        work: for the vocabulary, the logs and the training state
        device: cuda or cpu; by default a GPU if there is one
        steps: steps for the target
        draft_steps: steps for the draft, afterwards
        start: a directory with a demo-target to start from, and perhaps a demo-draft, instead of random weights
        done: the steps that this target has had already: a training that goes on elsewhere
        fall: the share of the steps, at the end, in which the learning rate falls to 0
        cross_entropy: the share of the draft's steps that use cross-entropy
        batch: pieces of n_ctx tokens per step
        micro_batch: how many of these at once (4 suits a CPU, 16 a GPU)
        lr: learning rate
        weight_decay: of the matrices; more of it for a text that is read more often
        held_out: documents that are never trained on: the last ones
        measured: how many of these, the last ones, results are measured on; 0 for all
        save_every: steps between two saved states
        no_compile: do not compile the model (compiling takes minutes)
        seed: random seed
    """
    args = SimpleNamespace(**locals())
    args.device = device or DEVICE
    work, folders = Path(work), [Path(out) / name for name in NAMES]
    check_new(*folders)
    work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)

    vocabulary = Path(start) / "demo-target" if start else work
    data = tokens, test_tokens, n_bytes = prepare_text(text, held_out, measured, vocabulary)
    target, draft = GPT2(**TARGET).to(args.device), GPT2(**DRAFT).to(args.device)
    for model, name in zip((target, draft), NAMES):
        if start and (Path(start) / name).exists():
            load(model, Path(start) / name)
    train("target", steps, target, None, data, args)
    train("draft", draft_steps, target, draft, data, args)

    results = json.dumps(evaluate(target, draft, test_tokens, n_bytes, args.device), indent=1)
    (work / "results.json").write_text(results + "\n")
    for model, hparams, folder in (target, TARGET, folders[0]), (draft, DRAFT, folders[1]):
        export(model, hparams, folder)
        for name in "encoder.json", "vocab.bpe":
            shutil.copy(vocabulary / name, folder / name)
    print(results)


if __name__ == "__main__":
    sys.exit(command_line.run(main))
