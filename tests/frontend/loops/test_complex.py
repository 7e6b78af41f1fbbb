"""Complex numbers in native loops: division and cmath.exp have Python's bits, and raise what Python raises."""

from __future__ import annotations

import cmath

import numpy as np
import pytest

import dynagraph as dg


def quotients(a, b, n):
    s = 0j
    for i in range(n):
        s += complex(a[i], b[i]) / complex(b[i], a[n - 1 - i]) + float(a[i]) / complex(0.5, float(b[i])) + complex(1, b[i]) / 3
    return s


def exponentials(a, b, n):
    s = 0j
    for i in range(n):
        s += cmath.exp(complex(a[i], b[i])) * cmath.exp(-2j * cmath.pi * i / n) + cmath.exp(float(a[i]))
    return s


@pytest.mark.parametrize("f", [quotients, exponentials])
def test_bits_are_those_of_python(f):
    compiled, rng = dg.compile(f), np.random.default_rng(1)
    for n in (50, 400, 3):
        a, b = rng.normal(size=n) * 10.0 ** rng.integers(-3, 2, n), rng.normal(size=n)
        assert repr(compiled(a, b, n)) == repr(f(a, b, n))
    assert not compiled.stats.side_exits and not compiled.stats.calls_out


@pytest.mark.sampled(6)
@pytest.mark.parametrize("odd", [0.0, -0.0, float("inf"), float("nan"), 1e308, 5e-324, 720.0])
@pytest.mark.parametrize("f", [quotients, exponentials])
def test_what_is_not_finite(f, odd):
    def outcome(g, *args):
        try:
            return repr(g(*args))
        except ArithmeticError as error:
            return repr(error)
        except ValueError as error:
            return repr(error)

    compiled, n = dg.compile(f), 30
    for at in (0, 11):
        a, b = np.linspace(-1.0, 2.0, n), np.linspace(3.0, -4.0, n)
        a[at] = b[at] = a[n - 1 - at] = odd
        assert outcome(compiled, a, b, n) == outcome(f, a, b, n)


def ordered(x, y, out):
    for i in range(len(x)):
        a, b = x[i], y[i]
        out[i, 0] = a < b
        out[i, 1] = a <= b
        out[i, 2] = a > b
        out[i, 3] = a >= b
        out[i, 4] = max(a, b) == a


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("dtypes", ["DD", "Dd", "dD", "Ff", "Fd", "FD"])
def test_scalars_beside_nan_are_ordered_as_numpy_orders_scalars(dtypes):
    """By their real parts first; those of arrays, and of scalars that need a wider dtype, are not ordered at all."""
    parts = np.array([0.0, 2.0, -2.0, np.inf, -np.inf, np.nan])
    pairs = [complex(re, im) for re in parts for im in parts]
    x, y = ([z if kind in "DF" else z.real for z in pairs] for kind in dtypes)
    left, right = np.repeat(np.array(x, dtypes[0]), len(y)), np.tile(np.array(y, dtypes[1]), len(x))
    plain, native = np.zeros((2, len(left), 5), bool)
    ordered(left, right, plain)
    compiled = dg.compile(ordered, mode="max")
    compiled(left, right, native)
    np.testing.assert_array_equal(native, plain)
    assert not compiled.stats.side_exits
