"""checkpoint.py against TensorFlow's own files, the safetensors library, and damage."""
import contextlib
import json
import lzma
import os
import pickle
import random
import re
import shutil
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from helpers import FIXTURES, HUGGINGFACE, refused, swap_pickle

from engine.loading import checkpoint
from engine.loading.checkpoint import read_safetensors, read_tensorflow, write_tensorflow
from engine.loading.pickles import read_pytorch

TENSORFLOW = FIXTURES / "tensorflow"
VALUES = np.load(TENSORFLOW / "values.npz")         # as TensorFlow read them
DATA, HOLE = "m.data-00000-of-00001", "overlap|hole|end at byte"


def same(a, b):
    """Same type, shape and bits (NaN equals NaN, 0 does not equal -0)."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def write(path, data):
    """Writes a new file each time, because truncating and rewriting an old one is slow on some disks."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


# Files that TensorFlow wrote (fixtures/README.md) ----------------------------------------------------------

@pytest.mark.parametrize("bundle, n_tensors", [("small", 44), ("bfloat16", 2), ("shards", 9)])
def test_reads_what_tensorflow_wrote(bundle, n_tensors):
    arrays = read_tensorflow(TENSORFLOW / bundle, verify=True)
    expected = {key.removeprefix(f"{bundle}:"): VALUES[key]
                for key in VALUES.files if key.startswith(f"{bundle}:")}
    assert list(arrays) == sorted(expected) and len(arrays) == n_tensors
    assert all(same(array, expected[name]) and array.flags.aligned for name, array in arrays.items())
    if bundle == "small":
        assert arrays["model/h1/attn/c_attn/w"].shape == (1, 4, 12) and arrays["types/scalar"] == -7
        assert arrays["types/float16"].dtype == np.float16


def test_reads_an_index_of_several_blocks(tmp_path):
    (tmp_path / "blocks.index").write_bytes(lzma.decompress((TENSORFLOW / "blocks.index.xz").read_bytes()))
    shutil.copy(TENSORFLOW / "blocks.data-00000-of-00001", tmp_path)
    arrays = read_tensorflow(tmp_path / "blocks", verify=True)
    assert len(arrays) == 700 and np.array_equal(np.concatenate(list(arrays.values())), VALUES["blocks"])


def test_writes_byte_for_byte_what_tensorflow_writes(tmp_path):
    write_tensorflow(tmp_path / "m", {key.removeprefix("small:"): VALUES[key]
                                      for key in reversed(VALUES.files) if key.startswith("small:")})
    assert sorted(os.listdir(tmp_path)) == [DATA, "m.index"]
    for name in os.listdir(tmp_path):
        assert (tmp_path / name).read_bytes() == (TENSORFLOW / name.replace("m", "sorted", 1)).read_bytes()


@pytest.mark.parametrize("bundle, reason", [("text", "type 7"), ("slices", "slices")])
def test_refuses_what_tensorflow_wrote_and_it_cannot_read(bundle, reason):
    with pytest.raises(ValueError, match=f"{bundle}.index: tensor '.*model/.*{reason}"):
        read_tensorflow(TENSORFLOW / bundle)


# Files that we wrote ----------------------------------------------------------------------------------------

def test_any_layout_in_memory_is_written_row_by_row_also_over_the_file_it_came_from(tmp_path):
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for arrays in dict(turned=x.T, cut=x[::2, 1:], big_endian=x.astype(">f4"), scalar=x[1, 1]), None:
        write_tensorflow(tmp_path / "x", arrays or read_tensorflow(tmp_path / "x"))
        arrays = read_tensorflow(tmp_path / "x", verify=True)
        assert same(arrays["turned"], np.ascontiguousarray(x.T)) and same(arrays["cut"], x[::2, 1:].copy())
        assert arrays["scalar"] == 7 and same(arrays["big_endian"], x)


def test_stopped_anywhere_in_writing_there_is_the_old_the_new_or_no_checkpoint(tmp_path, monkeypatch):
    """Writing is stopped at the n-th change of the folder, for every n."""
    seen = set()
    for n in range(6):
        left = iter(range(n))

        def stops(operation, left=left):
            return lambda *paths: next(left) is None or operation(*paths)
        write_tensorflow(tmp_path / "m", {"x": np.zeros(5)})
        with monkeypatch.context() as patch, contextlib.suppress(StopIteration):
            for name in "replace", "unlink":
                patch.setattr(checkpoint.os, name, stops(getattr(os, name)))
            write_tensorflow(tmp_path / "m", {"x": np.ones(7)})
        try:
            seen.add(read_tensorflow(tmp_path / "m", verify=True)["x"].size)
        except ValueError as error:
            seen.add(re.search(r"[.](\w+): No such file", str(error))[1])
    assert seen == {5, 7, "index"}


# Damage -----------------------------------------------------------------------------------------------------

HUGE = [2**31 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
SMALL = (TENSORFLOW / "sorted.index").read_bytes()
SMALL_DATA = (TENSORFLOW / "sorted.data-00000-of-00001").read_bytes()
METAINDEX = int.from_bytes(SMALL[-48:-46], "little")            # a varint: where it begins
BLOCK = SMALL[:(METAINDEX & 127 | METAINDEX >> 8 << 7) - 4]     # the only data block, without its checksum
VERSION = b"\x1a\x02\x08\x01"           # of the format: a field of the first entry


def sealed(block):
    """An index with this data block, of the same length, and its correct checksum."""
    return block + struct.pack("<I", checkpoint.masked_crc(block)) + SMALL[len(block) + 4:]


@pytest.mark.parametrize("index, reason", [
    (b"", "not a TensorFlow"), (b"<?xml version='1.0'?>" * 9, "not a TensorFlow"),
    (SMALL[:-1], "not a TensorFlow"), (SMALL[-48:], "checksum"), (SMALL[-8:], "checksum"),
    (sealed(BLOCK.replace(VERSION, b"\x10\1\x10\1", 1)), "big-endian, which is not supported"),
    (sealed(BLOCK.replace(VERSION, b"\x1b\2\x08\1", 1)), "KeyError.*damaged")])         # a group
def test_what_is_no_index_or_of_another_kind_is_said(tmp_path, index, reason):
    (tmp_path / "m.index").write_bytes(index)
    refused(read_tensorflow, tmp_path / "m", reason)


def test_every_byte_of_the_index_is_guarded(tmp_path):
    """Those of the blocks and of the magic number; only the footer that says where they are is not.  Of the
    only data block, which has one checksum, every 17th is tried."""
    n = len(SMALL)
    for i in [*range(0, len(BLOCK), 17), *range(len(BLOCK), n - 48), *range(n - 8, n)]:
        bad = bytearray(SMALL)
        bad[i] ^= 1 << i % 8
        write(tmp_path / "m.index", bad)
        with pytest.raises(ValueError):
            checkpoint.read_index(tmp_path / "m.index")


# safetensors ------------------------------------------------------------------------------------------------

def safetensors(header, data=b"", size=None):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(header) if size is None else size) + header + data


def described(begin=0, end=8, dtype="F32", shape=(2,), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end], **more}


def test_reads_what_the_safetensors_library_writes(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    rng = np.random.default_rng(0)
    arrays = {"empty": np.zeros((0, 3), np.float32), "scalar": np.array(3.5), "flag": np.array([True, False])}
    for dtype in "f4", "f8", "f2", "u1", "i4", "i8":
        arrays[f"{dtype} é"] = rng.integers(0, 100, (3, 5)).astype(dtype)
    library.save_file(arrays, tmp_path / "m", {"note": "x"})
    read = read_safetensors(tmp_path / "m")
    assert read.keys() == arrays.keys() and all(same(read[name], arrays[name]) for name in arrays)


def test_reads_bfloat16_as_torch_wrote_it():
    arrays = read_safetensors(HUGGINGFACE / "bfloat16.safetensors")
    values = np.load(HUGGINGFACE / "values.npz")
    assert len(arrays) == 12 and all(same(array, values[name]) for name, array in arrays.items())


def test_order_and_alignment_do_not_matter(tmp_path):
    """In Hugging Face's gpt2, for example, the data begin at byte 14291."""
    header = json.dumps({"b": described(8, 16), "c": described(16, 16, shape=[0]), "a": described()}).encode()
    for padding in range(8):
        write(tmp_path / "m", safetensors(header + b" " * padding, struct.pack("<4f", 1, 2, 3, 4)))
        arrays = read_safetensors(tmp_path / "m")
        assert {name: a.tolist() for name, a in arrays.items()} == {"a": [1, 2], "b": [3, 4], "c": []}
        assert all(a.flags.aligned for a in arrays.values())


D = bytes(8)
DAMAGED_SAFETENSORS = {     # what is wrong: (the file, what the error says)
    "empty file": (b"", "not a safetensors|JSON|Expecting"),
    "a long header": (safetensors({"x": described()}, D, size=10**6), "not a safetensors"),
    "a list": (safetensors(b"[1, 2, 3]" + b" " * 99), "JSON"),
    "not UTF-8": (safetensors(b'{"\xff": 1}'), "decode"), "half": (safetensors(b'{"x": 1'), "Expecting"),
    "deep": (safetensors(b'{"x":' * 200_000 + b"1" + b"}" * 200_000), "[Rr]ecursion"),
    "a number": (safetensors({"x": 1}, D), "place"),
    "no offsets": (safetensors({"x": described() | {"data_offsets": None}}, D), "place"),
    "a fraction in a shape": (safetensors({"x": described(shape=[2.0])}, D), "place"),
    "a list of types": (safetensors({"x": described(dtype=["F32"])}, D), "of the type"),
    "another shape": (safetensors({"x": described(shape=[3])}, D), "reshape"),
    "float8": (safetensors({"x": described(dtype="F8_E4M3")}, D), "quantized.*supported: get the"),
    "the same range": (safetensors({"x": described(), "y": described()}, D), HOLE),
    "hole": (safetensors({"x": described(), "y": described(12, 20)}, bytes(20)), HOLE),
    "bytes left over": (safetensors({"x": described()}, bytes(9)), HOLE),
    "bytes missing": (safetensors({"x": described()}, bytes(7)), HOLE),
}


def test_damaged_safetensors(tmp_path):
    for data, reason in DAMAGED_SAFETENSORS.values():
        write(tmp_path / "m", data)
        refused(read_safetensors, tmp_path / "m", reason)


# Pickles --------------------------------------------------------------------------------------------------

def pickled(**found):
    """A pickle of {"a": a tensor} with a storage of two float32, as torch.save writes it."""
    found = dict(kind=b"torch\nFloatStorage", key="0", size=2, offset=0, shape=(2,), strides=(1,)) | found
    head = b"\x80\2}X\1\0\0\0actorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagec%b\n" % found.pop("kind")
    key, size, *rest = (pickle.dumps(value, 2)[2:-1] for value in found.values())
    end = b"\x89ccollections\nOrderedDict\n)RtRs."
    return b"".join([head, key, b"X\3\0\0\0cpu", size, b"tQ", *rest, end])


SYSTEM = b"\x80\2cos\nsystem\nX\x0d\0\0\0touch run-here\x85R."
HOSTILE = {
    "os.system": (SYSTEM, "asks for os.system, which is not supported: get the plain weights"),
    "a class": (b"\x80\2c__main__\nGPTConfig\n)R.", "asks for __main__.GPTConfig, which is not supported"),
    "INST": (b"\x80\2(ios\nsystem\n.", "instruction INST"), "an object": (b"\x80\2K\1.", "not a state_dict"),
    "nested tuples": (b"\x80\2})" + b"\x85" * 100_000 + b"K\1s.", "a key that is neither text nor a number"),
    "a million": (b"\x80\2})" + b"\x85" * 10**6 + b"K\1s.", "data.pkl has 1000008 bytes"),
    "many": (b"\x80\2})" + b"\x85" * 2**18 + b"K\1s.", "no end within"),
    "doubled tuples": (b"\x80\2})" + b"q\0h\0h\0\x86" * 40 + b"K\1s.", "neither text nor a number"),
    "LONG_BINPUT": (b"\x80\2}r\xff\xff\xff\x0f", "exhausted"), "no end": (b"\x80\2(", "exhausted"),
    "a call of a number": (b"\x80\2K\1)R.", "calls something else"), "no mark": (b"\x80\2t.", "IndexError"),
    "another storage": (pickled(kind=b"torch\nComplexFloatStorage"), "torch.ComplexFloatStorage"),
    "no file": (pickled(key="7"), "no item named 'x/data/7'"), "longer": (pickled(size=3), "has 8 bytes"),
    "expanded": (pickled(shape=(2**40,), strides=(0,)), "a tensor is larger than its storage"),
    **{f"{name} {value}": (pickled(**{name: value}), "tensor|dimension|strides|no size|data/0 has 8|too big")
       for name, values in dict(
           shape=[(3,), (-1,), (2**60,), ([2],), (2**31, 2**31, 0, 2**31)], size=[-1, 2**60],
           offset=[1, -1, 2**60, 2**70, 1.0], strides=[(2,), (-1,), (2**60,), (1, 1), (True,)]).items()
       for value in values}}


@pytest.fixture
def torch_file(tmp_path, monkeypatch):
    """A file with a storage of two float32, to which each test adds a pickle."""
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("x", "w") as archive:
        archive.writestr("x/data.pkl", pickled())
        archive.writestr("x/data/0", struct.pack("<2f", 1, 2))
    return Path("x")


@pytest.mark.parametrize("data, says", HOSTILE.values(), ids=HOSTILE)
def test_a_pickle_is_read_without_being_run(torch_file, data, says):
    assert read_pytorch(torch_file)[0]["a"].tolist() == [1, 2]
    swap_pickle(torch_file, lambda _: data)
    refused(read_pytorch, torch_file, says)
    assert os.listdir() == ["x"]


def test_a_compressed_storage_and_a_file_cut_in_half_are_refused(torch_file):
    with zipfile.ZipFile("deflated", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/data.pkl", pickled())
    refused(read_pytorch, Path("deflated"), "data.pkl has 1.. bytes, or is compressed")
    for name in "pytorch_model.bin", "legacy.bin":
        data = (HUGGINGFACE / name).read_bytes()
        Path("half").write_bytes(data[:len(data) // 2])
        refused(read_pytorch, Path("half"), "it is damaged or cut off: delete it and get it again")


# Damage at random -------------------------------------------------------------------------------------------

def damage(rng, data):
    """Flips a bit, or replaces a piece by nothing, by another piece or by a huge number."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        i, j = rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)
        n, huge = rng.choice([0, 1, 4, 8, 40, len(data)]), rng.choice([0, 1, *HUGE])
        if i < len(data) and rng.random() < .4:
            data[i] ^= 1 << rng.randrange(8)
        else:
            number = rng.choice([checkpoint.to_varint(huge), struct.pack("<Q", huge)])
            data[i:i + n] = rng.choice([b"", data[j:j + 8], number])
    return bytes(data)


def damaged_index(folder, rng):
    """In most files the checksum of the only data block is right, so the damage gets past that check."""
    index = sealed(damage(rng, BLOCK)[:len(BLOCK)].ljust(len(BLOCK), b"\0"))
    write(folder / "m.index", index if rng.random() < 0.7 else damage(rng, SMALL))
    write(folder / DATA, SMALL_DATA)
    return lambda: read_tensorflow(folder / "m"), len(SMALL) + len(SMALL_DATA)


def damaged_safetensors(folder, rng):
    """The header holds all that matters."""
    data = (HUGGINGFACE / rng.choice(["model.safetensors", "old.safetensors"])).read_bytes()
    head = 8 + int.from_bytes(data[:8], "little")
    write(folder / "m", safetensors(damage(rng, data[8:head]), data[head:]))
    return lambda: read_safetensors(folder / "m"), len(data)


def damaged_pickle(folder, rng):
    """In most files of the new format only the pickle is damaged, and its checksum is right."""
    path = HUGGINGFACE / rng.choice(["pytorch_model.bin", "ckpt.pt", "legacy.bin"])
    write(folder / "m", path.read_bytes())
    if path.name == "legacy.bin" or rng.random() < .3:
        write(folder / "m", damage(rng, path.read_bytes()))
    else:
        swap_pickle(folder / "m", lambda data: damage(rng, data))
    return lambda: read_pytorch(folder / "m")[0], path.stat().st_size


@pytest.mark.parametrize("kind", [damaged_index, damaged_safetensors, damaged_pickle])
@pytest.mark.parametrize("n", [25, pytest.param(2_000, marks=pytest.mark.fuzz)])
def test_damage_at_random(tmp_path, kind, n):
    """Reading gives a ValueError, or well-formed arrays no larger than the file, and takes little memory."""
    with contextlib.suppress(ValueError):
        kind(tmp_path, random.Random(n))[0]()                   # builds the checksum tables, which are cached
    rng, refused = random.Random(n), 0
    for i in range(n):
        read, size = kind(tmp_path, rng)
        tracemalloc.start()
        try:
            arrays = read()
            assert all(isinstance(name, str) for name in arrays)
            # no two arrays overlap; bfloat16 becomes twice as large
            assert sum(len(array.tobytes()) for array in arrays.values()) <= 2 * size, i
        except ValueError as error:
            refused += 1
            assert "\n" not in str(error) and len(str(error)) < 1000, i
        assert tracemalloc.get_traced_memory()[1] < 300_000 + 20 * size, i
        tracemalloc.stop()
    assert refused > n / 5 and n - refused > n / 100            # both happen, so both are tested


def test_a_mistake_of_this_program_is_not_called_damage(tmp_path, monkeypatch):
    """Otherwise somebody would delete 6 GB and download them again."""
    write_tensorflow(tmp_path / "m", {"a": np.zeros(3)})
    monkeypatch.setattr(np, "fromfile", None)
    with pytest.raises(TypeError):
        read_tensorflow(tmp_path / "m")
