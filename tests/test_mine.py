"""python -m benchmarks mine: the README's drafter, compared with `model` as the README says."""
import re
from functools import cache
from pathlib import Path

import pytest

import benchmarks.__main__
import lossless.__main__
from benchmarks import mine
from loading import command_line

COUNTED = cache(mine.count_texts)                # of `model` once, for all tests
README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
FILES = {"model": "import speculative\ndef propose(*run):\n    return speculative.propose(*run)\n",
         "silent": "def propose(draft, x, k, to_probs, rng):\n    return [], None\n",
         "copied": re.search(r"def copied.*?(?=\nrng =)", README, re.S)[0].replace("copied", "propose")}


@pytest.fixture
def drafter(tmp_path, monkeypatch):
    for name, few in dict(N_TEXTS=2, N_TIMED=1, N_TOKENS=12, count_texts=COUNTED).items():
        monkeypatch.setattr(mine, name, few)
    monkeypatch.setattr(lossless.judge, "CASES", lossless.judge.CASES[:20])
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    return lambda name: str(tmp_path / f"{name}.py")


def test_the_readmes_own_drafter_is_judged_and_compared_by_two_commands(drafter, capsys):
    assert {"lossless", "benchmarks mine"} <= {*re.findall(r"^python -m (.*) my_drafter\.py", README, re.M)}
    assert command_line.run(lossless.__main__.main, [drafter("copied")]) == 0
    assert command_line.run(benchmarks.__main__.main, ["mine", drafter("copied")]) == 0
    out = capsys.readouterr().out
    assert len(re.findall(r"^(?:copied.py|model) +\d\.\d\d ± \d\.\d\d( +\d\.\d\d){4} ± ", out, re.M)) == 4
    assert len(re.findall(r"is (?:better|worse|neither better nor worse).*: [-+]\d\.\d\d ± ", out)) == 2


@pytest.mark.parametrize("name, says", [
    ("silent", r" 1.00 ± 0.00 +- +- +2.00 +0.50 ± 0.00[^±]*model +[23].\d\d ± .*\n.* is worse: -[12]"),
    ("model", r"is neither better nor worse \(.*\): \+0.00 ± \d.\d\d tokens per pass, and \+0% speed")])
def test_what_is_said_follows_from_counts_and_costs(name, says, drafter, monkeypatch):
    """Here a round of the target alone takes 1 ms, and any other 2."""
    def cost(ms):
        quartiles = dict.fromkeys(("pass", "drafting"), [ms, ms, ms, 9])
        return quartiles | dict(typical=ms, slope=0, drafts=0, tokens=1, speedup=1)
    monkeypatch.setattr(mine, "measure_rounds", lambda cells, *_: {
        **{mine.name_of(*cell): cost(2) for cell in cells}, **{f"alone T={T}": cost(1) for T in (0, 1)}})
    assert len(re.findall(says, "\n".join(mine.measure_drafter(drafter(name))))) == 2


@pytest.mark.parametrize("words, says", [([], "needs your file"), (["none.py"], "none.py")])
def test_without_a_file_there_is_one_sentence(words, says, capsys):
    assert command_line.run(benchmarks.__main__.main, ["mine", *words]) == 2
    assert re.fullmatch(f"error: .*{says}.*\n", capsys.readouterr().err)
