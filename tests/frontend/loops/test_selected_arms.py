"""Short arms of ints are both computed: of one that is not taken nothing is seen; one that is leaves as ever."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import dynagraph as dg

LARGE = [2**62, 2**62 + 2, 2**62 + 1, 2**63 - 2, 2**63 - 1, -(2**63), -(2**63) + 1, 3074457345618258602, 3074457345618258603]
BOUNDS = [k + at for k in (2**59, -(2**59), 2**30, -(2**30)) for at in (-1, 0, 1)]
SMALL = [0, 1, -1, 2, 3, -7, 27, 10**6 + 1]


def collatz(n, turns):
    steps = 0
    while steps < turns and n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return n, steps


def checksum(n, turns):
    for _ in range(turns):
        if n & 1:
            n = (n >> 1) ^ 0xEDB88320
        else:
            n >>= 1
    return n


def doubled(n, turns):
    low, high = 0, 0
    for k in range(turns):
        if (n >> (k % 60)) & 1:
            low, high = low + n, high - 1
        else:
            high = high * 3 - k
            low = high
    return low, high, k if turns else None


def swapped(n, turns):
    a, b = n, n - 1 if n > -100 else n + 1
    for k in range(turns):
        if k % 4 == 1:
            a, b = b, a
        else:
            a, b = a ^ k, b & ~k
    return a, b


def arms_that_end_turns(n, turns):
    k, odd = 0, False
    while k < turns:
        k += 1
        if n % 2:
            n = n - 1
            odd = True
        else:
            n = n // 2 + k
            odd = False
    return n, odd


def powers(n, turns):
    """Of one variable: a test of its size stands for the checks."""
    square, other = 1, 0
    for k in range(turns):
        if (n + k) % 3:
            square = n * n
            other = 5 * n - 7
        else:
            square = n * n * 2 - 1
            other = n + 2**40
        n += square % 3 - 1
    return n, square, other


@pytest.mark.sampled(2)
@pytest.mark.parametrize("function", [collatz, checksum, doubled, swapped, arms_that_end_turns, powers])
def test_as_python_has_it(function: Callable) -> None:
    compiled = dg.compile(function)
    for _ in range(2):
        for n in (*SMALL, *BOUNDS, *LARGE):
            for turns in (0, 1, 9, 200):
                assert compiled(n, turns) == function(n, turns)
    assert compiled.stats.fallbacks == 0


def test_of_numpy_scalars() -> None:
    def plain(x, out):
        for k in range(len(x)):
            v = x[k]
            if v % 4 == 3:
                v = v // 8
            else:
                v = v % 16 - 1
            out[k] = v

    x = np.array([*SMALL, *LARGE] * 20)
    want, got = np.empty_like(x), np.empty_like(x)
    plain(x, want)
    dg.compile(plain)(x, got)
    np.testing.assert_array_equal(got, want)
