"""vecdot, matvec and vecmat, by way of matmul."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.doors.numpy.arguments import numpy_error, only, reshape
from dynagraph.doors.numpy.builder import Builder
from dynagraph.doors.numpy.linalg import matmul
from dynagraph.doors.numpy.table import Door, register_function
from dynagraph.ir.graph import Node

_CORE = {"vecdot": (1, 1), "matvec": (2, 1), "vecmat": (1, 2)}  # dimensions that are multiplied


def _product(name: str) -> Callable[..., Any]:
    left_rank, right_rank = _CORE[name]

    def door(b: Builder, x1: Any, x2: Any, /) -> Node:
        """A vector is a matrix of one row on the left, its conjugate, and of one column on the right."""
        left, right = b.as_node(x1), b.as_node(x2)
        if left_rank == 1 and left.dtype.is_complex:
            left = b.call("conjugate", left)
        if left.ndim < left_rank or right.ndim < right_rank:
            raise numpy_error(f"{name}: takes at least {left_rank} and {right_rank} dimensions")
        if left.shape[-1] != right.shape[-right_rank]:
            raise numpy_error(f"{name}: the sizes {left.shape} and {right.shape} do not fit")
        if left_rank == 1:
            left = reshape(b, left, (*left.shape[:-1], 1, left.shape[-1]))
        if right_rank == 1:
            right = reshape(b, right, (*right.shape, 1))
        result = matmul(b, left, right)
        shape = result.shape[:-2] + result.shape[-2:-1] * (left_rank - 1) + result.shape[-1:] * (right_rank - 1)
        return reshape(b, result, shape)

    return door


def _vecdot(b: Builder, x1: Any, x2: Any, axis: Any = -1) -> Node:
    only(axis == -1, "vecdot", "axis", axis, "the last one")
    product: Node = _product("vecdot")(b, x1, x2)
    return product


for _name, _door in {"vecdot": _vecdot, "matvec": _product("matvec"), "vecmat": _product("vecmat")}.items():
    register_function(getattr(np, _name), Door(_name, _door, like=getattr(np, _name)))

__all__: list[str] = []
