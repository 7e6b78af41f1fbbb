"""The array libraries that compiled functions take: NumPy, and CuPy if the user's program has imported it.

CuPy is never imported from here: what is not in ``sys.modules`` has made no array.  What the libraries' functions mean stands in
`frontend/numpy_door` and `doors/cupy.py`.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

OLDEST_CUPY = 14  # the first that promotes dtypes as NumPy 2 does
Place = tuple[int, int, int]  # device, address of the first byte, and the one after the last


@dataclass(frozen=True, eq=False)
class ArrayLibrary:
    """One library: `module` is the namespace of its functions."""

    name: str
    module: ModuleType

    @property
    def array_type(self) -> type:
        return self.module.ndarray  # type: ignore[no-any-return]

    @property
    def refusal(self) -> str:
        """Why its arrays are not followed; "" where they are."""
        return ""

    def is_writeable(self, array: Any) -> bool:
        return bool(array.flags.writeable)

    def is_aligned(self, array: Any) -> bool:
        return bool(array.flags.aligned)

    def device_of(self, array: Any) -> int:
        """The number of the device whose memory an array lies in; -1: the host's."""
        return -1

    def may_share_memory(self, one: Any, other: Any) -> bool:
        """By the extents of two arrays of this library: interleaved ones count as sharing."""
        return bool(np.may_share_memory(one, other))

    def place_of(self, array: Any) -> Place:
        """Where an array lies: its device, its lowest address, and the one after its highest byte."""
        return self.device_of(array), *_extent(array, array.ctypes.data)


class CuPy(ArrayLibrary):
    """Its arrays are always writeable and aligned, and say by pointer and device where they lie."""

    @property
    def refusal(self) -> str:
        version = str(vars(self.module).get("__version__", ""))
        major = re.match(r"\d+", version)
        if major is not None and int(major.group()) >= OLDEST_CUPY:
            return ""
        return f"CuPy {version}: arrays of CuPy {OLDEST_CUPY} and newer are followed"

    def is_writeable(self, array: Any) -> bool:
        return True

    def is_aligned(self, array: Any) -> bool:
        return True

    def device_of(self, array: Any) -> int:
        return int(array.data.device_id)

    def may_share_memory(self, one: Any, other: Any) -> bool:
        (device, low, high), (other_device, other_low, other_high) = self.place_of(one), self.place_of(other)
        return device == other_device and low < other_high and other_low < high

    def place_of(self, array: Any) -> Place:
        return self.device_of(array), *_extent(array, int(array.data.ptr))


def _extent(array: Any, address: int) -> tuple[int, int]:
    low = high = address
    if array.size == 0:
        return low, low
    for size, stride in zip(array.shape, array.strides):
        reach = (size - 1) * stride
        low, high = min(low, low + reach), max(high, high + reach)
    return low, high + int(array.itemsize)


NUMPY = ArrayLibrary("numpy", np)
_known: dict[str, CuPy] = {}


def cupy() -> CuPy | None:
    """CuPy, if the program has imported it."""
    module = sys.modules.get("cupy")
    if module is None:
        return None
    known = _known.get("cupy")
    if known is None or known.module is not module:
        if not isinstance(vars(module).get("ndarray"), type) or "get_array_module" not in vars(module):
            return None  # it is being imported
        known = _known["cupy"] = CuPy("cupy", module)
    return known


def library_of(kind: type) -> ArrayLibrary | None:
    """The library whose arrays are of exactly this type.

    >>> library_of(np.ndarray).name
    'numpy'
    """
    if kind is np.ndarray:
        return NUMPY
    found = cupy()
    return found if found is not None and kind is found.array_type else None


def is_array(value: Any) -> bool:
    """Whether an object is an array of one of the libraries, subclasses apart."""
    return library_of(type(value)) is not None


def named(name: str) -> ArrayLibrary:
    """The library of a graph."""
    found = NUMPY if name == NUMPY.name else cupy()
    if found is None or found.name != name:
        raise LookupError(f"array library {name!r} is not imported")
    return found


__all__ = ["NUMPY", "ArrayLibrary", "CuPy", "cupy", "is_array", "library_of", "named"]
