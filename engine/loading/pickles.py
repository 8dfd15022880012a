"""What torch.save wrote -> named arrays, without PyTorch and without running the pickle inside.

    read_pytorch(path)      pytorch_model.bin, nanoGPT's ckpt.pt, ..: the two formats that torch.save has had

A pickle is a program for a small machine with a stack, and it can call any function of Python.  The machine
here knows the instructions that torch.save writes and the names in GLOBALS, and computes nothing: a tensor
becomes a description (Tensor) of its part of a storage, and only the storages of the model are read.

    since PyTorch 1.6       a zip with data.pkl, and each storage in data/KEY, as raw bytes
    before                  five pickles, the fourth of which is what was saved; then the storages, each after
                            the number of its elements

Source: pytorch/pytorch, torch/serialization.py (_save, _legacy_save) and torch/_utils.py.

Limitations: little-endian files only.  An object of a class of one's own, such as a model saved as a whole,
is not supported.
"""
import io
import math
import os
import pickletools
import re
import warnings
import zipfile
from collections import namedtuple
from functools import cache
from itertools import islice

import numpy as np

from engine.loading.checkpoint import BFLOAT16, Unsupported, decode, need, open_file
from engine.loading.folder import DEFAULTS, GELU

MOST_BYTES, MOST = 2**19, 2**17     # and instructions; the largest GPT-2, with its optimizer, has half
STARTS = b"PK\3\4", b"\x80\2\x8a\n"                             # of a file: since PyTorch 1.6, and before
MAGIC = 0x1950A86A20F9469CFC6C                                  # the first pickle in the old format
NANOGPT = dict(vocab_size="n_vocab", block_size="n_ctx", n_embd="n_embd", n_head="n_head", n_layer="n_layer")

Storage = namedtuple("Storage", "key dtype n_bytes")            # elements, which several tensors may share
Tensor = namedtuple("Tensor", "storage offset shape strides")   # those at offset + i * strides[0] + ..


def describe_storage(found):
    """What a pickle says about a storage -> Storage."""
    need(type(found) is tuple and len(found) > 4 and not any(found[5:]), "a storage has no place")
    _, dtype, key, _, size = found[:5]
    need(dtype in TYPES.values() and type(key) is str and type(size) is int and size >= 0, "no size")
    return Storage(key, dtype, size * np.dtype(dtype.replace(BFLOAT16, "<f2")).itemsize)


def describe_tensor(storage=None, offset=None, shape=None, strides=None, *_):
    """The arguments of PyTorch's _rebuild_tensor_v2 -> Tensor."""
    need(type(storage) is Storage and type(shape) is type(strides) is tuple
         and {*map(type, (offset, *shape, *strides))} == {int}, "a tensor has no place")
    return Tensor(storage, offset, shape, strides)


TYPES = dict(Float="<f4", Half="<f2", BFloat16=BFLOAT16, Double="<f8", Byte="|u1", Bool="|b1", Long="<i8",
             Int="<i4")
GLOBALS = {"torch._utils _rebuild_tensor_v2": describe_tensor, "collections OrderedDict": lambda *_: {},
           "torch._utils _rebuild_parameter": lambda tensor=None, *_: tensor,
           **{f"torch {name}Storage": dtype for name, dtype in TYPES.items()}}

# The instructions: those that push something new, or their argument; how many items of the stack the others
# take, None: those after the last mark.
NEW = dict(EMPTY_DICT=dict, EMPTY_LIST=list, EMPTY_TUPLE=tuple, NONE=type(None), NEWFALSE=bool,
           NEWTRUE=lambda: True)
ARGUMENT = "BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE".split()
TAKES = dict(TUPLE1=1, TUPLE2=2, TUPLE3=3, TUPLE=None, APPEND=1, APPENDS=None, SETITEM=2, SETITEMS=None,
             BINPERSID=1, REDUCE=2, BUILD=1, STOP=1)


def read_pickle(stream):
    """The next pickle of a stream -> (what was pickled, {key: Storage}).  Raises one of checkpoint.DAMAGE."""
    stacks, memo, storages = [[]], {}, {}                       # a stack for each mark
    for opcode, argument, _ in islice(pickletools.genops(stream), MOST):
        name, stack = opcode.name, stacks[-1]
        if name in NEW or name in ARGUMENT:
            stack.append(NEW[name]() if name in NEW else argument)
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
            items = [stack.pop() for _ in range(TAKES[name])][::-1] if TAKES[name] else stacks.pop()
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
        need(callable(items[0]) and type(items[1]) is tuple, "it calls something else than a function")
        stack.append(items[0](*items[1]))


def open_zip(file, size):
    """The format since PyTorch 1.6 -> (what was saved, a function: Storage -> its bytes)."""
    archive = zipfile.ZipFile(file)
    root = [name for name in archive.namelist() if name.endswith("data.pkl")][0].removesuffix("data.pkl")

    def read(name, least, most):
        entry = archive.getinfo(root + name)
        need(least <= entry.file_size == entry.compress_size <= most,
             f"{name} has {entry.file_size} bytes, or is compressed")
        return archive.read(entry)                              # its checksum is compared
    saved, _ = read_pickle(io.BytesIO(read("data.pkl", 0, MOST_BYTES)))
    return saved, lambda storage: read(f"data/{storage.key}", storage.n_bytes, min(storage.n_bytes, size))


def open_legacy(file, size):
    """The format before PyTorch 1.6 -> (what was saved, a function: Storage -> its bytes)."""
    head, places = io.BytesIO(file.read(MOST_BYTES)), {}
    need(read_pickle(head)[0] == MAGIC, "it is not a file that PyTorch wrote")
    _, _, (saved, storages), (keys, _) = (read_pickle(head) for _ in range(4))
    need(type(keys) is list and {*map(type, keys)} <= {str}, "it has no list of storages")
    end = head.tell()
    for storage in map(storages.__getitem__, keys):
        places[storage], end = end + 8, end + 8 + storage.n_bytes       # after the number of elements
    need(end == size, f"its tensors end at byte {end}, and it has {size}")
    return saved, lambda storage: file.seek(places[storage]) and file.read(storage.n_bytes)


def find_pickles(folder, names):
    """Those of the names in a folder that may be weights, or their index: pytorch_model.bin, or others."""
    def is_pickle(name):
        with (folder / name).open("rb") as file:
            return file.read(4) in STARTS
    others = [name for name in names if name.endswith((".pt", ".pth", ".ckpt"))
              or name.endswith(".bin") and "-of-" not in name and is_pickle(name)]
    return [name for name in names if re.fullmatch(r"pytorch_model\.bin(\.index\.json)?", name)] or others


def read_pytorch(path):
    """({name: array}, sizes) of a state_dict, which may be under "model" (nanoGPT) or "state_dict".

    sizes       as in folder.read_folder, if it is nanoGPT's, or else None
    Raises ValueError.
    """
    with open_file(path) as file:
        start = file.read(4)
        need(start in STARTS, "it is not a file that PyTorch wrote")
        file.seek(0)
        saved, read = (open_zip if start == STARTS[0] else open_legacy)(file, os.path.getsize(path))
        need(type(saved) is dict, "it is not a state_dict", Unsupported)
        state = [*(saved[key] for key in ("model", "state_dict") if type(saved.get(key)) is dict), saved][0]
        elements = cache(lambda part: decode(np.frombuffer(bytearray(read(part)), np.uint8), part.dtype))
        arrays = {str(name): to_array(tensor, elements(tensor.storage)) for name, tensor in state.items()
                  if type(tensor) is Tensor}
    args = saved.get("model_args")
    return from_nanogpt(arrays, args) if type(args) is dict else (arrays, None)


def to_array(part, elements):
    """Raises ValueError if the tensor is not within the elements of its storage, or has more."""
    need(0 <= math.prod(part.shape) <= elements.size, "a tensor is larger than its storage")
    n = elements.itemsize
    return np.ndarray(part.shape, elements.dtype, elements, part.offset * n, [n * k for k in part.strides])


def from_nanogpt(arrays, args):
    """nanoGPT's weights, with matrices [n_out, n_in], and its model_args -> what read_pytorch returns.

    Raises ValueError for an argument that nanoGPT's own model does not have.
    """
    others = sorted(map(str, args.keys() - {*NANOGPT, "bias", "dropout"}))
    need(not others, f"its model_args have {', '.join(others)}, which nanoGPT's own lack: it is no GPT-2")
    warnings.warn(f"nanoGPT's models since June 2023 use {GELU}", stacklevel=2)
    return ({name: array.T if ".c_" in name and array.ndim == 2 else array for name, array in arrays.items()},
            DEFAULTS | {size: args.get(name) for name, size in NANOGPT.items()})
