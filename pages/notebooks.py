"""A notebook, with the outputs that are stored in it -> a page that loads nothing from the network.

Not here: running it (notebooks/run.py does).
"""
import json
import re
from base64 import b64encode
from html import escape
from pathlib import Path
from posixpath import normpath

from pages.frame import BACK, page

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("*.ipynb"))


def notebook_pages(repository=""):
    """{file: its page} of all notebooks, each with links to its neighbours."""
    to_html = exporter(repository)
    return {f"{path.stem}.html": notebook_page(path, neighbours, to_html)
            for path, neighbours in zip(NOTEBOOKS, zip([None, *NOTEBOOKS], [*NOTEBOOKS[1:], None]))}


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


def linked(html, repository="", folder="notebooks"):
    """Links to files, as they are seen from a folder -> to pages of this site, to the repository, or words.

    >>> linked('<a href="../gpt2.py">it</a>'), linked('<a href="2_x.ipynb">it</a>')
    ('it', '<a href="2_x.html">it</a>')
    >>> linked('<a href="../gpt2.py">it</a>', "https://code.org/us")
    '<a href="https://code.org/us/blob/HEAD/gpt2.py">it</a>'
    """
    def to(match):
        link, text = match.groups()
        if re.match("https?:|#", link):
            return match[0]
        path = normpath(f"{folder}/{link}")
        if path.endswith(".ipynb"):
            link = f"{Path(path).stem}.html"
        elif path.startswith("benchmarks/results") and path.endswith(("s", ".md")):
            link = f"results.html#{Path(path).stem}"
        elif repository:
            link = f"{repository}/blob/HEAD/{path}"
        else:
            return text
        return f'<a href="{link}">{text}</a>'
    return re.sub(r'<a href="([^"]*)">(.*?)</a>', to, html, flags=re.S)


def notebook_page(path, neighbours, to_html):
    """neighbours: the notebooks before and after it, or None."""
    import nbformat
    notebook = nbformat.read(path, as_version=4)
    before = ""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.metadata["alt"] = alt_of(cell.source, before)  # of a PNG; nbconvert gives an SVG none
            for data in (output.data for output in cell.outputs if "image/svg+xml" in output.get("data", {})):
                data["text/html"] = picture(data["image/svg+xml"], cell.metadata["alt"])
        else:
            before = cell.source
    links = (f'<a href="{other.stem}.html">{words}</a>' if other else "<span></span>"
             for other, words in zip(neighbours, ("← The one before", "The next →")))
    body, _ = to_html.from_notebook_node(notebook)
    return page(title_of(path), f"<nav>{BACK}</nav>\n<main>{body}</main>\n"
                                f'<nav class="end">{"".join(links)}</nav>')


def picture(svg, alt):
    """A picture by itself: the names in it cannot meet those in another."""
    return f'<img alt="{escape(alt)}" src="data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}">'


def title_of(path):
    """The notebook's first heading."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return re.search(r"^# (.*)", "".join(cells[0]["source"])).group(1)


def alt_of(source, before):
    """What a picture shows, for those who cannot see it: the words its code writes on it, or, if there are
    none, the last sentence of the text before it.

    >>> alt_of('ax.plot(x, y, label=f"v = {v}")' + chr(10) + 'ax.set(xlabel="K", ylabel="speed-up")', "")
    'Picture: K; speed-up; v = …'
    """
    found = re.findall(r'(title|xlabel|ylabel|label)[=(]r?f?"([^"]+)"', source)
    words = [text for kind, text in sorted(found, key=lambda f: f[0] == "label")] or [
        re.split(r"(?<=[.:?]) ", " ".join(before.split()))[-1]]
    plain = re.sub(r"\{[^}]*\}", "…", "; ".join(words))
    return "Picture: " + re.sub(r"\s+", " ", re.sub(r"\\+[,a-z]*|[$#*`]", "", plain)).strip()
