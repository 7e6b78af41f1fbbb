"""The row of external calls: functions of the array namespace for which there is no kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynagraph.ir.external_calls import FunctionCall, Slot, selected
from dynagraph.ir.ops import REQUIRED, Library, define_op
from dynagraph.ir.optable import fourier_gradients, matrix_gradients, order_gradients, series_gradients
from dynagraph.ir.optable.call_gradients import GRADIENTS, OnlyOnce, refusal
from dynagraph.ir.terms import Differentiated, Term

assert fourier_gradients and matrix_gradients and order_gradients and series_gradients  # their import fills GRADIENTS


def _eager(xp: Any, *operands: Any, call: FunctionCall, result: int | None, dtype: Any, shape: Any) -> Any:
    value = selected(call.run(xp, operands), result)
    if value.dtype != dtype.numpy or value.shape != tuple(shape):  # of what is known only with the data: run eagerly
        raise ValueError(f"{call.function} gave {value.dtype}{list(value.shape)} where {dtype}{list(shape)} was expected")
    return value


def _eager_effect(xp: Any, *operands: Any, awaited: bool, keeps: bool, over: int | None, **attrs: Any) -> Any:
    return _eager(xp, *operands, **attrs)


def _vjp(d: Differentiated, g: Term) -> Sequence[Term | None]:
    call: FunctionCall = d.attrs["call"]
    if callable(call.function) or call.each:
        raise OnlyOnce(f"{d.node.location or d.node.name}: no second gradient passes through {call.name}")
    rule = GRADIENTS.get(call.function)
    if rule is None:
        raise refusal(d, f"the external calls that have one are {', '.join(sorted(GRADIENTS))}")
    given = call.map(lambda value: d.operands[value.position] if isinstance(value, Slot) else value)
    found: list[Term | None] = [None] * len(d.operands)
    for argument, gradient in zip(call.args, rule(d, g, *given.args, **dict(given.kwargs))):
        if isinstance(argument, Slot):
            found[argument.position] = gradient
    return found


# what a call's values are depends on the function: who makes the node says dtype and shape
define_op(
    "external_call",
    arity=None,
    attrs={"call": REQUIRED, "result": None, "dtype": REQUIRED, "shape": REQUIRED},
    dtype=lambda metas, attrs: attrs["dtype"],
    shape=lambda metas, attrs: attrs["shape"],
    eager=_eager,
    lowering=Library("external_call"),
    vjp=_vjp,
    may_raise=True,
    doc="a function of NumPy's, called as it is; where it raises, the program bails out, and the call runs eagerly",
)

# as such a call, but of a function that others see: processes of a group wait for one another in it
define_op(
    "effect_call",
    arity=None,
    # awaited: its value stands for what is under way, and something must take it
    # keeps: its operands may be written to from then on, until a call has ended whose result may lie where operand `over` did
    attrs={
        "call": REQUIRED,
        "result": None,
        "dtype": REQUIRED,
        "shape": REQUIRED,
        "awaited": False,
        "keeps": False,
        "over": None,
    },
    dtype=lambda metas, attrs: attrs["dtype"],
    shape=lambda metas, attrs: attrs["shape"],
    eager=_eager_effect,
    lowering=Library("external_call"),
    has_effect=True,
    doc="a function of ours that has effects, called once, in its order among such calls; what it raises goes to the caller",
)
