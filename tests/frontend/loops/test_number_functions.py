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
