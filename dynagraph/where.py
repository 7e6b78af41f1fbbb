"""``np.where`` that does not branch on each element (`dynagraph/_core/dispatch/where.c`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph._core._dispatch import own_where

# ``np.where(condition, a, b)``, for arrays of any library
where: Callable[[Any, Any, Any], Any] = own_where(np.where, __name__)

__all__ = ["where"]
