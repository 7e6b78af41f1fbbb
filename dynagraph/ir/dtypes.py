"""The dtypes of the IR: what a graph node holds, and how each target spells it.

The IR never promotes: the front doors decide (NumPy's NEP 50, PyTorch's rules) and write casts.
"""

from __future__ import annotations

import importlib
import math
import sys
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class DType:
    """One element type.  Instances are singletons: compare with ``is`` or ``==``."""

    name: str  # as NumPy names it
    kind: str  # b(ool), i(nt), u(int), f(loat) or c(omplex): NumPy's kind, but for bfloat16, which is void to NumPy
    itemsize: int  # bytes
    ctype: str  # as C spells it
    suffix: str  # of the prelude's functions: dg_exp_f32

    @property
    def numpy(self) -> np.dtype:
        """NumPy's dtype; ImportError for bfloat16 where ml_dtypes, which has it, is not installed."""
        found = _NUMPY.get(self.name)
        return _bfloat16_of_numpy() if found is None else found

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_half(self) -> bool:
        """Floats of 16 bits: stored as their bits and computed as float32, of which each result is rounded."""
        return self.kind == "f" and self.itemsize == 2

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def is_inexact(self) -> bool:
        """Floating point, real or complex."""
        return self.kind in "fc"

    @property
    def real(self) -> DType:
        """The dtype of the parts of a complex number; of anything else its own."""
        return {"complex64": float32, "complex128": float64}.get(self.name, self)

    @property
    def complex(self) -> DType:
        """The dtype of complex numbers whose parts are of this one; of anything else its own."""
        return {"float32": complex64, "float64": complex128}.get(self.name, self)

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def is_bool(self) -> bool:
        return self.kind == "b"

    def __repr__(self) -> str:
        return self.name


bool_ = DType("bool", "b", 1, "uint8_t", "b8")
int8 = DType("int8", "i", 1, "int8_t", "i8")
int16 = DType("int16", "i", 2, "int16_t", "i16")
int32 = DType("int32", "i", 4, "int32_t", "i32")
int64 = DType("int64", "i", 8, "int64_t", "i64")
uint8 = DType("uint8", "u", 1, "uint8_t", "u8")
uint16 = DType("uint16", "u", 2, "uint16_t", "u16")
uint32 = DType("uint32", "u", 4, "uint32_t", "u32")
uint64 = DType("uint64", "u", 8, "uint64_t", "u64")
float16 = DType("float16", "f", 2, "uint16_t", "f16")  # its bits
bfloat16 = DType("bfloat16", "f", 2, "uint16_t", "bf16")  # of the package ml_dtypes
float32 = DType("float32", "f", 4, "float", "f32")
float64 = DType("float64", "f", 8, "double", "f64")
complex64 = DType("complex64", "c", 8, "float _Complex", "c64")
complex128 = DType("complex128", "c", 16, "double _Complex", "c128")

ALL: tuple[DType, ...] = (  # that NumPy has by itself
    bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, float32, float64, complex64, complex128,
)  # fmt: skip
KNOWN: tuple[DType, ...] = (*ALL, bfloat16)  # of which a graph may be
BY_NAME: dict[str, DType] = {d.name: d for d in KNOWN}
_NUMPY: dict[str, np.dtype] = {d.name: np.dtype(d.name) for d in ALL}
_FROM_NUMPY: dict[np.dtype, DType] = {_NUMPY[d.name]: d for d in ALL}


def from_numpy(dtype: object) -> DType | None:
    """The IR's dtype for anything ``np.dtype`` accepts; None where the IR has none (or it is byte-swapped).

    NumPy has two dtypes of 64-bit integers, of C's long and of its long long, which are equal and yet not the same: the IR has one.
    """
    given: np.dtype = np.dtype(dtype)  # type: ignore[call-overload]
    known = _FROM_NUMPY.get(given)
    if known is None:
        return _from_void(given) if given.kind == "V" else None
    return known if given.num == known.numpy.num else None


def _from_void(given: np.dtype) -> DType | None:
    """bfloat16 for that of ml_dtypes, which is not imported for it: who has such an array has imported it."""
    module = sys.modules.get("ml_dtypes")
    its = None if module is None else getattr(module, "bfloat16", None)
    if its is None or given.type is not its or given != _bfloat16_of_numpy():
        return None
    return _FROM_NUMPY.setdefault(given, bfloat16)


def _bfloat16_of_numpy() -> np.dtype:
    """ml_dtypes is optional, and imported where the IR's bfloat16 is asked what it is to NumPy."""
    try:
        module = importlib.import_module("ml_dtypes")
    except ImportError as error:
        raise ImportError(
            "bfloat16: NumPy has it from the package ml_dtypes, which is not installed; pip install 'dynagraph[bfloat16]'"
        ) from error
    return _NUMPY.setdefault("bfloat16", np.dtype(module.bfloat16))


def scalar_key(value: bool | int | float | complex) -> tuple[str, str, float, float]:
    """A hashable stand-in of a scalar, equal only for the same one: True is not 1, 0.0 is not -0.0, and NaNs have a sign."""
    signs = [math.copysign(1.0, part) if isinstance(part, float) else 1.0 for part in (value.real, value.imag)]
    return type(value).__name__, repr(value), signs[0], signs[1]
