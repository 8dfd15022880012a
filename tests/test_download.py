"""download.py against a local server that plays the real one, working or failing.

After every failure, no partial file is taken for a whole one, and a second start, with the server working
again, completes the download correctly.
"""
import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat
from typing import NamedTuple

import numpy as np
import pytest
from helpers import ROOT, full_disk

from engine.loading import checkpoint, command_line
from engine.loading import download as module
from engine.loading.download import MODELS, download
from engine.loading.folder import list_shapes

JSON, INDEX, DATA = "encoder.json", "model.ckpt.index", "model.ckpt.data-00000-of-00001"
CLOSED = "http://127.0.0.1:1/base/tiny"         # no server listens there
PAGE = b"<?xml version='1.0'?><Error><Code>AccountIsDisabled</Code></Error>"


# The server -------------------------------------------------------------------------------------------------

class Answer(NamedTuple):
    """What the server does with a request.  By default it sends the file from the byte that was asked for."""
    status: int | None = None           # None: 206 if a part was asked for, else 200; 0: it hangs up
    body: object = None                 # replaces the file's bytes; or a function of them
    first: int | None = None            # the first byte it sends; None: the one asked for
    part: int | None = None             # how many bytes it announces and sends; None: all
    cut: int | None = None              # hangs up after this many bytes, or goes on as `pace` says
    pace: tuple = ()                    # (bytes at a time, a function to call before each)
    headers: tuple = ()                 # replace Content-Length


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True              # otherwise every answer takes 40 ms

    def log_message(self, *args):
        pass

    def do_GET(self):
        file, asked = self.path.split("/")[-1], self.headers["Range"]
        self.server.log.append((file, asked))
        assert self.path == f"/base/tiny/{file}" and self.headers["Accept-Encoding"] == "identity"
        answer = next(self.server.answers.get(file, iter(())), Answer())
        self.close_connection = True
        if answer.status == 0:
            return
        whole = self.server.files[file]
        whole = answer.body(whole) if callable(answer.body) else answer.body or whole
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and answer.status != 200 else 0
        start = start if answer.first is None else answer.first
        status, rest = answer.status or (206 if start else 200), whole[start:][:answer.part]
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{start + len(rest) - 1}/{len(whole)}")
        for name, value in answer.headers or [("Content-Length", len(rest))]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(rest[:answer.cut])
        for i in range(answer.cut, len(rest), answer.pace[0]) if answer.pace else ():
            answer.pace[1]()
            self.wfile.write(rest[i:i + answer.pace[0]])
        self.server.sent += len(rest)


@contextlib.contextmanager
def served(files):
    """A server of {name: bytes}.  answers: {file: iterator of an Answer for each request}; when the iterator
    ends, the server works again."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads, server.handle_error = True, lambda *_: None      # if the client hangs up
        server.files, server.answers, server.log, server.sent = files, {}, [], 0
        server.url = f"http://127.0.0.1:{server.server_port}/base/tiny"
        server.asked = lambda file: [asked for name, asked in server.log if name == file]
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("origin"), np.random.default_rng(0)
    sizes = {"model/b": 768, "model/w": 76_768}
    checkpoint.write_tensorflow(folder / "model.ckpt", {
        name: rng.standard_normal(n).astype("f") for name, n in sizes.items()})
    (folder / "hparams.json").write_text('{"n_vocab": 3}')
    (folder / JSON).write_bytes(rng.bytes(30_000))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def server(files, monkeypatch):
    """The only address in the table of models."""
    table = {name: (len(files[name]), "sha256:" + hashlib.sha256(files[name]).hexdigest())
             for name in ("hparams.json", JSON)} | {name: (len(files[name]), None) for name in (INDEX, DATA)}
    monkeypatch.setattr(module, "WAIT", 0.0001)
    monkeypatch.setattr(module, "PATIENCE", (60, 60))           # only a server that stalls is waited for less
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with served(files) as server:
        monkeypatch.setattr(module, "MODELS", {"tiny": {
            "names": ["openai/tiny"], "urls": [server.url], "files": table}})
        yield server


def nothing_partial(folder, files):
    """Every file under its final name is complete and correct."""
    for path in folder.iterdir() if folder.exists() else ():
        assert path.suffix in (".part", ".lock") or path.read_bytes() == files[path.name], path


def completes(server, models_dir):
    folder = download("tiny", models_dir)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == server.files  # no .part, no lock


def fails(server, models_dir, says):
    """The download raises a ValueError: one sentence, which says what to do."""
    with pytest.raises(ValueError, match=says) as error:
        download("tiny", models_dir)
    assert "\n" not in str(error.value) and re.search("[Ss]tart again|choose|free|delete", str(error.value))
    nothing_partial(models_dir / "tiny", server.files)


# A server that goes wrong -----------------------------------------------------------------------------------

def flip(file):
    i = len(file) * 2 // 3
    return file[:i] + bytes([file[i] ^ 4]) + file[i + 1:]


NAP, SLEEP, UNSAID = partial(time.sleep, .01), partial(time.sleep, 9), [("Connection", "close")]
FLIPPED, NOTHING, HALF, STALLS = Answer(body=flip), Answer(cut=0), Answer(cut=150_000), (10**6, SLEEP)
ALWAYS = {      # what the server does: (its Answer, what the error says)
    "an error page": (Answer(200, PAGE * 15), "instead of"),
    "an error page of no length": (Answer(200, PAGE, headers=UNSAID), "None bytes instead of"),
    "no end": (Answer(200, bytes(10**8), headers=UNSAID), "None bytes instead of"),
    "another page": (Answer(body=lambda file: (PAGE * len(file))[:len(file)]), "checksum"),
    "a byte less": (Answer(body=lambda file: file[:-1]), "instead of"),
    "a byte more": (Answer(body=lambda file: file + b"x"), "instead of"),
    "a flipped bit": (FLIPPED, "checksum"), "elsewhere": (Answer(206, first=7), "instead of"),
    "a piece": (Answer(206, part=20_000), "instead of"), "nothing": (NOTHING, "0 bytes read|sent 0"),
    "a hung-up line": (Answer(0), "Connection"), "stalls": (Answer(cut=0, pace=STALLS), "timed out"),
    **{f"{code}": (Answer(code), f"{code}") for code in (404, 204, 416, 429, 500)}}
ALL, REST = "bytes=0-", "bytes="                                # what requests ask for
ANEW = [Answer(200, cut=50_000), Answer(200, cut=0)] * 20       # progress every second time, never all of it
SCENARIOS = {   # (file, answers before the server works again, what the error says, what requests ask for)
    **{f"{name}, always": (JSON, repeat(one), says, [ALL]) for name, (one, says) in ALWAYS.items()},
    **{f"{name}, half way": (DATA, [HALF, *[one] * 40], DATA, [ALL, REST])
       for name, (one, _) in ALWAYS.items()},
    "cut": (DATA, [Answer(cut=100_000)], None, [ALL, REST]),
    "stalled": (DATA, [HALF._replace(pace=STALLS)], None, [ALL, REST]),
    "cut again and again": (DATA, [Answer(cut=20_000)] * 40, None, None),
    "all of it though a part is asked for": (DATA, [HALF, Answer(200)], None, [ALL, REST]),
    "slowly": (DATA, [Answer(cut=0, pace=(20_000, NAP))], None, [ALL]),
    "anew": (DATA, ANEW, DATA, [ALL, REST]),
    "flipped index": (INDEX, repeat(FLIPPED), "checksum", [ALL]),
    "flipped data": (DATA, repeat(FLIPPED), "checksum", [ALL])}


@pytest.mark.parametrize("file, answers, says, asked", SCENARIOS.values(), ids=SCENARIOS)
def test_a_failing_server_is_resumed_or_reported_and_a_second_start_completes(
        server, tmp_path, file, answers, says, asked, request, monkeypatch):
    if "stall" in request.node.callspec.id:
        monkeypatch.setattr(module, "PATIENCE", (60, 1))
    server.answers = {file: iter(answers)}
    fails(server, tmp_path, says) if says else completes(server, tmp_path)
    found = [ALL if one == ALL else REST for one in server.asked(file)]
    assert found == asked if asked else len(found) < 25
    assert server.sent < 10**7 and (file == DATA or not says or DATA not in dict(server.log))
    server.answers = {}
    completes(server, tmp_path)


# Addresses --------------------------------------------------------------------------------------------------

def test_downloads_what_is_needed_and_nothing_else(server, tmp_path):
    for asked in ["hparams.json", JSON, INDEX, DATA], []:       # the second time, nothing
        server.log.clear()
        assert download("tiny", tmp_path / "a" / "b") == tmp_path / "a" / "b" / "tiny"
        assert [file for file, _ in server.log] == asked
    completes(server, tmp_path / "a" / "b")


@pytest.mark.parametrize("answer", [Answer(404), Answer(500), Answer(200, PAGE), FLIPPED, NOTHING, *(
    Answer(302, b"-", headers=[("Content-Length", 1), ("Location", to)]) for to in (
        "http://[", "http://a..b/x", "http://127.0.0.1:99999/", "ftp://1/x", "http://%/", JSON))])
def test_if_one_address_fails_the_next_is_tried(server, files, tmp_path, answer):
    """The last answer redirects to itself."""
    with served(files) as other:
        module.MODELS["tiny"]["urls"][:] = CLOSED, server.url, other.url
        server.answers = {JSON: repeat(answer)}
        completes(server, tmp_path)
        assert other.log == [(JSON, ALL)]


def test_without_a_network_it_says_so_at_once(server, tmp_path, monkeypatch, capsys):
    module.MODELS["tiny"]["urls"][:] = CLOSED, CLOSED.replace(":1/", ":2/")
    monkeypatch.setattr(module.time, "sleep", None)
    fails(server, tmp_path, "127.0.0.1:1/.*refused.* nor from .*connection and start again.*need no")
    assert capsys.readouterr() == ("", "")


# What lies there already ------------------------------------------------------------------------------------

@pytest.mark.parametrize("rubbish", [b"<?xml", bytes(100_000), bytes(1_000_000), None])
@pytest.mark.parametrize("file", [JSON, DATA])
def test_a_part_of_something_else_is_thrown_away_and_a_whole_one_is_checked(server, tmp_path, rubbish, file):
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / f"{file}.part").write_bytes(rubbish or server.files[file])
    if rubbish and len(rubbish) < len(server.files[file]):
        fails(server, tmp_path, "checksum")
    completes(server, tmp_path)
    assert rubbish or not server.asked(file)


@pytest.mark.parametrize("file, mine, says", [
    (JSON, b"mine", "has 4 bytes and should have 30000"), (JSON, None, "checksum"), (INDEX, None, "checksum"),
    (DATA, None, "checksum"), (DATA, bytes(310_144), "checksum")])
def test_a_wrong_file_is_named_and_kept(server, tmp_path, file, mine, says, capsys):
    """mine: the wrong contents; None: the file with one bit flipped."""
    completes(server, tmp_path)
    path, mine = tmp_path / "tiny" / file, mine or flip(server.files[file])
    run = partial(command_line.run, module.main, ["OpenAI/tiny", "--models_dir", str(tmp_path)])
    path.write_bytes(mine)
    server.log.clear()
    assert run() == 2 and re.search(f"error: .*{file}.*{says}.*delete it", capsys.readouterr().err)
    assert path.read_bytes() == mine and not server.log
    path.unlink()
    assert run() == 0 and [one for one, _ in server.log] == [file]
    completes(server, tmp_path)


def test_disk_space_is_asked_for_before_the_first_byte(server, tmp_path, monkeypatch):
    usage, size = shutil.disk_usage(tmp_path), len(server.files[DATA])
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=size - 1))
    fails(server, tmp_path, "needs .* GB: free some space")
    assert not server.asked(DATA)
    (tmp_path / "tiny" / f"{DATA}.part").write_bytes(server.files[DATA][:1])    # what is there needs no space
    completes(server, tmp_path)


def test_a_full_disk_an_unwritable_folder_and_an_unknown_name_are_reported(server, tmp_path, capsys):
    def run(models_dir):
        assert command_line.run(module.main, ["tiny", "--models_dir", str(models_dir)]) == 2
        return capsys.readouterr().err
    with full_disk(100_000):                                    # in the middle of a write
        assert "cannot write" in (err := run(tmp_path)) and "(File too large): free some space" in err
    completes(server, tmp_path)
    assert server.log[-1] == (DATA, "bytes=100000-")
    (tmp_path / "file").write_text("")
    assert "cannot use" in (err := run(tmp_path / "file")) and "check the path" in err
    with pytest.raises(ValueError, match="no model '125M'.*there are tiny"):
        download("125M")


# Ctrl-C, kill, and two programs at once ---------------------------------------------------------------------

PROGRAM = """
import json, signal, sys
from engine.loading import download
signal.signal(signal.SIGINT, signal.default_int_handler)        # ignored, perhaps, by who started the tests
download.MODELS = json.loads(sys.argv[1])
download.download("tiny", sys.argv[2])
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows does not have these signals")
@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_ctrl_c_and_kill_leave_what_a_second_start_resumes(server, tmp_path, name):
    half, killed = threading.Event(), threading.Event()

    def pause():                                                # after 150,000 bytes, until it is killed
        half.set()
        killed.wait(20)
    server.answers = {DATA: iter([Answer(cut=150_000, pace=(10**6, pause))])}
    command = [sys.executable, "-c", PROGRAM, json.dumps(module.MODELS), str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        part = tmp_path / "tiny" / f"{DATA}.part"
        assert half.wait(20)
        while not part.exists() or part.stat().st_size < 100_000:       # what has arrived is being written
            time.sleep(.01)
        process.send_signal(getattr(signal, name))
        assert process.wait(20) == -getattr(signal, name)
    killed.set()
    nothing_partial(tmp_path / "tiny", server.files)
    resumed_from = part.stat().st_size
    completes(server, tmp_path)
    assert server.log[-1] == (DATA, f"bytes={resumed_from}-")


def test_the_second_of_two_programs_waits_for_the_first(server, tmp_path):
    """The lock is the open file's, so a program that is killed leaves none behind."""
    fcntl = pytest.importorskip("fcntl", reason="Windows has no such locks")
    (tmp_path / "tiny").mkdir()
    second = threading.Thread(target=download, args=("tiny", tmp_path))
    with open(tmp_path / "tiny" / module.LOCK, "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second.start()
        time.sleep(.2)
        assert second.is_alive() and not server.log
    second.join(20)
    completes(server, tmp_path)
    assert len(server.log) == 4


# The table --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", MODELS)
def test_no_file_is_taken_for_right_by_its_length_alone(name):
    """Every file has a checksum in the table, or is a TensorFlow file with checksums of its own."""
    for file, (size, checksum) in MODELS[name]["files"].items():
        known = re.fullmatch("md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", checksum or "")
        assert size > 0 and (known or checksum is None and file.startswith("model.ckpt.")), file
    assert all(url.startswith("https://") for url in MODELS[name]["urls"])


@pytest.mark.parametrize("name, n_embd, n_layer", [
    ("124M", 768, 12), ("355M", 1024, 24), ("774M", 1280, 36), ("1558M", 1600, 48)])
def test_bytes_in_the_table_follow_from_the_shapes(name, n_embd, n_layer):
    """So do those of the index, which stores each size and offset in as many bytes as it needs."""
    sizes = dict(n_vocab=50257, n_ctx=1024, n_embd=n_embd, n_head=n_embd // 64, n_layer=n_layer)
    message, offset, entries = checkpoint.to_message, 0, [(b"", bytes.fromhex("08011a020801"))]
    for part, shape in sorted(list_shapes(**sizes).items()):
        size, shape = 4 * math.prod(shape), [1, *shape] if part.endswith("/w") else shape
        dims = message(*((0x12, message((0x08, d))) for d in shape))
        fields = (0x08, 1), (0x12, dims), (0x20, offset), (0x28, size), (0x35, b"1234")
        entries.append((part.encode(), message(*fields)))
        offset += size
    files, text = MODELS[name]["files"], json.dumps(sizes, indent=2).encode() + b"\n"
    assert (len(checkpoint.to_index(entries)), offset) == (files[INDEX][0], files[DATA][0])
    assert files["hparams.json"] == (len(text), f"sha256:{hashlib.sha256(text).hexdigest()}")
    assert all(url.endswith(f"/{name}") for url in MODELS[name]["urls"]) and 90 <= len(text) <= 91
