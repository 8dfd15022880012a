"""Files -> named arrays: the two formats of GPT-2's weights, read with NumPy alone.

    read_tensorflow(prefix)   OpenAI's "tensor bundle": prefix.index names the tensors,
                              prefix.data-00000-of-00001 holds them
    read_safetensors(path)    Hugging Face's format: a JSON header, then the tensors
    write_tensorflow          writes the first format, so that a model trained here is an OpenAI folder

Names, shapes and types are those of the file, except that bfloat16, which NumPy lacks, becomes float32.  The
arrays are copies in memory.

Sources, tensorflow/tensorflow: core/protobuf/tensor_bundle.proto, core/lib/io/format.h,
core/lib/io/table_builder.cc, core/util/tensor_bundle/tensor_bundle.cc; and the format section of
huggingface/safetensors' README.

Limitations:
- A flipped bit inside a tensor changes a number and nothing else.  TensorFlow's files have a checksum for
  each tensor that detects it (verify=True); safetensors has none.
- Not supported: Snappy-compressed, big-endian, sliced (partitioned) and text tensors, resources, quantized
  types; pickled .bin files.
"""
import contextlib
import io
import json
import os
import struct
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

ROW = 256  # bytes whose checksum is computed one after the other
MAGIC = bytes.fromhex("57fb808b247547db")  # the last 8 bytes of an .index file
BFLOAT16 = "bfloat16"  # the upper half of a float32
TENSORFLOW_TYPES = {1: "<f4", 2: "<f8", 3: "<i4", 4: "|u1", 5: "<i2", 6: "|i1", 8: "<c8", 9: "<i8",
                    10: "|b1", 14: BFLOAT16, 17: "<u2", 18: "<c16", 19: "<f2", 22: "<u4", 23: "<u8"}
SAFETENSORS_TYPES = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BF16": BFLOAT16, "BOOL": "|b1", "U8": "|u1",
                     "I8": "|i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"}
DAMAGE = ValueError, LookupError, OverflowError, RuntimeError, EOFError, BadZipFile, struct.error


class Unsupported(ValueError):
    """The file is intact, but of a kind that is not supported."""


def need(ok, what, error=ValueError):
    """Raise the error, with this sentence, unless ok."""
    if not ok:
        raise error(what)


@contextlib.contextmanager
def open_file(path):
    """An open file.  Errors from a missing, damaged or unsupported one become one sentence with its name."""
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; check that every file of the model is there") from None
    except Unsupported as error:
        raise ValueError(f"{path}: {str(error):.300}, which is not supported: get the plain weights, "
                         "unquantized (in PyTorch, torch.save(model.state_dict(), FILE))") from None
    except DAMAGE as error:
        what = str(error) if isinstance(error, ValueError) else repr(error)
        raise ValueError(f"{path}: {what:.300}; it is damaged or cut off: delete it and get it again"
                         ) from None


def read_arrays(path, start, tensors, verify=False):
    """Yields (name, array) for every tensor in a file.

    start       where the tensors begin; they fill the rest of the file, without gaps
    tensors     [(begin, end, name, NumPy's type, shape, checksum)]
    verify      also compare the checksums
    """
    with open_file(path) as file:
        tensors, size = sorted(tensors), os.path.getsize(path)
        ends = [start, *(end for _, end, *_ in tensors)]
        need(ends == sorted(ends) and ends[:-1] == [begin for begin, *_ in tensors],
             "its tensors overlap or leave a hole")
        need(ends[-1] == size, f"its tensors end at byte {ends[-1]}, and it has {size}")
        for begin, end, name, dtype, shape, checksum in tensors:
            file.seek(begin)
            data = np.fromfile(file, np.uint8, end - begin)
            need(not verify or masked_crc(data) == checksum, f"tensor {name!r} does not match its checksum")
            yield name, decode(data, dtype).reshape(shape)


def decode(data, dtype):
    """uint8 [n] -> its elements, of one of NumPy's types or BFLOAT16, which becomes float32."""
    if dtype == BFLOAT16:
        data, dtype = data.view("<u2").astype("<u4") << 16, "<f4"
    return data.view(dtype)


# crc32c (Castagnoli), the checksum of TensorFlow's files ----------------------------------------------------
#
# Python's zlib.crc32 uses another polynomial.  A checksum is computed byte by byte, in a state of 32 bits.
# If the bytes A are followed by the bytes B, the final state is the XOR of two states: the one after A and as
# many zeros as B has bytes, and the one after B if B starts from 0.  So the data is cut into rows, the states
# after all rows are computed side by side, each from 0, and then they are joined.

TABLE = np.arange(256, dtype=np.uint32)  # [v]: what the state v becomes after a zero byte
for _ in range(8):
    TABLE = TABLE >> 1 ^ (TABLE & 1) * np.uint32(0x82F63B78)


def after(states, columns):
    """The states [..] after the bytes of columns [n, ..], in turn."""
    for column in columns:
        states = TABLE[(states ^ column) & 0xFF] ^ states >> 8
    return states


# [4, 256]: at [i, v] what a state becomes after ROW zero bytes if its byte i (0: the lowest) is v and its
# other bytes are 0.
AFTER_A_ROW = after(np.arange(256, dtype=np.uint32) << np.uint32([[0], [8], [16], [24]]),
                    np.zeros(ROW, np.uint8)).tolist()


def crc32c(data):
    """uint8 [n] -> its checksum.

    >>> hex(crc32c(np.frombuffer(b"123456789", np.uint8)))
    '0xe3069283'
    """
    n_whole = len(data) // ROW * ROW
    rows = data[:n_whole].reshape(-1, ROW)
    state, (a, b, c, d) = 0xFFFFFFFF, AFTER_A_ROW
    for row in after(np.zeros(len(rows), np.uint32), rows.T).tolist():
        state = a[state & 0xFF] ^ b[state >> 8 & 0xFF] ^ c[state >> 16 & 0xFF] ^ d[state >> 24] ^ row
    return int(after(np.uint32(state), data[n_whole:])) ^ 0xFFFFFFFF


def masked_crc(data):
    """The checksum as stored in the file."""
    crc = crc32c(np.frombuffer(data, np.uint8))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# Reading TensorFlow's files ---------------------------------------------------------------------------------
#
# The .index file is a LevelDB table: keys and values in blocks, each with a checksum, so damage is detected.
# The values are protocol buffers.

def read_varint(stream):
    """The next number in a stream of bytes: seven bits per byte, the lowest first.

    >>> read_varint(io.BytesIO(bytes([0xAC, 0x02, 0x07])))
    300
    """
    value = shift = 0
    while (byte := stream.read(1)[0]) >= 0x80:
        value, shift = value | (byte & 0x7F) << shift, shift + 7
    return value | byte << shift


def read_message(data):
    """A protocol buffer -> [(tag, value)].  A tag is field number * 8 + wire type."""
    fields, stream = [], io.BytesIO(data)
    while stream.tell() < len(data):
        tag = read_varint(stream)
        wire = tag & 7
        number = read_varint(stream) if wire in (0, 2) else {1: 8, 5: 4}[wire]
        fields.append((tag, stream.read(number) if wire else number))
    return fields


def read_block(index, handle):
    """A block of the table -> [(key, value)].

    handle      a stream with the block's first byte in the .index file and its size

    An entry begins with three numbers: how many bytes its key shares with the key before, how many more the
    key has, and how many the value has.  The rest of the key and the value follow.  After the entries come
    the places of those with whole keys (for binary search; not needed here) and the number of these places.
    """
    offset, size = read_varint(handle), read_varint(handle)
    block, checksum = index[offset:offset + size + 1], index[offset + size + 1:offset + size + 5]
    need(masked_crc(block) == int.from_bytes(checksum, "little"), "a block does not match its checksum")
    end = size - 4 * (1 + int.from_bytes(block[-5:-1], "little"))
    stream, key, entries = io.BytesIO(block[:end]), b"", []
    while stream.tell() < end:
        shared, non_shared, value_size = (read_varint(stream) for _ in range(3))
        key = key[:shared] + stream.read(non_shared)
        entries.append((key, stream.read(value_size)))
    return entries


def read_index(path):
    """An .index file -> (number of data files, [what read_entry returns for each tensor])."""
    with open_file(path) as file:
        index = file.read()
        need(index[-8:] == MAGIC, "it is not a TensorFlow .index file")
        footer, entries = io.BytesIO(index[-48:]), []               # where two blocks are
        read_block(index, footer)                                   # the metaindex, which is empty
        for _, handle in read_block(index, footer):                 # where each data block is
            entries += read_block(index, io.BytesIO(handle))
        (_, header), *tensors = entries
        header = dict(read_message(header))
        need(0x10 not in header, "it is big-endian", Unsupported)
        return header[0x08], [read_entry(key, value) for key, value in tensors]


def read_entry(key, value):
    """One tensor -> (number of the data file, its tuple for read_arrays)."""
    entry, name = dict(read_message(value)), key.decode("utf-8", "replace")
    need(0x3A not in entry, f"tensor {name!r} is cut into slices", Unsupported)
    kind, begin, size = (entry.get(tag, 0) for tag in (0x08, 0x20, 0x28))
    need(kind in TENSORFLOW_TYPES, f"tensor {name!r} is of TensorFlow's type {kind}", Unsupported)
    shape = [dict(read_message(dim)).get(0x08, 0) for tag, dim in read_message(entry.get(0x12, b""))
             if tag == 0x12]
    checksum = int.from_bytes(entry.get(0x35, b""), "little")
    return entry.get(0x18, 0), (begin, begin + size, name, TENSORFLOW_TYPES[kind], shape, checksum)


def read_tensorflow(prefix, verify=False):
    """read_tensorflow("models/124M/model.ckpt")["model/wte"] -> float32 [50257, 768]

    verify      also compare the checksum of every tensor
    Raises ValueError.
    """
    (n_files, entries), arrays = read_index(f"{prefix}.index"), {}
    for number in {file for file, _ in entries}:
        tensors = [tensor for file, tensor in entries if file == number]
        arrays |= read_arrays(f"{prefix}.data-{number:05d}-of-{n_files:05d}", 0, tensors, verify)
    return dict(sorted(arrays.items()))


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


def to_block(entries):
    """[(key, value)], keys ascending -> a block.  Every 16th entry has its whole key."""
    block, whole, last = b"", [0], b""
    for i, (key, value) in enumerate(entries):
        if i and i % 16 == 0:
            whole, last = [*whole, len(block)], b""
        shared = len(os.path.commonprefix([last, key]))
        block += b"".join(map(to_varint, (shared, len(key) - shared, len(value)))) + key[shared:] + value
        last = key
    block += b"".join(n.to_bytes(4, "little") for n in [*whole, len(whole)])
    block += b"\0"  # not compressed
    return block + masked_crc(block).to_bytes(4, "little")


def to_index(entries):
    """[(key, value)] -> an .index file: data block, metaindex block (empty), index block, footer."""
    data, meta = to_block(entries), to_block([])
    # the index block has one key, the shortest above the last name: b"n" for GPT-2
    key = bytes(byte + 1 for byte in entries[-1][0][:1])
    index = to_block([(key, to_varint(0) + to_varint(len(data) - 5))])
    footer = b"".join(map(to_varint, (len(data), len(meta) - 5, len(data) + len(meta), len(index) - 5)))
    return data + meta + index + footer.ljust(40, b"\0") + MAGIC


def write_tensorflow(prefix, arrays):
    """{name: array} -> prefix.index, prefix.data-00000-of-00001

    Both are written under other names and renamed at the end, and an old index is removed before the old data
    is replaced, so an interrupt leaves the old checkpoint, the new one, or a folder without an index.
    """
    types = {dtype: number for number, dtype in TENSORFLOW_TYPES.items()}
    index_path, data_path = f"{prefix}.index", f"{prefix}.data-00000-of-00001"
    entries = [(b"", to_message((0x08, 1), (0x1A, to_message((0x08, 1)))))]
    with open(data_path + ".part", "wb") as file:
        for key, name in sorted((name.encode("utf-8"), name) for name in arrays):
            array = np.asarray(arrays[name])
            shape = to_message(*((0x12, to_message((0x08, n))) for n in array.shape))
            dtype = array.dtype.newbyteorder("<")
            raw = array.astype(dtype, order="C", copy=False).reshape(-1).view(np.uint8)     # row by row
            entries.append((key, to_message((0x08, types[dtype.str]), (0x12, shape), (0x20, file.tell()),
                                            (0x28, raw.size), (0x35, masked_crc(raw).to_bytes(4, "little")))))
            file.write(raw)
    Path(index_path + ".part").write_bytes(to_index(entries))
    Path(index_path).unlink(missing_ok=True)
    os.replace(data_path + ".part", data_path)
    os.replace(index_path + ".part", index_path)


# safetensors ------------------------------------------------------------------------------------------------

def read_safetensors(path):
    """read_safetensors("distilgpt2/model.safetensors")["transformer.wte.weight"] -> float32 [50257, 768]

    The header is {name: {"dtype": "F32", "shape": [768], "data_offsets": [begin, end]}}; the offsets count
    from the end of the header.  Raises ValueError.
    """
    with open_file(path) as file:
        start = 8 + int.from_bytes(file.read(8), "little")
        need(start <= os.path.getsize(path), "it is not a safetensors file, or it ends within its header")
        header = json.loads(file.read(start - 8))
        need(isinstance(header, dict), "its header is not a JSON object")
        header.pop("__metadata__", None)
        tensors = [describe_tensor(start, name, entry) for name, entry in header.items()]
    return dict(read_arrays(path, start, tensors))


def describe_tensor(start, name, entry):
    """An entry of the header -> its tuple for read_arrays."""
    need(isinstance(entry, dict) and all(type(entry.get(key)) is list for key in ("shape", "data_offsets"))
         and {*map(type, entry["shape"] + entry["data_offsets"])} == {int}, f"tensor {name!r} has no place")
    (begin, end), dtype = entry["data_offsets"], str(entry.get("dtype"))
    need(dtype in SAFETENSORS_TYPES, f"tensor {name!r} is of the type {dtype} (quantized?)", Unsupported)
    return start + begin, start + end, name, SAFETENSORS_TYPES[dtype], entry["shape"], None
