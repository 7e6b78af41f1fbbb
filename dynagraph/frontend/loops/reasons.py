"""Why loops are not native, and why native loops are left: rows of two tables, which docs/loops.md lists."""

from __future__ import annotations

from dynagraph.frontend.executor.breaks import Reason

_NOT_NATIVE = (
    Reason(
        "FEW_TURNS", "it has few turns, known before, and no loop inside", "none is needed: its turns are operations of the graph"
    ),
    Reason(
        "ITEMS",
        "it goes through a list or tuple",
        "none is needed if it is short; else go through an array, or through range(len(...))",
    ),
    Reason(
        "SHARED_ITERATOR",
        "its iterator has another name, or was made outside of the function",
        "call range, zip or enumerate in the for statement itself",
    ),
    Reason("IN_HANDLER", "it stands in an except block, or where a with block handles an error", "move it behind the block"),
    Reason("IN_COMPREHENSION", "it is part of a comprehension that is under way", "write the comprehension as a loop"),
    Reason("TOO_LARGE", "its machine code would become too large", "give variables one type each, or split the loop"),
    Reason(
        "EACH_TURN_LEAVES",
        "Python would do a part of each turn",
        "move what Python does out of the loop; rare branches may keep it",
    ),
    Reason("ON_DEVICE", "its arrays lie on a device", "none is needed; numbers and NumPy arrays alone would make it native"),
    Reason("NOT_FOLLOWED", "it cannot be followed from its head on", "pass numbers, arrays, and tuples of these"),
    Reason("AROUND_BREAK", "the capture ends within it", "see the break: f.stats.breaks, or dynagraph explain"),
)
NOT_NATIVE: dict[str, Reason] = {r.name: r for r in _NOT_NATIVE}

_SIDE_EXITS = (
    Reason("SIGNAL", "a signal waits for its handler, or another thread for its turn", "none: the loop goes on after it"),
    Reason("INDEX", "an index is out of bounds", "none if the error is intended"),
    Reason("OVERFLOW", "a number does not fit in 64 bits", "keep ints below 2**63, as by & or %"),
    Reason("ZERO_DIVISION", "a division by zero, or one whose result does not fit", "test the divisor before"),
    Reason("DOMAIN", "a function of math outside its domain, or a power or shift that Python does otherwise", "test before"),
    Reason(
        "CONDITION",
        "a value is not as native code takes it: a length, a stride, a bound, a step",
        "none if it is rare; else copy the array, or bring the value in range before the loop",
    ),
    Reason("MEMORY", "there is no memory for a list", "none: Python has or raises MemoryError"),
    Reason(
        "CALL",
        "a function that calls itself cannot go on, or its calls are too deep, so Python does the outermost call",
        "none if it is rare; see what else it does than to compute",
    ),
    Reason("PYTHON", "Python does the instruction", "none if it is rare; else move it out of the loop"),
)
SIDE_EXITS: dict[str, Reason] = {r.name: r for r in _SIDE_EXITS}

# of side exits of calls out
OTHER_TYPE, RAISES = "a call gives a value of another type", "a call raises"

__all__ = ["NOT_NATIVE", "OTHER_TYPE", "RAISES", "SIDE_EXITS"]
