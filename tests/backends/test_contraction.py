"""Products are rounded before anything is added to them or subtracted, in whatever way lanes of vectors are mixed."""

from __future__ import annotations

import numpy as np
import pytest

import dynagraph as dg

N = 600
RNG = np.random.default_rng(0)


def constants(x, y, out):
    for k in range(x.shape[0] // 2):
        out[2 * k] = x[2 * k] * y[2 * k] - 0.5
        out[2 * k + 1] = x[2 * k + 1] * y[2 * k + 1] + 0.5


def variables(x, y, out):
    for k in range(x.shape[0] // 2):
        out[2 * k] = x[2 * k] * y[2 * k] - out[2 * k]
        out[2 * k + 1] = x[2 * k + 1] * y[2 * k + 1] + out[2 * k + 1]


def named(x, y, out):
    for k in range(x.shape[0] // 2):
        p = x[2 * k] * y[2 * k]
        q = x[2 * k + 1] * y[2 * k + 1]
        out[2 * k] = p + y[2 * k]
        out[2 * k + 1] = q - y[2 * k + 1]


def rotations(x, y, out):
    for k in range(x.shape[0] // 2):
        out[2 * k] = y[0] * x[2 * k] - y[1] * x[2 * k + 1]
        out[2 * k + 1] = y[1] * x[2 * k] + y[0] * x[2 * k + 1]


def products(x, y, out):
    for k in range(x.shape[0]):
        out[k] = x[k] * y[k]


def stacked(x, y, out):
    out[::2] = x[::2] * y[::2] - 0.5
    out[1::2] = x[1::2] * y[1::2] + 0.5


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("function", [constants, variables, named, rotations, stacked])
def test_of_real_numbers(function, dtype):
    same(function, *(RNG.normal(size=N).astype(dtype) for _ in range(3)))


@pytest.mark.parametrize("dtype", [np.complex128, np.complex64])
def test_of_complex_numbers(dtype):
    same(products, *((RNG.normal(size=N) + 1j * RNG.normal(size=N)).astype(dtype) for _ in range(3)))


def same(function, x, y, out):
    wanted = out.copy()
    function(x, y, wanted)
    dg.compile(function)(x, y, out)
    assert out.tobytes() == wanted.tobytes()
