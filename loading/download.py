"""A model's name -> a folder with every file of it, whole and checked.

    python -m loading.download 124M              # from Python: download("124M") -> Path("models/124M")

A file is written as NAME.part, which a second start continues where the first one stopped (HTTP Range).  It
gets its name only when its length, the server's Content-MD5 and the checksum in the table below are right.
Where the table has none, TensorFlow's own checksum of every tensor is looked at, at the end.  While all that
lasts, the folder holds a file download.lock and does not count as complete.  The same file is the lock that
makes a second program wait; the system releases it when its owner ends, in whatever way, so it cannot go
stale.

    no address answers                            an error, within ten seconds
    an address fails (cut, too slow, 5xx)         again after 1, 2, 4, 8 seconds; without end if bytes arrive
    it has something else (404, another length)   the next address
    the checksum is wrong                         once more from the start, then the next address

But:
- Nobody's files are overwritten: a file of the wrong length under its final name is an error that names it.
- A folder that was complete once is judged by the lengths of its files, because reading 6 GB at every start
  is slow; `python -m loading.download 124M` reads them.
- The graph (.meta) and the `checkpoint` file are not downloaded: no reader here needs them.
"""
import argparse
import base64
import contextlib
import errno
import hashlib
import json
import os
import queue
import shutil
import stat
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import requests
import urllib3
from tqdm import tqdm

from loading.checkpoint import CheckpointError, read_tensorflow

OPENAI = ("https://openaipublic.blob.core.windows.net/gpt-2/models",
          "https://f001.backblazeb2.com/file/LLMs-from-scratch/gpt2")
DISTILGPT2 = "https://huggingface.co/distilbert/distilgpt2/resolve/2290a62682d06624634c1f46a6ad5be0f47f38aa"
VOCABULARY = (1042301, "sha256:196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783")
MERGES = (456318, "sha256:1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5")


def openai(size, n_embd, n_head, n_layer, index, data, checksum=None):
    """One of OpenAI's models; index, data: the bytes of these two files; checksum: of the data."""
    sizes = {"n_vocab": 50257, "n_ctx": 1024, "n_embd": n_embd, "n_head": n_head, "n_layer": n_layer}
    hparams = (json.dumps(sizes, indent=2) + "\n").encode()     # so it is written there
    return {"urls": [f"{base}/{size}" for base in OPENAI],
            "files": {"hparams.json": (len(hparams), f"sha256:{hashlib.sha256(hparams).hexdigest()}"),
                      "encoder.json": VOCABULARY, "vocab.bpe": MERGES, "model.ckpt.index": (index, None),
                      "model.ckpt.data-00000-of-00001": (data, checksum)}}


# name: the addresses of its folder, in the order in which they are tried, and its files, each with its bytes
# and the checksum that is known.  Bytes of 124M, 355M and distilgpt2: as others saw them on the servers; of
# 774M and 1558M: from the shapes of the tensors and the format.
MODELS = {
    "124M": openai("124M", 768, 12, 12, 5215, 497759232, "md5:f48b9cf1a525a603be52258f69bf9162"),
    "355M": openai("355M", 1024, 16, 24, 10399, 1419292672),
    "774M": openai("774M", 1280, 20, 36, 15535, 3096120320),
    "1558M": openai("1558M", 1600, 25, 48, 20724, 6230444800),
    "distilgpt2": {
        "urls": [DISTILGPT2],
        "files": {
            "config.json": (762, "sha256:4ec5947c1d59fee6212cdf3b0ec1a53eac02092554c5ff0a733488cbd2c64f3a"),
            "vocab.json": VOCABULARY, "merges.txt": MERGES,
            "model.safetensors": (
                352824413, "sha256:e1ff18884359fe8beb795a5f414feb85a6ce3d929ad019c0d958c039d2b94a1b")}},
}

DOWNLOADING = "download.lock"
PATIENCE = 8                            # seconds; some address must have answered by then
TRIES = 5                               # at one address, without progress
WAIT = 1.0                              # seconds before the second try; doubled before each further one
TIMEOUT = 10, 30                        # seconds without a connection, without a byte
SLOWEST = 30_000, 30                    # bytes, seconds: an answer that brings fewer in that time is given up
CHUNK = 1 << 14                         # bytes read at once; a file that has no more is not worth resuming


class DownloadError(ValueError):
    """One sentence: what could not be downloaded, why, what to do."""


class Elsewhere(Exception):
    """This address does not have the file: trying again there would not help."""


class Damaged(Exception):
    """The whole file arrived, and a checksum is wrong."""


class Slow(requests.Timeout):
    """Bytes arrive, but hardly."""


def download(name, models_dir="models", base_urls=None):
    """Returns the folder models_dir/name, complete; downloads what is missing.

    base_urls   addresses in place of the known ones; the files are expected at BASE/NAME/FILE
    Raises DownloadError.
    """
    if name not in MODELS:
        raise DownloadError(f"there is no model {name!r} to download; there are {', '.join(MODELS)}")
    folder = Path(models_dir) / name
    urls = MODELS[name]["urls"] if base_urls is None else [f"{base}/{name}" for base in base_urls]
    try:
        if not is_complete(name, models_dir):
            if files := missing(name, folder):
                check_connection(name, [f"{url}/{files[0]}" for url in urls])
            folder.mkdir(parents=True, exist_ok=True)
            with only_one(folder / DOWNLOADING):
                if not is_complete(name, models_dir):           # it is, if we waited for who did it
                    download_missing(name, folder, urls)
                forget(folder / DOWNLOADING)
            forget(folder / DOWNLOADING)                        # Windows keeps a file until it is closed
    except OSError as error:
        reason = error.strerror or error
        raise DownloadError(f"{folder} cannot be written ({reason}); {advice(error)}, and start again: "
                            "what has arrived is kept") from None
    return folder


def is_complete(name, models_dir="models"):
    """Whether every file of the model is there, and no download is going on or was interrupted.

    A file of a wrong length is an error.
    """
    folder = Path(models_dir) / name
    return not (folder / DOWNLOADING).exists() and not missing(name, folder)


def check(name, models_dir="models"):
    """Read every file of a complete model, and raise DownloadError for the first whose checksum is wrong."""
    folder = Path(models_dir) / name
    for file, (_, checksum) in MODELS[name]["files"].items():
        if checksum and not has_digest(folder / file, checksum):
            raise DownloadError(f"{folder / file} is damaged; delete it and start again")
    check_tensors(folder)


def check_connection(name, urls):
    """DownloadError if none of these addresses answers; all are asked at once."""
    answers = queue.SimpleQueue()

    def ask(url):
        try:
            requests.head(url, timeout=PATIENCE)
            answers.put(True)
        except Exception as error:                              # whatever else it says, it is there
            silent = isinstance(error, requests.ConnectionError | requests.Timeout)
            answers.put(not silent or isinstance(error, requests.exceptions.SSLError))

    for url in urls:                                            # threads: a look-up knows no time limit
        threading.Thread(target=ask, args=(url,), daemon=True).start()
    until = time.monotonic() + PATIENCE
    with contextlib.suppress(queue.Empty):
        if any(answers.get(timeout=max(0, until - time.monotonic())) for _ in urls):
            return
    hosts = " or ".join(urlsplit(url).netloc for url in urls)
    raise DownloadError(f"{name} has to be downloaded, and nothing answers at {hosts}; check the connection "
                        "and start again, or take demo-draft and demo-target, which need no network")


def missing(name, folder):
    """The files of the model that are not there; a file with a wrong length is an error."""
    files = []
    for file, (size, _) in MODELS[name]["files"].items():
        try:
            found = (folder / file).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            files.append(file)
        else:
            if found != size:
                raise DownloadError(f"{folder / file} has {found} bytes and should have {size}; "
                                    "delete it and start again")
    return files


def download_missing(name, folder, urls):
    """Each missing file; then the checksums of all tensors."""
    files, todo = MODELS[name]["files"], missing(name, folder)
    for file in todo:
        check_ordinary(part_of(folder / file))
    total = sum(files[file][0] for file in todo)
    there = sum(size_of(part_of(folder / file)) for file in todo)
    free = shutil.disk_usage(folder).free
    if free < total - there:
        raise DownloadError(f"{name} needs {(total - there) / 1e9:.2f} GB more and {folder} has "
                            f"{free / 1e9:.2f} GB free; free some space or choose another folder with "
                            "--models_dir")
    # a bar in bytes, only where standard error is a terminal
    with tqdm(total=total, initial=there, unit="B", unit_scale=True, unit_divisor=1024, desc=name,
              disable=None) as bar:
        for file in todo:
            download_file(folder / file, [f"{url}/{file}" for url in urls], *files[file], bar)
    try:
        check_tensors(folder)
    except DownloadError:
        for file in todo:                                       # not those that were there before
            (folder / file).unlink()
        raise


def check_tensors(folder):
    """TensorFlow's checksum of every tensor; the safetensors have one of the whole file, in the table."""
    damage = None
    if (folder / "model.ckpt.index").exists():
        try:
            read_tensorflow(folder / "model.ckpt", verify=True)
        except CheckpointError as error:
            damage = str(error)
    if damage:                                                  # here the file is no longer mapped
        raise DownloadError(f"{damage}: delete it, if it is still there, and start again")


def download_file(path, urls, size, checksum, bar):
    """The file from the first address that has it, under its name when it is right."""
    reasons, part, reason = [], part_of(path), None
    for url in urls:
        tries, damaged = 0, 0
        while tries < TRIES and damaged < 2:
            if tries:
                tqdm.write(f"{url}: {reason}; trying again", file=sys.stderr)
                time.sleep(WAIT * 2 ** (tries - 1))
            before = size_of(part)
            try:
                fetch(url, part, size, checksum, bar)
                os.replace(part, path)
                return
            except Elsewhere as error:
                reason = str(error)
                break
            except Damaged:
                reason, tries, damaged = "the checksum is wrong", 1, damaged + 1
                bar.update(-size_of(part))
                part.unlink()
            except (ValueError, requests.TooManyRedirects):     # requests' and urllib3's ways to say it
                reason = "it leads to an address that is none"
                break
            except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
                reason = in_words(error)
                tries = 1 if size_of(part) >= before + max(1, size // 100) else tries + 1
        reasons.append(f"{url} ({reason})")
    raise DownloadError(f"{path.name} could not be downloaded from {' nor from '.join(reasons)}; check the "
                        "connection and start again: what has arrived is kept")


def fetch(url, part, size, checksum, bar):
    """One request: append to the .part what it lacks, then check it."""
    there = size_of(part)
    # One byte at least is asked for, because the Content-MD5 comes with the answer.
    start = min(there, size - 1) if CHUNK < size >= there else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        start = first_byte(answer, start, size)
        with open(part, "ab") as file:
            file.truncate(start)
            bar.update(start - there)
            done = start
            for piece in pieces(answer.raw):
                file.write(piece)
                bar.update(len(piece))
                done += len(piece)
                if done > size:
                    break
            if done < size and "Content-Length" in answer.headers:
                raise urllib3.exceptions.ProtocolError
            if done != size:                                    # the server says that this was all
                file.truncate(start)
                bar.update(start - done)
                raise Elsewhere(f"it sent {done} bytes instead of {size}")
    if checksum and not has_digest(part, checksum):
        raise Damaged
    # after a Range, Content-MD5 is that of the whole file on some servers, of the bytes sent on others
    md5 = content_md5(answer.headers)
    if md5 and not any(has_digest(part, md5, begin) for begin in {0, start}):
        raise Damaged


def first_byte(answer, start, size):
    """Where the bytes of this answer begin in the file; an exception if it is not the file."""
    status = answer.status_code
    if status >= 500 or status in (408, 429):
        raise requests.HTTPError(f"the server answers {status}")
    if status == 206:
        sent = answer.headers.get("Content-Range", "nothing")
        if not (sent.startswith(f"bytes {start}-") and sent.endswith(f"/{size}")):
            raise Elsewhere(f"it sends {sent} for bytes {start}-{size - 1}/{size}")
        return start
    if status != 200:                                           # also 416: it has fewer bytes than we
        raise Elsewhere(f"it answers {status}")
    length = answer.headers.get("Content-Length", str(size))
    if length != str(size):                                     # an error page, often
        raise Elsewhere(f"it has a file of {length} bytes instead of {size}")
    return 0                                                    # from the beginning, whatever we asked for


def pieces(raw):
    """The bytes of an answer as they arrive; Slow if fewer do than SLOWEST.

    requests' iter_content would wait until a piece is full: at two bytes a second, for hours.
    """
    read = getattr(raw, "read1", raw.read)                      # urllib3 1 has no read1
    began, arrived = time.monotonic(), 0
    while piece := read(CHUNK, decode_content=True):
        yield piece
        arrived += len(piece)
        if time.monotonic() - began > SLOWEST[1]:
            if arrived < SLOWEST[0]:
                raise Slow
            began, arrived = time.monotonic(), 0


def in_words(error):
    """What requests and urllib3 say fills three lines."""
    kinds = {requests.exceptions.SSLError: "its certificate is not accepted", Slow: "it is too slow",
             (requests.Timeout, urllib3.exceptions.TimeoutError): "no answer",
             requests.ConnectionError: "no connection",
             urllib3.exceptions.ProtocolError: "the connection was cut"}
    return next((words for kind, words in kinds.items() if isinstance(error, kind)), str(error))


def advice(error):
    """What to do where a file cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        return "free some space or choose another folder with --models_dir"
    return "choose a folder that you may write to with --models_dir"


def part_of(path):
    return path.with_name(path.name + ".part")


def size_of(path):
    return path.stat().st_size if path.exists() else 0


def check_ordinary(path):
    """DownloadError for what would lead the bytes elsewhere, or be waited for: a link, a pipe, a folder."""
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise DownloadError(f"{path} is no ordinary file; delete it and start again")


def content_md5(headers):
    """{"Content-MD5": "9Iuc8aUlpgO+UiWPab+RYg=="} -> "md5:f48b9cf1...", or None.

    On Azure, answers to a Range have another header.
    """
    with contextlib.suppress(ValueError):
        digest = base64.b64decode(headers.get("x-ms-blob-content-md5") or headers.get("Content-MD5", ""))
        return f"md5:{digest.hex()}" if len(digest) == 16 else None


def has_digest(path, checksum, begin=0):
    """Whether the checksum ("md5:..." or "sha256:...") is that of the file from byte begin on."""
    kind, digest = checksum.split(":")
    hasher = hashlib.new(kind, usedforsecurity=False)
    with open(path, "rb") as file:
        file.seek(begin)
        while block := file.read(1 << 20):
            hasher.update(block)
    return hasher.hexdigest() == digest


@contextlib.contextmanager
def only_one(path):
    """Hold the lock on this file; wait while another program does."""
    check_ordinary(path)
    with open(path, "ab") as file:
        told = False
        while not lock(file):
            if not told:
                print(f"another program is downloading to {path.parent}: waiting for it", file=sys.stderr)
                told = True
            time.sleep(0.1)
        yield


def lock(file):
    """Whether the file is ours now; until it is closed or the program ends."""
    try:
        import fcntl
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:                                         # Windows
        import msvcrt
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
    except BlockingIOError:
        return False
    return True


def forget(path):
    """Delete the file, if it can be."""
    with contextlib.suppress(OSError):
        path.unlink()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Download a model, or check one that is there.")
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("--models_dir", default="models")
    arguments = parser.parse_args()
    try:
        print(download(arguments.name, arguments.models_dir))
        check(arguments.name, arguments.models_dir)
    except DownloadError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit("interrupted; start again to continue where it stopped")
