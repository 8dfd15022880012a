"""What torch.save wrote -> named arrays, without PyTorch and without running the pickle inside.

    read_pytorch(path)      pytorch_model.bin, nanoGPT's ckpt.pt, ..: the two formats that torch.save has had

A pickle is a program for a small machine with a stack, and it can call any function of Python.  The machine
here knows the instructions that torch.save writes and the few names in GLOBALS.  It computes nothing: a tensor
becomes a description (Tensor) of its part of a storage, and only the storages of the model are read.

    since PyTorch 1.6       a zip with data.pkl, and each storage in data/KEY, as raw bytes
    before                  five pickles, the fourth of which is what was saved; then the storages, each after
                            the number of its elements

Source: pytorch/pytorch, torch/serialization.py (_save, _legacy_save) and torch/_utils.py.

Limitations: an object of a class of one's own, such as a model saved as a whole, is not supported.
"""
import contextlib
import functools
import io
import itertools
import math
import os
import pickletools
import struct
import zipfile
from typing import NamedTuple

import numpy as np

from engine.loading.checkpoint import BFLOAT16, Unsupported, decode, need, open_file

MOST_BYTES, MOST = 2**19, 2**17     # and instructions; the largest GPT-2, with its optimizer, has half of them
STARTS = b"PK\3\4", b"\x80\2\x8a\n"              # of a file: since PyTorch 1.6, and before
MAGIC = 0x1950A86A20F9469CFC6C                                  # the first pickle in the old format
TYPES = {"Float": "<f4", "Half": "<f2", "BFloat16": BFLOAT16, "Double": "<f8", "Byte": "|u1", "Bool": "|b1",
         "Long": "<i8", "Int": "<i4"}


class Storage(NamedTuple):
    """Elements in memory, which several tensors may share."""
    key: str
    dtype: str          # NumPy's
    n_bytes: int


class Tensor(NamedTuple):
    """The elements offset + i * strides[0] + j * strides[1] + .. of a storage."""
    storage: Storage
    offset: int
    shape: tuple
    strides: tuple


def describe_storage(found):
    """What a pickle says about a storage -> Storage."""
    need(type(found) is tuple and len(found) in (5, 6) and found[5:] in ((), (None,)), "a storage has no place")
    _, dtype, key, _, size = found[:5]
    need(dtype in TYPES.values() and type(key) is str and type(size) is int and size >= 0,
         "a storage has no size")
    return Storage(key, dtype, size * np.dtype(dtype.replace(BFLOAT16, "<f2")).itemsize)


def describe_tensor(*found):
    """The arguments of PyTorch's _rebuild_tensor_v2 -> Tensor."""
    storage, offset, shape, strides = (*found, None, None, None, None)[:4]
    need(type(storage) is Storage and type(shape) is type(strides) is tuple
         and {*map(type, (offset, *shape, *strides))} == {int}, "a tensor has no place")
    return Tensor(storage, offset, shape, strides)


def describe_parameter(*found):
    """The same as its first argument, a tensor."""
    return found[0]


def empty_dict(*found):
    need(not found, "a dictionary is not empty at first")
    return {}


FUNCTIONS = describe_tensor, describe_parameter, empty_dict
GLOBALS = dict(zip(("torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter",
                    "collections OrderedDict"), FUNCTIONS))
GLOBALS |= {f"torch {name}Storage": dtype for name, dtype in TYPES.items()}

# The instructions: those that push something new or their argument, and how many items the others take from
# the stack; None: those after the last mark.
NEW = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "NONE": type(None), "NEWFALSE": bool,
       "NEWTRUE": lambda: True}
ARGUMENT = "BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE".split()
TAKES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "TUPLE": None, "APPEND": 1, "APPENDS": None, "SETITEM": 2,
         "SETITEMS": None, "BINPERSID": 1, "REDUCE": 2, "BUILD": 1, "STOP": 1}


def read_pickle(stream):
    """The next pickle of a stream -> (what was pickled, {key: Storage}).  Raises ValueError or LookupError."""
    stacks, memo, storages = [[]], {}, {}                       # a stack for each mark
    for opcode, argument, _ in itertools.islice(pickletools.genops(stream), MOST):
        name, stack = opcode.name, stacks[-1]
        if name in NEW:
            stack.append(NEW[name]())
        elif name in ARGUMENT:
            stack.append(argument)
        elif name == "GLOBAL":
            need(argument in GLOBALS, f"it asks for {argument.replace(' ', '.')}", Unsupported)
            stack.append(GLOBALS[argument])
        elif name == "MARK":
            stacks.append([])
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name != "PROTO":
            need(name in TAKES, f"it has the instruction {name}", Unsupported)
            n = TAKES[name]
            items = [stack.pop() for _ in range(n)][::-1] if n else stacks.pop()
            if name == "STOP":
                return items[0], storages
            take(name, items, stacks[-1], storages)
    raise ValueError(f"a pickle has no end within {MOST} instructions")


def take(name, items, stack, storages):
    """One of the instructions in TAKES, with the items that it takes."""
    if name.startswith("TUPLE"):
        stack.append((*items,))
    elif name.startswith("APPEND"):
        need(type(stack[-1]) is list, "it appends to something else than a list")
        stack[-1].extend(items)
    elif name.startswith("SETITEM"):
        need(type(stack[-1]) is dict and {*map(type, items[::2])} <= {str, int},
             "it has a key that is neither text nor a number")
        stack[-1].update(zip(items[::2], items[1::2], strict=True))
    elif name == "BINPERSID":
        stack.append(storage := describe_storage(*items))
        storages[storage.key] = storage
    elif name == "REDUCE":                                      # BUILD sets attributes, which are not needed
        function, found = items
        need(function in FUNCTIONS and type(found) is tuple, "it calls something else than a function")
        stack.append(function(*found))


@contextlib.contextmanager
def readable_zip():
    """Inside, what zipfile says about damage becomes a ValueError."""
    try:
        yield
    except (zipfile.BadZipFile, EOFError, NotImplementedError, struct.error) as error:
        raise ValueError(f"its zip cannot be read ({error!r:.200})") from None


def open_zip(file, size):
    """The format since PyTorch 1.6 -> (what was saved, a function: Storage -> its bytes)."""
    archive = zipfile.ZipFile(file)
    name = next((name for name in archive.namelist() if name.endswith("data.pkl")), "data.pkl")
    root = name.removesuffix("data.pkl")

    def read(name, n_bytes=None, most=MOST_BYTES):
        entry = archive.getinfo(root + name)
        need(entry.compress_type == entry.flag_bits & 1 == 0, f"{name} is compressed", Unsupported)
        need(entry.file_size == entry.compress_size <= most and n_bytes in (None, entry.file_size),
             f"{name} has {entry.file_size} bytes")
        return archive.read(entry)                              # its checksum is compared

    order = read("byteorder") if root + "byteorder" in archive.namelist() else b"little"
    need(order == b"little", "it is big-endian", Unsupported)
    saved, _ = read_pickle(io.BytesIO(read("data.pkl")))
    return saved, lambda storage: read(f"data/{storage.key}", storage.n_bytes, size)


def open_legacy(file, size):
    """The format before PyTorch 1.6 -> (what was saved, a function: Storage -> its bytes)."""
    head = io.BytesIO(file.read(MOST_BYTES))
    need(read_pickle(head)[0] == MAGIC, "it is not a file that PyTorch wrote")
    _, (system, _), (saved, storages), (keys, _) = (read_pickle(head) for _ in range(4))
    need(type(system) is dict and system.get("little_endian") is True, "it is big-endian", Unsupported)
    need(type(keys) is list and {*map(type, keys)} <= {str}, "it has no list of storages")
    places, place = {}, head.tell()
    for storage in map(storages.__getitem__, keys):
        places[storage] = place = place + 8                     # after the number of elements
        place += storage.n_bytes

    def read(storage):
        need(file.seek(places[storage]) + storage.n_bytes <= size, "it ends within its tensors")
        return file.read(storage.n_bytes)
    return saved, read


def read_pytorch(path):
    """(arrays, the rest) of a state_dict, or of the one under "model" (nanoGPT) or "state_dict" (Lightning).

    arrays      {name: array}; bfloat16 becomes float32
    the rest    what was saved beside the state_dict, tensors undone: {"model_args": .., "config": ..}
    Raises ValueError.
    """
    with open_file(path) as file, readable_zip():
        start = file.read(4)
        need(start in STARTS, "it is not a file that PyTorch wrote")
        file.seek(0)
        saved, read = (open_zip if start == STARTS[0] else open_legacy)(file, os.path.getsize(path))
        need(type(saved) is dict, "it is not a state_dict", Unsupported)
        inner = [key for key in ("model", "state_dict") if type(saved.get(key)) is dict]
        state, rest = (saved[inner[0]], saved) if inner else (saved, {})

        @functools.cache
        def elements(storage):
            return decode(np.frombuffer(bytearray(read(storage)), np.uint8), storage.dtype)
        return {str(name): to_array(tensor, elements) for name, tensor in state.items()
                if type(tensor) is Tensor}, rest


def to_array(tensor, elements):
    """Raises ValueError if the tensor is not within its storage, or larger."""
    found = elements(tensor.storage)
    need(0 <= math.prod(tensor.shape) <= found.size, "a tensor is larger than its storage")
    n = found.itemsize
    return np.ndarray(tensor.shape, found.dtype, found, tensor.offset * n, [n * stride for stride in tensor.strides])
