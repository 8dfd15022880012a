"""Train heads on a finished target: drafters that read its hidden states, not only the text.

    pip install -e ".[training]"
    python training/heads.py eagle --text my_books.txt --target my_models/demo-target --out my_models
    python training/heads.py medusa  ...
    python training/heads.py exit    ...

    eagle       one block whose input is the target's hidden states at each token and the token after it, and
                then its own states (EAGLE, Li et al. 2024; low, middle and last states fused, and trained
                on its own drafts for as many steps as it drafts, as in EAGLE-3, Li et al. 2025)
    medusa      residual blocks, zero at first, each for a token further ahead (Medusa-1, Cai et al. 2024)
    exit        one more block and norm after the first layers of the target (lucidrains' extra transformer
                block; early exit as in LayerSkip, Elhoushi et al. 2024, but the target is not trained for it)

Each ends in the target's own output matrix, so a head is small.  The target is frozen: its states are
computed once, for `--pieces` pieces of the text, and kept in `--work` (0.6 MB each).  They give the target's
distributions, which the heads learn: first with cross-entropy, and then with what matters, the share of their
tokens that the target rejects, 1 - sum min(p, q).  (q the target, p the draft, as everywhere.)

Interrupt it whenever you like: the same command goes on from the last saved step.

But: states are computed on the text, not on what the target would write itself; one process, one device.
"""
import argparse
import hashlib
import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from tqdm import tqdm

import train
from train import Block, LayerNorm, Linear

EAGLE_STEPS, MEDUSA_HEADS = 5, 5


# The heads --------------------------------------------------------------------------------------------------
#
# forward(low, middle, last, token, position) -> one array [B, T, n] for each draft: row i, multiplied by the
# output matrix, gives the distribution of the token after the one at position i.
#
#   low, middle [B, T, n]   the target's states after its first layers, and after half of them
#   last        [B, T, n]   after its last norm
#   token       [B, T, n]   the embeddings of the tokens, each with mean 0 and variance 1
#   position    [T, n]      the embeddings of the positions, likewise

def shifted(x, n):
    """x [.., T, d], n positions later; zeros before."""
    return F.pad(x, (0, 0, n, 0))[..., : x.shape[-2], :]


class Eagle(nn.Module):
    """At position i: the state at i - 1, the token at i and its position -> the state at i.  Step 1 reads
    the target's states, three fused to one; step s reads its own of step s - 1, and keys and values of the
    steps before, just as when it drafts its s-th token."""

    def __init__(self, n_embd, n_head):
        super().__init__()
        self.steps = EAGLE_STEPS
        std = (3 * n_embd) ** -0.5
        self.fuse = Linear(3 * n_embd, n_embd, 0)
        self.fuse.w.data[-n_embd:] = torch.eye(n_embd)                  # at first, the last state alone
        self.from_state = Linear(n_embd, n_embd, std)
        self.from_token = nn.Parameter(torch.randn(n_embd, n_embd) * std)
        self.from_position = nn.Parameter(torch.randn(n_embd, n_embd) * std)
        self.h = nn.ModuleList([Block(n_embd, n_head, 1)])
        self.ln_f = LayerNorm(n_embd)

    def forward(self, low, middle, last, token, position):
        low, middle = (F.layer_norm(x, x.shape[-1:]) for x in (low, middle))
        before, cache, drafts = self.fuse(shifted(torch.cat([low, middle, last], -1), 1)), [], []
        known = token @ self.from_token + position @ self.from_position
        for _ in range(self.steps):
            x = self.from_state(before) + known
            states = self.ln_f(self.h[0](x, lambda q, k, v: attention_over_steps(q, k, v, cache)))
            drafts.append(states)
            before = shifted(states, 1)
        return drafts


def attention_over_steps(q, k, v, cache, rows=128):
    """The attention of step s = len(cache) + 1; all are [B, n_head, T, d_head], and k and v join the cache.

    Query i sees the keys of step 1 up to i - (s - 1), made from the target's states; then one key of each
    later step, the last being its own.  (In blocks of queries: see train.causal_attention.)"""
    cache.append((k, v))
    lag, q = len(cache) - 1, q * q.shape[-1] ** -0.5
    later = [(shifted(k, lag - t), shifted(v, lag - t)) for t, (k, v) in enumerate(cache) if t]
    k, v = cache[0]
    blocks = []
    for i in range(0, q.shape[2], rows):
        here = slice(i, i + rows)
        scores = (q[:, :, here] @ k[:, :, : i + rows].transpose(2, 3)).float()
        n, s = scores.shape[-2:]
        scores = scores + torch.full((n, s), -1e10, device=q.device).triu(s - n + 1 - lag)
        own = [(q[:, :, here] * k[:, :, here]).sum(-1, keepdim=True).float() for k, _ in later]
        weights = torch.cat([scores, *own], -1).softmax(-1).to(v.dtype)
        heads = weights[..., :s] @ v[:, :, : i + rows]
        for t, (_, v_of_step) in enumerate(later):
            heads = heads + weights[..., s + t, None] * v_of_step[:, :, here]
        blocks.append(heads)
    return torch.cat(blocks, 2)


class Medusa(nn.Module):
    """Head k: the target's state at position i -> the distribution of the token after position i + k."""

    def __init__(self, n_embd, n_head):
        super().__init__()
        self.residuals = Linear(n_embd, MEDUSA_HEADS * n_embd, 0)

    def forward(self, low, middle, last, token, position):
        residuals = F.silu(self.residuals(last)).split(last.shape[-1], -1)
        return [shifted(last + residual, k) for k, residual in enumerate(residuals, 1)]


class Exit(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.h = nn.ModuleList([Block(n_embd, n_head, 1)])
        self.ln_f = LayerNorm(n_embd)

    def forward(self, low, middle, last, token, position):
        return [self.ln_f(self.h[0](low))]


HEADS = {"eagle": Eagle, "medusa": Medusa, "exit": Exit}


# The target's states ----------------------------------------------------------------------------------------

class States:
    """The frozen target's states at pieces of the text [n_pieces, n_ctx], computed when they are first
    needed, and kept in a file in half precision."""

    def __init__(self, target, pieces, layers, path, device):
        self.target, self.pieces, self.layers, self.device = target, pieces, layers, device
        shape = len(pieces), 3, pieces.shape[1], target.wte.shape[1]
        if not path.exists():               # zeros, all of them written: a full disk says so now, not later
            with open(path.with_suffix(".part"), "wb") as file:
                np.lib.format.write_array_header_1_0(
                    file, dict(descr="<f2", fortran_order=False, shape=shape))
                for _ in pieces:
                    file.write(bytes(2 * math.prod(shape[1:])))
            path.with_suffix(".part").replace(path)
        self.kept = np.lib.format.open_memmap(path, "r+")
        wpe = target.wpe[: pieces.shape[1]]
        self.wte, self.wpe = (F.layer_norm(a, a.shape[-1:]) for a in (target.wte, wpe))

    @torch.no_grad()
    def __getitem__(self, rows):
        """Rows of pieces -> the arguments of the heads' forward."""
        tokens = torch.from_numpy(self.pieces[rows].astype(np.int64)).to(self.device)
        missing = np.flatnonzero(~self.kept[rows, -1, -1].any(-1))        # no state is all zeros
        if len(missing):
            self.kept[rows[missing]] = self.computed(tokens[missing]).half().cpu().numpy()
        kept = torch.from_numpy(self.kept[rows]).to(self.device).float()
        return *kept.unbind(1), self.wte[tokens], self.wpe

    def computed(self, tokens):                                          # [B, T] -> [B, 3, T, n_embd]
        target, states = self.target, []
        with torch.autocast(self.device, dtype=torch.bfloat16):
            x = target.wte[tokens] + target.wpe[: tokens.shape[1]]
            for i, block in enumerate(target.h, 1):
                x = block(x)
                if i in self.layers:
                    states.append(x)
            return torch.stack([*states, target.ln_f(x)], 1).float()


# Training ---------------------------------------------------------------------------------------------------

def loss_of(head, wte, at, rejections, decay, low, middle, last, *known):
    """The mean over the drafts, each with `decay` times the weight of the one before (it matters only if that
    one is accepted), at the positions `at`: a softmax over the vocabulary costs more than the head itself,
    and neighbouring positions teach much the same."""
    with torch.autocast(last.device.type, dtype=torch.bfloat16):
        q = F.linear(last[:, at], wte).float().softmax(-1)               # [B, len(at), n_vocab], the target's
        total, weights = 0, 0
        for i, states in enumerate(head(low, middle, last, *known)):
            log_p = F.linear(states[:, at], wte).float().log_softmax(-1)
            loss = 1 - torch.minimum(q, log_p.exp()).sum(-1) if rejections else -(q * log_p).sum(-1)
            total, weights = total + decay ** i * loss.mean(), weights + decay ** i
    return total / weights


@torch.no_grad()
def evaluate(head, states, wte, batch=4):
    """Held-out text, acceptance by position: at temperature 1 the mean of sum min(p, q), at temperature 0 the
    share of equal argmaxes."""
    first = int(isinstance(head, Medusa))                                # head k is used from position k on
    head.steps = EAGLE_STEPS
    totals = np.zeros((2, 1))
    for rows in np.array_split(np.arange(len(states.pieces)), -(-len(states.pieces) // batch)):
        given = states[rows]
        logits, found = F.linear(given[2], wte), []
        for ahead, x in enumerate(head(*given), first):
            target, draft = logits[:, ahead:], F.linear(x, wte)[:, ahead:]
            overlap = torch.minimum(target.softmax(-1), draft.softmax(-1)).sum(-1).mean().item()
            found.append((overlap, (target.argmax(-1) == draft.argmax(-1)).float().mean().item()))
        totals = totals + len(rows) * np.array(found).T
    at_1, at_0 = (totals / len(states.pieces)).round(4).tolist()
    return dict(acceptance_temperature_1=at_1, acceptance_temperature_0=at_0)


def fit(kind, head, states, test_states, wte, args):
    opts, work = train.optimizers([head], args.lr), Path(args.work)
    done = train.resume(work / f"{kind}.pt", dict(head=head), opts, args.device, args.steps)
    start = time.time()
    loss_on = torch.compile(loss_of, dynamic=False) if args.compile else loss_of
    n_ctx, batch = states.pieces.shape[1], min(args.batch, len(states.pieces))
    per_epoch = len(states.pieces) // batch
    for step in tqdm(range(done, args.steps), desc=kind, initial=done, total=args.steps, mininterval=5):
        train.set_lr(opts, args.lr * train.schedule(step, args.steps))
        epoch, i = divmod(step, per_epoch)
        rng = np.random.default_rng([args.seed, epoch])
        rows = rng.permutation(per_epoch * batch)[i * batch: (i + 1) * batch]
        at = torch.arange((i + epoch) % args.every, n_ctx, args.every, device=args.device)
        parts = np.split(np.sort(rows), range(args.micro_batch, batch, args.micro_batch))
        for part in parts:
            rejections = step >= args.steps * args.cross_entropy
            head.steps = EAGLE_STEPS if step >= args.steps * (1 - args.own) else 1        # of an EAGLE head
            loss = loss_on(head, wte, at, rejections, args.decay, *states[part])
            (loss / len(parts)).backward()
        for opt in opts:
            opt.step()
            opt.zero_grad()
        saved = (step + 1) % args.save_every == 0 or step + 1 == args.steps
        if not saved and (step + 1) % 10:
            continue
        row = dict(head=kind, step=step + 1, tokens=args.seen + (step + 1) * batch * n_ctx,
                   seconds=time.time() - start, loss=loss.item())
        if saved:
            row |= evaluate(head, test_states, wte)
        with open(work / f"{kind}.jsonl", "a") as log:
            log.write("\n" + json.dumps(row))  # first the line's end: a row that was cut spoils no other
        if saved:                               # after its row: what is interrupted here is logged twice
            train.save(work / f"{kind}.pt", step + 1, dict(head=head), opts)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("kind", choices=HEADS)
    add("--text", required=True)
    add("--target", default="models/demo-target", help="the folder of the finished target")
    add("--out", required=True, help="the head is written to OUT/demo-KIND, at the end")
    add("--start", help="the folder of a head to start from, in place of random weights")
    add("--work", default="training/work/heads", help="tokenized text, states, training state")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--threads", type=int, default=0, help="PyTorch threads on a CPU; 0: its own choice")
    add("--pieces", type=int, default=3000, help="pieces of n_ctx tokens, drawn from the text")
    add("--layers", type=int, nargs=2, default=[2, 8], help="an EAGLE head reads the states after so many "
        "layers of the target, beside the last, and an exit head those after the first of them")
    add("--last_only", action="store_true", help="an EAGLE head reads the last states only")
    add("--steps", type=int, default=1500)
    add("--cross_entropy", type=float, default=0.4, help="the share of the steps that use cross-entropy")
    add("--own", type=float, default=0.6, help="the share of the steps, at the end, in which an EAGLE head "
        "continues from its own states")
    add("--decay", type=float, default=0.8, help="the weight of a draft relative to the one before")
    add("--every", type=int, default=4, help="learn from one position in so many, another each time")
    add("--batch", type=int, default=8, help="pieces per step")
    add("--micro_batch", type=int, default=8, help="how many of these at once")
    add("--lr", type=float, default=3e-3)
    add("--held_out", type=int, default=4, help="documents that are never trained on")
    add("--held_out_pieces", type=int, default=64, help="pieces of these that are evaluated")
    add("--save_every", type=int, default=100)
    add("--no_compile", dest="compile", action="store_false", help="faster if there are only a few steps")
    add("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    work, folder, out = Path(args.work), Path(args.target), Path(args.out) / f"demo-{args.kind}"
    train.check_new(out)
    torch.manual_seed(args.seed)
    if args.last_only and args.kind != "eagle":
        parser.error(f"--last_only is of an EAGLE head: a head of the kind {args.kind} has one state anyway")
    if args.threads:
        torch.set_num_threads(args.threads)

    hparams = json.loads((folder / "hparams.json").read_text(encoding="utf-8"))
    if not 0 < args.layers[0] < args.layers[1] <= hparams["n_layer"]:
        parser.error(f"--layers {' '.join(map(str, args.layers))}: give two of 1 .. {hparams['n_layer']}, "
                     "the lower first")
    tokens, test_tokens, _ = train.prepare_text(args.text, args.held_out, work, folder, hparams["n_ctx"])
    target = train.GPT2(**hparams).requires_grad_(False)
    train.load(target, folder)
    target.to(args.device)
    digest = hashlib.sha256(target.wte.cpu().numpy().astype(np.float16).tobytes()).hexdigest()
    settings = "layers pieces seed batch last_only lr decay cross_entropy own every".split()
    weights = train.digest_of(folder / train.DATA)              # of all; a finished head has that of wte
    train.claim(work, args.kind, target=weights, **{key: vars(args)[key] for key in settings},
                start=args.start and train.digest_of(Path(args.start) / train.DATA))
    n_ctx, rng = hparams["n_ctx"], np.random.default_rng(args.seed)
    whole = len(tokens) // n_ctx - 1
    starts = rng.integers(n_ctx) + n_ctx * np.sort(rng.permutation(whole)[: args.pieces])
    pieces = np.stack([tokens[s: s + n_ctx] for s in starts])
    n_test = min(len(test_tokens) // n_ctx, args.held_out_pieces)
    test_pieces = test_tokens[: n_test * n_ctx].reshape(n_test, n_ctx)
    kept = f"states-{weights[:8]}-{'-'.join(map(str, args.layers))}-{args.seed}"
    states, test_states = (
        States(target, p, args.layers, work / f"{kept}-{name}-{len(p)}.npy", args.device)
        for p, name in ((pieces, "train"), (test_pieces, "held_out")))

    head = HEADS[args.kind](hparams["n_embd"], hparams["n_head"]).to(args.device)
    before, args.seen = Path(args.start or "", "training.jsonl"), 0         # of the head that it starts from
    rows = before.read_text(encoding="utf-8").splitlines() if args.start and before.exists() else []
    if args.start:
        train.load(head, Path(args.start))
        args.seen = json.loads(rows[-1])["tokens"] if rows else 0
    elif hasattr(head, "ln_f"):
        head.ln_f.load_state_dict(target.ln_f.state_dict())
    if args.last_only:
        head.fuse.requires_grad_(False)
    fit(args.kind, head, states, test_states, target.wte, args)

    size = dict(medusa=dict(n_heads=MEDUSA_HEADS), exit=dict(exit_layer=args.layers[0]),
                eagle=dict(layers=args.layers))[args.kind]
    rows += [json.dumps(row) for row in train.rows_of(work / f"{args.kind}.jsonl")
             if "acceptance_temperature_1" in row]
    with train.new_folder(out) as new:
        train.export(head, dict(kind=args.kind, target=digest, **size), new)
        (new / "training.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    print(rows[-1])


if __name__ == "__main__":
    sys.exit(train.console.status_of(main))
