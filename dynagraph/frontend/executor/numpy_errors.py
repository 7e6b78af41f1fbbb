"""NumPy's error messages: found by calling NumPy on zeros of the same dtypes and shapes.

Only where the captured code may catch it; elsewhere the plain run raises it.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.doors.numpy.table import Door, functions, methods, operators
from dynagraph.frontend.executor.graph_state import GraphState
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import SymInt
from dynagraph.python_operators import BINARY, UNARY

LARGEST = 1 << 20  # elements of a stand-in
OPERATORS: dict[str, Callable[..., Any]] = {symbol: row.function for symbol, row in (BINARY | UNARY).items()}
OPERATORS |= {f"{symbol}=": row.in_place for symbol, row in BINARY.items() if row.in_place is not None}
OPERATORS |= {"getitem": operator.getitem, "setitem": operator.setitem, "contains": operator.contains}
OPERATORS |= {"len": len, "bool": bool, "not": operator.not_}


def numpy_error_of(ex: GraphState, door: Door, args: list[Any], kwargs: dict[str, Any]) -> Exception | None:
    """The error, or None where none is raised.  The sizes that it may tell are guarded from here on."""
    function = _callable_of(door)
    if function is None:
        return None
    try:
        given = [_stand_in(ex, a) for a in args]
        named = {k: _stand_in(ex, v) for k, v in kwargs.items()}
    except ValueError:
        return None
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(*given, **named)
    except (ValueError, IndexError, TypeError, OverflowError) as error:
        return error if type(error) in (ValueError, IndexError, TypeError, OverflowError) else None
    return None


def _callable_of(door: Door) -> Callable[..., Any] | None:
    for function, known in functions():
        if known is door:
            return function  # type: ignore[return-value]
    for symbol, known in operators().items():
        if known is door:
            return OPERATORS.get(symbol)
    for name, known in methods().items():
        if known is door:
            return getattr(np.ndarray, name, None)
    return None


def _stand_in(ex: GraphState, value: Any) -> Any:
    if isinstance(value, Node):
        shape = tuple(int(d) for d in value.shape)
        if int(np.prod(shape, dtype=object)) > LARGEST:
            raise ValueError("too large")
        made = np.zeros(shape, value.dtype.numpy)
        return made[()] if value in ex.scalars else made
    if isinstance(value, SymInt):
        return int(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_stand_in(ex, v) for v in value)
    if isinstance(value, slice):
        return slice(*(_stand_in(ex, v) for v in (value.start, value.stop, value.step)))
    return value
