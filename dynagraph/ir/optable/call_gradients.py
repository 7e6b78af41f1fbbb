"""Gradients of external calls: which functions have one, and how their rules make further calls.

A rule has the signature of NumPy's function after ``(d, g)``: it is given the arguments of the call, those that are operands as
terms, and gives the gradients by its first parameters.  A call of several results is a node for each; a rule is asked for the
gradient that comes back through one of them (``d.attrs["result"]``) and reads the others by `sibling`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from dynagraph.errors import GradientError
from dynagraph.ir.dtypes import DType
from dynagraph.ir.external_calls import FunctionCall, Slot
from dynagraph.ir.shapes import Shape
from dynagraph.ir.terms import BaseTerm, Differentiated, Term

Rule = Callable[..., Sequence["Term | None"]]
_Rule = TypeVar("_Rule", bound=Rule)
GRADIENTS: dict[str, Rule] = {}


class OnlyOnce(GradientError):
    """A gradient is asked of what is one already, and has none: the computation has to be differentiated step by step."""


def gradient_of(*functions: str) -> Callable[[_Rule], _Rule]:
    """Register a rule; that of several functions finds in ``d.attrs["call"].function`` which one it is asked for."""

    def register(rule: _Rule) -> _Rule:
        GRADIENTS.update(dict.fromkeys(functions, rule))
        return rule

    return register


def refusal(d: Differentiated, why: str) -> GradientError:
    """The error of a call without a gradient."""
    return GradientError(f"{d.node.location or d.node.name}: no gradient passes through {d.attrs['call']}; {why}")


def sibling(d: Differentiated, result: int, shape: Shape, dtype: DType) -> Term:
    """Another result of the call: the program makes it once; eager gradients have it in `results`."""
    results = getattr(d, "results", None)
    if results is not None:
        return results[result]
    return _node(replace(d.attrs["call"], optional=True), d.operands, result, shape, dtype)


def called(
    function: str, *arguments: Any, shape: Shape, dtype: DType | None = None, result: int | None = None, out: bool = False,
    **more: Any,
) -> Term:
    """``function(*arguments, **more)``: terms are operands.  Without a dtype it gives that of the first.  `out`: it has ``out=``.

    Calls that are written alike are made once, the user's among them.
    """
    operands = [a for a in arguments if isinstance(a, BaseTerm)]
    given = tuple(Slot(operands.index(a)) if isinstance(a, BaseTerm) else a for a in arguments)
    call = FunctionCall(function, given, tuple(sorted(more.items())), takes_out=out, optional=True)
    return _node(call, operands, result, shape, dtype or operands[0].dtype)


def _node(call: FunctionCall, operands: Sequence[Any], result: int | None, shape: Shape, dtype: DType) -> Term:
    first, *others = operands
    made: Term = first.call("external_call", *others, call=call, result=result, dtype=dtype, shape=shape)
    return made


__all__ = ["GRADIENTS", "OnlyOnce", "called", "gradient_of", "refusal", "sibling"]
