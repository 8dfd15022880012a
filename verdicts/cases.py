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

import console

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
    says: str = "wrong"             # what the one who argues holds it to be: wrong, lossless, or asks
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
    def answer(self):
        """Who is right, and why."""
        if self.says == "asks":
            word = {"wrong": "No", "lossless but slow": "Yes, but slowly", "fine": "Yes"}[self.verdict]
            return f"Is it lossless? {word}. {WHY[self.rule]}"
        right = (self.says == "wrong") == (self.verdict == "wrong")
        return f"The {self.by} is {'right' if right else 'not right'}. {WHY[self.rule]}"

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
        """lossless.Report, made anew."""
        from verdicts.judging import report  # here, so that reading the table imports no sampler

        return report(self.rule, self.settings, self.penalty)


def sections(name, delimiter="="):
    """{section: {key: value}}, a value of several lines joined."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=delimiter)
    parser.optionxform = str
    parser.read(HERE / name, encoding="utf-8")
    return {section: {key: " ".join(value.split()) for key, value in parser[section].items()}
            for section in parser.sections()}


def read_cases():
    for name, fields in sections("cases.ini").items():
        for key in {"settings", "example"} & fields.keys():
            fields[key] = json.loads(fields[key])
        for key in {"penalty", "declared"} & fields.keys():
            fields[key] = fields[key] == "yes"
        yield Case(name, **fields)


def results():
    return json.loads((HERE / "results.json").read_text(encoding="utf-8"))


def store(**parts):
    """Write parts of results.json anew.  (Of two programs at once, one may undo what the other has stored.)
    """
    console.rewrite(HERE / "results.json", json.dumps(results() | parts, indent=1) + "\n")


CASES = list(read_cases())
WHY = sections("why.ini", ":")["why"]    # {rule: why it is what it is}


def case_named(name):
    """Raises ValueError, with the nearest names, where there is no such case."""
    for case in CASES:
        if case.name.lower() == name.lower():
            return case
    names = [case.name for case in CASES]
    near = [known for known in names if name.lower() in known.lower()] or get_close_matches(name, names, 3, 0)
    raise ValueError(f"there is no case {name!r}: did you mean {' or '.join(near[:5])}? "
                     "python -m verdicts prints all of them")


def in_order(cases=None):
    """Wrong by kind, then slow, then fine."""
    return sorted(CASES if cases is None else cases,
                  key=lambda case: (ORDER.index(case.verdict), [*KINDS].index(case.kind)))
