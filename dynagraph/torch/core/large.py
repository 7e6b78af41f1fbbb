"""Operations on large arrays outside of compiled functions: each primitive's function, compiled by itself.

The compiled kernels use all threads and recycle memory.  A kernel is compiled once plain calls have earned it (the compile budget);
what is not faster compiled stays plain.
"""

from __future__ import annotations

from typing import Any

from dynagraph.api import compile
from dynagraph.torch.core.primitives import Primitive

LARGE = 1 << 17  # elements


def compile_large(p: Primitive) -> None:
    """Set what computes a primitive of large arrays: its own function where there is nothing to gain."""
    if p.is_view or p.name in _MOVES:
        p.large = p.forward
        return
    forward = p.forward

    def large(*arrays: Any, **attrs: Any) -> Any:
        return forward(*arrays, **attrs)

    large.__name__ = large.__qualname__ = p.name
    p.large = compile(large, dynamic=True)


# memory or BLAS is all that these wait for
_MOVES = frozenset({"copy", "cat", "stack", "index", "index_put", "matmul", "bmm", "to_device"})

__all__ = ["LARGE", "compile_large"]
