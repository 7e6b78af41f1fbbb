"""Integer expressions against Python's integers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynagraph.ir.intexpr import IntExpr, Symbol, apply, below, rejoined, solved

# sizes s0, s1 from 1 up; loop variables i below s0, j below 6, k below s0*s1, and t from -3 to 3
S0, S1 = IntExpr.symbol("s0", 1), IntExpr.symbol("s1", 1)
I0, J, K = IntExpr.symbol("i", 0, S0 - 1), IntExpr.symbol("j", 0, 5), IntExpr.symbol("k", 0, S0 * S1 - 1)
T = IntExpr.symbol("t", -3, 3)
LEAVES = [S0, S1, I0, J, K, T]
POSITIVE = [S0, S1, S0 * S1, S0 + 2, S1 * 3]

FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": min,
    "max": max,
}

Tree = Any  # an IntExpr leaf, an int, or (function, left, right)


def trees() -> st.SearchStrategy[Tree]:
    leaves = st.one_of(st.sampled_from(LEAVES), st.integers(-8, 8))
    divisors = st.one_of(st.sampled_from(POSITIVE), st.integers(1, 8))

    def grow(smaller: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        return st.one_of(
            st.tuples(st.sampled_from(["+", "-", "*", "min", "max"]), smaller, smaller),
            st.tuples(st.sampled_from(["//", "%"]), smaller, divisors),
        )

    return st.recursive(leaves, grow, max_leaves=8)


def build(tree: Tree) -> IntExpr:
    if not isinstance(tree, tuple):
        return IntExpr.of(tree)
    function, left, right = tree
    a, b = build(left), build(right)
    return FUNCTIONS[function](a, b) if function in "+-*" else apply(function, a, b)  # type: ignore[arg-type, return-value]


def value_of(tree: Tree, values: dict[str, int]) -> int:
    if not isinstance(tree, tuple):
        return tree if isinstance(tree, int) else tree.evaluate(values)
    function, left, right = tree
    return FUNCTIONS[function](value_of(left, values), value_of(right, values))


@st.composite
def assignments(draw: Any) -> dict[str, int]:
    """Values in the symbols' ranges."""
    s0, s1 = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    return {
        "s0": s0,
        "s1": s1,
        "i": draw(st.integers(0, s0 - 1)),
        "j": draw(st.integers(0, 5)),
        "k": draw(st.integers(0, s0 * s1 - 1)),
        "t": draw(st.integers(-3, 3)),
    }


@given(trees(), assignments())
def test_simplification_keeps_the_value(tree: Tree, values: dict[str, int]) -> None:
    assert build(tree).evaluate(values) == value_of(tree, values)


@given(trees(), assignments())
def test_values_lie_within_the_bounds(tree: Tree, values: dict[str, int]) -> None:
    low, high = build(tree).bounds()
    value = value_of(tree, values)
    assert (low is None or low <= value) and (high is None or value <= high)


@given(trees(), assignments())
def test_no_value_is_above_the_magnitude(tree: Tree, values: dict[str, int]) -> None:
    assert abs(value_of(tree, values)) <= build(tree).magnitude(max(values.values()))


@given(trees(), trees(), assignments())
def test_below_is_never_claimed_wrongly(tree: Tree, limit: Tree, values: dict[str, int]) -> None:
    if below(build(tree), build(limit)):
        assert 0 <= value_of(tree, values) < value_of(limit, values)


@given(trees(), assignments())
def test_affine_expressions_are_coefficient_times_symbol_plus_rest(tree: Tree, values: dict[str, int]) -> None:
    expr, symbol = build(tree), Symbol("i")
    coefficient = expr.coefficient(symbol)
    if coefficient is not None:
        assert symbol not in coefficient.symbols()
        rest = expr.substitute({"i": 0})
        assert expr.evaluate(values) == coefficient.evaluate(values) * values["i"] + rest.evaluate(values)


@given(trees(), assignments())
def test_printed_expressions_mean_the_same(tree: Tree, values: dict[str, int]) -> None:
    expr = build(tree)
    assert eval(str(expr), {"min": min, "max": max}, dict(values)) == expr.evaluate(values)


@given(trees(), trees(), assignments())
def test_substitution_is_evaluation_of_the_substituted(tree: Tree, other: Tree, values: dict[str, int]) -> None:
    other = ("max", ("min", other, 3), -3)  # t's range
    replaced = build(tree).substitute({"t": build(other)})
    assert replaced.evaluate(values) == value_of(tree, {**values, "t": value_of(other, values)})


@given(trees(), trees())
def test_equal_expressions_have_equal_hashes(a: Tree, b: Tree) -> None:
    x, y = build(a), build(b)
    assert hash(x + y) == hash(y + x) and x + y == y + x
    assert x * y == y * x and x - x == 0 and (x == y) == (x - y == 0)


def test_flat_indices_of_a_reshape_simplify_to_their_parts() -> None:
    flat = I0 * 6 + J
    assert flat // 6 == I0 and flat % 6 == J
    row, column = IntExpr.symbol("r", 0, S0 - 1), IntExpr.symbol("c", 0, S1 - 1)
    assert (row * S1 + column) // S1 == row
    assert (row * S1 + column) % S1 == column


def test_ranges_decide_minimum_and_maximum() -> None:
    assert apply("min", J, IntExpr.of(5)) == J
    assert apply("max", J, IntExpr.of(9)) == 9
    assert str(apply("min", J, IntExpr.of(3))) == "min(j, 3)"
    assert apply("min", S0 * 3, IntExpr.of(7)).bounds() == (3, 7)
    assert apply("max", T, IntExpr.of(0)).bounds() == (0, 3)
    assert apply("min", T, S0).bounds() == (-3, 3)


def test_constant_terms_come_out_of_divisions() -> None:
    assert str((S0 * 4 + 9) // 4) == "s0 + 2"
    assert (S0 * 6) % 3 == 0
    assert (S0 * 4 + 9) % 4 == 1


def test_a_remainder_is_not_bounded_by_the_remainder_of_the_greatest() -> None:
    # i % 4 can be 3 although the greatest i, 4, leaves 0
    assert not below(I0 % 4, (S0 - 1) % 4 + 1)
    assert not below(8 - J, S0 + 3)  # is greatest where j is least
    assert below(I0 % 4, S1 + 3) and below(I0 * 2 + 1, S0 * 2) and not below(I0 * 2 + 2, S0 * 2)


def test_a_quotient_and_its_remainder_are_one_again() -> None:
    i, n = IntExpr.symbol("i", 0, 99), IntExpr.symbol("n", 1)
    assert rejoined(i // 10 * 10 + i % 10 + 3) == i + 3
    assert rejoined(i // 10 * n * 10 + i % 10 * n) == i * n
    assert rejoined(i // n * n + i % n) == i
    assert rejoined(i // 10 % 5 * 10 + i % 10 + i // 10 // 5 * 50) == i
    assert str(rejoined(i // 10 * 11 + i % 10)) == str(i // 10 * 11 + i % 10)


def test_division_by_zero_names_the_expression() -> None:
    with pytest.raises(ZeroDivisionError, match=r"^s0 // 0$"):
        S0 // 0
    with pytest.raises(ZeroDivisionError, match=r"^s0 % 0$"):
        S0 % 0


def test_evaluation_names_the_symbols_that_have_no_value() -> None:
    with pytest.raises(KeyError, match=r"s0 \* s1.*no value for s1"):
        (S0 * S1).evaluate({"s0": 2})


def test_floats_are_no_integers() -> None:
    with pytest.raises(TypeError, match=r"'float' object cannot be interpreted as an integer"):
        S0 + 1.5  # type: ignore[operator]


def test_expressions_compare_with_ints() -> None:
    assert S0 - S0 == 0 and IntExpr.of(3) == 3 and S0 != 3 and S0 != "s0"
    assert (S0 + 1).constant is None and (S0 - S0 + 4).constant == 4
    assert 2 - S0 == -(S0 - 2) and (7 // IntExpr.of(2)).constant == 3 and (7 % IntExpr.of(4)).constant == 3


# -- equalities -----------------------------------------------------------------------------------------------------------

A, B, C = (IntExpr.symbol(name, 2) for name in "abc")
FREE = IntExpr.symbol("d", 0)  # it may be 0


@pytest.mark.parametrize(
    "zero, expected",
    [
        (A - B, ("a", "b")),
        (3 * B - 3 * A, ("b", "a")),
        (A - 4, ("a", 4)),
        (12 - 3 * A, ("a", 4)),
        (A * B - C * B, ("a", "c")),
        (2 * A * A * B - 2 * A * A * C, ("b", "c")),
        (A * B - 5 * B, ("a", 5)),
        (A * A - A * B, ("a", "b")),
        (A - B - 1, None),
        (A - 2 * B, None),
        (A + B - 8, None),
        (A * B - 12, None),
        (A * A - 9, None),
        (A * A - B * B, None),
        (A * B - C, None),
        (A // 2 - B, None),
        (A // 2 - B // 2, None),
        (A * FREE - B * FREE, None),
        (IntExpr.of(0), None),
        (IntExpr.of(3), None),
    ],
    ids=str,
)
def test_what_an_equality_says(zero: IntExpr, expected: Any) -> None:
    found = solved(zero)
    assert expected == (found and (found[0].name, found[1].name if isinstance(found[1], Symbol) else found[1]))


@given(st.lists(st.tuples(st.integers(-3, 3), st.lists(st.sampled_from([A, B, C]), max_size=2)), min_size=1, max_size=3))
def test_what_an_equality_says_is_so(terms: list[tuple[int, list[IntExpr]]]) -> None:
    zero = sum((coefficient * reduce(operator.mul, factors, IntExpr.of(1)) for coefficient, factors in terms), IntExpr.of(0))
    found = solved(zero)
    for values in ({"a": a, "b": b, "c": c} for a in range(2, 6) for b in range(2, 6) for c in range(2, 6)):
        if found is not None and zero.evaluate(values) == 0:
            symbol, value = found
            assert values[symbol.name] == (values[value.name] if isinstance(value, Symbol) else value)
