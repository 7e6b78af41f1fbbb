"""What the variables of a loop are for turns side by side: the same in all of them, counters, or of each turn.

`outer_lanes.py` makes the copy.  Here a loop of a nest is refused where its turns depend on one another through variables, branch
each for itself, or do what vectors do not.
"""

from __future__ import annotations

from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, const
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.passes.nest_values import Values
from dynagraph.ir.passes.turns import Holds, predecessors_within
from dynagraph.ir.region_dependences import LARGEST_STEP, PURE
from dynagraph.ir.region_liveness import Names, Reads
from dynagraph.ir.region_loops import Loop
from dynagraph.ir.regions import (
    OWNED,
    Block,
    Branch,
    Instruction,
    Interruptible,
    Jump,
    Load,
    OneByOne,
    Place,
    Position,
    Region,
    Set,
    Store,
    assigned,
    substituted,
)

F64, I64 = dtypes.float64, dtypes.int64
MOST_BLOCKS = 30
ARITHMETIC = ("add", "sub", "mul", "div", "neg")
VARIES = "varies"  # the kind of a float64 that has a value of its own in each lane


class Refused(Exception):
    """What stands against turns as lanes."""


class LaneKinds:
    """Of one loop of a nest.  Raises Refused.

    `proven`: what stands for instructions in the nest's copy without checks.
    `kinds`: of variables, by how much they grow from lane to lane, or VARIES; `before`: what a turn has set where a block begins.
    """

    def __init__(self, region: Region, values: Values, loop: Loop, proven: dict[Instruction, Instruction | None], reads: Reads):
        self.region, self.values, self.loop, self.reads = region, values, loop, reads
        self.body = {b: [made for i in b.body if (made := proven.get(i, i)) is not None] for b in loop.blocks}
        self.inside = set(loop.blocks)
        self.inner = [x for x in values.loops.values() if x is not loop and x.header in self.inside]
        if not self.inner or len(loop.blocks) > MOST_BLOCKS:
            raise Refused("it has no loops within, or too many blocks")
        self.positions = {name: index for name, (i, index) in values.positions.items() if _counts_from_start(i, proven.get(i))}
        turn, _, begun = values.at_begin[loop.header]
        (self.turn,) = turn.symbols()
        self.assigned = {name for b in loop.blocks for i in self.body[b] if (name := assigned(i))}
        self.counters = {name: c for name, start in begun.items() if (c := self._step(start)) is not None}
        self._check_instructions()
        self.test = self._counting_test()
        self.kinds = self._found_kinds()
        self._check_memory()
        self.before = self._assigned_before()
        self._check_reads()

    # -- what it consists of ------------------------------------------------------------------------------------------------
    def _step(self, start: IntExpr) -> int | None:
        (symbol,) = start.symbols()
        closed = self.values.closed.get(symbol.name)
        factor = None if closed is None else closed.coefficient(self.turn)
        step = None if factor is None else factor.constant
        return step if step is not None and abs(step) <= LARGEST_STEP else None

    def _check_instructions(self) -> None:
        for block in self.loop.blocks:
            for i in self.body[block]:
                name = assigned(i)
                if not isinstance(i, (Set, Load, Store, Interruptible, OneByOne)) or (isinstance(i, Store) and i.kept):
                    raise Refused(f"its turns do more than to compute and to store: {type(i).__name__}")
                if name is not None and not isinstance(self.region.variables[name], DType):
                    raise Refused("it assigns arrays")
            if block is not self.loop.header and (isinstance(block.end, Branch) or block in self.loop.latches):
                self._check_end(block)
        if any(not isinstance(i, Set) for i in self.body[self.loop.header]):
            raise Refused("it does more than to test before it turns")

    def _check_end(self, block: Block) -> None:
        body = self.body[block]
        if not self.inside.issuperset(block.successors()):
            raise Refused("it may end early")
        if block in self.loop.latches and not (body and isinstance(body[-1], Interruptible) and isinstance(block.end, Jump)):
            raise Refused("it looks for no signals where a turn ends")

    def _counting_test(self) -> Expr:
        """The test that lets it turn, of variables as they are when a turn begins.  It holds for the first turns."""
        end, test = self.loop.header.end, self.values.tests.get(self.loop.header)
        if not isinstance(end, Branch) or not isinstance(test, Holds) or len(test.parts) != 1:
            raise Refused("how often it turns is not known before")
        if end.then not in self.inside or end.otherwise in self.inside:
            raise Refused("it ends where its test holds")
        self.limit = self.values.expanded(test.parts[0])
        step = self.limit.coefficient(self.turn)
        if step is None or step.constant is None or step.constant >= 0:
            raise Refused("its test does not count")
        self.limit_step = -step.constant
        known: dict[str, Expr] = {}
        for i in self.body[self.loop.header]:
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
    def _found_kinds(self) -> dict[str, int | str]:
        kinds: dict[str, int | str] = dict(self.counters)
        changed = True
        while changed:
            changed = False
            for block in self.loop.blocks:
                for i in self.body[block]:
                    name = assigned(i)
                    if name is None:
                        continue
                    kind = 0 if block is self.loop.header and name in self.holds else self._kind_of(i, kinds)
                    known = kinds.get(name, kind)
                    if kind is not None and kind != known:
                        if self.region.variables[name] is not F64:
                            raise Refused("a variable is several things")
                        kind = VARIES
                    if kind is not None and kind != kinds.get(name):
                        kinds[name], changed = kind, True
        if self.assigned - set(kinds):
            raise Refused("what a variable is is not known")
        for block in self.loop.blocks:
            if isinstance(block.end, Branch) and block is not self.loop.header and self._kind(block.end.test, kinds) != 0:
                raise Refused("its turns branch each for itself")
        return kinds

    def _kind_of(self, i: Instruction, kinds: dict[str, int | str]) -> int | str | None:
        """None: not known yet."""
        if isinstance(i, Set):
            return self._kind(i.value, kinds)
        assert isinstance(i, Load)
        found = [self._kind(index, kinds) for index, _ in i.place.steps]
        if None in found:
            return None
        if VARIES in found:
            raise Refused("it reads at places that memory tells")
        if not any(found):
            return 0
        if i.place.dtype is not F64:
            raise Refused("it reads other than float64")
        return VARIES

    def _kind(self, e: Expr, kinds: dict[str, int | str]) -> int | str | None:
        if e.op == "var" and self.region.variables[str(e.value)] != OWNED:
            return kinds.get(str(e.value)) if e.value in self.assigned else 0
        if e.op not in PURE or e.op == "var":
            raise Refused(f"its turns compute {e.op}")
        found = [self._kind(a, kinds) for a in e.args]
        if None in found:
            return None
        if not any(found):
            return 0
        if e.dtype is I64 and VARIES not in found:
            return self._affine(e, found)  # type: ignore[arg-type]
        minus = e.op == "sub" and e.args[0].op == "const"  # 0.0 - x is not -x
        if e.dtype is F64 and e.op in ARITHMETIC and all(k in (0, VARIES) for k in found) and not minus:
            return VARIES
        raise Refused(f"its lanes compute {e.op}")

    def _affine(self, e: Expr, found: list[int]) -> int:
        if e.op in ("exact_add", "exact_sub"):
            return self._moderate(found[0] + (found[1] if e.op == "exact_add" else -found[1]))
        for x, y in ((0, 1), (1, 0)):
            if e.op == "exact_mul" and e.args[x].op == "const":
                return self._moderate(int(e.args[x].value) * found[y])  # type: ignore[call-overload]
        raise Refused(f"its counters are put into {e.op}")

    @staticmethod
    def _moderate(step: int) -> int:
        if abs(step) > LARGEST_STEP:
            raise Refused("its counters grow by too much")
        return step

    def varies(self, name: str | None) -> bool:
        return self.kinds.get(name or "") == VARIES

    # -- memory -----------------------------------------------------------------------------------------------------------------
    def _check_memory(self) -> None:
        self.arrays: dict[str, list[tuple[Block, Instruction, Place]]] = {}
        for block in self.loop.blocks:
            for i in self.body[block]:
                if not isinstance(i, (Load, Store)):
                    continue
                base = i.place.base
                names = {str(part.value) for s in (base, *(s for _, s in i.place.steps if s is not None)) for part in s.walk()}
                if base.op != "var" or names & self.assigned:
                    raise Refused("its arrays change")
                if isinstance(i, Store):
                    if i.place.dtype is not F64 or i.value.dtype is not F64 or self._kind(i.value, self.kinds) not in (0, VARIES):
                        raise Refused("it stores other than float64")
                    if not self.is_of_lanes(i.place):
                        raise Refused("turns write to one place")
                self.arrays.setdefault(str(base.value), []).append((block, i, i.place))

    def _lane_steps(self, place: Place) -> list[int]:
        found = [self._kind(index, self.kinds) for index, _ in place.steps]
        if not all(isinstance(k, int) for k in found):
            raise Refused("it writes at places that memory tells")
        return found  # type: ignore[return-value]

    def is_of_lanes(self, place: Place) -> bool:
        return any(self._lane_steps(place))

    def step_of(self, place: Place) -> Expr | None:
        """The bytes between the elements of neighbours."""
        *others, last = self._lane_steps(place)
        if not any(others) and last == 1 and place.steps[-1][1] is None:
            return None
        total: Expr | None = None
        for kind, (_, stride) in zip((*others, last), place.steps):
            if kind:
                by = const(place.dtype.itemsize, I64) if stride is None else stride
                term = by if kind == 1 else Expr("mul", (const(kind, I64), by), I64)
                total = term if total is None else Expr("add", (total, term), I64)
        assert total is not None
        return total

    # -- what turns read --------------------------------------------------------------------------------------------------------
    def _assigned_before(self) -> dict[Block, Names]:
        """What a turn has assigned where a block begins; counters have their values then."""
        entries, found = predecessors_within(self.loop), {self.loop.header: frozenset(self.counters)}
        changed = True
        while changed:
            changed = False
            for block in self.loop.blocks[1:]:
                ends = [found[b] | self.sets(b) for b in entries[block] if b in found]
                has = ends[0].intersection(*ends[1:])
                if has != found.get(block):
                    found[block], changed = has, True
        return found

    def sets(self, block: Block) -> Names:
        return frozenset(name for i in self.body[block] if (name := assigned(i)))

    def _check_reads(self) -> None:
        for block in self.loop.blocks:
            has = set(self.before[block])
            for i in self.body[block]:
                if self.reads.by(i) & self.assigned - has:
                    raise Refused("turns read what others assign")
                has.add(assigned(i) or "")
            if self.reads.at_end(block) & self.assigned - has:
                raise Refused("turns read what others assign")


def _counts_from_start(i: Position, made: Instruction | None) -> bool:
    return isinstance(made, Set) and made.value == i.index
