"""Lossless, exactly: the text has the target's distribution, to 1e-12, and lossless.check finds samplers that
are not lossless.

Nothing is sampled here.  lossless.exact_distribution runs the production code through every branch that
chance could take, and adds up the probabilities.  lossless.distribution_of_text multiplies the target's own
distributions, written from their definition."""

import itertools
import math
import re

import numpy as np
import pytest
from helpers import PAIRS
from test_methods_lossless import counts, line

from autoregressive import autoregressive_sampling
from engine.loading import command_line
from lossless import __main__, check, distribution_of_text, judge, report, toys
from lossless.cases import CASES, PROMPT, thorough_cases
from lossless.judge import distance
from lossless.toys import memoryless, table
from lossless.verdicts.museum import WRONG
from lossless.verdicts.rules import Algorithm2
from sampling import Round, probabilities
from speculative import propose, speculative_sampling, verify

# The joint distribution of several tokens -------------------------------------------------------------------

FEW = CASES[::8] + [case for case in CASES if case.K > 6]       # these: every place of a round


@pytest.mark.parametrize("cases", [FEW, pytest.param(CASES, marks=pytest.mark.long)], ids=["few", "all"])
def test_the_text_has_the_targets_distribution(cases, monkeypatch):
    monkeypatch.setattr(judge, "CASES", cases)
    found = report(speculative_sampling)
    assert found.deviation < 1e-12 and (found.n_cases, found.n_unfinished) == (len(cases), 0)


@pytest.mark.long
def test_the_text_has_the_targets_distribution_thoroughly(monkeypatch):
    """In every fourth of the cases that thorough=True adds."""
    monkeypatch.setattr(judge, "thorough_cases", lambda: [*thorough_cases()][len(CASES)::4])
    assert check(speculative_sampling, thorough=True) < 1e-12


def test_the_distance_is_the_mass_that_lies_elsewhere():
    """Total variation."""
    assert distance({"a": 0.5, "b": 0.5}, {"b": 0.25, "c": 0.75}) == 0.75
    assert distance({"a": 1.0}, {"a": 1.0}) == 0


def test_the_targets_distribution_by_hand():
    """q = (.5, .25, .25) everywhere; token 1 ends the text."""
    model = memoryless([0.5, 0.25, 0.25])
    assert distribution_of_text(model, PROMPT, 2, eos=1) == {
        (1,): 0.25, (0, 0): 0.25, (0, 1): 0.125, (0, 2): 0.125, (2, 0): 0.125, (2, 1): 0.0625, (2, 2): 0.0625}
    colder = distribution_of_text(model, PROMPT, 1, temperature=0.5)            # .25, .0625, .0625
    assert colder == pytest.approx({(0,): 2 / 3, (1,): 1 / 6, (2,): 1 / 6})
    assert len(distribution_of_text(model, PROMPT, 1, top_k=2)) == 3            # all of a tie are kept
    assert distribution_of_text(model, PROMPT, 1, top_p=0.5) == {(0,): 1}
    assert distribution_of_text(model, PROMPT, 3, temperature=0) == {(0, 0, 0): 1}


# The standard cases -----------------------------------------------------------------------------------------


class Mistake(Algorithm2):
    """Algorithm 2 with a mistake: no coin for some drafts, or wrong residuals, settings or ends of text."""
    sure = late = staticmethod(lambda *_: False)
    left, change, untested = staticmethod(lambda residual: residual), staticmethod(lambda settings: {}), None

    def __init__(self, **mistake):
        vars(self).update(mistake)

    def __call__(self, *run, **settings):
        self.round = 0
        return super().__call__(*run, **settings | self.change(settings))

    def accepts(self, q, p, x, rng):
        return self.round == self.untested or self.sure(q, p, x) or super().accepts(q, p, x, rng)

    def residual(self, q, p, x):
        return self.left(super().residual(q, p, x))

    def rows(self, *run):
        self.round += 1
        return super().rows(*run)

    def text(self, drafts, kept, token, eos):
        new = super().text(drafts, kept, token, eos)
        unseen = len(new) <= kept and self.late(len(drafts), len(new))
        return [*drafts[:kept], token] if unseen else new


def changed(name, change):
    """A setting, if it is given, is changed first."""
    return Mistake(change=lambda settings: {name: change(settings[name])} if settings.get(name) else {})


class KeepsTies(Algorithm2):
    """A nucleus that keeps every token as likely as its least likely one."""
    def rows(self, target, x, drafts, *more):
        q = super().rows(target, x, drafts, *more)
        plain = probabilities(target(x + drafts, len(drafts) + 1), **self.settings | dict(top_p=1.0))
        least = np.where(q > 0, plain, np.inf).min(axis=1, keepdims=True)
        kept = np.where(plain >= least, plain, 0)
        return kept / kept.sum(axis=1, keepdims=True)


def changes_rows(change):
    """change(the number of new tokens, the settings, the target's row, the draft's) -> the target's row"""
    return lambda draft, target, x, *run, **settings: speculative_sampling(draft, toys.as_model(lambda text: (
        change(len(text) - len(x), settings, target([*text])[0], draft([*text])[0]))), x, *run, **settings)


KINDS_OF_MISTAKES = {
    **{f"token {n} is the likeliest": changes_rows(lambda at, _, q, p, n=n: np.where(
        (q < q.max()) & (at == n - 1), -np.inf, q)) for n in range(1, 19)},
    "temperature 0 keeps a draft that ties": changes_rows(
        lambda at, settings, q, p: q + 1e-9 * (p == p.max()) * (settings.get("temperature") == 0)),
    "temperature 0 is taken for 1": Mistake(change=lambda s: {"temperature": s.get("temperature", 1) or 1}),
    "logits below -104 are all 0": changes_rows(lambda at, settings, q, p: q if q.max() > -104 else 0 * q),
    "a prompt is cut to eight tokens": lambda d, t, x, *r, **s: speculative_sampling(d, t, x[-8:], *r, **s),
    "a prompt twice": lambda d, t, x, *r, **s: speculative_sampling(d, t, x[1:] and x or x * 2, *r, **s),
    **{f"no coin if q > {c}": Mistake(sure=lambda q, p, x, c=c: q[x] > c) for c in (.6, .8, .9, .99, .9999)},
    "no coin if p > .95": Mistake(sure=lambda q, p, x: p[x] > .95),
    "no coin if the ratio > .999": Mistake(sure=lambda q, p, x: q[x] > .999 * p[x]),
    "no coin if p is close to q": Mistake(sure=lambda q, p, x: np.isclose(q[x], p[x])),
    **{f"a residual below {c} is none": Mistake(left=lambda r, c=c: r * (r.sum() > c)) for c in (1e-3, 1e-6)},
    "a residual's entries below a millionth are none": Mistake(left=lambda r: r * (r > 1e-6)),
    **{f"temperature at least {c}": changed("temperature", lambda t, c=c: max(t, c)) for c in (1e-5, .1)},
    "temperature at most 10": changed("temperature", lambda t: min(t, 10)),
    "temperature near 1 ignored": changed("temperature", lambda t: 1 if abs(t - 1) < .1 else t),
    "temperature rounded": changed("temperature", lambda t: round(t, 1)),
    "temperature below .001 is greedy": changed("temperature", lambda t: 0 if t < .001 else t),
    "top_p rounded": changed("top_p", lambda p: round(p, 1)),
    "top_p at least .05": changed("top_p", lambda p: max(p, .05)),
    "top_p at most .95": changed("top_p", lambda p: min(p, .95)),
    "top_p above .99 ignored": changed("top_p", lambda p: 1 if p > .99 else p),
    "top_p keeps ties": KeepsTies(),
    "top_k one too large": changed("top_k", lambda k: k + 1),
    "top_p ignored with top_k": Mistake(change=lambda s: {"top_p": 1} if s.get("top_k") else {}),
    **{f"round {n} untested": Mistake(untested=n) for n in range(1, 11)},
    **{f"EOS as draft {j + 1} of {k} unseen": Mistake(late=lambda k_, j_, k=k, j=j: (k_, j_) == (k, j + 1))
       for k in range(1, 9) for j in range(k)},
}


@pytest.mark.long
@pytest.mark.parametrize("name", KINDS_OF_MISTAKES)
def test_the_standard_cases_see_each_kind_of_mistake(name, monkeypatch):
    """At temperature 0, in a text of two tokens."""
    setting = name.split()[0].lower()
    monkeypatch.setattr(judge, "CASES", sorted(CASES, key=lambda case: setting not in case.settings))
    monkeypatch.setattr(judge, "CLEAR", 0)
    found = report(KINDS_OF_MISTAKES[name])
    assert not found.lossless and (len(found.text) == 2 or not name.startswith("temperature 0"))


def test_what_is_remembered_of_one_case_does_no_harm_in_another():
    """A model may cache by prompt."""
    assert len({tuple(case.prompt) for case in CASES}) == len(CASES)


def test_a_case_of_too_many_branches_is_walked_in_part(monkeypatch, capsys):
    monkeypatch.setattr(judge, "CASES", [
        case for case in CASES if (case.K, case.n_tokens) == (2, 3) and "several" in case.name][:1])
    monkeypatch.setattr(judge, "MAX_STEPS", 500)
    found = report(speculative_sampling)
    assert found.lossless and (found.n_cases, found.n_unfinished) == (1, 1) and found.n_branches < 100
    assert str(found).startswith("lossless as far as it was walked: 1 of 1 cases not to the end.  A mistake")
    seen = judge.walk_case(speculative_sampling, judge.CASES[0], 500)[0]
    assert check(speculative_sampling) == found.unwalked == pytest.approx(1 - sum(seen.values())) != 0
    assert found.deviation < 1e-12 and capsys.readouterr().out == str(found) + "\n"
    found = report(WRONG["AbsoluteResidual"])
    assert not found.lossless and found.n_unfinished


def test_every_case_is_begun_even_if_no_steps_are_left(monkeypatch):
    monkeypatch.setattr(judge, "CASES", CASES[2:6])
    monkeypatch.setattr(judge, "ALL_STEPS", 0)
    found = report(speculative_sampling)
    assert found.lossless and (found.n_cases, found.n_branches, found.n_unfinished) == (4, 4, 4)


# What the judge says ----------------------------------------------------------------------------------------


def test_the_report_names_the_clearest_text(capsys):
    """It has its probability, the right one, and the case; `check` prints it."""
    pair = memoryless([0.5, 0.3, 0.2]), memoryless([0.1, 0.6, 0.3])
    run = WRONG["EveryDraftAccepted"], [pair], [1, 2], 2
    found = report(*run, temperature=1)
    assert check(*run, temperature=1) == found.deviation == pytest.approx(0.4 * 0.6)        # for [0, 1]
    assert (found.settings, found.prompt, found.text) == (dict(temperature=1), [0, 0], [0, 1])
    assert capsys.readouterr().out == str(found) + "\n" == (
        'not lossless: after "a a" the text "a b" has probability 0.300000, and should have 0.060000.  '
        "(pair 0; K = 1, 2 tokens, temperature = 1; 9 branches of 1 case)\n"
        "The models are toys: their token 0 is written a, their token 1 b, and so on.\n")


def test_after_a_small_deviation_a_larger_one_is_looked_for(monkeypatch):
    """The first wrong text is off by .0007.  A mistake of 2^-24 stays as small as it is."""
    monkeypatch.setattr(judge, "CASES", CASES[1:60:2])
    found, smallest = report(line(lambda: counts)), report(WRONG["CoinUpTo"])
    assert found.deviation >= abs(found.probability - found.wanted) > .1 and len(found.text) == 2
    assert smallest.deviation < 1e-7 and "float32" in str(smallest) and "float32" not in str(found)


def test_a_report_on_pairs_settings_and_shapes():
    seen = []

    def sampler(draft, target, tokens, n_tokens, K, rng, **settings):
        seen.append((n_tokens, K, tuple(settings)))
        return autoregressive_sampling(target, tokens, n_tokens, rng, **settings)

    found = report(sampler, [(None, table(2))], Ks=[(3, 2), (1, 1)], n_tokens=2, temperature=0.5)
    assert found.lossless and found.deviation < 1e-12 and found.n_branches == 18 and found.text is None
    assert str(found).startswith("lossless: no probability is off by more than ")
    assert set(seen) == {(2, (3, 2), ("temperature",)), (2, (1, 1), ("temperature",))}


@pytest.mark.parametrize("settings", [
    dict(temperature=1000.), dict(temperature=1e-320), dict(temperature=1e308), dict(top_p=1 - 2 ** -53),
    dict(eos=np.array(1)), dict(eos=np.int8(1)), dict(eos=range(1, 3)), dict(eos=[99])], ids=str)
def test_the_definition_holds_for_extreme_settings_too(settings):
    far_apart = toys.as_model(lambda prefix: np.array([0, -1000, -500, -1e-3]))
    pairs = [(table(1, n_vocab=4), far_apart), PAIRS["zeros in both"], PAIRS["draft is certain"]]
    assert report(speculative_sampling, pairs, [2], 3, **settings).lossless


@pytest.mark.parametrize("n_vocab", [1, 2])
def test_models_of_one_token_and_of_two(n_vocab):
    def model(tokens, n_last=1):
        return np.arange(n_vocab * n_vocab, dtype=float).reshape(n_vocab, n_vocab)[tokens[-n_last:]] / 2
    assert report(speculative_sampling, [(model, model)], n_tokens=3).lossless
    wrong = report(WRONG["AbsoluteResidual"], [(model, lambda x, n=1: -model(x, n))], n_tokens=2)
    assert wrong.lossless == (n_vocab == 1)
    with pytest.raises(ValueError, match="at least one pair"):
        report(speculative_sampling, [])


def test_a_sampler_that_never_ends_is_told_so_and_not_waited_for():
    """This one draws nothing and calls no model.  (Others: test_walk.py.)"""
    with pytest.raises(ValueError, match="never ends"):
        check(lambda *run, **settings: itertools.repeat(Round([], [], 0, None, None)))


def test_a_sampler_that_changes_its_settings_is_judged_by_those_it_was_given(monkeypatch):
    monkeypatch.setattr(judge, "CASES", [case for case in CASES if "eos" in case.settings])
    def endless(*run, eos, top_k, **settings):          # it has no default for top_k: check fills that in
        getattr(eos, "clear", list)()
        return speculative_sampling(*run, eos=eos or None, top_k=top_k, **settings)
    before = [str(case) for case in CASES]
    assert "eos" in report(endless).case and [str(case) for case in CASES] == before


def test_models_in_single_precision_are_judged_in_double():
    single = [lambda tokens, n=1, model=model: model(tokens, n).astype(np.float32)
              for model in (table(1), table(2))]
    assert report(speculative_sampling, [single], Ks=[2], n_tokens=3, temperature=1).deviation < 1e-14


def test_what_is_refused_is_said_even_if_the_sampler_catches_it():
    def rule(q, p, drafts, rng):
        try:
            return (len(drafts), 0) if math.log(rng.random()) < -1 else (0, 0)
        except ValueError:
            return verify(q, p, drafts, rng)
    with pytest.raises(ValueError, match="made a plain number"):
        check(line(verify=rule))


def test_a_sampler_with_a_generator_of_its_own_is_told_so():
    own = np.random.default_rng(0)
    for sampler in (line(lambda: lambda *asked: propose(*asked[:-1], own)),
                    line(verify=lambda *judged: verify(*judged[:-1], own)),
                    lambda draft, target, x, n, K, rng, **settings: own.integers(5, size=n).tolist()):
        with pytest.raises(ValueError, match="no random generator of its own"):
            report(sampler)


# The program ------------------------------------------------------------------------------------------------

LOOP = "draft, target, tokens, n_tokens, K, rng, *, temperature, **settings"
OWN = {  # the contents of a file: (exit status, a pattern of what is printed)
    "def propose(draft, x, k, *_): return [len(__file__) % 2][:k], None": (0, "lossless: no probability"),
    "def verify(q, p, drafts, rng):\n    return len(drafts), 0": (1, "not lossless: after "),
    "def verify(q, p, drafts, rng):\n    return rng.gumbel()": (2, "error: PATH, line 2: the judge cannot"),
    "def propose(draft, x, k, to_probs, rng): return [], None": (2, "error: PATH drafts nothing in these"),
    "def propose(*_): return [], None\ndef verify(q, p, drafts, rng): return 0, 0": (1, "not lossless: "),
    "from speculative import *": (2, "error: PATH has no function propose, verify or speculative_sampling"),
    "def speculative_sampling(draft, target): return 0": (2, "error: PATH: speculative_sampling must take"),
    f"def speculative_sampling({LOOP}): return None": (2, "error: PATH: speculative_sampling gave None"),
    f"def speculative_sampling({LOOP}): return tokens + [0] * n_tokens": (1, "not.*begins with the prompt"),
    "from numpy import random\ndef verify(*_): return 0, random.default_rng(0).choice(5)": (1, "not.* seed"),
    "def verify(p, q, drafts, rng): return 0, q[len(drafts)].argmax()": (2, "error: PATH, .*exchanged"),
    # What a file imports is not its own, and a loop of its own is judged as it is.
    "from speculative import verify as right\ndef verify(*rows): return right(*rows)":
        (0, "lossless: .*\njudged: verify of PATH in the loop of speculative.py\n$"),
    "from speculative import verify, speculative_sampling\ndef propose(d, x, k, *_): return [1][:k], None":
        (0, "lossless: .*\njudged: propose of PATH in the loop of speculative.py\n$"),
    f"from autoregressive import autoregressive_sampling as alone\ndef verify(*_): return 0, 0\n"
    f"def speculative_sampling({LOOP}):\n"
    "    return alone(target, tokens, n_tokens, rng, temperature=temperature, **settings)":
        (0, "lossless: .*\njudged: speculative_sampling of PATH\n$"),
}


@pytest.fixture
def judge_file(tmp_path, capsys, monkeypatch):
    """(contents of a file, flags) -> the exit status of the program, and what it prints, on a few cases."""
    few = CASES[:9] + [case for case in CASES if "eos" in case.settings][:3]
    monkeypatch.setattr(judge, "CASES", few)

    def run(source, *flags):
        path = tmp_path / "mine.py"
        path.write_text(source)
        status = command_line.run(__main__.main, [str(path), *flags])
        return status, "".join(capsys.readouterr()).replace(str(path), "PATH")
    return run


@pytest.mark.parametrize("source", OWN)
def test_the_program_judges_a_file_of_ones_own(source, judge_file):
    (status, says), (found, answer) = OWN[source], judge_file(source)
    assert found == status and re.match(says, answer, re.S)


def test_a_ledger_is_what_a_pencil_gives(judge_file):
    """q(c) = .1, p(c) = .5: c is accepted with .5 * .2, or rejected with .5 * .8 and drawn from q again."""
    status, answer = judge_file(
        "import speculative\nfrom sampling import sample\ndef verify(q, p, drafts, rng):\n"
        "    n, token = speculative.verify(q, p, drafts, rng)\n    return n, sample(q[n], rng)", "--explain")
    assert status == 1 and " ".join(answer.split("judged")[1].split("\n\n")[1].split()) == (
        'The text of the report, "d c", is too rare. One that is too likely: '
        'How a text goes on with "c" after "b a a a" (easy numbers; K = 1, 2 tokens): '
        'q after "b a a a": 0.3 a 0 b 0.1 c 0.6 d 0 e p after "b a a a": 0.2 a 0 b 0.5 c 0.3 d 0 e '
        "the chance of each step, and their product: 0.5 x 0.2 = 0.1 draft c, accept "
        "0.5 x 0.8 x 0.1 = 0.04 draft c, reject, then c sum 0.14; the target: 0.1")


@pytest.mark.parametrize("body, says", [
    ("return [] if {*(settings['eos'] or ())} & {*tokens} else RUN", '"(no token)" stops too soon'),
    ("return [3 for r in RUN for x in r.tokens]", "No drafts are seen here: yield a sampling.Round"),
    ("yield from RUN\n    yield 3", "is complete, so the text should end here"),
    ("yield type('R', (), dict(tokens=[3], drafts=[3]))", "There is no ledger: AttributeError"),
])
def test_the_verdict_stands_whatever_the_ledger_can_do(body, says, judge_file):
    run = "right(draft, target, tokens, n_tokens, K, rng, temperature=temperature, **settings)"
    source = ("from speculative import speculative_sampling as right\n"
              f"def speculative_sampling({LOOP}):\n    {body}")
    status, answer = judge_file(source.replace("RUN", run), "--explain")
    assert status == 1 and says in answer
