"""Lists in native loops: the same items, types and objects as plain Python has."""

from __future__ import annotations

import copy
import math
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg


def described(value: Any) -> Any:
    """A value with the type of each part."""
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [described(v) for v in value]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return type(value).__name__, repr(value)


def outcome(function: Callable, args: Any) -> Any:
    try:
        return described(function(*args))
    except Exception as error:
        return type(error).__name__, str(error)


def check(function: Callable, *calls: tuple, programs: int | None = None) -> Any:
    """Compiled gives what plain Python gives, for each of the calls, and leaves the same in its arguments."""
    compiled = dg.compile(function, backend="c")
    for args in (*calls, calls[0]):
        plainly, given = copy.deepcopy(args), copy.deepcopy(args)
        want, got = outcome(function, plainly), outcome(compiled, given)
        assert got == want
        assert described(given) == described(plainly)
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error
    if programs is not None:
        assert compiled.stats.compiles == programs, dict(compiled.stats.breaks)
    return compiled


# -- made in the loop --------------------------------------------------------------------------------------------------


def appended_ints(n):
    out = []
    for k in range(n):
        if k % 3:
            out.append(k * k)
    return out


def appended_floats(n, by):
    out, s = [], 0.0
    for k in range(n):
        s += k / by
        out.append(s)
    return out, len(out)


def appended_pairs(n):
    out = []
    for k in range(n):
        out.append((k, k * 0.5))
    return out


def appended_bools(n):
    return [k % 7 == 2 for k in range(n)], n


def appended_scalars(x):
    out = []
    for v in x:
        out.append(v * 2)
    return out


def appended_complex(n):
    out = []
    for k in range(n):
        out.append(k * 1j)
    return out


def table(n, m):
    rows = [[0] * (m + 1) for _ in range(n + 1)]
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            rows[i][j] = rows[i - 1][j - 1] + 1 if i * 7 % 5 == j * 3 % 5 else max(rows[i - 1][j], rows[i][j - 1])
    return rows


def literal(n):
    weights = [3, 1, 4, 1, 5]
    total = 0
    for k in range(n):
        total += weights[k % 5] * weights[-1 - k % 5]
    return total


def repeated(n):
    flags = [True] * (n + 1)
    found = []
    for i in range(2, n + 1):
        if flags[i]:
            found.append(i)
            for j in range(i * i, n + 1, i):
                flags[j] = False
    return found


def stack_of_pairs(size):
    seen = [[False] * size for _ in range(size)]
    stack, steps = [(0, 0)], 0
    while stack:
        i, j = stack.pop()
        if not (0 <= i < size and 0 <= j < size) or seen[i][j] or (i * j) % 5 == 4:
            continue
        seen[i][j] = True
        steps += 1
        stack.append((i + 1, j))
        stack.append((i, j + 1))
        stack.append((i - 1, j))
    return steps, seen


def queue_by_index(n):
    queue, at = [1], 0
    while at < len(queue) and len(queue) < n:
        v = queue[at]
        queue.append(2 * v)
        queue.append(2 * v + 1)
        at += 1
    return queue


def grown_while_iterated(n):
    out = [1]
    for v in out:
        if len(out) < n:
            out.append(v + 1)
    return out


def lists_of_lists(n):
    neighbours = [[] for _ in range(n)]
    for i in range(n):
        for j in range(i):
            if (i + j) % 3 == 0:
                neighbours[i].append(j)
                neighbours[j].append(i)
    most = 0
    for row in neighbours:
        for v in row:
            most = max(most, v)
    return neighbours, most


def never_appended(n):
    out = []
    for k in range(n):
        if k < 0:
            out.append(k)
    return out


def slices(n):
    a = list(range(n))
    for k in range(n):
        b = a[k // 2 :]
        c = b[::-1]
        a = c + a[: k // 2]
    return a, a[-1], a[1:3]


def edits(n):
    out = [0]
    for k in range(n):
        if k % 4 == 0:
            out.insert(k // 2, k)
        elif k % 4 == 1:
            out.pop(0)
        elif k % 4 == 2:
            out.extend([k, k + 1])
        else:
            out.reverse()
            del out[-1]
        if 3 in out:
            out[out.index(3)] = 100
    return out, out.copy()


def deep(n):
    cube = [[[0.0] * n for _ in range(n)] for _ in range(n)]
    for i in range(n):
        for j in range(n):
            for k in range(n):
                cube[i][j][k] = i + j / (k + 1)
    return cube


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (appended_ints, [(100,), (0,), (1,)]),
        (appended_floats, [(50, 3.0), (0, 2.0)]),
        (appended_pairs, [(30,)]),
        (appended_bools, [(30,), (0,)]),
        (appended_scalars, [(np.arange(20.0),), (np.arange(20.0)[::2],)]),
        (appended_complex, [(20,)]),
        (table, [(12, 9), (0, 0), (15, 11)]),
        (literal, [(40,)]),
        (repeated, [(100,), (2,)]),
        (stack_of_pairs, [(9,), (1,)]),
        (queue_by_index, [(50,)]),
        (grown_while_iterated, [(50,)]),
        (lists_of_lists, [(12,), (0,)]),
        (never_appended, [(10,)]),
        (slices, [(11,), (20,)]),
        (edits, [(40,), (9,)]),
        (deep, [(4,)]),
    ],
    ids=lambda v: v.__name__ if callable(v) else "",
)
def test_lists_made_in_loops(function: Callable, calls: list) -> None:
    check(function, *calls, programs=2 if function is appended_scalars else 1)


# -- the caller's ------------------------------------------------------------------------------------------------------


def sorted_in_place(xs):
    n = len(xs)
    for i in range(n):
        for j in range(n - 1 - i):
            if xs[j] > xs[j + 1]:
                xs[j], xs[j + 1] = xs[j + 1], xs[j]
    return xs


def weighted(xs, ys):
    s = 0.0
    for k, (x, y) in enumerate(zip(xs, ys)):
        s += k * x - y
    return s


def components(n, edges):
    parent = list(range(n))
    count = n
    for a, b in edges:
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        while parent[b] != b:
            b = parent[b]
        if a != b:
            parent[a] = b
            count -= 1
    return count, parent


def life(grid):
    n, m = len(grid), len(grid[0])
    new = [[0] * m for _ in range(n)]
    for i in range(n):
        for j in range(m):
            around = 0
            for a in range(-1, 2):
                for b in range(-1, 2):
                    if a or b:
                        around += grid[(i + a) % n][(j + b) % m]
            new[i][j] = 1 if around == 3 or (around == 2 and grid[i][j]) else 0
    for i in range(n):
        grid[i] = new[i]
    return grid


def drained(xs, out):
    while xs:
        out.append(xs.pop())


RANDOM = np.random.default_rng(5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (sorted_in_place, [([3, 1, 2] * 5,), ([5],), ([],)]),
        (weighted, [([0.5] * 12, [1.5] * 10), ([1.0] * 3, [2.0] * 9)]),
        (components, [(20, [(int(a), int(b)) for a, b in RANDOM.integers(0, 20, size=(30, 2))]), (3, [(0, 1)])]),
        (life, [(RANDOM.integers(0, 2, size=(6, 7)).tolist(),), (RANDOM.integers(0, 2, size=(9, 3)).tolist(),)]),
        (drained, [([1, 2, 3] * 4, [7]), ([], [])]),
    ],
    ids=lambda v: v.__name__ if callable(v) else "",
)
def test_lists_of_the_callers(function: Callable, calls: list) -> None:
    check(function, *calls)


def test_one_program_for_all_lengths() -> None:
    compiled = dg.compile(weighted, backend="c")
    for n in range(10, 50):
        assert compiled([0.5] * n, [1.0] * n) == weighted([0.5] * n, [1.0] * n)
    assert compiled.stats.compiles == 1


def test_other_items_are_left_to_python() -> None:
    check(sorted_in_place, ([3, 1, 2] * 5,), ([2.5, 1.5, 0.5] * 5,), ([2, 1.5, True],), ([2**70, 1, 5],), (["b", "a"],))


def test_items_that_are_untouched_stay_the_same_objects() -> None:
    @dg.compile(backend="c")
    def changed(xs):
        for k in range(0, len(xs), 10):
            xs[k] = 0.5

    xs = [float(k) + 0.25 for k in range(40)]
    before = list(xs)
    changed(xs)
    assert [x is y for x, y in zip(xs, before)] == [k % 10 != 0 for k in range(40)]


def test_a_list_stays_the_same_object() -> None:
    @dg.compile(backend="c")
    def pushed(xs, n):
        ys = xs
        for k in range(n):
            ys.append(k)
        return xs

    xs = [1]
    assert pushed(xs, 20) is xs
    assert xs == [1, *range(20)]


def test_two_names_of_one_list() -> None:
    def both(xs, ys, n):
        for k in range(n):
            xs.append(k)
            if len(ys) > 5:
                ys.pop()
        return len(xs), len(ys)

    compiled = dg.compile(both, backend="c")
    for shared in (False, True):
        xs = [1, 2, 3, 4, 5]
        us = list(xs)
        assert compiled(xs, xs if shared else [6], 20) == both(us, us if shared else [6], 20)
        assert xs == us


def test_rows_that_are_one_list() -> None:
    def rows(n):
        grid = [[0] * n] * n
        for k in range(n):
            grid[k][k] = k
        return grid, grid[0] is grid[-1]

    def callers(grid, n):
        for k in range(n):
            grid[k][k] += k
        return grid[0]

    compiled = dg.compile(rows, backend="c")
    assert compiled(9) == rows(9)
    grid, _ = compiled(9)
    assert grid[0] is grid[8]
    compiled = dg.compile(callers, backend="c")
    shared = [[0] * 9] * 9
    first = shared[0]
    assert compiled(shared, 9) is first
    assert first == list(range(9)) and all(row is first for row in shared)


def test_a_list_that_goes_on_being_used() -> None:
    def used(n):
        out = []
        for k in range(n):
            out.append(k)
        out.append("end")
        again = out
        out.sort(key=str)
        return out, again is out, sum(v for v in out if v != "end")

    check(used, (20,), (0,))


# -- exits -------------------------------------------------------------------------------------------------------------


def test_another_type_after_many_turns() -> None:
    def mixed(n):
        out = []
        for k in range(n):
            out.append(k if k < 100 else k / 2)
        return out

    check(mixed, (200,), (50,))


def test_pop_from_an_empty_list_in_a_try() -> None:
    def popped(n):
        stack, missed = [], 0
        for k in range(n):
            if k % 3 == 0:
                stack.append(k)
            try:
                stack.pop()
            except IndexError:
                missed += 1
        return stack, missed

    check(popped, (30,))


def test_errors_of_lists() -> None:
    def popped(xs, n):
        for _ in range(n):
            xs.pop()
        return xs

    def beyond(xs, n):
        s = 0
        for k in range(n):
            s += xs[k]
            xs[k] = s
        return s

    for function in (popped, beyond):
        check(function, ([1, 2, 3] * 5, 10), ([1, 2, 3] * 5, 16))


def test_ints_beyond_64_bits() -> None:
    def powers(n):
        out = [1]
        for _ in range(n):
            out.append(out[-1] * 7)
        return out

    check(powers, (40,), (10,))


def test_an_exit_in_a_comprehension() -> None:
    def divided(n, by):
        total = 0
        rows = []
        for k in range(n):
            rows = [[j // (by - k) for j in range(k)] for _ in range(3)]
            total += len(rows[0])
        return total, rows

    check(divided, (12, 20), (12, 5))


def test_calls_in_the_loop_see_the_list() -> None:
    seen = []

    def told(n):
        out = []
        for k in range(n):
            out.append(k)
            if k % 20 == 19:
                seen.append(len(out))
                out.append(-1)
        return out

    check(told, (60,))
    assert seen[:6] == [20, 41, 62, 20, 41, 62]


def test_dead_lists_are_freed_in_long_loops() -> None:
    def rows(n, m):
        total = 0
        for k in range(n):
            row = [k] * m
            total += row[-1]
        return total

    check(rows, (3000, 10_000), programs=None)


def test_lists_are_freed() -> None:
    compiled = dg.compile(table, backend="c")
    mixed = dg.compile(sorted_in_place, backend="c")
    for _ in range(10):
        compiled(20, 20)
        mixed([2, 1] * 50)
    tracemalloc.start()
    compiled(20, 20)
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(1000):
        compiled(20, 20)
        mixed([2, 1] * 50)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after - before < 10_000


def test_nan_and_signed_zeros() -> None:
    def kept(xs):
        out = []
        for x in xs:
            out.append(-x)
        return out, math.nan in out

    check(kept, ([0.0, -0.0, math.nan, math.inf] * 4,))


def test_a_list_of_none_where_an_empty_one_was() -> None:
    def longer(given, n):
        s = 0
        for k in range(n):
            for _ in given:
                s += k
        return s

    check(longer, ([], 30), ([None, None], 30), ([None], 30))


def test_other_threads_see_and_change_lists() -> None:
    def filled(out, start, stop):
        for _ in range(3):
            for k in range(start, stop):
                out[k] = out[k] + k
        return stop

    out, n = [0] * 4000, 4
    compiled = dg.compile(filled, backend="c")
    threads = [threading.Thread(target=compiled, args=(out, 1000 * k, 1000 * k + 1000)) for k in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert out == [3 * k for k in range(4000)]


def test_waiting_for_another_thread() -> None:
    def wait(flag, n):
        turns = 0
        while flag[0] == 0:
            turns += 1
        return turns + n

    compiled, flag = dg.compile(wait, backend="c"), [0]
    assert compiled([1], 5) == 5
    timer = threading.Timer(0.3, flag.__setitem__, (0, 1))
    timer.start()
    assert compiled(flag, 5) > 1000
    timer.join()


def test_long_lists_of_which_little_is_used_are_not_copied_each_time() -> None:
    def found(items, wanted):
        low, high = 0, len(items)
        while low < high:
            middle = (low + high) // 2
            if items[middle] < wanted:
                low = middle + 1
            else:
                high = middle
        return low

    compiled, items = dg.compile(found, backend="c"), list(range(300_000))
    start = time.perf_counter()
    compiled(items, 1000)
    first = time.perf_counter() - start
    start = time.perf_counter()
    assert [compiled(items, k) for k in range(2000)] == list(range(2000))
    assert time.perf_counter() - start < 200 * 0.005 + first  # 2000 copies take some 6 s


def test_lists_are_sorted():
    def f(x, n):
        out, whole = [], []
        for i in range(n):
            window = []
            for j in range(i + 1):
                window.append(x[(i * 7 + j * 3) % len(x)] if j % 5 else x[j % 3])
            window.sort()
            whole.append(int(window[0] * 1000) % 13)
            whole.sort()
            out.append(window[i // 2] + whole[i // 3])
        return out, window, whole

    compiled, rng = dg.compile(f), np.random.default_rng(2)
    for n in (3, 9, 20, 140):
        x = rng.normal(size=50).round(1)
        x[:3] = 0.0, -0.0, float("inf")
        assert repr(compiled(x, n)) == repr(f(x, n))
    assert not compiled.stats.side_exits
    x[4] = float("nan")
    assert repr(compiled(x, 60)) == repr(f(x, 60))


def test_a_list_that_is_given_is_sorted():
    def f(numbers, n):
        for i in range(n):
            numbers.append(float(n - i))
            numbers.sort()
        return numbers[n // 2]

    compiled = dg.compile(f)
    for n in (4, 70):
        one, other = [3.0, 1.0, -0.0, 0.0, 1.0], [3.0, 1.0, -0.0, 0.0, 1.0]
        assert compiled(one, n) == f(other, n)
        assert repr(one) == repr(other)


def settles(rewards, tol):
    """Numbers that are floats or NumPy's, by data, in a loop that is written out."""
    n, m = rewards.shape
    values = np.zeros((n, m))
    delta = 1.0
    while delta > tol:
        delta = 0.0
        for i in range(n):
            for j in range(m):
                best = -np.inf
                for di, dj in [(0, 1), (0, -1), (1, 0), (-1, 0)]:
                    y = min(max(i + di, 0), n - 1)
                    x = min(max(j + dj, 0), m - 1)
                    best = max(best, rewards[y, x] + 0.5 * values[y, x])
                delta = max(delta, abs(best - values[i, j]))
                values[i, j] = best
    return values, delta


def test_types_by_data_in_a_loop_that_is_written_out():
    rewards = np.random.default_rng(3).random((5, 4))
    compiled = check(settles, (rewards, 1e-3), (-rewards, 1e-3), programs=1)
    assert not compiled.stats.breaks


@pytest.mark.sampled(4)
@pytest.mark.parametrize("item", [0.5, 3, 2**62, 1 + 2j, (1, 0.5), True, np.float32(2)])
def test_lists_that_were_empty_take_what_is_appended(item: Any) -> None:
    def fill(found, item, n):
        for _ in range(n):
            found.append(item)
        return len(found)

    compiled = dg.compile(fill)
    cleared = [1, 2, 3]
    cleared.clear()
    for found in ([], cleared, [item] * 5):
        other, held = list(found), found
        iterator = iter(found)
        for n in (0, 1, 300, 0, 2):
            assert compiled(found, item, n) == fill(other, item, n)
            assert found is held and found == other and set(map(type, found)) == set(map(type, other))
            found.append(item)
            other.append(item)
            del found[:2], other[:2]
        assert list(iterator) == other
        found.clear()
        assert found == [] and compiled(found, item, 7) == 7
