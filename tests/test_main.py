"""main.py: what a run prints, what is refused, and how little there is to read."""
import ast
import io
import json
import re
import sys
import tokenize
from pathlib import Path

import pytest
from helpers import ROOT, git, python

import main as program
import methods.__main__ as laboratory
from engine.loading import command_line
from utils import load_model

READ_FIRST = ["main", "autoregressive", "speculative", "sampling", "gpt2", "encoder", "utils"]


def run(capsys, *words):
    status = command_line.run(program.main, words)
    return status, *capsys.readouterr()


@pytest.mark.parametrize("temperature, K", [(0, 4), (0.8, 1), (5, 50)])
def test_the_texts_are_those_of_the_laboratory(capsys, temperature, K):
    flags = "--temperature", str(temperature), "--K", str(K), "--top_k", "40", "--seed", "7", "-n", "12"
    status, out, _ = run(capsys, *flags)
    assert status == 0 and command_line.run(laboratory.main, [*flags, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    for part in "autoregressive", "speculative":
        assert f"{printed['prompt']}{printed[part]['text']}" in out
    assert f"{printed['speculative']['tokens_per_target_pass']:.2f} tokens per target pass" in out
    assert "Speed-up" in out and "acceptance rate" in out


@pytest.mark.parametrize("typed, says", {
    "--drafter eagle": "'--drafter' is not a flag of this program: python -m methods has it",
    "--json": "python -m methods has it", "--k 3": "did you mean --K?", "--K 0": "K is 0",
    "-n 600": "do not fit into the context of 512",
    "--draft_model_size nope": "there is no model or folder 'nope'", "--backend x": "'x'"}.items())
def test_bad_input_ends_in_one_sentence_and_status_2(capsys, typed, says):
    status, out, err = run(capsys, *typed.split())
    assert (status, out, err.count("\n")) == (2, "", 1) and says in err


def test_every_flag_of_the_laboratory_alone_is_named():
    flags, of_laboratory = ({*module.main.__kwdefaults__} for module in (program, laboratory))
    assert {*command_line.ELSEWHERE} == of_laboratory - flags and flags <= of_laboratory


def test_a_draft_that_does_not_fit_is_refused_before_the_first_run(capsys, monkeypatch):
    draft, encoder = load_model("demo-draft")
    monkeypatch.setattr(program, "load_pair", lambda *_: (draft, load_model("demo-target")[0], encoder))
    draft.n_ctx = 40
    status, out, err = run(capsys, "-n", "30")
    assert (status, out) == (2, "")
    assert "the draft model's context of 40: use python -m methods --drafter tli (or slem)" in err


def test_flags_without_effect_are_named_on_standard_error(capsys):
    status, _, err = run(capsys, "--seed", "3", "-n", "2")
    assert status == 0 and err == "note: --seed has no effect at temperature 0, which is greedy\n"


# How little there is to read --------------------------------------------------------------------------------

def code_lines(path):
    """How many lines are neither blank nor comment nor docstring."""
    text, lines, no_code = path.read_text(encoding="utf-8"), set(), {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in no_code:
            lines |= {*range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            lines -= {*range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    return len(lines)


def test_the_files_to_read_first_are_short_and_the_readme_says_which_and_how_short():
    """And they import nothing from methods/, as CONTRIBUTING says."""
    n = sum(code_lines(ROOT / f"{name}.py") for name in READ_FIRST)
    assert n <= 330 and n + code_lines(ROOT / "engine/checks.py") <= 505
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert int(re.search(r"these seven first, (\d+) lines", readme)[1]) == n
    listed = re.search(r"```text\n(main\.py.*?)\n\n", readme, re.S)[1]
    assert re.findall(r"^(\w+)\.py", listed, re.M) == READ_FIRST
    code = "\n".join((ROOT / f"{name}.py").read_text(encoding="utf-8") for name in READ_FIRST)
    assert not re.search(r"^ *(?:from|import) methods\b", code, re.M)


def test_main_imports_few_names_and_few_files():
    tree = ast.parse((ROOT / "main.py").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = [name.name for node in imports for name in node.names
             if (getattr(node, "module", None) or name.name) not in sys.stdlib_module_names]
    code = "import sys, main; print(*(getattr(m, '__file__', 0) for m in [*sys.modules.values()]))"
    loaded = {str(ROOT / name) for name in git("ls-files", "*.py")} & {*python("-c", code).stdout.split()}
    n_lines = sum(len(Path(file).read_text(encoding="utf-8").splitlines()) for file in loaded)
    assert len(names) <= 12 and 20 < len(loaded) <= 27 and n_lines <= 3100, (names, loaded, n_lines)
