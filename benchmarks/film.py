"""The README's moving picture: one recorded run, autoregressive above, speculative below, on one clock.

    python -m benchmarks film       # draws results/race.json, which was recorded once

A round takes its shortest time in 100 equal runs, because other programs can only make it longer.  The
picture states how much it is slowed down.  The first frame is the end of the race, for readers who see a
still picture.

Limitations: one run of one prompt, on one core of an AMD EPYC with AVX-512 kernels; the time to read the
prompt is left out.  For averages, see results/speed.md.
"""
import json
import re
from io import BytesIO
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

from benchmarks.figures import RESULTS
from loading.files import rewrite

RUN, PICTURE = RESULTS / "race.json", RESULTS / "race.webp"
WIDTH, HEIGHT, SCALE, MARGIN, LINE = 800, 454, 2, 28, 27        # for screens with two dots per pixel
PER_SECOND, SECONDS, HOLD = 15, 9, 2                            # frames a second; seconds: race, its end
PAPER, FAINT, GREY, WHITE = "#12161d", "#3a4350", "#98a3b3", "#eceff4"
GREEN, RED, BLUE = "#7fd18b", "#f0787a", "#74b2ff"
FONTS = Path(matplotlib.get_data_path()) / "fonts/ttf"


def font(name, size):
    return ImageFont.truetype(str(FONTS / f"DejaVu{name}.ttf"), size * SCALE)


SMALL, BOLD, TEXT = font("Sans", 13), font("Sans-Bold", 17), font("Serif", 17)


def seen(rounds, draft_seconds, now):
    """On the screen at the time `now`: pieces [(text, colour)], ends of the passes, number of tokens."""
    pieces, ends, n_tokens, start = [], [], 0, 0
    for r in rounds:
        end = start + r["seconds"]
        if now < end:                                           # drafted so far, not judged yet
            made = min(len(r["drafts"]), max(0, int((now - start) / draft_seconds)))
            return pieces + [(text, GREY) for text in r["drafts"][:made]], ends, n_tokens
        kept = r["n_accepted"]
        pieces += [(text, GREEN) for text in r["drafts"][:kept]]
        pieces += [(text, RED) for text in r["drafts"][kept:kept + 1]]
        pieces.append((r["next"], BLUE))
        ends, n_tokens, start = ends + [end], n_tokens + kept + 1, end
    return pieces, ends, n_tokens


def write(draw, pieces, y):
    """Draw pieces of text, each at most a word, in lines from y down.  Red pieces are struck out."""
    x, y = MARGIN * SCALE, y * SCALE
    for text, colour in pieces:
        word = text.replace("\n", " ")
        if x + draw.textlength(word, TEXT) > (WIDTH - MARGIN) * SCALE:
            x, y, word = MARGIN * SCALE, y + LINE * SCALE, word.lstrip()
        draw.text((x, y), word, colour, TEXT)
        x += draw.textlength(word, TEXT)
        if colour == RED:
            start = x - draw.textlength(word.lstrip(), TEXT)
            draw.line((start, y + 11 * SCALE, x, y + 11 * SCALE), colour, 2 * SCALE)


def frame(race, now, factor, total):
    """The picture at the time `now`, in seconds of the recorded run."""
    picture = Image.new("RGB", (WIDTH * SCALE, HEIGHT * SCALE), PAPER)
    draw = ImageDraw.Draw(picture)

    def say(x, y, text, colour, face=SMALL, anchor="ls"):
        draw.text((x * SCALE, y * SCALE), text, colour, face, anchor)
        return x + draw.textlength(text, face) / SCALE

    def line(x, y, to_x, to_y, colour):
        draw.line([SCALE * place for place in (x, y, to_x, to_y)], colour, 2 * SCALE)

    prompt = [(word, WHITE) for word in re.findall(r" ?[^ ]+", race["prompt"])]
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


def write_film():
    """The recorded run -> an animated WebP."""
    race = json.loads(RUN.read_text(encoding="utf-8"))
    total = sum(r["seconds"] for r in race["autoregressive"])
    factor = round(SECONDS / total)
    times = [i / PER_SECOND / factor for i in range(SECONDS * PER_SECOND)]
    frames = [frame(race, now, factor, total) for now in [total] + times + [total]]
    durations = [1000 * HOLD] + [1000 // PER_SECOND] * len(times) + [1000 * HOLD]
    frames[0].save(out := BytesIO(), "WEBP", save_all=True, append_images=frames[1:], duration=durations,
                   loop=0, lossless=True, quality=60, method=3)
    rewrite(PICTURE, out.getvalue())
