"""Gradients of functions of CuPy's arrays, within compiled functions: of the same values as NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from tests.cupy_arrays.harness import put

RNG = np.random.default_rng(5)
X, Y, W, V = (RNG.standard_normal(s) for s in ((8, 5), (8, 3), (5, 6), (6, 3)))


def compiled_and_numpys(cp: Any, function: Callable[..., Any], *arrays: np.ndarray) -> None:
    """`function(xp, *arrays)` on both libraries, twice."""
    ours = dg.compile(lambda *given: function(cp, *given))
    for _ in range(2):
        mine, theirs = [put(cp, a.copy()) for a in arrays], [a.copy() for a in arrays]
        got, want = ours(*mine), function(np, *theirs)
        for a, b in zip((*_flat(got), *mine), (*_flat(want), *theirs)):
            np.testing.assert_allclose(a.get() if isinstance(a, cp.ndarray) else a, b, rtol=1e-12, atol=1e-14)
    assert not ours.stats.breaks and ours.stats.fallbacks == 0, ours.stats.breaks


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in _flat(item)]
    return [] if value is None else [value]


def test_a_training_step(cp: Any) -> None:
    def step(xp: Any, w: Any, v: Any, m: Any, x: Any, y: Any) -> Any:
        def loss(w: Any, v: Any) -> Any:
            h = xp.tanh(x @ w)
            e = h @ v
            e = e - e.max(axis=1, keepdims=True)
            p = e - xp.log(xp.exp(e).sum(axis=1, keepdims=True))
            return -(p * y).sum() / 8

        value, (dw, dv) = dg.value_and_grad(loss, argnums=(0, 1))(w, v)
        m *= 0.9
        m += 0.1 * dw
        w -= 0.1 * m / (xp.sqrt(m * m) + 1e-8)
        v -= 0.1 * dv
        return value

    compiled_and_numpys(cp, step, W, V, np.zeros_like(W), X, Y)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "elementwise": lambda xp, x: dg.grad(lambda x: xp.sum(xp.exp(x) * xp.sin(x) / (1 + x * x)))(x),
    "broadcast": lambda xp, x: dg.grad(lambda x: xp.sum((x - x.mean(axis=0)) ** 2))(x),
    "rows": lambda xp, x: dg.grad(lambda x: xp.sum(xp.max(x, axis=1) * x[:, 0]))(x),
    "slices": lambda xp, x: dg.grad(lambda x: xp.sum(x[1:] * x[:-1]) + x[0, 0] ** 3)(x),
    "transposed": lambda xp, x: dg.grad(lambda x: xp.sum((x.T @ x) ** 2))(x),
    "where": lambda xp, x: dg.grad(lambda x: xp.sum(xp.where(x > 0, x * x, -x)))(x),
    "second": lambda xp, x: dg.grad(lambda x: xp.sum(dg.grad(lambda x: xp.sum(xp.tanh(x) ** 3))(x)))(x),
    "tangents": lambda xp, x: dg.jvp(lambda x: xp.sin(x) * x, (x,), (x * 0 + 1,)),
    "product with a Hessian": lambda xp, x: dg.hvp(lambda x: xp.sum(x**3 + x[0] * x), (x,), (x * 0 + 1,)),
    "cumsum": lambda xp, x: dg.grad(lambda x: xp.sum(xp.cumsum(x, axis=1) ** 2))(x),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(cp: Any, name: str) -> None:
    compiled_and_numpys(cp, FUNCTIONS[name], X)
