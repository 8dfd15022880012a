"""Makes tests/fixtures/huggingface: a tiny GPT-2 as Hugging Face's libraries save it, and its logits.

    python -m venv /tmp/hf && /tmp/hf/bin/pip install torch transformers -e .
    /tmp/hf/bin/python tests/tools/make_safetensors_fixture.py

Needed only to make the fixtures again.  They were made with transformers 5.23.0, safetensors 0.8.0, torch
2.13.0.  There are three files of the same model: model (as transformers saves it today, with the prefix
"transformer."), old (as the first versions saved it: no prefix, mask buffers, and a copy of wte named
lm_head.weight) and bfloat16 (the first layer only).  values.npz holds tokens, their logits, and the values of
the bfloat16 file, widened by torch.
"""
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

from encoder import EOS, bytes_to_unicode

FOLDER = Path(__file__).resolve().parent.parent / "fixtures" / "huggingface"


def main():
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=257, n_positions=8, n_embd=4, n_layer=2, n_head=2,
                                       bos_token_id=256, eos_token_id=256)).eval()
    for name, weight in model.named_parameters():
        mean = 1.0 if name.endswith("weight") and ".ln_" in name else 0.0
        weight.data = torch.normal(mean, 0.4, weight.shape)
    model.save_pretrained(FOLDER)
    (FOLDER / "generation_config.json").unlink(missing_ok=True)
    vocabulary = {letter: i for i, letter in enumerate([*bytes_to_unicode().values(), EOS])}
    (FOLDER / "vocab.json").write_text(json.dumps(vocabulary))
    (FOLDER / "merges.txt").write_text("#version: 0.2\n")

    weights = dict(model.transformer.named_parameters())
    masks = {f"h.{i}.attn.bias": torch.tril(torch.ones(8, 8)).reshape(1, 1, 8, 8) for i in range(2)}
    masks |= {f"h.{i}.attn.masked_bias": torch.tensor(-1e4) for i in range(2)}
    save_file({**weights, **masks, "lm_head.weight": weights["wte.weight"].clone()},
              FOLDER / "old.safetensors", {"format": "pt"})
    bfloat16 = {name: weight.data.bfloat16() for name, weight in weights.items() if name.startswith("h.0.")}
    save_file(bfloat16, FOLDER / "bfloat16.safetensors")

    tokens = torch.tensor([3, 141, 59, 26, 53, 58, 97, 256])
    with torch.no_grad():
        logits = model.double()(tokens[None]).logits[0]                                         # [8, 257]
    np.savez_compressed(FOLDER / "values.npz", tokens=tokens.numpy(), logits=logits.float().numpy(),
                        **{name: weight.float().numpy() for name, weight in bfloat16.items()})
    for path in sorted(FOLDER.iterdir()):
        print(f"{path.stat().st_size:8d} {path.name}")


if __name__ == "__main__":
    main()
