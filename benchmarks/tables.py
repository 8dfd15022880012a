"""The numbers in the pages: `python -m benchmarks speed` writes them all.

- Tables, each between two comments: <!-- tokens in lines, T = 0 --> and <!-- end -->.
- Sentences, which sentences.txt lists, with a quantity of figures.py in braces in place of the number.
- claims.md, made from claims.in.md, with quantities in braces, too.

"-" means not counted or not measured.  Speed-ups and v have one decimal, because a new measurement moves them
by a tenth.
"""
import re

from benchmarks.costs import SIZES
from benchmarks.counts import SHAPES, cell_of, name_of, plan
from benchmarks.figures import RESULTS, costs, value
from engine.loading.files import rewrite
from methods.table import DRAFTERS, VERIFIERS

TABLE = re.compile(r"(<!-- (.+) -->\n)[^<]*(?=<!-- end -->)")
NAMES = {"avx512": "AVX-512", "avx2": "AVX2"}                   # of files: in words
ROOT = RESULTS.parents[1]
PAGES = ["docs/methods.md",
         *(f"benchmarks/results/{name}.md" for name in ("tokens", "speed", "passes", "peers"))]
SENTENCES = [line.split(": ", 1) for line in (
    ROOT / "benchmarks" / "sentences.txt").read_text(encoding="utf-8").splitlines() if line[0] != "#"]


def show(what):
    """
    >>> show("model token K=4 T=1: text"), show("avx2 passes 124M: v 5"), show("no token T=1: text")
    ('2.63 ± 0.02', '1.5', '-')
    """
    try:
        found = value(what)
    except KeyError:
        return "-"
    decimals = 1 if re.search(r": (speedup|v( \d+)?)$", what) else 2
    return "-" if found is None else found if isinstance(found, str) else f"{found:.{decimals}f}"


def table(first, columns, rows):
    """A Markdown table.  columns {head: quantity}, rows {label: name}.  In a quantity NAME is the row's name,
    and METHOD the name without K and shape.  A row without any number is left out.

    >>> print(table("", {"K = 2": "METHOD K=2 T=1: tokens"}, {"`model`": "model token K=4"}), end="")
    | | K = 2 |
    | --- | --- |
    | `model` | 2.16 |
    """
    lines = [[first, *columns], ["---"] * (len(columns) + 1)]
    for label, name in rows.items():
        method = re.sub(" K=.*|:3,2,1", "", name)
        cells = [show(what.replace("NAME", name).replace("METHOD", method)) for what in columns.values()]
        lines += [[label, *cells]] if {*cells} != {"-"} else []
    return "".join(f"| {' | '.join(cells).lstrip()} |\n" for cells in lines)


def methods(*wanted):
    """{label: name} of the cells of the plan with one of these (K, T, where): lines, and trees of 3,2,1."""
    found = {}
    for drafter, verifier, K, *more in plan():
        if (K, *more) in wanted and (K or verifier.endswith(":3,2,1")):
            rule = verifier.split(":")[0]
            lossy = " (lossy)" * (VERIFIERS[rule].lossless is False)
            found[f"{drafter.split(':')[0]} {rule}{lossy}"] = name_of(drafter, verifier, K)
    return found


# The tables: {mark: table} ----------------------------------------------------------------------------------

def tables_of_tokens():
    by_place = {"tokens 0 to 20": "places:0-20", "20 to 40": "places:20-40", "40 to 60": "places:40-60"}
    by_place = {head: f"NAME {where} T=0: text" for head, where in by_place.items()}
    best = {f"{n}, T = {T}": f"NAME tree:best{n} T={T}: tokens" for T in (0, 1) for n in (4, 8, 16, 32)}
    early = methods((4, 0, "places:0-20"), (None, 0, "places:0-20"))
    found = {"tokens by place, T = 0": table("drafter, verifier", by_place, early),
             "tokens in trees of the best shape": table("drafter", best, dict(model="model", eagle="eagle"))}
    for T in 0, 1:
        columns = {f"K = {K}": f"METHOD K={K} T={T}: text" for K in (2, 4, 8)}
        columns |= {f"{what} at K = 4": f"METHOD K=4 T={T}: {field}"
                    for what, field in (("acceptance rate", "rate"), ("rows", "rows"))}
        found[f"tokens in lines, T = {T}"] = table("drafter, verifier", columns, methods((2, T, "")))
        columns = {shape: f"METHOD:{shape} T={T}: text" for shape in SHAPES if shape != "2,1,1,1"}
        found[f"tokens in trees, T = {T}"] = table("drafter, rule", columns, methods((None, T, "")))
    return found


def tables_of_costs():
    fields = {"ms": "text", "v of 5": "v 5", "v of 9": "v 9", "share": "mbu 1"}
    columns = {f"{words}: {head}": f"{kernels} passes NAME: {field}"
               for kernels, words in NAMES.items() for head, field in fields.items()}
    found = {"passes": table("model", columns, {name: name for name in SIZES})}
    for T in 0, 1:
        columns = {f"{words}, K = {K}": f"{kernels} METHOD K={K} T={T}: speedup"
                   for kernels, words in NAMES.items() for K in (2, 4, 8)}
        found[f"speed-up of lines, T = {T}"] = table("drafter, verifier", columns, methods((2, T, "")))
        columns = {words: f"{kernels} NAME T={T}: speedup" for kernels, words in NAMES.items()}
        found[f"speed-up of trees, T = {T}"] = table("drafter, rule", columns, methods((None, T, "")))
    return found


def table_of_methods():
    columns = {}
    for head, where in ("T = 1", "T=1"), ("T = 0", "places:0-20 T=0"):
        columns |= {head: f"NAME {where}: tokens", f"speed-up, {head}": f"avx512 NAME {where}: speedup"}
    rows = {f"`{name}`": name_of(*cell_of(name)) for name in DRAFTERS | VERIFIERS}
    return {"methods": table("method", columns, rows)}


def table_of_peers():
    fields = "speed text", "speedup text", "tokens", "c", "v", "predicted", "outside"
    found = {}
    for kernels, words in NAMES.items():
        columns = {field.removesuffix(" text"): f"{kernels} peers NAME: {field}" for field in fields}
        names = [name for name in costs(kernels, "peers")["peers"] if "=" in name]
        found[f"peers, {words}"] = table("", columns, dict(zip(names, names)))
    return found


# The pages --------------------------------------------------------------------------------------------------

def say(page, text, show=show):
    """The text of a page with the numbers of its sentences.  Raises ValueError if one is not there."""
    for sentence in (sentence for where, sentence in SENTENCES if where == page):
        before, quantity, after = re.fullmatch("(.*){(.+)}(.*)", sentence).groups()
        before, after = (r"\s+".join(map(re.escape, words.split(" "))) for words in (before, after))
        text, n = re.subn(rf"({before})(?:\d*\.\d+|-)({after})", rf"\g<1>{show(quantity)}\2", text)
        if not n:
            raise ValueError(f"{page} no longer says {sentence!r}: change benchmarks/sentences.txt, too")
    return text


def pages():
    """{path: the page as it should be}.  Raises KeyError for a mark that has no table."""
    made = tables_of_tokens() | tables_of_costs() | table_of_peers() | table_of_methods()
    found = {}
    for page in [*PAGES, *(page for page, _ in SENTENCES)]:
        text = say(page, (ROOT / page).read_text(encoding="utf-8"))
        found[ROOT / page] = TABLE.sub(lambda mark: mark[1] + made[mark[2]], text)
    claims = (RESULTS / "claims.in.md").read_text(encoding="utf-8")
    return found | {RESULTS / "claims.md": re.sub("{(.+?)}", lambda what: show(what[1]), claims)}


def write_pages():
    for path, text in pages().items():
        if path.read_text(encoding="utf-8") != text:
            rewrite(path, text)
