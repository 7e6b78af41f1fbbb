"""Images in other sizes: `interpolate` and `upsample`.

Along each dimension a result is a weighted sum of a few elements, by a table of places and weights.  The gradient is another such
sum, by the transposed table.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.markers import at_capture
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import in_c_order, put_beside, ufunc_reduce
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.primitives import PRIMITIVES, define
from dynagraph.torch.core.tensor import Tensor, apply
from dynagraph.torch.functions.common import NAMESPACES, check_tensor, function

Spec = tuple[str, int, int, bool, float | None, bool]  # kind, size, size of the result, align_corners, scale, transposed
Table = tuple[Any, Any]  # for each place of the result: places of the input, and their weights

# -- tables ---------------------------------------------------------------------------------------------------------------


def _step(size: int, count: int, align: bool, scale: float | None, real: Any) -> Any:
    """How far neighbours of the result lie apart in the input."""
    if align:
        return real((size - 1) / (count - 1)) if count > 1 else real(0)
    return real(1 / scale) if scale else real(size) / real(count)


def _nearest(kind: str, size: int, count: int, scale: float | None) -> Table:
    """PyTorch finds places in float32, whatever the dtype."""
    places = np.arange(count)
    if kind == "nearest" and count == 2 * size and scale in (None, 2.0):
        return (places // 2)[:, None], None
    step = _step(size, count, False, scale, np.float32)
    shifted = places.astype(np.float32) + np.float32(0.5 if kind == "nearest-exact" else 0)
    return np.minimum(np.floor(shifted * step).astype(np.int64), size - 1)[:, None], None


def _positions(size: int, count: int, align: bool, scale: float | None, real: Any) -> Any:
    step = _step(size, count, align, scale, real)
    places = np.arange(count).astype(real)
    return step * places if align else step * (places + real(0.5)) - real(0.5)


def _linear(size: int, count: int, align: bool, scale: float | None, real: Any) -> Table:
    positions = np.maximum(_positions(size, count, align, scale, real), 0)
    below = np.minimum(positions.astype(np.int64), size - 1)
    share = np.minimum(np.maximum(positions - below, 0), 1)
    return np.stack((below, np.minimum(below + 1, size - 1)), 1), np.stack((1 - share, share), 1)


def cubic_weights(t: Any, a: float = -0.75) -> list[Any]:
    """Of the elements at -1, 0, 1 and 2, for a place between 0 and 1: R. Keys' convolution."""

    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _cubic(size: int, count: int, align: bool, scale: float | None, real: Any) -> Table:
    positions = _positions(size, count, align, scale, real)
    below = np.minimum(np.floor(positions).astype(np.int64), size - 1)
    share = np.minimum(np.maximum(positions - below, 0), 1)
    places = np.clip(below[:, None] + np.arange(-1, 3), 0, size - 1)
    return places, np.stack(cubic_weights(share), 1)


def _filter_linear(x: Any) -> Any:
    return np.maximum(1 - np.abs(x), 0)


def _filter_cubic(x: Any) -> Any:
    x, a = np.abs(x), -0.5
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _filter_lanczos(x: Any) -> Any:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


_FILTERS = {"linear": (_filter_linear, 1), "cubic": (_filter_cubic, 2), "lanczos": (_filter_lanczos, 3)}


def _antialiased(kind: str, size: int, count: int, align: bool, scale: float | None, real: Any) -> Table:
    """The filter widens with the step, so that all elements count."""
    compute, radius = _FILTERS[kind]
    step = _step(size, count, align, scale, real)
    support = radius * step if step >= 1 else real(radius)
    centres = step * (np.arange(count).astype(real) + real(0.5))
    first = np.maximum((centres - support + real(0.5)).astype(np.int64), 0)
    last = np.minimum((centres + support + real(0.5)).astype(np.int64), size)
    places = first[:, None] + np.arange(max(int((last - first).max()), 1))
    weights = compute((places - centres[:, None] + real(0.5)) * (1 / step if step >= 1 else real(1)))
    weights = np.where(places < last[:, None], weights, 0)
    return np.minimum(places, last[:, None] - 1), weights / ufunc_reduce(np.add, weights, axis=1, keepdims=True)


def _transposed(table: Table, size: int) -> Table:
    """For each place of the input those of the result that it counts in."""
    places, weights = table
    count, taps = places.shape
    weights = np.ones(places.shape) if weights is None else weights
    counted = weights.reshape(-1) != 0
    sources, targets = places.reshape(-1)[counted], np.repeat(np.arange(count), taps)[counted]
    shares = weights.reshape(-1)[counted]
    order = np.argsort(sources, kind="stable")
    sources, targets, shares = sources[order], targets[order], shares[order]
    often = np.bincount(sources, minlength=size)
    starts = np.cumsum(often) - often
    columns = np.arange(sources.size) - starts[sources]
    width = max(int(often.max()) if often.size else 0, 1)
    found, by = np.zeros((size, width), np.int64), np.zeros((size, width), weights.dtype)
    found[:] = np.where(often > 0, targets[np.minimum(starts, max(targets.size - 1, 0))] if targets.size else 0, 0)[:, None]
    found[sources, columns], by[sources, columns] = targets, shares
    return found, by


@at_capture
def _table(spec: Spec, name: str) -> Table:
    return _made_table(spec, name)


@at_capture
def _whole_table(spec: Spec) -> tuple[Any, Any, int]:
    return _made_whole_table(spec)


@functools.lru_cache(maxsize=256)
def _made_table(spec: Spec, name: str) -> Table:
    kind, size, count, align, scale, back = spec
    real = np.dtype(name).type
    if kind.startswith("nearest"):
        table = _nearest(kind, size, count, scale)
    elif kind == "linear":
        table = _linear(size, count, align, scale, real)
    elif kind == "cubic":
        table = _cubic(size, count, align, scale, real)
    else:
        table = _antialiased(kind.removesuffix("-antialiased"), size, count, align, scale, real)
    places, weights = _transposed(table, size) if back else table
    return places, None if weights is None else weights.astype(real)


@functools.lru_cache(maxsize=256)
def _made_whole_table(spec: Spec) -> tuple[Any, Any, int]:
    """For images of bytes: weights as 16-bit integers, with as many bits behind the point as they leave room for."""
    places, weights = _made_table(spec, "float64")
    bits, most = 0, float(weights.max())
    while bits < 22 and 0.5 + most * (1 << (bits + 1)) < 1 << 15:
        bits += 1
    scaled = weights * (1 << bits)
    return places, np.where(weights < 0, scaled - 0.5, scaled + 0.5).astype(np.int32), bits


def _along_bytes(x: Any, axis: int, spec: Spec) -> Any:
    places, weights, bits = _whole_table(spec)
    places, weights = put_beside(places, x), put_beside(weights, x)
    return np.clip((_weighted(x.astype(np.int32), axis, places, weights) + (1 << (bits - 1))) >> bits, 0, 255)


def _along(x: Any, axis: int, spec: Spec) -> Any:
    places, weights = _table(spec, x.dtype.name)
    places = put_beside(places, x)
    return np.take(x, places[:, 0], axis=axis) if weights is None else _weighted(x, axis, places, put_beside(weights, x))


def _weighted(x: Any, axis: int, places: Any, weights: Any) -> Any:
    behind = (1,) * (x.ndim - axis - 1)
    total = None
    for k in range(places.shape[1]):
        part = np.take(x, places[:, k], axis=axis) * weights[:, k].reshape(-1, *behind)
        total = part if total is None else total + part
    return total


def _resample(x: Any, specs: tuple[Spec, ...]) -> Any:
    """Dimension after dimension, the last first."""
    given = x.dtype
    plain = all(spec[0].startswith("nearest") and not spec[5] for spec in specs)
    if not plain and is_half(given):
        x = x.astype(np.float32)
    along = _along_bytes if given.kind == "u" and not plain else _along
    for k in reversed(range(len(specs))):
        kind, size, count, _, scale, _ = specs[k]
        if size != count or scale not in (None, 1.0) or kind.endswith("antialiased"):
            x = along(x, x.ndim - len(specs) + k, specs[k])
    if x.dtype == given:
        return x.copy(order="K") if all(s[1] == s[2] for s in specs) else in_c_order(x)
    return x.astype(given)


def _resample_vjp(d: Any, g: Any) -> Any:
    return g.call("resample", specs=tuple((*spec[:5], not spec[5]) for spec in d.attrs["specs"]))


define("resample", _resample, (_resample_vjp,), ("",))
_NODES = {
    "nearest": "UpsampleNearest{}D", "nearest-exact": "UpsampleNearestExact{}D", "linear": "UpsampleLinear{}D",
    "bilinear": "UpsampleBilinear{}D", "bicubic": "UpsampleBicubic{}D", "trilinear": "UpsampleTrilinear{}D",
    "bilinear-antialiased": "UpsampleBilinear{}DAa", "bicubic-antialiased": "UpsampleBicubic{}DAa",
    "lanczos-antialiased": "UpsampleLanczos{}DAa",
}  # fmt: skip
for _mode, _node in _NODES.items():
    for _n in (1, 2, 3):
        define(f"upsample_{_mode}{_n}d", _resample, (_resample_vjp,), ("",), backward=f"{_node.format(_n)}Backward0")

# -- functions --------------------------------------------------------------------------------------------------------------

_RANKS = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5, "lanczos": 4}
_KINDS = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}
_ALIGNED = ("linear", "bilinear", "bicubic", "trilinear")


def _check_mode(x: Tensor, mode: str, align_corners: bool | None, antialias: bool) -> None:
    ndim = x._array.ndim
    if mode in ("nearest", "area", "nearest-exact") and align_corners is not None:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
        )
    if antialias and not (mode in ("bilinear", "bicubic", "lanczos") and ndim == 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as input"
        )


def _sizes(x: Tensor, size: Any, scale_factor: Any, recompute: bool | None) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
    """The sizes of the result, and the scales that positions are found with."""
    inner = x._array.shape[2:]
    n = len(inner)
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is None and scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    if size is not None:
        given = tuple(size) if isinstance(size, (list, tuple)) else (size,) * n
        if len(given) != n:
            raise ValueError(
                "Input and output must have the same number of spatial dimensions, but got input with spatial dimensions of "
                f"{list(inner)} and output size of {size}. Please provide input tensor in (N, C, d1, d2, ...,dK) format and output "
                "size in (o1, o2, ...,oK) format."
            )
        if recompute:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        if any(isinstance(m, float) for m in given):
            raise TypeError("interpolate(): argument 'size' must be tuple of ints, but found element of type float")
        return tuple(int(m) for m in given), (None,) * n
    factors = tuple(scale_factor) if isinstance(scale_factor, (list, tuple)) else (scale_factor,) * n
    if len(factors) != n:
        raise ValueError(
            "Input and scale_factor must have the same number of spatial dimensions, but got input with spatial dimensions of "
            f"{list(inner)} and scale_factor of shape {scale_factor}. Please provide input tensor in (N, C, d1, d2, ...,dK) format "
            "and scale_factor in (s1, s2, ...,sK) format."
        )
    counts = tuple(math.floor(m * float(f)) for m, f in zip(inner, factors))
    return counts, (None,) * n if recompute else tuple(float(f) for f in factors)


def _check_sizes(x: Tensor, counts: tuple[int, ...]) -> None:
    shape = x._array.shape
    n = len(counts)
    if any(m <= 0 for m in (*shape[2:], *counts)):
        names = ("D", "H", "W")[-n:]
        before, after = (", ".join(f"{a}: {m}" for a, m in zip(names, s)) for s in (shape[2:], counts))
        raise RuntimeError(f"Input and output sizes should be greater than 0, but got input ({before}) output ({after})")
    if shape[1] == 0:
        raise RuntimeError(f"Non-empty {n + 2}D data tensor expected but got a tensor with sizes {list(shape)}")


@function(method=False, namespace="functional")
def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """In another size: elements nearest to each place, or sums of those around it."""
    x = check_tensor(input, "interpolate", "input")
    _check_mode(x, mode, align_corners, antialias)
    counts, scales = _sizes(x, size, scale_factor, recompute_scale_factor)
    ndim, n = x._array.ndim, len(counts)
    rank = _RANKS.get(mode)
    known = mode in ("nearest", "nearest-exact", "area") or rank is not None
    if ndim not in (3, 4, 5) or not known or (rank == 4 and mode != "bilinear" and ndim != 4):
        raise NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {ndim}D) for the modes: nearest | linear | bilinear | "
            f"bicubic | trilinear | lanczos | area | nearest-exact (got {mode})"
        )
    if mode == "area":
        return NAMESPACES["functional"][f"adaptive_avg_pool{n}d"](x, counts)
    if rank is not None and ndim != rank:
        raise NotImplementedError(f"Got {ndim}D input, but {mode} mode needs {rank}D input")
    if mode == "lanczos" and not antialias:
        raise ValueError("Lanczos mode requires antialias=True")
    _check_sizes(x, counts)
    name = mode + "-antialiased" * antialias
    _check_dtype(x, f"upsample_{mode.replace('-exact', '')}{n}d")
    kind = _KINDS.get(mode, mode) + "-antialiased" * antialias
    aligned = bool(align_corners) and mode in _ALIGNED
    # where PyTorch copies dimensions whose size stays, or doubles, whatever the scale
    alone = (1, 2) if mode == "nearest" and n == 2 else (1,) if antialias or kind == "linear" else ()
    scales = tuple(None if count in [k * m for k in alone] else s for m, count, s in zip(x._array.shape[2:], counts, scales))
    specs = tuple((kind, m, count, aligned, scale, False) for m, count, scale in zip(x._array.shape[2:], counts, scales))
    return apply(PRIMITIVES[f"upsample_{name}{n}d"], x, specs=specs)


def _check_dtype(x: Tensor, kernel: str) -> None:
    if x._array.dtype.kind not in "fV" and x.dtype is not dtypes.uint8:
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{dtypes.scalar_name(x.dtype)}'")


@function(method=False, namespace="functional")
def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Tensor:
    """`interpolate` by its old name."""
    warnings.warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode, align_corners)


def _old(name: str, **fixed: Any) -> Callable[..., Tensor]:
    def compute(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
        warnings.warn(f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
        return interpolate(input, size, scale_factor, **fixed)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"`interpolate` with {', '.join(f'{k}={v!r}' for k, v in fixed.items())}."
    return function(name, method=False, namespace="functional")(compute)


_old("upsample_nearest", mode="nearest")
_old("upsample_bilinear", mode="bilinear", align_corners=True)

__all__ = ["cubic_weights", "interpolate"]
