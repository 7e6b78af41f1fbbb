"""Functions with a cache that makes objects: the first call fills it, plainly, and the next one is captured whole."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import dynagraph as dg
from dynagraph.driver.compilation import MOST_FILLS


class Recipe:
    def __init__(self, factor: float):
        self.factor = factor


def test_the_second_call_is_one_program() -> None:
    made = []

    @functools.lru_cache(maxsize=8)
    def recipe(name: str) -> Recipe:
        made.append(name)
        return Recipe(2.0 * len(name))

    @dg.compile(mode="max")
    def f(x: Any, name: str) -> Any:
        return x * recipe(name).factor

    for _ in range(3):
        np.testing.assert_array_equal(f(np.ones(3), "abc"), np.full(3, 6.0))
    assert made == ["abc"]
    assert (f.stats.compiles, sum(f.stats.breaks.values())) == (1, 0)


def test_calls_of_other_sizes_fill_it_too() -> None:
    """As einops' caches are, which have an entry for each shape."""

    @functools.lru_cache(maxsize=1024)
    def recipe(shape: tuple[int, ...]) -> tuple[Any, ...]:
        return shape[::-1], {0: shape[0]}, [1, 0]

    @dg.compile(mode="max")
    def f(x: Any) -> Any:
        shape, sizes, order = recipe(x.shape)
        return x.transpose(order).reshape(shape) * sizes[0]

    for n in (3, 4, 5, 6, 6, 5, 4, 7, 7):  # several cold ones in a row, then warm ones
        x = np.arange(n * 2.0).reshape(n, 2)
        np.testing.assert_array_equal(f(x), x.T * n)
    assert (f.stats.compiles, f.stats.hits, sum(f.stats.breaks.values())) == (4, 0, 0), f.stats


def test_a_cache_that_stays_cold_breaks() -> None:
    @functools.lru_cache(maxsize=1)
    def recipe(name: str) -> Recipe:
        return Recipe(2.0)

    @dg.compile(mode="max")
    def f(x: Any) -> Any:
        return (x + 1) * recipe("a").factor * recipe("b").factor

    for _ in range(MOST_FILLS + 2):
        np.testing.assert_array_equal(f(np.ones(3)), np.full(3, 8.0))
    assert any("[cold-cache]" in line for line in f.stats.breaks), f.stats.breaks
