"""What the variables of an innermost loop are in its k-th turn: polynomials in k and in what the loop does not change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

import numpy as np

from dynagraph.ir import dtypes
from dynagraph.ir.expr import Expr
from dynagraph.ir.intexpr import IntExpr, Symbol
from dynagraph.ir.region_loops import Dominators, Loop
from dynagraph.ir.regions import Block, Branch, Checked, Instruction, Position, Region, Require, Set, assigned

TURN = Symbol("#")
OPAQUE = "$"
UNKNOWN = "@"  # the symbol of what a variable is when a turn begins
MOST_TERMS = 8
FARTHEST_NEIGHBOUR = 4  # (i + 1) % n and the like are taken for i + 1, where that is asked for
MOST = 2**60  # of a polynomial's constants, so that a few of them together still fit in 64 bits
POLYNOMIAL = {"exact_add": "add", "exact_sub": "sub", "exact_mul": "mul"}
WRAPPING = ("add", "sub", "mul")  # of NumPy's ints
CHECKED_POLYNOMIAL = {"int_add": "add", "int_sub": "sub", "int_mul": "mul"}
COMPARISONS = ("lt", "le", "gt", "ge")
# of operands that stay the same these give the same, or fail; `math` is given its function's name first
PURE = (
    "int_floordiv", "int_mod", "int_pow", "int_of_float", "int_truediv", "float_div", "float_floordiv", "float_mod", "float_pow",
    "float_floor", "float_ceil", "float_round", "complex_div", "complex_exp", "math",
)  # fmt: skip
TRAPS = ("c_div", "c_mod")
# of operands that stay the same these give now this, now that: they read memory, or draw random numbers
NOT_INVARIANT = (
    "memory", "free", "clear", "data_of", "dot", "matmul", "reduction", "search", "draw", "draw_integer", "twist", "twist_bits",
)  # fmt: skip


@dataclass(frozen=True)
class Near:
    """Between `low` and `high` more than what the variable `name` was when the turn began; than 0 where that is empty."""

    name: str
    low: int
    high: int


@dataclass(frozen=True)
class Below:
    """From 0 on, and below `extent` where that is above zero: a remainder."""

    extent: IntExpr


@dataclass(frozen=True)
class Wrapped:
    """`value` modulo 2^64.  Where `value` is within an array's bounds, such an index is `value`."""

    value: IntExpr


@dataclass(frozen=True)
class Holds:
    """True where each of `parts` is above zero."""

    parts: tuple[IntExpr, ...]


# an int; another value that the loop does not change; bounds of an int; a comparison; or None
Found = Union[IntExpr, Expr, Near, Below, Wrapped, Holds, None]
Facts = tuple[IntExpr, ...]  # are above zero


class Turns:
    """`operands`, `results`: of the instructions that check, in turn k; `at_end`: the variables at the end of each block.

    `steps`: what each turn adds to a variable; `late`: what else it leaves there, so that the next begins with it; `near`: for
    other ints, by how much it may change them.
    `wraps`: what remainders stand for that are only taken so that neighbours go round, in turns where they do not, if `unwraps`.
    `shows_bounds`: of ints that are computed modulo 2^64, what they would be without that is known.
    """

    def __init__(self, region: Region, loop: Loop, unwraps: bool = False):
        self.region, self.loop, self.unwraps, self.shows_bounds = region, loop, unwraps, unwraps
        self.wraps: dict[Instruction, tuple[IntExpr, IntExpr]] = {}  # (dividend, divisor)
        self.entries = predecessors_within(loop)
        self.assigned = {name for block in loop.blocks for i in block.body if (name := assigned(i))}
        self.ints = {name for name in self.assigned if region.variables[name] is dtypes.int64}
        self.near: dict[str, tuple[int, int]] = {}
        self.opaque: dict[Expr, str] = {}  # ints that the loop does not change and that are no polynomials: their symbols
        self.steps: dict[str, IntExpr] = {}
        self.operands: dict[Instruction, list[Found]] = {}
        self.results: dict[Instruction, Found] = {}
        self.at_end: dict[Block, dict[str, Found]] = {}
        unknown: dict[str, Found] = {name: IntExpr.symbol(UNKNOWN + name) for name in self.ints}
        self.steps = self._steps(unknown)
        self.late: dict[str, IntExpr] = {}
        begin = {**unknown, **{n: IntExpr.symbol(n) + step * IntExpr({(TURN,): 1}) for n, step in self.steps.items()}}
        while late := self._late(begin):
            self.late |= late
            begin |= {name: value.substitute({TURN.name: IntExpr({(TURN,): 1}) - 1}) for name, value in late.items()}
        others = self.ints - set(self.steps) - set(self.late)
        ends = self._run({**begin, **{name: Near(name, 0, 0) for name in others}})
        for name in others:
            found = [end.get(name) for end in ends]
            if all(isinstance(f, Near) and f.name == name for f in found):
                self.near[name] = min(f.low for f in found), max(f.high for f in found)  # type: ignore[union-attr]
        self.dominators = Dominators(loop.blocks, self.entries)
        self.standing: dict[Block, Facts] = {}  # what holds wherever a turn begins
        self.tests = {b: self.value(b.end.test, self.at_end[b]) for b in loop.blocks if isinstance(b.end, Branch)}
        self._facts: dict[Block, Facts] = {}

    def _late(self, begin: dict[str, Found]) -> dict[str, IntExpr]:
        """Further variables that checks depend on, and of which the end of a turn tells what they are in the next."""
        ends = self._run(begin)
        seen = [f.value if isinstance(f, Wrapped) else f for found in self.operands.values() for f in found]
        seen += [part for f in seen if isinstance(f, Holds) for part in f.parts]
        used = {symbol.name for f in seen if isinstance(f, IntExpr) for symbol in f.symbols()}
        found = {}
        for name in self.ints - set(self.steps) - set(self.late):
            values = {end.get(name) for end in ends}
            value = values.pop() if len(values) == 1 else None
            if UNKNOWN + name in used and isinstance(value, IntExpr) and not has_unknown(value):
                found[name] = value
        return found

    def _steps(self, start: dict[str, Found]) -> dict[str, IntExpr]:
        ends = self._run(start)
        found = {}
        for name in self.ints:
            steps = {self._step(name, end.get(name)) for end in ends}
            step = steps.pop() if len(steps) == 1 else None
            if step is not None:
                found[name] = step
        return found

    def _step(self, name: str, end: Found) -> IntExpr | None:
        if not isinstance(end, IntExpr):
            return None
        step = end - IntExpr.symbol(UNKNOWN + name)
        return None if any(s.name.startswith(UNKNOWN) for s in step.symbols()) else step

    # -- one turn -----------------------------------------------------------------------------------------------------------
    def _run(self, start: dict[str, Found]) -> list[dict[str, Found]]:
        """The values at the end of each latch."""
        self.at_end = {}
        for block in self.loop.blocks:
            if block is self.loop.header:
                known = dict(start)
            else:
                known = self.joined([self.at_end[b] for b in self.entries[block]])
            for i in block.body:
                self.step(i, known)
            self.at_end[block] = known
        return [self.at_end[latch] for latch in self.loop.latches]

    def step(self, i: Instruction, known: dict[str, Found]) -> None:
        self.operands[i] = [self.value(e, known) for e in _tested(i)]
        name = assigned(i)
        if name is not None:
            self.results[i] = known[name] = self._result(i, known)

    @staticmethod
    def joined(ends: list[dict[str, Found]]) -> dict[str, Found]:
        first, *others = ends
        found = {}
        if not others:
            return dict(first)
        for name, value in first.items():
            for other in others:
                its = other.get(name)
                value = value if value is its else _either(value, its)
            found[name] = value
        return found

    def _result(self, i: Instruction, known: dict[str, Found]) -> Found:
        if isinstance(i, Set):
            return self.value(i.value, known)
        if isinstance(i, Checked) and i.function in CHECKED_POLYNOMIAL:
            return _combined(CHECKED_POLYNOMIAL[i.function], *self.operands[i])
        if isinstance(i, Position):
            index, extent = self.operands[i]
            index = index.value if isinstance(index, Wrapped) else index
            if isinstance(index, IntExpr) and isinstance(extent, IntExpr) and not has_unknown(index) and not has_unknown(extent):
                return _combined("add", index, extent) if self.counts_from_end(index) else index
        if isinstance(i, Checked) and self._unwrapped(i):
            return self.wraps[i][0]
        return self._pure(i) if isinstance(i, Checked) and i.function in PURE else None

    def _unwrapped(self, i: Checked) -> bool:
        """Whether it is as (i + 1) % n, where i counts."""
        self.wraps.pop(i, None)
        if not self.unwraps or i.function != "int_mod":
            return False
        dividend, divisor = self.operands[i]
        if not isinstance(dividend, IntExpr) or not isinstance(divisor, IntExpr) or as_invariant(divisor) is None:
            return False
        step = dividend.coefficient(TURN)
        counts = step is not None and step.constant == 1 and moderate(dividend) and not has_unknown(dividend)
        if counts and divisor.constant is None and 0 < abs(dividend.terms.get((), 0)) <= FARTHEST_NEIGHBOUR:
            self.wraps[i] = dividend, divisor
        return i in self.wraps

    def _pure(self, i: Checked) -> Found:
        """A function of what the loop does not change, or a remainder by that."""
        operands = [as_invariant(a) for a in self.operands[i]]
        if None in operands:
            divisor = self.operands[i][-1]
            return Below(divisor) if i.function == "int_mod" and operands[1] and isinstance(divisor, IntExpr) else None
        made = Expr("checked", tuple(operands), self.region.variables[i.name], (i.function, i.args[: len(i.args) - len(operands)]))  # type: ignore[arg-type]
        return self._named(made) if made.dtype is dtypes.int64 else made

    def _named(self, made: Expr) -> IntExpr:
        return IntExpr.symbol(self.opaque.setdefault(made, f"{OPAQUE}{len(self.opaque)}"))

    def counts_from_end(self, index: IntExpr) -> bool:
        """Whether an index is one of those that people write to count from the end: -1, or -i where i counts; not k - i."""
        number = index.constant
        if number is not None:
            return number < 0
        counting = [c for m, c in index.terms.items() if any(isinstance(a, Symbol) and self.is_counter(a.name) for a in m)]
        return bool(counting) and all(c < 0 for c in index.terms.values())

    def is_counter(self, name: str) -> bool:
        step = self.steps.get(name)
        return step is not None and bool(step.terms)

    def value(self, e: Expr, known: dict[str, Found]) -> Found:
        if e.op == "var":
            name = str(e.value)
            if name in self.assigned:
                return known.get(name)
            return IntExpr.symbol(name) if self.region.variables[name] is dtypes.int64 else e
        if e.op == "const":
            return IntExpr.of(int(e.value)) if e.dtype is dtypes.int64 else e  # type: ignore[call-overload]
        args = [self.value(a, known) for a in e.args]
        if e.op in POLYNOMIAL:
            return _combined(POLYNOMIAL[e.op], *args)
        if e.op in COMPARISONS and e.args[0].dtype is dtypes.int64:
            x, y = args
            if isinstance(x, IntExpr) and isinstance(y, IntExpr):
                bigger, less = (x, y) if e.op in ("gt", "ge") else (y, x)
                return Holds((bigger - less + (e.op in ("ge", "le")),))
            return None
        if e.op == "and" and all(isinstance(a, Holds) for a in args):
            return Holds(tuple(p for a in args for p in a.parts))  # type: ignore[union-attr]
        found = self._invariant(e, args)
        if found is None and e.dtype is dtypes.int64:
            found = _bounded(e, args)
            if found is None and e.op in WRAPPING and self.shows_bounds:
                found = _wrapped(e.op, *args)
        return found

    def _invariant(self, e: Expr, args: list[Found]) -> Found:
        """An operation on what the loop does not change; its operands are variables, constants, or ints to be computed."""
        if e.op in NOT_INVARIANT:
            return None
        if e.op in TRAPS and not (e.args[1].op == "const" and e.args[1].value):
            return None
        operands = [as_invariant(a) for a in args]
        if None in operands:
            return None
        made = Expr(e.op, tuple(operands), e.dtype, e.value)  # type: ignore[arg-type]
        if e.dtype is not dtypes.int64:
            return made
        return self._named(made)

    # -- what holds ---------------------------------------------------------------------------------------------------------
    def facts(self, block: Block) -> Facts:
        """What holds where a block begins."""
        if block not in self._facts:
            above = self.dominators.above[block]
            if above is block:
                self._facts[block] = self.standing.get(block, ())
            else:
                found = self.facts_behind(above, block) if self.entries[block] == [above] else self.facts(above)
                self._facts[block] = (*found, *self.standing.get(block, ()))
        return self._facts[block]

    def facts_behind(self, block: Block, following: Block) -> Facts:
        """What holds on the edge between two blocks."""
        found, end, test = self.facts(block), block.end, self.tests.get(block)
        if not isinstance(end, Branch) or end.then is end.otherwise or not isinstance(test, Holds):
            return found
        return (*found, *(test.parts if following is end.then else otherwise(test)))


def otherwise(test: Holds) -> Facts:
    """What holds where a comparison does not."""
    return (1 - test.parts[0],) if len(test.parts) == 1 else ()


def _tested(i: Instruction) -> tuple[Expr, ...]:
    """What an instruction's check is about."""
    if isinstance(i, Checked):
        return i.args if i.function != "math" else i.args[1:]
    if isinstance(i, Position):
        return i.index, i.extent
    return (i.test,) if isinstance(i, Require) else ()


def as_invariant(found: Found) -> Expr | None:
    if isinstance(found, Expr):
        return found
    if isinstance(found, IntExpr) and not has_unknown(found) and TURN not in found.symbols():
        return Expr("invariant", (), dtypes.int64, found)
    if isinstance(found, Holds):
        parts = [as_invariant(p) if moderate(p) else None for p in found.parts]
        if None not in parts:
            zero = Expr("const", (), dtypes.int64, 0)
            tests = [Expr("gt", (p, zero), dtypes.bool_) for p in parts if p is not None]
            while len(tests) > 1:
                tests[:2] = [Expr("and", (tests[0], tests[1]), dtypes.bool_)]
            return tests[0]
    return None


def moderate(value: IntExpr) -> bool:
    """Whether a guard can compute it: it is short, and its constants are far from the ends of 64 bits."""
    return len(value.terms) <= MOST_TERMS and all(abs(c) <= MOST for c in value.terms.values())


def has_unknown(value: IntExpr) -> bool:
    return any(s.name.startswith(UNKNOWN) for s in value.symbols())


def _combined(function: str, x: Found, y: Found) -> Found:
    if isinstance(x, IntExpr) and isinstance(y, IntExpr):
        made = x + y if function == "add" else x - y if function == "sub" else x * y
        return made if moderate(made) else None
    if isinstance(x, Wrapped) or isinstance(y, Wrapped):
        return _wrapped(function, x, y)
    a, b = _near(x), _near(y)
    if a is None or b is None or function == "mul" or (b.name and (a.name or function == "sub")):
        return None
    if function == "sub":
        b = Near("", -b.high, -b.low)
    return Near(a.name or b.name, a.low + b.low, a.high + b.high)


def _wrapped(function: str, x: Found, y: Found) -> Wrapped | None:
    x, y = (v.value if isinstance(v, Wrapped) else v for v in (x, y))
    made = _combined(function, x, y) if isinstance(x, IntExpr) and isinstance(y, IntExpr) else None
    return Wrapped(made) if isinstance(made, IntExpr) else None


def _near(found: Found) -> Near | None:
    if isinstance(found, IntExpr):
        n = found.constant
        return None if n is None else Near("", n, n)
    return found if isinstance(found, Near) else None


def _bounded(e: Expr, args: list[Found]) -> Near | None:
    """The bounds of an int, from how it is computed."""
    if e.op == "cast":
        (operand,) = e.args
        if operand.dtype.is_bool:
            return Near("", 0, 1)
        masks = [a.value for a in operand.args if a.op == "const" and isinstance(a.value, int)] if operand.op == "and" else []
        if masks and 0 <= min(masks) < 2**63:
            return Near("", 0, min(masks))
        if operand.dtype.is_integer and operand.dtype.itemsize < 8:
            info = np.iinfo(operand.dtype.numpy)
            return Near("", int(info.min), int(info.max))
    if e.op == "select":
        x, y = _near(args[1]), _near(args[2])
        both = None if x is None or y is None else _either(x, y)
        return both if isinstance(both, Near) else None
    number = args[-1].constant if args and isinstance(args[-1], IntExpr) else None
    if number is not None and number >= 0 and e.op == "and":
        return Near("", 0, number)
    if number is not None and number > 0 and e.op in ("c_mod", "remainder"):
        return Near("", 1 - number if e.op == "c_mod" else 0, number - 1)
    return None


def _either(x: Found, y: Found) -> Found:
    if isinstance(x, Near) or isinstance(y, Near):
        a, b = _near(x), _near(y)
        return None if a is None or b is None or a.name != b.name else Near(a.name, min(a.low, b.low), max(a.high, b.high))
    return x if type(x) is type(y) and x == y else None


def predecessors_within(loop: Loop) -> dict[Block, list[Block]]:
    inside = set(loop.blocks)
    found: dict[Block, list[Block]] = {b: [] for b in loop.blocks}
    for block in loop.blocks:
        for following in dict.fromkeys(block.successors()):
            if following in inside:
                found[following].append(block)
    return found
