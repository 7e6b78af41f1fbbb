"""cuBLASLt: find it, and plan matrix products of known sizes.

A plan (`Product`, in C) holds descriptors, an algorithm and factors; running it takes addresses, and no Python.  Rows of matrices
are contiguous here, columns in cuBLASLt: out.T = right.T @ left.T is what it computes, so that "A" is the right operand,
and a bias, of one value for each row there, has one for each column here.

Sums are made in the dtype of the operands (halves: in float32), without TF32 but in ``mode="fast"``; where a sum is split, its
parts are in that dtype too.  The same call gives the same bits each time: the algorithm is the first of cuBLASLt's heuristic, which
depends on sizes, layouts, alignment, device and version alone, each call has its own workspace, and no algorithm adds up in an
order that is left to chance.

Handles hold nothing but the device; all threads share one for each device, as cuBLASLt allows.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product as combinations
from math import gcd, prod

import numpy as np

from dynagraph import config
from dynagraph._core._dispatch import Product
from dynagraph.backends.cuda.libraries import TOOLKIT, candidates, preferred
from dynagraph.driver.forks import Locked
from dynagraph.errors import BackendError
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType

CURE = "pip install nvidia-cublas-cu12, or nvidia-cublas for CUDA 13"
SONAMES = ("libcublasLt.so.13", "libcublasLt.so.12")
OLDEST = 12  # the version that it is tested with
OFF = "off"
ALIGNMENT = 16  # bytes: what algorithms ask for at most of the addresses of operands; those of a bias must have it
MOST_WORKSPACE = 32 << 20  # bytes, as NVIDIA advises for Hopper
MOST_TURNS = 32  # calls of one product, of batches that are not evenly spaced
FOUND = 4  # algorithms that the heuristic is asked for

# enumerations of cublasLt.h, cublas_api.h and library_types.h
COLUMN_MAJOR, NOT_SUPPORTED = 0, 15
LAYOUT_BATCH_COUNT, LAYOUT_BATCH_STRIDE = 5, 6
DESC_TRANSPOSES_A, DESC_TRANSPOSES_B, DESC_EPILOGUE, DESC_BIAS_POINTER = 3, 4, 7, 8
PREFER_WORKSPACE, PREFER_REDUCTIONS = 1, 3
PREFER_ALIGNMENTS = (5, 6, 7, 8)  # of A, B, C, D
REDUCTION_IN_COMPUTE_TYPE = 2
EPILOGUE_NONE, EPILOGUE_BIAS = 1, 4
ACTIVATIONS: Mapping[str, int] = {"": 0, "relu": 2, "gelu": 32}
COMPUTE_32F, COMPUTE_32F_FAST_TF32, COMPUTE_64F = 68, 77, 70


@dataclass(frozen=True)
class Kind:
    """How products of a dtype are computed: cudaDataType_t of matrices and of factors, cublasComputeType_t, dtype of factors."""

    data: int
    scale: int
    compute: int
    factor: type[np.generic]


KINDS: Mapping[DType, Kind] = {
    dtypes.float16: Kind(2, 0, COMPUTE_32F, np.float32),
    dtypes.float32: Kind(0, 0, COMPUTE_32F, np.float32),
    dtypes.float64: Kind(1, 1, COMPUTE_64F, np.float64),
    dtypes.complex64: Kind(4, 4, COMPUTE_32F, np.complex64),
    dtypes.complex128: Kind(5, 5, COMPUTE_64F, np.complex128),
}

_log = logging.getLogger("dynagraph.kernels")

_Int = ctypes.c_int
_Pointer = ctypes.c_void_p
_Size = ctypes.c_size_t
_Made = ctypes.POINTER(_Pointer)
_SIGNATURES: Mapping[str, tuple[type, ...]] = {  # all give a status
    "cublasLtCreate": (_Made,),
    "cublasLtMatmulDescCreate": (_Made, _Int, _Int),
    "cublasLtMatmulDescSetAttribute": (_Pointer, _Int, _Pointer, _Size),
    "cublasLtMatmulDescDestroy": (_Pointer,),
    "cublasLtMatrixLayoutCreate": (_Made, _Int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64),
    "cublasLtMatrixLayoutSetAttribute": (_Pointer, _Int, _Pointer, _Size),
    "cublasLtMatrixLayoutDestroy": (_Pointer,),
    "cublasLtMatmulPreferenceCreate": (_Made,),
    "cublasLtMatmulPreferenceSetAttribute": (_Pointer, _Int, _Pointer, _Size),
    "cublasLtMatmulPreferenceDestroy": (_Pointer,),
    "cublasLtMatmulAlgoGetHeuristic": (*[_Pointer] * 7, _Int, _Pointer, ctypes.POINTER(_Int)),
    "cublasLtMatmul": (*[_Pointer] * 14, _Size, _Pointer),
}


class _Found(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", _Size),
        ("state", _Int),
        ("waves", ctypes.c_float),
        ("reserved", _Int * 4),
    ]


@dataclass(frozen=True)
class Matrices:
    """An operand: a matrix, or many; sizes and strides in elements.  Its address is a multiple of `alignment` bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    alignment: int = ALIGNMENT


@dataclass(frozen=True)
class Finish:
    """What becomes of a product: ``activation(scale * product + weight * addend + bias)``."""

    scale: float = 1.0
    addend: Matrices | None = None
    weight: float = 0.0
    bias: Matrices | None = None
    activation: str = ""


PLAIN = Finish()


@dataclass(frozen=True)
class _Layout:
    """A matrix as cuBLASLt has it: columns one after another, each `step` elements after the one before."""

    rows: int
    columns: int
    step: int
    is_transposed: bool = False  # it is the transpose of what is meant


@dataclass(frozen=True)
class _Batches:
    """`count` matrices, `strides` apart by operand, in each of `turns`, which say where the operands' begin; all in elements."""

    count: int
    strides: tuple[int, ...]
    turns: tuple[tuple[int, ...], ...]


class _Descriptors:
    """Descriptors of cuBLASLt, which are destroyed with this object."""

    def __init__(self) -> None:
        self._made: list[tuple[Callable[[_Pointer], int], _Pointer]] = []

    def add(self, descriptor: _Pointer, destroy: Callable[[_Pointer], int]) -> _Pointer:
        self._made.append((destroy, descriptor))
        return descriptor

    def __del__(self) -> None:
        for destroy, descriptor in self._made:
            destroy(descriptor)


@dataclass(frozen=True)
class CublasLt:
    """A loaded cuBLASLt.  `matmul`: the address of the function that starts a product."""

    path: str
    version: tuple[int, int, int]
    matmul: int
    _library: ctypes.CDLL = field(repr=False, compare=False)
    _handles: dict[int, int] = field(default_factory=dict, repr=False, compare=False)
    _locked: Locked = field(default_factory=Locked, repr=False, compare=False)

    @staticmethod
    def load(path: str, mode: int = ctypes.DEFAULT_MODE) -> CublasLt:
        """Raises OSError where the library does not load, AttributeError where it is none, BackendError where it is too old."""
        library = ctypes.CDLL(path, mode)
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, _Int
        library.cublasLtGetVersion.argtypes, library.cublasLtGetVersion.restype = (), _Size
        library.cublasLtGetStatusString.argtypes, library.cublasLtGetStatusString.restype = (_Int,), ctypes.c_char_p
        number = library.cublasLtGetVersion()
        version = (number // 10000, number // 100 % 100, number % 100)
        if version[0] < OLDEST:
            raise BackendError(f"{path} is cuBLASLt {version[0]}.{version[1]}: expected {OLDEST} or newer; {CURE}")
        return CublasLt(path, version, _address(library.cublasLtMatmul), library)

    @property
    def name(self) -> str:
        return f"cuBLASLt {'.'.join(map(str, self.version))} ({self.path})"

    def describe(self, status: int) -> str:
        """cuBLASLt's words for a status."""
        text: bytes | None = self._library.cublasLtGetStatusString(status)
        return (text or b"unknown status").decode(errors="replace")

    def plan(
        self, device: int, dtype: DType, left: Matrices, right: Matrices, out: Matrices, finish: Finish = PLAIN, fast: bool = False
    ) -> Product | None:
        """``out = left @ right``, finished; None: it cannot, and something else has to.  The device is the current one.

        left: (..., m, k), right: (..., k, n), which broadcast to out: (..., m, n); the addend is of out's shape, the bias of (n,).
        `Product.run` takes the addresses of right, left, addend (out, where there is none), out and bias.
        Raises BackendError where cuBLASLt says anything but that it does not support this.
        """
        kind = KINDS.get(dtype)
        addend = out if finish.addend is None else finish.addend
        batches = _batches((right, left, addend, out), out)
        layouts = [_layout(matrices) for matrices in (right, left, addend, out)]
        if kind is None or batches is None or None in layouts or layouts[2].is_transposed or layouts[3].is_transposed:  # type: ignore[union-attr]
            return None
        if finish.bias is not None and (finish.bias.strides != (1,) or finish.bias.alignment < ALIGNMENT):
            return None
        kept = _Descriptors()
        a, b, c, d = (
            self._described(kept, kind, layout, batches.count, stride)
            for layout, stride in zip(layouts, batches.strides)
            if layout is not None
        )
        transposes = [layout.is_transposed for layout in layouts[:2] if layout is not None]
        operation = self._operation(kept, kind, transposes, finish, fast and dtype is dtypes.float32)
        turns = tuple(tuple(at * dtype.itemsize for at in turn) for turn in batches.turns)
        alignments = [
            gcd(matrices.alignment, *(turn[k] for turn in turns)) for k, matrices in enumerate((right, left, addend, out))
        ]
        handle = self._handle(device)
        found = self._algorithm(handle, operation, (a, b, c, d), alignments)
        if found is None:
            return None
        return Product(
            matmul=self.matmul,
            set_attribute=_address(self._library.cublasLtMatmulDescSetAttribute),
            handle=handle,
            operation=_value(operation),
            layouts=(_value(a), _value(b), _value(c), _value(d)),
            algorithm=bytes(found.algorithm),
            alpha=kind.factor(finish.scale).tobytes(),
            beta=kind.factor(finish.weight).tobytes(),
            workspace=found.workspace,
            turns=turns,
            keepalive=(kept, self),
        )

    def _handle(self, device: int) -> int:
        with self._locked.lock:
            if device not in self._handles:
                made = _Pointer()
                self._call("cublasLtCreate", ctypes.byref(made))
                self._handles[device] = _value(made)
            return self._handles[device]

    def _described(self, kept: _Descriptors, kind: Kind, layout: _Layout, count: int, stride: int) -> _Pointer:
        made = _Pointer()
        self._call("cublasLtMatrixLayoutCreate", ctypes.byref(made), kind.data, layout.rows, layout.columns, layout.step)
        kept.add(made, self._library.cublasLtMatrixLayoutDestroy)
        if count > 1:
            self._set("cublasLtMatrixLayoutSetAttribute", made, LAYOUT_BATCH_COUNT, ctypes.c_int32(count))
            self._set("cublasLtMatrixLayoutSetAttribute", made, LAYOUT_BATCH_STRIDE, ctypes.c_int64(stride))
        return made

    def _operation(self, kept: _Descriptors, kind: Kind, transposes: Sequence[bool], finish: Finish, tf32: bool) -> _Pointer:
        made, setter = _Pointer(), "cublasLtMatmulDescSetAttribute"
        self._call("cublasLtMatmulDescCreate", ctypes.byref(made), COMPUTE_32F_FAST_TF32 if tf32 else kind.compute, kind.scale)
        kept.add(made, self._library.cublasLtMatmulDescDestroy)
        for attribute, transposed in zip((DESC_TRANSPOSES_A, DESC_TRANSPOSES_B), transposes):
            self._set(setter, made, attribute, ctypes.c_int32(transposed))
        wanted = ACTIVATIONS[finish.activation] | (EPILOGUE_BIAS if finish.bias is not None else 0)
        self._set(setter, made, DESC_EPILOGUE, ctypes.c_uint32(wanted or EPILOGUE_NONE))
        if finish.bias is not None:  # the heuristic asks how it is aligned
            self._set(setter, made, DESC_BIAS_POINTER, _Pointer(ALIGNMENT))
        return made

    def _algorithm(
        self, handle: int, operation: _Pointer, layouts: Sequence[_Pointer], alignments: Sequence[int]
    ) -> _Found | None:
        """The one that cuBLASLt thinks is fastest; None: it has none."""
        kept, preference, setter = _Descriptors(), _Pointer(), "cublasLtMatmulPreferenceSetAttribute"
        self._call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        kept.add(preference, self._library.cublasLtMatmulPreferenceDestroy)
        self._set(setter, preference, PREFER_WORKSPACE, ctypes.c_uint64(MOST_WORKSPACE))
        self._set(setter, preference, PREFER_REDUCTIONS, ctypes.c_uint32(REDUCTION_IN_COMPUTE_TYPE))
        for attribute, alignment in zip(PREFER_ALIGNMENTS, alignments):
            self._set(setter, preference, attribute, ctypes.c_uint32(alignment))
        found, count = (_Found * FOUND)(), _Int()
        status = self._library.cublasLtMatmulAlgoGetHeuristic(
            handle, operation, *layouts, preference, FOUND, ctypes.addressof(found), ctypes.byref(count)
        )
        if status != NOT_SUPPORTED:
            self._check("cublasLtMatmulAlgoGetHeuristic", status)
        usable = [f for f in found[: count.value] if f.state == 0 and f.workspace <= MOST_WORKSPACE]
        return usable[0] if status == 0 and usable else None

    def _set(self, setter: str, descriptor: _Pointer, attribute: int, value: ctypes._SimpleCData) -> None:
        self._call(setter, descriptor, attribute, ctypes.byref(value), ctypes.sizeof(value))

    def _call(self, function: str, *arguments: object) -> None:
        self._check(function, getattr(self._library, function)(*arguments))

    def _check(self, function: str, status: int) -> None:
        if status:
            raise BackendError(f"{function} of {self.path} failed: status {status}, {self.describe(status)}")


def _address(function: ctypes._CFuncPtr) -> int:  # type: ignore[name-defined]
    return _value(ctypes.cast(function, _Pointer))


def _value(pointer: ctypes.c_void_p) -> int:
    assert pointer.value is not None
    return pointer.value


# -- layouts ------------------------------------------------------------------------------------------------------------


def _layout(matrices: Matrices) -> _Layout | None:
    """The transpose of a matrix, columns one after another; None: neither its rows nor its columns are contiguous."""
    (rows, columns), (row_step, column_step) = matrices.shape[-2:], matrices.strides[-2:]
    if (column_step == 1 or columns == 1) and (rows == 1 or row_step >= columns):
        return _Layout(columns, rows, row_step if rows > 1 else columns)
    if (row_step == 1 or rows == 1) and (columns == 1 or column_step >= rows):
        return _Layout(rows, columns, column_step if columns > 1 else rows, is_transposed=True)
    return None


def _batches(operands: Sequence[Matrices], out: Matrices) -> _Batches | None:
    """The matrices of all operands, the longest row of which is one batch; None: there are none, or too many turns."""
    if not prod(out.shape) or not all(prod(matrices.shape) for matrices in operands):
        return None
    rows: list[tuple[int, tuple[int, ...]]] = []  # of matrices that lie equally far apart: how many, by operand how far
    for axis in range(-len(out.shape), -2):
        steps = tuple(_step(matrices, axis) for matrices in operands)
        size = out.shape[axis]
        if size == 1:
            continue
        if rows and all(before == step * size for before, step in zip(rows[-1][1], steps)):
            rows[-1] = rows[-1][0] * size, steps
        else:
            rows.append((size, steps))
    if not rows:
        return _Batches(1, (0,) * len(operands), ((0,) * len(operands),))
    longest = max(range(len(rows)), key=lambda k: rows[k][0])
    count, strides = rows.pop(longest)
    if prod(size for size, _ in rows) > MOST_TURNS:
        return None
    turns = tuple(
        tuple(sum(i * steps[k] for i, (_, steps) in zip(place, rows)) for k in range(len(operands)))
        for place in combinations(*(range(size) for size, _ in rows))
    )
    return _Batches(count, strides, turns)


def _step(matrices: Matrices, axis: int) -> int:
    """How far apart an operand's matrices are along an axis of the result: not at all where it has but one."""
    return 0 if -axis > len(matrices.shape) or matrices.shape[axis] == 1 else matrices.strides[axis]


# -- finding it ---------------------------------------------------------------------------------------------------------


def find() -> CublasLt:
    """The cuBLASLt that the switch `cublaslt` names, else that which this process has loaded, as CuPy does, else that of NVIDIA's
    pip packages, $CUDA_PATH, $CUDA_HOME, /usr/local/cuda, or what the loader finds.

    Of several, one of the CUDA version that the installed CuPy is built for comes first.  Raises BackendError where there is none.
    """
    found = _find(config.cublaslt, os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"))
    if isinstance(found, str):
        raise BackendError(found)
    return found


@functools.lru_cache(maxsize=8)
def _find(chosen: str | None, *toolkits: str | None) -> CublasLt | str:
    """It, or why there is none: looking takes long, and is done once."""
    if chosen == OFF:
        return f"cuBLASLt is switched off: config.cublaslt={OFF!r}; unset it (DYNAGRAPH_CUBLASLT)"
    if chosen is not None:
        try:
            return CublasLt.load(chosen)
        except (OSError, AttributeError, BackendError) as error:
            cure = "name another libcublasLt.so, or unset it (DYNAGRAPH_CUBLASLT)"
            return f"config.cublaslt={chosen!r} is no cuBLASLt: {error}; {cure}"
    broken = ""
    for path, mode in _candidates(*toolkits):
        try:
            return CublasLt.load(path, mode)
        except (OSError, AttributeError, BackendError) as error:
            if os.path.exists(path):
                broken += f"; {path} does not serve: {error}"
    return (
        "found no cuBLASLt, for products of matrices: looked in this process, NVIDIA's pip packages, $CUDA_PATH, $CUDA_HOME, "
        f"{TOOLKIT} and the loader's search{broken}; {CURE}"
    )


def _candidates(*toolkits: str | None) -> Iterator[tuple[str, int]]:
    """Names and paths, and how they are opened: what has been loaded already is not loaded again."""
    for name in preferred(SONAMES):
        yield name, os.RTLD_NOLOAD | os.RTLD_NOW
    for path in candidates("cublasLt", SONAMES, toolkits):
        yield path, ctypes.DEFAULT_MODE


def find_or_none() -> CublasLt | None:
    """As `find`; where there is none, that is logged."""
    try:
        return find()
    except BackendError as error:
        _log.info("products of matrices are functions of CuPy's: %s", error)
        return None


__all__ = ["ALIGNMENT", "KINDS", "PLAIN", "CublasLt", "Finish", "Matrices", "find", "find_or_none"]
