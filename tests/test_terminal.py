"""The rounds on a terminal: what is written, in which style, and what never is."""
import io
import json
import os
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reporting import terminal
from encoder import EOS, Encoder, bytes_to_unicode
from main import main
from sampling import Round
from reporting.terminal import signs, watch

BYTES = bytes_to_unicode()


def encoder_of(*texts):
    """Tokens 0 .. 255 are the bytes, then come the texts, then EOS."""
    tokens = [*(bytes([b]) for b in range(256)), *(text.encode() for text in texts)]
    return Encoder({"".join(BYTES[b] for b in token): i for i, token in enumerate(tokens)} | {EOS: len(tokens)}, [])


ENCODER = encoder_of(" the", " sea", " was", " of", "\n", " a")
THE, SEA, WAS, OF, LINE, A, END = range(256, 263)
ROUNDS = [Round([THE, SEA, OF], [THE, SEA, WAS, A], 2, None, None), Round([THE, LINE], [THE], 1, None, None)]


class Terminal(io.TextIOWrapper):
    def __init__(self):
        super().__init__(io.BytesIO(), encoding="utf-8", newline="\n")

    def isatty(self):
        return True

    def text(self):
        self.flush()
        return self.buffer.getvalue().decode("utf-8")


def written(rounds, encoder=ENCODER, out=None, **style):
    out = out or io.StringIO()
    assert list(watch(rounds, encoder, out, "Title", "Prompt", **style)) == list(rounds)
    return out.text() if isinstance(out, Terminal) else out.getvalue()


def without_style(text):
    return re.sub("\x1b\\[[0-9;]*m", "", text)


def test_accepted_is_green_rejected_red_and_struck_the_targets_own_blue(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert written([*ROUNDS, Round([OF], [], 0, None, None)], out=Terminal()) == (
        "Title\n-----\nPrompt \x1b[32mthe\x1b[0m \x1b[32msea\x1b[0m \x1b[31;9mwas\x1b[0m \x1b[1;94mof\x1b[0m \x1b[32mthe\x1b[0m"
        "\x1b[1;94m\n\x1b[0m of\n")


@pytest.mark.parametrize("why", ["no terminal", "NO_COLOR", "dumb terminal"])
@pytest.mark.parametrize("show_rounds", [False, True])
def test_where_colour_is_not_wanted_there_is_no_escape_code(monkeypatch, why, show_rounds):
    monkeypatch.setenv("NO_COLOR", "1" if why == "NO_COLOR" else "")
    monkeypatch.setenv("TERM", "dumb" if why == "dumb terminal" else "xterm")
    text = written(ROUNDS, out=None if why == "no terminal" else Terminal(), show_rounds=show_rounds)
    assert "\x1b" not in text
    if not show_rounds:
        assert text == "Title\n-----\nPrompt the sea of the\n\n"


def test_show_rounds_prints_a_line_a_round_then_the_text():
    assert written(ROUNDS, show_rounds=True) == (
        "Title\n-----\n"
        "round       +accepted -rejected .not tested =the target's own\n"
        "    1   2/4 +·the +·sea -·was .·a =·of\n"
        "    2   1/1 +·the =↵\n"
        "\nPrompt the sea of the\n\n")


@pytest.mark.parametrize("columns", [40, 100])
def test_no_line_of_show_rounds_is_wider_than_the_terminal(monkeypatch, columns):
    monkeypatch.setattr(terminal.shutil, "get_terminal_size", lambda: os.terminal_size((columns, 24)))
    wide = encoder_of(" 漢字", " extraordinary")
    rounds = [Round([256, 257, 256, 257], [256, 257, 256, 256, 257, 257], 3, None, None)] * 12
    lines = without_style(written(rounds, wide, Terminal(), show_rounds=True)).split("\n\nPrompt")[0].split("\n")[2:]
    assert max(map(terminal.cells, lines)) <= columns
    assert sum(bool(line[:5].strip().isdigit()) for line in lines) == 12
    joined = re.sub(r"\s+", " ", " ".join(lines))
    assert joined.count("12 3/6 +·漢字 +·extraordinary +·漢字 -·漢字 .·extraordinary .·extraordinary =·extraordinary") == 1


@given(st.text(alphabet="aé—漢😀\u0301", min_size=1, max_size=8), st.randoms(use_true_random=False), st.booleans())
def test_characters_of_several_bytes_are_never_broken(text, chance, colour):
    """Every byte is a token here, and any of them may be an accepted draft, a correction or a bonus."""
    data, rounds = list(text.encode()), []
    while data:
        n = chance.randrange(min(4, len(data)))
        rejected = [chance.randrange(128, 256)] if chance.random() < .5 else []
        rounds.append(Round(data[:n + 1], data[:n] + rejected, n, None, None))
        data = data[n + 1:]
    assert written(rounds, colour=False) == f"Title\n-----\nPrompt{text}\n"
    shown = written(rounds, colour=colour)
    assert "\ufffd" not in shown
    kept = re.sub(r"\x1b\[31;9m.*?\x1b\[0m", "", shown)                         # without the rejected
    assert without_style(kept) == f"Title\n-----\nPrompt{text}\n"
    assert written(rounds, colour=colour, show_rounds=True).endswith(f"\nPrompt{text}\n")


def test_half_a_character_at_the_end_is_told_as_the_text_tells_it():
    assert written([Round([0xe2, 0x80], [0xe2], 1, None, None)]).endswith("Prompt" + ENCODER.decode([0xe2, 0x80]) + "\n")


@pytest.mark.parametrize("show_rounds", [False, True])
def test_eos_is_never_printed(show_rounds):
    rounds = [Round([THE, OF], [THE, END], 1, None, None), Round([THE, END], [THE, END, A], 2, None, None),
              Round([END], [], 0, None, None)]
    for colour in (False, True):
        text = written(rounds, colour=colour, show_rounds=show_rounds)
        assert EOS not in text and without_style(text).endswith("Prompt the of the\n")
        assert ("(end)" in text) == show_rounds


def test_what_follows_an_accepted_eos_was_never_tested_for_the_reader():
    assert signs(Round([THE, END], [THE, END, A], 2, None, None)) == [("+", THE), ("+", END), (".", A)]


def test_what_a_terminal_would_obey_is_shown_and_not_sent():
    clear = [*b"\x1b[2J\r\x07"]
    rounds = [Round([*clear, THE], clear, len(clear), None, None), Round([THE], clear[:1], 0, None, None)]
    for show_rounds in (False, True):
        for colour in (False, True):
            text = without_style(written(rounds, colour=colour, show_rounds=show_rounds))
            assert not set(text) & {"\x1b", "\r", "\x07"}
    assert "\\x1b[2J\\x0d\\x07 the" in written(rounds)


def test_each_round_is_written_before_the_next_is_asked_for():
    out, asked = io.StringIO(), []

    def rounds():
        for r in ROUNDS:
            asked.append(out.getvalue())
            yield r
    list(watch(rounds(), ENCODER, out, "Title", "Prompt"))
    assert asked == ["Title\n-----\nPrompt", "Title\n-----\nPrompt the sea of"]


# The command line ---------------------------------------------------------------------------------------------------------------

def test_on_a_terminal_the_text_streams_in_colour_and_elsewhere_it_is_plain(monkeypatch, capsys):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    arguments = ["--temperature", "1", "-n", "20"]
    assert main(arguments) == 0
    plain = capsys.readouterr().out
    screen = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", screen)
        assert main(arguments) == 0
    coloured = screen.text()
    one, two = coloured.split("Speculative sampling")
    assert "\x1b" not in plain + one and "\x1b[32m" in two and "\x1b[31;9m" in two and "\x1b[1;94m" in two

    def texts(output):                                          # without the rejected, the styles and the times
        return re.findall(r"-\n(.*?)\n\nTime", without_style(re.sub(r" ?\x1b\[31;9m.*?\x1b\[0m", "", output)), re.S)
    assert texts(coloured) == texts(plain) and len(texts(plain)) == 2


def test_with_json_standard_output_is_json_alone(capsys):
    assert main(["--json", "--show_rounds", "-n", "8"]) == 0
    out, err = capsys.readouterr()
    assert len(json.loads(out)["speculative"]["tokens"]) == 8 and err == ""


def test_show_rounds_shows_the_rounds_and_the_text(capsys):
    assert main(["--json", "--temperature", "1", "-n", "20"]) == 0
    r = json.loads(capsys.readouterr().out)
    assert main(["--show_rounds", "--temperature", "1", "-n", "20"]) == 0
    out = capsys.readouterr().out
    assert f"\n\n{r['prompt']}{r['speculative']['text']}\n\nTime" in out
    lines = re.findall(r"^ +\d+ +(\d+)/(\d+) (.*)$", out, re.M)
    assert len(lines) == r["speculative"]["rounds"]
    for accepted, drafted, tokens in lines:
        counts = [len(re.findall(rf"(?:^| )\{sign}\S", tokens)) for sign in "+-.="]
        assert counts[0] == int(accepted) and sum(counts[:3]) == int(drafted) and counts[3] == 1
