"""Parallel scans of few long rows, in three steps: totals of parts, their scan, scans of the parts.

Comes after `lower` and before `memory_plan`, for targets of hundreds of processors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dynagraph.ir import dtypes, expr
from dynagraph.ir.accumulation import combined
from dynagraph.ir.expr import Expr, var
from dynagraph.ir.intexpr import IntExpr, apply
from dynagraph.ir.loops import Accumulator, Axis, Buffer, Define, Kernel, LoopProgram, Reduce, ScanLoop, Step, Store, map_expr
from dynagraph.ir.ops import step_of

# the kinds of reductions by scalar functions; of others it is the op of that name
TOTALS = {"add": "sum", "mul": "prod", "maximum": "max", "minimum": "min", "and": "all_bits", "or": "any_bits", "xor": "odd_bits"}
TOTALS_OF_BOOLS = {"and": "all", "or": "any", "xor": "odd_bits"}


@dataclass(frozen=True)
class Parts:
    """Rows fewer than `rows`, and of at least two parts of `length` elements, are cut into these."""

    rows: int
    length: int


def split_scans(program: LoopProgram, parts: Parts) -> LoopProgram:
    """Needs: kernels from `lower`.  Leaves: the same values, up to the order in which floats are combined."""
    buffers = dict(program.buffers)
    steps: list[Step] = []
    for step in program.steps:
        running = _long_scan(step, parts) if isinstance(step, Kernel) else None
        if running is None:
            steps.append(step)
        else:
            assert isinstance(step, Kernel)
            totals, kernels = _split(step, running, parts.length)
            buffers[totals.name] = totals
            steps += kernels
    return replace(program, buffers=buffers, steps=tuple(steps))


def _long_scan(kernel: Kernel, parts: Parts) -> ScanLoop | None:
    running = next((s for s in kernel.body if isinstance(s, ScanLoop)), None)
    if running is None or running.axis.hint < 2 * parts.length:
        return None
    rows = 1
    for axis in kernel.axes:
        rows *= axis.hint
    return running if rows < parts.rows and kind_of_totals(running.accumulator) is not None else None


def kind_of_totals(a: Accumulator) -> str | None:
    """The reduction that gives the total of a part of a running combination; None where parts cannot be combined."""
    step = step_of(a.kind)
    if not step.associative or (a.dtype.is_complex and step.name != "add"):  # the order tells what infinities and NaNs become
        return None
    function = combined(step.name, a.value, a.value).op
    return (TOTALS_OF_BOOLS if a.dtype.is_bool else TOTALS).get(function, function)


def _widened(running: ScanLoop) -> ScanLoop:
    """Halves are combined in float32, and rounded when they are stored."""
    a = running.accumulator
    if not a.dtype.is_half:
        return running
    wide = replace(a, dtype=dtypes.float32, value=expr.cast(a.value, dtypes.float32))
    rounded = expr.cast(var(a.name, wide.dtype), a.dtype)
    return replace(running, accumulator=wide, stores=_with(running.stores, var(a.name, a.dtype), rounded))


def _with(stores: Sequence[Store], one: Expr, other: Expr) -> tuple[Store, ...]:
    """The stores with one leaf as another expression."""
    memo: dict[Expr, Expr] = {}
    return tuple(replace(s, value=map_expr(s.value, memo, lambda leaf: other if leaf == one else leaf)) for s in stores)


def _split(kernel: Kernel, running: ScanLoop, length: int) -> tuple[Buffer, list[Kernel]]:
    running = _widened(running)
    a, axis = running.accumulator, running.axis
    kind = kind_of_totals(a)
    assert kind is not None
    n_parts = (axis.extent + (length - 1)) // length
    part = IntExpr.symbol(f"{axis.symbol.name}_part", 0, n_parts - 1)
    (symbol,) = part.symbols()
    outer = Axis(symbol, n_parts, -(-axis.hint // length))  # type: ignore[arg-type]
    inner = Axis(axis.symbol, apply("min", axis.extent - part * length, IntExpr.of(length)), length, axis.start + part * length)
    row, size = IntExpr.of(0), n_parts
    for one in kernel.axes:
        row = row * one.extent + IntExpr({(one.symbol,): 1})
        size = size * one.extent
    totals = Buffer(f"t_{kernel.name}_totals", a.dtype, size, "temp")
    here = row * n_parts + part
    defines = tuple(s for s in kernel.body if isinstance(s, Define))
    total = Accumulator(f"{a.name}_total", kind, a.dtype, a.value)
    first = Kernel(
        f"{kernel.name}_totals",
        (*kernel.axes, outer),
        (*defines, Reduce((inner,), (total,)), Store(totals.name, here, var(total.name, a.dtype))),
        f"totals of parts of {kernel.comment}",
    )
    before = Accumulator(f"{a.name}_before", a.kind, a.dtype, expr.load(totals.name, here, a.dtype))
    second = Kernel(
        f"{kernel.name}_before",
        kernel.axes,
        (ScanLoop(outer, before, (Store(totals.name, here, var(before.name, a.dtype)),)),),
        f"running totals of {kernel.comment}",
    )
    is_first = expr.call("lt", expr.index(part), expr.const(1, dtypes.int64))
    known = Expr("choose", (is_first, expr.const(0, a.dtype), expr.load(totals.name, here - 1, a.dtype)), a.dtype)
    mine = var(a.name, a.dtype)
    whole = expr.call("select", is_first, mine, combined(step_of(a.kind).name, var(before.name, a.dtype), mine))
    scan = ScanLoop(inner, a, _with(running.stores, mine, whole))
    third = replace(kernel, axes=(*kernel.axes, outer), body=(*defines, Define(before.name, known), scan))
    return totals, [first, second, third]


__all__ = ["Parts", "kind_of_totals", "split_scans"]
