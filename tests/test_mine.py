"""Is my drafter better than `model`?  The README's drafter, judged and compared as the README says."""
import re
from pathlib import Path

import pytest

import benchmarks.__main__
import lossless.__main__
from benchmarks import mine
from loading import command_line

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
COPIED = next(block for block in re.findall(r"```python\n(.*?)```", README, re.S) if "def copied" in block)
COPIED = COPIED[COPIED.index("def copied"):COPIED.index("\nrng =")].replace("def copied", "def propose")
FILES = {"copied": COPIED,
         "model": "import speculative\n\n\ndef propose(*run):\n    return speculative.propose(*run)\n",
         "silent": "def propose(draft, x, k, to_probs, rng):\n    return [], None\n"}


@pytest.fixture
def drafter(tmp_path, monkeypatch):
    monkeypatch.setattr(mine, "N_TEXTS", 3)
    monkeypatch.setattr(mine, "N_TIMED", 1)
    monkeypatch.setattr(mine, "N_TOKENS", 12)

    def write(name):
        (tmp_path / "my_drafter.py").write_text(FILES[name], encoding="utf-8")
        return str(tmp_path / "my_drafter.py")
    return write


def fixed(cells, *_):
    """The costs of rounds: those of the target alone take 1 ms, all others 2."""
    def cost(ms):
        return dict(drafting=[0, 0, 0, 9], typical=ms, slope=0, drafts=0, tokens=1, speedup=1) | {
            "pass": [ms, ms, ms, 9]}
    return {mine.name_of(*cell): cost(2) for cell in cells} | {f"alone T={T}": cost(1) for T in (0, 1)}


def test_the_readmes_own_drafter_is_judged_and_compared_by_two_commands(drafter, capsys):
    path = drafter("copied")
    commands = re.findall(r"`python -m (lossless|benchmarks mine) my_drafter\.py`", README)
    assert commands == ["lossless", "benchmarks mine"]
    assert command_line.run(lossless.__main__.main, [path]) == 0
    assert command_line.run(benchmarks.__main__.main, ["mine", path]) == 0
    out = capsys.readouterr().out
    assert len(re.findall(r"^(?:my_drafter.py|model) +\d\.\d\d ± \d\.\d\d( +\d\.\d\d){3} +\d", out, re.M)) == 4
    assert len(re.findall(r"is (?:better|worse|neither better nor worse).*: [-+]\d\.\d\d ± ", out)) == 2


@pytest.mark.parametrize("name, says", [
    ("silent", r"my_drafter.py +1.00 ± 0.00 +- +- +2.00 +0.50 ± 0.00[^±]*model +[23].\d\d ± .*\n.* is worse: -[12]"),
    ("model", r"is neither better nor worse \(within two errors\): \+0.00 ± \d.\d\d tokens per pass, and \+0%")])
def test_what_is_said_follows_from_counts_and_costs(name, says, drafter, monkeypatch):
    monkeypatch.setattr(mine, "rounds", fixed)
    assert len(re.findall(says, "\n".join(mine.compare(drafter(name))))) == 2


@pytest.mark.parametrize("words, says", [([], "needs your file"), (["none.py"], "none.py")])
def test_without_a_file_there_is_one_sentence(words, says, capsys):
    assert command_line.run(benchmarks.__main__.main, ["mine", *words]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1
