"""Accumulators as expressions, for every target: initial value, one step, which of two extremes is better.

Halves are accumulated in float32; whoever wants them rounded in between casts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dynagraph.ir import dtypes, expr
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import Accumulator, Define, ScanLoop
from dynagraph.ir.ops import EXTREMES, OPS, Elementwise, step_of
from dynagraph.ir.statements import Assign, Code, Declare, compare


def computed_as(dtype: DType) -> DType:
    """The dtype of a local value."""
    return dtypes.float32 if dtype.is_half else dtype


def local(name: str, dtype: DType) -> Expr:
    """A variable, as it is computed with."""
    return expr.var(name, computed_as(dtype))


def widened(value: Expr) -> Expr:
    """A value as it is computed with."""
    return expr.cast(value, computed_as(value.dtype))


def rounded(value: Expr, dtype: DType) -> Expr:
    """What was computed in the dtype of local values, as a value of the dtype."""
    return expr.cast(value, dtype) if dtype.is_half else value


def identity(a: Accumulator) -> Expr:
    """What an accumulation begins with.  NumPy's sum begins with 0.0: that of negative zeros is 0.0."""
    dtype = computed_as(a.dtype)
    if (known := OPS[a.kind].identity) is not None:
        return expr.const(known, dtype)
    if a.kind in ("max", "min"):
        return expr.const(_lowest(dtype) if a.kind == "max" else _highest(dtype), dtype)
    if a.kind == "all_bits" and dtype.is_integer:
        return Expr("const", (), dtype, -1 if dtype.kind == "i" else _highest(dtype))
    return expr.const(1 if a.kind in ("prod", "all", "all_bits") else 0, dtype)


def _highest(dtype: DType) -> int | float | complex:
    if dtype.is_inexact:
        return complex(math.inf, math.inf) if dtype.is_complex else math.inf
    return 1 if dtype.is_bool else int(np.iinfo(dtype.numpy).max)


def _lowest(dtype: DType) -> int | float | complex:
    if dtype.is_inexact:
        return -_highest(dtype)
    return 0 if dtype.is_bool else int(np.iinfo(dtype.numpy).min)


def combined(name: str, left: Expr, right: Expr) -> Expr:
    """An elementwise op of two operands, by name."""
    lowering = OPS[name].lowering
    assert isinstance(lowering, Elementwise)
    return lowering.expr(left, right)


def step(a: Accumulator, left: Expr, right: Expr) -> Expr:
    """Two parts of an accumulation, combined."""
    return combined(step_of(a.kind).name, widened(left), widened(right))


def next_step(a: Accumulator, left: Expr, right: Expr) -> Expr:
    """A step whose left operand is what the step before gave, where that is faster to know: a NaN in it is quiet already."""
    if a.kind in ("max", "min") and a.dtype.is_float:
        return _next(f"{a.kind}imum", left, right)
    return step(a, left, right)


def _next(name: str, left: Expr, right: Expr) -> Expr:
    return Expr(f"next_{name}", (widened(left), widened(right)), computed_as(left.dtype))


def running_step(a: Accumulator, before: Expr, value: Expr) -> Expr:
    """The running value after an element, or after two parts."""
    if a.kind in ("sum", "prod"):
        return step(a, before, value)
    return combined(a.kind, before, value)


def next_running_step(a: Accumulator, before: Expr, value: Expr) -> Expr:
    """... of elements in order, each as NumPy rounds it."""
    if a.dtype.is_float and step_of(a.kind).idempotent:
        return rounded(_next(a.kind, before, value), a.dtype)
    return rounded(running_step(a, before, value), a.dtype)


def begin_scan(r: ScanLoop) -> Declare:
    """The running value of a scan."""
    dtype = computed_as(r.accumulator.dtype)
    return Declare(r.accumulator.name, dtype, expr.const(0, dtype))


def scan_step(r: ScanLoop, follow: Callable[[Accumulator, Expr, Expr], Expr]) -> tuple[Code, ...]:
    """What one element of a scan in order adds to it: the first one is the value that it begins with."""
    a, symbol = r.accumulator, r.axis.symbol
    value = expr.var(f"{a.name}_value", a.dtype)
    is_first = compare("eq", IntExpr({(symbol,): 1}), r.axis.start)
    total = choose(is_first, value, follow(a, expr.var(a.name, a.dtype), value))
    return Define(f"{a.name}_value", a.value), Assign(a.name, total), *r.stores


def choose(test: Expr, left: Expr, right: Expr) -> Expr:
    """One of two values, either of which may be as it is computed with."""
    if left.dtype is not right.dtype:
        left, right = widened(left), widened(right)
    return expr.call("select", test, left, right)


def extreme(a: Accumulator) -> Accumulator:
    """What a position is of."""
    return replace(a, name=f"{a.name}_extreme", kind=EXTREMES[a.kind], dtype=a.value.dtype)


def beats(a: Accumulator, value: Expr, best: Expr) -> Expr:
    """Whether a value is beyond the best one, neither of them being NaN."""
    return expr.call("gt" if a.kind == "argmax" else "lt", value, best)


def is_better(a: Accumulator, value: Expr, best: Expr) -> Expr:
    """Whether a value is a new extreme.  A NaN is the extreme of all, and the first one stays."""
    beyond = beats(a, value, best)
    if not value.dtype.is_inexact:
        return beyond
    return expr.call("or", beyond, expr.call("and", is_nan(value), expr.call("eq", best, best)))


def is_nan(value: Expr) -> Expr:
    return expr.call("ne", value, value)
