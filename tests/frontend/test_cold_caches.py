"""Functions with a cache that makes objects: the first call fills it, plainly, and the next one is captured whole."""

from __future__ import annotations

import functools
import sys
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


def test_modules_that_a_function_imports_are_there_the_second_time(tmp_path: Any, monkeypatch: Any) -> None:
    """As einops does it, whose backend imports a module of its package when it is first used."""
    package = tmp_path / "lazy_package_of_tests"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("scale = 3.0\n")
    (package / "other.py").write_text("shift = 4.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    @dg.compile(mode="max")
    def f(x: Any) -> Any:
        import lazy_package_of_tests.other
        from lazy_package_of_tests import part

        return x * part.scale + lazy_package_of_tests.other.shift

    try:
        for _ in range(4):
            np.testing.assert_array_equal(f(np.ones(3)), np.full(3, 7.0))
    finally:
        for name in [name for name in sys.modules if name.startswith("lazy_package_of_tests")]:
            del sys.modules[name]
    assert (f.stats.compiles, sum(f.stats.breaks.values())) == (1, 0), f.stats.breaks


def test_names_that_a_module_does_not_have() -> None:
    @dg.compile(mode="max")
    def f(x: Any) -> Any:
        try:
            from math import no_such_name
        except AttributeError:
            return x * 2
        except ImportError as error:
            return x * 3, str(error), error.name
        return x * no_such_name

    for _ in range(3):
        result, text, name = f(np.ones(3))
        np.testing.assert_array_equal(result, np.full(3, 3.0))
        assert text.startswith("cannot import name 'no_such_name' from 'math'") and name == "math"


def test_a_module_that_is_not_there_breaks() -> None:
    @dg.compile(mode="max")
    def f(x: Any) -> Any:
        try:
            from xml import no_such_module_of_tests
        except ImportError:
            return x * 3
        return x * no_such_module_of_tests

    for _ in range(MOST_FILLS + 2):
        np.testing.assert_array_equal(f(np.ones(3)), np.full(3, 3.0))
    assert any("[would-raise]" in line for line in f.stats.breaks), f.stats.breaks
