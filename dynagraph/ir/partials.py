"""Derivatives of scalar functions by their operands, as scalar expressions: the op table's `vjp` columns for single numbers."""

from __future__ import annotations

import functools

from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, var
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.ops import OPS, Creation, Elementwise
from dynagraph.ir.passes.backward import append_gradients
from dynagraph.ir.passes.decompose import decompose

_OPS = {"sub": "subtract", "mul": "multiply", "div": "divide", "neg": "negative", "abs": "absolute", "pow": "power"}
_OPS |= {"floordiv": "floor_divide"}
RESULT = "y"


@functools.cache
def partials(function: str, arity: int, dtype: DType) -> tuple[Expr | None, ...]:
    """The derivative of a scalar function by each operand, over variables ``x0``, ``x1``.. and ``y``, its value; None: zero.

    `function` is a key of `FUNCTIONS`, or the name of an op whose kernel is one.

    Raises GradientError where it has none.

    >>> from dynagraph.ir import dtypes, optable
    >>> [p.value for p in partials("mul", 2, dtypes.float64)]
    ['x1', 'x0']
    """
    graph = Graph("partials")
    operands = [graph.placeholder(f"x{k}", Meta(dtype, ())) for k in range(arity)]
    value = graph.call(OPS[_OPS.get(function, function)], *operands)
    one = graph.call(OPS["constant"], value=1, dtype=dtype)
    found = append_gradients(graph, [(value, one)], operands)
    kept = [value, *(g for g in found if g is not None)]
    graph.output(kept)
    decompose(graph)
    value, *rest = graph.outputs
    known = {x: var(x.name, dtype) for x in operands} | {value: var(RESULT, dtype)}
    gradients = iter(rest)
    return tuple(None if g is None else _simple(_expression(next(gradients), known)) for g in found)


def _expression(node: Node, known: dict[Node, Expr]) -> Expr:
    found = known.get(node)
    if found is None:
        lowering = node.op.lowering
        if isinstance(lowering, Creation):
            found = lowering.expr((), node.attrs, node.meta)
        else:
            assert isinstance(lowering, Elementwise), node
            found = lowering.expr(*(_expression(a, known) for a in node.args), **node.attrs)
        known[node] = found
    return found


def _simple(e: Expr) -> Expr:
    """Without products with one."""
    args = tuple(map(_simple, e.args))
    if e.op == "mul":
        for one, other in (args, args[::-1]):
            if one.op == "const" and one.value == 1:
                return other
    if e.op == "neg" and args[0].op == "const":
        return Expr("const", (), e.dtype, -args[0].value)  # type: ignore[operator]
    return e if args == e.args else Expr(e.op, args, e.dtype, e.value)
