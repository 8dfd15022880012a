"""Show the rounds of a run on a terminal as they come: as text in colour, as in Figure 1 of Leviathan et al.
2022, or as one line per round.

    sign    style               a token that is
    +       green               a draft, accepted
    -       red, struck         a draft, rejected
    .       dim                 a draft, not used: after the first rejection, or after the end of the text;
                                in a tree, a node off the accepted path, tested or not
    =       bold, blue          the target's own, the last of its round

Block verification tests all drafts and accepts those up to the last that passes; the others are rejected.

The lines of --show_rounds print the signs.  In running text a round without drafts has no style, so the
baseline's text is plain.  If the output is not a terminal, or NO_COLOR is set (https://no-color.org), there
are no escape codes, and the running text omits rejected drafts.  Control codes in a prompt or a token are
shown, as \\x1b, never sent.

Limitations: the terminal breaks lines within words.  A Windows console older than Windows 10 shows the escape
codes themselves.
"""
import os

from engine.reporting.stats import accepted_path, count_rejected, is_tree

STYLES = {"+": "32", "-": "31;9", ".": "2", "=": "1;94"}
LEGEND = [("+", "accepted"), ("-", "rejected"), (".", "not used"), ("=", "the target's own")]
CONTROLS = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)] if chr(code) not in "\n\t"}


def watch(rounds, encoder, out, title, prompt, *, colour=None, show_rounds=False, block=False):
    """Pass the rounds on, and write each to `out` as it comes.

    colour      None: if `out` is a terminal that allows it
    block       the rounds come from block verification
    """
    colour = wants_colour(out) if colour is None else colour
    text, stream, drafted = [escape_controls(prompt)], encoder.stream(), False
    out.write(f"{title}\n{'-' * len(title)}\n")
    out.write(line("round      ", LEGEND, colour) if show_rounds else text[0])
    try:
        for number, r in enumerate(rounds, 1):
            drafted = drafted or len(r.drafts) > 0
            text.append("".join(format_text(r, encoder, stream, colour and not show_rounds, block)))
            tokens = [(sign, label_token(encoder, token)) for sign, token in sign_tokens(r, block)]
            head = f"{number:5} {f'{r.n_accepted}/{len(r.drafts)}':>5}"
            out.write(line(head, tokens, colour) if show_rounds else text[-1])
            out.flush()
            yield r
    finally:                                            # so that an error message starts a new line
        text.append(escape_controls(stream([], final=True)))    # a last, incomplete character
        out.write(("\n" + "".join(text) if show_rounds else text[-1]) + "\n")
    if colour and drafted and not show_rounds:
        names = [paint(name, sign, colour) for sign, name in LEGEND if sign != "."]
        out.write(f"(colours: {', '.join(names)})\n")


def show_progress(rounds, title, show_rounds=False):
    """Pass the rounds on, and show their number on standard error if that is a terminal."""
    from tqdm import tqdm  # here: it loads more modules than all the rest
    return tqdm(rounds, desc=title, unit=" rounds", leave=False, disable=None)


def line(head, tokens, colour):
    return head + "".join(f" {sign}{paint(text, sign, colour)}" for sign, text in tokens) + "\n"


def format_text(r, encoder, stream, colour, block=False):
    """A round as running text, token by token, with rejected drafts only if in colour."""
    for sign, token in sign_tokens(r, block):
        if token in encoder.eos_ids or sign == "." or sign == "-" and not colour:
            continue
        text = show_token(encoder, token) if sign == "-" else escape_controls(stream([token]))
        yield paint(text, sign, colour and len(r.drafts) > 0)


def sign_tokens(r, block=False):
    """The tokens of a round in the order they were made: [("+", 5), ("-", 7), (".", 2), ("=", 8)].

    In a tree the accepted path comes first, then the other nodes.
    """
    n, path = r.n_accepted, accepted_path(r)
    left = [token for i, token in enumerate(r.drafts) if i not in path]
    rejected = 0 if is_tree(r) else count_rejected(r, block)
    return ([("+", r.drafts[i]) for i in path]
            + [("-" if j < rejected else ".", token) for j, token in enumerate(left)]
            + [("=", token) for token in r.tokens[n:]])


def show_token(encoder, token):
    """A token by itself, on one line; bytes that are not UTF-8 as \\x80."""
    text = encoder.to_bytes(token).decode("utf-8", errors="backslashreplace")
    return escape_controls(text.replace("\n", "\u21b5").replace("\t", "\\t"))


def escape_controls(text):
    r"""Control codes are shown, not sent.

    >>> print(escape_controls("\x1b[2Jclear the screen"))
    \x1b[2Jclear the screen
    """
    return text.translate(CONTROLS)


def label_token(encoder, token):
    return "(end)" if token in encoder.eos_ids else show_token(encoder, token).replace(" ", "\u00b7")


def paint(text, sign, colour):
    word = text.lstrip()                                # the space before a word is not struck through
    if not (colour and word):
        return text
    return f"{text[:len(text) - len(word)]}\x1b[{STYLES[sign]}m{word}\x1b[0m"


def wants_colour(out):
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
