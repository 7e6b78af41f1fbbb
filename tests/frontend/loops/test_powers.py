"""Powers with an exponent that stands in the code: bit for bit what pow() gives, of Python's floats and of NumPy's."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import dynagraph as dg

# a function each, as the exponent has to stand in the code
POWERS: dict[str, Callable] = {
    "2": lambda x: x**2, "3": lambda x: x**3, "4": lambda x: x**4, "5": lambda x: x**5, "-1": lambda x: x**-1,
    "-2": lambda x: x**-2,
    "0.5": lambda x: x**0.5, "1.5": lambda x: x**1.5, "-0.5": lambda x: x**-0.5, "1/3": lambda x: x ** (1 / 3),
}  # fmt: skip
SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0, 3.0, 5e-324, 2.0**-1022, 1e-160, 1e160, 1.7e308, math.inf, -math.inf, math.nan]


def samples() -> np.ndarray:
    """Any bits, whole numbers and squares, numbers near one: results lie on, near and far from the middles of numbers."""
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**64, 700, dtype=np.uint64).view(np.float64)
    whole = rng.integers(-(2**27), 2**27, 700).astype(float)
    near_one = rng.normal(size=700)
    scaled = [near_one * 2.0**300, near_one * 2.0**-300]
    return np.concatenate([SPECIAL, bits, whole, whole * whole, near_one, np.abs(near_one), *scaled])


@pytest.mark.sampled(8)
@pytest.mark.parametrize("exponent", POWERS)
@pytest.mark.parametrize("of_python", [False, True])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_powers_are_those_of_pow(exponent: str, of_python: bool) -> None:
    power = POWERS[exponent]

    def plain(x: np.ndarray, out: np.ndarray) -> int:
        raised = 0
        for k in range(len(x)):
            item = float(x[k]) if of_python else x[k]
            try:
                made = power(item)
                if isinstance(made, complex):
                    made = made.real
            except (OverflowError, ZeroDivisionError):
                raised += 1
                made = -7.0
            out[k] = made
        return raised

    x = samples()
    want, got = np.empty_like(x), np.empty_like(x)
    raised = plain(x, want)
    compiled = dg.compile(plain)
    assert compiled(x, got) == raised
    np.testing.assert_array_equal(got.view(np.uint64)[~np.isnan(want)], want.view(np.uint64)[~np.isnan(want)])
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert compiled.stats.fallbacks == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("exponent", POWERS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_powers_in_machine_code_are_those_of_pow(exponent: str) -> None:
    """Nothing is caught here, so that no turn runs as Python."""
    power = POWERS[exponent]

    def of_numpys(x: np.ndarray, out: np.ndarray) -> None:
        for k in range(len(x)):
            out[k] = power(x[k])

    def of_pythons(x: np.ndarray, out: np.ndarray) -> None:
        for k in range(len(x)):
            out[k] = power(float(x[k]))

    x = samples()
    usual = np.abs(x[np.isfinite(x) & (np.abs(x) < 1e60)])
    for plain, values in ((of_numpys, x), (of_pythons, usual[usual > 1e-60])):
        want, got = np.empty_like(values), np.empty_like(values)
        plain(values, want)
        compiled = dg.compile(plain)
        compiled(values, got)
        assert not compiled.stats.breaks and not compiled.stats.side_exits
        assert np.array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_array_equal(got.view(np.uint64)[~np.isnan(want)], want.view(np.uint64)[~np.isnan(want)])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("exponent", [*POWERS, "an array's"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_powers_of_float32_are_those_of_powf(exponent: str) -> None:
    power = POWERS.get(exponent)

    def plain(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
        for k in range(len(x)):
            out[k] = x[k] ** y[k] if power is None else power(x[k])

    rng = np.random.default_rng(2)
    bits = rng.integers(0, 2**32, 2000, dtype=np.uint32).view(np.float32)
    x = np.concatenate([np.array(SPECIAL, np.float32), bits, rng.normal(size=2000).astype(np.float32)])
    y = np.concatenate([rng.normal(size=14).astype(np.float32), rng.permutation(x[14:])])
    want, got = np.empty_like(x), np.empty_like(x)
    plain(x, y, want)
    compiled = dg.compile(plain)
    compiled(x, y, got)
    np.testing.assert_array_equal(got.view(np.uint32)[~np.isnan(want)], want.view(np.uint32)[~np.isnan(want)])
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert compiled.stats.fallbacks == 0 and not compiled.stats.breaks


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_squares_in_lanes_are_those_of_pow() -> None:
    """Some of them are not the product: pow() is not exact."""

    def nearest(x, y, out):
        for j in range(len(y)):
            total = 0.0
            for i in range(len(x)):
                total += (x[i] - y[j]) ** 2
            out[j] = total

    rng = np.random.default_rng(0)
    x = np.concatenate((rng.random(200), [1e160, 1e-170, np.inf]))
    y = np.concatenate((rng.random(90), [np.nan, 1e-160, -1e155]))
    compiled = dg.compile(nearest)
    for n in (203, 200):
        plain, native = np.zeros((2, len(y)))
        nearest(x[:n], y, plain)
        compiled(x[:n], y, native)
        np.testing.assert_array_equal(native, plain)
    assert "as lanes of vectors" in compiled.programs[0].loops[0]
