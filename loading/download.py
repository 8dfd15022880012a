"""A model's name -> a folder with all of its files, complete and checked.

    python -m loading.download 124M              # from Python: download("124M") -> Path("models/124M")

A file is written as NAME.part; a second start continues where the first one stopped (HTTP Range).  It gets
its name only when its length and the checksum in the table below are right.  If the table has no checksum,
TensorFlow's own checksum of every tensor is compared, at the end.  Until all that is done, the folder holds a
file download.lock and does not count as complete.  The same file is the lock that makes a second program
wait; the system releases it when its owner ends, in whatever way, so it cannot go stale.

    an address fails (cut, too slow, 5xx)         again after 1, 2, 4 seconds; endlessly while bytes arrive
    it has something else (404, another length)   the next address; also if it cannot be reached at all
    the checksum is wrong                         once more from the start, then the next address

But:
- No existing file is overwritten, but for one that appears just as its download ends: a file of the wrong
  length under its final name is an error that names it.
- A server that sends another length, or cannot go on where it was asked to, makes the .part start anew.
- A folder that has all files is judged by their lengths, wherever they come from, because reading 6 GB at
  every start is slow; `python -m loading.download 124M` reads them all.
- The graph (.meta) and the `checkpoint` file are not downloaded: no reader here needs them.
"""
import contextlib
import hashlib
import json
import os
import queue
import re
import shutil
import sys
import threading
import time
from pathlib import Path

import requests
from tqdm import tqdm

import console
from loading.checkpoint import CheckpointError, each_tensor, read_index

OPENAI = ("https://openaipublic.blob.core.windows.net/gpt-2/models",
          "https://f001.backblazeb2.com/file/LLMs-from-scratch/gpt2")
DISTILGPT2 = "https://huggingface.co/distilbert/distilgpt2/resolve/2290a62682d06624634c1f46a6ad5be0f47f38aa"
VOCABULARY = (1042301, "sha256:196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783")
MERGES = (456318, "sha256:1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5")


def openai(size, n_embd, n_head, n_layer, index, data, checksum=None):
    """One of OpenAI's models; index, data: the bytes of these two files; checksum: the data's."""
    sizes = {"n_vocab": 50257, "n_ctx": 1024, "n_embd": n_embd, "n_head": n_head, "n_layer": n_layer}
    hparams = (json.dumps(sizes, indent=2) + "\n").encode()     # as in OpenAI's file
    return {"urls": [f"{base}/{size}" for base in OPENAI],
            "files": {"hparams.json": (len(hparams), f"sha256:{hashlib.sha256(hparams).hexdigest()}"),
                      "encoder.json": VOCABULARY, "vocab.bpe": MERGES, "model.ckpt.index": (index, None),
                      "model.ckpt.data-00000-of-00001": (data, checksum)}}


# name: the addresses of its folder, in the order in which they are tried, and its files, each with its size
# in bytes and its checksum, if known.  The sizes of 124M, 355M and distilgpt2 are as reported by others;
# those of 774M and 1558M follow from the shapes of the tensors and the format.
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
TRIES = 4                               # at one address, without progress
WAIT = 1.0                              # seconds before the second try; doubled before each further one
PATIENCE = 10, 30                       # seconds: without a connection; without CHUNK bytes of an answer
CHUNK = 1 << 14                         # bytes


class DownloadError(ValueError):
    """One sentence: what could not be downloaded, why, what to do."""


class Elsewhere(Exception):
    """This address does not have the file: trying again there would not help."""


class Cut(Exception):
    """Something went wrong on the way: trying again may help."""


class Damaged(Exception):
    """What has arrived is not the file, or not its beginning."""


def download(name, models_dir="models"):
    """Returns the folder models_dir/name, complete; downloads what is missing.

    Raises DownloadError.
    """
    if name not in MODELS:
        raise DownloadError(f"there is no model {name!r} to download; there are {', '.join(MODELS)}")
    folder = Path(models_dir) / name
    if is_complete(name, models_dir):
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        refuse_others(name, folder)
        with only_one(folder / DOWNLOADING):
            if not is_complete(name, models_dir):               # it may be, after waiting for another
                download_missing(name, folder)
            forget(folder / DOWNLOADING)
        forget(folder / DOWNLOADING)                            # Windows keeps a file until it is closed
    except OSError as error:
        raise DownloadError(f"{folder} cannot be written ({error.strerror or error}): free some space or "
                            "choose another folder with --models_dir, and start again") from None
    return folder


def is_complete(name, models_dir="models"):
    """True if every file of the model is there, and no download is running or was interrupted.

    Raises DownloadError for a file of the wrong length.
    """
    folder = Path(models_dir) / name
    return not missing(name, folder) and not (folder / DOWNLOADING).exists()


def missing(name, folder):
    """The files of the model that are not there.  Raises DownloadError for a file of the wrong length."""
    files = []
    for file, (size, _) in MODELS[name]["files"].items():
        if not os.path.lexists(folder / file):
            files.append(file)
        elif size_of(folder / file) != size:
            raise DownloadError(f"{folder / file} has {size_of(folder / file)} bytes and should have {size}; "
                                "delete it and start again")
    return files


def refuse_others(name, folder):
    """Raises DownloadError for a download.lock or a .part that this program has not made."""
    held = folder / DOWNLOADING
    for path in [held, *(part_of(folder / file) for file in MODELS[name]["files"])]:
        if path.is_symlink() or path.exists() and not path.is_file() or path == held and size_of(path):
            raise DownloadError(f"{path} was not made by this program: move it away and start again")


def check(name, models_dir="models"):
    """Read every file of a complete model, and raise DownloadError for the first whose checksum is wrong."""
    check_digests(name, Path(models_dir) / name)
    check_tensors(Path(models_dir) / name)


def check_digests(name, folder):
    """Compare the checksums of the files that are there with the table's."""
    for file, (_, checksum) in MODELS[name]["files"].items():
        if (folder / file).exists() and not has_digest(folder / file, checksum):
            raise DownloadError(f"{folder / file} is damaged; delete it and start again")


def check_tensors(folder):
    """Compare TensorFlow's checksum of every tensor.  (Of safetensors the table has one for the file.)"""
    try:
        if (folder / "model.ckpt.index").exists():
            for _ in each_tensor(folder / "model.ckpt", verify=True):
                pass
    except CheckpointError as error:
        raise DownloadError(f"{error}: delete it, if it is still there, and start again") from None


def download_missing(name, folder):
    """Check the files that are there, and download each that is missing; then check all tensors."""
    check_digests(name, folder)
    todo = {file: MODELS[name]["files"][file] for file in missing(name, folder)}
    needed = sum(size - size_of(part_of(folder / file)) for file, (size, _) in todo.items())
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DownloadError(f"{name} needs {needed / 1e9:.2f} GB more and {folder} has {free / 1e9:.2f} GB "
                            "free; free some space or choose another folder with --models_dir")
    for file, (size, checksum) in todo.items():
        download_file(folder / file, [f"{url}/{file}" for url in MODELS[name]["urls"]], size, checksum)
        if file.endswith(".index"):                             # now: not after gigabytes that it condemns
            try:
                read_index(folder / file)
            except CheckpointError as error:
                (folder / file).unlink()
                raise DownloadError(f"{error}; start again") from None
    try:
        check_tensors(folder)
    except DownloadError:
        try:
            check_tensors(folder)                               # once more: somebody may have touched a file
        except DownloadError:
            for file in todo:                                   # not those that were there before
                (folder / file).unlink()
            raise


def download_file(path, urls, size, checksum):
    """Download a file from the first address that has it; it gets its name when it is right."""
    part, reasons = part_of(path), []
    for url in urls:
        tries, best = 0, size_of(part)
        while tries < TRIES:
            try:
                fetch(url, part, size)
                if not has_digest(part, checksum):
                    raise Damaged("its checksum is wrong")
                if os.path.lexists(path):
                    raise DownloadError(f"{path} appeared during the download: move it away and start again")
                os.replace(part, path)
                return
            except Elsewhere as error:
                reason = error
                break
            except Damaged as error:
                reason, tries = error, tries + 2                    # once more, then the next address
                part.unlink(missing_ok=True)
            except Cut as error:
                reason, tries = error, 1 if size_of(part) > best + size // 100 else tries + 1
            best = max(best, size_of(part))                     # else one that restarts would never end
            if tries < TRIES:
                print(f"{url}: {reason}; trying again", file=sys.stderr)
                time.sleep(WAIT * 2 ** (tries - 1))
        reasons.append(f"{url} ({reason})")
    kept = f" ({size_of(part)} bytes of it are kept)" * (size_of(part) > 0)
    raise DownloadError(f"{path.name} could not be downloaded from {' nor from '.join(reasons)}; check the "
                        f"connection and start again{kept}, or take demo-draft and demo-target, which need "
                        "no network")


def fetch(url, part, size):
    """One request: append what is missing to the .part."""
    there = size_of(part) if size_of(part) <= size else 0
    if there == size:
        return
    pieces = answer_of(url, there)
    try:
        answer = next(pieces)
    except Cut as error:
        raise (error if there else Elsewhere(str(error))) from None
    start = first_byte(answer, there, size)
    bar = tqdm(total=size, initial=start, unit="B", unit_scale=True, unit_divisor=1024, desc=part.stem,
               leave=False, disable=None)                       # only if standard error is a terminal
    with open(part, "ab") as file, bar:
        file.truncate(start)
        for piece in pieces:
            file.write(piece)
            bar.update(len(piece))
            if file.tell() > size:
                break
        if file.tell() < size and answer.status_code == 206:    # the rest has to be requested
            raise Cut("it sent a part of the file")
        if file.tell() != size:                                 # the server says that this is all
            done = file.tell()
            file.truncate(start)
            raise Elsewhere(f"it sent {done} bytes instead of {size}")


def first_byte(answer, there, size):
    """Where in the file the bytes of this answer begin.  Raises an exception if it is not the file."""
    status = answer.status_code
    if status >= 500 or status in (408, 429):
        raise Cut(f"it answers {status}")
    if status == 206:
        sent = answer.headers.get("Content-Range", "")
        match = re.fullmatch(rf"bytes (\d+)-\d+/{size}", sent)
        if not match or int(match[1]) > there:
            raise Damaged(f"it sends {sent!r} for bytes {there}- of {size}")
        return int(match[1])
    if status == 416:                                           # it has fewer bytes than we have
        raise Damaged("it answers 416")
    if status != 200:
        raise Elsewhere(f"it answers {status}")
    length = answer.headers.get("Content-Length", str(size))
    if length != str(size):                                     # an error page, often
        raise Elsewhere(f"it has a file of {length} bytes instead of {size}")
    return 0                                                    # from the beginning, whatever was asked for


def answer_of(url, start):
    """The answer, then its bytes from `start` on, in pieces; Cut if one of them fails or takes too long.

    They come from another thread, because parts of a request have no time limit: looking up a name, or an
    answer that arrives a byte now and then.
    """
    def ask():
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        with contextlib.suppress(queue.Full):                   # nobody is interested any more
            try:
                with requests.get(url, headers=headers, stream=True, timeout=PATIENCE) as answer:
                    items.put(answer)
                    for piece in answer.iter_content(CHUNK):
                        items.put(piece, timeout=PATIENCE[1])
                items.put(None, timeout=PATIENCE[1])
            except Exception as error:
                items.put(error, timeout=PATIENCE[1])

    items = queue.Queue(64)
    threading.Thread(target=ask, daemon=True).start()
    while True:
        try:
            item = items.get(timeout=PATIENCE[1])
        except queue.Empty:
            raise Cut("no answer, or too slow") from None
        if isinstance(item, Exception):
            raise Cut(f"the connection failed: {type(item).__name__}")
        if item is None:
            return
        yield item


def part_of(path):
    return path.with_name(path.name + ".part")


def size_of(path):
    return path.stat().st_size if path.exists() else 0


def has_digest(path, checksum):
    """True if the file has this checksum ("md5:..." or "sha256:..."), or the checksum is not known (None)."""
    if checksum is None:
        return True
    kind, digest = checksum.split(":")
    hasher = hashlib.new(kind, usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            hasher.update(block)
    return hasher.hexdigest() == digest


@contextlib.contextmanager
def only_one(path):
    """Hold the lock on this file; wait while another program does."""
    with open(path, "ab") as file:
        if not lock(file):
            print(f"another program is downloading to {path.parent}: waiting for it", file=sys.stderr)
            while not lock(file):
                time.sleep(0.1)
        yield


def lock(file):
    """True if the lock is ours now, until the file is closed or the program ends."""
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


def main(name, models_dir="models"):
    """Download a model, or check one that is there.  An interrupted download continues where it stopped.

    Args:
        name: 124M, 355M, 774M, 1558M or distilgpt2
        models_dir: where models are kept
    """
    folder = download(name, models_dir)
    check(name, models_dir)
    print(folder)


if __name__ == "__main__":
    sys.exit(console.run(main))
