"""The site: {file: its text or bytes}.

    index.html          the race, a round, the game, and the pair itself: it loads the zips beside it, and
                        Python (Pyodide)
    code.zip, demo-*.zip    this repository's files, unchanged
    card.png            the preview of a link
"""
import hashlib
import io
import json
import re
from functools import cache
from html import escape
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np

from benchmarks.figures import costs, value
from benchmarks.tables import NAMES
from pages import live
from pages.files import MARK
from pages.frame import HERE, page
from pages.game import game

ROOT = HERE.parent
PYODIDE = "https://cdn.jsdelivr.net/pyodide/v0.27.7/full/"
PYODIDE_SIZE = 16_000_000                               # bytes of Python, NumPy and regex, about
TITLE = "Speculative sampling: watch the race, open a round"
ABOUT = ("A small model drafts, a large one checks all drafts in one pass. Watch the race, open a round, and "
         "guess which accept rules leave the text's distribution unchanged.")
# What the form is set to at first, and what differs in each of the recorded runs.
START, RECORDED = json.loads((HERE / "recordings.json").read_text(encoding="utf-8")).values()
COSTS = ("model token K=4 T=1", "lookup token K=4 T=1", "eagle token K=4 T=1",      # of a draft
         "model tree:3,2,1 T=1", "eagle tree:3,2,1 T=1")    # of a level of the tree, five drafts on average
SEVEN = "autoregressive encoder gpt2 main sampling speculative utils".split()
CODE = ("engine", "engine/compute", "engine/loading", "engine/reporting", "lossless",
        "lossless/verdicts", "methods", "methods/drafters", "methods/samplers", "pages")
GPUS = {    # not measured: (texts at once, how many rows, of all texts together, cost as much as one row)
    "a GPU, one text (assumed)": (1, 128), "a GPU, 128 texts at once (assumed)": (128, 128)}


def pack(paths):
    """Files of this repository -> a zip, the same bytes each time.  It begins as our pages do (files.py)."""
    file = io.BytesIO()
    with ZipFile(file, "w") as archive:
        for path in paths:
            entry = ZipInfo(path.relative_to(ROOT).as_posix(), (1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, path.read_bytes(), ZIP_DEFLATED)
    return MARK.encode() + file.getvalue()


def packs():
    """{file: bytes} that index.html loads: the code, and the models."""
    code = [path for folder in CODE for path in sorted((ROOT / folder).glob("*.py"))]
    code += [ROOT / "lossless/verdicts/cases.ini", *(ROOT / f"{name}.py" for name in SEVEN)]
    packs = {"code.zip": pack(code)}
    for name in ("demo-draft", "demo-target", "demo-eagle"):
        files = sorted((ROOT / "models" / name).iterdir())
        packs[f"{name}.zip"] = pack(path for path in files if path.suffix not in (".md", ".jsonl"))
    return packs


def index_page(files, repository="", address="", base=PYODIDE):
    """files: what `packs` returned; base: where Pyodide is loaded from."""
    about = [dict(file=file, size=len(data), sha256=hashlib.sha256(data).hexdigest())
             for file, data in files.items()]
    data = dict(packs=about, base=base, python_size=PYODIDE_SIZE, settings=START, presets=presets(),
                runs=recordings(), game=game(), tour=tour(), openings=[*live.openings()], paper=live.paper())
    link = f'<a href="{escape(repository)}">this repository</a>' if repository else "this repository"
    policy = f" {base} 'wasm-unsafe-eval'; connect-src 'self' {base}; worker-src blob:"
    preview = "".join(f'<meta property="og:{name}" content="{escape(text)}">\n' for name, text in [
        ("type", "website"), ("title", TITLE), ("description", ABOUT), ("url", address + "/"),
        ("image", address + "/card.png"), ("image:type", "image/png"), ("image:width", "1200"),
        ("image:height", "630"), ("image:alt", TITLE)] if address)
    return page(TITLE, "index.html", data, policy, description=ABOUT, preview=preview, repository=link)


def tour():
    """{stops: [[its name, what it says], ..], end: [[question, answer], ..]}, from the ten minutes of
    docs/lesson.md."""
    text = (ROOT / "docs/lesson.md").read_text(encoding="utf-8").split("## Ten minutes")[1].split("\n## ")[0]
    end = re.findall(r"^- \*\*(.+?)\*\* (.+?)(?=^- |^$|\Z)", text, re.M | re.S)
    return dict(stops=re.findall(r"^\| \d+ \| (.+?) \| (.+?) \|$", text, re.M),
                end=[[asked, " ".join(answer.split())] for asked, answer in end])


@cache
def recordings():
    """The runs that the page shows, made now."""
    return [live.record(START | settings) for settings in RECORDED]


def presets():
    """[{name, words, c: {one of COSTS: its cost}, v: [that of a pass over 1 row, 2 rows, .. 16 rows]}, ..]"""
    rows, found = np.arange(1, 17), []
    for kernels, words in NAMES.items():
        measured = costs(kernels)
        ms = {int(n): median for n, (_, median, *_) in measured["passes"]["demo-target"]["rows"].items()}
        found.append(dict(
            name=f"our CPU, {words}",
            words="measured with this pair: {CPU}, {cores} cores".format(**measured["machine"]),
            c={cell: value(f"{kernels} {cell}: c") * (5 if "tree" in cell else 1) for cell in COSTS},
            v=(np.interp(rows, [*ms], [*ms.values()]) / ms[1]).round(3).tolist()))
    for name, (texts, free) in GPUS.items():
        found.append(dict(
            name=name, words="assumed, not measured: a draft costs 0.12, a copied one nothing, and a pass "
            f"over {free} tokens (of {texts} text{'s' * (texts > 1)} at once) costs no more than over one",
            c=dict.fromkeys(COSTS, .12) | {"lookup token K=4 T=1": 0},
            v=np.maximum(1, rows * texts / free).tolist()))
    return [*found, dict(name="this browser", words="", c={})]


def pages(repository="", address="", base=PYODIDE):
    """The whole site.

    repository  the web address of the code, or ""
    address     where the site will be, or ""; without it there is no preview of a link
    base        where Pyodide is loaded from
    """
    files = packs()
    return files | {"card.png": (HERE / "card.png").read_bytes(),
                    "index.html": index_page(files, repository, address, base)}
