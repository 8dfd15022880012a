"""download.py against a server on this machine that plays the real one, good and bad.

After every failure: nothing partial is taken for whole, and a second start, with the server well again,
completes and is right.
"""
import base64
import contextlib
import errno
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
import socket
import subprocess
import sys
import threading
import time
import types
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import requests

from loading import checkpoint
from loading import download as module
from loading.download import MODELS, DownloadError, check, download, is_complete

ROOT = Path(__file__).resolve().parent.parent
DATA, INDEX = "model.ckpt.data-00000-of-00001", "model.ckpt.index"


class Server(ThreadingHTTPServer):
    """Serves self.files, knows Range and Content-MD5.

    self.faults: file -> iterator of what goes wrong, one a request.
    """
    daemon_threads = True
    nobody_hung_up = False
    md5_of_range = "whole"  # what Content-MD5 means in an answer to a Range; None: nothing is sent at all

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.faults, self.log = files, {}, []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/base"

    def handle_error(self, request, client_address):
        pass                                    # the other side hung up


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True              # or every answer takes 40 ms

    def log_message(self, *args):
        pass

    def do_GET(self):
        file = self.path.split("/")[-1]
        self.server.log.append((file, self.headers.get("Range")))
        assert self.path == f"/base/tiny/{file}" and self.headers["Accept-Encoding"] == "identity"
        fault = next(self.server.faults.get(file, iter(())), None)
        if fault:
            fault(self, self.server.files.get(file, b""))
        elif file in self.server.files:
            self.send_file(self.server.files[file])
        else:
            self.send_all(404, b"<Error>BlobNotFound</Error>")

    def send_all(self, status, body, headers=types.MappingProxyType({})):
        self.send_response(status)
        for name, value in ({"Content-Length": len(body)} | headers).items():
            if value is not None:
                self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def send_file(self, body, n_bytes=None, ranges=True, headers=types.MappingProxyType({})):
        """n_bytes: so many of the promised bytes are sent, then the connection is cut."""
        start, status, extra = 0, 200, {"Content-MD5": md5(body)}
        if ranges and (asked := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))):
            start, status = int(asked[1]), 206
            extra = {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}",
                     "Content-MD5": md5(body[start:] if self.server.md5_of_range == "part" else body)}
            if self.server.md5_of_range == "azure":
                extra["x-ms-blob-content-md5"] = extra.pop("Content-MD5")
        if self.server.md5_of_range is None:
            extra.pop("Content-MD5")
        rest = body[start:]
        self.close_connection = n_bytes is not None
        self.send_all(status, rest[:n_bytes], {"Content-Length": len(rest)} | extra | headers)


def md5(data):
    return base64.b64encode(hashlib.md5(data).digest()).decode()


# What goes wrong --------------------------------------------------------------------------------------------

def error_page(handler, body):                  # as a server in front of the real one does
    handler.send_all(200, b'<?xml version="1.0"?><Error><Code>AccountIsDisabled</Code></Error>' * 15)


def error_page_without_length(handler, body):
    handler.send_all(200, b"2d\r\n<?xml version='1.0'?><Error>Disabled</Error> \r\n0\r\n\r\n",
                     {"Content-Length": None, "Transfer-Encoding": "chunked"})


def error_page_of_the_right_length(handler, body):
    handler.send_all(200, (b"<?xml version='1.0'?>" * len(body))[:len(body)], {"Content-MD5": md5(body)})


def endless(handler, body):
    handler.send_response(200)
    handler.end_headers()
    handler.close_connection = True
    for _ in range(1000):
        handler.wfile.write(bytes(100_000))         # until the other side hangs up
    handler.server.nobody_hung_up = True


def answers(status):
    return lambda handler, body: handler.send_all(status, b"no")


def cut(n_bytes):
    return lambda handler, body: handler.send_file(body, n_bytes)


def hangs_up(handler, body):
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


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


def sends_50_kb_at_a_time(handler, body):
    start = int(re.fullmatch(r"bytes=(\d+)-", handler.headers["Range"])[1])
    some = body[start:start + 50_000]
    handler.send_all(206, some, {"Content-Range": f"bytes {start}-{start + len(some) - 1}/{len(body)}"})


def other_range(handler, body):
    handler.send_all(206, body[7:], {"Content-Range": f"bytes 7-{len(body) - 1}/{len(body)}"})


def range_of_another_file(handler, body):
    start = int(re.fullmatch(r"bytes=(\d+)-", handler.headers["Range"])[1])
    handler.send_all(206, body[start:], {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body) + 1}"})


def not_satisfiable(handler, body):
    handler.send_all(416 if handler.headers.get("Range") else 404, b"",
                     {"Content-Range": f"bytes */{len(body)}"})


def wrong_md5(handler, body):
    handler.send_file(body, headers={"Content-MD5": md5(b"other")})


def nonsense_headers(handler, body):
    handler.send_file(body, headers={"Content-Length": "many"})


def flipped(handler, body):                     # what it sends has a Content-MD5, and it fits
    body = bytearray(body)
    body[len(body) * 2 // 3] ^= 4
    handler.send_file(bytes(body))


def flipped_without_md5(handler, body):
    body = bytearray(body)
    body[len(body) * 2 // 3] ^= 4
    handler.send_file(bytes(body), headers={"Content-MD5": None})


def redirects(location):
    return lambda handler, body: handler.send_all(302, b"", {"Location": location})


def drips(handler, body, n_at_once=0):          # two bytes at a time, hardly any in a second
    handler.send_file(body, n_at_once)
    start = int(handler.headers.get("Range", "bytes=0-")[6:-1]) + n_at_once
    with contextlib.suppress(OSError):          # until the other side hangs up
        for i in range(start, start + 400, 2):
            handler.wfile.write(body[i:i + 2])
            time.sleep(0.01)
        handler.server.nobody_hung_up = True


def drips_after_half(handler, body):
    drips(handler, body, len(body) // 2)


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
    (folder / "vocab.bpe").write_bytes(rng.bytes(1_000))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def server(files, monkeypatch):
    server = Server(dict(files))
    names = ["hparams.json", "encoder.json", "vocab.bpe", INDEX, DATA]
    expected = {name: (len(files[name]), None) for name in names}
    expected["encoder.json"] = (30_000, "sha256:" + hashlib.sha256(files["encoder.json"]).hexdigest())
    monkeypatch.setattr(module, "MODELS", {"tiny": {"urls": [server.url + "/tiny"], "files": expected}})
    monkeypatch.setattr(module, "WAIT", 0.0001)
    monkeypatch.setattr(module, "TIMEOUT", (1, 0.5))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield server
    server.shutdown()
    server.server_close()


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
    server.files["model.ckpt.meta"] = server.files["checkpoint"] = b"not needed"
    folder = download("tiny", tmp_path / "a" / "b")
    assert folder == tmp_path / "a" / "b" / "tiny"
    assert [file for file, _ in server.log] == ["hparams.json", "encoder.json", "vocab.bpe", INDEX, DATA]
    assert_whole(folder, {name: data for name, data in server.files.items()
                          if name not in ("model.ckpt.meta", "checkpoint")})
    server.log.clear()
    # the second time nothing is asked for
    assert download("tiny", tmp_path / "a" / "b") == folder and server.log == []


ERRORS = [(error_page, "instead of"), (error_page_without_length, "instead of"),
          (error_page_of_the_right_length, "checksum"), (answers(404), "404"), (answers(403), "403"),
          (answers(500), "500"), (answers(503), "503"), (answers(204), "204"), (endless, "instead of"),
          (hangs_up, "no connection"), (shorter, "instead of"), (longer, "instead of"), (cut(0), "cut"),
          (other_range, "bytes 7-"), (wrong_md5, "checksum"), (nonsense_headers, "many"),
          (flipped_without_md5, "checksum")]


@pytest.mark.parametrize("fault, reason", ERRORS, ids=lambda x: getattr(x, "__name__", None))
def test_a_server_that_is_always_wrong(server, tmp_path, fault, reason):
    server.faults = {"encoder.json": itertools.repeat(fault)}
    fails_then_completes(server, tmp_path, reason)
    assert not server.nobody_hung_up


@pytest.mark.parametrize("fault, n_requests",
                         [(answers(404), 1), (answers(403), 1), (error_page, 1), (shorter, 1), (wrong_md5, 2),
                          (answers(500), 5), (answers(429), 5), (answers(408), 5), (hangs_up, 5)])
def test_trying_again_only_where_it_can_help(server, tmp_path, fault, n_requests):
    server.faults = {"encoder.json": itertools.repeat(fault)}
    with pytest.raises(DownloadError):
        download("tiny", tmp_path)
    assert server.log == [("hparams.json", None)] + [("encoder.json", None)] * n_requests


@pytest.mark.parametrize("file", [INDEX, DATA])
def test_an_error_page_leaves_nothing_behind_even_where_nobody_sends_a_checksum(server, tmp_path, file):
    server.md5_of_range = None
    server.faults = {file: iter([error_page_without_length])}
    fails_then_completes(server, tmp_path, "instead of")
    assert server.log[-1] == (DATA, None)


@pytest.mark.parametrize("fault, _", ERRORS, ids=lambda x: getattr(x, "__name__", None))
def test_an_interrupted_download_meets_a_wrong_server(server, tmp_path, fault, _, monkeypatch):
    """Half of the file is there when the server goes wrong."""
    monkeypatch.setattr(module, "TIMEOUT", (1, 0.2))
    monkeypatch.setattr(module, "TRIES", 2)
    server.faults = {DATA: itertools.chain([cut(len(server.files[DATA]) // 2)], itertools.repeat(fault))}
    fails_then_completes(server, tmp_path, DATA)


@pytest.mark.parametrize("fault", [answers(500), answers(503), answers(429), hangs_up, wrong_md5, cut(0),
                                   cut(100)], ids=lambda x: x.__name__)
def test_wrong_once_then_fine(server, tmp_path, fault):
    server.faults = {file: iter([fault]) for file in server.files}
    assert_whole(download("tiny", tmp_path), server.files)


def test_a_stalled_connection_is_given_up_and_resumed(server, tmp_path):
    server.faults = {DATA: iter([stalls])}
    assert_whole(download("tiny", tmp_path), server.files)
    assert server.log[-1] == (DATA, f"bytes={len(server.files[DATA]) // 2}-")


@pytest.mark.parametrize("tenth, meaning",
                         [(i, "whole") for i in (0, 1, 4, 7, 9, 10)] + [(5, "part"), (5, "azure"), (5, None)])
def test_a_connection_cut_anywhere(server, tmp_path, tenth, meaning):
    """It is resumed where it was cut, but for the last chunk; so does the start that follows a failure."""
    server.md5_of_range, size = meaning, len(server.files[DATA])
    n_bytes = size * tenth // 10
    server.faults = {DATA: itertools.chain([cut(n_bytes)], [answers(500)] * (module.TRIES - 1))}
    if n_bytes < size:
        with pytest.raises(DownloadError, match="500"):
            download("tiny", tmp_path)
        assert_not_taken_for_whole(tmp_path / "tiny", server.files)
        part = (tmp_path / "tiny" / f"{DATA}.part").read_bytes()
        assert len(part) > n_bytes - module.CHUNK and server.files[DATA].startswith(part)
        server.faults.clear()
    assert_whole(download("tiny", tmp_path), server.files)
    if module.CHUNK < n_bytes < size:
        assert server.log[-1] == (DATA, f"bytes={len(part)}-")


def test_one_start_is_enough_however_often_the_connection_is_cut(server, tmp_path):
    server.faults = {DATA: itertools.repeat(cut(20_000))}
    assert_whole(download("tiny", tmp_path), server.files)
    assert 10 < sum(file == DATA for file, _ in server.log) < 25


def test_a_part_whose_last_byte_came_is_still_checked(server, tmp_path):
    """The program was killed between the last byte and the check."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    wrong = bytes(len(server.files[DATA]))
    for meaning in "whole", "azure":
        server.md5_of_range = meaning
        (folder / f"{DATA}.part").write_bytes(wrong)
        assert_whole(download("tiny", tmp_path), server.files)
        (folder / DATA).unlink()
        (folder / f"{DATA}.part").write_bytes(server.files[DATA])
        server.log.clear()
        assert_whole(download("tiny", tmp_path), server.files)
        assert server.log == [(DATA, f"bytes={len(wrong) - 1}-")]
        (folder / DATA).unlink()


@pytest.mark.parametrize("rubbish", [b"<?xml", bytes(100_000), bytes(1_000_000)])
@pytest.mark.parametrize("file, meaning", [("encoder.json", "whole"), (DATA, "whole"), ("vocab.bpe", None)])
def test_a_part_of_something_else_is_thrown_away(server, tmp_path, rubbish, file, meaning):
    server.md5_of_range = meaning
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / f"{file}.part").write_bytes(rubbish)
    assert_whole(download("tiny", tmp_path), server.files)


def test_a_part_that_is_longer_than_the_file_is_not_resumed(server, tmp_path):
    server.md5_of_range = None  # only the tensors' checksums would tell, at the very end
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / f"{DATA}.part").write_bytes(bytes(1_000_000))
    assert_whole(download("tiny", tmp_path), server.files)
    assert server.log[-1] == (DATA, None)


def test_a_server_that_ignores_range(server, tmp_path):
    server.faults = {DATA: itertools.chain([cut(150_000)], itertools.repeat(ignores_range))}
    assert_whole(download("tiny", tmp_path), server.files)
    assert server.log[-1][1] is not None                # it was asked for the rest, and sent everything


def test_a_server_that_answers_a_range_in_pieces(server, tmp_path):
    server.faults = {DATA: itertools.chain([cut(100_000)], itertools.repeat(sends_50_kb_at_a_time))}
    assert_whole(download("tiny", tmp_path), server.files)


@pytest.mark.parametrize("fault, reason", [(not_satisfiable, "416"), (range_of_another_file, "sends bytes")])
def test_a_range_that_cannot_be_satisfied(server, tmp_path, fault, reason):
    server.faults = {DATA: itertools.chain([cut(150_000)], itertools.repeat(fault))}
    fails_then_completes(server, tmp_path, reason)


@pytest.mark.parametrize("value", ["", "none", "*", base64.b64encode(b"12345").decode(),
                                   base64.b64encode(bytes(32)).decode(), "\xe9"])
def test_a_content_md5_that_is_none_is_not_looked_at(value):
    assert module.content_md5({"Content-MD5": value}) is None
    assert module.content_md5({"Content-MD5": md5(b"x")}) == f"md5:{hashlib.md5(b'x').hexdigest()}"


def test_wrong_bytes_with_a_right_md5_are_found_by_the_known_checksum_or_the_tensors_own(server, tmp_path):
    for file in "encoder.json", DATA, INDEX:
        server.faults = {file: itertools.repeat(flipped)}
        fails_then_completes(server, tmp_path / file, "checksum")


def test_the_next_address(server, tmp_path, files, monkeypatch):
    monkeypatch.setattr(module, "TRIES", 2)
    other = Server(dict(files))
    try:
        for fault in None, answers(404), answers(500), error_page, wrong_md5, flipped_without_md5, cut(0):
            server.faults = {"encoder.json": itertools.repeat(fault)}
            assert_whole(download("tiny", tmp_path / str(fault), [CLOSED, server.url, other.url]), files)
            assert other.log == ([] if fault is None else [("encoder.json", None)])
            other.log.clear()
        with pytest.raises(DownloadError,
                           match="127.0.0.1:1/base/tiny/hparams.json .no connection. nor from .*404"):
            server.faults = {"hparams.json": itertools.repeat(answers(404))}
            download("tiny", tmp_path / "none", [CLOSED, server.url])
    finally:
        other.shutdown()
        other.server_close()


LOCATIONS = ["http://[", "//[x", "http://a..b/x", "http://.", "http://127.0.0.1:99999/", "http://[::1]:x/",
             "ftp://127.0.0.1/x", "mailto:me", f"http://{'a' * 70}.b/", "http://\xff/", "http://%/",
             "encoder.json"]                    # the last leads to itself


@pytest.mark.parametrize("location", LOCATIONS)
def test_an_address_that_leads_nowhere_is_left_for_the_next(server, tmp_path, files, location):
    other = Server(dict(files))
    try:
        server.faults = {"encoder.json": itertools.repeat(redirects(location))}
        assert_whole(download("tiny", tmp_path, [server.url, other.url]), files)
        assert other.log == [("encoder.json", None)]
        (tmp_path / "tiny" / "encoder.json").unlink()
        fails_then_completes(server, tmp_path, "encoder.json .it leads to an address that is none")
    finally:
        other.shutdown()
        other.server_close()


# Where nothing answers --------------------------------------------------------------------------------------

CLOSED = "http://127.0.0.1:1/base"              # nobody listens there


def test_without_a_network_it_says_so_at_once_in_one_sentence_and_leaves_nothing_behind(
        server, tmp_path, monkeypatch, capsys):
    def impatient(seconds):
        raise AssertionError("it waits")
    monkeypatch.setattr(module.time, "sleep", impatient)
    with pytest.raises(DownloadError) as error:
        download("tiny", tmp_path, [CLOSED, CLOSED.replace(":1/", ":2/")])
    assert str(error.value) == (
        "tiny has to be downloaded, and nothing answers at 127.0.0.1:1 or 127.0.0.1:2; check the connection "
        "and start again, or take demo-draft and demo-target, which need no network")
    assert list(tmp_path.iterdir()) == [] and capsys.readouterr() == ("", "")


def test_a_network_that_swallows_everything_is_waited_for_a_while_only(server, tmp_path, monkeypatch):
    assert module.PATIENCE < 10
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    asked, end = [], threading.Event()

    def swallowed(url, timeout):
        asked.append((url, timeout, threading.current_thread().daemon))     # the program can end meanwhile
        end.wait()                              # as looking up a name does, whatever the time limit
    monkeypatch.setattr(module.requests, "head", swallowed)
    with pytest.raises(DownloadError, match="nothing answers"):
        download("tiny", tmp_path, [server.url, CLOSED])
    end.set()
    assert sorted(asked) == sorted((f"{url}/tiny/hparams.json", 0.05, True) for url in (server.url, CLOSED))
    assert server.log == []


def test_a_late_look_at_the_clock_is_no_negative_wait(server, tmp_path, monkeypatch):
    """As after a laptop's sleep: more time has passed than there was."""
    end, ticks = threading.Event(), itertools.chain([0], itertools.repeat(1e6))
    monkeypatch.setattr(module.requests, "head", lambda *_, **__: end.wait())
    monkeypatch.setattr(module, "time", types.SimpleNamespace(monotonic=lambda: next(ticks)))
    with pytest.raises(DownloadError, match="nothing answers"):
        download("tiny", tmp_path, [CLOSED])
    end.set()


@pytest.mark.parametrize("fails", [requests.ConnectionError, requests.ConnectTimeout, requests.ReadTimeout,
                                   requests.exceptions.ProxyError])
def test_no_answer_is_no_answer_whatever_it_is_called(tmp_path, monkeypatch, server, fails):
    def head(*_, **__):
        raise fails
    monkeypatch.setattr(module.requests, "head", head)
    with pytest.raises(DownloadError, match="nothing answers"):
        download("tiny", tmp_path)


def test_any_answer_is_one(server, tmp_path, monkeypatch):
    """A refusal (the server here knows no HEAD), and what is no certificate."""
    monkeypatch.setattr(module, "TRIES", 2)
    with pytest.raises(DownloadError, match="its certificate is not accepted"):
        download("tiny", tmp_path, [server.url.replace("http", "https")])
    assert_whole(download("tiny", tmp_path, [CLOSED, server.url]), server.files)


def test_where_only_the_checks_are_left_no_network_is_needed(server, tmp_path):
    folder = download("tiny", tmp_path)
    (folder / module.DOWNLOADING).touch()
    assert_whole(download("tiny", tmp_path, [CLOSED]), server.files)


# A server that hardly sends anything ------------------------------------------------------------------------

@pytest.mark.parametrize("first", [drips, drips_after_half])
def test_a_server_that_is_far_too_slow_is_given_up(server, tmp_path, monkeypatch, first):
    monkeypatch.setattr(module, "SLOWEST", (1000, 0.05))
    monkeypatch.setattr(module, "TRIES", 2)
    server.faults = {DATA: itertools.chain([first], itertools.repeat(drips))}
    fails_then_completes(server, tmp_path, "it is too slow")
    assert not server.nobody_hung_up


def test_a_slow_server_is_waited_for_as_long_as_it_goes_on(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SLOWEST", (1000, 0.05))
    server.faults = {DATA: iter([trickles])}
    assert_whole(download("tiny", tmp_path), server.files)
    assert server.log[-1] == (DATA, None)       # in one go


# What lies where the files shall be -------------------------------------------------------------------------

@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("file", [f"{DATA}.part", "hparams.json.part", module.DOWNLOADING])
@pytest.mark.parametrize("kind", ["link", "link to nowhere", "pipe", "folder"])
def test_nothing_is_written_through_a_link_or_into_a_pipe(server, tmp_path, file, kind):
    (tmp_path / "tiny").mkdir()
    mine, path = tmp_path / "mine", tmp_path / "tiny" / file
    if kind == "link":
        mine.write_bytes(b"precious")
    if "link" in kind:
        path.symlink_to(mine)
    else:
        os.mkfifo(path) if kind == "pipe" else path.mkdir()
    with pytest.raises(DownloadError, match=f"{re.escape(str(path))} is no ordinary file; delete it"):
        download("tiny", tmp_path)
    assert server.log == [] and (mine.read_bytes() == b"precious" if kind == "link" else not mine.exists())
    path.rmdir() if kind == "folder" else path.unlink()
    assert_whole(download("tiny", tmp_path), server.files)


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="asks Linux for the mappings")
def test_a_file_is_no_longer_mapped_when_it_is_deleted(server, tmp_path, monkeypatch):
    """Windows deletes no file that is."""
    unlink, deleted = Path.unlink, []

    def checked(path, **kwargs):
        deleted.append(path.name)
        assert str(path) not in Path("/proc/self/maps").read_text()
        unlink(path, **kwargs)
    server.faults = {DATA: iter([flipped])}
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", checked)
        with pytest.raises(DownloadError, match="does not match its checksum"):
            download("tiny", tmp_path)
    assert DATA in deleted
    assert_whole(download("tiny", tmp_path), server.files)


def test_a_file_of_the_wrong_length_is_named_and_kept(server, tmp_path):
    folder = download("tiny", tmp_path)
    (folder / "encoder.json").write_bytes(b"mine")
    (folder / "vocab.bpe").unlink()
    server.log.clear()
    for _ in range(2):
        with pytest.raises(DownloadError,
                           match="encoder.json has 4 bytes and should have 30000; delete it and start again"):
            download("tiny", tmp_path)
    assert (folder / "encoder.json").read_bytes() == b"mine" and server.log == []
    (folder / "encoder.json").unlink()
    assert_whole(download("tiny", tmp_path), server.files)
    assert [file for file, _ in server.log] == ["encoder.json", "vocab.bpe"]


def test_check_names_a_file_that_was_damaged_later(server, tmp_path):
    folder = download("tiny", tmp_path)
    for file in "encoder.json", DATA, INDEX:
        data = bytearray(server.files[file])
        data[20] ^= 1
        (folder / file).write_bytes(data)
        with pytest.raises(DownloadError, match=f"{file}.*delete it"):
            check("tiny", tmp_path)
        (folder / file).write_bytes(server.files[file])
    check("tiny", tmp_path)


def test_a_damaged_file_that_was_there_before_is_named_and_kept(server, tmp_path):
    folder = download("tiny", tmp_path)
    (folder / "vocab.bpe").unlink()
    (folder / DATA).write_bytes(bytes(len(server.files[DATA])))
    with pytest.raises(DownloadError, match="tensor.*checksum.*delete it"):
        download("tiny", tmp_path)
    assert (folder / DATA).read_bytes() == bytes(len(server.files[DATA]))
    assert not is_complete("tiny", tmp_path)
    (folder / DATA).unlink()
    assert_whole(download("tiny", tmp_path), server.files)


def test_disk_space_is_asked_for_before_the_first_byte(server, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    total = sum(map(len, server.files.values()))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=total - 1))
    with pytest.raises(DownloadError, match="GB free"):
        download("tiny", tmp_path)
    assert server.log == []
    # what is there need not be found room for
    (tmp_path / "tiny" / f"{DATA}.part").write_bytes(server.files[DATA][:1])
    assert_whole(download("tiny", tmp_path), server.files)


def test_a_folder_that_cannot_be_written(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadError, match="cannot be written .*; choose a folder that you may write to"):
        download("tiny", tmp_path / "file")


@pytest.mark.parametrize("reason", ["ENOSPC", "EDQUOT", "EFBIG", "EACCES", "EPERM", "EROFS"])
def test_more_space_is_asked_for_only_where_there_is_too_little(server, tmp_path, reason, monkeypatch):
    number = getattr(errno, reason)

    def fails(*_, **__):
        raise OSError(number, os.strerror(number))
    monkeypatch.setattr(Path, "mkdir", fails)
    with pytest.raises(DownloadError, match=re.escape(os.strerror(number))) as error:
        download("tiny", tmp_path)
    assert ("free some space" in str(error.value)) == (reason in ("ENOSPC", "EDQUOT", "EFBIG"))
    assert ("you may write to" in str(error.value)) == (reason in ("EACCES", "EPERM", "EROFS"))
    assert "--models_dir" in str(error.value)


def test_unknown_name():
    with pytest.raises(DownloadError, match="'125M'.*124M, 355M, 774M, 1558M, distilgpt2"):
        download("125M")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_in_bytes_on_a_terminal_only(server, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    download("tiny", tmp_path / "1")
    assert sys.stderr.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", Terminal())
    # with a part that was there, a cut, a restart from zero and a damaged file, the bar still ends at the sum
    (tmp_path / "2" / "tiny").mkdir(parents=True)
    (tmp_path / "2" / "tiny" / f"{INDEX}.part").write_bytes(server.files[INDEX][:50])
    (tmp_path / "2" / "tiny" / f"{DATA}.part").write_bytes(server.files[DATA][:90_000])
    server.faults = {DATA: iter([cut(100_000), ignores_range]), "encoder.json": iter([wrong_md5])}
    download("tiny", tmp_path / "2")
    total = sum(map(len, server.files.values()))
    assert re.search(rf"tiny: 100%\|.*\| {total / 1024:.0f}k/{total / 1024:.0f}k", sys.stderr.getvalue())
    assert not re.search(r"1[0-9][1-9]%", sys.stderr.getvalue())


# Other processes: a full disk, Ctrl-C, kill, two at once ----------------------------------------------------

PROGRAM = """
import json, sys
sys.path.insert(0, {root!r})
from loading import download
download.MODELS, download.WAIT, download.TIMEOUT = json.loads({table!r}), 0.01, (1, 20)
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
def test_a_full_disk(server, tmp_path):
    """The system refuses to let a file grow beyond 100,000 bytes, in the middle of a write."""
    process = start(tmp_path, "import resource as r\nr.setrlimit(r.RLIMIT_FSIZE, (100_000, 100_000))")
    out, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert re.fullmatch(".*tiny cannot be written .File too large.; free some space.*\n", err), err
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


def test_who_waited_for_another_program_does_not_check_the_tensors_again(server, tmp_path, monkeypatch):
    """In two threads, which the lock keeps apart as it does programs: 6 GB are not read twice."""
    gate, checked, check_tensors = Gate(), [], module.check_tensors
    monkeypatch.setattr(module, "check_tensors",
                        lambda folder: (checked.append(folder), check_tensors(folder)))
    server.faults = {DATA: iter([gate])}
    threads = [threading.Thread(target=download, args=("tiny", tmp_path)) for _ in range(2)]
    waiting = threading.Event()
    monkeypatch.setattr(module, "print", lambda *_, **__: waiting.set(), raising=False)
    threads[0].start()
    assert gate.reached.wait(20)
    threads[1].start()
    assert waiting.wait(20)
    gate.open.set()
    for thread in threads:
        thread.join(20)
    assert len(checked) == 1
    assert_whole(tmp_path / "tiny", server.files)


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


def test_killed_between_the_last_file_and_its_checksums(server, tmp_path):
    """All files have their names, the lock is still there: not complete until the tensors are checked."""
    folder = download("tiny", tmp_path)
    (folder / module.DOWNLOADING).touch()
    assert not is_complete("tiny", tmp_path)
    server.log.clear()
    assert_whole(download("tiny", tmp_path), server.files)
    assert server.log == []
    (folder / module.DOWNLOADING).touch()
    (folder / DATA).write_bytes(bytes(len(server.files[DATA])))
    with pytest.raises(DownloadError, match="checksum.*delete it"):
        download("tiny", tmp_path)
    assert not is_complete("tiny", tmp_path)


@pytest.mark.long
def test_many_programs_killed_at_random(server, tmp_path):
    """Six programs at a time on one folder, killed at random, and a server that fails at random."""
    rng = random.Random(0)
    wrong = [None, None, cut(30_000), answers(500), cut(0), hangs_up, wrong_md5, ignores_range, error_page]
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


@pytest.mark.parametrize("name, n, n_layer", SIZES)
def test_the_index_in_the_table_is_as_long_as_what_we_write(name, n, n_layer):
    """Sizes and offsets are stored in as many bytes as they need, so the true ones are written."""
    shapes = {"wte": [50257, n], "wpe": [1024, n], "ln_f/g": [n], "ln_f/b": [n]}
    for i in range(n_layer):
        for part, shape in {"ln_1/g": [n], "ln_1/b": [n], "ln_2/g": [n], "ln_2/b": [n],
                            "attn/c_attn/w": [1, n, 3 * n], "attn/c_attn/b": [3 * n],
                            "attn/c_proj/w": [1, n, n], "attn/c_proj/b": [n],
                            "mlp/c_fc/w": [1, n, 4 * n], "mlp/c_fc/b": [4 * n],
                            "mlp/c_proj/w": [1, 4 * n, n], "mlp/c_proj/b": [n]}.items():
            shapes[f"h{i}/{part}"] = shape
    message, offset, entries = checkpoint.to_message, 0, [(b"", bytes.fromhex("08011a020801"))]
    for part, shape in sorted(shapes.items()):
        size, dims = 4 * math.prod(shape), message(*((0x12, message((0x08, d))) for d in shape))
        value = message((0x08, 1), (0x12, dims), (0x20, offset), (0x28, size), (0x35, b"1234"))
        entries.append((f"model/{part}".encode(), value))
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
