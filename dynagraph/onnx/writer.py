"""Writing ONNX: nodes, constants, and sizes as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Node
from dynagraph.ir.intexpr import IntExpr, Symbol
from dynagraph.ir.shapes import Dim, SymInt, expr_of, same_dim
from dynagraph.onnx.package import number_of


class NoOperator(Exception):
    """What an op does there is no ONNX operator for; its text says of what."""


class Writer:
    """The nodes of one ONNX graph.  Values are known by their names."""

    def __init__(self, onnx: Any, opset: int, sizes: dict[str, tuple[str, int]]):
        """`sizes`: the input, and its axis, whose size each symbol is."""
        self.onnx, self.opset, self.places = onnx, opset, sizes
        self.nodes: list[Any] = []
        self.initializers: dict[str, np.ndarray] = {}
        self.wide: set[str] = set()
        self._names: dict[str, int] = {}
        self._constants: dict[Any, str] = {}
        self._sizes: dict[IntExpr, str] = {}
        self.prefix = "node"  # begins the names of new values
        self.values: dict[Node, str] = {}  # those of the graph that are written already
        self.made: dict[Any, list[str]] = {}  # operators of which several nodes are results, by what they are of

    def name(self, wanted: str) -> str:
        """A name that no other value has."""
        count = self._names.get(wanted, 0)
        self._names[wanted] = count + 1
        return wanted if count == 0 else self.name(f"{wanted}_{count}")

    def op(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Append a node of one output; gives the output's name."""
        return self.ops(operator, *inputs, outputs=1, **attributes)[0]

    def ops(self, operator: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Append a node of several outputs."""
        names = [self.name(f"{self.prefix}_{operator.lower()}" if operator != "Identity" else self.prefix) for _ in range(outputs)]
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), names, name=names[0], **attributes))
        return names

    # -- constants ------------------------------------------------------------------------------------------------------------
    def constant(self, array: np.ndarray, name: str = "constant") -> str:
        """An initializer; equal ones are one."""
        array = np.asarray(array)
        key = (array.dtype.str, array.shape, array.tobytes()) if array.nbytes <= 1 << 16 else id(array)
        if key not in self._constants:
            self._constants[key] = made = self.name(name)
            self.initializers[made] = array
        return self._constants[key]

    def scalar(self, value: Any, dtype: DType) -> str:
        return self.constant(np.array(value, dtype.numpy))

    def ints(self, *values: int) -> str:
        """A list of int64."""
        return self.constant(np.array(values, np.int64))

    def cast(self, value: str, dtype: DType) -> str:
        return self.op("Cast", value, to=number_of(dtype))

    # -- sizes ----------------------------------------------------------------------------------------------------------------
    def size(self, dim: Dim | IntExpr) -> str:
        """A size as a list of one int64."""
        expr = expr_of(dim)
        if expr.constant is not None:
            return self.ints(expr.constant)
        if expr not in self._sizes:
            saved, self.prefix = self.prefix, "size"
            self._sizes[expr] = self._computed(expr)
            self.prefix = saved
        return self._sizes[expr]

    def _computed(self, expr: IntExpr) -> str:
        total = ""
        for monomial, coefficient in expr.terms.items():
            term = self.ints(coefficient) if coefficient != 1 or not monomial else ""
            for atom in monomial:
                if isinstance(atom, Symbol):
                    name, axis = self.places[atom.name]
                    factor = self._sizes.setdefault(
                        IntExpr({(atom,): 1}), ""
                    ) or self.op("Shape", name, start=axis, end=axis + 1)
                    self._sizes[IntExpr({(atom,): 1})] = factor
                else:
                    factor = self._applied(atom.function, self.size(atom.left), self.size(atom.right))
                term = self.op("Mul", term, factor) if term else factor
            total = self.op("Add", total, term) if total else term
        return total

    def _applied(self, function: str, left: str, right: str) -> str:
        if function in ("min", "max"):
            return self.op(function.capitalize(), left, right)
        rest = self.op("Mod", left, right)  # with the sign of the divisor, which is positive
        return rest if function == "%" else self.op("Div", self.op("Sub", left, rest), right)

    def shape(self, dims: Sequence[Dim]) -> str:
        """A shape as a list of int64."""
        if not any(isinstance(d, SymInt) for d in dims):
            return self.ints(*dims)  # type: ignore[arg-type]
        return self.op("Concat", *map(self.size, dims), axis=0) if len(dims) > 1 else self.size(dims[0])

    def number(self, value: Any, dtype: DType) -> str:
        """A number, or a symbolic size, as a 0-d value."""
        if not isinstance(value, SymInt):
            return self.scalar(value, dtype)
        size = self.op("Squeeze", self.size(value), self.ints(0))
        return size if dtype is dtypes.int64 else self.cast(size, dtype)

    # -- what many rows need --------------------------------------------------------------------------------------------------
    def reshape(self, value: str, before: Sequence[Dim] | None, shape: Sequence[Dim]) -> str:
        """With one size inferred, and leading ones kept, where that says all."""
        said: list[int] = []
        unknown = 0
        for axis, dim in enumerate(shape):
            if not isinstance(dim, SymInt):
                said.append(dim)
            elif before is not None and axis < len(before) and same_dim(before[axis], dim):
                said.append(0)
            else:
                said.append(-1)
                unknown += 1
        if 0 in [d for d, s in zip(shape, said) if type(d) is int] or unknown > 1:
            return self.op("Reshape", value, self.shape(shape), **({"allowzero": 1} if 0 in said else {}))
        return self.op("Reshape", value, self.ints(*said))

    def expand(self, value: str, shape: Sequence[Dim]) -> str:
        return self.op("Expand", value, self.shape(shape))

    def transpose(self, value: str, axes: Sequence[int]) -> str:
        return value if list(axes) == sorted(axes) else self.op("Transpose", value, perm=list(axes))

    def slice(self, value: str, axis: int, start: Dim, stop: Dim) -> str:
        """Along one axis."""
        return self.op("Slice", value, self.size(start), self.size(stop), self.ints(axis))

    def unsqueeze(self, value: str, *axes: int) -> str:
        return self.op("Unsqueeze", value, self.ints(*axes))

    def reduce(self, operator: str, value: str, axes: Sequence[int], keepdims: bool) -> str:
        if not axes:
            return self.op("Identity", value)
        return self.op(operator, value, self.ints(*axes), keepdims=int(keepdims))


Row = Callable[..., str]  # (writer, node, *operands) -> the name of its value
ROWS: dict[str, Row | str] = {}


def row(*names: str) -> Callable[[Row], Row]:
    """Register how ops are written."""

    def register(function: Row) -> Row:
        ROWS.update(dict.fromkeys(names, function))
        return function

    return register


def write(writer: Writer, node: Node, operands: Sequence[str]) -> str:
    """The node's value in ONNX; raises NoOperator where there is no row."""
    how = ROWS.get(node.op.name)
    if how is None:
        raise NoOperator(f"{node.op.name} of {node.dtype}")
    return writer.op(how, *operands) if isinstance(how, str) else how(writer, node, *operands)


__all__ = ["ROWS", "NoOperator", "Row", "Writer", "row", "write"]
