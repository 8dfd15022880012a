"""Byte-level BPE, GPT-2's tokenizer: text -> token ids, and back  (Radford et al. 2019, section 2.2).

Three steps.  A regular expression cuts the text into chunks: words with the space before them, numbers,
punctuation, white space.  Each chunk becomes UTF-8 bytes, one printable character a byte.  Then the adjacent
pair of lowest rank is merged, again and again, until no ranked pair is left.  In a textbook:

    def merge(symbols, ranks):                                  # ["h", "e", "r"] -> ["he", "r"] -> ["her"]
        while pairs := [pair for pair in zip(symbols, symbols[1:]) if pair in ranks]:
            i = list(zip(symbols, symbols[1:])).index(min(pairs, key=ranks.get))
            symbols[i:i + 2] = [symbols[i] + symbols[i + 1]]
        return symbols

`Encoder.merge` below gives the same symbols, faster.

But: the text "<|endoftext|>" in a prompt is ordinary text, as in OpenAI's code; no other token ends a text,
whatever a config.json says; training a vocabulary is in training/train.py.
"""
import codecs
import heapq
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
    others = [b for b in range(256) if b not in printable]      # the others take 256, 257, ... in their order
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}


class Encoder:
    """`ids`: dict token -> id.  `merges`: list of pairs of tokens, lowest rank first."""

    def __init__(self, ids, merges):
        self.ids = ids
        self.tokens = {i: token for token, i in ids.items()}
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.char_of = bytes_to_unicode()
        self.byte_of = {char: byte for byte, char in self.char_of.items()}
        self.cache = {}                                         # words repeat: chunk -> ids
        self.n_vocab = len(ids)
        self.eos = ids.get(EOS)

    def encode(self, text):
        """str -> list[int].  ValueError for half a surrogate pair, which UTF-8 cannot hold."""
        ids = []
        for chunk in CHUNKS.findall(text):
            if chunk not in self.cache:
                try:
                    symbols = [self.char_of[byte] for byte in chunk.encode("utf-8")]
                except UnicodeEncodeError as error:
                    raise ValueError(f"the text holds a lone surrogate ({chunk[error.start]!r}), which is no "
                                     "character: give it as valid UTF-8") from None
                self.cache[chunk] = [self.ids[symbol] for symbol in self.merge(symbols)]
            ids += self.cache[chunk]
        return ids

    def merge(self, symbols):
        """What `merge` at the top of this file does, the leftmost of equal pairs first; changes `symbols`.

        The textbook looks through the whole chunk for every merge, and so does OpenAI's code.  Here the pairs
        wait in a heap and the symbols are a linked list, so a chunk of n symbols takes n log n steps, and a
        megabyte without a space is no trap.
        """
        n = len(symbols)
        left, right = list(range(-1, n - 1)), list(range(1, n + 1))
        pairs = enumerate(zip(symbols, symbols[1:]))
        heap = [(self.ranks[pair], i) for i, pair in pairs if pair in self.ranks]
        heapq.heapify(heap)
        while heap:
            rank, i = heapq.heappop(heap)
            j = right[i]
            if j == n or self.ranks.get((symbols[i], symbols[j])) != rank:
                continue                                        # one of the two has merged with another since
            symbols[i] += symbols[j]
            symbols[j] = None
            right[i] = right[j]
            if right[i] < n:
                left[right[i]] = i
            for a, b in ((left[i], i), (i, right[i])):          # the two pairs that the new symbol belongs to
                if 0 <= a and b < n and (pair := (symbols[a], symbols[b])) in self.ranks:
                    heapq.heappush(heap, (self.ranks[pair], a))
        return [symbol for symbol in symbols if symbol is not None]

    def decode(self, ids):
        """list[int] -> str.

        Unknown ids become U+FFFD, as do bytes that are no UTF-8: a token may end inside a character.
        """
        return b"".join(map(self.to_bytes, ids)).decode("utf-8", errors="replace")

    def to_bytes(self, i):
        """The bytes of one token."""
        token = self.tokens.get(int(i), "\ufffd")
        return b"".join(bytes([self.byte_of[char]]) if char in self.byte_of
                        else char.encode("utf-8", "replace") for char in token)

    def stream(self):
        """A function list[int] -> str for text that arrives bit by bit.

        It keeps an unfinished character until the rest has come.  The pieces joined, the last asked for with
        `final=True`, are `decode` of all ids.
        """
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        return lambda ids, final=False: decoder.decode(b"".join(map(self.to_bytes, ids)), final)


def load_encoder(folder):
    """The Encoder of a folder: encoder.json + vocab.bpe (OpenAI), or vocab.json + merges.txt (Hugging Face).

    Raises ValueError where a file is missing or damaged.
    """
    folder = Path(folder)
    openai = (folder / "encoder.json").exists() or (folder / "hparams.json").exists()
    names = ("encoder.json", "vocab.bpe") if openai else ("vocab.json", "merges.txt")
    ids_file, merges_file = (folder / name for name in names)
    try:
        for file in ids_file, merges_file:
            if not file.is_file():                              # a pipe would be waited for
                raise OSError(f"{file.name} is missing, or no file")
        ids = json.loads(ids_file.read_text(encoding="utf-8"))
        lines = merges_file.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot read the vocabulary in {folder} ({error}): "
                         "fetch the folder's files again") from None
    merges = [tuple(line.split()) for line in lines if line and not line.startswith("#version")]
    if not belong_together(ids, merges):
        raise ValueError(f"the vocabulary in {folder} is damaged ({ids_file.name} and {merges_file.name} do "
                         "not fit together): fetch the folder's files again")
    return Encoder(ids, merges)


def belong_together(ids, merges):
    """Whether the ids are 0 .. n - 1, and the tokens are all that bytes and merges can give.

    No merge occurs twice.  A token that is no byte and comes from no merge must be a special one, <|like
    this|>.
    """
    if not isinstance(ids, dict) or not all(type(i) is int for i in ids.values()):
        return False
    if sorted(ids.values()) != list(range(len(ids))) or not all(len(pair) == 2 for pair in merges):
        return False
    if len(set(merges)) < len(merges):              # a download that was resumed at the wrong place
        return False
    ordinary = {*bytes_to_unicode().values(), *map("".join, merges)}
    return ordinary <= ids.keys() and all(token.startswith("<") for token in ids.keys() - ordinary)
