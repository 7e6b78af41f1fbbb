"""NumPy scalars stored in arrays of other dtypes: signed integers take what ``int()`` gives, others cast."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from unittest import mock

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.frontend.loops import capture

NUMBERS = [0, -1.5, 100, 127.9, 128, -128.9, -129, 300, 32768, 2.0**63, -(2.0**63), 1e19, np.inf, -np.inf, np.nan]


def at_once(x, v):
    x[0] = v


def slice_(x, v):
    x[:2] = v


def fill(x, v):
    x.fill(v)


def loop(x, v):
    for i in range(len(x)):
        x[i] = v


PLACES, MASK = np.array([2, 0]), np.array([True, False, True])


def at_a_place_by_data(x, v):
    x[PLACES[1]] = v


def at_places(x, v):
    x[PLACES] = v


def where(x, v):
    x[MASK] = v


def outcome(f: Callable, x: np.ndarray, v: np.generic):
    try:
        f(x, v)
    except (OverflowError, ValueError) as error:
        return type(error), str(error), x.tolist()
    return x.tolist()


@pytest.mark.sampled(12)
@pytest.mark.parametrize("store", [at_once, slice_, fill, loop, at_a_place_by_data, at_places, where])
@pytest.mark.parametrize("scalar", ["int16", "uint64", "float32", "float64"])
@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8"])
def test_scalars_raise_where_signed_integers_do_not_hold_them(dtype: str, scalar: str, store: Callable) -> None:
    compiled = dg.compile(store)
    with dg.config.override(strict=True), mock.patch.object(capture, "FEW_TURNS", 0), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in NUMBERS:
            with np.errstate(all="ignore"):
                v = np.array(number).astype(scalar)[()]
            expected, got = (outcome(f, np.zeros(3, dtype), v) for f in (store, compiled))
            assert got == expected, v
