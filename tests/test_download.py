"""download.py against a server on this machine that plays the real one, good and bad.

After every failure: nothing partial is taken for whole, and a second start, with the server well again,
completes and is right.
"""
import contextlib
import errno
import functools
import hashlib
import io
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import console
from loading import checkpoint
from loading import download as module
from loading.download import MODELS, DownloadError, check, download, is_complete
from loading.folder import shapes

ROOT = Path(__file__).resolve().parent.parent
DATA, INDEX = "model.ckpt.data-00000-of-00001", "model.ckpt.index"
CLOSED = "http://127.0.0.1:1/base/tiny"         # nobody listens there


class Server(ThreadingHTTPServer):
    """Serves self.files, knows Range.  self.faults: file -> iterator of what goes wrong, one a request."""
    daemon_threads = True
    nobody_hung_up = False

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.faults, self.log = files, {}, []
        self.url = f"http://127.0.0.1:{self.server_port}/base/tiny"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, request, client_address):
        pass                                    # the other side hung up


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True              # or every answer takes 40 ms

    def log_message(self, *args):
        pass

    def do_GET(self):
        file, asked = self.path.split("/")[-1], self.headers.get("Range")
        self.server.log.append((file, asked))
        assert self.path == f"/base/tiny/{file}" and self.headers["Accept-Encoding"] == "identity"
        self.start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked else 0
        fault = next(self.server.faults.get(file, iter(())), None)
        if file not in self.server.files:
            self.send_all(404, b"<Error>BlobNotFound</Error>")
        else:
            (fault or Handler.send_file)(self, self.server.files[file])

    def send_all(self, status, body, headers=types.MappingProxyType({})):
        self.send_response(status)
        for name, value in ({"Content-Length": len(body)} | headers).items():
            if value is not None:
                self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def send_file(self, body, n_bytes=None, ranges=True):
        """n_bytes: so many of the promised bytes are sent, then the connection is cut."""
        start = self.start if ranges else 0
        headers = {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"} if start else {}
        self.close_connection = n_bytes is not None
        rest = body[start:]
        self.send_all(206 if start else 200, rest[:n_bytes], {"Content-Length": len(rest)} | headers)


# What goes wrong --------------------------------------------------------------------------------------------

def error_page(handler, body):                  # as a server in front of the real one does
    handler.send_all(200, b'<?xml version="1.0"?><Error><Code>AccountIsDisabled</Code></Error>' * 15)


def error_page_without_length(handler, body):
    handler.send_all(200, b"2d\r\n<?xml version='1.0'?><Error>Disabled</Error> \r\n0\r\n\r\n",
                     {"Content-Length": None, "Transfer-Encoding": "chunked"})


def error_page_of_the_right_length(handler, body):
    handler.send_all(200, (b"<?xml version='1.0'?>" * len(body))[:len(body)])


def endless(handler, body):
    handler.send_response(200)
    handler.end_headers()
    handler.close_connection = True
    for _ in range(1000):
        handler.wfile.write(bytes(100_000))     # until the other side hangs up
    handler.server.nobody_hung_up = True


def answers(status):
    return lambda handler, body: handler.send_all(status, b"no")


def cut(n_bytes):
    return lambda handler, body: handler.send_file(body, n_bytes)


def hangs_up(handler, body):
    handler.close_connection = True


def stalls(handler, body):
    handler.send_file(body, len(body) // 2)
    handler.wfile.flush()
    time.sleep(3)


def ignores_range(handler, body):
    handler.send_file(body, ranges=False)


def shorter(handler, body):
    handler.send_file(body[:-1])


def longer(handler, body):
    handler.send_file(body + b"x")


def partial(first, length=None, total=None):
    """A 206 whose bytes begin elsewhere, are fewer, or are of another file."""
    def answer(handler, body):
        start = handler.start if first is None else first
        some = body[start:][:length]
        handler.send_all(206, some, {"Content-Range": f"bytes {start}-{start + len(some) - 1}/"
                                                      f"{total or len(body)}"})
    return answer


def flipped(handler, body):
    i = len(body) * 2 // 3
    handler.send_file(body[:i] + bytes([body[i] ^ 4]) + body[i + 1:])


def redirects(location):
    return lambda handler, body: handler.send_all(302, b"", {"Location": location})


def drips(handler, body):                       # two bytes at a time, hardly any in a second
    handler.send_file(body, len(body) // 2)
    with contextlib.suppress(OSError):          # until the other side hangs up
        for i in range(0, 400, 2):
            handler.wfile.write(body[i:i + 2])
            time.sleep(0.01)
        handler.server.nobody_hung_up = True


def drips_its_header(handler, body):
    handler.send_response(200)
    handler.flush_headers()
    with contextlib.suppress(OSError):
        for _ in range(200):
            handler.wfile.write(b"X-Wait: yes\r\n")
            time.sleep(0.01)


def trickles(handler, body):                    # slowly, but it goes on
    handler.send_file(body, 0)
    for i in range(0, len(body), 20_000):
        handler.wfile.write(body[i:i + 20_000])
        time.sleep(0.02)


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("origin")
    rng = np.random.default_rng(0)
    sizes = {"model/b": 768, "model/g": 768, "model/w": 76_000}
    checkpoint.write_tensorflow(folder / "model.ckpt", {name: rng.standard_normal(n).astype(np.float32)
                                                        for name, n in sizes.items()})
    (folder / "hparams.json").write_text('{"n_vocab": 3}')
    (folder / "encoder.json").write_bytes(rng.bytes(30_000))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def served(files):
    with Server(dict(files)) as server:
        yield server
        server.shutdown()


@pytest.fixture
def server(files, monkeypatch):
    names = ["hparams.json", "encoder.json", INDEX, DATA]
    expected = {name: (len(files[name]), None) for name in names}
    expected["encoder.json"] = (30_000, "sha256:" + hashlib.sha256(files["encoder.json"]).hexdigest())
    monkeypatch.setattr(module, "WAIT", 0.0001)
    monkeypatch.setattr(module, "PATIENCE", (1, 0.4))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for server in served(files):
        monkeypatch.setattr(module, "MODELS", {"tiny": {"urls": [server.url], "files": expected}})
        yield server


@pytest.fixture
def other(files):
    yield from served(files)


def assert_not_taken_for_whole(folder, files):
    """Whatever has its final name is right, and the folder is not complete."""
    for path in folder.iterdir() if folder.exists() else ():
        assert path.suffix in (".part", ".lock") or path.read_bytes() == files[path.name], path
    assert not is_complete("tiny", folder.parent)


def assert_whole(folder, files):
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files     # and no .part, no lock
    assert is_complete("tiny", folder.parent)
    check("tiny", folder.parent)


def fails_then_completes(server, tmp_path, reason):
    """The first start fails and says why in one sentence; the second one completes."""
    with pytest.raises(DownloadError, match=reason) as error:
        download("tiny", tmp_path)
    assert "\n" not in str(error.value) and re.search("start again|choose|free|delete", str(error.value))
    assert_not_taken_for_whole(tmp_path / "tiny", server.files)
    server.faults = {}
    assert_whole(download("tiny", tmp_path), server.files)


def test_downloads_what_is_needed_and_nothing_else(server, tmp_path):
    folder = download("tiny", tmp_path / "a" / "b")
    assert folder == tmp_path / "a" / "b" / "tiny"
    assert [file for file, _ in server.log] == ["hparams.json", "encoder.json", INDEX, DATA]
    assert_whole(folder, server.files)
    server.log.clear()
    # the second time nothing is asked for
    assert download("tiny", tmp_path / "a" / "b") == folder and server.log == []


ERRORS = {error_page: ("instead of", 1), error_page_without_length: ("instead of", 1),
          error_page_of_the_right_length: ("checksum", 2), flipped: ("checksum", 2),
          shorter: ("instead of", 1), longer: ("instead of", 1), endless: ("instead of", 1),
          answers(404): ("404", 1), answers(204): ("204", 1), answers(500): ("500", 4),
          answers(429): ("429", 4), cut(0): ("Chunked", 4), hangs_up: ("ConnectionError", 1),
          partial(7): ("bytes 7-", 2), drips_its_header: ("too slow", 1)}
NOT_THE_BEGINNING = [fault for fault in ERRORS if fault.__name__ != "answer"]


@pytest.mark.parametrize("fault", ERRORS, ids=lambda fault: fault.__name__)
def test_a_server_that_is_always_wrong(server, tmp_path, fault):
    """It is asked again only where that can help."""
    reason, n_requests = ERRORS[fault]
    server.faults = {"encoder.json": itertools.repeat(fault)}
    fails_then_completes(server, tmp_path, reason)
    assert [file for file, _ in server.log].count("encoder.json") == n_requests + 1     # the second start's
    assert not server.nobody_hung_up


@pytest.mark.parametrize("fault", NOT_THE_BEGINNING, ids=lambda fault: fault.__name__)
def test_an_interrupted_download_meets_a_wrong_server(server, tmp_path, fault, monkeypatch):
    """Half of the file is there when the server goes wrong."""
    monkeypatch.setattr(module, "TRIES", 2)
    monkeypatch.setattr(module, "PATIENCE", (1, 0.1))
    server.faults = {DATA: itertools.chain([cut(len(server.files[DATA]) // 2)], itertools.repeat(fault))}
    fails_then_completes(server, tmp_path, DATA)


@pytest.mark.parametrize("fault", [answers(500), answers(429), flipped, cut(0), cut(100), partial(7)])
def test_wrong_once_then_fine(server, tmp_path, fault):
    wrong = ["encoder.json"] if fault is flipped else ["encoder.json", DATA]
    server.faults = {file: iter([fault]) for file in wrong}
    assert_whole(download("tiny", tmp_path), server.files)


def test_what_appears_under_the_final_name_is_kept_and_so_is_a_link_that_leads_nowhere(server, tmp_path):
    path = tmp_path / "tiny" / "encoder.json"

    def appears(handler, body):
        path.write_text("mine")
        handler.send_file(body)

    server.faults["encoder.json"] = iter([appears])
    with pytest.raises(DownloadError, match="appeared during the download"):
        download("tiny", tmp_path)
    assert path.read_text() == "mine"
    path.unlink()
    path.symlink_to("nowhere")
    with pytest.raises(DownloadError, match="delete it"):
        download("tiny", tmp_path)
    path.unlink()
    download("tiny", tmp_path)


@pytest.mark.parametrize("n_bytes", [0, 1, 100_000, 310_000])
def test_a_connection_cut_anywhere(server, tmp_path, n_bytes):
    """It is resumed where it was cut, but for the last chunk; so does the start that follows a failure."""
    server.faults = {DATA: itertools.chain([cut(n_bytes)], [answers(500)] * (module.TRIES - 1))}
    with pytest.raises(DownloadError, match="500"):
        download("tiny", tmp_path)
    assert_not_taken_for_whole(tmp_path / "tiny", server.files)
    part = (tmp_path / "tiny" / f"{DATA}.part").read_bytes()
    assert len(part) > n_bytes - module.CHUNK and server.files[DATA].startswith(part)
    server.faults.clear()
    assert_whole(download("tiny", tmp_path), server.files)
    assert server.log[-1] == (DATA, f"bytes={len(part)}-" if part else None)


@pytest.mark.parametrize("fault", [cut(20_000), partial(None, 20_000), stalls, drips],
                         ids=lambda fault: fault.__name__)
def test_one_start_is_enough_as_long_as_it_goes_on(server, tmp_path, fault):
    """However often the connection is cut, stalls, drips, or a part is sent for the whole."""
    server.faults = {DATA: itertools.chain([cut(20_000)], itertools.repeat(fault, 40))}
    assert_whole(download("tiny", tmp_path), server.files)
    assert sum(file == DATA for file, _ in server.log) < 25


def test_a_slow_server_is_waited_for_as_long_as_it_goes_on(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", (1, 0.2))
    server.faults = {DATA: iter([trickles])}
    assert_whole(download("tiny", tmp_path), server.files)
    assert server.log[-1] == (DATA, None)       # in one go


def test_a_server_that_gives_a_tenth_and_nothing_by_turns_is_given_up(server, tmp_path):
    """It begins anew each time, so there are always more bytes than the time before, and never all."""
    def begins(n_bytes):
        return lambda handler, body: handler.send_file(body, n_bytes, ranges=False)
    server.faults = {DATA: itertools.islice(itertools.cycle([begins(50_000), begins(0)]), 40)}
    fails_then_completes(server, tmp_path, "Chunked")
    assert len(server.log) < 15


def test_of_a_file_of_a_few_bytes_nothing_is_no_progress_either(server, tmp_path):
    server.faults = {"hparams.json": itertools.repeat(cut(0), 40)}
    fails_then_completes(server, tmp_path, "Chunked")
    assert [file for file, _ in server.log].count("hparams.json") == module.TRIES + 1


@pytest.mark.parametrize("fault, asked", [
    (ignores_range, 1), (partial(0), 1), (partial(100), 1), (answers(416), 2), (partial(200_000), 2),
    (partial(None, total=9), 2)])
def test_an_odd_answer_to_a_range(server, tmp_path, fault, asked):
    """All of the file, more than was asked for, or what cannot be used: then the part is given up."""
    server.faults = {DATA: iter([cut(150_000), fault])}
    assert_whole(download("tiny", tmp_path), server.files)
    assert [r is not None for file, r in server.log if file == DATA] == [False, True, False][:asked + 1]


@pytest.mark.parametrize("rubbish", [b"<?xml", bytes(100_000), bytes(1_000_000), None])
@pytest.mark.parametrize("file", ["encoder.json", DATA])
def test_a_part_of_something_else_is_thrown_away_and_a_whole_one_is_checked(server, tmp_path, rubbish, file):
    """Where only the tensors' checksums can say so: with all that was downloaded, and at the next start."""
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / f"{file}.part").write_bytes(server.files[file] if rubbish is None else rubbish)
    if file == DATA and rubbish and len(rubbish) < 300_000:
        fails_then_completes(server, tmp_path, "checksum")
    else:
        assert_whole(download("tiny", tmp_path), server.files)
        assert rubbish is not None or file not in dict(server.log)


@pytest.mark.parametrize("file", [INDEX, DATA])
def test_wrong_bytes_without_a_checksum_in_the_table_are_found_by_the_tensors_own(server, tmp_path, file):
    server.faults = {file: itertools.repeat(flipped)}
    fails_then_completes(server, tmp_path, "checksum")


def test_a_file_that_is_touched_while_it_is_checked_is_checked_again(server, tmp_path, monkeypatch):
    checks, check = [], module.check_tensors

    def touched(folder):
        checks.append(folder)
        if len(checks) == 1:
            raise DownloadError("somebody wrote to the file while it was read")
        check(folder)
    monkeypatch.setattr(module, "check_tensors", touched)
    assert_whole(download("tiny", tmp_path), server.files)


def test_a_damaged_index_is_found_before_the_data_is_fetched(server, tmp_path):
    server.faults = {INDEX: itertools.repeat(flipped)}
    with pytest.raises(DownloadError, match="checksum.*; start again"):
        download("tiny", tmp_path)
    assert DATA not in dict(server.log) and not (tmp_path / "tiny" / INDEX).exists()


def test_the_next_address(server, other, tmp_path, files):
    module.MODELS["tiny"]["urls"][:] = CLOSED, server.url, other.url
    for fault in None, answers(404), answers(500), error_page, flipped, cut(0):
        server.faults = {"encoder.json": itertools.repeat(fault)}
        assert_whole(download("tiny", tmp_path / str(fault)), files)
        assert other.log == ([] if fault is None else [("encoder.json", None)])
        other.log.clear()
    module.MODELS["tiny"]["urls"].pop()
    server.faults = {"hparams.json": itertools.repeat(answers(404))}
    with pytest.raises(DownloadError, match="127.0.0.1:1/.*/hparams.json .*ConnectionE.* nor from .*404"):
        download("tiny", tmp_path / "none")


@pytest.mark.parametrize("location", ["http://[", "http://a..b/x", "http://127.0.0.1:99999/", "ftp://1/x",
                                      f"http://{'a' * 70}.b/", "http://%/", "encoder.json"])
def test_an_address_that_leads_nowhere_is_left_for_the_next(server, other, tmp_path, files, location):
    """The last leads to itself."""
    module.MODELS["tiny"]["urls"].append(other.url)
    server.faults = {"encoder.json": itertools.repeat(redirects(location))}
    assert_whole(download("tiny", tmp_path), files)
    assert other.log == [("encoder.json", None)]


def test_without_a_network_it_says_so_at_once_in_one_sentence(server, tmp_path, monkeypatch, capsys):
    module.MODELS["tiny"]["urls"][:] = CLOSED, CLOSED.replace(":1/", ":2/")
    monkeypatch.setattr(module.time, "sleep", None)
    with pytest.raises(DownloadError, match="check the connection and start again.*which need no"):
        download("tiny", tmp_path)
    assert capsys.readouterr() == ("", "")


def test_a_network_that_swallows_everything_is_not_waited_for(server, tmp_path, monkeypatch):
    """As looking up a name does, which knows no time limit; the program can end meanwhile."""
    daemons, end = [], threading.Event()
    monkeypatch.setattr(module.requests, "get", lambda *_, **__: [
        daemons.append(threading.current_thread().daemon), end.wait(20)])
    with pytest.raises(DownloadError, match="no answer"):
        download("tiny", tmp_path)
    end.set()
    assert daemons == [True]


# What lies where the files shall be -------------------------------------------------------------------------

def test_where_only_the_checks_are_left_no_network_is_needed(server, tmp_path):
    """Killed between the last file and its checksums: not complete until the tensors are checked."""
    folder = download("tiny", tmp_path)
    server.log.clear()
    (folder / module.DOWNLOADING).touch()
    assert not is_complete("tiny", tmp_path)
    assert_whole(download("tiny", tmp_path), server.files)
    (folder / module.DOWNLOADING).touch()
    (folder / DATA).write_bytes(bytes(len(server.files[DATA])))
    with pytest.raises(DownloadError, match="checksum.*delete it"):
        download("tiny", tmp_path)
    assert not is_complete("tiny", tmp_path) and server.log == []


@pytest.mark.parametrize("file, mine, reason, asked", [
    ("encoder.json", b"mine", "encoder.json has 4 bytes and should have 30000; delete it and start", []),
    (DATA, None, "tensor.*checksum.*delete it", ["hparams.json"])])
def test_a_wrong_file_that_was_there_before_is_named_and_kept(server, tmp_path, file, mine, reason, asked):
    """Before anything is asked for, if its length says so."""
    folder, mine = download("tiny", tmp_path), mine or bytes(len(server.files[file]))
    (folder / file).write_bytes(mine)
    (folder / "hparams.json").unlink()
    server.log.clear()
    with pytest.raises(DownloadError, match=reason):
        download("tiny", tmp_path)
    assert (folder / file).read_bytes() == mine and [one for one, _ in server.log] == asked
    assert not asked or not is_complete("tiny", tmp_path)
    (folder / file).unlink()
    assert_whole(download("tiny", tmp_path), server.files)
    assert {one for one, _ in server.log} == {"hparams.json", file}


def test_check_names_a_file_that_was_damaged_later(server, tmp_path, capsys):
    folder = download("tiny", tmp_path)
    for file in "encoder.json", DATA, INDEX:
        data = bytearray(server.files[file])
        data[20] ^= 1
        (folder / file).write_bytes(data)
        assert console.run(module.main, ["tiny", "--models_dir", str(tmp_path)]) == 2
        assert re.search(f"error: .*{file}.*delete it", capsys.readouterr().err)
        (folder / "hparams.json").unlink()                         # a start that downloads checks the others
        with pytest.raises(DownloadError, match=f"{file}.*delete it"):
            download("tiny", tmp_path)
        (folder / file).write_bytes(server.files[file])
        assert_whole(download("tiny", tmp_path), server.files)
    assert console.run(module.main, ["tiny", "--models_dir", str(tmp_path)]) == 0


def test_disk_space_is_asked_for_before_the_first_byte(server, tmp_path, monkeypatch):
    usage, total = shutil.disk_usage(tmp_path), sum(map(len, server.files.values()))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=total - 1))
    with pytest.raises(DownloadError, match="GB free"):
        download("tiny", tmp_path)
    assert server.log == []
    # what is there need not be found room for
    (tmp_path / "tiny" / f"{DATA}.part").write_bytes(server.files[DATA][:1])
    assert_whole(download("tiny", tmp_path), server.files)


def test_a_folder_that_cannot_be_written_and_a_name_that_is_not_known(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadError, match="cannot be written .*choose another folder with --models_dir"):
        download("tiny", tmp_path / "file")
    with pytest.raises(DownloadError, match="no model '125M'.*there are tiny"):
        download("125M")


@pytest.mark.parametrize("name, kind", [
    (module.DOWNLOADING, "file"), *((name, kind) for name in (module.DOWNLOADING, f"{DATA}.part")
                                    for kind in ("folder", "link", "link to nowhere", "pipe"))])
def test_what_is_called_as_ours_and_is_not_is_left_alone(server, tmp_path, name, kind):
    path, mine = tmp_path / "tiny" / name, tmp_path / "mine"
    path.parent.mkdir()
    mine.write_text("mine")
    dict(file=lambda: path.write_text("mine"), folder=path.mkdir, pipe=lambda: os.mkfifo(path)).get(
        kind, lambda: path.symlink_to(mine if kind == "link" else "nowhere"))()
    before = os.lstat(path)
    with pytest.raises(DownloadError, match=f"{name} was not made by this program: move it away and start"):
        download("tiny", tmp_path)
    assert os.lstat(path)[:9] == before[:9] and mine.read_text() == "mine" and not server.log


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_in_bytes_on_a_terminal_only(server, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    download("tiny", tmp_path / "1")
    assert sys.stderr.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", Terminal())
    (tmp_path / "2" / "tiny").mkdir(parents=True)
    (tmp_path / "2" / "tiny" / f"{DATA}.part").write_bytes(server.files[DATA][:90_000])
    monkeypatch.setattr(module, "tqdm", functools.partial(module.tqdm, mininterval=0))
    download("tiny", tmp_path / "2")
    assert re.search(rf"{DATA}:  2\d%\|.*87.9k/303k", sys.stderr.getvalue()), sys.stderr.getvalue()


# Other processes: a full disk, Ctrl-C, kill, two at once ----------------------------------------------------

PROGRAM = """
import json, signal, sys
sys.path.insert(0, {root!r})
from loading import download
signal.signal(signal.SIGINT, signal.default_int_handler)        # ignored, perhaps, by who started the tests
download.MODELS, download.WAIT, download.PATIENCE = json.loads({table!r}), 0.01, (1, 20)
{setup}
try:
    print(download.download("tiny", {models_dir!r}))
except download.DownloadError as error:
    sys.exit(str(error))
"""


def start(tmp_path, setup=""):
    code = PROGRAM.format(root=str(ROOT), table=json.dumps(module.MODELS), setup=setup,
                          models_dir=str(tmp_path))
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def wait_for(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Gate:
    """Sends half of a file, then waits to be opened."""
    def __init__(self):
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, handler, body):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[:len(body) // 2])
        handler.wfile.flush()
        self.reached.set()
        self.open.wait(20)
        handler.wfile.write(body[len(body) // 2:])


@pytest.mark.skipif(os.name == "nt", reason="Windows has no limit for the size of a file")
@pytest.mark.long
def test_a_full_disk(server, tmp_path):
    """The system refuses to let a file grow beyond 100,000 bytes, in the middle of a write."""
    process = start(tmp_path, "import resource as r\nr.setrlimit(r.RLIMIT_FSIZE, (100_000, 100_000))")
    out, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert re.fullmatch(".*tiny cannot be written .File too large.: free some space.*\n", err), err
    assert_not_taken_for_whole(tmp_path / "tiny", server.files)
    assert len((tmp_path / "tiny" / f"{DATA}.part").read_bytes()) == 100_000
    assert_whole(download("tiny", tmp_path), server.files)
    assert server.log[-1] == (DATA, "bytes=100000-")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL", pytest.param("SIGTERM", marks=pytest.mark.long)])
def test_ctrl_c_and_kill_leave_what_a_second_start_resumes(server, tmp_path, name):
    sign = getattr(signal, name)
    gate, part = Gate(), tmp_path / "tiny" / f"{DATA}.part"
    server.faults = {DATA: iter([gate])}
    process = start(tmp_path)
    assert gate.reached.wait(20)
    wait_for(lambda: part.exists() and part.stat().st_size > 100_000)
    process.send_signal(sign)
    _, err = process.communicate(timeout=20)
    assert process.returncode == -sign and ("KeyboardInterrupt" in err) == (sign == signal.SIGINT)
    gate.open.set()
    assert_not_taken_for_whole(tmp_path / "tiny", server.files)
    resumed_from = part.stat().st_size
    assert_whole(download("tiny", tmp_path), server.files)
    assert server.log[-1] == (DATA, f"bytes={resumed_from}-")


def test_two_programs_at_once_download_once(server, tmp_path):
    gate = Gate()
    server.faults = {DATA: iter([gate])}
    first = start(tmp_path)
    assert gate.reached.wait(20)
    second = start(tmp_path)
    assert "waiting" in second.stderr.readline()
    assert not is_complete("tiny", tmp_path)
    gate.open.set()
    for process in first, second:
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out.strip()) == (0, str(tmp_path / "tiny")), err
    assert_whole(tmp_path / "tiny", server.files)
    assert sorted(file for file, _ in server.log) == sorted(server.files)       # each once


@pytest.mark.long
def test_the_second_program_goes_on_when_the_first_is_killed(server, tmp_path):
    """A lock cannot go stale."""
    gate = Gate()
    server.faults = {DATA: iter([gate])}
    first = start(tmp_path)
    assert gate.reached.wait(20)
    second = start(tmp_path)
    assert "waiting" in second.stderr.readline()
    first.kill()
    first.communicate(timeout=20)
    out, err = second.communicate(timeout=20)
    assert second.returncode == 0, err
    gate.open.set()
    assert_whole(tmp_path / "tiny", server.files)


@pytest.mark.fuzz
def test_many_programs_killed_at_random(server, tmp_path):
    """Six programs at a time on one folder, killed at random, and a server that fails at random."""
    rng = random.Random(0)
    wrong = [None, None, cut(30_000), answers(500), cut(0), hangs_up, ignores_range, error_page]
    for run in range(20):
        folder = tmp_path / str(run) / "tiny"
        server.faults = {file: (rng.choice(wrong) for _ in itertools.count()) for file in server.files}
        for _ in range(3):
            processes = [start(folder.parent) for _ in range(6)]
            for process in processes:
                time.sleep(rng.random() * 0.3)
                process.kill()
            for process in processes:
                process.communicate()
            for path in folder.iterdir() if folder.exists() else ():
                assert path.suffix in (".part", ".lock") or path.read_bytes() == server.files[path.name], path
        server.faults = {}
        assert_whole(download("tiny", folder.parent), server.files)


# The table --------------------------------------------------------------------------------------------------

SIZES = [("124M", 768, 12), ("355M", 1024, 24), ("774M", 1280, 36), ("1558M", 1600, 48)]
HPARAMS = """{
  "n_vocab": 50257,
  "n_ctx": 1024,
  "n_embd": %d,
  "n_head": %d,
  "n_layer": %d
}
"""


@pytest.mark.parametrize("name", MODELS)
def test_no_file_is_taken_for_right_by_its_length_alone(name):
    """It has a checksum in the table, or TensorFlow's own of each block and each tensor."""
    for file, (size, checksum) in MODELS[name]["files"].items():
        assert size > 0
        known = re.fullmatch("md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", checksum or "")
        assert known or checksum is None and file.startswith("model.ckpt."), file


@pytest.mark.parametrize("name, n_embd, n_layer", SIZES)
def test_bytes_in_the_table_follow_from_the_shapes(name, n_embd, n_layer):
    files, n = MODELS[name]["files"], n_embd
    n_parameters = 50257 * n + 1024 * n + n_layer * (12 * n * n + 13 * n) + 2 * n
    assert files[DATA][0] == 4 * n_parameters
    text = HPARAMS % (n_embd, n_embd // 64, n_layer)
    assert files["hparams.json"] == (len(text), f"sha256:{hashlib.sha256(text.encode()).hexdigest()}")
    assert len(text) == (90 if name == "124M" else 91)
    assert all(url.startswith("https://") and url.endswith(f"/{name}") for url in MODELS[name]["urls"])


@pytest.mark.parametrize("name, n_embd, n_layer", SIZES)
def test_the_index_in_the_table_is_as_long_as_what_we_write(name, n_embd, n_layer):
    """Sizes and offsets are stored in as many bytes as they need, so the true ones are written."""
    every = shapes(n_vocab=50257, n_ctx=1024, n_embd=n_embd, n_head=1, n_layer=n_layer)
    message, offset, entries = checkpoint.to_message, 0, [(b"", bytes.fromhex("08011a020801"))]
    for part, shape in sorted(every.items()):
        shape = [1, *shape] if part.endswith("/w") else shape
        size, dims = 4 * math.prod(shape), message(*((0x12, message((0x08, d))) for d in shape))
        value = message((0x08, 1), (0x12, dims), (0x20, offset), (0x28, size), (0x35, b"1234"))
        entries.append((part.encode(), value))
        offset += size
    files = MODELS[name]["files"]
    assert len(checkpoint.to_index(entries)) == files[INDEX][0] and offset == files[DATA][0]


@pytest.mark.parametrize("free", [True, False])
def test_the_lock_on_windows_is_one_byte_and_says_whether_it_is_ours(free, monkeypatch, tmp_path):
    """With what Windows has in the place of fcntl: its call fails where another program holds the byte."""
    def locking(number, mode, n_bytes):
        asked.append((number, mode, n_bytes))
        if not free:
            raise PermissionError(errno.EACCES, "Permission denied")

    asked, windows = [], types.SimpleNamespace(LK_NBLCK=2, locking=locking)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", windows)
    with open(tmp_path / "lock", "ab") as file:
        assert module.lock(file) is free and asked == [(file.fileno(), 2, 1)]
