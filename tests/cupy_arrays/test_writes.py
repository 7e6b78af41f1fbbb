"""Writes end in the user's memory, views stay views of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.cupy_arrays.harness import check

X = np.arange(12.0).reshape(3, 4)
Y = np.arange(4.0) + 0.5


def add_in_place(x: Any, y: Any) -> Any:
    x += y
    return x


def slices(x: Any, y: Any) -> Any:
    x[1:-1] = y
    x[:, ::2] *= 3
    x[0] -= 1
    return x[1], x.T


def elements(x: Any, y: Any) -> None:
    x[0, 1] = 7
    x[-1][2] = y[0]
    x[..., 3] = 0.25


def shifted(x: Any, y: Any) -> Any:
    x[1:] = x[:-1]
    x[:-1] += x[1:]
    return x


def masks(x: Any, y: Any) -> Any:
    x[x > 5] = 0
    x[y > 1, ...] if False else None
    return x


def view_first(x: Any, y: Any) -> Any:
    row = x[1]
    x[1, 0] = 100
    row *= 2
    return row, row.sum()


def element_views(x: Any, y: Any) -> Any:
    first = y[0]
    y[0] = 5
    return first, y


def made_here(x: Any, y: Any) -> Any:
    z = x * 2
    part = z[1:]
    part += 1
    z[0] = y
    return z, part


def reduced_in_place(x: Any, y: Any) -> Any:
    total = x.sum()
    alias = total
    total += 1
    return total, alias


def filled(x: Any, y: Any) -> Any:
    x.fill(3)
    y[:] = 1
    return x + y


def matmul_in_place(x: Any, y: Any) -> Any:
    z = x
    z @= x.T @ x
    return z, x


def transposed(x: Any, y: Any) -> Any:
    x.T[1] = 9
    return x.reshape(-1)[:3], x.reshape(4, 3)


def returned_twice(x: Any, y: Any) -> Any:
    z = x + y
    return z, z, [z[0], x[0]]


def loop(x: Any, y: Any) -> Any:
    for row in x:
        row += y
    for k in range(3):
        x[k] *= k
    return x


WRITES: list[Callable[..., Any]] = [
    add_in_place, slices, elements, shifted, masks, view_first, element_views, made_here, reduced_in_place, filled, transposed,
    returned_twice, loop,
]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("function", WRITES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_write_is_done_as_plainly(cp: Any, function: Any, dtype: str) -> None:
    check(cp, function, X.astype(dtype), Y.astype(dtype))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("function", WRITES, ids=lambda f: f.__name__)
def test_a_write_into_views(cp: Any, function: Any) -> None:
    """Of arguments that lie apart in memory."""
    inside = np.arange(48.0).reshape(6, 8)[::2, 1:5]
    check(cp, function, inside, np.arange(8.0)[::2], whole=function not in (transposed,))


def test_at_equals_binds_a_new_array(cp: Any) -> None:
    """CuPy's arrays have no __imatmul__."""
    check(cp, matmul_in_place, X, Y)


@pytest.mark.parametrize("symbol", ["+=", "-=", "*=", "/=", "//=", "%=", "**="])
def test_operators_in_place(cp: Any, symbol: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def f(x, y):\n    x {symbol} y\n    x[1:] {symbol} 2\n    return x", scope)
    check(cp, scope["f"], X + 1, Y)


def test_out(cp: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        z = cp.add(x, y, out=x)
        cp.multiply(x, 2, x)
        np.exp(y, out=y)
        return z

    check(cp, f, X, Y)


def test_integers_in_place(cp: Any) -> None:
    def f(x: Any) -> Any:
        x += 1
        x <<= 2
        x |= 1
        x[0] = 2.75
        return x

    check(cp, f, np.arange(5))


@pytest.mark.parametrize("value", [1.5, np.arange(4.0)], ids=["number", "array"])
def test_what_does_not_cast_raises_as_plainly(cp: Any, value: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        x += y
        return x

    check(cp, f, np.arange(4), value, breaks="would-raise")


def test_conversion_in_a_store(cp: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        x[...] = y
        return x * 1

    check(cp, f, np.zeros(4, np.int32), Y)
    check(cp, f, np.zeros(4, np.float16), Y)


def test_complex_parts(cp: Any) -> None:
    def f(z: Any) -> Any:
        z.real[...] += 1
        return z.imag, z.real, abs(z)

    check(cp, f, np.arange(4) + 1j, breaks="unsupported-function")
