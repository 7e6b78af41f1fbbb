"""Host time of a call whose program is kernels of a device: ``python benchmarks/launches.py [--json FILE]``.

No device is needed: in place of CuPy stands a library whose arrays are as cheap as arrays can be, in place of the driver a function
that does nothing.  So the figures are the dispatcher's own: guards, output arrays, packed parameters, calls of the driver.  CuPy's
arrays take about 1 µs each to make, the driver about 2 µs for a launch.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import dynagraph as dg
from dynagraph._core._dispatch import Product
from dynagraph.backends.cuda import driver
from dynagraph.backends.kernel_cache import get_library

CALLS, ROUNDS = 2000, 15
STUB = "int stub(void *f, int a, int b, int c, int d, int e, int g, int s, void *t, void **p, void **x)"
PRODUCT = "int stub_product(void) { return 0; }"  # for any arguments
ADDRESS = 1 << 20  # of all memory


class Pointer:
    __slots__ = ("device_id", "ptr")

    def __init__(self) -> None:
        self.ptr, self.device_id = ADDRESS, 0


class Array:
    """What the guards look at of an array of CuPy's."""

    __slots__ = ("data", "dtype", "itemsize", "ndim", "shape", "size", "strides")
    memory = Pointer()
    flags, base = types.SimpleNamespace(c_contiguous=True, f_contiguous=True), None
    __mul__ = __add__ = __sub__ = __matmul__ = lambda self, other: None

    def __init__(self, shape: tuple[int, ...], dtype: Any):
        self.shape, self.dtype, self.data = shape, dtype, self.memory

    @classmethod
    def full(cls, *shape: int) -> Array:
        made, like = cls(shape, np.dtype(np.float32)), np.empty(shape, np.float32)
        made.strides, made.size, made.ndim, made.itemsize = like.strides, like.size, like.ndim, like.itemsize
        return made


class NoProducts:
    """In place of cuBLASLt: plans that do nothing."""

    def __init__(self, stub: int) -> None:
        self.stub = stub

    def plan(self, *args: Any) -> Product:
        return Product(self.stub, self.stub, 1, 1, (1, 1, 1, 1), bytes(64), bytes(4), bytes(4), 0, ((0, 0, 0, 0),), None)


class NoDriver:
    """Loads nothing and launches nothing."""

    def __init__(self) -> None:
        self.library = get_library(f"{STUB} {{ return 0; }}\n{PRODUCT}")
        self.launch_address = self.library.address("stub")

    def load(self, source: str, kernels: Sequence[str], device: int, mode: str) -> driver.Loaded:
        return driver.Loaded(dict.fromkeys(kernels, 1), None, False)

    def device(self) -> int:
        return 0

    def stream(self) -> int:
        return 0

    def describe(self, error: int) -> str:
        return ""

    def cublas(self) -> Any:
        return NoProducts(self.library.address("stub_product"))


def stub_library() -> Any:
    """A module that passes for CuPy."""
    cupy: Any = types.ModuleType("cupy")
    cupy.__version__, cupy.ndarray, cupy.get_array_module = "14.0.0", Array, lambda *args: cupy
    cupy.empty = Array
    cupy.cuda = types.SimpleNamespace(Device=lambda number: contextlib.nullcontext())
    sys.modules["cupy"] = cupy
    driver.install(cupy, NoDriver())
    return cupy


def microseconds(call: Callable[[], Any]) -> float:
    """Of one call, as a median of rounds."""
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter() - start) / CALLS * 1e6)
    return statistics.median(rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    stub_library()
    x, y = Array.full(1000), Array.full(1000)
    found = {"an array of the stub's": microseconds(lambda: Array((1000,), x.dtype))}
    found["one kernel"] = _measured(lambda x, y: x * y + 1, x, y)
    found["one kernel, three results"] = _measured(lambda x, y: (x * y, x + y, x - y), x, y)
    m, b = Array.full(64, 64), Array.full(64)
    found["one product"] = _measured(lambda m, b: m @ m, m, b)
    found["two products, the first with a bias"] = _measured(lambda m, b: (m @ m + b) @ m, m, b)
    for name, value in found.items():
        print(f"{name:36s} {value:6.2f} µs")
    if options.json:
        options.json.write_text(json.dumps({"microseconds of host time": found}, indent=2) + "\n")


def _measured(function: Callable[..., Any], *arrays: Array) -> float:
    compiled = dg.compile(function)
    compiled(*arrays)
    result = microseconds(lambda: compiled(*arrays))
    assert compiled.stats.refusals == 0 and compiled.stats.fallbacks == 0 and not compiled.stats.breaks, compiled.stats
    return result


if __name__ == "__main__":
    main()
