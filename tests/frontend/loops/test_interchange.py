"""Nests whose loops run in another order: all orders, layouts, bounds and overlaps, errors, signals, what is read behind them."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from tests.frontend.loops.test_interrupts import Handled, on_alarm
from tests.frontend.loops.test_outer_lanes import arrays, outcome, overlapping

SAID = "interchanged: its turns become those of the innermost loop"


def nest(order: str, body: str, first: str = "", behind: str = "", **bounds: str) -> Callable:
    """A function of three matrices and `n`, whose loops are written in this order."""
    lines = ["def f(a, b, c, n):", *([f"    {first}"] if first else [])]
    for depth, counter in enumerate(order):
        lines.append(f"{'    ' * (depth + 1)}for {counter} in range({bounds.get(counter, 'n')}):")
    lines += ["    " * (len(order) + 1) + line for line in body.split("\n")]
    lines += [f"    {behind}"] if behind else []
    source, names = "\n".join(lines) + "\n", {}
    filename = f"<interchange {hash(source)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    exec(compile(source, filename, "exec"), names)
    return names["f"]


def interchanged(compiled: Any) -> bool:
    return any(SAID in loop for program in compiled.programs for loop in program.loops)


def check(function: Callable, made: Callable[[int], list[np.ndarray]], sizes: tuple[int, ...] = (17, 0, 1, 40)) -> Any:
    compiled = dg.compile(function, dynamic=True)
    for n in sizes:
        assert outcome(compiled, *made(n), n) == outcome(function, *made(n), n), n
    assert not compiled.stats.fallbacks and not compiled.stats.side_exits
    return compiled


PRODUCT = "c[i, j] += a[i, k] * b[k, j]"
CHANGED_IN_C_ORDER = {"ijk": False, "ikj": False, "jik": True, "jki": True, "kij": False, "kji": True}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("order", ["".join(p) for p in permutations("ijk")])
def test_products_in_all_orders(order: str) -> None:
    compiled = check(nest(order, PRODUCT), lambda n: arrays(n, 4))
    assert interchanged(compiled) == CHANGED_IN_C_ORDER[order]
    if order in ("ijk", "ikj", "kji"):
        check(nest(order, PRODUCT), lambda n: arrays(n, 1))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "body",
    [
        "c[i, j] = a[i, j] * 2.0 + b[i, j]",
        "c[i, j] = c[i - 1, j] * 0.5 + a[i, j] - c[i - 1, j - 1]",
        "c[i, 0] += a[i, j] * b[0, j]",
        "c[i, 0] = a[i, j]",
        "if a[i, j] > 0.0:\n    c[i, j] -= a[i, j]\nelse:\n    c[i, j] = -0.0",
        "s = 0.0\nfor k in range(3):\n    s += a[i, k] * b[k, j]\nc[i, j] = s",
    ],
)
def test_columns_and_layouts(body: str) -> None:
    bounds = {"i": "1, n", "j": "1, n"}
    assert interchanged(check(nest("ji", body, **bounds), lambda n: arrays(n + 3, 0), (17, 1, 40)))
    in_rows = check(nest("ij", body, **bounds), lambda n: arrays(n + 3, 1), (17, 1, 40))
    assert interchanged(in_rows) == ("c[i, 0]" not in body)
    for layout in (2, 3) if "b[i, j]" in body else ():
        assert not interchanged(check(nest("ji", body, **bounds), lambda n: arrays(n + 3, layout), (17, 40)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bounds", ["j, n", "j + 1, n", "j", "j + 1", "n - j", "j, n - j", "n - j, n"])
def test_triangles(bounds: str) -> None:
    assert interchanged(check(nest("ji", "c[i, j] = a[i, j] * 2.0 + c[j, j]", i=bounds), lambda n: arrays(n, 0), (33, 0, 1, 9, 60)))
    rank_k = nest("kji", "c[i, j] += a[k, i] * a[k, j]", i=bounds)
    assert interchanged(check(rank_k, lambda n: arrays(n, 0), (33, 1)))


@pytest.mark.parametrize(
    "body",
    [
        "c[i, j] = c[i - 1, j + 1] * 0.5",  # turned round
        "c[0, 0] = a[i, j]",  # the last one of all
        "c[0, 0] += a[i, j]",
        "c[i, 0] = a[i, j] + c[j, 0]",
        "c[i + j, 0] += a[i, j]",
        "x = a[i, j] * x\nc[i, j] = x",
    ],
)
def test_orders_that_have_to_stay(body: str) -> None:
    function = nest("ji", body, first="x = 0.5", i="1, n", j="n")
    assert not interchanged(check(function, lambda n: arrays(2 * n + 1, 0), (17, 33)))


def test_dependences_that_keep_their_order() -> None:
    for body in ("c[i, j] = c[i - 1, j - 1] * 0.5 + c[i - 1, j]", "c[i, j] = c[i, j - 1] + c[i + 1, j]"):
        function = nest("ji", body, i="1, n", j="1, n")
        assert interchanged(check(function, lambda n: arrays(n + 1, 0), (17, 33)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["same", "transposed", "neighbours", "folded", "one row", "one column", "windows"])
def test_arrays_that_overlap(how: str) -> None:
    for body in ("c[i, j] = a[i, j] * 2.0 + b[i, j]", "c[i, j] += a[i, j]"):
        compiled = check(nest("ji", body), lambda n: overlapping(n, how), (17, 33))
        assert interchanged(compiled) or how in ("transposed", "one column")  # of other layouts


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float32", "complex128", "int64", "uint8", "bool"])
def test_dtypes(dtype: str) -> None:
    def made(n: int) -> list[np.ndarray]:
        return [(x * 9).astype(dtype) for x in arrays(n, 0)]

    for order in ("ji", "ij"):
        check(nest(order, "c[i, j] = a[i, j]"), made, (17, 33))
        check(nest(order, "c[i, j] = a[i, j]"), lambda n: [np.asfortranarray(x) for x in made(n)], (17, 33))


def test_turns_that_leave_early_stay_in_order() -> None:
    leaving = "if a[i, j] > 3.0:\n    break\nc[i, j] = a[i, j]"
    for body in (leaving, "c[i, j] = 1.0 / a[i, j]", "c[i + 1, j] = a[i, j]", "c[i, j - 60] = 1.0"):
        function, results = nest("ji", body), []
        for f in (function, dg.compile(function, dynamic=True)):
            made = arrays(33, 0)
            made[0][3, 5] = made[0][20, 9] = 0.0
            results.append(outcome(f, *made, 33))
        assert results[0] == results[1]


def test_variables_behind_the_nest() -> None:
    for order in ("ji", "kji"):
        for bounds in ("n", "j", "j, n"):
            function = nest(order, "x = a[i, j]\nc[i, j] = x * b[i, 1]", "i = j = x = -1", "return i, j, x", i=bounds)
            check(function, lambda n: arrays(n, 0), (33, 9, 2))


def test_what_is_read_in_an_outer_loop() -> None:
    function = nest("j", "f = b[0, j]\nfor i in range(n):\n    c[i, j] = a[i, j] * f")
    assert interchanged(check(function, lambda n: arrays(n, 0)))
    function = nest("j", "f = c[0, j]\nfor i in range(n):\n    c[i, j] = a[i, j] * f")
    assert not interchanged(check(function, lambda n: arrays(n, 0)))


SWEEP = "c[i, j] = 0.25 * (c[i - 1, j] + c[i + 1, j] + c[i, j - 1] + c[i, j + 1])"


def skewed(compiled: Any) -> bool:
    return any("skewed: " in loop for program in compiled.programs for loop in program.loops)


@pytest.mark.parametrize("order", ["ij", "ji", "kij"])
def test_sweeps_go_along_diagonals(order: str) -> None:
    bounds = {"i": "1, n", "j": "1, n + 4", "k": "3"}
    for body in (SWEEP, f"{SWEEP} + c[i - 1, j - 1] * b[i, j]"):
        function = nest(order, body, **bounds)
        assert skewed(check(function, lambda n: arrays(n + 6, 4), (33, 0, 1, 2, 8, 17, 50)))
    check(nest(order, SWEEP, **bounds), lambda n: overlapping(n + 6, "folded"), (17, 33))
    check(nest(order, SWEEP, **bounds), lambda n: arrays(n + 6, 1), (17, 33))
    behind = nest(order, SWEEP, "i = j = -1", "return i, j", **bounds)
    check(behind, lambda n: arrays(n + 6, 0), (17, 33))


@pytest.mark.parametrize(
    "body",
    [
        "c[i, j] = c[i - 1, j] + c[i, j - 1] + c[i - 1, j + 1]",  # on one diagonal
        "c[i, j] = c[i - 1, j] * 0.5 + a[i, j]",
        "c[i, j] = c[i, j - 1] * 0.5 + a[i, j]",
        "c[i, j] = c[i - 1, j] + c[i, j - 1] + c[j, i]",
        "x = max(x, c[i, j])\nc[i, j] = c[i - 1, j] + c[i, j - 1]",
    ],
)
def test_what_does_not_go_along_diagonals(body: str) -> None:
    function = nest("ij", body, "x = 0.5", i="1, n", j="1, n")
    assert not skewed(check(function, lambda n: arrays(n + 1, 0), (17, 33)))


def test_tables_of_ints_stay_in_order() -> None:
    function = nest("ij", "c[i, j] = max(c[i - 1, j], c[i, j - 1])", i="1, n", j="1, n")
    assert not skewed(check(function, lambda n: [x.astype(int) for x in arrays(n, 0)], (17, 33)))


def test_threads() -> None:
    function = nest("jki", PRODUCT)
    with dg.config.override(threads=2):
        check(function, lambda n: arrays(n, 0), (40, 130))
        check(nest("ji", "c[i, j] = a[i, j] * 2.0 + b[i, j]"), lambda n: arrays(n, 0), (300,))


def test_signals_are_handled_between_strips() -> None:
    function = nest("kji", "c[i, j] = a[i, j] * 0.5 + c[i, j]")
    compiled = dg.compile(function, dynamic=True)
    made = arrays(40, 0)
    compiled(*made, 40)
    with on_alarm(), pytest.raises(Handled):
        for _ in range(10**6):
            compiled(*arrays(600, 0), 600)
