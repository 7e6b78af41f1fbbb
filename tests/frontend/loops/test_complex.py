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


@pytest.mark.sampled(3)
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
