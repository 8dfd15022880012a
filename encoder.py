"""Byte-level BPE, GPT-2's tokenizer: text -> token ids, and back  (Radford et al. 2019, section 2.2).

Three steps.  A regular expression cuts the text into chunks: words, numbers or punctuation, with the
space before them, and other white space.  Each chunk becomes UTF-8 bytes, each written as one printable
character.  Then adjacent pairs are merged (`Encoder.merge`).  A list of merges says which; a pair's index in
it is its rank.  The pair of lowest rank is merged, again and again, until no adjacent pair is in the list.

Limitations: "<|endoftext|>" typed in a prompt is ordinary text, as in OpenAI's code.  Only the token of
that name ends a text, whatever a config.json says.  10,000 letters without a space take two seconds.

Not here: training a vocabulary (models/training/train.py).
"""
import codecs
import json
from pathlib import Path

import regex  # the standard library's `re` lacks \p{L} and \p{N}

EOS = "<|endoftext|>"
CHUNKS = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


def bytes_to_unicode():
    """A printable character for each of the 256 bytes: {33: "!", ..., 10: "Ċ", 32: "Ġ", ...}.

    >>> "".join(bytes_to_unicode()[b] for b in "a é".encode())
    'aĠÃ©'
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]      # they become characters 256, 257, ...
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}


class Encoder:
    """`ids`: dict token -> id.  `merges`: list of pairs of tokens, lowest rank first."""

    def __init__(self, ids, merges):
        self.ids = ids
        self.tokens = {i: token for token, i in ids.items()}
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.char_of = bytes_to_unicode()
        self.byte_of = {char: byte for byte, char in self.char_of.items()}
        self.cache = {}                                         # chunk -> ids
        self.n_vocab = len(ids)
        self.eos = ids.get(EOS)

    def encode(self, text):
        """str -> list[int].  Half a surrogate pair raises UnicodeEncodeError, a ValueError."""
        ids = []
        for chunk in CHUNKS.findall(text):
            if chunk not in self.cache:
                symbols = [self.char_of[byte] for byte in chunk.encode("utf-8")]
                self.cache[chunk] = [self.ids[symbol] for symbol in self.merge(symbols)]
            ids += self.cache[chunk]
        return ids

    def merge(self, symbols):
        """["h", "e", "r"] -> ["he", "r"] -> ["her"].

        Each turn merges one pair at all its places, from left to right.
        """
        while pairs := {*zip(symbols, symbols[1:])} & self.ranks.keys():
            best, merged = min(pairs, key=self.ranks.get), []
            for symbol in symbols:
                if merged and (merged[-1], symbol) == best:
                    merged[-1] += symbol
                else:
                    merged.append(symbol)
            symbols = merged
        return symbols

    def decode(self, ids):
        """list[int] -> str.  Unknown ids, and bytes that are not UTF-8 (a token may end inside a character),
        become U+FFFD.
        """
        return b"".join(map(self.to_bytes, ids)).decode("utf-8", errors="replace")

    def to_bytes(self, i):
        """The bytes of one token; 0xFF, which never occurs in UTF-8, for an unknown id."""
        return bytes(self.byte_of.get(char, 0xFF) for char in self.tokens.get(int(i), "\ufffd"))

    def stream(self):
        """A function list[int] -> str for text that arrives in pieces.

        It keeps an unfinished character until the rest has come.  If the last call has `final=True`, the
        pieces together are `decode` of all ids.
        """
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        return lambda ids, final=False: decoder.decode(b"".join(map(self.to_bytes, ids)), final)


def load_encoder(folder, n_vocab=None):
    """The Encoder of a folder: encoder.json + vocab.bpe (OpenAI), or vocab.json + merges.txt (Hugging Face).

    Raises ValueError if a file is missing or damaged, or if there are not n_vocab tokens.
    """
    folder = Path(folder)
    openai = (folder / "encoder.json").exists() or (folder / "hparams.json").exists()
    ids_file, merges_file = ("encoder.json", "vocab.bpe") if openai else ("vocab.json", "merges.txt")
    try:
        ids = json.loads((folder / ids_file).read_text(encoding="utf-8"))
        lines = (folder / merges_file).read_text(encoding="utf-8").split("\n")
        merges = [tuple(line.split()) for line in lines if line and not line.startswith("#version")]
        check_vocabulary(ids, merges)
        if n_vocab not in (None, len(ids)):
            raise ValueError(f"it has {len(ids)} tokens, and the model beside it {n_vocab}")
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot read the vocabulary in {folder} ({error}): fetch its files again") from None
    return Encoder(ids, merges)


def check_vocabulary(ids, merges):
    """Raises ValueError unless the ids are 0 .. n - 1 and the tokens are the bytes, the results of merges and
    special ones, which begin with "<".
    """
    made = {*bytes_to_unicode().values(), *map("".join, merges)}
    if (not isinstance(ids, dict) or {*map(type, ids.values())} != {int}
            or sorted(ids.values()) != [*range(len(ids))] or any(len(pair) != 2 for pair in merges)
            or len({*merges}) < len(merges) or not made <= ids.keys()
            or not all(token.startswith("<") for token in ids.keys() - made)):
        raise ValueError("its two files do not fit together")
