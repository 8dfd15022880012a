"""A strict stand-in for CuPy, made of NumPy, so that portability can be tested on a machine without a GPU.

    sys.modules["cupy"] = cupy          # from here on `import cupy` gives the stand-in

It has the functions of CuPy that this project uses and no others.  It refuses what CuPy refuses: implicit
conversion to NumPy, NumPy arrays and lists as arguments or as values for items, and its arrays as Python
integers.  It also refuses what CuPy does oddly in silence: an index out of range, a float or bool as index.
`to_host` has the bytes of each array that was copied to the host.
"""
import operator
import types

import numpy as np

NAMES = """abs arange argmax ascontiguousarray broadcast_to cos concatenate empty equal exp flatnonzero full
isfinite log matmul max maximum nonzero ones pad partition power repeat split sqrt stack sum tanh tri triu
where zeros zeros_like sin add asarray array float16 float32 float64 int32 int64 inf nan pi newaxis
dtype""".split()
to_host = []


def made(result):
    """NumPy's result as it would be on the device: a number becomes an array of no dimensions."""
    if type(result) in (tuple, list):
        return type(result)(map(made, result))
    if isinstance(result, (bool, np.generic, np.ndarray)):
        return ndarray(np.asarray(result))
    return result


def bare(x):
    """The argument as NumPy gets it.  Anything on the host is refused, except numbers."""
    if isinstance(x, ndarray):
        return x._array
    if isinstance(x, list) and x and all(isinstance(y, ndarray) for y in x):
        return [y._array for y in x]
    if isinstance(x, (list, np.ndarray)):
        raise TypeError(f"Unsupported type {type(x)}")
    return x


def product(a, b):
    return made(bare(a) @ bare(b))


def function(name):
    def call(*arguments, **settings):
        if name in ("asarray", "array") and not isinstance(arguments[0], ndarray):
            arguments = [ndarray(np.asarray(arguments[0]))]
        return made(getattr(np, name)(*map(bare, arguments), **{key: bare(x) for key, x in settings.items()}))
    return call


class ndarray:
    """cupy.ndarray: a NumPy array that nothing outside can reach."""

    __array_priority__, __hash__ = 100, None

    def __init__(self, array):
        self._array = array

    def get(self):
        to_host.append(self._array.nbytes)
        return self._array.copy()

    def item(self):
        return self.get().item()

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`.")

    def __array_ufunc__(self, ufunc, method, *inputs, **settings):      # np.exp(x) is cupy.exp(x)
        return getattr(cupy, ufunc.__name__, lambda *_, **__: NotImplemented)(*inputs, **settings)

    def __array_function__(self, function, types, arguments, settings):
        return getattr(cupy, function.__name__, lambda *_, **__: NotImplemented)(*arguments, **settings)

    def __len__(self):
        return len(self._array)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index):
        return made(self._array[self.checked(index)])

    def __setitem__(self, index, value):
        if isinstance(value, (list, np.ndarray)):
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        self._array[self.checked(index)] = bare(value)
        made(self._array)

    def checked(self, index):
        if isinstance(index, tuple):
            return tuple(map(self.checked, index))
        if isinstance(index, (list, range, np.ndarray)):        # these are copied to the device
            index = ndarray(np.asarray(index))
        if isinstance(index, ndarray) and index.dtype.kind in "biu":
            return index._array
        if isinstance(index, (bool, float, ndarray)):
            raise IndexError("only integers, slices, ellipsis, numpy.newaxis and integer or boolean arrays")
        return index

    __matmul__, __rmatmul__, dot = product, lambda self, other: product(other, self), product


def operators():
    """Yields (name, method) for Python's operators and for NumPy's methods and attributes."""
    for name in "add sub mul truediv floordiv mod pow and or xor eq ne lt le gt ge".split():
        f = getattr(operator, f"__{name}__")
        yield f"__{name}__", lambda self, other, f=f: made(f(self._array, bare(other)))
        yield f"__r{name}__", lambda self, other, f=f: made(f(bare(other), self._array))
        yield f"__i{name}__", lambda self, other, f=getattr(operator, f"__i{name}__", f): vars(self).update(
            _array=f(self._array, bare(other))) or self
    for name in "neg abs invert".split():
        yield f"__{name}__", lambda self, f=getattr(operator, f"__{name}__"): made(f(self._array))
    for kind in bool, int, float:
        yield f"__{kind.__name__}__", lambda self, kind=kind: kind(self.item())
    for name in "all any argmax astype copy max min reshape sum transpose swapaxes ravel view".split():
        yield name, lambda self, *a, name=name, **k: made(getattr(self._array, name)(*map(bare, a), **k))
    for name in "dtype shape ndim size nbytes strides flags".split():
        yield name, property(lambda self, name=name: getattr(self._array, name))
    yield "T", property(lambda self: made(self._array.T))


for _name, _method in operators():
    setattr(ndarray, _name, _method)
cupy = types.ModuleType("cupy", "A strict stand-in for CuPy: no GPU.")
for _name in NAMES:
    _there = getattr(np, _name)
    setattr(cupy, _name, function(_name) if callable(_there) and not isinstance(_there, type) else _there)
cupy.__version__, cupy.ndarray, cupy.matmul, cupy.dot = "a strict stand-in", ndarray, product, product
cupy.cuda = types.SimpleNamespace(
    get_current_stream=lambda: types.SimpleNamespace(synchronize=lambda: None),
    Device=lambda: types.SimpleNamespace(id=0),
    runtime=types.SimpleNamespace(getDeviceProperties=lambda _: {"name": b"no GPU but a strict stand-in"}))
