"""Makes tests/fixtures/tensorflow with TensorFlow itself.

    python -m venv /tmp/tf && /tmp/tf/bin/pip install tensorflow-cpu
    /tmp/tf/bin/python tests/tools/make_tensorflow_fixture.py

Needed only to make the fixtures again; the tests read them without TensorFlow.  They were made with
TensorFlow 2.21.0.  There are seven bundles: small (every type that can be read except bfloat16), sorted (the
same in another order), bfloat16, shards (three data files), blocks (an .index of several blocks, kept as
.xz), and text and slices, which are refused.  values.npz holds the values of small, bfloat16, shards and
blocks as TensorFlow reads them.
"""
import lzma
import os
import tempfile
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import numpy as np
import tensorflow as tf

FOLDER = Path(__file__).resolve().parent.parent / "fixtures" / "tensorflow"


def save(prefix, tensors, slices=None):
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=list(tensors),
                      shape_and_slices=slices or [""] * len(tensors), tensors=list(tensors.values()))


def read(prefix):
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in sorted(reader.get_variable_to_shape_map())}


def small(rng):
    """A tensor of each type, and GPT-2's names and shapes with n_embd 4 and two layers.  The 28 names make a
    second restart point."""
    shapes = {"wte": [5, 4], "wpe": [3, 4], "ln_f/g": [4], "ln_f/b": [4]}
    for i in range(2):
        for name, shape in {"ln_1/g": [4], "ln_1/b": [4], "attn/c_attn/w": [1, 4, 12], "attn/c_attn/b": [12],
                            "attn/c_proj/w": [1, 4, 4], "attn/c_proj/b": [4], "ln_2/g": [4], "ln_2/b": [4],
                            "mlp/c_fc/w": [1, 4, 16], "mlp/c_fc/b": [16],
                            "mlp/c_proj/w": [1, 16, 4], "mlp/c_proj/b": [4]}.items():
            shapes[f"h{i}/{name}"] = shape
    tensors = {f"model/{name}": tf.constant(rng.standard_normal(shape), tf.float32)
               for name, shape in shapes.items()}
    for dtype in (tf.float16, tf.float64, tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.uint32,
                  tf.int64, tf.uint64):
        tensors[f"types/{dtype.name}"] = tf.cast(tf.constant(rng.integers(0, 100, [3, 3])), dtype)
    tensors["types/bool"] = tf.constant([True, False, True])
    tensors["types/complex64"] = tf.constant([1 + 2j], tf.complex64)
    tensors["types/complex128"] = tf.constant([3 - 4j], tf.complex128)
    tensors["types/scalar"] = tf.constant(-7, tf.int64)  # a negative number
    tensors["types/empty"] = tf.zeros([0, 3])
    tensors["types/special"] = tf.constant([np.nan, np.inf, -np.inf, -0.0, 1e-45], tf.float32)
    return tensors


def make_fixtures():
    rng, values = np.random.default_rng(4), {}
    FOLDER.mkdir(parents=True, exist_ok=True)
    tensors = small(rng)
    save(FOLDER / "small", tensors)  # with the data in this order
    save(FOLDER / "sorted", dict(sorted(tensors.items())))  # as OpenAI's files and ours
    save(FOLDER / "bfloat16", {"a": tf.cast(rng.standard_normal([3, 5]), tf.bfloat16),
                               "b": tf.constant([np.nan, np.inf, -np.inf, -0.0, 1e-40, 3.14], tf.bfloat16)})
    with tempfile.TemporaryDirectory() as folder:
        parts = [f"{folder}/part{i}" for i in range(3)]
        for i, part in enumerate(parts):
            save(part, {f"{name}{i}": tf.constant(rng.standard_normal([2, 3]), tf.float32) for name in "abc"})
        tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=str(FOLDER / "shards"))
    # a block has 262144 bytes
    save(FOLDER / "blocks", {f"{i:04d}" + "x" * 900: tf.constant([i], tf.float32) for i in range(700)})
    save(FOLDER / "text", {"model/text": tf.constant(["words"])})
    save(FOLDER / "slices", {"model/wte": tf.ones([2, 4])}, ["4 4 0,2:-"])
    for name in "small", "bfloat16", "shards", "blocks":
        for key, value in read(FOLDER / name).items():  # NumPy has no bfloat16
            bfloat16 = value.dtype == tf.bfloat16.as_numpy_dtype
            values[f"{name}:{key}"] = value.astype(np.float32) if bfloat16 else value
    index = FOLDER / "blocks.index"
    (FOLDER / "blocks.index.xz").write_bytes(lzma.compress(index.read_bytes(), preset=9))
    index.unlink()
    big = np.array([values.pop(f"blocks:{i:04d}" + "x" * 900) for i in range(700)])
    values["blocks"] = big.reshape(700)
    np.savez_compressed(FOLDER / "values.npz", **values)


if __name__ == "__main__":
    make_fixtures()
    for path in sorted(FOLDER.iterdir()):
        print(f"{path.stat().st_size:8d} {path.name}")
