"""Reductions and scans: sums, extremes, statistics, norms, running sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.ir.ops import OPS as _OPS
from dynagraph.markers import is_compiling
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import as_array, in_c_order, library_of_array, ufunc_accumulate, ufunc_reduce
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.primitives import PRIMITIVES, Primitive, define
from dynagraph.torch.core.tensor import Tensor, apply, made
from dynagraph.torch.core.terms import ArrayTerm
from dynagraph.torch.functions.arithmetic import div
from dynagraph.torch.functions.common import (
    NAMESPACES,
    cast,
    check_tensor,
    dim_of,
    dims_of,
    floating,
    function,
    result_type_of,
    sizes_of,
)
from dynagraph.torch.functions.pointwise_primitives import COPY
from dynagraph.torch.functions.shapes import unsqueeze, view_
from dynagraph.torch.functions.ternary import where

# -- primitives: `axis` is a sorted tuple of dimensions, as the rows have it ------------------------------------------


def spread(d: Any, reduced: Any) -> Any:
    """What belongs to a result, at each of the elements that it was made of."""
    if not reduced.ndim:
        return reduced.call("broadcast_to", shape=d.x.shape)
    axis = d.attrs["axis"]
    kept = tuple(1 if k in axis else size for k, size in enumerate(d.x.shape))
    return reduced.reshape(kept).call("broadcast_to", shape=d.x.shape)


def _wide(x: Any) -> Any:
    return x.astype(np.float32) if is_half(x.dtype) else x


def _reducing(ufunc: Any) -> Callable[..., Any]:
    """Halves are accumulated as float32 and rounded once."""

    def forward(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        wide = _wide(x)
        return _narrow(ufunc_reduce(ufunc, wide, axis=axis, keepdims=keepdims, dtype=wide.dtype), x.dtype)

    return forward


def _in_order(result: Any) -> Any:
    """A result as an array whose elements lie in memory in order."""
    return np.asarray(result, order="C") if isinstance(result, (np.ndarray, np.generic, int)) else result.copy(order="C")


def _narrow(result: Any, given: np.dtype) -> Any:
    """A result in its operand's dtype, contiguous, as PyTorch's are whatever the operand's order in memory."""
    if is_half(given):
        return as_array(result).astype(given, order="C")
    return in_order(result)


def in_order(result: Any) -> Any:
    """An array with its elements in order: a copy where they are not."""
    return in_c_order(result) if isinstance(result, np.ndarray) and not result.flags.c_contiguous else result


def _extreme_vjp(d: Any, g: Any) -> Any:
    """In equal shares to all that are the extreme; NaNs are, where the extreme is NaN."""
    out = spread(d, d.out)
    chosen = d.x.equals(out)
    if not d.x.dtype.is_integer:
        chosen = chosen.call("logical_or", d.x.call("isnan").call("logical_and", out.call("isnan")))
    count = chosen.cast(g.dtype).call("sum", axis=d.attrs["axis"], keepdims=True)
    return (spread(d, g) / count).where(chosen, 0)


def _prod_vjp(d: Any, g: Any) -> Any:
    """The row's: the products of the others, zeros among them."""
    d.out  # noqa: B018  (PyTorch's reads it: a result that has been written to is an error)
    from_row = _OPS["prod"].vjp
    return from_row(d, g)[0]


def _cumprod_vjp(d: Any, g: Any) -> Any:
    """The row's; where it is recorded itself, by steps without quotients, which have derivatives at zeros too.

    An element's gradient is the product of those in front of it by the sum ``s[k] = g[k] + x[k + 1] * s[k + 1]``, which doubles its
    reach with each step.
    """
    if isinstance(g, ArrayTerm):
        return _OPS["cumprod"].vjp(d, g)[0]  # type: ignore[misc]
    d.out  # noqa: B018  (an error where it has been written to)
    axis, x = d.attrs["axis"], d.x.conj
    shape, size, reach = x.shape, x.shape[axis], 1

    def edge(value: float, length: int) -> Any:
        return x.full(value, tuple(length if k == axis else n for k, n in enumerate(shape)))

    def part(term: Any, start: int, length: int) -> Any:
        starts = tuple(start if k == axis else 0 for k in range(len(shape)))
        return term.part(starts, tuple(length if k == axis else n for k, n in enumerate(shape)))

    def moved(term: Any, by: int) -> Any:
        return part(term, by, size - by).call("concatenate", edge(0, by), axis=axis)

    if size < 2:
        return g
    in_front = edge(1, 1).call("concatenate", part(x, 0, size - 1), axis=axis).call("cumprod", axis=axis)
    factors = moved(x, 1)
    while reach < size:
        g = g + factors * moved(g, reach)
        factors = factors * moved(factors, reach) if 2 * reach < size else factors
        reach *= 2
    return g * in_front


def _var_vjp(d: Any, g: Any) -> Any:
    axis, correction = d.attrs["axis"], d.attrs["correction"]
    count = math.prod(d.x.shape[k] for k in axis)
    mean = d.x.call("sum", axis=axis, keepdims=True) / max(count, 1)
    return spread(d, g) * (d.x - mean) * (2 / (count - correction) if count != correction else math.inf)


def _std_vjp(d: Any, g: Any) -> Any:
    """Zero where the deviation is zero."""
    axis, correction = d.attrs["axis"], d.attrs["correction"]
    count = math.prod(d.x.shape[k] for k in axis)
    mean = d.x.call("sum", axis=axis, keepdims=True) / max(count, 1)
    share = (g / d.out).where(d.out.equals(0).call("logical_not"), 0)
    return spread(d, share) * (d.x - mean) * (1 / (count - correction) if count != correction else math.inf)


def _moment(function: Any) -> Callable[..., Any]:
    def forward(x: Any, axis: tuple[int, ...], keepdims: bool, correction: float) -> Any:
        count = math.prod(x.shape[k] for k in axis)
        if not count:
            return np.full_like(ufunc_reduce(np.add, x.real, axis=axis, keepdims=keepdims), math.nan, dtype=x.real.dtype, order="C")
        if count <= correction:  # squares over zero
            return _narrow(np.divide(function(_wide(x), axis=axis, keepdims=keepdims), 0), x.dtype)
        return _narrow(function(_wide(x), axis=axis, keepdims=keepdims, ddof=correction), x.dtype)

    return forward


SUM = define(
    "sum",
    _reducing(np.add),
    (lambda d, g: spread(d, g),),
    ("",),
    backward="SumBackward1",
)
MEAN = define(
    "mean",
    lambda x, axis, keepdims: _narrow(np.mean(_wide(x), axis=axis, keepdims=keepdims), x.dtype),
    (lambda d, g: spread(d, g) / math.prod(d.x.shape[k] for k in d.attrs["axis"]),),
    ("",),
    backward="MeanBackward1",
)
PROD = define(
    "prod", _reducing(np.multiply), (_prod_vjp,), ("xo",), backward="ProdBackward1"
)
AMAX = define(
    "max",
    lambda x, axis, keepdims: _narrow(ufunc_reduce(np.maximum, x, axis=axis, keepdims=keepdims), x.dtype),
    (_extreme_vjp,), ("xo",), backward="AmaxBackward0",
)  # fmt: skip
AMIN = define(
    "min",
    lambda x, axis, keepdims: _narrow(ufunc_reduce(np.minimum, x, axis=axis, keepdims=keepdims), x.dtype),
    (_extreme_vjp,), ("xo",), backward="AminBackward0",
)  # fmt: skip
VAR = define("var", _moment(np.var), (_var_vjp,), ("x",), backward="VarBackward0")
STD = define("std", _moment(np.std), (_std_vjp,), ("xo",), backward="StdBackward0")


# -- extremes with their place ----------------------------------------------------------------------------------------


def _first_extreme(find: Any) -> Callable[..., Any]:
    def forward(x: Any, dim: int) -> tuple[Any, Any]:
        place = find(x, axis=dim, keepdims=True)
        return _narrow(np.take_along_axis(x, place, dim).squeeze(dim), x.dtype), in_order(place.squeeze(dim))

    return forward


def at_index(d: Any, g: Any, index: Any) -> Any:
    """The gradient at the places along a dimension that were chosen, zeros elsewhere."""
    return g.call("put_along", index, shape=d.x.shape, dim=d.attrs["dim"])


def _put_along(g: Any, index: Any, shape: Any, dim: int) -> Any:
    if is_compiling():  # fused with what uses it
        places = library_of_array(g).arange(shape[dim]).reshape((-1,) + (1,) * (len(shape) - 1 - dim))
        return np.where(places == np.expand_dims(index, dim), np.expand_dims(g, dim), g.dtype.type(0))
    made = library_of_array(g).zeros(shape, g.dtype)
    np.put_along_axis(made, np.expand_dims(index, dim), np.expand_dims(g, dim), dim)
    return made


def _take_along(g: Any, index: Any, dim: int) -> Any:
    return np.take_along_axis(g, np.expand_dims(index, dim), dim).squeeze(dim)


define("put_along", _put_along, (lambda d, g: g.call("take_along", d.y, dim=d.attrs["dim"]), lambda d, g: None), ("y", ""))
define(
    "take_along",
    _take_along,
    (lambda d, g: g.call("put_along", d.y, shape=d.x.shape, dim=d.attrs["dim"]), lambda d, g: None),
    ("y", ""),
)
for _name, _find in (("max", np.argmax), ("min", np.argmin)):
    define(
        f"{_name}_dim",
        _first_extreme(_find),
        (lambda d, g: at_index(d, g[0], d.outs[1]),),
        ("p",),
        backward=f"{_name.title()}Backward0",
        outputs=2,
        differentiable=(0,),
    )

# -- scans ------------------------------------------------------------------------------------------------------------


def _flipped(x: Any, axis: int) -> Any:
    starts = tuple(size - 1 if k == axis else 0 for k, size in enumerate(x.shape))
    return x.call("slice", starts=starts, steps=tuple(-1 if k == axis else 1 for k in range(x.ndim)), shape=x.shape)


def _cumsum_vjp(d: Any, g: Any) -> Any:
    axis = d.attrs["axis"]
    return _flipped(_flipped(g, axis).call("cumsum", axis=axis), axis)


CUMSUM = define(
    "cumsum", lambda x, axis: _narrow(np.cumsum(_wide(x), axis=axis, dtype=_wide(x).dtype), x.dtype), (_cumsum_vjp,), ("",),
    backward="CumsumBackward0",
)  # fmt: skip
CUMPROD = define(
    "cumprod", lambda x, axis: _narrow(np.cumprod(_wide(x), axis=axis, dtype=_wide(x).dtype), x.dtype),
    (_cumprod_vjp,), ("xo",), backward="CumprodBackward0",
)  # fmt: skip

# -- functions --------------------------------------------------------------------------------------------------------


def _axis(x: Tensor, dim: Any) -> tuple[int, ...]:
    return dims_of(dim, x._array.ndim)


def _summed(x: Tensor, given: DType | None) -> Tensor:
    """In the dtype that sums are taken in: integers as int64."""
    if given is not None:
        return cast(x, given)
    return cast(x, dtypes.int64) if x._array.dtype.kind in "iub" else x


@function(out="computes")
def sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The sum over `dim`, or over all dimensions; integers give int64."""
    x = _summed(check_tensor(input, "sum", "input"), dtype)
    if dim is None and x._array.ndim:
        return apply(SUM_ALL, x, axis=tuple(range(x._array.ndim)), keepdims=keepdim)
    return apply(SUM, x, axis=_axis(x, dim), keepdims=keepdim and bool(x._array.ndim))


SUM_ALL = define("sum_all", SUM.forward, SUM.vjps, ("",), backward="SumBackward0")
PROD_ALL = define("prod_all", PROD.forward, PROD.vjps, PROD.saves, backward="ProdBackward0")
MEAN_ALL = define("mean_all", MEAN.forward, MEAN.vjps, ("",), backward="MeanBackward0")


@function(namespace="")
def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """Summed to a shape that broadcasts to the tensor's."""
    shape, own = sizes_of(size, "sum_to_size"), self._array.shape
    front = len(own) - len(shape)
    if front < 0 or any(n not in (1, m) for n, m in zip(shape, own[front:])):
        raise RuntimeError(f"size {{{list(shape)}}} is not expandable to size {{{list(own)}}}.")
    dims = [*range(front), *(k + front for k, n in enumerate(shape) if n == 1 != own[k + front])]
    return view_(sum(self, dims, True), shape) if dims else self


@function(out="computes")
def nansum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The sum of what is not NaN."""
    x = check_tensor(input, "nansum", "input")
    if x._array.dtype.kind == "c":
        raise RuntimeError("nansum on CPU does not support complex inputs")
    if x._array.dtype.kind in "fV":
        if dtype is not None and not dtype.is_floating_point:
            raise NotImplementedError(f"\"nansum_cpu\" not implemented for '{dtypes.scalar_name(dtype)}'")
        x = where(made(np.isnan(x._array)), 0.0, x)
    return sum(x, dim, keepdim, dtype=dtype)


def _mean_of(x: Tensor, given: DType | None, who: str) -> Tensor:
    if given is not None:
        return cast(x, given)
    if x._array.dtype.kind in "iub":
        raise RuntimeError(
            f"{who}(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: "
            f"{dtypes.scalar_name(x.dtype)}"
        )
    return x


@function(out="floats")
def mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The mean over `dim`, or over all dimensions."""
    x = _mean_of(check_tensor(input, "mean", "input"), dtype, "mean")
    p = MEAN_ALL if dim is None and x._array.ndim else MEAN
    return apply(p, x, axis=_axis(x, dim), keepdims=keepdim and bool(x._array.ndim))


@function(out="computes")
def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The mean of what is not NaN."""
    if not (input.dtype.is_floating_point or input.dtype.is_complex):
        raise RuntimeError(
            f"nanmean(): expected input to have floating point or complex dtype but got {dtypes.scalar_name(input.dtype)}"
        )
    count = sum(made((~np.isnan(input._array)).astype(np.int64)), dim, keepdim)
    return div(nansum(input, dim, keepdim, dtype=dtype), count)


@function(out="computes")
def prod(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The product along `dim`, or of all elements; integers give int64."""
    x = _summed(check_tensor(input, "prod", "input"), dtype)
    axis = tuple(range(x._array.ndim)) if dim is None else ((dim_of(dim, x._array.ndim),) if x._array.ndim else ())
    p = PROD_ALL if dim is None else PROD
    return apply(p, x, axis=axis, keepdims=keepdim and bool(x._array.ndim))


def _moments(p: Primitive, name: str) -> Callable[..., Tensor]:
    def compute(
        input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: Any = None
    ) -> Tensor:
        x = check_tensor(input, name, "input")
        if isinstance(dim, bool):  # var(unbiased) of all
            dim, unbiased = None, dim
        if x._array.dtype.kind not in "fcV":
            raise RuntimeError("std and var only support floating point and complex dtypes")
        if correction is None:
            correction = 1 if unbiased is None else int(unbiased)
        return apply(p, x, axis=_axis(x, dim), keepdims=keepdim, correction=correction)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}`` over `dim`; `correction` is subtracted from the number of elements."
    return compute


var = function("var", out=True)(_moments(VAR, "var"))
std = function("std", out=True)(_moments(STD, "std"))


def _two_moments(name: str, moment: Callable[..., Tensor]) -> None:
    def compute(
        input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: Any = None
    ) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        return moment(input, dim, unbiased, keepdim, correction=correction), mean(input, dim, keepdim)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}``: both over `dim`."
    function(name, method=False)(compute)


_two_moments("var_mean", var)
_two_moments("std_mean", std)


@function(out=True)
def amax(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The greatest over `dim`; equal ones share the gradient."""
    return _extreme_over(AMAX, "amax", input, dim, keepdim)


@function(out=True)
def amin(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The least over `dim`; equal ones share the gradient."""
    return _extreme_over(AMIN, "amin", input, dim, keepdim)


def _check_no_gradient(x: Tensor, who: str) -> None:
    if mode.grad and x.requires_grad:
        raise RuntimeError(f"{who} does not support automatic differentiation for outputs with complex dtype.")


def _extreme_over(p: Primitive, name: str, input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    x = check_tensor(input, name, "input")
    if x._array.dtype.kind == "c":
        _check_no_gradient(x, name)
    axis = _axis(x, dim)
    for k in axis:
        if x._array.shape[k] == 0:
            if dim == () or dim is None:
                raise RuntimeError(
                    f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the "
                    "'dim' argument."
                )
            raise IndexError(f"{name}(): Expected reduction dim {k} to have non-zero size.")
    return apply(p, x, axis=axis, keepdims=keepdim and bool(x._array.ndim))


@function(method=False, out=True)
def aminmax(input: Tensor, *, dim: Any = None, keepdim: bool = False) -> Any:
    """The least and the greatest."""
    dims = () if dim is None else dim
    return _AMINMAX(amin(input, dims, keepdim), amax(input, dims, keepdim))


Tensor.aminmax = aminmax  # type: ignore[attr-defined]
_AMINMAX = result_type_of("aminmax", "min", "max")
_BOTH = {name: result_type_of(name, "values", "indices") for name in ("max", "min")}
_ALL = {
    name: define(f"{name}_all", p.forward, p.vjps, p.saves, backward=f"{name.title()}Backward1")
    for name, p in (("max", AMAX), ("min", AMIN))
}


def along(p: Primitive, x: Tensor, dim: Any, keepdim: bool, kind: Any) -> Any:
    """A primitive with values and places along a dimension."""
    if not x._array.ndim:
        dim_of(dim, 0)
        return kind(apply(COPY, x), made(library_of_array(x._array).zeros((), np.int64)))
    k = dim_of(dim, x._array.ndim)
    values, places = apply(p, x, dim=k)
    return kind(unsqueeze(values, k), unsqueeze(places, k)) if keepdim else kind(values, places)


two = {name: NAMESPACES["torch"][f"{name}imum"] for name in ("max", "min")}


def _maximum(name: str) -> Callable[..., Any]:
    def compute(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
        x = check_tensor(input, name, "input")
        if isinstance(dim, Tensor):
            dim, other = None, dim
        if other is not None:
            return two[name](x, other)
        if x._array.dtype.kind == "c":
            raise NotImplementedError(f"\"{name}_all\" not implemented for '{dtypes.scalar_name(x.dtype)}'")
        if dim is None:
            if not x._array.size:
                raise RuntimeError(
                    f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the "
                    "'dim' argument."
                )
            return apply(_ALL[name], x, axis=tuple(range(x._array.ndim)), keepdims=False)
        if x._array.ndim and x._array.shape[dim_of(dim, x._array.ndim)] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {dim_of(dim, x._array.ndim)} to have non-zero size.")
        return along(PRIMITIVES[f"{name}_dim"], x, dim, keepdim, _BOTH[name])

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}``: of all elements; along `dim` with the places; or of two tensors."
    return compute


for _name in ("max", "min"):
    function(_name, out=True)(_maximum(_name))


def _places(name: str, find: Any) -> Callable[..., Tensor]:
    p = define(name, lambda x, dim, keepdims: in_order(find(x, axis=dim, keepdims=keepdims)))

    def compute(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        x = check_tensor(input, name, "input")
        if x._array.dtype.kind in "bc":
            raise RuntimeError(f"{name}(): does not support {'bool' if x._array.dtype.kind == 'b' else 'complex'} input")
        if dim is None:
            if not x._array.size:
                raise IndexError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")
            result = made(find(x._array))
            return result if not keepdim else made(result._array.reshape((1,) * x._array.ndim))
        k = dim_of(dim, x._array.ndim)
        if not x._array.ndim:
            return made(library_of_array(x._array).zeros((), np.int64))
        if x._array.shape[k] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {k} to have non-zero size.")
        return apply(p, x, dim=k, keepdims=keepdim)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}``: the place of the extreme along `dim`, or among all elements."
    return compute


argmax = function("argmax", out="same")(_places("argmax", np.argmax))
argmin = function("argmin", out="same")(_places("argmin", np.argmin))


def _any_all(name: str, ufunc: Any) -> None:
    def compute(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        x = check_tensor(input, name, "input")
        truth = x._array.astype(bool, copy=False)
        axis = () if isinstance(dim, (tuple, list)) and not dim else _axis(x, dim)  # of no dimensions nothing is reduced
        result = _in_order(ufunc_reduce(ufunc, truth, axis=axis, keepdims=keepdim and bool(x._array.ndim)))
        return made(result.astype(np.uint8) if x.dtype is dtypes.uint8 else result)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"Whether {name} of the elements along `dim` are true."
    function(name, out=True)(compute)


_any_all("any", np.logical_or)
_any_all("all", np.logical_and)


@function(out=True)
def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """How many elements are not zero."""
    check_tensor(input, "count_nonzero", "input")
    return made(_in_order(np.count_nonzero(input._array, axis=_axis(input, dim))))


def _scan(name: str, p: Primitive) -> Callable[..., Tensor]:
    def compute(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
        x = _summed(check_tensor(input, name, "input"), dtype)
        k = dim_of(dim, x._array.ndim)
        if x._array.dtype.kind == "b":
            raise NotImplementedError(f'"{name}_out_cpu" not implemented for \'Bool\'')
        return apply(p, x, axis=k) if x._array.ndim else apply(COPY, x)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}`` along a dimension."
    return compute


cumsum = function("cumsum", inplace=True, out="computes")(_scan("cumsum", CUMSUM))
cumprod = function("cumprod", inplace=True, out="computes")(_scan("cumprod", CUMPROD))


def _running(find: Any) -> Callable[..., Any]:
    """The extreme so far and where it stood last."""

    def forward(x: Any, dim: int) -> tuple[Any, Any]:
        values = in_order(ufunc_accumulate(find, x, axis=dim))
        shape = [1] * x.ndim
        shape[dim] = x.shape[dim]
        numbers = library_of_array(x).arange(x.shape[dim]).reshape(shape)
        is_new = x == values
        if x.dtype.kind in "fV":
            is_new |= np.isnan(x)
        return values, in_order(ufunc_accumulate(np.maximum, np.where(is_new, numbers, 0), axis=dim))

    return forward


def _add_at_places(d: Any, g: Any) -> Any:
    return g[0].call("scatter_add_zeros", d.outs[1], shape=d.x.shape, dim=d.attrs["dim"])


for _name, _ufunc in (("cummax", np.maximum), ("cummin", np.minimum)):
    define(_name, _running(_ufunc), (_add_at_places,), ("p",), backward=f"{_name.title()}Backward0", outputs=2, differentiable=(0,))


def _running_extreme(name: str) -> None:
    kind = result_type_of(name, "values", "indices")

    def compute(input: Tensor, dim: int) -> Any:
        x = check_tensor(input, name, "input")
        if x._array.dtype.kind == "c":
            _check_no_gradient(x, name)
        return along(PRIMITIVES[name], x, dim, False, kind)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}`` along a dimension: the values and where they stand."
    function(name, out=True)(compute)


_running_extreme("cummax")
_running_extreme("cummin")


def _logsumexp_shift(x: Any, axis: tuple[int, ...]) -> Any:
    top = ufunc_reduce(np.maximum, x, axis=axis, keepdims=True)
    return np.where(np.isfinite(top), top, 0)


def _logsumexp(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    wide = _wide(x)
    if wide.size == 0:
        return _narrow(np.log(ufunc_reduce(np.add, np.exp(wide), axis=axis, keepdims=keepdims)), x.dtype)
    top = _logsumexp_shift(wide, axis)
    total = np.log(ufunc_reduce(np.add, np.exp(wide - top), axis=axis, keepdims=True)) + top
    return _narrow(total if keepdims else total.squeeze(axis), x.dtype).astype(x.dtype, copy=False)


LOGSUMEXP = define(
    "logsumexp", _logsumexp, (lambda d, g: spread(d, g) * (d.x - spread(d, d.out)).call("exp").conj,), ("xo",),
    backward="LogsumexpBackward0",
)  # fmt: skip


@function(out=True)
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The logarithm of the sum of exponentials."""
    x = floating(check_tensor(input, "logsumexp", "input"))
    return apply(LOGSUMEXP, x, axis=_axis(x, dim), keepdims=keepdim)


__all__ = ["along", "at_index", "spread"]
