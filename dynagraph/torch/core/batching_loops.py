"""What primitives do with batched arrays that they cannot take as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core.batching import (
    RULES,
    SHIFTED,
    WRITE,
    BatchedArray,
    Unbatchable,
    examples,
    is_unbatchable,
    looped_function,
    padded,
    shifted_axis,
    size_at,
    top_level,
)


def looped(function: Callable[..., Any], arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """What a primitive gives where it cannot run on batched arrays as it is: by its rule, for all examples at once with adapted
    attrs or with each operand repeated, or else example by example.
    """
    level = top_level((*arrays, *attrs.values()))
    if level is None or function is np.copyto:
        raise RuntimeError(WRITE)
    count = size_at((*arrays, *attrs.values()), level)
    if function in RULES:
        found = RULES[function](level, count, arrays, attrs)
        if found is not NotImplemented:
            return found
    if _may_shift(function, arrays, attrs):
        found = _at_once(function, arrays, attrs, level)
        if found is not NotImplemented:
            return found
    alike = [BatchedArray(examples(a, level, count), level) if isinstance(a, np.ndarray) else a for a in arrays]
    if any(a is not b for a, b in zip(alike, arrays)):
        try:
            return function(*alike, **attrs)
        except (Unbatchable, ValueError) as error:
            if not is_unbatchable(error):
                raise
    return looped_function(lambda *a, **k: attempt(function, a, k), arrays, attrs)


def attempt(function: Callable[..., Any], arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """``function(*arrays, **attrs)``, of batched arrays too."""
    try:
        return function(*arrays, **attrs)
    except (Unbatchable, ValueError) as error:
        if not is_unbatchable(error):
            raise
        return looped(function, arrays, attrs)


def _at_once(function: Callable[..., Any], arrays: Sequence[Any], attrs: dict[str, Any], level: int) -> Any:
    """A primitive whose attrs are dimensions, shapes and starts: with those of all examples' arrays."""
    count = size_at(arrays, level)
    if count < 0 or (not arrays[0].ndim and _NUMBERED & attrs.keys()):
        return NotImplemented
    ndim = arrays[0].ndim
    adapted: dict[str, Any] = {}
    for name, value in attrs.items():
        if name in ("dim", "dims", "axis", "axes", "dim1", "dim2"):
            adapted[name] = shifted_axis(value, ndim) if value is not None else value
            if name == "axes" and SHIFTED.get(function) == "permutes":
                adapted[name] = (0, *adapted[name])
        elif name in ("shape", "base", "base_shape", "repeats"):
            adapted[name] = (1 if name == "repeats" else count, *value)
        elif name in ("starts", "steps"):
            adapted[name] = (0 if name == "starts" else 1, *value)
        else:
            adapted[name] = value
    rank = len(attrs["shape"]) if SHIFTED.get(function) == "expands" else len(attrs["repeats"]) if "repeats" in attrs else 0
    each = [examples(a, level, count) for a in arrays]
    if rank:
        each = [padded(a, rank) for a in each]
    results = attempt(function, each, adapted)
    if isinstance(results, tuple):
        return tuple(BatchedArray(r, level) for r in results)
    return BatchedArray(results, level)


_NUMBERED = {"dim", "dims", "axis", "dim1", "dim2"}  # a tensor without dimensions has the dimension 0
_DIMS = {"dim", "dims", "axis", "axes", "dim1", "dim2", "base", "starts", "shape"}
_ADAPTED = _DIMS | {
    "steps", "repeats", "keepdims", "keepdim", "index", "offset", "k", "descending", "stable", "correction", "dtype", "largest",
    "sorted", "size", "step", "base_shape",
}  # fmt: skip


def _may_shift(function: Any, arrays: Sequence[Any], attrs: dict[str, Any]) -> bool:
    """Whether a primitive's attrs say all that is to be adapted for all examples at once: of one array dimensions do."""
    return function in SHIFTED or (len(arrays) == 1 and bool(_DIMS & attrs.keys()) and attrs.keys() <= _ADAPTED)


__all__ = ["attempt", "looped"]
