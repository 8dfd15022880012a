"""fetch.py: a paragraph becomes one line; without the network, or if a text differs, nothing is written."""
import hashlib

import pytest

from loading import command_line
from models.training import fetch

LONG = "It was a dark and stormy night; the rain fell in torrents, except"


@pytest.mark.parametrize("text, wanted", [
    (f"CHAPTER I\r\n{LONG}\r\nat  times.\r\nThen", f"CHAPTER I\n{LONG} at times.\nThen"),
    (f"{LONG}\n \n{LONG}\n", f"{LONG}\n{LONG}"),                     # an empty line ends any paragraph
    (f"{'x' * 60}\ny", f"{'x' * 60} y"), (f"{'x' * 59}  \ny", f"{'x' * 59}\ny")])
def test_a_paragraph_is_a_line(text, wanted):
    assert fetch.paragraphs(text) == wanted


def test_all_80_are_asked_for_and_only_the_very_text_is_written(monkeypatch, tmp_path, capsys):
    asked, path = [], tmp_path / "novels.txt"
    monkeypatch.setattr(fetch, "downloaded", lambda url: asked.append(url) or "The end.\r\n")
    assert command_line.run(fetch.main, [str(path)]) == 2 and "checksum" in capsys.readouterr().err
    assert len(set(asked)) == 80 and all(url.endswith(".txt") for url in asked) and not path.exists()
    text = "<|endoftext|>".join(["The end."] * 80).encode()
    monkeypatch.setattr(fetch, "CHECKSUM", hashlib.sha256(text).hexdigest())
    assert command_line.run(fetch.main, [str(path)]) == 0 and path.read_bytes() == text
    assert command_line.run(fetch.main, [str(path)]) == 2 and "is there already" in capsys.readouterr().err


def test_without_the_network_there_is_one_sentence(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(fetch, "CORPUS", "http://127.0.0.1:1/")
    assert command_line.run(fetch.main, [str(tmp_path / "novels.txt")]) == 2
    said = capsys.readouterr().err.strip()
    assert "check the connection" in said and "\n" not in said and not [*tmp_path.iterdir()]
