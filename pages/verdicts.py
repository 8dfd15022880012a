"""verdicts/ as a page: what was argued about, and what the judge finds; each case opens in judge.html.

Not here: judging them (python -m verdicts.page).
"""
from html import escape

from pages.frame import BACK, page
from verdicts.cases import CASES, KINDS, in_order
from verdicts.page import code_of, facts_of
from verdicts.rules import RULES

INTRODUCTION = """<h1>Is it really lossless?</h1>
<p>Disputes from public threads, each reduced to a rule of a few lines and run through every branch of chance.
<b class="wrong">Wrong</b>: some text has not the probability that the target gives it.
<b class="slow">Lossless but slow</b>: all have, but fewer drafts are kept than could be.
<b class="fine">Fine</b>: all have, and no fewer are kept. If it does not say that an engine's code was run or
read, the reduction is ours.</p>"""
STYLE = """<style>
.verdict { float: right; margin-left: 1rem; font-weight: 600; }
.wrong { color: var(--bad); } .slow { color: var(--p); } .fine { color: var(--good); }
@media (max-width: 40rem) { .verdict { float: none; margin: 0 .4rem 0 0; } }
details { border-bottom: 1px solid var(--line); }
summary { padding: .55rem 0; cursor: pointer; overflow-wrap: anywhere; }
details > div { padding: 0 0 1rem 1rem; scroll-margin-top: 4rem; }      /* a link to one opens it */
details pre {
  padding: .7rem .9rem; border: 1px solid var(--line); border-radius: 6px; background: var(--sheet);
}
</style>"""


def verdicts_page():
    found = [case.verdict for case in CASES]
    counts = " · ".join(f'<b class="{style_of(verdict)}">{found.count(verdict)}</b> {verdict}'
                        for verdict in ("wrong", "lossless but slow", "fine"))
    parts = [STYLE, f"<nav>{BACK}</nav>\n<main>{INTRODUCTION}\n<p>{counts}</p>"]
    for kind, title in KINDS.items():
        parts += [f"<h2>{escape(title)}</h2>", *(entry(case) for case in in_order() if case.kind == kind)]
    return page("Verdicts", "\n".join([*parts, "</main>"]))


def style_of(verdict):
    return "slow" if "slow" in verdict else verdict


def entry(case):
    """One case, closed: its name, its rule, the verdict."""
    judge = f' <a href="judge.html#{case.name}">Judge it in your browser.</a>' if case.rule in RULES else ""
    facts = [f"<b>{what}</b>{escape(text)}{judge * (what == 'Judged')}"
             for what, text in facts_of(case, case.found)]
    verdict = f'<span class="verdict {style_of(case.verdict)}">{case.verdict}</span>'
    return f"""<details><summary>{verdict}
<b>{case.name}</b> <span class="soft">{escape(case.rule)}</span></summary>
<div id="{case.name}"><p><a href="{case.link}">{case.thread}</a>, {case.date}</p>
<ul>{"".join(f"<li>{fact}</li>" for fact in facts)}</ul>
<pre><code>{escape(code_of(case.rule))}</code></pre></div></details>"""
