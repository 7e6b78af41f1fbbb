"""Whether the turns of a loop depend on one another through memory.

They do not where each array that is written has an axis along which each turn touches places of its own: the index on that axis is
``first + step * turn + by`` in all reads and writes, and those of one turn are less than a step apart.  Subscripts stay per axis.
That different arrays do not overlap is asked where the loop is entered.
"""

from __future__ import annotations

from dataclasses import dataclass

from dynagraph.ir import dtypes
from dynagraph.ir.expr import FUNCTIONS
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.passes.turns import TURN, Found, Turns, has_unknown, moderate
from dynagraph.ir.region_liveness import operands_of
from dynagraph.ir.region_loops import Loop
from dynagraph.ir.regions import (
    CHECKED,
    OWNED,
    POINTER,
    Apart,
    Block,
    Branch,
    Checked,
    Instruction,
    Interruptible,
    Load,
    Place,
    Position,
    Region,
    Require,
    Separate,
    Set,
    Store,
    Unfolded,
    assigned,
)

MOST_ROUNDS = 4  # after which what still changes is unknown
LARGEST_STEP = 2**16
COUNTED = (dtypes.int64, dtypes.bool_)  # what indices depend on, and how often a loop turns
INSTRUCTIONS = (Set, Checked, Require, Position, Load, Store, Interruptible)
TESTS = (Apart, Separate, Unfolded)  # of a guard
_PURE = {
    "var", "const", "cast", "exact_add", "exact_sub", "exact_mul", "c_div", "c_mod", "python_complex_mul", "numpy_pow",
    "bit_length",
}  # fmt: skip


def is_pure(op: str) -> bool:
    """Whether an expression's op computes, and does nothing else."""
    return op in _PURE or op in FUNCTIONS  # looked up now: the op table fills it as it is loaded


class Dependent(Exception):
    """What stands against turns at the same time."""


class TurnsOfNest(Turns):
    """Of a loop with others within.  `indices`: of places that are read or written, in turn k."""

    def __init__(self, region: Region, loop: Loop):
        self.indices: dict[Instruction, list[Found]] = {}
        inside = set(loop.blocks) - {loop.header}  # which begins with what the turn does
        self.following = {b: [f for f in b.successors() if f in inside] for b in loop.blocks}
        super().__init__(region, loop)

    def _run(self, start: dict[str, Found]) -> list[dict[str, Found]]:
        self.at_end = {}
        unsettled: dict[Block, set[str]] = {}
        rounds, changed = 0, True
        stale = set(self.loop.blocks)  # what they begin with has changed
        while changed:
            changed, rounds = False, rounds + 1
            for block in self.loop.blocks:
                if block not in stale:
                    continue
                stale.discard(block)
                end = self._run_block(block, start)
                known = self.at_end.get(block)
                if known is not None and rounds > MOST_ROUNDS:
                    unsettled.setdefault(block, set()).update(n for n, v in end.items() if v != known.get(n))
                end.update(dict.fromkeys(unsettled.get(block, ())))
                if known != end:
                    self.at_end[block], changed = end, True
                    stale.update(self.following[block])
        return [self.at_end[latch] for latch in self.loop.latches]

    def _run_block(self, block: Block, start: dict[str, Found]) -> dict[str, Found]:
        if block is self.loop.header:
            known = dict(start)
        else:
            known = self.joined([self.at_end[b] for b in self.entries[block] if b in self.at_end])
        for i in block.body:
            if isinstance(i, (Load, Store)):
                self.indices[i] = [self.value(index, known) for index, _ in i.place.steps]
            name = assigned(i)
            if name is not None and self.region.variables[name] in COUNTED:
                self.step(i, known)
            elif name is not None:
                known[name] = None
        return known


def arrays_of(loop: Loop) -> dict[str, list[tuple[Instruction, Place]]]:
    """What reads and writes each array, by the variable that has where its elements begin."""
    found: dict[str, list[tuple[Instruction, Place]]] = {}
    for block in loop.blocks:
        for i in block.body:
            if isinstance(i, (Load, Store)):
                found.setdefault(str(i.place.base.value) if i.place.base.op == "var" else "", []).append((i, i.place))
    return found


@dataclass(frozen=True)
class ArrayParts:
    """The variables that have an array's sizes, its strides in bytes, and whether it can be written to."""

    sizes: tuple[str, ...]
    strides: tuple[str, ...]
    writeable: str


def arrays_given(region: Region) -> dict[str, ArrayParts]:
    """The parts of the arrays that are parameters, by that which has where their elements begin: they are named alike."""
    found = {}
    names = frozenset(region.parameters)
    for data in region.parameters:
        stem = data.removesuffix("p")
        ndim = next(k for k in range(len(names)) if f"{stem}n{k}" not in names)
        sizes, strides = (tuple(f"{stem}{part}{k}" for k in range(ndim)) for part in "ns")
        if data.endswith("_p") and region.variables[data] == POINTER and {f"{stem}w", *strides} <= names:
            found[data] = ArrayParts(sizes, strides, f"{stem}w")
    return found


def check_instructions(region: Region, loop: Loop) -> None:
    """Refuses what has effects besides stores, and reads of memory that are no loads."""
    names = set()
    for block in loop.blocks:
        ends = [block.end.test] if isinstance(block.end, Branch) else []
        for i in block.body:
            if not isinstance(i, (*INSTRUCTIONS, *TESTS)):
                raise Dependent(f"its turns do more than to compute and to store: {type(i).__name__}")
            if isinstance(i, Store) and i.kept:
                raise Dependent("what it writes to is kept, in order")
            if isinstance(i, Checked) and (CHECKED[i.function].allocates or i.function.startswith(("list_", "text_", "bytes_"))):
                raise Dependent("it works on lists or text")
            args = i.args[1:] if isinstance(i, Checked) and i.function == "math" else None
            ends += operands_of(i) if args is None else args
            names.add(assigned(i))
        for e in ends:
            for part in e.walk():
                if not is_pure(part.op) or (part.op == "var" and region.variables[str(part.value)] == OWNED):
                    raise Dependent("its turns do more than to compute and to store")
    arrays = arrays_of(loop)
    if not any(isinstance(i, Store) for uses in arrays.values() for i, _ in uses):
        raise Dependent("it stores nothing")
    known = arrays_given(region)
    changed = {name for i in region.instructions() if (name := assigned(i))}
    for data, uses in arrays.items():
        parts = known.get(data)
        if parts is None or data in changed or any(not _is_whole(place, parts) for _, place in uses):
            raise Dependent("it goes through an array that is made, or changes, within the function")


def _is_whole(place: Place, parts: ArrayParts) -> bool:
    """Whether a place has an index for each axis of an array."""
    strides = [stride for _, stride in place.steps]
    return len(strides) == len(parts.strides) and all(
        (s is None and k == len(strides) - 1) or (s is not None and s.op == "var" and s.value == name)
        for k, (s, name) in enumerate(zip(strides, parts.strides))
    )


class Along:
    """The axis of an array on which turns touch places of their own."""

    def __init__(self, axis: int, first: IntExpr, step: int, low: int, high: int):
        self.axis, self.first, self.step, self.low, self.high = axis, first, step, low, high


def separate(turns: TurnsOfNest, uses: list[tuple[Instruction, Place]]) -> Along:
    """Of an array that is written."""
    for axis in range(len(uses[0][1].steps)):
        found = _along(axis, [turns.indices[i][axis] for i, _ in uses])
        if found is not None:
            return found
    raise Dependent("turns write to what others read or write, or may do so")


def _along(axis: int, indices: list[Found]) -> Along | None:
    first: IntExpr | None = None
    steps: set[int] = set()
    by: list[int] = []
    for index in indices:
        if not isinstance(index, IntExpr) or has_unknown(index) or not moderate(index):
            return None
        factor = index.coefficient(TURN)
        if factor is None or factor.constant is None:
            return None
        steps.add(factor.constant)
        start = index.substitute({TURN.name: 0})
        first = start if first is None else first
        difference = (start - first).constant
        if difference is None:
            return None
        by.append(difference)
    (step, *others) = steps
    if others or step == 0 or abs(step) > LARGEST_STEP or max(by) - min(by) >= abs(step) or first is None:
        return None
    return Along(axis, first, step, min(by), max(by))


