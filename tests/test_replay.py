"""The page that replays a run: its numbers are the rounds', its text is data, and it does what it says."""
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from helpers import Says

import console
import samplers.block
from autoregressive import autoregressive_sampling
from encoder import EOS, Encoder, bytes_to_unicode
from lossless import memoryless, table
from main import main
from pages.replay import LIMIT, TEMPLATE, Coins, likeliest, page, recorded, reduce_round, rows, write_trace
from reporting.stats import acceptance
from samplers.lossy import lenient
from samplers.tree import shape_of
from sampling import Round, sample
from speculative import propose, speculative_sampling, verify

HOSTILE = ["</script><script>hacked = 1</script>", "<img src=x onerror='hacked = 1'>", "<!--<script>",
           "{{data}}", "&lt;b&gt;", "\u2028\\u003c\"'"]
WORDS = [" the", " sea", "\n", "漢字", *HOSTILE, "😀"]
SETTINGS = dict(prompt="Once <b>upon</b> a time", draft="small", target="large", K=3, temperature=1.0,
                top_k=0, top_p=1.0, seed=5)
SPEEDS = dict(speedup=1.5, predicted_speedup=1.75, cost_ratio=.125, verify_ratio=None)


def encoder_of(words):
    """A token for each word, then half a character, then EOS."""
    char_of = bytes_to_unicode()
    tokens = ["".join(char_of[b] for b in word.encode()) for word in words] + [char_of[0xe2]]
    return Encoder({token: i for i, token in enumerate(tokens)} | {EOS: len(tokens)}, [])


ENCODER = encoder_of(WORDS)


def traced(n_tokens=40, K=3, seed=5, n_vocab=ENCODER.n_vocab, block=False, verify=verify, **settings):
    """A run of two table models -> (the rounds, the same reduced, the coins of each)."""
    models = [table(seed, zeros=.2, n_vocab=n_vocab), table(seed + 100, zeros=.2, n_vocab=n_vocab)]
    coins, rounds, small, seen = Coins(np.random.default_rng(seed)), [], [], []
    judge = samplers.block.verify if block else verify
    for r in speculative_sampling(*models, [0], n_tokens, K, coins, verify=judge, **settings):
        seen.append(coins.take())
        rounds.append(r)
        small.append(reduce_round(r, seen[-1], block=block))
    return rounds, small, seen


class Data(HTMLParser):
    """Reads the page as a browser does, and keeps the tags and what stands in <script id="data">."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.tags and self.tags[-1] == ("script", {"id": "data", "type": "application/json"}):
            self.text += data


def data_of(html):
    return json.loads(Data(html).text)


# The coins ------------------------------------------------------------------------

@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("K, settings", [(1, {}), (3, {}), (3, dict(temperature=0)), (4, dict(top_k=2))])
def test_each_coin_stands_with_the_draw_it_made(K, settings, block):
    """Drawing again with the page's coin gives the page's token; the other coins give the verdicts."""
    beyond = 0                                          # rounds that Algorithm 2 would have ended earlier
    for seed in range(10):
        for r, s, coins in zip(*traced(K=K, seed=seed, block=block, **settings)):
            slots, last = s["slots"], s["last"]
            for slot, p in zip(slots, r.draft_probs):
                assert sample(p, Says(slot["drawn_with"])) == slot["token"]
            passed = [j for j, slot in enumerate(slots, 1)
                      if slot["coin"] is not None and slot["coin"] < slot["accept"]]
            assert r.n_accepted == (max(passed, default=0) if block else len(passed))
            n, k = r.n_accepted, len(slots)
            verdicts = ["accepted"] * n + ["rejected"] * (k - n if block else n < k) + ["not tested"] * k
            assert [slot["verdict"] for slot in slots] == verdicts[:k]
            beyond += len(passed) < r.n_accepted
            if not block:
                q = r.target_probs[r.n_accepted]
                probs = np.clip(q - r.draft_probs[r.n_accepted], 0, None) if r.n_accepted < len(slots) else q
                assert sample(probs, Says(last["drawn_with"])) == last["token"] == r.tokens[-1]
            used = [slot[key] for key in ("drawn_with", "coin") for slot in slots] + [last["drawn_with"]]
            assert [coin for coin in used if coin is not None] == coins     # each once, in the order drawn
            assert s["fits"]
    assert beyond or not block or K == 1 or settings


def test_the_recorder_gives_what_the_generator_gives_and_what_others_do_with_it_is_not_shown():
    rng, coins = np.random.default_rng(3), Coins(np.random.default_rng(3))
    for ask in lambda g: [g.random()], lambda g: g.random(3).tolist(), lambda g: [g.integers(9)]:
        assert ask(coins) == ask(rng)
    assert len(coins.take()) == 4 and coins.take() == []

    def chosen(draft, x, k, to_probs, rng):             # draws by another method of the generator
        p = to_probs(draft(x))[:k]
        return [int(rng.choice(len(one), p=one)) for one in p], p

    def wasteful(*arguments):
        arguments[-1].random()
        return propose(*arguments)

    for method in dict(verify=lenient(.3)), dict(propose=chosen), dict(propose=wasteful):
        coins, small = Coins(np.random.default_rng(0)), []
        pair = [table(seed, n_vocab=ENCODER.n_vocab) for seed in (1, 2)]
        rounds = list(recorded(speculative_sampling(*pair, [0], 40, 3, coins, **method), coins, small))
        data = data_of(page(small, SETTINGS, ENCODER))
        assert [r["tokens"] for r in data["rounds"]] == [r.tokens for r in rounds]
        for r, s in zip(rounds, data["rounds"]):
            assert [slot["verdict"] for slot in s["slots"]].count("accepted") == r.n_accepted
            assert all(slot["coin"] is slot["accept"] is slot["drawn_with"] is None for slot in s["slots"])
            assert s["last"]["prob"] == r.target_probs[r.n_accepted][r.tokens[-1]]
            assert s["last"]["probs"] == []
        assert {slot["expected"] for slot in data["totals"]["by_slot"]} == {None}
    q, p = np.full((2, 3), 1 / 3), np.full((1, 3), 1 / 3)
    for tokens, enough in ([0, 1], 3), ([0], 2):        # drawn, decided, drawn; or an EOS was accepted
        for n in range(6):
            s = reduce_round(Round(tokens, [0], 1, q, p), [.1] * n)
            assert s["fits"] == (n in (2, 3) if enough == 3 else n >= enough)


def test_after_an_accepted_eos_nothing_is_said():
    probs = np.full(ENCODER.n_vocab, 1 / ENCODER.n_vocab)
    r = Round([4, ENCODER.eos], [4, ENCODER.eos, 2], 2, np.tile(probs, (4, 1)), [probs] * 3)
    s = reduce_round(r, [.1, .2, .3, .4, .5, .6, .7])   # three accepted, a bonus drawn; cut off
    assert [slot["verdict"] for slot in s["slots"]] == ["accepted", "accepted", "after the end"]
    assert [slot["coin"] for slot in s["slots"]] == [.4, .5, None] and s["last"] is None and s["fits"]
    assert data_of(page([s], SETTINGS, ENCODER))["rounds"][0]["text"] == [WORDS[4], ""]
    for block in False, True:
        lasts = [traced(seed=seed, eos=ENCODER.eos, block=block)[1][-1] for seed in range(40)]
        ended = [s for s in lasts if s["last"] is None]
        assert ended and all(s["fits"] and s["tokens"][-1] == ENCODER.eos for s in ended)


def test_a_drafter_that_copies_has_drawn_nothing_and_the_baseline_drafts_nothing():
    p, q = np.eye(4)[[1, 2, 3]], np.full((4, 4), .25)
    for n_accepted, coins in [(3, [.1, .2, .2, .5]), (0, [.3, .5]), (1, [.1, .3, .5])]:
        s = reduce_round(Round([*[1, 2, 3][:n_accepted], 0], [1, 2, 3], n_accepted, q, p), coins)
        assert [slot["drawn_with"] for slot in s["slots"]] == [None] * 3 and s["last"]["drawn_with"] == .5
        assert [slot["coin"] for slot in s["slots"] if slot["coin"] is not None] == coins[:-1]
    coins = Coins(np.random.default_rng(0))
    small = list(recorded(autoregressive_sampling(table(1, n_vocab=13), [0], 5, coins), coins, alone := []))
    assert [(s["last"]["kind"], s["slots"]) for s in alone] == [("bonus", [])] * len(small)
    assert data_of(page(alone, SETTINGS, ENCODER))["totals"]["by_slot"] == []


def test_a_block_is_judged_and_corrected_as_the_paper_says():
    """Any block: the chances h_j, the residual and its mass, written out token by token."""
    rng = np.random.default_rng(4)
    for n in (0, 1, 2) * 4:
        q, p, x = rng.dirichlet(np.ones(3), 4), rng.dirichlet(np.ones(3), 3), [0, 1, 2]
        s = reduce_round(Round([*x[:n], 1], x, n, q, p), [*[.5] * 6, .25], block=True)
        P = [1]
        for j in range(3):
            P.append(min(1, P[j] * q[j][x[j]] / p[j][x[j]]))
        z = [sum(max(0, P[j] * q[j][y] - p[j][y]) for y in range(3)) for j in range(3)]
        chances = [z[1] / (z[1] + 1 - P[1]), z[2] / (z[2] + 1 - P[2]), P[3]]
        assert [slot["accept"] for slot in s["slots"]] == pytest.approx(chances)
        assert [slot["P"] for slot in s["slots"]] == pytest.approx(P[1:], rel=1e-3)
        assert [slot["kept"] for slot in s["slots"]] == pytest.approx(
            [sum(min(P[j] * a, b) for a, b in zip(q[j], p[j])) for j in range(3)], rel=1e-3)
        assert s["last"]["mass"] == pytest.approx(z[n], rel=1e-3)
        assert s["last"]["prob"] * z[n] == pytest.approx(max(0, P[n] * q[n][1] - p[n][1]))
    same = np.full((3, 4), .25)
    s = reduce_round(Round([0, 1, 2], [0, 1], 2, same, same[:2]), [.5] * 5, block=True)
    assert [slot["accept"] for slot in s["slots"]] == [1, 1]            # q = p: 0 / 0 is sure


def tree_round():
    """Root -> 0 " the", 1 " sea", 0 " the"; the second " the" -> 1 " sea", 3 "漢字"; the bonus is 2."""
    q = np.random.default_rng(0).dirichlet(np.ones(len(WORDS)), 6)
    return Round(tokens=[0, 1, 2], drafts=[0, 1, 0, 1, 3], n_accepted=2, target_probs=q, draft_probs=None,
                 parents=[-1, -1, -1, 2, 2])


def test_of_a_tree_the_page_holds_the_nodes_and_the_path_and_a_level_is_one_test():
    whole, ended = tree_round(), tree_round()._replace(tokens=[0, 1])
    s, q = reduce_round(whole, [.5] * 9), whole.target_probs
    assert [node["taken"] for node in s["nodes"]] == [False, False, True, True, False]
    assert [node["q"] for node in s["nodes"]] == pytest.approx(
        [q[row][x] for row, x in [(0, 0), (0, 1), (0, 0), (3, 1), (3, 3)]], rel=1e-3)
    assert (s["last"]["parent"], s["last"]["kind"], s["last"]["prob"]) == (3, "bonus", q[4][2])
    assert reduce_round(ended, [])["last"] is None
    cut = whole._replace(drafts=[3, 1, 0, 1, 3], tokens=[0, 4], n_accepted=1)   # 4: none of the children
    rounds = [whole, cut, cut._replace(tokens=[4], n_accepted=0), ended]
    data = data_of(page([reduce_round(r, []) for r in rounds], SETTINGS, ENCODER))
    assert data["rounds"][0]["text"] == [" the", " sea", "\n"]
    assert data["totals"]["by_slot"] == [dict(accepted=3, tested=4, expected=None),
                                         dict(accepted=2, tested=3, expected=None)]
    assert (data["totals"]["accepted"], data["totals"]["tested"]) == acceptance(rounds)


# The numbers ------------------------------------------------------------------------

@pytest.mark.parametrize("settings", [{}, dict(temperature=0), dict(top_k=3, temperature=.7)])
def test_the_page_holds_the_numbers_of_the_rounds(settings):
    rounds, small, _ = traced(n_tokens=80, **settings)
    data = data_of(page(small, SETTINGS | SPEEDS, ENCODER))
    assert data["settings"] == SETTINGS and len(data["rounds"]) == len(rounds)
    for r, s in zip(rounds, data["rounds"]):
        assert s["tokens"] == r.tokens and [slot["token"] for slot in s["slots"]] == r.drafts
        assert (s["last"]["kind"] == "bonus") == (r.n_accepted == len(r.drafts))
        for j, slot in enumerate(s["slots"]):
            x, q, p = r.drafts[j], r.target_probs[j], r.draft_probs[j]
            assert (slot["q"], slot["p"]) == (q[x], p[x])
            assert slot["accept"] == pytest.approx(1.0 if q[x] >= p[x] else q[x] / p[x])
            assert slot["kept"] == pytest.approx(sum(min(a, b) for a, b in zip(q, p)), rel=5e-3)
            for token, a, b in slot["probs"][:-1]:
                assert [a, b] == pytest.approx([q[token], p[token]], rel=5e-3)
            shown = {row[0] for row in slot["probs"]}
            assert {x, int(q.argmax()), int(p.argmax()), None, *r.tokens[j:j + 1]} <= shown
            assert np.sum([row[1:] for row in slot["probs"]], axis=0) == pytest.approx([1, 1], abs=.01)
        probs = r.target_probs[r.n_accepted]
        if r.n_accepted < len(r.drafts):
            probs = [max(0, q - p) for q, p in zip(probs, r.draft_probs[r.n_accepted])]
        for token, prob in s["last"]["probs"][:-1]:
            assert prob == pytest.approx(probs[token] / sum(probs), rel=5e-3)
        assert s["last"]["prob"] == pytest.approx(probs[r.tokens[-1]] / sum(probs))
    totals = data["totals"]
    assert (totals["rounds"], totals["tokens"]) == (len(rounds), 80)
    assert totals["tokens_per_target_pass"] == 80 / len(rounds)
    assert {key: totals[key] for key in SPEEDS} == SPEEDS
    for j, slot in enumerate(totals["by_slot"]):
        tested = [r for r in rounds if r.n_accepted >= j and len(r.drafts) > j]
        assert (slot["accepted"], slot["tested"]) == (sum(r.n_accepted > j for r in rounds), len(tested))
        assert slot["expected"] == pytest.approx(
            sum(np.minimum(r.target_probs[j], r.draft_probs[j]).sum() for r in tested), rel=5e-3)
    assert (totals["accepted"], totals["tested"]) == acceptance(rounds)


def test_the_likeliest_tokens_and_the_marked_ones_are_kept():
    probs = np.array([.05, .4, .1, .3, .15])
    assert rows([probs], [0], 2) == [[1, .4], [3, .3], [0, .05], [None, .25]]
    assert rows([probs, probs[::-1]], [2], 1) == [[1, .4, .3], [3, .3, .4], [2, .1, .1], [None, .2, .2]]
    assert likeliest(np.full(50, 0.02), 3).tolist() == [0, 1, 2]  # ties do not let the whole vocabulary in
    assert likeliest(np.eye(5)[3], 3).tolist() == [3]  # nor do tokens that are impossible
    assert likeliest(np.array([.5, .5]), 8).tolist() == [0, 1]
    q, p = np.array([.8, .05, .01, .1, .04]), np.array([.05, .8, .05, .05, .05])
    slot, = reduce_round(Round([3], [2], 0, np.stack([q, q]), [p]), [.9, .9, .95], n_top=1)["slots"]
    assert {row[0] for row in slot["probs"]} == {0, 1, 2, 3, None}      # 2 was drafted, 3 took its place


def test_the_race_has_the_seconds_of_both_runs():
    rounds, small, _ = traced(n_tokens=24)
    result = SETTINGS | dict(autoregressive=dict(tokens=list(range(4)) * 6))
    seconds = [.5 + i for i in range(25)], [.25 + i for i in range(len(rounds) + 1)]
    race = data_of(page(small, result, ENCODER, seconds))["race"]
    assert race["alone"] == seconds[0][:24] and race["rounds"] == seconds[1][:-1]
    assert race["text"] == [ENCODER.decode([token]) for token in range(4)] * 6
    assert data_of(page(small, result, ENCODER))["race"] is None
    assert data_of(page([], result | SPEEDS, ENCODER, ([], [])))["totals"]["tokens_per_target_pass"] is None


# Text is data ------------------------------------------------------------------------

def hostile_run():
    n = len(WORDS)
    model = memoryless(np.full(n, 1 / n))
    coins = Coins(np.random.default_rng(1))
    return [reduce_round(r, coins.take()) for r in speculative_sampling(model, model, [0], 40, 3, coins)]


def test_text_of_the_model_or_the_prompt_is_never_markup():
    small, prompt = hostile_run(), "".join(HOSTILE)
    html = page(small, SETTINGS | dict(prompt=prompt, draft=HOSTILE[1]), ENCODER)
    template = TEMPLATE.read_text(encoding="utf-8")
    assert Data(html).tags == Data(template).tags
    data = data_of(html)
    assert data["settings"]["prompt"] == prompt and data["settings"]["draft"] == HOSTILE[1]
    assert set(HOSTILE) <= set(data["names"].values())
    assert "".join(piece for r in data["rounds"] for piece in r["text"]) == ENCODER.decode(
        [t for s in small for t in s["tokens"]])
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|fetch\(|XMLHttp|https?://"
                          r"|@import|url\(", template)
    assert "default-src 'none'" in template and template.count("{{data}}") == 1


def test_a_character_made_of_two_tokens_is_whole_and_half_a_one_is_named_by_its_bytes():
    parts = [b"\xe2\x80", b"\x94", b"a"]
    encoder = Encoder({"".join(bytes_to_unicode()[b] for b in part): i for i, part in enumerate(parts)}, [])
    probs = np.array([.5, .3, .2])
    unsure = [probs] * 3
    rounds = [Round([0, 1], [0, 2], 1, np.stack(unsure), unsure[:2]), Round([0], [], 0, probs[None], [])]
    coins = [[.1, .9, .1, .9, .6], [.1]]
    data = data_of(page(list(map(reduce_round, rounds, coins)), SETTINGS, encoder))
    assert [s["text"] for s in data["rounds"]] == [["", "—"], ["\ufffd"]]
    assert data["names"] == {"0": "\\xe2\\x80", "1": "\\x94", "2": "a"}


def test_the_page_of_the_longest_run_is_a_few_hundred_kilobytes():
    n_vocab, K = 1000, 8
    rng = np.random.default_rng(0)
    encoder = encoder_of([f" <word{i}" for i in range(n_vocab - 2)])
    q, p = rng.dirichlet(np.ones(n_vocab), K + 1), list(rng.dirichlet(np.ones(n_vocab), K))
    r = Round([3], rng.integers(n_vocab, size=K).tolist(), 0, q, p)
    html = page([reduce_round(r, rng.random(K + 2).tolist())] * 1000, SETTINGS, encoder)
    data = data_of(html)
    assert LIMIT / 2 < len(html.encode()) < 500_000
    assert 50 < len(data["rounds"]) < 1000 == data["totals"]["rounds"]          # the totals hold all of them


def test_every_colour_of_text_can_be_read_on_both_backgrounds():
    """WCAG 2.1: a contrast of at least 4.5, light and dark."""
    def luminance(colour):
        r_g_b = np.array([int(colour[i:i + 2], 16) / 255 for i in (0, 2, 4)])
        linear = np.where(r_g_b <= .04045, r_g_b / 12.92, ((r_g_b + .055) / 1.055) ** 2.4)
        return np.dot([.2126, .7152, .0722], linear)

    schemes = re.findall(r":root \{(.*?)\}", TEMPLATE.read_text(encoding="utf-8"), re.S)
    assert len(schemes) == 2
    for scheme in schemes:
        colours = {name: luminance(value) for name, value in re.findall(r"--(\w+): #(\w+)", scheme)}
        for ink in ("ink", "soft", "q", "p", "good", "bad"):
            for ground in ("paper", "sheet"):
                dark, light = sorted([colours[ink], colours[ground]])
                assert (light + .05) / (dark + .05) >= 4.5, (ink, ground)


# The command line ------------------------------------------------------------------------

def test_the_command_line_writes_the_page_of_its_run(tmp_path, capsys):
    arguments = ["--json", "--temperature", "1", "-n", "20"]
    assert console.run(main, arguments) == 0
    plain = json.loads(capsys.readouterr().out)["speculative"]["tokens"]
    assert console.run(main, [*arguments, "--trace", str(tmp_path / "run.html")]) == 0
    result = json.loads(capsys.readouterr().out)
    speculative = result["speculative"]
    data = data_of((tmp_path / "run.html").read_text(encoding="utf-8"))
    assert speculative["tokens"] == plain == [token for r in data["rounds"] for token in r["tokens"]]
    assert "".join(piece for r in data["rounds"] for piece in r["text"]) == speculative["text"]
    for key, value in (data["settings"] | {key: data["totals"][key] for key in SPEEDS}).items():
        assert value == result[key]
    race = data["race"]                                     # the clocks of this very run
    assert len(race["rounds"]) == len(data["rounds"])
    assert "".join(race["text"]) == result["autoregressive"]["text"]
    assert sum(race["alone"]) == pytest.approx(result["autoregressive"]["seconds"], rel=.02)
    assert sum(race["rounds"]) == pytest.approx(speculative["seconds"], rel=.02)
    assert data["totals"]["accepted"] / data["totals"]["tested"] == speculative["acceptance_rate"]


# In a browser ------------------------------------------------------------------------

def spaced(text):
    return text.replace(" ", "·").replace("\n", "↵")


def opened(browser, tmp_path, small, *size, settings=(), seconds=None, address="", **options):
    write_trace(tmp_path / "run.html", small, SETTINGS | SPEEDS | dict(settings), ENCODER, seconds)
    browser.open(tmp_path / "run.html", *size, address=address, **options)
    return browser


def check_round(browser, i, rounds, small):
    """The page shows round i whole: every number of it is computed here from the round."""
    r, s = rounds[i], small[i]
    n, k = r.n_accepted, len(r.drafts)
    assert browser.texts("#count") == [f"{i + 1} / {len(rounds)}"]
    said = ENCODER.decode([t for before in rounds[:i] for t in before.tokens] + r.tokens[:n])
    rejected = spaced(browser.run(f"return names[{r.drafts[n]}]")) if n < k else ""
    text = spaced(SETTINGS["prompt"] + said) + rejected + spaced(ENCODER.decode(r.tokens[n:]))
    assert spaced(browser.texts("#text")[0]) == text
    summary = browser.texts("#summary")[0]
    assert summary.startswith(f"Round {i + 1} of {len(rounds)}. ")
    assert (f"{n} of {k} draft" in summary) == (k > 0) and ("rejected" in summary) == (n < k)
    assert browser.texts(".card .word") == [spaced(ENCODER.decode([t])) for t in [*r.drafts, r.tokens[-1]]]
    assert browser.texts(".card .verdict") == (
        ["✓ accepted"] * n + ["✗ rejected"] * (n < k) + ["– not tested"] * (k - n - 1) + ["by the target"])
    assert browser.run("return known.focus") == n       # what decided
    for j, (slot, q, p, x) in enumerate(zip(s["slots"], r.target_probs, r.draft_probs, r.drafts)):
        shown, chance = browser.run(DETAIL % j), min(1, q[x] / p[x])
        terms = [term for term, _ in shown["facts"]]
        assert len(set(terms)) == len(terms)            # no two coins of one name
        facts = {term: float(fact.lstrip("<")) for term, fact in shown["facts"] if term != "coin r"}
        own = shown["names"].index(spaced(ENCODER.decode([x])))
        assert [facts["target q(x)"], facts["draft p(x)"]] == shown["numbers"][2 * own:2 * own + 2]
        assert [facts["target q(x)"], facts["draft p(x)"], facts["min(1, q / p)"]] == pytest.approx(
            [q[x], p[x], chance], abs=.00101)
        compared = shown["facts"][-1][1].split()
        assert compared == (["–"] if slot["coin"] is None else compared)
        if slot["coin"] is not None:
            coin, sign, accept = compared
            assert [float(coin), float(accept)] == pytest.approx([slot["coin"], chance], abs=.00051)
            assert (float(coin) < float(accept)) == (sign == "<") == (slot["verdict"] == "accepted")
        values = [value for token, *values in slot["probs"] if token is not None for value in values]
        assert shown["bars"] == pytest.approx([100 * value / max(values) for value in values], abs=.01)


DETAIL = """document.querySelectorAll(".card")[%d].click();
    const all = selector => [...document.querySelectorAll("#detail " + selector)];
    return {facts: all("dl > div").map(e => [e.children[0].textContent, e.children[1].textContent]),
            names: all(".name").map(e => e.textContent.replace("→ ", "")),
            numbers: all(".number").map(e => parseFloat(e.textContent.replace("<", ""))),
            bars: all(".bar").map(e => parseFloat(e.style.width))}"""


@pytest.mark.browser
def test_in_a_browser_it_goes_through_the_run_and_shows_its_numbers(browser, tmp_path):
    from selenium.webdriver.common.keys import Keys
    rounds, small, _ = traced(n_tokens=24, n_vocab=len(WORDS))
    opened(browser, tmp_path, small)
    last = len(rounds) - 1
    for i in range(len(rounds)):
        check_round(browser, i, rounds, small)
        browser.press(Keys.ARROW_RIGHT)
    at = last                                           # the end is the end
    for key, step in [(Keys.ARROW_LEFT, -1), (Keys.HOME, -99), (Keys.PAGE_DOWN, 1), (" ", 1),
                      (Keys.PAGE_UP, -1), (Keys.END, 99), ("#back", -1), ("#first", -99), ("#next", 1),
                      ("#last", 99), ("#strip button:nth-child(3)", 2 - last), (" ", 1)]:
        if key.startswith("#"):
            browser.driver.find_element("css selector", key).click()
        else:
            browser.press(key)
        at = max(0, min(last, at + step))
        assert browser.run("return [now, location.hash]") == [at, f"#{at + 1}"], key
    assert browser.run("return document.activeElement === $('strip').children[3]")      # the focus goes along
    browser.driver.find_element("id", "back").click()
    browser.press(" ")                                          # once more what the button does
    assert browser.run("return now") == 1
    assert dict(zip(browser.texts("#figures dt"), browser.texts("#figures dd"))) == {
        "tokens per target pass": f"{24 / len(rounds):.2f}",
        "acceptance rate": f"{np.divide(*acceptance(rounds)):.2f}",
        "speed-up, measured": "1.50×", "speed-up, predicted": "1.75×",
        "draft step, c": "0.13", "checking K + 1, v": "–"}
    tested = [[r for r in rounds if r.n_accepted >= j and len(r.drafts) > j] for j in range(3)]
    counts = [f"{sum(r.n_accepted > j for r in some)} / {len(some)}" for j, some in enumerate(tested)]
    assert browser.texts("#by-slot td:nth-child(2)") == counts
    columns = "[...$('strip').children].map(b => [...b.children].map(c => c.className).join(''))"
    assert browser.run("return " + columns) == [
        "a" * r.n_accepted + "x" * (r.n_accepted < len(r.drafts)) + "o" for r in rounds]
    for kind, tokens in [("accepted", [r.tokens[:r.n_accepted] for r in rounds]),
                         ("own", [r.tokens[r.n_accepted:] for r in rounds])]:
        browser.run("show(999)")
        shown, text = "".join(browser.texts(f"#text .{kind}")), "".join(map(ENCODER.decode, tokens))
        assert re.sub(r"\s", "", shown) == re.sub(r"\s", "", text) != ""
    assert browser.complaints() == []


@pytest.mark.browser
def test_in_a_browser_a_step_shows_what_is_known_by_then_and_no_more(browser, tmp_path):
    rounds, small, _ = traced(n_tokens=24, n_vocab=len(WORDS))
    i, r = next((i, r) for i, r in enumerate(rounds) if len(r.drafts) == 3 and r.n_accepted == 1)
    opened(browser, tmp_path, small)
    browser.run(f"show({i})")
    browser.press("s")
    words = [spaced(ENCODER.decode([t])) for t in [*r.drafts, r.tokens[-1]]]
    seen = []
    for _ in range(11):
        parts = [[text for text in browser.texts(f".card .{part}") if text or part in ("line", "coin")]
                 for part in ("word", "line", "coin", "verdict")]
        seen.append([len(part) for part in parts])
        assert parts[0] in (words[:seen[-1][0]], words)
        assert bool(browser.texts("#text .now .own")) == (parts[0] == words)
        browser.press("\ue014")                         # the right arrow
    drawn = [[0, 0, 0, 0], [1, 0, 0, 0], [2, 0, 0, 0], [3, 0, 0, 0]]
    judged = [[3, 3, 0, 0], [3, 3, 1, 0], [3, 3, 1, 1], [3, 3, 2, 1], [3, 3, 2, 3]]
    assert seen == [*drawn, *judged, [3, 3, 2, 3], [4, 3, 2, 4]]
    assert browser.run("return [now, at_step, location.hash]") == [i + 1, 0, f"#{i + 2}.1"]
    browser.press("\ue012")                             # the left arrow
    assert browser.run("return [now, at_step]") == [i, 10]
    browser.press("s")
    assert browser.run("return [now, at_step, $('steps').ariaPressed]") == [i, None, "false"]
    last = len(rounds) - 1
    for address, where in [("#3", [2, None]), ("#3.4", [2, 3]), ("#999", [last, None]), ("#x", [0, None])]:
        opened(browser, tmp_path, small, address=address)
        assert browser.run("return [now, at_step]") == where
    assert browser.complaints() == []


@pytest.mark.browser
def test_in_a_browser_it_plays_and_races_on_one_clock(browser, tmp_path):
    """The clock is turned by hand: at each moment exactly the steps that had ended by then are written."""
    rounds, small, _ = traced(n_tokens=24, n_vocab=4)
    alone = [t % 4 for t in range(24)]
    seconds = [.01 * (1 + i % 3) for i in range(24)], [.02 + .01 * (i % 2) for i in range(len(rounds))]
    opened(browser, tmp_path, small, settings=dict(autoregressive=dict(tokens=alone)), seconds=seconds)
    browser.run("clock = 0; performance.now = () => clock; $('pace').value = '0';"
                "requestAnimationFrame = tick => (step = tick, 1)")
    browser.press("r")
    assert browser.run("return [$('replay').hidden, $('race').hidden]") == [True, False]
    prompt = spaced(SETTINGS["prompt"])
    for time in (0, .1049, .2551, 9):
        browser.run(f"clock = {1000 * time}; step()")
        done = [sum(end <= time for end in np.cumsum(some)) for some in seconds]
        assert spaced(browser.texts("#text-alone")[0]) == prompt + spaced(ENCODER.decode(alone[:done[0]]))
        written = [token for r in rounds[:done[1]] for token in r.tokens]
        assert spaced(browser.texts("#text-rounds")[0]) == prompt + spaced(ENCODER.decode(written))
        clock = f"{min(time, sum(seconds[1])):.3f} s, {len(written)} token"
        assert browser.texts("#clock-rounds")[0].startswith(clock)
    assert f"{sum(seconds[0]) / sum(seconds[1]):.2f}×" in browser.texts("#outcome")[0]
    browser.press("\ue00c")                                     # Escape
    assert browser.run("return [$('replay').hidden, $('race').hidden]") == [False, True]
    browser.run("setInterval = tick => (turned = tick, 1); clearInterval = () => 0")
    browser.press("p")
    browser.run("turned(); turned()")
    assert browser.run("return [now, $('play').textContent]") == [2, "Pause"]
    browser.driver.find_element("id", "next").click()           # a hand on the controls ends it
    assert browser.run("return [now, $('play').textContent]") == [3, "Play"]
    assert browser.complaints() == []


@pytest.mark.browser
def test_in_a_browser_a_tree_shows_the_path_that_was_taken(browser, tmp_path):
    settings = dict(verifier="tree:3,2")
    opened(browser, tmp_path, [reduce_round(tree_round(), [.5] * 9)], settings=settings)
    assert browser.texts(".node.is-taken .accepted") == ["the", "sea"]
    parent = "document.querySelector('.node.is-own').closest('ul').parentNode"
    end = browser.run(f"return {parent}.querySelector('.node').textContent")
    assert end.startswith("·sea")                       # the target's own token hangs on the end of the path
    assert "A tree of 5 drafts, 2 of them taken" in browser.texts("#summary")[0]
    assert "tree:3,2 verification" in browser.texts("#settings")[0]
    table = browser.texts("#place") + browser.texts("#by-slot th") + browser.texts("#by-slot td")
    assert table == ["level", "1", "2", "1 / 1", "1.00", "–", "", "1 / 1", "1.00", "–", ""]
    assert browser.run(HIDDEN) == ["block", "token block", "block"] and browser.complaints() == []
    nodes = "return document.querySelectorAll('.node').length"
    assert [browser.run(f"show(0, {step}); {nodes}") for step in range(7)] == [1, 4, 6, 6, 6, 6, 7]
    shape, q = shape_of([3, 2, 1]), np.random.default_rng(0).dirichlet(np.ones(len(WORDS)), 16)
    large = Round([2, 1, 3, 0], [0, 1, 2] + [0, 1] * 3 + [3] * 6, 3, q, None, shape)
    for width in 300, 390:                              # though all of it is taller than the screen
        opened(browser, tmp_path, [reduce_round(large, [])], width, 844, settings=settings)
        assert len(browser.texts(".node.is-taken")) == 3
        assert browser.run("return document.querySelector('.tree').scrollWidth <= innerWidth")
        edge = browser.run("return document.querySelector('body > nav').getBoundingClientRect().top")
        box = browser.run("return document.querySelector('.node.is-own').getBoundingClientRect()")
        assert 0 <= box["left"] and box["right"] <= width and box["bottom"] <= edge


@pytest.mark.browser
def test_in_a_browser_a_block_or_a_rule_of_ones_own_is_shown_for_what_it_is(browser, tmp_path):
    _, small, _ = traced(n_tokens=24, n_vocab=4, block=True)
    opened(browser, tmp_path, small, settings=dict(verifier="block"))
    for i, r in enumerate(small):
        browser.run(f"show({i})")
        for j, slot in enumerate(r["slots"]):
            facts = dict(browser.run(DETAIL % j)["facts"])
            assert [float(facts["kept so far P"]), float(facts["chance h"])] == pytest.approx(
                [slot["P"], slot["accept"]], abs=.00051)
        by_later = [s["verdict"] == "accepted" and s["coin"] >= s["accept"] for s in r["slots"]]
        assert [text == "✓ by a later coin" for text in browser.texts(".verdict")] == [*by_later, False]
    assert browser.run(HIDDEN) == ["tree"]
    _, small, _ = traced(n_tokens=24, n_vocab=4, verify=lenient(.3))
    opened(browser, tmp_path, small, settings=dict(verifier="lenient:0.3", lossless=False))
    assert "not lossless" in browser.texts("#settings")[0] and "not shown" in browser.texts("#rule")[0]
    for i in range(len(small)):
        for step in range(browser.run(f"show({i}); return steps.length")):
            browser.run(f"show({i}, {step})")
            assert browser.texts(".coin") == browser.texts(".accept") == []
    assert browser.complaints() == []


HIDDEN = "return [...document.querySelectorAll('[data-of]')].filter(e => e.hidden).map(e => e.dataset.of)"


@pytest.mark.browser
def test_in_a_browser_a_round_is_on_one_screen_and_if_not_the_space_bar_scrolls(browser, tmp_path):
    controls = "document.querySelector('body > nav').getBoundingClientRect().top"
    for K, width, height in [(4, 1280, 800), (8, 1280, 800), (8, 1920, 1080)]:
        _, small, _ = traced(n_tokens=24, K=K)
        opened(browser, tmp_path, small, width, height)
        for i in range(len(small)):
            browser.run(f"show({i})")
            assert browser.run(f"return $('detail').getBoundingClientRect().bottom <= {controls}")
        shown = "[...document.querySelectorAll('body :not(sub, sup)')].filter(e => e.offsetParent)"
        sizes = browser.run(f"return {shown}.map(e => parseFloat(getComputedStyle(e).fontSize))")
        assert min(sizes) >= .018 * height
    _, small, _ = traced(n_tokens=24, K=4)
    for size, large in [((1024, 640), False), ((800, 500), False), ((1280, 800), True)]:       # 125 %, 160 %
        opened(browser, tmp_path, small, *size)
        if large:
            browser.press("l")
        browser.run("document.documentElement.style.scrollBehavior = 'auto'")
        for _ in range(9):                              # space scrolls until all was seen, and then it turns
            hidden = browser.run(f"return $('detail').getBoundingClientRect().bottom > {controls}")
            before = browser.run("return [now, scrollY]")
            browser.press(" ")
            wait_for_the_scroll(browser)
            at = browser.run("return [now, scrollY]")
            assert at[0] == before[0] + (not hidden) and (at[1] > before[1] if hidden else at[1] == 0)
    assert browser.complaints() == []


def wait_for_the_scroll(browser):
    """Until nothing has moved for a while."""
    browser.run("""return new Promise(done => {
        let last = scrollY, still = 0;
        const look = () => (still = scrollY === last ? still + 1 : 0, last = scrollY, still > 5)
            ? done() : setTimeout(look, 30);
        look() })""")


@pytest.mark.browser
def test_in_a_browser_hostile_text_stays_text(browser, tmp_path):
    small = hostile_run()
    opened(browser, tmp_path, small, settings=dict(prompt="".join(HOSTILE), target=HOSTILE[1]))
    for i in range(len(small)):
        for step in ("null", "2"):
            browser.run(f"show({i}, {step})")
            found = browser.run("return [document.images.length, document.scripts.length, typeof hacked]")
            assert found == [0, 2, "undefined"]
    assert browser.texts("#text")[0].startswith("".join(HOSTILE))
    assert HOSTILE[1] in browser.texts("#settings")[0]
    opened(browser, tmp_path, [])
    assert browser.texts("#summary") == ["Nothing was generated."] and browser.complaints() == []


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [(360, 740), (1280, 800)], ids=["narrow", "wide"])
def test_in_a_browser_it_fits_the_screen(browser, tmp_path, size, dark):
    _, small, _ = traced(n_tokens=24, K=5)
    long = dict(prompt="W" * 300, draft="a-very-long-name-of-a-folder/" * 4)
    opened(browser, tmp_path, small, *size, settings=long, dark=dark)
    outside = """return [...document.querySelectorAll("#cards .card, .card > *, #detail *")].filter(e => {
        const box = e.getBoundingClientRect(), edge = document.documentElement.clientWidth;
        return box.right > edge + 1 || box.left < -1 }).map(e => e.outerHTML)"""
    for _ in "as it is", "large":
        for i in range(len(small)):
            browser.run(f"show({i})")
            assert browser.run("return document.documentElement.scrollWidth") <= size[0]
            assert browser.run(outside) == []
        buttons = "[...document.querySelectorAll('nav > button')].filter(e => e.offsetParent)"
        controls = browser.run(f"return {buttons}.map(e => e.getBoundingClientRect())")
        assert len(controls) >= 4 and all(box["bottom"] <= size[1] for box in controls)
        assert all(min(box["width"], box["height"]) >= 44 for box in controls)
        assert min(browser.run("return [...$('strip').children].map(e => e.offsetWidth)")) >= 24
        browser.press("l")
    ground = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground))) < 200) == dark
    assert browser.complaints() == []
