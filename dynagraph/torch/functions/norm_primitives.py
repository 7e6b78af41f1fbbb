"""What normalization records: by statistics of batches, layers, groups and instances, by given ones, by root mean squares.

NumPy's arrays are normalized in C (`dynagraph/_core/norms`), forward and backward in one call each.  The same in operations on
arrays is what captures follow, which fuses with what is around it; it has the same bits.

Means and variances are results of the primitives beside the normalized tensor.  No function shows them, but gradients of gradients
come to them, and go on to the input.

`view` is the shape to normalize in, `axis` what means are of, `affine` the shape of weight and bias there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dynagraph._core._dispatch import normalize, normalize_back
from dynagraph.markers import at_capture, is_compiling
from dynagraph.torch.core.arrays import in_c_order, ufunc_reduce
from dynagraph.torch.core.engine import TensorTerm
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.primitives import define
from dynagraph.torch.core.terms import ArrayTerm
from dynagraph.torch.functions.activations import dense

Sizes = tuple[int, ...]
ACROSS, LAST, BY_ROOT, GIVEN = 1, 2, 4, 8  # how `normalize` reads an array

# -- arrays: in C -------------------------------------------------------------------------------------------------------------


def _has_kernels(*arrays: Any) -> bool:
    """Whether all are NumPy's floats, or None, and calls run one by one."""
    return not is_compiling() and all(a is None or (type(a) is np.ndarray and a.size and a.dtype.char in "fd") for a in arrays)


def _extent(view: Sizes, axis: Sizes, affine: Sizes) -> tuple[tuple[int, int, int, int], int]:
    """The sizes and the kind that `normalize` takes."""
    if len(view) > 1 and axis[0] == 0 and 1 not in axis:
        return (view[0], view[1], 1, math.prod(view[2:])), ACROSS
    if axis[0] == 2 and len(affine) == len(view):
        return (view[0], view[1], affine[2], math.prod(view[2:]) // affine[2]), 0
    return (math.prod(view[: axis[0]]), 1, math.prod(view[axis[0] :]), 1), 0


def _channels_last(x: Any) -> bool:
    """Whether the channels of images are their last axis in memory."""
    return x.ndim > 3 and not x.flags.c_contiguous and bool(np.moveaxis(x, 1, -1).flags.c_contiguous)


def _in_memory(x: Any, how: int) -> Any:
    return np.moveaxis(x, 1, -1) if how & LAST else x


def _as_shown(x: Any, shape: Sizes, how: int) -> Any:
    return np.moveaxis(x, -1, 1) if how & LAST else x.reshape(shape)


def _forward(x: Any, weight: Any, bias: Any, mean: Any, variance: Any, extent: Any, eps: float) -> tuple[Any, Any, Any]:
    sizes, how = extent
    how += LAST if how & ACROSS and _channels_last(x) else 0
    out, mean, variance = normalize(_in_memory(x, how), weight, bias, mean, variance, sizes, how, eps)
    return _as_shown(out, x.shape, how), mean, variance


def _backward(d: Any, g: Any, weight: int, statistics: Any, extent: Any) -> list[Any]:
    """The gradients by the first operand, the weight (an operand's number, or one too many) and the bias."""
    sizes, how = extent
    x, count = d.x.array, d.n_operands
    how += LAST if how & ACROSS and _channels_last(x) else 0
    needs = sum(1 << k for k, n in enumerate((0, weight, weight + 1)) if n < count and d.needs(n))
    by = d.operand(weight).array if weight < count else None
    mean, variance = statistics
    found = normalize_back(_in_memory(g, how), _in_memory(x, how), by, mean, variance, sizes, how, d.attrs["eps"], needs)
    by_x = None if found[0] is None else ArrayTerm(_as_shown(found[0], x.shape, how))
    affine = enumerate(found[1:], weight)
    return [by_x, *[None if array is None else ArrayTerm(array.reshape(d.operand(number).shape)) for number, array in affine]]


def _is_by_kernels(g: Any, *terms: Any) -> bool:
    """Whether a gradient is computed in C: that by the normalized tensor alone, not to be differentiated itself."""
    return not isinstance(g, TensorTerm) and _has_kernels(g.array, *(term.array for term in terms))


# -- arrays: in operations ----------------------------------------------------------------------------------------------------


def _wide(x: Any) -> Any:
    return x.astype(np.float32) if is_half(x.dtype) else x


def _wide_or_none(x: Any) -> Any:
    return None if x is None else _wide(x)


@at_capture
def _count(shape: Sizes, axis: Sizes) -> int:
    """Of the elements that a mean is of; 1 where there are none."""
    return max(math.prod(shape[k] for k in axis), 1)


def _scaled(x: Any, weight: Any, bias: Any, affine: Sizes) -> Any:
    if weight is not None:
        x = x * weight.reshape(affine)
    return x if bias is None else x + bias.reshape(affine)


def _normalized(
    x: Any, weight: Any = None, bias: Any = None, *, view: Sizes, axis: Sizes, affine: Sizes, eps: float
) -> tuple[Any, Any, Any]:
    """The tensor normalized, its means and its variances (those of all elements)."""
    wide, weight, bias = _wide(x), _wide_or_none(weight), _wide_or_none(bias)
    if _has_kernels(wide, weight, bias):
        kept = tuple(1 if k in axis else n for k, n in enumerate(view))
        out, mean, variance = _forward(wide, weight, bias, None, None, _extent(view, axis, affine), eps)
        return out.astype(x.dtype, copy=False), mean.reshape(kept), variance.reshape(kept)
    wide = dense(wide).reshape(view)
    count = _count(view, axis)
    mean = ufunc_reduce(np.add, wide, axis=axis, keepdims=True) / wide.dtype.type(count)
    centred = wide - mean
    variance = ufunc_reduce(np.add, centred * centred, axis=axis, keepdims=True) / wide.dtype.type(count)
    result = _scaled(centred / np.sqrt(variance + wide.dtype.type(eps)), weight, bias, affine)
    result = result.reshape(x.shape)
    if axis[0] == 0 and _channels_last(x):
        result = np.moveaxis(in_c_order(np.moveaxis(result, 1, -1)), -1, 1)
    return result.astype(x.dtype, copy=False), mean, variance


def _standard(x: Any, mean: Any, variance: Any, weight: Any = None, bias: Any = None, *, affine: Sizes, eps: float) -> Any:
    """Normalized by means and variances that are given."""
    wide, mean, variance, weight, bias = _wide(x), _wide(mean), _wide(variance), _wide_or_none(weight), _wide_or_none(bias)
    if _has_kernels(wide, mean, variance, weight, bias):
        result = _forward(wide, weight, bias, mean, variance, _given(x.shape), eps)[0]
    else:
        root = np.sqrt(variance.reshape(affine) + eps).astype(variance.dtype)
        wide = wide if _channels_last(x) else dense(wide)
        result = _scaled((wide - mean.reshape(affine)) / root, weight, bias, affine)
    return result.astype(x.dtype, copy=False)


def _given(shape: Sizes) -> tuple[tuple[int, int, int, int], int]:
    return (shape[0], shape[1], 1, math.prod(shape[2:])), ACROSS + GIVEN


def _by_root(x: Any, weight: Any = None, *, axis: Sizes, eps: float) -> tuple[Any, Any]:
    """Divided by the root of the mean square; and the mean square."""
    wide, weight = _wide(x), _wide_or_none(weight)
    if _has_kernels(wide, weight):
        out, _, square = _forward(wide, weight, None, None, None, _rows_by_root(x.shape, axis), eps)
        return out.astype(x.dtype, copy=False), square.reshape(x.shape[: axis[0]] + (1,) * len(axis))
    wide = dense(wide)
    count = max(math.prod(x.shape[k] for k in axis), 1)
    square = ufunc_reduce(np.add, wide * wide, axis=axis, keepdims=True) / wide.dtype.type(count)
    result = wide / np.sqrt(square + wide.dtype.type(eps))
    if weight is not None:
        result = result * weight
    return result.astype(x.dtype, copy=False), square


def _rows_by_root(shape: Sizes, axis: Sizes) -> tuple[tuple[int, int, int, int], int]:
    return (math.prod(shape[: axis[0]]), 1, math.prod(shape[axis[0] :]), 1), BY_ROOT


# -- gradients ----------------------------------------------------------------------------------------------------------------


def _inverse_root(variance: Any, eps: float) -> Any:
    return (variance + eps).call("rsqrt")


def _mean_of(term: Any, axis: Sizes) -> Any:
    return term.call("sum", axis=axis, keepdims=True) / _count(term.shape, axis)


def _in_order(term: Any) -> Any:
    """In C order, which is that of the sums; what was broadcast stays that."""
    array = term.array
    return term if array.flags.c_contiguous or 0 in array.strides else term.call("contiguous")


def _needs(d: Any, k: int) -> bool:
    return k < d.n_operands and bool(d.needs(k))


@at_capture
def _axes_summed(ndim: int, affine: Sizes) -> Sizes:
    front = ndim - len(affine)
    return (*range(front), *(front + k for k, n in enumerate(affine) if n == 1))


def _to_affine(d: Any, term: Any, number: int) -> Any:
    """Summed to the shape of a weight or bias."""
    affine = d.attrs["affine"]
    return term.sum(*_axes_summed(term.ndim, affine)).reshape(d.operand(number).shape)


def _normalized_back(d: Any, g: Any) -> list[Any]:
    view, axis, affine = d.attrs["view"], d.attrs["axis"], d.attrs["affine"]
    _, mean, variance = d.outs
    if g[0] is not None and g[1] is None and g[2] is None and _is_by_kernels(g[0], d.x, mean, variance):
        return _backward(d, g[0].array, 1, (mean.array, variance.array), _extent(view, axis, affine))
    found, by_weight, by_bias = None, None, None
    if g[0] is not None:
        root, mine = _inverse_root(variance, d.attrs["eps"]), _in_order(g[0]).reshape(view)
        hat = (_in_order(d.x).reshape(view) - mean) * root
        if _needs(d, 1):
            by_weight = _to_affine(d, mine * hat, 1)
        if _needs(d, 2):
            by_bias = _to_affine(d, mine, 2)
        if d.needs(0):
            if d.n_operands > 1:
                mine = mine * d.y.reshape(affine)
            found = root * (mine - _mean_of(mine, axis) - hat * _mean_of(mine * hat, axis))
    count = _count(view, axis)
    if g[1] is not None:
        by_mean = (g[1] / count).call("broadcast_to", shape=view)
        found = by_mean if found is None else found + by_mean
    if g[2] is not None:
        by_variance = (d.x.reshape(view) - mean) * (g[2] * (2 / count))
        found = by_variance if found is None else found + by_variance
    return [None if found is None else found.reshape(d.x.shape), by_weight, by_bias]


def _standard_back(d: Any, g: Any) -> list[Any]:
    affine, eps = d.attrs["affine"], d.attrs["eps"]
    mean, variance = d.y, d.operand(2)
    if _is_by_kernels(g, d.x, mean, variance):
        by = _backward(d, g.array, 3, (mean.array, variance.array), _given(d.x.shape))
        return [by[0], None, None, *by[1:]]
    root, g, x = _inverse_root(variance, eps).reshape(affine), _in_order(g), _in_order(d.x)
    own = g * d.operand(3).reshape(affine) if d.n_operands > 3 else g
    by_weight = _to_affine(d, g * ((x - mean.reshape(affine)) * root), 3) if _needs(d, 3) else None
    return [root * own if d.needs(0) else None, None, None, by_weight, _to_affine(d, g, 4) if _needs(d, 4) else None]


def _by_root_back(d: Any, g: Any) -> list[Any]:
    axis, found, by_weight = d.attrs["axis"], None, None
    square = d.outs[1]
    if g[0] is not None and g[1] is None and _is_by_kernels(g[0], d.x, square):
        return _backward(d, g[0].array, 1, (None, square.array), _rows_by_root(d.x.shape, axis))
    if g[0] is not None:
        root = _inverse_root(square, d.attrs["eps"])
        mine, hat = _in_order(g[0]), _in_order(d.x) * root
        if _needs(d, 1):
            by_weight = mine * hat
        if d.needs(0):
            mine = mine * d.y if d.n_operands > 1 else mine
            found = root * (mine - hat * _mean_of(mine * hat, axis))
    if g[1] is not None:
        count = max(math.prod(d.x.shape[k] for k in axis), 1)
        by_square = d.x * (g[1] * (2 / count))
        found = by_square if found is None else found + by_square
    return [found, by_weight]


for _name, _node in (
    ("batch_norm", "NativeBatchNormBackward0"),
    ("layer_norm", "NativeLayerNormBackward0"),
    ("group_norm", "NativeGroupNormBackward0"),
):
    _about: dict[str, Any] = {"backward": _node, "outputs": 3, "differentiable": (0,)}
    define(_name, _normalized, _normalized_back, "xpq", **_about)
    define(f"{_name}_affine", _normalized, _normalized_back, "xypq", **_about)
define("standard", _standard, _standard_back, "xyz", backward="NativeBatchNormBackward0")
define("standard_affine", _standard, _standard_back, "xyzu", backward="NativeBatchNormBackward0")
_about = {"backward": "MulBackward0", "outputs": 2, "differentiable": (0,)}
define("rms_norm", _by_root, _by_root_back, "xp", **_about)
define("rms_norm_affine", _by_root, _by_root_back, "xyp", **_about)

__all__ = ["Sizes"]
