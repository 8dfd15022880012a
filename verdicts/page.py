"""Writes results.json, what the judge finds about each case, and README.md, the page that one links to (its
prose is in page.in.md):

    python -m verdicts.page

But: what a pair of real models keeps (pair.py) and what installed engines do (real.py) is written by these
into the same results.json, and only copied here.
"""
import inspect
import sys
from textwrap import dedent

import console
from lossless import memoryless
from verdicts.cases import CASES, HERE, KINDS, ORDER, in_order, results, store
from verdicts.integrals import INTEGRALS
from verdicts.judging import first_token, kept, kept_of, verdict
from verdicts.museum import difference
from verdicts.rules import RULES

# What is stored ---------------------------------------------------------------------------------------------

def judged(cases):
    """{name: what is stored of each}.  Cases with the same rule and settings are judged once."""
    known = {}
    for case in cases:
        asked = case.rule, case.settings, case.penalty
        if str(asked) not in known:
            report = case.judge()
            known[str(asked)] = report, verdict(report, *asked)
        yield case.name, stored(case, *known[str(asked)])


def stored(case, report, verdict):
    word, accepted, possible = verdict
    found = {"verdict": word, "deviation": rounded(report.deviation) or 1e-15, "branches": report.n_branches}
    if report.lossless:
        found |= {"accepted": rounded(accepted), "possible": rounded(possible)}
    else:
        pair, K = report.case.split("; K = ")
        found |= {"case": pair, "K": int(K.split(",")[0]), "text": report.text,
                  "probability": rounded(report.probability), "wanted": rounded(report.wanted)}
    if case.example:
        found["example"] = computed(case)
    return found


def rounded(number):
    """Six digits; what is below 1e-12 is rounding, and 0."""
    return None if number is None else 0.0 if number < 1e-12 else float(f"{number:.6g}")


def computed(case):
    """The exact first token for the q and p of the case's example, and how often its draft is kept."""
    q, p = case.example["q"], case.example["p"]
    first = first_token(case.rule, q, p, case.settings)
    wanted = [float(x == max(range(len(q)), key=q.__getitem__)) for x in range(len(q))] if \
        case.settings.get("temperature") == 0 else q
    found = {"first": [*map(rounded, first)],
             "distance": rounded(sum(abs(a - b) for a, b in zip(first, wanted)) / 2)}
    if case.rule in RULES:
        shares = (kept_of(rule, memoryless(p), memoryless(q), 1, case.settings)
                  for rule in (case.rule, RULES[case.rule].beside))
        found["kept"], found["possible"] = map(rounded, shares)
    return found


# What is shown ----------------------------------------------------------------------------------------------

def facts_of(case, found):
    """[(what, the rest of the sentence), ..]: all that is said about a case; the last are sentences alone."""
    facts = [("Claim", f" ({case.by}): {case.claim}"), ("Outcome", f": {case.outcome}"),
             ("Who is right", f": {case.answer}"), ("Judged", f', as "{case.rule}", {finding(found)}.')]
    return facts + [("", more) for more in circumstances(case) + example_of(case, found)]


def circumstances(case):
    facts = [f"Read: {case.read}.", f"The engine's code: {case.engine}." if case.engine else
             "The reduction is ours; the engine's code was not run."]
    settings = {"temperature": 1} | case.settings | ({"penalty": 2} if case.penalty else {})
    facts.append(f"Judged with {', '.join(f'{key} = {value}' for key, value in settings.items())}.")
    if case.declared:
        facts.append("Lossy on purpose, and declared so.")
    return facts + ([f"Note: {case.note}"] if case.note else [])


def example_of(case, found):
    """Where the thread has numbers: the exact ones beside them, on the same q and p."""
    if not case.example:
        return []
    found, numbers = found["example"], lambda row: ", ".join(f"{x:.4g}" for x in row)
    q, p = numbers(case.example["q"]), numbers(case.example["p"])
    share = f" Its draft is kept with probability {found['kept']:.4g}; the best rule for it keeps " \
           f"{found['possible']:.4g}." if "kept" in found else ""
    return [f"The same q and p as there: q = ({q}), p = ({p}). The first token comes out as "
            f"({numbers(found['first'])}), a total variation of {found['distance']:.4g} from the target."
            f"{share} The thread says: {case.example['said']}."]


def told_apart(has, right):
    """Two numbers, with as many digits as it takes, four to six."""
    digits = next((n for n in (4, 5, 6) if f"{has:.{n}g}" != f"{right:.{n}g}"), None)
    if digits is None:
        return f"{has:.6g}, of which only later digits are wrong"
    return f"{has:.{digits}g} where {right:.{digits}g} is right"


def finding(found):
    n = found["branches"]
    how = f"{n:,} branches walked" if n else "integrated, for it cannot be walked"
    if found["verdict"] == "wrong":
        return (f"{how}: with {found['case']}, K = {found['K']}, the first wrong text is {found['text']} "
                f"after [2, 0], of probability {told_apart(found['probability'], found['wanted'])}; "
                f"the worst is off by {found['deviation']:.2g}")
    share = "" if found["accepted"] is None else (f"; a first draft is kept with probability "
                                                 f"{found['accepted']:.3g}, and could be with "
                                                 f"{found['possible']:.3g}")
    return f"{how}: no text is off by more than {found['deviation']:.0e}{share}"


def code_of(rule):
    """The functions that a rule is, or the lines of a file that it changes."""
    parts = (INTEGRALS[rule],) if rule in INTEGRALS else RULES[rule].code
    return "\n\n".join(difference(*part) if isinstance(part, tuple) else
                       dedent(inspect.getsource(part)).rstrip() for part in parts)


def page():
    def number(verdict):
        return f"{sum(case.verdict == verdict for case in CASES)} are {verdict}"

    pair = results()["pair"]
    return (HERE / "page.in.md").read_text(encoding="utf-8").format(
        n=len(CASES), projects=len({case.project for case in CASES}), counts=", ".join(map(number, ORDER)),
        table="\n".join(map(table_row, in_order())), temperature=pair["temperature"],
        prefixes=pair["prefixes"],
        costs="\n".join(f"| {rule} | {kept(rule):.3f} | {mean:.3f} ± {error:.3f} |"
                        for rule, (mean, error) in pair["kept"].items()),
        engines="\n".join(engine_row(*item) for item in results()["real"].items()),
        cases="".join(map(section, in_order())))


def table_row(case):
    found = case.found
    share = "" if found.get("accepted") is None else f"{found['accepted']:.2g} of {found['possible']:.2g}"
    return (f"| [{case.name}](#{anchor(case)}) | {KINDS[case.kind].lower()} | {case.rule} | "
            f"{case.deviation:.1e} | {share} | {case.verdict}{' (declared)' * case.declared} |")


def engine_row(name, found):
    text, has, should = found["worst"]
    return (f"| {name} | {found['deviation']:.1e} | {found['distance']:.1e} | "
            f"{text}: {has:.6f}, {should:.6f} |")


def section(case):
    lines = ["", f'<a id="{anchor(case)}"></a>', f"### {case.name}: {case.verdict}", "",
             f"[{case.thread}]({case.link}), {case.date}", ""]
    facts = [f"- **{what}**{text}" if what else f"- {text}" for what, text in facts_of(case, case.found)]
    return "\n".join(lines + facts) + "\n"


def anchor(case):
    return case.name.lower().replace(".", "-").replace("_", "-")


def write():
    """Judge every case anew; write results.json and README.md."""
    store(cases=dict(judged(CASES)))
    console.rewrite(HERE / "README.md", page())


if __name__ == "__main__":
    sys.exit(console.run(write))
