"""What NumPy's own Python code calls of its C core, where its functions are followed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.lib import array_utils

from dynagraph.frontend.numpy_door import creation, elementwise, indexing, linalg, operators, reductions, shapes  # noqa: F401
from dynagraph.frontend.numpy_door.arguments import as_index, flag, one_axis, only
from dynagraph.frontend.numpy_door.builder import Builder
from dynagraph.frontend.numpy_door.table import (
    Door,
    functions,
    numpy_function,
    numpy_method,
    operator_door,
    register_function,
    register_method,
)
from dynagraph.ir.graph import Node

METHODS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul", "<<": "lshift",
    ">>": "rshift", "&": "and", "|": "or", "^": "xor", "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge",
    "divmod": "divmod", "neg": "neg", "pos": "pos", "abs": "abs", "~": "invert",
}  # fmt: skip


@numpy_function(array_utils.normalize_axis_index)
def normalize_axis_index(b: Builder, axis: Any, ndim: Any, msg_prefix: Any = None) -> int:
    return one_axis(axis, as_index(ndim, "normalize_axis_index"), "normalize_axis_index")


@numpy_method("__array_wrap__", returns="array")
def array_wrap(b: Builder, a: Node, array: Any, context: Any = None, return_scalar: Any = False, /) -> Node:
    """Of plain arrays: the given array, as it is."""
    only(isinstance(array, Node) and not b.is_scalar(array), "__array_wrap__", "array", array, "an array")
    only(not (flag(return_scalar, "__array_wrap__") and array.ndim == 0), "__array_wrap__", "return_scalar", True, "of dimensions")
    return array


def _add_operators() -> None:
    """``x.__add__(y)`` is ``x + y`` for what operators take."""
    for symbol, name in METHODS.items():
        register_method(f"__{name}__", Door(f"ndarray.__{name}__", _as_method(name, operator_door(symbol).implementation)))


def _as_method(name: str, operator: Callable[..., Any]) -> Callable[..., Any]:
    def call(b: Builder, x: Node, /, *others: Any) -> Any:
        for other in others:
            alone = not b.is_scalar(x) or not isinstance(other, Node) or other.dtype is x.dtype
            only(alone, f"__{name}__", "other", other, "a NumPy scalar may leave it to one of another dtype (NotImplemented)")
        return operator(b, x, *others)

    return call


def _add_functions_in_c() -> None:
    """NumPy's code calls what is behind its public functions, too."""
    for function, door in functions():
        behind = getattr(function, "_implementation", None)
        if type(behind) is type(len):
            register_function(behind, door)


_add_operators()
_add_functions_in_c()

__all__: list[str] = []
