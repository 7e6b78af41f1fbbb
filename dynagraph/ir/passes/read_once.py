"""Elements that turns of a loop only read, all at one place, of an array that they also write, as ``d[i, k]`` in

    for j in range(n):
        if d[i, k] + d[k, j] < d[i, j]:
            d[i, j] = d[i, k] + d[k, j]

What is written grows along an axis, and so comes to that place in one turn at most.  A fast copy without checks reads the element
once, and does the turns before that one, or those behind it: the loop itself does the turn between.  Without that, the C compiler
reads the element in each turn, and makes no vectors of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from dynagraph.ir import dtypes
from dynagraph.ir.expr import Expr
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.passes.held_elements import MOST_ARRAYS, whole_array
from dynagraph.ir.passes.turns import NOT_INVARIANT, TURN, Turns, has_unknown, moderate
from dynagraph.ir.region_dependences import INSTRUCTIONS, arrays_of
from dynagraph.ir.region_liveness import operands_of
from dynagraph.ir.region_loops import Dominators, Loop
from dynagraph.ir.regions import Instruction, Load, Place, Region, Store, Touched, assigned


@dataclass(frozen=True)
class ReadOnce:
    """What `loads` read at this place of an array, by axes, is written in the turn `by` at most; None: in none.

    `stores`: to that array.  `array`: no elements of it may share memory; `others`: what else is written, and must lie elsewhere.
    """

    loads: list[Load]
    stores: list[Store]
    index: tuple[IntExpr, ...]
    by: IntExpr | None
    array: Touched
    others: tuple[Touched, ...]


def elements_read_once(region: Region, loop: Loop, turns: Turns) -> list[ReadOnce]:
    """Where some are written, all in the same turn."""
    body = [i for block in loop.blocks for i in block.body]
    if not any(isinstance(i, Store) for i in body) or not all(isinstance(i, INSTRUCTIONS) for i in body):
        return []
    if any(part.op in NOT_INVARIANT for i in body for e in operands_of(i) for part in e.walk()):
        return []
    arrays = arrays_of(loop)
    if len(arrays) > MOST_ARRAYS or "" in arrays:
        return []
    settled = frozenset(region.parameters) - {assigned(i) for i in region.instructions()}
    whole = {data: whole_array(data, uses, settled) for data, uses in arrays.items()}
    written = {data: w for data, w in whole.items() if any(isinstance(i, Store) for i, _ in arrays[data])}
    if None in written.values():
        return []
    always = Dominators(loop.blocks, turns.entries)
    each_turn = {i for b in loop.blocks if all(always(b, latch) for latch in loop.latches) for i in b.body}
    indices = _Indices(body, turns)
    found: list[ReadOnce] = []
    for data, array in written.items():
        stores = [i for i, _ in arrays[data] if isinstance(i, Store)]
        others = tuple(w for d, w in written.items() if d != data and w is not None)
        places: dict[tuple[IntExpr, ...], list[Load]] = {}
        for i, place in arrays[data]:
            index = indices.of(place) if isinstance(i, Load) else None
            if index is not None and not any(TURN in x.symbols() for x in index):
                places.setdefault(index, []).append(i)  # type: ignore[arg-type]
        for index, loads in places.items():
            ways = [_meeting(index, indices.of(store.place)) for store in stores]
            turns_of = {way for way in ways if isinstance(way, IntExpr)}
            if array is not None and None not in ways and len(turns_of) <= 1 and not each_turn.isdisjoint(loads):
                found.append(ReadOnce(loads, stores, index, turns_of.pop() if turns_of else None, array, others))
    return found if len({f.by for f in found if f.by is not None}) == 1 else []  # where there is none, the C compiler sees it


def _meeting(index: tuple[IntExpr, ...], stored: tuple[IntExpr, ...] | None) -> IntExpr | bool | None:
    """The turn in which what is stored may be at that index; False: none; None: several, or not known."""
    found: IntExpr | None = None
    for x, y in zip(index, stored or ()):
        step = y.coefficient(TURN)
        apart = x - y.substitute({TURN.name: 0})
        if step is None or step.constant not in (0, 1) or not moderate(apart):
            continue
        known = apart.constant
        if known is not None and (known != 0 if step.constant == 0 else known < 0):
            return False
        found = apart if step.constant == 1 else found
    return found


class _Indices:
    """The indices of places, in turn k."""

    def __init__(self, body: list[Instruction], turns: Turns):
        self.turns = turns
        self.setters: dict[str, list[Instruction]] = {}
        for i in body:
            self.setters.setdefault(assigned(i) or "", []).append(i)

    def of(self, place: Place) -> tuple[IntExpr, ...] | None:
        found = [self._value(index) for index, _ in place.steps]
        return None if None in found else tuple(x for x in found if x is not None)

    def _value(self, e: Expr) -> IntExpr | None:
        if e.op == "const":
            return IntExpr.of(int(e.value))  # type: ignore[call-overload]
        if e.op != "var":
            return None
        by = self.setters.get(str(e.value), [])
        if not by:
            return IntExpr.symbol(str(e.value)) if e.dtype is dtypes.int64 else None
        value = self.turns.results[by[0]] if len(by) == 1 else None
        return value if isinstance(value, IntExpr) and not has_unknown(value) and moderate(value) else None
