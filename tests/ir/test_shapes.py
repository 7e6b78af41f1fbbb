"""Symbolic sizes: they behave as the ints they were seen as, and note what was decided."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynagraph.errors import ShapeError
from dynagraph.ir.shapes import (
    IntExpr,
    Relation,
    ShapeEnv,
    SymInt,
    broadcast_shapes,
    contiguous_strides,
    expr_of,
    hint_numel,
    hint_of,
    normalize_axis,
    numel,
    same_dim,
    same_shape,
    settled,
)

ARITHMETIC: list[Callable[[Any, Any], Any]] = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.mod,
]
COMPARISONS: list[Callable[[Any, Any], bool]] = [
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
]  # fmt: skip


def holds(relation: Relation, values: dict[str, int]) -> bool:
    """Whether a noted decision would be taken again at other sizes."""
    left, right = relation.left.evaluate(values), relation.right.evaluate(values)
    return {"==": left == right, "<": left < right, "<=": left <= right}[relation.op] == relation.holds


def program(sizes: list[Any], steps: list[tuple[int, int, int]]) -> list[Any]:
    """Arithmetic on sizes and what came of it; divisors are kept positive."""
    values = [*sizes, 1, 2, 3]
    for function, left, right in steps:
        x, y = values[left % len(values)], values[right % len(values)]
        if ARITHMETIC[function] in (operator.floordiv, operator.mod) and not y > 0:
            continue
        values.append(ARITHMETIC[function](x, y))
    return values


def decisions(values: list[Any], tests: list[tuple[int, int, int]]) -> list[bool]:
    return [bool(COMPARISONS[c](values[a % len(values)], values[b % len(values)])) for c, a, b in tests]


sizes = st.integers(2, 9)
steps = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 20), st.integers(0, 20)), max_size=5)
tests = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20), st.integers(0, 20)), max_size=5)


@given(sizes, sizes, sizes, sizes, steps, tests)
def test_symbolic_sizes_decide_as_ints_and_guards_say_where_that_is_so(
    n: int, m: int, n2: int, m2: int, steps: Any, tests: Any
) -> None:
    env = ShapeEnv()
    symbolic = program([env.symbol(n), env.symbol(m)], steps)
    answers = decisions(symbolic, tests)
    plain = program([n, m], steps)
    assert [hint_of(v) for v in symbolic] == plain
    assert answers == decisions(plain, tests)
    if all(holds(r, {"s0": n2, "s1": m2}) for r in env.relations):  # then the capture serves these sizes too
        other = program([n2, m2], steps)
        assert [expr_of(v).evaluate({"s0": n2, "s1": m2}) for v in symbolic] == other
        assert answers == decisions(other, tests)


alike = st.lists(st.integers(2, 4), min_size=4, max_size=4)


@given(alike, st.lists(alike, max_size=8), steps, tests, steps, tests)
def test_symbols_are_replaced_where_that_is_so(
    seen: list[int], others: list[list[int]], steps: Any, tests: Any, more: Any, more_tests: Any
) -> None:
    """What was computed before a replacement and what is computed after it, decisions before and after."""

    def whole(sizes: list[Any]) -> tuple[list[Any], list[bool]]:
        first = program(sizes, steps)
        equal = [bool(a == b) for a, b in pairwise(sizes)]
        second = program(sizes, more)
        return first + second, equal + decisions(first, tests) + decisions(first + second, more_tests)

    env = ShapeEnv()
    symbolic, answers = whole([env.symbol(n) for n in seen])
    for sizes in [seen, *others]:
        values = {f"s{k}": n for k, n in enumerate(sizes)}
        if all(holds(r, values) for r in env.relations):
            assert ([expr_of(v).evaluate(values) for v in symbolic], answers) == whole(sizes)
    left = {symbol.name for v in symbolic for symbol in expr_of(v).symbols()}
    assert not left & env.replacements.keys()


def test_equal_symbols_go_by_one_name() -> None:
    env = ShapeEnv()
    n, m, k = (env.symbol(5) for _ in range(3))
    area, short = m * k, k - 1
    assert k == m and m == n
    assert [repr(x) for x in (n, m, k, area, short, m + k)] == ["s0", "s0", "s0", "s0 * s0", "s0 + -1", "2 * s0"]
    assert type(m - n) is int and same_dim(area, n * n)
    assert [str(r) for r in env.relations] == ["s2 == s1", "s1 == s0"]


def test_sizes_that_are_constants() -> None:
    env = ShapeEnv()
    n, m = env.symbol(4), env.symbol(6)
    area = n * m
    assert n == 4
    assert repr(n) == "4" and repr(area) == "4 * s1" and settled(n) == 4 and type(settled(n)) is int
    assert int(n) == 4 and n < 5 and list(range(n)) == [0, 1, 2, 3]
    assert m + m == 12 and type(settled(area)) is int and type(n + m) is int
    assert [str(r) for r in env.relations] == ["s0 == 4", "2 * s1 == 12"]


def test_equalities_of_products_tell_more_where_a_factor_is_known() -> None:
    env = ShapeEnv()
    a, b, c, d = (env.symbol(n) for n in (3, 4, 3, 4))
    assert a * b == c * d and repr((b, d)) == "(s1, s3)"
    assert a == c
    assert repr((b, d)) == "(s1, s1)" and b == d
    assert [str(r) for r in env.relations] == ["s0 * s1 == s2 * s3", "s0 == s2"]


def test_sizes_that_equal_a_number_of_the_callers_go_by_its_name() -> None:
    env = ShapeEnv()
    n, number, m = env.symbol(3), env.symbol(3, number=True), env.symbol(3)
    assert n == m and number == m
    assert repr((n, number, m)) == "(s1, s1, s1)"


def test_equalities_that_say_nothing_as_simple_replace_nothing() -> None:
    env = ShapeEnv()
    n, m = env.symbol(6), env.symbol(3)
    assert n == m * 2 and n == m + 3 and n // 2 == m and n * n == m * m * 4
    assert repr((n, m)) == "(s0, s1)" and not env.replacements
    assert same_dim(n, m * 2) and same_dim(n, m + 3)


def test_a_size_hashes_as_it_did() -> None:
    env = ShapeEnv()
    n, m = env.symbol(3), env.symbol(3)
    table = {m: "m"}
    assert n == m and table[m] == "m"


def test_what_the_ranges_say_is_not_noted() -> None:
    env = ShapeEnv()
    n = env.symbol(5)
    assert n == n and n != 1 and n > 1 and n >= 2 and n - n == 0 and n + 1 != n and bool(n)
    assert not env.relations


def test_the_least_size_is_decided_and_noted() -> None:
    env = ShapeEnv()
    n = env.symbol(2)
    assert n <= 2 and not n < 2 and not n > 2 and n >= 2
    assert [str(r) for r in env.relations] == ["s0 <= 2", "not 2 < s0"]


def test_decisions_are_noted_once_and_readable() -> None:
    env = ShapeEnv()
    n, m = env.symbol(5), env.symbol(5)
    assert n == m and n == m and n < 7 and m < 7 and not n < m
    assert [str(r) for r in env.relations] == ["s0 == s1", "s0 < 7"]


def test_an_index_specialises() -> None:
    env = ShapeEnv()
    n = env.symbol(3)
    assert list(range(n)) == [0, 1, 2] and int(n) == 3
    assert [str(r) for r in env.relations] == ["s0 == 3"]


def test_sizes_compare_with_numpy_ints_and_whole_floats() -> None:
    n = ShapeEnv().symbol(3)
    assert n == np.int64(3) and np.int64(3) == n and n == 3.0 and n != 3.5 and n != "3" and n != None  # noqa: E711
    assert hint_of(n + np.int64(2)) == 5


def test_arithmetic_gives_ints_again_where_symbols_cancel() -> None:
    n = ShapeEnv().symbol(7)
    assert type(n - n) is int and type((n * 2) // n) is int and type(n * 0) is int
    assert (n * 6) // 3 is not None and repr((n * 6) // 3) == "2 * s0"
    assert repr(-n) == "(-1) * s0" and repr(3 - n) == "(-1) * s0 + 3"
    assert {n: 1}[n] == 1


def test_symbols_are_at_least_two() -> None:
    with pytest.raises(ValueError, match=r"^a symbolic size must be at least 2, got 1$"):
        ShapeEnv().symbol(1)


def test_divisors_must_be_positive() -> None:
    n = ShapeEnv().symbol(7)
    with pytest.raises(ShapeError, match=r"^s0 // -2: the divisor of a symbolic size must be positive$"):
        n // -2
    with pytest.raises(ShapeError, match=r"^5 % s0 \+ -7: the divisor of a symbolic size must be positive$"):
        5 % (n - 7)


def test_same_dim_guards_nothing() -> None:
    env = ShapeEnv()
    n, m = env.symbol(4), env.symbol(4)
    assert not same_dim(n, m) and same_dim(n + m, m + n) and same_shape((n, 3), (n, 3)) and not same_shape((n,), (n, 1))
    assert hint_numel((n, m, 2)) == 32
    assert not env.relations


def test_sizes_of_shapes() -> None:
    n = ShapeEnv().symbol(4)
    assert numel(()) == 1 and numel((2, 0, 3)) == 0 and repr(numel((n, 3))) == "3 * s0"
    assert contiguous_strides((2, 3, 4)) == (12, 4, 1) and contiguous_strides(()) == ()
    assert repr(contiguous_strides((2, n, 3))) == "(3 * s0, 3, 1)"


@given(st.lists(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=3).map(tuple), max_size=3))
def test_broadcasting_is_numpys(shapes: list[tuple[int, ...]]) -> None:
    try:
        want = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(
            ShapeError, match=r"^op: shapes .* do not broadcast; from the right, sizes must be equal or 1$"
        ):
            broadcast_shapes(*shapes, who="op")
    else:
        assert broadcast_shapes(*shapes) == want


def test_symbolic_broadcasting_notes_that_sizes_are_equal() -> None:
    env = ShapeEnv()
    n, m = env.symbol(4), env.symbol(4)
    assert repr(broadcast_shapes((n, 1), (3,))) == "(s0, 3)" and not env.relations
    broadcast_shapes((n,), (m,))
    assert [str(r) for r in env.relations] == ["s0 == s1"]


def test_axes_are_normalised() -> None:
    assert [normalize_axis(k, 3, "sum") for k in (-3, -1, 0, 2)] == [0, 2, 0, 2]
    with pytest.raises(ShapeError, match=r"^sum: axis 2 is out of bounds for an array of 2 dimensions$"):
        normalize_axis(2, 2, "sum")
    with pytest.raises(ShapeError, match=r"^sum: axis -1 is out of bounds for an array of 0 dimensions$"):
        normalize_axis(-1, 0, "sum")


def test_symbolic_ints_need_their_environment_to_have_a_hint() -> None:
    env = ShapeEnv()
    assert isinstance(env.symbol(3), SymInt) and env.values == {"s0": 3}


@pytest.mark.parametrize("op", ["==", "<", "<="])
@pytest.mark.parametrize("number", [2**70, -(2**70), 2**63, -(2**63) - 1])
def test_a_comparison_with_a_number_beyond_64_bits_is_guarded_within_them(op: str, number: int) -> None:
    env = ShapeEnv()
    left, right = env.symbol(5).expr, IntExpr.of(number)
    for a, b in ((left, right), (right, left)):
        holds = {"==": operator.eq, "<": operator.lt, "<=": operator.le}[op](*(e.evaluate(env.values) for e in (a, b)))
        assert env.decide(op, a, b) is holds
    for relation in env.relations:
        assert all(e.constant is None or -(2**63) <= e.constant < 2**63 for e in (relation.left, relation.right))
