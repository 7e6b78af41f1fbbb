"""Arrays with a hidden dimension of examples: what `torch.vmap` runs functions on.

A `BatchedArray` looks like one example's array: shape, strides and dimensions are one example's.  What is computed with it is
computed for all examples: by NumPy's protocols where it is known how (`batching_rules.py`), or else as `batching_loops.py` says.
Levels number the nested `vmap`s, outermost first; a batched array may hold batched arrays of outer levels.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dynagraph import products
from dynagraph.torch.core.arrays import library_of_array, strided, ufunc_accumulate, ufunc_reduce
from dynagraph.torch.core.storage import address_of

FUNCTIONS: dict[Any, Callable[..., Any]] = {}  # of NumPy: (level, *args, **kwargs) -> result; see `batching_rules.py`
SHIFTED: dict[Any, str] = {}  # forward functions of primitives that may be applied to all examples at once: see `_at_once`
RULES: dict[Any, Callable[..., Any]] = {}  # of forward functions of primitives: (level, count, arrays, attrs) -> result
spread_edges: Callable[..., Any]  # set by `spreading.py`: see there
_ITEM = (
    "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, please try to "
    "rewrite what you're doing with other operations. If error is occurring somewhere inside PyTorch internals, please file a "
    "bug report."
)
_BRANCH = (
    "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support that yet, "
    "please file an issue at https://github.com/pytorch/pytorch/issues ."
)
WRITE = (
    "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args that has more "
    "elements than `self`. This happened due to `other` being vmapped over but `self` not being vmapped over in a vmap. Please "
    "try to use out-of-place operators instead of inplace arithmetic. If said operator is being called inside the PyTorch "
    "framework, please file a bug report instead."
)


class Level(NamedTuple):
    """A `vmap` that is running."""

    number: int
    size: int
    randomness: str


class _Running(threading.local):
    levels: tuple[Level, ...] = ()  # outermost first


running = _Running()
DEPTH = [0]  # how many `vmap`s are running, in all threads


class Unbatchable(RuntimeError):
    """What a batched array cannot do: the operation is then done example by example, and is an error where there is none."""


def is_unbatchable(error: Exception) -> bool:
    """Whether an error is what a batched array raised: NumPy raises others from it, of assignments."""
    return isinstance(error, Unbatchable) or isinstance(error.__cause__, Unbatchable)


class _Pointer:
    """`data.ptr`, as CuPy's arrays have it."""

    __slots__ = ("ptr",)

    def __init__(self, ptr: int):
        self.ptr = ptr


class _Flags:
    """`flags` of one example."""

    __slots__ = ("array",)
    writeable = True
    owndata = False

    def __init__(self, array: BatchedArray):
        self.array = array

    @property
    def c_contiguous(self) -> bool:
        expected = self.array.itemsize
        for n, s in zip(reversed(self.array.shape), reversed(self.array.strides)):
            if n != 1 and s != expected:
                return 0 in self.array.shape
            expected *= n
        return True

    @property
    def f_contiguous(self) -> bool:
        return self.array.ndim < 2 and self.c_contiguous


class BatchedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """One array for each example: `physical` has them along its first dimension."""

    __slots__ = ("level", "physical")
    level: int
    physical: Any

    def __init__(self, physical: Any, level: int):
        if isinstance(physical, BatchedArray) and physical.level > level:  # the innermost level stands outermost
            physical, level = BatchedArray(physical.physical.swapaxes(0, 1), level), physical.level
        self.physical, self.level = physical, level

    # -- what one example is --
    @property
    def shape(self) -> tuple[int, ...]:
        return self.physical.shape[1:]

    @property
    def strides(self) -> tuple[int, ...]:
        return self.physical.strides[1:]

    @property
    def ndim(self) -> int:
        return self.physical.ndim - 1

    @property
    def size(self) -> int:
        return math.prod(self.physical.shape[1:])

    @property
    def dtype(self) -> Any:
        return self.physical.dtype

    @property
    def itemsize(self) -> int:
        return self.physical.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def flags(self) -> _Flags:
        return _Flags(self)

    @property
    def device(self) -> Any:
        return self.physical.device

    @property
    def data(self) -> _Pointer:
        return _Pointer(address_of(self.physical))

    def __array_namespace__(self, **_: Any) -> Any:
        return library_of_array(self.physical)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Any:
        return (self[k] for k in range(len(self)))

    def __repr__(self) -> str:
        return f"BatchedArray(level={self.level}, {self.physical!r})"

    # -- the protocols --
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise Unbatchable("vmap: a tensor of examples cannot be made an array")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        level = top_level(inputs)
        if out is not None:
            targets = out if isinstance(out, tuple) else (out,)
            results = getattr(ufunc, method)(*inputs, **kwargs)
            for target, result in zip(targets, results if isinstance(results, tuple) else (results,)):
                np.copyto(target, result, casting="unsafe")
            return out[0] if isinstance(out, tuple) and len(out) == 1 else out
        if level is None:
            return NotImplemented
        if method == "__call__":
            if ufunc is np.matmul:
                return matmul(level, *inputs)
            if ufunc.signature is None:
                results = ufunc(*aligned(inputs, level), **kwargs)
                if isinstance(results, tuple):
                    return tuple(BatchedArray(r, level) for r in results)
                return BatchedArray(results, level)
        elif method == "reduce":
            x, axis = inputs[0], kwargs.pop("axis", 0)
            where = kwargs.pop("where", True)
            if where is not True:
                count = size_at((x, where), level)
                x = BatchedArray(examples(x, level, count), level)
                kwargs["where"] = aligned((where,), level, x.ndim)[0]
            return BatchedArray(ufunc_reduce(ufunc, x.physical, axis=shifted_axis(axis, x.ndim), **kwargs), level)
        elif method == "accumulate":
            x, axis = inputs[0], kwargs.pop("axis", 0)
            return BatchedArray(ufunc_accumulate(ufunc, x.physical, axis + 1 if axis >= 0 else axis, **kwargs), level)
        elif method == "at":
            raise Unbatchable("vmap: additions at places")
        return looped_function(getattr(ufunc, method), inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        rule = FUNCTIONS.get(function)
        if rule is None:
            return looped_function(function, args, kwargs)
        level = top_level((*args, *kwargs.values()))
        return NotImplemented if level is None else rule(level, *args, **kwargs)

    # -- methods of arrays --
    def reshape(self, *shape: Any, order: str = "C") -> BatchedArray:
        sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)) else shape
        return BatchedArray(self.physical.reshape((self.physical.shape[0], *filled(sizes, self.size)), order=order), self.level)

    def astype(self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True) -> BatchedArray:
        return BatchedArray(self.physical.astype(dtype, copy=copy), self.level)

    def copy(self, order: str = "K") -> BatchedArray:
        return BatchedArray(self.physical.copy(), self.level)

    def view(self, dtype: Any = None) -> BatchedArray:
        return BatchedArray(self.physical.view() if dtype is None else self.physical.view(dtype), self.level)

    def transpose(self, *axes: Any) -> BatchedArray:
        if len(axes) == 1 and not isinstance(axes[0], (int, np.integer)):
            axes = tuple(axes[0]) if axes[0] is not None else ()
        axes = axes or tuple(reversed(range(self.ndim)))
        return BatchedArray(self.physical.transpose((0, *(a + 1 if a >= 0 else a + self.ndim + 1 for a in axes))), self.level)

    @property
    def T(self) -> BatchedArray:
        return self.transpose()

    def swapaxes(self, a: int, b: int) -> BatchedArray:
        return BatchedArray(self.physical.swapaxes(*(k + 1 if k >= 0 else k for k in (a, b))), self.level)

    def squeeze(self, axis: Any = None) -> BatchedArray:
        axes = tuple(k for k, n in enumerate(self.shape) if n == 1) if axis is None else axis
        return BatchedArray(self.physical.squeeze(shifted_axis(axes, self.ndim)), self.level)

    def ravel(self, order: str = "C") -> BatchedArray:
        return self.reshape(-1)

    def flatten(self, order: str = "C") -> BatchedArray:
        return self.reshape(-1).copy()

    def conj(self) -> BatchedArray:
        return BatchedArray(self.physical.conj(), self.level)

    conjugate = conj

    @property
    def real(self) -> BatchedArray:
        return BatchedArray(self.physical.real, self.level)

    @property
    def imag(self) -> BatchedArray:
        return BatchedArray(self.physical.imag, self.level)

    def strided(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> BatchedArray:
        """The memory of each example from its first element on, as another shape; strides in bytes."""
        array = self.physical
        return BatchedArray(_strided(array, (array.shape[0], *shape), (array.strides[0], *strides)), self.level)

    def fill(self, value: Any) -> None:
        self.physical[...] = value

    def sum(self, axis: Any = None, **kwargs: Any) -> Any:
        return np.add.reduce(self, axis=axis, **kwargs)

    def mean(self, axis: Any = None, **kwargs: Any) -> Any:
        return np.mean(self, axis=axis, **kwargs)

    def _extreme(self, ufunc: Any, axis: Any, **kwargs: Any) -> Any:
        found = ufunc.reduce(self, axis=axis, **kwargs)
        return _OfAll(found.physical, found.level, ufunc) if axis is None else found

    def min(self, axis: Any = None, **kwargs: Any) -> Any:
        return self._extreme(np.minimum, axis, **kwargs)

    def max(self, axis: Any = None, **kwargs: Any) -> Any:
        return self._extreme(np.maximum, axis, **kwargs)

    def any(self, axis: Any = None, **kwargs: Any) -> Any:
        return self._extreme(np.logical_or, axis, **kwargs)

    def all(self, axis: Any = None, **kwargs: Any) -> Any:
        return self._extreme(np.logical_and, axis, **kwargs)

    def prod(self, axis: Any = None, **kwargs: Any) -> Any:
        return np.multiply.reduce(self, axis=axis, **kwargs)

    def argmin(self, axis: Any = None, **kwargs: Any) -> Any:
        return np.argmin(self, axis=axis, **kwargs)

    def argmax(self, axis: Any = None, **kwargs: Any) -> Any:
        return np.argmax(self, axis=axis, **kwargs)

    def cumsum(self, axis: Any = None, **kwargs: Any) -> Any:
        return np.cumsum(self, axis=axis, **kwargs)

    # -- parts --
    def __getitem__(self, key: Any) -> Any:
        items = key if isinstance(key, tuple) else (key,)
        if all(_is_basic(item) for item in items):
            return BatchedArray(self.physical[(slice(None), *items)], self.level)
        found = _chosen(self, list(items))
        return looped_function(_item, (self, key), {}) if found is None else found

    def __setitem__(self, key: Any, value: Any) -> None:
        items = key if isinstance(key, tuple) else (key,)
        level = top_level((*items, value))
        if level is not None and level > self.level:
            raise Unbatchable(WRITE)
        if all(_is_basic(item) for item in items):
            part = self.physical[(slice(None), *items)]
            if level == self.level:
                value = aligned((value,), level, part.ndim - 1)[0]
            part[...] = value
            return
        for k in range(self.physical.shape[0]):
            one = self.physical[k, ...]
            one[_sliced(key, self.level, k)] = _sliced(value, self.level, k)

    # -- what would be different for each example --
    def item(self, *_: Any) -> Any:
        raise Unbatchable(_ITEM)

    __int__ = __float__ = __complex__ = __index__ = item

    def tolist(self) -> Any:
        raise Unbatchable(_ITEM)

    def __bool__(self) -> bool:
        raise Unbatchable(_BRANCH)


class _OfAll(BatchedArray):
    """The extreme of each example; as an integer or a bool, the extreme of all: checks of bounds ask for it."""

    __slots__ = ("ufunc",)

    def __init__(self, physical: Any, level: int, ufunc: Any):
        self.physical, self.level, self.ufunc = physical, level, ufunc

    def item(self, *_: Any) -> Any:
        if self.dtype.kind in "fcV":
            raise Unbatchable(_ITEM)
        found = ufunc_reduce(self.ufunc, self.physical, axis=None)
        while isinstance(found, BatchedArray):
            found = ufunc_reduce(self.ufunc, found.physical, axis=None)
        return found.item()

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        raise Unbatchable(_ITEM)

    def __bool__(self) -> bool:
        return bool(self.item())


def _strided(array: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    if isinstance(array, BatchedArray):
        return array.strided(shape, strides)
    return strided(array, shape, strides)


def _is_basic(item: Any) -> bool:
    return item is None or item is Ellipsis or (isinstance(item, (slice, int, np.integer)) and not isinstance(item, bool))


def _item(x: Any, key: Any) -> Any:
    return x[key]


def _chosen(x: BatchedArray, items: list[Any]) -> BatchedArray | None:
    """``x[key]`` with integer arrays and slices, for all examples at once; None where the key has other parts."""
    place = places_of(x, items)
    if place is None:
        return None
    key, at, count = place
    found = x.physical[key]
    return BatchedArray(np.moveaxis(found, range(1, 1 + count), range(1 + at, 1 + at + count)) if at else found, x.level)


def places_of(x: BatchedArray, items: list[Any]) -> tuple[Any, int, int] | None:
    """A key with integer arrays and slices as one of all examples' array: what it chooses has the examples, the places' dimensions
    and the others.  With it, where the places' dimensions stand in one example, and how many they are; None where the key has other
    parts.
    """
    if any(i is None or isinstance(i, (bool, np.bool_)) for i in items) or top_level(items) not in (None, x.level):
        return None
    arrays = [k for k, i in enumerate(items) if not isinstance(i, slice) and i is not Ellipsis]
    if any(not hasattr(items[k], "dtype") or items[k].dtype.kind not in "iu" for k in arrays):
        return None
    if Ellipsis in [i for i in items if not hasattr(i, "dtype")]:
        at = next(k for k, i in enumerate(items) if i is Ellipsis)
        items[at : at + 1] = [slice(None)] * (x.ndim - len(items) + 1)
        arrays = [k for k, i in enumerate(items) if not isinstance(i, slice)]
    count = x.physical.shape[0]
    shape = np.broadcast_shapes(*(np.shape(items[k]) if not isinstance(items[k], BatchedArray) else items[k].shape for k in arrays))
    first = library_of_array(x).arange(count).reshape(count, *(1,) * len(shape))
    key = [first, *items]
    for k, place in zip(arrays, aligned([items[k] for k in arrays], x.level, len(shape))):
        key[k + 1] = place
    neighbours = arrays == list(range(arrays[0], arrays[0] + len(arrays)))
    return tuple(key), arrays[0] if neighbours else 0, len(shape)


def filled(sizes: Sequence[int], count: int) -> tuple[int, ...]:
    """Sizes with the one that is -1 found from the others."""
    if -1 not in sizes:
        return tuple(sizes)
    rest = math.prod(n for n in sizes if n != -1)
    return tuple((count // rest if rest else 0) if n == -1 else n for n in sizes)


def shifted_axis(axis: Any, ndim: int) -> Any:
    """Axes of one example as axes of all examples' array; None is all of them."""
    if axis is None:
        return tuple(range(1, ndim + 1))
    if isinstance(axis, (int, np.integer)):
        return axis + 1 if axis >= 0 else axis
    return tuple(a + 1 if a >= 0 else a for a in axis)


def top_level(values: Any) -> int | None:
    """The innermost level among arrays, which may stand in tuples and lists; None where nothing is batched."""
    found = None
    for value in values:
        level = value.level if isinstance(value, BatchedArray) else top_level(value) if isinstance(value, (tuple, list)) else None
        if level is not None and (found is None or level > found):
            found = level
    return found


def levels_of(array: Any) -> dict[int, int]:
    """The levels that an array is batched at, with the numbers of examples."""
    found = {}
    while isinstance(array, BatchedArray):
        found[array.level] = array.physical.shape[0]
        array = array.physical
    return found


def size_at(values: Any, level: int) -> int:
    """The number of examples of a level."""
    for value in values:
        if isinstance(value, BatchedArray) and value.level == level:
            return value.physical.shape[0]
        if isinstance(value, (tuple, list)):
            found = size_at(value, level)
            if found >= 0:
                return found
    return -1


def aligned(arrays: Sequence[Any], level: int, ndim: int = 0) -> list[Any]:
    """All examples' arrays of a level, such that broadcasting them broadcasts each example's; others as they are."""
    for array in arrays:
        rank = array.ndim if hasattr(array, "ndim") else np.ndim(array)
        ndim = max(ndim, rank)
    found = []
    for array in arrays:
        if isinstance(array, BatchedArray) and array.level == level:
            array = array.physical
            missing = ndim + 1 - array.ndim
            if missing:
                array = array.reshape((array.shape[0], *(1,) * missing, *array.shape[1:]))
        found.append(array)
    return found


def examples(array: Any, level: int, count: int) -> Any:
    """All examples' array of a level; what is the same for all is repeated, without a copy."""
    if isinstance(array, BatchedArray):
        if array.level == level:
            return array.physical
        if array.level > level:
            return BatchedArray(examples(array.physical, level, count).swapaxes(0, 1), array.level)
    return _repeated(np.asarray(array) if isinstance(array, (bool, int, float, complex, np.generic)) else array, count, 0)


def _repeated(array: Any, count: int, axis: int) -> Any:
    """With a new dimension along which nothing changes."""
    if isinstance(array, BatchedArray):
        return BatchedArray(_repeated(array.physical, count, axis + 1), array.level)
    shape = (*array.shape[:axis], count, *array.shape[axis:])
    if isinstance(array, np.ndarray):
        return np.lib.stride_tricks.as_strided(array, shape, (*array.strides[:axis], 0, *array.strides[axis:]))
    return np.broadcast_to(np.expand_dims(array, axis), shape)


def matmul(level: int, a: Any, b: Any) -> Any:
    """Products of matrices and vectors, for all examples."""
    x, y = (v.physical if isinstance(v, BatchedArray) and v.level == level else v for v in (a, b))
    if x is not a and y is b and b.ndim == 2:  # many rows by one matrix
        return BatchedArray(products.matmul(x, b), level)
    if x is a and y is not b and a.ndim == 2 and b.ndim == 1:
        return BatchedArray(products.matmul(y, a.swapaxes(-1, -2)), level)
    row, column = a.ndim == 1, b.ndim == 1
    if row:
        x = x.reshape((*x.shape[:-1], 1, x.shape[-1]))
    if column:
        y = y.reshape((*y.shape, 1))
    rank = max(a.ndim + row, b.ndim + column)
    batched_a, batched_b = (isinstance(v, BatchedArray) and v.level == level for v in (a, b))
    out = products.matmul(padded(x, rank) if batched_a else x, padded(y, rank) if batched_b else y)
    if row:
        out = out.reshape((*out.shape[:-2], out.shape[-1]))
    return BatchedArray(out.reshape(out.shape[:-1]) if column else out, level)


def padded(array: Any, ndim: int) -> Any:
    """With dimensions of size one behind the first, such that the others are so many."""
    missing = ndim + 1 - array.ndim
    return array.reshape((array.shape[0], *(1,) * missing, *array.shape[1:])) if missing > 0 else array


# -- example by example -----------------------------------------------------------------------------------------------


def _sliced(value: Any, level: int, k: int) -> Any:
    """One example's value, of arrays in tuples, lists and dicts."""
    if isinstance(value, BatchedArray):
        return value.physical[k, ...] if value.level == level else value
    if isinstance(value, (tuple, list)):
        return type(value)(_sliced(v, level, k) for v in value) if not hasattr(value, "_fields") else value
    if isinstance(value, dict):
        return {name: _sliced(v, level, k) for name, v in value.items()}
    return value


def looped_function(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What a function of arrays gives, example by example."""
    level = top_level((*args, *kwargs.values()))
    if level is None:
        raise Unbatchable("vmap: nothing is batched")
    count = size_at((*args, *kwargs.values()), level)
    if count:
        results = [function(*_sliced(tuple(args), level, k), **_sliced(kwargs, level, k)) for k in range(count)]
    else:
        results = [function(*(_one_of_none(v, level) for v in args), **kwargs)]
    return _stacked(results, level, count)


def _one_of_none(value: Any, level: int) -> Any:
    if isinstance(value, BatchedArray) and value.level == level:
        return library_of_array(value).zeros(value.shape, value.dtype)
    return tuple(_one_of_none(v, level) for v in value) if isinstance(value, (tuple, list)) else value


def _stacked(results: list[Any], level: int, count: int) -> Any:
    first = results[0]
    if isinstance(first, (tuple, list)):
        return tuple(_stacked([r[k] for r in results], level, count) for k in range(len(first)))
    if first is None:
        return None
    shapes = {np.shape(r) if not isinstance(r, BatchedArray) else r.shape for r in results}
    if len(shapes) > 1:
        raise RuntimeError("vmap: We do not support batching operators that can output dynamic shape.")
    return BatchedArray(np.stack(results)[:count] if not isinstance(first, BatchedArray) else np.stack(tuple(results)), level)


__all__ = [
    "DEPTH", "FUNCTIONS", "RULES", "SHIFTED", "WRITE", "BatchedArray", "Level", "Unbatchable", "aligned", "examples", "filled",
    "is_unbatchable", "levels_of", "looped_function", "matmul", "padded", "places_of", "running", "shifted_axis", "size_at",
    "top_level",
]  # fmt: skip
