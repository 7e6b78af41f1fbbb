"""Indexing by arrays of integers: gathers and scatters, checked before anything happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import dynagraph as dg
from tests.sampling import examples

BACKENDS = ("c", "numpy", "reference")


def outcome(function: Callable, arrays: list[np.ndarray]) -> tuple[Any, list[np.ndarray]]:
    """What a call gives, or raises, and the arguments behind it."""
    given = [a.copy(order="K") for a in arrays]
    try:
        result = function(*given)
    except (IndexError, ValueError) as error:
        result = repr(error)
    return result, given


def compare(function: Callable, *arrays: np.ndarray, backend: Any = "reference", breaks: bool = False, **options: Any) -> Any:
    compiled = dg.compile(function, backend=backend, **options)
    with dg.config.override(strict=True):
        for _ in range(2):
            (expected, theirs), (got, ours) = outcome(function, arrays), outcome(compiled, arrays)
            assert type(got) is type(expected)
            for e, g in zip([expected, *theirs], [got, *ours]):
                if isinstance(e, (np.ndarray, np.generic)):
                    assert g.dtype == e.dtype
                np.testing.assert_array_equal(g, e)
    assert breaks or not compiled.stats.breaks, compiled.stats.breaks
    return compiled


@st.composite
def indexed(draw) -> tuple[np.ndarray, tuple, list[np.ndarray]]:
    """An array; an index in which numbers stand for the arrays that come after; these."""
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4))
    common = draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=1, max_side=3))
    key: list[Any] = []
    places: list[np.ndarray] = []
    for size in shape:
        kind = draw(st.sampled_from(["places", "slice", "integer"]))
        if kind == "places":
            own = draw(st.sampled_from([common, common[1:], (1,) * len(common)]))
            dtype = draw(st.sampled_from(["int64", "int32"]))
            places.append(draw(hnp.arrays(dtype, own, elements=st.integers(-size, size - 1))))
            key.append(("places", len(places) - 1))
        else:
            key.append(draw(st.slices(size)) if kind == "slice" else draw(st.integers(-size, size - 1)))
        if draw(st.booleans()) and draw(st.booleans()):
            key.append(None)
    return np.arange(float(np.prod(shape))).reshape(shape), tuple(key), places


def with_places(key: tuple, places: tuple) -> tuple:
    return tuple(places[k[1]] if isinstance(k, tuple) else k for k in key)


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(indexed())
def test_any_index_reads_what_numpys_does(case) -> None:
    x, key, places = case
    only_numbers = all(p.ndim == 0 for p in places)
    compare(lambda x, *places: x[with_places(key, places)] * 1.0, x, *places, breaks=only_numbers)


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(indexed(), st.sampled_from(["number", "row", "each"]))
def test_any_index_writes_what_numpys_does(case, kind: str) -> None:
    x, key, places = case
    target = x[with_places(key, tuple(places))]
    each = -1.0 - np.arange(target.size).reshape(target.shape)
    value = {"number": 2.5, "row": np.full(target.shape[-1:], 3.5), "each": each}[kind]

    def write(x, value, *places):
        x[with_places(key, places)] = value
        return x

    compare(write, x, np.asarray(value), *places, breaks=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_columns_and_pairs(backend: str) -> None:
    x = np.arange(24.0).reshape(4, 6)
    i, j = np.array([3, 0, -1]), np.array([[1], [5], [-6]])
    for function in (
        lambda x, i, j: x[i] * 2,
        lambda x, i, j: x[:, i] + 1,
        lambda x, i, j: x[i, j],
        lambda x, i, j: x[[0, 2]] + x[[-1, 1]],
        lambda x, i, j: np.take(x, i, axis=1) + x.take(i).sum(),
        lambda x, i, j: np.exp(x * 0)[i].sum(axis=0),
        lambda x, i, j: x[i][:, j[:, 0]].T,
        lambda x, i, j: x[[]],
    ):
        compare(function, x, i, j, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_writes_at_places(backend: str) -> None:
    def histogram(x, i):
        counts = np.zeros(6)
        counts[i] = 1.0
        return counts

    def swap(x, i):
        x[i, 0], x[0, i] = x[0, i], x[i, 0]

    def twice(x, i):
        x[[0, 0, 1]] = x[[1, 2, 3]]
        x[i] += x[:, i].sum()
        return x.sum()

    x, i = np.arange(16.0).reshape(4, 4), np.array([3, 0, 1])
    for function in (histogram, swap, twice):
        compare(function, x, i, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bad", [[0, 9], [-5, 0], [4]])
def test_out_of_bounds_is_numpys_error_and_nothing_happens_twice(backend: str, bad: list[int]) -> None:
    log: list[str] = []

    def f(x, i):
        x += 1
        log.append("added")
        x[i] = x[i] * 2
        log.append("stored")
        return x[0]

    x = np.arange(8.0).reshape(4, 2)
    compiled = compare(f, x, np.array(bad), backend=backend)
    assert log == ["added"] * 4 and compiled.stats.hits == 0
    compare(f, x, np.array([1, 2]), backend=backend)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ufunc", [np.add, np.subtract, np.multiply, np.maximum, np.minimum], ids=lambda u: u.__name__)
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32"])
def test_ufuncs_at_places(backend: str, ufunc: np.ufunc, dtype: str) -> None:
    def f(x, i, v):
        ufunc.at(x, i, v)
        ufunc.at(x, (i, [0]), 3)
        counts = np.zeros(5)
        np.add.at(counts, i, 1.0)
        return counts

    x, i = (np.arange(12) - 5).reshape(4, 3).astype(dtype), np.array([3, 0, 3, -1, 3])
    compare(f, x, i, np.arange(15).reshape(5, 3).astype(dtype), backend=backend)


def test_ufuncs_at_places_of_other_kinds() -> None:
    def f(x, i, v):
        np.add.at(x, i, v)
        np.logaddexp.at(x, i, 1.0)
        np.add.at(x, 1, 2.0)
        return x * 1

    compare(f, np.arange(4.0), np.array([1, 1]), np.array([1.0, 2.0], "float32"), breaks=True)
    compare(f, np.arange(4.0), np.array([1, 7]), np.array([1.0, 2.0]), breaks=True)


def test_errors_can_be_caught() -> None:
    def f(x, i):
        try:
            return x[i] + 1
        except IndexError:
            return x * 0

    x = np.arange(4.0)
    compiled = compare(f, x, np.array([7]))
    np.testing.assert_array_equal(compiled(x, np.array([1])), [2.0])


def test_refused_calls_of_callees_of_broken_parts() -> None:
    def inner(x, i, *rest, scale=2.0, **named):
        return x[i] * scale

    def f(x, i):
        total = float(x.sum())
        return inner(x, i, 1, scale=total, other=3)

    x = np.arange(4.0)
    compiled = dg.compile(f, backend="reference")
    for places in ([1, 2], [1, 2], [9, 0], [3, 3]):
        (expected, _), (got, _) = outcome(f, [x, np.array(places)]), outcome(compiled, [x, np.array(places)])
        np.testing.assert_array_equal(got, expected)


def test_symbolic_sizes() -> None:
    compiled = dg.compile(lambda x, i: x[i] + x[-i], backend="reference", dynamic=True)
    for n in (3, 5, 8):
        x, i = np.arange(float(n)), np.arange(n - 1)
        np.testing.assert_array_equal(compiled(x, i), x[i] + x[-i])
    assert compiled.stats.compiles == 1
    with pytest.raises(IndexError, match="index 3 is out of bounds for axis 0 with size 3"):
        compiled(np.arange(3.0), np.array([1, 3]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_place_that_is_checked_twice(backend: str) -> None:
    def f(x, done):
        i = np.argmin(np.where(done, np.inf, x))
        done[i] = True
        return x + x[i], done

    compare(f, np.array([3.0, 1.0, 2.0]), np.array([False, True, False]), backend=backend)


def test_many_checks():
    def f(x, places):
        total = x[places[0]]
        for k in range(1, 40):
            total = total + x[places[k]]
        return total

    places = np.random.default_rng(1).integers(-5, 5, (40, 3))
    compare(f, np.arange(5.0), places)
    for k in (0, 31, 32, 39):
        wrong = places.copy()
        wrong[k, 1] = 5
        compare(f, np.arange(5.0), wrong)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64"])
def test_dtypes_that_bound_places(dtype):
    def f(table, places):
        np.add.at(table, places, 1.0)
        return table[places] * 2.0, table[places & 7]

    limits = np.iinfo(dtype)
    places = np.array([limits.min, 0, 3, limits.max]).astype(dtype) if dtype != "int64" else np.array([-256, 0, 3, 255])
    for backend in BACKENDS:
        compiled = compare(f, np.arange(256.0), places, backend=backend)
        assert all((p.graph.n_checks > 0) == (dtype == "int64") for p in compiled.programs)


@pytest.mark.parametrize("function", [lambda x, k: x[k[0]], lambda x, k: x[k[0], 1], lambda x, k: x[k[:1], 1]])
@pytest.mark.parametrize("place", [1, 2**63, 2**64 - 4])
def test_a_place_of_uint64_is_no_negative_number(function: Callable, place: int) -> None:
    """NumPy takes scalars by their values, and arrays modulo 2**64."""
    x, k = np.arange(25.0).reshape(5, 5), np.array([place], np.uint64)

    def result(call: Callable) -> Any:
        try:
            return np.asarray(call(x, k)).tolist()
        except (OverflowError, IndexError) as error:
            return repr(error)

    assert result(dg.compile(function)) == result(function)
