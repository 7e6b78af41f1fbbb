"""Reductions with every argument: axes, keepdims, initial, where, dtype, out, ddof, mean; NumPy's warnings and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sampling import some

from .compiled import compare
from .harness import DTYPES, sample

NAMES = ("sum", "prod", "mean", "std", "var", "min", "max", "any", "all")
NAN_NAMES = ("nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmax", "nanmin")
WITH_INITIAL = {"sum", "prod", "min", "max", "nansum", "nanprod", "nanmax", "nanmin"}
EXACT = {"min", "max", "any", "all", "nanmax", "nanmin"}
SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (0,), (5,), (3, 4), (2, 1, 3), (2, 0), (3, 0, 2))
MASKS = (np.array([True, False, True, True]), np.array([[True], [False], [True]]), np.zeros(4, bool))
FEW = ("bool", "int8", "uint32", "int64", "float32", "float64")

every = pytest.mark.parametrize("name", NAMES + NAN_NAMES)


def holey(name: str, shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """With a NaN where NaN matters, among floats."""
    x = sample(shape, dtype, seed)
    if dtype.startswith("float") and x.size > 2 and (name.startswith("nan") or name in ("min", "max")):
        x.flat[1] = np.nan
    return x


@pytest.mark.sampled(2)
@every
def test_axes_and_initial_values(name):
    f, exact = getattr(np, name), name in EXACT
    for k, dtype in some(enumerate(FEW), 6, name):
        for shape in SHAPES:
            x = holey(name, shape, dtype, k)
            for axis in (None, 0, -1, (0, 1), (), (0, 2)):
                for kept in ({}, {"keepdims": True}):
                    compare(lambda x: f(x, axis=axis, **kept), x, exact=exact)
                if name in WITH_INITIAL:
                    compare(lambda x: f(x, axis=axis, initial=3), x, exact=exact)


@every
def test_where(name):
    f, exact = getattr(np, name), name in EXACT
    for k, dtype in some(enumerate(DTYPES), 4, name):
        x = holey(name, (3, 4), dtype, k)
        for mask in MASKS:
            compare(lambda x, m: f(x, axis=1, where=m), x, mask, exact=exact)
            compare(lambda x, m: f(x, where=m), x, mask, exact=exact)
            if name in WITH_INITIAL:
                compare(lambda x, m: f(x, axis=0, where=m, initial=1), x, mask, exact=exact)
        compare(lambda x, m: f(x, axis=0, where=m), x, MASKS[0].astype(int), exact=exact)  # an error


@pytest.mark.sampled(2)
@every
def test_results_in_arrays(name):
    f, exact = getattr(np, name), name in EXACT
    for k, dtype in some(enumerate(DTYPES), 4, name):
        x = holey(name, (3, 4), dtype, k)
        for out in {dtype, "float64", "int64", "bool"}:
            compare(lambda x, o: f(x, axis=1, out=o), x, np.ones(3, out), exact=exact)
            compare(lambda x, o: f(x, out=o), x, np.ones((), out), exact=exact)
            compare(lambda x, o: f(x, axis=1, out=o), x, np.ones(4, out), exact=exact)  # an error
            compare(lambda x, o: f(x, axis=1, out=(o,)), x, np.ones(3, out), exact=exact)
        if name in ("sum", "prod", "mean", "std", "var"):
            compare(lambda x, o: getattr(x, name)(1, None, o), x, np.ones(3, "float64"), exact=exact)


@every
def test_views_and_long_arrays(name):
    f, exact = getattr(np, name), name in EXACT
    for k, dtype in enumerate(("int16", "float32", "float64")):
        x = holey(name, (3, 4), dtype, k)
        views = lambda x: (f(x[::-1, ::2], axis=0), f(x.T, axis=0), f(np.broadcast_to(x[0], (3, 4)), axis=0))  # noqa: E731
        compare(views, x, exact=exact, breaks=False)
        compare(lambda x: (f(x), f(x.reshape(100, -1), axis=0), f(x.reshape(-1, 100), axis=1)),
                sample((70000,), dtype, k) * x.dtype.type(0 if "prod" in name else 1), exact=exact, breaks=False)  # fmt: skip


@pytest.mark.parametrize("name", ("mean", "std", "var", "nanmean", "nanvar", "nanstd", "sum", "prod", "nansum", "nanprod"))
def test_dtypes_are_asked_for(name):
    f = getattr(np, name)
    for k, dtype in some(enumerate(DTYPES), 4, name):
        x = holey(name, (3, 4), dtype, k)
        for wanted in ("float32", "float64", "int64", "int8", "bool", "uint16"):
            if not (name in ("var", "std") and dtype == "float64" and wanted == "float32"):  # NumPy rounds on the way
                compare(lambda x: f(x, axis=1, dtype=wanted), x, exact=False)


@pytest.mark.parametrize("name", ("std", "var", "nanstd", "nanvar"))
def test_degrees_of_freedom_and_known_means(name):
    f = getattr(np, name)
    arguments: tuple[dict[str, Any], ...] = (
        {"ddof": 1}, {"ddof": 1.5}, {"ddof": 4}, {"correction": 1}, {"ddof": 1, "correction": 1},
    )  # fmt: skip
    for k, dtype in some(enumerate(FEW), 2, name):
        x = holey(name, (3, 4), dtype, k)
        for given in arguments:
            compare(lambda x: f(x, axis=1, **given), x, exact=False)
        compare(lambda x: f(x, axis=1, mean=np.mean(x, axis=1, keepdims=True)), x, exact=False)


def test_warnings_are_numpys():
    empty, missing = np.zeros((0, 3)), np.array([[np.nan, np.nan], [1.0, np.nan]])
    for f in (np.mean, np.var, np.std):
        assert compare(lambda x: f(x, axis=0), empty)
        compare(lambda x: f(x, axis=1), empty, breaks=False)
    for f in (np.nanmean, np.nanvar, np.nanstd, np.nanmax, np.nanmin, np.nanargmax):
        compare(lambda x: f(x, axis=1), missing, exact=False, breaks=False)
        compare(lambda x: f(x, axis=1), missing[1:], exact=False, breaks=False)


SCANS = ("cumsum", "cumprod", "nancumsum", "nancumprod", "cumulative_sum", "cumulative_prod")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [n for n in SCANS if hasattr(np, n)])
def test_scans(name):
    f = getattr(np, name)
    for k, dtype in some(enumerate(DTYPES), 4, name):
        for axis in (None, 0, -1, 1, (0, 1)):
            for shape in ((), (0,), (6,), (3, 4), (2, 0)):
                compare(lambda x: f(x, axis=axis), holey(f"nan{name}", shape, dtype, k))
            x = holey(name, (3, 4), dtype, k)
            for other in ("float32", "int64"):
                compare(lambda x: f(x, axis=axis, dtype=other), x)
                compare(lambda x, o: f(x, axis=axis, out=o), x, np.ones((3, 4), other))
            if name.startswith("cumulative"):
                compare(lambda x: f(x, axis=axis, include_initial=True), x)


def test_average():
    for k, dtype in some(enumerate(DTYPES), 4, "average"):
        x, w = sample((3, 4), dtype, k), np.abs(sample((3, 4), DTYPES[-k], k)) + np.ones((), DTYPES[-k])
        for axis in (None, 0, 1, (1, 0)):
            compare(lambda x: np.average(x, axis=axis, returned=True, keepdims=True), x, exact=False, breaks=False)
            compare(lambda x, w: np.average(x, axis=axis, weights=w, returned=True), x, w, exact=False, breaks=False)
            compare(lambda x, w: np.average(x, axis=axis, weights=w), x, w[0], exact=False)
        compare(lambda x, w: np.average(x, axis=(1, 0), weights=w), x, w.T.copy(), exact=False, breaks=False)
        compare(lambda x, w: np.average(x, weights=w), x, w * 0)  # an error


def test_differences_and_integrals():
    for k, dtype in some(enumerate(DTYPES), 4, "differences_and_integrals"):
        x = sample((3, 4), dtype, k)
        for axis in (0, -1, 2):
            for n in (0, 1, 2, 5):
                compare(lambda x: np.diff(x, n, axis=axis, prepend=0), x)
                compare(lambda x: np.diff(x, n, axis, x, 2.5), x)
            compare(lambda x: (np.trapezoid(x, axis=axis), np.trapezoid(x, x * 2, axis=axis)), x, exact=False)
            compare(lambda x: np.trapezoid(x, dx=2), x, exact=False)
            compare(lambda x: (np.unwrap(x, axis=axis), np.unwrap(x, period=5), np.unwrap(x, period=4, discont=3)), x, exact=False)
        compare(lambda x: np.trapezoid(x, np.arange(4.0)), x, exact=False)
        compare(lambda x: (np.ediff1d(x), np.ediff1d(x, to_begin=[1, 2], to_end=x)), x)
        compare(lambda x: np.ediff1d(x, to_begin=1.5), x)


def test_rounding_and_clipping():
    for k, dtype in some(enumerate(DTYPES), 4, "rounding_and_clipping"):
        x = sample((3, 4), dtype, k)
        for digits in (0, 1, 3, -1, -2):
            compare(lambda x: (np.round(x * 7, digits), np.around(x, digits), x.round(digits)), x)
            compare(lambda x, o: np.round(x, digits, out=o), x, np.ones((3, 4)))
            compare(lambda x, o: np.round(x, digits, o), x, np.ones((3, 4), dtype))
        for low, high in ((0, 3), (None, 2), (1, None), (None, None), (-300, 300), (1.5, 2.5), (3, 1)):
            compare(lambda x: (np.clip(x, low, high), x.clip(low, high), np.clip(x, min=low, max=high)), x)
            compare(lambda x: np.clip(x, low, high, dtype="float64"), x)
            for out in (dtype, "float64", "int8"):
                compare(lambda x, o: np.clip(x, low, high, out=o), x, np.ones((3, 4), out))
                compare(lambda x, o, m: np.clip(x, low, high, o, where=m), x, np.ones((3, 4), out), MASKS[0])


def test_powers_and_divmod():
    for k, dtype in some(enumerate(DTYPES), 4, "powers_and_divmod"):
        x = sample((3, 4), dtype, k)
        compare(lambda x: (divmod(x, 2), divmod(7, x), divmod(x, x), divmod(x.sum(), 3)), x, breaks=False)
        compare(lambda x, n: x**n, x, np.array([1, 2, 3, 4]), breaks=False)
        compare(lambda x, n: x**n, x, np.array([1, 2, -3, 4]))  # of integers an error
        compare(lambda x: np.angle(x, deg=True), x, exact=False)


def test_machine_code():
    def f(x, y, m, out):
        np.sum(y, axis=0, where=m, initial=2.0, out=out)
        return (
            x.sum(axis=0), np.sum(y, where=m), np.max(y, axis=1, where=m, initial=-3.0), np.nanmax(y), np.nanmean(y, axis=1),
            np.nanvar(y, axis=0, ddof=1), np.average(y, axis=1, weights=m, returned=True), np.bitwise_xor.reduce(y.astype(int)),
            np.bitwise_and.reduce(y.astype("uint8"), axis=1), np.unwrap(y * 4), np.subtract.reduce(y, axis=1), divmod(y, 2),
        )  # fmt: skip

    x, y = np.full((5, 40), -0.0), sample((6, 4), "float64")
    compare(f, x, y, MASKS[0], np.zeros(4), exact=False, breaks=False, backend="c")
    signs = [np.signbit(r) for r in (np.sum(x), *np.sum(x, axis=0), *np.sum(x[:1], axis=0))]
    compare(lambda x: [np.signbit(r) for r in (x.sum(), *x.sum(axis=0), *x[:1].sum(axis=0))], x, breaks=False, backend="c")
    assert not any(signs)  # NumPy's sums begin with 0.0
