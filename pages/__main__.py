"""A static site to look at without an install:

    python -m pages FOLDER [REPOSITORY]

    index.html          what this is, and links to the rest
    replay_*.html       runs of the embedded pair, as main.py --trace writes them
    1_*.html, ..        the notebooks, with the outputs that are stored in them
    results.html        the table of all methods, and the pictures of the others

REPOSITORY is the web address of the code, as https://github.com/name/repository: links to files lead there,
and without it they are plain words.  Every page is a file by itself that asks nothing of the network.  The
folder is written when all went well; it may be new, or one that was written by this before.

But: nothing is measured here and no notebook is run; only the runs that are replayed are made anew, and their
times are those of the machine that makes them.
"""
import json
import re
import subprocess
import sys
from base64 import b64encode
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.methods import REPEATING
from benchmarks.show import shown, visible

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "avx512"
TEMPLATE = Path(__file__).with_name("site.html")
REPLAY = Path(__file__).with_name("replay.html")
MARK = '<meta name="generator" content="python -m pages">'
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
                "One block of its own, an EAGLE head, reads the target's last hidden states and drafts."),
}
PICTURES = {    # in RESULTS: caption
    "trees.png": "Lines of drafts, blocks and trees of several shapes.",
    "pairs_K.png": "The embedded pair: measured speed-up over K, the drafts a round.",
    "pairs_predicted.png": "The same, measured over predicted.",
    "synthetic_acceptance.png": "A pair of the size of GPT-2 355M with random weights: speed-up over the "
                                "acceptance rate.",
    "forward_rows.png": "What a pass over several rows costs, over one row: v.",
    "parts.png": "Where the time of a pass goes.",
    "batch_batch.png": "Several sequences at once: batching takes from speculation what v gave it.",
    "heads.png": "Drafters that read the target's states: how often a round's first draft is accepted, its "
                 "second, ..",
    "lossy.png": "Rules that are not lossless: tokens a pass over the distance from the target's "
                 "distribution.",
}
NOT_MEASURED = ("The table of all methods has not been measured yet: <code>python -m benchmarks "
                "--tables=methods --out=benchmarks/results/avx512</code> makes it.")
PAPERS = ('<a href="https://arxiv.org/abs/2302.01318">Chen et al. 2023</a>, '
          '<a href="https://arxiv.org/abs/2211.17192">Leviathan et al. 2022</a>')
BACK = '<a href="index.html">← All pages</a>'


def page(title, body):
    """The whole page as a string; body is HTML."""
    colours = REPLAY.read_text(encoding="utf-8").split("<style>\n")[1].split("* {")[0]
    parts = dict(title=escape(title), colours=colours.strip(), body=body)
    template = marked(TEMPLATE.read_text(encoding="utf-8"))
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def marked(html):
    """With the line that tells a page of this site, by which the folder may be written again."""
    return html.replace('<meta charset="utf-8">', '<meta charset="utf-8">\n' + MARK, 1)


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
    return marked(html).replace("</header>", f'  <p style="margin-left: auto">{back}</p>\n</header>', 1)


# The notebooks ----------------------------------------------------------------------------------------------

def exporter(repository=""):
    """nbconvert's, without what its pages load from the network: its barest template, formulas as MathML."""
    from latex2mathml.converter import convert
    from nbconvert import HTMLExporter
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    class Formulas(IPythonRenderer):
        def inline_math(self, body):
            return f'<span class="formula">{convert(body)}</span>'

        def block_math(self, body):
            return f'<span class="formula display">{convert(body, display="block")}</span>'

    def markdown(source):
        renderer = Formulas(escape=False, exclude_anchor_links=True)
        return linked(MarkdownWithMath(renderer=renderer).render(source), repository)

    return HTMLExporter(template_name="basic", exclude_input_prompt=True, exclude_output_prompt=True,
                        filters={"markdown2html": markdown})


def linked(html, repository=""):
    """Links to files, as a notebook sees them -> to pages of this site, to the repository, or mere words.

    >>> linked('<a href="../gpt2.py">it</a>'), linked('<a href="2_x.ipynb">it</a>')
    ('it', '<a href="2_x.html">it</a>')
    >>> linked('<a href="../gpt2.py">it</a>', "https://code.org/us")
    '<a href="https://code.org/us/blob/HEAD/gpt2.py">it</a>'
    """
    def to(match):
        link, text = match.groups()
        if re.match("https?:|#", link):
            return match[0]
        if link.startswith("../benchmarks/results"):
            link = "results.html"
        elif link.endswith(".ipynb") and "/" not in link:
            link = link.removesuffix("ipynb") + "html"
        elif repository:
            link = f"{repository}/blob/HEAD/{link.removeprefix('../')}"
        else:
            return text
        return f'<a href="{link}">{text}</a>'
    return re.sub(r'<a href="([^"]*)">(.*?)</a>', to, html, flags=re.S)


def notebook_page(path, neighbours, to_html):
    """neighbours: the notebooks before and after it, or None."""
    import nbformat
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        cell.metadata["alt"] = "What the code above draws"
    before, after = (f'<a href="{other.stem}.html">{words}</a>' if other else "<span></span>"
                     for other, words in zip(neighbours, ("← The one before", "The next →")))
    body, _ = to_html.from_notebook_node(notebook)
    return page(title_of(path), f"<nav>{BACK}</nav>\n<main>{body}</main>\n"
                                f'<nav class="end">{before}{after}</nav>')


def title_of(path):
    """The notebook's first heading."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return re.search(r"^# (.*)", "".join(cells[0]["source"])).group(1)


# The results ------------------------------------------------------------------------------------------------

def results_page(folder=RESULTS):
    """`folder`: where python -m benchmarks wrote its tables."""
    parts = [f"<nav>{BACK}</nav>", "<main><h1>Results</h1>", "<h2>All methods side by side</h2>"]
    if (folder / "methods.json").exists():
        parts += [figure(folder / "methods.png", "Tokens a target pass over the cost of a round, in steps of "
                         "the target alone. On a line through the origin speed-ups are the same."),
                  table(**json.loads((folder / "methods.json").read_text(encoding="utf-8")))]
    else:
        parts.append(f"<p>{NOT_MEASURED}</p>")
    pictures = [figure(folder / name, caption) for name, caption in PICTURES.items()]
    return page("Results", "\n".join([*parts, "<h2>Pictures of the other tables</h2>", *pictures, "</main>"]))


def table(machine, rows, **_):
    """What python -m benchmarks stored of a table -> HTML."""
    def cell(value):
        style = ' class="number"' if isinstance(value, (int, float)) else ""
        return f"<td{style}>{escape(shown(value))}</td>"

    rows = visible(rows)
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in rows[0])
    lines = ["<tr>" + "".join(map(cell, row.values())) + "</tr>" for row in rows]
    depends_on = escape("; ".join(f"{key} {value}" for key, value in machine.items()))
    return "\n".join([f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>', *lines,
                      f'</tbody></table></div><p class="soft">{depends_on}</p>'])


def figure(path, caption):
    """A picture inside the page; nothing where it has not been drawn."""
    if not path.exists():
        return ""
    return (f'<figure><img src="{data_of(path)}" alt="{escape(caption)}">'
            f"<figcaption>{escape(caption)}</figcaption></figure>")


def data_of(path):
    return "data:image/png;base64," + b64encode(path.read_bytes()).decode()


# The index, and the folder ----------------------------------------------------------------------------------

def index_page(notebooks, repository=""):
    """notebooks: {file of the page: title}."""
    runs = "\n".join(f'<dt><a href="replay_{name}.html">{title}</a></dt>\n<dd>{text}</dd>'
                     for name, (_, title, text) in RUNS.items())
    books = "\n".join(f'<li><a href="{file}">{escape(title.split(". ", 1)[-1])}</a></li>'
                      for file, title in notebooks.items())
    code = f'The code is at <a href="{repository}">{repository.split("//")[1]}</a>.' if repository else ""
    return page("Speculative sampling, in NumPy", f"""<main>
<h1>Speculative sampling, in NumPy</h1>
<p>GPT-2 and speculative sampling, written to be read with the paper open. A small <i>draft</i> model
proposes a few tokens, a large <i>target</i> model checks them all in one pass, and a modified rejection
sampling makes the text follow exactly the distribution of the target alone ({PAPERS}). {code}</p>
<figure><a href="replay_token.html#8"><img src="{data_of(ROOT / "benchmarks" / "results" / "replay.png")}"
alt="One round of a run: three drafts accepted, one rejected and corrected"></a>
<figcaption>One round: three drafts are accepted, one is rejected and corrected.</figcaption></figure>
<h2>Runs, replayed</h2>
<p>Two small models that come with the code write a text, and each page goes through it round by round: the
drafts, what both models gave them, the coin that decided. The arrow keys turn the rounds; R races the run
against the target alone. The times are those of the machine that made these pages.</p>
<dl>
{runs}
</dl>
<h2>Notebooks</h2>
<p>Step by step, each with what its code printed and drew.</p>
<ol>
{books}
</ol>
<h2>Results</h2>
<p><a href="results.html">What was measured</a>: all methods side by side, and the pictures of the other
tables.</p>
</main>""")


def pages(repository=""):
    """{file: its text} of the whole site."""
    to_html, notebooks = exporter(repository), sorted((ROOT / "notebooks").glob("*.ipynb"))
    site = {"index.html": index_page({f"{p.stem}.html": title_of(p) for p in notebooks}, repository),
            "results.html": results_page()}
    for before, path, after in zip([None, *notebooks], notebooks, [*notebooks[1:], None]):
        site[f"{path.stem}.html"] = notebook_page(path, (before, after), to_html)
    return site | {f"replay_{name}.html": replay(flags) for name, (flags, *_) in RUNS.items()}


def check_folder(folder):
    """Raises ValueError where the folder cannot be made, or holds anything but pages of such a site."""
    if not folder.parent.is_dir():
        raise ValueError(f"cannot write {folder}: there is no folder {folder.parent}")
    files = list(folder.iterdir()) if folder.is_dir() else []
    if folder.exists() and not (files and all(map(is_ours, files))):
        raise ValueError(f"{folder} is there and not just a site of this program: name a new folder")


def is_ours(path):
    return path.is_file() and path.suffix == ".html" and MARK.encode() in path.read_bytes()[:500]


def write_site(folder, site):
    """The pages {file: text} in the place of `folder`: all of them, or none."""
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as work:
        new = Path(work) / "new"
        new.mkdir()
        for file, text in site.items():
            (new / file).write_text(text, encoding="utf-8")
        if folder.exists():
            folder.rename(Path(work) / "old")
        new.rename(folder)


def main(words):
    """Run the command line; returns the exit status."""
    try:
        if {"--help", "-h"} & {*words}:
            print(__doc__)
            return 0
        if len(words) not in (1, 2) or words[0].startswith("-"):
            raise ValueError("name the folder to write, as in: python -m pages site")
        folder, repository = Path(words[0]).resolve(), "".join(words[1:]).rstrip("/")
        if repository and not re.fullmatch(r"https?://[\w.~/-]+", repository):
            raise ValueError(f"{repository} is no address of a repository, such as "
                             "https://github.com/name/repository")
        check_folder(folder)
        site = pages(repository)
        write_site(folder, site)
        size = sum(len(text.encode()) for text in site.values())
        print(f"{folder / 'index.html'}: {len(site)} pages, {size / 1e6:.1f} MB")
    except ImportError as error:
        print(f"error: {error.name} is missing: pip install -e '.[site]'", file=sys.stderr)
        return 2
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
