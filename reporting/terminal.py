"""The rounds of a run on a terminal, as they come: text in colour as in Figure 1 of Leviathan et al. 2022,
or one line a round.

    sign    style               a token that is
    +       green               a draft, accepted
    -       red, struck         a draft, rejected
    .       dim                 a draft, not used: after the first rejection, or after the end of the text;
                                in a tree, a node beside the path that was taken, tested or not
    =       bold, blue          the target's own: the correction of a rejected draft, or the bonus

Block verification tests all drafts and keeps those up to the last one that passes; the others are rejected.

The lines of --show_rounds print the signs, so they can be read without colour.  Running text has no style if
nothing was drafted, so the baseline's is plain.  If the output is not a terminal, or NO_COLOR is set
(https://no-color.org), no escape code is written, and the running text is the text alone, without the
rejected drafts.  What a terminal would obey in a prompt or a token is shown as \\x1b, never sent.

But: the cursor is never moved back, so on a terminal a word appears when it is whole; a Windows console older
than Windows 10 shows the codes as they are.
"""
import os
import re
import shutil
import sys
from textwrap import fill
from unicodedata import combining, east_asian_width

from reporting.stats import is_tree, taken

STYLES = {"+": "32", "-": "31;9", ".": "2", "=": "1;94"}
LEGEND = [("+", "accepted"), ("-", "rejected"), (".", "not used"), ("=", "the target's own")]
CONTROLS = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)] if chr(code) not in "\n\t"}


def watch(rounds, encoder, out, title, prompt, *, colour=None, show_rounds=False, block=False):
    """Pass the rounds on, and write each to `out` as it comes.

    colour      None: if `out` is a terminal that wants it
    block       the rounds come from block verification
    """
    colour = wants_colour(out) if colour is None else colour
    width = shutil.get_terminal_size().columns if out.isatty() else float("inf")
    text, stream = Wrapped(out, width, colour), encoder.stream()
    said, drafted = [(prompt, None)], False             # `said`: written only at the end
    out.write(f"{title}\n{'-' * len(title)}\n")
    if show_rounds:
        out.write(aligned("round      ", LEGEND, width, colour))
    else:
        text.write(prompt)
    try:
        for number, r in enumerate(rounds, 1):
            if show_rounds:
                tokens = [(sign, label(encoder, token)) for sign, token in signs(r, block)]
                head = f"{number:5} {f'{r.n_accepted}/{len(r.drafts)}':>5}"
                out.write(aligned(head, tokens, width, colour))
                said += running(r, encoder, stream, False, block)
            else:
                for piece in running(r, encoder, stream, colour, block):
                    text.write(*piece)
            drafted = drafted or len(r.drafts) > 0
            out.flush()
            yield r
    except BaseException:                               # what is said of it stands on a line of its own
        text.write("\n")
        out.flush()
        raise
    if show_rounds:
        out.write("\n")
        for piece, _ in said:
            text.write(piece)
    text.write(stream([], final=True) + "\n")           # half a character, if the last token ends in one
    if colour and drafted and not show_rounds:
        names = [paint(name, sign, colour) for sign, name in LEGEND if sign != "."]
        out.write(f"(colours: {', '.join(names)})\n")
    out.flush()


def progress(rounds, title, show_rounds=False):
    """Pass the rounds on; their number on standard error, if that is a terminal."""
    from tqdm import tqdm  # here: it loads more modules than all the rest
    return tqdm(rounds, desc=title, unit=" rounds", leave=False, disable=None)


def wrapped(sentence):
    """The sentence in lines as wide as the terminal; one line if standard output is something else."""
    if not sys.stdout.isatty():
        return sentence
    width = shutil.get_terminal_size().columns
    return fill(sentence, width, break_long_words=False, break_on_hyphens=False)


def running(r, encoder, stream, with_rejected, block=False):
    """A round as running text: (text, its sign) token by token, no sign if nothing was drafted."""
    for sign, token in signs(r, block):
        if token == encoder.eos or sign == ".":
            continue
        if sign != "-":
            yield stream([token]), sign if len(r.drafts) else None
        elif with_rejected:
            yield visible(encoder, token), sign


def signs(r, block=False):
    """The tokens of a round in the order they were made: [("+", 5), ("-", 7), (".", 2), ("=", 8)].

    In a tree the path that was taken comes first, then the other nodes.
    """
    n, path = r.n_accepted, taken(r)
    left = [token for i, token in enumerate(r.drafts) if i not in path]
    ended = len(r.tokens) == n                          # by an EOS among the accepted: nothing was rejected
    rejected = 0 if ended or is_tree(r) else len(left) if block else 1
    return ([("+", r.drafts[i]) for i in path]
            + [("-" if j < rejected else ".", token) for j, token in enumerate(left)]
            + [("=", token) for token in r.tokens[n:]])


def visible(encoder, token):
    """A token by itself, on one line; a byte that is not part of a character as \\x80."""
    text = encoder.to_bytes(token).decode("utf-8", errors="backslashreplace")
    return harmless(text.replace("\n", "\u21b5").replace("\t", "\\t"))


def harmless(text):
    r"""What a terminal would obey is shown, not sent.

    >>> print(harmless("\x1b[2Jclear the screen"))
    \x1b[2Jclear the screen
    """
    return text.translate(CONTROLS)


def label(encoder, token):
    return "(end)" if token == encoder.eos else visible(encoder, token).replace(" ", "\u00b7")


class Wrapped:
    """Running text in colour, its lines broken between words unless the width is infinite."""

    def __init__(self, out, width, colour):
        self.out, self.width, self.colour = out, width, colour
        self.column, self.space, self.word = 0, "", []  # space and word (parts with signs): not yet written

    def write(self, text, sign=None):
        for part in re.findall(r"\n|[ \t]+|[^ \t\n]+", harmless(text)):
            if part[0] not in " \t\n":
                self.word.append((part, sign))
                continue
            self.flush()
            self.space += part
            if part == "\n":
                self.out.write(self.space)
                self.column, self.space = 0, ""
        if self.width == float("inf") or sum(cells(part) for part, _ in self.word) >= self.width:
            self.flush()

    def flush(self):
        """Write the space and the word, on the next line if they do not fit into this one."""
        if not self.word:
            return
        needed = cells(self.space) + sum(cells(part) for part, _ in self.word)
        if 0 < self.column and self.column + needed > self.width:
            self.out.write("\n")
            self.column, needed, self.space = 0, needed - cells(self.space), ""
        self.out.write(self.space + "".join(paint(part, sign, self.colour) for part, sign in self.word))
        self.column, self.space, self.word = self.column + needed, "", []


def aligned(head, tokens, width, colour):
    """One line; if the terminal is too narrow the rest goes below, indented."""
    line, column = head, len(head)
    for sign, text in tokens:
        needed = 2 + cells(text)
        if column + needed > width and column > len(head):
            line, column = line + "\n" + " " * len(head), len(head)
        line, column = f"{line} {sign}{paint(text, sign, colour)}", column + needed
    return line + "\n"


def cells(text):
    """Columns a terminal gives to `text`; a tab takes at most eight."""
    return sum(0 if combining(char) else 8 if char == "\t" else 2 if east_asian_width(char) in "WF" else 1
               for char in text)


def paint(text, sign, colour):
    word = text.lstrip(" ")                             # the space before a word is not struck
    if not (colour and sign and word):
        return text
    return f"{text[:len(text) - len(word)]}\x1b[{STYLES[sign]}m{word}\x1b[0m"


def wants_colour(out):
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
