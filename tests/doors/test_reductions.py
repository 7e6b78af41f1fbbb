"""Reductions, statistics and scans through the door, over dtypes, shapes and axes."""

from __future__ import annotations

import numpy as np
import pytest

import dynagraph as dg

from .harness import DTYPES, check, check_or_declined, declined, sample

pytestmark = pytest.mark.sampled(3)

SHAPES = ((), (5,), (3, 4), (2, 1, 3), (0,), (2, 0))
AXES = (None, 0, -1, 1, (0, 1), (-1, 0), (0, 0), (), 5)
REDUCTIONS = (
    np.sum,
    np.prod,
    np.max,
    np.min,
    np.any,
    np.all,
    np.mean,
    np.var,
    np.std,
    np.ptp,
    np.average,
    np.count_nonzero,
    np.nansum,
    np.nanprod,
    np.amax,
    np.amin,
)
SCANS = (np.cumsum, np.cumprod)
INEXACT = {np.var, np.std, np.mean}


def name(value: object) -> str:
    return getattr(value, "__name__", str(value))


@pytest.mark.sampled(24)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", REDUCTIONS, ids=name)
def test_reductions(function, dtype):
    for shape in SHAPES:
        x = sample(shape, dtype)
        for axis in AXES:
            for keepdims in (False, True):
                check_or_declined(lambda a: function(a, axis=axis, keepdims=keepdims), x)


@pytest.mark.sampled(6)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "method", ("sum", "prod", "max", "min", "any", "all", "mean", "var", "std", "cumsum", "cumprod", "argmax", "argmin")
)
def test_methods(method):
    for dtype in DTYPES:
        for shape in SHAPES:
            for axis in (None, 0, -1, 1):
                check_or_declined(lambda a: getattr(a, method)(axis), sample(shape, dtype))
                check_or_declined(lambda a: getattr(a, method)(axis=axis), sample(shape, dtype))


def test_what_is_taken():
    """The same tables must not pass by declining everything."""
    for dtype in DTYPES:
        x = sample((3, 4), dtype)
        for function in REDUCTIONS:
            if function is np.ptp and dtype == "bool":
                assert declined(function, x) == "NUMPY_ERROR"
                continue
            check(lambda a: function(a), x)
            check(lambda a: function(a, axis=1, keepdims=True), x)
            check(lambda a: function(a, (1, 0)), x)


@pytest.mark.parametrize("function", (np.argmax, np.argmin), ids=name)
def test_positions(function):
    for dtype in DTYPES:
        for shape in SHAPES:
            for axis in (None, 0, 1, -1, 5):
                for keepdims in (False, True):
                    check_or_declined(lambda a: function(a, axis=axis, keepdims=keepdims), sample(shape, dtype))
    check(lambda a: function(a, axis=0), np.array([[1.0, np.nan], [np.nan, 0.0]]))
    check(lambda a: function(a), sample((3, 4), "int32"))


@pytest.mark.parametrize("function", SCANS, ids=name)
def test_scans(function):
    for dtype in DTYPES:
        for shape in SHAPES:
            for axis in (None, 0, -1, 1, 7):
                check_or_declined(lambda a: function(a, axis=axis), sample(shape, dtype))
        check_or_declined(lambda a: function(a, dtype="float64"), sample((3, 2), dtype))
    check(lambda a: function(a, 1), sample((3, 4), "int32"))


@pytest.mark.parametrize("dtype", ("int64", "float32", "float64", "int32"))
def test_dtype_of_the_accumulator(dtype):
    for operand in DTYPES:
        x = sample((3, 4), operand)
        for function in (np.sum, np.prod, np.mean, np.var, np.std):
            check_or_declined(lambda a: function(a, axis=0, dtype=dtype), x, exact=False)
    check(lambda a: np.sum(a, dtype=dtype), sample((3, 4), "uint8"))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("ddof", (0, 1, 2.5))
def test_ddof(ddof):
    for dtype in ("int32", "float32", "float64"):
        x = sample((3, 4), dtype)
        check_or_declined(lambda a: np.var(a, ddof=ddof), x)
        check_or_declined(lambda a: a.std(axis=0, ddof=ddof), x)
        check_or_declined(lambda a: np.std(a, correction=ddof), x)
        for refused in [lambda a: np.var(a, ddof=12), lambda a: a.std(axis=0, ddof=3.5)]:
            assert declined(refused, x) == "UNSUPPORTED_ARGUMENT"  # NumPy warns
    assert declined(lambda a: np.std(a, ddof=1, correction=1), sample((3,), "float64")) == "NUMPY_ERROR"


UFUNCS = (np.add, np.multiply, np.maximum, np.minimum, np.logical_and, np.logical_or)


@pytest.mark.parametrize("ufunc", UFUNCS, ids=name)
def test_reduce_and_accumulate_of_ufuncs(ufunc):
    for dtype in DTYPES:
        for axis in (0, 1, None, (0, 1)):
            check_or_declined(lambda a: ufunc.reduce(a, axis=axis), sample((3, 4), dtype))
            check_or_declined(lambda a: ufunc.reduce(a, axis=axis, keepdims=True), sample((3, 4), dtype))
        check_or_declined(lambda a: ufunc.accumulate(a), sample((3, 4), dtype))
    check(lambda a: ufunc.reduce(a), sample((3, 4), "float64"))
    check(lambda a: np.add.accumulate(a, 1), sample((3, 4), "float64"))


def test_arrays_that_are_not_followed_are_declined():
    x = sample((3,), "float64")
    assert declined(lambda a: np.sum(a, where=np.ones(3, bool)), x) == "UNSUPPORTED_ARGUMENT"
    assert declined(lambda a: np.sum(a, out=np.zeros(())), x) == "IN_PLACE_WRITE"


def test_average_refuses_weights_that_sum_to_zero():
    check(lambda a: np.average(a, weights=a), np.array([1.0, 2.0, -1.5]))
    assert declined(lambda a: np.average(a, weights=a), np.array([1.0, 2.0, -3.0])) == "DATA_DEPENDENT"


@pytest.mark.parametrize("n", (1, 2, 5))
def test_diff(n):
    for dtype in DTYPES:
        for axis in (-1, 0, 3):
            check_or_declined(lambda a: np.diff(a, n, axis=axis), sample((3, 4), dtype))
    check(lambda a: np.diff(a, n), sample((8,), "int32"))


@pytest.mark.parametrize("function", (np.sum, np.mean, np.std, np.max, np.argmax, np.cumsum), ids=name)
def test_symbolic_sizes(function):
    for axis in (0, 1, None):
        check(lambda a: function(a, axis=axis), sample((5, 7), "float32"), symbolic=True)


def zero_signs(results):
    return [np.signbit(r) for r in results]


@pytest.mark.parametrize("backend", ("reference", "numpy", "c"))
def test_sums_start_at_positive_zero(backend):
    def sums(a):
        one = a[..., :1]
        return a.sum(0), a.sum(-1), np.sum(a), np.nansum(a, 0), np.add.reduce(a, axis=0), np.sum(one), one.sum(-1), a.sum(())

    compiled = dg.compile(sums, backend=backend)
    for shape in ((0,), (0, 3), (2,), (1,), (1, 3), (3, 1), (3, 40), (300, 20)):
        for dtype in (np.float32, np.float64):
            zeros = np.full(shape, -0.0, dtype)
            for given, expected in zip(zero_signs(compiled(zeros)), zero_signs(sums(zeros))):
                np.testing.assert_array_equal(given, expected)


@pytest.mark.parametrize("function", (np.mean, np.var, np.std, np.median, np.nanmedian), ids=name)
def test_statistics_of_too_few_elements_are_declined(function):
    """NumPy warns of them."""
    declined(lambda a: function(a), sample((0,), "float64"))
    declined(lambda a: function(a, axis=0), sample((0, 3), "float64"))
    check(lambda a: function(a, axis=1), sample((0, 3), "float64"))
    if function in (np.var, np.std):
        for ddof in (3, 12.5):
            declined(lambda a: function(a, ddof=ddof), sample((3,), "float64"))
        check(lambda a: function(a, ddof=2), sample((3,), "float64"), exact=False)
