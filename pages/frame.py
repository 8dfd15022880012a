"""The frame of every page: head and colours, with a body inside."""
import json
import re
from html import escape
from pathlib import Path

from pages.files import MARK

HERE = Path(__file__).parent


def page(title, file, data, policy="", **parts):
    """The whole page as a string.

    file    a file in this folder: the body, with its style and script; {{name}} in it is replaced
    data    goes into <script id="data"> as JSON; "<" is escaped, so nothing in it can end that element
    policy  what the page may load besides its own content
    parts   {name: HTML, or escaped text} for {{name}}
    """
    parts |= dict(data=json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"), mark=MARK,
                  title=escape(title), policy=policy)
    parts["race"] = filled("race.html", parts) if "{{race}}" in read(file) else ""
    return filled("frame.html", parts | dict(body=filled(file, parts)))


def filled(file, parts):
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], read(file))


def read(file):
    return (HERE / file).read_text(encoding="utf-8")
