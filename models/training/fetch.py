"""Downloads the text that the embedded pair was trained on: novels.txt, 62 MB, the same to the byte.

    python -m models.training.fetch [novels.txt]

The 80 novels of titles.txt come from a public collection, where some paragraphs are cut into lines of a
page's width.  In novels.txt each paragraph is one line, and <|endoftext|> stands between the books.

Limitations: an interrupted download has to start again from the beginning.
"""
import hashlib
import os
import re
import sys
from pathlib import Path

import requests
from tqdm import tqdm

from loading import command_line
from loading.files import rewrite

TITLES = Path(__file__).with_name("titles.txt")
CORPUS = ("https://raw.githubusercontent.com/computationalstylistics/100_english_novels/"
          "143e601875d70e195f2cc5ebd8b034609271194d/corpus/")
CHECKSUM = "18f7c736730f2d5168a3f688a7d168e4bd9d3efa53552d9cc85ed3803fec11fc"           # sha256 of the whole
EOS = "<|endoftext|>"
SHORT = 60              # characters: a shorter line ends its paragraph


def main(path="novels.txt"):
    """Downloads the text that the embedded pair was trained on.

    Args:
        path: where to write it
    """
    if os.path.lexists(path):
        raise ValueError(f"{path} is there already: move it away, or name another file")
    rewrite(path, novels())


def novels():
    """The text, downloaded.  Raises ValueError if it is not the one that the pair was trained on."""
    files = re.findall(r"^(\w+_\d{4}) \|", TITLES.read_text(encoding="utf-8"), re.M)
    text = EOS.join(paragraphs(downloaded(f"{CORPUS}{file}.txt")) for file in tqdm(files, disable=None))
    if hashlib.sha256(text.encode()).hexdigest() != CHECKSUM:
        raise ValueError("the downloaded text is not the one that the pair was trained on (its checksum "
                         "differs); nothing was written")
    return text


def downloaded(url):
    try:
        answer = requests.get(url, timeout=30)
        answer.raise_for_status()
    except requests.RequestException as error:
        raise ValueError(f"{url} cannot be downloaded ({type(error).__name__}): check the connection and "
                         "start again") from None
    return answer.content.decode("utf-8-sig")


def paragraphs(text):
    """One line per paragraph, one space between words."""
    lines, words = [], []
    for line in re.split("\r\n|\r|\n", text):
        words += line.split()
        if words and len(line.rstrip()) < SHORT:                # also an empty line
            lines.append(" ".join(words))
            words = []
    return "\n".join(lines + [" ".join(words)] * bool(words))


if __name__ == "__main__":
    sys.exit(command_line.run(main))
