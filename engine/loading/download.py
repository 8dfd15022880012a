"""A model's name -> a folder with all of its files, complete and checked.

    python -m engine.loading.download 124M              # from Python: download("124M") -> Path("models/124M")

A file is called NAME.part until its length and its checksum are right, and a second start continues where the
first one stopped (HTTP Range).  The table below has some checksums; for the other files those inside
TensorFlow's files are used: one for each block of an .index and one for each tensor.

Limitations:
- If a file exists, only its length is checked, because reading 6 GB at every start is slow.
  `python -m engine.loading.download 124M` checks the contents, too.
- On Windows, two programs must not download the same model at once.
- The graph (.meta) and the `checkpoint` file are not downloaded.
"""
import contextlib
import hashlib
import json
import os
import shutil
import sys
import time
from pathlib import Path

import requests
from tqdm import tqdm

from engine.loading import command_line
from engine.loading.checkpoint import need, read_arrays, read_index

OPENAI = ("https://openaipublic.blob.core.windows.net/gpt-2/models",
          "https://f001.backblazeb2.com/file/LLMs-from-scratch/gpt2")
DISTILGPT2 = "https://huggingface.co/distilbert/distilgpt2/resolve/2290a62682d06624634c1f46a6ad5be0f47f38aa"
VOCABULARY = (1042301, "sha256:196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783")
MERGES = (456318, "sha256:1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5")


def openai(size, hub, once, n_embd, n_head, n_layer, index, data, checksum=None):
    """One of OpenAI's models.  once: its name when it was published; index, data: bytes in its two model.ckpt
    files; checksum: that of the data."""
    sizes = {"n_vocab": 50257, "n_ctx": 1024, "n_embd": n_embd, "n_head": n_head, "n_layer": n_layer}
    hparams = (json.dumps(sizes, indent=2) + "\n").encode()     # as in OpenAI's file
    return {"names": [hub, f"openai-community/{hub}", size.lower(), once],
            "urls": [f"{base}/{size}" for base in OPENAI],
            "files": {"hparams.json": (len(hparams), f"sha256:{hashlib.sha256(hparams).hexdigest()}"),
                      "encoder.json": VOCABULARY, "vocab.bpe": MERGES, "model.ckpt.index": (index, None),
                      "model.ckpt.data-00000-of-00001": (data, checksum)}}


# name: its other names, in lower case, the addresses of its folder, in the order they are tried, and its
# files, each with its size in bytes and its checksum, if known.  The sizes of 124M, 355M and distilgpt2 are
# as reported by others; those of 774M and 1558M follow from the shapes of the tensors and the format.  No
# public checksum of the model.ckpt files of 355M, 774M and 1558M was found, so all there is are their lengths
# and the checksums inside them.
MODELS = {
    "124M": openai("124M", "gpt2", "117m", 768, 12, 12, 5215, 497759232,
                   "md5:f48b9cf1a525a603be52258f69bf9162"),
    "355M": openai("355M", "gpt2-medium", "345m", 1024, 16, 24, 10399, 1419292672),
    "774M": openai("774M", "gpt2-large", "762m", 1280, 20, 36, 15535, 3096120320),
    "1558M": openai("1558M", "gpt2-xl", "1542m", 1600, 25, 48, 20724, 6230444800),
    "distilgpt2": {
        "names": ["distilgpt2", "distilbert/distilgpt2"], "urls": [DISTILGPT2],
        "files": {
            "config.json": (762, "sha256:4ec5947c1d59fee6212cdf3b0ec1a53eac02092554c5ff0a733488cbd2c64f3a"),
            "vocab.json": VOCABULARY, "merges.txt": MERGES,
            "model.safetensors": (
                352824413, "sha256:e1ff18884359fe8beb795a5f414feb85a6ce3d929ad019c0d958c039d2b94a1b")}},
}

LOCK = "download.lock"
WAIT = 5                                # seconds before an address is tried again
CHUNK = 1 << 14                         # bytes
PATIENCE = 10, 30                       # seconds to wait for a connection, for a byte


def find_size(name):
    """"gpt2-medium" or "355m" -> "355M"; None if there is no such model."""
    return next((size for size, model in MODELS.items() if name.lower() in model["names"]), None)


def download(name, models_dir="models"):
    """Download what is missing from the folder models_dir/name, and return the folder.  Raises ValueError, or
    OSError if it cannot be written.
    """
    need(name in MODELS, f"there is no model {name!r} to download; there are {', '.join(MODELS)}")
    folder = Path(models_dir) / name
    if missing(name, folder):
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / LOCK, "ab") as lock:
            with contextlib.suppress(ImportError):              # Windows
                import fcntl
                fcntl.flock(lock, fcntl.LOCK_EX)                # wait for another program's download
            for path, size, checksum in missing(name, folder):
                download_file(path, [f"{url}/{path.name}" for url in MODELS[name]["urls"]], size, checksum)
        (folder / LOCK).unlink(missing_ok=True)
    return folder


def missing(name, folder):
    """[(path, bytes, checksum)] of the missing files.  Raises ValueError if an existing one has the wrong
    length."""
    files = [(folder / file, *expected) for file, expected in MODELS[name]["files"].items()]
    for path, size, _ in files:
        need(not path.exists() or size_of(path) == size,
             f"{path} has {size_of(path)} bytes and should have {size}: delete it and start again")
    return [file for file in files if not file[0].exists()]


def is_unfinished(name, folder):
    """True if the first file in the table has been downloaded to this folder, but others are missing."""
    return (folder / next(iter(MODELS[name]["files"]))).exists() and bool(missing(name, folder))


def size_of(path):
    return path.stat().st_size if path.exists() else 0


def download_file(path, urls, size, checksum):
    """Download a file from the first address that has it; an address that sent a part is tried again."""
    part, addresses, reasons = path.with_name(path.name + ".part"), [*urls], {}
    most = size_of(part)
    need(shutil.disk_usage(path.parent).free >= size - most,
         f"{path} needs {size / 1e9:.2f} GB: free some space, or choose another --models_dir")
    for url in addresses:                                       # the list grows
        try:
            fetch(url, part, size)
            check(part, checksum)
            return os.replace(part, path)
        except (requests.RequestException, ValueError) as error:
            reasons[url] = str(error)
            if isinstance(error, OSError):                      # keep the last of a chain of errors
                reasons[url] = reasons[url].rsplit(": ", 1)[-1].removesuffix('"))')[:100]
            if size_of(part) == size:                           # complete, but wrong
                part.unlink()
        if size_of(part) > most:
            print(f"{url}: {reasons[url]}; trying again", file=sys.stderr)
            time.sleep(WAIT)
            addresses.append(url)
            most = size_of(part)
    said = " nor from ".join(f"{url} ({error})" for url, error in reasons.items())
    raise ValueError(f"{path.name} could not be downloaded from {said}: check the connection and start "
                     "again, or use demo-draft and demo-target, which need no network")


def fetch(url, part, size):
    """One request: append what is missing to the .part.  Raises RequestException."""
    there = size_of(part) if size_of(part) <= size else 0
    if there == size:
        return
    headers = {"Accept-Encoding": "identity", "Range": f"bytes={there}-"}
    with requests.get(url, headers=headers, stream=True, timeout=PATIENCE) as answer:
        status, length = answer.status_code, answer.headers.get("Content-Length")
        start = there if status == 206 else 0                   # 200: it sends the whole file
        if status not in (200, 206) or length != str(size - start):
            raise requests.HTTPError(f"it answers {status}, with {length} bytes instead of {size - start}")
        with open(part, "ab") as file, tqdm(total=size, initial=start, unit="B", unit_scale=True,
                                            desc=part.stem, leave=False, disable=None) as bar:
            file.truncate(start)
            for piece in answer.iter_content(CHUNK):
                file.write(piece)
                bar.update(len(piece))
    if size_of(part) != size:
        raise requests.ConnectionError(f"it sent {size_of(part)} of {size} bytes")


def check(path, checksum):
    """Raises ValueError if a file's bytes are wrong.

    checksum    "md5:.." or "sha256:.."; None to use those inside TensorFlow's files
    """
    if checksum:
        kind, digest = checksum.split(":")
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False))
        need(found.hexdigest() == digest, f"{path} does not match its checksum: delete it and get it again")
    elif ".index" in path.name:
        read_index(path)
    else:
        _, tensors = read_index(path.with_name("model.ckpt.index"))
        for _ in read_arrays(path, 0, [tensor for _, tensor in tensors], verify=True):
            pass


def main(name, models_dir="models"):
    """Download a model, or check one that exists.  An interrupted download continues where it stopped.

    Args:
        name: 124M, 355M, 774M, 1558M or distilgpt2, or gpt2, gpt2-medium ..
        models_dir: where models are kept
    """
    name = find_size(name) or name
    folder = download(name, models_dir)
    for file, (_, checksum) in MODELS[name]["files"].items():
        check(folder / file, checksum)
    print(folder)


if __name__ == "__main__":
    sys.exit(command_line.run(main))
