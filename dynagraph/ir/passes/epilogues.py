"""Fuse elementwise work into the matrix products before it, as epilogues: work done while a product is stored needs no kernel.

Comes after `lower` and `merge_loops`, before `memory_plan`, for targets whose library of products has epilogues.  The arithmetic
that it may fuse is that of an epilogue: the sum in the accumulator's dtype, which the epilogue does not round, then
``scale * product + weight * addend + bias``.  What stays exact is fused always: one operation that rounds, in the dtype of the
accumulator.  The rest (several operations, which may round once; float16, which is summed in float32; ReLU, of which libraries
do not say whether NaN stays NaN; GELU) only if values may differ in their rounding (`fast`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dynagraph.ir import dtypes
from dynagraph.ir.expr import Expr
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import Axis, Epilogue, Kernel, LibraryCall, LoopProgram, Operand, Step, Store
from dynagraph.ir.passes.memory_plan import step_buffers
from dynagraph.ir.shapes import Dim, SymInt, contiguous_strides, expr_of, numel, same_dim

EXACT = (dtypes.float32, dtypes.float64)  # they are accumulated in their own dtype
RELAXED = (dtypes.float16, *EXACT)


def fuse_epilogues(program: LoopProgram, fast: bool = False) -> LoopProgram:
    """Needs: kernels whose loops are merged, no memory planned.  Leaves: the same values (`fast`: but for their rounding), with
    fewer kernels: one that only finishes a product is part of the product, which takes its place among the steps.
    """
    steps: list[Step] = list(program.steps)
    products: dict[str, int] = {}  # from what they make to where they are
    for position, step in enumerate(program.steps):
        if isinstance(step, LibraryCall) and step.routine == "matmul":
            products[step.out.buffer] = position
        elif isinstance(step, Kernel):
            read = sorted((products[name] for name in step_buffers(step)[0] if name in products), reverse=True)
            found = next((f for source in read if (f := _fused(program, steps, source, position, fast)) is not None), None)
            if found is not None:
                source, fused = found
                steps[source], steps[position] = _GONE, fused
                del products[program.steps[source].out.buffer]  # type: ignore[union-attr]
    kept = tuple(s for s in steps if s is not _GONE)
    used = {name for step in kept for names in step_buffers(step) for name in names}
    buffers = {k: b for k, b in program.buffers.items() if b.role != "temp" or k in used}
    return replace(program, buffers=buffers, steps=kept)


_GONE = Kernel("", (), ())  # in place of a product that has moved


def _fused(
    program: LoopProgram, steps: Sequence[Step], source: int, position: int, fast: bool
) -> tuple[int, LibraryCall] | None:
    """The product at `source`, which the kernel at `position` finishes, with what the kernel does."""
    product, kernel = steps[source], steps[position]
    assert isinstance(product, LibraryCall) and isinstance(kernel, Kernel)
    if len(kernel.body) != 1 or not kernel.axes:
        return None
    (store,) = kernel.body
    if not isinstance(store, Store) or store.place is not None:
        return None
    epilogue = _epilogue(program, product, kernel.axes, store, fast)
    if epilogue is None or not _may_move(program, steps, source, position, store.buffer):
        return None
    out = replace(product.out, buffer=store.buffer)
    return source, replace(product, out=out, epilogue=epilogue, comment=f"{product.comment}, then {kernel.comment}")


def _may_move(program: LoopProgram, steps: Sequence[Step], source: int, position: int, into: str) -> bool:
    """Whether a product may be computed where its kernel stands, into the kernel's memory: nobody else reads it, its operands are
    what they were, and are not what it is stored over.
    """
    product = steps[source]
    assert isinstance(product, LibraryCall)
    made, operands = product.out.buffer, {o.buffer for o in product.operands}
    if program.buffers[made].role != "temp" or into in operands:
        return False
    others = ((k, *step_buffers(step)) for k, step in enumerate(steps) if k not in (source, position))
    return not any(
        made in reads | writes or (source < k < position and writes & operands) for k, reads, writes in others
    )


# -- the kernel ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Term:
    """``factor * load``."""

    factor: float
    load: Expr


def _epilogue(
    program: LoopProgram, product: LibraryCall, axes: Sequence[Axis], store: Store, fast: bool
) -> Epilogue | None:
    """What a kernel does with the elements of a product, in their order; None: something else."""
    out, dtype = product.out, product.out.dtype
    lies_in_order = out.offset == 0 and all(map(same_dim, out.strides, contiguous_strides(out.shape)))
    same_dtype = store.value.dtype is dtype and program.buffers[store.buffer].dtype is dtype
    if dtype not in (RELAXED if fast else EXACT) or not lies_in_order or not same_dtype or not _visits_all(axes, store.index, out):
        return None
    activation, value = _activation(store.value) if fast else ("", store.value)
    terms = list(_terms(value, 1.0))
    roundings = sum(e.op in ("add", "sub", "mul") for e in value.walk())
    if any(t is None for t in terms) or (not fast and (roundings != 1 or any(e.op == "neg" for e in value.walk()))):
        return None
    known = [t for t in terms if t is not None]
    own = [t for t in known if t.load.value == (out.buffer, store.index)]
    rest = [t for t in known if t.load.value[0] != out.buffer]  # type: ignore[index]
    if len(own) != 1 or len(own) + len(rest) != len(known) or not _is_factor(own[0].factor):
        return None
    return _with_rest(Epilogue(own[0].factor, activation=activation), rest, axes, store, out)


def _is_factor(value: float) -> bool:
    """Libraries do not look at what is multiplied by 0, be it NaN."""
    return math.isfinite(value) and value != 0.0


def _with_rest(epilogue: Epilogue, rest: Sequence[_Term], axes: Sequence[Axis], store: Store, out: Operand) -> Epilogue | None:
    """With the terms that are not the product's: at most an addend and a bias."""
    for term in rest:
        buffer: str
        place: IntExpr
        buffer, place = term.load.value  # type: ignore[misc]
        bias, addend = _bias(buffer, place, axes, out), _addend(buffer, place, axes, store.index, out)
        stored_over = buffer == store.buffer
        if addend is not None and epilogue.addend is None and _is_factor(term.factor) and (place == store.index or not stored_over):
            epilogue = replace(epilogue, addend=addend, weight=term.factor)
        elif bias is not None and epilogue.bias is None and term.factor == 1.0 and not stored_over:
            epilogue = replace(epilogue, bias=bias)
        else:
            return None
    return epilogue


def _visits_all(axes: Sequence[Axis], index: IntExpr, out: Operand) -> bool:
    """Whether the loops visit each element of the product once, and `index` is where it lies."""
    step, total = IntExpr.of(1), IntExpr.of(0)
    for axis in reversed(axes):
        if axis.start != 0:
            return False
        total = total + IntExpr.symbol(axis.symbol.name) * step
        step = step * axis.extent
    return total == index and step == expr_of(numel(out.shape))


def _addend(buffer: str, place: IntExpr, axes: Sequence[Axis], index: IntExpr, out: Operand) -> Operand | None:
    """What lies as the product does, or has longer rows."""
    offset = place - index
    if not _varies(offset, axes):
        return Operand(buffer, out.dtype, out.shape, out.strides, offset)
    if len(axes) != 2 or axes[1].extent != expr_of(out.shape[-1]):
        return None
    step, one = (place.coefficient(axis.symbol) for axis in axes)
    if step is None or step == 0 or one != 1 or _varies(step, axes):
        return None
    offset = place - step * IntExpr.symbol(axes[0].symbol.name) - IntExpr.symbol(axes[1].symbol.name)
    if _varies(offset, axes):
        return None
    row = _as_dim(step, out)
    if row is None:
        return None
    strides = tuple(row * dim for dim in contiguous_strides(out.shape[:-1]))
    return Operand(buffer, out.dtype, out.shape, (*strides, 1), offset)


def _as_dim(step: IntExpr, out: Operand) -> Dim | None:
    """The step as a size among those of a product."""
    environment = next((dim.env for dim in out.shape if isinstance(dim, SymInt)), None)
    if step.constant is not None or environment is None:
        return step.constant
    return SymInt(step, environment)


def _bias(buffer: str, place: IntExpr, axes: Sequence[Axis], out: Operand) -> Operand | None:
    """What depends on the column alone."""
    column, columns = axes[-1], out.shape[-1]
    offset = place - IntExpr.symbol(column.symbol.name)
    if len(axes) < 2 or column.extent != expr_of(columns) or _varies(offset, axes):
        return None
    return Operand(buffer, out.dtype, (columns,), (1,), offset)


def _varies(offset: IntExpr, axes: Sequence[Axis]) -> bool:
    return bool(offset.symbols() & {a.symbol for a in axes})


# -- its value ----------------------------------------------------------------------------------------------------------


def _terms(e: Expr, factor: float) -> Iterator[_Term | None]:
    """A value as a sum of multiples of what is loaded; None for what is none."""
    if e.op == "load":
        yield _Term(factor, e)
    elif e.op in ("add", "sub"):
        yield from _terms(e.args[0], factor)
        yield from _terms(e.args[1], factor if e.op == "add" else -factor)
    elif e.op == "neg":
        yield from _terms(e.args[0], -factor)
    elif e.op == "mul" and any(_number(a) is not None for a in e.args):
        number, other = e.args if _number(e.args[0]) is not None else reversed(e.args)
        yield from _terms(other, factor * (_number(number) or 0.0))
    else:
        yield None


def _number(e: Expr) -> float | None:
    return float(e.value) if e.op == "const" and isinstance(e.value, (int, float)) else None


def _activation(e: Expr) -> tuple[str, Expr]:
    """The activation that a value is, and of what."""
    if e.op == "maximum":
        for number, other in (e.args, e.args[::-1]):
            if _number(number) == 0.0:
                return "relu", other
    of = _gelu(e, 1e-3 if e.dtype is dtypes.float16 else 1e-6)
    return ("", e) if of is None else ("gelu", of)


def _gelu(e: Expr, tolerance: float) -> Expr | None:
    """x of ``0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))``, the factors in any order."""
    number, factors = _factors(e)
    gates = [f for f in factors if f.op == "add" and any(_number(a) == 1.0 for a in f.args)]
    if number != 0.5 or len(factors) != 2 or len(gates) != 1:
        return None
    (x,) = (f for f in factors if f is not gates[0])
    curves = [a for a in gates[0].args if a.op == "tanh"]
    if len(curves) != 1:
        return None
    outer, inside = _factors(curves[0].args[0])
    if len(inside) != 1 or inside[0].op != "add" or not math.isclose(outer, math.sqrt(2 / math.pi), rel_tol=tolerance):
        return None
    cubes = [a for a in inside[0].args if a != x]
    if len(cubes) != 1 or not any(a == x for a in inside[0].args):
        return None
    small, of_cube = _factors(cubes[0])
    return x if math.isclose(small, 0.044715, rel_tol=tolerance) and of_cube == [x, x, x] else None


def _factors(e: Expr) -> tuple[float, list[Expr]]:
    """A product as a number and other factors; whole powers are written out."""
    if e.op == "mul":
        (a, left), (b, right) = map(_factors, e.args)
        return a * b, left + right
    number = _number(e)
    if number is not None:
        return number, []
    if e.op == "pow" and _number(e.args[1]) in (2.0, 3.0):
        a, left = _factors(e.args[0])
        times = int(_number(e.args[1]) or 0)
        return a**times, left * times
    return 1.0, [e]


__all__ = ["fuse_epilogues"]
