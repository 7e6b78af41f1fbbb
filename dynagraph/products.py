"""Products of matrices on dynagraph's own threads (`dynagraph/_core/products`), unless `config.products` says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph import config
from dynagraph._core._dispatch import own_matmul, use_own_products


def _by_library(a: Any, b: Any) -> Any:
    if a.dtype.itemsize == 2 and a.dtype.kind in "fV":
        return np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)
    return np.matmul(a, b)


# ``np.matmul(a, b)``, for arrays of any library; halves are added up in float32, and rounded once
matmul: Callable[[Any, Any], Any] = own_matmul(_by_library, __name__)


def _follow(switch: str) -> None:
    if switch == "products":
        use_own_products(config.products != "blas")


config.on_change(_follow)
_follow("products")

__all__ = ["matmul"]
