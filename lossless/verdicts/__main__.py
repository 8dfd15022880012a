"""Public disputes about "lossless", decided exactly.

    python -m lossless.verdicts                  a line for each case
    python -m lossless.verdicts EAGLE-47         judges one case anew
    python -m lossless.verdicts --write          judges all cases and writes README.md (ten seconds)
"""
import inspect
import re
import sys
from difflib import get_close_matches

from loading import command_line, files
from lossless.toys import spell
from lossless.verdicts import CASES, HERE, RULES, mean_accepted


def main(name="", *, write=False):
    """Verdicts on public disputes about "lossless". Without a name, prints a line for each case.

    Args:
        name: a case, such as EAGLE-47, to judge anew and print with its rule
        write: judge all cases and write README.md
    """
    if write:
        files.rewrite(HERE / "README.md", page())
    elif name:
        case = case_named(str(name))
        print(re.sub("<a id.*?</a>", "", section(case.rule, [case])))
    else:
        for case in CASES:
            print(f"{case.name:34}{case.date}   {case.verdict:10}{case.status:10}{case.rule}")


def case_named(name):
    """Raises ValueError, which gives the nearest names, if there is no such case."""
    known = {case.name.lower(): case for case in CASES}
    if name.lower() not in known:
        near = " or ".join(known[one].name for one in get_close_matches(name.lower(), known, 3, 0))
        raise ValueError(f"there is no case {name!r}: did you mean {near}?")
    return known[name.lower()]


# The page ---------------------------------------------------------------------------------------------------

def page():
    by_rule = {rule: [case for case in CASES if case.rule == rule] for rule in RULES}
    sections = [section(rule, cases) for rule, cases in by_rule.items() if cases]
    projects = {case.thread.split("/")[1] for case in CASES if case.status in ("shipped", "declared")}
    facts = dict(
        n=len(CASES), projects=len(projects), museum=len(RULES),
        wrong=sum(case.verdict == "wrong" for case in CASES),
        lossless=sum(case.verdict == "lossless" for case in CASES), usual=mean_accepted("Algorithm2"))
    return (HERE / "page.in.md").read_text(encoding="utf-8").format(**facts) + "\n" + "\n".join(sections)


def section(rule, cases):
    """A rule, its code, what the judge finds, and a line for each case."""
    code = inspect.getsource(RULES[rule]).rstrip()
    return "\n".join([f"### {rule}: {cases[0].verdict}", "", "```python", code, "```", "",
                      finding(cases[0]), "", *map(in_a_line, cases), ""])


def finding(case):
    """What the judge finds: a text with a wrong probability, or how many drafts the rule accepts."""
    report, settings = case.judge(), [f"{key} = {value}" for key, value in case.settings.items()]
    settings += ["a repetition penalty"] * case.penalty
    given = f" with {' and '.join(settings)}" if settings else ""
    if report.lossless:
        n, usual = (mean_accepted(rule, **case.settings) for rule in (case.rule, "Algorithm2"))
        is_tree = hasattr(RULES[case.rule], "shapes")
        accepted = f"a child at {n:.2f} of two levels" if is_tree else f"{n:.2f} of two drafts"
        beside = f" (Algorithm 2: {usual:.2f})" * bool(settings)
        return f"Lossless{given and ', here' + given}. It accepts {accepted}{beside}."
    digits = 3 if abs(report.probability - report.wanted) > .002 else 5
    has, should = (f"{chance:.{digits}f}" for chance in (report.probability, report.wanted))
    text, worst = spell(report.text), f"{report.deviation:.2g}"
    return f'Wrong{given}: the text "{text}" has probability {has}, not {should}. Largest error: {worst}.'


def in_a_line(case):
    anchor = case.name.lower().replace(".", "-").replace("_", "-")
    quote = case.quote.replace("`", "")
    name, about = f"[{case.name}]({case.link})", f"{case.date}, {case.status}: {case.outcome}"
    return f'- <a id="{anchor}"></a>{name} ({about}). {case.claim} `{quote}` *{case.answer}*'


if __name__ == "__main__":
    sys.exit(command_line.run(main))
