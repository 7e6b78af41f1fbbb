"""Arrays of NumPy's that code of dynagraph.torch makes in a capture of CuPy's arrays: ranges, tables of places, numbers.

They depend on no input.  NumPy itself computes with them at capture, and ``cupy.asarray`` makes constants of the program of them.
None is a result: the program could give it to nobody, as its graph is of the other library's arrays.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.frontend.executor.exceptions import refuse, throw
from dynagraph.frontend.executor.executor import Executor, Frame
from dynagraph.frontend.kinds import values
from dynagraph.frontend.kinds.values import Array, Const, HostArray, Slice, Value
from dynagraph.ir.shapes import SymInt

MOST = 1 << 16  # elements: as many as a constant of the program may have
UNKNOWN = object()


def holds_host_array(value: Any) -> bool:
    """Whether a value is such an array, or holds one; scalars of NumPy's may stand among arrays of CuPy's."""
    if isinstance(value, HostArray):
        return isinstance(value.array, np.ndarray)
    return isinstance(value, values.Sequence) and any(map(holds_host_array, value.items))


def known(ex: Executor, value: Any) -> Any:
    """The Python object that a value stands for, sizes as they are now; UNKNOWN where it depends on inputs."""
    value = ex.resolve(value)
    if isinstance(value, HostArray):
        return value.array
    if isinstance(value, Const):
        return int(value.value) if isinstance(value.value, SymInt) else value.value
    if isinstance(value, Array) and value.is_scalar and value.node.is_op("constant"):
        return value.node.dtype.numpy.type(value.node.attrs["value"])
    if isinstance(value, Slice):
        found = [known(ex, part) for part in value.parts]
        return UNKNOWN if any(part is UNKNOWN for part in found) else slice(*found)
    if isinstance(value, values.Sequence) and value.kind in (list, tuple):
        found = [known(ex, part) for part in value.items]
        return UNKNOWN if any(part is UNKNOWN for part in found) else value.kind(found)
    return UNKNOWN


def evaluated(ex: Executor, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What NumPy gives for values that are known; UNKNOWN where one is not."""
    given, named = [known(ex, a) for a in args], {name: known(ex, value) for name, value in kwargs.items()}
    if any(v is UNKNOWN for v in (*given, *named.values())):
        return UNKNOWN
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):  # captured code is quiet
            warnings.simplefilter("ignore")
            return function(*given, **named)
    except Exception as error:  # which captured code may handle
        return throw(error)


def value_of(ex: Executor, result: Any) -> Value:
    """What NumPy gave, as a value."""
    if isinstance(result, (np.ndarray, np.generic)):
        if result.size > MOST:
            refuse("UNSUPPORTED_VALUE", f"an array of NumPy's of {result.size} elements, as a constant among CuPy's")
        return HostArray(result, ex.steps)
    if type(result) in (tuple, list):
        return values.Sequence(type(result), [value_of(ex, r) for r in result])
    return ex.constant(result)


def call_on_host(frame: Frame, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Value | None:
    """A call of NumPy's by the package's code, of or for arrays on the host; None for any other call."""
    ex = frame.ex
    resolved = [ex.resolve(v) for v in (*args, *kwargs.values())]
    among, of_scalars = any(map(holds_host_array, resolved)), any(isinstance(v, HostArray) for v in resolved)
    if not among and not frame.is_own:  # it works on the arrays of its caller
        return None
    result = evaluated(ex, function, args, kwargs)
    if result is UNKNOWN:
        return refuse("MIXED_LIBRARIES", f"np.{getattr(function, '__name__', function)} of both") if among else None
    parts = result if type(result) in (tuple, list) else (result,)
    makes_arrays = any(isinstance(part, np.ndarray) for part in parts)
    return value_of(ex, result) if among or of_scalars or makes_arrays else None


def constant_of(ex: Executor, value: HostArray) -> Value:
    """A new array of the program's library that holds the same."""
    whole = ex.builder.graph.constant(np.ascontiguousarray(value.array).reshape(value.array.shape))
    return ex.from_door(ex.builder.call("copy", whole), "array")


__all__ = ["UNKNOWN", "call_on_host", "constant_of", "evaluated", "holds_host_array", "value_of"]
