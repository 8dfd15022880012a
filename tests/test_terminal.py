"""Rounds on a terminal: the text, its colours, and no control characters or broken characters."""
import io
import json
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder import EOS, Encoder, bytes_to_unicode
from engine.reporting.terminal import watch
from methods.__main__ import main
from sampling import Round

# The tokens are the bytes, then these words, then EOS.
WORDS = " the", " sea", " was", " of", "\n", " a", "\x80\x9b\x9f\x7f"
THE, SEA, WAS, OF, LINE, A, CONTROL, END = range(256, 264)
BYTES, TOKENS = bytes_to_unicode(), [*(bytes([b]) for b in range(256)), *(word.encode() for word in WORDS)]
ENCODER = Encoder({"".join(BYTES[b] for b in token): i for i, token in enumerate(TOKENS)} | {EOS: END}, [])
SIGNS = {"32": "+", "31;9": "-", "2": ".", "1;94": "="}


def r(tokens, drafts=(), n=0, parents=None):
    return Round([*tokens], [*drafts], n, None, None, parents)


class Terminal(io.TextIOWrapper):
    def __init__(self):
        super().__init__(io.BytesIO(), encoding="utf-8", newline="\n")

    def isatty(self):
        return True

    def getvalue(self):
        self.flush()
        return self.buffer.getvalue().decode("utf-8")


def written(rounds, out=None, prompt="Prompt", **style):
    """The text below the title.  Green, red (struck out), dim, blue become {+the}, {-the}, {.the}, {=the}."""
    out = out or io.StringIO()
    assert list(watch(rounds, ENCODER, out, "Title", prompt, **style)) == list(rounds)
    title, text = out.getvalue()[:12], out.getvalue()[12:]
    assert title == "Title\n-----\n"
    return re.sub("\x1b\\[([0-9;]+)m(.*?)\x1b\\[0m", lambda found: f"{{{SIGNS[found[1]]}{found[2]}}}", text)


TWO = [r([THE, SEA, OF], [THE, SEA, WAS, A], 2), r([THE, LINE], [THE], 1)]
LAST = [r([THE, OF], [THE, END], 1), r([THE, END], [THE, END, A], 2), r([END])]
TREE = [r([THE, OF, A, LINE], [THE, THE, SEA, OF, WAS, A], 3, [-1, -1, -1, 1, 3, 3])]
OBEYED = [r([*b"\x1b[2J\r\x07", CONTROL, 65], [*b"\x1b[2J\r\x07", CONTROL], 7)]
HALF = [r([0xE2, 0x80], [0xE2], 1)]
COLOURS = "(colours: {+accepted}, {-rejected}, {=the target's own})\n"
HEAD = "round       +accepted -rejected .not used =the target's own\n"
SHOWN = r"\x1b[2J\x0d\x07\x80\x9b\x9f\x7f"
ROUNDS = dict(show_rounds=True)
CASES = {       # (rounds, settings and environment, the text)
    "colours": ([*TWO, r([OF])], dict(TERM="xterm"),
                "Prompt {+the} {+sea} {-was} {=of} {+the}\n of\n" + COLOURS),
    "no colours wanted": (TWO, dict(NO_COLOR="1"), "Prompt the sea of the\n\n"),
    "a dumb terminal": (TWO, dict(TERM="dumb"), "Prompt the sea of the\n\n"),
    "no terminal": (TWO, {}, "Prompt the sea of the\n\n"),
    "rounds": (TWO, ROUNDS, HEAD + "    1   2/4 +·the +·sea -·was .·a =·of\n    2   1/1 +·the =↵\n\n"
               "Prompt the sea of the\n\n"),
    "rounds in colour": (TWO[1:], ROUNDS | dict(colour=True), "round       +{+accepted} -{-rejected} "
                         ".{.not used} ={=the target's own}\n    1   1/1 +{+·the} ={=↵}\n\nPrompt the\n\n"),
    "a block": (TWO[:1], ROUNDS | dict(block=True), HEAD + "    1   2/4 +·the +·sea -·was -·a =·of\n\n"
                "Prompt the sea of\n"),
    "a tree": (TREE, ROUNDS, HEAD + "    1   3/6 +·the +·of +·a .·the .·sea .·was =↵\n\nPrompt the of a\n\n"),
    **{f"the end, block: {block}": (LAST[1:2], ROUNDS | dict(block=block), HEAD + "    1   2/3 +·the +(end) "
                                    ".·a\n\nPrompt the\n") for block in (False, True)},
    "the end": (LAST, dict(colour=True), "Prompt {+the} {=of} {+the}\n" + COLOURS),
    "half a character": (HALF, {}, "Prompt" + ENCODER.decode([0xE2, 0x80]) + "\n"),
    "what a terminal obeys": (OBEYED, dict(prompt="\x1b[2J\x9b"), rf"\x1b[2J\x9b{SHOWN}A" + "\n"),
    "obeyed, in rounds": (OBEYED, ROUNDS, HEAD + r"    1   7/7 +\x1b +[ +2 +J +\x0d +\x07 "
                          r"+\x80\x9b\x9f\x7f =A" f"\n\nPrompt{SHOWN}A\n"),
}


@pytest.fixture
def screen(monkeypatch):
    def made(NO_COLOR="", TERM="xterm"):
        monkeypatch.setenv("NO_COLOR", NO_COLOR)
        monkeypatch.setenv("TERM", TERM)
        return Terminal()
    return made


@pytest.mark.parametrize("rounds, how, text", CASES.values(), ids=CASES)
def test_rounds_are_written_in_this_form(rounds, how, text, screen):
    of_screen = {key: value for key, value in how.items() if key.isupper()}
    style = {key: value for key, value in how.items() if key not in of_screen}
    assert written(rounds, screen(**of_screen) if of_screen else None, **style) == text


@given(st.text(alphabet="aé—漢😀\u0301", min_size=1, max_size=8), st.randoms(use_true_random=False),
       st.booleans())
def test_characters_of_several_bytes_are_never_broken(text, chance, colour):
    """Here every byte is a token, and any of them may be an accepted draft, a correction or a bonus."""
    data, rounds = list(text.encode()), []
    while data:
        n = chance.randrange(min(4, len(data)))
        rejected = [chance.randrange(128, 256)] if chance.random() < .5 else []
        rounds.append(r(data[:n + 1], data[:n] + rejected, n))
        data = data[n + 1:]
    shown = written(rounds, colour=colour).removesuffix(COLOURS)
    assert re.sub(r"\{-.*?\}|\{\W|\}", "", shown) == f"Prompt{text}\n" and "\ufffd" not in shown
    assert written(rounds, colour=colour, show_rounds=True).endswith(f"\nPrompt{text}\n")


def test_each_round_is_written_before_the_next_is_asked_for():
    out, asked = Terminal(), []
    rounds = (asked.append(out.buffer.getvalue()) or one for one in TWO)        # what was flushed
    list(watch(rounds, ENCODER, out, "T", "Prompt", colour=False))
    assert asked[1] == b"T\n-\nPrompt the sea of"


@pytest.mark.parametrize("show_rounds", [False, True])
def test_what_ends_a_run_early_is_said_below_the_text(screen, show_rounds):
    """The text so far ends with a line break, so an error message gets a line of its own."""
    rounds, out = (one or int("") for one in [TWO[0], None]), screen()
    with pytest.raises(ValueError):
        list(watch(rounds, ENCODER, out, "Title", "prompt", show_rounds=show_rounds))
    said = re.sub("\x1b\\[.*?m", "", out.getvalue())
    assert said.endswith("prompt the sea of\n" if show_rounds else "prompt the sea was of\n")


def test_the_command_line_streams_in_colour_is_plain_elsewhere_and_shows_rounds(monkeypatch, capsys, screen):
    def said(**flags):
        main(temperature=1.0, n_tokens_to_generate=12, **flags)
        return capsys.readouterr().out
    result, plain, rounds = json.loads(said(json=True)), said(), said(show_rounds=True)
    monkeypatch.setattr(sys, "stdout", out := screen())
    said()
    one, two = out.getvalue().split("Speculative sampling")
    assert "\x1b" not in plain + rounds + one and all(f"\x1b[{code}m" in two for code in SIGNS if code != "2")
    for name, shown in ("autoregressive", one), ("autoregressive", plain), ("speculative", plain):
        assert result["prompt"] + result[name]["text"] in shown
    assert f"\n\n{result['prompt']}{result['speculative']['text']}\n\nTime" in rounds
    assert len(re.findall(r"^ +\d+ +\d+/\d+ ", rounds, re.M)) == result["speculative"]["rounds"]
