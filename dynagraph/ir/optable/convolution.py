"""Rows of convolutions: sums over windows of images, and the two gradients of them, each one's gradients being the others.

Images are ``(batch, channels, *sizes)``, filters ``(results, channels of a group, *kernel)``, of one to three dimensions.
`padding` is a pair for each dimension: how many zeros stand before and after it.  `places`, `shape` and `kernel` say how large the
result is, where the operands do not: several sizes of images have the same number of places.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph._core._dispatch import convolve
from dynagraph.errors import DTypeError, ShapeError
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Node
from dynagraph.ir.ops import REQUIRED, Attrs, Library, Metas, define_op
from dynagraph.ir.optable.rules import one_dtype
from dynagraph.ir.shapes import Dim, Shape, hint_numel, same_dim
from dynagraph.ir.terms import Differentiated, Term

Pairs = tuple[tuple[int, int], ...]
ROUTINES = ("conv", "conv_input", "conv_weight")  # in the order of their numbers (dg_convolution in runtime.h)
MOST_DIMENSIONS = 3


# -- arrays -----------------------------------------------------------------------------------------------------------


def conv(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    stride: tuple[int, ...],
    padding: Pairs,
    dilation: tuple[int, ...],
    groups: int = 1,
    places: tuple[int, ...] | None = None,
) -> np.ndarray:
    """The sums over all windows of the input, each element multiplied by the filter's, plus a number for each channel."""
    if places is None:
        places = tuple(map(places_of, x.shape[2:], weight.shape[2:], stride, dilation, padding))
    return convolve(0, x, weight, bias, groups, stride, dilation, padding, places)


def conv_input(
    g: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    padding: Pairs,
    dilation: tuple[int, ...],
    groups: int = 1,
) -> np.ndarray:
    """The transpose of `conv`, as a function of its input, applied to `g`; `shape`: of the last dimensions."""
    return convolve(1, g, weight, bias, groups, stride, dilation, padding, shape)


def conv_weight(
    x: np.ndarray,
    g: np.ndarray,
    *,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: Pairs,
    dilation: tuple[int, ...],
    groups: int = 1,
) -> np.ndarray:
    """The transpose of `conv`, as a function of its filters, applied to `g`."""
    return convolve(2, x, g, None, groups, stride, dilation, padding, kernel)


def places_of(size: Any, kernel: Any, stride: int, dilation: int, padding: tuple[int, int]) -> Any:
    """How many windows there are along a dimension."""
    return (size + sum(padding) - dilation * (kernel - 1) - 1) // stride + 1


def operations(node: Node) -> float:
    """Multiplications and additions that a convolution, or a gradient of one, takes, by the sizes at capture."""
    first, second = node.args
    filters = second if node.is_op("conv", "conv_input") else node
    results = node if node.is_op("conv") else first if node.is_op("conv_input") else second
    return 2.0 * hint_numel(results.shape) * hint_numel(filters.shape[1:])


# -- rows -------------------------------------------------------------------------------------------------------------


def _dtype(metas: Metas, attrs: Attrs) -> DType:
    dtype = one_dtype("convolution", metas)
    if dtype not in (dtypes.float32, dtypes.float64):
        raise DTypeError(f"convolution: takes float32 or float64, got {dtype}; cast the operand first")
    return dtype


def _check(who: str, metas: Metas, attrs: Attrs, images: Dim, filters: Dim) -> None:
    """That ranks and channels fit; `images` and `filters`: how many channels these have, a group's."""
    ranks = [m.ndim - 2 for m in metas] + [len(attrs[name]) for name in ("stride", "padding", "dilation")]
    if len(set(ranks)) > 1 or not 1 <= ranks[0] <= MOST_DIMENSIONS:
        raise ShapeError(f"{who}: operands of shapes {metas[0].shape} and {metas[1].shape}, and sizes for {ranks[2]} dimensions")
    if images != filters * attrs["groups"]:
        raise ShapeError(f"{who}: {images} channels in {attrs['groups']} groups, and filters for {filters}")


def _conv_shape(metas: Metas, attrs: Attrs) -> Shape:
    x, weight = (m.shape for m in metas)
    _check("conv", metas, attrs, x[1], weight[1])
    places = attrs["places"]
    if places is None:
        sizes = zip(x[2:], weight[2:], attrs["stride"], attrs["dilation"], attrs["padding"])
        places = tuple(places_of(*of_one) for of_one in sizes)
    return (x[0], weight[0], *places)


def _input_shape(metas: Metas, attrs: Attrs) -> Shape:
    g, weight = (m.shape for m in metas)
    _check("conv_input", metas, attrs, g[1], weight[0] if attrs["groups"] == 1 else g[1] // attrs["groups"])
    return (g[0], weight[1] * attrs["groups"], *attrs["shape"])


def _weight_shape(metas: Metas, attrs: Attrs) -> Shape:
    x, g = (m.shape for m in metas)
    channels = x[1] // attrs["groups"]
    _check("conv_weight", metas, attrs, x[1], channels)
    if not same_dim(x[0], g[0]):
        raise ShapeError(f"conv_weight: batches of {x[0]} and {g[0]}")
    return (g[1], channels, *attrs["kernel"])


def _about(d: Differentiated) -> dict[str, Any]:
    return {name: d.attrs[name] for name in ("stride", "padding", "dilation", "groups")}


_ATTRS = {"stride": REQUIRED, "padding": REQUIRED, "dilation": REQUIRED, "groups": 1}


def _conv_by_input(d: Differentiated, g: Term) -> Term:
    return g.call("conv_input", d.y.conj, shape=d.x.shape[2:], **_about(d))


def _conv_by_weight(d: Differentiated, g: Term) -> Term:
    return d.x.conj.call("conv_weight", g, kernel=d.y.shape[2:], **_about(d))


def _input_by_result(d: Differentiated, g: Term) -> Term:
    return g.call("conv", d.y.conj, places=d.x.shape[2:], **_about(d))


def _input_by_weight(d: Differentiated, g: Term) -> Term:
    return g.call("conv_weight", d.x.conj, kernel=d.y.shape[2:], **_about(d))


def _weight_by_input(d: Differentiated, g: Term) -> Term:
    return d.y.conj.call("conv_input", g, shape=d.x.shape[2:], **_about(d))


def _weight_by_result(d: Differentiated, g: Term) -> Term:
    return d.x.conj.call("conv", g, places=d.y.shape[2:], **_about(d))


define_op(
    "conv",
    arity=2,
    dtype=_dtype,
    shape=_conv_shape,
    eager=lambda xp, x, weight, **about: conv(x, weight, **about),
    lowering=Library("conv"),
    attrs={**_ATTRS, "places": None},
    vjp=(_conv_by_input, _conv_by_weight),
    cupy=False,
    doc="sums over windows of the first operand, weighted by the second",
)
define_op(
    "conv_input",
    arity=2,
    dtype=_dtype,
    shape=_input_shape,
    eager=lambda xp, g, weight, **about: conv_input(g, weight, **about),
    lowering=Library("conv_input"),
    attrs={"shape": REQUIRED, **_ATTRS},
    vjp=(_input_by_result, _input_by_weight),
    cupy=False,
    doc="the gradient of conv by its first operand, from that by its result and the second operand",
)
define_op(
    "conv_weight",
    arity=2,
    dtype=_dtype,
    shape=_weight_shape,
    eager=lambda xp, x, g, **about: conv_weight(x, g, **about),
    lowering=Library("conv_weight"),
    attrs={"kernel": REQUIRED, **_ATTRS},
    vjp=(_weight_by_input, _weight_by_result),
    cupy=False,
    doc="the gradient of conv by its second operand, from the first operand and that by its result",
)

__all__ = ["ROUTINES", "conv", "conv_input", "conv_weight", "operations", "places_of"]
