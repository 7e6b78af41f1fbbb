"""Loops over the elements of array expressions: counted, with turns that only load, compute and store."""

from __future__ import annotations

from dataclasses import dataclass

from dynagraph.ir import dtypes
from dynagraph.ir.expr import Expr, const, var
from dynagraph.ir.region_dependences import is_pure
from dynagraph.ir.region_liveness import Reads, live_variables, operands_of
from dynagraph.ir.region_loops import Loop, innermost_loops, predecessors
from dynagraph.ir.regions import (
    OWNED,
    Block,
    Branch,
    Instruction,
    Interruptible,
    Jump,
    Load,
    Region,
    Set,
    Store,
    assigned,
)

I64 = dtypes.int64


@dataclass(eq=False)
class ElementLoop:
    """``for counter in range(start, end): body``, one block.  `entry`: from which `head` is entered.

    What turns set is not read behind the loop, nor by later turns.
    """

    entry: Block
    head: Block
    body: Block
    counter: str
    start: int
    end: Expr

    @property
    def index(self) -> Expr:
        return var(self.counter, I64)


def element_loops(region: Region) -> list[ElementLoop]:
    """Those of a region whose edges are split (`split_edges`)."""
    before = predecessors(region.blocks)
    live = live_variables(region.blocks[0], Reads())
    found = [_element_loop(region, loop, before[loop.header], live[loop.header]) for loop in innermost_loops(region)]
    return [loop for loop in found if loop is not None]


def _element_loop(region: Region, loop: Loop, entries: list[Block], live: frozenset[str]) -> ElementLoop | None:
    head = loop.header
    if len(loop.blocks) != 2 or head.body or len(entries) != 2 or not isinstance(head.end, Branch):
        return None
    test = head.end.test
    body = next(b for b in loop.blocks if b is not head)
    entry = next(b for b in entries if b is not body)
    is_counted = test.op == "lt" and test.args[0].op == "var" and test.args[1].op in ("var", "const")
    if not is_counted or head.end.then is not body or not isinstance(body.end, Jump) or not isinstance(entry.end, Jump):
        return None
    counter, end = str(test.args[0].value), test.args[1]
    inside = [i for i in body.body if not (isinstance(i, Interruptible) and i.within)]
    starts = [i.value for i in entry.body if assigned(i) == counter and isinstance(i, Set)]
    if not inside or not starts or starts[-1].op != "const" or int(starts[-1].value) < 0:  # type: ignore[call-overload]
        return None
    *turn, last = inside
    step = Expr("exact_add", (var(counter, I64), const(1, I64)), I64)
    if not isinstance(last, Set) or last.name != counter or last.value != step:
        return None
    names = {name for i in turn if (name := assigned(i))}
    if names & live or counter in names or end.value in names or end.value == counter or not _is_elementwise(region, turn):
        return None
    return ElementLoop(entry, head, body, counter, int(starts[-1].value), end)  # type: ignore[call-overload]


def _is_elementwise(region: Region, turn: list[Instruction]) -> bool:
    """Whether a turn loads, computes with numbers, and then stores."""
    stores = [isinstance(i, Store) for i in turn]
    if not all(isinstance(i, (Set, Load, Store)) for i in turn) or stores != sorted(stores):
        return False
    if any(isinstance(region.variables[n], str) for i in turn if (n := assigned(i))):
        return False
    operands = [e for i in turn for operand in operands_of(i) for e in operand.walk()]
    owned = (e.op == "var" and region.variables[str(e.value)] == OWNED for e in operands)
    return all(is_pure(e.op) for e in operands) and not any(owned)


__all__ = ["ElementLoop", "element_loops"]
