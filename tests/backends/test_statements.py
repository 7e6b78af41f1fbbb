"""Statements written by hand, spelled in C and run, and spelled in CUDA C."""

from __future__ import annotations

import ctypes

import numpy as np

from dynagraph.backends.c.backend import complete_source
from dynagraph.backends.c.printer import CSource
from dynagraph.backends.cstyle import CStyle, Writer
from dynagraph.backends.cuda.style import CudaStyle
from dynagraph.backends.kernel_cache import get_library
from dynagraph.backends.spelling import Speller
from dynagraph.ir import expr
from dynagraph.ir.dtypes import float64, int64
from dynagraph.ir.expr import Expr, call, const, var
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import Store
from dynagraph.ir.statements import (
    Assign,
    AxisKind,
    Break,
    Code,
    Declare,
    For,
    If,
    While,
    compare,
    element,
    position,
)

ZERO = IntExpr.of(0)
HERE = position("i")


def spelled(style: type[CStyle], *body: Code) -> tuple[str, frozenset[str]]:
    out = Writer()
    c = style(out)
    Speller(c).body(body)
    return str(out), frozenset(c.used_functions)


def run(array: np.ndarray, *body: Code) -> np.ndarray:
    """What the statements store to `out0`, for each element of `in0`."""
    kind = "double" if array.dtype == np.float64 else "int64_t"
    text, functions = spelled(CStyle, For("i", ZERO, IntExpr.of(array.size), body))
    source = CSource(f"void entry(const {kind} *in0, {kind} *out0) {{\n{text}}}\n", functions)
    library = get_library(complete_source(source))
    out = np.empty_like(array)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library.address("entry"))(array.ctypes.data, out.ctypes.data)
    return out


def integer(value: int) -> Expr:
    return const(value, int64)


def test_a_loop_with_a_branch_and_an_early_exit() -> None:
    n, steps = var("n", int64), var("steps", int64)
    is_odd = call("ne", call("and", n, integer(1)), integer(0))
    grown, halved = call("add", call("mul", n, integer(3)), integer(1)), call("shr", n, integer(1))
    further = If(is_odd, (Assign("n", grown),), (Assign("n", halved),))
    body = If(call("gt", steps, integer(99)), (Break(),)), further, Assign("steps", call("add", steps, integer(1)))
    numbers = np.arange(1, 40)
    got = run(
        numbers,
        Declare("n", int64, element("in0", HERE, int64)),
        Declare("steps", int64, integer(0)),
        While(call("ne", n, integer(1)), body),
        Store("out0", HERE, steps),
    )
    assert got.tolist() == [min(100, collatz(n)) for n in numbers.tolist()]


def collatz(n: int) -> int:
    steps = 0
    while n != 1:
        n, steps = (3 * n + 1 if n % 2 else n // 2), steps + 1
    return steps


def test_what_is_computed_in_common_is_computed_anew_once_a_variable_has_changed() -> None:
    x = var("x", float64)
    square = call("mul", x, x)
    twice = call("add", square, call("sqrt", square))
    array = np.array([0.5, 2.0, -3.0])
    got = run(
        array,
        Declare("x", float64, expr.load("in0", HERE, float64)),
        Assign("x", twice),
        Assign("x", twice),
        If(compare("lt", HERE, 2), (Assign("x", twice),)),
        Store("out0", HERE, twice),
    )
    for k, value in enumerate(array.tolist()):
        for _ in range(4 if k < 2 else 3):
            value = value * value + np.sqrt(value * value)
        assert got[k] == value


def test_loops_say_who_takes_their_turns() -> None:
    store = Store("out0", HERE, const(1.0, float64))
    heads = {}
    for kind in AxisKind:
        text, _ = spelled(CudaStyle, For("i", ZERO, position("n"), (store,), kind, step=4))
        heads[kind] = text.splitlines()[:-2]
    assert heads[AxisKind.BLOCK] == ["for (dg_index i = (dg_index)blockIdx.x * 4; i < n; i += (dg_index)gridDim.x * 4) {"]
    first = "(dg_index)blockIdx.x * 4 + threadIdx.x"
    assert heads[AxisKind.PARALLEL] == [f"for (dg_index i = {first}; i < n; i += (dg_index)gridDim.x * 4) {{"]
    assert heads[AxisKind.UNROLLED] == ["#pragma unroll", "for (int i = 0; i < n; i += 4) {"]
    assert heads[AxisKind.SERIAL] == ["for (dg_index i = 0; i < n; i += 4) {"]
