"""Rounding, searching, slices with steps that change, and arrays in Fortran's order, in native loops."""

from __future__ import annotations

import numpy as np
import pytest

import dynagraph as dg
from tests.frontend.loops.test_displays import outcome, program
from tests.frontend.loops.test_new_arrays import same
from tests.sampling import some

RNG = np.random.default_rng(23)
HALVES = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -0.0, 0.4, -0.4, 1e16, 0.285, 2.675, 1e-5, np.inf, -np.inf, np.nan, 123456.785])


def native(expression, *calls):
    plain, compiled = program(expression)
    for x, y in calls:
        same(outcome(compiled, x, y, 11), outcome(plain, x, y, 11))
    assert not compiled.stats.fallbacks
    return compiled


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", (np.float64, np.float32))
def test_rounding(dtype):
    x = HALVES.astype(dtype)
    compiled = native(
        "np.round(x), x.round(), np.round(x, 2), x.round(1), np.around(x / 3), np.round(x[::-1], -3), np.round(x[k]), "
        "x[k].round(2), np.round(k + 0.5), np.round(0.1 * k, 1), np.round(x, decimals=3)",
        (x, 0),
    )
    assert not compiled.stats.side_exits and not compiled.stats.calls_out
    native("round(x[k]), round(x[1] * 3)", (x, 0))
    native("np.round(x, 30), np.round(x, k), np.round(k), np.round(np.arange(30), -1), round(x[k].item(), 1)", (x, 0))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("side", ("", ", side='right'", ", 'left'", ", side='middle'"))
def test_searches(side):
    kinds = [np.sort(RNG.random(20)), np.array([0.0, 0.5, 0.5, 0.5, np.nan, np.nan]), np.ones(0), np.sort(RNG.random(9))]
    kinds.append(np.arange(20.0)[::2])
    compiled = native(f"np.searchsorted(x, y[k]{side}), np.searchsorted(x, 0.5{side})", *((x, RNG.random(11)) for x in kinds))
    native(f"[np.searchsorted(x, y[k]{side})]", *((x, np.array([np.nan, 0.5, -0.0, np.inf, -np.inf] * 3)) for x in kinds))
    assert not compiled.stats.side_exits or "middle" in side


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", (np.float32, np.int64, np.int8, np.uint8, np.bool_, np.complex128))
def test_searches_of_dtypes(dtype):
    x = np.sort((RNG.random(30) * 200).astype(dtype))
    for y in (x[::-1], RNG.random(11) * 200, np.arange(11), np.arange(11, dtype=np.uint64)):
        native("np.searchsorted(x, y[k]), x.searchsorted(y[k]), np.searchsorted(x, k), np.searchsorted(x, k + 0.5)", (x, y))


def strikes(flags, n):
    for i in range(2, n):
        if flags[i]:
            flags[i * i :: i] = False
    return flags


def steps(x, by, n):
    total = 0.0
    for k in range(n):
        part = x[k :: by[k]]
        total = total * 0.5 + part.sum() + len(part) + x[: -k - 1 : by[k]].sum()
        x[k : n : by[k]] += 1
        x[:: by[k]] = x[:: by[k]] * 0.5
    return total, x, part, x[1 :: by[0]]


def test_steps_that_change():
    compiled = dg.compile(strikes)
    for n in (20, 12, 30):
        same(compiled(np.ones(n * n, bool), n), strikes(np.ones(n * n, bool), n))
    assert not compiled.stats.side_exits
    compiled = dg.compile(steps)
    for by in (np.arange(1, 15), np.full(14, 100), np.array([1, -1, 2, -3, 2**31, 2**62, -(2**63)] * 2), np.arange(14) - 5):
        same(outcome(compiled, np.arange(14.0), by, 14), outcome(steps, np.arange(14.0), by, 14))
    assert not compiled.stats.fallbacks


def by_hand(w, x, y, n):
    for _ in range(n):
        residual = x @ w - y
        w = w - 0.2 * x.T @ residual / len(y)
    return w


def turns(x, y, n):
    for k in range(n):
        a = x.T * 2 + k
        b = a.T + y
        c = a + y.T
        d = a * x[:, 0]
        e = c @ x
        a[0] += 1
        f = a.copy()
        g = a[:, 1:] - 1
    return a, b, c, d, e, f, g, a.T


def test_expressions_of_transposed_arrays():
    compiled = dg.compile(by_hand)
    x, y = RNG.random((30, 3)), RNG.random(30)
    same(compiled(np.zeros(3), x, y, 50), by_hand(np.zeros(3), x, y, 50))
    assert not compiled.stats.side_exits
    compiled = dg.compile(turns)
    shapes = some(((4, 6), (6, 4), (5, 5), (1, 4), (4, 1)), 2, "transposed")
    for x, y in ((RNG.random(s), RNG.random(s)) for s in shapes):
        for given in ((x, y), (np.asfortranarray(x), np.asfortranarray(y)), (x, np.asfortranarray(y)), (x, y[::-1])):
            got, want = (outcome(f, *given, 11) for f in (compiled, turns))
            same(got, want)
            for g, w in zip(got, want):
                if isinstance(w, np.ndarray) and 1 not in w.shape:
                    assert g.flags.f_contiguous == w.flags.f_contiguous and (g.base is None) == (w.base is None)
    assert not compiled.stats.fallbacks


def test_gradients_go_through_transposed_expressions():
    def loss(w, x, y, n):
        w = by_hand(w, x, y, n)
        return (w * w).sum()

    x, y, w, step = RNG.random((6, 3)), RNG.random(6), RNG.random(3), 1e-6
    gradient = dg.grad(loss)(w, x, y, 20)
    for k, shift in enumerate(np.eye(3) * step):
        np.testing.assert_allclose(gradient[k], (loss(w + shift, x, y, 20) - loss(w - shift, x, y, 20)) / (2 * step), rtol=1e-5)
