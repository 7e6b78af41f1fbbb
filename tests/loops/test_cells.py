"""Variables that inner functions share are numbers in native loops, and cells again where Python goes on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import dynagraph as dg


def power_of_each(x, n):
    values = np.array([float(x**k) for k in range(n + 1)])
    for i in range(n, -1, -1):
        for j in range(i):
            values[j] = max(values[j + 1], x ** (2 * j - i))
    return float(values[0])


def shared_with_a_function(x, n):
    def double():
        return 2 * x

    total = 0.0
    for i in range(n):
        total += x / (i - 10)  # leaves at a turn
    return total, double()


def set_in_the_loop(x, n):
    def last():
        return y

    for i in range(n):
        y = x * i
    return last()


@pytest.mark.parametrize("function", [power_of_each, shared_with_a_function, set_in_the_loop])
def test_cells_come_through_loops(function: Callable) -> None:
    compiled = dg.compile(function)
    for x, n in ((1.5, 9), (0.5, 30), (2, 9), (2.5, 10), (1.5, 12)):
        try:
            expected = function(x, n)
        except ZeroDivisionError as error:
            with pytest.raises(ZeroDivisionError, match=str(error)):
                compiled(x, n)
        else:
            got = compiled(x, n)
            assert (got, type(got)) == (expected, type(expected))
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error


def test_a_cell_is_a_parameter_of_the_loop() -> None:
    def f(x, n):
        def double():
            return 2 * x

        total = 0.0
        for _ in range(n):
            total += x
        return total + double()

    compiled = dg.compile(f)
    for k in range(8):
        assert compiled(k + 0.5, 10) == f(k + 0.5, 10)
    assert compiled.stats.compiles <= 3
