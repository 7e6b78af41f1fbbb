"""Gradients of native loops: a region that runs as ever, keeps on a tape what the way back needs, and then goes that way.

On the way forward each block pushes the derivatives of what it computes, addresses of the elements that it reads and writes, and
by which edge the next block is entered.  The way back has a block for each: it pops these in the opposite order, adds to the
gradients of operands (``x_d`` of a variable, shadow memory of an array), and goes on with the block that control came from.
(Griewank and Walther, Evaluating Derivatives, 2008, chapters 4 and 6.)

What computes has a gradient by the op table (`ir/partials.py`).  What gets no gradient passes none back, also where its slope is
infinite.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, call, cast, const, var
from dynagraph.ir.passes.active_regions import DIFFERENTIABLE, OF_SUPPORT, ActiveRegion, NotReversible, function_of, name_of
from dynagraph.ir.passes.element_loops import ElementLoop, element_loops
from dynagraph.ir.passes.tidy_regions import tidied
from dynagraph.ir.region_liveness import Reads
from dynagraph.ir.region_loops import predecessors, split_edges
from dynagraph.ir.regions import (
    POINTER,
    Address,
    Block,
    Branch,
    Checked,
    Exit,
    Hold,
    Instruction,
    Interruptible,
    Jump,
    Leave,
    Load,
    NewMemory,
    Place,
    Pop,
    Push,
    Region,
    Release,
    Require,
    Reserve,
    Set,
    Store,
    VariableType,
    assigned,
)

I64, BOOL = dtypes.int64, dtypes.bool_
MOST = "tape_most"


@dataclass(frozen=True)
class Output:
    """What the region gives, a number, or the memory of a new array: its owner; `cotangent`: the gradient by it.

    Of a number: a variable; of memory: where the elements lie, and how many they are.
    """

    value: Expr
    cotangent: tuple[Expr, ...]
    dtype: DType


@dataclass(eq=False, repr=False)
class Reversed:
    """`region`: its first parameters are those of the given one; the last one: how many bytes the tape may take.  Its last two
    exits: gradients are there; memory ran out, or the tape would take more.

    `shadows`: for the data of each array by which a gradient is given, the parameter that says where that lies, which begins as the
    gradient by what the array holds at the end; these lie as the arrays do.  `numbers`: the numbers by which gradients are given,
    in the order of the exit's state, whose last part says how many bytes the tape has taken.
    """

    region: Region
    shadows: dict[str, str]
    numbers: list[str]


Ends = Mapping[int, Sequence[Output]]


def reversed_region(region: Region, varied: Iterable[str], results: Ends, parameters: dict[str, VariableType]) -> Reversed:
    """A region that computes gradients by the parameters `varied`: numbers, and addresses of arrays' data.

    `results`: what each exit gives by which control may leave; `parameters`: further parameters, that cotangents are.

    Raises NotReversible.
    """
    made = tidied(region)
    made.name = f"{region.name}_gradient"
    if made.functions or made.holds_gil:
        raise NotReversible("a gradient of lists, or of functions that call themselves")
    return _Reversal(made, set(varied), results, parameters).made()


@dataclass(eq=False)
class _Sides:
    """A block's instructions on the way forward, and groups of those on the way back, last ones last."""

    forward: list[Instruction] = field(default_factory=list)
    backward: list[list[Instruction]] = field(default_factory=list)


class _Reversal(ActiveRegion):
    def __init__(self, region: Region, varied: set[str], results: Ends, parameters: dict[str, VariableType]):
        self.results = results
        self.numbers = [p for p in region.parameters if p in varied and isinstance(region.variables[p], DType)]
        self.given = list(region.parameters)
        region.variables.update(parameters)
        region.parameters += parameters
        split_edges(region)
        super().__init__(region, varied)
        self.set_names = {name for i in region.instructions() if (name := getattr(i, "name", None)) is not None}
        self.adjoints: dict[str, str] = {}
        self.shadows: dict[str, str] = {}  # of variables that hold addresses
        self.shadow_parameters: dict[str, str] = {}
        self.sides = _Sides()
        self.by_element = False  # within an element loop: what was computed on the way forward is computed again
        self.before_elements: dict[Block, list[Instruction]] = {}  # at the end of a block that element loops are entered from

    def made(self) -> Reversed:
        region = self.region
        self.find_activity()
        last = Exit(len(region.exits))
        self.no_memory = Exit(len(region.exits) + 1)
        for exit in region.exits:
            exit.state = []
        region.exits += [last, self.no_memory]
        for name in self.given:
            if self._is_address(name) and not self.active_roots.isdisjoint(self.memory.before[region.blocks[0]][name]):
                self._shadow_parameter(name)
        region.variables[MOST] = I64
        region.parameters.append(MOST)
        before = predecessors(region.blocks)
        forward = list(region.blocks)
        backward = {b: Block(len(forward) + k) for k, b in enumerate(forward)}
        region.blocks += backward.values()
        loops = {loop.head: loop for loop in element_loops(region)}
        for loop in loops.values():
            self._reverse_elements(loop, backward)
        bodies = {loop.body for loop in loops.values()}
        for block in forward:
            if block not in loops and block not in bodies:
                self._reverse(block, before, backward, last)
        last.state = [*(self._adjoint(name) for name in self.numbers), Expr("tape", (var(MOST, I64),), I64, "taken")]
        region.blocks[0].body[:0] = [
            Set(str(self._fresh(BOOL).value), Expr("tape", (var(MOST, I64),), BOOL, "begin")),
            *(Set(name, const(0, region.variables[name])) for name in sorted(self.adjoints.values())),  # type: ignore[arg-type]
            *(Set(name, const(0, I64)) for name in sorted(set(self.shadows.values()) - set(region.parameters))),
        ]
        region.has_tape = True
        return Reversed(region, self.shadow_parameters, self.numbers)

    # -- names ----------------------------------------------------------------------------------------------------------------
    def _adjoint(self, name: str) -> Expr:
        """The gradient by a number."""
        kind = self.region.variables[name]
        assert isinstance(kind, DType)
        if name not in self.adjoints:
            self.adjoints[name] = f"{name}_d"
            self.region.variables[f"{name}_d"] = kind
        return var(self.adjoints[name], kind)

    def _shadow(self, name: str) -> Expr:
        """Where the gradients by the elements lie that an address is of."""
        if name not in self.shadows:
            self.shadows[name] = f"{name}_d"
            self.region.variables[f"{name}_d"] = POINTER
        return var(self.shadows[name], I64)

    def _shadow_parameter(self, name: str) -> None:
        self._shadow(name)
        self.shadow_parameters[name] = self.shadows[name]
        parts = {self.shadows[name]: POINTER, **{f"{name}_d{suffix}": I64 for suffix in ("n", "s", "w")}}
        self.region.variables.update(parts)  # type: ignore[arg-type]
        self.region.parameters += parts

    # -- control ----------------------------------------------------------------------------------------------------------------
    def _reverse(self, block: Block, entries: dict[Block, list[Block]], backward: dict[Block, Block], last: Exit) -> None:
        sides = self.sides = _Sides()
        self.at = dict(self.memory.before[block])
        for i in block.body:
            self._instruction(i)
            self.memory.step(self.at, i)
        back, before = backward[block], entries[block]
        end = block.end
        if block in self.before_elements:
            sides.forward += self.before_elements[block]
        elif isinstance(end, Jump) and len(entries[end.block]) > 1:
            sides.forward.append(Push(const(entries[end.block].index(block), I64)))
        elif isinstance(end, Leave) and end.exit.number in self.results:
            self._seed(self.results[end.exit.number])
            block.end = Jump(back)
        slots = sum(isinstance(i, Push) for i in sides.forward)
        back.line = block.line
        back.body = [i for group in reversed(sides.backward) for i in group]
        if slots:
            sides.forward.insert(0, Reserve(slots, self.no_memory))
            back.body.append(Release())
        block.body = sides.forward
        if not before:
            back.end = Leave(last)
            return
        if len(before) == 1:
            back.end = Jump(backward[before[0]])
            return
        came = self._fresh(I64, "e")
        back.body.append(Pop(str(came.value)))
        for k, previous in enumerate(before[:-1]):
            following = Block(len(self.region.blocks)) if k < len(before) - 2 else backward[before[-1]]
            back.end = Branch(call("eq", came, const(k, I64)), backward[previous], following)
            if k < len(before) - 2:
                self.region.blocks.append(following)
                back = following

    def _seed(self, outputs: Sequence[Output]) -> None:
        """The way back begins with the gradients by what is given: these come last of what it is, in reverse."""
        group: list[Instruction] = []
        for output in outputs:
            value = self._value(output.value)
            name = name_of(value) if value.op == "var" else ""
            if name in self.active:
                group += self._add(self._adjoint(name), output.cotangent[0])
            elif name and self._is_address(name) and self._is_pointed(value):
                data, count = output.cotangent
                group.append(self._do("add", output.dtype, self._shadow(name), data, count))
        self.sides.backward.append(group)

    # -- array expressions ------------------------------------------------------------------------------------------------------
    def _reverse_elements(self, loop: ElementLoop, backward: dict[Block, Block]) -> None:
        """The way back of an element loop goes from the last element to the first, and computes each of them again.

        So what is kept are variables, once for the loop, and copies of elements that are read, where these may be written to later.
        """
        body = loop.body.body
        sides = self.sides = _Sides()
        self.at = self.memory.before[loop.body]
        self.by_element = True
        for i in body:
            if not isinstance(i, Interruptible) and assigned(i) != loop.counter:
                self._instruction(i)
        self.by_element = False
        back = [i for group in reversed(sides.backward) for i in group]
        needed = Reads().by_each(back) | Reads().of(loop.end)
        again, copies = self._computed_again(loop, set(needed))
        needed |= Reads().by_each(again)
        own = {loop.counter, *self.adjoints.values(), *(n for i in (*again, *back) if (n := assigned(i)))}
        held = [n for n in sorted(needed - own) if not self._stays(n)]
        looks = [i for i in body if isinstance(i, Interruptible)][:1]
        zeros = [self._zero(var(n, I64)) for i in sides.forward if (n := assigned(i)) in self.adjoints]
        self.before_elements[loop.entry] = [*looks, *copies, *(self._push(n) for n in held)]
        loop.body.body = [*sides.forward, *(i for i in body if assigned(i) == loop.counter)]
        first, turn = backward[loop.head], backward[loop.body]
        test = Block(len(self.region.blocks), first.line)
        self.region.blocks.append(test)
        one = const(1, I64)
        first.body = [*looks, *(Pop(n) for n in reversed(held)), Set(loop.counter, Expr("exact_sub", (loop.end, one), I64))]
        turn.body = [*zeros, *again, *back, Set(loop.counter, Expr("exact_sub", (loop.index, one), I64))]
        first.end = turn.end = Jump(test)
        test.end = Branch(call("ge", loop.index, const(loop.start, I64)), turn, backward[loop.entry])

    def _computed_again(self, loop: ElementLoop, needed: set[str]) -> tuple[list[Instruction], list[Instruction]]:
        """What computes the variables `needed` of a turn, and what makes room for copies before the loop: the turn fills them."""
        again: list[Instruction] = []
        room: list[Instruction] = []
        known: dict[object, Place] = {}
        for i in reversed(list(self.sides.forward)):
            if not isinstance(i, (Set, Load)) or i.name not in needed:
                continue
            if isinstance(i, Load) and not self.memory.written.isdisjoint(self._roots(i.place.base)):
                key = (i.place.base, i.place.steps, i.place.dtype)
                if key not in known:
                    known[key] = self._room(loop, i.place.dtype, room)
                    at = self.sides.forward.index(i) + 1
                    self.sides.forward.insert(at, Store(known[key], var(i.name, i.place.dtype)))
                i = Load(i.name, known[key])
            again.insert(0, i)
            needed |= Reads().by(i)
        return again, room

    def _room(self, loop: ElementLoop, dtype: DType, room: list[Instruction]) -> Place:
        """Of a copy of what turns load."""
        copy = self._fresh(POINTER)
        some = call("gt", loop.end, const(0, I64))
        size = call("select", some, Expr("exact_mul", (loop.end, const(dtype.itemsize, I64)), I64), const(0, I64))
        room.append(Set(str(copy.value), Expr("tape", (size,), I64, "take")))
        room.append(Require(call("ne", copy, const(0, I64)), self.no_memory))
        return Place(copy, ((loop.index, None),), dtype)

    def _push(self, name: str) -> Push:
        kind = self.region.variables[name]
        if not isinstance(kind, DType):
            return Push(var(name, I64), pointer=True)
        return Push(cast(var(name, kind), I64) if kind.is_bool else var(name, kind))

    # -- instructions -----------------------------------------------------------------------------------------------------------
    def _instruction(self, i: Instruction) -> None:
        forward = self.sides.forward
        if isinstance(i, (Set, Hold)):
            if self._is_address(i.name):
                forward.append(i)
                if self._makes(i):
                    forward += self._shadowed(i)
            elif i.name in self.active:
                self._assign(i.name, self._value(i.value))
            else:
                forward.append(i)
        elif isinstance(i, Checked) and i.name in self.active:
            self._checked(i)
        elif isinstance(i, Load) and i.name in self.active:
            self._load(i)
        elif isinstance(i, Store):
            self._store(i)
        elif isinstance(i, Address):
            if self._is_pointed(i.place.base):
                forward.append(Address(str(self._shadow(i.name).value), self._shadow_place(i.place)))
            forward.append(i)
        elif isinstance(i, NewMemory):
            forward.append(i)
            if self._makes(i):
                size = const(i.dtype.itemsize, I64)
                for n in i.sizes:
                    size = Expr("exact_mul", (size, n), I64)
                forward += self._zeros(self._shadow(i.name), size)
        elif isinstance(i, Require) and i.test.op == "matmul" and self._is_pointed(i.test.args[0]):
            forward.append(i)
            self._product(i.test)
        elif isinstance(i, Interruptible):
            forward.append(i)
            self.sides.backward.append([i])
        else:
            forward.append(i)

    def _shadowed(self, i: Set | Hold) -> list[Instruction]:
        """The same of the addresses of gradients."""
        name, e = self._shadow(i.name), i.value
        if e.op == "memory":
            return self._zeros(name, call("select", e.args[0], const(0, I64), e.args[1]))
        return [Set(str(name.value), self._shadow_of(e))]

    def _shadow_of(self, e: Expr) -> Expr:
        if e.op == "var":
            return self._shadow(str(e.value))
        if e.op == "data_of":
            return self._shadow_of(e.args[0])
        if e.op == "select":
            return Expr("select", (e.args[0], self._shadow_of(e.args[1]), self._shadow_of(e.args[2])), e.dtype)
        raise NotReversible(f"an address by {e.op}")

    def _zeros(self, name: Expr, size: Expr) -> list[Instruction]:
        made = Set(str(name.value), Expr("tape", (size,), I64, "zeros"))
        return [made, Require(call("ne", name, const(0, I64)), self.no_memory)]

    def _shadow_place(self, place: Place) -> Place:
        return Place(self._shadow(name_of(place.base)), place.steps, place.dtype)

    # -- numbers ----------------------------------------------------------------------------------------------------------------
    def _value(self, e: Expr) -> Expr:
        """An expression as a variable or constant, each step of which has a gradient, or as it is where it has none."""
        if e.op in ("var", "const"):
            return e
        if not self._depends(e):
            return e
        if e.dtype not in DIFFERENTIABLE:
            raise NotReversible(f"a gradient of {e.dtype}")
        if e.op in ("dot", "reduction"):
            result = self._fresh(e.dtype)
            self.active.add(str(result.value))
            self.sides.forward.append(Set(str(result.value), e))
            (self._dot if e.op == "dot" else self._reduction)(result, e)
            return result
        args = [e.args[0], *map(self._value, e.args[1:])] if e.op == "select" else list(map(self._value, e.args))
        held = [a if a.op in ("var", "const") else self._held(a) for a in args]
        result = self._fresh(e.dtype)
        self.active.add(str(result.value))
        self.sides.forward.append(Set(str(result.value), Expr(e.op, tuple(held), e.dtype, e.value)))
        if e.op == "select":
            self._chosen(result, held)
        elif e.op == "cast":
            own = self._adjoint(name_of(result))
            self.sides.backward.append([*self._add(self._adjoint(name_of(held[0])), own), self._zero(result)])
        else:
            self._computed(result, OF_SUPPORT.get(e.op, e.op), held)
        return result

    def _held(self, e: Expr) -> Expr:
        made = self._fresh(e.dtype)
        self.sides.forward.append(Set(str(made.value), e))
        return made

    def _assign(self, name: str, value: Expr) -> None:
        """``name = value``, which gets the gradient of the name."""
        self.sides.forward.append(Set(name, value))
        own = self._adjoint(name)
        group: list[Instruction] = []
        if value.op == "var" and str(value.value) in self.active:
            if value.value == name:
                return
            held = self._fresh(own.dtype)
            group += [Set(str(held.value), own), Set(str(own.value), const(0, own.dtype))]
            group += self._add(self._adjoint(str(value.value)), held)
        else:
            group.append(Set(str(own.value), const(0, own.dtype)))
        self.sides.backward.append(group)

    def _zero(self, value: Expr) -> Instruction:
        own = self._adjoint(name_of(value))
        return Set(str(own.value), const(0, own.dtype))

    def _add(self, to: Expr, what: Expr) -> list[Instruction]:
        return [Set(str(to.value), call("add", to, cast(what, to.dtype)))]

    def _computed(self, result: Expr, function: str, operands: Sequence[Expr]) -> None:
        """What `function` gives for operands, all of them variables or constants, now is in `result`."""
        own = self._adjoint(name_of(result))
        group: list[Instruction] = []
        pops: list[Instruction] = []
        for operand, partial in self._slopes(result, function, operands):
            to = self._adjoint(str(operand.value))
            if partial.op == "const":
                what = own if partial.value == 1 else call("neg", own) if partial.value == -1 else call("mul", own, partial)
                group += self._add(to, what)
                continue
            slope = self._kept(partial, pops)
            some = call("ne", own, const(0, own.dtype))
            group.append(Set(str(to.value), call("select", some, call("add", to, cast(call("mul", own, slope), to.dtype)), to)))
        self.sides.backward.append([*pops[::-1], *group, self._zero(result)])

    def _chosen(self, result: Expr, args: Sequence[Expr]) -> None:
        own = self._adjoint(name_of(result))
        pops: list[Instruction] = []
        test = self._kept(args[0], pops)
        group: list[Instruction] = []
        for value, holds in ((args[1], True), (args[2], False)):
            if value.op == "var" and str(value.value) in self.active:
                to = self._adjoint(str(value.value))
                more = call("add", to, own)
                group.append(Set(str(to.value), call("select", test, more, to) if holds else call("select", test, to, more)))
        self.sides.backward.append([*pops[::-1], *group, self._zero(result)])

    def _kept(self, e: Expr, pops: list[Instruction]) -> Expr:
        """An expression as it is now, on the way back: pushed, unless it stays what it is."""
        if self.by_element or all(x.op != "var" or self._stays(str(x.value)) for x in e.walk()):
            return e
        pointer = e.op == "var" and self._is_address(str(e.value))
        kind: DType | str = POINTER if pointer else e.dtype
        name = self._fresh(kind)
        self.sides.forward.append(Push(cast(e, I64) if e.dtype.is_bool else e, pointer))
        pops.append(Pop(str(name.value)))
        return name

    def _stays(self, name: str) -> bool:
        """Whether a variable is set nowhere."""
        return name in self.region.parameters and name not in self.set_names

    def _checked(self, i: Checked) -> None:
        function, rest, args = function_of(i)
        held = [a if a.op in ("var", "const") and a.value != i.name else self._held(a) for a in map(self._value, args)]
        result = self._fresh(self.region.variables[i.name])
        self.active.add(str(result.value))
        self.sides.forward.append(Checked(str(result.value), i.function, (*rest, *held), i.exit))
        self._computed(result, function, held)
        self._assign(i.name, result)

    # -- elements -----------------------------------------------------------------------------------------------------------------
    def _load(self, i: Load) -> None:
        own = self._adjoint(i.name)
        if not self._is_pointed(i.place.base):
            self.sides.forward.append(i)
            self.sides.backward.append([Set(str(own.value), const(0, own.dtype))])
            return
        place, pops = self._address(i.place)
        self.sides.forward.append(i)
        before = self._fresh(own.dtype)
        group = [
            *pops,
            Load(str(before.value), place),
            Store(place, call("add", before, own)),
            Set(str(own.value), const(0, own.dtype)),
        ]
        self.sides.backward.append(group)

    def _store(self, i: Store) -> None:
        if not i.place.dtype.is_inexact or not self._is_pointed(i.place.base):
            self.sides.forward.append(i)
            return
        value = self._value(i.value)
        place, pops = self._address(i.place)
        self.sides.forward.append(Store(i.place, value))
        group: list[Instruction] = [*pops]
        if value.op == "var" and str(value.value) in self.active:
            given = self._fresh(i.place.dtype)
            group += [Load(str(given.value), place), *self._add(self._adjoint(str(value.value)), given)]
        group.append(Store(place, const(0, i.place.dtype)))
        self.sides.backward.append(group)

    def _address(self, place: Place) -> tuple[Place, list[Instruction]]:
        """Where the gradient by an element lies, on the way back."""
        shadow = self._shadow_place(place)
        parts = [shadow.base, *(e for step in shadow.steps for e in step if e is not None)]
        if self.by_element or all(e.op == "const" or (e.op == "var" and self._stays(str(e.value))) for e in parts):
            return shadow, []
        now, then = self._fresh(POINTER), self._fresh(POINTER)
        self.sides.forward += [Address(str(now.value), shadow), Push(now, pointer=True)]
        return Place(then, (), place.dtype), [Pop(str(then.value))]

    # -- whole arrays -------------------------------------------------------------------------------------------------------------
    def _do(self, name: str, dtype: DType, *args: Expr) -> Instruction:
        return Set(str(self._fresh(BOOL).value), Expr("tape", args, BOOL, f"{name}_{dtype.suffix}"))

    def _elements(self, dtype: DType, matrix: tuple[Expr, ...], pops: list[Instruction]) -> tuple[Expr, ...]:
        """Address and strides of a matrix ``(data, rows, columns, stride, stride)`` whose elements are as they are now."""
        data, m, n, s0, s1 = matrix
        if self.memory.written.isdisjoint(self._roots(data)):
            return tuple(self._kept(e, pops) for e in (data, s0, s1))
        copy = self._fresh(POINTER)
        made = Set(str(copy.value), Expr("tape", (data, m, n, s0, s1), I64, f"copy_{dtype.suffix}"))
        self.sides.forward += [made, Require(call("ne", copy, const(0, I64)), self.no_memory)]
        size = const(dtype.itemsize, I64)
        return self._kept(copy, pops), self._kept(Expr("exact_mul", (size, n), I64), pops), size

    def _dot(self, result: Expr, e: Expr) -> None:
        n, x, xs, y, ys = e.args
        own, one = self._adjoint(name_of(result)), const(1, I64)
        pops: list[Instruction] = []
        count = self._kept(n, pops)
        group: list[Instruction] = []
        for to, step, other, its in ((x, xs, y, ys), (y, ys, x, xs)):
            if self._is_pointed(to):
                data, _, stride = self._elements(e.dtype, (other, one, n, one, its), pops)
                shadow, by = self._kept(self._shadow(name_of(to)), pops), self._kept(step, pops)
                group.append(self._do("axpy", e.dtype, count, own, shadow, by, data, stride))
        self.sides.backward.append([*pops[::-1], *group, self._zero(result)])

    def _reduction(self, result: Expr, e: Expr) -> None:
        data, n, step = e.args
        name = str(e.value[0])  # type: ignore[index]
        own = self._adjoint(name_of(result))
        pops: list[Instruction] = []
        given = self._kept(self._shadow(name_of(data)), pops), self._kept(n, pops), self._kept(step, pops)
        if name == "sum":
            todo = self._do("spread", e.dtype, own, *given)
        elif name in ("max", "min"):
            one, size = const(1, I64), const(e.dtype.itemsize, I64)
            copy = self._fresh(POINTER)
            made = Set(str(copy.value), Expr("tape", (data, one, n, size, step), I64, f"copy_{e.dtype.suffix}"))
            self.sides.forward += [made, Require(call("ne", copy, const(0, I64)), self.no_memory)]
            extreme, elements = self._kept(result, pops), self._kept(copy, pops)
            todo = self._do("share", e.dtype, own, extreme, *given, elements)
        else:
            raise NotReversible(f"a gradient of {name}")
        self.sides.backward.append([*pops[::-1], todo, self._zero(result)])

    def _product(self, e: Expr) -> None:
        c, m, n, k, _, a, a0, a1, _, b, b0, b1 = e.args
        dtype = {"f64": dtypes.float64, "f32": dtypes.float32}.get(str(e.value))
        if dtype is None:
            raise NotReversible("a gradient of such a product")
        pops: list[Instruction] = []
        zero = const(0, I64)
        counts = [self._kept(x, pops) for x in (self._shadow(name_of(c)), m, n, k)]
        shadows: list[Expr] = []
        for array, s0, s1 in ((a, a0, a1), (b, b0, b1)):
            if self._is_pointed(array):
                shadows += [self._kept(x, pops) for x in (self._shadow(name_of(array)), s0, s1)]
            else:
                shadows += [zero, zero, zero]
        elements: list[Expr] = []
        needed = (self._is_pointed(b), self._is_pointed(a))
        for matrix, wanted in zip(((a, m, k, a0, a1), (b, k, n, b0, b1)), needed):
            elements += self._elements(dtype, matrix, pops) if wanted else (zero, zero, zero)
        self.sides.backward.append([*pops[::-1], self._do("product", dtype, *counts, *shadows, *elements)])


__all__ = ["NotReversible", "Output", "Reversed", "reversed_region"]
