"""Are the tests any good?  Plants small mistakes in the code, one at a time, and runs the tests that belong
to the changed file.

    python tests/tools/mutate.py --n=160 --seed=1                     # over all files
    python tests/tools/mutate.py --n=20 speculative.py gpt2.py        # in these files
    python tests/tools/mutate.py speculative.py:14 gpt2.py:230        # these places again, as in the table

A mistake changes one operator, one number or one truth value, or leaves out one statement; messages stay as
they are.  It is planted in a copy of the repository, never in the files themselves.  Each mistake that no
test notices is printed as a line of a table: either it changes nothing that matters, or a test is missing.

Limitations: it plants no conceptual mistakes (verdicts/museum.py has those), and runs only the fast tests.
"""

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 150           # tests that take longer count as having noticed the mistake

# The tests that belong to a file, with those first that are likeliest to notice.  For files that are not
# listed, they have the file's name.  A file's doctests are always run.
TESTS = {
    "autoregressive.py": "lossless samplers", "speculative.py": "museum lossless samplers",
    "sampling.py": "sampling samplers lossless", "checks.py": "samplers main", "console.py": "console main",
    "gpt2.py": "gpt2 exact backend", "utils.py": "utils checkpoint main",
    "main.py": "main trace many terminal readme", "methods.py": "methods main",
    "lossless.py": "lossless sampling exercises",
    "compute/": "exact threads gpt2 backend", "drafters/": "drafters heads", "exercises/": "exercises",
    "loading/folder.py": "folder utils heads", "pages/site.py": "site machine live",
    "pages/": "trace live pages site machine", "verdicts/": "verdicts",
    "reporting/stats.py": "stats samplers main", "samplers/tree_model.py": "tree",
    "samplers/tree_rules.py": "tree k_seq", "benchmarks/": "figures counts costs sequoia",
    "benchmarks/counts.py": "counts costs",
}
# not tested without PyTorch, transformers or a run of the notebooks
NOT_HERE = ("tests/", "training/", "notebooks/",
            "verdicts/real.py", "benchmarks/peers.py")

SWAPS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
         ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
         ast.Is: ast.IsNot, ast.IsNot: ast.Is,
         ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Div,
         ast.And: ast.Or, ast.Or: ast.And, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr}


def places(source):
    """The numbers of those nodes of the source that can be changed."""
    return [number for number, node in enumerate(ordered(ast.parse(source))) if changed(node)]


def planted(source, number):
    """(line, what is changed, the changed source).

    >>> source = "if a < 1:\\n    b = c + 2"
    >>> [planted(source, number)[1] for number in places(source)]
    ['a < 1 -> a <= 1', '1 -> 2', 'b = c + 2 left out', 'c + 2 -> c - 2', '2 -> 3']
    """
    tree = ast.parse(source)
    node = next(node for i, node in enumerate(ordered(tree)) if i == number)
    before = ast.unparse(node)
    changed(node)
    after = "left out" if isinstance(node, ast.Pass) else f"-> {ast.unparse(node)}"
    return node.lineno, " ".join(f"{before} {after}".split()), ast.unparse(tree)


def ordered(tree):
    """The nodes of a tree: parents before children, and line by line."""
    children = list(ast.iter_child_nodes(tree))                 # listed before the node is changed
    yield tree
    for child in children:
        yield from ordered(child)


def changed(node):
    """Changes a node in place.  Returns False if there is nothing to change."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        node.ops[0] = SWAPS[type(node.ops[0])]()
    elif isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in SWAPS and not of_words(node):
        node.op = SWAPS[type(node.op)]()
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        node.value = not node.value
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        node.value = node.value + 1 if isinstance(node.value, int) else node.value * 1.5 or 1.0
    elif (isinstance(node, (ast.Assign, ast.AugAssign))
          or isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        where = {key: getattr(node, key) for key in ast.Pass._attributes}
        node.__class__, node.__dict__ = ast.Pass, where
    else:
        return False
    return True


def of_words(node):
    """Whether it is a sum of strings or a product with one: words, which are not changed."""
    return any(isinstance(part, ast.JoinedStr) or isinstance(getattr(part, "value", None), str)
               for part in ast.iter_child_nodes(node))


def files():
    """All files that tests belong to and that can be changed."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split()
            if not name.startswith(NOT_HERE) and places((ROOT / name).read_text(encoding="utf-8"))]


def paths_of(name):
    """The arguments for pytest that test a file.  Exits if no tests are known."""
    source = ROOT / name
    namesake, folder = ROOT / f"tests/test_{source.stem}.py", f"{name.split('/')[0]}/"
    tests = TESTS.get(name) or (source.stem if namesake.exists() else TESTS.get(folder, ""))
    tests += " judgements" * (folder in ("samplers/", "drafters/"))
    paths = [f"tests/test_{test}.py" for test in tests.split() if (ROOT / f"tests/test_{test}.py").exists()]
    if not paths:
        sys.exit(f"no tests are named for {name}: add it to TESTS")
    return [name] * (">>> " in source.read_text(encoding="utf-8")) + paths


def passes(copy, paths, planted_in="", seconds=None):
    """Whether these tests pass in a copy of the repository, within this time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", *paths]
    try:
        done = subprocess.run(command, cwd=copy, capture_output=True, timeout=seconds, text=True)
        if done.returncode and not planted_in:
            print(done.stdout, file=sys.stderr)
        return done.returncode == 0
    except subprocess.TimeoutExpired:
        print(f"\nno end within {seconds} seconds: {planted_in}", file=sys.stderr)
        return False


def survives(copy, name, source):
    """Whether the tests that belong to a file pass when this source replaces it."""
    path = copy / name
    kept = path.read_text(encoding="utf-8")
    path.write_text(source, encoding="utf-8")
    alive = passes(copy, paths_of(name), name, SECONDS)
    path.write_text(kept, encoding="utf-8")
    return alive


def main(words):
    if {"-h", "--help"} & {*words}:
        sys.exit(__doc__)
    flags = dict(word.removeprefix("--").split("=") for word in words if word.startswith("--"))
    words = [os.path.relpath(ROOT / word, ROOT) for word in words if not word.startswith("--")] or files()
    names = list(dict.fromkeys(word.split(":")[0] for word in words))
    paths = {path: None for name in names for path in paths_of(name)}
    sources = {name: (ROOT / name).read_text(encoding="utf-8") for name in names}
    every = [(name, number) for name in names for number in places(sources[name])]
    chosen = [place for place in every if "{}:{}".format(*place) in words]
    n, seed = int(flags.get("n", 150)), int(flags.get("seed", 0))
    chosen = chosen or random.Random(seed).sample(every, min(n, len(every)))
    n_survived = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(ROOT, Path(folder) / "copy", ignore=shutil.ignore_patterns(
            ".git", ".venv", "__pycache__", "work"))
        if not passes(copy, paths):
            sys.exit("the tests fail as it is, with no mistake planted")
        for tried, (name, number) in enumerate(chosen, 1):
            line, what, source = planted(sources[name], number)
            if survives(copy, name, source):
                n_survived += 1
                print(f"| {name}:{number} | {line} | `{what}` | |", flush=True)
            print(f"\r{tried} of {len(chosen)}, {n_survived} survived", end="", file=sys.stderr)
    print(f"\n{len(chosen)} planted of {len(every)} possible: {n_survived} went unnoticed")


if __name__ == "__main__":
    main(sys.argv[1:])
