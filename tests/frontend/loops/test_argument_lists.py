"""Calls with ``*args`` in native loops, and functions that take ``*args``, keywords only, or positions only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from .test_lists import check

X = np.linspace(0.5, 2.0, 60)


def cube(x, a, b):
    return x**3 - a * b


def slope(x, a, b):
    return 3 * x**2


def newton(function, x0, derivative, args):
    x = 1.0 * x0
    for turn in range(50):
        value = function(x, *args)
        if value == 0:
            return x, turn
        new = x - value / derivative(x, *args)
        if abs(new - x) < 1e-9:
            return new, turn
        x = new
    raise RuntimeError("no root")


def total(first, *more):
    s = first
    for m in more:
        s = s + m
    return s


def scaled(x, *, by=2.0, shift):
    return x * by + shift


def places(a, b, /, c=1.0):
    return a * 100 + b * 10 + c


def several(x, n, extra):
    s = 0.0
    for i in range(n):
        s += total(x[i], *extra, i) + total(1.0) + scaled(x[i], shift=1.0) + scaled(x[i], shift=i, by=3)
        s += places(*extra) + places(i, extra[0], c=x[i])
    return s


def parts_of_tuples(x, n, extra):
    s = 0.0
    for i in range(n):
        s += places(i, *extra[:1], c=x[i]) + total(*[x[i], 2.0], *extra[1:])
    return s


def builtins_of(n, pair):
    out = []
    for i in range(n):
        out.append(max(*pair, i) + np.add(*pair) + len((1, *pair)))
    return out


def methods(x, n, shape):
    s = 0.0
    for i in range(n):
        s += x.reshape(*shape)[i % 3].sum()
    return s


def too_many(x, n, extra):
    s = 0.0
    for i in range(n):
        try:
            s += cube(*extra, i, i)
        except TypeError as error:
            s += len(str(error))
    return s


def by_the_wrong_names(x, n):
    s = 0.0
    for i in range(n):
        try:
            s += places(a=i, b=1)
        except TypeError as error:
            s += len(str(error))
        try:
            s += scaled(x[i])
        except TypeError as error:
            s += len(str(error))
    return s


def grows(k, *more):
    h = k
    for m in more:
        h = h * m
    return h * 3**38 % 1000


def ints_beyond_64_bits(n, extra):
    return sum(grows(k, *extra) for k in range(n))


def raising(x, k, *more):
    return x[k] + more[0]


def an_error_in_the_call(x, n, extra):
    s = 0.0
    for k in range(n):
        s += raising(x, k, *extra)
    return s


def with_a_dict(x, n, named):
    s = 0.0
    for i in range(n):
        s += scaled(x[i], **named)
    return s


CASES: list[tuple[Callable[..., Any], list[tuple[Any, ...]]]] = [
    (newton, [(cube, 2.0, slope, (1.0, 2.0)), (cube, 3.0, slope, (3.0, 5.5)), (cube, 2, slope, (2, 7))]),
    (several, [(X, 50, (1.0, 2.0)), (X, 50, (1, 2.5)), (X, 3, (1, 2))]),
    (parts_of_tuples, [(X, 50, (1.0, 2.0))]),
    (builtins_of, [(50, (3.5, 20)), (50, (3, 4))]),
    (methods, [(X, 50, (3, 20)), (X, 50, (4, 15))]),
    (too_many, [(X, 50, (1.0, 2.0)), (X, 20, (1.0,))]),
    (by_the_wrong_names, [(X, 50)]),
    (ints_beyond_64_bits, [(12, (1, 1)), (12, (2, 3))]),
    (an_error_in_the_call, [(X, 50, (1.0,)), (X, 80, (1.0,)), (X, 40, ())]),
    (with_a_dict, [(X, 50, {"shift": 1.0})]),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("function", "calls"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_as_python_runs_it(function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
    check(function, *calls)


@pytest.mark.parametrize("function", [newton, several, builtins_of])
def test_are_native(function: Callable[..., Any]) -> None:
    calls = next(calls for f, calls in CASES if f is function)
    compiled = check(function, calls[0])
    assert compiled.stats.compiles == 1 and not compiled.stats.breaks and not compiled.stats.side_exits
