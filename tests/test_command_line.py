"""The command line turns words into flags and errors into sentences: a small program, then all of ours."""
import errno
import io
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from helpers import ROOT, full_disk, python

from engine.loading import command_line, user_file
from engine.loading.files import rewrite
from exercises import child
from main import main

HOME = os.path.expanduser("~")


def program(file, other="x", *, prompt="hello", K=4, temperature=0.5, json=False):
    """Do it.

    Args:
        file: what to read
        K: drafts a round
    """
    print([file, other, prompt, K, temperature, json])


def no_arguments():
    pass


@pytest.mark.parametrize("words, values", [
    (["f"], ["f", "x", "hello", 4, 0.5, False]),
    (["--json", "f", "g", "-K", "3"], ["f", "g", "hello", 3, 0.5, True]),
    (["f", "--temperature", "1"], ["f", "x", "hello", 4, 1.0, False]),
    (["f", "--json", "True", "--K=5"], ["f", "x", "hello", 5, 0.5, True]),
    (["--json", "false", "f", "-p", "y"], ["f", "x", "y", 4, 0.5, False]),
    (["f", "--json=1", "--t", "0"], ["f", "x", "hello", 4, 0.0, True]),
    (["--K", "3", "--", "f", "--json"], ["f", "--json", "hello", 3, 0.5, False]),
    (["f", "--json", "not a word"], ["f", "not a word", "hello", 4, 0.5, True]),
    *[(["f", "--prompt", typed], ["f", "x", typed, 4, 0.5, False])
      for typed in ["2017-10-10", "1.10", "a,b", "{x}", "5", "-", "-abc", "True", "None", "'quoted\"",
                    "[1, 2]", "a\\nb", "a\nb", " x ", ""]],
    (["f", "--prompt=--x"], ["f", "x", "--x", 4, 0.5, False]),
    (["f", "--K", "9" * 400], ["f", "x", "hello", int("9" * 400), 0.5, False]),
    (["f", "\u2014K=5", "\u2013json"], ["f", "x", "hello", 5, 0.5, True]),
    (["\u2014Hola", "--prompt", "~/x"], ["\u2014Hola", "x", "~/x", 4, 0.5, False]),
    (["~/m", "--other=ngram:~/m"], [f"{HOME}/m", f"ngram:{HOME}/m", "hello", 4, 0.5, False])])
def test_every_value_arrives_as_typed(words, values, capsys):
    assert command_line.run(program, words) == 0
    assert capsys.readouterr().out == f"{values}\n"


@pytest.mark.parametrize("words, says", {
    "": "missing a required argument: 'file'",
    "f g h": "one word too many (a text of several words needs quotes): see --help",
    "f --promt x": "did you mean --prompt?", "f --k 3": "did you mean --K?",
    "f --gamma 3": "did you mean --K?",
    "f --K foo": "--K foo: give a whole number",
    "f --K 2.5": "a whole number", "f --temperature nan": "give a number",
    "f --K": "--K needs a value",
    "f --prompt --json": "needs a value", "f --json=2": "--json 2: give true or false",
    "f --json maybe": "--json maybe: give true or false", "f --temp 1": "did you mean --temperature?",
    "f --max_length 3": "see --help", "f --num_assistant_tokens 3": "did you mean --K?",
    "f -t 1 -x 2": "'-x' is not a flag"}.items())
def test_words_that_are_not_understood_get_one_sentence_before_the_work(words, says, capsys):
    assert command_line.run(program, words.split()) == 2
    out, err = capsys.readouterr()
    assert says in err and err.startswith("error: ") and err.count("\n") == 1 and not out


def test_help_names_every_flag_with_its_default_and_does_nothing(capsys):
    assert command_line.run(program, ["--K", "3", "--help"]) == command_line.run(program, ["-h"]) == 0
    out, err = capsys.readouterr()
    for line in "FILE\n        what to read", "-K, --K=K\n        Default: 4\n        drafts", "--json":
        assert line in out and not err


@pytest.mark.parametrize("error, status, says", [
    (ValueError("that is wrong"), 2, "error: that is wrong\n"),
    (OSError(errno.ENOSPC, "No space left on device", "a.html"), 2, "error: cannot write a.html (No space"),
    (OSError("9 requested and 0 written"), 2, "error: cannot write the output (9 requested"),   # from NumPy
    (MemoryError(), 2, "error: there is not enough memory"),
    (ModuleNotFoundError(name="nothing"), 2, "error: nothing is not installed: pip install nothing"),
    (KeyboardInterrupt(), 130, "interrupted\n"),
    (BrokenPipeError(), 0, "")])
def test_an_error_is_a_sentence_and_a_status(error, status, says, capsys):
    def fails():
        raise error
    assert command_line.run(fails, []) == status
    assert capsys.readouterr().err.startswith(says)


def test_a_mistake_here_keeps_its_traceback_and_one_in_a_loaded_file_says_its_line(tmp_path, capsys,
                                                                                   monkeypatch):
    def broken():
        return {}["x"]
    with pytest.raises(KeyError):
        command_line.run(broken, [])
    mine = tmp_path / "mine.py"
    mine.write_text("def propose(x):\n    return len(x\n        + 1)\n")
    monkeypatch.chdir(tmp_path)
    for typed in mine, "mine.py", "./mine.py":
        assert command_line.run(lambda: user_file.load_function(typed, "propose", len)(3), []) == 2
        said = capsys.readouterr().err.replace("line 2", "line 3")
        assert f"error: {typed}, line 3: TypeError: " in said


@pytest.mark.parametrize("text, says", [
    (None, "cannot read .* name a Python file"), ("def other(): pass", "has no function propose"),
    ("propose = 3", "has no function propose"), ("x = 1\ndef (:", "line 2: SyntaxError"),
    ("\nimport nothing_like_it", "line 2: ModuleNotFoundError")])
def test_a_file_that_cannot_be_used_says_why(text, says, tmp_path):
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=says):
        user_file.load_function(path, "propose", no_arguments)


def test_a_file_of_ones_own_can_import_the_one_beside_it(tmp_path):
    (tmp_path / "the_one_beside.py").write_text("drafts = [1]")
    (tmp_path / "mine.py").write_text("import the_one_beside\npropose = lambda: the_one_beside.drafts")
    assert user_file.load_function(tmp_path / "mine.py", "propose", no_arguments)() == [1]


def test_an_edit_within_a_second_counts(tmp_path, monkeypatch):
    """Python's own bytecode cache compares only the size and the time in seconds."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "mine.py"
    for said in "good", "evil":
        path.write_text(f"raise ValueError('{said}')")
        os.utime(path, (0, 0))
        with pytest.raises(ValueError, match=said):
            user_file.load_function(path, "propose", no_arguments)
        assert said in next(child.check_steps(path))[0]


def test_a_file_is_rewritten_whole_or_stays_as_it_was(tmp_path):
    file, link, old = tmp_path / "a.json", tmp_path / "link", "old" * 2000
    rewrite(file, old)
    link.symlink_to(file)
    with pytest.raises(OSError, match="large"), full_disk(5000):
        rewrite(file, "new" * 2000)
    assert file.read_text() == old and {*tmp_path.iterdir()} == {file, link}
    rewrite(link, "new\n")
    assert file.read_bytes() == b"new\n"
    assert {*tmp_path.iterdir()} == {file, link} and link.is_symlink()


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_what_a_terminal_cannot_show_becomes_a_question_mark(name, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, name, stream)
    assert command_line.run(lambda: print("caf\u00e9", file=stream), []) == 0
    stream.flush()
    assert stream.buffer.getvalue() == b"caf?\n"


@pytest.mark.parametrize("place, verdict, status, says", [
    (None, 0, 0, ""), (None, 1, 1, ""), pytest.param(
        "/dev/full", 0, 2, "error: cannot write the output (No space left on device): free some space",
        marks=pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full"))])
def test_a_reader_who_goes_away_is_not_an_error_but_a_full_disk_is(
        place, verdict, status, says, monkeypatch, capfd):
    reader, writer = os.pipe()
    os.close(reader)
    with open(place or writer, "w") as output, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", output)
        assert command_line.run(lambda: print("not lossless") or verdict, []) == status
        output.write("more")                            # Python flushes the rest at exit: now to nobody
    err = capfd.readouterr().err
    assert err.startswith(says) and err.count("\n") == bool(says)


def test_anything_that_can_write_is_an_output_and_none_is_a_terminal_without_its_methods(monkeypatch):
    written = []
    for name in "stdout", "stderr":
        monkeypatch.setattr(sys, name, SimpleNamespace(write=written.append))
    assert command_line.run(main, ["-n", "3"]) == 0 and command_line.run(main, ["--nonsense"]) == 2
    said = "".join(written)
    assert "Speed-up" in said and "error: '--nonsense'" in said and "\x1b" not in said
    assert isinstance(sys.stdout, SimpleNamespace)              # as it was, for the rest of the session


@pytest.mark.skipif(os.name == "nt", reason="cmd.exe has no >&-")
@pytest.mark.parametrize("closed, says", [(">&-", ""), ("2>&-", "hello"), (">&- 2>&- <&-", "")])
def test_a_program_whose_streams_are_closed_runs(closed, says):
    code = "from engine.loading.command_line import run; run(lambda: print('hello'), [])"
    words = f"{sys.executable} -c \"{code}\" {closed}"
    done = subprocess.run(words, shell=True, cwd=ROOT, capture_output=True)
    assert (done.returncode, done.stdout.decode().strip(), done.stderr) == (0, says, b"")


PROGRAMS = {        # the package that it needs and is not there
    **dict.fromkeys("""main.py benchmarks/__main__.py exercises/__main__.py engine/loading/download.py
        engine/loading/export.py lossless/__main__.py pages/__main__.py lossless/verdicts/__main__.py
        models/training/fetch.py""".split()),
    "models/training/train.py": "torch", "models/training/heads.py": "torch", "notebooks/run.py": "nbformat",
    "tests/tools/take_pictures.py": "PIL"}


@pytest.mark.parametrize("path", [pytest.param(path, marks=[pytest.mark.long] * (package != "PIL"))
                                  for path, package in PROGRAMS.items()])
def test_every_program_has_help_and_one_sentence_for_nonsense_or_a_missing_package(path):
    package = PROGRAMS[path]
    for word, status in ("--help", 0), ("--nonsense", 2):
        done = python("-c", f"""import runpy, sys
sys.modules[{package or 'none'!r}], sys.argv = None, {[path, word]}
sys.path[:0] = [".", "tests/tools"]
runpy.run_path({path!r}, run_name="__main__")""")
        assert done.returncode == status and done.stderr.count("\n") == (status > 0), done.stderr
        assert "SYNOPSIS" in done.stdout if status == 0 else not done.stdout
    assert re.search(f"{package}.* must be" if package else "nonsense", done.stderr)
