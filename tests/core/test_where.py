"""`dynagraph.where.where` gives what np.where gives."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import dynagraph as dg
from dynagraph.where import where

DTYPES = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16", ml_dtypes.bfloat16]
rng = np.random.default_rng(0)


def drawn(n: int, dtype: object) -> np.ndarray:
    return (rng.normal(size=n) * 10).astype(dtype)


def same(condition: object, a: object, b: object) -> None:
    with np.errstate(over="ignore"):
        found, expected = where(condition, a, b), np.where(condition, a, b)
    assert type(found) is type(expected) and found.dtype == expected.dtype and found.strides == expected.strides
    assert found.shape == expected.shape and found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 100, 1000])
def test_arrays_and_one_element(dtype: object, n: int) -> None:
    condition, a, b = rng.normal(size=n) > 0, drawn(n, dtype), drawn(n, dtype)
    for x, y in itertools.product((a, a[:1].reshape(()) if n else a), (b, b[:1].reshape(()) if n else b)):
        same(condition, x, y)


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "?"])
@pytest.mark.parametrize("number", [0, 1, -3, 2**24, 0.0, -0.0, 0.1, np.inf, -np.inf, np.nan, True, np.float32(2), np.float64(3)])
def test_numbers(dtype: str, number: object) -> None:
    condition, a = rng.normal(size=33) > 0, drawn(33, dtype)
    same(condition, a, number)
    same(condition, number, a)


def test_large_numbers_are_converted_as_numpy_does() -> None:
    condition, a = np.array([True, False]), np.ones(2, np.float32)
    same(condition, 2**24 + 1, a)
    with pytest.warns(RuntimeWarning, match="overflow"):
        where(condition, 1e300, a)


def test_layouts_and_broadcasts() -> None:
    x = rng.normal(size=(6, 8)).astype(np.float32)
    y, condition = x[::-1].copy(), x > 0
    for c, a, b in [
        (condition.T, x.T, y.T), (condition, x, y[0]), (condition[:, :1], x, y), (condition[::2], x[::2], y[::2]),
        (condition, x, y.astype(np.float64)), (condition, x, y.astype(">f4")), (condition.astype(int), x, y), (condition[0], 1, 2),
        (np.array(True), x, y), (condition.view(np.uint8), x, y), ([True, False], [1.0, 2.0], 3), (condition, x[0, 0], y),
    ]:  # fmt: skip
        same(c, a, b)
    both = np.full(20, 7, np.uint8).view(bool)  # other bits than 1
    same(both, np.ones(20), np.zeros(20))


def test_operands_that_are_not_aligned() -> None:
    memory = np.zeros(4 * 40 + 1, np.uint8)
    x = memory[1:161].view(np.float32)
    same(np.ones(40, bool), x, np.zeros(40, np.float32))
    z = np.zeros(2 * 41, np.float32)[1:81].view(np.complex64)
    same(np.ones(40, bool), z, z + 1)


def test_compiled_functions_follow_it() -> None:
    @dg.compile(mode="max")
    def f(x: np.ndarray) -> np.ndarray:
        return where(x > 0, x, 0.0)

    x = rng.normal(size=100)
    assert f(x).tobytes() == where(x > 0, x, 0.0).tobytes() and not f.stats.breaks
