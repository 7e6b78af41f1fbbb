"""Functions that call themselves: machine code calls machine code, with numbers, tuples, lists and arrays for arguments.

Such a function changes nothing that can be seen from outside but elements of arrays, of which it keeps what they were.  Where its
code cannot go on, or the stack would become too deep, all calls are given up: what they have changed is put back, and Python does
the outermost one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dynagraph.frontend.bytecode.decode import Program
from dynagraph.frontend.executor.executor import Frame as CapturedFrame
from dynagraph.frontend.executor.executor import Function
from dynagraph.frontend.loops.builder import Builder, Frame, Way, variable
from dynagraph.frontend.loops.lists import item_kind, load_items
from dynagraph.frontend.loops.operators import NotNative, describe, number
from dynagraph.frontend.loops.types import INT, NOTHING, Array, Int, Known, Nothing, Text, Tuple, Type, Value, width_of
from dynagraph.ir.expr import Expr
from dynagraph.ir.regions import POINTER, CallFunction, Exit, Leave, Place, Region, Store

MOST_FUNCTIONS = 8


@dataclass(eq=False)
class Recursive:
    """A function for one combination of its arguments' types.  `result` is None until it is known."""

    number: int
    result: Type | None = None
    region: Region | None = None
    failed: str = ""


@dataclass(eq=False)
class Recursives:
    """Those of one native loop."""

    found: dict[Any, Recursive] = field(default_factory=dict)
    n: int = 0

    def regions(self) -> list[Region]:
        return [r.region for r in self.found.values() if r.region is not None]

    @property
    def keep(self) -> bool:
        """Whether they write to arrays."""
        return any(region.keeps for region in self.regions())


def call(b: Builder, function: Function, program: Program, arguments: dict[str, Value]) -> Value:
    """A call of a function whose code is already under way."""
    names = sorted(arguments)
    kinds = tuple(_passed(arguments[n].type) for n in names)
    known = b.recursives.found
    key = (id(program), tuple(map(id, function.closure)), tuple(names), kinds)
    found = known.get(key)
    if found is None:
        if b.recursives.n >= MOST_FUNCTIONS:
            raise NotNative(f"{function.name} calls itself with too many types")
        found = known[key] = Recursive(b.recursives.n)
        b.recursives.n += 1
        _make(b, found, function, program, dict(zip(names, kinds)))
    if found.failed:
        raise NotNative(found.failed)
    if found.result is None:
        raise NotNative(f"{function.name} calls itself")  # within itself, while its result is looked for
    if b.recursives.keep:
        b.calls_what_keeps()
    pointer = b.fresh(POINTER)
    parts = tuple(p for n in names for p in arguments[n].parts)
    b.emit(CallFunction(pointer, found.number, parts, width_of(found.result), b.way_out()))
    return load_items(b, variable(pointer, POINTER), number(0), found.result)


def _passed(kind: Type) -> Type:
    """The type in which a value is an argument."""
    if isinstance(kind, Array) and kind.made:
        raise NotNative("a new array is given to a function that calls itself")
    if isinstance(kind, (Nothing, Known, Array, Text)):
        return kind
    return INT if isinstance(kind, Int) else item_kind(kind)


def _make(b: Builder, found: Recursive, function: Function, program: Program, kinds: dict[str, Type]) -> None:
    before = set(b.recursives.found)
    try:
        _, result = _built(b, function, program, kinds)
        _forget(b, before)  # they were made without the result
        found.result = result
        found.region, result = _built(b, function, program, kinds)
        if result != found.result:
            raise NotNative("results of several types")
        found.region.number, found.region.width = found.number, width_of(found.result)
    except NotNative as refusal:
        _forget(b, before)
        found.failed, found.result, found.region = f"{function.name} calls itself: {refusal}", None, None


def _built(b: Builder, function: Function, program: Program, kinds: dict[str, Type]) -> tuple[Region, Type]:
    builder = _FunctionBuilder(b, function, program, kinds)
    try:
        return builder.run(), builder.result()
    finally:  # a cycle
        builder.on_parameter = builder.on_outside = builder.on_text = None


def _forget(b: Builder, before: set[Any]) -> None:
    for key in set(b.recursives.found) - before:
        del b.recursives.found[key]


class _FunctionBuilder(Builder):
    """Builds a function: its first exit gives all up, the others are its returns."""

    def __init__(self, b: Builder, function: Function, program: Program, kinds: dict[str, Type]):
        start = Frame(program, function, CapturedFrame(b.ex, function, {}, 1, program), whole=True)
        super().__init__(b.ex, [start], function.name)
        self.parent, self.sites, self.recursives, self.on_recursion = b, b.sites, b.recursives, b.on_recursion
        self.fields = b.fields
        self.given_up = Exit(0)
        self.region.exits.append(self.given_up)
        self.changes = ""
        self.results: set[Type] = set()
        self.on_parameter = lambda value: self._shared(b.native(value))
        self.on_outside = lambda value: self._shared(b.outside(value))
        if b.on_text is not None:
            on_text = b.on_text
            self.on_text = lambda value: self._shared(on_text(value))
        for k, (name, kind) in enumerate(kinds.items()):
            parts = []
            for suffix, part in kind.parts:
                full = f"a{k}_{suffix}"
                self.region.variables[full] = part
                self.region.parameters.append(full)
                parts.append(variable(full, part))
            start.locals[name] = Value(kind, tuple(parts))
        self.region.arguments = list(self.region.parameters)

    def _shared(self, value: Value) -> Value:
        """What was given to the loop is there in its functions, too."""
        region, given = self.region, self.parent.region
        for e in (e for part in value.parts for e in part.walk() if e.op == "var"):
            name = str(e.value)
            if name not in region.variables:
                region.variables[name] = given.variables[name]
                region.parameters.append(name)
        return value

    def result(self) -> Type:
        if self.changes:
            raise NotNative(self.changes)
        if len(self.results) != 1:
            raise NotNative("results of several types" if self.results else "no call of it ends")
        (found,) = self.results
        return found

    def store(self, place: Place, value: Expr, given: bool = True) -> None:
        """What it makes itself may be gone where it gives up: nothing can be put back there."""
        self.emit(Store(place, value, kept=given))

    def calls_what_keeps(self) -> None:
        """What that has changed is put back where this gives up."""

    def effect(self) -> None:
        self.changes = "it changes something"
        raise NotNative(self.changes)

    def exit_of(self, way: Way) -> Exit:
        return self.given_up

    def leave_with(self, value: Value) -> None:
        kind = value.type if isinstance(value.type, Nothing) else item_kind(value.type)
        if isinstance(kind, Tuple) and not kind.items:
            raise NotNative(f"the result is {describe(kind)}")
        self.results.add(NOTHING if isinstance(kind, Nothing) else kind)
        found = Exit(len(self.region.exits), list(value.parts))
        self.region.exits.append(found)
        self.end(Leave(found))
