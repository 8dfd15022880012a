"""Downloads the text that the embedded pair is trained on: stories.txt, children's books, the same to the byte.

    python -m models.training.fetch [stories.txt] [--raw DIRECTORY]

books.tsv names 122 files of Project Gutenberg, each by repository and commit; those held out of the training
come last.  A downloaded file is stored in --raw, and not downloaded again.  In stories.txt each paragraph is
one line, and <|endoftext|> stands between the books.

Of each book the prose stays.  Gutenberg's header and footer, headings, lists, verse, notes, illustrations
and advertisements go, and so does every paragraph with one of the words of left_out.txt: racial words,
caricatured dialect, and words that mean something else by now.  That file holds their SHA-256.
"""
import csv
import hashlib
import os
import re
import sys
import unicodedata
from pathlib import Path

import requests
from tqdm import tqdm

from loading import command_line
from loading.files import rewrite

HERE = Path(__file__).parent
BOOKS, LEFT_OUT = HERE / "books.tsv", set((HERE / "left_out.txt").read_text().split())
SITE = "https://raw.githubusercontent.com/GITenberg"
CHECKSUM = "f0c1fdc7bcdf0da29484437b33f36869790b8f205c9ef38914ad3561751d47cc"           # sha256 of the whole
EOS = "<|endoftext|>"
NO_STORY = re.compile(r"""gutenberg|transcri|proofread|produced\sby|copyright|publish|grosset|printed|illustrat
    |frontispiece|postpaid|footnote|\bbound\sin|the\sauthor|author\sof|[;,]?\s(?-i:Or,?)\s|\bpage\s\d|changed\sto\b
    |errors?\b|complete\sin\sitself|normalized|italicized|spirited\stales|brunette|compiled|by\s[A-Z]\w+\sotis
    |dick\sand\sdolly|\breaders?\b|\beach\sbook|eagerly\swelcomed|\bbooks?\s(for|after)\b
    |the\schild\b.*\breading|conservation|^(?-i:[A-Z]\w+)(\s(the|(?-i:[A-Z]\w+)))*\.$|(?-i:\bBy\s[A-Z]{2})|\b(this|these|the|that|same|other)\sseries\b
    |\bvolumes?\b|\bchapters?\b|\betc\b|@|https?:|[|/*]|[;,]\sor,?\s(?-i:[A-Z])
    |\b(this|first|second|third|last|next|other)\sbooks?\b|\bbooks?\s(before|called|named)\b""", re.I | re.X)


def main(path="stories.txt", raw="raw"):
    """Downloads the text that the embedded pair is trained on.

    Args:
        path: where to write it
        raw: the directory of the downloaded files
    """
    if os.path.lexists(path):
        raise ValueError(f"{path} is there already: move it away, or name another file")
    rewrite(path, stories(raw))


def stories(raw):
    """The text.  Raises ValueError if it is not the one that the pair was trained on."""
    Path(raw).mkdir(parents=True, exist_ok=True)
    seen, books = set(), []
    with open(BOOKS, encoding="utf-8", newline="") as table:
        for row in tqdm([*csv.DictReader(table, delimiter="\t")], disable=None):
            books.append("\n".join(prose(raw_book(row, Path(raw)), seen)))
    text = EOS.join(books)
    if digest(text) != CHECKSUM:
        raise ValueError("the text is not the one that the pair was trained on (its checksum differs); "
                         "nothing was written")
    return text


def raw_book(row, raw):
    """The bytes of one row of books.tsv, from the directory `raw` if they are there."""
    path = raw / f"{row['repository']}.txt"
    if not path.exists():
        url = f"{SITE}/{row['repository']}/{row['commit']}/{row['file']}"
        try:
            answer = requests.get(url, timeout=30)
            answer.raise_for_status()
        except requests.RequestException as error:
            raise ValueError(f"{url} cannot be downloaded ({type(error).__name__}): check the connection and "
                             "start again") from None
        rewrite(path, answer.content)
    return path.read_bytes()


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def plain(raw):
    """A file of Project Gutenberg -> its book in ASCII, an empty line between blocks."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    text = re.sub(r"\[[^][]*\]", "", re.sub("\r+\n?", "\n", text))                # illustrations, notes
    text = re.search(r"\*\*\* ?START OF.*?\n(.*)\*\*\* ?END OF", text, re.S)[1]
    text = re.split(r"\n\s*(?:THE END|The End)\W*\n", text)[0]                    # advertisements follow
    for sign, ascii in ("“”", '"'), ("‘’", "'"), ("—", "--"), ("Æ", "AE"), ("_=", ""):
        text = re.sub(f"[{sign}]", ascii, text)
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def prose(raw, seen):
    """The paragraphs of a book, each one line.  `seen` collects the long ones, which occur once in all books."""
    for block in re.split(r"\n\s*\n", plain(raw)):
        lines = [" ".join(line.split()) for line in block.strip().split("\n")]
        verse = len(lines) > 1 and max(map(len, lines)) < 55
        line = re.sub(r"(?<=\w)- (?=[a-z])", "-", " ".join(lines))              # well-\nknown
        line = re.sub(r" ?--+ ?", " - ", line).strip(" -")
        line = re.sub(r"""- (?=[.,;:!?)]|["'](\W|$)|$)""", "-", line)
        heading = len(re.findall("[A-Z]", line)) > len(re.findall("[a-z]", line)) / 3
        line = re.sub(r"""^["']?(?=[A-Z ]*[A-Z]{2})[A-Z]+( [A-Z]+)*\b""", lambda run: run[0].title(), line)
        if verse or heading or not re.search(r"""^["'A-Z].*[.!?:,-]["')]*$""", line) or NO_STORY.search(line):
            continue
        words = re.findall("[a-z]+", line.lower())
        if any(digest(word) in LEFT_OUT for word in [*words, *map(" ".join, zip(words, words[1:]))]):
            continue
        if len(line) < 100 or line not in seen:
            seen.add(line)
            yield line


if __name__ == "__main__":
    sys.exit(command_line.run(main))
