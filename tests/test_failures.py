"""Captures that fail are remembered by the kind of arguments, not by every value."""

from __future__ import annotations

import numpy as np

import dynagraph as dg
from dynagraph.driver.failures import Failures

X = np.arange(4.0)


def attempts(function, calls) -> int:
    """How many captures failed in these calls, whose results are those of the plain function."""
    compiled = dg.compile(function)
    for args in calls:
        np.testing.assert_array_equal(compiled(*args), function(*args))
    return sum(compiled.stats.breaks.values())


def breaks_always(x, key):
    return eval("x + 1")


def breaks_in_one_mode(x, mode):
    return eval("x + 1") if mode == "a" else x + 2


def test_each_new_string_is_no_new_failure() -> None:
    assert attempts(breaks_always, [(X, f"key {k}") for k in range(200)]) <= 10


def test_each_new_number_is_no_new_failure() -> None:
    assert attempts(breaks_always, [(X, k) for k in range(200)]) <= 10


def test_the_mode_that_can_be_compiled_is() -> None:
    compiled = dg.compile(breaks_in_one_mode)
    for k in range(6):
        compiled(X, "ab"[k % 2])
    assert compiled.stats.hits == 2


def test_values_that_fail_become_types_that_fail() -> None:
    failures = Failures()
    for k in range(3):
        assert not failures.shall_wait((X, k))
        failures.remember((X, k))
    assert not failures.shall_wait((X, 100))  # three values are no proof
    failures.remember((X, 3))
    assert [failures.shall_wait((X, 100 + k)) for k in range(8)] == [True] * 7 + [False]
    assert not failures.shall_wait((X, "text")) and len(failures) == 1


def test_waits_double() -> None:
    failures = Failures()
    failures.remember((X, 1))
    waits = [failures.shall_wait((X, 1)) for _ in range(8 + 16 + 32)]
    assert [k for k, waits_now in enumerate(waits, 1) if not waits_now] == [8, 24, 56]
