"""Function merging: kernels that differ in numbers only become calls of one function, as unrolled Python loops make hundreds.

Comes after `ir/passes/memory_plan.py`, before the printer.  Numbers that differ between alike kernels (offsets, strides, sizes,
literals) become parameters; what is equal in all stays a constant, and so does what decides how a loop is vectorised.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dynagraph.driver import deadline
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, var
from dynagraph.ir.intexpr import IntExpr, Symbol
from dynagraph.ir.loops import (
    Accumulator,
    Axis,
    Buffer,
    ColumnReduce,
    Define,
    Kernel,
    Loop,
    LoopProgram,
    Reduce,
    ScanLoop,
    Statement,
    Store,
    expressions,
)

SHARED_FROM = 6  # alike kernels; fewer are compiled each for itself, with all that is known of it
SMALL_STRIDE = 4  # elements: loops over such strides are vectorised with shuffles, which differ from stride to stride
PARAMETER = "p"  # begins the names of parameters: p0, p1...
REAL_PARAMETER = "q"  # ... and of those that are real numbers
INT64 = range(-(2**63), 2**63)
# functions that are as fast of a number in a register as of a literal
PLAIN_FUNCTIONS = ("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "maximum", "minimum", "select", "choose")


@dataclass(frozen=True, eq=False)
class Shared:
    """A function for several kernels: the first of them, with symbols in place of the numbers that differ."""

    kernel: Kernel
    buffers: tuple[str, ...]  # what it is passed; constants only where they differ
    parameters: tuple[str, ...]
    reals: tuple[tuple[str, DType], ...]
    n_calls: int


@dataclass(frozen=True, eq=False)
class Call:
    """What one kernel gives its function: buffers in the order of the function's own, and numbers for the parameters."""

    shared: Shared
    buffers: tuple[str, ...]
    numbers: tuple[int, ...]
    reals: tuple[float, ...]


Choice = Callable[[Reduce], Hashable]


def share(program: LoopProgram, choice: Choice) -> dict[Kernel, Call]:
    """The kernels of a program that share functions.  `choice`: what the printer chooses for a reduction by its extent, in which
    kernels that share a function agree."""
    alike: dict[Hashable, list[_Walk]] = {}
    for step in program.steps:
        deadline.check()
        if isinstance(step, Kernel):
            walk = _Walk(program, step, choice)
            walk.run()
            alike.setdefault(tuple(walk.key), []).append(walk)
    calls: dict[Kernel, Call] = {}
    for walks in alike.values():
        for sharing in [walks] if len(walks) >= SHARED_FROM else _equal(walks):
            calls |= _calls(sharing)
    return calls


def _equal(walks: list["_Walk"]) -> list[list["_Walk"]]:
    """Those of alike kernels that differ in nothing but memory."""
    groups: dict[Hashable, list[_Walk]] = {}
    for walk in walks:
        groups.setdefault((tuple(walk.numbers), tuple(walk.reals)), []).append(walk)
    return [group for group in groups.values() if len(group) > 1]


def longest(extent: IntExpr) -> int | None:
    """The extent, or the greatest one where it is a parameter; None where it is not known."""
    if extent.constant is None:
        symbols = extent.symbols()
        if len(symbols) == 1 and all(s.name.startswith(PARAMETER) for s in symbols):
            return extent.bounds()[1]
    return extent.constant


def _calls(walks: list["_Walk"]) -> dict[Kernel, Call]:
    first = walks[0]
    names: dict[tuple[int, ...], str] = {}
    put: list[IntExpr] = []
    for values in zip(*(w.numbers for w in walks)):
        if len(set(values)) == 1:
            put.append(IntExpr.of(values[0]))
        else:  # numbers that are equal to each other in every kernel are one parameter
            name = names.setdefault(values, f"{PARAMETER}{len(names)}")
            put.append(IntExpr.symbol(name, min(values), max(values)))
    reals: list[tuple[str, DType]] = []
    reals_of: list[tuple[float, ...]] = []
    put_reals: list[Expr] = []
    for literals in zip(*(w.reals for w in walks)):
        if len(set(literals)) == 1:
            put_reals.append(literals[0])
        else:
            reals.append((f"{REAL_PARAMETER}{len(reals)}", literals[0].dtype))
            reals_of.append(tuple(e.value for e in literals))  # type: ignore[misc]
            put_reals.append(var(*reals[-1]))
    kernel = _Walk(first.program, first.kernel, first.choice, put, put_reals).run()
    buffers = _passed(walks)
    shared = Shared(kernel, buffers[0], tuple(names.values()), tuple(reals), len(walks))
    numbers, real_numbers = _by_kernel(list(names), walks), _by_kernel(reals_of, walks)
    return {w.kernel: Call(shared, *given) for w, *given in zip(walks, buffers, numbers, real_numbers)}


def _by_kernel(columns: list[tuple[Any, ...]], walks: list["_Walk"]) -> list[tuple[Any, ...]]:
    """For each kernel its values, from those of all kernels for each parameter."""
    return list(zip(*columns)) if columns else [()] * len(walks)


def _passed(walks: list["_Walk"]) -> list[tuple[str, ...]]:
    """For each kernel the buffers that its function is passed."""
    first = walks[0]
    roles = [first.program.buffers[name].role for name in first.buffers]
    columns = [
        together
        for role, together in zip(roles, zip(*(w.buffers for w in walks)))
        if role != "scratch" and (role != "constant" or len(set(together)) > 1)
    ]
    return _by_kernel(columns, walks)


class _Walk:
    """One walk over a kernel, in an order that depends on its structure alone.

    `key` is the structure: kernels with equal keys differ in `numbers`, `reals` and the names of buffers and variables only.
    A walk that is given what to put in place of the kernel's own numbers makes the kernel with that.
    """

    def __init__(
        self,
        program: LoopProgram,
        kernel: Kernel,
        choice: Choice,
        put: Sequence[IntExpr] | None = None,
        put_reals: Sequence[Expr] | None = None,
    ):
        self.program, self.kernel, self.choice, self.put, self.put_reals = program, kernel, choice, put, put_reals
        self.key: list[Hashable] = []
        self.numbers: list[int] = []
        self.reals: list[Expr] = []  # literals
        self.buffers: dict[str, int] = {}  # names, in order of their first use
        self.names: dict[str, int] = {}  # of variables
        self.places: dict[Expr, int] = {}
        self.made: dict[Expr, Expr] = {}
        self.fixed = set(_fixed_literals(kernel.body))

    def run(self) -> Kernel:
        axes = self.kernel.axes
        self.key.append(tuple((a.symbol.name, None if k == 0 else a.extent) for k, a in enumerate(axes)))
        return replace(self.kernel, body=self._body(self.kernel.body))

    # -- numbers ------------------------------------------------------------------------------------------------------
    def _number(self, value: int) -> IntExpr:
        position = len(self.numbers)
        self.numbers.append(value)
        return IntExpr.of(value) if self.put is None else self.put[position]

    def _integer(self, e: IntExpr) -> IntExpr:
        total = self._number(e.terms.get((), 0))
        for monomial, coefficient in sorted(e.terms.items(), key=lambda t: [a.name for a in t[0]]):
            if not monomial:
                continue
            term = IntExpr({monomial: 1})
            # the ranges of what is divided decide how a division is spelled, and constants make it fast
            if abs(coefficient) <= SMALL_STRIDE or not all(isinstance(a, Symbol) for a in monomial):
                self.key.append((monomial, coefficient, tuple(_signs(term))))
                total = total + term * coefficient
            else:
                self.key.append(monomial)
                total = total + term * self._number(coefficient)
        self.key.append("+")
        return total

    def _axis(self, axis: Axis) -> Axis:
        self.key.append(axis.symbol.name)
        return replace(axis, extent=self._integer(axis.extent), start=self._integer(axis.start))

    # -- statements ---------------------------------------------------------------------------------------------------
    def _body(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        self.key.append(len(body))
        return tuple(self._statement(s) for s in body)

    def _statement(self, s: Statement) -> Statement:
        self.key.append(type(s).__name__)
        if isinstance(s, Define):
            value = self._expr(s.value)
            self._define(s.name)
            return Define(s.name, value)
        if isinstance(s, Store):
            return self._store(s)
        if isinstance(s, Loop):
            return Loop(self._axes(s.axes), self._body(s.body))
        if isinstance(s, Reduce):
            self.key += [self.choice(s), s.walk, None if s.part is None else s.part.levels]
            part = None if s.part is None else replace(s.part, index=self._integer(s.part.index))
            axes, accumulators, stores = self._axes(s.axes), self._accumulators(s.accumulators), self._stores(s.stores)
            return replace(s, axes=axes, accumulators=accumulators, stores=stores, part=part)
        if isinstance(s, ColumnReduce):
            self.key.append((s.column.symbol.name, s.column.extent))
            accumulators = self._accumulators(s.accumulators)
            return ColumnReduce(self._axes(s.axes), s.column, accumulators, self._stores(s.stores))
        assert isinstance(s, ScanLoop), "sorts are for other targets"
        (accumulator,) = self._accumulators([s.accumulator])
        return ScanLoop(self._axis(s.axis), accumulator, self._stores(s.stores))

    def _axes(self, axes: Sequence[Axis]) -> tuple[Axis, ...]:
        self.key.append(len(axes))
        return tuple(map(self._axis, axes))

    def _accumulators(self, accumulators: Sequence[Accumulator]) -> tuple[Accumulator, ...]:
        self.key.append(len(accumulators))
        return tuple(map(self._accumulator, accumulators))

    def _accumulator(self, a: Accumulator) -> Accumulator:
        self.key.append((a.kind, a.dtype.name, a.chosen is None, a.start is None))
        value, *others = (None if e is None else self._expr(e) for e in (a.value, a.chosen, a.start))
        assert value is not None
        self._define(a.name)
        return replace(a, value=value, chosen=others[0], start=others[1])

    def _stores(self, stores: Sequence[Store]) -> tuple[Store, ...]:
        self.key.append(len(stores))
        return tuple(map(self._store, stores))

    def _store(self, s: Store) -> Store:
        self.key.append((self._buffer(s.buffer), s.place is None))
        place = None if s.place is None else self._expr(s.place)
        return Store(s.buffer, self._integer(s.index), self._expr(s.value), place)

    def _define(self, name: str) -> None:
        self.names.setdefault(name, len(self.names))

    def _buffer(self, name: str) -> int:
        position = self.buffers.get(name)
        if position is None:
            position = self.buffers[name] = len(self.buffers)
            self.key.append(_kind(self.program.buffers[name]))
        return position

    # -- expressions --------------------------------------------------------------------------------------------------
    def _expr(self, root: Expr) -> Expr:
        for e in root.walk():
            if e not in self.made:
                self.places[e] = len(self.places)
                self.made[e] = self._made(e)
        self.key.append(self.places[root])
        return self.made[root]

    def _made(self, e: Expr) -> Expr:
        operands = tuple(self.places[a] for a in e.args)
        self.key.append((e.op, e.dtype.name, operands, None if e.op in ("const", "load", "index") else self._name(e)))
        if e.op == "load":
            buffer: str
            index: IntExpr
            buffer, index = e.value  # type: ignore[misc]
            self.key.append(self._buffer(buffer))
            return replace(e, value=(buffer, self._integer(index)), _hash=0)
        if e.op == "index":
            return replace(e, value=self._integer(e.value), _hash=0)  # type: ignore[arg-type]
        if e.op == "const":
            return self._literal(e)
        args = tuple(self.made[a] for a in e.args)
        return e if all(a is b for a, b in zip(args, e.args)) else replace(e, args=args, _hash=0)

    def _name(self, e: Expr) -> Hashable:
        if e.op == "gather":
            return self._buffer(e.value)  # type: ignore[arg-type]
        if e.op == "var":
            return self.names.get(e.value, e.value)  # type: ignore[call-overload, no-any-return]
        return e.value  # type: ignore[return-value]

    def _literal(self, e: Expr) -> Expr:
        if e.dtype.is_float and e not in self.fixed:
            position = len(self.reals)
            self.reals.append(e)
            return e if self.put_reals is None else self.put_reals[position]
        if not e.dtype.is_integer or e in self.fixed or e.value not in INT64:
            value = e.value
            self.key.append(dtypes.scalar_key(value) if isinstance(value, (float, complex)) else value)  # type: ignore[arg-type]
            return e
        number = self._number(e.value)  # type: ignore[arg-type]
        return e if number.constant is not None else Expr("index", (), e.dtype, number)


def _kind(buffer: Buffer) -> Hashable:
    """What kernels with one function agree in: rows on the stack have a constant size."""
    role = buffer.role if buffer.role in ("constant", "scratch") else "memory"
    return role, buffer.dtype.name, buffer.size if role == "scratch" else None


def _fixed_literals(body: Sequence[Statement]) -> Iterator[Expr]:
    """Literals that are an operand of something that is faster for knowing them: a divisor, an exponent."""
    for root in expressions(body):
        for e in root.walk():
            if e.op not in PLAIN_FUNCTIONS:
                yield from (a for a in e.args if a.op == "const")


def _signs(e: IntExpr) -> Iterator[bool]:
    """Which dividends are known not to be negative."""
    for atom in e.atoms():
        if not isinstance(atom, Symbol):
            low, _ = atom.left.bounds()
            yield low is not None and low >= 0
            yield from _signs(atom.left)
            yield from _signs(atom.right)


__all__ = ["Call", "Shared", "longest", "share"]
