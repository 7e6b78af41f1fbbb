"""cuBLASLt's stand-in (cublaslt.cpp) for `EmulatedDevice` and, with products that wait for their stream, `QueuedDevice`."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dynagraph.backends.cuda.cublas import CublasLt
from tests.cuda import emulator
from tests.cuda.device import QueuedDevice
from tests.cuda.emulator import device_side

SOURCE = Path(__file__).with_name("cublaslt.cpp")
ARGUMENTS = [*[ctypes.c_void_p] * 14, ctypes.c_size_t, ctypes.c_void_p]  # of cublasLtMatmul
Matmul = ctypes.CFUNCTYPE(ctypes.c_int, *ARGUMENTS)


@functools.cache
def path() -> str:
    return str(emulator.stand_in_library(SOURCE))


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(path())
    library.stand_in_set.argtypes = [ctypes.c_uint64, ctypes.c_int, ctypes.c_int]
    for name in ("descriptors", "contexts", "heuristics", "calls"):
        getattr(library, f"stand_in_{name}").restype = ctypes.c_long
    library.stand_in_mistake.restype = ctypes.c_char_p
    library.stand_in_record.argtypes = [ctypes.POINTER(ctypes.c_int), *ARGUMENTS]
    library.stand_in_record.restype = ctypes.c_void_p
    library.stand_in_execute.argtypes = library.stand_in_forget.argtypes = [ctypes.c_void_p]
    return library


def is_loaded() -> bool:
    """Whether anybody has asked for it."""
    return _library.cache_info().currsize > 0


def set_stand_in(workspace: int = 0, heuristic: int = 0, matmul: int = 0) -> None:
    """From here on: the bytes that products need, what the heuristic and products give instead of success."""
    _library().stand_in_set(workspace, heuristic, matmul)


def counted(what: str) -> int:
    """How many descriptors there are, or contexts, heuristics and calls there have been."""
    return int(getattr(_library(), f"stand_in_{what}")())


class Calls:
    """How many products, and heuristics, a `with` block has started."""

    def __enter__(self) -> Calls:
        self._before = counted("calls"), counted("heuristics")
        return self

    def __exit__(self, *error: object) -> None:
        self.calls, self.heuristics = counted("calls") - self._before[0], counted("heuristics") - self._before[1]


def stand_in_cublas() -> CublasLt:
    """A cuBLASLt with no contexts yet."""
    return CublasLt.load(path())


class QueuedProducts(QueuedDevice):
    """Queues products, too, on the streams of the stand-in; what their descriptors say is read at the start."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._matmul = Matmul(self._queue_product)
        address = ctypes.cast(self._matmul, ctypes.c_void_p).value
        assert address is not None
        self.products = replace(stand_in_cublas(), matmul=address)
        self.streams: list[int] = []  # of the products, in order

    @device_side
    def _queue_product(self, *arguments: Any) -> int:
        library, status = _library(), ctypes.c_int()
        call = library.stand_in_record(ctypes.byref(status), *arguments)
        if call is not None:
            stream = arguments[-1] or 0
            self.streams.append(stream)
            self.machine.queue_at(self.device(), stream).add(_Recorded(call))
        return status.value


class _Recorded:
    """A product that has been recorded, which may be done several times."""

    def __init__(self, call: int) -> None:
        self._call = call
        self._execute: Callable[[int], None] = _library().stand_in_execute
        self._forget: Callable[[int], None] = _library().stand_in_forget

    @device_side
    def __call__(self) -> None:
        self._execute(self._call)

    @device_side
    def __del__(self) -> None:
        self._forget(self._call)


__all__ = ["Calls", "QueuedProducts", "counted", "is_loaded", "path", "set_stand_in", "stand_in_cublas"]
