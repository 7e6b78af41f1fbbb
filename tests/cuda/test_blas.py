"""What cuBLAS is asked for where a product of matrices is captured: the calls are done on the host, as its manual has them."""

from __future__ import annotations

import ctypes
import types
from typing import Any

import numpy as np
import pytest

from dynagraph.backends.cuda.blas import CuBlas
from dynagraph.errors import BackendError
from tests.cupy_arrays import stand_in

DTYPES = {2: np.float16, 0: np.float32, 1: np.float64, 4: np.complex64, 5: np.complex128}  # by cudaDataType
ARITHMETIC = {2: 68, 0: 68, 1: 70, 4: 68, 5: 70}  # cublasComputeType_t: of float32 or float64
FACTORS = {2: np.float32, 0: np.float32, 1: np.float64, 4: np.complex64, 5: np.complex128}
HANDLE, STREAM = 0xAB, 0xCD


def columns(address: int, dtype: Any, rows: int, columns: int, leading: int, step: int, count: int) -> np.ndarray:
    """Matrices that lie in columns, [count, rows, columns]."""
    assert leading >= max(1, rows)
    size = np.dtype(dtype).itemsize
    reach = (step * (count - 1) + leading * (columns - 1) + rows) * size if count and rows and columns else 0
    memory = (ctypes.c_char * reach).from_address(address)
    return np.ndarray((count, rows, columns), dtype, memory, 0, (step * size, size, leading * size))


class OnTheHost:
    """The three functions; `status` is what the product gives."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.status = 0

        def set_stream(handle: int, stream: int) -> int:
            assert (handle, stream) == (HANDLE, STREAM)
            self.calls.append("stream")
            return 0

        def set_workspace(handle: int, address: int, nbytes: int) -> int:
            assert handle == HANDLE and address % 256 == 0 and nbytes == 4096
            self.calls.append("workspace")
            return 0

        def multiply(
            handle: int, trans_a: int, trans_b: int, m: int, n: int, k: int, alpha: int,
            a: int, type_a: int, lda: int, step_a: int, b: int, type_b: int, ldb: int, step_b: int,
            beta: int, c: int, type_c: int, ldc: int, step_c: int, count: int, arithmetic: int, algorithm: int,
        ) -> int:  # fmt: skip
            assert handle == HANDLE and type_a == type_b == type_c and arithmetic == ARITHMETIC[type_a] and algorithm == -1
            dtype = DTYPES[type_a]
            one, zero = (columns(address, FACTORS[type_a], 1, 1, 1, 0, 1)[0, 0, 0] for address in (alpha, beta))
            assert (one, zero) == (1, 0)
            left = columns(a, dtype, *((k, m) if trans_a else (m, k)), lda, step_a, count)
            right = columns(b, dtype, *((n, k) if trans_b else (k, n)), ldb, step_b, count)
            left, right = left.swapaxes(1, 2) if trans_a else left, right.swapaxes(1, 2) if trans_b else right
            columns(c, dtype, m, n, ldc, step_c, count)[...] = left @ right
            self.calls.append("multiply")
            return self.status

        self.cublasSetStream_v2, self.cublasSetWorkspace_v2 = set_stream, set_workspace
        self.cublasGemmStridedBatchedEx = multiply


@pytest.fixture
def library() -> OnTheHost:
    stand_in.module()
    return OnTheHost()


def multiplied(library: OnTheHost, left: np.ndarray, right: np.ndarray, out: np.ndarray) -> np.ndarray:
    handles = types.SimpleNamespace(get_cublas_handle=lambda: HANDLE)
    blas = CuBlas(types.SimpleNamespace(device=handles), library)
    workspace = np.zeros(8192, np.uint8)
    aligned = workspace[-workspace.ctypes.data % 256 :][:4096]
    arrays = [stand_in.laid(x) for x in (left, right, out)]
    blas.multiply(*arrays, STREAM, Placed(aligned))
    return arrays[2].get()  # type: ignore[no-any-return]


class Placed:
    """An array at its place, where stand-ins would copy it."""

    def __init__(self, array: np.ndarray) -> None:
        self.data, self.nbytes = types.SimpleNamespace(ptr=array.ctypes.data), array.nbytes


def values(shape: tuple[int, ...], dtype: Any, order: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    found = rng.integers(-4, 5, shape) + (1j * rng.integers(-4, 5, shape) if np.dtype(dtype).kind == "c" else 0)
    found = found.astype(dtype)
    if order == "columns":
        return np.ascontiguousarray(found.swapaxes(-1, -2)).swapaxes(-1, -2)
    if order == "part":
        whole = np.zeros((*shape[:-2], shape[-2] + 2, shape[-1] + 3), dtype)
        part = whole[..., 1:-1, 2:-1]
        part[...] = found
        return part
    return found


SHAPES = [
    ((3, 4), (4, 5)), ((1, 4), (4, 5)), ((3, 4), (4, 1)), ((3, 1), (1, 5)), ((1, 1), (1, 1)), ((3, 0), (0, 5)),
    ((6, 3, 4), (6, 4, 5)), ((3, 4), (6, 4, 5)), ((6, 3, 4), (4, 5)), ((1, 3, 4), (6, 4, 5)), ((2, 6, 3, 4), (2, 6, 4, 5)),
    ((2, 1, 3, 4), (6, 4, 5)), ((2, 3, 1, 3, 4), (3, 2, 4, 1)),
]  # fmt: skip


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("lies", ["rows rows", "rows columns", "columns rows", "columns columns", "part rows", "part part"])
def test_products_are_numpys(library: OnTheHost, shapes: Any, lies: str) -> None:
    for dtype in DTYPES.values():
        left, right = (values(shape, dtype, order) for shape, order in zip(shapes, lies.split()))
        wanted = np.matmul(left, right)
        np.testing.assert_array_equal(multiplied(library, left, right, np.full_like(wanted, 7)), wanted)
    assert library.calls[:2] == ["stream", "workspace"]


def test_a_result_in_a_part_of_memory(library: OnTheHost) -> None:
    left, right = values((3, 4), float, "rows"), values((4, 5), float, "columns")
    found = multiplied(library, left, right, values((3, 5), float, "part"))
    np.testing.assert_array_equal(found, left @ right)


def test_what_is_not_done_is_said(library: OnTheHost) -> None:
    a, b = values((4, 4), float, "rows"), values((8, 8), float, "rows")
    with pytest.raises(BackendError, match=r"^cuBLAS: products of int64 and int64 into int64 are not captured"):
        multiplied(library, a.astype(int), a.astype(int), a.astype(int))
    with pytest.raises(BackendError, match=r"shape \(4, 4\) with strides \(128, 16\) lie in neither rows nor columns"):
        multiplied(library, b[::2, ::2], a, a)
    with pytest.raises(BackendError, match=r"a result of shape \(4, 4\) with strides \(8, 32\) does not lie in rows"):
        multiplied(library, a, a, values((4, 4), float, "columns"))
    library.status = 13
    with pytest.raises(BackendError, match="cublasGemmStridedBatchedEx failed: status 13"):
        multiplied(library, a, a, a)
