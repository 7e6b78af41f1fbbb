"""PyTorch's dtypes, sizes and rules of promotion.

A `dtype` is a singleton with NumPy's dtype beside it.  Promotion is PyTorch's, not NumPy's: categories (bool, int, float, complex)
decide first, and tensors without dimensions and Python's numbers count only from a category that the others do not reach.
"""

from __future__ import annotations

import builtins
import copyreg
import importlib
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from dynagraph.markers import at_capture


@at_capture
def _load(of: dtype) -> np.dtype:
    """NumPy's dtype of bfloat16, of a library that is loaded when it is first asked for."""
    try:
        of._numpy = found = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    except ImportError:
        raise ImportError("torch.bfloat16 needs the package ml_dtypes: pip install 'dynagraph[bfloat16]'") from None
    _OF_NUMPY[found] = of
    return found


class dtype:
    """One element type; `torch.float32` and its kin are all there are."""

    __dynagraph_constant__ = True
    _numpy: np.dtype | None
    __slots__ = ("_numpy", "category", "is_complex", "is_floating_point", "is_signed", "itemsize", "legacy", "name", "other_name")

    def __init__(self, name: str, category: int, itemsize: int, legacy: str, other_name: str = "", numpy: Any = None):
        self.name, self.category, self.itemsize = name, category, itemsize
        self.legacy = legacy  # of the type that tensors of it are called by: torch.FloatTensor
        self.other_name = other_name
        self.is_floating_point, self.is_complex = category == _FLOAT, category == _COMPLEX
        self.is_signed = category >= _FLOAT or name.startswith("int")
        self._numpy = numpy

    @property
    def numpy(self) -> np.dtype:
        """NumPy's dtype; of bfloat16 that of ml_dtypes, ImportError where this is not installed."""
        found = self._numpy
        return _load(self) if found is None else found

    def to_real(self) -> dtype:
        """The dtype of the parts of a complex number; of a real dtype itself."""
        return _REAL.get(self, self)

    def to_complex(self) -> dtype:
        """The complex dtype with parts of this one."""
        if self.is_complex:
            return self
        try:
            return _COMPLEX_OF[self]
        except KeyError:
            raise RuntimeError(f"{self}: there is no complex dtype with parts of it; use torch.complex64") from None

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


copyreg.pickle(dtype, dtype.__reduce__)
_BOOL, _INT, _FLOAT, _COMPLEX = range(4)

bool = dtype("bool", _BOOL, 1, "BoolTensor", numpy=np.dtype(np.bool_))
uint8 = dtype("uint8", _INT, 1, "ByteTensor", numpy=np.dtype(np.uint8))
uint16 = dtype("uint16", _INT, 2, "UInt16Tensor", numpy=np.dtype(np.uint16))
uint32 = dtype("uint32", _INT, 4, "UInt32Tensor", numpy=np.dtype(np.uint32))
uint64 = dtype("uint64", _INT, 8, "UInt64Tensor", numpy=np.dtype(np.uint64))
int8 = dtype("int8", _INT, 1, "CharTensor", numpy=np.dtype(np.int8))
int16 = dtype("int16", _INT, 2, "ShortTensor", "short", np.dtype(np.int16))
int32 = dtype("int32", _INT, 4, "IntTensor", "int", np.dtype(np.int32))
int64 = dtype("int64", _INT, 8, "LongTensor", "long", np.dtype(np.int64))
float16 = dtype("float16", _FLOAT, 2, "HalfTensor", "half", np.dtype(np.float16))
bfloat16 = dtype("bfloat16", _FLOAT, 2, "BFloat16Tensor")
float32 = dtype("float32", _FLOAT, 4, "FloatTensor", "float", np.dtype(np.float32))
float64 = dtype("float64", _FLOAT, 8, "DoubleTensor", "double", np.dtype(np.float64))
complex64 = dtype("complex64", _COMPLEX, 8, "ComplexFloatTensor", "cfloat", np.dtype(np.complex64))
complex128 = dtype("complex128", _COMPLEX, 16, "ComplexDoubleTensor", "cdouble", np.dtype(np.complex128))

ALL = (
    bool, uint8, uint16, uint32, uint64, int8, int16, int32, int64, float16, bfloat16, float32, float64, complex64, complex128,
)  # fmt: skip
BARE = frozenset({uint16, uint32, uint64})  # PyTorch stores and casts these, and hardly computes with them
_REAL = {complex64: float32, complex128: float64}
_COMPLEX_OF = {float16: complex64, bfloat16: complex64, float32: complex64, float64: complex128}
_OF_PYTHON: dict[Any, Any] = {builtins.bool: bool, int: int64, float: float64, complex: complex128}
_OF_NUMPY = {d._numpy: d for d in ALL if d._numpy is not None}
_WIDTH = {float16: 0, bfloat16: 0, float32: 1, float64: 2}


def of_numpy(given: np.dtype) -> dtype:
    """The dtype of a NumPy array; TypeError where PyTorch has none."""
    found = _OF_NUMPY.get(given)
    if found is None:
        if given.name == "bfloat16":
            _OF_NUMPY[given] = bfloat16
            bfloat16._numpy = given
            return bfloat16
        native = given.newbyteorder("=")
        if native != given and native in _OF_NUMPY:
            raise ValueError(
                "given numpy array has byte order different from the native byte order. Conversion between byte orders is "
                "currently not supported."
            )
        for known, answer in list(_OF_NUMPY.items()):
            if known == given:  # longlong is int64 by another name
                _OF_NUMPY[given] = answer
                return answer
        raise TypeError(
            f"can't convert np.ndarray of type {_type_text(given)}. The only supported types are: float64, float32, float16, "
            "complex64, complex128, int64, int32, int16, int8, uint64, uint32, uint16, uint8, and bool."
        )
    return found


def _type_text(given: np.dtype) -> str:
    return f"numpy.{given.type.__name__}"


# -- the default ------------------------------------------------------------------------------------------------------

__dynagraph_mutable__ = ("_default",)  # captured code has it guarded
_default = float32


def get_default_dtype() -> dtype:
    """The dtype of Python's floats."""
    return _default


def set_default_dtype(d: dtype) -> None:
    """Set the dtype of Python's floats."""
    global _default
    if not isinstance(d, dtype):
        raise TypeError(f"invalid dtype object: only floating-point types are supported as the default type, got {d!r}")
    if not d.is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    _default = d


def of_number(value: Any) -> dtype:
    """The dtype of a Python number where nothing else decides."""
    if isinstance(value, np.generic):
        return of_numpy(value.dtype)
    if isinstance(value, _python_bool):
        return bool
    if isinstance(value, int):
        return int64
    if isinstance(value, float):
        return _default
    if isinstance(value, complex):
        return _default.to_complex()
    raise TypeError(f"expected a number, got {type(value).__name__}")


_python_bool = builtins.bool

# -- promotion --------------------------------------------------------------------------------------------------------


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """The smallest dtype to which both can be promoted."""
    if type1 is type2:
        return type1
    low, high = (type1, type2) if type1.category <= type2.category else (type2, type1)
    if high.category == _COMPLEX:
        part = low.to_real() if low.category >= _FLOAT else float32
        return complex128 if high is complex128 or part is float64 else complex64
    if high.category == _FLOAT:
        if low.category != _FLOAT:
            return high
        if _WIDTH[low] == _WIDTH[high]:
            return float32  # the two halves
        return low if _WIDTH[low] > _WIDTH[high] else high
    if low.category == _BOOL:
        return high
    if low in BARE or high in BARE:
        signed = low.is_signed + high.is_signed
        if signed == 0:
            return low if low.itemsize > high.itemsize else high
        raise RuntimeError(
            f"Promotion for uint16, uint32, uint64 types is not supported, attempted to promote {_name(type1)} and {_name(type2)}"
        )
    if uint8 in (low, high):
        other = high if low is uint8 else low
        return int16 if other is int8 else other
    return low if low.itemsize > high.itemsize else high


def _name(d: dtype) -> str:
    return {"bool": "Bool", "uint8": "Byte", "int8": "Char", "float16": "Half", "bfloat16": "BFloat16"}.get(d.name) or (
        d.legacy.removesuffix("Tensor")
    )


scalar_name = _name


def _combined(higher: dtype | None, lower: dtype | None) -> dtype | None:
    """Of two sets of operands, the first of which counts more."""
    if higher is None or lower is None:
        return higher or lower
    if higher.category == _COMPLEX:
        return higher
    if higher.category == _FLOAT:
        return higher.to_complex() if lower.category == _COMPLEX else higher
    if higher.category == _BOOL or lower.category >= _FLOAT:
        return promote_types(higher, lower)
    return higher


def result_dtype(operands: Iterable[Any]) -> dtype:
    """Of an operation of tensors and numbers.

    Tensors with dimensions decide; then those without, then numbers, each only from a higher category.
    """
    dimensioned = zero_dimensioned = number = None
    for operand in operands:
        array = getattr(operand, "_array", None)
        if array is None:
            known = _weak(operand)
            number = known if number is None else promote_types(number, known)
        elif array.ndim and not getattr(operand, "_is_number", False):
            own = _OF_NUMPY.get(array.dtype) or of_numpy(array.dtype)
            dimensioned = own if dimensioned is None else promote_types(dimensioned, own)
        else:
            own = _OF_NUMPY.get(array.dtype) or of_numpy(array.dtype)
            zero_dimensioned = own if zero_dimensioned is None else promote_types(zero_dimensioned, own)
    found = _combined(_combined(dimensioned, zero_dimensioned), number)
    assert found is not None
    return found


def _weak(value: Any) -> dtype:
    """Numbers count by their category only."""
    if isinstance(value, (_python_bool, np.bool_)):
        return bool
    if isinstance(value, (int, np.integer)):
        return int64
    if isinstance(value, (float, np.floating)):
        return _default
    if isinstance(value, (complex, np.complexfloating)):
        return _default.to_complex()
    raise TypeError(f"expected Tensor or Number, got {type(value).__name__}")


def result_type(tensor1: Any, tensor2: Any) -> dtype:
    """The dtype that arithmetic of these two gives."""
    return result_dtype((tensor1, tensor2))


def can_cast(from_: dtype, to: dtype) -> _python_bool:
    """Whether results of one dtype may be written to tensors of another: not to a lower category."""
    if from_.category == _COMPLEX or to.category == _COMPLEX:
        return to.category == _COMPLEX
    if from_.category == _FLOAT:
        return to.category == _FLOAT
    return not (from_.category == _INT and to.category == _BOOL)


@at_capture
def _limits(name: str) -> tuple[float, float, float, float, float]:
    if name == "bfloat16":
        info: Any = importlib.import_module("ml_dtypes").finfo("bfloat16")
    else:
        info = np.finfo(name)
    return float(info.eps), float(info.max), float(info.min), float(info.tiny), float(f"{float(info.resolution):.0e}")


class finfo:
    """Limits of a floating point dtype, or of the parts of a complex one."""

    def __init__(self, type: dtype | None = None):
        given = _default if type is None else _OF_PYTHON.get(type, type)
        if not isinstance(given, dtype) or given.category < _FLOAT:
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{given}'")
        part = given.to_real()
        self.bits, self.dtype = part.itemsize * 8, part.name
        self.eps, self.max, self.min, self.tiny, self.resolution = _limits(part.name)
        self.smallest_normal = self.tiny

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
            f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )


class iinfo:
    """Limits of an integer dtype."""

    def __init__(self, type: dtype):
        type = _OF_PYTHON.get(type, type)
        if not isinstance(type, dtype) or type.category >= _FLOAT:
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type}'")
        if type.category == _BOOL:
            raise TypeError("torch.bool is not supported by torch.iinfo")
        info = np.iinfo(type.numpy)
        self.bits, self.min, self.max, self.dtype = info.bits, int(info.min), int(info.max), type.name

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


class Size(tuple):
    """A shape: a tuple of ints."""

    __slots__ = ()

    def numel(self) -> int:
        """How many elements there are."""
        return math.prod(self)

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(str, self))}])"

    def __add__(self, other: Any) -> Size:  # type: ignore[override]
        return Size(tuple.__add__(self, tuple(other)))

    def __radd__(self, other: Any) -> Size:
        return Size(tuple(other) + tuple(self))

    def __mul__(self, count: Any) -> Size:  # type: ignore[override]
        return Size(tuple.__mul__(self, count))

    __rmul__ = __mul__  # type: ignore[assignment]

    def __getitem__(self, key: Any) -> Any:
        found = tuple.__getitem__(self, key)
        return Size(found) if isinstance(key, slice) else found
