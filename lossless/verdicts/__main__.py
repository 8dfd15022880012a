"""Public disputes about "lossless", decided exactly.

    python -m lossless.verdicts                  a line for each case
    python -m lossless.verdicts EAGLE-47         judges one case again
    python -m lossless.verdicts vllm 54282       finds cases by words of their lines: see cases_with
    python -m lossless.verdicts --write          judges all cases and writes README.md (half a minute)
"""
import inspect
import re
import sys

from engine.loading import command_line, files
from lossless.toys import spell
from lossless.verdicts import CASES, HERE, LESSONS, RULES, WITHDRAWN, error_of_a_token, mean_accepted

LONGEST = 5             # lines of a rule that the page shows; a longer one is linked to


def main(*words, write=False):
    """Verdicts on public disputes about "lossless". Without a word, prints a line for each case.

    Args:
        words: find cases by name (EAGLE-47), the address of a thread, project and number (vllm 54282), month
            (2026-08), version (0.29.0), rule (Match), or a piece of code or text (draft_probs is None). One
            case is judged again and printed with its rule; of several, prints a line for each
        write: judge all cases and write README.md
    """
    if write:
        return files.rewrite(HERE / "README.md", page())
    found = cases_with(" ".join(words).lower())
    if len(found) == 1:
        print(f"{found[0].project}: {found[0].name} is {found[0].verdict}\n")
        print(re.sub("<a id.*?</a>", "", section(found[0].rule, found, longest=99)))
    else:
        for case in found:
            print(f"{case.project:34} {case.name:40}{case.date}   {case.verdict:10}{case.rule}")


def cases_with(query):
    """The cases of this name, rule or thread, or all that have each of its words somewhere. A number counts
    if it stands alone: "vllm 54282" finds a case, "vllm 5428" none.  Raises ValueError if there is none."""
    if query in (names := {name.lower(): why for name, why in WITHDRAWN.items()}):
        raise ValueError(f"{query} was withdrawn on {names[query]}")
    query = re.sub(r"#(?=\d)|(https://)?github\.com/|((issues|pull)/\d+).*", r"\2", query)
    found = [case for case in CASES if query.replace(" ", "-") in map(str.lower, (*case[:2], case.rule))]
    found = found or [case for case in CASES if all(
        re.search(rf"(?<!\d){re.escape(word)}(?!\d)", str(case).lower()) for word in query.split())]
    if not found:
        raise ValueError(f"no case has {query!r}: give fewer words")
    return found


# The page ---------------------------------------------------------------------------------------------------

def page():
    by_rule = {rule: [case for case in CASES + LESSONS if case.rule == rule] for rule in RULES}
    sections = [section(rule, cases) for rule, cases in by_rule.items() if cases]
    facts = dict(
        n=len(CASES), museum=len(RULES), table="\n".join(sorted(map(in_the_table, CASES), key=str.lower)),
        wrong=sum(case.verdict == "wrong" for case in CASES), usual=mean_accepted("Algorithm2"),
        lossless=sum(case.verdict == "lossless" for case in CASES),
        shipped=sum((case.verdict, case.status) == ("wrong", "shipped") for case in CASES),
        withdrawn="\n".join(f'- <a id="{address(one)}"></a>{one}: {WITHDRAWN[one]}.' for one in WITHDRAWN))
    text = (HERE / "page.in.md").read_text(encoding="utf-8").replace("(README.md#", "(#")
    return text.format(**facts) + "\n" + "\n".join(sections)


def in_the_table(case):
    edges = [re.match(r"(.*20\d\d-\d\d)?", edge)[0] for edge in (case.since, case.until)]
    return " | ".join([case.project, case.sees, *edges, f"[{case.verdict}](#{address(case.name)})"])


def address(name):
    return name.lower().replace(".", "-").replace("_", "-")


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
    if case.status == "lesson":
        return f'- <a id="{case.name}"></a>{case.name}: {case.claim} `{case.quote}`'
    quote, (kind, *at) = case.quote.replace("`", ""), case.at.split("/")
    at = f"diff of {at[0]}" if kind == "pull" else kind and f"{at[-1].replace('#L', ':')}, {at[0][:9]}"
    facts = dict(at=at and f"[{at}]({case.code})", read=case.read, since=case.since, until=case.until,
                 reached=case.reached, reply=case.reply, harm=case.harm)
    told = "".join(f" **{label}** {fact};" for label, fact in facts.items() if fact)
    name, outcome = f"[{case.name}]({case.link})", f": {case.outcome}" * bool(case.outcome)
    return (f'- <a id="{address(case.name)}"></a>{name} ({case.date}, {case.status}{outcome}). {case.claim} '
            f"`{quote}` *{case.answer}*{told[:-1]}{'.' * bool(told)}")


if __name__ == "__main__":
    sys.exit(command_line.run(main))
