"""Operators of arrays: the ufuncs, with what Python's operators add to them.  Writing in place is not captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.frontend.numpy_door.arguments import numpy_error
from dynagraph.frontend.numpy_door.builder import Builder, Unsupported
from dynagraph.frontend.numpy_door.elementwise import apply, multiply_operator, power_operator
from dynagraph.frontend.numpy_door.linalg import matmul
from dynagraph.frontend.numpy_door.table import operator
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import Dim, numel

_BINARY: dict[str, np.ufunc] = {
    "+": np.add,
    "-": np.subtract,
    "/": np.divide,
    "//": np.floor_divide,
    "%": np.remainder,
    "divmod": np.divmod,
    "<<": np.left_shift,
    ">>": np.right_shift,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_UNARY: dict[tuple[str, ...], np.ufunc] = {
    ("neg",): np.negative,
    ("pos",): np.positive,
    ("abs",): np.absolute,
    ("~", "invert"): np.invert,
}


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


for _symbol, _ufunc in _BINARY.items():
    operator(_symbol)(_binary(_ufunc))
    if not _symbol.endswith("=") and _symbol not in ("<", ">", "divmod"):
        operator(f"{_symbol}=")(_in_place(f"{_symbol}=", _binary(_ufunc)))
for _symbols, _ufunc in _UNARY.items():
    for _symbol in _symbols:
        operator(_symbol)(_unary(_ufunc))
for _symbol, _function in (("*", multiply_operator), ("**", power_operator), ("@", matmul)):
    operator(_symbol)(_function)
    operator(f"{_symbol}=")(_in_place(f"{_symbol}=", _function))


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
