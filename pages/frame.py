"""The frame of the site's pages: head, colours, and what is written between."""
import re
from base64 import b64encode
from html import escape
from pathlib import Path

FRAME = Path(__file__).with_name("frame.html")
REPLAY = Path(__file__).with_name("replay.html")
BACK = '<a href="index.html">← All pages</a>'


def page(title, body, policy=""):
    """The whole page as a string.  body: HTML; policy: what it may load or run beside its own styles."""
    parts = dict(title=escape(title), colours=colours(), body=body, policy=policy)
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], FRAME.read_text(encoding="utf-8"))


def interactive(title, file, policy="", **parts):
    """A page whose body, with style and script, is a file beside this one; {{name}} in it is replaced."""
    body = Path(__file__).with_name(file).read_text(encoding="utf-8")
    parts["back"] = BACK
    body = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], body)
    return page(title, body, "; script-src 'unsafe-inline'" + policy)


def colours():
    """The colours of the replay, light and dark: every page has the same."""
    return REPLAY.read_text(encoding="utf-8").split("<style>\n")[1].split("* {")[0].strip()


def figure(path, caption, alt=None):
    """A picture inside the page; nothing if it has not been drawn."""
    if not path.exists():
        return ""
    data = b64encode(path.read_bytes()).decode()
    return (f'<figure><img src="data:image/png;base64,{data}" alt="{escape(alt or caption)}">'
            f"<figcaption>{escape(caption)}</figcaption></figure>")
