"""Tangents and second derivatives of long loops, which run as machine code, against those on the tape, and of differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from tests.gradients.test_loops import (
    average,
    branches,
    clipped,
    decay,
    gauss_seidel,
    heat,
    heat_of_slices,
    history,
    leaves_early,
    loops_called,
    matrices,
    newton_until,
    numbered,
    of_single_precision,
    power_iteration,
    recurrent,
)

R = np.random.default_rng(17)


def n(*shape: int) -> np.ndarray:
    return R.normal(size=shape)


def largest(x, w):
    """An extreme, a product with the transposed, a new array by a branch."""
    y = x
    for _ in range(20):
        y = np.tanh(w @ y + w.T @ x)
        if y.max() > 0.5:
            y = y * 0.9
    return y.max() + y.min() * y.sum()


def overlapping(x):
    y = x * 1.0
    for k in range(30):
        y[1:] = y[:-1] * np.cos(y[1:]) + 0.01 * k * x[1:]
    return np.sum(y * y)


def one_of_several(x):
    """Arrays that change and ones that do not, by a branch on data."""
    c = np.ones_like(x)
    y = c
    for i in range(x.size):
        if x[i] > 0.3:
            y = x * y[i]
        elif x[i] < -1:
            y = c
        else:
            y, c = c * 0.5, y
        c[i] = 0.1 * y[i]
    return y.sum() + c[3]


FIRST = [
    (one_of_several, (n(40),)),
    (branches, (3.7,)),
    (heat, (n(8), 0.2)),
    (matrices, (n(3, 3),)),
    (leaves_early, (n(60),)),
    (of_single_precision, (n(60).astype(np.float32),)),
    (numbered, (n(60),)),
    (recurrent, (n(6, 6) * 0.3, n(6, 3), n(30, 3))),
]
SECOND = [
    (decay, (0.5,)),
    (average, (n(40), 0.3)),
    (heat_of_slices, (n(9), 0.2)),
    (gauss_seidel, (n(12),)),
    (newton_until, (3.0,)),
    (power_iteration, (n(5, 5) + 5 * np.eye(5),)),
    (history, (n(40),)),
    (clipped, (n(40, 4),)),
    (overlapping, (n(12),)),
    (largest, (n(5), n(5, 5))),
]


def along(transform: Callable[..., Any], function: Callable[..., Any]) -> Any:
    """The transformation as a compiled function of primals and tangents."""
    return dg.compile(lambda x, v: transform(function, x, v))


def directions(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    r = np.random.default_rng(3)
    return tuple(r.normal(size=a.shape).astype(a.dtype) if isinstance(a, np.ndarray) else float(r.normal()) for a in arguments)


def check(transform: Callable[..., Any], function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    ways = directions(arguments)
    before = [np.copy(a) for a in arguments]
    compiled = along(transform, function)
    got = compiled(arguments, ways)
    assert not compiled.stats.breaks and not compiled.stats.fallbacks
    assert loops_called(compiled), "no loop is a step of the graph"
    wanted = transform(dg.compile(function, backend="numpy"), arguments, ways)
    tolerance = 1e-4 if function is of_single_precision else 1e-11
    for mine, its in zip(got, wanted):
        assert np.asarray(mine).dtype == np.asarray(its).dtype
        np.testing.assert_allclose(mine, its, rtol=tolerance, atol=tolerance * np.max(np.abs(its)))
    for array, copy in zip(arguments, before):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("function", "arguments"), FIRST, ids=[f.__name__ for f, _ in FIRST])
def test_tangents_are_those_of_the_tape(function: Any, arguments: tuple) -> None:
    check(dg.jvp, function, arguments)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("function", "arguments"), SECOND, ids=[f.__name__ for f, _ in SECOND])
def test_second_derivatives_are_those_of_the_tape(function: Any, arguments: tuple) -> None:
    check(dg.hvp, function, arguments)


# -- one of another, in any order --------------------------------------------------------------------------------------------


def running(x):
    y = np.zeros_like(x)
    m = 0.0
    for i in range(x.size):
        m = 0.5 * m + x[i] ** 3
        y[i] = m
    return y


def two_loops(x):
    z = np.sin(running(x))
    s = 0.0
    for i in range(x.size):
        s = s * 0.9 + z[i] * z[i] * x[i]
    return np.exp(0.1 * s)


def test_derivatives_of_derivatives() -> None:
    x, v, w = n(30), n(30), n(30)
    hessian = dg.hessian(two_loops)
    h = hessian(x)
    assert not hessian.program.stats.breaks and "LoopGradient" in loops_called(hessian.program)
    gradient = dg.grad(two_loops)
    e = 1e-5
    np.testing.assert_allclose(h @ v, (gradient(x + e * v) - gradient(x - e * v)) / (2 * e), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(h, h.T, atol=1e-13)
    np.testing.assert_allclose(dg.hvp(two_loops, (x,), (v,))[0], h @ v, atol=1e-13)

    of_gradient = dg.grad(lambda x: dg.grad(two_loops)(x) @ v)
    of_tangent = dg.grad(lambda x: dg.jvp(two_loops, (x,), (v,))[1])
    by_tangent = dg.grad(lambda v: dg.jvp(two_loops, (x,), (v,))[1])
    np.testing.assert_allclose(of_gradient(x), h @ v, atol=1e-13)
    np.testing.assert_allclose(of_tangent(x), h @ v, atol=1e-13)
    np.testing.assert_allclose(by_tangent(v), gradient(x), atol=1e-13)
    assert not of_gradient.program.stats.breaks and not of_tangent.program.stats.breaks

    twice = dg.compile(lambda x, v, w: dg.jvp(lambda x: dg.jvp(two_loops, (x,), (v,))[1], (x,), (w,))[1])
    assert twice(x, v, w) == pytest.approx(w @ h @ v)
    assert not twice.stats.breaks


def test_known_derivatives() -> None:
    def slope(x):
        for _ in range(60):
            x = 0.5 * (x + x * 0.25)
        return x * x

    forward = dg.jacobian(slope, mode="fwd")
    value = slope(2.0)
    assert forward(2.0) == pytest.approx(2 * value / 2.0)
    assert dg.grad(dg.grad(slope))(2.0) == pytest.approx(2 * value / 4.0)
    assert not forward.program.stats.breaks
    third = dg.grad(dg.grad(dg.grad(decay)))  # by steps
    assert third(0.5) == pytest.approx(-(0.001**3) * 60 * 59 * 58 * (1 - 0.0005) ** 57)


def test_forward_jacobians_and_sizes_that_change() -> None:
    tangent = dg.compile(lambda x, v: dg.jvp(running, (x,), (v,)))
    for size in (60, 90, 75):
        x, v = n(size), n(size)
        value, change = tangent(x, v)
        np.testing.assert_array_equal(value, running(x))
        np.testing.assert_allclose(dg.jacobian(running, mode="fwd")(x) @ v, change, atol=1e-12 * np.max(np.abs(change)))
    assert not tangent.stats.breaks and tangent.stats.compiles <= 2


def test_gradients_of_jacobians_are_taken_by_steps() -> None:
    x = n(30)
    of_jacobian = dg.grad(lambda x: dg.jacobian(running, mode="fwd")(x).sum())
    np.testing.assert_allclose(of_jacobian(x), 6 * x * (2 - 0.5 ** np.arange(29, -1, -1)), rtol=1e-12)
    assert any("[gradient-by-steps]" in reason for reason in of_jacobian.program.stats.breaks)


def test_vmap_of_tangents_and_tangents_of_vmap() -> None:
    x, v = n(3, 30), n(3, 30)
    rows = [dg.jvp(running, (a,), (b,))[1] for a, b in zip(x, v)]
    np.testing.assert_allclose(dg.vmap(lambda x, v: dg.jvp(running, (x,), (v,))[1])(x, v), rows, rtol=1e-14)
    np.testing.assert_allclose(dg.jvp(dg.vmap(running), (x,), (v,))[1], rows, rtol=1e-14)


# -- other arguments and ends ----------------------------------------------------------------------------------------------------


def test_what_does_not_change_has_no_influence() -> None:
    def roots(x, y):
        s = 0.0
        for i in range(60):
            s = s + np.sqrt(x * i) + y * i
        return s

    value, change = dg.jvp(roots, (0.0, 1.0), (0.0, 1.0))
    assert value == change == 1770.0


def test_arrays_that_are_not_written_whole_and_ones_that_are_arguments() -> None:
    def rest(x, out):
        for i in range(1, x.size):
            out[i] = x[i] * x[i - 1] * out[i - 1]
        return out[1:].sum()

    x, v, out = n(40), n(40), n(40)
    again = out.copy()
    change = dg.compile(lambda x, v, out: dg.jvp(lambda x: rest(x, out), (x,), (v,)))
    value, got = change(x, v, out)
    e = 1e-6
    want = (rest(x + e * v, again.copy()) - rest(x - e * v, again.copy())) / (2 * e)
    assert got == pytest.approx(want, rel=1e-6, abs=1e-9)
    assert value == rest(x, again)
    np.testing.assert_array_equal(out, again)
    assert not change.stats.breaks


def test_an_error_is_raised_at_the_users_line() -> None:
    def beyond(x):
        s = 0.0
        for i in range(61):
            s = s + x[i] * x[i]
        return s

    for transform in (dg.jvp, dg.hvp):
        assert len(transform(beyond, (np.ones(61),), (np.ones(61),))) > 0
        with pytest.raises(IndexError, match="index 60 is out of bounds"):
            transform(beyond, (np.ones(60),), (np.ones(60),))
