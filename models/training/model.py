"""GPT-2 in PyTorch, with the parameter names of gpt2.py, and its files: OpenAI's layout in half precision."""
import json
import math
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from engine.loading.checkpoint import read_tensorflow, write_tensorflow


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


causal_attention = partial(F.scaled_dot_product_attention, is_causal=True)   # q, k, v [B, n_head, T, d_head]


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

    def forward(self, x, attend=causal_attention):
        B, T, C = x.shape                                                # [B, T, n_embd] -> [B, T, n_embd]
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


def load(model, folder):
    """Load the weights of an exported directory into a model."""
    fill(model, read_tensorflow(folder / "model.ckpt"))


def fill(model, arrays):
    """Set the parameters of a model from {name in OpenAI's layout: array}."""
    model.load_state_dict({
        name: torch.from_numpy(arrays[tensorflow_name(name)].astype(np.float32)).view_as(parameter)
        for name, parameter in model.state_dict().items()})


def tensorflow_name(name):
    """
    >>> tensorflow_name("h.0.attn.c_attn.w"), tensorflow_name("wte")
    ('model/h0/attn/c_attn/w', 'model/wte')
    """
    return "model/" + name.replace("h.", "h", 1).replace(".", "/")


def export(model, hparams, folder):
    """Write hparams.json and the weights, in OpenAI's layout and half precision."""
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
