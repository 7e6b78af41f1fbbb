"""What the variables of a loop are for turns side by side: the same in all of them, counters, or of each turn.

`outer_lanes.py` makes the copy.  Here a loop of a nest is refused where its turns depend on one another through variables, or do
what vectors do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Union

from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, const
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.passes.lane_graph import LaneGraph
from dynagraph.ir.passes.lane_masks import Masks
from dynagraph.ir.passes.nest_values import Values
from dynagraph.ir.passes.turns import TRAPS, Holds
from dynagraph.ir.region_dependences import LARGEST_STEP, is_pure
from dynagraph.ir.region_liveness import Names, Reads
from dynagraph.ir.region_loops import Loop
from dynagraph.ir.regions import (
    OWNED,
    Block,
    Branch,
    Checked,
    Instruction,
    Interruptible,
    Jump,
    Load,
    Place,
    Position,
    Region,
    Require,
    Set,
    Store,
    assigned,
    substituted,
)

I64 = dtypes.int64
MOST_BLOCKS = 30
VARIES = "varies"  # the kind of a variable that has a value of its own in each lane
INSTRUCTIONS = (Set, Load, Store, Checked, Require, Position)
# functions with checks that are done for each lane; those of lists have no lanes
CHECKED_LANES = (
    "int_add", "int_sub", "int_mul", "float_div", "int_truediv", "int_floordiv", "int_mod", "float_floordiv", "float_mod",
    "float_pow", "math",
)  # fmt: skip
Kind = Union[int, str]


class Refused(Exception):
    """What stands against turns as lanes."""


class LaneKinds:
    """Of one loop of a nest.  Raises Refused.

    `proven`: what stands for instructions in the nest's copy without checks.  `live` gives what is read where a turn begins, or
    behind the loop.
    `kinds`: of variables, by how much they grow from lane to lane, or VARIES; `before`: what a turn has set where a block begins.
    """

    def __init__(
        self,
        region: Region,
        values: Values,
        loop: Loop,
        proven: dict[Instruction, Instruction | None],
        reads: Reads,
        live: Callable[[], Names],
    ):
        self.region, self.values, self.loop, self.reads = region, values, loop, reads
        inside = set(loop.blocks)
        self.loops_within = [x for x in values.loops.values() if x is not loop and x.header in inside]
        if not self.loops_within or len(loop.blocks) > MOST_BLOCKS:
            raise Refused("it has no loops within, or too many blocks")
        self._check_ends(inside)
        self.graph = LaneGraph(region, loop, proven, reads)
        self.blocks, self.inner = self.graph.blocks, self.graph.inner
        self.positions = {name: index for name, (i, index) in values.positions.items() if _counts_from_start(i, proven.get(i))}
        turn, _, begun = values.at_begin[loop.header]
        (self.turn,) = turn.symbols()
        self.assigned = {name for b in self.blocks for i in b.body if (name := assigned(i))}
        self.counters = {name: c for name, start in begun.items() if (c := self._step(start)) is not None}
        self.needed = sorted((live() | set(self.counters)) & self.assigned)
        self._check_instructions()
        self.test = self._counting_test(inside)
        self.live = self.graph.live(frozenset(self.needed))
        self.masks = self._found_kinds()
        self._check_memory()
        self.before = self._assigned_before()
        self._check_reads()
        self._check_left()

    # -- what it consists of ------------------------------------------------------------------------------------------------
    def _step(self, start: IntExpr) -> int | None:
        (symbol,) = start.symbols()
        closed = self.values.closed.get(symbol.name)
        factor = None if closed is None else closed.coefficient(self.turn)
        step = None if factor is None else factor.constant
        return step if step is not None and abs(step) <= LARGEST_STEP else None

    def _check_ends(self, inside: set[Block]) -> None:
        for block in self.loop.blocks:
            if block is not self.loop.header and not inside.issuperset(b for b in _ends(block)):
                raise Refused("it may end early")
        looks = [any(isinstance(i, Interruptible) for i in latch.body) for latch in self.loop.latches]
        if not all(looks) and any(isinstance(i, Interruptible) for b in self.loop.blocks for i in b.body):
            raise Refused("it looks for no signals where a turn ends")

    def _check_instructions(self) -> None:
        for block in self.blocks:
            for i in block.body:
                name = assigned(i)
                if not isinstance(i, INSTRUCTIONS) or (isinstance(i, Store) and i.kept):
                    raise Refused(f"its turns do more than to compute and to store: {type(i).__name__}")
                if name is not None and not isinstance(self.region.variables[name], DType):
                    raise Refused("it assigns arrays")
        if any(not isinstance(i, Set) for i in self.graph.header.body):
            raise Refused("it does more than to test before it turns")

    def _counting_test(self, inside: set[Block]) -> Expr:
        """The test that lets it turn, of variables as they are when a turn begins.  It holds for the first turns."""
        end, test = self.loop.header.end, self.values.tests.get(self.loop.header)
        if not isinstance(end, Branch) or not isinstance(test, Holds) or len(test.parts) != 1:
            raise Refused("how often it turns is not known before")
        if end.then not in inside or end.otherwise in inside:
            raise Refused("it ends where its test holds")
        self.limit = self.values.expanded(test.parts[0])
        step = self.limit.coefficient(self.turn)
        if step is None or step.constant is None or step.constant >= 0:
            raise Refused("its test does not count")
        self.limit_step = -step.constant
        known: dict[str, Expr] = {}
        for i in self.graph.header.body:
            assert isinstance(i, Set)
            known[i.name] = substituted(known)(i.value)
        found = substituted(known)(end.test)
        self.holds = {name for name, value in known.items() if value == found}  # in all lanes of a strip
        if found.op not in ("lt", "le", "gt", "ge") or any(a.op not in ("var", "const") for a in found.args):
            raise Refused("its test is no comparison of variables")
        if any(a.op == "var" and a.value in self.assigned and a.value not in self.counters for a in found.args):
            raise Refused("its test is not of counters")
        return found

    def is_innermost(self, loop: Loop) -> bool:
        return not any(x is not loop and x.header in loop.blocks for x in self.inner)

    # -- kinds of variables ---------------------------------------------------------------------------------------------------
    def _found_kinds(self) -> Masks:
        """What has to be of each lane, as masked blocks set it, shows when it is known which blocks are masked."""
        self.kinds: dict[str, Kind] = dict(self.counters)
        while True:
            self._spread()
            ends = ((b, b.end) for b in self.blocks if b is not self.graph.header)
            divergent = [b for b, end in ends if isinstance(end, Branch) and self.kind(end.test) == VARIES]
            try:
                masks = Masks(self.graph, divergent, self.live)
            except ValueError as error:
                raise Refused(str(error)) from None
            wrong = [name for name in masks.setters if name not in masks.shared and self.kinds[name] != VARIES]
            if not wrong:
                return masks
            self.kinds.update((name, self._of_lanes(name)) for name in wrong)

    def _of_lanes(self, name: str) -> str:
        kind = self.region.variables[name]
        if name in self.counters or not isinstance(kind, DType) or not has_lanes(kind):
            raise Refused("a variable is several things")
        return VARIES

    def _spread(self) -> None:
        kinds, changed = self.kinds, True
        while changed:
            changed = False
            for block in self.blocks:
                for i in block.body:
                    name = assigned(i)
                    if name is None:
                        continue
                    kind = 0 if block is self.graph.header and name in self.holds else self._kind_of(i)
                    if (kind is not None and kinds.get(name, kind) != kind) or kind == VARIES:
                        kind = self._of_lanes(name)
                    if kind is not None and kind != kinds.get(name):
                        kinds[name], changed = kind, True
        if self.assigned - set(kinds):
            raise Refused("what a variable is is not known")

    def _kind_of(self, i: Instruction) -> Kind | None:
        """None: not known yet."""
        if isinstance(i, Set):
            return self.kind(i.value)
        if isinstance(i, Load):
            found = self._steps_of(i.place)
            return None if found is None else VARIES if any(found) else 0
        operands = [i.index, i.extent] if isinstance(i, Position) else [a for a in i.args if a.op != "name"]  # type: ignore[union-attr]
        kinds = [self.kind(e) for e in operands]
        if None in kinds:
            return None
        known = isinstance(i, Checked) and i.function in CHECKED_LANES and all(has_lanes(e.dtype) for e in operands)
        if any(kinds) and not known:
            raise Refused("its lanes compute what is checked otherwise")
        return VARIES if any(kinds) else 0

    def _steps_of(self, place: Place) -> list[int] | None:
        found = [self.kind(index) for index, _ in place.steps]
        if None in found:
            return None
        if VARIES in found:
            raise Refused("it reads at places that memory tells")
        if any(found) and not has_lanes(place.dtype):
            raise Refused(f"it has elements of {place.dtype}")
        return found  # type: ignore[return-value]

    def kind(self, e: Expr) -> Kind | None:
        if e.op == "var" and self.region.variables[str(e.value)] != OWNED:
            return self.kinds.get(str(e.value)) if e.value in self.assigned else 0
        if e.op == "var" or not is_pure(e.op):
            raise Refused(f"its turns compute {e.op}")
        found = [self.kind(a) for a in e.args]
        if None in found:
            return None
        if not any(found):
            return 0
        if VARIES not in found and (step := _affine(e, found)) is not None:  # type: ignore[arg-type]
            return step
        if not has_lanes(e.dtype) or not all(has_lanes(a.dtype) for a in e.args):
            raise Refused(f"its lanes compute with {e.dtype}")
        if e.op in TRAPS and not (e.args[1].op == "const" and int(e.args[1].value) > 0):  # type: ignore[call-overload]
            raise Refused(f"its lanes compute {e.op}")
        return VARIES

    def varies(self, name: str | None) -> bool:
        return self.kinds.get(name or "") == VARIES

    # -- memory -----------------------------------------------------------------------------------------------------------------
    def _check_memory(self) -> None:
        self.arrays: dict[str, list[tuple[Block, Instruction, Place]]] = {}
        for block in self.blocks:
            for i in block.body:
                if not isinstance(i, (Load, Store)):
                    continue
                base = i.place.base
                names = {str(part.value) for s in (base, *(s for _, s in i.place.steps if s is not None)) for part in s.walk()}
                if base.op != "var" or names & self.assigned:
                    raise Refused("its arrays change")
                if isinstance(i, Store):
                    if not has_lanes(i.place.dtype) or not has_lanes(i.value.dtype) or self.kind(i.value) is None:
                        raise Refused(f"it stores {i.place.dtype}")
                    if not self.is_of_lanes(i.place):
                        raise Refused("turns write to one place")
                self.arrays.setdefault(str(base.value), []).append((self.graph.origin[block], i, i.place))

    def _lane_steps(self, place: Place) -> list[int]:
        found = self._steps_of(place)
        assert found is not None
        return found

    def is_of_lanes(self, place: Place) -> bool:
        return any(self._lane_steps(place))

    def step_of(self, place: Place) -> Expr | None:
        """The bytes between the elements of neighbours."""
        kinds = self._lane_steps(place)
        if [(kind, stride) for kind, (_, stride) in zip(kinds, place.steps) if kind] == [(1, None)]:
            return None
        total: Expr | None = None
        for kind, (_, stride) in zip(kinds, place.steps):
            if kind:
                by = const(place.dtype.itemsize, I64) if stride is None else stride
                term = by if kind == 1 else Expr("mul", (const(kind, I64), by), I64)
                total = term if total is None else Expr("add", (total, term), I64)
        assert total is not None
        return total

    # -- what turns read --------------------------------------------------------------------------------------------------------
    def _assigned_before(self) -> dict[Block, Names]:
        """What a turn has assigned where a block begins; counters have their values then."""
        entries, found = self.graph.entries, {self.graph.header: frozenset(self.counters)}
        changed = True
        while changed:
            changed = False
            for block in self.blocks[1:]:
                ends = [found[b] | self.graph.sets(b) for b in entries[block] if b in found]
                has = ends[0].intersection(*ends[1:])
                if has != found.get(block):
                    found[block], changed = has, True
        return found

    def _check_reads(self) -> None:
        for block in self.blocks:
            has = set(self.before[block])
            for i in block.body:
                if self.reads.by(i) & self.assigned - has:
                    raise Refused("turns read what others assign")
                has.add(assigned(i) or "")
            if self.reads.at_end(block) & self.assigned - has:
                raise Refused("turns read what others assign")

    def _check_left(self) -> None:
        """Whether what each strip leaves is known."""
        always = self.before[self.graph.finish]
        for name in self.needed:
            if name not in always and (self.kinds[name] not in (0, VARIES) or name in self.masks.setters):
                raise Refused("what its last turn leaves is not known")


def has_lanes(dtype: DType) -> bool:
    return dtype.is_bool or dtype.is_integer or (dtype.is_float and not dtype.is_half)


def _affine(e: Expr, found: list[int]) -> int | None:
    """By how much an int grows from lane to lane."""
    step = None
    if e.op in ("exact_add", "exact_sub"):
        step = found[0] + (found[1] if e.op == "exact_add" else -found[1])
    elif e.op == "exact_mul":
        for x, y in ((0, 1), (1, 0)):
            if e.args[x].op == "const":
                step = int(e.args[x].value) * found[y]  # type: ignore[call-overload]
    return step if step is None or abs(step) <= LARGEST_STEP else None


def _ends(block: Block) -> tuple[Block, ...]:
    end = block.end
    return (end.block,) if isinstance(end, Jump) else (end.then, end.otherwise) if isinstance(end, Branch) else ()


def _counts_from_start(i: Position, made: Instruction | None) -> bool:
    return isinstance(made, Set) and made.value == i.index
