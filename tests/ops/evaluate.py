"""The meaning of lowerings, told in Python: what a printer of the loop IR must do, one element at a time.

Integer arithmetic is done on Python's ints, wrapped to the width; floating point and transcendental functions by NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.ir.dtypes import DType, from_numpy
from dynagraph.ir.expr import Expr, var
from dynagraph.ir.external_calls import selected
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.interpreter import concrete, interpret
from dynagraph.ir.ops import Composite, Creation, Elementwise, Gather, Library, Movement, Op, Reduction, Scan, Scatter
from dynagraph.ir.passes.demand import index_of
from dynagraph.ir.passes.legalize import ROUTINES
from tests.ops.routines import run_routine


def width(dtype: DType) -> int:
    return 8 * dtype.itemsize


def wrap(value: int, dtype: DType) -> int:
    """Two's complement."""
    value &= (1 << width(dtype)) - 1
    return value - (1 << width(dtype)) if dtype.kind == "i" and value >> (width(dtype) - 1) else value


def _truncating_remainder(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) % abs(b) * (-1 if a < 0 else 1)


INTEGERS: dict[str, Callable[..., int]] = {
    "add": lambda d, a, b: a + b,
    "sub": lambda d, a, b: a - b,
    "mul": lambda d, a, b: a * b,
    "floordiv": lambda d, a, b: 0 if b == 0 else a // b,
    "remainder": lambda d, a, b: 0 if b == 0 else a % b,
    "fmod": lambda d, a, b: _truncating_remainder(a, b),
    "pow_int": lambda d, a, b: pow(a, b, 1 << width(d)),
    "maximum": lambda d, a, b: max(a, b),
    "minimum": lambda d, a, b: min(a, b),
    "neg": lambda d, a: -a,
    "abs": lambda d, a: abs(a),
    "sign": lambda d, a: (a > 0) - (a < 0),
    "gcd": lambda d, a, b: math.gcd(a, b),
    "lcm": lambda d, a, b: math.lcm(a, b),
    "and": lambda d, a, b: a & b,
    "or": lambda d, a, b: a | b,
    "xor": lambda d, a, b: a ^ b,
    "invert": lambda d, a: ~a,
    "shl": lambda d, a, b: a << b if 0 <= b < width(d) else 0,
    "shr": lambda d, a, b: a >> b if 0 <= b < width(d) else (-1 if a < 0 else 0),
}

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {  # as ufuncs: complex scalars compare in another way
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}

FLOATS: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": np.floor_divide,
    "neg": np.negative,
    "abs": np.absolute,
    "ldexp": lambda x, exponent: np.ldexp(x, int(exponent)),
    "frexp_mantissa": lambda x: np.frexp(x)[0],
    "frexp_exponent": lambda x: np.frexp(x)[1],
    "conj": np.conjugate,
    "real": np.real,
    "imag": np.imag,
    "complex": complex,
}


def evaluate(e: Expr, variables: dict[str, Any], sizes: dict[str, int]) -> Any:
    """The value of an expression as a NumPy scalar of its dtype."""
    scalar = e.dtype.numpy.type
    if e.op == "const":
        return scalar(e.value)
    if e.op == "var":
        return variables[e.value]  # type: ignore[index]
    if e.op == "index":
        return np.int64(e.value.evaluate(sizes)).astype(e.dtype.numpy)  # type: ignore[union-attr]
    if e.op == "select":
        condition, a, b = e.args
        return evaluate(a if evaluate(condition, variables, sizes) else b, variables, sizes)
    operands = [evaluate(a, variables, sizes) for a in e.args]
    for operand, arg in zip(operands, e.args):
        assert operand.dtype == arg.dtype.numpy, (e.op, operand.dtype, arg.dtype)
    if e.op == "cast":
        return operands[0].astype(e.dtype.numpy)
    if e.op == "not":
        return scalar(not operands[0])
    operand_dtype = e.args[0].dtype
    if e.op in COMPARISONS:
        return scalar(COMPARISONS[e.op](*operands))
    if not operand_dtype.is_inexact:
        return scalar(wrap(INTEGERS[e.op](operand_dtype, *(x.item() for x in operands)), e.dtype))
    if e.op == "erf":
        return scalar(math.erf(operands[0]))
    if e.op == "pow":
        # NumPy takes a shortcut for exponents such as 0.5 that do not change along its loop; pow takes none
        return np.power(*(np.array([x, scalar(1.25)]) for x in operands))[0]
    return scalar(FLOATS.get(e.op, getattr(np, e.op, None))(*operands))


def run_lowering(
    op: Op,
    operands: list[np.ndarray],
    attrs: dict[str, Any],
    symbolic: dict[str, Any] | None = None,
    sizes: dict[str, int] | None = None,
) -> np.ndarray:
    """The op's result by its lowering.

    `symbolic`: operands' metas and attributes with symbols, whose values are `sizes`.
    """
    sizes = sizes or {}
    metas = tuple(Meta(_dtype(x), x.shape) for x in operands) if symbolic is None else symbolic["metas"]
    attrs = op.bind_attrs(attrs if symbolic is None else symbolic["attrs"])
    out = op.infer(metas, attrs)
    with np.errstate(all="ignore"):
        return _RUN[type(op.lowering)](op.lowering, operands, metas, attrs, out, sizes)


def _dtype(x: np.ndarray) -> DType:
    dtype = from_numpy(x.dtype)
    assert dtype is not None
    return dtype


def _empty(out: Meta, sizes: dict[str, int]) -> np.ndarray:
    return np.empty(concrete(out.shape, sizes), out.dtype.numpy)


def _elementwise(
    lowering: Elementwise, operands: list[np.ndarray], metas: Any, attrs: Any, out: Meta, sizes: Any
) -> np.ndarray:
    expr = lowering.expr(*(var(f"x{k}", m.dtype) for k, m in enumerate(metas)), **attrs)
    assert expr.dtype is out.dtype
    result = _empty(out, sizes)
    broadcast = [np.broadcast_to(x, result.shape) for x in operands]
    for position in np.ndindex(result.shape):
        result[position] = evaluate(expr, {f"x{k}": x[position] for k, x in enumerate(broadcast)}, sizes)
    return result


def _positions(out: Meta, result: np.ndarray, sizes: dict[str, int]) -> Any:
    """Every index of the result, as the values of the loop variables that `index_of` makes."""
    for position in np.ndindex(result.shape):
        yield position, {**sizes, **{f"i{k}": i for k, i in enumerate(position)}}


def _movement(
    lowering: Movement, operands: list[np.ndarray], metas: Any, attrs: Any, out: Meta, sizes: Any
) -> np.ndarray:
    result = _empty(out, sizes)
    pieces = lowering.source(index_of(out.shape, "i"), metas, attrs, out) if result.size else []
    for position, values in _positions(out, result, sizes):
        operand, source = next((k, s) for condition, k, s in pieces if all(_holds(c, values) for c in condition or ()))
        if operand is None:
            result[position] = attrs["value"]
            continue
        where = tuple(i.evaluate(values) for i in source)
        assert all(0 <= i < n for i, n in zip(where, operands[operand].shape)), (where, operands[operand].shape)
        result[position] = operands[operand][where]
    return result


def _holds(condition: Any, values: dict[str, int]) -> bool:
    left, op, right = condition
    return {"<": int.__lt__, ">=": int.__ge__}[op](left.evaluate(values), right.evaluate(values))


def _creation(lowering: Creation, operands: Any, metas: Any, attrs: Any, out: Meta, sizes: Any) -> np.ndarray:
    result = _empty(out, sizes)
    expr = lowering.expr(index_of(out.shape, "i"), attrs, out)
    assert expr.dtype is out.dtype
    for position, values in _positions(out, result, sizes):
        result[position] = evaluate(expr, {}, values)
    return result


_STEP: dict[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
    "all_bits": np.bitwise_and,
    "any_bits": np.bitwise_or,
    "odd_bits": np.bitwise_xor,
    "power_int": np.power,
}


def _step(kind: str) -> Any:
    return _STEP.get(kind) or getattr(np, kind)


def _reduction(lowering: Reduction, operands: Any, metas: Any, attrs: Any, out: Meta, sizes: Any) -> np.ndarray:
    (x, *others), axes = operands, attrs["axis"]
    mask, start = others or (np.ones(x.shape, bool), None)
    kept = [k for k in range(x.ndim) if k not in axes]
    shape = [x.shape[k] for k in kept] + [-1] if x.size else [*(x.shape[k] for k in kept), 0]
    rows, taken = (a.transpose(kept + list(axes)).reshape(shape) for a in (x, mask))
    flat = np.empty(rows.shape[:-1], out.dtype.numpy)
    for position in np.ndindex(flat.shape):
        chosen = rows[position][taken[position]]
        flat[position] = _combine(lowering.kind, chosen, out.dtype, start)
    return flat.reshape(concrete(out.shape, sizes))


def _combine(kind: str, row: np.ndarray, dtype: DType, start: Any = None) -> Any:
    if kind in ("argmax", "argmin"):
        return _extreme(kind, row)
    values = list(row)
    if kind not in ("max", "min"):  # these have no identity
        values.insert(0, dtype.numpy.type(np.asarray(_step(kind).identity if start is None else start).astype(dtype.numpy)))
    total = values[0]
    for value in values[1:]:
        total = dtype.numpy.type(_step(kind)(total, value))
    return total


def _extreme(kind: str, row: np.ndarray) -> int:
    """The first NaN, else the first extreme."""
    best = 0
    for k, value in enumerate(row):
        if row[best] != row[best]:
            break
        if value != value or (value > row[best] if kind == "argmax" else value < row[best]):
            best = k
    return best


def _scan(lowering: Scan, operands: Any, metas: Any, attrs: Any, out: Meta, sizes: Any) -> np.ndarray:
    result = operands[0].copy()
    rows = np.moveaxis(result, attrs["axis"], 0)
    for k in range(1, len(rows)):
        rows[k] = _step(lowering.kind)(rows[k - 1], rows[k])
    return result


def _composite(lowering: Composite, operands: Any, metas: Any, attrs: Any, out: Meta, sizes: Any) -> np.ndarray:
    graph = Graph()
    nodes: list[Node] = [graph.placeholder(f"x{k}", m) for k, m in enumerate(metas)]
    result = lowering.decompose(graph, *nodes, **attrs)
    assert result.dtype is out.dtype
    graph.output([result])
    graph.lint()
    return interpret(graph, operands)[0]


def _gather(lowering: Gather, operands: list[np.ndarray], metas: Any, attrs: Any, out: Meta, sizes: Any) -> np.ndarray:
    """One element at a time, as ``ir/passes/lower.py`` composes it."""
    source, *places = operands
    result = _empty(out, sizes)
    at, n = attrs["at"], places[0].ndim
    for position in np.ndindex(result.shape):
        kept = iter(position[:at] + position[at + n :])
        chosen = {axis: int(p[position[at : at + n]]) for axis, p in zip(attrs["axes"], places)}
        chosen = {a: min(max(p + source.shape[a] if p < 0 else p, 0), source.shape[a] - 1) for a, p in chosen.items()}
        result[position] = source[tuple(chosen[k] if k in chosen else next(kept) for k in range(source.ndim))]
    return result


def _scatter(lowering: Scatter, operands: list[np.ndarray], metas: Any, attrs: Any, out: Meta, sizes: Any) -> np.ndarray:
    source, values, *places = operands
    result = np.array(source)
    at, n = attrs["at"], places[0].ndim
    for position in np.ndindex(values.shape):
        kept = iter(position[:at] + position[at + n :])
        chosen = {axis: int(p[position[at : at + n]]) for axis, p in zip(attrs["axes"], places)}
        chosen = {a: min(max(p + source.shape[a] if p < 0 else p, 0), source.shape[a] - 1) for a, p in chosen.items()}
        where = tuple(chosen[k] if k in chosen else next(kept) for k in range(source.ndim))
        combine = _step(attrs["combine"]) if attrs["combine"] else lambda old, new: new
        result[where] = combine(result[where], values[position])
    return result


def _library(lowering: Library, operands: Any, metas: Any, attrs: Any, out: Meta, sizes: Any) -> np.ndarray:
    if lowering.routine == "external_call":
        return np.asarray(selected(attrs["call"].run(np, operands), attrs["result"]))
    if lowering.routine in ROUTINES:
        zeros = _empty(out, sizes)
        zeros[...] = 0
        return run_routine(lowering.routine, operands, attrs, zeros)
    return _matmul(operands, out, sizes)


def _matmul(operands: Any, out: Meta, sizes: Any) -> np.ndarray:
    """The definition: row times column, summed."""
    a, b = operands
    result = _empty(out, sizes)
    a = np.broadcast_to(a, result.shape[:-2] + a.shape[-2:])
    b = np.broadcast_to(b, result.shape[:-2] + b.shape[-2:])
    add, multiply = (np.logical_or, np.logical_and) if out.dtype.is_bool else (np.add, np.multiply)
    for *batch, i, j in np.ndindex(result.shape):
        row, column = a[(*batch, i)], b[(*batch, slice(None), j)]
        result[(*batch, i, j)] = add.reduce(multiply(row, column), dtype=out.dtype.numpy)
    return result


_RUN: dict[type, Any] = {
    Elementwise: _elementwise,
    Movement: _movement,
    Creation: _creation,
    Reduction: _reduction,
    Scan: _scan,
    Composite: _composite,
    Library: _library,
    Gather: _gather,
    Scatter: _scatter,
}


def _assert_same_numbers(got: np.ndarray, want: np.ndarray, ulp: int | None) -> None:
    """Of complex numbers: both parts, or within units in the last place of the greater part."""
    if ulp is not None:
        with np.errstate(invalid="ignore"):
            near = np.isfinite(want) & (abs(got - want) <= ulp * np.finfo(want.dtype).eps * abs(want))
        got, want = got[~near], want[~near]
    for part in ("real", "imag"):
        assert_same(getattr(got, part), getattr(want, part), ulp)


def assert_same(got: np.ndarray, want: np.ndarray, ulp: int | None = None) -> None:
    """Equal in dtype, shape and, apart from the bits of NaNs, every bit; or within `ulp` units in the last place."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape, (got.dtype, got.shape, want.dtype, want.shape)
    if want.dtype.kind == "c":
        _assert_same_numbers(got, want, ulp)
        return
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    finite = ~np.isnan(want)
    if ulp is None:
        bits = f"i{want.dtype.itemsize}"
        np.testing.assert_array_equal(
            np.ascontiguousarray(got[finite]).view(bits),
            np.ascontiguousarray(want[finite]).view(bits),
            err_msg=f"{got} is not {want}",
        )
    else:
        close = np.isclose(
            got[finite], want[finite], rtol=ulp * np.finfo(want.dtype).eps, atol=ulp * np.finfo(want.dtype).tiny
        )
        assert close.all(), (got, want)
