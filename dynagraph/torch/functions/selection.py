"""Elements by their index along a dimension, read and written: gather, scatter and `index_*`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import library_of_array
from dynagraph.torch.core.primitives import PRIMITIVES, define
from dynagraph.torch.core.tensor import Tensor, apply
from dynagraph.torch.functions.common import NUMBERS, check_tensor, dim_of, function, number_as
from dynagraph.torch.functions.index_reductions import INDEX_REDUCE, SCATTER_REDUCE
from dynagraph.torch.functions.places import (
    GATHER,
    add_rows,
    at_slices,
    check_complex_gradient,
    check_places,
    define_store,
    flat_places,
    leading,
    nothing,
    store_flat,
    storing,
)
from dynagraph.torch.functions.pointwise_primitives import COPY

# -- primitives: index tensors are operands without a gradient ----------------------------------------------------------


def _gathered(g: Any, d: Any, index: Any) -> Any:
    """The gradient by what was scattered: what stands at its places; zeros for what was not used."""
    found = g.call("gather_along", index, dim=d.attrs["dim"])
    shape = d.y.shape
    if found.shape == shape:
        return found
    return found.call("put_slice", base=shape, starts=(0,) * len(shape), steps=(1,) * len(shape))


def _scatter(array: Any, src: Any, index: Any, dim: int) -> None:
    store_flat(array, flat_places(index, array.shape, dim), leading(src, index.shape))


def _scatter_number(array: Any, index: Any, dim: int, value: Any) -> None:
    store_flat(array, flat_places(index, array.shape, dim), value)


def _scatter_add(array: Any, src: Any, index: Any, dim: int) -> None:
    store_flat(array, flat_places(index, array.shape, dim), leading(src, index.shape), np.add)


def _scatter_combine(array: Any, src: Any, index: Any, dim: int, combine: str) -> None:
    store_flat(array, flat_places(index, array.shape, dim), leading(src, index.shape) if src.ndim else src, getattr(np, combine))


def _underivable(name: str) -> Any:
    def vjp(d: Any, g: Any) -> Any:
        raise RuntimeError(f"derivative for aten::{name} is not implemented")

    return vjp


SCATTER = define_store(
    "scatter_source", _scatter,
    (lambda d, g: g.call("scatter_zero", d.operands[2], dim=d.attrs["dim"]), lambda d, g: _gathered(g, d, d.operands[2]), nothing),
    ("z", "z", ""),
    backward="ScatterBackward0",
)  # fmt: skip
SCATTER_NUMBER = define_store(
    "scatter_number", _scatter_number, (lambda d, g: g.call("scatter_zero", d.y, dim=d.attrs["dim"]), nothing), ("y", ""),
    backward="ScatterBackward1",
)  # fmt: skip
SCATTER_ADD = define_store(
    "scatter_add", _scatter_add, (lambda d, g: g, lambda d, g: _gathered(g, d, d.operands[2]), nothing), ("", "z", ""),
    backward="ScatterAddBackward0",
)  # fmt: skip
SCATTER_COMBINE = define_store(
    "scatter_combine", _scatter_combine, (_underivable("scatter"), _underivable("scatter"), nothing), ("", "", ""),
    backward="NotImplemented",
)  # fmt: skip
define_store(
    "scatter_zero", lambda array, index, dim: _scatter_number(array, index, dim, 0),
    (lambda d, g: g.call("scatter_zero", d.y, dim=d.attrs["dim"]), nothing), ("y", ""),
)  # fmt: skip


def _index_add(array: Any, src: Any, index: Any, dim: int) -> None:
    add_rows(array, index, src, dim)


def _index_copy(array: Any, src: Any, index: Any, dim: int) -> None:
    array[at_slices(dim, index)] = src


def _index_zero(array: Any, index: Any, dim: int) -> None:
    array[at_slices(dim, index)] = 0


def _index_add_zeros(g: Any, index: Any, shape: Any, dim: int) -> Any:
    made = library_of_array(g).zeros(shape, g.dtype)
    _index_add(made, g, index, dim)
    return made


def _index_mask(index: Any, shape: Any, dim: int) -> Any:
    made = library_of_array(index).zeros(shape, bool)
    made[at_slices(dim, index)] = True
    return made


define("index_mask", _index_mask)
define_store("index_zero", _index_zero, (lambda d, g: g.call("index_zero", d.y, dim=d.attrs["dim"]), nothing), ("y", ""))
INDEX_SELECT = define(
    "index_select", lambda x, index, dim: np.take(x, index, axis=dim),
    (lambda d, g: g.call("index_add_zeros", d.y, shape=d.x.shape, dim=d.attrs["dim"]), nothing), ("y", ""),
    backward="IndexSelectBackward0",
)  # fmt: skip
define("index_add_zeros", _index_add_zeros, (lambda d, g: g.call("index_select", d.y, dim=d.attrs["dim"]), nothing), ("y", ""))
INDEX_ADD = define_store(
    "index_add", _index_add,
    (lambda d, g: g, lambda d, g: g.call("index_select", d.operands[2], dim=d.attrs["dim"]), nothing), ("", "z", ""),
    backward="IndexAddBackward0",
)  # fmt: skip
INDEX_COPY = define_store(
    "index_copy", _index_copy,
    (
        lambda d, g: g.call("index_zero", d.operands[2], dim=d.attrs["dim"]),
        lambda d, g: g.call("index_select", d.operands[2], dim=d.attrs["dim"]),
        nothing,
    ),
    ("z", "z", ""),
    backward="IndexCopyBackward0",
)  # fmt: skip
INDEX_FILL_NUMBER = define_store(
    "index_fill_number", lambda array, index, dim, value: _index_copy(array, value, index, dim),
    (lambda d, g: g.call("index_zero", d.y, dim=d.attrs["dim"]), nothing), ("y", ""),
    order="K", backward="IndexFillBackward0",
)  # fmt: skip
INDEX_FILL = define_store(
    "index_fill", _index_copy,
    (
        lambda d, g: g.call("index_zero", d.operands[2], dim=d.attrs["dim"]),
        lambda d, g: g.where(d.operands[2].call("index_mask", shape=g.shape, dim=d.attrs["dim"]), 0),
        nothing,
    ),
    ("z", "z", ""),
    order="K",
    backward="IndexFillBackward1",
)  # fmt: skip

# -- gather and scatter -------------------------------------------------------------------------------------------------


def _bounds(dim: int, size: int) -> Any:
    return lambda found: RuntimeError(f"index {found} is out of bounds for dimension {dim} with size {size}")


def _full(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape or (1,)


def _check_index(who: str, index: Any) -> None:
    check_tensor(index, who, "index", 3)
    if index._array.dtype not in (np.int64, np.int32):
        raise RuntimeError(f"{who}(): Expected dtype int32/int64 for index")


@function(out=True)
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """The elements whose places along `dim` are given by an index of as many dimensions."""
    x = check_tensor(input, "gather", "input")
    k = dim_of(dim, x._array.ndim)
    _check_index("gather", index)
    own, at = _full(x._array.shape), _full(index._array.shape)
    if not index._array.size:
        return apply(PRIMITIVES["new_zeros"], x, shape=index._array.shape)
    if len(own) != len(at):
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
    for j, (n, m) in enumerate(zip(at, own)):
        if j != k and n > m:
            raise RuntimeError(
                f"Size does not match at dimension {j} expected index {list(at)} to be no larger than self {list(own)} apart from "
                f"dimension {k}"
            )
    check_places(index._array, 0, own[k], _bounds(k, own[k]))
    if x._array.ndim and not index._array.ndim:
        return gather(x, k, index.reshape(1)).reshape(())  # type: ignore[attr-defined]
    return apply(GATHER, x, index, dim=k)


define(
    "new_zeros",
    lambda x, shape: library_of_array(x).zeros(shape, x.dtype),
    (lambda d, g: g.full(0, d.x.shape),),
    ("",),
    backward="GatherBackward0",
)


def _check_scatter(x: Tensor, k: int, index: Tensor, src: Tensor | None) -> None:
    """What scatter and its kin ask of shapes, dtypes and places."""
    if src is not None and src._array.dtype != x._array.dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    if not index._array.size:
        return
    own, at = _full(x._array.shape), _full(index._array.shape)
    if len(own) != len(at):
        raise RuntimeError("Index tensor must have the same number of dimensions as self tensor")
    given = None if src is None else _full(src._array.shape)
    if given is not None and len(given) != len(at):
        if src._array.ndim and len(given) < len(at):  # type: ignore[union-attr]
            dim_of(len(given), len(given))
        raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
    if any(j != k and n > m for j, (n, m) in enumerate(zip(at, own))) or (
        given is not None and any(n > m for n, m in zip(at, given))
    ):
        text = f"Expected index {list(at)} to be no larger than self {list(own)} apart from dimension {k}"
        raise RuntimeError(text if given is None else f"{text} and to be no larger size than src {list(given)}")
    check_places(index._array, 0, own[k], _bounds(k, own[k]))


def _of_rank(index: Tensor, x: Tensor) -> Tensor:
    """An index without dimensions beside a vector, or the reverse, in the tensor's rank."""
    rank = x._array.ndim
    if index._array.ndim == rank:
        return index
    if not index._array.size:
        return index.reshape((0,) * rank)  # type: ignore[attr-defined]
    return index.reshape((1,) * rank)  # type: ignore[attr-defined]


@storing(out=True)
def scatter(input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Any:
    """The elements of `src`, or a number, stored at the places along `dim` that an index gives."""
    x = check_tensor(input, "scatter", "input")
    k = dim_of(dim, x._array.ndim)
    _check_index("scatter", index)
    given = value if src is None else src
    if given is None or not isinstance(given, (Tensor, *NUMBERS)):
        raise TypeError("scatter() received an invalid combination of arguments: expected src or value, a Tensor or a Number")
    if reduce is not None and reduce not in ("add", "multiply"):
        raise RuntimeError("reduce argument must be either add or multiply.")
    is_tensor = isinstance(given, Tensor)
    _check_scatter(x, k, index, given if is_tensor else None)
    at = _of_rank(index, x)
    if reduce is not None:
        if is_tensor:
            warnings.warn(
                "The reduce argument of torch.scatter with Tensor src is deprecated and will be removed in a future PyTorch "
                "release. Use torch.scatter_reduce instead for more reduction options.",
                UserWarning,
                stacklevel=3,
            )
        source = _of_rank(given, x) if is_tensor else number_as(given, x._array.dtype, x.dtype)
        return SCATTER_COMBINE, (x, source, at), {"dim": k, "combine": reduce}
    if is_tensor:
        return SCATTER, (x, _source_of_rank(given, at), at), {"dim": k}
    return SCATTER_NUMBER, (x, at), {"dim": k, "value": number_as(given, x._array.dtype, x.dtype)}


def _source_of_rank(src: Tensor, index: Tensor) -> Tensor:
    if src._array.ndim == index._array.ndim:
        return src
    if not index._array.size:
        return src.reshape(-1)[:0].reshape(index._array.shape)  # type: ignore[attr-defined]
    return src.reshape((src._array.size,) if index._array.ndim else ())  # type: ignore[attr-defined]


@storing(out=True)
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    """The elements of `src` added at the places along `dim` that an index gives."""
    x = check_tensor(input, "scatter_add", "input")
    k = dim_of(dim, x._array.ndim)
    check_tensor(src, "scatter_add", "src", 4)
    _check_index("scatter", index)
    _check_scatter(x, k, index, src)
    at = _of_rank(index, x)
    return SCATTER_ADD, (x, _source_of_rank(src, at), at), {"dim": k}


_REDUCTIONS = {"sum": "sum", "add": "sum", "prod": "prod", "multiply": "prod", "mean": "mean", "amax": "amax", "max": "amax",
               "amin": "amin", "min": "amin"}  # fmt: skip


@storing(out=True)
def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Any:
    """What stands at each place combined with the elements of `src` that an index sends there."""
    x = check_tensor(input, "scatter_reduce", "input")
    k = dim_of(dim, x._array.ndim)
    check_tensor(src, "scatter_reduce", "src", 4)
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    own = _REDUCTIONS[reduce]
    _check_index("scatter", index)
    _check_scatter(x, k, index, src)
    if (own in ("amax", "amin") and x._array.dtype.kind == "c") or (own == "mean" and x._array.dtype.kind == "b"):
        raise NotImplementedError(f"\"scatter_gather_tensor_cpu_reduce_{own}\" not implemented for '{dtypes.scalar_name(x.dtype)}'")
    check_complex_gradient("scatter_reduce", x, src)
    at = _of_rank(index, x)
    return SCATTER_REDUCE, (x, _source_of_rank(src, at), at), {"dim": k, "reduce": own, "include_self": include_self}


# -- slices at an index -------------------------------------------------------------------------------------------------


def _vector(index: Tensor) -> Tensor:
    return index if index._array.ndim else index.reshape(1)  # type: ignore[attr-defined]


@function(out=True)
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices along `dim` whose numbers are given."""
    x = check_tensor(input, "index_select", "input")
    check_tensor(index, "index_select", "index", 3)
    if index._array.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    if index._array.dtype not in (np.int64, np.int32):
        raise RuntimeError("index_select(): Expected dtype int32 or int64 for index")
    k = dim_of(dim, x._array.ndim)
    if not x._array.ndim:
        if index._array.size != 1:
            raise RuntimeError(f"index_select(): Index to scalar can have only 1 value, got {index._array.size} value(s)")
        check_places(index._array, 0, 1, lambda found: IndexError("index out of range in self"))
        return apply(COPY, x)
    size = x._array.shape[k]
    check_places(
        index._array, 0, size,
        lambda found: RuntimeError(f"INDICES element is out of DATA bounds, id={found} axis_dim={size}")
        if k and x._array.ndim > 1
        else IndexError("index out of range in self"),
    )  # fmt: skip
    return apply(INDEX_SELECT, x, _vector(index), dim=k)


def _check_rows(who: str, x: Tensor, k: int, index: Tensor, source: Tensor) -> None:
    """What index_add and index_reduce ask of shapes and dtypes."""
    if index._array.ndim > 1:
        raise IndexError(
            f"{who}_(): Index is supposed to be a vector, but got dim: {index._array.ndim} with type: "
            f"{dtypes.scalar_name(index.dtype)} and size: {list(index._array.shape)}"
        )
    if index._array.dtype not in (np.int64, np.int32):
        raise RuntimeError(f"{who}_(): Expected dtype int32/int64 for index but got: {dtypes.scalar_name(index.dtype)}")
    if x._array.dtype != source._array.dtype:
        names = (dtypes.scalar_name(x.dtype), dtypes.scalar_name(source.dtype))
        raise RuntimeError(f"{who}_(): self ({names[0]}) and source ({names[1]}) must have the same scalar type")
    size = source._array.shape[k] if source._array.ndim > k else 1
    if index._array.size != size:
        raise RuntimeError(
            f"{who}_(): Number of indices ({index._array.size}) should be equal to source.size(dim): ({size}), for dim: {k}"
        )
    own, given = x._array.shape, source._array.shape
    if len(own) != len(given) or own[:k] + own[k + 1 :] != given[:k] + given[k + 1 :]:
        raise RuntimeError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. "
            f"Got self.shape = {list(own)} source.shape = {list(given)}"
        )


def _as_vector(x: Tensor) -> Tensor:
    """A tensor without dimensions as one of one element."""
    return x if x._array.ndim else x.reshape(1)  # type: ignore[attr-defined]


def _scalar_row(x: Tensor, index: Tensor, source: Tensor, **attrs: Any) -> Any:
    """Operands that have no dimensions, for the primitives of scatter, which have an element for each place."""
    shape = () if index._array.size == 1 else index._array.shape
    return (x, source.reshape(shape), index.reshape(shape)), attrs  # type: ignore[attr-defined]


@storing(out=True)
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Any:
    """The slices of `source`, times `alpha`, added to those along `dim` whose numbers are given."""
    x = check_tensor(input, "index_add", "input")
    k = dim_of(dim, x._array.ndim)
    check_tensor(index, "index_add", "index", 3)
    check_tensor(source, "index_add", "source", 4)
    _check_rows("index_add", x, k, index, source)
    size = _full(x._array.shape)[k]
    check_places(
        index._array,
        0,
        size,
        lambda found: IndexError("index out of range in self") if x._array.ndim <= 1 else _bounds(k, size)(found),
    )
    if alpha != 1:
        number = number_as(alpha, x._array.dtype, x.dtype)
        source = source * (float(number) if number.dtype.kind == "V" else number.item())  # type: ignore[operator]
    if not x._array.ndim:
        operands, attrs = _scalar_row(x, index, source, dim=0)
        return SCATTER_ADD, operands, attrs
    return INDEX_ADD, (x, source, _vector(index)), {"dim": k}


@storing(out=True)
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    """The slices of `source` stored as those along `dim` whose numbers are given."""
    x = check_tensor(input, "index_copy", "input")
    k = dim_of(dim, x._array.ndim)
    check_tensor(index, "index_copy", "index", 3)
    check_tensor(source, "index_copy", "source", 4)
    if index._array.ndim > 1:
        raise IndexError(f"index_copy_(): Index should have dimension 1 or 0 (got {index._array.ndim})")
    n, own, given = index._array.size, x._array.shape, source._array.shape
    if not given and n != 1:
        raise IndexError(f"index_copy_(): When source is scalar, index should have one element (got {n})")
    if own and given and len(own) != len(given):
        raise IndexError(
            "index_copy_(): When source and destination are not scalars, their dimensionality must match. Source dimensionality "
            f"({len(given)}), destination dimensionality ({len(own)})"
        )
    if index._array.dtype != np.int64:
        raise RuntimeError(f"index_copy_(): Expected a long tensor for index, but got {dtypes.scalar_name(index.dtype)}")
    if x._array.dtype != source._array.dtype:
        raise RuntimeError(
            f"index_copy_(): self and source expected to have the same dtype, but got (self) {dtypes.scalar_name(x.dtype)} and "
            f"(source) {dtypes.scalar_name(source.dtype)}"
        )
    rest, given_rest = own[:k] + own[k + 1 :], given[:k] + given[k + 1 :]
    if rest != given_rest:
        raise RuntimeError(
            "index_copy_(): Source/destination tensor must have same slice shapes. Destination slice shape: "
            f"{' '.join(map(str, rest))} at dimension {k} and source slice shape: {' '.join(map(str, given_rest))} at dimension 0."
        )
    if given and n != given[k]:
        raise IndexError(f"index_copy_(): Number of indices ({n}) should be equal to source.size(dim) ({given[k]})")
    size = _full(own)[k]
    check_places(
        index._array,
        0,
        size,
        lambda found: IndexError(f"index_copy_(): index {found} is out of bounds for dimension {k} with size {size}"),
    )
    if not own:
        operands, attrs = _scalar_row(x, index, source, dim=0)
        return SCATTER, operands, attrs
    return INDEX_COPY, (x, _as_vector(source), _vector(index)), {"dim": k}


@storing()
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Any:
    """One number stored in the slices along `dim` whose numbers are given; negative ones count from the end."""
    x = check_tensor(input, "index_fill", "input")
    k = dim_of(dim, x._array.ndim)
    check_tensor(index, "index_fill", "index", 3)
    if index._array.dtype != np.int64:
        raise IndexError("index_fill_(): Expected dtype int64 for index.")
    if isinstance(value, Tensor):
        if value._array.ndim:
            raise RuntimeError(
                f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value._array.ndim} dimension(s)."
            )
        value = value if value._array.dtype == x._array.dtype else value.to(x.dtype)  # type: ignore[attr-defined]
    elif isinstance(value, complex) and x._array.dtype.kind != "c":
        raise RuntimeError("index_fill_(): Converting complex Scalar to non-complex type is not supported")
    if index._array.ndim > 1:
        raise RuntimeError("Index has to be a vector/scalar")
    size = _full(x._array.shape)[k]
    check_places(
        index._array, -size, size, lambda found: IndexError(f"index {found} is out of bounds for dimension {k} with size {size}")
    )
    if not x._array.ndim and index._array.size:
        if isinstance(value, Tensor):
            return SCATTER, (x, value, index.reshape(()) * 0), {"dim": 0}  # type: ignore[attr-defined]
        return SCATTER_NUMBER, (x, index.reshape(-1)[0] * 0), {"dim": 0, "value": np.asarray(value).astype(x._array.dtype)[()]}  # type: ignore[attr-defined]
    if isinstance(value, Tensor):
        return INDEX_FILL, (x, value, _vector(index)), {"dim": k}
    return INDEX_FILL_NUMBER, (x, _vector(index)), {"dim": k, "value": np.asarray(value).astype(x._array.dtype)[()]}


@storing(out=True)
def index_reduce(input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Any:
    """The slices along `dim` combined with those of `source` that are sent there."""
    x = check_tensor(input, "index_reduce", "input")
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    k = dim_of(dim, x._array.ndim)
    check_tensor(index, "index_reduce", "index", 3)
    check_tensor(source, "index_reduce", "source", 4)
    _check_rows("index_reduce", x, k, index, source)
    check_places(index._array, 0, _full(x._array.shape)[k], lambda found: IndexError("index out of range in self"))
    if reduce in ("amax", "amin") and x._array.dtype.kind == "c":
        raise NotImplementedError(f"\"index_reduce_func_{reduce}\" not implemented for '{dtypes.scalar_name(x.dtype)}'")
    check_complex_gradient("index_reduce", x, source)
    attrs = {"dim": k, "reduce": reduce, "include_self": include_self}
    if not x._array.ndim:
        operands, attrs = _scalar_row(x, index, source, **attrs)
        return SCATTER_REDUCE, operands, attrs
    return INDEX_REDUCE, (x, source, _vector(index)), attrs


__all__ = ["INDEX_SELECT", "SCATTER", "SCATTER_ADD", "index_select", "number_as"]
