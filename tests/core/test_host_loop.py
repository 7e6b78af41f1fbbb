"""HostLoop: what its runs give, where they end, and that nothing of them stays."""

from __future__ import annotations

import gc
import sys
import weakref

import numpy as np
import pytest

import dynagraph as dg
from dynagraph._core._dispatch import MAX_REGISTERS, HostLoop


def pause(*_):
    return None


def run(body, items, variables, most=-1):
    return HostLoop(body).run(items, variables, most, pause, ())


def adds(item, total):
    return (2 if total > 50 else 0), total + item


def test_ways_out():
    assert run(adds, iter(range(4)), (0,)) == (None, 4, 6)
    assert run(adds, iter([]), (7,)) == (None, 0, 7)
    assert run(adds, iter(range(100)), (0,)) == (2, 12, 66)
    items = iter(range(10))
    assert run(adds, items, (0,), 3) == (0, 3, 3)
    assert next(items) == 3
    assert run(lambda x, y: (y > 9, y, x + y), None, (0, 1)) == (1, 7, 13, 21)
    assert run(lambda x: (0, x + 1), None, (0,), 5) == (0, 5, 5)
    assert run(lambda x: (0, x + 1), None, (0,), 0) == (0, 0, 0)


def test_errors_come_out():
    def raises(item, x):
        if item == 3:
            raise KeyError(item)
        return 0, x

    with pytest.raises(KeyError):
        run(raises, iter(range(9)), (1,))
    with pytest.raises(ZeroDivisionError):
        run(adds, (1 // k for k in (1, 0)), (0,))
    for wrong in (None, (0,), (0, 1, 2), [0, 1]):
        with pytest.raises(TypeError, match="not a way and 1 variables"):
            run(lambda item, x, wrong=wrong: wrong, iter(range(2)), (0,))
    with pytest.raises(ValueError, match="the way -1"):
        run(lambda item, x: (-1, x), iter(range(2)), (0,))
    with pytest.raises(TypeError, match="must be an iterator"):
        run(adds, [1], (0,))
    with pytest.raises(ValueError, match=f"{MAX_REGISTERS + 1} variables"):
        run(adds, iter([]), (0,) * (MAX_REGISTERS + 1))
    with pytest.raises(TypeError, match="must be callable"):
        HostLoop(1)


def test_nothing_of_a_run_stays():
    class Held:
        pass

    def replaces(item, held):
        return int(item == 5), Held()

    first = Held()
    noted = weakref.ref(first)
    way, _, last = run(replaces, iter(range(9)), (first,))
    del first
    references, another = sys.getrefcount(last), Held()
    usual = sys.getrefcount(another)
    assert way == 1 and noted() is None and references == usual

    loop = HostLoop(replaces)
    replaces.itself = loop
    noted = weakref.ref(replaces)
    del loop, replaces
    gc.collect()
    assert noted() is None


def test_a_loop_may_run_within_itself():
    def outer(item, x):
        if item == 1:
            return 0, loop.run(iter([2, 3]), (x,), -1, pause, ())[2]
        return 0, x * 2

    loop = HostLoop(outer)
    assert loop.run(iter([0, 1, 2]), (1,), -1, pause, ()) == (None, 3, 16)
    assert loop.turns == 5 and loop.quiet_turns == 0


def test_turns_of_compiled_functions():
    compiled = dg.compile(lambda k, x, y: (0, x + k, y * 0.5))
    x, y = np.arange(4.0), np.ones(4)
    way, turns, *found = run(compiled, iter(range(2, 30)), (x, y))
    assert (way, turns) == (None, 28)
    np.testing.assert_array_equal(found[0], x + sum(range(2, 30)))
    np.testing.assert_array_equal(found[1], y * 0.5**28)
    assert compiled.stats.hits > 20 and compiled.stats.fallbacks == 0


def test_a_program_that_bails_out_leaves_the_turn_to_the_plain_function():
    compiled = dg.compile(lambda k, x, places: (0, x[places] + 1, places))
    x, places = np.arange(4.0), np.array([1, 2, 3, 0])
    assert run(compiled, iter(range(8)), (x, places))[2].tolist() == (x + 8).tolist()
    with pytest.raises(IndexError, match="out of bounds"):
        run(compiled, iter(range(8)), (x, np.array([1, 2, 3, 9])))
