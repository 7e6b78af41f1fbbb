"""The loop IR: kernels as loop nests over scalar expressions, library calls, and the buffers that they share.

Lowering makes it from fused groups of graph nodes; the printers in `backends/` spell it in C and CUDA C.  A kernel's outer
axes are independent of one another: a target runs them in any order and on any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Union

import numpy as np

from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import FUNCTIONS, Expr, walk
from dynagraph.ir.external_calls import FunctionCall
from dynagraph.ir.intexpr import IntExpr, Symbol
from dynagraph.ir.ops import EXTREMES, Walk
from dynagraph.ir.shapes import Shape
from dynagraph.lazy_dataclasses import dataclass


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

    `where`: only where that is true.  `atomic`: the scalar function (see `expr.FUNCTIONS`) that combines what is there with the
    value, in one step, so that the order does not tell.  Both are for targets of many processors (see passes/scatters.py).
    """

    buffer: str
    index: IntExpr
    value: Expr
    place: Expr | None = None
    where: Expr | None = None
    atomic: str = ""


@dataclass(frozen=True)
class Buckets:
    """Iterations of a loop sorted by the buckets of their stores' places, and in order within each.

    Iterations are counted in order, and are `parts` parts of `part` iterations each.  The buffer `ends` has, for each bucket and
    within it each part, where its iterations end in the buffer `numbers`, and so where the next ones begin.
    """

    n: int
    part: int
    parts: IntExpr
    ends: str
    numbers: str


@dataclass(frozen=True, eq=False)
class Loop:
    """Statements repeated over axes; iterations are independent, so the innermost may be vectorised.

    `sorted_by`: where the order of stores tells, the iterations of each bucket.
    """

    axes: tuple[Axis, ...]
    body: tuple["Statement", ...]
    sorted_by: Buckets | None = None


@dataclass(frozen=True, eq=False)
class Sort:
    """For each part of the iterations of `axes`, in order: each iteration's number goes where its bucket `key` ends so far.

    The part is that of the kernel's only axis.  For targets of many processors.
    """

    axes: tuple[Axis, ...]
    key: Expr
    buckets: Buckets


@dataclass(frozen=True, eq=False)
class Accumulator:
    """``name = kind(value over the axes)``; kinds as in `ops.Reduction`, or the name of an elementwise op that has an identity.

    `chosen`: whether an element is taken; `start`: what it begins with, the same for all of a row.
    """

    name: str
    kind: str
    dtype: DType
    value: Expr
    chosen: Expr | None = None
    start: Expr | None = None

    @property
    def is_position(self) -> bool:
        """Whether it is where the extreme is: what the extreme is has the name `best`."""
        return self.kind in EXTREMES

    @property
    def best(self) -> str:
        return f"{self.name}_best"


@dataclass(frozen=True)
class Part:
    """The part number `index` of ``2**levels`` of a pairwise sum: its subtree of the recursion."""

    index: IntExpr
    levels: int


@dataclass(frozen=True, eq=False)
class Reduce:
    """One pass over axes that computes accumulators and, on the way, stores.  What is left out is left out of all accumulators.

    `walk`: the order in which elements are combined; None: any that depends on sizes alone.  `part`: only this part of the axes.
    """

    axes: tuple[Axis, ...]
    accumulators: tuple[Accumulator, ...]
    stores: tuple[Store, ...] = ()
    walk: Walk | None = None
    part: Part | None = None

    @property
    def takes_all(self) -> bool:
        """Whether no element is left out: others are not even computed."""
        return all(a.chosen is None for a in self.accumulators)


@dataclass(frozen=True, eq=False)
class ColumnReduce:
    """For each of a block of neighbouring columns: accumulate over `axes`, then store ``finish``.

    The column axis is the kernel's last; the target keeps the accumulators of each column of the block.
    """

    axes: tuple[Axis, ...]
    column: Axis
    accumulators: tuple[Accumulator, ...]  # of one dtype; a position is alone
    stores: tuple[Store, ...]  # refer to the accumulators by name


@dataclass(frozen=True, eq=False)
class ScanLoop:
    """A scan along one axis: ``name`` holds the running value while `stores` run."""

    axis: Axis
    accumulator: Accumulator
    stores: tuple[Store, ...]


Statement = Union[Define, Store, Loop, Reduce, ColumnReduce, ScanLoop, Sort]


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
    """A routine of a library: ``matmul``: out = left @ right, or what an epilogue makes of it; convolutions, whose `attrs` are the
    row's.  `own`: as `Library` has it.

    `then`: a kernel that is run for parts of the result as soon as they are there, see passes/finish.py.
    """

    routine: str
    out: Operand
    operands: tuple[Operand, ...]
    comment: str = ""
    cost: float = 0.0
    epilogue: Epilogue | None = None
    own: bool = False
    attrs: Mapping[str, Any] = field(default_factory=dict)
    then: Kernel | None = None

    @property
    def read(self) -> tuple[Operand, ...]:
        """The operands and those of the epilogue."""
        return self.operands + (() if self.epilogue is None else self.epilogue.operands)


@dataclass(frozen=True, eq=False)
class ExternalCall:
    """A function of NumPy's, called as it is: `results` of its values are wanted (None: its only one) and go to `outs`."""

    call: FunctionCall
    results: tuple[int | None, ...]
    outs: tuple[Operand, ...]
    operands: tuple[Operand, ...]
    comment: str = ""
    cost: float = 0.0
    has_effect: bool = False  # checks are looked at before it, and what it raises is raised to the caller


@dataclass(frozen=True, eq=False)
class RoutineCall:
    """A routine of the runtime's over whole arrays, in C order: `results` of its values are wanted (None: its only one) and go to
    `outs`.  `attrs` are the row's."""

    routine: str
    results: tuple[int | None, ...]
    outs: tuple[Operand, ...]
    operands: tuple[Operand, ...]
    attrs: Mapping[str, Any]
    comment: str = ""
    cost: float = 0.0


Step = Union[Kernel, LibraryCall, ExternalCall, RoutineCall]


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
        elif isinstance(statement, (Reduce, ColumnReduce, ScanLoop)):
            yield from statement.stores


def loop_axes(statement: Statement) -> tuple[Axis, ...]:
    """The axes that a statement loops over."""
    if isinstance(statement, (Loop, Reduce, Sort)):
        return statement.axes
    if isinstance(statement, ColumnReduce):
        return (*statement.axes, statement.column)
    return (statement.axis,) if isinstance(statement, ScanLoop) else ()


def accumulators(statement: Statement) -> tuple[Accumulator, ...]:
    if isinstance(statement, (Reduce, ColumnReduce)):
        return statement.accumulators
    if isinstance(statement, ScanLoop):
        return (statement.accumulator,)
    return ()


def expressions(body: Sequence[Statement]) -> Iterator[Expr]:
    """Every root expression."""
    for statement in statements(body):
        if isinstance(statement, (Define, Store)):
            yield statement.value
        if isinstance(statement, Store):
            yield from (e for e in (statement.place, statement.where) if e is not None)
        if isinstance(statement, Sort):
            yield statement.key
        for accumulator in accumulators(statement):
            yield from (e for e in (accumulator.value, accumulator.chosen, accumulator.start) if e is not None)


def stored_buffers(body: Sequence[Statement]) -> set[str]:
    stored = {s.buffer for s in statements(body) if isinstance(s, Store)}
    return stored | {s.buckets.numbers for s in body if isinstance(s, Sort)}


def loaded_buffers(body: Sequence[Statement]) -> set[str]:
    found = {s.buckets.ends for s in body if isinstance(s, Sort)}
    found |= {name for s in body if isinstance(s, Loop) and (b := s.sorted_by) for name in (b.ends, b.numbers)}
    for root in expressions(body):
        for e in root.walk():
            if e.op in ("load", "gather"):
                found.add(e.value[0] if e.op == "load" else e.value)  # type: ignore[index, arg-type]
    return found


def map_expr(root: Expr, change: dict[Expr, Expr], leaf: Callable[[Expr], Expr]) -> Expr:
    """A copy with every leaf replaced by ``leaf(it)``; `change` is the memo, to be shared between roots."""
    for e in walk(root, lambda e: () if e in change else e.args):
        if e in change:
            continue
        if e.args:
            args = tuple(change[a] for a in e.args)
            change[e] = e if all(a is b for a, b in zip(args, e.args)) else replace(e, args=args, _hash=0)
        else:
            change[e] = leaf(e)
    return change[root]


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

    def optional(e: Expr | None) -> Expr | None:
        return None if e is None else value(e)

    def stores(items: Sequence[Store]) -> tuple[Store, ...]:
        return tuple(
            Store(s.buffer, index(s.index), value(s.value), optional(s.place), optional(s.where), s.atomic) for s in items
        )

    def accumulator(a: Accumulator) -> Accumulator:
        return replace(a, value=value(a.value), chosen=optional(a.chosen), start=optional(a.start))

    def one(s: Statement) -> Statement:
        if isinstance(s, Define):
            return Define(s.name, value(s.value))
        if isinstance(s, Store):
            return stores([s])[0]
        if isinstance(s, Loop):
            return replace(s, body=map_body(s.body, value, index))
        if isinstance(s, Sort):
            return replace(s, key=value(s.key))
        if isinstance(s, Reduce):
            part = None if s.part is None else replace(s.part, index=index(s.part.index))
            return replace(s, accumulators=tuple(map(accumulator, s.accumulators)), stores=stores(s.stores), part=part)
        if isinstance(s, ColumnReduce):
            return ColumnReduce(s.axes, s.column, tuple(map(accumulator, s.accumulators)), stores(s.stores))
        return ScanLoop(s.axis, accumulator(s.accumulator), stores(s.stores))

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
        if isinstance(statement, Reduce) and statement.part is not None:
            yield statement.part.index
        for axis in loop_axes(statement):
            yield axis.start
            yield axis.extent
        buckets = statement.buckets if isinstance(statement, Sort) else statement.sorted_by if isinstance(statement, Loop) else None
        if buckets is not None:
            yield buckets.parts


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
            if step.then is not None:
                lines.append(f"  then for parts of it   # {step.then.comment}")
                lines += _render_body(step.then.body, "    ")
            continue
        if isinstance(step, (ExternalCall, RoutineCall)):
            outs, operands = (", ".join(o.buffer for o in some) for some in (step.outs, step.operands))
            call = f"{step.routine}({operands})" if isinstance(step, RoutineCall) else step.call.spelled(operands.split(", "))
            lines.append(f"call {outs} = {call}   # {step.comment}")
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
            where = "" if s.where is None else f" if {render_expr(s.where)}"
            sign = f"= {s.atomic} of it and" if s.atomic else "="
            lines.append(f"{indent}{s.buffer}[{s.index}{place}] {sign} {render_expr(s.value)}{where}")
        elif isinstance(s, Loop):
            order = f" by {s.sorted_by.numbers}" if s.sorted_by else ""
            lines.append(f"{indent}for {_render_axes(s.axes)}{order}:")
            lines += _render_body(s.body, indent + "  ")
        elif isinstance(s, Sort):
            lines.append(f"{indent}for {_render_axes(s.axes)}, part by part:")
            lines.append(f"{indent}  {s.buckets.numbers}[{s.buckets.ends} of {render_expr(s.key)}] = number")
        elif isinstance(s, Reduce):
            lines.append(f"{indent}reduce {_render_axes(s.axes)}{_render_walk(s)}:")
            lines += [f"{indent}  {a.name} = {_render_start(a)}{a.kind} {render_expr(a.value)}" for a in s.accumulators]
            lines += _render_body(s.stores, indent + "  ")
        elif isinstance(s, ColumnReduce):
            lines.append(f"{indent}reduce columns {_render_axes((s.column,))} over {_render_axes(s.axes)}:")
            lines += [f"{indent}  {a.name} = {a.kind} {render_expr(a.value)}" for a in s.accumulators]
            lines += _render_body(s.stores, indent + "  ")
        else:
            lines.append(f"{indent}scan {_render_axes((s.axis,))}:")
            lines.append(
                f"{indent}  {s.accumulator.name} = running {s.accumulator.kind} {render_expr(s.accumulator.value)}"
            )
            lines += _render_body(s.stores, indent + "  ")
    return lines


def _render_start(a: Accumulator) -> str:
    where = "" if a.chosen is None else f"where {render_expr(a.chosen)}: "
    return where if a.start is None else f"from {render_expr(a.start)}, {where}"


def _render_walk(r: Reduce) -> str:
    if r.walk is None:
        return ""
    part = "" if r.part is None else f", part {r.part.index} of {2**r.part.levels}"
    if r.walk.tree:
        return ", as a tree"
    chunk = "" if r.walk.chunk is None else f" by {r.walk.chunk}"
    return (f", the last {r.walk.axes} pairwise{chunk}" if r.walk.axes else ", in turn") + part


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
