"""Order: sort, topk, kthvalue, mode, medians, quantiles, and search in what is sorted.

Orders are those of PyTorch: NaN is the greatest.  Where elements are equal any order is a right one, but with ``stable=True``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import as_array, in_c_order, library_of_array, ufunc_accumulate
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.primitives import Primitive, define
from dynagraph.torch.core.tensor import Tensor, apply, made
from dynagraph.torch.functions.common import NUMBERS, cast, check_tensor, dim_of, function, result_type_of
from dynagraph.torch.functions.places import GATHER, check_places, is_batched, is_unknown
from dynagraph.torch.functions.pointwise_primitives import COPY
from dynagraph.torch.functions.reductions import along, at_index
from dynagraph.torch.functions.shapes import flatten, reshape, squeeze, transpose, unsqueeze
from dynagraph.torch.functions.ternary import lerp

# -- primitives -----------------------------------------------------------------------------------------------------------

_LONG = 256
_SHORT = 16  # rows up to this are sorted by a stable algorithm in any case, as PyTorch sorts them


def _keys(x: Any) -> Any:
    """Halves as float32: their order is the same, and NumPy sorts these faster."""
    return x.astype(np.float32) if is_half(x.dtype) else x


def _order(x: Any, dim: int, descending: bool, stable: bool) -> Any:
    keys, n = _keys(x), x.shape[dim]
    kind: Any = "stable" if stable or n <= _SHORT else None
    if not descending:
        return np.argsort(keys, axis=dim, kind=kind)
    if kind is None:
        return np.flip(np.argsort(keys, axis=dim), dim)
    return n - 1 - np.flip(np.argsort(np.flip(keys, dim), axis=dim, kind=kind), dim)


def _in_order(x: Any) -> tuple[int, ...] | None:
    """The dimensions in the order in which they lie in memory; None where this is their own."""
    if x.flags.c_contiguous:
        return None
    order = tuple(sorted(range(x.ndim), key=lambda k: -abs(x.strides[k])))
    return None if order == tuple(range(x.ndim)) or 0 in x.strides else order


def _sort(x: Any, dim: int, descending: bool, stable: bool) -> tuple[Any, Any]:
    axes = _in_order(x)
    if axes is not None:  # results lie in memory as the operand does
        back = tuple(map(axes.index, range(x.ndim)))
        values, places = _sort(in_c_order(x.transpose(axes)), axes.index(dim), descending, stable)
        return values.transpose(back), places.transpose(back)
    places = in_c_order(_order(x, dim, descending, stable))
    return in_c_order(np.take_along_axis(x, places, dim)), places


def _topk(x: Any, k: int, dim: int, largest: bool) -> tuple[Any, Any]:
    n = x.shape[dim]
    keys = np.moveaxis(_keys(x), dim, -1)
    if k * 4 < n:
        found = _candidates(keys, k, largest)
        chosen = np.take_along_axis(keys, found, -1)
        places = np.take_along_axis(found, _order(chosen, chosen.ndim - 1, largest, True), -1)
    else:
        places = _order(keys, keys.ndim - 1, largest, False)[..., :k]
    places = in_c_order(np.moveaxis(places, -1, dim))
    return in_c_order(np.take_along_axis(x, places, dim)), places


def _candidates(keys: Any, k: int, largest: bool) -> Any:
    """Where the `k` greatest or least of each row stand."""
    n = keys.shape[-1]
    if not k:
        return library_of_array(keys).zeros((*keys.shape[:-1], 0), np.int64)
    if n >= _LONG and not is_unknown(keys):
        # NumPy's partition is several times as fast as its argpartition; with NaN, or several that equal the last, there are not k
        last = np.partition(keys, n - k if largest else k - 1, axis=-1)[..., n - k if largest else k - 1, None]
        chosen = keys >= last if largest else keys <= last
        if np.count_nonzero(chosen) == k * (keys.size // n):
            return (np.flatnonzero(chosen) % n).reshape(*keys.shape[:-1], k)
    found = np.argpartition(keys, n - k if largest else k - 1, axis=-1)
    return found[..., : n - k - 1 : -1] if largest else found[..., :k]


def _by_places(d: Any, g: Any) -> Any:
    return g[0].call("put_sorted", d.outs[1], shape=d.x.shape, dim=d.attrs["dim"])


def _put_sorted(g: Any, places: Any, shape: Any, dim: int) -> Any:
    """Zeros, with elements at places along a dimension, of which no two are the same."""
    result = library_of_array(g).zeros(shape, g.dtype)
    np.put_along_axis(result, places, g, dim)
    return result


define("put_sorted", _put_sorted, (lambda d, g: g.call("take_sorted", d.y, dim=d.attrs["dim"]), lambda d, g: None), ("y", ""))
define(
    "take_sorted", lambda x, places, dim: np.take_along_axis(x, places, dim),
    (lambda d, g: g.call("put_sorted", d.y, shape=d.x.shape, dim=d.attrs["dim"]), lambda d, g: None), ("y", ""),
)  # fmt: skip
SORT = define("sort_along", _sort, (_by_places,), ("p",), backward="SortBackward0", outputs=2, differentiable=(0,))
TOPK = define("topk", _topk, (_by_places,), ("p",), backward="TopkBackward0", outputs=2, differentiable=(0,))


def _at(x: Any, places: Any, dim: int) -> tuple[Any, Any]:
    """The elements at one place along a dimension, which goes away, and the places."""
    values = np.take_along_axis(x, np.expand_dims(places, dim), dim).squeeze(dim)
    return in_c_order(values).reshape(values.shape), in_c_order(places).reshape(values.shape)


def _place_of(keys: Any, values: Any, dim: int) -> Any:
    """Where along a dimension a value stands first; NaN is found, too."""
    places = np.argmax(keys == np.expand_dims(values, dim), axis=dim)
    return places if keys.dtype.kind != "f" else np.where(np.isnan(values), np.argmax(np.isnan(keys), axis=dim), places)


def _kth(x: Any, k: int, dim: int) -> tuple[Any, Any]:
    keys = _keys(x)
    if x.shape[dim] <= _SHORT:
        return _at(x, np.take(np.argsort(keys, axis=dim, kind="stable"), k, axis=dim), dim)
    return _at(x, _place_of(keys, np.take(np.partition(keys, k, axis=dim), k, axis=dim), dim), dim)


def _median(x: Any, dim: int, skip: bool) -> tuple[Any, Any]:
    """The lower median; of NaNs the first, unless they are skipped."""
    n = x.shape[dim]
    if x.dtype.kind not in "fV":
        return _kth(x, (n - 1) // 2, dim)
    keys = _keys(x)
    absent = np.isnan(keys)
    if skip:
        last = np.maximum((n - np.count_nonzero(absent, axis=dim) - 1) // 2, 0)
        values = np.take_along_axis(np.sort(keys, axis=dim), np.expand_dims(last, dim), dim).squeeze(dim)
        return _at(x, _place_of(keys, values, dim), dim)
    middle = _kth(keys, (n - 1) // 2, dim)[1]
    return _at(x, np.where(absent.any(axis=dim), np.argmax(absent, axis=dim), middle), dim)


def _median_all(x: Any, skip: bool) -> Any:
    flat = x.reshape(-1)
    if not flat.size:
        least = np.nan if x.dtype.kind in "fV" else True if x.dtype.kind == "b" else np.iinfo(x.dtype).min
        return library_of_array(x).asarray(least).astype(x.dtype)
    keys = _keys(flat)
    middle: Any = (flat.size - 1) // 2
    if x.dtype.kind not in "fV":
        return np.partition(keys, middle)[middle]
    absent = np.count_nonzero(np.isnan(keys))
    if skip:
        return np.sort(keys)[np.maximum((flat.size - absent - 1) // 2, 0)].astype(x.dtype)
    return np.where(absent > 0, np.nan, np.partition(keys, middle)[middle]).astype(x.dtype)


def _shared(d: Any, g: Any) -> Any:
    """In equal shares to all elements that are the result; NaNs are, where it is NaN."""
    chosen = d.x.equals(d.out).call("logical_or", d.x.call("isnan").call("logical_and", d.out.call("isnan")))
    axes = tuple(range(d.x.ndim))
    return (g / chosen.cast(g.dtype).call("sum", axis=axes, keepdims=False)).where(chosen, 0)


def _mode(x: Any, dim: int) -> tuple[Any, Any]:
    """The least of the most frequent, and where it stands last."""
    keys = np.moveaxis(_keys(x), dim, -1)
    order = np.argsort(keys, axis=-1, kind="stable")
    rows = np.take_along_axis(keys, order, -1)
    n = rows.shape[-1]
    numbers = library_of_array(x).arange(n)
    begins = library_of_array(x).ones(rows.shape, bool)
    begins[..., 1:] = rows[..., 1:] != rows[..., :-1]
    length = numbers - ufunc_accumulate(np.maximum, np.where(begins, numbers, 0), axis=-1)
    last = np.argmax(length, axis=-1)  # the first to be reached of the longest: its values are the least
    return _at(x, np.take_along_axis(order, last[..., None], -1)[..., 0], dim)


def _of_index(d: Any, g: Any) -> Any:
    return at_index(d, g[0], d.outs[1])


def _selecting(name: str, forward: Any, backward: str) -> Primitive:
    return define(name, forward, (_of_index,), ("p",), backward=backward, outputs=2, differentiable=(0,))


KTH = _selecting("kthvalue", _kth, "KthvalueBackward0")
MODE = _selecting("mode", _mode, "ModeBackward0")
MEDIANS = {
    name: (
        define(f"{name}_all", _median_all, (_shared,), ("xo",), backward=f"{name.title()}Backward0"),
        _selecting(name, _median, f"{name.title()}Backward1"),
    )
    for name in ("median", "nanmedian")
}

# -- functions ------------------------------------------------------------------------------------------------------------

_SORTED, _TOPPED, _KTH, _MODE = (result_type_of(n, "values", "indices") for n in ("sort", "topk", "kthvalue", "mode"))


def _sorted(x: Tensor, dim: Any, descending: bool, stable: bool | None) -> Any:
    k = dim_of(dim, x._array.ndim)
    if x._array.dtype.kind == "c":
        raise RuntimeError(" Sort does not support complex dtypes on CPU")
    if not x._array.ndim:
        return apply(COPY, x), made(library_of_array(x._array).zeros((), np.int64))
    return apply(SORT, x, dim=k, descending=bool(descending), stable=bool(stable))


@function(out=True)
def sort(input: Tensor, dim: Any = -1, descending: bool = False, *, stable: bool | None = None) -> Any:
    """The elements along `dim` in ascending order, and where they stood."""
    return _SORTED(*_sorted(check_tensor(input, "sort", "input"), dim, descending, stable))


@function(out=True)
def argsort(input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Tensor:
    """The places of the elements along `dim` in ascending order."""
    return _sorted(check_tensor(input, "argsort", "input").detach(), dim, descending, stable)[1]


@function(out=True)
def msort(input: Tensor) -> Tensor:
    """The elements along the first dimension in ascending order."""
    return _sorted(check_tensor(input, "msort", "input"), 0, False, None)[0]


@function(out=True)
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The `k` greatest, or least, elements along `dim`, and where they stood."""
    x = check_tensor(input, "topk", "input")
    axis = dim_of(dim, x._array.ndim)
    k = int(k)
    if not 0 <= k <= (x._array.shape[axis] if x._array.ndim else 1):
        raise RuntimeError("selected index k out of range")
    if x._array.dtype.kind == "c":
        raise RuntimeError(" topk does not support complex dtypes on CPU")
    if x._array.dtype.kind == "b":
        raise RuntimeError("topk does not support bool dtypes on CPU")
    if not x._array.ndim:
        return _TOPPED(apply(COPY, x), made(library_of_array(x._array).zeros((), np.int64)))
    return _TOPPED(*apply(TOPK, x, k=k, dim=axis, largest=bool(largest)))


def _refuse(x: Tensor, kernel: str, kinds: str) -> None:
    if x._array.dtype.kind in kinds:
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{dtypes.scalar_name(x.dtype)}'")


def _check_dim(x: Tensor, dim: Any, who: str) -> None:
    k = dim_of(dim, x._array.ndim)
    if x._array.ndim and not x._array.shape[k]:
        raise IndexError(f"{who}(): Expected reduction dim {k} to have non-zero size.")


@function(out=True)
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The `k`-th least element along `dim`, and where it stood."""
    x = check_tensor(input, "kthvalue", "input")
    axis = dim_of(dim, x._array.ndim)
    _check_dim(x, dim, "kthvalue")
    if not 1 <= k <= (x._array.shape[axis] if x._array.ndim else 1):
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {axis}")
    _refuse(x, "kthvalue_cpu", "bc" if x._array.ndim else "c")
    return _selected(KTH, x, axis, keepdim, _KTH, k=k - 1)


def _selected(p: Primitive, x: Tensor, dim: int, keepdim: bool, kind: Any, **attrs: Any) -> Any:
    if not attrs or not x._array.ndim:
        return along(p, x, dim, keepdim, kind)
    values, places = apply(p, x, dim=dim, **attrs)
    return kind(unsqueeze(values, dim), unsqueeze(places, dim)) if keepdim else kind(values, places)


@function(out=True)
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The most frequent element along `dim`, of several the least, and where it stands."""
    x = check_tensor(input, "mode", "input")
    _check_dim(x, dim, "mode")
    _refuse(x, "mode_cpu", "c")
    return along(MODE, x, dim, keepdim, _MODE)


def _medians(name: str) -> None:
    kind = result_type_of(name, "values", "indices")
    whole, by_dim = MEDIANS[name]
    skip = name == "nanmedian"

    def compute(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        x = check_tensor(input, name, "input")
        if dim is None:
            if keepdim:
                raise TypeError(f'{name}() missing 1 required positional arguments: "dim"')
            _refuse(x, "median_cpu", "bc" if x._array.size else "c")
            return apply(whole, x, skip=skip)
        _check_dim(x, dim, "median")
        _refuse(x, "median_out", "bc")
        return _selected(by_dim, x, dim_of(dim, x._array.ndim), keepdim, kind, skip=skip)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}``: of all elements, or along `dim` with the places; of an even number the lower."
    function(name, out=True)(compute)


_medians("median")
_medians("nanmedian")

# -- quantiles ------------------------------------------------------------------------------------------------------------

_ROUNDED = {"lower": "floor", "higher": "ceil", "nearest": "rint"}


def _quantiles(name: str) -> None:
    skip = name == "nanquantile"

    def compute(input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear") -> Tensor:
        x = check_tensor(input, name, "input")
        q = _share(x, q)
        if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
            raise RuntimeError(
                f"quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
            )
        k = 0 if dim is None else dim_of(dim, x._array.ndim)
        shape = list(x._array.shape)
        if dim is None:
            rows = flatten(x)
            shape = [1] * len(shape) if keepdim else []
        else:
            rows = transpose(unsqueeze(x, -1), k, -1)
            if shape:
                shape[k : k + 1] = [1] if keepdim else []
        found = _interpolated(
            apply(SORT, rows, dim=rows._array.ndim - 1, descending=False, stable=False)[0], q, skip, interpolation
        )
        count = [] if not q._array.ndim else [q._array.size]
        result = reshape(found, (*shape, q._array.size))
        return transpose(unsqueeze(result, 0), 0, -1).squeeze(-1) if count else squeeze(result, -1)  # type: ignore[attr-defined]

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}``: between which elements a share `q` of the others lies, along `dim` or of all."
    function(name, out=True)(compute)


def _share(x: Tensor, q: Any) -> Tensor:
    """The shares as a tensor; RuntimeError where these, or the elements, are none."""
    if x._array.dtype not in (np.float32, np.float64):
        raise RuntimeError("quantile() input tensor must be either float or double dtype")
    if not x._array.size:
        raise RuntimeError("quantile() input tensor must be non-empty")
    if not isinstance(q, Tensor):
        if not isinstance(q, NUMBERS):
            raise TypeError(f"quantile() received an invalid combination of arguments - got (Tensor, {type(q).__name__})")
        if not 0 <= q <= 1:
            raise RuntimeError(f"quantile() q must be in the range [0, 1] but got {q:g}")
        return made(library_of_array(x._array).asarray(q, x._array.dtype))
    if q._array.ndim > 1:
        raise RuntimeError("quantile() q must be a scalar or 1D tensor")
    if q._array.dtype != x._array.dtype:
        raise RuntimeError("quantile() q tensor must be same dtype as the input tensor")
    if not is_batched(q._array) and not np.all((q._array >= 0) & (q._array <= 1)):
        raise RuntimeError("quantile() q values must be in the range [0, 1]")
    return q


def _interpolated(rows: Tensor, q: Tensor, skip: bool, how: str) -> Tensor:
    """From sorted rows the elements, or what lies between two, at shares of their length: these as a last dimension."""
    numbers = made(np.isnan(rows._array).sum(axis=-1, keepdims=True))
    last = rows._array.shape[-1] - 1
    shares = reshape(q, (1,) * (rows._array.ndim - 1) + (q._array.size,))
    if skip:
        rank = shares * made((last - numbers._array).astype(rows._array.dtype))  # type: ignore[operator]
        rank = rank.masked_fill(rank < 0, 0)  # type: ignore[operator]
    else:
        rank = shares * float(last)  # type: ignore[operator]
        if is_unknown(numbers._array) or numbers._array.any():
            rank = rank.masked_fill(numbers > 0, float(last))  # type: ignore[operator]
    rank = rank.expand(*rows._array.shape[:-1], q._array.size)
    if how in _ROUNDED:
        return _element(rows, getattr(np, _ROUNDED[how])(rank._array))
    below = _element(rows, np.floor(rank._array))
    above = _element(rows, np.ceil(rank._array))
    if how == "midpoint":
        return lerp(below, above, 0.5)
    return lerp(below, above, rank - made(np.floor(rank._array)))


def _element(rows: Tensor, rank: Any) -> Tensor:
    return apply(GATHER, rows, made(rank.astype(np.int64)), dim=rows._array.ndim - 1)


_quantiles("quantile")
_quantiles("nanquantile")

# -- search ---------------------------------------------------------------------------------------------------------------


def _search(sequence: Any, values: Any, right: bool) -> Any:
    """Where values belong in sorted rows: before those that equal them, or behind.  NaN belongs behind all."""
    if sequence.ndim == 1:
        found = np.searchsorted(sequence, values, "right" if right else "left")
        if values.dtype.kind == "f":
            found = np.where(np.isnan(values), sequence.shape[0], found)
        return found
    n = sequence.shape[-1]
    library = library_of_array(values)
    low, high = library.zeros(values.shape, np.int64), library.full(values.shape, n, np.int64)
    for _ in range(n.bit_length()):
        middle = (low + high) // 2
        there = np.take_along_axis(sequence, np.minimum(middle, n - 1), -1)
        further = ~(there > values) if right else ~(there >= values)
        open_ = low < high
        low, high = np.where(open_ & further, middle + 1, low), np.where(open_ & ~further, middle, high)
    return low


SEARCH = define("searchsorted", lambda sequence, values, right, dtype: as_array(_search(sequence, values, right)).astype(dtype))


def _searched(sequence: Tensor, values: Any, right: bool, out_int32: bool) -> Tensor:
    common = dtypes.result_dtype((sequence, values))
    given = values if isinstance(values, Tensor) else made(library_of_array(sequence._array).asarray(values))
    both = [_wide(cast(t.detach(), common)) for t in (sequence, given)]
    if given._array.size:
        _refuse(both[0], "searchsorted_out_cpu", "bc")
    return apply(SEARCH, *both, right=right, dtype=np.dtype(np.int32 if out_int32 else np.int64))


def _wide(x: Tensor) -> Tensor:
    return cast(x, dtypes.float32) if is_half(x._array.dtype) else x


@function(method=False, out=True)
def searchsorted(
    sorted_sequence: Tensor, input: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Where values belong in the sorted last dimension, so that it stays sorted."""
    sequence = check_tensor(sorted_sequence, "searchsorted", "sorted_sequence")
    who = "torch.searchsorted():"
    own = sequence._array.shape
    if side is not None and side not in ("left", "right"):
        raise RuntimeError(f"{who} side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError(f"{who} side and right can't be set to opposites, got side of left while right was True")
    if not own:
        raise RuntimeError(f"{who} boundaries tensor should have positive dimension, but got 0 dimension")
    given = input._array.shape if isinstance(input, Tensor) else ()
    if len(own) != 1:
        if not given:
            raise RuntimeError(
                f"{who} input value can be a scalar only when boundaries tensor dimension is 1, but we got boundaries tensor "
                f"dim({len(own)}) and input value's dim(0) numel(1)"
            )
        if len(own) != len(given) or own[:-1] != given[:-1]:
            raise RuntimeError(
                f"{who} boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and input value "
                f"tensor must match, but we got boundaries tensor {list(own)} and input value tensor {list(given)}"
            )
    if sorter is not None:
        sequence = _resorted(who, sequence, sorter)
    return _searched(sequence, input, right or side == "right", out_int32)


def _resorted(who: str, sequence: Tensor, sorter: Tensor) -> Tensor:
    own, given = list(sequence._array.shape), list(sorter._array.shape)
    if own != given:
        raise RuntimeError(
            f"{who} boundary and sorter must have the same size, but got boundary tensor {own}and got sorter tensor {given}"
        )
    if sorter._array.dtype != np.int64:
        raise RuntimeError(f"{who} sorter must be a tensor of long dtype but got dtype {dtypes.scalar_name(sorter.dtype)}")
    check_places(sorter._array, 0, own[-1], lambda found: RuntimeError(f"{who} sorter index out of range"))
    return made(np.take_along_axis(sequence._array, sorter._array, -1))


@function(method=False, out=True)
def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """Between which of sorted boundaries values lie."""
    edges = check_tensor(boundaries, "bucketize", "boundaries", 2)
    if edges._array.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({edges._array.ndim})")
    return _searched(edges, input, right, out_int32)


__all__ = ["SORT", "TOPK", "searchsorted", "sort"]
