"""fetch.py keeps only the prose of a Project Gutenberg file, and writes nothing if a text differs."""
import pytest
from helpers import FIXTURES

from engine.loading import command_line
from models.training import fetch

BOOK = (FIXTURES / "book.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("encode", [str.encode, lambda text: text.replace("\n", "\r\n").encode()],
                         ids=["lines", "lines of Windows"])
def test_of_a_book_the_prose_stays(encode, monkeypatch):
    wanted = ["One morning the fox, who lived under a hill and was a well-known thief, woke up. "
              '"It\'s late," he said - "too late."', '"Where are you going?" asked the crow.']
    monkeypatch.setattr(fetch, "LEFT_OUT", {fetch.checksum("wicked")})
    seen = set()
    assert [*fetch.clean_book(encode(BOOK), seen)] == wanted
    assert [*fetch.clean_book(encode(BOOK), seen)] == wanted[1:]                     # the long one once
    monkeypatch.setattr(fetch, "LEFT_OUT", {fetch.checksum("you going"), fetch.checksum("wicked fox")})
    assert [*fetch.clean_book(encode(BOOK), set())] == wanted[:1]


def test_all_books_are_asked_for_and_only_the_very_text_is_written(monkeypatch, tmp_path, capsys):
    asked, path = [], tmp_path / "stories.txt"
    run = [str(path), "--raw", str(tmp_path / "raw")]

    def get(url, timeout):
        asked.append(url)
        return type("Answer", (), dict(content=BOOK.encode(), raise_for_status=lambda self: None))()

    monkeypatch.setattr(fetch.requests, "get", get)
    assert command_line.run(fetch.main, run) == 2 and "checksum" in capsys.readouterr().err
    assert len(set(asked)) == len(asked) == 122 and not path.exists()
    seen = set()
    text = "<|endoftext|>".join("\n".join(fetch.clean_book(BOOK.encode(), seen)) for _ in asked)
    monkeypatch.setattr(fetch, "CHECKSUM", fetch.checksum(text))
    assert command_line.run(fetch.main, run) == 0 and path.read_text() == text and len(asked) == 122
    assert command_line.run(fetch.main, run) == 2 and "exists: move it" in capsys.readouterr().err


def test_without_the_network_there_is_one_sentence(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(fetch, "SITE", "http://127.0.0.1:1")
    assert command_line.run(fetch.main, [str(tmp_path / "stories.txt"), "--raw", str(tmp_path / "raw")]) == 2
    said = capsys.readouterr().err.strip()
    assert "check the connection" in said and "\n" not in said and not (tmp_path / "stories.txt").exists()
