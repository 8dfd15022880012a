"""The frame of every page: head and colours, with a body inside."""
import json
import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from pathlib import Path

from pages.files import MARK

HERE = Path(__file__).parent
SHARED = "lines.json", "words.json"
DEFINED = r"^(?:export )?(?:const|let|class|(?:async )?function) ([\w$]+)"      # the first, if several


def page(title, file, data, policy="", description="", **parts):
    """The whole page as a string.

    file    a file in this folder: the body.  In it {{name}} is replaced by that part, and {{race.mjs}} by
            that file of this folder; modules are joined without their import and export lines, in one scope
    data    goes into <script id="data"> as JSON, with the files of SHARED; "<" is escaped, so nothing in it
            can end that element
    policy  what the page may load besides its own content.  Its own scripts and styles are named by their
            hashes, so that no other runs, whatever somebody's text may put into the page
    parts   {name: HTML, or escaped text} for {{name}}
    """
    defined = set()
    data = data | {file: json.loads((HERE / file).read_text(encoding="utf-8")) for file in SHARED}
    parts = dict(preview="") | parts | dict(
        data=json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"), mark=MARK, title=escape(title),
        policy=policy, description=escape(description))

    def part(match):
        return fill(match[1]) if "." in match[1] else parts[match[1]]

    def fill(file):
        text = (HERE / file).read_text(encoding="utf-8").rstrip("\n")
        return re.sub(r"\{\{([\w.]+)\}\}", part, join(text, file) if file.endswith(".mjs") else text)

    def join(text, file):
        names = {*re.findall(DEFINED, text, re.M)}
        if names & defined:
            raise ValueError(f"{file} defines {', '.join(names & defined)}, as another module does")
        defined.update(names)
        return re.sub(r'^import \{[^}]*\} from "[^"]*";\n|^export ', "", text, flags=re.M) + "\n"

    parts["body"] = fill(file)
    html = fill("frame.html") + "\n"
    for tag in "script", "style":
        inside = re.findall(f'<{tag}(?: type="module")?>(.*?)</{tag}>', html, re.S)
        hashes = [b64encode(sha256(text.encode()).digest()).decode() for text in inside]
        html = html.replace(f"{tag}-hashes", " ".join(f"'sha256-{one}'" for one in hashes), 1)
    return html
