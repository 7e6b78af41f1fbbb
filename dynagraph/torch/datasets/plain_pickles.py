"""Pickles of lists, dicts, text, numbers and NumPy's arrays: read without running anything that a pickle may name.

NumPy's own functions that a pickle of arrays calls are not called: stand-ins note what they are given, and an array is made of it
once that has been checked.
"""

from __future__ import annotations

import io
import math
import pickle
from typing import Any

import numpy as np

_DTYPES = frozenset({"b1", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"})


class _Dtype:
    """Of ``dtype("u1", 0, 1)``."""

    def __init__(self, name: Any = "", *flags: Any) -> None:
        self.name, self.order = name, "|"

    def __setstate__(self, state: Any) -> None:
        self.order = state[1]


class _Array:
    """Of ``_reconstruct(ndarray, (0,), b"b")``; its state is (version, shape, dtype, whether in Fortran's order, bytes)."""

    state: Any = None

    def __init__(self, *about: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Ndarray:
    """What stands for the class itself: it is never made."""


_KNOWN = {
    **{(module, "_reconstruct"): _Array for module in ("numpy.core.multiarray", "numpy._core.multiarray")},
    ("numpy", "ndarray"): _Ndarray, ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): lambda text, encoding: _latin(text),
}  # fmt: skip


def _latin(text: Any) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode("latin-1")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise ValueError(f"the pickle names {module}.{name}, which is not read: arrays, lists, dicts, text and numbers are")
        return _KNOWN[module, name]


def _made(array: _Array) -> np.ndarray:
    try:
        _, shape, dtype, fortran, data = array.state
        name, order = dtype.name, dtype.order if dtype.order in ("<", ">") else "="
        shape = tuple(map(int, shape))
        data = _latin(data)
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError("the pickle's arrays are not as NumPy writes them") from error
    if name not in _DTYPES or min(shape, default=0) < 0:
        raise ValueError(f"the pickle has an array of type {name!r} and shape {shape}, which is not read")
    made_type = np.dtype(name).newbyteorder(order)
    if math.prod(shape) * made_type.itemsize != len(data):
        raise ValueError(f"the pickle has an array of shape {shape} with {len(data)} bytes of {name}")
    return np.frombuffer(bytearray(data), made_type).reshape(shape, order="F" if fortran else "C")


def _plain(value: Any) -> Any:
    if isinstance(value, _Array):
        return _made(value)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    if isinstance(value, (_Dtype, _Ndarray)) or callable(value):
        raise ValueError("the pickle has something besides arrays, lists, dicts, text and numbers")
    return value


def loads(data: bytes) -> Any:
    """What a pickle holds, written by Python 2 or 3: bytes of Python 2 as text.  ValueError for anything that is not plain data."""
    try:
        found = _Unpickler(io.BytesIO(data), encoding="latin1").load()
    except ValueError:
        raise
    except Exception as error:  # a damaged pickle fails in many ways
        raise ValueError(f"not a pickle that can be read: {error}") from error
    return _plain(found)


__all__ = ["loads"]
