"""Are the tests any good?  Small mistakes are planted in the code, one at a time, and the tests that belong
are run.

    python tests/mutate.py --n=150 --seed=0                     # over all files
    python tests/mutate.py --n=20 speculative.py gpt2.py        # in some

A mistake changes one operator, one number, one truth value, or leaves out one statement; words of messages
are left alone.  It is planted in a copy of the repository, never in the files themselves.  What no test
notices is printed as a line of a table: a mistake that changes nothing that matters, or a test that is
missing.

But: it knows no mistakes of thought (test_wrong_versions.py has those), and it runs the fast tests only.
"""

import ast
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 300           # of tests that do not end: the mistake was noticed

TESTS = {               # file: the tests that belong, the likeliest to notice first
    "autoregressive.py": "lossless samplers",
    "speculative.py": "wrong_versions lossless samplers",
    "sampling.py": "sampling samplers lossless",
    "gpt2.py": "gpt2 exact wrong_versions backend",
    "encoder.py": "encoder",
    "utils.py": "utils main checkpoint",
    "main.py": "main many terminal replay readme drafters",
    "lossless.py": "lossless sampling",
    "compute/backend.py": "backend",
    "compute/linear.py": "linear exact gpt2",
    "loading/checkpoint.py": "checkpoint",
    "loading/download.py": "download",
    "reporting/stats.py": "stats samplers main",
    "reporting/terminal.py": "terminal",
    "reporting/replay.py": "replay",
    "reporting/many.py": "many",
    "samplers/batch.py": "batch",
    "samplers/block.py": "block",
    "samplers/tree.py": "tree k_seq",
    "samplers/k_seq.py": "k_seq",
    "samplers/lossy.py": "lossy",
    "drafters/lookup.py": "drafters",
    "drafters/ngram.py": "drafters",
    "drafters/adaptive.py": "drafters",
    "drafters/early_exit.py": "drafters heads",
    "drafters/layer_skip.py": "drafters",
    "drafters/heads.py": "heads",
    "drafters/prophet.py": "heads",
    "drafters/medusa.py": "heads",
    "exercises/__main__.py": "exercises",
    "benchmarks/pairs.py": "benchmark",
    "benchmarks/measure.py": "benchmark",
    "benchmarks/methods.py": "benchmark",
    "benchmarks/synthetic.py": "benchmark",
}

SWAPS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
         ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
         ast.Is: ast.IsNot, ast.IsNot: ast.Is,
         ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Div,
         ast.And: ast.Or, ast.Or: ast.And, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr}


def places(source):
    """The numbers of the nodes of a source that can be changed."""
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
    """The nodes of a tree, parents before children and line after line."""
    children = list(ast.iter_child_nodes(tree))                 # before anybody changes the node
    yield tree
    for child in children:
        yield from ordered(child)


def changed(node):
    """Change a node in place.  False where there is nothing to change."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        node.ops[0] = SWAPS[type(node.ops[0])]()
    elif isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in SWAPS and not of_words(node):
        node.op = SWAPS[type(node.op)]()
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        node.value = not node.value
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        node.value = node.value + 1 if isinstance(node.value, int) else node.value * 1.5
    elif (isinstance(node, (ast.Assign, ast.AugAssign))
          or isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        line, column = node.lineno, node.col_offset
        node.__class__, node.__dict__ = ast.Pass, dict(lineno=line, col_offset=column)
    else:
        return False
    return True


def of_words(node):
    """A sum of strings, or a product with one: words, which are left alone."""
    return any(isinstance(part, ast.JoinedStr) or isinstance(getattr(part, "value", None), str)
               for part in ast.iter_child_nodes(node))


def survives(copy, name, source):
    """True if the tests that belong to a file pass with this source in its place."""
    path = copy / name
    kept = path.read_text(encoding="utf-8")
    path.write_text(source, encoding="utf-8")
    tests = [f"tests/test_{test}.py" for test in TESTS[name].split()]
    tests = [test for test in tests if (copy / test).exists()]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(command, cwd=copy, capture_output=True, timeout=SECONDS)
        return done.returncode == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        path.write_text(kept, encoding="utf-8")


def main(words):
    flags = dict(word.removeprefix("--").split("=") for word in words if word.startswith("--"))
    names = [word for word in words if not word.startswith("--")] or list(TESTS)
    sources = {name: (ROOT / name).read_text(encoding="utf-8") for name in names}
    every = [(name, number) for name in names for number in places(sources[name])]
    chosen = random.Random(int(flags.get("seed", 0))).sample(every, min(int(flags.get("n", 150)), len(every)))
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", "work"))
        for name in sorted({name for name, _ in chosen}):
            if not survives(copy, name, sources[name]):
                sys.exit(f"the tests of {name} fail as it is: {TESTS[name]}")
        for n, (name, number) in enumerate(sorted(chosen), 1):
            line, what, source = planted(sources[name], number)
            if survives(copy, name, source):
                survivors += 1
                print(f"| {name}:{line} | `{what}` | |", flush=True)
            print(f"\r{n} of {len(chosen)}, {survivors} survived", end="", file=sys.stderr, flush=True)
    print(f"\n{len(chosen)} planted of {len(every)} possible: {survivors} went unnoticed")


if __name__ == "__main__":
    main(sys.argv[1:])
