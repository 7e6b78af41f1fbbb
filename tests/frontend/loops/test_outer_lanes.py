"""Nests whose outer turns run as lanes of vectors: all sizes, layouts and overlaps, errors, signals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from tests.frontend.loops.test_interrupts import Handled, on_alarm
from tests.loops.compare import exact

SIZES = (0, 1, 3, 15, 16, 17, 31, 32, 40, 50)


def product(a: np.ndarray, b: np.ndarray, c: np.ndarray, n: int) -> None:
    for i in range(n):
        for j in range(n):
            for k in range(n):
                c[i, j] += a[i, k] * b[k, j]


def by_rows(a: np.ndarray, b: np.ndarray, c: np.ndarray, n: int) -> None:
    for i in range(n):
        for j in range(n):
            s = 0.0
            for k in range(n):
                s += a[i, k] * b[j, k]
            c[i, j] = s


def window(a: np.ndarray, b: np.ndarray, c: np.ndarray, n: int) -> None:
    for i in range(n - 4):
        for j in range(n - 4):
            s = 0.0
            for k in range(5):
                for m in range(5):
                    s += a[i + k, j + m] * b[k, m]
            c[i, j] = s


def triangle(a: np.ndarray, b: np.ndarray, c: np.ndarray, n: int) -> None:
    for i in range(n):
        for j in range(i, n):
            for k in range(i):
                a[i, j] -= a[i, k] * a[k, j]
        for j in range(n):
            for k in range(i + 1, n):
                c[i, j] += a[k, i] * c[k, j]
            c[i, j] = 0.5 * c[i, j]


def backwards(a: np.ndarray, b: np.ndarray, c: np.ndarray, n: int) -> None:
    for i in range(n):
        for j in range(n - 1, -1, -1):
            s = a[i, j]
            for k in range(1, n):
                s = s * 0.5 - a[k, n - 1 - j] / (b[k, j] + 3.0)
            c[j, i] = -s


def columns(a: np.ndarray, b: np.ndarray, c: np.ndarray, n: int) -> None:
    for j in range(n):
        c[0, j] = 0.0
        for i in range(n):
            c[0, j] += a[i, j] * b[0, i]
        for i in range(1, n):
            c[i, j] = a[i, j] - b[i, 0] * c[0, j]


def chooses(a: np.ndarray, b: np.ndarray, c: np.ndarray, n: int) -> None:
    for i in range(n):
        for j in range(n):
            s = 0.0
            for k in range(n):
                if b[i, k] > 0.0:
                    s += a[k, j]
                elif k < i:
                    s -= a[k, j] * b[i, k]
            c[i, j] = s


def goes_on(a: np.ndarray, b: np.ndarray, c: np.ndarray, n: int) -> float:
    total = 0.0
    for i in range(n):
        for j in range(n):
            s = 0.0
            for k in range(n):
                s += a[i, k] * b[k, j]
            total += s
    return total


def shifted(a: np.ndarray, b: np.ndarray, c: np.ndarray, n: int) -> None:
    for i in range(1, n):
        for j in range(1, n):
            for k in range(n):
                c[i, j] += a[i, k] * c[i, j - 1]


def counts_down(a: np.ndarray, b: np.ndarray, c: np.ndarray, n: int) -> int:
    i = last = 0
    while i < n:
        j = 0
        while j < n:
            s = 0.0
            for k in range(n):
                s += a[i, k] * b[k, j]
            c[i, j] = s
            last = i + 2 * j
            j += 1
        i += 1
    return last


def positive(a: np.ndarray, b: np.ndarray, c: np.ndarray, n: int) -> None:
    for i in range(n):
        for j in range(n):
            s = 0.0
            for k in range(n):
                x = a[k, j] - b[i, k]
                if x > 0 and k != j:
                    s += x
            c[i, j] = s


def below(a: np.ndarray, b: np.ndarray, c: np.ndarray, n: int) -> None:
    for i in range(n):
        for j in range(n):
            s = a[i, j] * 0
            for k in range(j):
                s += a[i, k] * b[k, j]
            c[i, j] = s


def escapes(a: np.ndarray, b: np.ndarray, c: np.ndarray, n: int) -> None:
    for i in range(n):
        for j in range(n):
            x = y = 0.0
            k = 0
            while x * x + y * y <= 4.0 and k < 20:
                x, y = x * x - y * y + a[i, j], 2.0 * x * y + b[i, j]
                k += 1
            c[i, j] = k


def computes(a: np.ndarray, b: np.ndarray, c: np.ndarray, n: int) -> None:
    for i in range(n):
        for j in range(n):
            s = 0.0
            for k in range(n):
                x = max(abs(a[i, k]), b[k, j])
                s += math.sqrt(abs(x)) if x < 2.0 else float(k - j) / (1.0 + abs(float(x)))
            c[i, j] = s


FUNCTIONS = [product, by_rows, window, triangle, backwards, columns, chooses, goes_on, shifted, counts_down]
BRANCHING = [positive, below, escapes, computes]
WITH_LANES = [product, by_rows, window, triangle, columns]


def outcome(function: Callable, *args: Any) -> Any:
    with np.errstate(all="ignore"):
        try:
            result = repr(function(*args))
        except (IndexError, ValueError) as error:
            result = repr(error)
    return result, *(exact(x) for x in args[:3])


def arrays(n: int, layout: int) -> list[np.ndarray]:
    made = []
    for k in range(3):
        x = np.random.default_rng([n, k]).standard_normal((n, n))
        if layout == 1:
            x = np.asfortranarray(x)
        elif layout == 2:
            x = np.repeat(np.repeat(x, 2, axis=0), 2, axis=1)[::2, ::2]
        elif layout == 3:
            x = x[::-1, ::-1]
        elif layout == 4 and n > 2:
            x[1, 0], x[n - 1, n - 1], x[0, 1] = np.nan, np.inf, -0.0
        made.append(x)
    return made


def overlapping(n: int, how: str) -> list[np.ndarray]:
    (a, b, _), memory = arrays(n, 0), np.random.default_rng(5).standard_normal((n + 2) * (n + 2))
    if how == "same":
        return [a, a, a]
    if how == "transposed":
        return [a, b, a.T]
    if how == "neighbours":
        wide = memory.reshape(n + 2, n + 2)
        return [wide[:n, :n], b, wide[1 : n + 1, 1 : n + 1]]
    strides = {"folded": (8, 8), "one row": (0, 8), "one column": (8, 0), "windows": (24, 8)}[how]
    return [a, b, np.lib.stride_tricks.as_strided(memory, (n, n), strides)]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_as_python_has_it(function: Callable) -> None:
    compiled = dg.compile(function, dynamic=True)
    for layout in range(5):
        for n in SIZES if layout in (0, 4) else (17, 33):
            assert outcome(compiled, *arrays(n, layout), n) == outcome(function, *arrays(n, layout), n), (layout, n)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("function", BRANCHING)
def test_lanes_go_different_ways(function: Callable) -> None:
    compiled = dg.compile(function, dynamic=True, mode="max")
    with dg.config.override(tiers="best"):
        for layout in range(5):
            n = (33, 18, 20, 25, 31)[layout]
            assert outcome(compiled, *arrays(n, layout), n) == outcome(function, *arrays(n, layout), n), layout
    assert any("as lanes of vectors" in loop for loop in compiled.programs[0].loops)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float32", "int64", "int32", "uint8"])
def test_other_dtypes(dtype: str) -> None:
    def total(a: np.ndarray, b: np.ndarray, c: np.ndarray, n: int) -> None:
        for i in range(n):
            for j in range(n):
                s = a[i, j]
                for k in range(n):
                    s = s * b[k, j] - a[i, k]
                c[i, j] = s

    compiled = dg.compile(total, dynamic=True, mode="max")
    with dg.config.override(tiers="best"):
        for n in (35, 33, 20):
            made = [(10 * x).astype(dtype) for x in arrays(n, 0)]
            assert outcome(compiled, *(x.copy() for x in made), n) == outcome(total, *(x.copy() for x in made), n), n
    assert any("as lanes of vectors" in loop for loop in compiled.programs[0].loops)


def test_a_lane_that_fails_gives_the_strip_up() -> None:
    def total(a: np.ndarray, c: np.ndarray, d: np.ndarray, n: int) -> None:
        for j in range(n):
            s = 0
            t = 0.0
            for k in range(n):
                s += int(a[k, j]) * 3
                t += 1.0 / float(a[k, j])
            c[j] = s
            d[j] = t

    compiled = dg.compile(total, dynamic=True, mode="max")
    for value in (1, 0, 2**62):
        a, got, want = np.arange(1, 40 * 40 + 1).reshape(40, 40), *([np.zeros(40, "int64"), np.zeros(40)] for _ in range(2))
        a[7, 21] = value
        raised = []
        for f, c in ((compiled, got), (total, want)):
            with dg.config.override(tiers="best"):
                try:
                    f(a, *c, 40)
                except (ZeroDivisionError, OverflowError) as error:
                    raised.append(repr(error))
        assert list(map(exact, got)) == list(map(exact, want)) and len(set(raised)) == bool(value != 1), value
    assert any("as lanes of vectors" in loop for loop in compiled.programs[0].loops)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_arrays_that_overlap(function: Callable) -> None:
    compiled = dg.compile(function, dynamic=True)
    compiled(*arrays(40, 0), 40)
    for how in ("same", "transposed", "neighbours", "folded", "one row", "one column", "windows"):
        got, want = (outcome(f, *overlapping(40, how), 40) for f in (compiled, function))
        assert got == want, how


@pytest.mark.sampled(3)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_indices_out_of_bounds(function: Callable) -> None:
    compiled = dg.compile(function, dynamic=True)
    compiled(*arrays(40, 0), 40)
    for k in range(3):
        got, want = arrays(40, 0), arrays(40, 0)
        got[k], want[k] = got[k][:37, :39], want[k][:37, :39]
        assert outcome(compiled, *got, 40) == outcome(function, *want, 40), k


@pytest.mark.parametrize("function", WITH_LANES)
def test_turns_are_lanes(function: Callable) -> None:
    compiled = dg.compile(function)
    compiled(*arrays(40, 0), 40)
    assert any("its turns run 16 at a time, as lanes of vectors" in loop for loop in compiled.programs[0].loops)


@pytest.mark.parametrize("function", [goes_on, shifted])
def test_turns_that_depend_on_others_are_none(function: Callable) -> None:
    compiled = dg.compile(function)
    compiled(*arrays(40, 0), 40)
    assert not any("lanes of vectors" in loop for loop in compiled.programs[0].loops)


def test_signals_are_seen_between_strips() -> None:
    def many(a: np.ndarray, c: np.ndarray, n: int, m: int) -> None:
        for _ in range(n):
            for j in range(m):
                for k in range(m):
                    c[j] += a[k, j]

    compiled, a, c = dg.compile(many, dynamic=True, mode="max"), np.ones((300, 300)), np.zeros(300)
    for n in (2, 3, 2**10):
        compiled(a, c, n, 300)
    assert any("lanes of vectors" in loop for loop in compiled.programs[0].loops)
    for _ in range(2):  # the first call may still have to be compiled
        c[:] = 0.0
        with pytest.raises(Handled), on_alarm(after=0.5, at_work=True), dg.config.override(stay_eager=False):
            compiled(a, c, 2**40, 300)
    done = c[0]
    assert done > 300 and done % 300 == 0, sorted(set(c))
    assert list(c) == sorted(c, reverse=True)
    assert len(set(c) - {done, done - 300}) <= 1  # the element that turns by themselves were at


def test_lanes_that_wait_for_others_are_left_for_a_while() -> None:
    """Neighbours that take very different numbers of turns, then the same, then again different ones."""

    def escape(x: np.ndarray, y: np.ndarray, out: np.ndarray, limit: int) -> None:
        for i in range(len(x)):
            a = b = 0.0
            k = 0
            while a * a + b * b <= 4.0 and k < limit:
                a, b = a * a - b * b + x[i], 2 * a * b + y[i]
                k += 1
            out[i] = k

    rng = np.random.default_rng(0)
    x = np.concatenate((np.where(rng.random(700) < 0.06, -0.1, 1.5), np.full(500, -0.2), rng.uniform(-2, 1, 345)))
    y = np.zeros_like(x)
    plain, native = np.zeros((2, len(x)), int)
    escape(x, y, plain, 60)
    compiled = dg.compile(escape)
    for _ in range(2):
        compiled(x, y, native, 60)
        np.testing.assert_array_equal(native, plain)
    assert "as lanes of vectors" in " ".join(compiled.programs[0].loops)
