"""NumPy's BLAS: addresses of its matrix routines, which generated code calls without Python.

NumPy's wheels bundle OpenBLAS with prefixed, 64-bit-integer symbols; other builds use other names.  Where none is found
generated code uses a plain loop for products, which is right and slow.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dynagraph._core import _dispatch

ROUTINES = (
    "sgemm", "dgemm", "cgemm", "zgemm", "sgemv", "dgemv", "cgemv", "zgemv", "sdot", "ddot", "cdotu_sub", "zdotu_sub",
    "ssyrk", "dsyrk", "csyrk", "zsyrk",
)  # fmt: skip
# (pattern of the symbols, whether their integers have 64 bits), tried in order
NAMINGS = (
    ("scipy_cblas_{}64_", True),
    ("cblas_{}64_", True),
    ("scipy_cblas_{}", False),
    ("cblas_{}", False),
)


@dataclass(frozen=True)
class Blas:
    """A BLAS that is loaded in this process."""

    path: str
    ilp64: bool  # its integers have 64 bits
    functions: dict[str, int]  # CBLAS routine -> address
    core: str  # the processor whose routines OpenBLAS has chosen; empty for another library

    def describe(self) -> str:
        core = f"routines for {self.core}; " if self.core else ""
        return f"{Path(self.path).name} ({core}{'64' if self.ilp64 else '32'}-bit integers; {', '.join(self.functions)})"


@functools.cache
def find_blas() -> Blas | None:
    """The BLAS of NumPy, or None where it cannot be reached."""
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue  # not a library of this platform
        for pattern, ilp64 in NAMINGS:
            functions = {r: _address(library, pattern.format(r)) for r in ROUTINES}
            found = {r: a for r, a in functions.items() if a is not None}
            if "sgemm" in found and "dgemm" in found:
                return Blas(path, ilp64, found, _core_of(library, pattern))
    return None


def use_blas() -> None:
    """Have generated code call it."""
    blas = find_blas()
    if blas is not None:
        _dispatch.set_blas(blas.functions, blas.ilp64)


def _core_of(library: ctypes.CDLL, pattern: str) -> str:
    name = pattern.replace("cblas_{}", "openblas_get_corename")
    if _address(library, name) is None:
        return ""
    function = getattr(library, name)
    function.restype = ctypes.c_char_p
    return (function() or b"").decode()


def _candidates() -> list[str]:
    """Libraries beside NumPy's package: there is one, and NumPy has loaded it already."""
    package = Path(np.__file__).parent
    folders = [package.parent / "numpy.libs", package / ".dylibs", package / ".libs"]
    return [
        str(p) for folder in folders if folder.is_dir() for p in sorted(folder.iterdir()) if "blas" in p.name.lower()
    ]


def _address(library: ctypes.CDLL, symbol: str) -> int | None:
    try:
        return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    except AttributeError:
        return None
