"""Functions that ONNX has as one operator, found in graphs that hold them in parts.

What to look for is not written down: each function is captured, as the model was, for the dtype and axes of the place that is
looked at, and its graph is the pattern.  So a pattern is what the function is made of today, and matches are exact.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from dynagraph.errors import DynagraphError
from dynagraph.exporting import Dim, export
from dynagraph.exporting.trees import built, tensor_class
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.rewrite import uniform_value
from dynagraph.ir.shapes import SymInt, numel, same_shape
from dynagraph.onnx.prepare import prepared
from dynagraph.onnx.writer import Writer

Shape = tuple[int, ...]
UNKNOWN = (0.123456789, 0.0123456789)  # stand for any number: what a match finds in their places is given to the writer
RANKS = range(1, 6)


@dataclass(frozen=True)
class Variant:
    """A function at one place: how it is called, with tensors of these shapes in place of `Operand`."""

    write: Callable[..., str]  # (writer, node, operands, numbers) -> the name of the value
    function: Any
    shapes: tuple[Shape, ...]
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...] = ()
    fits: Callable[..., bool] | None = None  # of the operands; the pattern's sizes are then the model's


@dataclass(frozen=True)
class Operand:
    """Stands for a tensor."""

    number: int


@dataclass
class Match:
    """A node that is what a function gives for `operands`."""

    node: Node
    operands: tuple[Node, ...]
    variant: Variant
    numbers: tuple[float, ...]
    inner: set[Node] = field(default_factory=set)

    def write(self, w: Writer, *operands: str) -> str:
        return self.variant.write(w, self.node, operands, self.numbers)


@dataclass(frozen=True)
class Function:
    """A row of the table: `variants(node, F)` gives what it may be at a node; the first that matches is taken."""

    name: str
    since: int  # the opset that has the operator
    variants: Callable[[Node, Any], Iterator[Variant]]


FUNCTIONS: list[Function] = []


def function(since: int = 18) -> Callable[[Callable[[Node, Any], Iterator[Variant]]], Callable[[Node, Any], Iterator[Variant]]]:
    def register(variants: Callable[[Node, Any], Iterator[Variant]]) -> Callable[[Node, Any], Iterator[Variant]]:
        FUNCTIONS.append(Function(variants.__name__.strip("_"), since, variants))
        return variants

    return register


def recognise(graph: Graph, opset: int) -> dict[Node, Any]:
    """The matches by node, the largest first: what is inside of one is not looked for any more."""
    found: dict[Node, Any] = {}
    if tensor_class() is None:  # functions of PyTorch's are in no graph
        return found
    functional = import_module("dynagraph.torch.nn.functional")
    inside: set[Node] = set()
    for node in reversed(list(graph.nodes)):
        if node.kind != "call_function" or node in inside or not node.dtype.is_float:
            continue
        match = _match_at(node, functional, opset)
        if match is not None:
            found[node] = match
            inside |= match.inner
    return found


def _match_at(node: Node, functional: Any, opset: int) -> Match | None:
    linear = _linear(node)
    if linear is not None:
        return linear
    for candidate in FUNCTIONS:
        if candidate.since > opset or node.ndim not in RANKS:
            continue
        for variant in candidate.variants(node, functional):
            any_batch = variant.fits is not None and isinstance(node.shape[0], SymInt)
            pattern = _pattern(node.dtype.name, variant.function, variant.shapes, variant.arguments, variant.keywords, any_batch)
            if pattern is None or pattern.outputs[0].op is not node.op:
                continue
            match = _Matching(pattern, node).match(variant)
            if match is not None:
                return match
    return None


@functools.lru_cache(maxsize=1024)
def _pattern(
    dtype: str, function: Any, shapes: tuple[Shape, ...], arguments: Any, keywords: Any, any_batch: bool
) -> Graph | None:
    """The graph of a function, prepared as the model's; None where it is not captured, or gives an operand back.

    `any_batch`: the first size of its first operand is symbolic.
    """
    tensors = [built(("tensor", 0), [np.ones(shape, dtypes.BY_NAME[dtype].numpy)]) for shape in shapes]
    given = tuple(tensors[a.number] if isinstance(a, Operand) else a for a in arguments)
    try:
        sizes: Any = ({0: Dim.AUTO}, *(None for _ in (*given[1:], *keywords))) if any_batch else None
        graph = prepared(export(function, given, dict(keywords), sizes).graph)
    except DynagraphError:
        return None
    return graph if graph.outputs[0].kind == "call_function" else None


class _Matching:
    """Whether a node is what a pattern gives, node by node from the end."""

    def __init__(self, pattern: Graph, node: Node):
        self.pattern, self.root = pattern, node
        self.bound: dict[Node, Node] = {}
        self.numbers: dict[float, float] = {}

    def match(self, variant: Variant) -> Match | None:
        self.exact = variant.fits is not None
        if not self._is(self.pattern.outputs[0], self.root):
            return None
        operands = [self.bound.get(p) for p in self.pattern.placeholders]
        if any(o is None for o in operands):
            return None
        for operand, placeholder in zip(operands, self.pattern.placeholders):
            if operand.ndim != placeholder.ndim:  # type: ignore[union-attr]
                return None
        if variant.fits is not None and not variant.fits(*operands):
            return None
        inner = {node for p, node in self.bound.items() if p.kind != "placeholder"} - {self.root}
        return Match(self.root, tuple(operands), variant, tuple(self.numbers.get(u, 0.0) for u in UNKNOWN), inner)  # type: ignore[arg-type]

    def _is(self, pattern: Node, node: Node) -> bool:
        known = self.bound.get(pattern)
        if known is not None:
            return known is node
        if pattern.dtype is not node.dtype:
            return False
        if pattern.kind == "placeholder":
            self.bound[pattern] = node
            return True
        value = uniform_value(pattern) if pattern.kind == "get_attr" or not pattern.args else None
        if value is not None and not pattern.args:
            return self._is_constant(value, pattern, node)
        if pattern.kind == node.kind == "get_attr":
            return self._are_alike(pattern.graph.constants[pattern.target], node.graph.constants[node.target])
        if pattern.kind != "call_function" or node.kind != "call_function" or pattern.op is not node.op:
            return False
        if len(pattern.args) != len(node.args) or not self._attributes_agree(pattern, node):
            return False
        saved = dict(self.bound), dict(self.numbers)
        self.bound[pattern] = node
        if all(self._is(p, a) for p, a in zip(pattern.args, node.args)):
            return True
        self.bound, self.numbers = dict(saved[0]), dict(saved[1])
        if pattern.dtype.kind in pattern.op.commutative:
            self.bound[pattern] = node
            if all(self._is(p, a) for p, a in zip(pattern.args, reversed(node.args))):
                return True
            self.bound, self.numbers = saved
        return False

    def _are_alike(self, pattern: np.ndarray, array: np.ndarray) -> bool:
        """Constants; of places only whether they are there."""
        if pattern.dtype.kind == "i":
            pattern, array = pattern < 0, array < 0
        return pattern.shape == array.shape and np.array_equal(pattern, array)

    def _is_constant(self, value: Any, pattern: Node, node: Node) -> bool:
        found = uniform_value(node)
        if found is None or isinstance(found, SymInt) or isinstance(value, SymInt):
            return False
        for unknown in UNKNOWN:
            if isinstance(value, float) and abs(value - unknown) < 1e-8:
                return self.numbers.setdefault(unknown, float(found)) == float(found)
        return bool(found == value) and type(found) is type(value)

    def _attributes_agree(self, pattern: Node, node: Node) -> bool:
        """Shapes that an op is given are those of its result, and are compared where the pattern's are of the model's sizes."""
        for name, value in pattern.attrs.items():
            other = node.attrs[name]
            if name == "shape" and isinstance(other, tuple):
                pairs = [(a, b) for a, b in zip(value, other) if isinstance(b, int)]
                if node.ndim != pattern.ndim or any((a == 1) != (b == 1) or (self.exact and a != b) for a, b in pairs):
                    return False
            elif name != "walk" and other != value:
                return False
        return True


# -- the table --------------------------------------------------------------------------------------------------------------------


def _static(node: Node, first: int = 0) -> Shape | None:
    """The sizes from an axis on, if they are known."""
    sizes = node.shape[first:]
    return None if any(isinstance(d, SymInt) for d in sizes) else tuple(sizes)  # type: ignore[arg-type]


def _any(node: Node) -> Shape:
    """A shape of the node's rank; elementwise functions do not look at it."""
    return tuple(range(2, 2 + node.ndim))


def _elementwise(name: str, operator: str | Callable[..., str], since: int = 18, more: tuple[Any, ...] = (),
                 keywords: tuple[tuple[str, Any], ...] = (), **attributes: Any) -> None:  # fmt: skip
    """A function of one operand, and of `more`.  An attribute of 0 is the first number that a match finds."""

    def write(w: Writer, node: Node, operands: Sequence[str], numbers: Sequence[float]) -> str:
        if callable(operator):
            return operator(w, node, operands, numbers)
        return w.op(operator, *operands, **{k: numbers[v] if type(v) is int else v for k, v in attributes.items()})

    def variants(node: Node, functional: Any) -> Iterator[Variant]:
        of = getattr(functional, name, None) or getattr(tensor_class(), name)
        yield Variant(write, of, (_any(node),), (Operand(0), *more), keywords)

    FUNCTIONS.append(Function(name, since, variants))


def _gelu_by_erf(w: Writer, node: Node, operands: Sequence[str], numbers: Sequence[float]) -> str:
    (x,) = operands
    half = w.op("Mul", x, w.scalar(0.5, node.dtype))
    more = w.op("Add", w.op("Erf", w.op("Mul", x, w.scalar(0.5**0.5, node.dtype))), w.scalar(1, node.dtype))
    return w.op("Mul", half, more)


def _silu(w: Writer, node: Node, operands: Sequence[str], numbers: Sequence[float]) -> str:
    return w.op("Mul", operands[0], w.op("Sigmoid", operands[0]))


_elementwise("gelu", "Gelu", 20)
_elementwise("gelu", _gelu_by_erf)
_elementwise("gelu", "Gelu", 20, keywords=(("approximate", "tanh"),), approximate="tanh")
_elementwise("silu", _silu)
_elementwise("mish", "Mish")
_elementwise("hardswish", "HardSwish")
_elementwise("hardsigmoid", "HardSigmoid", alpha=1 / 6, beta=0.5)
_elementwise("selu", "Selu")
_elementwise("softsign", "Softsign")
_elementwise("softplus", "Softplus")
_elementwise("elu", "Elu")
_elementwise("elu", "Elu", more=UNKNOWN[:1], alpha=0)
_elementwise("leaky_relu", "LeakyRelu", more=UNKNOWN[:1], alpha=0)
_elementwise("relu", "Relu")
_elementwise("sigmoid", "Sigmoid")
_elementwise("erf", "Erf")


@function()
def _log_softmax(node: Node, functional: Any) -> Iterator[Variant]:
    yield from _along_axes(node, functional.log_softmax, "LogSoftmax")


@function()
def _softmax(node: Node, functional: Any) -> Iterator[Variant]:
    yield from _along_axes(node, functional.softmax, "Softmax")


def _along_axes(node: Node, of: Any, operator: str) -> Iterator[Variant]:
    for axis in reversed(range(node.ndim)):
        yield Variant(_operator(operator, axis=axis), of, (_any(node),), (Operand(0), axis))


def _operator(operator: str, **attributes: Any) -> Callable[..., str]:
    return lambda w, node, operands, numbers: w.op(operator, *operands, **attributes)


def _normalization(node: Node, of: Any, operator: str, affine: Sequence[int]) -> Iterator[Variant]:
    """Over the last axes, one or more, with so many further operands of their shape."""
    for n in range(1, node.ndim + 1):
        inner = _static(node, node.ndim - n)
        if inner is None:
            return

        def write(
            w: Writer, node: Node, operands: Sequence[str], numbers: Sequence[float], n: int = n, inner: Shape = inner
        ) -> str:
            scale = operands[1:] or [w.constant(np.ones(inner, node.dtype.numpy))]
            return w.op(operator, operands[0], *scale, axis=-n, epsilon=numbers[1])

        shape = (*range(2, 2 + node.ndim - n), *inner)
        for more in affine:
            operands = tuple(Operand(k + 1) for k in range(more))
            arguments = (Operand(0), inner, *operands)
            yield Variant(write, of, (shape, *(inner,) * more), arguments, (("eps", UNKNOWN[1]),))


@function()
def _layer_norm(node: Node, functional: Any) -> Iterator[Variant]:
    yield from _normalization(node, functional.layer_norm, "LayerNormalization", (2, 1, 0))


@function(23)
def _rms_norm(node: Node, functional: Any) -> Iterator[Variant]:
    yield from _normalization(node, functional.rms_norm, "RMSNormalization", (1, 0))


@function()
def _batch_norm(node: Node, functional: Any) -> Iterator[Variant]:
    if node.ndim < 2 or isinstance(node.shape[1], SymInt):
        return

    def write(w: Writer, node: Node, operands: Sequence[str], numbers: Sequence[float]) -> str:
        x, mean, variance, *given = operands
        full = given or [w.constant(np.full(node.shape[1], k, node.dtype.numpy)) for k in (1, 0)]  # type: ignore[call-overload]
        return w.op("BatchNormalization", x, *full, mean, variance, epsilon=numbers[1])

    channels = node.shape[1]
    for more in (2, 0):
        shapes = ((2, channels, *range(3, 1 + node.ndim)), *((channels,),) * (2 + more))
        keywords = (("training", False), ("eps", UNKNOWN[1]))
        yield Variant(write, functional.batch_norm, shapes, tuple(map(Operand, range(3 + more))), keywords)


@function()
def _max_pool(node: Node, functional: Any) -> Iterator[Variant]:
    """Windows are looked at one place after the other, along one axis after the other: strides are steps of slices."""
    if not node.is_op("where") or node.ndim not in (4, 5) or not node.args[1].is_op("slice"):
        return
    places, channels = _static(node, 2), node.shape[1]
    if places is None or isinstance(channels, SymInt):
        return
    n, s = node.ndim - 2, node.args[1].attrs["steps"][2]
    of = functional.max_pool2d if n == 2 else functional.max_pool3d
    for k, p, rest in itertools.product((2, 3), (1, 0), range(s)):  # what is padded is also a pool of the padded image
        sizes = tuple((m - 1) * s + k - 2 * p + rest for m in places)

        def fits(x: Node, sizes: Shape = sizes) -> bool:
            return _static(x, 2) == sizes

        if 2 * p <= k and min(sizes) >= k:
            write = _operator("MaxPool", kernel_shape=[k] * n, strides=[s] * n, pads=[p] * (2 * n))
            yield Variant(write, of, ((2, channels, *sizes),), (Operand(0), k, s, p), (), fits)


def _linear(node: Node) -> Match | None:
    """A product of rows that were made one matrix, a bias added perhaps: ONNX multiplies them where they are."""
    if not node.is_op("reshape") or node.args[0].ndim != 2 or node.ndim < 3:
        return None
    product, bias = node.args[0], []
    if product.is_op("add"):
        bias = [a for a in product.args if a.ndim == 1]
        product = next((a for a in product.args if a.is_op("matmul", "own_matmul")), product)
        if len(bias) != 1:
            return None
    if not product.is_op("matmul", "own_matmul") or not product.args[0].is_op("reshape"):
        return None
    rows, matrix = product.args
    (x,) = rows.args
    if x.ndim != node.ndim or not same_shape(x.shape[:-1], node.shape[:-1]) or not same_shape(x.shape[-1:], rows.shape[-1:]):
        return None
    if not same_shape(node.shape[-1:], product.shape[-1:]) or not same_shape((numel(x.shape[:-1]),), rows.shape[:1]):
        return None

    def write(w: Writer, node: Node, operands: Sequence[str], numbers: Sequence[float]) -> str:
        result = w.op("MatMul", *operands[:2])
        return w.op("Add", result, operands[2]) if operands[2:] else result

    return Match(node, (x, matrix, *bias), Variant(write, None, (), ()), (), {node.args[0], product, rows})


__all__ = ["FUNCTIONS", "Match", "recognise"]
