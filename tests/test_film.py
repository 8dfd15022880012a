"""benchmarks/film.py: the animation shows the recorded run, and the samplers still write that run's text."""
import json

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install -e '.[benchmark]'")
from PIL import Image

from autoregressive import autoregressive_sampling
from benchmarks import film
from main import PROMPT
from utils import load_model

RACE = json.loads(film.RUN.read_text(encoding="utf-8"))


def texts(rounds):
    return "".join("".join(r["drafts"][:r["n_accepted"]]) + r["next"] for r in rounds)


def test_the_recorded_run_is_what_the_target_writes():
    model, encoder = load_model("demo-target", film.RESULTS.parent.parent / "models")
    rounds = autoregressive_sampling(model, encoder.encode(PROMPT), 40, None, temperature=0)
    text = encoder.decode([token for r in rounds for token in r.tokens])
    assert RACE["prompt"] == PROMPT and texts(RACE["autoregressive"]) == texts(RACE["speculative"]) == text
    assert any(r["n_accepted"] < len(r["drafts"]) for r in RACE["speculative"])


def test_what_is_seen_at_a_time():
    """Two drafts take a second each and are judged after three.  The first is kept, the second replaced."""
    rounds = [dict(seconds=3, n_accepted=1, drafts=["a", "b"], next="c"),
              dict(seconds=1, n_accepted=0, drafts=[], next="d")]
    colours = {film.GREY: "?", film.GREEN: "+", film.RED: "-", film.BLUE: "!"}
    for now, wanted, n_passes, n_tokens in [
            (.5, "", 0, 0), (1.5, "a?", 0, 0), (2.9, "a?b?", 0, 0),
            (3, "a+b-c!", 1, 2), (4, "a+b-c!d!", 2, 3), (9, "a+b-c!d!", 2, 3)]:
        pieces, ends, tokens = film.seen(rounds, 1, now)
        assert "".join(text + colours[colour] for text, colour in pieces) == wanted
        assert (len(ends), tokens) == (n_passes, n_tokens)


def test_the_picture_plays_ten_to_fifteen_seconds_and_begins_with_its_end():
    """The first frame shows the end of the race, for readers who see a still picture."""
    picture, durations = Image.open(film.PICTURE), []
    assert film.PICTURE.stat().st_size <= 1.5e6
    for i in range(picture.n_frames):
        picture.seek(i)
        picture.load()
        durations.append(picture.info["duration"])
    assert 10_000 <= sum(durations) <= 15_000
    total = sum(r["seconds"] for r in RACE["autoregressive"])
    drawn = np.asarray(film.frame(RACE, total, round(film.SECONDS / total), total), int)
    for i in 0, picture.n_frames - 1:           # other versions of Pillow may smooth differently
        picture.seek(i)
        assert abs(np.asarray(picture.convert("RGB"), int) - drawn).mean() < 1
