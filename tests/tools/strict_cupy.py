"""A strict stand-in for CuPy, made of NumPy, so that portability can be tested on a machine without a GPU.

    sys.modules["cupy"] = cupy          # from here on `import cupy` gives the stand-in

It has the functions and methods that CuPy has and no others, and it refuses what CuPy refuses: a conversion
to NumPy that is not asked for, NumPy arrays and lists among its arguments, NumPy arrays or lists assigned
to items, its arrays as Python integers.  It goes further where CuPy does something wrong or odd in silence:
an index out of range (CuPy wraps it), a floating-point number as index (cut off), a bool as index, a list
or NumPy array in those of its functions that let one pass.

    counts      bytes to the host and to the device, waits ("syncs"), bytes of factors that a product had to
                copy, arrays made by dtype
    pending     whether work was ordered since the last wait: a clock that is read then is wrong

But: no streams, no memory pool, no random, linalg or fft; results have NumPy's bits and are there at once.
"""

import operator
import types
from collections import Counter

import numpy as np

# What CuPy 13.6 and 14.2 both have, of NumPy's names: dir(cupy) and dir(cupy.ndarray) of the released
# packages, which can be imported without a GPU; files, text and polynomials are left out.  test_backend.py
# compares with CuPy where it is installed.
FUNCTIONS = """
abs absolute add all allclose amax amin angle any append arange arccos arccosh arcsin arcsinh arctan arctan2
arctanh argmax argmin argpartition argsort argwhere around array array_equal array_equiv array_split
asanyarray asarray ascontiguousarray asfortranarray atleast_1d atleast_2d atleast_3d average bartlett
bincount bitwise_and bitwise_not bitwise_or bitwise_xor blackman broadcast_arrays broadcast_to cbrt ceil
choose clip column_stack compress concatenate conj conjugate convolve copy copysign copyto corrcoef
correlate cos cosh count_nonzero cov cross cumprod cumsum deg2rad degrees delete diag diag_indices diagflat
diagonal diff digitize divide divmod dot dsplit dstack ediff1d einsum empty empty_like equal exp exp2
expand_dims expm1 extract eye fabs fill_diagonal fix flatnonzero flip fliplr flipud float_power floor
floor_divide fmax fmin fmod frexp full full_like gcd gradient greater greater_equal hamming hanning
heaviside histogram hsplit hstack hypot i0 identity imag indices inner interp intersect1d invert isclose
isfinite isin isinf isnan isneginf isposinf kaiser kron lcm ldexp left_shift less less_equal lexsort
linspace log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logspace
matmul max maximum mean median meshgrid min minimum mod modf moveaxis multiply nan_to_num nanargmax
nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanprod nanstd nansum nanvar negative
nextafter nonzero not_equal ones ones_like outer packbits pad partition percentile place positive power prod
ptp put putmask quantile rad2deg radians ravel real reciprocal remainder repeat reshape resize right_shift
rint roll rollaxis rot90 round searchsorted select setdiff1d sign signbit sin sinc sinh sort split sqrt
square squeeze stack std subtract sum swapaxes take take_along_axis tan tanh tensordot tile trace transpose
tri tril tril_indices triu triu_indices true_divide trunc union1d unique unpackbits unwrap vander var vdot
vsplit vstack where zeros zeros_like
""".split()
METHODS = """
all any argmax argmin argpartition argsort astype choose clip compress conj conjugate copy cumprod cumsum
diagonal dot fill flatten max mean min nonzero partition prod put ravel repeat reshape round searchsorted
sort squeeze std sum swapaxes take trace transpose var view
""".split()
CONSTANTS = """
e inf nan newaxis pi bool_ dtype float16 float32 float64 int8 int16 int32 int64 intp uint8 uint16 uint32
uint64
""".split()

FROM_HOST = {"array", "asarray", "asanyarray"}          # these take what NumPy holds
FROM_NUMBERS = set("""arange bartlett blackman diag_indices empty eye full hamming hanning identity indices
kaiser linspace logspace ones tri tril_indices triu_indices zeros""".split())
FROM_SEVERAL = set("column_stack concatenate dstack hstack lexsort select stack vstack".split())
ELEMENTWISE = {name for name in FUNCTIONS if isinstance(getattr(np, name, None), np.ufunc)}
ELEMENTWISE |= {"clip", "where", "isclose", "allclose"}
OF_UNKNOWN_SIZE = {"argwhere", "extract", "flatnonzero", "nonzero", "unique"}   # the host waits to learn it

counts = Counter()
pending = False


def unsupported(x):
    return TypeError(f"Unsupported type {type(x)}")


def made(result):
    """What NumPy gave, as it lies on the device: a number becomes an array of no dimensions."""
    global pending
    if isinstance(result, (bool, np.generic, np.ndarray)):
        pending = True
        result = np.asarray(result)
        counts[f"made {result.dtype}"] += 1
        return ndarray(result)
    return type(result)(map(made, result)) if type(result) in (tuple, list) else result


def to_host(array):
    wait()
    counts["bytes to host"] += array.nbytes
    return array.copy()


def to_device(x):
    array = np.asarray(x)
    counts["bytes to device"] += array.nbytes
    return array


def wait():
    global pending
    pending = False
    counts["syncs"] += 1


def factor(x):
    """An argument of arithmetic: an array of ours or a number; NumPy's numbers keep their dtype."""
    if isinstance(x, ndarray):
        return x._array
    if isinstance(x, (int, float, complex, np.generic)):
        return x
    raise unsupported(x)


def array_of(x):
    if not isinstance(x, ndarray):
        raise unsupported(x)
    return x._array


def setting(x):
    """Any other argument, such as a shape, an axis, indices or `out`."""
    if isinstance(x, np.ndarray):
        raise unsupported(x)
    return x._array if isinstance(x, ndarray) else x


def settings_of(out, settings):
    return {key: setting(x) for key, x in settings.items()} | ({} if out is None else {"out": array_of(out)})


def product(a, b):
    a, b = array_of(a), array_of(b)
    for x in a, b:      # cupy/_core/_routines_linalg.pyx: cuBLAS reads a transposed matrix, no stack of them
        if not (x.flags.c_contiguous or max(a.ndim, b.ndim) <= 2 and x.flags.f_contiguous):
            counts["bytes copied for products"] += x.nbytes
    return made(a @ b)


def function(name):
    of_numpy = getattr(np, name)

    def call(*arguments, out=None, **settings):
        first, rest = arguments[:1], arguments[1:]
        if name in OF_UNKNOWN_SIZE or name == "repeat":
            wait()
        if name in FROM_HOST:                                   # a list that holds ours: see __array__
            first = [x._array if isinstance(x, ndarray) else to_device(x) for x in first]
        elif name in ELEMENTWISE:
            first, rest = map(factor, first), map(factor, rest)
        elif name in FROM_SEVERAL:
            first = [[array_of(x) for x in first[0]]]
        elif name == "einsum":
            rest = map(array_of, rest)
        elif name not in FROM_NUMBERS:
            first = map(array_of, first)
        return made(of_numpy(*first, *map(setting, rest), **settings_of(out, settings)))

    return call


class ndarray:
    """cupy.ndarray: a NumPy array that cannot be touched from outside."""

    __array_priority__ = 100
    __hash__ = None

    def __init__(self, array):
        self._array = array

    def __repr__(self):
        return f"on the device: {self._array!r}"

    def get(self):
        return to_host(self._array)

    def item(self):
        if self.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return to_host(self._array).item()

    def tolist(self):
        return to_host(self._array).tolist()

    def set(self, array):
        self._array[...] = to_device(array)

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()` to "
                        "construct a NumPy array explicitly.")

    def __array_ufunc__(self, ufunc, method, *inputs, **settings):  # np.exp(x) is cupy.exp(x)
        if method != "__call__" or not hasattr(cupy, ufunc.__name__):
            return NotImplemented
        return getattr(cupy, ufunc.__name__)(*inputs, **settings)

    def __array_function__(self, function, types, arguments, settings):
        if not hasattr(cupy, function.__name__):
            return NotImplemented
        return getattr(cupy, function.__name__)(*arguments, **settings)

    def __bool__(self):
        return bool(self.item())

    def __int__(self):
        return int(self.item())

    def __float__(self):
        return float(self.item())

    def __len__(self):
        return len(self._array)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index):
        return made(self._array[self.checked(index)])

    def __setitem__(self, index, value):
        if not isinstance(value, (ndarray, int, float, complex, np.generic)):
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        self._array[self.checked(index)] = factor(value)
        made(self._array)

    def checked(self, index):
        if isinstance(index, tuple):
            return tuple(map(self.checked, index))
        if isinstance(index, ndarray):
            if index.dtype.kind == "b":                         # the host waits for the number of True
                wait()
            if index.dtype.kind in "biu":
                return index._array
        elif isinstance(index, (list, range, np.ndarray)):      # these cross to the device
            if not len(index) or np.asarray(index).dtype.kind in "iu":
                return to_device(index).astype(np.int64)
        elif index is None or index is Ellipsis or isinstance(index, slice):
            return index
        elif hasattr(index, "__index__") and not isinstance(index, bool):
            return index
        raise IndexError("only integers, slices, ellipsis, numpy.newaxis and integer or boolean arrays are "
                         "valid indices")

    def __matmul__(self, other):
        return product(self, other)

    def __rmatmul__(self, other):
        return product(other, self)

    def dot(self, other):
        return product(self, other)


def method(name):
    def call(self, *arguments, out=None, **settings):
        if name in OF_UNKNOWN_SIZE:
            wait()
        return made(getattr(self._array, name)(*map(setting, arguments), **settings_of(out, settings)))

    return call


def binary(function):
    return (lambda self, other: made(function(self._array, factor(other))),
            lambda self, other: made(function(factor(other), self._array)))


def in_place(function):
    def call(self, other):
        made(function(self._array, factor(other)))
        return self

    return call


for _name in METHODS:
    if _name != "dot" and hasattr(np.ndarray, _name):
        setattr(ndarray, _name, method(_name))
for _name in "add sub mul truediv floordiv mod pow lshift rshift and or xor".split():
    _there, _reversed = binary(getattr(operator, f"__{_name}__"))
    setattr(ndarray, f"__{_name}__", _there)
    setattr(ndarray, f"__r{_name}__", _reversed)
    setattr(ndarray, f"__i{_name}__", in_place(getattr(operator, f"__i{_name}__")))
for _name in "eq ne lt le gt ge".split():
    setattr(ndarray, f"__{_name}__", binary(getattr(operator, _name))[0])
for _name in "neg pos abs invert".split():
    setattr(ndarray, f"__{_name}__", lambda self, f=getattr(operator, _name): made(f(self._array)))
for _name in "dtype shape ndim size nbytes itemsize strides flags".split():
    setattr(ndarray, _name, property(lambda self, name=_name: getattr(self._array, name)))
for _name in "T real imag".split():
    setattr(ndarray, _name, property(lambda self, name=_name: made(getattr(self._array, name))))

cupy = types.ModuleType("cupy", "A strict stand-in for CuPy: no GPU.")
cupy.__version__ = "a strict stand-in"
for _name in FUNCTIONS:
    if hasattr(np, _name):
        setattr(cupy, _name, function(_name))
for _name in CONSTANTS:
    setattr(cupy, _name, getattr(np, _name))
cupy.ndarray, cupy.matmul, cupy.dot = ndarray, product, product
cupy.asnumpy = lambda x: x.get() if isinstance(x, ndarray) else np.asarray(x)
cupy.get_array_module = lambda *arrays: cupy if any(isinstance(x, ndarray) for x in arrays) else np
cupy.cuda = types.SimpleNamespace(
    get_current_stream=lambda: types.SimpleNamespace(synchronize=wait),
    Device=lambda: types.SimpleNamespace(id=0),
    runtime=types.SimpleNamespace(getDeviceProperties=lambda _: {"name": b"no GPU but a strict stand-in"}))
