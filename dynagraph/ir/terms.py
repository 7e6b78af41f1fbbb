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

Operand = Union["BaseTerm", complex, Dim]


class BaseTerm:
    """What gradients are written with: operators, and ops of the table by name.

    `Term` makes nodes of a graph of it; those in `dynagraph/autograd/terms.py` and `dynagraph/torch/core/terms.py` compute at once.
    Each says `shape`, `ndim` and `dtype`, and what an op gives (`call`, `make`).
    """

    __slots__ = ()

    @property
    def shape(self) -> Shape:
        raise NotImplementedError

    @property
    def ndim(self) -> int:
        raise NotImplementedError

    @property
    def dtype(self) -> DType:
        raise NotImplementedError

    def call(self, op: str, *others: Operand, **attrs: Any) -> Any:
        """``op(self, *others, **attrs)``; numbers are constants of this dtype."""
        raise NotImplementedError

    def make(self, op: str, **attrs: Any) -> Any:
        """What an op without operands gives, where this term is: in its graph, on its device."""
        raise NotImplementedError

    @property
    def is_transpose(self) -> bool:
        """Whether it is a transposed operand, whose own gradient will be transposed."""
        return False

    @property
    def conj(self) -> Any:
        """With the imaginary parts negated."""
        return self.call("conjugate") if self.dtype.is_complex else self

    @property
    def real(self) -> Any:
        return self.call("real") if self.dtype.is_complex else self

    @property
    def imag(self) -> Any:
        return self.call("imag") if self.dtype.is_complex else self.full(0, self.shape)

    def full(self, value: float, shape: Shape) -> Any:
        """An array of one number, of this dtype."""
        return self.make("full", shape=shape, value=value, dtype=self.dtype)

    def number(self, value: complex | Dim, dtype: DType | None = None) -> Any:
        """A constant, of this dtype unless another is given."""
        return self.make("constant", value=value, dtype=dtype or self.dtype)

    def _term(self, other: Operand) -> Any:
        return other if isinstance(other, BaseTerm) else self.number(other)

    def __add__(self, other: Operand) -> Any:
        return self.call("add", other)

    def __sub__(self, other: Operand) -> Any:
        return self.call("subtract", other)

    def __rsub__(self, other: complex) -> Any:
        return self.number(other).call("subtract", self)

    def __mul__(self, other: Operand) -> Any:
        return self.call("multiply", other)

    def __truediv__(self, other: Operand) -> Any:
        return self.call("divide", other)

    def __neg__(self) -> Any:
        return self.call("negative")

    def __matmul__(self, other: Operand) -> Any:
        """Of matrices, or stacks of them."""
        return self.call("matmul", other)

    def equals(self, other: Operand) -> Any:
        """Where the elements are equal: bools."""
        return self.call("equal", other)

    def where(self, condition: Any, otherwise: Operand) -> Any:
        """The elements where the condition holds."""
        return condition.call("where", self, self._term(otherwise))

    def reshape(self, shape: Shape) -> Any:
        return self.call("reshape", shape=shape)

    @property
    def transposed(self) -> Any:
        """With its last two dimensions exchanged."""
        *batch, rows, columns = range(self.ndim)
        return self.call("transpose", axes=(*batch, columns, rows))

    @property
    def adjoint(self) -> Any:
        """With its last two dimensions exchanged, and conjugated."""
        return self.conj.transposed

    def part(self, starts: Shape, shape: Shape) -> Any:
        """``shape`` elements from `starts` on, along each axis."""
        return self.call("slice", starts=starts, steps=(1,) * self.ndim, shape=shape)

    def sum(self, *axes: int) -> Any:
        return self.call("sum", axis=axes, keepdims=False)

    def cast(self, dtype: DType) -> Any:
        return self if self.dtype is dtype else self.call("cast", dtype=dtype)


@dataclass(frozen=True, eq=False)
class Term(BaseTerm):
    """A node; what operators make of it are new nodes of its graph."""

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

    def of(self, node: Node) -> Term:
        """A term of another node."""
        return Term(node)

    @property
    def is_transpose(self) -> bool:
        axes = self.node.attrs.get("axes", ()) if self.node.is_op("transpose") else ()
        return axes == (*range(self.ndim - 2), self.ndim - 1, self.ndim - 2)

    def call(self, op: str, *others: Operand, **attrs: Any) -> Term:
        return Term(self.node.graph.call(OPS[op], self.node, *(self._term(o).node for o in others), **attrs))

    def make(self, op: str, **attrs: Any) -> Term:
        return Term(self.node.graph.call(OPS[op], **attrs))


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
    return beside.make("iota", shape=(size,), start=0, step=1, dtype=int64)


def flat(d: Differentiated, g: Term) -> tuple[None, ...]:
    """The gradient of a function that is constant between its jumps."""
    return (None,) * len(d.operands)


__all__ = ["BaseTerm", "Differentiated", "Term", "counted", "flat"]
