"""Loops with their checks tested in front of them are the loops that Python runs: bits, exits, errors, signals."""

from __future__ import annotations

import copy
import signal
import time

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends.c import regions as printer
from dynagraph.ir.region_loops import innermost_loops
from dynagraph.ir.regions import Region, Store


def outcome(function, args):
    args = copy.deepcopy(args)
    try:
        result = function(*args)
    except Exception as error:
        result = type(error), str(error)
    return result, args


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return repr(a) == repr(b)


def affine(x, out, start, stop, step, k):
    last = -1
    for i in range(start, stop, step):
        out[i] = x[i + k] * 2.0
        last = i
    return last


def backwards(x, out, n):
    for i in range(n):
        out[i] = x[-i - 1] + x[-1]
    return out


def wraps_first(x, out, n):
    for i in range(n):
        out[i] = x[i - 1] - x[i]
    return out


def guarded(x, out, n):
    for i in range(n):
        if i > 0:
            out[i] = x[i - 1]
        if i < n - 1:
            out[i] += x[i + 1]
    return out


def flat(x, out, h, w):
    for i in range(h):
        for j in range(w):
            out[i * w + j] = x[j * h + i]
    return out


def shifted_rows(a, n, m):
    for i in range(1, n):
        for j in range(m):
            a[i, j] = a[i - 1, j + 1] + a[-i, -1]
    return a


def recurrence(x, n, by):
    for i in range(by, n):
        x[i] = x[i - by] * 0.5 + x[i]
    return x


def counts(x, n, c):
    below = above = 0
    for i in range(n):
        if x[i] > 0.0:
            above += 1
        elif x[i] < -0.5:
            below -= 3
        c += 2
    return below, above, c


def first_above(x, t, n):
    for i in range(n):
        if x[i] > t:
            return i
    return n


def by_while(x, i, n, p):
    s = 0.0
    while i < n:
        s += x[i]
        i += p
    return s, i


def two_ends(x, i, j):
    while i < j:
        x[i], x[j] = x[j], x[i]
        i += 1
        j -= 1
    return x, i, j


def divided(x, out, n, d, f):
    for i in range(n):
        out[i] = (i * 3 - 7) // d + i % d + float(x[i]) / f
    return out


def far(x, n, k, scale):
    s = 0
    for i in range(n):
        s += (i * scale + k) & 7
        x[i] = s
    return s


def gathered(x, places, out):
    for k in range(len(places)):
        out[k] = x[places[k]]
    return out


def zipped(x, y):
    s = 0.0
    for k, (a, b) in enumerate(zip(x, y)):
        s += a * b - k
    return s


def edges(x, n, k):
    """Numbers next to the ends of 64 bits."""
    s = 0
    for i in range(n):
        s += abs(k) & 1
        if i + 9223372036854775000 > 0 and i <= 9223372036854775807 and i - 9223372036854775807 <= k:
            s += 1
        x[i] = s
    return s


def far_index(x, n):
    for i in range(n):
        x[i] = x[-9223372036854775808]
    return x


def while_below_the_end(x, i):
    s = 0
    while i <= 9223372036854775807:
        s += int(x[i - 9223372036854775800])
        i += 1
    return s


X = np.random.default_rng(1).normal(size=40)
READ_ONLY = X.copy()
READ_ONLY.setflags(write=False)
Z = lambda n=40: np.zeros(n)  # noqa: E731
SQUARE = np.arange(144.0).reshape(12, 12)
RANGES = [(0, 40, 1), (0, 0, 1), (5, 6, 1), (39, -1, -1), (1, 40, 7), (38, 0, -3), (-40, 0, 1), (-3, 30, 1)]
CASES = [
    (affine, [(X, Z(), *r, k) for r in RANGES for k in (0, 1, -1)]),
    (affine, [(X, Z(), 0, 41, 1, 0), (X, Z(), 0, 30, 1, 11), (X, Z(12), 0, 20, 1, 0)]),
    (affine, [(X[::-1], Z()[::2], 0, 20, 1, 2), (X, READ_ONLY, 0, 9, 1, 0)]),
    (affine, [(X, Z(), 0, 12, 1, k) for k in (2**63 - 5, -(2**63), 2**62, 2**63 - 1)]),
    (backwards, [(X, Z(), n) for n in (0, 1, 8, 40, 41)]),
    (wraps_first, [(X, Z(), n) for n in (0, 1, 2, 9, 40, 41)]),
    (guarded, [(X, Z(), n) for n in (0, 1, 2, 9, 40, 41)]),
    (flat, [(X, Z(), h, w) for h, w in ((4, 10), (10, 4), (1, 40), (40, 1), (5, 9), (0, 3))]),
    (shifted_rows, [(SQUARE, n, m) for n, m in ((12, 11), (12, 12), (5, 0), (1, 11), (13, 11))] + [(SQUARE.T, 12, 11)]),
    (recurrence, [(X, n, by) for n in (40, 41, 3) for by in (1, 2, 8, 16, 39)]),
    (counts, [(X, n, c) for n in (0, 7, 40, 41) for c in (0, 2**62 - 1, 2**63 - 30, -(2**62), 2**70)]),
    (first_above, [(X, t, n) for t in (-9.0, 1.0, 2.0, 9.0) for n in (40, 41, 12, 0)]),
    (by_while, [(X, i, n, p) for i in (0, 3, -5, 60) for n in (0, 12, 40, 45) for p in (1, 2, 11)]),
    (two_ends, [(X, i, j) for i, j in ((0, 39), (0, 40), (3, 30), (-5, 20), (7, 7))]),
    (divided, [(X, Z(), 30, d, f) for d in (1, 3, -2, 0, 2**40) for f in (2.0, 0.0)]),
    (far, [(np.zeros(40, dtype=np.int64), n, k, s) for n in (40, 41) for k in (0, 2**63 - 100) for s in (1, 3)]),
    (far, [(np.zeros(40, dtype=np.int64), 12, 0, s) for s in (2**60, -(2**60))]),
    (edges, [(np.zeros(40, dtype=np.int64), n, k) for n in (0, 20, 40, 41) for k in (0, -7, -(2**63), 2**63 - 1)]),
    (far_index, [(np.zeros(40), n) for n in (0, 20)]),
    (while_below_the_end, [(np.arange(40), 2**63 - k) for k in (8, 5)]),
    (gathered, [(X, np.array(p), Z()) for p in ([3, 1, -1, 39] * 8, [0] * 12 + [40] + [1] * 9, [-40, -41] * 10)]),
    (zipped, [(X[:n], X[:m]) for n in (0, 9, 40) for m in (0, 1, 9, 40)]),
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("function", "calls"), CASES, ids=[f"{f.__name__}-{k}" for k, (f, _) in enumerate(CASES)])
def test_as_python_runs_it(function, calls):
    compiled = dg.compile(function)
    for args in calls:
        assert same(outcome(compiled, args), outcome(function, args)), args[1:]
        assert not compiled.stats.fallbacks, compiled.stats.last_error


def test_arrays_that_overlap():
    def shift(x, y, n):
        for i in range(n):
            y[i] = x[i] * 0.5 + x[0]
        return y

    compiled = dg.compile(shift)
    for by in (0, 1, 3, 8, 20):
        memory = [np.arange(80.0) for _ in range(2)]
        for function, m in zip((compiled, shift), memory):
            function(m[: 80 - by], m[by:], 60)
            function(m[by:], m[: 80 - by], 60)
        assert memory[0].tobytes() == memory[1].tobytes()


def test_more_turns_than_a_strip():
    def total(x, n):
        s, k = 0.0, 0
        for i in range(n):
            s += x[i]
            if x[i] > 0.5:
                k += 1
        return s, k

    x = np.random.default_rng(2).random(10000)
    for n in (4095, 4096, 4097, 8192, 10000):
        assert same(dg.compile(total)(x, n), total(x, n))


@pytest.fixture
def optimised(monkeypatch):
    """The regions that are printed."""
    found: list[Region] = []
    plain = printer.print_region
    monkeypatch.setattr(printer, "print_region", lambda region: found.append(region) or plain(region))
    with dg.config.override(cache=False):  # else it would be known what they are compiled to
        yield found


@pytest.mark.parametrize(
    ("function", "args", "copies"),
    [
        (affine, (X, Z(), 0, 30, 1, 2), 1),
        (wraps_first, (X, Z(), 40), 1),
        (flat, (X, Z(), 4, 10), 2),  # one in the copy of the nest
        (far, (np.zeros(40, dtype=np.int64), 40, 1, 3), 1),
    ],
)
def test_no_check_is_left(optimised, function, args, copies):
    dg.compile(function)(*args)
    (region,) = optimised
    bodies = [[i for b in loop.blocks for i in b.body] for loop in innermost_loops(region)]
    storing = [body for body in bodies if any(isinstance(i, Store) for i in body)]
    assert [any(hasattr(i, "exit") for i in body) for body in storing].count(False) == copies


def test_signals_are_seen():
    def long(x, n):
        s = 0
        for i in range(n):
            s += int(x[i & 3])
        return s

    compiled = dg.compile(long)
    x = np.arange(4)
    assert compiled(x, 100) == long(x, 100)
    seen = []

    def stop(*_):
        seen.append(time.perf_counter())
        raise TimeoutError("enough")

    before = signal.signal(signal.SIGALRM, stop)
    try:
        start = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(TimeoutError, match="enough"):
            compiled(x, 2**40)
        assert time.perf_counter() - start < 0.05 + 0.2
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
