"""Elements that a loop reads and writes in each turn, at a place that stays the same, as in ``y[i] += x[k]``.

A fast copy without checks holds them in variables where no other array of the loop lies there: the guard asks for that.
"""

from __future__ import annotations

from dataclasses import dataclass

from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr
from dynagraph.ir.passes.turns import NOT_INVARIANT, Turns, as_invariant
from dynagraph.ir.region_dependences import INSTRUCTIONS, arrays_of
from dynagraph.ir.region_liveness import operands_of
from dynagraph.ir.region_loops import Dominators, Loop
from dynagraph.ir.regions import Instruction, Place, Region, Store, Touched, assigned

HELD = (dtypes.float64, dtypes.int64)
MOST_ARRAYS = 6  # of a loop, that the element is compared with


@dataclass(frozen=True)
class Held:
    """`steps`: the place's, of what the loop does not change; `others`: the arrays that must lie elsewhere."""

    base: Expr
    steps: tuple[tuple[Expr, Expr | None], ...]
    dtype: DType
    uses: tuple[Instruction, ...]
    others: tuple[Touched, ...]

    def place(self, steps: tuple[tuple[Expr, Expr | None], ...]) -> Place:
        return Place(self.base, steps, self.dtype)


def held_elements(region: Region, loop: Loop, turns: Turns) -> list[Held]:
    body = [i for block in loop.blocks for i in block.body]
    if not any(isinstance(i, Store) for i in body) or not all(isinstance(i, INSTRUCTIONS) for i in body):
        return []
    if any(part.op in NOT_INVARIANT for i in body for e in operands_of(i) for part in e.walk()):
        return []
    arrays = arrays_of(loop)
    settled = frozenset(region.parameters) - {assigned(i) for i in region.instructions()}
    whole = {data: whole_array(data, uses, settled) for data, uses in arrays.items()}
    if len(arrays) > MOST_ARRAYS or None in whole.values():
        return []
    found = []
    for data, uses in arrays.items():
        steps = _same_steps(body, [place for _, place in uses], turns)
        if steps is not None and _may_be_held(loop, turns, [i for i, _ in uses], uses[0][1].dtype):
            others = tuple(array for d, array in whole.items() if d != data and array is not None)
            found.append(Held(uses[0][1].base, steps, uses[0][1].dtype, tuple(i for i, _ in uses), others))
    return found


def whole_array(data: str, uses: list[tuple[Instruction, Place]], settled: frozenset[str | None]) -> Touched | None:
    """All that a loop may touch of an array that is given to the region: its parts are parameters, which are named alike."""
    (_, place), *_ = uses
    sizes = [data.removesuffix("p") + f"n{k}" for k in range(len(place.steps))]
    strides = tuple(stride for _, stride in place.steps)
    names = {data, *sizes, *(str(s.value) for s in strides if s is not None)}
    if not names <= settled or any(p.dtype is not place.dtype or tuple(s for _, s in p.steps) != strides for _, p in uses):
        return None
    return Touched(place.base, place.dtype, tuple(Expr("var", (), dtypes.int64, n) for n in sizes), strides)


def _same_steps(body: list[Instruction], places: list[Place], turns: Turns) -> tuple[tuple[Expr, Expr | None], ...] | None:
    """The steps that all places have, where the loop does not change them."""
    setters: dict[str, list[Instruction]] = {}
    for i in body:
        setters.setdefault(assigned(i) or "", []).append(i)

    def settled(e: Expr) -> Expr | None:
        if e.op == "const":
            return e
        if e.op != "var":
            return None
        by = setters.get(str(e.value), [])
        if not by:
            return e
        return as_invariant(turns.results[by[0]]) if len(by) == 1 else None

    found = {tuple((settled(index), stride) for index, stride in place.steps) for place in places}
    if len(found) != 1 or len({place.dtype for place in places}) != 1:
        return None
    (steps,) = found
    if any(index is None or (stride is not None and stride.value in setters) for index, stride in steps):
        return None
    return tuple((index, stride) for index, stride in steps if index is not None)


def _may_be_held(loop: Loop, turns: Turns, uses: list[Instruction], dtype: DType) -> bool:
    """Whether it is read, and written in each turn."""
    stores = [i for i in uses if isinstance(i, Store)]
    always = Dominators(loop.blocks, turns.entries)
    each_turn = {i for b in loop.blocks if all(always(b, latch) for latch in loop.latches) for i in b.body}
    kinds = dtype in HELD and all(i.value.dtype is dtype and not i.kept for i in stores)
    return kinds and len(stores) < len(uses) and any(i in each_turn for i in stores)


