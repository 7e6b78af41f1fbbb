"""Attributes of arrays, functions that ask about arrays, and methods that the graph cannot hold."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.doors.numpy.arguments import numpy_error, order_named
from dynagraph.doors.numpy.builder import Builder, Unsupported, WeakFloat, default_dtype, is_weak
from dynagraph.doors.numpy.elementwise import strong
from dynagraph.doors.numpy.movement import permute, read_only
from dynagraph.doors.numpy.table import Door, attribute, numpy_function, numpy_method, register_function, register_method
from dynagraph.errors import ShapeError
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import Dim, Shape, SymInt, broadcast_shapes, numel

# -- attributes -------------------------------------------------------------------------------------------------------


@attribute("shape")
def _shape(b: Builder, x: Node) -> Shape:
    return x.shape


@attribute("ndim")
def _ndim(b: Builder, x: Node) -> int:
    return x.ndim


@attribute("size")
def _size(b: Builder, x: Node) -> Dim:
    return numel(x.shape)


@attribute("dtype")
def _dtype(b: Builder, x: Node) -> np.dtype:
    return x.dtype.numpy


@attribute("itemsize")
def _itemsize(b: Builder, x: Node) -> int:
    return x.dtype.itemsize


@attribute("nbytes")
def _nbytes(b: Builder, x: Node) -> Dim:
    return numel(x.shape) * x.dtype.itemsize


@attribute("T")
def _transposed(b: Builder, x: Node) -> Node:
    return permute(b, x, range(x.ndim)[::-1])


@attribute("mT")
def _matrix_transposed(b: Builder, x: Node) -> Node:
    if x.ndim < 2:
        raise numpy_error("mT: takes arrays of 2 or more dimensions")
    return permute(b, x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


@attribute("device")
def _device(b: Builder, x: Node) -> str:
    return "cpu"


@numpy_method("to_device", returns="same")
def _to_device(b: Builder, x: Node, device: Any, stream: Any) -> Node:
    if device != "cpu" or stream is not None:
        raise numpy_error("to_device: the only device is 'cpu'")
    return x


@attribute("real")
def _real(b: Builder, x: Node) -> Node:
    return b.call("real", x) if x.dtype.is_complex else x


@attribute("imag")
def _imag(b: Builder, x: Node) -> Node:
    """Of real numbers NumPy gives zeros that are read-only, in Fortran order where the array is."""
    if x.dtype.is_complex:
        return b.call("imag", x)
    zeros = b.call("full", shape=x.shape, value=0, dtype=x.dtype)
    return zeros if b.is_scalar(x) else read_only(b, b.lay(zeros, order_named(b, "A", x, "imag")))


def _refused(name: str, reason: str, detail: str) -> None:
    def get(b: Builder, x: Node) -> None:
        raise Unsupported(reason, f"{name}: {detail}")

    attribute(name)(get)


@attribute("strides")
def _strides(b: Builder, x: Node) -> Shape:
    if b.is_scalar(x) or any(d < 2 for d in x.shape):
        raise Unsupported("UNSUPPORTED_FUNCTION", "strides: along an axis of one element, or none, they mean nothing, and may vary")
    return tuple(s * x.dtype.itemsize for s in b.layout(x).strides)


for _name in ("data", "base", "ctypes", "__array_interface__", "__array_struct__"):
    _refused(
        _name,
        "UNSUPPORTED_FUNCTION",
        "where the elements are is not part of a captured graph; ask outside the compiled function",
    )
_refused("flat", "UNSUPPORTED_FUNCTION", "is not captured; use reshape(-1)")

# -- questions --------------------------------------------------------------------------------------------------------


@numpy_function(np.result_type)
def _result_type(b: Builder, *arrays_and_dtypes: Any) -> np.dtype:
    return np.result_type(*(_typed(b, x) for x in arrays_and_dtypes))


def _typed(b: Builder, x: Any) -> Any:
    return x.dtype.numpy if isinstance(x, Node) else x


@numpy_function(np.can_cast)
def _can_cast(b: Builder, from_: Any, to: Any, casting: Any) -> bool:
    return np.can_cast(_typed(b, from_), to, casting)


@numpy_function(np.isscalar)
def _isscalar(b: Builder, element: Any) -> bool:
    return is_weak(element) or (b.is_scalar(element) if isinstance(element, Node) else np.isscalar(element))


@numpy_function(np.iscomplexobj)
def _iscomplexobj(b: Builder, x: Any) -> bool:
    return _is_complex(b, x)


@numpy_function(np.isrealobj)
def _isrealobj(b: Builder, x: Any) -> bool:
    return not _is_complex(b, x)


def _is_complex(b: Builder, x: Any) -> bool:
    given = strong(b, x)
    return given.dtype.is_complex if isinstance(given, Node) else default_dtype(given).is_complex


@numpy_function(np.real, returns="same")
def _real_part(b: Builder, val: Any) -> Any:
    """Of Python numbers NumPy gives their own attribute: a Python number."""
    if isinstance(val, WeakFloat):
        return WeakFloat(b.call("real", val.node)) if val.node.dtype.is_complex else val
    return val if isinstance(val, SymInt) else val.real if is_weak(val) else _real(b, b.as_node(val))


@numpy_function(np.imag, returns="same")
def _imaginary_part(b: Builder, val: Any) -> Any:
    if isinstance(val, WeakFloat):
        return WeakFloat(b.call("imag", val.node)) if val.node.dtype.is_complex else 0.0
    return 0 if isinstance(val, SymInt) else val.imag if is_weak(val) else _imag(b, b.as_node(val))


@numpy_function(np.isreal)
def _isreal(b: Builder, x: Any) -> Any:
    """``np.imag(x) == 0``, as NumPy has it: of Python numbers a Python bool."""
    if isinstance(x, WeakFloat) and x.node.dtype.is_complex:
        raise Unsupported("DATA_DEPENDENT", "isreal: a Python bool that depends on a number that changes")
    part = _imaginary_part(b, b.as_node(x) if isinstance(x, (list, tuple)) else x)
    return b.call("equal", part, b.scalar(0, part.dtype)) if isinstance(part, Node) else part == 0


@numpy_function(np.iscomplex)
def _iscomplex(b: Builder, x: Any) -> Node:
    node = b.as_node(x)
    if not node.dtype.is_complex:
        return b.call("full", shape=node.shape, value=False, dtype=dtypes.bool_)
    part = b.call("imag", node)
    return b.call("not_equal", part, b.scalar(0, part.dtype))


def _of_python_values(function: Callable[..., Any]) -> Callable[..., Any]:
    """Functions of dtypes and Python values alone: NumPy itself answers."""

    def door(b: Builder, *args: Any, **kwargs: Any) -> Any:
        if function is np.min_scalar_type and args and isinstance(args[0], Node) and args[0].ndim:
            return args[0].dtype.numpy
        if any(isinstance(x, Node) for x in (*args, *kwargs.values())):
            raise Unsupported("UNSUPPORTED_ARGUMENT", f"{function.__name__}: of an array is not captured; use its dtype")
        return function(*args, **kwargs)

    return door


for _function in (
    np.dtype,
    np.finfo,
    np.iinfo,
    np.issubdtype,
    np.promote_types,
    np.min_scalar_type,
):
    register_function(_function, Door(_function.__name__, _of_python_values(_function)))


@numpy_function(np.broadcast_shapes)
def _broadcast_shapes(b: Builder, *args: Any) -> Any:
    shapes = [arg if isinstance(arg, tuple) else (arg,) for arg in args]
    if any(isinstance(dim, SymInt) for shape in shapes for dim in shape):
        with contextlib.suppress(ShapeError):  # NumPy says what is wrong, of the sizes at hand
            return broadcast_shapes(*shapes)
    return np.broadcast_shapes(*args)


# -- methods that are refused by name ---------------------------------------------------------------------------------

_DATA = "gives Python values that depend on data; keep to arrays"
_WRITE = "writes into the array; build a new one"


def _refuse_method(name: str, reason: str, detail: str) -> None:
    def door(b: Builder, x: Node, *args: Any, **kwargs: Any) -> None:
        raise Unsupported(reason, f"{name}: {detail}")

    register_method(name, Door(f"ndarray.{name}", door))


for _name in (
    "item",
    "tolist",
    "tobytes",
    "dump",
    "dumps",
    "tofile",
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
):
    _refuse_method(_name, "DATA_DEPENDENT", _DATA)
for _name in (
    "fill",
    "sort",
    "put",
    "partition",
    "resize",
    "setfield",
    "byteswap",
    "__setitem__",
    "__iadd__",
):
    _refuse_method(_name, "IN_PLACE_WRITE", _WRITE)
for _name in ("getfield", "setflags"):
    _refuse_method(_name, "UNSUPPORTED_FUNCTION", "is not captured")

__all__: list[str] = []
