"""Algebraic simplification: rules as rows.  Every rule here is exact: no bit of any value changes (NaN payloads apart).

So ``x + 0`` stays for floating point (-0.0 + 0 is 0.0) while ``x + -0.0`` goes; nothing reassociates; nothing that NaN
or infinity would contradict is rewritten, except for integers and bools.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.ops import Elementwise, memory_of, strided_of, view_of
from dynagraph.ir.optable import OPS
from dynagraph.ir.rewrite import (
    Rule,
    Scalar,
    apply,
    attribute,
    broadcasts_to,
    filled,
    literal,
    op,
    rewrite,
    scalar,
    uniform_value,
    variable,
)
from dynagraph.ir.shapes import Shape, SymInt, expr_of, same_dim, same_shape

x, y, z = variable("x"), variable("y"), variable("z")
c = literal("c")


# -- conditions --------------------------------------------------------------------------------------------------------
def is_float(root: Node) -> bool:
    return root.dtype.is_float


def is_integer(root: Node) -> bool:
    return root.dtype.is_integer


def of_floats(x: Node) -> bool:
    return x.dtype.is_float


def without_nan(x: Node) -> bool:
    return not x.dtype.is_inexact


def has_exact_reciprocal(c: Scalar, root: Node) -> bool:
    """A power of two whose reciprocal is a normal number: dividing and multiplying round the same real number."""
    least = 2.0**-14 if root.dtype is dtypes.float16 else 2.0**-126  # halves, whose exponents are the least
    return math.isfinite(c) and abs(math.frexp(c)[0]) == 0.5 and least <= abs(c) <= 1 / least


# -- casts -------------------------------------------------------------------------------------------------------------
def _widens(source: DType, target: DType) -> bool:
    """NumPy's safe casts, apart from those of 64-bit integers to float64: 2**53 + 1 has no float64."""
    if source is dtypes.bfloat16:  # the upper half of a float32
        return target in (dtypes.float32, dtypes.float64) or target.is_complex
    if target is dtypes.bfloat16:  # of 8 digits
        return source.itemsize == 1
    safe = np.can_cast(source.numpy, target.numpy, "safe")
    return safe and not (source.is_integer and target.is_inexact and 8 * source.itemsize > np.finfo(target.numpy).nmant)


_WIDENS: dict[str, frozenset[str]] = {
    s.name: frozenset(t.name for t in dtypes.KNOWN if t is not s and _widens(s, t)) for s in dtypes.KNOWN
}


def keeps_every_value(source: DType, target: DType) -> bool:
    """Whether every value of the first dtype is a value of the second."""
    return source is target or target.name in _WIDENS[source.name]


def casts_as_one(x: Node, middle: DType, root: Node) -> bool:
    """Whether a cast to `middle` on the way changes nothing.

    A value-keeping first step never does, floats to integers apart: what an out-of-range value gives depends on the
    widths. Integers that get ever narrower are cut to the same last bits.
    """
    source, target = x.dtype, root.dtype
    if keeps_every_value(source, middle):
        in_range = keeps_every_value(source, target)
        return source is middle or in_range or not (middle.is_inexact and target.is_integer)
    narrower = source.itemsize >= middle.itemsize >= target.itemsize
    return narrower and source.is_integer and middle.is_integer and target.is_integer


# -- movement ----------------------------------------------------------------------------------------------------------
def keeps_shape(x: Node, root: Node) -> bool:
    return same_shape(x.shape, root.shape)


def lies_as_well(x: Node, root: Node) -> bool:
    """Whether no product takes the values with other steps from where they were than from the copy: BLAS then rounds otherwise."""
    found = memory_of(x)
    steps = (strided_of(x) if found is None else found[1]).strides
    return all(map(same_dim, steps, strided_of(root).strides)) or not any(map(_is_product, _readers(root)))


def _readers(node: Node) -> Iterator[Node]:
    """What uses a value, or a view of it."""
    for user in node.users:
        yield user
        if view_of(user) is not None:
            yield from _readers(user)


def _is_product(node: Node) -> bool:
    return node.is_op("matmul") and node.dtype.is_inexact


def is_identity_permutation(axes: tuple[int, ...]) -> bool:
    return axes == tuple(range(len(axes)))


def is_identity_slice(x: Node, root: Node, starts: Shape, steps: Shape) -> bool:
    return same_shape(x.shape, root.shape) and all(map(_is_whole, root.shape, starts, steps))


def _is_whole(size: Any, start: Any, step: Any) -> bool:
    return same_dim(size, 0) or (same_dim(start, 0) and (same_dim(step, 1) or same_dim(size, 1)))


def compose_slices(x: Node, starts: Shape, steps: Shape, inner_starts: Shape, inner_steps: Shape, root: Node) -> Node:
    """x[a + s*i][b + t*i] is x[(a + s*b) + (s*t)*i]."""
    return root.graph.call(
        OPS["slice"],
        x,
        starts=tuple(a + s * b for a, s, b in zip(inner_starts, inner_steps, starts)),
        steps=tuple(s * t for s, t in zip(inner_steps, steps)),
        shape=root.shape,
    )


def compose_transposes(x: Node, inner: tuple[int, ...], outer: tuple[int, ...]) -> Node:
    return x.graph.call(OPS["transpose"], x, axes=tuple(inner[a] for a in outer))


def uniform(root: Node) -> Node | None:
    """A moved or cast constant is a constant of the new shape and dtype."""
    value = uniform_value(root)
    return None if value is None else filled(root, value)


def widths_are_zero(widths: tuple[tuple[Any, Any], ...]) -> bool:
    return all(same_dim(w, 0) for pair in widths for w in pair)


def is_zero(shift: Any) -> bool:
    return same_dim(shift, 0)


def is_one(repeats: Any) -> bool:
    return same_dim(repeats, 1)


def are_ones(reps: tuple[Any, ...]) -> bool:
    return all(map(is_one, reps))


def without_symbolic_steps(inner_steps: Shape, steps: Shape) -> bool:
    """Slices by symbolic steps are left alone: whether they are nonzero would have to be guarded."""
    return not any(isinstance(s, SymInt) for s in (*inner_steps, *steps))


# -- the rules ---------------------------------------------------------------------------------------------------------
_of_reals = partial(Rule, of_reals=True)  # (inf + 1j) * 1 is inf + nan j: each part meets both parts of the other

ARITHMETIC: list[Rule] = [
    _of_reals("mul-one", x * 1, x),
    _of_reals("mul-true", x * True, x),  # NumPy's multiplication of bools is "and"
    _of_reals("div-one", x / 1, x),
    _of_reals("sub-zero", x - 0, x),  # x - 0.0 keeps -0.0
    _of_reals("add-negative-zero", x + -0.0, x),
    _of_reals("add-zero", x + 0, x, when=is_integer),  # -0.0 + 0.0 is 0.0
    _of_reals("add-false", x + False, x),  # NumPy's addition of bools is "or"
    _of_reals("mul-minus-one", x * -1, -x),
    _of_reals("mul-zero", x * 0, lambda root: filled(root, 0), when=is_integer),  # inf*0 is nan, -1.0*0 is -0.0
    _of_reals("sub-self", x - x, lambda root: filled(root, 0), when=is_integer),  # inf-inf is nan
    _of_reals("sub-negative", x - -y, x + y),
    _of_reals("add-negative", x + -y, x - y),
    _of_reals("mul-negatives", -x * -y, x * y),
    _of_reals("div-negatives", -x / -y, x / y),
    _of_reals("negative-negative", op.negative(op.negative(x)), x),
    _of_reals("negative-sub", -(x - y), y - x, when=is_integer),  # -(1.0-1.0) is -0.0
    _of_reals("div-power-of-two", x / c, lambda x, c: _times_reciprocal(x, c), when=has_exact_reciprocal),
    _of_reals("floor-divide-one", x // 1, x, when=is_integer),
    _of_reals("remainder-one", x % 1, lambda root: filled(root, 0), when=is_integer),
    _of_reals("power-zero", x**0, lambda root: filled(root, 1)),  # nan**0 is 1
    _of_reals("power-negative-zero", x**-0.0, lambda root: filled(root, 1)),
    _of_reals("power-one", x**1, x),
    _of_reals("power-two", x**2, op.square(x)),  # as np.power does it
    _of_reals("power-int-zero", op.power_int(x, 0), lambda root: filled(root, 1)),
    _of_reals("power-int-one", op.power_int(x, 1), x),
    _of_reals("power-int-two", op.power_int(x, 2), op.square(x)),
    _of_reals("absolute-absolute", abs(abs(x)), abs(x)),
    _of_reals("absolute-negative", abs(-x), abs(x), when=is_float),
    _of_reals("absolute-square", abs(op.square(x)), op.square(x), when=is_float),  # integers wrap to negative squares
    _of_reals("square-negative", op.square(-x), op.square(x)),
    _of_reals("square-absolute", op.square(abs(x)), op.square(x)),
    _of_reals("sign-sign", op.sign(op.sign(x)), op.sign(x)),
]

def _always(value: Scalar) -> Callable[[Node], Node]:
    return lambda root: filled(root, value)


ALGEBRA: list[Rule] = [
    *(_of_reals(f"{name}-self", apply(name, x, x), x) for name, row in OPS.items() if row.idempotent),
    *(Rule(f"{name}-neutral", apply(name, x, e), x) for name, row in OPS.items() for e in row.neutral),
    *(Rule(f"{name}-absorbing", apply(name, x, e), _always(e)) for name, row in OPS.items() for e in row.absorbing),
]

ROUNDINGS = [name for name, row in OPS.items() if row.rounds]
ROUNDING: list[Rule] = [
    *(Rule(f"{f}-{g}", getattr(op, f)(getattr(op, g)(x)), getattr(op, g)(x))
      for f in ROUNDINGS for g in ROUNDINGS),
    *(Rule(f"{f}-integer", getattr(op, f)(x), x, when=without_nan) for f in ROUNDINGS if "i" in OPS[f].kinds),
    *(Rule(f"{f}-cast-integer", getattr(op, f)(op.cast(x)), lambda root: root.args[0], when=without_nan)
      for f in ROUNDINGS),
]

LOGIC: list[Rule] = [
    Rule("not-not", op.logical_not(op.logical_not(x)), x),
    Rule("not-equal", op.logical_not(op.equal(x, y)), op.not_equal(x, y)),  # true of NaN, too
    Rule("not-not-equal", op.logical_not(op.not_equal(x, y)), op.equal(x, y)),
    Rule("not-less", op.logical_not(op.less(x, y)), op.greater_equal(x, y), when=without_nan),
    Rule("not-less-equal", op.logical_not(op.less_equal(x, y)), op.greater(x, y), when=without_nan),
    Rule("not-greater", op.logical_not(op.greater(x, y)), op.less_equal(x, y), when=without_nan),
    Rule("not-greater-equal", op.logical_not(op.greater_equal(x, y)), op.less(x, y), when=without_nan),
    Rule("xor-true", op.logical_xor(x, True), op.logical_not(x)),
    Rule("xor-self", op.logical_xor(x, x), lambda root: filled(root, False)),
    Rule("equal-true", op.equal(x, True), x),
    Rule("equal-false", op.equal(x, False), op.logical_not(x)),
    Rule("not-equal-false", op.not_equal(x, False), x),
    Rule("not-equal-true", op.not_equal(x, True), op.logical_not(x)),
    Rule("equal-self", op.equal(x, x), lambda root: filled(root, True), when=without_nan),
    Rule("less-equal-self", op.less_equal(x, x), lambda root: filled(root, True), when=without_nan),
    Rule("greater-equal-self", op.greater_equal(x, x), lambda root: filled(root, True), when=without_nan),
    Rule("not-equal-self", op.not_equal(x, x), lambda root: filled(root, False), when=without_nan),
    Rule("less-self", op.less(x, x), lambda root: filled(root, False)),
    Rule("greater-self", op.greater(x, x), lambda root: filled(root, False)),
    Rule("not-equal-self-is-nan", op.not_equal(x, x), op.isnan(x), when=of_floats),
    Rule("where-true", op.where(True, x, y), x),
    Rule("where-false", op.where(False, x, y), y),
    Rule("where-same", op.where(z, x, x), x),
    Rule("where-not", op.where(op.logical_not(z), x, y), op.where(z, y, x)),
]

PARTS: list[Rule] = [
    Rule("real-complex", op.real(op.complex(x, y)), x),
    Rule("imag-complex", op.imag(op.complex(x, y)), y),
    Rule("complex-parts", op.complex(op.real(x), op.imag(x)), x),
    Rule("conjugate-conjugate", op.conjugate(op.conjugate(x)), x),
]

BITS: list[Rule] = [
    Rule("bitwise-xor-self", x ^ x, lambda root: filled(root, 0)),
    Rule("invert-invert", ~(~x), x),
]

CASTS: list[Rule] = [
    Rule("cast-same", op.cast(x), x, when=lambda x, root: x.dtype is root.dtype),
    Rule("cast-cast", op.cast(op.cast(x, dtype=attribute("middle"))), lambda x, root: _cast(x, root.dtype),
         when=casts_as_one),
    Rule("cast-constant", op.cast(c), lambda root: uniform(root)),
]

_shape, _starts, _steps = attribute("shape"), attribute("starts"), attribute("steps")

MOVEMENT: list[Rule] = [
    Rule("reshape-same", op.reshape(x), x, when=keeps_shape),
    Rule("reshape-reshape", op.reshape(op.reshape(x), shape=_shape), op.reshape(x, shape=_shape)),
    Rule("transpose-identity", op.transpose(x, axes=attribute("axes")), x, when=is_identity_permutation),
    Rule("transpose-transpose", op.transpose(op.transpose(x, axes=attribute("inner")), axes=attribute("outer")),
         compose_transposes),
    Rule("broadcast-same", op.broadcast_to(x), x, when=keeps_shape),
    Rule("broadcast-broadcast", op.broadcast_to(op.broadcast_to(x), shape=_shape), op.broadcast_to(x, shape=_shape)),
    Rule("slice-whole", op.slice(x, starts=_starts, steps=_steps), x, when=is_identity_slice),
    Rule("slice-slice",
         op.slice(op.slice(x, starts=attribute("inner_starts"), steps=attribute("inner_steps")),
                  starts=_starts, steps=_steps),
         compose_slices, when=without_symbolic_steps),
    Rule("concatenate-one", op.concatenate(x), x),
    Rule("pad-nothing", op.pad(x, widths=attribute("widths")), x, when=widths_are_zero),
    Rule("roll-nothing", op.roll(x, shift=attribute("shift")), x, when=is_zero),
    Rule("repeat-once", op.repeat(x, repeats=attribute("repeats")), x, when=is_one),
    Rule("tile-once", op.tile(x, reps=attribute("reps")), x, when=are_ones),
    Rule("copy", op.copy(x), x, when=lies_as_well),  # the driver keeps the copy that an output needs
    Rule("variable", op.variable(x), x),
    Rule("stop-gradient", op.stop_gradient(x), x),
    *(Rule(f"{name.replace('_', '-')}-constant", getattr(op, name)(c), lambda root: uniform(root))
      for name in ("reshape", "transpose", "broadcast_to", "slice", "roll", "repeat", "tile")),
]

EXACT: list[Rule] = [*ARITHMETIC, *ALGEBRA, *ROUNDING, *LOGIC, *PARTS, *BITS, *CASTS, *MOVEMENT]


def _times_reciprocal(x: Node, c: Scalar) -> Node:
    return x.graph.call(OPS["multiply"], x, scalar(x.graph, 1.0 / c, x.dtype))


def _cast(x: Node, dtype: DType) -> Node:
    return x if x.dtype is dtype else x.graph.call(OPS["cast"], x, dtype=dtype)


# -- the pass ----------------------------------------------------------------------------------------------------------
def simplify(graph: Graph, rules: Sequence[Rule] = EXACT) -> Graph:
    """Apply exact algebraic rules until none applies, and leave broadcasting to the ops that broadcast anyway.

    Needs: nothing.  Leaves: no rule of `rules` applicable; the same values bit for bit, in the same outputs.
    """
    rewrite(graph, rules)
    drop_broadcasts(graph)
    return graph


def drop_broadcasts(graph: Graph) -> Graph:
    """Elementwise ops broadcast by themselves: drop a broadcast_to among operands where the shape stays.

    Needs: nothing.  Leaves: the same values; fewer nodes.
    """
    for node in graph.nodes:
        if node.kind == "call_function" and isinstance(node.op.lowering, Elementwise):
            for position, arg in enumerate(node.args):
                if arg.is_op("broadcast_to"):
                    others = [a for k, a in enumerate(node.args) if k != position]
                    if _covers(arg.args[0], others, node.shape):
                        node.set_args((*node.args[:position], arg.args[0], *node.args[position + 1:]))
    graph.eliminate_dead_code()
    return graph


def _covers(narrow: Node, others: Sequence[Node], shape: Shape) -> bool:
    """Whether the shape still is the broadcast of all operands, known without a guard."""
    if not broadcasts_to(narrow.shape, shape):
        return False
    operands = (narrow, *others)
    return max(o.ndim for o in operands) == len(shape) and all(
        same_dim(dim, 1) or any(_has(o, k - len(shape), dim) for o in operands) for k, dim in enumerate(shape)
    )


def _has(node: Node, axis_from_right: int, dim: Any) -> bool:
    return node.ndim >= -axis_from_right and expr_of(node.shape[axis_from_right]) == expr_of(dim)


__all__ = ["EXACT", "drop_broadcasts", "keeps_every_value", "simplify"]
