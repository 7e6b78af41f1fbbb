"""Loops that count bits do all turns but the last one at once: variables, exits and results are as turn by turn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import dynagraph as dg

INTS = [0, 1, 2, 3, 5, 255, 256, 2**31, 2**40 - 1, 2**62, 2**62 + 1, 2**63 - 1]


def bits_set(xs, total):
    for k in xs:
        while k:
            k &= k - 1
            total += 1
    return total


def bits_and_more(xs, total):
    low, k, seen = 0, 0, None
    for x in xs:
        k = x
        while k > 0:
            seen = k
            total += 3
            k = (k - 1) & k
            low -= 2
    return total, low, k, seen


def digits(xs, total):
    k = length = 0
    for k in xs:
        length = 0
        while k != 0:
            k >>= 1
            length = 1 + length
        total += length
    return total, k, length


def halves(xs, total):
    before = 0
    for k in xs:
        while k > 0:
            before = k
            k //= 2
            total -= 5
    return total, before


def while_at_top(xs, total):
    for k in xs:
        while True:
            if k <= 0:
                break
            total += 1
            k &= k - 1
    return total


def no_bit_loop(xs, total):
    """Steps that are none, and two that lose bits."""
    for k in xs:
        other = k
        while k:
            k &= k - 1
            other >>= 1
            total += 1
        while other:
            total += other & 1
            other >>= 1
    return total


FUNCTIONS = [bits_set, bits_and_more, digits, halves, while_at_top, no_bit_loop]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("total", [0, -7, 2**63 - 1, 2**63 - 40, -(2**63) + 30, 2**63 + 5])
def test_as_python_has_it(function: Callable, total: int) -> None:
    compiled = dg.compile(function)
    for xs in (INTS * 20, INTS[::-1], [7], [0], []):
        assert compiled(list(xs), total) == function(list(xs), total)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["i8", "i4", "u4", "u8"])
def test_of_numpy_ints(function: Callable, dtype: str) -> None:
    compiled = dg.compile(function)
    info = np.iinfo(dtype)
    x = np.array([k for k in INTS if info.min <= k <= info.max] * 20, dtype)
    for xs in (x, x[::-3], x[:0]):
        got, want = compiled(xs, 0), function(xs, 0)
        assert got == want and type(got) is type(want)


def test_ints_below_zero_stay_in_the_loop() -> None:
    def shifted(k, most):
        turns = 0
        while k > 0:
            k >>= 1
            turns += 1
        while k != 0:
            k >>= 1
            turns += 1
            if turns > most:
                break
        return k, turns

    compiled = dg.compile(shifted)
    for k in (-1, -(2**63), -5, 0, 12, 2**63 - 1, 2**70):
        assert compiled(k, 70) == shifted(k, 70)


def weight(k, depth):
    total, rest = 0, k
    while rest:
        rest &= rest - 1
        total += 1
    return total if depth == 0 else total + weight(k >> 3, depth - 1)


def test_in_a_function_that_calls_itself() -> None:
    compiled = dg.compile(weight)
    assert [compiled(k, 9) for k in INTS] == [weight(k, 9) for k in INTS]
