"""The module from which older libraries import vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.torch.func.batch import vmap as vmap


def _vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, allow_none_pass_through: bool = False) -> Any:
    return vmap(func, in_dims, out_dims)
