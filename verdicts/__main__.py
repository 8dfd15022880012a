"""Every public dispute about "lossless" that was found, decided exactly.

    python -m verdicts                  the table
    python -m verdicts vllm-40149       one case in full, judged anew

But: to write the page and the stored results anew it is python -m verdicts.page.
"""
import sys
from textwrap import fill

import console
from verdicts.cases import KINDS, case_named, in_order
from verdicts.page import code_of, example_of, facts_of


def main(name="", /):
    """The verdicts on public disputes about "lossless".

    Args:
        name: a case, such as vllm-40149: it is judged anew and printed in full. Without it, the table.
    """
    if name:
        print(in_full(case_named(str(name))))
        return
    verdict = kind = None
    for case in in_order():
        if (case.verdict, case.kind) != (verdict, kind):
            verdict, kind = case.verdict, case.kind
            print(f"\n{verdict.upper()} · {KINDS[kind]}")
        print(f"  {case.name:34} {case.date}  {case.deviation:7.0e}  {case.rule}")


def in_full(case):
    report = case.judge()
    lines = [f"{case.name}: {report.verdict}", "", f"{case.link}, {case.date}"]
    lines += ["", f"Claim ({case.by}): {case.claim}", f"Outcome: {case.outcome}", f"Judged: {report}."]
    lines += facts_of(case) + example_of(case)
    text = "\n".join(fill(line, 100) for line in lines)
    return f"{text}\n\nThe rule, {case.rule!r} ({report.how}):\n\n{code_of(case.rule)}"


if __name__ == "__main__":
    sys.exit(console.run(main))
