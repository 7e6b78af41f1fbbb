"""Sizes as the dispatcher evaluates them."""

from __future__ import annotations

from typing import Any

from dynagraph.ir.intexpr import Apply, IntExpr, Symbol


def size_program(expr: IntExpr) -> Any:
    """A size as the dispatcher evaluates it: an int, or a tuple in postfix form."""
    constant = expr.constant
    return constant if constant is not None else tuple(_postfix(expr))


def _postfix(expr: IntExpr) -> list[Any]:
    program: list[Any] = []
    for position, (monomial, coefficient) in enumerate(expr.terms.items()):
        program.append(coefficient)
        for atom in monomial:
            if isinstance(atom, Symbol):
                program += [("s", int(atom.name[1:])), "*"]
            else:
                program += [*_apply(atom), "*"]
        if position:
            program.append("+")
    return program or [0]


def _apply(atom: Apply) -> list[Any]:
    return [*_postfix(atom.left), *_postfix(atom.right), atom.function]


__all__ = ["size_program"]
