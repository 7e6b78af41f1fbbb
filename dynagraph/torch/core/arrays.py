"""Arrays of NumPy or CuPy: what NumPy's protocols do not hand on to CuPy.

CuPy's arrays take part in calls of ufuncs and in most of NumPy's functions.  They do not in `reduce`, `accumulate` and `at` of
ufuncs, in functions that make arrays, and in `np.asarray`, `np.ascontiguousarray` and `as_strided`.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from dynagraph.markers import is_compiling

_REDUCTIONS = {
    np.add: np.sum, np.multiply: np.prod, np.maximum: np.max, np.minimum: np.min, np.logical_or: np.any, np.logical_and: np.all,
}  # fmt: skip
_AS_IT_IS = contextlib.nullcontext()
_SCALARS = (np.generic, bool, int, float, complex)
_SUMMED_AT_PLACES = "ILQfdFD"  # dtypes that CuPy adds at places


def is_on_gpu(x: Any) -> bool:
    """Whether it is an array of CuPy's; arrays of examples (batching.py) are not."""
    return not isinstance(x, (np.ndarray, *_SCALARS)) and not hasattr(x, "physical")


def library_of_array(x: Any) -> Any:
    """The library that makes arrays where an array is: NumPy or CuPy."""
    if isinstance(x, (np.ndarray, *_SCALARS)):
        return np
    physical = getattr(x, "physical", None)  # of examples
    return sys.modules["cupy"] if physical is None else library_of_array(physical)


def put_beside(array: Any, like: Any) -> Any:
    """An array of NumPy's, or a number, where another array is."""
    if type(like) is np.ndarray or hasattr(array, "physical"):
        return array
    library = library_of_array(like)
    return array if library is np else library.asarray(array)


def ufunc_reduce(ufunc: Any, x: Any, **about: Any) -> Any:
    """``ufunc.reduce(x, **about)``."""
    if type(x) is np.ndarray or not is_on_gpu(x):
        return ufunc.reduce(x, **about)
    return _REDUCTIONS[ufunc](x, **about)


def ufunc_accumulate(ufunc: Any, x: Any, axis: int) -> Any:
    """``ufunc.accumulate(x, axis)``; on a GPU in as many steps as the logarithm of the size says (W. Hillis and G. Steele, "Data
    parallel algorithms", 1986).
    """
    if type(x) is np.ndarray or not is_on_gpu(x):
        return ufunc.accumulate(x, axis=axis)
    x, step = np.moveaxis(x, axis, -1), 1
    while step < x.shape[-1]:
        x = np.concatenate([x[..., :step], ufunc(x[..., step:], x[..., :-step])], axis=-1)
        step *= 2
    return np.moveaxis(x, -1, axis).copy()


def ufunc_at(ufunc: Any, array: Any, places: Any, values: Any) -> None:
    """``ufunc.at(array, places, values)`` of add, maximum and minimum; of multiply at places in a row."""
    if type(array) is np.ndarray or not is_on_gpu(array):
        ufunc.at(array, places, values)
        return
    if ufunc is np.multiply:
        _multiply_at(array, places, values)
        return
    own, dtype = getattr(library_of_array(array), ufunc.__name__), array.dtype
    values = library_of_array(array).asarray(values, dtype)
    if dtype.char in _SUMMED_AT_PLACES or dtype == np.int32:
        own.at(array, places, values)
    elif dtype.kind == "i" and dtype.itemsize == 8:  # bits of unsigned numbers; for extremes with the signs' places exchanged
        flip = np.uint64(0 if ufunc is np.add else 1 << 63)
        bits = array.view(np.uint64) ^ flip
        own.at(bits, places, values.view(np.uint64) ^ flip)
        array[...] = (bits ^ flip).view(np.int64)
    else:
        wide = array.astype(np.int32 if dtype.kind in "iub" else np.float32)
        own.at(wide, places, values.astype(wide.dtype))
        array[...] = wide.astype(dtype)


def _multiply_at(array: Any, places: Any, values: Any) -> None:
    """CuPy has no such function: the first factors of all places, then the second ones, and so on."""
    order = np.argsort(places, kind="stable")
    ranked = places[order]
    numbers = library_of_array(array).arange(ranked.size)
    rank = numbers - np.searchsorted(ranked, ranked)
    for k in range(int(rank.max()) + 1 if ranked.size else 0):
        chosen = order[rank == k]
        array[places[chosen]] *= values[chosen]


def number_in(vector: Any, how: str) -> int:
    """What a vector of int64 holds: its "first" element, the "sum" of all, or the "greatest".

    In captures an input's is a number that changes, as sizes do; others are data, and a break.
    """
    if how == "first":
        return int(vector[0])
    return int(vector.sum() if how == "sum" else vector.max())


def ratio_of_sizes(size: int, divisor: int, like: Any) -> Any:
    """``size / divisor``, by which an array's elements are multiplied.

    Captured code computes it in the program: a float of sizes that change is another number, and program, for each of them.
    """
    if not is_compiling():
        return size / divisor
    return (library_of_array(like).full((), size, np.float64) / divisor).astype(like.dtype)


def as_if_new(x: Any) -> Any:
    """The array; programs compute again what is computed from it, though they have computed the same before."""
    return x


def any_wrong(mask: Any) -> Any:
    """Whether any place of an index is wrong, that is, out of bounds, or any other number that PyTorch's kernels refuse.

    Where an error is raised if so, it is a check of the program in captured code (see `frontend/executor/rare_branches.py`).
    """
    return mask if isinstance(mask, bool) else mask.any()


def programs_leave_calls() -> bool:
    """Whether a program in which a check fails leaves the call to Python: not with ``config.cuda_errors = "later"``, on a GPU."""
    return True


def none_is_set(flags: Iterable[Any]) -> bool:
    """Whether flags, arrays of one element each, are all zero.

    Captured code takes it that they are: a program that finds another one leaves the call to Python.
    """
    for flag in flags:
        if is_compiling() and programs_leave_calls():
            if any_wrong(flag != 0):
                raise RuntimeError("a flag is set")
        elif flag.item():
            return False
    return True


def in_c_order(x: Any) -> Any:
    """``np.ascontiguousarray(x)``."""
    if type(x) is np.ndarray or not is_on_gpu(x):
        return np.ascontiguousarray(x)
    return x if x.flags.c_contiguous else x.copy()


def failing(x: Any) -> contextlib.AbstractContextManager[Any]:
    """A context in which routines of LAPACK raise LinAlgError where they fail; CuPy gives NaN unless it is asked to look."""
    if type(x) is np.ndarray or not is_on_gpu(x):
        return _AS_IT_IS
    return importlib.import_module("cupyx").errstate(linalg="raise")  # type: ignore[no-any-return]


def as_array(x: Any) -> Any:
    """Scalars as NumPy's arrays; arrays as they are."""
    return np.asarray(x) if isinstance(x, _SCALARS) else x


def strided(x: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """The memory of an array from its first element on as another shape; strides in bytes."""
    if isinstance(x, np.ndarray):
        return np.lib.stride_tricks.as_strided(x, shape, strides)
    if hasattr(x, "physical"):
        return x.strided(shape, strides)
    return library_of_array(x).lib.stride_tricks.as_strided(x, shape, strides)


__all__ = [
    "any_wrong", "as_array", "as_if_new", "failing", "in_c_order", "is_on_gpu", "library_of_array", "none_is_set",
    "programs_leave_calls", "put_beside", "ratio_of_sizes", "strided", "ufunc_accumulate", "ufunc_at", "ufunc_reduce",
]  # fmt: skip
