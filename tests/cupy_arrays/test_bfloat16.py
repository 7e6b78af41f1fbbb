"""bfloat16 of CuPy's arrays: computed and summed in float32; with Python's floats float32 comes of it, as in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dynagraph as dg
from tests.cupy_arrays.harness import check

BF16 = np.dtype(ml_dtypes.bfloat16)
RNG = np.random.default_rng(0)
X, Y = (RNG.normal(size=(6, 8)).astype(BF16) for _ in range(2))


def test_arithmetic(cp: Any) -> None:
    check(cp, lambda x, y: (x + y, x - y, x * y, x / y, -x, abs(x), x > y, x == y, x <= 0.5), X, Y)
    check(cp, lambda x, y: (cp.maximum(x, y), cp.minimum(x, 0.1), cp.sign(x), cp.sqrt(abs(x))), X, Y)
    check(cp, lambda x, y: (cp.isnan(x), cp.isfinite(y), cp.signbit(x), cp.floor(x), cp.rint(y), cp.square(x)), X, Y)


def test_functions(cp: Any) -> None:
    check(cp, lambda x: (cp.exp(x), cp.tanh(x), cp.log1p(abs(x)), 1 / (1 + cp.exp(-x))), X)


def test_pythons_numbers(cp: Any) -> None:
    for value in (0.1, 2.5, 3, True, -7):
        check(cp, lambda x, v=value: (x * v, v - x, x / 3.0, x + 0.3 * x), X)
    compiled = dg.compile(lambda x, v: x * v + 1, fullgraph=True)
    for v in (0.1, 0.3, 0.7, 1e-3):
        got = compiled(cp.asarray(X), v)
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got.get(), X.astype(np.float32) * np.float32(v) + np.float32(1))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "float16", "float32", "float64", "bool", "complex64"])
def test_arrays_of_other_dtypes(cp: Any, dtype: str) -> None:
    check(cp, lambda x, y: (x + y, y * x), X, np.arange(8).astype(dtype))


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_sums_are_taken_in_float32(cp: Any, axis: int | None) -> None:
    compiled = dg.compile(lambda x: (x.sum(axis), x.mean(axis), cp.sum(x * x, axis=axis), x.prod(axis)), fullgraph=True)
    got = [r.get() for r in compiled(cp.asarray(X))]
    wide = X.astype(np.float32)
    want = wide.sum(axis), wide.mean(axis), (X * X).astype(np.float32).sum(axis), wide.prod(axis)
    for g, w in zip(got, want):
        assert g.dtype == BF16
        np.testing.assert_allclose(g.astype(np.float32), w, rtol=2**-8)
    check(cp, lambda x: (x.max(axis), x.min(axis), x.argmax(axis), x.any(axis), x.all(axis)), X)


def test_one_sum_of_many(cp: Any) -> None:
    """In bfloat16 it would stop at 256."""
    x = cp.asarray(np.ones(4096, BF16))
    assert float(dg.compile(lambda x: x.sum(), fullgraph=True)(x)) == 4096


def test_products(cp: Any) -> None:
    compiled = dg.compile(lambda x, y: (x @ y.T, cp.matmul(x.T, y)), fullgraph=True)
    got = [r.get() for r in compiled(cp.asarray(X), cp.asarray(Y))]
    wide, other = X.astype(np.float32), Y.astype(np.float32)
    for g, w in zip(got, (wide @ other.T, wide.T @ other)):
        assert g.dtype == BF16
        np.testing.assert_allclose(g.astype(np.float32), w, rtol=2**-7, atol=2**-7)


def test_casts_and_moves(cp: Any) -> None:
    check(cp, lambda x: (x.astype("float32") * 2.5, x.astype("int32"), x.astype("float16"), x.astype(bool)), X)
    check(cp, lambda x: x.astype(BF16), X.astype(np.float32) * 1.001)
    check(cp, lambda x: (x[1:], x.T, x.reshape(8, 6), x[::2] * 2, cp.roll(x, 1), x[2:3].copy()), X)
    check(cp, lambda x, y: (cp.concatenate([x, y]), cp.stack([x, y])), X, Y)
    check(cp, lambda x: (cp.zeros(3, BF16), cp.full(3, 0.1, BF16), cp.zeros_like(x), x + 1), X)


def test_writes(cp: Any) -> None:
    def write(x: Any, v: Any) -> Any:
        x[1:] *= v
        x[0] = v
        x += 1
        return x[::2]

    for value in (2.5, 3, 0.1):
        check(cp, write, X, value)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "function",
    [
        lambda cp, x, y: x.var(), lambda cp, x, y: cp.cumsum(x), lambda cp, x, y: cp.where(x > 0, x, 0.5),
        lambda cp, x, y: cp.where(x > y, x, x * 2), lambda cp, x, y: cp.concatenate([x, y]), lambda cp, x, y: x @ y.T,
        lambda cp, x, y: cp.outer(x, x),
    ],
)  # fmt: skip
def test_what_is_not_captured_breaks(cp: Any, function: Callable[..., Any]) -> None:
    check(cp, lambda x, y: function(cp, x * 2, y), X, Y.astype(np.float32), breaks="unsupported-dtype", whole=False)


def test_scalars_of_numpys(cp: Any) -> None:
    check(cp, lambda x, s: x * s, X, BF16.type(0.3))
    check(cp, lambda x, s: x * s + x, X, np.float16(1.5), breaks="unsupported-argument", whole=False)


def test_arrays_go_to_the_device_and_back(cp: Any) -> None:
    x = dg.to_device(X, "cuda:0")
    assert x.dtype == BF16
    back = dg.to_device(x, "cpu")
    assert back.dtype == BF16 and back.tobytes() == X.tobytes()
    assert dg.pinned_empty((2, 3), BF16).dtype == BF16


def test_guards(cp: Any) -> None:
    compiled = dg.compile(lambda x: x + x)
    for x in (X, X.astype(np.float16), X, X.astype(np.float32)):
        got = compiled(cp.asarray(x))
        assert got.dtype == x.dtype
        np.testing.assert_array_equal(got.get().astype(np.float32), (x + x).astype(np.float32))
    assert compiled.counters()["hits"] == 1
