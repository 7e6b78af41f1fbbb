"""The row of what is called out: functions of the array namespace for which there is no kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dynagraph.errors import GradientError
from dynagraph.ir import dtypes
from dynagraph.ir.callouts import FunctionCall, Slot, selected
from dynagraph.ir.ops import OPS, REQUIRED, Library, define_op
from dynagraph.ir.shapes import Shape
from dynagraph.ir.terms import Differentiated, Term


def _eager(xp: Any, *operands: Any, call: FunctionCall, result: int | None, dtype: Any, shape: Any) -> Any:
    value = selected(call.run(xp, operands), result)
    if value.dtype != dtype.numpy or value.shape != tuple(shape):  # of what is known only with the data: run plainly
        raise ValueError(f"{call.function} gave {value.dtype}{list(value.shape)} where {dtype}{list(shape)} was expected")
    return value


# -- gradients: of functions of arrays alone ------------------------------------------------------------------------------
# Of matrices in the last two dimensions; formulas as in M. Giles, "Collected matrix derivative results for forward and
# reverse mode algorithmic differentiation", 2008, and for Cholesky factors I. Murray, arXiv:1602.07527.


def _called(function: str, *operands: Term, shape: Shape) -> Term:
    call = FunctionCall(function, tuple(map(Slot, range(len(operands)))))
    first, *others = operands
    return first.call("call_out", *others, call=call, result=None, dtype=first.dtype, shape=shape)


def _solve_vjp(d: Differentiated, g: Term) -> tuple[Term, Term]:
    is_vector = d.y.ndim == 1
    columns, out = (x.reshape((*x.shape, 1)) if is_vector else x for x in (g, d.out))
    by_right = _called("linalg.solve", d.x.transposed, columns, shape=columns.shape)
    by_matrix = -by_right.call("matmul", out.transposed)
    return by_matrix, by_right.reshape(by_right.shape[:-1]) if is_vector else by_right


def _inv_vjp(d: Differentiated, g: Term) -> tuple[Term]:
    inverse = d.out.transposed
    return (-inverse.call("matmul", g).call("matmul", inverse),)


def _times_inverse(d: Differentiated, factor: Term) -> Term:
    """A number for each matrix, times its transposed inverse: the derivative of the determinant's logarithm."""
    return factor.reshape((*factor.shape, 1, 1)) * _called("linalg.inv", d.x, shape=d.x.shape).transposed


def _slogdet_vjp(d: Differentiated, g: Term) -> tuple[Term | None]:
    return (None if d.attrs["result"] == 0 else _times_inverse(d, g),)


def _cholesky_vjp(d: Differentiated, g: Term) -> tuple[Term]:
    inverse = _called("linalg.inv", d.out, shape=d.out.shape)
    middle = _lower_half(d.out.transposed.call("matmul", g))
    by_factor = inverse.transposed.call("matmul", middle).call("matmul", inverse)
    return ((by_factor + by_factor.transposed) * 0.5,)


def _lower_half(x: Term) -> Term:
    """What lies below the diagonal, and half of that."""
    n = x.shape[-1]
    places = Term(x.node.graph.call(OPS["iota"], shape=(n,), start=0, step=1, dtype=dtypes.int64))
    rows, columns = places.reshape((n, 1)), places.reshape((1, n))
    return x.where(rows.call("greater", columns), (x * 0.5).where(rows.equals(columns), 0))


_GRADIENTS: dict[str, Callable[[Differentiated, Term], Sequence[Term | None]]] = {
    "linalg.solve": _solve_vjp,
    "linalg.inv": _inv_vjp,
    "linalg.det": lambda d, g: (_times_inverse(d, g * d.out),),
    "linalg.slogdet": _slogdet_vjp,
    "linalg.cholesky": _cholesky_vjp,
}


def _vjp(d: Differentiated, g: Term) -> Sequence[Term | None]:
    call: FunctionCall = d.attrs["call"]
    known = _GRADIENTS.get(call.function)
    if known is None or call.args != tuple(map(Slot, range(len(d.operands)))) or call.kwargs:
        raise GradientError(
            f"{d.node.location or d.node.name}: no gradient passes through {call}; the functions that are called out and have one "
            f"are {', '.join(_GRADIENTS)}, without further arguments"
        )
    return known(d, g)


# what a call's values are depends on the function: who makes the node says dtype and shape
define_op(
    "call_out",
    arity=None,
    attrs={"call": REQUIRED, "result": None, "dtype": REQUIRED, "shape": REQUIRED},
    dtype=lambda metas, attrs: attrs["dtype"],
    shape=lambda metas, attrs: attrs["shape"],
    eager=_eager,
    lowering=Library("call_out"),
    vjp=_vjp,
    may_raise=True,
    doc="a function of NumPy's, called as it is; where it raises, the program refuses the call, which then runs plainly",
)
