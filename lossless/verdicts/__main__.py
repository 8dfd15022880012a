"""Public disputes about "lossless", decided exactly.

    python -m lossless.verdicts                  a line for each case
    python -m lossless.verdicts draft_probs      a line for each case that has this word: see cases_with
    python -m lossless.verdicts EAGLE-47         judges one case again
    python -m lossless.verdicts --write          judges all cases and writes README.md (half a minute)
"""
import inspect
import re
import sys

from engine.loading import command_line, files
from lossless.toys import spell
from lossless.verdicts import CASES, HERE, RULES, error_of_a_token, mean_accepted

LONGEST = 6             # lines of a rule that the page shows; a longer one is linked to


def main(name="", *, write=False):
    """Verdicts on public disputes about "lossless". Without a name, prints a line for each case.

    Args:
        name: a case, such as EAGLE-47, to judge again and print with its rule; or a word, such as
            draft_probs: prints a line for each case that has it in its name, thread, claim or quotation
        write: judge all cases and write README.md
    """
    if write:
        return files.rewrite(HERE / "README.md", page())
    found = cases_with(str(name).lower())
    if len(found) == 1:
        print(re.sub("<a id.*?</a>", "", section(found[0].rule, found, longest=99)))
    else:
        for case in found:
            print(f"{case.name:40}{case.date}   {case.verdict:10}{case.status:10}{case.rule}")


def cases_with(word):
    """The case of this name, or all that have the word in their name, thread, claim or quotation, or in the
    table.  Raises ValueError if there is none."""
    found = [case for case in CASES if case.name.lower() == word] or [
        case for case in CASES
        if any(word in text.lower() for text in (case.name, case.thread, case.sees, case.claim, case.quote))]
    if not found:
        raise ValueError(f"no case has {word!r} in its name, claim or quotation: give a shorter word")
    return found


# The page ---------------------------------------------------------------------------------------------------

def page():
    by_rule = {rule: [case for case in CASES if case.rule == rule] for rule in RULES}
    sections = [section(rule, cases) for rule, cases in by_rule.items() if cases]
    shipped = [case for case in CASES if case.since]
    facts = dict(
        n=len(CASES), museum=len(RULES), shipped=len(shipped),
        table="\n".join(sorted(map(in_the_table, CASES), key=str.lower)),
        wrong=sum(case.verdict == "wrong" for case in CASES),
        lossless=sum(case.verdict == "lossless" for case in CASES), usual=mean_accepted("Algorithm2"),
        unknown=[[*column].count("unknown") for column in zip(*(case[-7:-2] for case in shipped))])
    return (HERE / "page.in.md").read_text(encoding="utf-8").format(**facts) + "\n" + "\n".join(sections)


def in_the_table(case):
    when = "–".join(re.match(r"[^ ,]+", edge)[0] for edge in (case.since, case.until) if edge) or case.date
    return f"{case.project} | {case.sees} | {when} | [{case.verdict}](#{address(case)})"


def address(case):
    return case.name.lower().replace(".", "-").replace("_", "-")


def section(rule, cases, longest=LONGEST):
    """A rule, its code (at most `longest` lines), what the judge finds, and a line for each case."""
    lines, first = inspect.getsourcelines(RULES[rule])
    code = ["```python", "".join(lines).rstrip(), "```"]
    if len(lines) > longest:
        code = [f"{inspect.getdoc(RULES[rule])} [Code](rules.py#L{first})."]
    return "\n".join([f"### {rule}: {cases[0].verdict}", "", *code, "",
                      finding(cases[0]), "", *map(in_a_line, cases), ""])


def finding(case):
    """What the judge finds: a text with a wrong probability, or how many drafts the rule accepts."""
    report, settings = case.judge(), [f"{key} = {value}" for key, value in case.settings.items()]
    settings += ["a repetition penalty"] * case.penalty
    given = f"With {' and '.join(settings)}, " * bool(settings)
    if report.lossless:
        n, usual = (mean_accepted(rule, **case.settings) for rule in (case.rule, "Algorithm2"))
        is_tree = hasattr(RULES[case.rule], "shapes")
        accepted = f"a child at {n:.2f} of two levels" if is_tree else f"{n:.2f} of two drafts"
        beside = f" (Algorithm 2: {usual:.2f})" * bool(settings)
        return f"{given}{'it' if given else 'It'} accepts {accepted}{beside}."
    digits = 3 if abs(report.probability - report.wanted) > .002 else 5
    has, should = (f"{chance:.{digits}f}" for chance in (report.probability, report.wanted))
    text, one = spell(report.text), round(error_of_a_token(case), 9)
    return (f'{given}"{text}" has probability {has}, not {should}. Largest error: {report.deviation:.2g}; '
            f"of one token: {one:.2g}.")


def in_a_line(case):
    quote = case.quote.replace("`", "")
    name, outcome = f"[{case.name}]({case.link})", f": {case.outcome}" * bool(case.outcome)
    facts = f" {case.since}; {case.until}; {case.reached}; {case.by}; read {case.read}." * bool(case.since)
    return (f'- <a id="{address(case)}"></a>{name} ({case.date}, {case.status}{outcome}). {case.claim} '
            f"`{quote}`{facts} *{case.answer}*")


if __name__ == "__main__":
    sys.exit(command_line.run(main))
