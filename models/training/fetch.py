"""Download the text the bundled pair is trained on: stories.txt, 15 MB, the same to the byte.

    python -m models.training.fetch [stories.txt] [--raw DIRECTORY]

books.tsv lists 122 children's books of Project Gutenberg, each by repository and commit; those held out of
the training come last.  Downloaded files are kept in --raw and not downloaded again.  In stories.txt each
paragraph is one line, and <|endoftext|> separates the books.

Only the prose of each book is kept.  Gutenberg's header and footer, headings, lists, verse, notes, captions
and advertisements are removed (no_story.txt is a regular expression that finds many of them), and so is every
paragraph with a word or a pair of words from left_out.txt: racial words, caricatured dialect, and words that
have changed their meaning.  That file has their SHA-256.
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

from encoder import EOS
from engine.loading import command_line
from engine.loading.files import rewrite

HERE = Path(__file__).parent
BOOKS, LEFT_OUT = HERE / "books.tsv", set((HERE / "left_out.txt").read_text().split())
SITE = "https://raw.githubusercontent.com/GITenberg"
CHECKSUM = "f0c1fdc7bcdf0da29484437b33f36869790b8f205c9ef38914ad3561751d47cc"           # sha256 of the whole
NO_STORY = re.compile((HERE / "no_story.txt").read_text(encoding="utf-8"), re.I | re.X)


def main(path="stories.txt", raw="models/training/work/raw"):
    """Download the text the bundled pair is trained on.

    Args:
        path: where to write it
        raw: the directory of the downloaded files
    """
    if os.path.lexists(path):
        raise ValueError(f"{path} exists: move it away, or name another file")
    Path(raw).mkdir(parents=True, exist_ok=True)
    rows, seen = [*csv.DictReader(BOOKS.read_text(encoding="utf-8").splitlines(), delimiter="\t")], set()
    text = EOS.join("\n".join(clean_book(download(row, Path(raw)), seen)) for row in tqdm(rows, disable=None))
    if checksum(text) != CHECKSUM:
        raise ValueError("the text is not the one the pair was trained on (its checksum differs); "
                         "nothing was written")
    rewrite(path, text)


def checksum(text):
    return hashlib.sha256(text.encode()).hexdigest()


def download(row, raw):
    """A row of books.tsv -> the bytes of its file, from the directory `raw` if they are there."""
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


def read_ascii(raw):
    """A file of Project Gutenberg -> its book in ASCII, an empty line between blocks."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    text = re.sub(r"\[[^][]*\]", "", re.sub("\r+\n?", "\n", text))              # captions, notes
    text = re.search(r"\*\*\* ?START OF.*?\n(.*)\*\*\* ?END OF", text, re.S)[1]
    text = re.split(r"\n\s*(?:THE END|The End)\W*\n", text)[0]                  # advertisements follow
    for signs, plain in ("“”", '"'), ("‘’", "'"), ("—", "--"), ("Æ", "AE"), ("_=", ""):
        text = re.sub(f"[{signs}]", plain, text)
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def clean_book(raw, seen):
    """The paragraphs of a book, each on one line.  `seen` collects those of all books, so that a long one
    occurs only once."""
    for block in re.split(r"\n\s*\n", read_ascii(raw)):
        lines = [" ".join(line.split()) for line in block.strip().split("\n")]
        line = re.sub(r"(?<=\w)- (?=[a-z])", "-", " ".join(lines))              # well-\nknown
        line = re.sub(r" ?--+ ?", " - ", line).strip(" -")
        line = re.sub(r"""- (?=[.,;:!?)]|["'](\W|$)|$)""", "-", line)
        verse = len(lines) > 1 and max(map(len, lines)) < 55
        heading = len(re.findall("[A-Z]", line)) > len(re.findall("[a-z]", line)) / 3
        line = re.sub(r"""^["']?(?=[A-Z ]*[A-Z]{2})[A-Z]+( [A-Z]+)*\b""", lambda run: run[0].title(), line)
        sentence = re.search(r"""^["'A-Z].*[.!?:,-]["')]*$""", line)
        words = re.findall("[a-z]+", line.lower())
        pairs = map(" ".join, zip(words, words[1:]))
        if (sentence and not verse and not heading and not NO_STORY.search(line)
                and not any(checksum(word) in LEFT_OUT for word in [*words, *pairs])
                and (len(line) < 100 or line not in seen)):
            seen.add(line)
            yield line


if __name__ == "__main__":
    sys.exit(command_line.run(main))
