"""Instructions of regions."""

from __future__ import annotations

from dynagraph.ir.dtypes import float64, int64
from dynagraph.ir.expr import Expr
from dynagraph.ir.regions import Exit, Load, Place, Require, Set, with_operands

X, Y, W = (Expr("var", (), float64, name) for name in "xyw")


def test_an_instruction_whose_operands_stay_is_itself() -> None:
    out = Exit(0, [])
    place = Place(X, ((Expr("var", (), int64, "k"), None),), float64)
    for i in (Set("z", X), Require(X, out), Load("z", place)):
        assert with_operands(i, lambda e: e) is i


def test_an_instruction_with_other_operands_is_another() -> None:
    i = Set("z", X)
    moved = with_operands(i, lambda e: W)
    assert isinstance(moved, Set) and moved is not i and (moved.name, moved.value, i.value) == ("z", W, X)
