"""The loop IR: kernels as loop nests over scalar expressions, library calls, and the buffers that they share.

Lowering makes it from fused groups of graph nodes; the printers in `backends/` spell it in C and CUDA C.  A kernel's outer
axes are independent of one another: a target runs them in any order and on any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Union

import numpy as np

from dynagraph.ir.callouts import FunctionCall
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import FUNCTIONS, Expr
from dynagraph.ir.intexpr import IntExpr, Symbol
from dynagraph.ir.shapes import Shape


@dataclass(frozen=True, eq=False)
class Buffer:
    """Memory that kernels read or write.  `role`: input, output, temp (workspace), scratch (a row, on the stack), constant."""

    name: str
    dtype: DType
    size: IntExpr  # elements
    role: str
    position: int = 0  # inputs and outputs: which one
    data: np.ndarray | None = field(default=None, compare=False)  # constants


@dataclass(frozen=True, eq=False)
class Axis:
    """A loop: `symbol` runs from `start` over `extent` values.  `hint` is the extent seen at capture, for estimates."""

    symbol: Symbol
    extent: IntExpr
    hint: int
    start: IntExpr = field(default_factory=lambda: IntExpr.of(0))


@dataclass(frozen=True, eq=False)
class Define:
    """A named scalar."""

    name: str
    value: Expr


@dataclass(frozen=True, eq=False)
class Store:
    """``buffer[index + place] = value``; `place`, where there is one, is computed, and the order of the loop then tells which store
    is last.
    """

    buffer: str
    index: IntExpr
    value: Expr
    place: Expr | None = None


@dataclass(frozen=True, eq=False)
class Loop:
    """Statements repeated over axes; iterations are independent, so the innermost may be vectorised."""

    axes: tuple[Axis, ...]
    body: tuple["Statement", ...]


@dataclass(frozen=True, eq=False)
class Accumulator:
    """``name = kind(value over the axes)``; kinds as in `ops.Reduction`."""

    name: str
    kind: str
    dtype: DType
    value: Expr


@dataclass(frozen=True, eq=False)
class Reduce:
    """One pass over axes that computes accumulators and, on the way, stores."""

    axes: tuple[Axis, ...]
    accumulators: tuple[Accumulator, ...]
    stores: tuple[Store, ...] = ()


@dataclass(frozen=True, eq=False)
class ColumnReduce:
    """For each of a block of neighbouring columns: accumulate over `axes`, then store ``finish``.

    The column axis is the kernel's last; the target keeps one accumulator per column of the block.
    """

    axes: tuple[Axis, ...]
    column: Axis
    accumulator: Accumulator
    stores: tuple[Store, ...]  # refer to the accumulator by name


@dataclass(frozen=True, eq=False)
class Running:
    """A scan along one axis: ``name`` holds the running value while `stores` run."""

    axis: Axis
    accumulator: Accumulator
    stores: tuple[Store, ...]


Statement = Union[Define, Store, Loop, Reduce, ColumnReduce, Running]


@dataclass(frozen=True, eq=False)
class Kernel:
    """A loop nest over independent outer axes."""

    name: str
    axes: tuple[Axis, ...]
    body: tuple[Statement, ...]
    comment: str = ""
    cost: float = 0.0  # estimated nanoseconds on one core for one iteration of all outer axes


@dataclass(frozen=True, eq=False)
class Operand:
    """A matrix (or batch of them) in memory: sizes, strides and offset in elements."""

    buffer: str
    dtype: DType
    shape: Shape
    strides: Shape
    offset: IntExpr


@dataclass(frozen=True, eq=False)
class Epilogue:
    """What becomes of a product before it is stored: ``activation(scale * product + weight * addend + bias)``.

    addend: as large as the product, and may be what it is stored over; bias: one value for each column.  activation: "", "relu", or
    "gelu" (by tanh).
    """

    scale: float = 1.0
    addend: Operand | None = None
    weight: float = 0.0
    bias: Operand | None = None
    activation: str = ""

    @property
    def operands(self) -> tuple[Operand, ...]:
        return tuple(o for o in (self.addend, self.bias) if o is not None)

    def __str__(self) -> str:
        text = "product" if self.scale == 1.0 else f"{self.scale!r} * product"
        if self.addend is not None:
            text += f" + {self.weight!r} * {self.addend.buffer}"
        if self.bias is not None:
            text += f" + {self.bias.buffer}"
        return f"{self.activation}({text})" if self.activation else text


@dataclass(frozen=True, eq=False)
class LibraryCall:
    """A routine of a library: ``matmul``: out = left @ right, or what an epilogue makes of it."""

    routine: str
    out: Operand
    operands: tuple[Operand, ...]
    comment: str = ""
    cost: float = 0.0
    epilogue: Epilogue | None = None

    @property
    def read(self) -> tuple[Operand, ...]:
        """The operands and those of the epilogue."""
        return self.operands + (() if self.epilogue is None else self.epilogue.operands)


@dataclass(frozen=True, eq=False)
class CallOut:
    """A function of NumPy's, called as it is: `results` of its values are wanted (None: its only one) and go to `outs`."""

    call: FunctionCall
    results: tuple[int | None, ...]
    outs: tuple[Operand, ...]
    operands: tuple[Operand, ...]
    comment: str = ""
    cost: float = 0.0


Step = Union[Kernel, LibraryCall, CallOut]


@dataclass(frozen=True, eq=False)
class LoopProgram:
    """Steps in order over buffers.  `offsets` places temps in one workspace, in bytes."""

    buffers: dict[str, Buffer]
    steps: tuple[Step, ...]
    offsets: dict[str, IntExpr] = field(default_factory=dict)
    n_checks: int = 0  # that many outputs at the end are bools: where one is true nothing of the caller's is written
    workspace: IntExpr = field(default_factory=lambda: IntExpr.of(0))

    def __str__(self) -> str:
        return render(self)


# -- walking ------------------------------------------------------------------------------------------------------------


def statements(body: Sequence[Statement]) -> Iterator[Statement]:
    """Every statement, nested ones included."""
    for statement in body:
        yield statement
        if isinstance(statement, Loop):
            yield from statements(statement.body)
        elif isinstance(statement, (Reduce, ColumnReduce, Running)):
            yield from statement.stores


def loop_axes(statement: Statement) -> tuple[Axis, ...]:
    """The axes that a statement loops over."""
    if isinstance(statement, (Loop, Reduce)):
        return statement.axes
    if isinstance(statement, ColumnReduce):
        return (*statement.axes, statement.column)
    return (statement.axis,) if isinstance(statement, Running) else ()


def accumulators(statement: Statement) -> tuple[Accumulator, ...]:
    if isinstance(statement, Reduce):
        return statement.accumulators
    if isinstance(statement, (ColumnReduce, Running)):
        return (statement.accumulator,)
    return ()


def expressions(body: Sequence[Statement]) -> Iterator[Expr]:
    """Every root expression."""
    for statement in statements(body):
        if isinstance(statement, (Define, Store)):
            yield statement.value
        if isinstance(statement, Store) and statement.place is not None:
            yield statement.place
        for accumulator in accumulators(statement):
            yield accumulator.value


def stored_buffers(body: Sequence[Statement]) -> set[str]:
    return {s.buffer for s in statements(body) if isinstance(s, Store)}


def loaded_buffers(body: Sequence[Statement]) -> set[str]:
    found: set[str] = set()
    for root in expressions(body):
        for e in root.walk():
            if e.op in ("load", "gather"):
                found.add(e.value[0] if e.op == "load" else e.value)  # type: ignore[index, arg-type]
    return found


def map_expr(root: Expr, change: dict[Expr, Expr], leaf: Callable[[Expr], Expr]) -> Expr:
    """A copy with every leaf replaced by ``leaf(it)``; `change` is the memo, to be shared between roots."""
    found = change.get(root)
    if found is None:
        if root.args:
            args = tuple(map_expr(a, change, leaf) for a in root.args)
            found = root if all(a is b for a, b in zip(args, root.args)) else replace(root, args=args, _hash=0)
        else:
            found = leaf(root)
        change[root] = found
    return found


class LeafRule:
    """Substitute loop variables in the indices of loads and in index values."""

    def __init__(self, values: dict[str, IntExpr]):
        self.values = values

    def __call__(self, e: Expr) -> Expr:
        if e.op == "load":
            buffer: str
            position: IntExpr
            buffer, position = e.value  # type: ignore[misc]
            return replace(e, value=(buffer, position.substitute(self.values)), _hash=0)
        if e.op == "index":
            return replace(e, value=e.value.substitute(self.values), _hash=0)  # type: ignore[attr-defined]
        return e


def substitute(body: Sequence[Statement], values: dict[str, IntExpr]) -> tuple[Statement, ...]:
    """Replace loop variables in all indices."""
    memo: dict[Expr, Expr] = {}
    rule = LeafRule(values)
    return map_body(body, lambda e: map_expr(e, memo, rule), lambda index: index.substitute(values))


def map_body(
    body: Sequence[Statement], value: Callable[[Expr], Expr], index: Callable[[IntExpr], IntExpr] = lambda index: index
) -> tuple[Statement, ...]:
    """The statements with each value, and each index that is stored to, changed."""

    def stores(items: Sequence[Store]) -> tuple[Store, ...]:
        return tuple(
            Store(s.buffer, index(s.index), value(s.value), None if s.place is None else value(s.place)) for s in items
        )

    def accumulator(a: Accumulator) -> Accumulator:
        return replace(a, value=value(a.value))

    def one(s: Statement) -> Statement:
        if isinstance(s, Define):
            return Define(s.name, value(s.value))
        if isinstance(s, Store):
            return stores([s])[0]
        if isinstance(s, Loop):
            return Loop(s.axes, map_body(s.body, value, index))
        if isinstance(s, Reduce):
            return Reduce(s.axes, tuple(map(accumulator, s.accumulators)), stores(s.stores))
        if isinstance(s, ColumnReduce):
            return ColumnReduce(s.axes, s.column, accumulator(s.accumulator), stores(s.stores))
        return Running(s.axis, accumulator(s.accumulator), stores(s.stores))

    return tuple(one(s) for s in body)


def indices(body: Sequence[Statement]) -> Iterator[IntExpr]:
    """Every index that the statements use: of loads, of stores, as values, and in the bounds of inner loops."""
    seen: set[Expr] = set()
    for root in expressions(body):
        for e in root.walk():
            if e not in seen:
                seen.add(e)
                if e.op == "load":
                    yield e.value[1]  # type: ignore[index]
                elif e.op == "index":
                    yield e.value  # type: ignore[misc]
    for statement in statements(body):
        if isinstance(statement, Store):
            yield statement.index
        for axis in loop_axes(statement):
            yield axis.start
            yield axis.extent


# -- text ---------------------------------------------------------------------------------------------------------------


def render(program: LoopProgram) -> str:
    """The program as text, for ``dump --loops``."""
    lines = [f"buffer {b.name}: {b.dtype}[{b.size}] {b.role}" for b in program.buffers.values()]
    for step in program.steps:
        lines.append("")
        if isinstance(step, LibraryCall):
            operands = ", ".join(o.buffer for o in step.operands)
            then = "" if step.epilogue is None else f" -> {step.epilogue}"
            lines.append(f"call {step.out.buffer} = {step.routine}({operands}){then}   # {step.comment}")
            continue
        if isinstance(step, CallOut):
            outs = ", ".join(o.buffer for o in step.outs)
            lines.append(f"call {outs} = {step.call.spelled([o.buffer for o in step.operands])}   # {step.comment}")
            continue
        axes = ", ".join(f"{a.symbol.name} < {a.extent}" for a in step.axes)
        lines.append(f"kernel {step.name}({axes})   # {step.comment}")
        lines += _render_body(step.body, "  ")
    return "\n".join(lines)


def _render_body(body: Sequence[Statement], indent: str) -> list[str]:
    lines: list[str] = []
    for s in body:
        if isinstance(s, Define):
            lines.append(f"{indent}{s.name} = {render_expr(s.value)}")
        elif isinstance(s, Store):
            place = "" if s.place is None else f" + {render_expr(s.place)}"
            lines.append(f"{indent}{s.buffer}[{s.index}{place}] = {render_expr(s.value)}")
        elif isinstance(s, Loop):
            lines.append(f"{indent}for {_render_axes(s.axes)}:")
            lines += _render_body(s.body, indent + "  ")
        elif isinstance(s, Reduce):
            lines.append(f"{indent}reduce {_render_axes(s.axes)}:")
            lines += [f"{indent}  {a.name} = {a.kind} {render_expr(a.value)}" for a in s.accumulators]
            lines += _render_body(s.stores, indent + "  ")
        elif isinstance(s, ColumnReduce):
            lines.append(f"{indent}reduce columns {_render_axes((s.column,))} over {_render_axes(s.axes)}:")
            lines.append(f"{indent}  {s.accumulator.name} = {s.accumulator.kind} {render_expr(s.accumulator.value)}")
            lines += _render_body(s.stores, indent + "  ")
        else:
            lines.append(f"{indent}scan {_render_axes((s.axis,))}:")
            lines.append(
                f"{indent}  {s.accumulator.name} = running {s.accumulator.kind} {render_expr(s.accumulator.value)}"
            )
            lines += _render_body(s.stores, indent + "  ")
    return lines


def _render_axes(axes: Sequence[Axis]) -> str:
    return ", ".join(f"{a.symbol.name} in {a.start}..+{a.extent}" for a in axes)


def render_expr(e: Expr) -> str:
    """One expression as text; what it uses several times is named first: ``t0 = exp(x[i]); add(t0, t0)``."""
    uses: dict[Expr, int] = {}
    for part in e.walk():
        for arg in part.args:
            uses[arg] = uses.get(arg, 0) + 1
    texts: dict[Expr, str] = {}
    named: list[str] = []
    for part in e.walk():
        text = _render_one(part, [texts[a] for a in part.args])
        if part.args and uses.get(part, 0) > 1:
            named.append(f"t{len(named)} = {text}")
            text = f"t{len(named) - 1}"
        texts[part] = text
    return "; ".join([*named, texts[e]])


def _render_one(e: Expr, args: list[str]) -> str:
    if e.op == "const":
        return repr(e.value)
    if e.op == "gather":
        return f"{e.value}[{args[0]}]"
    if e.op == "load":
        return f"{e.value[0]}[{e.value[1]}]"  # type: ignore[index]
    if e.op == "index":
        return f"({e.value})"
    if e.op == "var":
        return str(e.value)
    return f"{e.dtype if e.op == 'cast' else e.op}({', '.join(args)})"


def expr_cost(roots: Sequence[Expr]) -> float:
    """Estimated cost in additions of evaluating expressions once, common subexpressions counted once."""
    seen: set[Expr] = set()
    total = 0.0
    for root in roots:
        for e in root.walk():
            if e not in seen:
                seen.add(e)
                row = FUNCTIONS.get(e.op)
                total += row.cost if row else {"load": 1.0, "gather": 4.0}.get(e.op, 0.0)
    return total
