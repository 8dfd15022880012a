"""Train heads on a finished target: drafters that read its hidden states as well as the text.

    pip install -e ".[training]"
    python -m models.training.heads eagle --text my_books.txt --target my_models/demo-target --out my_models
    python -m models.training.heads parallel ... --start my_models/demo-eagle

    eagle       one block that drafts token by token, first from the target's hidden states, then from its own
                (EAGLE, Li et al. 2024).  As in EAGLE-3 (Li et al. 2025), low, middle and high states of the
                target are fused, and the head also learns to continue from its own states
    medusa      residual blocks, zero at first, each for a token further ahead (Medusa-1, Cai et al. 2024)
    exit        one more block and norm after the first layers of the target (lucidrains' extra transformer
                block; early exit as in LayerSkip, Elhoushi et al. 2024, but the target is not trained for it)
    parallel    EAGLE's block over mask embeddings, all drafts in one pass (P-EAGLE), with a low-rank bias
                that depends on the token before each draft (DSpark's Markov head)

Every head ends in the target's own output matrix, so it is small.  The target is frozen: its states are
computed once, for `--pieces` pieces of the text, and stored in `--work` (0.6 MB each).  The states give the
target's distributions q, which the heads learn at random positions of the text.  The loss is first the
cross-entropy, then the share of drafts the target rejects, 1 - sum min(p, q), p being the head's
distribution.

Limitations: states are computed on the text, not on what the target itself would generate; one process, one
device; `--work` is for one target, one text and one set of settings.
"""
import json
import sys
from pathlib import Path
from types import SimpleNamespace

from engine.loading import command_line, packages

packages.require(__name__, "training", "torch", "tokenizers")

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from methods.drafters.heads import N_ROWS, RANK, SIZES, checksum
from models.training import train
from models.training.model import GPT2, Block, LayerNorm, Linear, export, load
from models.training.text import prepare_text, spread

EAGLE_STEPS, MEDUSA_HEADS = 5, 5
DECAY = 0.8             # with cross-entropy, the weight of a draft relative to the one before


# The heads --------------------------------------------------------------------------------------------------
#
# forward(at, low, middle, last, tokens, token, position) -> [B, A, K, n]
#
# The result at [b, a, j], times the output matrix, gives logits for the token at i + j + 1, where i = at[a].
# It may depend on the tokens up to i + j and on the target's states up to i - 1 (in an exit head: up to i).
#
#   at          [A]         the positions i to learn from
#   low, middle [B, T, n]   the target's states after its first layers, and after half of its layers
#   last        [B, T, n]   after its last norm
#   tokens      [B, T]
#   token       [B, T, n]   their embeddings, each with mean 0 and variance 1
#   position    [T, n]      the embeddings of the positions, likewise

def shift(x, n):
    """x [.., T, d] moved n positions later; zeros before."""
    return F.pad(x, (0, 0, n, 0))[..., : x.shape[-2], :]


def standardize(x):
    return F.layer_norm(x, x.shape[-1:])


class Head(nn.Module):
    """What all heads but Medusa's share: a block like the target's, and a norm."""

    def __init__(self, n_embd, n_head, n_vocab):
        super().__init__()
        self.h = nn.ModuleList([Block(n_embd, n_head, 1)])
        self.ln_f = LayerNorm(n_embd)


class Eagle(Head):
    """At position i: the state at i - 1, the token at i and its position -> the state at i.  Step 1, for the
    first draft, reads the target's states, three fused into one.  Step s, for draft s, reads the head's own
    states from step s - 1, and the keys and values of all earlier steps."""

    def __init__(self, n_embd, n_head, n_vocab):
        super().__init__(n_embd, n_head, n_vocab)
        self.steps = EAGLE_STEPS
        std = (3 * n_embd) ** -0.5
        self.fuse = Linear(3 * n_embd, n_embd, 0)
        self.fuse.w.data[-n_embd:] = torch.eye(n_embd)                  # at first, the last state alone
        self.from_state = Linear(n_embd, n_embd, std)
        self.from_token = nn.Parameter(torch.randn(n_embd, n_embd) * std)
        self.from_position = nn.Parameter(torch.randn(n_embd, n_embd) * std)

    def forward(self, at, low, middle, last, tokens, token, position):
        before = self.fuse(shift(torch.cat([standardize(low), standardize(middle), last], -1), 1))
        known, cache, rows = token @ self.from_token + position @ self.from_position, [], []
        for step in range(self.steps):
            x = self.from_state(before) + known
            states = self.ln_f(self.h[0](x, lambda q, k, v: attention_over_steps(q, k, v, cache)))
            rows.append(states[:, at + step])
            before = shift(states, 1)
        return torch.stack(rows, 2)


def attention_over_steps(q, k, v, cache):
    """The attention of step s = len(cache) + 1; q, k, v are [B, n_head, T, d_head]; k, v are added to cache.

    Query i attends to the keys of step 1 up to position i - (s - 1), and to the key of each step t = 2 .. s
    at position i - (s - t)."""
    cache.append((k, v))
    s, all_pairs = len(cache), torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device)
    seen = [all_pairs.tril(1 - s), *(all_pairs.tril(t - s).triu(t - s) for t in range(2, s + 1))]
    k, v = (torch.cat(steps, 2) for steps in zip(*cache))                # [B, n_head, s * T, d_head]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=torch.cat(seen, 1))


class Medusa(nn.Module):
    """Each head reads the state that the last known token was drawn from."""

    def __init__(self, n_embd, n_head, n_vocab):
        super().__init__()
        self.residuals = Linear(n_embd, MEDUSA_HEADS * n_embd, 0)

    def forward(self, at, low, middle, last, *rest):
        before = last[:, at - 1, None]                                   # [B, A, 1, n]
        return before + F.silu(self.residuals(before)).unflatten(-1, (MEDUSA_HEADS, -1))[:, :, 0]


class Exit(Head):
    def forward(self, at, low, *rest):
        return self.ln_f(self.h[0](low))[:, at, None]


class Parallel(Head):
    """Draft 1 is EAGLE's first step.  Draft j + 1 has the same input plus mask embedding j, j positions
    further on."""

    def __init__(self, n_embd, n_head, n_vocab):
        super().__init__(n_embd, n_head, n_vocab)
        std = (3 * n_embd) ** -0.5
        self.from_states = Linear(3 * n_embd, n_embd, std)
        self.from_token = nn.Parameter(torch.randn(n_embd, n_embd) * std)
        self.from_position = nn.Parameter(torch.randn(n_embd, n_embd) * std)
        self.masks = nn.Parameter(torch.randn(N_ROWS - 1, n_embd) * 0.02)
        self.previous = nn.Parameter(torch.zeros(n_vocab, RANK))
        self.bias = nn.Parameter(torch.randn(RANK, n_embd) * 0.2)

    def forward(self, at, low, middle, last, tokens, token, position):
        before = shift(torch.cat([standardize(low), standardize(middle), last], -1), 1)
        known = self.from_states(before) + token @ self.from_token               # [B, T, n]
        position = position @ self.from_position                                 # [T, n]
        ahead = at[:, None] + torch.arange(N_ROWS, device=at.device)             # [A, K]
        x = known[:, at, None] + F.pad(self.masks, (0, 0, 1, 0)) + position[ahead]      # [B, A, K, n]
        x = self.h[0](x.flatten(1, 2), lambda *qkv: self.attend(*qkv, known + position, at))
        x = self.ln_f(x).unflatten(1, ahead.shape)                               # [B, A, K, n]
        return x + self.previous[tokens[:, ahead]] @ self.bias                   # the Markov head

    def attend(self, q, k, v, known, at):                                # q, k, v: [B, n_head, A * K, d_head]
        """Mask j after position i attends to the known positions up to i, and to masks 1 .. j after i."""
        T, A, block = known.shape[1], len(at), self.h[0]
        _, *keys_values = block.attn.c_attn(block.ln_1(known)).chunk(3, -1)              # [B, T, n] each
        k, v = (torch.cat([far.unflatten(-1, (block.n_head, -1)).transpose(1, 2), near], 2)
                for far, near in zip(keys_values, (k, v)))               # [B, n_head, T + A * K, d_head]
        far = torch.arange(T, device=at.device) <= at.repeat_interleave(N_ROWS)[:, None]    # [A * K, T]
        near = torch.ones(N_ROWS, N_ROWS, dtype=torch.bool, device=at.device).tril()
        near[:, 0] = False                                               # row 0 is a known position
        seen = torch.cat([far, torch.block_diag(*[near] * A)], 1)        # [A * K, T + A * K]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)

    def start_from_eagle(self, eagle):
        """Copy EAGLE's block, with its two matrices for the states multiplied into one."""
        self.load_state_dict(eagle.state_dict(), strict=False)           # what both have
        fuse, then = eagle.fuse, eagle.from_state
        self.from_states.w.data, self.from_states.b.data = fuse.w @ then.w, fuse.b @ then.w + then.b


HEADS = {"eagle": Eagle, "medusa": Medusa, "exit": Exit, "parallel": Parallel}


# The target's states ----------------------------------------------------------------------------------------

class States:
    """The target's states on pieces of the text [n_pieces, n_ctx], computed when first needed, and stored in
    half precision."""

    def __init__(self, target, pieces, layers, path):
        self.target, self.pieces, self.layers = target, pieces, layers
        shape = len(pieces), 3, pieces.shape[1], target.wte.shape[1]
        self.stored = np.lib.format.open_memmap(path, "r+" if path.exists() else "w+", np.float16, shape)
        self.wte, self.wpe = standardize(target.wte), standardize(target.wpe[: pieces.shape[1]])

    @torch.no_grad()
    def __getitem__(self, rows):
        """The numbers of some pieces -> the arguments that follow `at` in the heads' forward."""
        tokens = torch.from_numpy(self.pieces[rows].astype(np.int64)).to(self.wte.device)
        missing = np.flatnonzero(~self.stored[rows, -1, -1].any(-1))      # no state is all zeros
        if len(missing):
            self.stored[rows[missing]] = self.compute(tokens[missing]).half().cpu().numpy()
        stored = torch.from_numpy(self.stored[rows]).to(self.wte.device).float()
        return *stored.unbind(1), tokens, self.wte[tokens], self.wpe

    def compute(self, tokens):                                           # [B, T] -> [B, 3, T, n_embd]
        target, states = self.target, []
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16):
            x = target.wte[tokens] + target.wpe[: tokens.shape[1]]
            for i, block in enumerate(target.h, 1):
                x = block(x)
                if i in self.layers:
                    states.append(x)
            return torch.stack([*states, target.ln_f(x)], 1).float()


# Training ---------------------------------------------------------------------------------------------------

def compute_logits(head, wte, at, given):
    """(the target's logits, the head's), both [B, A, K, n_vocab]."""
    rows = head(at, *given)                                              # [B, A, K, n]
    ahead = at[:, None] + torch.arange(rows.shape[2], device=at.device)  # [A, K]
    return F.linear(given[2][:, ahead], wte), F.linear(rows, wte)


def compute_loss(head, wte, at, given, rejections):
    """The weighted mean loss.  A draft matters only if those before it are accepted, so its weight is the
    probability of that.  With cross-entropy it is DECAY times the weight of the draft before."""
    with torch.autocast(at.device.type, dtype=torch.bfloat16):
        z_q, z_p = compute_logits(head, wte, at, given)
    q, log_p = z_q.float().softmax(-1), z_p.float().log_softmax(-1)
    overlap = torch.minimum(q, log_p.exp()).sum(-1)                      # [B, A, K]
    if rejections:
        loss, weight = 1 - overlap, F.pad(overlap.detach().cumprod(-1)[..., :-1], (1, 0), value=1.0)
    else:
        loss, weight = -(q * log_p).sum(-1), DECAY ** torch.arange(overlap.shape[2], device=at.device)
        weight = weight.expand_as(loss)
    return (weight * loss).sum() / weight.sum()


@torch.no_grad()
def evaluate(head, states, wte):
    """The acceptance rate of each draft of a round, on held-out text: at temperature 1 the mean of
    sum min(p, q), at temperature 0 the share of equal argmaxes."""
    head.steps = EAGLE_STEPS
    at = torch.arange(1, states.pieces.shape[1] - N_ROWS + 1, 4, device=wte.device)
    rates = []
    for i in range(len(states.pieces)):
        z_q, z_p = compute_logits(head, wte, at, states[np.array([i])])
        overlap = torch.minimum(z_q.softmax(-1), z_p.softmax(-1)).sum(-1)
        rates.append([a.float().mean((0, 1)).tolist() for a in (overlap, z_q.argmax(-1) == z_p.argmax(-1))])
    at_1, at_0 = np.mean(rates, 0).round(4).tolist()
    return dict(acceptance_temperature_1=at_1, acceptance_temperature_0=at_0)


def fit(kind, head, states, test_states, wte, args):
    def learn(step):
        rng, n_ctx = np.random.default_rng([args.seed, step]), states.pieces.shape[1]
        rows = np.sort(rng.choice(len(states.pieces), args.batch, replace=False))
        at = torch.from_numpy(1 + rng.choice(n_ctx - N_ROWS, args.places, replace=False)).to(wte.device)
        head.steps = EAGLE_STEPS if step >= args.steps * (1 - args.own) else 1            # of an EAGLE head
        loss = compute_loss(head, wte, at, states[rows], step >= args.steps * args.cross_entropy)
        loss.backward()
        return loss.item()

    train.fit(kind, args.steps, "head", head, learn, lambda: evaluate(head, test_states, wte), args)


def initialize(head, target, args):
    """The weights to start from."""
    folder = Path(args.start)
    if not args.start and isinstance(head, Head):
        head.ln_f.load_state_dict(target.ln_f.state_dict())
    elif args.kind == "parallel" and json.loads((folder / "hparams.json").read_text())["kind"] == "eagle":
        eagle = Eagle(target.wte.shape[1], target.h[0].n_head, 0)
        load(eagle, folder)
        head.start_from_eagle(eagle)
    elif args.start:
        load(head, folder)


def main(kind, text, out, target="models/demo-target", start="", work="models/training/work/heads",
         pieces=3000, layers="2,8", steps=1500, cross_entropy=0.4, own=0.6, places=48, batch=8, lr=3e-3,
         fall=0.5, weight_decay=0.02, held_out=4, measured=0, held_out_pieces=64, save_every=100, seed=0):
    """Train a head on a finished target.

    Args:
        kind: eagle, medusa, exit or parallel
        text: the text to train on
        out: the head is written to OUT/demo-KIND, at the end
        target: the directory of the finished target
        start: a head to start from, instead of random weights; a parallel head can start from EAGLE's
        work: for the target's states, the logs and the training state
        pieces: pieces of n_ctx tokens, spread evenly over the text
        layers: EAGLE and parallel heads read the target's states after these two layers and the last, an
            exit head those after the first of the two
        steps: training steps
        cross_entropy: the fraction of the steps that use cross-entropy
        own: the last fraction of the steps, in which an EAGLE head continues from its own states
        places: positions per piece to learn from in a step
        batch: pieces per step
        lr: learning rate
        fall: the last fraction of the steps, in which the learning rate falls to 0
        weight_decay: of the matrices
        held_out: how many documents, the last ones, are never trained on
        measured: how many of these, the last ones, results are measured on; 0 for all
        held_out_pieces: pieces of these that are evaluated
        save_every: steps between saved states
        seed: random seed
    """
    if kind not in HEADS:
        raise ValueError(f"there is no head {kind!r}: use {', '.join(HEADS)}")
    args = SimpleNamespace(**locals())
    work, folder, out = Path(work), Path(target), Path(out) / f"demo-{kind}"
    layers = [*map(int, layers.split(","))]
    train.check_is_new(out)
    work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)

    hparams = json.loads((folder / "hparams.json").read_text(encoding="utf-8"))
    tokens, test_tokens, _ = prepare_text(text, held_out, measured, folder, hparams["n_vocab"])
    target = GPT2(**hparams).requires_grad_(False)
    load(target, folder)
    target.to(train.DEVICE)
    states, test_states = (
        States(target, spread(part, hparams["n_ctx"], n)[:, :-1], layers, work / f"states-{name}-{n}.npy")
        for name, part, n in (("train", tokens, pieces), ("held_out", test_tokens, held_out_pieces)))

    head = HEADS[kind](hparams["n_embd"], hparams["n_head"], hparams["n_vocab"])
    initialize(head, target, args)
    fit(kind, head.to(train.DEVICE), states, test_states, target.wte, args)

    size = {"medusa": MEDUSA_HEADS, "exit": layers[0]}.get(kind, layers)
    export(head, {"kind": kind, "target": checksum(target.wte.cpu().numpy()), SIZES[kind]: size}, out)
    log = (work / f"{kind}.jsonl").read_text()
    (out / "training.jsonl").write_text(log)
    print(log.splitlines()[-1])


if __name__ == "__main__":
    sys.exit(command_line.run(main))
