"""Views and rearrangements: what changes a tensor's shape, and where its elements stand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.markers import at_capture, is_compiling
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import in_c_order, library_of_array, strided
from dynagraph.torch.core.dtypes import Size
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.core.primitives import PRIMITIVES, Primitive, define, from_row
from dynagraph.torch.core.relocation import is_alone, relocate
from dynagraph.torch.core.storage import address_of
from dynagraph.torch.core.tensor import AS_STRIDED, Tensor, apply, as_view, check_write, storage_of, view, wrap, written
from dynagraph.torch.core.terms import FORWARD
from dynagraph.torch.functions.common import (
    NAMESPACES,
    cast,
    check_broadcast,
    check_tensor,
    dim_of,
    dims_of,
    function,
    promoted,
    sizes_of,
)
from dynagraph.torch.functions.pointwise import COPY, dense_like

# -- primitives -------------------------------------------------------------------------------------------------------


def _view(x: Any, shape: tuple[int, ...]) -> Any:
    """RuntimeError where it would need a copy."""
    made = np.reshape(x, shape)
    if not shares(made, x):
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous "
            "subspaces). Use .reshape(...) instead."
        )
    return made


def shares(made: Any, of: Any) -> bool:
    """Whether an array that NumPy made of another, a view where it can, is a view."""
    return of.flags.c_contiguous or not of.size or np.may_share_memory(made, of)


def _transpose_back(d: Any, g: Any) -> Any:
    axes = d.attrs["axes"]
    return g.call("transpose", axes=tuple(map(axes.index, range(len(axes)))))


def _reshape_back(d: Any, g: Any) -> Any:
    return g.reshape(d.x.shape)


VIEW = define("view", _view, (_reshape_back,), ("",), backward="ViewBackward0", is_view=True)
_RESHAPE_ALIAS = define("reshape_alias", _view, (_reshape_back,), ("",), backward="ReshapeAliasBackward0", is_view=True)
RESHAPE = from_row("reshape", ("",), "UnsafeViewBackward0", vjps=(_reshape_back,))
ALIAS = define("alias", lambda x: x[...], (lambda d, g: g,), ("",), backward="AliasBackward0", is_view=True)
PERMUTE = from_row("transpose", ("",), "PermuteBackward0", vjps=(_transpose_back,), is_view=True)
TRANSPOSE = define("transpose_two", PERMUTE.forward, (_transpose_back,), ("",), backward="TransposeBackward0", is_view=True)
T = define("t", PERMUTE.forward, (_transpose_back,), ("",), backward="TBackward0", is_view=True)
SQUEEZE = define("squeeze", _view, (_reshape_back,), ("",), backward="SqueezeBackward0", is_view=True)
_SQUEEZE_ONE = define("squeeze_dim", _view, (_reshape_back,), ("",), backward="SqueezeBackward1", is_view=True)
_SQUEEZE_SOME = define("squeeze_dims", _view, (_reshape_back,), ("",), backward="SqueezeBackward2", is_view=True)
UNSQUEEZE = define("unsqueeze", _view, (_reshape_back,), ("",), backward="UnsqueezeBackward0", is_view=True)
EXPAND = from_row("broadcast_to", ("",), "ExpandBackward0", vjps=(lambda d, g: g,), is_view=True)


def _expand(x: Any, shape: tuple[int, ...]) -> Any:
    """As np.broadcast_to, whose results are read-only, and slower."""
    if is_compiling():
        return np.broadcast_to(x, shape)
    if x.shape == tuple(shape):
        return x[...]
    if not x.ndim and type(x) is np.ndarray:
        return np.ndarray(shape, x.dtype, x, 0, (0,) * len(shape))
    added = len(shape) - x.ndim
    strides = (0,) * added + tuple(0 if n == 1 != m else s for n, m, s in zip(x.shape, shape[added:], x.strides))
    return strided(x, shape, strides)


EXPAND.forward = FORWARD["broadcast_to"] = _expand


def _spread(x: Any, shape: tuple[int, ...]) -> Any:
    """Of gradients: as np.broadcast_to, but what is not repeated can be written to."""
    if x.size == math.prod(shape):
        return x.reshape(shape)
    if x.ndim or type(x) is not np.ndarray or is_compiling():
        return np.broadcast_to(x, shape)
    spread = np.ndarray(shape, x.dtype, x, 0, (0,) * len(shape))  # in a fifth of the time
    spread.flags.writeable = False
    return spread


FORWARD["broadcast_to"] = _spread


def _slice_forward(x: Any, starts: Any, steps: Any, shape: Any) -> Any:
    return x[tuple(
        slice(b, (b + s * n if s > 0 else None if b + s * n < 0 else b + s * n), s) if n else slice(0, 0)
        for b, s, n in zip(starts, steps, shape)
    )]  # fmt: skip


def _slice_back(d: Any, g: Any) -> Any:
    return g.call("put_slice", base=d.x.shape, starts=d.attrs["starts"], steps=d.attrs["steps"])


def _put_slice(g: Any, base: Any, starts: Any, steps: Any) -> Any:
    made = library_of_array(g).zeros(base, g.dtype)
    _slice_forward(made, starts, steps, g.shape)[...] = g
    return made


SLICE = define("slice", _slice_forward, (_slice_back,), ("",), backward="SliceBackward0", is_view=True)
define(
    "put_slice",
    _put_slice,
    (lambda d, g: g.call("slice", starts=d.attrs["starts"], steps=d.attrs["steps"], shape=d.x.shape),),
    ("",),
)


def _select(x: Any, dim: int, index: int) -> Any:
    return x[(slice(None),) * dim + (index, ...)]


def _select_back(d: Any, g: Any) -> Any:
    return g.call("put_select", base=d.x.shape, dim=d.attrs["dim"], index=d.attrs["index"])


def _put_select(g: Any, base: Any, dim: int, index: int) -> Any:
    made = library_of_array(g).zeros(base, g.dtype)
    _select(made, dim, index)[...] = g
    return made


SELECT = define("select", _select, (_select_back,), ("",), backward="SelectBackward0", is_view=True)
define(
    "put_select", _put_select, (lambda d, g: g.call("select", dim=d.attrs["dim"], index=d.attrs["index"]),), ("",)
)


def _diagonal(x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    found = np.diagonal(x, offset, dim1, dim2)
    if not is_compiling() and isinstance(found, np.ndarray) and not found.flags.writeable and x.flags.writeable:
        found.flags.writeable = True
    return found


def store_diagonal(array: Any, values: Any, offset: int, dim1: int, dim2: int) -> None:
    """Store in a diagonal: by places, as NumPy's views of diagonals are read-only."""
    numbers = library_of_array(array).arange(values.shape[-1])
    np.moveaxis(array, (dim1, dim2), (-2, -1))[..., numbers + max(-offset, 0), numbers + max(offset, 0)] = values


def _put_diagonal(g: Any, base: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    made = library_of_array(g).zeros(base, g.dtype)
    store_diagonal(made, g, offset, dim1, dim2)
    return made


DIAGONAL = define(
    "diagonal", _diagonal, (lambda d, g: g.call("put_diagonal", base=d.x.shape, **d.attrs),), ("",), backward="DiagonalBackward0",
    is_view=True,
)  # fmt: skip
define(
    "put_diagonal",
    _put_diagonal,
    (lambda d, g: g.call("diagonal", **{k: v for k, v in d.attrs.items() if k != "base"}),),
    ("",),
)


def _unfold(x: Any, dim: int, size: int, step: int) -> Any:
    if not x.ndim:
        return strided(x, (size,), (x.itemsize,))
    count = (x.shape[dim] - size) // step + 1
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :], size)
    strides = (*x.strides[:dim], x.strides[dim] * step, *x.strides[dim + 1 :], x.strides[dim])
    return strided(x, shape, strides)


def _unfold_backward(g: Any, base: Any, dim: int, size: int, step: int) -> Any:
    made = library_of_array(g).zeros(base, g.dtype)
    if not base:
        return g.sum().astype(g.dtype)
    for k in range(size):  # the windows do not overlap one another at one place of each
        at = (slice(None),) * dim + (slice(k, k + step * (g.shape[dim] - 1) + 1, step),)
        made[at] += g[..., k]
    return made


UNFOLD = define(
    "unfold_windows", _unfold, (lambda d, g: g.call("unfold_backward", base=d.x.shape, **d.attrs),), ("",),
    backward="UnfoldBackward0",
    is_view=True,
)  # fmt: skip
define(
    "unfold_backward",
    _unfold_backward,
    (lambda d, g: g.call("unfold_windows", **{k: v for k, v in d.attrs.items() if k != "base"}),),
    ("",),
)
define(
    "view_as_real",
    lambda x: strided(x.real, (*x.shape, 2), (*x.strides, x.real.itemsize)),
    (lambda d, g: g.call("view_as_complex"),),
    ("",),
    backward="ViewAsRealBackward0",
    is_view=True,
)  # fmt: skip


def _view_as_complex(x: Any) -> Any:
    kind = np.result_type(x.dtype, np.complex64)
    if x.strides[-1] != x.itemsize:
        x = in_c_order(x)
    return x.view(kind)[..., 0]


define(
    "view_as_complex", _view_as_complex, (lambda d, g: g.call("view_as_real"),), ("",), backward="ViewAsComplexBackward0",
    is_view=True,
)  # fmt: skip


def _is_channels_last(x: Any) -> bool:
    return x.ndim == 4 and not x.flags.c_contiguous and x.transpose(0, 2, 3, 1).flags.c_contiguous


def _place_for(arrays: Any, shape: tuple[int, ...]) -> Any:
    """Where tensors are joined: in order, or all with their channels last in memory; None where NumPy chooses that by itself."""
    if all(x.flags.c_contiguous for x in arrays) or all(map(_is_channels_last, arrays)):
        return None
    return library_of_array(arrays[0]).empty(shape, arrays[0].dtype)


def _cat(*arrays: Any, dim: int) -> Any:
    kept = [x for x in arrays if x.shape != (0,)] or arrays[:1]
    shape = list(kept[0].shape)
    shape[dim] = sum(x.shape[dim] for x in kept)
    return np.concatenate(kept, axis=dim, out=_place_for(kept, tuple(shape)))


def _stack(*arrays: Any, dim: int) -> Any:
    shape = list(arrays[0].shape)
    shape.insert(dim, len(arrays))
    if all(x.flags.c_contiguous for x in arrays):
        return np.stack(arrays, axis=dim)
    return np.stack(arrays, axis=dim, out=library_of_array(arrays[0]).empty(shape, arrays[0].dtype))


def _cat_back(d: Any, g: Any) -> list[Any]:
    dim = d.attrs["dim"]
    found: list[Any] = []
    start = 0
    for k, x in enumerate(d.operands):
        if x.shape == (0,) and g.ndim != 1:  # left out
            found.append(g.full(0, x.shape))
            continue
        size = x.shape[dim]
        starts = tuple(start if axis == dim else 0 for axis in range(g.ndim))
        found.append(g.call("slice", starts=starts, steps=(1,) * g.ndim, shape=x.shape) if d.needs(k) else None)
        start += size
    return found


CAT = define("cat", _cat, _cat_back, "", backward="CatBackward0")
define("concatenate", lambda *arrays, axis: np.concatenate(arrays, axis=axis), lambda d, g: _cat_back(_AsCat(d), g), "")


class _AsCat:
    """The row `concatenate` as `cat` is."""

    def __init__(self, d: Any):
        self.attrs, self.operands, self.needs = {"dim": d.attrs["axis"]}, d.operands, d.needs


STACK = define(
    "stack",
    _stack,
    lambda d, g: [g.call("select", dim=d.attrs["dim"], index=k) if d.needs(k) else None for k in range(len(d.operands))],
    "",
    backward="StackBackward0",
)


def _flip(x: Any, axes: Any) -> Any:
    made = dense_like(x)
    made[...] = np.flip(x, axes)
    return made


define(
    "flip", _flip, (lambda d, g: g.call("flip", axes=d.attrs["axes"]),), ("",),
    backward="FlipBackward0",
)  # fmt: skip
define(
    "roll",
    lambda x, shifts, axes: in_c_order(np.roll(x, shifts, axes)).reshape(x.shape),
    (lambda d, g: g.call("roll", shifts=tuple(-s for s in d.attrs["shifts"]), axes=d.attrs["axes"]),),
    ("",),
    backward="RollBackward0",
)


def _repeat_back(d: Any, g: Any) -> Any:
    """The sum over the copies."""
    repeats, shape = d.attrs["repeats"], d.x.shape
    full = (1,) * (len(repeats) - len(shape)) + tuple(shape)
    parts = tuple(n for pair in zip(repeats, full) for n in pair)
    return g.reshape(parts).call("sum", axis=tuple(range(0, len(parts), 2)), keepdims=False).reshape(shape)


define("repeat", lambda x, repeats: np.tile(x, repeats), (_repeat_back,), ("",), backward="RepeatBackward0")
for _name, _keep in (("tril", np.tril), ("triu", np.triu)):
    define(
        _name, lambda x, k, _keep=_keep: _keep(x, k), (lambda d, g, _name=_name: g.call(_name, k=d.attrs["k"]),), ("",),
        backward=f"{_name.title()}Backward0",
    )  # fmt: skip
define(
    "contiguous", lambda x: in_c_order(x).reshape(x.shape), (lambda d, g: g,), ("",), backward="CloneBackward0"
)  # of a tensor without dimensions, too

# -- sizes and strides ------------------------------------------------------------------------------------------------


@function(namespace="")
def size(self: Tensor, dim: int | None = None) -> Any:
    """The shape, or its size along a dimension."""
    return Size(self._array.shape) if dim is None else self._array.shape[dim_of(dim, self._array.ndim)]


@function(namespace="")
def stride(self: Tensor, dim: int | None = None) -> Any:
    """How many elements of memory lie between neighbours, along each dimension."""
    strides = tuple(s // self._array.itemsize for s in self._array.strides)
    return strides if dim is None else strides[dim_of(dim, self._array.ndim)]


@function(namespace="")
def storage_offset(self: Tensor) -> int:
    """How many elements of the storage lie before the first."""
    return (address_of(self._array) - storage_of(self).start()) // self._array.itemsize if self._array.size else 0


@function()
def numel(input: Tensor) -> int:
    """How many elements there are."""
    return int(input._array.size)


Tensor.nelement = numel  # type: ignore[attr-defined]
Tensor.dim = Tensor.ndimension = lambda self: self._array.ndim  # type: ignore[attr-defined]


def _is_dense_in(x: Tensor, order: Sequence[int]) -> bool:
    expected = x._array.itemsize
    for k in order:
        n = x._array.shape[k]
        if n != 1:
            if x._array.strides[k] != expected:
                return False
            expected *= n
    return True


class memory_format:
    """How the dimensions of images lie in memory."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


contiguous_format, channels_last, preserve_format, channels_last_3d = map(
    memory_format, ("contiguous_format", "channels_last", "preserve_format", "channels_last_3d")
)
_ORDERS = {channels_last: (1, 3, 2, 0), channels_last_3d: (1, 4, 3, 2, 0)}


@function(namespace="")
def is_contiguous(self: Tensor, *, memory_format: memory_format = contiguous_format) -> bool:
    """Whether its elements lie in memory in order."""
    if memory_format in _ORDERS:
        order = _ORDERS[memory_format]
        return self._array.ndim == len(order) and _is_dense_in(self, order)
    return bool(self._array.flags.c_contiguous)


@function(namespace="")
def contiguous(self: Tensor, *, memory_format: memory_format = contiguous_format) -> Tensor:
    """The tensor, if its elements lie in memory in order; otherwise a copy of which that is true."""
    if is_contiguous(self, memory_format=memory_format):
        return self
    return _in_format(self, memory_format)


def _in_format(x: Tensor, form: memory_format) -> Tensor:
    if form in _ORDERS:
        order = tuple(reversed(_ORDERS[form]))
        if x._array.ndim != len(order):
            raise RuntimeError(f"required rank {len(order)} tensor to use {form.name} format")
        back = tuple(map(order.index, range(len(order))))
        return permute(apply(PRIMITIVES["contiguous"], permute(x, order)), back)
    return apply(PRIMITIVES["contiguous"] if not x._array.flags.c_contiguous else COPY, x)


@function()
def clone(input: Tensor, *, memory_format: memory_format = preserve_format) -> Tensor:
    """A copy."""
    if memory_format is preserve_format or (memory_format is contiguous_format and input._array.flags.c_contiguous):
        return apply(COPY, input)
    return _in_format(input, memory_format)


# -- shapes -----------------------------------------------------------------------------------------------------------


@at_capture
def _inferred(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    """With the size that is -1 found from the others."""
    if shape.count(-1) > 1:
        raise RuntimeError("only one dimension can be inferred")
    if any(n < -1 for n in shape):
        raise RuntimeError(f"invalid shape dimension {next(n for n in shape if n < -1)}")
    if -1 in shape:
        rest = math.prod(n for n in shape if n != -1)
        if rest == 0:
            raise RuntimeError(
                f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified dimension size -1 can be "
                "any value and is ambiguous"
            )
        if count % rest == 0:
            return tuple(count // rest if n == -1 else n for n in shape)
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {count}")
    if math.prod(shape) != count:
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {count}")
    return shape


@function("view", namespace="")
def view_(self: Tensor, *shape: Any, dtype: DType | None = None, size: Any = None) -> Tensor:
    """The same memory in another shape, or its bits as another dtype; RuntimeError where that would need a copy."""
    if dtype is not None or (len(shape) == 1 and isinstance(shape[0], DType)):
        return _view_dtype(self, dtype or shape[0])
    sizes = _inferred(sizes_of(shape if size is None else (size,), "view"), self._array.size)
    return view(VIEW, self, shape=sizes)


def _view_dtype(x: Tensor, target: DType) -> Tensor:
    array, wanted = x._array, target.numpy
    if wanted == array.dtype:
        return view(ALIAS, x)
    if wanted.itemsize != array.itemsize:
        if not array.ndim:
            raise RuntimeError(
                f"self.dim() cannot be 0 to view {dtypes.scalar_name(x.dtype)} as {dtypes.scalar_name(target)} (different element "
                "sizes)"
            )
        if array.strides[-1] != array.itemsize and array.shape[-1] != 1:
            raise RuntimeError(
                f"self.stride(-1) must be 1 to view {dtypes.scalar_name(x.dtype)} as {dtypes.scalar_name(target)} (different "
                f"element sizes), but got {array.strides[-1] // array.itemsize}"
            )
        if (array.shape[-1] * array.itemsize) % wanted.itemsize:
            raise RuntimeError(
                f"self.size(-1) must be divisible by {wanted.itemsize // array.itemsize} to view {dtypes.scalar_name(x.dtype)} as "
                f"{dtypes.scalar_name(target)} (different element sizes), but got {array.shape[-1]}"
            )
    result = as_view(ALIAS, x.detach(), array.view(wanted), {})
    result._base = x if x._base is None else x._base
    result._storage = storage_of(x)
    return result


@function()
def reshape(input: Tensor, *sizes: Any, shape: Any = None) -> Tensor:
    """In another shape: a view where the memory allows one, otherwise a copy."""
    x = check_tensor(input, "reshape", "input")
    sizes = _inferred(sizes_of(sizes if shape is None else (shape,), "reshape"), x._array.size)
    array = np.reshape(x._array, sizes)
    p = VIEW if x._array.flags.c_contiguous else _RESHAPE_ALIAS
    return as_view(p, x, array, {"shape": sizes}) if shares(array, x._array) else apply(RESHAPE, x, shape=sizes)


@function(namespace="")
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """The same memory in another tensor's shape."""
    return view_(self, other._array.shape)


@function(namespace="")
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """In another tensor's shape."""
    return reshape(self, other._array.shape)


@function()
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """With a range of dimensions made one."""
    x = check_tensor(input, "flatten", "input")
    if not x._array.ndim:
        return reshape(x, 1)
    first, last = dim_of(start_dim, x._array.ndim), dim_of(end_dim, x._array.ndim)
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if first == last:
        return x
    shape = x._array.shape
    return reshape(x, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


@function()
def ravel(input: Tensor) -> Tensor:
    """As one dimension."""
    return view_(contiguous(input), -1)


@function()
def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:
    """With a dimension made several."""
    k = dim_of(dim, input._array.ndim)
    shape, given = input._array.shape, tuple(sizes)
    if -1 not in given and math.prod(given) != shape[k]:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(given)} don't multiply up to the size of dim {k} ({shape[k]}) in the input tensor"
        )
    return view_(input, (*shape[:k], *_inferred(given, shape[k]), *shape[k + 1 :]))


@function(inplace=False)
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Without the dimensions of size 1, or without those of `dim` that are."""
    x = check_tensor(input, "squeeze", "input")
    shape = x._array.shape
    dims = dims_of(dim if dim is None or not isinstance(dim, (tuple, list)) or dim else (), x._array.ndim)
    if isinstance(dim, (tuple, list)) and not dim:
        dims = ()
    p = SQUEEZE if dim is None else _SQUEEZE_SOME if isinstance(dim, (tuple, list)) else _SQUEEZE_ONE
    return view(p, x, shape=tuple(n for k, n in enumerate(shape) if n != 1 or k not in dims))


@function()
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """With a dimension of size 1 put in."""
    x = check_tensor(input, "unsqueeze", "input")
    k = dim_of(dim, x._array.ndim + 1)
    shape = x._array.shape
    return view(UNSQUEEZE, x, shape=(*shape[:k], 1, *shape[k:]))


@function()
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """With two dimensions exchanged."""
    x = check_tensor(input, "transpose", "input")
    a, b = dim_of(dim0, x._array.ndim), dim_of(dim1, x._array.ndim)
    if not x._array.ndim:
        return view(ALIAS, x)
    axes = list(range(x._array.ndim))
    axes[a], axes[b] = b, a
    return view(TRANSPOSE, x, axes=tuple(axes))


@function(aliases=())
def t(input: Tensor) -> Tensor:
    """A matrix transposed; a vector as it is."""
    x = check_tensor(input, "t", "input")
    if x._array.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {x._array.ndim}D")
    return view(T, x, axes=tuple(reversed(range(x._array.ndim))))


@function(method=False)
def permute(input: Tensor, dims: Any) -> Tensor:
    """With its dimensions in another order."""
    x = check_tensor(input, "permute", "input")
    given = tuple(dims)
    if len(given) != x._array.ndim:
        raise RuntimeError(
            f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of "
            f"dimensions i.e. input.dim() = {x._array.ndim} is not equal to len(dims) = {len(given)}"
        )
    axes = tuple(dim_of(k, x._array.ndim) for k in given)
    if len(set(axes)) != len(axes):
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return view(PERMUTE, x, axes=axes)


Tensor.permute = lambda self, *given, dims=None: permute(self, sizes_of(given if dims is None else (dims,), "permute"))


def _all_reversed(x: Tensor) -> Tensor:
    return permute(x, tuple(reversed(range(x._array.ndim))))


Tensor.T = property(_all_reversed)  # type: ignore[attr-defined]
Tensor.mT = property(lambda x: transpose(_matrices(x, "mT"), -2, -1))  # type: ignore[attr-defined]
Tensor.H = property(lambda x: transpose(x, 0, 1).conj())  # type: ignore[attr-defined]
Tensor.mH = property(lambda x: transpose(_matrices(x, "mH"), -2, -1).conj())  # type: ignore[attr-defined]


def _matrices(x: Tensor, who: str) -> Tensor:
    if x._array.ndim < 2:
        raise RuntimeError(f"tensor.{who} is only supported on matrices or batches of matrices. Got {x._array.ndim}-D tensor.")
    return x


@function()
def swapaxes(input: Tensor, axis0: Any, axis1: Any) -> Tensor:
    """As `transpose`."""
    return transpose(input, axis0, axis1)


function("swapdims")(transpose)


@function("adjoint")
def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions exchanged, and conjugated."""
    return transpose(input, -2, -1).conj()


@function(aliases=("moveaxis",))
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """With some dimensions at other places, the others in order."""
    ndim = input._array.ndim
    froms, tos = ((v,) if isinstance(v, int) else tuple(v) for v in (source, destination))
    if len(froms) != len(tos):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(froms)} dims) should contain the same number of dims as "
            f"destination ({list(tos)} dims)"
        )
    froms, tos = tuple(dim_of(k, ndim) for k in froms), tuple(dim_of(k, ndim) for k in tos)
    for what, dims in (("source", froms), ("destination", tos)):
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{what}` ({list(dims)})")
    axes = [k for k in range(ndim) if k not in froms]
    for to, source_dim in sorted(zip(tos, froms)):
        axes.insert(to, source_dim)
    return permute(input, axes)


@function(namespace="")
def expand(self: Tensor, *sizes: Any, size: Any = None, implicit: bool = False) -> Tensor:
    """Dimensions of size 1 repeated without a copy; -1 keeps a size."""
    wanted, shape = sizes_of(sizes if size is None else (size,), "expand"), self._array.shape
    if len(wanted) < len(shape):
        raise RuntimeError(
            f"expand(torch.{dtypes.scalar_name(self.dtype)}Tensor{{{list(shape)}}}, size={list(wanted)}): the number of sizes "
            f"provided ({len(wanted)}) must be greater or equal to the number of dimensions in the tensor ({len(shape)})"
        )
    front = len(wanted) - len(shape)
    result = list(wanted)
    for k in range(len(wanted) - 1, -1, -1):
        n = wanted[k]
        have = shape[k - front] if k >= front else 1
        if n == -1:
            if k < front:
                raise RuntimeError(
                    f"The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension {k}"
                )
            n = have
        elif have != 1 and have != n:
            raise RuntimeError(
                f"The expanded size of the tensor ({n}) must match the existing size ({have}) at non-singleton dimension {k}.  "
                f"Target sizes: {list(wanted)}.  Tensor sizes: {list(shape)}"
            )
        result[k] = n
    return view(EXPAND, self, shape=tuple(result))


@function(namespace="")
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """Expanded to another tensor's shape."""
    return expand(self, other._array.shape)


@function(method=False)
def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """Expanded to a shape."""
    return expand(input, tuple(size))


Tensor.broadcast_to = expand  # type: ignore[attr-defined]


@function(method=False)
def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that shapes broadcast to."""
    try:
        return Size(np.broadcast_shapes(*(s if isinstance(s, int) else tuple(s) for s in shapes)))
    except ValueError:
        raise RuntimeError("Shape mismatch: objects cannot be broadcast to a single shape") from None


@function(method=False)
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Tensors expanded to their common shape."""
    given = tuple(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    shape = check_broadcast(*given)
    return tuple(expand(x, shape) for x in given)


def meshgrid_views(tensors: Sequence[Tensor], indexing: str) -> tuple[Tensor, ...]:
    """Vectors expanded along dimensions of their own; with "xy" the first two exchanged."""
    for x in tensors:
        if x._array.ndim > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {x}")
    count = len(tensors)
    order = [1, 0, *range(2, count)] if indexing == "xy" and count > 1 else list(range(count))
    vectors = [reshape(x, -1) for x in tensors]
    shape = [0] * count
    for k, x in enumerate(vectors):
        shape[order[k]] = x._array.shape[0]
    return tuple(
        expand(view_(x, tuple(-1 if axis == order[k] else 1 for axis in range(count))), tuple(shape)) for k, x in enumerate(vectors)
    )


@function()
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A view of the storage by sizes, strides and an offset; RuntimeError where it would reach beyond."""
    x = check_tensor(input, "as_strided", "input")
    shape, strides = tuple(size), tuple(stride)
    own = Tensor.storage_offset(x)  # type: ignore[attr-defined]
    offset = own if storage_offset is None else storage_offset
    if len(shape) != len(strides):
        raise RuntimeError("mismatch in length of strides and shape")
    if any(s < 0 for s in strides):
        raise RuntimeError("as_strided: Negative strides are not supported at the moment, got strides: " + str(list(strides)))
    storage = storage_of(x)
    reach = 0 if 0 in shape else (offset + sum((n - 1) * s for n, s in zip(shape, strides)) + 1) * x._array.itemsize
    if reach > storage.nbytes():
        raise RuntimeError(
            f"setStorage: sizes {list(shape)}, strides {list(strides)}, storage offset {offset}, and itemsize {x._array.itemsize} "
            f"requiring a storage size of {reach} are out of bounds for storage of size {storage.nbytes()}"
        )
    array = storage.at(x._array.dtype, shape, strides, offset)
    base = tuple(s // x._array.itemsize for s in x._array.strides)
    return as_view(AS_STRIDED, x, array, {"shape": shape, "strides": strides, "offset": offset - own, "base": base})


# -- parts ------------------------------------------------------------------------------------------------------------


@function()
def select(input: Tensor, dim: int, index: Any) -> Tensor:
    """The part at one place along a dimension, without it."""
    x = check_tensor(input, "select", "input")
    if not x._array.ndim:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    k, n = dim_of(dim, x._array.ndim), int(index)
    length = x._array.shape[k]
    if not -length <= n < length:
        raise IndexError(f"select(): index {n} out of range for tensor of size {list(x._array.shape)} at dimension {k}")
    return view(SELECT, x, dim=k, index=n + length if n < 0 else n)


def slice_along(x: Tensor, dim: int, start: int, length: int, step: int = 1, p: Primitive = SLICE) -> Tensor:
    """`length` elements along a dimension, from `start` on."""
    shape = x._array.shape
    starts = tuple(start if k == dim else 0 for k in range(len(shape)))
    steps = tuple(step if k == dim else 1 for k in range(len(shape)))
    return view(p, x, starts=starts, steps=steps, shape=(*shape[:dim], length, *shape[dim + 1 :]))


@function()
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """`length` elements along a dimension, from `start` on."""
    x = check_tensor(input, "narrow", "input")
    if not x._array.ndim:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    k, first = dim_of(dim, x._array.ndim), int(start)
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    size = x._array.shape[k]
    if not -size <= first <= size:
        raise IndexError(f"Dimension out of range (expected to be in range of [-{size}, {size}], but got {first})")
    if first < 0:
        first += size
    if first + length > size:
        raise RuntimeError(f"start ({first}) + length ({length}) exceeds dimension size ({size}).")
    return slice_along(x, k, first, length)


def _pieces(x: Tensor, dim: int, sizes: Sequence[int], name: str = "SplitBackward0") -> tuple[Tensor, ...]:
    """Views of consecutive parts: outputs of one function, which must not be written to."""
    found, start = [], 0
    for n in sizes:
        piece = slice_along(x, dim, start, n, p=_SPLITS[name])
        piece._view_kind = "multi"
        found.append(piece)
        start += n
    return tuple(found)


_SPLITS = {
    name: define(name, SLICE.forward, SLICE.vjps, ("",), backward=name, is_view=True)
    for name in ("SplitBackward0", "SplitWithSizesBackward0", "UnbindBackward0")
}


@function()
def split(tensor: Tensor, split_size_or_sections: Any = None, dim: int = 0, *, split_size: Any = None) -> tuple[Tensor, ...]:
    """Views of parts of one size, the last one smaller, or of the sizes given."""
    if split_size_or_sections is None:
        split_size_or_sections = split_size
    if not tensor._array.ndim:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    k = dim_of(dim, tensor._array.ndim)
    size = tensor._array.shape[k]
    if isinstance(split_size_or_sections, (int, np.integer)):
        each = int(split_size_or_sections)
        if each < 0:
            raise RuntimeError(f"split expects split_size be non-negative, but got split_size={each}")
        if each == 0 and size:
            raise RuntimeError(f"split_size can only be 0 if dimension size is 0, but got dimension size of {size}")
        count = max((size + each - 1) // each, 1) if each else 1
        sizes = [min(each, size - k * each) if size else 0 for k in range(count)]
        return _pieces(tensor, k, sizes)
    sizes = [int(n) for n in split_size_or_sections]
    if sum(sizes) != size:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size at dimension {k}), but got "
            f"split_sizes={sizes}"
        )
    return _pieces(tensor, k, sizes, "SplitWithSizesBackward0")


@function()
def split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of parts of the sizes given."""
    return split(input, list(split_sizes), dim)


@function()
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of at most so many parts of one size."""
    if not input._array.ndim:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    size = input._array.shape[dim_of(dim, input._array.ndim)]
    each = (size + chunks - 1) // chunks
    return split(input, [0] * chunks, dim) if size == 0 else split(input, each, dim)


def _parts_of_split(who: str, *given: Any) -> Any:
    """How to split, which may be given by one of several names."""
    found = [value for value in given if value is not None]
    if len(found) != 1:
        raise TypeError(f"{who}() received an invalid combination of arguments: expected either sections or indices")
    return found[0]


@function()
def tensor_split(
    input: Tensor, indices_or_sections: Any = None, dim: int = 0, *, sections: Any = None, indices: Any = None
) -> tuple[Tensor, ...]:
    """Views of parts, as equal as can be, or between the places given."""
    indices_or_sections = _parts_of_split("tensor_split", indices_or_sections, sections, indices)
    if not input._array.ndim:
        raise RuntimeError(f"tensor_split expected at least a 1-dimensional tensor, but got a tensor with {input._array.ndim} dims")
    k = dim_of(dim, input._array.ndim)
    size = input._array.shape[k]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections._array.tolist()
    if isinstance(indices_or_sections, int):
        n = indices_or_sections
        if n <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {n}")
        sizes = [size // n + (1 if j < size % n else 0) for j in range(n)]
        starts = [sum(sizes[:j]) for j in range(n)]
    else:
        cuts = [0, *(min(max(c + size if c < 0 else c, 0), size) for c in indices_or_sections), size]
        starts = cuts[:-1]
        sizes = [max(b - a, 0) for a, b in itertools.pairwise(cuts)]
    return tuple(slice_along(input, k, start, n) for start, n in zip(starts, sizes))


def _split_along(name: str, axis: int, least: int) -> None:
    def compute(
        input: Tensor, indices_or_sections: Any = None, *, sections: Any = None, indices: Any = None
    ) -> tuple[Tensor, ...]:
        indices_or_sections = _parts_of_split(name, indices_or_sections, sections, indices)
        rank = input._array.ndim
        if rank < least:
            raise RuntimeError(
                f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor with {rank} dimensions!"
            )
        k = axis if rank > 1 else 0
        if isinstance(indices_or_sections, int):
            size = input._array.shape[k]
            if indices_or_sections <= 0 or size % indices_or_sections:
                raise RuntimeError(
                    f"torch.{name} attempted to split along dimension {k}, but the size of the dimension {size} is not divisible "
                    f"by the split_size {indices_or_sections}!"
                )
        return tensor_split(input, indices_or_sections, k)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"`tensor_split` along dimension {axis}, into parts of one size."
    function(name)(compute)


_split_along("hsplit", 1, 1)
_split_along("vsplit", 0, 2)
_split_along("dsplit", 2, 3)


@function()
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The parts along a dimension, without it: views."""
    if not input._array.ndim:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    k = dim_of(dim, input._array.ndim)
    found = []
    for n in range(input._array.shape[k]):
        part = view(_UNBIND, input, "", dim=k, index=n)
        part._view_kind = "multi"
        found.append(part)
    return tuple(found)


_UNBIND = define("unbind_part", SELECT.forward, SELECT.vjps, ("",), backward="UnbindBackward0", is_view=True)


@function()
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of two dimensions, as the last: a view."""
    a, b = dim_of(dim1, input._array.ndim), dim_of(dim2, input._array.ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return view(DIAGONAL, input, offset=offset, dim1=a, dim2=b)


@function(namespace="")
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """All windows of `size` along a dimension, as a last dimension: a view."""
    k = dim_of(dimension, self._array.ndim)
    length = self._array.shape[k] if self._array.ndim else 1
    if size > length:
        raise RuntimeError(f"maximum size for tensor at dimension {k} is {length} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    return view(UNFOLD, self, dim=k, size=size, step=step)


@function()
def view_as_real(input: Tensor) -> Tensor:
    """Complex numbers as pairs along a last dimension: a view."""
    if input._array.dtype.kind != "c":
        raise RuntimeError("view_as_real is only supported for complex tensors")
    return view(PRIMITIVES["view_as_real"], input)


@function()
def view_as_complex(input: Tensor) -> Tensor:
    """Pairs along the last dimension as complex numbers: a view."""
    if input._array.dtype.kind != "f":
        raise RuntimeError(
            "view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: "
            f"{dtypes.scalar_name(input.dtype)}"
        )
    if not input._array.ndim or input._array.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if input._array.strides[-1] != input._array.itemsize:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    return view(PRIMITIVES["view_as_complex"], input)


# -- joining ----------------------------------------------------------------------------------------------------------


def _joined(tensors: Any, who: str) -> tuple[Tensor, ...]:
    """Tensors to be joined, in one dtype."""
    if isinstance(tensors, Tensor):
        raise TypeError(f"{who}(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor")
    given = tuple(tensors)
    if not given:
        if who == "stack":
            raise RuntimeError("stack expects a non-empty TensorList")
        raise ValueError(f"torch.{who}(): expected a non-empty list of Tensors")
    for k, x in enumerate(given):
        if not isinstance(x, Tensor):
            raise TypeError(f"expected Tensor as element {k} in argument 0, but got {type(x).__name__}")
    first = given[0]._array.dtype
    return given if all(x._array.dtype is first for x in given) else promoted(who, *given)


@function(method=False, out=True, aliases=("concat", "concatenate"))
def cat(tensors: Any, dim: int = 0, *, axis: int | None = None) -> Tensor:
    """Tensors one behind the other along a dimension."""
    given = _joined(tensors, "cat")
    dim = dim if axis is None else axis
    kept = [x for x in given if x._array.shape != (0,)]  # these fit anything
    if not kept:
        return apply(CAT, *given, dim=0)
    rank = kept[0]._array.ndim
    for n, x in enumerate(given):
        if not x._array.ndim:
            raise RuntimeError(f"zero-dimensional tensor (at position {n}) cannot be concatenated")
    k = dim_of(dim, rank)
    shape = kept[0]._array.shape
    for n, x in enumerate(kept[1:], 1):
        if x._array.ndim != rank:
            raise RuntimeError(f"Tensors must have same number of dimensions: got {rank} and {x._array.ndim}")
        for j in range(rank):
            if j != k and x._array.shape[j] != shape[j]:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {k}. Expected size {shape[j]} but got size "
                    f"{x._array.shape[j]} for tensor number {n} in the list."
                )
    return apply(CAT, *given, dim=k)


@function(method=False, out=True)
def stack(tensors: Any, dim: int = 0) -> Tensor:
    """Tensors of one shape side by side along a new dimension."""
    given = _joined(tensors, "stack")
    shape = given[0]._array.shape
    for k, x in enumerate(given[1:], 1):
        if x._array.shape != shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(shape)} at entry 0 and {list(x._array.shape)} at "
                f"entry {k}"
            )
    return apply(STACK, *given, dim=dim_of(dim, len(shape) + 1))


def _at_least(n: int) -> Any:
    def compute(*tensors: Any) -> Any:
        given = tuple(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
        found = tuple(_padded(x, n) for x in given)
        return found[0] if len(tensors) == 1 and isinstance(tensors[0], Tensor) else found

    compute.__name__ = f"atleast_{n}d"
    compute.__doc__ = f"With at least {n} dimensions."
    return compute


def _padded(x: Tensor, n: int) -> Tensor:
    ndim = x._array.ndim
    if ndim >= n:
        return x
    shape = {(0, 1): (1,), (0, 2): (1, 1), (1, 2): (1, -1), (0, 3): (1, 1, 1), (1, 3): (1, -1, 1)}.get((ndim, n))
    return reshape(x, shape) if shape else unsqueeze(x, -1)


atleast_1d, atleast_2d, atleast_3d = (function(f"atleast_{n}d", method=False)(_at_least(n)) for n in (1, 2, 3))


@function(method=False, out=True, aliases=("row_stack",))
def vstack(tensors: Any) -> Tensor:
    """Tensors below one another."""
    return cat(atleast_2d(list(tensors)), 0)


@function(method=False, out=True)
def hstack(tensors: Any) -> Tensor:
    """Tensors beside one another."""
    given = atleast_1d(list(tensors))
    return cat(given, 0 if given[0]._array.ndim == 1 else 1)


@function(method=False, out=True)
def dstack(tensors: Any) -> Tensor:
    """Tensors behind one another, along the third dimension."""
    return cat(atleast_3d(list(tensors)), 2)


@function(method=False, out=True)
def column_stack(tensors: Any) -> Tensor:
    """Vectors as columns."""
    return hstack([reshape(x, -1, 1) if x._array.ndim <= 1 else x for x in tensors])


# -- rearrangements ---------------------------------------------------------------------------------------------------


@function(method=False)
def flip(input: Tensor, dims: Any) -> Tensor:
    """A copy in reverse order along dimensions."""
    given = (dims,) if isinstance(dims, int) else tuple(dims)
    axes = dims_of(given, input._array.ndim) if given else ()
    return apply(PRIMITIVES["flip"], input, axes=axes)


Tensor.flip = lambda self, *given, dims=None: flip(self, sizes_of(given if dims is None else (dims,), "flip"))


@function()
def fliplr(input: Tensor) -> Tensor:
    """In reverse order along the second dimension."""
    if input._array.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return flip(input, (1,))


@function()
def flipud(input: Tensor) -> Tensor:
    """In reverse order along the first dimension."""
    if not input._array.ndim:
        raise RuntimeError("Input must be >= 1-d.")
    return flip(input, (0,))


@function()
def rot90(input: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """Turned by 90 degrees so many times in the plane of two dimensions."""
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if input._array.ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input._array.ndim}")
    if dims[0] == dims[1]:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    a, b = (dim_of(d, input._array.ndim) for d in dims)
    turns = k % 4
    if turns == 0:
        return clone(input)
    if turns == 2:
        return flip(input, (a, b))
    return transpose(flip(input, (b,)), a, b) if turns == 1 else flip(transpose(input, a, b), (b,))


@function()
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Elements moved along dimensions, those that leave coming in at the other end."""
    given = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    if dims is None or dims == ():
        if len(given) != 1:
            raise RuntimeError(f"shifts and dimensions must align. shifts: {len(given)}, dims:0")
        return reshape(roll(flatten(input), given[0], 0), input._array.shape)
    at = (dims,) if isinstance(dims, int) else tuple(dims)
    if len(at) != len(given):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(given)}, dims:{len(at)}")
    return apply(PRIMITIVES["roll"], input, shifts=given, axes=tuple(dim_of(d, input._array.ndim) for d in at))


@function(namespace="")
def repeat(self: Tensor, *counts: Any, repeats: Any = None) -> Tensor:
    """Copies of the tensor side by side: so many along each dimension."""
    given = sizes_of(counts if repeats is None else (repeats,), "repeat")
    if len(given) < self._array.ndim:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    if any(n < 0 for n in given):
        sizes = (1,) * (len(given) - self._array.ndim) + self._array.shape
        shape = [n * m for n, m in zip(given, sizes)]
        raise RuntimeError(f"Trying to create tensor with negative dimension {next(n for n in shape if n < 0)}: {shape}")
    return apply(PRIMITIVES["repeat"], self, repeats=given)


@function(method=False)
def tile(input: Tensor, dims: Any) -> Tensor:
    """Copies of the tensor side by side; missing dimensions come in front."""
    given = tuple(dims)
    return repeat(input, (1,) * (input._array.ndim - len(given)) + given)


Tensor.tile = lambda self, *given, dims=None: tile(self, sizes_of(given if dims is None else (dims,), "tile"))


def _triangle(name: str) -> None:
    def compute(input: Tensor, diagonal: int = 0) -> Tensor:
        if input._array.ndim < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
        return apply(PRIMITIVES[name], input, k=diagonal)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"The {'lower' if name == 'tril' else 'upper'} triangle, zeros elsewhere."
    function(name, inplace=True, out=True)(compute)


_triangle("tril")
_triangle("triu")


def _resize(self: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """Another shape in place; its storage grows where that is needed."""
    shape = sizes_of(sizes if size is None else (size,), "resize_")
    count = math.prod(shape)
    storage = storage_of(self)
    if count * self._array.itemsize > storage.nbytes():
        grown = np.zeros(count, self._array.dtype)
        flat = storage.flat(self._array.dtype)
        grown[: flat.size] = flat
        only = self if is_alone(self, 1) else None
        relocate(storage, grown, only)
    self._array = storage.flat(self._array.dtype)[:count].reshape(shape)
    return self


Tensor.resize_ = _resize  # type: ignore[attr-defined]


def _unsafe(compute: Any) -> None:
    """``torch.unsafe_split`` and its kin: parts that may be written to; here they have memory of their own."""

    def parts(input: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        return tuple(map(clone, compute(input, *args, **kwargs)))

    parts.__name__ = parts.__qualname__ = f"unsafe_{compute.__name__}"
    parts.__doc__ = f"As `{compute.__name__}`, but with memory of their own."
    function(parts.__name__)(parts)


for _compute in (split, split_with_sizes, chunk):
    _unsafe(_compute)


@function(namespace="")
def dim_order(self: Tensor) -> tuple[int, ...]:
    """The dimensions by their strides, the greatest first."""
    strides = self._array.strides
    return tuple(sorted(range(len(strides)), key=lambda k: -strides[k]))


def _geometry_in_place(compute: Any, name: str) -> None:
    """``x.squeeze_()`` and its kin: the tensor itself takes another shape."""

    def changing(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        check_write(self, overlap=False)
        result = compute(self, *args, **kwargs)
        storage = storage_of(self)
        self._array, self._storage = result._array, storage
        written(self)
        if mode.grad and result._grad_fn is not None:
            self._grad_fn, self._output_nr, self._requires_grad = result._grad_fn, result._output_nr, True
            self._attr_version = storage.version
        return self

    changing.__name__ = changing.__qualname__ = name
    setattr(Tensor, name, changing)


for _compute in (squeeze, unsqueeze, transpose, t, as_strided):
    _geometry_in_place(_compute, f"{_compute.__name__}_")
for _name in ("swapaxes_", "swapdims_"):
    _geometry_in_place(transpose, _name)


def _copy_of(name: str) -> None:
    compute = NAMESPACES["torch"].get(name) or getattr(Tensor, name)

    def copied(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        found = compute(input, *args, **kwargs)
        if isinstance(found, tuple):
            return tuple(clone(x, memory_format=contiguous_format) for x in found)
        return clone(found, memory_format=contiguous_format)

    copied.__name__ = copied.__qualname__ = f"{name}_copy"
    copied.__doc__ = f"As `{name}`, but with memory of its own."
    function(f"{name}_copy", method=name == "narrow", out=name not in ("split", "split_with_sizes", "unbind", "narrow"))(copied)


for _name in (
    "narrow", "view", "permute", "squeeze", "unsqueeze", "expand", "transpose", "t", "select", "diagonal", "split", "unbind",
    "detach", "as_strided", "unfold", "view_as_real", "view_as_complex", "split_with_sizes",
):  # fmt: skip
    _copy_of(_name)


@function(method=False)
def detach(input: Tensor) -> Tensor:
    """The same memory, without history."""
    return input.detach()


NAMESPACES["torch"]["detach_"] = Tensor.detach_


def _resize_as(self: Tensor, the_template: Tensor, *, memory_format: memory_format | None = None) -> Tensor:
    """Another tensor's shape in place."""
    return _resize(self, the_template._array.shape)


Tensor.resize_as_ = _resize_as

__all__ = ["cast", "channels_last", "channels_last_3d", "contiguous_format", "preserve_format", "wrap"]
