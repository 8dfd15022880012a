"""The rounds of a run on a terminal, as they come: the text in colour as in Figure 1 of Leviathan et al. 2022, or one line a round.

    sign    style               a token that is
    +       green               a draft, accepted
    -       red, struck         a draft, rejected
    .       dim                 a draft nobody asked for: after the first rejection, or after the end of the text
    =       bold, blue          the target's own: the correction of a rejected draft, or the bonus after K accepted ones

The signs stand in the lines of --show_rounds, so they can be read without colour.  Running text has no style where nothing was
drafted, so the baseline's is plain.  Where the output is no terminal, or NO_COLOR is set (https://no-color.org), not one escape code is
written, and the running text is the text alone, without its rejected drafts.

But: no cursor movement, what is written stays; a Windows console older than Windows 10 shows the codes as they are.
"""
import os
import shutil
from unicodedata import combining, east_asian_width

STYLES = {"+": "32", "-": "31;9", ".": "2", "=": "1;94"}
LEGEND = [("+", "accepted"), ("-", "rejected"), (".", "not tested"), ("=", "the target's own")]
CONTROLS = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)] if chr(code) not in "\n\t"}


def watch(rounds, encoder, out, title, prompt, *, colour=None, show_rounds=False):
    """Pass the rounds on, and write each to `out` as it comes.  `colour` None: where `out` is a terminal that wants it."""
    colour = wants_colour(out) if colour is None else colour
    width = shutil.get_terminal_size().columns if out.isatty() else float("inf")
    stream, said = encoder.stream(), prompt                     # `said`: what is written only at the end
    out.write(f"{title}\n{'-' * len(title)}\n")
    if show_rounds:
        out.write(aligned("round      ", LEGEND, width, colour))
    else:
        out.write(prompt)
    for number, r in enumerate(rounds, 1):
        if show_rounds:
            tokens = [(sign, label(encoder, token)) for sign, token in signs(r)]
            out.write(aligned(f"{number:5} {f'{r.n_accepted}/{len(r.drafts)}':>5}", tokens, width, colour))
            said += stream([token for token in r.tokens if token != encoder.eos]).translate(CONTROLS)
        else:
            out.write("".join(painted(r, encoder, stream, colour)))
        out.flush()
        yield r
    rest = stream([], final=True)                               # half a character, if the last token ends in one
    out.write(f"\n{said}{rest}\n" if show_rounds else f"{rest}\n")
    out.flush()


def painted(r, encoder, stream, colour):
    """A round as running text, token by token."""
    for sign, token in signs(r):
        if token == encoder.eos or sign == ".":
            continue
        if sign != "-":
            yield paint(stream([token]).translate(CONTROLS), sign, colour and r.drafts)
        elif colour:
            yield paint(visible(encoder, token), sign, colour)


def signs(r):
    """The tokens of a round in the order they were made, each with its sign:  [("+", 5), ("-", 7), (".", 2), ("=", 8)]."""
    n = r.n_accepted
    rejected = len(r.tokens) > n                                # else EOS was among the accepted drafts, and ended the round
    return ([("+", token) for token in r.drafts[:n]]
            + [("-" if rejected and j == 0 else ".", token) for j, token in enumerate(r.drafts[n:])]
            + [("=", token) for token in r.tokens[n:]])


def visible(encoder, token):
    """A token by itself, on one line: bytes that are no character, and what a terminal would obey, as \\x1b."""
    text = encoder.to_bytes(token).decode("utf-8", errors="backslashreplace")
    return text.replace("\n", "\u21b5").replace("\t", "\\t").translate(CONTROLS)


def label(encoder, token):
    return "(end)" if token == encoder.eos else visible(encoder, token).replace(" ", "\u00b7")


def aligned(head, tokens, width, colour):
    """One line; where the terminal is too narrow the rest goes below, indented."""
    line, column = head, len(head)
    for sign, text in tokens:
        needed = 2 + cells(text)
        if column + needed > width and column > len(head):
            line, column = line + "\n" + " " * len(head), len(head)
        line, column = f"{line} {sign}{paint(text, sign, colour)}", column + needed
    return line + "\n"


def cells(text):
    """Columns a terminal gives to `text`."""
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def paint(text, sign, colour):
    word = text.lstrip(" ")                                     # the space before a word is not struck
    return f"{text[:len(text) - len(word)]}\x1b[{STYLES[sign]}m{word}\x1b[0m" if colour and word else text


def wants_colour(out):
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
