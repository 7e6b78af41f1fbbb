"""Random numbers within a `vmap`: the same for all examples, different ones, or an error."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.torch.core.batching import DEPTH, BatchedArray, Level, examples, levels_of, running


def drawn(method: Callable[..., Any]) -> Callable[..., Any]:
    """Declare a generator's method: in a `vmap` it draws for all examples, or once, or is an error, as its `randomness` says."""

    @functools.wraps(method)
    def draw(self: Any, *args: Any) -> Any:
        return method(self, *args) if not DEPTH[0] else _draw_batched(method, self, args)

    return draw


def _different() -> list[Level]:
    if any(level.randomness == "error" for level in running.levels):
        raise RuntimeError(
            "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
            "randomness flags on vmap or perform the randomness operation out of vmap"
        )
    return [level for level in running.levels if level.randomness == "different"]


def _draw_batched(method: Callable[..., Any], generator: Any, args: Any) -> Any:
    levels = _different()
    if method.__name__ == "mask" and isinstance(args[1], BatchedArray):
        return generator.uniform(args[0], np.dtype(np.float64)) < args[1]
    if method.__name__ in ("poisson", "binomial"):
        return _of_parameters(method, generator, [for_random(a) for a in args])
    if not levels:
        return method(generator, *args)
    sizes = tuple(level.size for level in levels)
    if isinstance(args[0], tuple):
        found = method(generator, (*sizes, *args[0]), *args[1:])
    else:
        rows = [method(generator, *args) for _ in range(math.prod(sizes))]
        found = np.stack(rows).reshape(*sizes, *rows[0].shape)
    for level in levels:
        found = BatchedArray(found, level.number)
    return found


def _of_parameters(method: Callable[..., Any], generator: Any, args: list[Any]) -> Any:
    """Numbers of arrays of parameters, one for each of their elements in all examples."""
    batched = {level: size for value in args for level, size in levels_of(value).items()}
    if not batched:
        return method(generator, *args)
    level, size = max(batched.items())
    return BatchedArray(_of_parameters(method, generator, [examples(a, level, size) for a in args]), level)


def for_random(array: Any) -> Any:
    """An array that random numbers will be stored in: one for each example, where these have different ones."""
    if DEPTH[0]:
        for level in _different():
            if level.number not in levels_of(array):
                array = BatchedArray(examples(array, level.number, level.size).copy(), level.number)
    return array


__all__ = ["drawn", "for_random"]
