"""Lists whose items are numbers of several types, by data."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import dynagraph as dg

from .test_lists import check

ODD = [0.5, -0.0, float("nan"), 3.0, float("inf"), 1e-320, -7.25, 0.0, 2.0]


def joined(x, n):
    f = [1.0 / x[0]]
    for k in range(1, n):
        f = [0.5 * p - x[k] * q for p, q in zip(f + [0.0], [0.0] + f)]
    return f


def padded(x):
    """A list of floats, into which NumPy's are put one by one."""
    out = [0.0] * len(x)
    for k in range(len(x)):
        if x[k] > 0:
            out[k] = x[k]
        if x[k] == 2:
            out.append(k)
    return out, out[1:], sum(out[:3])


def counted(n):
    """Ints, of which some become floats."""
    out = [0] * n
    for k in range(n):
        out[k] = k // 2 if k % 2 else k / 4
    best = out[-1]
    for v in out:
        if v > best:
            best = v
    return out, best, [v * 2 for v in out], [-v for v in out[::-1]]


def halved(n):
    """Ints, of which some become floats."""
    out = [0] * n
    for k in range(n):
        out[k] = k // 2 if k % 2 else k / 4
    best = out[-1]
    for v in out:
        if v > best:
            best = v
    return out, best


def chosen(x):
    """Each use of an item, and what it then is."""
    items, found = [x[0], 1, 2.5], []
    for k in range(len(x)):
        v = items[k % 3]
        w = v + x[k] * v if k % 2 else v * 2 - v
        y = math.floor(v) if k % 5 == 0 else abs(v) / 2
        found.append((w, y))
        items[(k * 2) % 3] = w if k % 4 else k
    return found, items


def stored(x, y):
    parts = []
    for k in range(len(x)):
        parts.append(x[k] if k % 3 else 0.25)
        parts.insert(0, 1.5)
    for k, p in enumerate(parts):
        if k < len(y):
            y[k] = p
    last = parts.pop()
    while len(parts) > 3 and parts.pop(0) < 2:
        last += parts[0]
    return last, parts, 1.5 in parts


def pairs(x):
    out = []
    for k in range(len(x)):
        out.append((k, x[k]) if x[k] > 1 else (k, 0))
    s = 0.0
    for k, v in out:
        s += k * v
    return out, s


def divided(x, d):
    """An error at an item that is Python's float, and none at one of NumPy's."""
    out = []
    for k in range(len(x)):
        out.append(x[k] if k % 2 else float(x[k]))
    return [v / d for v in out]


def of_words(n):
    """More types than there may be: Python does what is left."""
    out = []
    for k in range(n):
        out.append((k, k * 0.5, True, 1j, np.float32(k), "a")[k % 6])
    return out, len(out)


def nested(n):
    """Items of several types in lists of lists."""
    table = [[0] * 3 for _ in range(n)]
    for i in range(n):
        table[i][1] = i * 0.5
    return table


def variables(x, n):
    """Each is a float or one of NumPy's, by data."""
    a, b, c, d, e, f = 0.0, 1.0, 2.0, 3.0, 4.0, 5.0
    s = 0.0
    for k in range(n):
        v = x[k % len(x)]
        if v > 1:
            a, b = v, a
        elif v > 0:
            c, a = v * a, float(b)
        elif v > -1:
            d, e = e - c, -v
        elif v == v:
            f, b = abs(v), min(f, 2.0)
        else:
            e, f = f / a if a else 1.0, 0.5
        s = s + a * b - max(c, d) if e < f else s / 2
    return a, b, c, d, e, f, s


def quotients_of_variables(x, n):
    a, b, c, d, e = 1.0, 1.0, 1.0, 1.0, 1.0
    for k in range(n):
        v = x[k % len(x)]
        if v > 1:
            a = v
        elif v > 0:
            b = v
        elif v > -1:
            c = v
        elif v > -2:
            d = float(v)
        else:
            e, d = float(d), float(k - 12)
        a, b, c, d = (b, c, d, a) if k % 3 else (a, c, b, e)
    return a / b, c, d, e


CASES: list[tuple[Callable, list[tuple]]] = [
    (variables, [(np.resize(ODD, 30), 60), (np.arange(-3, 3.0), 200), (np.linspace(-3, 3, 11, dtype="f4"), 60), (np.ones(1), 0)]),
    (quotients_of_variables, [(np.linspace(-3, 3, 11), 200), (np.linspace(-3, 0, 11), 50), (np.zeros(3), 10)]),
    (joined, [(np.resize(ODD, 20)[::-1] + 1, 20), (np.ones(3), 1), (np.arange(1, 12), 11), (np.ones(12, "f4"), 12)]),
    (padded, [(np.resize(ODD, 20),), (np.zeros(3),), (np.zeros(0),), (np.arange(12),), (np.arange(12, dtype="f4"),)]),
    (counted, [(20,), (1,), (0,)]),
    (halved, [(20,), (1,), (0,)]),
    (chosen, [(np.resize([1.5, 2.0, -3.25, 1e3], 20),), (np.arange(20),), ([0.5] * 20,), (np.resize(ODD, 12),)]),
    (stored, [(np.arange(12.0), np.zeros(9)), (np.arange(12.0), np.zeros(30, int)), (np.arange(4), np.zeros(0)), (np.ones(0), [])]),
    (pairs, [(np.arange(20.0),), (np.arange(20),), (np.zeros(12),)]),
    (divided, [(np.arange(12.0), 2.0), (np.arange(12.0), 0.0), (np.arange(12.0), 0), (np.arange(12.0), np.float64(0))]),
    (of_words, [(20,), (2,)]),
    (nested, [(12,), (0,)]),
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("function", "calls"), CASES, ids=[f.__name__ for f, _ in CASES])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_as_python_runs_it(function: Callable, calls: list) -> None:
    check(function, *calls)


@pytest.mark.parametrize("function", [joined, padded, halved, pairs])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nothing_leaves_the_loop(function: Callable) -> None:
    compiled = dg.compile(function, backend="c")
    args = next(calls[0] for f, calls in CASES if f is function)
    for _ in range(2):
        compiled(*args)
    assert not compiled.stats.side_exits and not compiled.stats.breaks


def doubled(items, places):
    for k in range(len(places)):
        items[places[k]] = items[places[k]] * 2
    return len(items)


def test_items_that_stay_are_the_same_objects() -> None:
    compiled = dg.compile(doubled, backend="c")
    places = np.resize([1, 3, 4], 12)
    for n in (9, 12):
        items = [10**6 + 1, True, 1e9, 0.5, 7, *range(500, 500 + n), 2.0]
        want, held = list(items), list(items)
        doubled(want, places)
        compiled(items, places)
        assert [(type(v), v) for v in items] == [(type(v), v) for v in want]
        assert all(a is b for k, (a, b) in enumerate(zip(items, held)) if k not in (1, 3, 4))
    assert not compiled.stats.side_exits and not compiled.stats.fallbacks


def test_variables_of_two_types_have_a_tag_where_versions_would_be_too_many() -> None:
    x = np.linspace(-3, 3, 11)
    compiled = check(variables, (x, 200))
    assert compiled.stats.compiles == 1 and not compiled.stats.breaks and not compiled.stats.side_exits
