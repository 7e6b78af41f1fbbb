"""How often a loop's body stands in its region: once for each combination of types that its variables have."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends.c import regions as printer
from dynagraph.frontend.bytecode.decode import JUMPS, decode
from dynagraph.ir.regions import Interruptible, Region

from .test_lists import check


def counts(x):
    n = 0
    for v in x:
        if v > 0:
            n += 1
    return n


def counts_while(n):
    i = total = 0
    while i < n:
        i += 1
        total = total * 3 % 1000 + i
    return total


def counts_neighbours(board, generations):
    rows, columns = board.shape
    for _ in range(generations):
        new = np.zeros_like(board)
        for i in range(rows):
            for j in range(columns):
                alive = 0
                for di in (-1, 0, 1):
                    for dj in (-1, 0, 1):
                        if (di or dj) and board[(i + di) % rows, (j + dj) % columns]:
                            alive += 1
                if alive == 3 or (alive == 2 and board[i, j]):
                    new[i, j] = 1
        board = new
    return board


def grows_beyond(n, by):
    """Small at first; ints of more than 64 bits in the end."""
    k = 1
    for _ in range(n):
        k = k * by
    return k


def counts_for_another(n, limit):
    """What is counted in one loop is handed on to another, and compared with floats."""
    k, found = 0, []
    for i in range(n):
        k += i % 3
    for i in range(n):
        if k < limit:
            found.append(i)
        k = k - 1
    return k, found


BOARD = np.random.default_rng(0).integers(0, 2, (7, 9))
CASES: list[tuple[Callable, list[tuple]]] = [
    (counts, [(np.linspace(-1, 1, 50),), (np.zeros(0),), (np.float32([1, -1, np.nan]),)]),
    (counts_while, [(100,), (0,), (1,)]),
    (counts_neighbours, [(BOARD, 4), (BOARD > 0, 3), (BOARD, 0), (BOARD[:0], 2)]),
    (grows_beyond, [(10, 3), (100, 3), (70, -2), (0, 5)]),
    (counts_for_another, [(40, 12.5), (40, float("nan")), (3, -1e300), (0, 1.0)]),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("function", "calls"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_as_python_runs_it(function: Callable, calls: list) -> None:
    check(function, *calls)


@pytest.fixture
def jumps_back(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many edges back to loops' heads each region has, before loops are copied."""
    found: list[int] = []
    with_copies = printer.with_copies

    def counted(region: Region) -> Region:
        found.append(sum(isinstance(i, Interruptible) for i in region.instructions()))
        return with_copies(region)

    monkeypatch.setattr(printer, "with_copies", counted)
    monkeypatch.setattr(printer.region_keys, "kernels_of", lambda key: None)  # no earlier test has compiled them
    return found


@pytest.mark.parametrize(("function", "args"), [(counts, (np.ones(30),)), (counts_while, (30,))])
def test_a_counter_does_not_double_its_loop(jumps_back: list[int], function: Callable, args: tuple) -> None:
    dg.compile(function)(*args)
    jumps = [i for k, i in enumerate(decode(function.__code__).instructions) if i.op in JUMPS and i.value <= k]
    assert jumps_back == [len(jumps)]


def test_nests_of_short_loops_with_counters_are_native() -> None:
    compiled = dg.compile(counts_neighbours)
    compiled(BOARD, 4)
    assert compiled.stats.compiles == 1 and not compiled.stats.breaks
