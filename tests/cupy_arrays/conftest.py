"""`cp`: the real CuPy where there is a device, else the stand-in, with and without kernels, which leaves no trace."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from dynagraph.backends.cuda import driver
from tests.cuda.device import EmulatedDevice
from tests.cupy_arrays import stand_in


def real_cupy() -> Any:
    """CuPy, where it is installed and there is a device; else None."""
    if importlib.util.find_spec("cupy") is None:
        return None
    import cupy  # an optional dependency

    return cupy if cupy.is_available() else None


@contextlib.contextmanager
def installed(module: Any) -> Iterator[Any]:
    """`module` is what ``import cupy`` gives, and with the stand-in, ``import cupyx`` what goes with it."""
    is_stand_in = isinstance(getattr(module, "machine", None), stand_in.Machine)
    given = {"cupy": module} | ({"cupyx": module.cupyx} if is_stand_in else {})
    before = {name: sys.modules.get(name) for name in given}
    sys.modules.update(given)
    try:
        yield module
    finally:
        for name, earlier in before.items():
            if earlier is not None:
                sys.modules[name] = earlier
            elif is_stand_in:  # else it is CuPy, and stays imported
                del sys.modules[name]


@pytest.fixture
def op_by_op() -> Iterator[Any]:
    """The stand-in without kernels, whatever there is."""
    with installed(stand_in.module()) as module:
        yield module


@pytest.fixture(params=["op by op", "kernels"] if real_cupy() is None else ["device"])
def cp(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Without a device, graphs run op by op by the stand-in's functions, or by kernels of our own on the emulator."""
    real = real_cupy()
    with installed(real or stand_in.module()) as module:
        if real is None and request.param == "kernels":
            driver.install(module, EmulatedDevice(module))
        yield module
        driver.install(module, None)
