"""Products of matrices by cuBLAS itself, for streams that are captured: CuPy's own functions refuse to call it then.

cuBLAS lies in columns: what it computes of the transposed matrices, in the other order, is the product in rows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from dynagraph.errors import BackendError

WORKSPACE = 32 << 20  # bytes, which NVIDIA advises for the largest devices
# by dtype: cudaDataType, cublasComputeType_t, and the type of the factors
_TYPES: dict[str, tuple[int, int, str]] = {
    "e": (2, 68, "f"), "f": (0, 68, "f"), "d": (1, 70, "d"), "F": (4, 68, "F"), "D": (5, 70, "D"),
}  # fmt: skip
_DEFAULT_ALGORITHM = -1
_Int, _Long, _Pointer = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
_MATRIX = (_Pointer, _Int, _Int, _Long)
_SIGNATURES = {
    "cublasSetStream_v2": (_Pointer, _Pointer),
    "cublasSetWorkspace_v2": (_Pointer, _Pointer, ctypes.c_size_t),
    "cublasGemmStridedBatchedEx": (
        _Pointer, _Int, _Int, _Int, _Int, _Int, _Pointer, *_MATRIX, *_MATRIX, _Pointer, *_MATRIX, _Int, _Int, _Int,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Matrices:
    """Matrices that lie in rows, or in columns (`is_transposed`): the first one's address, and distances in elements."""

    address: int
    is_transposed: bool
    leading: int
    step: int


@dataclass(frozen=True)
class Product:
    """`count` products of (rows, inner) by (inner, columns)."""

    rows: int
    columns: int
    inner: int
    count: int
    left: Matrices
    right: Matrices
    out: Matrices


def products(left: Any, right: Any, out: Any) -> Iterator[Product]:
    """What ``matmul(left, right, out=out)`` is for cuBLAS.

    left, right: [..., m, k] and [..., k, n], which broadcast; out: [..., m, n], not empty; all of one dtype.
    Raises BackendError for matrices that lie in neither rows nor columns.
    """
    batch = out.shape[:-2]
    sizes = out.shape[-2], out.shape[-1], left.shape[-1]
    steps = [_batch_steps(x, batch) for x in (left, right, out)]
    count, outer = (batch[-1], batch[:-1]) if batch else (1, ())
    for index in np.ndindex(*outer):
        parts = [
            _matrices(x, sum(k * s for k, s in zip(index, strides)), strides[-1] if batch else 0)
            for x, strides in zip((left, right, out), steps)
        ]
        yield Product(*sizes, count, *parts)


def _batch_steps(array: Any, batch: tuple[int, ...]) -> list[int]:
    """In elements; 0 where there is but one matrix for all."""
    own = [0 if n == 1 else s // array.itemsize for n, s in zip(array.shape[:-2], array.strides)]
    return [0] * (len(batch) - len(own)) + own


def _matrices(array: Any, offset: int, step: int) -> Matrices:
    (rows, columns), (down, right) = array.shape[-2:], (s // array.itemsize for s in array.strides[-2:])
    address = int(array.data.ptr) + offset * array.itemsize
    if array.size == 0:  # whose strides say nothing
        return Matrices(address, False, max(columns, 1), 0)
    if (columns == 1 or right == 1) and (rows == 1 or down >= columns):
        return Matrices(address, False, down if rows > 1 else max(columns, 1), step)
    if (rows == 1 or down == 1) and (columns == 1 or right >= rows):
        return Matrices(address, True, right if columns > 1 else max(rows, 1), step)
    raise BackendError(f"cuBLAS: matrices of shape {array.shape} with strides {array.strides} lie in neither rows nor columns")


class CuBlas:
    """The cuBLAS that CuPy has loaded, with the handle that CuPy has for each thread and device."""

    def __init__(self, cuda: Any, library: Any) -> None:
        """`library`: cuBLAS, or what is linked to it, as ctypes loads it."""
        self.cuda, self._library = cuda, library
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, _Int

    def multiply(self, left: Any, right: Any, out: Any, stream: int, workspace: Any) -> None:
        """``matmul(left, right, out=out)`` on a stream that may be capturing; `workspace`: an array.  Raises BackendError."""
        if out.dtype.char not in _TYPES or not left.dtype == right.dtype == out.dtype:
            raise BackendError(f"cuBLAS: products of {left.dtype} and {right.dtype} into {out.dtype} are not captured")
        kind, arithmetic, factor = _TYPES[out.dtype.char]
        one, zero = np.ones(1, factor), np.zeros(1, factor)
        handle = self.cuda.device.get_cublas_handle()
        self._call("cublasSetStream_v2", handle, stream)  # CuPy does the same before each call, which takes the workspace back
        self._call("cublasSetWorkspace_v2", handle, int(workspace.data.ptr), workspace.nbytes)
        for p in products(left, right, out):
            if p.out.is_transposed:
                raise BackendError(f"cuBLAS: a result of shape {out.shape} with strides {out.strides} does not lie in rows")
            if max(*astuple(p)[:4], p.left.leading, p.right.leading, p.out.leading) > np.iinfo(np.int32).max:
                raise BackendError(f"cuBLAS: {p} is too large")
            first, second, result = ((m.address, kind, m.leading, m.step) for m in (p.right, p.left, p.out))
            self._call(
                "cublasGemmStridedBatchedEx", handle, int(p.right.is_transposed), int(p.left.is_transposed),
                p.columns, p.rows, p.inner, one.ctypes.data, *first, *second, zero.ctypes.data, *result,
                p.count, arithmetic, _DEFAULT_ALGORITHM,
            )  # fmt: skip

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status != 0:
            raise BackendError(f"{function} failed: status {status}")


__all__ = ["WORKSPACE", "CuBlas", "Matrices", "Product", "products"]
