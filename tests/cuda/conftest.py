"""`cp`: the real CuPy where there is a device, else the stand-in.  `two`: either, with two devices.  `machine`: the stand-in's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import dynagraph as dg
from dynagraph.cuda import devices, streams
from tests.cupy_arrays import stand_in
from tests.cupy_arrays.conftest import installed, real_cupy


def lent(module: Any) -> Iterator[Any]:
    """CuPy for one test, behind which nothing may be left: no other current device or stream, nothing held, no mistake."""
    with installed(module):
        yield module
        assert dg.cuda.current_device() == 0
        for device in range(dg.cuda.device_count()):
            dg.cuda.synchronize(device)
            assert dg.cuda.current_stream(device).cupy_stream.ptr == 0
        streams.release_held()
        assert not streams._held and not devices._thread.devices
        if hasattr(module, "machine"):
            assert module.machine.mistakes == []


@pytest.fixture
def cp() -> Iterator[Any]:
    yield from lent(real_cupy() or stand_in.module())


@pytest.fixture
def two() -> Iterator[Any]:
    real = real_cupy()
    yield from lent(real if real is not None and real.cuda.runtime.getDeviceCount() >= 2 else stand_in.module())


@pytest.fixture
def fake() -> Iterator[Any]:
    yield from lent(stand_in.module())


@pytest.fixture
def machine(fake: Any) -> Any:
    return fake.machine
