"""The cases: cases.ini as named tuples, with what the judge found (results.json, written by page.py).

    from verdicts.cases import CASES, case_named
    case_named("vllm-40149").judge()                            # made anew

But: only what can be decided by the rule.  Why greedy texts differ, and what "acceptance" means, is in
questions.md.
"""
import configparser
import json
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
KINDS = {   # in the order of the table
    "recorded": "Drawn from one distribution, recorded as another",
    "target": "Another target than the one that was asked for",
    "accepted": "The accept test, and what follows a refusal",
    "reused": "Something reused, or changed in place",
    "tree": "Trees",
    "right": "Right, though it was doubted",
}
ORDER = "wrong", "lossless but slow", "fine"


class Case(NamedTuple):
    name: str                       # "vllm-40149"
    thread: str                     # "vllm-project/vllm/issues/40149"
    date: str                       # "2026-04"
    by: str                         # user, contributor, maintainer or reviewer: who argues
    claim: str
    outcome: str                    # as of the copy that was read
    rule: str                       # a name of RULES or INTEGRALS
    kind: str                       # a key of KINDS
    read: str                       # what was read of the thread
    settings: dict = {}
    penalty: bool = False           # the target punishes repetition
    example: dict | None = None     # q, p and what the thread says about them
    declared: bool = False          # lossy on purpose
    engine: str = ""                # "" where the reduction is ours and the engine's code was not run
    note: str = ""

    @property
    def project(self):
        return "/".join(self.thread.split("/")[:2])

    @property
    def link(self):
        return "https://github.com/" + self.thread

    @property
    def found(self):
        """What the judge found when the page was written."""
        return results()["cases"][self.name]

    @property
    def verdict(self):
        return self.found["verdict"]

    @property
    def deviation(self):
        return self.found["deviation"]

    def judge(self):
        from verdicts.judging import judge  # here, so that reading the table imports no sampler

        return judge(self.rule, self.settings, self.penalty)


def read_cases():
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read(HERE / "cases.ini", encoding="utf-8")
    for name in parser.sections():
        fields = {key: " ".join(value.split()) for key, value in parser[name].items()}
        for key in {"settings", "example"} & fields.keys():
            fields[key] = json.loads(fields[key])
        for key in {"penalty", "declared"} & fields.keys():
            fields[key] = fields[key] == "yes"
        yield Case(name, **fields)


def results():
    return json.loads((HERE / "results.json").read_text(encoding="utf-8"))


CASES = list(read_cases())


def case_named(name):
    """Raises ValueError, with the nearest names, where there is no such case."""
    for case in CASES:
        if case.name.lower() == name.lower():
            return case
    names = [case.name for case in CASES]
    near = [known for known in names if name.lower() in known.lower()] or get_close_matches(name, names, 5)
    meant = f"did you mean {' or '.join(near[:5])}?" if near else "python -m verdicts prints all of them"
    raise ValueError(f"there is no case {name!r}: {meant}")


def in_order(cases=None):
    """Wrong by kind, then slow, then fine."""
    return sorted(CASES if cases is None else cases,
                  key=lambda case: (ORDER.index(case.verdict), [*KINDS].index(case.kind)))
