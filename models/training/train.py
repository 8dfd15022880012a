"""Train the embedded pair: a byte-level BPE tokenizer, a GPT-2 target, and a draft distilled from it.

    pip install -e ".[training]"
    python -m models.training.train --text my_books.txt --out my_models

The text is UTF-8, its documents separated by <|endoftext|>.  A few whole documents are held out; every
reported result is measured on them.  A draft should be accepted often, so it learns the target's
distributions, not the text.  First it learns them in the same loop as the target (`--steps`); the loss is the
cross-entropy with them.  Then it learns them from the finished target (`--draft_steps`); the loss is the
share of its tokens that the target rejects.

The state is saved every `--save_every` steps, and the same command resumes from there.

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


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


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


def prepare_text(path, n_held_out, vocabulary):
    """Text -> (tokens to train on, tokens held out, bytes held out).  If the directory `vocabulary` has no
    vocabulary, one is trained and written there."""
    documents = read_documents(path)
    if not 0 < n_held_out < len(documents):
        raise ValueError(f"{path} has {len(documents)} documents: hold out fewer of them (--held_out)")
    apart = len(documents) // n_held_out
    held_out = documents[apart // 2:: apart][:n_held_out]
    documents = [document for document in documents if document not in held_out]
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

def losses(target, draft, batch, finished):
    """Target: the cross-entropy with the text.  Draft: that with the target's distribution q; or,
    if the target is `finished`, the rejection rate 1 - sum min(p, q), p the draft's distribution (Leviathan
    et al., corollary 3.6, who swap the letters)."""
    inputs, labels = batch[:, :-1], batch[:, 1:].flatten()
    with torch.autocast(batch.device.type, dtype=torch.bfloat16):
        with torch.set_grad_enabled(not finished):
            log_q = target(inputs).float().log_softmax(-1)
        log_p = draft(inputs).float().log_softmax(-1)
    if finished:
        draft_loss = 1 - torch.minimum(log_p, log_q).exp().sum(-1).mean()
    else:
        draft_loss = -(log_q.detach().exp() * log_p).sum(-1).mean()
    return F.nll_loss(log_q, labels), draft_loss


@torch.no_grad()
def evaluate(target, draft, tokens, n_bytes, device, batch=16):
    """On held-out text: nats per token and bits per byte of both models, and the acceptance rates of drafts
    that continue this text (at temperature 1 the mean of sum min(p, q), at temperature 0 the share of equal
    argmaxes)."""
    n = (len(tokens) - 1) // N_CTX
    windows = np.stack([tokens[i * N_CTX: (i + 1) * N_CTX + 1] for i in range(n)])
    windows = torch.from_numpy(windows.astype(np.int64))
    totals = np.zeros(4)
    for rows in windows.split(batch):
        rows = rows.to(device)
        labels = rows[:, 1:].flatten()
        log_q, log_p = (model(rows[:, :-1]).float().log_softmax(-1) for model in (target, draft))
        nll_target, nll_draft = (F.nll_loss(x, labels, reduction="sum").item() for x in (log_q, log_p))
        totals += [nll_target, nll_draft, torch.minimum(log_p, log_q).exp().sum().item(),
                   (log_p.argmax(-1) == log_q.argmax(-1)).sum().item()]
    loss_target, loss_draft, overlap, agreement = totals / (n * N_CTX)
    per_byte = len(tokens) / n_bytes / math.log(2)
    return dict(target_nats=loss_target, draft_nats=loss_draft,
                target_bits_per_byte=loss_target * per_byte, draft_bits_per_byte=loss_draft * per_byte,
                acceptance_temperature_1=overlap, acceptance_temperature_0=agreement)


NEW = "masks", "previous", "bias"       # in a parallel head, but not in EAGLE's: they learn faster


def optimizers(models, lr):
    """Muon for the matrices, AdamW for embeddings, norms, biases and NEW."""
    named = [pair for model in models for pair in model.named_parameters()]
    new = [p for name, p in named if name in NEW]
    matrices = [p for name, p in named if p.ndim == 2 and name not in ("wte", "wpe", *NEW)]
    others = [p for name, p in named if name not in NEW and (p.ndim != 2 or name in ("wte", "wpe"))]
    muon = torch.optim.Muon(matrices, lr=lr, weight_decay=0.02, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    groups = [dict(params=others), dict(params=new, faster=4)]
    return [muon, torch.optim.AdamW(groups, lr=lr, weight_decay=0.0, betas=(0.9, 0.98))]


def schedule(step, steps):
    """Warm-up, a long plateau, then straight to zero over the second half."""
    return min(1.0, (step + 1) / min(100, steps / 20), 2 * (1 - step / steps))


def resume(path, models, opts, device):
    """Restores models {name: model} and optimizers as last saved.  Returns the steps done, 0 if none."""
    if not path.exists():
        return 0
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


def fit(name, steps, models, trained, learn, evaluated, args):
    """Trains up to step `steps`, from the last saved step on.

    name            NAME.pt and NAME.jsonl in args.work are the saved state and the log
    models          {name: model}: all that are saved; `trained` lists those that learn
    learn(step)     computes the gradients; returns this step's entries of the log
    evaluated()     returns the entries about held-out text
    """
    state, opts = Path(args.work) / f"{name}.pt", optimizers(trained, args.lr)
    done, start = resume(state, models, opts, args.device), time.time()
    for step in tqdm(range(done, steps), desc=name, initial=done, total=steps, unit="step"):
        for group in (group for opt in opts for group in opt.param_groups):
            group["lr"] = args.lr * schedule(step, steps) * group.get("faster", 1)
        row = learn(step)
        for opt in opts:
            opt.step()
            opt.zero_grad()
        if (step + 1) % args.save_every == 0 or step + 1 == steps:
            row = json.dumps(dict(step=step + 1, seconds=round(time.time() - start), **row, **evaluated()))
            with open(state.with_suffix(".jsonl"), "a") as log:
                log.write(row + "\n")
            save(state, step + 1, models, opts)                 # if interrupted here, it is logged twice
            tqdm.write(row)


def train(stage, steps, target, draft, tokens, test_tokens, n_bytes, args):
    """Stage "pair": both models.  Stage "draft": the draft alone, from the finished target."""
    finished, compiled = stage == "draft", losses if args.no_compile else torch.compile(losses)
    target.requires_grad_(not finished)

    def learn(step):
        batch = batch_of(tokens, step, args.batch, args.seed + finished).to(args.device)
        for piece in (pieces := batch.split(args.micro_batch)):
            loss_target, loss_draft = compiled(target, draft, piece, finished)
            ((loss_draft if finished else loss_target + loss_draft) / len(pieces)).backward()
        return dict(tokens=(step + 1 + finished * args.steps) * args.batch * N_CTX,
                    train_target_nats=loss_target.item(), train_draft_loss=loss_draft.item())

    fit(stage, steps, dict(target=target, draft=draft), [draft] if finished else [target, draft], learn,
        lambda: evaluate(target, draft, test_tokens, n_bytes, args.device), args)


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


def main(text, out, work="models/training/work/pair", device="", steps=2000, draft_steps=2000, start="",
         batch=16, micro_batch=4, lr=3e-3, held_out=4, save_every=250, no_compile=False, seed=0):
    """Train the embedded pair.

    Args:
        text: the text to train on
        out: the pair is written to OUT/demo-target and OUT/demo-draft, at the end
        work: for the vocabulary, the logs and the training state
        device: cuda or cpu; by default a GPU if there is one
        steps: steps for both models
        draft_steps: steps for the draft alone, afterwards
        start: a directory with demo-target and demo-draft to start from, instead of random weights
        batch: pieces of n_ctx tokens per step
        micro_batch: how many of these at once (4 suits a CPU, 16 a GPU)
        lr: learning rate
        held_out: documents that are never trained on
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
    tokens, test_tokens, n_bytes = prepare_text(text, held_out, vocabulary)
    target, draft = GPT2(**TARGET).to(args.device), GPT2(**DRAFT).to(args.device)
    if start:
        load(target, Path(start) / "demo-target"), load(draft, Path(start) / "demo-draft")
    some = test_tokens[: 64 * N_CTX + 1]
    for stage, n_steps in (("pair", steps), ("draft", draft_steps)):
        train(stage, n_steps, target, draft, tokens, some, n_bytes * len(some) / len(test_tokens), args)

    results = json.dumps(evaluate(target, draft, test_tokens, n_bytes, args.device), indent=1)
    (work / "results.json").write_text(results + "\n")
    for model, hparams, folder in (target, TARGET, folders[0]), (draft, DRAFT, folders[1]):
        export(model, hparams, folder)
        for name in "encoder.json", "vocab.bpe":
            shutil.copy(vocabulary / name, folder / name)
    print(results)


if __name__ == "__main__":
    sys.exit(command_line.run(main))
