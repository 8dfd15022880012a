"""Every public dispute about "lossless" that was found, decided exactly.

    python -m verdicts                  the table
    python -m verdicts vllm-40149       one case in full, judged anew

But: to write the page and the stored results anew it is python -m verdicts.page.
"""
import sys
from textwrap import fill

import console
from verdicts.cases import KINDS, case_named, in_order
from verdicts.page import code_of, facts_of, judged


def main(name=""):
    """The verdicts on public disputes about "lossless".

    Args:
        name: a case, such as vllm-40149: it is judged anew and printed in full. Without it, the table.
    """
    if name:
        print(in_full(case_named(str(name))))
        return
    above = None
    for case in in_order():
        if (case.verdict, case.kind) != above:
            above = case.verdict, case.kind
            print(f"\n{case.verdict.upper()} · {KINDS[case.kind]}")
        print(f"  {case.name:34} {case.date}  {case.deviation:7.0e}  {case.rule}")


def in_full(case):
    found = dict(judged([case]))[case.name]
    lines = [f"{case.name}: {found['verdict']}", "", f"{case.link}, {case.date}", ""]
    lines += [what + text for what, text in facts_of(case, found)]
    return "\n".join(fill(line, 100) for line in lines) + f"\n\n{code_of(case.rule)}"


if __name__ == "__main__":
    sys.exit(console.run(main))
