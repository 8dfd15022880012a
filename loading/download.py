"""A model's name -> a folder with every file of it, whole and checked.

    python -m loading.download 124M              # from Python: download("124M") -> Path("models/124M")

A file is written as NAME.part, which a second start continues where the first one stopped (HTTP Range); it gets its name only when
its length, the server's Content-MD5 and the checksum in the table below are right. At the end TensorFlow's own checksum of every
tensor is looked at. While all that lasts, the folder holds a file download.lock and does not count as complete. The same file is
the lock that makes a second program wait; the system gives it free when its owner ends, however it ends, so it cannot go stale.

    address fails (no connection, cut, 5xx)     again, after 1, 2, 4, 8 seconds; as long as bytes arrive, as often as needed
    address has something else (404, length)    the next address
    checksum is wrong                           throw the .part away; once more from the start, then the next address

But:
- Nobody's files are overwritten: a file of the wrong length under its final name is an error that names it.
- A folder that was complete once is judged by the lengths of its files, because reading 6 GB at every start is slow;
  `python -m loading.download 124M` reads them.
- The graph (.meta) and the `checkpoint` file are not downloaded: no reader here needs them.
"""
import argparse
import base64
import contextlib
import hashlib
import os
import shutil
import sys
import time
from pathlib import Path

import requests
from tqdm import tqdm

from loading.checkpoint import CheckpointError, read_tensorflow

OPENAI = ("https://openaipublic.blob.core.windows.net/gpt-2/models", "https://f001.backblazeb2.com/file/LLMs-from-scratch/gpt2")
DISTILGPT2 = "https://huggingface.co/distilbert/distilgpt2/resolve/2290a62682d06624634c1f46a6ad5be0f47f38aa"
VOCABULARY = (1042301, "sha256:196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783")
MERGES = (456318, "sha256:1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5")


def _openai(size, hparams, index, data, checksum=None):
    return {"urls": [f"{base}/{size}" for base in OPENAI],
            "files": {"hparams.json": (hparams, None), "encoder.json": VOCABULARY, "vocab.bpe": MERGES,
                      "model.ckpt.index": (index, None), "model.ckpt.data-00000-of-00001": (data, checksum)}}


# name: the addresses of its folder, in the order they are tried, and its files with their bytes and known checksums.
# The bytes of 774M and 1558M follow from the shapes of their tensors and the format; others have seen those of 124M, 355M and
# distilgpt2 on the servers.
MODELS = {
    "124M": _openai("124M", 90, 5215, 497759232, "md5:f48b9cf1a525a603be52258f69bf9162"),
    "355M": _openai("355M", 91, 10399, 1419292672),
    "774M": _openai("774M", 91, 15535, 3096120320),
    "1558M": _openai("1558M", 91, 20724, 6230444800),
    "distilgpt2": {
        "urls": [DISTILGPT2],
        "files": {"config.json": (762, "sha256:4ec5947c1d59fee6212cdf3b0ec1a53eac02092554c5ff0a733488cbd2c64f3a"),
                  "vocab.json": VOCABULARY, "merges.txt": MERGES,
                  "model.safetensors": (352824413, "sha256:e1ff18884359fe8beb795a5f414feb85a6ce3d929ad019c0d958c039d2b94a1b")}},
}

DOWNLOADING = "download.lock"
TRIES = 5  # at one address, without progress
WAIT = 1.0  # seconds before the second try; doubled before each further one
TIMEOUT = 10, 30  # seconds without a connection, without a byte
CHUNK = 1 << 14  # bytes; what a cut connection loses


class DownloadError(ValueError):
    """One sentence: what could not be downloaded, why, what to do."""


class _Elsewhere(Exception):
    """This address does not have the file: trying again there would not help."""


class _Damaged(Exception):
    """The whole file arrived, and a checksum is wrong."""


def download(name, models_dir="models", base_urls=None):
    """Returns the folder models_dir/name, complete; downloads what is missing.

    base_urls   addresses in place of the known ones; the files are expected at BASE/NAME/FILE
    """
    if name not in MODELS:
        raise DownloadError(f"there is no model {name!r} to download; there are {', '.join(MODELS)}")
    folder = Path(models_dir) / name
    urls = MODELS[name]["urls"] if base_urls is None else [f"{base}/{name}" for base in base_urls]
    try:
        if not is_complete(name, models_dir):
            folder.mkdir(parents=True, exist_ok=True)
            with _only_one(folder / DOWNLOADING):
                if not is_complete(name, models_dir):  # it is, if we waited for the program that did it
                    _download_missing(name, folder, urls)
            (folder / DOWNLOADING).unlink(missing_ok=True)
    except OSError as error:
        raise DownloadError(f"{folder} cannot be written ({error.strerror or error}); free some space or choose another folder "
                            "for the models, and start again: what has arrived is kept") from None
    return folder


def is_complete(name, models_dir="models"):
    """Every file of the model is there, and no download is going on or was interrupted; a file of a wrong length is an error."""
    folder = Path(models_dir) / name
    return not (folder / DOWNLOADING).exists() and not _missing(name, folder)


def check(name, models_dir="models"):
    """Read every file of a complete model, and raise DownloadError for the first whose checksum is wrong."""
    folder = Path(models_dir) / name
    for file, (_, checksum) in MODELS[name]["files"].items():
        if checksum and not _has_digest(folder / file, checksum):
            raise DownloadError(f"{folder / file} is damaged; delete it and start again")
    _check_tensors(folder)


def _missing(name, folder):
    """-> the files of the model that are not there; a file with a wrong length is an error"""
    missing = []
    for file, (size, _) in MODELS[name]["files"].items():
        try:
            found = (folder / file).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            missing.append(file)
        else:
            if found != size:
                raise DownloadError(f"{folder / file} has {found} bytes and should have {size}; delete it and start again")
    return missing


def _download_missing(name, folder, urls):
    files, missing = MODELS[name]["files"], _missing(name, folder)
    total = sum(files[file][0] for file in missing)
    there = sum(_size(_part(folder / file)) for file in missing)
    free = shutil.disk_usage(folder).free
    if free < total - there:
        raise DownloadError(f"{name} needs {(total - there) / 1e9:.2f} GB more and {folder} has {free / 1e9:.2f} GB free; "
                            "free some space or choose another folder for the models")
    # a bar in bytes, only where standard error is a terminal
    with tqdm(total=total, initial=there, unit="B", unit_scale=True, unit_divisor=1024, desc=name, disable=None) as bar:
        for file in missing:
            _download_file(folder / file, [f"{url}/{file}" for url in urls], *files[file], bar)
    try:
        _check_tensors(folder)
    except DownloadError:
        for file in missing:  # not those that were there before
            (folder / file).unlink()
        raise


def _check_tensors(folder):
    """TensorFlow's checksum of every tensor; the safetensors have one of the whole file, in the table."""
    if (folder / "model.ckpt.index").exists():
        try:
            read_tensorflow(folder / "model.ckpt", verify=True)
        except CheckpointError as error:
            raise DownloadError(f"{error}: delete it, if it is still there, and start again") from None


def _download_file(path, urls, size, checksum, bar):
    """The file from the first address that has it, under its name when it is right."""
    reasons = []
    for url in urls:
        tries, damaged = 0, 0
        while tries < TRIES and damaged < 2:
            if tries:
                tqdm.write(f"{url}: {reason}; trying again", file=sys.stderr)
                time.sleep(WAIT * 2 ** (tries - 1))
            before = _size(_part(path))
            try:
                _fetch(url, _part(path), size, checksum, bar)
                os.replace(_part(path), path)
                return
            except _Elsewhere as error:
                reason = str(error)
                break
            except _Damaged:
                reason, tries, damaged = "the checksum is wrong", 1, damaged + 1
                bar.update(-_size(_part(path)))
                _part(path).unlink()
            except requests.RequestException as error:
                reason = _reason(error)
                tries = 1 if _size(_part(path)) >= before + max(1, size // 100) else tries + 1
        reasons.append(f"{url} ({reason})")
    raise DownloadError(f"{path.name} could not be downloaded from {' nor from '.join(reasons)}; check the connection and start "
                        "again: what has arrived is kept")


def _fetch(url, part, size, checksum, bar):
    """One request: append to the .part what it lacks, then check it."""
    there = _size(part)
    # One byte at least is asked for, because the Content-MD5 comes with the answer. A small file is not worth resuming.
    start = min(there, size - 1) if CHUNK < size >= there else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        start = _start(answer, start, size)
        with open(part, "ab") as file:
            file.truncate(start)
            bar.update(start - there)
            done = start
            for chunk in answer.iter_content(CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
                done += len(chunk)
                if done > size:
                    break
            if done < size and "Content-Length" in answer.headers:
                raise requests.exceptions.ChunkedEncodingError
            if done != size:  # the server says that this was all, so it was something else
                file.truncate(start)
                bar.update(start - done)
                raise _Elsewhere(f"it sent {done} bytes instead of {size}")
    if checksum and not _has_digest(part, checksum):
        raise _Damaged
    # after a Range, Content-MD5 is that of the whole file on some servers, and that of the bytes sent on others
    content_md5 = _content_md5(answer.headers)
    if content_md5 and not any(_has_digest(part, content_md5, begin) for begin in {0, start}):
        raise _Damaged


def _start(answer, start, size):
    """Where the bytes of this answer begin in the file; an exception if it is not the file."""
    status = answer.status_code
    if status >= 500 or status in (408, 429):
        raise requests.HTTPError(f"the server answers {status}")
    if status == 206:
        sent = answer.headers.get("Content-Range", "nothing")
        if not (sent.startswith(f"bytes {start}-") and sent.endswith(f"/{size}")):
            raise _Elsewhere(f"it sends {sent} for bytes {start}-{size - 1}/{size}")
        return start
    if status != 200:  # also 416: it has fewer bytes than we
        raise _Elsewhere(f"it answers {status}")
    length = answer.headers.get("Content-Length", str(size))
    if length != str(size):  # an error page, often
        raise _Elsewhere(f"it has a file of {length} bytes instead of {size}")
    return 0  # from the beginning, whatever we asked for


def _reason(error):
    """In a few words; what requests says fills three lines."""
    kinds = {requests.exceptions.SSLError: "its certificate is not accepted", requests.Timeout: "no answer",
             requests.ConnectionError: "no connection", requests.exceptions.ChunkedEncodingError: "the connection was cut"}
    return next((words for kind, words in kinds.items() if isinstance(error, kind)), str(error))


def _part(path):
    return path.with_name(path.name + ".part")


def _size(path):
    return path.stat().st_size if path.exists() else 0


def _content_md5(headers):
    """{"Content-MD5": "9Iuc8aUlpgO+UiWPab+RYg=="} -> "md5:f48b9cf1..", or None; on Azure, answers to a Range have another header"""
    with contextlib.suppress(ValueError):
        digest = base64.b64decode(headers.get("x-ms-blob-content-md5") or headers.get("Content-MD5", ""))
        return f"md5:{digest.hex()}" if len(digest) == 16 else None


def _has_digest(path, checksum, begin=0):
    """checksum: "md5:..." or "sha256:...", of the file from byte begin on"""
    kind, digest = checksum.split(":")
    hasher = hashlib.new(kind, usedforsecurity=False)
    with open(path, "rb") as file:
        file.seek(begin)
        while block := file.read(1 << 20):
            hasher.update(block)
    return hasher.hexdigest() == digest


@contextlib.contextmanager
def _only_one(path):
    """Hold the lock on this file; wait while another program does."""
    with open(path, "ab") as file:
        told = False
        while not _lock(file):
            if not told:
                print(f"another program is downloading to {path.parent}: waiting for it", file=sys.stderr)
                told = True
            time.sleep(0.1)
        yield


def _lock(file):
    """-> whether the file is ours now; until it is closed or the program ends"""
    try:
        import fcntl
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # Windows
        import msvcrt
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
    except BlockingIOError:
        return False
    return True


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
