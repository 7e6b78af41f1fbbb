"""``np.array([number, ...], dtype=...)`` stores each number as NumPy does: signed integers refuse scalars that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from tests.sampling import some

Outcome = tuple[Any, ...]
FORMS: dict[str, Callable[[np.ndarray, Any], np.ndarray]] = {
    "pair": lambda x, dtype: np.array([x[0], x[1]], dtype=dtype),
    "beside a number": lambda x, dtype: np.array([x[0], 2], dtype=dtype),
    "beside a large number": lambda x, dtype: np.array([x[0], 300], dtype=dtype),
    "beside a scalar": lambda x, dtype: np.array([x[0], np.float64(300.0)], dtype=dtype),
    "nested": lambda x, dtype: np.array([[[x[0]], [x[1]]], [[1], [2.0]]], dtype=dtype),
    "asarray": lambda x, dtype: np.asarray([x[0]], dtype=dtype),
    "sum": lambda x, dtype: np.array([x.sum(), 1], dtype=dtype),
    "float": lambda x, dtype: np.array([float(x[0].real), x[1]], dtype=dtype),
    "int": lambda x, dtype: np.array([int(x[0].real), x[1]], dtype=dtype),
    "0-d": lambda x, dtype: np.array([x[0:1].reshape(())], dtype=dtype),  # an array, which NumPy casts
    "rows": lambda x, dtype: np.array([x, x], dtype=dtype),
}
VALUES: dict[str, list[list[Any]]] = {
    "float64": [[0.5, 1e300], [np.nan, 1.0], [300.0, -3.0], [2.0, 3.0], [127.9, -128.9], [-129.0, 128.0]],
    "float32": [[0.5, 1e30], [300.0, -3.0]],
    "int64": [[300, -3], [2**40, 1], [1, 2]],
    "uint64": [[2**63 + 5, 1], [3, 4]],
    "int16": [[300, -3]],
    "bool": [[True, False]],
    "complex128": [[1j, 2], [3, 4]],
}


def outcome(function: Callable[..., np.ndarray], *args: Any) -> Outcome:
    try:
        result = function(*args)
    except (ValueError, OverflowError, TypeError) as error:
        return type(error), str(error)
    return result.dtype, result.shape, result.tobytes()


@pytest.mark.sampled(6)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("source", VALUES)
@pytest.mark.parametrize("form", FORMS)
def test_numbers_of_a_list_are_stored_as_numpy_stores_them(form: str, source: str) -> None:
    function = FORMS[form]
    for dtype in some(("int8", "int64", "uint8", "uint64", "float32", "bool"), 6, form + source):
        compiled = dg.compile(function)
        for values in VALUES[source]:
            x = np.array(values, dtype=source)
            assert outcome(compiled, x, dtype) == outcome(function, x, dtype)
        assert compiled.stats.fallbacks == 0
