"""The pages of the site -> {file: html}.

    index.html          what this is, and links to the rest
    replay_*.html       runs of the embedded pair, as main.py --trace writes them
    rule.html           accepting a draft, by hand
    machine.html        which method on my machine?  (if there are counts and costs)
    judge.html          the judge itself, in the browser
    live.html           the pair itself, in the browser; it loads code.zip and the models beside it

Every page is a file by itself that asks nothing of the network, except judge.html and live.html, which load
Python when they are asked to.

Limitations: only the runs that are replayed are made anew, and their times are those of the machine that
makes them.  Notebooks and results are for GitHub to show.
"""
import hashlib
import io
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from pages import judge, machine
from pages.files import BEGIN, SITE, TRACE
from pages.frame import BACK, figure, interactive, page
from verdicts import CASES

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
REPEATING = ("The rain fell on the roof, and the rain fell on the road, and the rain fell on the river; "
             "the rain fell on the roof, and the rain fell on the road, and the rain fell on")
SAMPLED = ["--temperature", "1", "--seed", "23"]

RUNS = {    # name: (flags of main.py, title, what to look for)
    "token": (SAMPLED, "Token verification",
              "Algorithm 2. Each draft has a coin of its own, the first that fails ends the round, and the "
              "token in its place is drawn from the residual distribution."),
    "block": ([*SAMPLED, "--verifier", "block"], "Block verification",
              "The drafts of a round are judged together: one whose own coin failed is kept where a later "
              "coin passes."),
    "tree": ([*SAMPLED, "--verifier", "tree"], "A tree of drafts",
             "Several guesses at each place, one pass of the target for all of them, and one path is taken."),
    "lookup": (["--drafter", "lookup", "--prompt", REPEATING], "Prompt lookup",
               "No draft model: what followed the last tokens earlier in the text is proposed again. It pays "
               "where the text repeats itself, as this one soon does."),
    "eagle": ([*SAMPLED, "--drafter", "eagle"], "A head on the target",
                "One block of its own, an EAGLE head, reads the target's hidden states and drafts."),
}
PAGES = {       # file: (title, what is there)
    "rule.html": ("The rule, by hand", "Two distributions to drag: what is kept, what is refused, and why "
                  "the target's distribution comes out."),
    "live.html": ("Speculative sampling, live", "Type a prompt and watch the race; open a round and go through it "  # noqa: E501
                  "line by line; change the rule, and have it judged."),
    "judge.html": ("The judge, in your browser", "Change the code that drafts or verifies, and see whether "
                   "it is still lossless: every branch of chance is walked."),
    "machine.html": ("Which method on my machine?", "The counts of all methods, with sliders for what a pass "
                     "costs."),
}
PAPERS = ('<a href="https://arxiv.org/abs/2302.01318">Chen et al. 2023</a>, '
          '<a href="https://arxiv.org/abs/2211.17192">Leviathan et al. 2022</a>')


# The runs ---------------------------------------------------------------------------------------------------

def replay(flags):
    """A run of main.py in a process of its own -> its replay page, with a way back to the index."""
    with TemporaryDirectory() as work:
        path = Path(work) / "run.html"
        done = subprocess.run([sys.executable, "main.py", *flags, "--trace", path], cwd=ROOT,
                              capture_output=True, text=True, encoding="utf-8", errors="replace")
        if done.returncode:
            raise ValueError(f"main.py {' '.join(flags)} failed: {(done.stderr.splitlines() or ['?'])[-1]}")
        html = path.read_text(encoding="utf-8")
    back = BACK.replace("<a ", '<a style="color: var(--q)" ')
    back = f'  <p style="margin-left: auto">{back}</p>\n'
    return html.replace(TRACE, SITE, 1).replace("</header>", back + "</header>", 1)


# The judge --------------------------------------------------------------------------------------------------

PYODIDE = "https://cdn.jsdelivr.net/pyodide/v0.27.7/full/"
IMPORTED = """
import sys
from pathlib import Path
import pages.judge
import verdicts.museum
here, environment = Path.cwd(), Path(sys.prefix)                # either may lie in the other
modules = [m for name, m in sys.modules.items() if name != "__main__"]
files = [Path(m.__file__) for m in modules if getattr(m, "__file__", None)]
inside = here in environment.parents
ours = {f.relative_to(here) for f in files if here in f.parents and "site-packages" not in f.parts
        and not (inside and environment in f.parents)}
print(*ours, sep="\\n")
"""


def judge_page(base=PYODIDE):
    """base: where Pyodide is loaded from."""
    listed = subprocess.run([sys.executable, "-c", IMPORTED], cwd=ROOT, capture_output=True, text=True,
                            check=True)
    paths = [*listed.stdout.split(), "verdicts/cases.ini"]                          # which verdicts/ reads
    files = {path: (ROOT / path).read_text(encoding="utf-8") for path in sorted(paths)}
    data = dict(files=files, pairs=[*judge.PAIRS], standard=judge.STANDARD, openings=[*judge.openings()])
    policy = f" {base} 'wasm-unsafe-eval'; connect-src {base}; worker-src blob:"
    return interactive(PAGES["judge.html"][0], "judge.html", policy, base=base, data=as_data(data))


# Live -------------------------------------------------------------------------------------------------------

TIDE = ("The tide was going out. Along the edge of the water a girl was walking barefoot, "        # as main.py's  # noqa: E501
        "with her shoes in")
MODELS = "demo-draft", "demo-target", "demo-eagle"
FILES = ("hparams.json", "encoder.json", "vocab.bpe", "checkpoint", "model.ckpt.index",
         "model.ckpt.data-00000-of-00001")


def packed(paths):
    """Files of the repository -> a zip, the same bytes each time, that begins as our pages do (files.py)."""
    file = io.BytesIO()
    with ZipFile(file, "w") as archive:
        for path in paths:
            archive.writestr(ZipInfo(str(path), (1980, 1, 1, 0, 0, 0)), (ROOT / path).read_bytes(), ZIP_DEFLATED)  # noqa: E501
    return (BEGIN + SITE).encode() + file.getvalue()


def packs():
    """{file: bytes} of what live.html loads: the modules of this repository that live.py needs, the models."""  # noqa: E501
    program = IMPORTED.replace("pages.judge", "pages.live")
    listed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: E501
    folders = {name: [Path("models", name, file) for file in FILES if (ROOT / "models" / name / file).exists()]  # noqa: E501
               for name in MODELS}
    return {"code.zip": packed(sorted([*listed.stdout.split(), "verdicts/cases.ini"]))} | {
        f"{name}.zip": packed(paths) for name, paths in folders.items()}


def recorded_race(settings):
    """A race run here, as the page shows one: it plays before Python is loaded."""
    from pages.live import Live
    live, rounds = Live(), {"alone": [], "spec": []}
    about = json.loads(live.start(json.dumps(settings)))
    for lane, done in rounds.items():
        while found := json.loads(live.advance(lane)):
            done.append(found)
    return dict(about=about, **rounds)


def live_page(files, base=PYODIDE):
    """files: what `packs` made; base: where Pyodide is loaded from."""
    from pages.live import openings
    settings = dict(prompt=TIDE, n_tokens=40, K=4, temperature=0, top_p=1, seed=0, drafter="model", verifier="token")  # noqa: E501
    about = [dict(file=file, size=len(data), sha256=hashlib.sha256(data).hexdigest()) for file, data in files.items()]  # noqa: E501
    data = dict(packs=about, openings=[*openings()], settings=settings, recorded=recorded_race(settings))
    policy = f" {base} 'wasm-unsafe-eval'; connect-src 'self' {base}; worker-src blob:"
    return interactive(PAGES["live.html"][0], "live.html", policy, base=base, data=as_data(data))


def as_data(data):
    """For a <script> element: without "<" nothing in it can end the element."""
    return json.dumps(data).replace("<", "\\u003c")


def machine_page():
    """{} before anything was counted."""
    data, title = machine.data(), PAGES["machine.html"][0]
    return {"machine.html": interactive(title, "machine.html", data=as_data(data),
                                        measured=data["measured"])} if data else {}


# The index --------------------------------------------------------------------------------------------------

def cards(files):
    """What is on these pages, and links to them."""
    known = PAGES | {f"replay_{name}.html": about for name, (_, *about) in RUNS.items()}
    parts = [f'<div><dt><a href="{file}">{title}</a></dt>\n<dd>{text}</dd></div>'
             for file in files for title, text in [known[file]]]
    return "\n".join(['<dl class="cards">', *parts, "</dl>"])


def index_page(repository=""):
    wrong = sum(case.verdict == "wrong" for case in CASES)
    code = f': <a href="{repository}">{repository.split("//")[1]}</a>' if repository else ""
    picture = figure(RESULTS / "replay.png",
                     "One round: three drafts are accepted, one is rejected and corrected. Open this run.")
    return page("Speculative sampling, in NumPy", f"""<main>
<h1>Speculative sampling, in NumPy</h1>
<p>A language model writes one token a pass, and a pass over five tokens costs about as much as one over
one. So a small <i>draft</i> model proposes a few tokens, the large <i>target</i> model checks them all in one
pass, and a modified rejection sampling gives the text exactly the distribution of the target ({PAPERS}). Here
the method is a hundred lines of NumPy and GPT-2 another hundred, to be read with the papers open{code}.</p>
<h2>Watch it</h2>
<a href="replay_token.html#8">{picture}</a>
<p>Two small models that come with the code write a text. Each page goes through a run round by round: the
drafts, what both models gave them, the coin that decided. The key R races the run against the target alone,
with the times of the machine that made these pages.</p>
{cards([*(f"replay_{name}.html" for name in RUNS), "rule.html"])}
<h2>Is it really lossless?</h2>
<p>{len(CASES)} rules that public threads are about are judged exactly; {wrong} are wrong. The verdicts, the
notebooks and the results are in the repository; each rule can be opened here.</p>
{cards(["live.html", "judge.html"])}
<h2>What it gains</h2>
{cards(["machine.html"] * bool(machine.data()))}
</main>""")


def pages(repository=""):
    """{file: its text} of the whole site."""
    replays = {f"replay_{name}.html": replay(flags) for name, (flags, *_) in RUNS.items()}
    files = packs()
    return {"index.html": index_page(repository), **replays, "live.html": live_page(files), **files, "judge.html": judge_page(), **machine_page(),  # noqa: E501
            "rule.html": interactive(PAGES["rule.html"][0], "rule.html")}
