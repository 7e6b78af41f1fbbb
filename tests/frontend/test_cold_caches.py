"""Functions with a cache that makes objects: the first call fills it, plainly, and the next one is captured whole."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import dynagraph as dg


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


def test_a_cache_that_stays_cold_breaks() -> None:
    @functools.lru_cache(maxsize=1)
    def recipe(name: str) -> Recipe:
        return Recipe(2.0)

    @dg.compile(mode="max")
    def f(x: Any) -> Any:
        return (x + 1) * recipe("a").factor * recipe("b").factor

    for _ in range(4):
        np.testing.assert_array_equal(f(np.ones(3)), np.full(3, 8.0))
    assert any("[cold-cache]" in line for line in f.stats.breaks), f.stats.breaks
