"""Operators of arrays: the ufuncs, with what Python's operators add to them.  Writing in place is not captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.doors.numpy.arguments import numpy_error
from dynagraph.doors.numpy.builder import Builder, Unsupported
from dynagraph.doors.numpy.elementwise import apply, multiply_operator, power_operator
from dynagraph.doors.numpy.linalg import matmul
from dynagraph.doors.numpy.table import operator
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import Dim, numel
from dynagraph.python_operators import BINARY, UNARY


def _binary(ufunc: np.ufunc) -> Callable[..., Any]:
    return lambda b, left, right: apply(b, ufunc, left, right)


def _unary(ufunc: np.ufunc) -> Callable[..., Any]:
    return lambda b, operand: apply(b, ufunc, operand)


def _in_place(symbol: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """On NumPy scalars ``x += y`` binds a new value; on arrays it writes."""

    def door(b: Builder, left: Any, right: Any) -> Any:
        if isinstance(left, Node) and not b.is_scalar(left):
            raise Unsupported("IN_PLACE_WRITE", f"{symbol} writes into an array; write x = x {symbol[:-1]} y")
        return plain(b, left, right)

    return door


_OWN: dict[str, Callable[..., Any]] = {"*": multiply_operator, "**": power_operator, "@": matmul}
for _symbol, _row in BINARY.items():
    _door = _OWN.get(_symbol) or _binary(_row.ufunc)
    operator(_symbol)(_door)
    if _row.in_place is not None:
        operator(f"{_symbol}=")(_in_place(f"{_symbol}=", _door))
for _symbol, _row in UNARY.items():
    operator(_symbol)(_unary(_row.ufunc))


@operator("setitem")
@operator("delitem")
def _write(b: Builder, *args: Any) -> None:
    raise Unsupported("IN_PLACE_WRITE", "x[...] = value writes into an array; build the result with np.where or np.concatenate")


@operator("bool")
@operator("not")
def _truth(b: Builder, x: Node) -> None:
    """Known where there are no elements to look at; else it is an error of NumPy's, or data."""
    if numel(x.shape) != 1:
        raise Unsupported("AMBIGUOUS_TRUTH", f"the truth of an array of shape {x.shape} is ambiguous; use np.any or np.all")
    raise Unsupported("DATA_DEPENDENT", "the branch depends on the value of an array; write it as np.where(condition, a, b)")


@operator("contains")
def _contains(b: Builder, x: Node, value: Any) -> None:
    raise Unsupported("DATA_DEPENDENT", "`value in x` depends on the values of an array; use np.any(x == value)")


@operator("len")
def _len(b: Builder, x: Node) -> Dim:
    if x.ndim == 0:
        raise numpy_error("len: of a 0-d array")
    return x.shape[0]


__all__: list[str] = []
