"""Lists that a native loop only appends to, by calls out: arrays, and items of several types."""

from __future__ import annotations

import numpy as np
import pytest

import dynagraph as dg
from tests.frontend.loops.test_displays import outcome
from tests.frontend.loops.test_new_arrays import same

X = np.arange(30.0)


def tracks(x, n):
    track = []
    for k in range(n):
        x = x * 0.5 + k
        track.append(x)
    return track, x, track[-1] is x, track[0] is x


def shares(x, n):
    track = []
    y = x + 0
    for k in range(n):
        y[k] = -1
        track.append(y)
        track.append(y[k:])
    return track, track[0] is track[2], np.shares_memory(track[0], track[1])


def times(x, n):
    t, found = 0.0, [0.0]
    for k in range(n):
        t += x[k]
        found.append(t)
    return found, [type(item).__name__ for item in found]


def mixed(x, n):
    found = [None, "a"]
    for k in range(n):
        found.append((k, x[k]) if k % 3 else x[:k])
        found.append(None)
    return found


def two_names(x, n):
    a = b = []
    for k in range(n):
        a.append(x[:2] * k)
        b.append(k)
    return a, a is b


def two_lists(x, n):
    a, b, c = [], [1], []
    for k in range(n):
        a.append(x * k)
        if k % 2:
            b.append(float(k))
        c.append(k * k)
    return a, b, c


def asked(x, n):
    found = []
    while len(found) < n:
        found.append(x[:3] * len(found))
    return found


def read(x, n):
    found = [0.0]
    for k in range(n):
        found.append(found[-1] * 0.5 + x[k])
    return found


def read_now_and_then(x, n):
    found = []
    for k in range(n):
        found.append(x[:3] + k)
        if k == 17:
            x = x + found[3][0]
    return found


def put(into, item):
    into.append(item)
    return item


def called(x, n):
    found = []
    for k in range(n):
        x = put(found, x[:5] * 0.5 + k)
    return found


def results(x, n):
    found, nothing = [], 0
    for k in range(n):
        nothing = found.append(x + k)
    return found, nothing


def other_methods(x, n):
    a, b, c = [], [], []
    for k in range(n):
        a.append(x[:2] + k)
        b.append(x[:2] - k)
        if k % 3 == 0:
            a.pop()
        b += [k]
        c.extend([x[:1]])
    return a, b, c


def prints(x, n):
    found, seen = [], []
    for k in range(n):
        found.append(x[:2] + k)
        if k % 7 == 0:
            seen.append(len(str(found)))
        if k % 11 == 0:
            x = np.array([float(str(k))] * 5)
    return found, seen


def raises(x, n):
    found = []
    try:
        for k in range(n):
            found.append(x[:2] * k)
            found.append(1 // (n - 3 - k))
    except ZeroDivisionError:
        found.append("end")
    return found


def nested(x, n):
    found = []
    for i in range(3):
        row = []
        for k in range(n):
            row.append(x[i : i + 2] * k)
        found.append(row)
    return found


def given(into, n):
    for k in range(n):
        into.append(X[:2] + k)
    return into


def within(x, n):
    inner = []
    outer = [inner, inner]
    for k in range(n):
        inner.append(x[:1] * k)
    return outer, outer[0] is inner, outer[0] is outer[1]


def everything(got, want):
    if isinstance(want, list):
        assert type(got) is list and len(got) == len(want)
        same(tuple(got), tuple(want)) if not any(isinstance(w, (list, tuple)) for w in want) else None
        got, want = tuple(got), tuple(want)
    if isinstance(want, tuple):
        assert type(got) is tuple and len(got) == len(want)
        for g, w in zip(got, want):
            everything(g, w)
    else:
        same(got, want)


PROGRAMS = (
    tracks, shares, times, mixed, two_names, two_lists, asked, read, read_now_and_then, called, results, other_methods, prints,
    raises, nested, within,
)  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_lists_that_are_appended_to(program):
    compiled = dg.compile(program)
    for n in (20, 12, 30, 0, 1):
        everything(outcome(compiled, X.copy(), n), outcome(program, X.copy(), n))
    assert not compiled.stats.fallbacks


@pytest.mark.parametrize("program", (tracks, called), ids=lambda p: p.__name__)
def test_no_turn_leaves_the_loop(program):
    compiled = dg.compile(program)
    compiled(X.copy(), 30)
    inside = {where: n for where, n in compiled.stats.side_exits.items() if n > 2}
    assert compiled.stats.calls_out and not inside


def test_a_list_of_the_callers():
    compiled = dg.compile(given)
    for start in ([], [1], [X], [1.5, None]):
        a, b = list(start), list(start)
        assert compiled(a, 15) is a
        everything(a, given(b, 15))
