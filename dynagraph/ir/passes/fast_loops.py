"""A second copy of innermost loops that count, without the checks that are proven before it.

A guard in front of the loop works out how many turns there are for certain, and tests all checks of what the loop does not change
or of what grows evenly, at the first and the last of them.  Where they hold, the copy does that many turns in strips, between which
it looks for signals, and goes on at the loop itself: that does what is left, and takes all exits that the guard has tested for.
Where they do not hold, the loop does a turn, and the guard is tried once more: often the first turn alone is special.

Both have the same variables, so each may take over from the other wherever a turn begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from dynagraph.ir import dtypes
from dynagraph.ir.expr import Expr, call, const, var
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.passes.held_elements import Held, held_elements
from dynagraph.ir.passes.read_once import ReadOnce, elements_read_once
from dynagraph.ir.passes.turns import (
    CHECKED_POLYNOMIAL,
    TURN,
    Below,
    Found,
    Holds,
    Near,
    Turns,
    Wrapped,
    as_invariant,
    moderate,
)
from dynagraph.ir.region_loops import Dominators, Loop, innermost_loops, predecessors, reverse_postorder
from dynagraph.ir.regions import (
    CHECKED,
    Apart,
    Block,
    Branch,
    CallFunction,
    CallOut,
    Checked,
    Hold,
    Instruction,
    Interruptible,
    Jump,
    Load,
    NewMemory,
    Place,
    Position,
    Region,
    Require,
    Set,
    Store,
    Touched,
    Unfolded,
    assigned,
    with_operands,
)

I64 = dtypes.int64
STRIP = 4096  # turns between looks for signals
FEWEST = 4  # turns that are worth a guard
MOST_BLOCKS = 60  # of a loop that is copied
ROOM = 2**62  # what an int that each turn changes by little is below when a strip begins
LITTLE = 2**48
CALLS = ("float_pow", "float_mod", "float_floordiv", "complex_exp", "math")  # of libm


Proven = frozenset[Touched]  # arrays of which no elements share memory
WithCopy = Callable[[Loop], "Callable[[Copy], None] | None"]


def add_fast_loops(region: Region, done: Mapping[Block, Proven | None], with_copy: WithCopy | None = None) -> Region:
    """Changes the region, and gives it.

    `done`: by the headers of loops, what holds there already; None: these need no copy.  `with_copy` is called with each loop, and
    what it gives with the copy that the loop then has.
    """
    before = predecessors(region.blocks)
    for loop in innermost_loops(region):
        known = done.get(loop.header, frozenset())
        if known is None:
            continue
        said = _refusal(loop)
        if not said:
            copy, then = Copy(region, loop, before, known), None if with_copy is None else with_copy(loop)
            said = copy.add()
            if then is not None and copy.left:
                then(copy)
        region.copies[loop.header.number] = said
    region.blocks = reverse_postorder(region.blocks[0])
    return region


def _refusal(loop: Loop) -> str:
    if len(loop.blocks) > MOST_BLOCKS:
        return f"all checks stay: more than {MOST_BLOCKS} blocks"
    if any(isinstance(i, (Hold, NewMemory)) for block in loop.blocks for i in block.body):
        return "all checks stay: it makes arrays"
    if any(isinstance(i, CallOut) for block in loop.blocks for i in block.body):
        return "all checks stay: it calls Python functions"
    if any(isinstance(i, CallFunction) for block in loop.blocks for i in block.body):
        return "all checks stay: it calls a function that calls itself"
    return ""


def number(value: int) -> Expr:
    return const(value, I64)


def positive(value: Expr) -> Expr:
    return call("gt", value, number(0))


def least_of(x: Expr, y: Expr) -> Expr:
    return Expr("select", (call("lt", x, y), x, y), I64)


class Guard:
    """Instructions that go on at `otherwise` where what they test does not hold."""

    def __init__(self, region: Region, turns: Turns, block: Block, otherwise: Block):
        self.region, self.turns, self.block, self.otherwise = region, turns, block, otherwise
        self.known: dict[object, Expr] = {}

    def fresh(self, dtype: dtypes.DType = I64) -> str:
        name = f"g{len(self.region.variables)}"
        self.region.variables[name] = dtype
        return name

    def set(self, value: Expr) -> Expr:
        if value.op in ("var", "const"):
            return value
        if value not in self.known:
            name = self.fresh(value.dtype)
            self.block.body.append(Set(name, value))
            self.known[value] = var(name, value.dtype)
        return self.known[value]

    def require(self, test: Expr) -> None:
        if test not in self.known:
            self.known[test] = test
            self.block.body.append(Require(test, self.otherwise))

    def require_unfolded(self, array: Touched) -> None:
        if array not in self.known:
            self.known[array] = array.data
            self.block.body.append(Unfolded(array, self.otherwise))

    def require_positive(self, value: IntExpr) -> None:
        """The constant stands on the other side: ``n > -2**63`` has to be asked as it stands."""
        bound = -value.terms.get((), 0)
        if -(2**63) <= bound < 2**63:
            self.require(call("gt", self.int(value + bound), number(bound)))
        elif bound > 0:
            self.require(const(False, dtypes.bool_))  # whatever fits in 64 bits is below it
        else:
            self.int(value + bound)

    # -- ints that may leave 64 bits ------------------------------------------------------------------------------------------
    def checked(self, function: str, x: Expr, y: Expr) -> Expr:
        if function == "int_mul" and y.op == "const" and y.value == 1:
            return x
        return self.checked_once(function, (x, y), I64)

    def int(self, value: IntExpr) -> Expr:
        """A polynomial's value, where it and each step to it fits in 64 bits."""
        if value not in self.known:
            self.known[value] = self._int(value)
        return self.known[value]

    def _int(self, value: IntExpr) -> Expr:
        # the first term is added to: neither the constant one nor a negative one, where there are others
        terms = sorted(value.terms.items(), key=lambda t: (not t[0], t[1] < 0, [a.name for a in t[0]]))
        total: Expr | None = None
        for monomial, factor in terms:
            function = "int_add" if factor > 0 or total is None else "int_sub"
            by = number(factor if total is None else abs(factor))
            term: Expr | None = None
            for atom in monomial:
                leaf = self.symbol(atom.name)
                term = leaf if term is None else self.checked("int_mul", term, leaf)
            term = by if term is None else self.checked("int_mul", term, by)
            total = term if total is None else self.checked(function, total, term)
        return number(0) if total is None else total

    def symbol(self, name: str) -> Expr:
        if name not in self.known:
            opaque = next((e for e, known in self.turns.opaque.items() if known == name), None)
            self.known[name] = var(name, I64) if opaque is None else self.set(self.expr(opaque))
        return self.known[name]

    def expr(self, e: Expr) -> Expr:
        """What the loop does not change."""
        if e.op == "invariant":
            return self.int(e.value)  # type: ignore[arg-type]
        args = tuple(map(self.expr, e.args))
        if e.op == "checked":
            function, named = cast(tuple[str, tuple[Expr, ...]], e.value)
            return self.checked_once(function, (*named, *args), e.dtype)
        return e if args == e.args else Expr(e.op, args, e.dtype, e.value)

    def checked_once(self, function: str, args: tuple[Expr, ...], dtype: dtypes.DType) -> Expr:
        key = (function, args)
        if key not in self.known:
            name = self.fresh(dtype)
            self.block.body.append(Checked(name, function, args, self.otherwise))
            self.known[key] = var(name, dtype)
        return self.known[key]


class Copy:
    """The fast copy of one loop.

    `start`: what goes on with the guard; `left`: the variable with the number of turns that are left for it; `entry`: where it
    then begins.  `before`: from where each block is entered, to which the copy's edges are added.  `proven`: what stands for
    instructions in it, and `kept` how many of them still check.
    """

    def __init__(self, region: Region, loop: Loop, before: dict[Block, list[Block]], known: Proven = frozenset()):
        self.region, self.loop, self.before = region, loop, before
        self.turns = Turns(region, loop, unwraps=True)
        self.inside = set(loop.blocks)
        self.takes_long = any(takes_long(i) for b in loop.blocks for i in b.body)  # so each turn looks for signals
        self.n_blocks = max(b.number for b in region.blocks) + 1
        self.guard = Guard(region, self.turns, self.block(), loop.header)
        self.guard.known |= {array: array.data for array in known}
        self.counting: list[Block] = []  # their branches stay in the loop in as many turns as the guard says
        self.ending: list[Block] = []  # those of them that end it
        self.limits: list[tuple[IntExpr, IntExpr]] = []  # (a, b): in as many as a - k * b is above zero
        self.counted: list[tuple[IntExpr, IntExpr]] = []  # those of the loop's own tests
        self.positive: dict[IntExpr, None] = {}  # is above zero in all of them
        self.fitting: dict[IntExpr, None] = {}  # fits in 64 bits
        self.tests: dict[Expr, None] = {}  # of what the loop does not change
        self.lows: dict[tuple[IntExpr, IntExpr], int] = {}  # (index, extent): the least that is added to the index, which is
        self.highs: dict[tuple[IntExpr, IntExpr], int] = {}  # not below zero; the most, with which it is below the extent
        self.near: dict[str, None] = {}  # changes by little in each turn
        self.hoisted: dict[Instruction, Expr] = {}  # takes long, and gives the same in all of them
        self.proven: dict[Instruction, Instruction | None] = {}
        self.to_hold: list[Held] = []
        self.held: list[tuple[str, Place]] = []
        self.read_once: list[ReadOnce] = []
        self.read: list[tuple[str, Place]] = []  # where a strip begins
        self.left, self.entry, self.start, self.kept = "", self.block(), self.block(), 0

    def block(self) -> Block:
        made = Block(self.n_blocks, self.loop.header.line)
        self.n_blocks += 1
        return made

    def prove(self) -> None:
        """Finds what stands for instructions, where it is known how often the loop turns."""
        self.count()
        if not self.counting:
            return
        always = Dominators(self.loop.blocks, self.turns.entries)
        for block in self.loop.blocks:
            for i in block.body:
                self._prove(i, self.turns.operands[i], block)
                if all(always(block, latch) for latch in self.loop.latches):
                    self._hoist(i)
        checks = (i for b in self.loop.blocks for i in b.body if isinstance(i, (Checked, Position, Require)))
        self.kept = sum(i not in self.proven for i in checks)
        if not self.kept and self._has_one_end():
            self.to_hold = held_elements(self.region, self.loop, self.turns)
            self.read_once = [] if self.to_hold else elements_read_once(self.region, self.loop, self.turns)

    def add(self) -> str:
        """Gives what the region's `copies` say."""
        self.prove()
        if not self.counting:
            return "all checks stay: how often it turns is not known before"
        self.left, kept = self._guarded(), self.kept
        self._hold_elements()
        self._link(self.left)
        return f"fast copy with {kept} check{'s' if kept > 1 else ''}" if kept else "fast copy without checks"

    # -- how many turns -----------------------------------------------------------------------------------------------------
    def count(self) -> None:
        dominate = Dominators(self.loop.blocks, self.turns.entries)
        for block in self.loop.blocks:
            end = block.end
            if not isinstance(end, Branch) or not all(dominate(block, latch) for latch in self.loop.latches):
                continue
            stays = [b in self.inside for b in (end.then, end.otherwise)]
            test = self.turns.value(end.test, self.turns.at_end[block])
            if all(stays) or not isinstance(test, Holds):
                continue
            parts = test.parts
            if stays[1]:
                if len(parts) > 1:
                    continue
                parts = (1 - parts[0],)
            steps = [part.coefficient(TURN) for part in parts]
            if any(step is None or (step.constant or 0) > 0 or not moderate(p) for p, step in zip(parts, steps)):
                continue
            self.counting.append(block)
            if any(step.terms for step in steps if step is not None):
                self.ending.append(block)
            for part, step in zip(parts, steps):
                assert step is not None
                if step.terms:
                    self.limits.append((part.substitute({TURN.name: 0}), -step))
                else:
                    self.positive[part] = None
        if not self.limits:
            self.counting.clear()
        self.counted = list(self.limits)

    # -- which checks -------------------------------------------------------------------------------------------------------
    def _prove(self, i: Instruction, operands: list[Found], block: Block) -> None:
        if isinstance(i, Interruptible):
            if not self.takes_long:
                self.proven[i] = None
        elif isinstance(i, Checked):
            self._prove_checked(i, operands)
        elif isinstance(i, Position):
            self._prove_position(i, operands, block)
        elif isinstance(i, Require):
            (test,) = operands
            settled = as_invariant(test)
            if isinstance(test, Holds) and all(_even(p) for p in test.parts):
                self.positive.update(dict.fromkeys(test.parts))
            elif settled is not None:
                self.tests[settled] = None
            else:
                return
            self.proven[i] = None

    def _prove_checked(self, i: Checked, operands: list[Found]) -> None:
        result = self.turns.results[i]
        if i.function in CHECKED_POLYNOMIAL:
            if isinstance(result, IntExpr) and _even(result):
                self.fitting[result] = None
            elif isinstance(result, Near) and not result.name and _little(result):
                pass
            elif isinstance(result, Near) and result.name in self.turns.near and _little(result, self.turns.near[result.name]):
                self.near[result.name] = None
            else:
                return
            self.proven[i] = Set(i.name, Expr(f"exact_{CHECKED_POLYNOMIAL[i.function]}", i.args, I64))
        elif i in self.turns.wraps:
            self.proven[i] = Set(i.name, i.args[0])
        elif i.function in ("int_floordiv", "int_mod", "float_div"):
            divisor = as_invariant(operands[1])
            if divisor is None:
                return
            if i.function == "float_div":
                self.tests[call("ne", divisor, const(0.0, divisor.dtype))] = None
                self.proven[i] = Set(i.name, call("div", *i.args))
            else:
                self.tests[positive(divisor)] = None  # the C compiler then drops the check

    def _prove_position(self, i: Position, operands: list[Found], block: Block) -> None:
        index, extent = operands
        if isinstance(index, Below) and index.extent == extent:  # the remainder's divisor is tested
            self.proven[i] = Set(i.name, i.index)
            return
        place = self.turns.results[i]
        index = index.value if isinstance(index, Wrapped) else index
        if not isinstance(index, IntExpr) or not isinstance(extent, IntExpr) or not isinstance(place, IntExpr):
            return
        if not (_even(place) and moderate(place) and moderate(extent)) or TURN in extent.symbols():
            return
        by = place.terms.get((), 0)
        key = place - by, extent
        if not self._is_tested(place, place, block):
            self.lows[key] = min(self.lows.get(key, by), by)
        if not self._is_tested(extent - place - 1, place, block):
            self.highs[key] = max(self.highs.get(key, by), by)
        value = i.index if place == index else Expr("exact_add", (i.index, i.extent), I64)
        self.proven[i] = Set(i.name, value)

    def _is_tested(self, value: IntExpr, place: IntExpr, block: Block) -> bool:
        """Whether a branch that leads to the block shows that `value` is not below zero there.

        Not asked of places that stay the same: what lies there may be read in front of the loop.
        """
        if TURN not in place.symbols():
            return False
        known = ((value - fact + 1).constant for fact in self.turns.facts(block))
        return any(rest is not None and rest >= 0 for rest in known)

    def _hoist(self, i: Instruction) -> None:
        """What the C compiler does not take out of a loop, as it calls functions: the guard computes it."""
        settled = as_invariant(self.turns.results[i]) if calls_function(i) else None
        if settled is not None:
            self.hoisted[i] = settled

    # -- the guard ------------------------------------------------------------------------------------------------------------
    def _guarded(self) -> str:
        """The variable that has the number of turns."""
        guard = self.guard
        for name, value in self.turns.late.items():
            before = value.substitute({TURN.name: -1})
            guard.require(call("eq", var(name, I64), guard.int(before)))
        for dividend, divisor in self.turns.wraps.values():
            guard.require(call("ge", guard.int(dividend.substitute({TURN.name: 0})), number(0)))
            self.limits.append((divisor - dividend.substitute({TURN.name: 0}), IntExpr.of(1)))
        later: list[tuple[IntExpr, IntExpr | None]] = []  # (value, extent) of the last turn; None: from zero on
        for (index, _), low in self.lows.items():
            step, first = index.coefficient(TURN), index.substitute({TURN.name: 0})
            assert step is not None
            if step.constant == -1:
                self.limits.append((first + low + 1, IntExpr.of(1)))
                continue
            guard.require(call("ge", guard.int(first + low), number(0)))
            if step.constant not in (0, 1):
                later.append((index + low, None))
        for (index, extent), high in self.highs.items():
            step, first = index.coefficient(TURN), index.substitute({TURN.name: 0})
            assert step is not None
            if step.constant == 1:
                self.limits.append((extent - first - high, IntExpr.of(1)))
                continue
            guard.require(call("lt", guard.int(first + high), guard.int(extent)))
            if step.constant not in (0, -1):
                later.append((index + high, extent))
        turns = self._least_limit()
        guard.require(call("ge", turns, number(FEWEST)))
        turns = self._read_elements(turns)
        for test in self.tests:
            guard.require(guard.expr(test))
        last = IntExpr.of(0)
        if later or any(TURN in p.symbols() for p in (*self.positive, *self.fitting)):
            last_turn = guard.set(Expr("exact_sub", (turns, number(1)), I64))
            last = IntExpr.symbol(str(last_turn.value))
        for value, below in later:
            at_last = guard.int(value.substitute({TURN.name: last}))
            guard.require(call("ge", at_last, number(0)) if below is None else call("lt", at_last, guard.int(below)))
        for value in self.fitting:
            guard.int(value.substitute({TURN.name: 0}))
            guard.int(value.substitute({TURN.name: last}))
        for value in self.positive:
            guard.require_positive(value.substitute({TURN.name: 0}))
            guard.require_positive(value.substitute({TURN.name: last}))
        for i, settled in self.hoisted.items():
            self.proven[i] = Set(str(assigned(i)), guard.set(guard.expr(settled)))
        name = guard.fresh()
        guard.block.body.append(Set(name, turns))
        return name

    def _has_turns(self) -> Expr:
        """Is tested first: a loop that has few turns shall not pay for the guard."""
        left = (a.terms for a, by in self.counted if by.constant == 1)
        names = (m[0].name for terms in left for m, c in terms.items() if len(terms) == len(m) == c == 1)
        counts = [var(name, I64) for name in names if name in self.region.variables]
        return call("ge", counts[0], number(FEWEST)) if counts else const(True, dtypes.bool_)

    def _least_limit(self) -> Expr:
        guard = self.guard
        least: Expr | None = None
        for a, b in dict.fromkeys(self.limits):
            n = guard.int(a)
            if b.constant != 1:
                by = guard.int(b)
                guard.require(positive(by))
                guard.require(positive(n))
                n = guard.set(Expr("c_div", (guard.int(a + b - 1), by), I64))
            least = n if least is None else guard.set(least_of(least, n))
        assert least is not None
        return least

    # -- elements that are held in variables ----------------------------------------------------------------------------------
    def _has_one_end(self) -> bool:
        leaving = [b for b in self.loop.blocks if not self.inside.issuperset(b.successors())]
        return not self.takes_long and all(b in self.counting for b in leaving)

    def _hold_elements(self) -> None:
        guard = self.guard
        for held in self.to_hold:
            place = held.place(tuple((guard.set(guard.expr(index)), stride) for index, stride in held.steps))
            guard.block.body += [Apart(place, other, guard.otherwise) for other in held.others]
            name = guard.fresh(held.dtype)
            self.held.append((name, place))
            for i in held.uses:
                self.proven[i] = Set(name, i.value) if isinstance(i, Store) else Set(str(assigned(i)), var(name, held.dtype))

    def _read_elements(self, turns: Expr) -> Expr:
        """Of elements that are read once.  Gives the number of turns before they are written."""
        guard = self.guard
        for found in self.read_once:
            given = found.loads[0].place
            steps = tuple((guard.int(x), stride) for x, (_, stride) in zip(found.index, given.steps))
            place = Place(given.base, steps, given.dtype)
            guard.require_unfolded(found.array)
            guard.block.body += [Apart(place, other, guard.otherwise) for other in found.others]
            name = guard.fresh(place.dtype)
            self.read.append((name, place))
            self.proven |= {load: Set(load.name, var(name, place.dtype)) for load in found.loads}
        by = next((f.by for f in self.read_once if f.by is not None), None)
        if by is None:
            return turns
        at = guard.int(by)
        before = guard.set(Expr("select", (call("lt", at, number(0)), turns, least_of(turns, at)), I64))
        guard.require(positive(before))
        return before

    # -- blocks -------------------------------------------------------------------------------------------------------------
    def _link(self, left: str) -> None:
        region, header, guard = self.region, self.loop.header, self.guard
        strip, fresh_start = self.entry, self.start
        latch, between, go_on, again, retry = (self.block() for _ in range(5))
        in_strip, count, may_retry = guard.fresh(), guard.fresh(), guard.fresh(dtypes.bool_)
        copies = {b: self.block() for b in self.loop.blocks}
        rest, strips = var(left, I64), var(in_strip, I64)

        # strips
        guard.block.end = Jump(strip)
        less = Expr("exact_sub", (rest, strips), I64)
        strip.body = [Set(in_strip, least_of(rest, number(STRIP))), Set(left, less), Set(count, strips)]
        for name in self.near:
            value = var(name, I64)
            roomy = call("and", call("lt", value, number(ROOM)), call("gt", value, number(-ROOM)))
            strip.body.append(Require(roomy, header))
        strip.body += [Load(name, place) for name, place in (*self.held, *self.read)]
        strip.end = Jump(copies[header])
        for block, copy in copies.items():
            kept = [self.proven.get(i, i) for i in block.body]
            copy.body, copy.line = [i for i in kept if i is not None], block.line
            copy.end = block.end
            if block in self.counting:
                assert isinstance(block.end, Branch)
                copy.end = Jump(next(b for b in (block.end.then, block.end.otherwise) if b in self.inside))
            redirect(copy, {**copies, header: latch})
        remaining = Expr("exact_sub", (var(count, I64), number(1)), I64)
        latch.body = [Set(count, remaining)]
        latch.end = Branch(positive(var(count, I64)), copies[header], between)
        between.body = [Store(place, var(name, place.dtype)) for name, place in self.held]
        between.end = Branch(positive(rest), go_on, header)
        go_on.body = [Interruptible(header, STRIP)]
        go_on.end = Jump(strip)

        # entering it, and the loop's own back edges
        fresh_start.body = [Set(may_retry, self._has_turns())]
        fresh_start.end = Branch(var(may_retry, dtypes.bool_), guard.block, header)
        again.end = Branch(var(may_retry, dtypes.bool_), retry, header)
        retry.body = [Set(may_retry, const(False, dtypes.bool_))]
        retry.end = Jump(guard.block)
        for block in self.before[header]:
            redirect(block, {header: again if block in self.inside else fresh_start})
        made = [guard.block, strip, fresh_start, latch, between, go_on, again, retry, *copies.values()]
        region.blocks += made
        for block in made:
            for following in dict.fromkeys(block.successors()):
                self.before.setdefault(following, []).append(block)


def redirect(block: Block, to: dict[Block, Block]) -> None:
    end = block.end
    if isinstance(end, Jump):
        block.end = Jump(to.get(end.block, end.block))
    elif isinstance(end, Branch):
        block.end = Branch(end.test, to.get(end.then, end.then), to.get(end.otherwise, end.otherwise))


def calls_function(i: Instruction) -> bool:
    """Whether it computes a number by a function that the C compiler does not know."""
    if isinstance(i, Set):
        return any(part.op == "numpy_pow" for part in i.value.walk())
    return isinstance(i, Checked) and i.function in CALLS


def takes_long(i: Instruction) -> bool:
    """Whether the time of an instruction has no bound."""
    found = isinstance(i, Checked) and CHECKED[i.function].takes_long

    def look(e: Expr) -> Expr:
        nonlocal found
        found = found or any(part.op == "dot" for part in e.walk())
        return e

    with_operands(i, look)
    return found


def _even(value: IntExpr) -> bool:
    """Whether it grows by the same in each turn."""
    return value.coefficient(TURN) is not None


def _little(found: Near, each_turn: tuple[int, int] = (0, 0)) -> bool:
    return max(map(abs, (found.low, found.high, *each_turn))) < LITTLE
