"""Primitives of views and rearrangements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dynagraph.markers import is_compiling
from dynagraph.torch.core.arrays import in_c_order, library_of_array, strided
from dynagraph.torch.core.primitives import define, from_row
from dynagraph.torch.core.terms import FORWARD
from dynagraph.torch.functions.pointwise_primitives import dense_like


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
        slice(b, (b + s * (n - 1) + 1 if s > 0 else None if b + s * n < 0 else b + s * n), s) if n else slice(0, 0)
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
    made[(slice(None),) * dim + (index, ...)] = g
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
    if is_compiling() and isinstance(x, np.ndarray):
        every = np.lib.stride_tricks.sliding_window_view(x, size, dim, writeable=True)
        return every[(slice(None),) * dim + (slice(None, None, step),)] if step > 1 else every
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
    lambda d, g: [g.call("select", dim=d.attrs["dim"], index=k) if d.needs(k) else None for k in range(d.n_operands)],
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
