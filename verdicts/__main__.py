"""Every public dispute about "lossless" that was found, decided exactly.

    python -m verdicts                  the table
    python -m verdicts vllm-40149       one case in full, judged anew

But: to write the page and the stored results anew it is python -m verdicts.page.
"""
import sys
from textwrap import fill

import console
from verdicts.cases import KINDS, case_named, in_order
from verdicts.judging import verdict
from verdicts.page import code_of, example_of, facts_of


def main(name="", /):
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
    report = case.judge()
    word, accepted, possible = verdict(report, case.rule, case.settings, case.penalty)
    kept = "" if accepted is None else (f" A first draft is kept with probability {accepted:.3f}, and could "
                                        f"be with {possible:.3f}.")
    lines = [f"{case.name}: {word}", "", f"{case.link}, {case.date}"]
    lines += ["", f"Claim ({case.by}): {case.claim}", f"Outcome: {case.outcome}", f"Judged: {report}.{kept}"]
    lines += [case.answer, *facts_of(case), *example_of(case)]
    text = "\n".join(fill(line, 100) for line in lines)
    how = "walked" if report.n_branches else "integrated, for it cannot be walked"
    return f"{text}\n\nThe rule, {case.rule!r} ({how}):\n\n{code_of(case.rule)}"


if __name__ == "__main__":
    sys.exit(console.run(main))
