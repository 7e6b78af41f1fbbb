"""Terms: graph nodes with Python operators, with which gradients are written.

A row's `vjp` gives, for each operand, the gradient of some scalar by it, from that by the result; None: it is zero.  Operands
broadcast without more ado: `ir/passes/backward.py` sums what it is given to the operands' shapes.

    vjp=lambda d, g: (g * d.y.conj, g * d.x.conj)         # of multiply

Complex numbers are pairs of real ones: the gradient by one is the gradient by its real part plus i times that by its imaginary
part, so that ``z - rate * gradient`` descends (PyTorch's convention; JAX's is the conjugate).  In other words a `vjp` is the
adjoint under the real inner product ``sum(real(conj(a) * b))``; of a function with a complex derivative, ``g * conj(f'(x))``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Union

from dynagraph.ir.dtypes import DType, int64
from dynagraph.ir.graph import Node
from dynagraph.ir.ops import OPS
from dynagraph.ir.shapes import Dim, Shape

Operand = Union["Term", complex, Dim]


@dataclass(frozen=True, eq=False)
class Term:
    """A node; what operators make of it are new nodes of its graph.  Numbers are constants of its dtype."""

    node: Node

    @property
    def shape(self) -> Shape:
        return self.node.shape

    @property
    def ndim(self) -> int:
        return self.node.ndim

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    def call(self, op: str, *others: Operand, **attrs: Any) -> Term:
        """``op(self, *others, **attrs)``."""
        return Term(self.node.graph.call(OPS[op], self.node, *(self._node(o) for o in others), **attrs))

    @property
    def conj(self) -> Term:
        """With the imaginary parts negated."""
        return self.call("conjugate") if self.dtype.is_complex else self

    @property
    def real(self) -> Term:
        return self.call("real") if self.dtype.is_complex else self

    @property
    def imag(self) -> Term:
        return self.call("imag") if self.dtype.is_complex else self.full(0, self.shape)

    def full(self, value: float, shape: Shape) -> Term:
        """An array of one number, of this dtype."""
        return Term(self.node.graph.call(OPS["full"], shape=shape, value=value, dtype=self.dtype))

    def number(self, value: complex | Dim, dtype: DType | None = None) -> Term:
        """A constant, of this dtype unless another is given."""
        return Term(self.node.graph.call(OPS["constant"], value=value, dtype=dtype or self.dtype))

    def _node(self, other: Operand) -> Node:
        return other.node if isinstance(other, Term) else self.number(other).node

    def __add__(self, other: Operand) -> Term:
        return self.call("add", other)

    def __sub__(self, other: Operand) -> Term:
        return self.call("subtract", other)

    def __rsub__(self, other: Operand) -> Term:
        return self.number(other).call("subtract", self) if not isinstance(other, Term) else other - self

    def __mul__(self, other: Operand) -> Term:
        return self.call("multiply", other)

    def __truediv__(self, other: Operand) -> Term:
        return self.call("divide", other)

    def __neg__(self) -> Term:
        return self.call("negative")

    def __matmul__(self, other: Term) -> Term:
        """Of matrices, or stacks of them."""
        return self.call("matmul", other)

    def equals(self, other: Operand) -> Term:
        """Where the elements are equal: bools."""
        return self.call("equal", other)

    def where(self, condition: Term, otherwise: Operand) -> Term:
        """The elements where the condition holds."""
        return Term(self.node.graph.call(OPS["where"], condition.node, self.node, self._node(otherwise)))

    def reshape(self, shape: Shape) -> Term:
        return self.call("reshape", shape=shape)

    @property
    def transposed(self) -> Term:
        """With its last two dimensions exchanged."""
        *batch, rows, columns = range(self.ndim)
        return self.call("transpose", axes=(*batch, columns, rows))

    @property
    def adjoint(self) -> Term:
        """With its last two dimensions exchanged, and conjugated."""
        return self.conj.transposed

    def part(self, starts: Shape, shape: Shape) -> Term:
        """``shape`` elements from `starts` on, along each axis."""
        return self.call("slice", starts=starts, steps=(1,) * self.ndim, shape=shape)

    def sum(self, *axes: int) -> Term:
        return self.call("sum", axis=axes, keepdims=False)

    def cast(self, dtype: DType) -> Term:
        return self if self.dtype is dtype else self.call("cast", dtype=dtype)


@dataclass(frozen=True, eq=False)
class Differentiated:
    """The node that a gradient is taken of, as its row's `vjp` sees it."""

    node: Node

    @property
    def operands(self) -> tuple[Term, ...]:
        return tuple(map(Term, self.node.args))

    @property
    def x(self) -> Term:
        """The first operand."""
        return Term(self.node.args[0])

    @property
    def y(self) -> Term:
        """The second operand."""
        return Term(self.node.args[1])

    @property
    def out(self) -> Term:
        """The result."""
        return Term(self.node)

    @property
    def attrs(self) -> Mapping[str, Any]:
        return self.node.attrs


def counted(beside: Term, size: Dim) -> Term:
    """0, 1, 2... as int64, in the graph of a node."""
    return Term(beside.node.graph.call(OPS["iota"], shape=(size,), start=0, step=1, dtype=int64))


def flat(d: Differentiated, g: Term) -> tuple[None, ...]:
    """The gradient of a function that is constant between its jumps."""
    return (None,) * len(d.node.args)


__all__ = ["Differentiated", "Term", "counted", "flat"]
