"""The row of what is called out: functions of the array namespace for which there is no kernel."""

from __future__ import annotations

from typing import Any

from dynagraph.ir.callouts import FunctionCall, selected
from dynagraph.ir.ops import REQUIRED, Library, define_op


def _eager(xp: Any, *operands: Any, call: FunctionCall, result: int | None, dtype: Any, shape: Any) -> Any:
    value = selected(call.run(xp, operands), result)
    if value.dtype != dtype.numpy or value.shape != tuple(shape):  # of what is known only with the data: run plainly
        raise ValueError(f"{call.function} gave {value.dtype}{list(value.shape)} where {dtype}{list(shape)} was expected")
    return value


# what a call's values are depends on the function: who makes the node says dtype and shape
define_op(
    "call_out",
    arity=None,
    attrs={"call": REQUIRED, "result": None, "dtype": REQUIRED, "shape": REQUIRED},
    dtype=lambda metas, attrs: attrs["dtype"],
    shape=lambda metas, attrs: attrs["shape"],
    eager=_eager,
    lowering=Library("call_out"),
    may_raise=True,
    doc="a function of NumPy's, called as it is; where it raises, the program refuses the call, which then runs plainly",
)
