"""Files -> named arrays: the two formats GPT-2's weights come in, read with NumPy alone.

    read_tensorflow(prefix)   OpenAI's "tensor bundle": prefix.index names the tensors,
                              prefix.data-00000-of-00001 holds them
    read_safetensors(path)    Hugging Face's format: a JSON header, then the tensors
    write_tensorflow          the first of the two, so that a model trained here is an ordinary OpenAI folder

Names, shapes and types are those of the file, except that bfloat16, which NumPy lacks, becomes float32.  The
arrays are copies in memory: what happens to the file afterwards does not matter.

Sources, tensorflow/tensorflow: core/protobuf/tensor_bundle.proto, core/lib/io/format.h,
core/lib/io/table_builder.cc, core/util/tensor_bundle/tensor_bundle.cc; and the format section of
huggingface/safetensors' README.

But:
- No file is trusted: every length, offset and size is checked before it is used, and any fault becomes one
  CheckpointError.
- A flipped bit inside a tensor changes a number and nothing else.  TensorFlow's files hold a checksum of
  each tensor that finds it (verify=True); safetensors has none.
- Not read: Snappy-compressed, big-endian, sliced (partitioned) and text tensors, resources, quantised
  types; pickled .bin files.
"""
import contextlib
import functools
import json
import math
import os

import numpy as np

MAGIC = bytes.fromhex("57fb808b247547db")  # the last 8 bytes of an .index file
MAX_HEADER = 100_000_000  # bytes of names and shapes, in both formats; GPT-2's largest is 70 kB
# bytes; in an .index a name repeats the start of the last one, so a few bytes could mean gigabytes
MAX_NAME = 1000
BFLOAT16 = "bfloat16"  # the upper half of a float32
TENSORFLOW_TYPES = {1: "<f4", 2: "<f8", 3: "<i4", 4: "|u1", 5: "<i2", 6: "|i1", 8: "<c8", 9: "<i8",
                    10: "|b1", 14: BFLOAT16, 17: "<u2", 18: "<c16", 19: "<f2", 22: "<u4", 23: "<u8"}
SAFETENSORS_TYPES = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BF16": BFLOAT16, "BOOL": "|b1", "U8": "|u1",
                     "I8": "|i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
                     "I64": "<i8", "C64": "<c8"}


class CheckpointError(ValueError):
    """One sentence: which file, what is wrong with it, what to do."""


def need(ok, what):
    """Raise CheckpointError unless ok: what a file must satisfy."""
    if not ok:
        raise CheckpointError(f"{what}; the file is damaged or incomplete, get it again")


@contextlib.contextmanager
def opened(path):
    """(file, its number of bytes).  Errors raised inside get the file's name."""
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # opening a pipe would wait for ever
            raise CheckpointError("this is a folder or a device; give the path of a file")
        with open(path, "rb") as file:
            before = os.fstat(file.fileno())
            yield file, before.st_size
            if os.fstat(file.fileno()).st_mtime_ns != before.st_mtime_ns:
                raise CheckpointError("somebody wrote to the file while it was read; try again")
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}; is the path right, and every file of the "
                              "model there?") from None


def read_array(file, n_bytes, name, begin, end, dtype, shape, checksum=None):
    """The bytes begin:end of a file of n_bytes -> an array."""
    item_size = 2 if dtype == BFLOAT16 else np.dtype(dtype).itemsize
    need(0 <= begin <= end <= n_bytes, f"tensor {name!r} lies outside the file")
    # a dimension of 0 counts as 1 in the second test: NumPy cannot hold the strides of [0, 2**62]
    need(len(shape) <= 32 and math.prod(n or 1 for n in shape) * item_size < 2**62
         and math.prod(shape) * item_size == end - begin,
         f"tensor {name!r} has a shape that does not fit its size")
    file.seek(begin)
    data = np.fromfile(file, np.uint8, end - begin)
    need(len(data) == end - begin, f"the file ends within tensor {name!r}")
    if checksum is not None:
        need(masked_crc(data) == checksum, f"tensor {name!r} does not match its checksum")
    if dtype == BFLOAT16:
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return data.view(dtype).reshape(shape)


# crc32c (Castagnoli), the checksum of TensorFlow's files ----------------------------------------------------
#
# Python's zlib.crc32 is another polynomial.  The state after a stretch of bytes is a linear function, over
# bits, of the state before it and of the bytes.  So a long tensor is cut into lanes that are processed side
# by side, four bytes at a time, all starting from 0, and the lanes are then joined in order:
# state after A B = shift(state after A) ^ (state after B from 0), where shift feeds as many zeros as B has
# bytes.

# words of four bytes; not a power of two, or the lanes would compete for the same cache lines
LANE = 1040


@functools.cache
def crc_of_byte():
    """What a byte does to the state [256]."""
    byte = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        byte = byte >> 1 ^ (byte & 1) * np.uint32(0x82F63B78)
    return byte


@functools.cache
def crc_tables():
    """What each half of a word does to the state [2, 65536], and a lane of zeros [4, 256]."""
    shift = np.arange(256, dtype=np.uint32) << np.arange(0, 32, 8, dtype=np.uint32)[:, None]  # [4, 256]
    words = np.arange(65536, dtype=np.uint32) << np.array([[0], [16]], np.uint32)  # [2, 65536]
    for _ in range(4):
        words = words >> 8 ^ crc_of_byte()[words & 0xFF]
    for _ in range(LANE):
        shift = words[0][shift & 0xFFFF] ^ words[1][shift >> 16]
    return words, shift.tolist()


def crc32c(data):
    """uint8 [n] -> its checksum; 400 to 800 MB per second from a few MB up, 15 below.

    >>> hex(crc32c(np.frombuffer(b"123456789", np.uint8)))
    '0xe3069283'
    """
    state, done = 0xFFFFFFFF, 0
    if len(data) >= 16 * 4 * LANE:  # shorter: not worth it
        (low, high), shift = crc_tables()
        while n_lanes := min((len(data) - done) // (4 * LANE), 4096):
            lanes = data[done:done + n_lanes * 4 * LANE].view("<u4").reshape(n_lanes, LANE)
            done += lanes.nbytes
            states = np.zeros(n_lanes, np.uint32)
            for words in lanes.T:  # [n_lanes]
                states ^= words
                states = low[states & 0xFFFF] ^ high[states >> 16]
            for lane in states.tolist():
                state = (lane ^ shift[0][state & 0xFF] ^ shift[1][state >> 8 & 0xFF]
                         ^ shift[2][state >> 16 & 0xFF] ^ shift[3][state >> 24])
    byte = crc_of_byte().tolist()
    for b in data[done:].tolist():
        state = state >> 8 ^ byte[(state ^ b) & 0xFF]
    return state ^ 0xFFFFFFFF


def masked_crc(data):
    """The checksum as it is stored: a plain one would be weak for data that itself holds checksums."""
    crc = crc32c(np.frombuffer(data, np.uint8))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# Reading TensorFlow's files ---------------------------------------------------------------------------------
#
# The .index file is a LevelDB table: keys and values in blocks.  The values are protocol buffers.

def read_varint(data, at):
    """The number at data[at:], seven bits per byte, the lowest first; and where the next item begins.

    >>> read_varint(bytes([0xAC, 0x02, 0x07]), 0)
    (300, 2)
    """
    value = 0
    for shift in range(0, 70, 7):
        need(at < len(data), "a number runs past its end")
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    raise CheckpointError("a number is longer than 64 bits; the file is damaged, get it again")


def read_message(data):
    """A protocol buffer -> [(tag, value)].

    A tag is field number * 8 + wire type, so a field of the wrong type is an unknown one.
    """
    fields, at = [], 0
    while at < len(data):
        tag, at = read_varint(data, at)
        need(tag & 7 in (0, 1, 2, 5), "an entry has a field of unknown type")
        if tag & 7 == 0:
            value, at = read_varint(data, at)
        else:
            size, at = read_varint(data, at) if tag & 7 == 2 else ({1: 8, 5: 4}[tag & 7], at)
            need(size <= len(data) - at, "an entry has a field that runs past its end")
            value, at = data[at:at + size], at + size
        fields.append((tag, value))
    return fields


def read_block(index, offset, size):
    """A block of the table -> [(key, value)].

    An entry is: bytes shared with the key before, bytes not shared, bytes of the value; the end of the key;
    the value.  After the entries come the restarts (entries that share nothing, for binary search), which
    are not needed to read all entries in order; then their number.
    """
    need(offset + size + 5 <= len(index) - 48, "a block lies outside the file")
    data, kind = index[offset:offset + size], index[offset + size]
    checksum = int.from_bytes(index[offset + size + 1:offset + size + 5], "little")
    need(masked_crc(index[offset:offset + size + 1]) == checksum, "a block does not match its checksum")
    if kind != 0:
        raise CheckpointError(f"a block is compressed (kind {kind}; 1 is Snappy), which is not read; "
                              "save it uncompressed")
    n_restarts = int.from_bytes(data[-4:], "little")
    end, at, key, entries = size - 4 * (1 + n_restarts), 0, b"", []
    need(end >= 0, "a block is shorter than its table of restarts")
    data = data[:end]
    while at < end:
        shared, at = read_varint(data, at)
        non_shared, at = read_varint(data, at)
        value_size, at = read_varint(data, at)
        need(shared <= len(key) and shared + non_shared <= MAX_NAME
             and non_shared + value_size <= end - at, "an entry is longer than its block or a name")
        key = key[:shared] + data[at:at + non_shared]
        at += non_shared
        entries.append((key, data[at:at + value_size]))
        at += value_size
    return entries


def read_index(path):
    """An .index file -> (number of data files, [what read_entry returns for each tensor])."""
    with opened(path) as (file, n_bytes):
        need(48 <= n_bytes <= MAX_HEADER, "this is not a TensorFlow .index file")
        return parse_index(file.read())


def parse_index(index):
    """The bytes of an .index file -> the same."""
    need(index[-8:] == MAGIC, "this is not a TensorFlow .index file")
    # the footer: where the metaindex block is (which is empty), where the index block is
    _, at = read_varint(index, len(index) - 48)
    _, at = read_varint(index, at)
    offset, at = read_varint(index, at)
    size, _ = read_varint(index, at)
    entries, done = [], 0
    for _, handle in read_block(index, offset, size):  # where each data block is
        offset, at = read_varint(handle, 0)
        size, _ = read_varint(handle, at)
        need(offset >= done, "two blocks overlap")
        done = offset + size + 5
        entries += read_block(index, offset, size)
    need(all(a < b for (a, _), (b, _) in zip(entries, entries[1:])), "the names are not in order")
    need(entries and entries[0][0] == b"", "the header is missing")
    header = dict(read_message(entries[0][1]))
    if header.get(0x10, 0) != 0:
        raise CheckpointError("the numbers are big-endian, which is not read; save the checkpoint on a "
                              "little-endian machine")
    if dict(read_message(header.get(0x1A, b""))).get(0x10, 0) > 1:
        raise CheckpointError("the file asks for a newer reader than this one; save it with "
                              "tf.compat.v1.train.Saver")
    n_files, tensors = header.get(0x08, 0), [read_entry(key, value) for key, value in entries[1:]]
    need(all(number < n_files for _, _, _, number, *_ in tensors),
         "a tensor lies in a data file that does not exist")
    return n_files, tensors


def read_entry(key, value):
    """One tensor -> (name, NumPy's type, shape, number of the data file, offset, size, checksum)."""
    entry, name = dict(read_message(value)), key.decode("utf-8", "replace")
    if 0x3A in entry or key[0] == 0:  # the whole tensor; a slice, whose name is encoded differently
        raise CheckpointError(f"tensor {name!r} is cut into slices, which is not read; save it unpartitioned")
    need(name.encode("utf-8") == key, f"the name {name!r} is not UTF-8")
    if entry.get(0x08) not in TENSORFLOW_TYPES:
        kind = entry.get(0x08, 0)
        raise CheckpointError(f"tensor {name!r} is of TensorFlow's type {kind}, which is not read (nor is "
                              "any text, resource, quantised or reference type); save the weights as float32 "
                              "or float16")
    shape = read_message(entry.get(0x12, b""))
    need(all(tag != 0x18 or unknown == 0 for tag, unknown in shape), f"tensor {name!r} has an unknown shape")
    shape = [dict(read_message(size)).get(0x08, 0) for tag, size in shape if tag == 0x12]
    return (name, TENSORFLOW_TYPES[entry[0x08]], shape, entry.get(0x18, 0), entry.get(0x20, 0),
            entry.get(0x28, 0), int.from_bytes(entry.get(0x35, b""), "little"))


def each_tensor(prefix, verify=False):
    """(name, array) of every tensor, one after another; arguments and errors are read_tensorflow's."""
    prefix = os.fspath(prefix)
    n_files, entries = read_index(f"{prefix}.index")
    for number in sorted({entry[3] for entry in entries}):
        with opened(f"{prefix}.data-{number:05d}-of-{n_files:05d}") as (file, n_bytes):
            done, here = 0, [entry for entry in entries if entry[3] == number]
            # by offset, then size: an empty tensor lies before the one that begins at the same byte
            for name, dtype, shape, _, offset, size, checksum in sorted(here, key=lambda entry: entry[4:6]):
                need(offset >= done, f"tensor {name!r} overlaps another")
                done = offset + size
                yield name, read_array(file, n_bytes, name, offset, done, dtype, shape,
                                       checksum if verify else None)
            need(done == n_bytes, f"{n_bytes - done} bytes follow the last tensor (of another model?)")


def read_tensorflow(prefix, verify=False):
    """read_tensorflow("models/124M/model.ckpt")["model/wte"] -> float32 [50257, 768]

    verify      also compare the checksum of every tensor
    Raises CheckpointError.
    """
    return dict(sorted(each_tensor(prefix, verify)))


# Writing TensorFlow's files ---------------------------------------------------------------------------------

def to_varint(value):
    r"""
    >>> to_varint(300)
    b'\xac\x02'
    """
    data = b""
    while value >= 0x80:
        data, value = data + bytes([value & 0x7F | 0x80]), value >> 7
    return data + bytes([value])


def to_message(*fields):
    """(tag, value) ... -> a protocol buffer; zeros are not written."""
    encode = {0: to_varint, 2: lambda value: to_varint(len(value)) + value, 5: bytes}
    return b"".join(bytes([tag]) + encode[tag & 7](value) for tag, value in fields if value != 0)


def to_block(entries, interval):
    """[(key, value)], keys ascending -> a block and its trailer; every interval-th entry is a restart."""
    block, restarts, last = b"", [], b""
    for i, (key, value) in enumerate(entries):
        if i % interval == 0:
            restarts.append(len(block))
            last = b""
        shared = len(os.path.commonprefix([last, key]))
        block += to_varint(shared) + to_varint(len(key) - shared) + to_varint(len(value))
        block += key[shared:] + value
        last = key
    restarts = restarts or [0]
    block += b"".join(n.to_bytes(4, "little") for n in [*restarts, len(restarts)])
    block += b"\0"  # not compressed
    return block + masked_crc(block).to_bytes(4, "little")


def to_index(entries):
    """[(key, value)] -> an .index file: data block, metaindex block (empty), index block, footer."""
    data, meta = to_block(entries, 16), to_block([], 1)
    # the one key of the index block is the shortest above the last name: b"n" for GPT-2
    first = entries[-1][0][:1]
    key = bytes([first[0] + 1]) if first else b""
    index = to_block([(key, to_varint(0) + to_varint(len(data) - 5))], 1)
    footer = b"".join(map(to_varint, (len(data), len(meta) - 5, len(data) + len(meta), len(index) - 5)))
    return data + meta + index + footer.ljust(40, b"\0") + MAGIC


def write_tensorflow(prefix, arrays):
    """{name: array} -> prefix.index, prefix.data-00000-of-00001

    Both are written under other names and renamed last, and an old index is removed before the old data is
    replaced: whatever interrupts this, what is left is the old checkpoint, the new one, or one without an
    index, which no reader takes for complete.  Raises CheckpointError for a type or a name that cannot be
    written.
    """
    prefix, types = os.fspath(prefix), {dtype: number for number, dtype in TENSORFLOW_TYPES.items()}
    index_path, data_path, part = f"{prefix}.index", f"{prefix}.data-00000-of-00001", f".{os.getpid()}.part"
    entries = [(b"", to_message((0x08, 1), (0x1A, to_message((0x08, 1)))))]
    try:
        with open(data_path + part, "wb") as file:
            named = ((name.encode("utf-8"), np.asarray(array)) for name, array in arrays.items())
            for key, array in sorted(named, key=lambda item: item[0]):
                dtype = array.dtype.newbyteorder("<")
                if dtype.str not in types or not 0 < len(key) <= MAX_NAME:
                    raise CheckpointError(f"{prefix}: a tensor of type {array.dtype} named {key[:50]!r} "
                                          "cannot be written; convert it to float32 or rename it")
                # little-endian, row by row
                raw = array.astype(dtype, order="C", copy=False).reshape(-1).view(np.uint8)
                shape = to_message(*((0x12, to_message((0x08, n))) for n in array.shape))
                crc = masked_crc(raw).to_bytes(4, "little")
                entries.append((key, to_message((0x08, types[dtype.str]), (0x12, shape), (0x20, file.tell()),
                                                (0x28, raw.size), (0x35, crc))))
                file.write(raw)
        with open(index_path + part, "wb") as file:
            file.write(to_index(entries))
        with contextlib.suppress(FileNotFoundError):
            os.remove(index_path)
        os.replace(data_path + part, data_path)
        os.replace(index_path + part, index_path)
    finally:
        for path in data_path + part, index_path + part:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)


# safetensors ------------------------------------------------------------------------------------------------

def no_twins(pairs):
    """The members of a JSON object -> a dict; of two with one name the json module would keep the last."""
    need(len(dict(pairs)) == len(pairs), "a name occurs twice")
    return dict(pairs)


def read_header(file, n_bytes):
    """An open file -> (the header, its length).

    The header is {name: {"dtype": "F32", "shape": [768], "data_offsets": [begin, end]}}.
    """
    size = int.from_bytes(file.read(8), "little")
    need(n_bytes >= 8 and size <= MAX_HEADER and size <= n_bytes - 8,
         "this is not a safetensors file, or its end is missing")
    text = file.read(size)
    need(text[:1] == b"{", "this is not a safetensors file")
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=no_twins)
    except CheckpointError:
        raise
    except (ValueError, RecursionError):
        raise CheckpointError("the header is not JSON; the file is damaged, get it again") from None
    header.pop("__metadata__", None)
    for name, entry in header.items():
        need(isinstance(entry, dict) and {"dtype", "shape", "data_offsets"} <= entry.keys(),
             f"tensor {name!r} is not described")
        shape, offsets = entry["shape"], entry["data_offsets"]
        need(isinstance(shape, list) and isinstance(offsets, list) and len(offsets) == 2
             and all(type(n) is int and n >= 0 for n in shape + offsets),
             f"tensor {name!r} has a wrong shape or wrong offsets")
        if not isinstance(entry["dtype"], str) or entry["dtype"] not in SAFETENSORS_TYPES:
            raise CheckpointError(f"tensor {name!r} is of type {str(entry['dtype'])[:20]!r}, which is not "
                                  "read; save it as F32")
    return header, 8 + size


def read_safetensors(path):
    """read_safetensors("distilgpt2/model.safetensors")["transformer.wte.weight"] -> float32 [50257, 768]

    Raises CheckpointError.
    """
    with opened(path) as (file, n_bytes):
        header, start = read_header(file, n_bytes)
        arrays, done = dict.fromkeys(header), 0
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            begin, end = entry["data_offsets"]
            need(begin == done, f"tensor {name!r} overlaps another or leaves a hole")
            dtype, shape = SAFETENSORS_TYPES[entry["dtype"]], entry["shape"]
            arrays[name] = read_array(file, n_bytes, name, start + begin, start + end, dtype, shape)
            done = end
        need(start + done == n_bytes, "the file does not end with its last tensor")
        return arrays
