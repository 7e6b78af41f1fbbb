"""`cp`: the real CuPy where there is a device, else the stand-in, which leaves no trace in ``sys.modules``."""

from __future__ import annotations

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


@pytest.fixture
def cp() -> Iterator[Any]:
    before = sys.modules.get("cupy")
    real = real_cupy()
    module = real or stand_in.module()
    sys.modules["cupy"] = module
    yield module
    if before is None and real is None:
        sys.modules.pop("cupy", None)
    elif before is not None:
        sys.modules["cupy"] = before
