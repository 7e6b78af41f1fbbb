"""Where extremes are: every way in which C finds them, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import dynagraph as dg
from tests.sampling import some

SHAPES = [(1,), (5,), (17,), (100,), (5000,), (3, 1000), (70, 130), (40, 3), (2, 50, 40)]


def contents(dtype: str, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Ordinary values, equal ones, the lowest and the highest; NaN and zeros of both signs."""
    rng = np.random.default_rng(0)
    if dtype[0] in "fc":
        x = (rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype[0] == "c" else 0)).astype(dtype)
        with_nan = x.copy()
        with_nan.flat[rng.integers(0, x.size, 3)] = np.nan
        equal = [np.full(shape, value, dtype) for value in (-np.inf, np.nan)]
        return [x, with_nan, np.where(x.real > 0, 0.0, -0.0).astype(dtype), *equal]
    low, high = (0, 1) if dtype == "?" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return [rng.integers(0, 100, shape).astype(dtype), *(np.full(shape, value, dtype) for value in (low, high))]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i2", "i4", "i8", "u1", "u8", "?", "c8", "c16"])
def test_first_extremes(dtype: str) -> None:
    def along(x: np.ndarray, axis: int | None) -> tuple[object, ...]:
        return x.argmax(axis), x.argmin(axis), np.argmax(np.conj(x) * x, axis), np.argmin(np.where(x == x, x, x), axis)

    def positions(x: np.ndarray) -> list[tuple[object, ...]]:
        return [along(x, axis) for axis in (None, *range(x.ndim))]

    compiled = dg.compile(positions)
    with np.errstate(all="ignore"):
        for shape in some(SHAPES, 3, dtype):
            for x in contents(dtype, shape):
                for got, expected in zip(compiled(x), positions(x), strict=True):
                    for g, e in zip(got, expected, strict=True):
                        np.testing.assert_array_equal(g, e, strict=True)
    assert compiled.stats.fallbacks == 0


def test_dear_values_are_computed_once() -> None:
    """Longer than what is kept, with the extreme in the last block, and in the first."""
    for n in (1000, 5000):
        x = np.linspace(0.0, 1.0, n)
        for y in (x, x[::-1].copy()):
            f = dg.compile(lambda y: (np.argmax(np.exp(y)), np.argmin(np.exp(y))))
            assert f(y) == (int(np.argmax(y)), int(np.argmin(y)))
