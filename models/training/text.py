"""Text for training: documents -> a vocabulary, tokens, batches."""
import json
from pathlib import Path

import numpy as np
import torch
from tokenizers import ByteLevelBPETokenizer

from encoder import EOS, bytes_to_unicode


def train_tokenizer(documents, folder, n_vocab):
    """Train a byte-level BPE, and write OpenAI's two files: encoder.json (every byte, the merges,
    <|endoftext|>) and vocab.bpe (the merges)."""
    trainer = ByteLevelBPETokenizer()
    trainer.train_from_iterator(documents, vocab_size=n_vocab - 1, special_tokens=[], show_progress=False)
    trainer.save_model(str(folder))                                      # vocab.json, merges.txt
    merges = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()[1:]
    entries = list(bytes_to_unicode().values()) + [merge.replace(" ", "") for merge in merges] + [EOS]
    if len(entries) != n_vocab:
        raise ValueError(f"the text is too short for a vocabulary of {n_vocab} tokens: use a longer one")
    (folder / "merges.txt").replace(folder / "vocab.bpe")
    ids = {entry: i for i, entry in enumerate(entries)}
    (folder / "encoder.json").write_text(json.dumps(ids), encoding="utf-8")


def tokenize(documents, folder):
    """The tokens of all documents, each preceded by <|endoftext|>."""
    tokenizer = ByteLevelBPETokenizer.from_file(str(folder / "encoder.json"), str(folder / "vocab.bpe"))
    eos = tokenizer.token_to_id(EOS)
    return np.concatenate([np.array([eos] + encoding.ids, np.uint16)
                           for encoding in tokenizer.encode_batch(documents)])


def prepare_text(path, n_held_out, n_measured, vocabulary, n_vocab):
    """Text -> (tokens to train on, tokens and bytes of the documents to evaluate on).  The last documents are
    held out, and the last `n_measured` of these are used to evaluate, or all if it is 0.  If the directory
    `vocabulary` has no vocabulary, one of `n_vocab` tokens is trained and written there."""
    text = Path(path).read_text(encoding="utf-8")
    documents = [document.strip() + "\n" for document in text.split(EOS) if document.strip()]
    if not 0 < n_held_out < len(documents):
        raise ValueError(f"{path} has {len(documents)} documents: hold out fewer of them (--held_out)")
    documents, held_out = documents[:-n_held_out], documents[-(n_measured or n_held_out):]
    if not (vocabulary / "encoder.json").exists():
        train_tokenizer(documents, vocabulary, n_vocab)
    tokens, test_tokens = tokenize(documents, vocabulary), tokenize(held_out, vocabulary)
    n_bytes = sum(len(document.encode("utf-8")) for document in held_out)
    print(f"{len(tokens):,} tokens to train on, {len(test_tokens):,} held out ({n_bytes:,} bytes)")
    return tokens, test_tokens, n_bytes


def draw_batch(tokens, n_ctx, step, batch, seed):
    """Batch `step` of an endless stream -> [batch, n_ctx + 1].  Each epoch cuts the text at different places
    and shuffles the pieces."""
    per_epoch = (len(tokens) - 2 * n_ctx) // n_ctx // batch
    if per_epoch < 1:
        raise ValueError(f"the text is too short: {len(tokens):,} tokens are not {batch} pieces of {n_ctx}")
    epoch, i = divmod(step, per_epoch)
    rng = np.random.default_rng([seed, epoch])
    offset = rng.integers(n_ctx)
    starts = offset + n_ctx * rng.permutation(per_epoch * batch)[i * batch: (i + 1) * batch]
    return torch.from_numpy(np.stack([tokens[s: s + n_ctx + 1] for s in starts]).astype(np.int64))


def spread(tokens, n_ctx, pieces=None):
    """`pieces` whole pieces, evenly spread over the tokens, or all of them -> [pieces, n_ctx + 1]."""
    n = (len(tokens) - 1) // n_ctx
    return np.stack([tokens[i * n_ctx: (i + 1) * n_ctx + 1]
                     for i in np.linspace(0, n - 1, min(n, pieces or n)).astype(int)])
