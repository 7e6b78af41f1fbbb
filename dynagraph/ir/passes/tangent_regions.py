"""Tangents of native loops: a region that computes, beside each value, how that changes where its parameters do.

Each active number has another that holds its tangent, each array whose elements depend on the parameters has another of the same
shape.  Tangents are computed where values are, by the partial derivatives of the op table (`ir/partials.py`), and values as ever:
branches are taken as in the given region.

The result is a region like others: it can be reversed (ir/passes/reverse_regions.py), which gives second derivatives, and has
tangents itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, call, cast, const, var
from dynagraph.ir.passes.active_regions import DIFFERENTIABLE, OF_SUPPORT, ActiveRegion, NotReversible, function_of, name_of
from dynagraph.ir.passes.tidy_regions import tidied
from dynagraph.ir.regions import (
    OWNED,
    POINTER,
    Address,
    Block,
    Branch,
    Checked,
    End,
    Exit,
    Hold,
    Instruction,
    Jump,
    Leave,
    Load,
    NewMemory,
    Place,
    Region,
    Require,
    Set,
    Store,
)

I64, BOOL = dtypes.int64, dtypes.bool_
FINITE = ("add", "sub", "neg", "mul", "sin", "cos", "tanh")  # as long as operands are


@dataclass(eq=False, repr=False)
class Tangent:
    """`region`: its first parameters are those of the given one.

    `numbers`: for parameters that are numbers, the ones that their tangents are.  `arrays`: for those that are addresses of arrays'
    data, the parameters that say where tangents lie, as the arrays do; these are written where the arrays are.
    `ends`: the tangents of what each exit gives, in that order; None: it has none.
    """

    region: Region
    numbers: dict[str, str]
    arrays: dict[str, str]
    ends: dict[int, list[Expr | None]]


def tangent_region(region: Region, varied: Iterable[str], results: Mapping[int, Sequence[Expr]]) -> Tangent:
    """A region that computes tangents, given those of the parameters `varied`: numbers, and addresses of arrays' data.

    `results`: what each exit gives by which control may leave: numbers, and owners of new arrays.  Exits give nothing yet.

    Raises NotReversible.
    """
    made = tidied(region)
    made.name = f"{region.name}_tangent"
    if made.functions or made.holds_gil or made.has_tape:
        raise NotReversible("a tangent of lists, or of functions that call themselves")
    return _Tangents(made, set(varied), results).made()


class _Tangents(ActiveRegion):
    def __init__(self, region: Region, varied: set[str], results: Mapping[int, Sequence[Expr]]):
        super().__init__(region, varied)
        self.given = list(region.parameters)
        self.results = results
        self.tangents: dict[str, str] = {}  # of variables
        self.body: list[Instruction] = []
        self.block = region.blocks[0]

    def made(self) -> Tangent:
        region = self.region
        self.find_activity()
        self.no_memory = Exit(len(region.exits))
        for exit in region.exits:
            exit.state = []
        region.exits.append(self.no_memory)
        numbers = {name: self._parameter(name) for name in self.given if name in self.active}
        arrays = {name: self._parameter(name) for name in self.given if name in self.active_roots}
        known = set(region.parameters)
        ends: dict[int, list[Expr | None]] = {}
        for block in list(region.blocks):
            found = self._differentiate(block)
            if found is not None:
                ends[found[0]] = found[1]
        for number, block in enumerate(region.blocks):
            block.number = number
        zeros = {name: region.variables[name] for name in sorted(set(self.tangents.values()) - known)}
        region.blocks[0].body[:0] = [
            Set(name, const(0, kind if isinstance(kind, DType) else I64)) for name, kind in zeros.items() if kind != OWNED
        ]
        return Tangent(region, numbers, arrays, ends)

    def _spread(self, i: Instruction) -> None:
        super()._spread(i)
        name = getattr(i, "name", "")
        if self._is_address(name):  # what may be of several arrays has tangents for all of them
            after = dict(self.at)
            self.memory.step(after, i)
            if not self.active_roots.isdisjoint(after[name]):
                self.active_roots |= after[name]

    # -- names ----------------------------------------------------------------------------------------------------------------
    def _tangent(self, name: str) -> Expr:
        """The tangent of a number; where the tangents lie of the elements that an address is of."""
        kind = self.region.variables[name]
        if name not in self.tangents:
            self.tangents[name] = str(self._fresh(kind, "t").value)
        return var(self.tangents[name], kind if isinstance(kind, DType) else I64)

    def _parameter(self, name: str) -> str:
        kind = self.region.variables[name]
        if kind == OWNED:
            raise NotReversible("a tangent of an array that is an object")
        made = str(self._tangent(name).value)
        self.region.parameters.append(made)
        if kind == POINTER:
            self.region.parameters += [str(self._fresh(I64, "t").value) for _ in range(3)]
        return made

    def _tangent_of(self, e: Expr) -> Expr:
        """The tangent of a variable, or of a constant."""
        if e.op == "var" and str(e.value) in self.active:
            return self._tangent(str(e.value))
        return const(0, e.dtype)

    def _address_of(self, e: Expr) -> Expr:
        """Where the tangents lie of the elements that an address is of."""
        if e.op == "var":
            return self._tangent(str(e.value))
        if e.op in ("data_of", "select"):
            first = int(e.op == "select")
            return Expr(e.op, (*e.args[:first], *map(self._address_of, e.args[first:])), e.dtype)
        raise NotReversible(f"an address by {e.op}")

    def _place(self, place: Place) -> Place:
        return Place(self._tangent(name_of(place.base)), place.steps, place.dtype)

    # -- blocks -----------------------------------------------------------------------------------------------------------------
    def _differentiate(self, block: Block) -> tuple[int, list[Expr | None]] | None:
        """What the block gives where control leaves by its end, as one of the results."""
        self.at = dict(self.memory.before[block])
        given, end = block.body, block.end
        self.block, self.body = block, []
        block.body = self.body
        for i in given:
            self._instruction(i)
            self.memory.step(self.at, i)
        found = None
        if isinstance(end, Leave) and end.exit.number in self.results:
            found = end.exit.number, [self._result(part) for part in self.results[end.exit.number]]
        self.block.end = end
        return found

    def _result(self, part: Expr) -> Expr | None:
        if part.op == "var" and self._is_address(str(part.value)):
            if self._is_pointed(part) and not self._roots(part) <= self.active_roots:
                raise NotReversible("an array that changes by one way only")
            return self._tangent(str(part.value)) if self._is_pointed(part) else None
        value = self._value(part)
        return self._tangent_of(value) if value.op == "var" and str(value.value) in self.active else None

    def _go_on_in(self, block: Block, end: End) -> None:
        self.block.end = end
        self.block, self.body = block, block.body

    def _each(self, count: Expr, do: Callable[[Expr], None]) -> None:
        """A loop of so many turns, of which each does something with its number."""
        blocks = [Block(len(self.region.blocks) + k, self.block.line) for k in range(3)]
        self.region.blocks += blocks
        head, body, behind = blocks
        turn = self._fresh(I64, "t")
        self.body.append(Set(str(turn.value), const(0, I64)))
        self._go_on_in(head, Jump(head))
        self._go_on_in(body, Branch(call("lt", turn, count), body, behind))
        do(turn)
        self.body.append(Set(str(turn.value), Expr("exact_add", (turn, const(1, I64)), I64)))
        self._go_on_in(behind, Jump(head))

    # -- instructions -----------------------------------------------------------------------------------------------------------
    def _instruction(self, i: Instruction) -> None:
        body = self.body
        if isinstance(i, (Set, Hold)) and self._is_address(i.name):
            body.append(i)
            if self._makes(i):
                self._set_address(i)
        elif isinstance(i, Set) and i.name in self.active:
            value = self._value(i.value)
            self.body += [Set(str(self._tangent(i.name).value), self._tangent_of(value)), Set(i.name, value)]
        elif isinstance(i, Set) and i.value.op in ("free", "clear") and self._is_pointed(i.value.args[0]):
            data, *rest = i.value.args
            again = Expr(i.value.op, (self._address_of(data), *rest), BOOL)
            body += [i, Set(str(self._fresh(BOOL, "t").value), again)]
        elif isinstance(i, Checked) and i.name in self.active:
            self._checked(i)
        elif isinstance(i, Load) and i.name in self.active:
            name = str(self._tangent(i.name).value)
            pointed = self._is_pointed(i.place.base)
            body += [Load(name, self._place(i.place)) if pointed else Set(name, const(0, i.place.dtype)), i]
        elif isinstance(i, Store) and i.place.dtype.is_inexact and self._is_pointed(i.place.base):
            value = self._value(i.value)
            self.body += [Store(i.place, value), Store(self._place(i.place), self._tangent_of(value))]
        elif isinstance(i, Address):
            if self._is_pointed(i.place.base):
                body.append(Address(str(self._tangent(i.name).value), self._place(i.place)))
            body.append(i)
        elif isinstance(i, NewMemory):
            body.append(i)
            if self._makes(i):
                name = str(self._tangent(i.name).value)
                size = const(i.dtype.itemsize, I64)
                for n in i.sizes:
                    size = Expr("exact_mul", (size, n), I64)
                body.append(NewMemory(name, i.dtype, i.sizes, i.exit))
                self._clear(Expr("data_of", (var(name, I64),), I64), size)
        elif isinstance(i, Require) and i.test.op == "matmul" and self._is_pointed(i.test.args[0]):
            body.append(i)
            self._product(i)
        else:
            body.append(i)

    def _set_address(self, i: Set | Hold) -> None:
        name, e = str(self._tangent(i.name).value), i.value
        if e.op != "memory":
            self.body.append(type(i)(name, self._address_of(e)))
            return
        in_order = e.args[0]
        self.body.append(Set(name, e))
        data = var(name, I64)
        self.body.append(Require(call("or", in_order, call("ne", data, const(0, I64))), self.no_memory))

    def _clear(self, data: Expr, size: Expr) -> None:
        """What is stored nowhere does not change."""
        self.body.append(Set(str(self._fresh(BOOL, "t").value), Expr("clear", (data, size), BOOL)))

    # -- numbers ----------------------------------------------------------------------------------------------------------------
    def _value(self, e: Expr) -> Expr:
        """An expression as a variable or constant, whose tangent is computed, or as it is where it does not change."""
        if e.op in ("var", "const") or not self._depends(e):
            return e
        if e.dtype not in DIFFERENTIABLE:
            raise NotReversible(f"a tangent of {e.dtype}")
        if e.op in ("dot", "reduction"):
            result = self._active(e.dtype)
            self.body.append(Set(str(result.value), e))
            (self._dot if e.op == "dot" else self._reduction)(result, e)
            return result
        args = [e.args[0], *map(self._value, e.args[1:])] if e.op == "select" else list(map(self._value, e.args))
        held = [a if a.op in ("var", "const") else self._held(a) for a in args]
        result = self._active(e.dtype)
        self.body.append(Set(str(result.value), Expr(e.op, tuple(held), e.dtype, e.value)))
        if e.op == "select":
            self._changes(result, Expr("select", (held[0], *map(self._tangent_of, held[1:])), e.dtype))
        elif e.op == "cast":
            self._changes(result, cast(self._tangent_of(held[0]), e.dtype))
        else:
            self._computed(result, OF_SUPPORT.get(e.op, e.op), held)
        return result

    def _active(self, dtype: DType) -> Expr:
        made = self._fresh(dtype, "t")
        self.active.add(str(made.value))
        return made

    def _held(self, e: Expr) -> Expr:
        made = self._fresh(e.dtype, "t")
        self.body.append(Set(str(made.value), e))
        return made

    def _changes(self, result: Expr, by: Expr) -> None:
        self.body.append(Set(str(self._tangent(name_of(result)).value), by))

    def _computed(self, result: Expr, function: str, operands: Sequence[Expr]) -> None:
        """What `function` gives for operands, all of them variables or constants, now is in `result`."""
        total: Expr | None = None
        for operand, slope in self._slopes(result, function, operands):
            term = self._times(function, slope, self._tangent(name_of(operand)), result.dtype)
            total = term if total is None else call("add", total, term)
        self._changes(result, const(0, result.dtype) if total is None else total)

    def _times(self, function: str, slope: Expr, tangent: Expr, dtype: DType) -> Expr:
        """What does not change has no influence, also where the slope is infinite."""
        if slope.op == "const" and slope.value in (1, -1):
            return tangent if slope.value == 1 else call("neg", tangent)
        zero = const(0, dtype)
        if slope.op == "const" or function in FINITE:
            return call("mul", tangent, slope)
        held = self._held(slope)
        finite = call("eq", call("sub", held, held), zero)
        still = call("and", call("eq", tangent, zero), call("not", finite))
        return Expr("select", (still, zero, call("mul", tangent, held)), dtype)

    def _checked(self, i: Checked) -> None:
        function, rest, args = function_of(i)
        held = [a if a.op in ("var", "const") else self._held(a) for a in map(self._value, args)]
        kind = self.region.variables[i.name]
        assert isinstance(kind, DType)
        result = self._active(kind)
        self.body.append(Checked(str(result.value), i.function, (*rest, *held), i.exit))
        self._computed(result, function, held)
        self.body += [Set(str(self._tangent(i.name).value), self._tangent(name_of(result))), Set(i.name, result)]

    # -- whole arrays -------------------------------------------------------------------------------------------------------------
    def _dot(self, result: Expr, e: Expr) -> None:
        n, x, xs, y, ys = e.args
        total: Expr | None = None
        for given in ((n, x, xs, y, ys), (n, y, ys, x, xs)):
            if self._is_pointed(given[1]):
                args = (n, self._tangent(name_of(given[1])), *given[2:])
                term = self._held(Expr("dot", args, e.dtype, e.value))
                total = term if total is None else call("add", total, term)
        assert total is not None
        self._changes(result, total)

    def _reduction(self, result: Expr, e: Expr) -> None:
        data, n, step = e.args
        name = str(e.value[0])  # type: ignore[index]
        tangents = self._tangent(name_of(data))
        if name == "sum":
            self._changes(result, Expr("reduction", (tangents, n, step), e.dtype, e.value))
            return
        if name not in ("max", "min"):
            raise NotReversible(f"a tangent of {name}")
        total, count = self._fresh(e.dtype, "t"), self._fresh(e.dtype, "t")
        zero, one = const(0, e.dtype), const(1, e.dtype)
        self.body += [Set(str(total.value), zero), Set(str(count.value), zero)]

        def add(k: Expr) -> None:
            x, change = self._fresh(e.dtype, "t"), self._fresh(e.dtype, "t")
            self.body += [
                Load(str(x.value), Place(data, ((k, step),), e.dtype)),
                Load(str(change.value), Place(tangents, ((k, step),), e.dtype)),
            ]
            has_it = call("eq", x, result)
            self.body += [
                Set(str(total.value), Expr("select", (has_it, call("add", total, change), total), e.dtype)),
                Set(str(count.value), Expr("select", (has_it, call("add", count, one), count), e.dtype)),
            ]

        self._each(n, add)  # equal shares, where several have it
        self._changes(result, call("div", total, count))

    def _product(self, i: Require) -> None:
        c, m, n, k, left, a, a0, a1, right, b, b0, b1 = i.test.args
        dtype = {"f64": dtypes.float64, "f32": dtypes.float32}.get(str(i.test.value))
        if dtype is None:
            raise NotReversible("a tangent of such a product")
        into = self._tangent(name_of(c))
        changes = [
            (self._tangent(name_of(a)) if of_first else a, b if of_first else self._tangent(name_of(b)))
            for of_first in (True, False)
            if self._is_pointed(a if of_first else b)
        ]

        def multiply(at: Expr, first: Expr, second: Expr) -> None:
            args = (at, m, n, k, left, first, a0, a1, right, second, b0, b1)
            self.body.append(Require(Expr("matmul", args, BOOL, i.test.value), i.exit))

        size = Expr("exact_mul", (m, n), I64)
        if not changes:
            self._clear(into, Expr("exact_mul", (const(dtype.itemsize, I64), size), I64))
            return
        multiply(into, *changes[0])
        if len(changes) == 1:
            return
        memory, other = self._fresh(OWNED, "t"), self._fresh(POINTER, "t")
        self.body += [
            NewMemory(str(memory.value), dtype, (size,), i.exit),
            Set(str(other.value), Expr("data_of", (memory,), I64)),
        ]
        multiply(other, *changes[1])

        def add(k: Expr) -> None:
            x, y = self._fresh(dtype, "t"), self._fresh(dtype, "t")
            to, by = (Place(base, ((k, None),), dtype) for base in (into, other))
            self.body += [Load(str(x.value), to), Load(str(y.value), by), Store(to, call("add", x, y))]

        self._each(size, add)


__all__ = ["Tangent", "tangent_region"]
