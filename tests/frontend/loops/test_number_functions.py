"""Python's functions of numbers, of NumPy's scalars in native loops: what they give, of which type, and what they raise."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg

FUNCTIONS = [
    math.trunc, math.floor, math.ceil, math.sqrt, math.exp, math.isnan, math.isqrt, math.fabs, math.log, round, int, float, bool,
    abs, operator.index,
]  # fmt: skip
VALUES = {
    "float16": [1.5, -2.5, 7.0, float("nan")], "float32": [0.5, 2.25, -3.0, float("inf")],
    "float64": [2.5, -0.0, 1e300, float("nan")], "int32": [0, 3, -7, 2**31 - 1],
    "uint64": [0, 5, 2**53 + 1, 2**64 - 1], "bool": [True, False, True, True],
    "complex128": [1.5, 2.0, -1.0, 0.0],
}  # fmt: skip


@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_as_python_has_it(function: Callable[..., Any], dtype: str) -> None:
    def plain(x: np.ndarray) -> list[Any]:
        out: list[Any] = []
        for k in range(len(x)):
            try:
                out.append(function(x[k]))
            except (TypeError, ValueError, OverflowError) as error:
                out.append(str(error))
        return out

    x = np.resize(np.array(VALUES[dtype], dtype), 300)  # too long to be unrolled
    compiled = dg.compile(plain)
    want = plain(x)
    for _ in range(2):
        got = compiled(x)
        assert len(got) == len(want)
        assert [(type(v), repr(v)) for v in got[:8]] == [(type(v), repr(v)) for v in want[:8]]
    assert compiled.stats.fallbacks == 0


def extremes(x, y, low, high):
    found, last = np.zeros((len(x), 2)), (None, None)
    for k in range(len(x)):
        last = max(low, x[k], y[k] + 1, high), min(y[k], low, high, x[k], 2.0)
        found[k] = last
    return found, last


ODD = [1.5, float("nan"), -0.0, 0.0, 1e30, float("-inf"), 2.0, 7.0]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("kinds", [("f8", "f8"), ("i8", "i8"), ("i8", "f8"), ("f4", "f8"), ("bool", "i8"), ("u8", "i8")])
@pytest.mark.parametrize("bounds", [(0, 3), (0, 2.5), (0.0, -0.0), (2**60, 1), (True, 2), (-(2**53) - 1, 0.5), (float("nan"), 1)])
def test_extremes_of_several_types_are_of_one_by_data(kinds: tuple[str, str], bounds: tuple[Any, Any]) -> None:
    tame = np.nan_to_num(ODD).clip(-9, 9)
    x, y = (np.resize(ODD if k[0] == "f" else tame, 20).astype(k) for k in kinds)
    compiled = dg.compile(extremes)
    for n in (20, 20, 0, *range(1, 9)):
        args = x[:n], y[n // 2 : n // 2 + n][:n], *bounds
        if len(args[0]) == len(args[1]):
            (want, kinds_of), (got, found) = extremes(*args), compiled(*args)
            assert got.tobytes() == want.tobytes() and [(type(v), repr(v)) for v in found] == [(type(v), repr(v)) for v in kinds_of]
    assert compiled.stats.fallbacks == 0
