"""The page that replays a run: its numbers are the rounds', its text is data, and it does what it says."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from helpers import Says

import samplers.block
from autoregressive import autoregressive_sampling
from encoder import EOS, Encoder, bytes_to_unicode
from lossless import memoryless, table
from main import main
from pages.replay import LIMIT, TEMPLATE, Coins, likeliest, page, reduce_round, rows, write_trace
from reporting.stats import acceptance
from sampling import Round, sample
from speculative import speculative_sampling, verify

HOSTILE = [
    "</script><script>hacked = 1</script>",
    "<img src=x onerror='hacked = 1'>",
    "<!--<script>",
    "{{data}}",
    "&lt;b&gt;",
    "\u2028\\u003c\"'",
]
WORDS = [" the", " sea", "\n", "漢字", *HOSTILE, "😀"]


def encoder_of(words):
    """A token for each word, then half a character, then EOS."""
    char_of = bytes_to_unicode()
    tokens = ["".join(char_of[b] for b in word.encode()) for word in words] + [char_of[0xe2]]
    return Encoder({token: i for i, token in enumerate(tokens)} | {EOS: len(tokens)}, [])


ENCODER = encoder_of(WORDS)
SETTINGS = dict(
    prompt="Once <b>upon</b> a time",
    draft="small",
    target="large",
    K=3,
    temperature=1.0,
    top_k=0,
    top_p=1.0,
    seed=5,
)
SPEEDS = dict(speedup=1.5, predicted_speedup=1.75, cost_ratio=.125, verify_ratio=None)


def traced(n_tokens=40, K=3, seed=5, eos=None, n_vocab=ENCODER.n_vocab, block=False, **settings):
    """A run of two table models -> (the rounds, the same reduced, all coins in their order)."""
    models = [table(seed, zeros=.2, n_vocab=n_vocab), table(seed + 100, zeros=.2, n_vocab=n_vocab)]
    coins, rounds, small, seen = Coins(np.random.default_rng(seed)), [], [], []
    judge = samplers.block.verify if block else verify
    for r in speculative_sampling(*models, [0], n_tokens, K, coins, eos=eos, verify=judge, **settings):
        seen += [coins.take()]
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

def test_the_recorder_gives_what_the_generator_gives_and_remembers_it():
    rng, coins = np.random.default_rng(3), Coins(np.random.default_rng(3))
    numbers = [rng.random() for _ in range(5)]
    assert [coins.random() for _ in range(5)] == numbers
    assert coins.take() == numbers and coins.take() == []


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("K, settings", [(1, {}), (3, {}), (3, dict(temperature=0)), (4, dict(top_k=2))])
def test_each_coin_stands_with_the_draw_it_made(seed, K, settings):
    """Drawing again with the page's coin gives the page's token; the accept coins give the verdicts."""
    rounds, small, seen = traced(K=K, seed=seed, **settings)
    for r, s, coins in zip(rounds, small, seen):
        for slot, p in zip(s["slots"], r.draft_probs):
            assert sample(p, Says(slot["drawn_with"])) == slot["token"]
            tested = slot["coin"] is not None
            assert slot["verdict"] == (
                "not tested" if not tested else "accepted" if slot["coin"] < slot["accept"] else "rejected"
            )
        q = r.target_probs[r.n_accepted]
        probs = np.clip(q - r.draft_probs[r.n_accepted], 0, None) if r.n_accepted < len(r.drafts) else q
        assert sample(probs, Says(s["last"]["drawn_with"])) == s["last"]["token"] == r.tokens[-1]
        assert used_coins(s) == coins                   # every coin once, in the order it was drawn


def used_coins(s):
    """The coins of a reduced round in their order."""
    used = [slot["drawn_with"] for slot in s["slots"]] + [slot["coin"] for slot in s["slots"]]
    return [coin for coin in [*used, s["last"]["drawn_with"]] if coin is not None]


@pytest.mark.parametrize("settings", [{}, dict(temperature=0), dict(top_k=2)])
def test_the_last_coin_below_its_chance_decides_on_a_block(settings):
    beyond = 0                                          # rounds that Algorithm 2 would have ended earlier
    for seed in range(20):
        for r, s, coins in zip(*traced(K=3, seed=seed, block=True, **settings)):
            assert used_coins(s) == coins
            passed = [j for j, slot in enumerate(s["slots"], 1) if slot["coin"] < slot["accept"]]
            assert r.n_accepted == max(passed, default=0)
            beyond += len(passed) < r.n_accepted
    assert beyond or settings


def test_after_an_accepted_eos_nothing_is_said():
    probs = np.full(ENCODER.n_vocab, 1 / ENCODER.n_vocab)
    r = Round([4, ENCODER.eos], [4, ENCODER.eos, 2], 2, np.tile(probs, (4, 1)), [probs] * 3)
    # All three were accepted, then a bonus was drawn; EOS cut both off.
    s = reduce_round(r, [.1, .2, .3, .4, .5, .6, .7])
    assert [slot["verdict"] for slot in s["slots"]] == ["accepted", "accepted", "after the end"]
    assert [slot["coin"] for slot in s["slots"]] == [.4, .5, None] and s["last"] is None
    assert data_of(page([s], SETTINGS, ENCODER))["rounds"][0]["text"] == [WORDS[4], ""]
    ended = [
        small[-1]
        for seed in range(40)
        for _, small, _ in [traced(seed=seed, eos=ENCODER.eos)]
        if small[-1]["last"] is None
    ]
    assert ended and all(s["tokens"][-1] == ENCODER.eos for s in ended)


def test_the_baseline_can_be_replayed_too():
    coins = Coins(np.random.default_rng(0))
    small = [
        reduce_round(r, coins.take()) for r in autoregressive_sampling(table(1, n_vocab=13), [0], 5, coins)
    ]
    assert [s["last"]["kind"] for s in small] == ["bonus"] * 5 and all(s["slots"] == [] for s in small)
    assert data_of(page(small, SETTINGS, ENCODER))["totals"]["by_slot"] == []


@pytest.mark.parametrize("block", [False, True])
def test_a_drafter_that_copies_has_drawn_nothing(block):
    """Drafts without coins of their own: all but the last coin are verdicts, however the round went."""
    p, q = np.eye(4)[[1, 2, 3]], np.full((4, 4), .25)
    for n_accepted, coins in [(3, [.1, .2, .2, .5]), (0, [.3, .5]), (1, [.1, .3, .5])]:
        if block and len(coins) < 4:
            continue
        tokens = [1, 2, 3][:n_accepted] + [0]
        s = reduce_round(Round(tokens, [1, 2, 3], n_accepted, q, p), coins, block=block)
        assert [slot["drawn_with"] for slot in s["slots"]] == [None] * 3 and s["last"]["drawn_with"] == .5
        assert [slot["coin"] for slot in s["slots"] if slot["coin"] is not None] == coins[:-1]


def test_the_chances_of_a_block_are_those_of_the_paper():
    """Sun et al. 2024 with q = (1/3, 2/3), p = (2/3, 1/3), k = 2, and drafts 0, 0, worked out by hand:
    P_1 = (1/3) / (2/3) = 1/2, z = max(0, 1/2 * 1/3 - 2/3) + max(0, 1/2 * 2/3 - 1/3) = 0, h_1 = 0, h_2 = 1/4.
    Drafts 1, 0: P_1 = 1, z = 1/3, h_1 = 1; h_2 = P_2 = 1/2."""
    q, p = np.tile([1 / 3, 2 / 3], (3, 1)), np.tile([2 / 3, 1 / 3], (2, 1))
    s = reduce_round(Round([0, 0, 1], [0, 0], 2, q, p), [.1, .2, .9, .2, .6], block=True)
    assert [slot["accept"] for slot in s["slots"]] == pytest.approx([0, .25])
    assert [slot["verdict"] for slot in s["slots"]] == [
        "accepted",
        "accepted",
    ]  # though the first coin refused
    assert [slot["kept"] for slot in s["slots"]] == pytest.approx([2 / 3, 1 / 6 + 1 / 3], rel=1e-3)
    s = reduce_round(Round([1, 1], [1, 0], 1, q, p), [.9, .2, .9, .7, .6], block=True)
    assert [slot["accept"] for slot in s["slots"]] == pytest.approx([1, .5])
    assert [slot["verdict"] for slot in s["slots"]] == ["accepted", "rejected"]
    assert s["last"]["mass"] == pytest.approx(1 / 3, rel=1e-3) and s["last"]["prob"] == 1


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
        assert [slot["verdict"] for slot in s["slots"]] == ["accepted"] * n + ["rejected"] * (3 - n)
        assert s["last"]["mass"] == pytest.approx(z[n], rel=1e-3)
        assert s["last"]["prob"] * z[n] == pytest.approx(max(0, P[n] * q[n][1] - p[n][1]))
    same = np.full((3, 4), .25)
    s = reduce_round(Round([0, 1, 2], [0, 1], 2, same, same[:2]), [.5] * 5, block=True)
    assert [slot["accept"] for slot in s["slots"]] == [1, 1]            # q = p: 0 / 0 is sure


def tree_round():
    """Root -> 0 " the", 1 " sea", 0 " the"; the second " the" -> 1 " sea", 3 "漢字"; the bonus is 2."""
    q = np.random.default_rng(0).dirichlet(np.ones(len(WORDS)), 6)
    return Round(
        tokens=[0, 1, 2],
        drafts=[0, 1, 0, 1, 3],
        n_accepted=2,
        target_probs=q,
        draft_probs=None,
        parents=[-1, -1, -1, 2, 2],
    )


def test_of_a_tree_the_page_holds_the_nodes_and_the_path():
    r = tree_round()
    s = reduce_round(r, [.5] * 9)
    assert [node["taken"] for node in s["nodes"]] == [False, False, True, True, False]
    assert [node["q"] for node in s["nodes"]] == pytest.approx(
        [r.target_probs[row][x] for row, x in [(0, 0), (0, 1), (0, 0), (3, 1), (3, 3)]], rel=1e-3)
    assert (
        s["last"]["parent"] == 3
        and s["last"]["kind"] == "bonus"
        and s["last"]["prob"] == r.target_probs[4][2]
    )
    data = data_of(page([s], SETTINGS, ENCODER))
    assert data["rounds"][0]["text"] == [" the", " sea", "\n"]


def test_a_level_of_a_tree_is_one_test():
    whole, ended = tree_round(), tree_round()._replace(tokens=[0, 1])
    cut = whole._replace(drafts=[3, 1, 0, 1, 3], tokens=[0, 4], n_accepted=1)   # 4: none of the children
    rounds = [whole, cut, cut._replace(tokens=[4], n_accepted=0), ended]
    totals = data_of(page([reduce_round(r, []) for r in rounds], SETTINGS, ENCODER))["totals"]
    assert [(level["accepted"], level["tested"]) for level in totals["by_slot"]] == [(3, 4), (2, 3)]
    assert (totals["accepted"], totals["tested"]) == acceptance(rounds)
    assert [level["expected"] for level in totals["by_slot"]] == [None, None]


def test_the_race_has_the_seconds_of_both_runs():
    rounds, small, _ = traced(n_tokens=24)
    result = SETTINGS | dict(autoregressive=dict(tokens=list(range(4)) * 6))
    seconds = (
        [0.5 + i for i in range(25)],
        [0.25 + i for i in range(len(rounds) + 1)],
    )  # the last entry is the way to the end
    race = data_of(page(small, result, ENCODER, seconds))["race"]
    assert race["alone"] == seconds[0][:24] and race["rounds"] == seconds[1][:-1]
    assert race["text"] == [ENCODER.decode([token]) for token in range(4)] * 6
    assert data_of(page(small, result, ENCODER))["race"] is None


# The numbers ------------------------------------------------------------------------

@pytest.mark.parametrize("settings", [{}, dict(temperature=0), dict(top_k=3, temperature=.7)])
def test_the_page_holds_the_numbers_of_the_rounds(settings):
    rounds, small, _ = traced(**settings)
    data = data_of(page(small, SETTINGS | SPEEDS, ENCODER))
    assert data["settings"] == SETTINGS and len(data["rounds"]) == len(rounds)
    for r, s in zip(rounds, data["rounds"]):
        assert s["tokens"] == r.tokens and [slot["token"] for slot in s["slots"]] == r.drafts
        assert [slot["verdict"] for slot in s["slots"]].count("accepted") == r.n_accepted
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


def test_the_totals_are_those_of_the_run():
    rounds, small, _ = traced(n_tokens=150)
    totals = data_of(page(small, SETTINGS | SPEEDS, ENCODER))["totals"]
    assert totals["rounds"] == len(rounds) and totals["tokens"] == 150
    assert totals["tokens_per_target_pass"] == pytest.approx(150 / len(rounds))
    assert {key: totals[key] for key in SPEEDS} == SPEEDS
    for j, slot in enumerate(totals["by_slot"]):
        assert slot["accepted"] == sum(r.n_accepted > j for r in rounds)
        assert slot["tested"] == sum(r.n_accepted >= j and len(r.drafts) > j for r in rounds)
        pairs = [
            (r.target_probs[j], r.draft_probs[j]) for r in rounds if r.n_accepted >= j and len(r.drafts) > j
        ]
        assert slot["expected"] == pytest.approx(sum(np.minimum(q, p).sum() for q, p in pairs), rel=5e-3)
    assert (totals["accepted"], totals["tested"]) == acceptance(rounds)


def test_the_likeliest_tokens_and_the_marked_ones_are_kept():
    probs = np.array([.05, .4, .1, .3, .15])
    assert rows([probs], [0], 2) == [[1, .4], [3, .3], [0, .05], [None, .25]]
    assert rows([probs, probs[::-1]], [2], 1) == [[1, .4, .3], [3, .3, .4], [2, .1, .1], [None, .2, .2]]
    assert likeliest(np.full(50, 0.02), 3).tolist() == [0, 1, 2]  # ties do not let the whole vocabulary in
    assert likeliest(np.eye(5)[3], 3).tolist() == [3]  # nor do tokens that are impossible
    assert likeliest(np.array([.5, .5]), 8).tolist() == [0, 1]


def test_the_token_that_took_a_drafts_place_is_among_the_bars():
    """0 is likeliest by the target, 1 by the draft; 2 was drafted, 3 is the correction, 4 is another."""
    q, p = np.array([.8, .05, .01, .1, .04]), np.array([.05, .8, .05, .05, .05])
    slot, = reduce_round(Round([3], [2], 0, np.stack([q, q]), [p]), [.9, .9, .95], n_top=1)["slots"]
    assert {row[0] for row in slot["probs"]} == {0, 1, 2, 3, None}


def test_a_run_without_tokens_makes_a_page():
    data = data_of(page([], SETTINGS | SPEEDS, ENCODER))
    assert data["rounds"] == [] and data["totals"]["tokens_per_target_pass"] is None


# Text is data ------------------------------------------------------------------------

def hostile_run():
    n = len(WORDS)
    model = memoryless(np.full(n, 1 / n))
    coins = Coins(np.random.default_rng(1))
    return [reduce_round(r, coins.take()) for r in speculative_sampling(model, model, [0], 40, 3, coins)]


def test_text_of_the_model_or_the_prompt_is_never_markup():
    small, prompt = hostile_run(), "".join(HOSTILE)
    html = page(small, SETTINGS | dict(prompt=prompt, draft=HOSTILE[1]), ENCODER)
    assert Data(html).tags == Data(TEMPLATE.read_text(encoding="utf-8")).tags
    data = data_of(html)
    assert data["settings"]["prompt"] == prompt and data["settings"]["draft"] == HOSTILE[1]
    assert set(HOSTILE) <= set(data["names"].values())
    assert "".join(piece for r in data["rounds"] for piece in r["text"]) == ENCODER.decode(
        [t for s in small for t in s["tokens"]]
    )


def test_the_template_shows_text_as_text_only_and_asks_nothing_of_the_network():
    template = TEMPLATE.read_text(encoding="utf-8")
    assert not re.findall(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|fetch\(|XMLHttp|https?://|@import|url\(",
        template,
    )
    assert "default-src 'none'" in template
    assert template.count("{{data}}") == 1


def test_a_character_made_of_two_tokens_is_whole_and_half_a_one_is_named_by_its_bytes():
    encoder = Encoder(
        {
            "".join(bytes_to_unicode()[b] for b in part): i
            for i, part in enumerate([b"\xe2\x80", b"\x94", b"a"])
        },
        [],
    )
    probs = np.array([.5, .3, .2])
    rounds = [
        Round([0, 1], [0, 2], 1, np.stack([probs, probs, probs]), [probs, probs]),
        Round([0], [], 0, probs[None], []),
    ]
    coins = [[.1, .9, .1, .9, .6], [.1]]
    data = data_of(page(list(map(reduce_round, rounds, coins)), SETTINGS, encoder))
    assert [s["text"] for s in data["rounds"]] == [["", "—"], ["\ufffd"]]
    assert data["names"] == {"0": "\\xe2\\x80", "1": "\\x94", "2": "a"}


def test_the_page_of_the_longest_run_is_a_few_hundred_kilobytes(tmp_path):
    n_vocab, K = 1000, 8
    rng = np.random.default_rng(0)
    encoder = encoder_of([f" <word{i}" for i in range(n_vocab - 2)])
    q, p = rng.dirichlet(np.ones(n_vocab), K + 1), list(rng.dirichlet(np.ones(n_vocab), K))
    r = Round([3], rng.integers(n_vocab, size=K).tolist(), 0, q, p)
    write_trace(
        tmp_path / "run.html", [reduce_round(r, rng.random(K + 2).tolist())] * 1000, SETTINGS, encoder
    )
    html = (tmp_path / "run.html").read_text(encoding="utf-8")
    data = data_of(html)
    assert LIMIT / 2 < (tmp_path / "run.html").stat().st_size < 500_000
    assert (
        50 < len(data["rounds"]) < 1000 == data["totals"]["rounds"]
    )  # cut off, but the totals hold all of them


# How it looks ------------------------------------------------------------------------

def test_every_colour_of_text_can_be_read_on_both_backgrounds():
    """WCAG 2.1: a contrast of at least 4.5, light and dark."""
    def luminance(colour):
        r_g_b = np.array([int(colour[i:i + 2], 16) / 255 for i in (0, 2, 4)])
        return np.dot(
            [0.2126, 0.7152, 0.0722],
            np.where(r_g_b <= 0.04045, r_g_b / 12.92, ((r_g_b + 0.055) / 1.055) ** 2.4),
        )

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
    assert main(arguments) == 0
    plain = json.loads(capsys.readouterr().out)
    assert main([*arguments, "--trace", str(tmp_path / "run.html")]) == 0
    result = json.loads(capsys.readouterr().out)
    data = data_of((tmp_path / "run.html").read_text(encoding="utf-8"))
    assert result["speculative"]["tokens"] == plain["speculative"]["tokens"]    # who looks on changes nothing
    assert [token for r in data["rounds"] for token in r["tokens"]] == result["speculative"]["tokens"]
    assert "".join(piece for r in data["rounds"] for piece in r["text"]) == result["speculative"]["text"]
    for key, value in (data["settings"] | {key: data["totals"][key] for key in SPEEDS}).items():
        assert value == result[key]
    assert data["totals"]["tokens_per_target_pass"] == result["speculative"]["tokens_per_target_pass"]
    race = data["race"]                                     # the clocks of this very run
    assert len(race["rounds"]) == len(data["rounds"])
    assert "".join(race["text"]) == result["autoregressive"]["text"]
    assert sum(race["alone"]) == pytest.approx(result["autoregressive"]["seconds"], rel=.02)
    assert sum(race["rounds"]) == pytest.approx(result["speculative"]["seconds"], rel=.02)
    assert data["totals"]["accepted"] / data["totals"]["tested"] == result["speculative"]["acceptance_rate"]


def test_a_place_that_cannot_be_written_is_told_before_the_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("main.load_pair", None)
    for place in (tmp_path, tmp_path / "nowhere" / "run.html"):
        assert main(["--trace", str(place)]) == 2
        out, err = capsys.readouterr()
        assert out == "" and str(place) in err and err.count("\n") == 1


# In a browser ------------------------------------------------------------------------

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()


class Browser:
    """Headless Chromium through Selenium, with what these tests ask of it."""

    def __init__(self, folder):
        webdriver = pytest.importorskip("selenium.webdriver", reason="no Selenium: pip install selenium")
        chromium = next(
            filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None
        )
        driver = shutil.which("chromedriver")
        if not chromium or not driver:
            pytest.skip("no Chromium, or no chromedriver: apt-get install chromium chromium-driver")
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in [*FLAGS, f"--user-data-dir={folder}"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))

    def open(self, path, width=1280, height=800, dark=False, address=""):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    dict(width=width, height=height, deviceScaleFactor=1, mobile=width < 500))
        scheme = dict(name="prefers-color-scheme", value="dark" if dark else "light")
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dict(features=[scheme]))
        self.driver.get("about:blank")
        self.driver.get(Path(path).as_uri() + address)

    def run(self, script):
        return self.driver.execute_script(script)

    def texts(self, selector):
        return self.run(f"return [...document.querySelectorAll({selector!r})].map(e => e.textContent)")

    def press(self, key):
        self.driver.switch_to.active_element.send_keys(key)

    def complaints(self):
        return self.driver.get_log("browser")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.driver.quit()


def spaced(text):
    return text.replace(" ", "·").replace("\n", "↵")


def check_round(browser, i, rounds, small):
    """The page shows round i: every number of it is computed here from the round."""
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
    frames = browser.texts("#slots > li h3")
    names = [spaced(ENCODER.decode([token])) for token in r.drafts]
    assert frames == [*names[:n + 1], spaced(ENCODER.decode(r.tokens[-1:])), *names[n + 1:]]
    verdicts = (
        ["✓ accepted"] * n + ["✗ rejected"] * (n < k) + ["→ by the target"] + ["– not tested"] * (k - n - 1)
    )
    assert browser.texts(".verdict") == verdicts
    for slot, q, p, x, shown in zip(s["slots"], r.target_probs, r.draft_probs, r.drafts, browser.run(FACTS)):
        assert shown[".accept"] == pytest.approx(min(1, q[x] / p[x]), abs=.00051)
        if slot["coin"] is None:
            assert shown[".r"] == "–"
        else:
            coin, sign, accept = shown[".r"].split()
            assert [float(coin), float(accept)] == pytest.approx(
                [slot["coin"], min(1, q[x] / p[x])], abs=0.00051
            )
            assert sign == ("<" if slot["verdict"] == "accepted" else "≥") and (
                float(coin) < float(accept)
            ) == (sign == "<")
        values = [value for token, *values in slot["probs"] if token is not None for value in values]
        assert shown["bars"] == pytest.approx([100 * value / max(values) for value in values], abs=.01)


FACTS = """return [...document.querySelectorAll(".slot:not(.is-own)")].map(slot => ({
    ".accept": parseFloat(slot.querySelector(".accept").textContent),
    ".r": slot.querySelector("b.r").textContent,
    "bars": [...slot.querySelectorAll(".bar")].map(bar => parseFloat(bar.style.width))}))"""


@pytest.mark.long
def test_in_a_browser_it_steps_through_the_run_and_shows_its_numbers(browser, tmp_path):
    from selenium.webdriver.common.keys import Keys
    rounds, small, _ = traced(n_tokens=24, n_vocab=len(WORDS))
    write_trace(tmp_path / "run.html", small, SETTINGS | SPEEDS, ENCODER)
    browser.open(tmp_path / "run.html")
    last = len(rounds) - 1
    for i in range(len(rounds)):
        check_round(browser, i, rounds, small)
        browser.press(Keys.ARROW_RIGHT)
    check_round(browser, last, rounds, small)                   # the end is the end
    browser.press(Keys.ARROW_LEFT)
    check_round(browser, last - 1, rounds, small)
    browser.press(Keys.HOME)
    check_round(browser, 0, rounds, small)
    browser.press(Keys.END)
    check_round(browser, last, rounds, small)
    for button, i in [("back", last - 1), ("first", 0), ("next", 1), ("last", last)]:
        browser.driver.find_element("id", button).click()
        check_round(browser, i, rounds, small)
    browser.driver.find_elements("css selector", "#strip button")[2].click()
    check_round(browser, 2, rounds, small)
    assert dict(zip(browser.texts("#figures dt"), browser.texts("#figures dd"))) == {
        "tokens per target pass": f"{24 / len(rounds):.2f}",
        "acceptance rate": f"{np.divide(*acceptance(rounds)):.2f}",
        "speed-up, measured": "1.50×",
        "speed-up, predicted": "1.75×",
        "draft step, c": "0.13",
        "checking K + 1, v": "–",
    }
    tested = [[r for r in rounds if r.n_accepted >= j and len(r.drafts) > j] for j in range(3)]
    counts = [f"{sum(r.n_accepted > j for r in some)} / {len(some)}" for j, some in enumerate(tested)]
    assert browser.texts("#by-slot td:nth-child(2)") == counts
    assert browser.complaints() == []


@pytest.mark.long
def test_in_a_browser_a_clicker_and_the_space_bar_turn_the_rounds(browser, tmp_path):
    from selenium.webdriver.common.keys import Keys
    _, small, _ = traced(n_tokens=24)
    write_trace(tmp_path / "run.html", small, SETTINGS | SPEEDS, ENCODER)
    browser.open(tmp_path / "run.html")
    at = 0
    for key, step in [(Keys.PAGE_DOWN, 1), (" ", 1), (Keys.PAGE_UP, -1), (" ", 1), (Keys.PAGE_DOWN, 1)]:
        browser.press(key)
        at += step
        assert browser.run("return [now, location.hash]") == [at, f"#{at + 1}"]
    browser.driver.find_elements("css selector", "#strip button")[1].click()
    browser.press(" ")  # in the strip it goes on, and the focus with it
    assert browser.run("return [now, document.activeElement === $('strip').children[2]]") == [2, True]
    browser.driver.find_element("id", "back").click()
    browser.press(" ")                                          # once more what the button does
    assert browser.run("return now") == 0
    assert (
        browser.run(
            "return document.querySelectorAll('#strip [tabindex=\"0\"], #strip [aria-current]').length"
        )
        == 1
    )
    assert browser.complaints() == []


@pytest.mark.long
@pytest.mark.parametrize("address, i", [("#7", 6), ("#1", 0), ("", 0), ("#999", -1), ("#0", 0), ("#x", 0)])
def test_in_a_browser_an_address_leads_to_its_round(browser, tmp_path, address, i):
    _, small, _ = traced(n_tokens=40)
    write_trace(tmp_path / "run.html", small, SETTINGS | SPEEDS, ENCODER)
    browser.open(tmp_path / "run.html", address=address)
    assert browser.run("return now") == i % len(small)
    browser.run("location.hash = '#3'")
    assert browser.texts("#count") == [f"3 / {len(small)}"]


@pytest.mark.long
def test_in_a_browser_the_whole_text_has_the_colours_of_its_origin(browser, tmp_path):
    rounds, small, _ = traced(n_tokens=24, n_vocab=4)
    write_trace(tmp_path / "run.html", small, SETTINGS | SPEEDS, ENCODER)
    browser.open(tmp_path / "run.html")
    browser.run("show(999)")
    for kind, tokens in [
        ("accepted", [r.tokens[: r.n_accepted] for r in rounds]),
        ("own", [r.tokens[r.n_accepted :] for r in rounds]),
    ]:
        shown, text = "".join(browser.texts(f"#text .{kind}")), "".join(map(ENCODER.decode, tokens))
        assert re.sub(r"\s", "", shown) == re.sub(r"\s", "", text) != ""
    heights = browser.run(
        "return [...$('strip').children].map(b => [...b.children].map(c => c.className).join(''))"
    )
    assert heights == ["a" * r.n_accepted + "x" * (r.n_accepted < len(r.drafts)) + "o" for r in rounds]


@pytest.mark.long
def test_in_a_browser_it_plays_and_races_on_one_clock(browser, tmp_path):
    """The clock is turned by hand: at each moment exactly the steps that had ended by then are written."""
    rounds, small, _ = traced(n_tokens=24, n_vocab=4)
    alone = [t % 4 for t in range(24)]
    seconds = [.01 * (1 + i % 3) for i in range(24)], [.02 + .01 * (i % 2) for i in range(len(rounds))]
    result = SETTINGS | SPEEDS | dict(autoregressive=dict(tokens=alone))
    write_trace(tmp_path / "run.html", small, result, ENCODER, seconds)
    browser.open(tmp_path / "run.html")
    browser.run(
        "clock = 0; performance.now = () => clock; $('pace').value = '0';"
        "requestAnimationFrame = tick => (step = tick, 1)"
    )
    browser.press("r")
    assert browser.run("return [$('replay').hidden, $('race').hidden]") == [True, False]
    prompt = spaced(SETTINGS["prompt"])
    for time in (0, .1049, .2551, 9):
        browser.run(f"clock = {1000 * time}; step()")
        done = [sum(end <= time for end in np.cumsum(some)) for some in seconds]
        assert spaced(browser.texts("#text-alone")[0]) == prompt + spaced(ENCODER.decode(alone[:done[0]]))
        told = [token for r in rounds[:done[1]] for token in r.tokens]
        assert spaced(browser.texts("#text-rounds")[0]) == prompt + spaced(ENCODER.decode(told))
        assert browser.texts("#clock-rounds")[0].startswith(
            f"{min(time, sum(seconds[1])):.3f} s, {len(told)} token"
        )
    assert f"{sum(seconds[0]) / sum(seconds[1]):.2f}×" in browser.texts("#outcome")[0]
    browser.press("\ue00c")                                     # Escape
    assert browser.run("return [$('replay').hidden, $('race').hidden]") == [False, True]
    browser.run("setInterval = tick => (turn = tick, 1); clearInterval = () => 0")
    browser.press("p")
    browser.run("turn(); turn()")
    assert browser.run("return [now, $('play').textContent]") == [2, "Pause"]
    browser.driver.find_element("id", "next").click()           # a hand on the controls ends it
    assert browser.run("return [now, $('play').textContent]") == [3, "Play"]
    assert browser.complaints() == []


@pytest.mark.long
def test_in_a_browser_a_tree_shows_the_path_that_was_taken(browser, tmp_path):
    settings = SETTINGS | SPEEDS | dict(verifier="tree")
    write_trace(tmp_path / "run.html", [reduce_round(tree_round(), [.5] * 9)], settings, ENCODER)
    browser.open(tmp_path / "run.html")
    assert (
        browser.texts(".node.is-taken .accepted") == ["the", "sea"]
        and len(browser.texts(".node")) == 1 + 5 + 1
    )
    parent = "document.querySelector('.node.is-own').closest('ul').parentNode"
    end = browser.run(f"return {parent}.querySelector('.node').textContent")
    assert end.startswith("·sea")                       # the target's own token hangs on the end of the path
    assert "A tree of 5 drafts, 2 of them taken" in browser.texts("#summary")[0]
    table = browser.texts("#place") + browser.texts("#by-slot th") + browser.texts("#by-slot td")
    assert table == ["level", "1", "2", "1 / 1", "1.00", "–", "", "1 / 1", "1.00", "–", ""]
    assert browser.run(HIDDEN) == ["block", "token block", "block"] and browser.complaints() == []
    browser.open(tmp_path / "run.html", width=300)
    box = browser.run("return document.querySelector('.node.is-own').getBoundingClientRect()")
    assert box["left"] >= 0 and box["right"] <= 300     # though the tree is wider
    assert browser.run("return document.querySelector('.tree').scrollLeft") > 0


@pytest.mark.long
def test_in_a_browser_a_block_shows_what_the_chances_are_made_of(browser, tmp_path):
    _, small, _ = traced(n_tokens=24, n_vocab=4, block=True)
    settings = SETTINGS | SPEEDS | dict(verifier="block")
    write_trace(tmp_path / "run.html", small, settings, ENCODER)
    browser.open(tmp_path / "run.html")
    for i, r in enumerate(small):
        browser.run(f"show({i})")
        for name, key in ("kept so far P", "P"), ("chance h", "accept"):
            shown = [float(fact) for fact in browser.run(FACT.format(name))]
            assert shown == pytest.approx([slot[key] for slot in r["slots"]], abs=.00051)
        by_later = [s["verdict"] == "accepted" and s["coin"] >= s["accept"] for s in r["slots"]]
        verdicts = [text for text in browser.texts(".verdict") if text != "→ by the target"]
        assert [text == "✓ by a later coin" for text in verdicts] == by_later
    assert browser.run(HIDDEN) == ["tree"] and browser.complaints() == []


HIDDEN = "return [...document.querySelectorAll('[data-of]')].filter(e => e.hidden).map(e => e.dataset.of)"
FACT = "return [...document.querySelectorAll('dt')].filter(e => e.textContent === '{}').map(" \
       "e => e.nextSibling.textContent)"


@pytest.mark.long
def test_in_a_browser_the_bars_of_a_round_are_above_the_fold(browser, tmp_path):
    _, small, _ = traced(n_tokens=24, K=4)
    write_trace(tmp_path / "run.html", small, SETTINGS | SPEEDS, ENCODER)
    for size in [(1280, 800), (1920, 1080)]:
        browser.open(tmp_path / "run.html", *size)
        for i in range(len(small)):
            browser.run(f"show({i})")
            bottoms = "[...document.querySelectorAll('.bars li')].map(e => e.getBoundingClientRect().bottom)"
            lowest = f"return Math.max(...{bottoms})"
            assert browser.run(lowest) < browser.run(
                "return document.querySelector('nav').getBoundingClientRect().top"
            )


@pytest.mark.long
def test_in_a_browser_hostile_text_stays_text(browser, tmp_path):
    small = hostile_run()
    write_trace(
        tmp_path / "run.html", small, SETTINGS | dict(prompt="".join(HOSTILE), target=HOSTILE[1]), ENCODER
    )
    browser.open(tmp_path / "run.html")
    for i in range(len(small)):
        browser.run(f"show({i})")
        assert browser.run("return [document.images.length, document.scripts.length, typeof hacked]") == [
            0,
            2,
            "undefined",
        ]
    assert (
        browser.texts("#text")[0].startswith("".join(HOSTILE)) and HOSTILE[1] in browser.texts("#settings")[0]
    )
    assert browser.complaints() == []


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [(360, 740), (1280, 800)], ids=["narrow", "wide"])
def test_in_a_browser_it_fits_the_screen(browser, tmp_path, size, dark):
    _, small, _ = traced(n_tokens=24, K=5)
    long = SETTINGS | SPEEDS | dict(prompt="W" * 300, draft="a-very-long-name-of-a-folder/" * 4)
    write_trace(tmp_path / "run.html", small, long, ENCODER)
    browser.open(tmp_path / "run.html", *size, dark=dark)
    for i in range(len(small)):
        browser.run(f"show({i})")
        assert browser.run("return document.documentElement.scrollWidth") <= size[0]
    browser.run("document.querySelectorAll('details').forEach(e => e.open = true)")
    outside = """return [...document.querySelectorAll("#slots li *")].filter(e => {
        const frame = e.closest(".slot").getBoundingClientRect(), box = e.getBoundingClientRect();
        return box.right > frame.right + 1 || box.left < frame.left - 1 }).map(e => e.outerHTML)"""
    assert browser.run(outside) == []
    controls = browser.run(
        "return [...document.querySelectorAll('nav > button')].filter(e => e.offsetParent)"
        ".map(e => e.getBoundingClientRect()).map(box => [box.top, box.width, box.height])"
    )
    assert len(controls) >= 3 and all(
        top < size[1] and width >= 44 and height >= 44 for top, width, height in controls
    )
    assert min(browser.run("return [...$('strip').children].map(e => e.getBoundingClientRect().width)")) >= 24
    ground = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground))) < 200) == dark
    assert browser.complaints() == []


@pytest.mark.long
def test_in_a_browser_a_run_without_tokens_says_so(browser, tmp_path):
    write_trace(tmp_path / "run.html", [], SETTINGS | SPEEDS, ENCODER)
    browser.open(tmp_path / "run.html")
    assert browser.texts("#summary") == ["Nothing was generated."] and browser.complaints() == []


def test_a_tree_that_ended_with_a_draft_has_no_further_token():
    ended = reduce_round(tree_round()._replace(tokens=[0, 1]), [.5] * 9)
    assert ended["last"] is None and [node["taken"] for node in ended["nodes"]].count(True) == 2
