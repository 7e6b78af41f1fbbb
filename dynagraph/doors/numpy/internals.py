"""NumPy's internal functions, for following NumPy's own Python code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.lib import array_utils

from dynagraph.doors.numpy import operators  # noqa: F401  (whose rows are read below)
from dynagraph.doors.numpy.arguments import as_index, flag, one_axis, only
from dynagraph.doors.numpy.builder import Builder
from dynagraph.doors.numpy.table import (
    Door,
    numpy_function,
    numpy_method,
    operator_door,
    register_method,
)
from dynagraph.ir.graph import Node
from dynagraph.python_operators import BINARY, UNARY


@numpy_function(array_utils.normalize_axis_index)
def normalize_axis_index(b: Builder, axis: Any, ndim: Any, msg_prefix: Any = None) -> int:
    return one_axis(axis, as_index(ndim, "normalize_axis_index"), "normalize_axis_index")


@numpy_method("__array_wrap__", returns="array")
def array_wrap(b: Builder, a: Node, array: Any, context: Any, return_scalar: Any = False) -> Node:
    """Of plain arrays: the given array, as it is."""
    only(isinstance(array, Node) and not b.is_scalar(array), "__array_wrap__", "array", array, "an array")
    only(not (flag(return_scalar, "__array_wrap__") and array.ndim == 0), "__array_wrap__", "return_scalar", True, "of dimensions")
    return array


def _add_operators() -> None:
    """``x.__add__(y)`` is ``x + y`` for what operators take."""
    for row in (BINARY | UNARY).values():
        register_method(row.method, Door(f"ndarray.{row.method}", _as_method(row.method, operator_door(row.symbol).implementation)))


def _as_method(name: str, operator: Callable[..., Any]) -> Callable[..., Any]:
    def call(b: Builder, x: Node, /, *others: Any) -> Any:
        for other in others:
            alone = not b.is_scalar(x) or not isinstance(other, Node) or other.dtype is x.dtype
            only(alone, name, "other", other, "a NumPy scalar may leave it to one of another dtype (NotImplemented)")
        return operator(b, x, *others)

    return call


_add_operators()

__all__: list[str] = []
