"""Pools in ONNX: windows of one size are its operator; as many windows as are asked for are put together of others."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.ir import dtypes
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import Dim, Shape, SymInt, numel, same_shape
from dynagraph.onnx.writer import NoOperator, Writer, row


def _boxes(node: Node, n: int) -> tuple[Shape, Shape]:
    """The dimensions before the last n, and these."""
    shape = node.shape
    return shape[: len(shape) - n], shape[len(shape) - n :]


def _static(sizes: Shape, what: str) -> tuple[int, ...]:
    if any(isinstance(d, SymInt) for d in sizes):
        raise NoOperator(f"{what} of symbolic sizes")
    return tuple(map(int, sizes))


@row("max_pool")
def _max_pool(w: Writer, node: Node, x: str) -> str:
    attrs = node.attrs
    n = len(attrs["kernel"])
    front, sizes = _boxes(node.args[0], n)
    ends = [_end(*of_one) for of_one in zip(sizes, *(attrs[k] for k in ("kernel", "stride", "padding", "dilation", "places")))]
    if len(front) != 2:
        x = w.reshape(x, node.args[0].shape, (numel(front), 1, *sizes))
    begins = list(attrs["padding"])
    if any(pad >= size for pads in (begins, ends) for pad, size in zip(pads, attrs["kernel"])):  # the operator refuses these
        if attrs["result"]:
            raise NoOperator("places of maxima with a border as wide as the windows")
        x = w.op("Pad", x, w.ints(0, 0, *begins, 0, 0, *ends), w.scalar(-np.inf, node.args[0].dtype))
        begins, ends = [0] * n, [0] * n
    shape, strides, dilations = (list(attrs[k]) for k in ("kernel", "stride", "dilation"))
    about = {"kernel_shape": shape, "strides": strides, "dilations": dilations, "pads": [*begins, *ends]}
    found = w.ops("MaxPool", x, outputs=1 + attrs["result"], **about)[-1]
    if attrs["result"]:
        found = w.op("Mod", found, w.number(numel(sizes), dtypes.int64))
    return found if len(front) == 2 else w.reshape(found, (numel(front), 1, *attrs["places"]), node.shape)


def _end(size: Dim, kernel: int, stride: int, padding: int, dilation: int, count: Dim) -> int:
    """The border at the end of a dimension that gives so many windows."""
    reach = dilation * (kernel - 1) + 1
    if isinstance(size, SymInt) or isinstance(count, SymInt):
        if not same_shape((count,), ((size + 2 * padding - reach) // stride + 1,)):
            raise NoOperator("windows of symbolic sizes, the last one beyond the border")
        return padding
    return max((int(count) - 1) * stride + reach - int(size) - padding, 0)


def fits_average_pool(node: Node) -> bool:
    """Whether the operator gives an average pool: it counts all of the border or nothing; ONNX Runtime's takes float32."""
    n, attrs = len(node.attrs["kernel"]), node.attrs
    if not node.is_op("avg_pool") or node.dtype is not dtypes.float32:
        return False
    sizes = _boxes(node.args[0], n)[1]
    about = list(zip(sizes, *(attrs[name] for name in ("kernel", "stride", "padding", "places"))))
    try:
        ends = [_end(size, kernel, stride, padding, 1, count) for size, kernel, stride, padding, count in about]
    except NoOperator:
        return False
    for (size, kernel, stride, padding, count), end in zip(about, ends):
        if padding >= kernel or end >= kernel:
            return False
        if attrs["divisor"] is None and end > padding and (attrs["whole"] or (count - 1) * stride - padding >= size):
            return False
    return True


@row("avg_pool")
def _avg_pool(w: Writer, node: Node, x: str) -> str:
    attrs = node.attrs
    n = len(attrs["kernel"])
    front, sizes = _boxes(node.args[0], n)
    ends = [_end(size, k, s, p, 1, count) for size, k, s, p, count in zip(
        sizes, *(attrs[name] for name in ("kernel", "stride", "padding", "places")))]  # fmt: skip
    if len(front) != 2:
        x = w.reshape(x, node.args[0].shape, (numel(front), 1, *sizes))
    shape, strides = list(attrs["kernel"]), list(attrs["stride"])
    whole = int(attrs["whole"] or attrs["divisor"] is not None)
    found = w.op("AveragePool", x, kernel_shape=shape, strides=strides, pads=[*attrs["padding"], *ends], count_include_pad=whole)
    if attrs["divisor"] is not None:
        found = w.op("Mul", found, w.scalar(np.prod(shape) / attrs["divisor"], node.dtype))
    return found if len(front) == 2 else w.reshape(found, (numel(front), 1, *attrs["places"]), node.shape)


@row("max_pool_back")
def _max_pool_back(w: Writer, node: Node, g: str, places: str) -> str:
    """What stood nowhere goes nowhere."""
    n = len(node.attrs["sizes"])
    front, counts = _boxes(node.args[0], n)
    flat = (numel(front), numel(counts))
    g, places = (w.reshape(value, node.args[0].shape, flat) for value in (g, places))
    zero, first = w.scalar(0, node.dtype), w.scalar(0, dtypes.int64)
    g, places = w.op("Where", w.op("Less", places, first), zero, g), w.op("Max", places, first)
    whole = (numel(front), numel(node.attrs["sizes"]))
    made = w.op("ScatterElements", w.expand(zero, whole), places, g, axis=1, reduction="add")
    return w.reshape(made, whole, node.shape)


def _bounds(size: int, count: int) -> list[tuple[int, int]]:
    return [(j * size // count, ((j + 1) * size + count - 1) // count) for j in range(count)]


@row("adaptive_max_pool")
def _adaptive_max_pool(w: Writer, node: Node, x: str) -> str:
    """Of each window one element after the other, along one axis after the other."""
    n = len(node.attrs["counts"])
    sizes = _static(_boxes(node.args[0], n)[1], "adaptive maxima")
    counts = _static(node.attrs["counts"], "adaptive maxima")
    values, where = x, w.constant(np.arange(np.prod(sizes)).reshape(sizes))
    for k in reversed(range(n)):
        bounds = _bounds(sizes[k], counts[k])
        chosen = [[min(a + j, b - 1) for a, b in bounds] for j in range(max(b - a for a, b in bounds))]
        parts = [[w.op("Gather", value, w.ints(*at), axis=k - n) for value in (values, where)] for at in chosen]
        (values, where), *others = parts
        for other, place in others:
            better = w.op("Or", w.op("Greater", other, values), w.op("IsNaN", other))
            values, where = w.op("Where", better, other, values), w.op("Where", better, place, where)
    return w.expand(where, node.shape) if node.attrs["result"] else values


@row("adaptive_mean")
def _adaptive_mean(w: Writer, node: Node, x: str) -> str:
    axis = node.attrs["axis"]
    return _times(w, node, x, axis, _shares(*_static((node.args[0].shape[axis], node.attrs["count"]), "adaptive means")))


@row("adaptive_mean_back")
def _adaptive_mean_back(w: Writer, node: Node, g: str) -> str:
    axis = node.attrs["axis"]
    return _times(w, node, g, axis, _shares(*_static((node.attrs["size"], node.args[0].shape[axis]), "adaptive means")).T)


def _shares(size: int, count: int) -> np.ndarray:
    """What each element adds to each mean."""
    made = np.zeros((size, count))
    for j, (a, b) in enumerate(_bounds(size, count)):
        made[a:b, j] = 1 / (b - a)
    return made


def _times(w: Writer, node: Node, x: str, axis: int, matrix: Any) -> str:
    """The rows along an axis times a matrix."""
    order = [k for k in range(node.ndim) if k != axis] + [axis]
    product = w.op("MatMul", w.transpose(x, order), w.constant(matrix.astype(node.dtype.numpy)))
    return w.transpose(product, [order.index(k) for k in range(node.ndim)])


__all__ = ["fits_average_pool"]
