"""Public disputes about "lossless" (cases.ini), each reduced to a rule that lossless/ can judge.

    CASES[0].judge()        judges the case and returns a judge.Report
    LESSONS                 rules of code that nothing reached: cases without a thread
    WITHDRAWN               {name: when and why}: cases that are no longer held to be true
    python -m lossless.verdicts      the same from the command line: see __main__.py
"""
import configparser
import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import lossless
from lossless import distribution_of_text, exact_distribution, judge
from lossless.toys import memoryless, table
from lossless.verdicts.museum import RULES, sampler
from lossless.verdicts.rules import penalty
from methods.samplers.constraints import constrained

HERE = Path(__file__).parent
PAIRS = {                                               # name: (draft, target, n_tokens, Ks)
    "a distribution after every prefix": (table(1), table(2), 3, (1, 2)),
    "zeros in both": (table(3, zeros=.4), table(4, zeros=.4), 3, (1, 2)),
    "zeros in the target": (table(7), table(8, zeros=.5), 3, (1, 2)),
    "five tokens of vocabulary": (table(21, n_vocab=5), table(22, n_vocab=5), 2, (1,)),
    "long rounds": (table(31, n_vocab=2), table(32, n_vocab=2), 4, (3,)),
}
Q, P = (.6, .3, .1), (.75, .2, .05)         # an example: the target's and the draft's distribution everywhere
ANSWERS = {"asks": "A question.", "ours": "Found in the code.", "untrue": "Not true.",
           "half": "The finding is right, its reason is not."}


class Dispute(NamedTuple):
    name: str                   # "vllm-40149", or "proposal-3" if no project shipped the rule; never changes
    thread: str                 # the thread, paper or file: its path on github.com
    date: str                   # "2026-04"
    status: str                 # "shipped", "declared", "proposal", "question": README.md says what it means
    sees: str                   # a name, the setting or a line of code by which somebody knows the case
    claim: str
    quote: str                  # the sentence or line of code that decides what the rule is
    rule: str                   # a name of museum.RULES
    says: str = "wrong"         # the claim: "wrong", "lossless" (the answer follows), or a key of ANSWERS
    outcome: str = ""           # what else one must know; what had become of the thread, and when
    at: str = ""                # the code: "blob/commit or tag/path#Lfirst-Llast", or "pull/1/files"
    read: str = ""              # the day on which it was
    since: str = ""             # version and month, or month; then the commit or pull request; "" if unknown
    until: str = ""             # the same, or "open" and the month of the newest code that was read
    reached: str = ""           # "default", or the setting that a user sets
    reply: str = ""             # what the accused side said or did, or "none found"
    harm: str = ""              # if somebody measured it
    settings: dict = {}
    penalty: bool = False       # whether the target has a repetition penalty

    @property
    def project(self):
        return self.thread.split("/")[1]

    @property
    def link(self):
        return f"https://github.com/{self.thread}"

    @property
    def code(self):
        """The address of the code that was read."""
        return "https://github.com/" + "/".join([*self.thread.split("/")[:2], self.at])

    @property
    def verdict(self):
        return "lossless" if RULES[self.rule].lossless else "wrong"

    @property
    def answer(self):
        return ANSWERS.get(self.says) or ("True." if self.says == self.verdict else "Not true.")

    def judge(self):
        """The Report of the first pair that shows a wrong text, else of the first pair, with the largest
        deviation of any pair."""
        found = [*reports(sampler(RULES[self.rule]), self.settings, self.penalty)]
        first = next((report for report in found if not report.lossless), found[0])
        return first._replace(deviation=max(report.deviation for report in found))


def reports(sampler, settings, punished):
    """Yields the judge.Report of each pair as it is judged.

    punished    whether the target has a repetition penalty
    """
    for name, (draft, target, n_tokens, Ks) in PAIRS.items():
        models = [(draft, penalized(target, punished))]
        report = lossless.report(sampler, models, Ks, n_tokens, **{"temperature": 1.0} | settings)
        yield report if report.lossless else report._replace(case=report.case.replace("pair 0", name))


def penalized(target, punished):
    return constrained(target, penalty) if punished else target


def mean_accepted(rule, q=Q, p=P, K=2, **settings):
    """The expected number of the first round's K drafts that are accepted."""
    return sum(n * chance for (_, n), chance in texts(rule, q, p, K, settings).items())


def error_of_a_token(case):
    """The largest error of the probability of any token at any place of a text of one round: K + 1 tokens."""
    K = getattr(RULES[case.rule], "shortest", 2)                # drafts
    target, errors = penalized(memoryless(Q), case.penalty), Counter()      # errors of (place, token)
    for (text, _), chance in texts(case.rule, Q, P, K, case.settings, case.penalty).items():
        errors.update(dict.fromkeys(enumerate(text), chance))
    for text, chance in distribution_of_text(target, [0, 0], K + 1, **case.settings).items():
        errors.subtract(dict.fromkeys(enumerate(text), chance))
    return max(map(abs, errors.values()))


def texts(rule, q, p, K, settings, punished=False):
    """{(text, drafts accepted in the first round): probability}"""
    draft, target = memoryless(p), penalized(memoryless(q), punished)

    def run(rng):
        rounds = [*sampler(RULES[rule])(draft, target, [0, 0], K + 1, K, rng, **settings)]
        return judge.text_of(rounds, rng), rounds[0].n_accepted
    return exact_distribution(run)


def read_cases():
    parser = configparser.ConfigParser(interpolation=None, delimiters="=")
    parser.read(HERE / "cases.ini", encoding="utf-8")
    for name in parser.sections():
        case = {key: " ".join(value.split()) for key, value in parser[name].items()}
        case["settings"], case["penalty"] = json.loads(case.get("settings", "{}")), "penalty" in case
        if "withdrawn" in case:
            WITHDRAWN[name] = case["withdrawn"]
        elif case["status"] == "lesson":
            LESSONS.append(Dispute(name, **case, thread="", date="", sees=""))
        else:
            yield Dispute(name, **case)


LESSONS, WITHDRAWN = [], {}
CASES = [*read_cases()]
