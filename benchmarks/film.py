"""The moving picture of README: one recorded run, autoregressive above, speculative below, on one clock.

    python -m benchmarks film       # draws results/race.json; if it is missing, records it first

Each round takes its shortest time in 100 equal runs (other programs only add to it), slowed down by the
factor that the picture states.  The first frame is the end of the race, for those who see a still picture.

But: one run of one prompt, on one core of an AMD EPYC with AVX-512 kernels, after the prompt was read.  For
averages, see results/speed.md.
"""
import json
import re
from functools import partial
from io import BytesIO
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from autoregressive import autoregressive_sampling
from benchmarks.figures import RESULTS
from console import rewrite
from reporting.stats import Timed, clocked
from speculative import speculative_sampling
from utils import load_model

PROMPT = ("The tide was going out. Along the edge of the water a girl was walking barefoot, "
          "with her shoes in")                                  # what main.py runs without flags
RUN, PICTURE = RESULTS / "race.json", RESULTS / "race.webp"
WIDTH, HEIGHT, SCALE, MARGIN, LINE = 800, 454, 2, 28, 27        # for screens with two dots per pixel
PER_SECOND, SECONDS, HOLD = 15, 9, 2                            # of the race, and of its end before and after
PAPER, FAINT, GREY, WHITE = "#12161d", "#3a4350", "#98a3b3", "#eceff4"
GREEN, RED, BLUE = "#7fd18b", "#f0787a", "#74b2ff"
FONTS = Path(matplotlib.get_data_path()) / "fonts/ttf"


def font(name, size):
    return ImageFont.truetype(str(FONTS / f"DejaVu{name}.ttf"), size * SCALE)


SMALL, BOLD, TEXT = font("Sans", 13), font("Sans-Bold", 17), font("Serif", 17)


def record(n_tokens=40, K=4):
    """Both samplers, greedy, in 100 turns, after the prompt was read -> their rounds, with shortest times."""
    (draft, encoder), (target, _) = load_model("demo-draft"), load_model("demo-target")
    draft = Timed(draft)
    tokens, rng = encoder.encode(PROMPT), np.random.default_rng(0)
    samplers = {"autoregressive": partial(autoregressive_sampling, target, tokens, n_tokens, rng),
                "speculative": partial(speculative_sampling, draft, target, tokens, n_tokens, K, rng)}
    rounds, times = {}, {name: [] for name in samplers}
    for _ in range(100):
        for name, sampler in samplers.items():
            for model in (draft, target):
                model.reset()
                model(tokens[:-1])
            times[name].append([])
            rounds[name] = list(clocked(sampler(temperature=0), times[name][-1]))
    return dict(prompt=PROMPT, draft_seconds=min(seconds for n, seconds in draft.calls), **{
        name: [dict(seconds=min(seconds), n_accepted=r.n_accepted, next=encoder.decode(r.tokens[-1:]),
                    drafts=[encoder.decode([x]) for x in r.drafts])
               for r, *seconds in zip(rounds[name], *times[name])] for name in times})


def seen(rounds, draft_seconds, now):
    """What is on the screen at a time: pieces [(text, colour, struck out)], ends of the passes, tokens."""
    pieces, ends, n_tokens, start = [], [], 0, 0
    for r in rounds:
        end = start + r["seconds"]
        if now < end:                                           # drafted so far, not judged
            made = min(len(r["drafts"]), max(0, int((now - start) / draft_seconds)))
            return pieces + [(text, GREY, False) for text in r["drafts"][:made]], ends, n_tokens
        kept = r["n_accepted"]
        pieces += [(text, GREEN, False) for text in r["drafts"][:kept]]
        pieces += [(text, RED, True) for text in r["drafts"][kept:kept + 1]]
        pieces.append((r["next"], BLUE, False))
        ends, n_tokens, start = ends + [end], n_tokens + kept + 1, end
    return pieces, ends, n_tokens


def write(draw, pieces, y):
    """Pieces of text from y on, each at most a word, broken into lines."""
    x, y = MARGIN * SCALE, y * SCALE
    for text, colour, struck in pieces:
        word = text.replace("\n", " ")
        if x + draw.textlength(word, TEXT) > (WIDTH - MARGIN) * SCALE:
            x, y, word = MARGIN * SCALE, y + LINE * SCALE, word.lstrip()
        draw.text((x, y), word, colour, TEXT)
        x += draw.textlength(word, TEXT)
        if struck:
            start = x - draw.textlength(word.lstrip(), TEXT)
            draw.line((start, y + 11 * SCALE, x, y + 11 * SCALE), colour, 2 * SCALE)


def frame(race, now, factor, total):
    """The picture at a time of the race, in seconds of the run."""
    picture = Image.new("RGB", (WIDTH * SCALE, HEIGHT * SCALE), PAPER)
    draw = ImageDraw.Draw(picture)

    def say(x, y, text, colour, face=SMALL, anchor="ls"):
        draw.text((x * SCALE, y * SCALE), text, colour, face, anchor)
        return x + draw.textlength(text, face) / SCALE

    def line(x, y, to_x, to_y, colour):
        draw.line([SCALE * place for place in (x, y, to_x, to_y)], colour, 2 * SCALE)

    prompt = [(word, WHITE, False) for word in re.findall(r" ?[^ ]+", race["prompt"])]
    for y, name, what in ((36, "autoregressive", "one token per pass of the large model"),
                          (237, "speculative", "a small model drafts, the large one checks in one pass")):
        pieces, ends, n_tokens = seen(race[name], race["draft_seconds"], now)
        time = min(now, sum(r["seconds"] for r in race[name]))
        x = say(MARGIN, y, name.capitalize(), WHITE, BOLD)
        say(x + 10, y, what, GREY)
        say(WIDTH - MARGIN, y, f"{n_tokens} tokens in {len(ends)} passes", WHITE, BOLD, "rs")
        write(draw, prompt + pieces, y + 16)
        tip, *marks = (MARGIN + (WIDTH - 2 * MARGIN) * at / total for at in [time] + ends)
        line(MARGIN, y + 139, WIDTH - MARGIN, y + 139, FAINT)
        line(MARGIN, y + 139, tip, y + 139, BLUE)
        for x in marks:                                         # the ruler: a mark at the end of each pass
            line(x, y + 134, x, y + 144, BLUE)
        say(max(tip, MARGIN + 45), y + 162, f"{1000 * time:.0f} ms", WHITE, anchor="rs")
    x = MARGIN
    for text, colour in (("accepted draft", GREEN), ("rejected draft", RED),
                         ("the large model's own token", BLUE)):
        x = 20 + say(x, HEIGHT - 20, text, colour)
    say(WIDTH - MARGIN, HEIGHT - 20, f"a mark per pass; slowed down {factor} times", GREY, anchor="rs")
    return picture


def film(race):
    """The recorded run -> bytes of an animated WebP."""
    total = sum(r["seconds"] for r in race["autoregressive"])
    factor = round(SECONDS / total)
    times = [i / PER_SECOND / factor for i in range(SECONDS * PER_SECOND)]
    frames = [frame(race, now, factor, total) for now in [total] + times + [total]]
    durations = [1000 * HOLD] + [1000 // PER_SECOND] * len(times) + [1000 * HOLD]
    frames[0].save(out := BytesIO(), "WEBP", save_all=True, append_images=frames[1:], duration=durations,
                   loop=0, lossless=True, quality=60, method=3)
    return out.getvalue()


def write_film():
    if not RUN.exists():
        rewrite(RUN, json.dumps(record(), indent=1) + "\n")
    rewrite(PICTURE, film(json.loads(RUN.read_text(encoding="utf-8"))))
