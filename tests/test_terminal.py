"""The rounds on a terminal: what is written, in which style, and what never is."""
import io
import json
import os
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder import EOS, Encoder, bytes_to_unicode
from main import main
from reporting import terminal
from reporting.terminal import signs, watch
from sampling import Round

BYTES = bytes_to_unicode()


def encoder_of(*texts):
    """Tokens 0 .. 255 are the bytes, then come the texts, then EOS."""
    tokens = [*(bytes([b]) for b in range(256)), *(text.encode() for text in texts)]
    ids = {"".join(BYTES[b] for b in token): i for i, token in enumerate(tokens)}
    return Encoder(ids | {EOS: len(tokens)}, [])


ENCODER = encoder_of(" the", " sea", " was", " of", "\n", " a")
THE, SEA, WAS, OF, LINE, A, END = range(256, 263)
ROUNDS = [Round([THE, SEA, OF], [THE, SEA, WAS, A], 2, None, None), Round([THE, LINE], [THE], 1, None, None)]
STYLES = [dict(show_rounds=rounds, colour=colour) for rounds in (False, True) for colour in (False, True)]


class Terminal(io.TextIOWrapper):
    def __init__(self):
        super().__init__(io.BytesIO(), encoding="utf-8", newline="\n")

    def isatty(self):
        return True

    def text(self):
        self.flush()
        return self.buffer.getvalue().decode("utf-8")


def written(rounds, encoder=ENCODER, out=None, prompt="Prompt", **style):
    out = out or io.StringIO()
    assert list(watch(rounds, encoder, out, "Title", prompt, **style)) == list(rounds)
    return out.text() if isinstance(out, Terminal) else out.getvalue()


def without_style(text):
    return re.sub("\x1b\\[[0-9;]*m", "", text)


@pytest.fixture
def columns(monkeypatch):
    """columns(n): the terminal has so many."""
    size = terminal.shutil, "get_terminal_size"
    return lambda n: monkeypatch.setattr(*size, lambda: os.terminal_size((n, 24)))


LEGEND = "(colours: \x1b[32maccepted\x1b[0m, \x1b[31;9mrejected\x1b[0m, \x1b[1;94mthe target's own\x1b[0m)\n"


def test_accepted_is_green_rejected_red_and_struck_the_targets_own_blue(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert written([*ROUNDS, Round([OF], [], 0, None, None)], out=Terminal()) == (
        "Title\n-----\nPrompt \x1b[32mthe\x1b[0m \x1b[32msea\x1b[0m \x1b[31;9mwas\x1b[0m \x1b[1;94mof\x1b[0m"
        " \x1b[32mthe\x1b[0m\n of\n" + LEGEND)


@pytest.mark.parametrize("out, no_colour, term", [
    (None, "", "xterm"), (Terminal, "1", "xterm"), (Terminal, "", "dumb")])
def test_where_colour_is_not_wanted_there_is_no_escape_code(monkeypatch, out, no_colour, term):
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setenv("TERM", term)
    assert "\x1b" not in written(ROUNDS, out=out and out(), show_rounds=True)
    assert written(ROUNDS, out=out and out()) == "Title\n-----\nPrompt the sea of the\n\n"


def test_show_rounds_prints_a_line_a_round_then_the_text():
    assert written(ROUNDS, show_rounds=True) == (
        "Title\n-----\n"
        "round       +accepted -rejected .not used =the target's own\n"
        "    1   2/4 +·the +·sea -·was .·a =·of\n"
        "    2   1/1 +·the =↵\n"
        "\nPrompt the sea of the\n\n")


@given(st.text(alphabet="aé—漢😀\u0301", min_size=1, max_size=8), st.randoms(use_true_random=False),
       st.booleans())
def test_characters_of_several_bytes_are_never_broken(text, chance, colour):
    """Every byte is a token here, and any of them may be an accepted draft, a correction or a bonus."""
    data, rounds = list(text.encode()), []
    while data:
        n = chance.randrange(min(4, len(data)))
        rejected = [chance.randrange(128, 256)] if chance.random() < .5 else []
        rounds.append(Round(data[:n + 1], data[:n] + rejected, n, None, None))
        data = data[n + 1:]
    shown = written(rounds, colour=colour)
    assert "\ufffd" not in shown
    kept = re.sub(r"\x1b\[31;9m.*?\x1b\[0m", "", shown.removesuffix(LEGEND))    # without the rejected
    assert without_style(kept) == f"Title\n-----\nPrompt{text}\n"
    assert written(rounds, colour=colour, show_rounds=True).endswith(f"\nPrompt{text}\n")


def test_half_a_character_at_the_end_is_shown_as_decode_shows_it():
    text = written([Round([0xE2, 0x80], [0xE2], 1, None, None)])
    assert text.endswith("Prompt" + ENCODER.decode([0xE2, 0x80]) + "\n")


@pytest.mark.parametrize("style", STYLES, ids=str)
def test_eos_is_never_printed(style):
    rounds = [Round([THE, OF], [THE, END], 1, None, None), Round([THE, END], [THE, END, A], 2, None, None),
              Round([END], [], 0, None, None)]
    text = written(rounds, **style).removesuffix(LEGEND)
    assert EOS not in text and without_style(text).endswith("Prompt the of the\n")
    assert ("(end)" in text) == style["show_rounds"]


@pytest.mark.parametrize("style", STYLES, ids=str)
def test_what_a_terminal_would_obey_is_shown_and_not_sent(style):
    """Also U+0080 to U+009F: some terminals obey U+009B as they obey ESC [."""
    encoder = encoder_of("\x80", "\x9b", "\x9f", "\x7f")
    clear = [*b"\x1b[2J\r\x07", *range(256, 260)]
    rounds = [Round([*clear, *b"Hi"], clear, len(clear), None, None), Round([65], clear[:1], 0, None, None)]
    text = without_style(written(rounds, encoder, prompt="\x1b[2J\x9b2JHi", **style))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text) and "\n\\x1b[2J\\x9b2JHi" in text
    assert "\\x1b[2J\\x0d\\x07\\x80\\x9b\\x9f\\x7f" in text


def test_each_round_is_written_before_the_next_is_asked_for():
    out, asked = io.StringIO(), []

    def rounds():
        for r in ROUNDS:
            asked.append(out.getvalue())
            yield r
    list(watch(rounds(), ENCODER, out, "Title", "Prompt"))
    assert asked == ["Title\n-----\nPrompt", "Title\n-----\nPrompt the sea of"]


# Signs ------------------------------------------------------------------------------------------------------

def test_what_ends_a_run_early_is_said_below_the_text():
    def rounds():
        yield ROUNDS[0]
        raise KeyError
    for show_rounds in False, True:
        out = Terminal()
        with pytest.raises(KeyError):
            list(watch(rounds(), ENCODER, out, "Title", "prompt", show_rounds=show_rounds))
        said = without_style(out.text())
        assert said.endswith("\n") and ("prompt the sea was of" in said) != show_rounds


def test_of_a_tree_the_path_is_accepted_and_the_other_nodes_were_not_taken():
    """Root -> the, the, sea; the second "the" -> of; of -> was, a.  The path: the second "the", of, a."""
    r = Round([THE, OF, A, LINE], [THE, THE, SEA, OF, WAS, A], 3, None, None, parents=[-1, -1, -1, 1, 3, 3])
    assert signs(r) == [("+", THE), ("+", OF), ("+", A), (".", THE), (".", SEA), (".", WAS), ("=", LINE)]
    assert written([r], colour=False) == "Title\n-----\nPrompt the of a\n\n"


def test_in_block_verification_every_draft_that_is_not_kept_is_rejected():
    assert signs(ROUNDS[0], block=True) == [("+", THE), ("+", SEA), ("-", WAS), ("-", A), ("=", OF)]


@pytest.mark.parametrize("block", [False, True])
def test_what_follows_an_accepted_eos_was_never_tested(block):
    ended = Round([THE, END], [THE, END, A], 2, None, None)
    assert signs(ended, block) == [("+", THE), ("+", END), (".", A)]


# Lines ------------------------------------------------------------------------------------------------------

def test_a_column_more_or_less_is_counted_for_wide_and_combining_characters():
    assert list(map(terminal.cells, ["ab", "漢字", "e\u0301", "\uff21", "\t", ""])) == [2, 4, 1, 2, 8, 0]


def test_a_line_is_as_wide_as_the_terminal_and_no_wider():
    tokens = [("+", "cd"), ("-", "ef"), ("=", "gh")]                    # a space, the sign, two columns
    assert terminal.aligned("ab", tokens, 14, None) == "ab +cd -ef =gh\n"
    assert terminal.aligned("ab", tokens, 13, None) == "ab +cd -ef\n   =gh\n"
    assert terminal.aligned("ab", tokens, 1, None) == "ab +cd\n   -ef\n   =gh\n"


def test_no_line_of_show_rounds_is_wider_than_the_terminal(columns):
    columns(40)
    rounds = [Round([256, 257, 256, 257], [256, 257, 256, 256, 257, 257], 3, None, None)] * 12
    words = encoder_of(" 漢字", " extraordinary")
    shown = without_style(written(rounds, words, Terminal(), show_rounds=True))
    lines = shown.split("\n\nPrompt")[0].split("\n")[2:]
    assert max(map(terminal.cells, lines)) <= 40
    twelfth = "12 3/6 +·漢字 +·extraordinary +·漢字 -·漢字" + 2 * " .·extraordinary" + " =·extraordinary"
    assert re.sub(r"\s+", " ", " ".join(lines)).endswith(twelfth)


@pytest.mark.parametrize("show_rounds", [False, True])
def test_on_a_terminal_no_word_of_the_text_is_broken(columns, show_rounds):
    columns(30)
    prompt = "A prompt of some more words than a line can hold is broken, too."
    rounds = [Round([256, 257, 258, 259], [256, 257, 258, 256], 3, None, None)] * 9
    shown = written(rounds, encoder_of(" extra", "ordin", "ary", " in"), Terminal(), prompt, colour=True,
                    show_rounds=show_rounds)
    shown = without_style(shown.removesuffix(LEGEND)).split("\n\n" if show_rounds else "-----\n")[1]
    lines = shown.split("\n")
    assert max(map(len, lines)) <= 30 and min(map(len, lines[:-2])) > 12
    kept = [word for word in shown.split() if show_rounds or word != "extra"]       # without the rejected
    assert kept == prompt.split() + ["extraordinary", "in"] * 9


def test_on_a_terminal_a_line_is_filled_to_its_last_column(columns):
    columns(11)
    rounds = [Round([THE] * 6, [], 0, None, None)]
    text = written(rounds, out=Terminal(), prompt="abc", colour=False)
    assert text.endswith("\nabc the the\nthe the the\nthe\n")


def test_on_a_terminal_lines_are_counted_from_the_last_break(columns):
    columns(12)
    assert written([Round([THE, LINE, THE, SEA], [], 0, None, None)], out=Terminal(), colour=False).endswith(
        "\nPrompt the\n the sea\n")


def test_on_a_terminal_text_without_spaces_is_not_held_back(columns):
    columns(20)
    out, encoder = Terminal(), encoder_of("漢字漢字漢字")
    rounds = [Round([256], [], 0, None, None)] * 9
    for number, _ in enumerate(watch(rounds, encoder, out, "Title", "Prompt"), 1):
        assert out.text().count("漢") >= 3 * (number - 1)


# The command line -------------------------------------------------------------------------------------------

FLAGS = dict(temperature=1.0, n_tokens_to_generate=12)


def test_on_a_terminal_the_text_streams_in_colour_and_elsewhere_it_is_plain(monkeypatch, capsys):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    main(**FLAGS)
    plain, screen = capsys.readouterr().out, Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    main(**FLAGS)
    coloured = screen.text()
    one, two = coloured.split("Speculative sampling")
    assert "\x1b" not in plain + one and "\x1b[32m" in two and "\x1b[31;9m" in two and "\x1b[1;94m" in two

    def texts(output):              # without the rejected, the styles, the breaks of the lines and the times
        output = without_style(re.sub(r"\s?\x1b\[31;9m.*?\x1b\[0m", "", output.replace(LEGEND, "")))
        return [re.sub(r"\s", " ", text) for text in re.findall(r"-\n(.*?)\n\nTime", output, re.S)]
    assert texts(coloured) == texts(plain) and len(texts(plain)) == 2


def test_show_rounds_shows_the_rounds_and_the_text_and_json_is_json_alone(capsys):
    main(json=True, **FLAGS)
    out, err = capsys.readouterr()
    r = json.loads(out)
    assert len(r["speculative"]["tokens"]) == 12 and err == ""
    main(show_rounds=True, **FLAGS)
    out = capsys.readouterr().out
    assert f"\n\n{r['prompt']}{r['speculative']['text']}\n\nTime" in out
    lines = re.findall(r"^ +\d+ +(\d+)/(\d+) (.*)$", out, re.M)
    assert len(lines) == r["speculative"]["rounds"]
    for accepted, drafted, tokens in lines:
        counts = [len(re.findall(rf"(?:^| )\{sign}\S", tokens)) for sign in "+-.="]
        assert counts[0] == int(accepted) and sum(counts[:3]) == int(drafted) and counts[3] == 1
