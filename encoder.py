"""Byte-level BPE, GPT-2's tokenizer: text -> token ids, and back  (Radford et al. 2019, section 2.2).

There are three steps.  A regular expression splits the text into chunks: words, numbers or punctuation, each
with the space before it, and other white space.  Each chunk is encoded in UTF-8, and each byte written as one
printable character.  Then adjacent pairs are merged (`Encoder.merge`): a list says which pairs can be, the
index in that list is a pair's rank, and the pair of lowest rank is merged until no adjacent pair is listed.

Limitations: "<|endoftext|>" typed in a prompt is ordinary text, as in OpenAI's code, unless Hugging Face's
files say that it is one token (Tokenizer, below).  Encoding 10,000 letters
without a space takes two seconds.

Not here: training a vocabulary (models/training/train.py).
"""
import codecs

import regex  # the standard library's `re` lacks \p{L} and \p{N}

from engine.loading.tokenizer import EOS, noted, with_token

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
        self.eos_ids = {ids[EOS]} if EOS in ids else set()      # the ids that end a text
        self.start = [ids[EOS]] if EOS in ids else []           # what an empty prompt becomes

    @property
    def eos(self):
        """The id that ends a text, a list if there are several, None if there is none."""
        return [*self.eos_ids][0] if len(self.eos_ids) == 1 else sorted(self.eos_ids) or None

    def encode(self, text):
        """str -> list[int].  Raises UnicodeEncodeError, a ValueError, for a lone surrogate."""
        ids = []
        for chunk in CHUNKS.findall(text):
            if chunk not in self.cache:
                symbols = [self.char_of[byte] for byte in chunk.encode("utf-8")]
                self.cache[chunk] = [self.ids[symbol] for symbol in self.merge(symbols)]
            ids += self.cache[chunk]
        return ids

    def merge(self, symbols):
        """["h", "e", "r"] -> ["he", "r"] -> ["her"].

        Each turn merges one pair wherever it occurs, from left to right.
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

        It holds back an incomplete character until the rest arrives.  If the last call has `final=True`, the
        pieces add up to `decode` of all ids.
        """
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        return lambda ids, final=False: decoder.decode(b"".join(map(self.to_bytes, ids)), final)


# -- what Hugging Face's files may ask for: skip on first reading --------------------------------------------

class Tokenizer(Encoder):
    """An Encoder with the extras that Hugging Face's files may ask for.

    added, space, around, eos_ids, bos      as in engine.loading.tokenizer.Files
    """

    def __init__(self, ids, merges, added, space, around, eos_ids, bos=None):
        super().__init__(ids, merges)
        self.added, self.space, self.around = {ids[token]: token for token in added}, bool(space), around
        self.eos_ids, self.start = {*eos_ids}, [] if bos is None else [bos]
        names = map(regex.escape, sorted(added, key=len, reverse=True))     # the longest match wins
        self.split = regex.compile(f"({'|'.join(names)})" if added else "((?!))").split

    def encode(self, text):
        ids = [*self.around[0]]
        for i, piece in enumerate(self.split(noted(text, self.added))):     # piece, added token, .., piece
            if i % 2:
                ids.append(self.ids[piece])
            elif piece:
                ids += super().encode(" " * (self.space and piece[0] != " ") + piece)
        return ids + self.around[1]

    def merge(self, symbols):
        return super().merge(with_token(symbols, self.ids))

    def to_bytes(self, i):
        return self.added[i].encode() if i in self.added else super().to_bytes(i)
