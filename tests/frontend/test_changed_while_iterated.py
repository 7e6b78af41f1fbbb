"""Arrays and lists that change while a loop goes through them: each iterator reads an item when the loop comes to it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg

SOURCE = """
def program(x):
    out = []
    k = 0
    for v in {}:
        out.append(v if not isinstance(v, tuple) else v[-1])
        k += 1
        x[k % len(x)] = x[k % len(x)] * 2 + k
    return out
"""
EXPRESSIONS = """
x; x[1:]; x[::-1]; iter(x); reversed(x); reversed(x[1:]); enumerate(x); enumerate(reversed(x)); zip(x, x); zip(reversed(x), x)
map(lambda a: a + 1, x); map(max, x, x[::-1]); filter(lambda a: True, x); (a for a in x); (a for a in reversed(x))
itertools.chain(x, x); itertools.chain.from_iterable([x, x]); itertools.islice(x, 3); itertools.accumulate(x); itertools.pairwise(x)
itertools.starmap(lambda a, b: b, zip(x, x)); itertools.takewhile(lambda a: True, x); itertools.dropwhile(lambda a: False, x)
itertools.zip_longest(x, x); itertools.compress(x, [1, 1, 1]); itertools.filterfalse(lambda a: False, x); itertools.product(x, x)
itertools.tee(x)[0]; itertools.combinations(x, 2); itertools.permutations(x, 2)
"""
ITERABLES = [e.strip() for line in EXPRESSIONS.strip().splitlines() for e in line.split(";")]


def outcome(function: Callable, given: Any) -> tuple[str, str]:
    given = given.copy()
    try:
        return repr(function(given)), repr(given)
    except Exception as error:
        return type(error).__name__, str(error)


def check(function: Callable, *given: Any) -> Any:
    compiled = dg.compile(function)
    for one in (*given, given[0]):
        assert outcome(compiled, one) == outcome(function, one)
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error
    return compiled


@pytest.mark.sampled(6)
@pytest.mark.parametrize("expression", ITERABLES)
@pytest.mark.parametrize("given", [np.arange(4.0) + 1, [1, 2, 3, 4]], ids=["array", "list"])
def test_items_are_read_when_the_loop_comes_to_them(expression: str, given: Any) -> None:
    names: dict[str, Any] = {"itertools": itertools}
    exec(compile(SOURCE.format(expression), __file__, "exec"), names)
    check(names["program"], given)


def sets_the_first(x):
    for v in reversed(x):
        x[0] = v


def sums_rows(x):
    total = 0.0
    for row in reversed(x):
        x[0] += row
        total = total + row.sum()
    return total


def items(x):
    return [v for v in reversed(x)]  # noqa: C416  (as people write it)


def of_a_scalar(x):
    return reversed(x.sum())


def across_a_break(x):
    rest = reversed(x)
    first = next(rest)
    print(end="")
    x[0] = 7
    return first, list(rest), type(rest).__name__


ARRAYS = [np.arange(5.0), np.arange(3), np.zeros(0), np.ones((3, 2)), np.array(3.0), np.arange(200)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("function", [sets_the_first, sums_rows, items, of_a_scalar, across_a_break])
def test_reversed_arrays(function: Callable) -> None:
    for given in ARRAYS:
        check(function, given)
    check(function, *ARRAYS)


def test_loops_over_reversed_arrays_are_native() -> None:
    compiled = check(sets_the_first, np.arange(200.0))
    assert compiled.stats.compiles == 1 and "runs as machine code" in compiled.programs[0].loops[0]
