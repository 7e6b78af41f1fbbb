"""What random loop programs found, made small."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from unittest import mock

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.frontend.loops import capture

pytestmark = pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")


@pytest.fixture(autouse=True)
def native() -> Iterator[None]:
    """Loops are native whatever few turns they have."""
    with dg.config.override(strict=True), mock.patch.object(capture, "FEW_TURNS", 0):
        yield


def put(a, i, v):
    a[i] = v


def test_the_rest_of_an_inlined_call_is_no_call_of_the_users() -> None:
    """The frames that f's rest enters are watched; that of put's rest was captured as if it were a function."""

    @dg.compile
    def f(x, y):
        for _ in range(2):
            for j in range(len(y)):
                put(x, j, y[j])
        return j

    x = np.zeros(3)
    assert f(x, np.array([1 + 0j, 2, 3])) == 2
    assert x.tolist() == [1, 2, 3]
    assert not any("bytearray" in reason for reason in f.stats.breaks)


def test_shapes_that_do_not_broadcast_are_an_error_at_the_users_line() -> None:
    """The exit behind an expression computed it: its error had no frame of the user's."""

    @dg.compile
    def f(x, n):
        for _ in range(1, n):
            if x[0] < 5:
                v = (x[1:1] - x[:]) * 2
        return v

    with dg.config.override(unroll_limit=40):
        with pytest.raises(UnboundLocalError):
            f(np.arange(4.0) + 9, 4)
        with pytest.raises(ValueError, match=r"shapes \(0,\) \(4,\)") as raised:
            f(np.arange(4.0), 4)
    assert raised.traceback[-1].name == "f"


def test_an_expression_that_is_stored_twice_is_computed_once() -> None:
    def f(x, n):
        for i in range(1, n):
            x[i + 1 :] = x[: -i - 1] = x[i + 1 :] + x[: -i - 1]
        return x

    np.testing.assert_array_equal(dg.compile(f)(np.arange(9.0), 6), f(np.arange(9.0), 6))


def test_new_arrays_of_native_loops_warn_of_nothing() -> None:
    """The exit behind an expression computed it, and its warning was an error without the user's frame."""

    @dg.compile
    def f(x, y, n):
        v = None
        for i in range(1, n):
            if x[i] > 5:
                v = x[i:] / y[i:]
        return v

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            assert f(np.arange(9.0), np.zeros(9), 4) is None
        assert f(np.arange(9.0), np.zeros(9), 8).tolist() == [np.inf] * 2


def test_array_expressions_alone_make_no_native_loop() -> None:
    """A function of arrays and a list was machine code from its first line on, up to the first function of NumPy's."""

    @dg.compile
    def f(x, log):
        x += 1
        log.append(1)
        return np.cumsum(x) * 2

    x, log = np.zeros(3), []
    assert f(x, log).tolist() == [2, 4, 6]
    assert (len(f.programs), log) == (1, [1])


def test_int64_and_uint64_compare_by_their_values() -> None:
    """They were compared as float64, in which neighbours are equal."""

    def f(x, y):
        found = []
        for i in range(len(x)):
            a, b = x[i], y[i]
            found.append((a < b, b < a, a <= b, b >= a, a == b, a != b, np.greater(a, b), np.not_equal(b, a)))
            each = (x <= y, y > x, x == b)
        return found, np.array(each)

    x = np.array([2**63 - 1, -1, 5, 2**53 + 1, -(2**63)])
    y = np.array([2**63, 2**64 - 1, 5, 2**53, 0], np.uint64)
    g = dg.compile(f)
    for args in ((x, y), (y, x)):
        for expected, got in zip(f(*args), g(*args)):
            np.testing.assert_array_equal(got, expected)
    assert not g.stats.side_exits


def test_logical_functions_are_of_truths() -> None:
    """Of two ints or floats they were bitwise, or left to Python."""

    def f(x, y):
        found = []
        for i in range(len(x)):
            a, b = x[i], y[i]
            found.append((np.logical_and(a, b), np.logical_or(a, 0), np.logical_xor(a, b), np.logical_not(b)))
            each = (np.logical_and(x, y), np.logical_xor(x, 2), np.logical_not(y))
        return found, np.array(each)

    g = dg.compile(f)
    for x, y in (([1, 4, 0], [-128, 3, 2]), ([1.0, 0.25, np.nan], [2, 0, 0])):
        for expected, got in zip(f(np.array(x), np.array(y)), g(np.array(x), np.array(y))):
            np.testing.assert_array_equal(got, expected)
    assert not g.stats.side_exits


def test_a_recursion_that_sets_a_variable_of_an_enclosing_function() -> None:
    def plain(n):
        placed, count = np.full(n, -1), 0

        def place(row, placed):
            nonlocal count
            if row == n:
                count += 1
                return
            for col in range(n):
                if not np.any(placed[:row] == col):
                    placed[row] = col
                    place(row + 1, placed)

        place(0, placed)
        return count

    compiled = dg.compile(plain)
    for n in (2, 3, 3, 4, 2):
        assert compiled(n) == plain(n)
