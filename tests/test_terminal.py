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
    return Encoder(
        {"".join(BYTES[b] for b in token): i for i, token in enumerate(tokens)} | {EOS: len(tokens)}, []
    )


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


def written(rounds, encoder=ENCODER, out=None, prompt="Prompt", **style):
    out = out or io.StringIO()
    assert list(watch(rounds, encoder, out, "Title", prompt, **style)) == list(rounds)
    return out.text() if isinstance(out, Terminal) else out.getvalue()


def without_style(text):
    return re.sub("\x1b\\[[0-9;]*m", "", text)


LEGEND = "(colours: \x1b[32maccepted\x1b[0m, \x1b[31;9mrejected\x1b[0m, \x1b[1;94mthe target's own\x1b[0m)\n"


def test_accepted_is_green_rejected_red_and_struck_the_targets_own_blue(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert written([*ROUNDS, Round([OF], [], 0, None, None)], out=Terminal()) == (
        "Title\n-----\nPrompt \x1b[32mthe\x1b[0m \x1b[32msea\x1b[0m \x1b[31;9mwas\x1b[0m \x1b[1;94mof\x1b[0m"
        " \x1b[32mthe\x1b[0m\n of\n" + LEGEND)


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
        "round       +accepted -rejected .not used =the target's own\n"
        "    1   2/4 +·the +·sea -·was .·a =·of\n"
        "    2   1/1 +·the =↵\n"
        "\nPrompt the sea of the\n\n")


@pytest.mark.parametrize("columns", [40, 100])
def test_no_line_of_show_rounds_is_wider_than_the_terminal(monkeypatch, columns):
    monkeypatch.setattr(terminal.shutil, "get_terminal_size", lambda: os.terminal_size((columns, 24)))
    wide = encoder_of(" 漢字", " extraordinary")
    rounds = [Round([256, 257, 256, 257], [256, 257, 256, 256, 257, 257], 3, None, None)] * 12
    lines = (
        without_style(written(rounds, wide, Terminal(), show_rounds=True))
        .split("\n\nPrompt")[0]
        .split("\n")[2:]
    )
    assert max(map(terminal.cells, lines)) <= columns
    assert sum(bool(line[:5].strip().isdigit()) for line in lines) == 12
    joined = re.sub(r"\s+", " ", " ".join(lines))
    twelfth = "12 3/6 +·漢字 +·extraordinary +·漢字 -·漢字 .·extraordinary .·extraordinary =·extraordinary"
    assert joined.count(twelfth) == 1


@given(
    st.text(alphabet="aé—漢😀\u0301", min_size=1, max_size=8),
    st.randoms(use_true_random=False),
    st.booleans(),
)
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
    kept = re.sub(r"\x1b\[31;9m.*?\x1b\[0m", "", shown.removesuffix(LEGEND))    # without the rejected
    assert without_style(kept) == f"Title\n-----\nPrompt{text}\n"
    assert written(rounds, colour=colour, show_rounds=True).endswith(f"\nPrompt{text}\n")


def test_half_a_character_at_the_end_is_told_as_the_text_tells_it():
    assert written([Round([0xE2, 0x80], [0xE2], 1, None, None)]).endswith(
        "Prompt" + ENCODER.decode([0xE2, 0x80]) + "\n"
    )


@pytest.mark.parametrize("show_rounds", [False, True])
def test_eos_is_never_printed(show_rounds):
    rounds = [Round([THE, OF], [THE, END], 1, None, None), Round([THE, END], [THE, END, A], 2, None, None),
              Round([END], [], 0, None, None)]
    for colour in (False, True):
        text = written(rounds, colour=colour, show_rounds=show_rounds).removesuffix(LEGEND)
        assert EOS not in text and without_style(text).endswith("Prompt the of the\n")
        assert ("(end)" in text) == show_rounds


def test_what_follows_an_accepted_eos_was_never_tested_for_the_reader():
    assert signs(Round([THE, END], [THE, END, A], 2, None, None)) == [("+", THE), ("+", END), (".", A)]


def test_what_a_terminal_would_obey_is_shown_and_not_sent():
    clear = [*b"\x1b[2J\r\x07"]
    rounds = [Round([*clear, THE], clear, len(clear), None, None), Round([THE], clear[:1], 0, None, None)]
    for show_rounds in (False, True):
        for colour in (False, True):
            text = without_style(
                written(rounds, prompt="\x1b[2J\x9b2JHi", colour=colour, show_rounds=show_rounds)
            )
            assert not set(text) & {"\x1b", "\r", "\x07", "\x9b"} and "\n\\x1b[2J\\x9b2JHi" in text
    assert "\\x1b[2J\\x0d\\x07 the" in written(rounds)


def test_also_the_second_set_of_controls_is_shown_and_not_sent():
    """U+0080 to U+009F: some terminals obey U+009B as they obey ESC [."""
    codes = ["\x80", "\x9b", "\x9f", "\x7f"]
    encoder = encoder_of(*codes)
    rounds = [Round([256, 257, 258, 259], [256, 257, 258, 256], 3, None, None)]
    for style in (dict(colour=False), dict(colour=True), dict(show_rounds=True)):
        text = written(rounds, encoder, **style)
        assert not set(text) & set(codes) and "\\x9b" in text and "\\x7f" in text


def test_each_round_is_written_before_the_next_is_asked_for():
    out, asked = io.StringIO(), []

    def rounds():
        for r in ROUNDS:
            asked.append(out.getvalue())
            yield r
    list(watch(rounds(), ENCODER, out, "Title", "Prompt"))
    assert asked == ["Title\n-----\nPrompt", "Title\n-----\nPrompt the sea of"]


def test_a_column_more_or_less_is_counted_for_wide_and_combining_characters():
    assert list(map(terminal.cells, ["ab", "漢字", "e\u0301", "\uff21", ""])) == [2, 4, 1, 2, 0]


@pytest.mark.parametrize("show_rounds", [False, True])
def test_on_a_terminal_no_word_of_the_text_is_broken(monkeypatch, show_rounds):
    monkeypatch.setattr(terminal.shutil, "get_terminal_size", lambda: os.terminal_size((30, 24)))
    words = encoder_of(" extra", "ordin", "ary", " in")
    rounds = [Round([256, 257, 258, 259], [256, 257, 258, 256], 3, None, None)] * 9
    shown = written(
        rounds,
        words,
        Terminal(),
        prompt="A prompt of some more words than a line can hold is broken, too.",
        colour=True,
        show_rounds=show_rounds,
    )
    shown = without_style(shown.removesuffix(LEGEND)).split("\n\n" if show_rounds else "-----\n")[1]
    lines = shown.split("\n")
    assert max(map(len, lines)) <= 30 and min(map(len, lines[:-2])) > 12
    kept = [word for line in lines for word in line.split()]
    if not show_rounds:                                 # the rejected stand in the text, too
        kept = [word for word in kept if word != "extra"]
    assert (
        kept
        == "A prompt of some more words than a line can hold is broken, too.".split()
        + ["extraordinary", "in"] * 9
    )


def test_on_a_terminal_lines_are_counted_from_the_last_break(monkeypatch):
    monkeypatch.setattr(terminal.shutil, "get_terminal_size", lambda: os.terminal_size((12, 24)))
    assert written([Round([THE, LINE, THE, SEA], [], 0, None, None)], out=Terminal(), colour=False).endswith(
        "\nPrompt the\n the sea\n")


def test_on_a_terminal_text_without_spaces_is_not_held_back(monkeypatch):
    monkeypatch.setattr(terminal.shutil, "get_terminal_size", lambda: os.terminal_size((20, 24)))
    out, encoder = Terminal(), encoder_of("漢字漢字漢字")
    rounds = [Round([256], [], 0, None, None)] * 9
    for number, _ in enumerate(watch(rounds, encoder, out, "Title", "Prompt"), 1):
        assert out.text().count("漢") >= 3 * (number - 1)


def test_of_a_tree_the_path_is_accepted_and_the_other_nodes_were_not_taken():
    """Root -> the, the, sea; the second "the" -> of; of -> was, a.  The path: the second "the", of, a."""
    r = Round(
        [THE, OF, A, LINE], [THE, THE, SEA, OF, WAS, A], 3, None, None, parents=[-1, -1, -1, 1, 3, 3]
    )
    assert signs(r) == [("+", THE), ("+", OF), ("+", A), (".", THE), (".", SEA), (".", WAS), ("=", LINE)]
    assert written([r], colour=False) == "Title\n-----\nPrompt the of a\n\n"


def test_in_block_verification_every_draft_that_is_not_kept_is_rejected():
    assert signs(ROUNDS[0], block=True) == [("+", THE), ("+", SEA), ("-", WAS), ("-", A), ("=", OF)]
    ended = Round([THE, END], [THE, END, A], 2, None, None)
    assert signs(ended, block=True) == [("+", THE), ("+", END), (".", A)]


def test_no_colour_where_the_terminal_or_the_user_wants_none(monkeypatch):
    for no_colour, term, wanted in [("", "xterm", True), ("1", "xterm", False), ("", "dumb", False)]:
        monkeypatch.setenv("NO_COLOR", no_colour)
        monkeypatch.setenv("TERM", term)
        assert terminal.wants_colour(Terminal()) == wanted and not terminal.wants_colour(io.StringIO())


# The command line ------------------------------------------------------------------------

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

    def texts(output):              # without the rejected, the styles, the breaks of the lines and the times
        output = without_style(re.sub(r"\s?\x1b\[31;9m.*?\x1b\[0m", "", output.replace(LEGEND, "")))
        return [re.sub(r"\s", " ", text) for text in re.findall(r"-\n(.*?)\n\nTime", output, re.S)]
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


def test_a_line_is_as_wide_as_the_terminal_and_no_wider():
    tokens = [("+", "cd"), ("-", "ef"), ("=", "gh")]                    # a space, the sign, two columns
    assert terminal.aligned("ab", tokens, 14, None) == "ab +cd -ef =gh\n"
    assert terminal.aligned("ab", tokens, 13, None) == "ab +cd -ef\n   =gh\n"
    assert terminal.aligned("ab", tokens, 1, None) == "ab +cd\n   -ef\n   =gh\n"
