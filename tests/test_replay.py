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
from pages.files import TRACE
from pages.replay import LIMIT, TEMPLATE, Coins, likeliest, page, recorded, reduce_round, rows
from reporting.stats import acceptance
from samplers.lossy import lenient
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


# Text is data ------------------------------------------------------------------------

def hostile_run():
    n = len(WORDS)
    model = memoryless(np.full(n, 1 / n))
    coins = Coins(np.random.default_rng(1))
    return [reduce_round(r, coins.take()) for r in speculative_sampling(model, model, [0], 40, 3, coins)]


def test_text_of_the_model_or_the_prompt_is_never_markup():
    small, prompt = hostile_run(), "".join(HOSTILE)
    html = page(small, SETTINGS | dict(prompt=prompt, draft=HOSTILE[1]), ENCODER)
    template = TEMPLATE.read_text(encoding="utf-8").replace("{{mark}}", TRACE)
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
