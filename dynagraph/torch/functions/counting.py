"""Distinct elements and counts: unique, histograms, bincount, isin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import as_array, in_c_order, library_of_array, put_beside, ufunc_at
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.primitives import PRIMITIVES, define
from dynagraph.torch.core.tensor import Tensor, apply, made
from dynagraph.torch.functions.common import NAMESPACES, NUMBERS, cast, check_tensor, dim_of, function, result_type_of
from dynagraph.torch.functions.places import check_places, is_batched, is_unknown

# -- distinct elements ----------------------------------------------------------------------------------------------------


def _no_gradient(kernel: str) -> Any:
    def vjp(d: Any, g: Any) -> Any:
        raise NotImplementedError(f"the derivative for '{kernel}' is not implemented.")

    return vjp


def _runs(begins: Any, order: Any, inverse: bool, counts: bool) -> tuple[Any, Any]:
    """Of elements in order, and of where new ones begin: the number of each element's run, where it stood; the runs' lengths."""
    nothing = library_of_array(begins).empty(0, np.int64)
    number = nothing
    if inverse:
        number = np.cumsum(begins) - 1
        if order is not None:
            back = library_of_array(begins).empty(number.shape, np.int64)
            back[order] = number
            number = back
    lengths = np.diff(np.append(np.flatnonzero(begins), begins.size)) if counts else nothing
    return number, lengths


def _begins(x: Any) -> Any:
    """Where the elements of a vector, or the rows of a matrix, are others than the ones before."""
    begins = library_of_array(x).ones(x.shape[0], bool)
    changed = x[1:] != x[:-1]
    begins[1:] = changed if changed.ndim == 1 else changed.any(axis=1)
    return begins


def _unique(x: Any, inverse: bool, counts: bool, consecutive: bool) -> tuple[Any, Any, Any]:
    flat = x.reshape(-1)
    order = None
    if not consecutive:
        keys = flat.astype(np.float32) if is_half(flat.dtype) else flat
        if inverse or is_half(flat.dtype):
            order = np.argsort(keys, kind="stable")
            flat = flat[order]
        else:
            flat = np.sort(keys, kind="stable")
    begins = _begins(flat)
    number, lengths = _runs(begins, order, inverse, counts)
    return flat[begins], number.reshape(x.shape) if inverse else number, lengths


def _unique_along(x: Any, dim: int, inverse: bool, counts: bool, consecutive: bool) -> tuple[Any, Any, Any]:
    moved = np.moveaxis(x, dim, 0)
    rows = in_c_order(moved).reshape(x.shape[dim], -1) if x.size else library_of_array(x).zeros((x.shape[dim], 0), x.dtype)
    if is_half(rows.dtype):
        rows = rows.astype(np.float32)
    order = None
    if not consecutive:
        order = np.lexsort(rows.T[::-1]) if rows.shape[1] else library_of_array(x).arange(rows.shape[0])
        rows, moved = rows[order], moved[order]
    begins = _begins(rows)
    number, lengths = _runs(begins, order, inverse, counts)
    return in_c_order(np.moveaxis(moved[begins], 0, dim)), number, lengths


for _name, _forward, _kernel, _node in (
    ("unique", _unique, "_unique2", "Unique2Backward0"),
    ("unique_consecutive", _unique, "unique_consecutive", "UniqueConsecutiveBackward0"),
    ("unique_dim", _unique_along, "unique_dim", "UniqueDimBackward0"),
    ("unique_dim_consecutive", _unique_along, "unique_consecutive", "UniqueConsecutiveBackward0"),
):
    define(_name, _forward, (_no_gradient(_kernel),), ("",), backward=_node, outputs=3, differentiable=(0,))


def _distinct(who: str, input: Tensor, dim: int | None, inverse: bool, counts: bool) -> Any:
    x = check_tensor(input, who, "input")
    if x._array.dtype.kind == "c":
        raise NotImplementedError(f"\"unique\" not implemented for '{dtypes.scalar_name(x.dtype)}'")
    consecutive = who == "unique_consecutive"
    if dim is None:
        found = apply(PRIMITIVES[who], x, inverse=inverse, counts=counts, consecutive=consecutive)
    else:
        if not x._array.ndim:
            raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
        k = dim_of(dim, x._array.ndim)
        empty = [j for j, n in enumerate(x._array.shape) if not n]
        if len(empty) > 1:
            raise RuntimeError("Number of zero sized dimensions is more than one, so unique cannot be applied ")
        if empty and empty != [k]:
            raise RuntimeError("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")
        p = PRIMITIVES["unique_dim_consecutive" if consecutive else "unique_dim"]
        found = apply(p, x, dim=k, inverse=inverse, counts=counts, consecutive=consecutive)
    values, number, lengths = found
    chosen = (values, *((number,) if inverse else ()), *((lengths,) if counts else ()))
    return chosen if len(chosen) > 1 else values


@function()
def unique(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The distinct elements, or with `dim` slices, in order; which each element is, and how many there are of each, on demand."""
    return _distinct("unique", input, dim, bool(return_inverse), bool(return_counts))


@function()
def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    """As `unique`, of neighbours only: repeated elements that do not stand together stay."""
    return _distinct("unique_consecutive", input, dim, bool(return_inverse), bool(return_counts))


@function(method=False, out=True)
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Which elements are among `test_elements`."""
    given = (elements, test_elements)
    if not any(isinstance(g, Tensor) for g in given) or not all(isinstance(g, (Tensor, *NUMBERS)) for g in given):
        raise TypeError("isin() received an invalid combination of arguments: expected a Tensor, and another or a Number")
    for operand in given:
        if isinstance(operand, Tensor) and operand._array.dtype.kind in "bc":
            raise RuntimeError(f"Unsupported input type encountered for isin(): {dtypes.scalar_name(operand.dtype)}")
    common = dtypes.result_dtype(given)
    if is_half(common.numpy):
        common = dtypes.float32
    like = next(g for g in given if isinstance(g, Tensor))._array
    found = [
        cast(g.detach(), common) if isinstance(g, Tensor) else made(put_beside(np.asarray(g, common.numpy), like)) for g in given
    ]
    return apply(ISIN, *found, invert=bool(invert))


ISIN = define("isin", lambda elements, among, invert: as_array(np.isin(elements, among, invert=invert)))


# -- histograms -----------------------------------------------------------------------------------------------------------


def _refuse(x: Tensor, kernel: str, kinds: str = "bciu") -> None:
    if x._array.dtype.kind in kinds:
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{dtypes.scalar_name(x.dtype)}'")


def _histc(x: Any, bins: int, low: float | None, high: float | None) -> Any:
    """Counts of equal parts of a range: one that was given, or else that of the values."""
    values = x.reshape(-1)
    values = values.astype(np.float32) if is_half(values.dtype) else values
    kind = values.dtype.type
    first, last = (kind(low), kind(high)) if low is not None and high is not None else _widened(values.min(), values.max(), 1)
    inside = (values >= first) & (values <= last)
    place = np.where(inside, (values - first) * kind(bins) / (last - first), 0).astype(np.int64)
    counts = library_of_array(x).zeros(bins, np.int64)
    ufunc_at(np.add, counts, np.minimum(place, bins - 1), inside.astype(np.int64))
    return counts.astype(x.dtype)


def _widened(low: Any, high: Any, by: float) -> tuple[Any, Any]:
    """A range; one of no width is widened."""
    if isinstance(low, float):
        return (low - by, high + by) if low == high else (low, high)
    return np.where(low == high, low - by, low).astype(low.dtype), np.where(low == high, high + by, high).astype(high.dtype)


def _check_finite(values: Any, which: str) -> None:
    """Refuse a range that is known only where a program runs."""
    if not is_batched(values) and not np.isfinite(values).all():
        raise RuntimeError(f"{which} range of [{values.min():g}, {values.max():g}] is not finite")


HISTC = define("histc", _histc)


@function(out=True)
def histc(input: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
    """How many elements lie in each of `bins` equal parts of a range; what lies outside is not counted."""
    x = check_tensor(input, "histc", "input").detach()
    if x._array.dtype.kind == "b":
        _refuse(x, "linspace_cpu")
    _refuse(x, "histogram_cpu")
    if bins <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
    low, high = float(min), float(max)
    if low == high and x._array.size and is_unknown(x._array):
        _check_finite(x._array, "torch.histc:")
        return apply(HISTC, x, bins=bins, low=None, high=None)
    if low == high and x._array.size:
        low, high = float(x._array.min()), float(x._array.max())
    low, high = _widened(low, high, 1)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"torch.histc: range of [{low:g}, {high:g}] is not finite")
    if low > high:
        raise RuntimeError("torch.histc: max must be larger than min")
    return apply(HISTC, x, bins=bins, low=low, high=high)


def _histogram(x: Any, *weights_and_edges: Any, weighted: bool, density: bool) -> Any:
    """Counts, or sums of weights, of rows of coordinates between edges along each dimension."""
    weights = weights_and_edges[0] if weighted else None
    edges = weights_and_edges[1:] if weighted else weights_and_edges
    sizes = tuple(e.shape[0] - 1 for e in edges)
    library = library_of_array(x)
    inside = library.ones(x.shape[0], bool)
    flat = library.zeros(x.shape[0], np.int64)
    for k, bounds in enumerate(edges):
        column = x[:, k]
        inside &= (column >= bounds[0]) & (column <= bounds[-1])
        place = np.minimum(np.searchsorted(bounds, column, "right") - 1, sizes[k] - 1)
        flat = flat * sizes[k] + place
    total = library.zeros(math.prod(sizes), np.float64)
    given = 1.0 if weights is None else weights.reshape(-1).astype(np.float64)
    ufunc_at(np.add, total, np.where(inside, flat, 0), np.where(inside, given, 0.0))
    counts = total.reshape(sizes).astype(x.dtype)
    if not density:
        return counts
    counts = counts / counts.sum()
    for k, bounds in enumerate(edges):
        counts = counts / np.diff(bounds).reshape((-1,) + (1,) * (len(sizes) - k - 1))
    return counts.astype(x.dtype)


def _histogram_back(d: Any, g: Any) -> Any:
    raise RuntimeError("derivative for aten::histogram is not implemented")


HISTOGRAM = define("histogram", _histogram, _histogram_back, "", backward="NotImplemented")
_HISTOGRAM, _HISTOGRAMDD = (result_type_of(n, "hist", "bin_edges") for n in ("histogram", "histogramdd"))
_WHO = "torch.histogramdd:"


def _edges(rows: Tensor, bins: Sequence[Any], range_: Any) -> tuple[Tensor, ...]:
    """The edges of bins along each dimension: those given, or so many of equal distances."""
    n = rows._array.shape[1]
    if range_ is not None and len(range_) != 2 * n:
        raise RuntimeError(f"{_WHO} for a {n}-dimensional histogram range should have {2 * n} elements, but got {len(range_)}")
    found = []
    for k, given in enumerate(bins):
        if isinstance(given, Tensor):
            found.append(_checked_edges(rows, given, k))
            continue
        if given <= 0:
            raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {given} for dimension {k}")
        low, high = (float(v) for v in range_[2 * k : 2 * k + 2]) if range_ is not None else (0.0, 0.0)
        if range_ is None and rows._array.size and is_unknown(rows._array):
            _check_finite(rows._array[:, k], f"{_WHO} dimension {k}'s")
            found.append(made(_spread(rows._array[:, k], int(given))))
            continue
        if range_ is None and rows._array.size:
            column = rows._array[:, k]
            low, high = float(column.min()), float(column.max())
        elif range_ is None:
            low, high = 0.0, 1.0
        if not (math.isfinite(low) and math.isfinite(high)):
            raise RuntimeError(f"{_WHO} dimension {k}'s range [{low:g}, {high:g}] is not finite")
        if low > high:
            raise RuntimeError(f"{_WHO} min should not exceed max, but got min {low:g} max {high:g} for dimension {k}")
        low, high = _widened(low, high, 0.5)
        found.append(NAMESPACES["torch"]["linspace"](low, high, int(given) + 1, dtype=rows.dtype))
    return tuple(found)


def _spread(values: Any, bins: int) -> Any:
    """Edges at equal distances over the range of values that are not known yet."""
    low, high = _widened(values.min(), values.max(), 0.5)
    places = np.arange(bins + 1)
    return np.where(places == bins, high, low + (high - low) / bins * places).astype(values.dtype)  # the last is in


def _checked_edges(rows: Tensor, given: Tensor, k: int) -> Tensor:
    shape = given._array.shape
    if given._array.dtype != rows._array.dtype:
        names = [_C_NAMES.get(t.dtype.name, t.dtype.name) for t in (rows, given)]
        raise RuntimeError(
            f"{_WHO} input tensor and bins tensors should have the same dtype, but got input with dtype {names[0]} and bins for "
            f"dimension {k} with dtype {names[1]}"
        )
    if len(shape) != 1:
        raise RuntimeError(
            f"{_WHO} bins tensor should have one dimension, but got {len(shape)} dimensions in the bins tensor for dimension {k}"
        )
    if not shape[0]:
        raise RuntimeError(
            f"{_WHO} bins tensor should have at least 1 element, but got 0 elements in the bins tensor for dimension {k}"
        )
    if shape[0] == 1:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got 0 for dimension {k}")
    return given


_C_NAMES = {"float32": "float", "float64": "double", "int64": "long int", "int32": "int"}


def _binned(
    rows: Tensor, bins: Sequence[Any], range_: Any, weight: Tensor | None, density: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    if weight is not None:
        if weight._array.dtype != rows._array.dtype:
            names = [_C_NAMES.get(t.dtype.name, t.dtype.name) for t in (rows, weight)]
            raise RuntimeError(
                f"{_WHO} if weight tensor is provided, input tensor and weight tensor should have the same dtype, but got "
                f"input({names[0]}), and weight({names[1]})"
            )
        if weight._array.size != rows._array.shape[0]:
            raise RuntimeError(
                f"{_WHO} if weight tensor is provided it should have the same shape as the input tensor excluding its innermost "
                f"dimension, but got input with shape {list(rows._array.shape)} and weight with shape {list(weight._array.shape)}"
            )
    edges = _edges(rows, bins, range_)
    _refuse(rows, "histogramdd")
    weights = () if weight is None else (weight,)
    return apply(HISTOGRAM, rows, *weights, *edges, weighted=weight is not None, density=bool(density)), edges


@function(out=True)
def histogram(input: Tensor, bins: Any, *, range: Any = None, weight: Tensor | None = None, density: bool = False) -> Any:
    """How many elements, or how much of `weight`, lies between neighbours of the bins' edges, and these."""
    x = check_tensor(input, "histogram", "input")
    if weight is not None and weight._array.shape != x._array.shape:
        raise RuntimeError(
            f"{_WHO} if weight tensor is provided it should have the same shape as the input tensor excluding its innermost "
            f"dimension, but got input with shape {[x._array.size, 1]} and weight with shape {list(weight._array.shape)}"
        )
    counts, (edges,) = _binned(x.reshape(-1, 1), [bins], range, weight, density)  # type: ignore[attr-defined]
    return _HISTOGRAM(counts, edges.clone() if edges is bins else edges)  # type: ignore[attr-defined]


@function(method=False)
def histogramdd(input: Tensor, bins: Any, range: Any = None, weight: Tensor | None = None, density: bool = False) -> Any:
    """A histogram of several dimensions: of the coordinates in the last dimension of `input`."""
    x = check_tensor(input, "histogramdd", "input")
    if x._array.ndim < 2:
        raise RuntimeError(f"{_WHO} input tensor should have at least 2 dimensions")
    n = x._array.shape[-1]
    each = [bins] * n if isinstance(bins, int) else list(bins)
    if len(each) != n:
        raise RuntimeError("histogramdd: The size of bins must be equal to the innermost dimension of the input.")
    counts, edges = _binned(x.reshape(-1, n), each, range, weight, density)  # type: ignore[attr-defined]
    return _HISTOGRAMDD(counts, edges)


def _bincount(x: Any, *weights: Any, minlength: int) -> Any:
    if not weights:
        return np.bincount(x, minlength=minlength).astype(np.int64, copy=False)
    kind = np.float32 if weights[0].dtype == np.float32 else np.float64
    return np.bincount(x, weights[0].astype(np.float64), minlength).astype(kind)


def _bincount_back(d: Any, g: Any) -> Any:
    raise RuntimeError("derivative for aten::bincount is not implemented")


BINCOUNT = define("bincount", _bincount, _bincount_back, "", backward="NotImplemented")


@function()
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each number from 0 on occurs in a vector, or the sum of its weights."""
    x = check_tensor(input, "bincount", "input")
    _refuse(x, "bincount_cpu", "bcfV")
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if x._array.ndim == 1 and not x._array.size:
        return made(library_of_array(x._array).zeros(minlength, np.int64))
    refusal = "bincount only supports 1-d non-negative integral inputs."
    if x._array.ndim != 1:
        raise RuntimeError(refusal)
    check_places(x._array, 0, 1 << 62, lambda found: RuntimeError(refusal))
    if weights is not None and weights._array.shape != x._array.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    return apply(BINCOUNT, x, *(() if weights is None else (weights,)), minlength=minlength)


@function(method=False)
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """The coordinates of flat places in an array of a shape."""
    x = check_tensor(indices, "unravel_index", "indices")
    if x._array.dtype.kind not in "iu":
        raise TypeError(f"expected 'indices' to be integer dtype, but got {x.dtype}")
    sizes = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    found = []
    for k, n in enumerate(sizes):
        behind = math.prod(sizes[k + 1 :])
        found.append(made(as_array((x._array // max(behind, 1)) % max(n, 1))))
    return tuple(found)


__all__ = ["bincount", "histc", "histogram", "isin", "unique"]
