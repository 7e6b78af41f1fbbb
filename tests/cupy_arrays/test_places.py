"""Indices that are CuPy's arrays: places out of bounds are those modulo the size, as in CuPy, read and written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from tests.cupy_arrays.harness import check, put

X = np.arange(20.0).reshape(5, 4)
PLACES = np.array([0, -1, 7, 3, 3, -12])
ONCE = np.array([6, 0, -2])  # three rows of five

READS: dict[str, Callable[[Any, Any], Any]] = {
    "rows": lambda x, i: x[i] * 2,
    "columns": lambda x, i: x[:, i] + 1,
    "both": lambda x, i: x[i, i % 3],
    "a grid": lambda x, i: x[i[:, None], i],
    "behind a slice": lambda x, i: x[1:][i],
    "with a new axis": lambda x, i: x[i, None],
    "computed": lambda x, i: x[(x.sum(axis=1) * 3).astype(np.int64)] - x[i[:5] + 100],
    "of numbers": lambda x, i: i[i] + 1,
    "taken": lambda x, i: x.take(i, axis=1) + np.take(x, i, axis=0)[0, 0],
}


def written(x: Any, i: Any) -> Any:
    x[i] = 1.5
    return x * 2


def written_rows(x: Any, i: Any) -> Any:
    y = x * 1
    y[i] = x[:3] + 1
    y[:, i[:1]] -= 2
    return y


WRITES: dict[str, Callable[[Any, Any], Any]] = {"a number": written, "rows": written_rows}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("name", READS)
def test_places_are_read_as_plainly(cp: Any, name: str, dtype: str) -> None:
    check(cp, READS[name], X, PLACES.astype(dtype))
    check(cp, READS[name], X, PLACES.astype(dtype), dynamic=True)


@pytest.mark.parametrize("name", WRITES)
def test_places_are_written_as_plainly(cp: Any, name: str) -> None:
    check(cp, WRITES[name], X, ONCE)
    check(cp, WRITES[name], X, ONCE, dynamic=True)


def test_places_far_out_of_bounds(cp: Any) -> None:
    far = np.array([2**62, -(2**63), 2**63 - 1, -1, 5])
    check(cp, lambda x, i: x[i] * 2, X, far)
    check(cp, lambda x, i: x[1:4][i] * 2, X, far)


def test_sizes_that_change(cp: Any) -> None:
    compiled = dg.compile(lambda x, i: x[i] * 2, dynamic=True)
    for rows, places in ((5, [7, 1]), (2, [7, 1, -9]), (1, [3])):
        found = compiled(put(cp, X[:rows].copy()), put(cp, np.array(places)))
        np.testing.assert_array_equal(found.get(), X[:rows][np.array(places) % rows] * 2)
    assert compiled.stats.fallbacks == 0 and not compiled.stats.breaks


def test_writes_through_views_and_to_what_is_read(cp: Any) -> None:
    def through(x: Any, i: Any) -> Any:
        y = x[1:]
        y[i] = 7
        return x + 0

    def raised(x: Any, i: Any) -> Any:
        x[i] = x[i] + 1
        return x * 1

    check(cp, through, X, np.array([3, -5]))
    check(cp, raised, X, np.array([1, 1, 6]))  # one place, read before it is written


def test_small_dtypes_of_places_run_plainly(cp: Any) -> None:
    """CuPy takes them modulo the size in their own dtype, in which the size may overflow."""
    check(cp, lambda x, i: x[i] * 2, X, np.array([1, 2], np.int8), breaks="unsupported-index")


def test_nothing_is_taken_of_nothing(cp: Any) -> None:
    check(cp, lambda x, i: x[i].sum(), np.zeros((0, 3)), np.zeros(0, np.int64), whole=False)


def test_gradients_of_rows_that_are_looked_up(cp: Any) -> None:
    def loss(table: Any, i: Any, y: Any) -> Any:
        return ((table[i] - y) ** 2).sum()

    step = dg.compile(dg.value_and_grad(loss), fullgraph=True)
    table, y = X, np.linspace(0, 1, 24).reshape(6, 4)
    for places in (PLACES, PLACES[::-1] * 3):
        value, gradient = step(put(cp, table), put(cp, places), put(cp, y))
        wanted = np.zeros_like(table)
        np.add.at(wanted, places % 5, 2 * (table[places % 5] - y))
        np.testing.assert_allclose(gradient.get(), wanted, rtol=1e-12)
        np.testing.assert_allclose(float(value), ((table[places % 5] - y) ** 2).sum(), rtol=1e-12)
    assert step.stats.compiles == 1 and step.stats.fallbacks == 0
