"""A wrong sampler -> a ledger that can be checked with a pencil: every way in which a token comes about, with
the chance of each step, and their sum beside the target's probability.

Limitations: a round's drafts are listed as if each were tested as soon as it is drawn, and only as many
branches are walked as judge.py walks.  If a sampler gives tokens instead of rounds, only they are listed.
"""
import numpy as np

from engine.checks import check_settings
from lossless.judge import MAX_STEPS, ROUNDING, clearest, find_errors, walk_case
from lossless.toys import distribution_of_text, distribution_of_token, spell


def write_ledger(sampler, case, report):
    """The ledger of the shortest beginning of a text that is clearly too likely: of the report's text, if
    that is."""
    found = add_beginnings(walk_case(sampler, case, MAX_STEPS)[0])
    wanted = add_beginnings(distribution_of_text(case.target, case.prompt, case.n_tokens, **case.settings))
    errors = find_errors(found, wanted, missing=1 - found[()])
    too_likely = [text for text in found if errors[text] > ROUNDING and found[text] > wanted.get(text, 0)]
    if not too_likely:
        return f'"{spell(report.text)}" stops too soon: before {case.n_tokens} tokens, and without an EOS.'
    shown = tuple(report.text)
    begins = [text for text in too_likely if shown in too_likely and text == shown[:len(text)]]
    text, _ = clearest((text, errors[text]) for text in begins or too_likely)
    n = next(n for n in range(len(text)) if errors[text[:n + 1]] > ROUNDING)        # n tokens are right
    rows = {}
    ways, *_ = walk_case(sampler, case, MAX_STEPS, outcome=lambda *run: follow(*run, n, len(text), rows))
    ways = {way: chance for way, chance in ways.items() if way[0][:n] == text[:n]}
    chances = add_beginnings({steps: chance for (_, steps), chance in ways.items()})
    return "\n".join([
        *[f'The text of the report, "{spell(shown)}", is too rare.  One that is too likely:'] * (not begins),
        f'How a text goes on with "{spell(text[n:])}" after "{spell([*case.prompt, *text[:n]])}" ({case}):',
        *list_rows(case, n, text, rows), "the chance of each step, and their product:",
        *(f"    {multiply(chances, steps):44}  {', '.join(steps)}"
          for (new, steps), _ in sorted(ways.items(), key=lambda way: -way[1]) if new == text),
        f"sum {found[text] / found[text[:n]]:.4g}; the target: {multiply(wanted, text, n)}",
        *["No drafts are seen here: yield a sampling.Round for each target pass to see them."] * (not rows)])


def add_beginnings(distribution):
    """{text: probability} -> {beginning of a text: probability}; the same for the steps of a way."""
    result = {(): 0.0}
    for text, chance in distribution.items():
        for n in range(len(text) + 1):
            result[text[:n]] = result.get(text[:n], 0) + chance
    return result


def follow(result, rng, start, end, rows):
    """Follows a run until its text has `end` tokens.  Returns (the text, the steps after its first `start`
    tokens), and notes in rows what each draft was drawn from: {the text so far: [n_vocab]}."""
    text, steps = [], []
    for r in result:
        rng.step()
        tokens, drafts = (list(getattr(r, name, one)) for name, one in (("tokens", [r]), ("drafts", [])))
        n_new = min(end - len(text), len(tokens))
        n_accepted = min(r.n_accepted, n_new) if drafts else 0
        for j, draft in enumerate(drafts[:n_accepted + (n_accepted < n_new)]):
            rows[(*text, *drafts[:j])] = [] if r.draft_probs is None else r.draft_probs[j]
            if len(text) + j >= start:
                steps += [f"at place {j + 1} of a round"] * (0 < start == len(text) + j)
                steps += [f"draft {spell([draft])}", "accept" if j < n_accepted else "reject"]
        text += tokens[:n_new]
        if n_accepted < n_new and len(text) > start:
            how = "as the bonus, " * (0 < len(drafts) == n_accepted) + "no draft, " * (not drafts)
            steps.append(f"{how}then {spell(tokens[n_accepted:n_new])}")
        if len(text) == end:
            break
    return tuple(text), tuple(steps)


def list_rows(case, start, text, rows):
    """Yields q and p at each position of the text from `start` on."""
    settings = dict(case.settings)
    eos = check_settings(0, eos=settings.pop("eos", None))
    for i in range(start, len(text)):
        at = [*case.prompt, *text[:i]]
        if i == case.n_tokens or i and text[i - 1] in eos:
            yield f'"{spell(at)}" is complete, so the text should end here'
            break
        q, p = distribution_of_token(case.target(at)[0], **settings), rows.get(text[:i], [])    # []: no draft
        for name, row in ("q", q), ("p", p):
            if len(row):
                yield f'{name} after "{spell(at)}":' + "".join(
                    f"  {chance:8.4g} {spell([token])}" for token, chance in enumerate(row))


def multiply(chances, steps, first=0):
    """The chance of each step from the first on, and their product, such as "0.5 x 0.8 = 0.4"."""
    each = [chances.get(steps[:i + 1], 0) / (chances.get(steps[:i]) or 1) for i in range(first, len(steps))]
    product = f" = {np.prod(each):.4g}" if len(each) > 1 else ""
    return " x ".join(f"{chance:.4g}" for chance in each) + product
