"""The dtypes of results: every binary ufunc that has a door, over every pair of dtypes and every kind of Python number."""

from __future__ import annotations

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.doors.numpy import Builder, Unsupported, lookup
from dynagraph.doors.numpy.elementwise import UFUNCS
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Meta

BINARY = sorted((u for u in UFUNCS if u.nin == 2), key=lambda u: u.__name__)
NUMBERS = (True, 3, 2.5, 1 + 2j)


def promoted(ufunc, left, right):
    """The dtypes that NumPy gives; None where it raises."""
    try:
        with np.errstate(all="ignore"):
            results = ufunc(left, right)
    except TypeError:
        return None
    return [np.asarray(r).dtype for r in (results if isinstance(results, tuple) else (results,))]


def captured(ufunc, left, right):
    """The dtypes of the nodes; None where the door declines."""
    builder = Builder(Graph())
    operands = [
        builder.graph.placeholder("x", Meta(dtypes.from_numpy(x.dtype), x.shape)) if isinstance(x, np.ndarray) else x
        for x in (left, right)
    ]
    try:
        results = lookup(ufunc)(builder, *operands)
    except Unsupported:
        return None
    return [r.dtype.numpy for r in (results if isinstance(results, tuple) else (results,))]


@pytest.mark.parametrize("ufunc", BINARY, ids=lambda u: u.__name__)
def test_every_pair(ufunc):
    arrays = [np.ones(2, d.numpy) for d in dtypes.ALL]
    taken = 0
    for x in arrays:
        pairs = [(x, y) for y in arrays] + [(x, n) for n in NUMBERS] + [(n, x) for n in NUMBERS]
        for pair in pairs:
            got, want = captured(ufunc, *pair), promoted(ufunc, *pair)
            assert got is None or got == want, pair
            taken += got is not None
    assert taken >= len(arrays)  # the matrix must not pass by declining everything


@pytest.mark.parametrize("function", [
    lambda x: x.astype("q"), lambda x: np.zeros(3, np.ulonglong), lambda x: np.add(x, x, dtype="q"), lambda x: np.sum(x, dtype="Q"),
    lambda x: x + 1, lambda x: x == np.uint64(3), lambda x: np.arange(4, dtype=np.longlong) + x[0],
])
@pytest.mark.parametrize("given", ["l", "q"])
def test_the_integers_of_long_long_are_a_dtype_of_their_own(function, given: str) -> None:
    """Equal to int64's or uint64's, with another ``char``."""
    x = np.arange(3).astype(given)
    compiled = dg.compile(function, backend="reference")
    for _ in range(2):
        got, want = compiled(x), function(x)
        assert (got.dtype, got.dtype.char) == (want.dtype, want.dtype.char)
        np.testing.assert_array_equal(got, want)
