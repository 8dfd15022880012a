"""The site: {file: its text or bytes}.

    index.html          leads to live.html
    live.html           the pair itself, in the browser; it loads the zips beside it, and Python (Pyodide)
    machine.html        which method on my machine?  It loads nothing from the network
    code.zip, demo-*.zip    this repository's files, unchanged

Limitations: the recorded race that is shown first has the times of the machine that made the page.
"""
import hashlib
import io
from pathlib import Path
from urllib.parse import quote
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from benchmarks import cost_model
from pages import live
from pages.files import MARK
from pages.frame import page

ROOT = Path(__file__).resolve().parent.parent
PYODIDE = "https://cdn.jsdelivr.net/pyodide/v0.27.7/full/"
TIDE = ("The tide was going out. Along the edge of the water a girl was walking barefoot, "
        "with her shoes in")
MACHINE = "Which method on my machine?"
REPEATING = ("The rain fell on the roof, and the rain fell on the road, and the rain fell on the river; "
             "the rain fell on the roof, and the rain fell on the road, and the rain fell on")
START = dict(prompt=TIDE, n_tokens=40, K=4, temperature=0, top_p=1, seed=0, drafter="model", verifier="token")
MODELS = "demo-draft", "demo-target", "demo-eagle"
FILES = ("hparams.json", "encoder.json", "vocab.bpe", "checkpoint", "model.ckpt.index",
         "model.ckpt.data-00000-of-00001")
CODE = (".", "compute", "loading", "lossless", "lossless/verdicts", "methods", "methods/drafters",
        "methods/samplers", "pages", "reporting")
INDEX = (MARK + '<meta http-equiv="refresh" content="0; url=live.html">\n'
         '<a href="live.html">Speculative sampling, live</a>\n')


def packed(paths):
    """Files of the repository -> a zip, the same bytes each time.  It begins as our pages do (files.py)."""
    file = io.BytesIO()
    with ZipFile(file, "w") as archive:
        for path in paths:
            entry = ZipInfo(str(path), (1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, (ROOT / path).read_bytes(), ZIP_DEFLATED)
    return MARK.encode() + file.getvalue()


def packs():
    """{file: bytes} that live.html loads: the code, and the models."""
    code = [path.relative_to(ROOT) for folder in CODE for path in sorted((ROOT / folder).glob("*.py"))]
    files = {"code.zip": packed([*code, "lossless/verdicts/cases.ini"])}
    for name in MODELS:
        paths = [Path("models", name, file) for file in FILES]
        files[f"{name}.zip"] = packed(path for path in paths if (ROOT / path).exists())
    return files


def live_page(files, repository="", base=PYODIDE):
    """files: what `packs` returned; base: where Pyodide is loaded from."""
    about = [dict(file=file, size=len(data), sha256=hashlib.sha256(data).hexdigest())
             for file, data in files.items()]
    data = dict(packs=about, openings=[*live.openings()], settings=START,
                recorded=live.recorded(START))
    link = f'<a href="{repository}">this repository</a>' if repository else "this repository"
    more = f'<a href="machine.html">{MACHINE}</a> is a page of its own.'
    policy = f" {base} 'wasm-unsafe-eval'; connect-src 'self' {base}; worker-src blob:"
    return page("Speculative sampling, live", "live.html", data, policy, base=base, repository=link,
                machine=more, repeating=quote(REPEATING))


def machine_page():
    data = cost_model.data()
    return page(MACHINE, "machine.html", data, measured=data["measured"])


def pages(repository=""):
    """The whole site."""
    files = packs()
    return files | {"index.html": INDEX, "live.html": live_page(files, repository),
                    "machine.html": machine_page()}
