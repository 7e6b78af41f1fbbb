"""`cp`: the real CuPy where there is a device, else the stand-in, which leaves no trace in ``sys.modules``."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cupy_arrays import stand_in


def real_cupy() -> Any:
    """CuPy, where it is installed and there is a device; else None."""
    if importlib.util.find_spec("cupy") is None:
        return None
    import cupy  # an optional dependency

    return cupy if cupy.is_available() else None


@contextlib.contextmanager
def installed(module: Any) -> Iterator[Any]:
    """`module` is what ``import cupy`` gives."""
    before = sys.modules.get("cupy")
    sys.modules["cupy"] = module
    try:
        yield module
    finally:
        if before is not None:
            sys.modules["cupy"] = before
        elif isinstance(getattr(module, "machine", None), stand_in.Machine):  # else it is CuPy, and stays imported
            del sys.modules["cupy"]


@pytest.fixture
def cp() -> Iterator[Any]:
    with installed(real_cupy() or stand_in.module()) as module:
        yield module
