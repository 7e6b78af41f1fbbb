"""Branches on data in NumPy's own code and in dynagraph.torch, if one arm raises or warns: assumed not taken, and checked.

The program assumes the other, and bails out of calls where that is wrong: they run eagerly, which raises or warns.
"""

from __future__ import annotations

from typing import Any

from dynagraph import config
from dynagraph.array_libraries import NUMPY
from dynagraph.frontend.bytecode.decode import CONDITIONAL, JUMPS, Instruction, Program
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.kinds.slots import truth
from dynagraph.frontend.kinds.values import Array
from dynagraph.ir import dtypes
from dynagraph.ir.shapes import numel, same_dim

ENDS = ("RETURN_VALUE", "YIELD_VALUE", "RERAISE")


def branch_truth(frame: Frame, value: Any, jump: Instruction, behind: int) -> bool:
    """The truth of a value, on which `jump` decides, if it is a conditional jump; `behind` is where the next instruction stands."""
    value = frame.ex.resolve(value)
    if isinstance(value, Array) and jump.op in CONDITIONAL and frame.is_of_library and same_dim(numel(value.node.shape), 1):
        known = frame.ex.builder.known(frame.ex.memories.present(value))  # on a device, of what is computed of integers
        if known is not None:
            return bool(known.reshape(()))
        taken = jump.op == "POP_JUMP_IF_TRUE"  # the truth with which it jumps
        for outcome, arm in ((taken, jump.value), (not taken, behind)):
            does = _raises_or_warns(frame.program, arm)
            if does == "raises" or (does and leaves_calls(frame)):
                _bail_out(frame, value, outcome)
                return not outcome
    return truth(frame, value)


def _bail_out(frame: Frame, value: Array, outcome: bool) -> None:
    """Have the program bail out if the value has this truth."""
    b = frame.ex.builder
    condition = b.cast(b.call("reshape", frame.ex.memories.present(value), shape=()), dtypes.bool_)
    b.bail_out_where(condition if outcome else b.call("logical_not", condition), by_plain_code=True)


def leaves_calls(frame: Frame) -> bool:
    """Whether the program leaves a call of which a check fails to the plain run, so that a later call need not raise an error."""
    return frame.ex.library is NUMPY or config.cuda_errors == "now"


def _raises_or_warns(program: Program, start: int) -> str:
    """What the instructions from here on do before they go on anywhere else: "raises" an error, "warns", or "", neither."""
    for i in program.instructions[start:]:
        if i.op == "RAISE_VARARGS":
            return "raises"
        if i.op in ("LOAD_ATTR", "LOAD_METHOD") and i.value == "warn":
            return "warns"
        if i.op in JUMPS or i.op in ENDS:
            return ""
    return ""


__all__ = ["branch_truth", "leaves_calls"]
