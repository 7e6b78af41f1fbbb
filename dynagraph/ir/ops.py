"""The op table: what an op is.  Its rows stand in `optable/`, one file per family.

A row answers everything about its op: dtypes, shapes, the eager meaning over an array namespace (`xp` is numpy or
cupy), the gradient, the sampling domain of generated tests, and exactly one way to run it:

    Elementwise   a scalar expression of the operands at one point (operands broadcast)
    Reduction     a combination over the axes in ``attrs["axis"]`` (a sorted tuple of non-negative ints)
    Scan          a running combination along ``attrs["axis"]``
    Movement      result[index] = operand[f(index)]: reshape, transpose, slice, broadcast, flip...
    Gather        result[b..., r...] = x[i0[b], i1[b]..., r...]: elements at places that the graph computes
    Scatter       x with elements stored, or combined, at places that the graph computes
    Creation      no operands: a scalar expression of the index
    Library       a routine of a library (BLAS, FFT): backends look it up by name
    Composite     a decomposition into other ops
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Union

from dynagraph.errors import GraphError
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.shapes import Dim, Shape, contiguous_strides
from dynagraph.lazy_dataclasses import dataclass

Metas = tuple[Meta, ...]
Attrs = Mapping[str, Any]
Index = tuple[IntExpr, ...]
Scalar = Union[bool, int, float]


@dataclass(frozen=True)
class Strided:
    """A view of a base array: sizes, strides and offset, in elements of the base."""

    shape: Shape
    strides: Shape
    offset: Dim = 0


@dataclass(frozen=True)
class Elementwise:
    """``lower(*operands, **attrs) -> Expr``.  With `part` the result lies in the operand's memory: it is that part, 0 or 1, of its
    complex numbers.
    """

    expr: Callable[..., Expr]
    part: int | None = None


@dataclass(frozen=True)
class Reduction:
    """Combination over axes.  `kind` is sum, prod, max, min, any, all, argmax, argmin, or the bits' all_bits, any_bits, odd_bits.

    The accumulator has the node's dtype (argmax/argmin: it keeps value and position); the graph casts operands before.
    max/min propagate NaN; argmax/argmin give the first position of the extreme, a NaN being the extreme of all.
    Further operands are a mask of the elements that are taken, and what it begins with.
    `step`: the elementwise op that combines two elements.
    """

    kind: str
    step: str = ""


@dataclass(frozen=True)
class Walk:
    """The order in which a sum or product takes the elements of its reduced axes: NumPy's, so that it has NumPy's bits.

    The last `axes` of them are walked as one: their elements are added up pairwise (`pairwise_half`), `chunk` of them at a time
    where NumPy casts them in its buffer.  What comes of that is added up in turn, along the other axes.  Under a mask each run of
    elements that are taken is a pairwise sum of its own.  Products are in turn everywhere; those of halves are rounded where a
    pairwise sum would be added.  `tree`: a power of two of parts of a pairwise sum, which are added up as it would have done.
    """

    axes: int
    chunk: int | None = None
    tree: bool = False


@dataclass(frozen=True)
class Scan:
    """A running combination along one axis: `kind` is sum, prod or the name of an elementwise op of two operands."""

    kind: str


@dataclass(frozen=True)
class Movement:
    """Data movement: where each element of the result comes from.

    ``source(index, metas, attrs, out) -> [(condition | None, operand position, index into it), ...]``: the element of
    the first entry whose condition holds (the last entry has none).  Condition: a tuple of (IntExpr, op, IntExpr) with
    op "<" or ">=", all of which must hold.  Operand position None means the pad value ``attrs["value"]``.
    ``view(strided, attrs, out) -> Strided | None``: the same as strides over the operand's memory, if possible.
    ``batched(attrs, n)``: the attributes that change where the operands have one more axis in front, of size n, and so the result.
    """

    source: Callable[[Index, Metas, Attrs, Meta], Sequence["Piece"]]
    view: Callable[[Strided, Attrs, Meta], "Strided | None"] | None = None
    batched: Callable[[Attrs, Dim], Attrs] | None = None


Condition = tuple[tuple[IntExpr, str, IntExpr], ...]
Piece = tuple[Union[Condition, None], Union[int, None], Index]


@dataclass(frozen=True)
class Gather:
    """Elements of the first operand at the places that the others hold, one for each axis of ``attrs["axes"]``.

    These are int64, of one shape, and count from the end where negative; the graph checks that they are in bounds (`Graph.output`,
    `n_checks`), and where they are not, some element is taken.  Their dimensions come in the result after ``attrs["at"]`` of the
    others.
    """


@dataclass(frozen=True)
class Scatter:
    """The first operand with the elements of the second at the places that the others hold: the way back of `Gather`.

    ``attrs["combine"]`` is "" (the last one stored at a place stays, in C order) or the elementwise op of two operands that
    combines what is there with what comes.
    """


@dataclass(frozen=True)
class Creation:
    """``expr(index, attrs, out) -> Expr``."""

    expr: Callable[[Index, Attrs, Meta], Expr]


@dataclass(frozen=True)
class Library:
    """`routine` names what backends must supply.  `own`: by dynagraph's own code where a backend has some, not by the library's."""

    routine: str
    own: bool = False


@dataclass(frozen=True)
class Composite:
    """``decompose(graph, *operands, **attrs) -> Node``."""

    decompose: Callable[..., Node]


Lowering = Union[Elementwise, Reduction, Scan, Movement, Gather, Scatter, Creation, Library, Composite]
# (terms.Differentiated, terms.Term of the result's gradient) -> a Term for each operand; None: its gradient is zero
VJP = Callable[[Any, Any], Sequence[Any]]
Gradient = VJP | tuple[Callable[[Any, Any], Any], ...]  # of all operands at once, or one function for each


@dataclass(frozen=True, eq=False)
class Op:
    """One row of the table."""

    name: str
    arity: int | None  # None: any number of operands
    dtype: Callable[[Metas, Attrs], DType]
    shape: Callable[[Metas, Attrs], Shape]
    eager: Callable[..., Any]  # (xp, *operands, **attrs) -> array
    lowering: Lowering
    attrs: Mapping[str, Any] = field(default_factory=dict)  # name -> default; REQUIRED has none
    vjp: VJP | None = None  # None: there is no gradient
    vjps: tuple[Callable[[Any, Any], Any], ...] = ()  # the gradient by each operand, where `vjp` was given so
    domain: tuple[float, float] = (-3.0, 3.0)  # where generated tests sample
    may_raise: bool = False  # it is run even where nothing uses the result, unless it says otherwise (`Node.must_run`)
    has_effect: bool = False  # it is run once, in its place among such ops, whether or not anything uses its value
    exact: bool = False  # the arithmetic is exact: results must agree bit for bit
    kinds: str = "biufc"  # of the dtypes that it takes
    answers: bool = False  # elementwise, with bools
    cost: float = 1.0  # of an element, in additions
    cupy: bool = True  # the eager function runs on CuPy's arrays as on NumPy's
    commutative: str = ""  # kinds of dtypes of which operands change places without a changed bit (NaN payloads apart)
    associative: bool = False  # up to rounding, and up to what overflows on the way
    idempotent: bool = False  # of equal operands it gives these
    neutral: tuple[Scalar, ...] = ()  # second operands with which it gives the first, bit for bit (of bools: True and False)
    absorbing: tuple[Scalar, ...] = ()  # ... which it gives, whatever the first is
    identity: float | None = None  # what accumulations begin with that no kind of reduction stands for
    rounds: bool = False  # to whole numbers
    divides: bool = False  # NumPy tells np.errstate of integers that it divides by zero
    overflows: bool = False  # ... of integers that overflow, where they are its scalars
    finite_slope: bool = False  # no slope is infinite: a gradient of zero stays zero on its way back
    doc: str = ""

    def bind_attrs(self, given: Mapping[str, Any]) -> dict[str, Any]:
        unknown = given.keys() - self.attrs.keys()
        if unknown:
            known = ", ".join(self.attrs) or "none"
            raise GraphError(f"{self.name}: has no attribute {', '.join(sorted(unknown))}; it has {known}")
        bound = {**self.attrs, **given}
        missing = [name for name, value in bound.items() if value is REQUIRED]
        if missing:
            raise GraphError(f"{self.name}: needs the attribute {', '.join(missing)}")
        return bound

    def infer(self, metas: Metas, attrs: Attrs) -> Meta:
        """dtype and shape of the result; raises ShapeError or DTypeError."""
        if self.arity is not None and len(metas) != self.arity:
            raise GraphError(f"{self.name}: takes {self.arity} operands, got {len(metas)}")
        return Meta(self.dtype(metas, attrs), self.shape(metas, attrs))

    def __repr__(self) -> str:
        return f"<op {self.name}>"


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()
OPS: dict[str, Op] = {}
EXTREMES = {"argmax": "max", "argmin": "min"}  # kinds of reductions that give where an element is: the kind that gives the element


def define_op(name: str, **row: Any) -> Op:
    """Add a row.  A name is defined once.  `vjp` may be a tuple: the gradient by each operand apart."""
    if name in OPS:
        raise GraphError(f"op {name!r} is defined twice")
    if isinstance(row.get("vjp"), tuple):
        vjps = row["vjps"] = row["vjp"]
        row["vjp"] = lambda d, g: tuple(vjp(d, g) for vjp in vjps)
    op = Op(name=name, **row)
    OPS[name] = op
    return op


def step_of(kind: str) -> Op:
    """The elementwise op that goes on from one element to the next, in a reduction or scan of that kind."""
    row = OPS[kind]
    return OPS[row.lowering.step] if isinstance(row.lowering, Reduction) else row


def view_of(node: Node) -> tuple[Node, Strided] | None:
    """The node whose memory this node's value lies in, and where: through every Movement that is a view.

    None where the node is no view at all, or the layout cannot be said with strides (NumPy would copy).
    """
    way: list[Node] = []
    base = node
    while base.kind == "call_function" and isinstance(base.op.lowering, Movement) and base.op.lowering.view is not None:
        way.append(base)
        base = base.args[0]
    found: tuple[Node, Strided] | None = None
    for step in reversed(way):
        start, strided = found or (step.args[0], strided_of(step.args[0]))
        viewed = step.op.lowering.view(strided, step.attrs, step.meta)  # type: ignore[union-attr, misc]
        found = None if viewed is None else (start, viewed)
    return found


def memory_of(node: Node) -> tuple[Node, Strided] | None:
    """As `view_of`, and through the parts of complex numbers: strides and offset are in elements of the node's own dtype."""
    way: list[Node] = []
    base = node
    while (operand := _operand_in_memory(base)) is not None:
        way.append(base)
        base = operand
    found: tuple[Node, Strided] | None = None
    for step in reversed(way):
        lowering = step.op.lowering
        start, strided = found or (step.args[0], strided_of(step.args[0]))
        if isinstance(lowering, Movement):
            assert lowering.view is not None
            viewed = lowering.view(strided, step.attrs, step.meta)
            found = None if viewed is None else (start, viewed)
        else:
            assert isinstance(lowering, Elementwise) and lowering.part is not None
            found = start, Strided(strided.shape, tuple(2 * s for s in strided.strides), 2 * strided.offset + lowering.part)
    return found


def _operand_in_memory(node: Node) -> Node | None:
    """The operand whose memory the node's value may lie in."""
    if node.kind != "call_function":
        return None
    lowering = node.op.lowering
    moves = isinstance(lowering, Movement) and lowering.view is not None
    takes_part = isinstance(lowering, Elementwise) and lowering.part is not None
    return node.args[0] if moves or takes_part else None


def may_be_view(node: Node) -> bool:
    """Whether the node's op can give a view of its first operand."""
    return _operand_in_memory(node) is not None


def strided_of(node: Node) -> Strided:
    """A node's own memory as a view of itself."""
    from_meta = node.meta.strides
    return Strided(node.shape, contiguous_strides(node.shape) if from_meta is None else from_meta)


__all__ = [
    "EXTREMES",
    "OPS",
    "REQUIRED",
    "VJP",
    "Attrs",
    "Composite",
    "Condition",
    "Creation",
    "Elementwise",
    "Gather",
    "Gradient",
    "Graph",
    "Index",
    "Library",
    "Metas",
    "Movement",
    "Op",
    "Piece",
    "Reduction",
    "Scan",
    "Scatter",
    "Strided",
    "define_op",
    "may_be_view",
    "memory_of",
    "step_of",
    "strided_of",
    "view_of",
]
